"""Processes of `multiprocessing` that come to tensorferry late: in the function that they run, or too late."""

import multiprocessing
import multiprocessing.util
import os
import signal
import subprocess
import sys
import warnings

if __name__ == "__main__":
    from link import say


def late(answers):
    import tensorferry

    tensor = tensorferry.empty(1000, "uint8")
    memoryview(tensor)[:] = bytes([3]) * 1000
    answers.put(tensor.freeze())


def imported_late(context):
    """Neither its parent nor its main module have imported it. What it has pickled is waited for all the same."""
    answers = context.SimpleQueue()
    process = context.Process(target=late, args=(answers,))
    process.start()
    process.join(0.3)
    assert process.is_alive(), "it did not wait"
    assert set(memoryview(answers.get())) == {3}
    process.join(60)
    assert process.exitcode == 0


def warned(warnings_of_it, answers):
    def tell(message, *_):
        warnings_of_it.send(str(message))

    warnings.showwarning = tell
    late(answers)


def not_received(context):
    """What nobody receives is waited for for ten seconds, and warned of."""
    answers, (heard, warnings_of_it) = context.SimpleQueue(), context.Pipe(duplex=False)
    process = context.Process(target=warned, args=(warnings_of_it, answers))
    process.start()
    assert "were not received within" in heard.recv()
    process.join(60)
    assert process.exitcode == 0


def made_early(context):
    """A main module that makes tensors when it is imported."""
    heard, answer = context.Pipe(duplex=False)
    process = context.Process(target=early_warning, args=(answer,))
    process.start()
    assert "when the main module was imported" in heard.recv()
    process.join(60)


def early_warning(answer):
    answer.send(" ".join(CAUGHT))


def leave_behind(answers, ending):
    late(answers)
    multiprocessing.util.Finalize(None, ending.send, args=("ending",), exitpriority=-50)


def leaver(context, how):
    answers, (heard, ending) = context.SimpleQueue(), context.Pipe(duplex=False)
    context.Process(target=leave_behind, args=(answers, ending)).start()
    assert heard.recv() == "ending"
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)


def parents_that_end():
    """Nobody waits for a parent that ends, or was killed, to receive something."""
    for how, code in (("ends", 0), ("killed", -signal.SIGKILL)):
        done = subprocess.run([sys.executable, __file__, "--late", how], capture_output=True, text=True, timeout=60)
        assert (done.returncode, "not received" in done.stderr) == (code, False), done


CAUGHT = []
if "--early" in sys.argv:
    import tensorferry

    warnings.showwarning = lambda message, *_: CAUGHT.append(str(message))
    EARLY = tensorferry.zeros(1)

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    if sys.argv[2:]:
        import tensorferry

        leaver(context, sys.argv[2])
        sys.exit()
    if "--early" in sys.argv:
        made_early(context)
    else:
        parents_that_end()
        imported_late(context)
        not_received(context)
    say("done")
