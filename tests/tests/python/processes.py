"""Tensors and queues in what `multiprocessing` pickles."""

import concurrent.futures
import multiprocessing
import multiprocessing.util
import os
import pickle
import signal
import sys
import threading
import warnings

import tensorferry
from expect import raises
from filled import filled

if __name__ == "__main__":
    # Not in the processes that are started, which have no link.
    from link import say


def elements(tensor):
    seen = set(memoryview(tensor))
    assert len(seen) == 1, seen
    return seen.pop()


def work(frozen, shared, jobs, results, answers):
    """Gets everything as arguments; `results` is a queue of tensorferry, `answers` one of Python."""
    total = sum(memoryview(frozen))
    for job in jobs:
        memoryview(shared)[job] = 1
        # An exclusive tensor goes only where its memory is the receiver's too.
        results.put(filled(job))
    answers.put({"total": total, "made here": filled(7).freeze(), "queue": results})
    assert tensorferry.bytes_copied() == 0


def arguments(context):
    answers = context.SimpleQueue()
    shared = tensorferry.zeros(3, "uint8").share()
    jobs, theirs = tensorferry.channel(4)
    results_of_theirs, results = tensorferry.channel(4)
    process = context.Process(target=work, args=(filled(2).freeze(), shared, theirs, results_of_theirs, answers))
    process.start()
    del theirs, results_of_theirs
    for job in range(3):
        jobs.put(job)
    del jobs
    assert [elements(results.get(timeout=60)) for _ in range(3)] == [0, 1, 2]
    answer = answers.get()
    assert (answer["total"], elements(answer["made here"])) == (2000, 7)
    assert memoryview(shared).tolist() == [1, 1, 1]
    # The end that came back is the last one when its process has ended.
    process.join(60)
    assert process.exitcode == 0
    answer["queue"].put("mine")
    assert results.get(timeout=60) == "mine"
    del answer
    # It was not killed, says whoever waits for it.
    raises(tensorferry.Closed, lambda: results.get(timeout=60), "has let go of it")
    raises(EOFError, lambda: results.get_nowait(), "")
    assert tensorferry.bytes_copied() == 0


def last_words(answers, ending):
    answers.put(filled(3).freeze())
    # After the thread of `answers` has written, before the process waits for what it has pickled.
    multiprocessing.util.Finalize(None, ending.send, args=("ending",), exitpriority=-50)


def received_late(context):
    """What a process has pickled outlives it, if it is not received much too late."""
    answers, (heard, ending) = context.Queue(), context.Pipe(duplex=False)
    process = context.Process(target=last_words, args=(answers, ending))
    process.start()
    assert heard.recv() == "ending"
    process.join(0.2)
    assert process.is_alive(), "it did not wait"
    assert elements(answers.get()) == 3
    process.join(60)
    assert process.exitcode == 0


def doubled(tensor):
    assert tensorferry.bytes_copied() == 0
    return filled(2 * elements(tensor)).freeze()


def numbered(number):
    return filled(number).freeze()


def made_there(context):
    """What a process makes that was given nothing lies in its parent's memory."""
    box = tensorferry.Queue(4)
    with context.Pool(2) as pool:
        for number, tensor in enumerate(pool.imap(numbered, range(4))):
            box.put(tensor)
            assert elements(box.get_nowait()) == number
        pool.close()
        pool.join()
    assert tensorferry.bytes_copied() == 0


def pools(context):
    tensors = [filled(number).freeze() for number in range(8)]
    with context.Pool(2, maxtasksperchild=1) as pool:
        assert [elements(tensor) for tensor in pool.map(doubled, tensors, chunksize=1)] == list(range(0, 16, 2))
        pool.close()
        pool.join()
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        assert elements(pool.submit(doubled, tensors[5]).result(60)) == 10


class Gone:
    """Arrives as something that cannot be received."""

    def __reduce__(self):
        return tensorferry._received, ("tf1-1-1-1-1-0",)


def gone(_number):
    return Gone()


def lost_in_pools(context):
    """What is lost is an error of whoever uses it, and no pool waits for ever."""
    with context.Pool(1) as pool:
        raises(OSError, lambda: pool.apply_async(len, (Gone(),)).get(60), "cannot connect")
        assert isinstance(pool.apply_async(gone, (1,)).get(60), tensorferry.Lost)
        assert elements(pool.apply_async(numbered, (3,)).get(60)) == 3
        pool.close()
        pool.join()


