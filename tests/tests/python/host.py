"""Listens, and sends whatever it receives back, in a list with what it makes of it."""

import pathlib
import sys

import tensorferry
from link import say

with tensorferry.Listener(pathlib.Path(sys.argv[1])) as listener:
    try:
        listener.accept(timeout=0.01)
    except TimeoutError as error:
        assert "nobody has connected" in str(error), error
    else:
        raise AssertionError("nobody was there")
    say("listening")
    connection = listener.accept(maxsize=2, timeout=60)
assert connection.poll(60)
for value in connection:
    assert not connection.poll()  # the other side waits for the answer
    doubled = tensorferry.zeros(value.shape, value.dtype)
    view = memoryview(doubled)
    for index, element in enumerate(memoryview(value)):
        view[index] = 2 * element
    view.release()
    connection.send([value, doubled])
connection.close()
try:
    connection.send(1)
except ValueError as error:
    say(error)
