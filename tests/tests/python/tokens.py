"""Values that one process takes by a token."""

import copy
import os
import pickle
import sys

import tensorferry
from expect import raises
from filled import filled
from link import hear, say


def tokens():
    frozen = filled(1).freeze()
    token = tensorferry.offer({"tensor": frozen, "name": "x"})
    taken = tensorferry.take(token)
    assert (memoryview(taken["tensor"]).tolist(), taken["name"]) == ([1] * 1000, "x")
    raises(ConnectionError, lambda: tensorferry.take(token), "was taken already")
    raises(ValueError, lambda: tensorferry.take("tf0-1"), "no token")
    raises(OSError, lambda: tensorferry.take("tf1-1-1-1-1-0", timeout=60), "cannot connect to")
    raises(TypeError, lambda: tensorferry.offer(object()), "cannot be sent")
    # A text for one process is made where somebody asks for it: pickles are for any number.
    for refused in (pickle.dumps, copy.copy, copy.deepcopy):
        raises(TypeError, lambda: refused(frozen), "pickle")
    raises(TypeError, lambda: pickle.dumps(tensorferry.Queue(1)), "pickle")

    # What is exclusive moves.
    exclusive = filled(5)
    token = tensorferry.offer(exclusive)
    assert "moved" in repr(exclusive)
    memoryview(tensorferry.take(token, timeout=60))[0] = 7

    # A process that was forked has no part in it.
    token = tensorferry.offer(1)
    child = os.fork()
    if child == 0:
        try:
            raises(RuntimeError, lambda: tensorferry.offer(1), "forked")
            raises(RuntimeError, lambda: tensorferry.take(token), "forked")
            os._exit(0)
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert tensorferry.take(token) == 1


def foreign():
    """With a program in Rust at the other end."""
    say(tensorferry.offer(filled(2).freeze()))
    assert memoryview(tensorferry.take(hear(), timeout=60)).tolist() == [6, 5]


if sys.argv[1] == "foreign":
    foreign()
else:
    tokens()
say("done")
