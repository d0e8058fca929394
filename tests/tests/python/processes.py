"""Tensors and queues in what `multiprocessing` pickles."""

import concurrent.futures
import multiprocessing
import multiprocessing.util
import os
import pickle
import signal
import sys
import warnings

import tensorferry
from expect import raises

if __name__ == "__main__":
    # Not in the processes that are started, which have no link.
    from link import say


def filled(element, n=1000):
    tensor = tensorferry.empty(n, "uint8")
    memoryview(tensor)[:] = bytes([element]) * n
    return tensor


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
    assert "memory of its own" in text, text


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
    raises(ConnectionError, lambda: pickle.loads(data), "was taken already")
    box = tensorferry.Queue(1)
    pickle.loads(pickler.dumps(box)).put(7)
    assert box.get_nowait() == 7


if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    for test in (made_there, arguments, received_late, pools, generations, without_parent):
        test(context)
    refused()
    say("done")
