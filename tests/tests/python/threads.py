"""Several threads with one connection, one listener, one tensor."""

import os
import queue
import signal
import socket
import threading
import time

import tensorferry
from expect import raises
from link import say

ADDRESS = f"@tensorferry-threads-{os.getpid()}"


def outcome_of(call):
    """Calls it in another thread. What is returned waits for the outcome, or the exception."""
    got = queue.SimpleQueue()

    def work():
        try:
            got.put(call())
        except BaseException as error:
            got.put(error)

    threading.Thread(target=work, daemon=True).start()
    return lambda: got.get(timeout=60)


# Who closes a connection ends the calls of other threads, and the other side is told.
listener = tensorferry.Listener(ADDRESS)
accepted = outcome_of(lambda: listener.accept(timeout=60))
there = tensorferry.connect(ADDRESS, timeout=60)
here = accepted()
received = outcome_of(here.recv)
raises(queue.Empty, lambda: there.recv(timeout=0.06), "empty")
here.close()
assert isinstance(received(), ValueError)
raises(tensorferry.Closed, lambda: there.recv(timeout=60), "let go")

# Who polls keeps no other call of the connection waiting, and with it, by the interpreter's lock, every thread.
accepted = outcome_of(lambda: listener.accept(maxsize=40, timeout=60))
there = tensorferry.connect(ADDRESS, timeout=60)
here = accepted()
polled = outcome_of(lambda: here.poll(60))
took = 0
for number in range(40):
    time.sleep(0.007)  # the poll looks again meanwhile
    begin = time.monotonic()
    here.send(number)
    took += time.monotonic() - begin
assert took < 0.4, f"{took} s: each has waited for the end of a look"
there.send("the end")
assert polled()
here.close()

# Who closes a listener ends the calls of other threads too, also where a process has connected and says nothing.
accepted = outcome_of(lambda: listener.accept(timeout=60))
silent = socket.socket(socket.AF_UNIX)
silent.connect("\0" + ADDRESS[1:])
listener.close()
assert isinstance(accepted(), (ValueError, OSError))
silent.close()

# What waits for room in a queue is not taken from it by `freeze`, and is whole again when nobody took it.
full = tensorferry.Queue(1)
full.put(None)
tensor = tensorferry.zeros(3, "uint8")
memoryview(tensor)[1] = 5
waiting = outcome_of(lambda: full.put(tensor, timeout=0.3))
while "moved" not in repr(tensor):
    time.sleep(0)  # until the other thread has it
raises(ValueError, tensor.freeze, "sent away")
assert isinstance(waiting(), queue.Full)
assert bytes(tensor.freeze()) == b"\0\5\0"

# An array that waits for room is copied once.
before = tensorferry.bytes_copied()


class Array:
    """Counts how often it is looked at."""

    n_looks = 0

    def __dlpack__(self, **arguments):
        Array.n_looks += 1
        return memory.__dlpack__(**arguments)


memory = tensorferry.zeros(1000, "uint8")
raises(queue.Full, lambda: full.put(Array(), timeout=0.2), "full")
assert Array.n_looks == 1 and tensorferry.bytes_copied() - before == 1000

# Who waits for a listener that does not accept hears an interrupt.
deaf = socket.socket(socket.AF_UNIX)
deaf.bind("\0deaf" + ADDRESS)
deaf.listen()
main = threading.get_ident()
hits = outcome_of(lambda: (deaf.accept(), signal.pthread_kill(main, signal.SIGINT)))
raises(KeyboardInterrupt, lambda: tensorferry.connect("@deaf" + ADDRESS, timeout=60), "")
hits()
raises(TimeoutError, lambda: tensorferry.connect("@deaf" + ADDRESS, timeout=0.05), "has not accepted")


# Signals that are handled do not keep it waiting beyond its time, however often they come.
def crowd(address):
    """Connects until the listener has no room for another one."""
    while True:
        one = socket.socket(socket.AF_UNIX)
        one.setblocking(False)
        try:
            one.connect(address)
        except BlockingIOError:
            return
        yield one


full = socket.socket(socket.AF_UNIX)
full.bind("\0full" + ADDRESS)
full.listen(0)
crowded = list(crowd("\0full" + ADDRESS))
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
raises(TimeoutError, lambda: tensorferry.connect("@full" + ADDRESS, timeout=0.1), "has not accepted")
signal.setitimer(signal.ITIMER_REAL, 0)
say("done")
