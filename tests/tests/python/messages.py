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
    b"", b"bytes", b"\xff\xfe no description", b"\xfe\0\0\0\0", [], [1, [2, [3]]], {}, {"a": {"b": [None]}}, {1: 2},
]:
    assert sent(value) == value and type(sent(value)) is type(value), value
assert sent((1, (2,))) == [1, [2]]
assert sent({(1, 2): 3}) == {(1, 2): 3}
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
raises(TypeError, lambda: box.put(made), "views of the tensor exist")
view.release()
moved = sent(made)
raises(ValueError, lambda: memoryview(made), "sent away")
raises(TypeError, lambda: box.put(made), "")
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

# What cannot be sent, and says why.
endless = []
endless.append(endless)
for value, why in [
    (object(), "class object"), (endless, "contain themselves"), (1 << 64, "64 bits"), (-(1 << 63) - 1, "64 bits"),
    ({"x": {1, 2}}, "class set"), ("\ud800", "surrogates"), (1j, "class complex"), (raises, "class function"),
]:
    raises(TypeError, lambda: box.put(value), why)
assert box.empty() and not box.full() and box.qsize() == 0 and box.maxsize == 2

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
