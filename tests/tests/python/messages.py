"""What a message can hold, and what happens where it cannot."""

import queue
import threading
import time

import tensorferry
from expect import raises
from link import say

box = tensorferry.Queue(2)


def sent(value):
    box.put(value)
    return box.get()


# Values come as they went, but for tuples, which are lists.
for value in [
    None, True, False, 0, -1, 1 << 63, -(1 << 63), (1 << 64) - 1, 1.5, float("inf"), "", "text", "\u00fc\U0001f980",
    b"", b"bytes", b"\xff\xfe no description", b"\xfe\0\0\0\0\0", b"\xff", [], [1, [2, [3]]], {}, {"a": {"b": [None]}}, {1: 2},
]:
    assert sent(value) == value and type(sent(value)) is type(value), value
assert sent((1, (2,))) == [1, [2]]
assert sent({(1, (2, 3)): 4}) == {(1, (2, 3)): 4}
deep = []
for _ in range(60):
    deep = [deep, {"x": 1}]
assert sent(deep) == deep
assert sent(bytearray(b"x")) == b"x"
nan = sent(float("nan"))
assert nan != nan

# Tensors anywhere inside are the same memory.
made = tensorferry.zeros(4, "uint8")
memoryview(made)[2] = 3
frozen = made.freeze()
came = sent({"one": frozen, "more": [frozen, {"deep": frozen}]})
assert all(bytes(t) == b"\0\0\3\0" for t in [came["one"], came["more"][0], came["more"][1]["deep"]])
assert tensorferry.bytes_copied() == 0

# A tensor that was to be filled moves, and its receiver goes on.
made = tensorferry.zeros(2, "uint8")
view = memoryview(made)
raises(TypeError, lambda: box.put(made), "of the tensor exist")
view.release()
moved = sent(made)
raises(ValueError, lambda: memoryview(made), "sent away")
raises(TypeError, lambda: box.put(made), "moved")
memoryview(moved)[0] = 1
assert bytes(moved.freeze()) == b"\1\0"

# What is not sent is given back.
full = tensorferry.Queue(1)
full.put(None)
made = tensorferry.zeros(2, "uint8")
raises(queue.Full, lambda: full.put(made, timeout=0.12), "full")
raises(queue.Full, lambda: full.put_nowait([made]), "full")
memoryview(made)[0] = 4
full.get()
full.put(made)
assert bytes(full.get()) == b"\4\0"

# Shared ones are shared.
shared = tensorferry.zeros(2, "uint8").share()
other = sent(shared)
memoryview(other)[1] = 8
assert bytes(shared) == b"\0\x08"

# Queues travel, with what they may do.
inner = sent(box)
inner.put("through the other handle")
assert box.get() == "through the other handle"

# The ends of a channel can do one thing each, and each side is told.
putting, getting = tensorferry.channel(2)
putting.put(1)
raises(TypeError, putting.get, "only put")
raises(TypeError, lambda: getting.put(1), "only get")
raises(RuntimeError, getting.sender, "does not grant")
del putting
assert list(getting) == [1]
putting, getting = tensorferry.channel()
del getting
raises(tensorferry.Closed, lambda: putting.put(1), "let go")
only_gets = box.receiver()
box.put(5)
assert only_gets.get() == 5

# What cannot be sent, and says why.
endless = []
endless.append(endless)
for value, why in [
    (object(), "class object"), (endless, "contain themselves"), (1 << 64, "64 bits"), (-(1 << 63) - 1, "64 bits"),
    ({"x": {1, 2}}, "class set"), ("\ud800", "surrogates"), (1j, "class complex"), (raises, "class function"),
    # By these bytes a reader without types would go astray.
    (b"\xfe\0\0\0\0", "by chance"), (b"\xff\x00\x01\x01\x00\x00\x00", "by chance"),
]:
    raises(TypeError, lambda: box.put(value), why)
assert box.empty() and not box.full() and box.qsize() == 0 and box.maxsize == 2



class Meddler:
    """A number that changes the list it lies in when it is looked at."""

    def __init__(self, do):
        self.do = do

    def __index__(self):
        self.do()
        return 7


# What changes while it is written is written as it was.
parts = [1, Meddler(lambda: parts.clear()), 3]
assert sent(parts) == [1, 7, 3]
entries = {"a": Meddler(lambda: entries.clear()), "b": 2}
assert sent(entries) == {"a": 7, "b": 2}
nested = Meddler(lambda: other_box.put("nested"))
other_box = tensorferry.Queue(1)
assert sent([nested, frozen])[0] == 7 and other_box.get() == "nested"

# What its code raises is passed on, or is the cause.
raises(KeyboardInterrupt, lambda: box.put(Meddler(lambda: (_ for _ in ()).throw(KeyboardInterrupt()))), "")
try:
    box.put([Meddler(lambda: 1 / 0)])
except TypeError as error:
    assert isinstance(error.__cause__, ZeroDivisionError)
else:
    raise AssertionError("it was sent")
raises(ValueError, lambda: tensorferry.Queue(0), "at least 1")

# Times, as in `queue`.
raises(queue.Empty, box.get_nowait, "empty")
raises(queue.Empty, lambda: box.get(timeout=0.05), "empty")
raises(queue.Empty, lambda: box.get(False), "empty")
raises(ValueError, lambda: box.get(timeout=-1), "non-negative")
raises(ValueError, lambda: box.get(timeout=float("nan")), "no number")

# Who waits does not keep other threads from running.
got = []
waiter = threading.Thread(target=lambda: got.append(box.get()))
waiter.start()
time.sleep(0.02)
box.put("woken")
waiter.join()
assert got == ["woken"]

# An iteration ends when the queue is closed and empty.
box.put(1)
box.put(2)
box.close()
assert list(box) == [1, 2]
raises(tensorferry.Closed, box.get, "closed")
raises(EOFError, lambda: box.put(3), "closed")
assert "maxsize=2" in repr(box)
say("done")