class Unreadable:
    def __reduce__(self):
        return int, ("no number",)


def never_received(context):
    """What a process could not read because it failed before is let go of."""
    putting, getting = tensorferry.channel(1)
    process = context.Process(target=print, args=(Unreadable(), putting))
    process.start()
    del putting
    raises(tensorferry.Closed, lambda: getting.get(timeout=60), "has let go of it")
    process.join(60)
    assert process.exitcode == 1
    # Nor is one that cannot be started.
    putting, getting = tensorferry.channel(1)
    raises(Exception, context.Process(target=print, args=(putting, lambda: 0)).start, "")
    del putting
    raises(tensorferry.Closed, lambda: getting.get(timeout=60), "has let go of it")


def killed_later(putting, told):
    def put_and_be_killed():
        told.recv()
        putting.put(1)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=put_and_be_killed).start()
    # After whatever happens at the end of a process.
    multiprocessing.util.Finalize(None, told.send, args=("ending",), exitpriority=-1000)


def threads_go_on(context):
    """A process has not ended while a thread of it has something to do."""
    putting, getting = tensorferry.channel(1)
    tell, told = context.Pipe()
    process = context.Process(target=killed_later, args=(putting, told))
    process.start()
    del putting
    # CPython from 3.13 on waits for the thread before, and the library otherwise.
    assert not tell.poll(0.2), "it did not wait"
    tell.send("go on")
    assert getting.get(timeout=60) == 1
    raises(tensorferry.PeerDied, lambda: getting.get(timeout=60), "died or was killed")
    process.join(60)


def grandchild(tensor, answers):
    answers.put(doubled(tensor))


def child(context_name, tensor, answers):
    context = multiprocessing.get_context(context_name)
    process = context.Process(target=grandchild, args=(tensor, answers))
    process.start()
    process.join(60)
    assert process.exitcode == 0


def generations(context):
    answers = tensorferry.Queue(1)
    process = context.Process(target=child, args=(context.get_start_method(), filled(4).freeze(), answers))
    process.start()
    assert elements(answers.get(timeout=60)) == 8
    process.join(60)
    assert process.exitcode == 0


def orphan(ready):
    ready.send(os.getpid())
    multiprocessing.parent_process().join(60)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert elements(filled(5)) == 5
    ready.send([str(warning.message) for warning in caught])


def mother(context_name, ready):
    multiprocessing.get_context(context_name).Process(target=orphan, args=(ready,)).start()
    signal.pause()


def without_parent(context):
    """A process whose parent is gone before it needs memory has memory of its own, and is told."""
    heard, ready = context.Pipe(duplex=False)
    process = context.Process(target=mother, args=(context.get_start_method(), ready))
    process.start()
    heard.recv()
    process.kill()
    process.join()
    del ready
    [text] = heard.recv()
    assert "does not share the memory of its parent" in text, text
    # The kernel closes the sentinel of who was killed before its socket, or after it.
    assert "cannot connect" in text or "it went away" in text, text


def refused():
    """What cannot be pickled, and by whom."""
    pickler = multiprocessing.reduction.ForkingPickler
    exclusive = filled(1)
    raises(TypeError, lambda: pickler.dumps(exclusive), "freeze() or share() it")
    assert elements(exclusive) == 1
    frozen = exclusive.freeze()
    # Kept pickles are read more than once, or never.
    raises(TypeError, lambda: pickle.dumps(frozen), "pickle")
    data = pickler.dumps(frozen)
    assert elements(pickle.loads(data)) == 1
    lost = pickle.loads(data)
    for use in (lambda: lost.shape, lambda: lost.__dlpack__(), lambda: lost.put(1), lambda: len(lost),
                lambda: list(lost)):
        raises(ConnectionError, use, "was taken already")
    assert "was taken already" in repr(lost) and not hasattr(lost, "__fspath__")
    raises(TypeError, lambda: tensorferry.Queue(1).put(lost), "was taken already")
    box = tensorferry.Queue(1)
    pickle.loads(pickler.dumps(box)).put(7)
    assert box.get_nowait() == 7
    # Other picklers of processes than that of `multiprocessing` meet it too.
    parent = multiprocessing.current_process()._config["tensorferry"]
    assert type(pickle.loads(pickle.dumps(parent))) is type(parent)


if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    for test in (made_there, arguments, received_late, pools, lost_in_pools, never_received, threads_go_on,
                 generations, without_parent):
        test(context)
    refused()
    say("done")
