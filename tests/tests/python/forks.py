"""What a process that was forked may do: nothing, and it is told so."""

import os
import queue

import tensorferry
from expect import raises
from link import say

FORKED = "this process was forked"
box = tensorferry.Queue(2)
filled = tensorferry.zeros(4, "uint8")
frozen = tensorferry.zeros(4, "uint8").freeze()
shared = tensorferry.zeros(4, "uint8").share()

jobs, work = tensorferry.channel_with_leases(2, 2)
jobs.put("job")
job = work.get_leased()

child = os.fork()
if child == 0:
    try:
        for tensor in [filled, frozen, shared]:
            raises(RuntimeError, lambda: memoryview(tensor), FORKED)
            raises(RuntimeError, lambda: tensor.__dlpack__(max_version=(1, 0)), FORKED)
        for call in [lambda: box.put(1), lambda: box.get(timeout=1), lambda: tensorferry.zeros(1),
                     work.get_leased_nowait, job.ack, job.give_back, job.__enter__, jobs.join,
                     lambda: tensorferry.Queue(1), lambda: tensorferry.connect("@nobody"),
                     lambda: tensorferry.Listener("@nobody"), lambda: tensorferry.publish("@nobody", 1),
                     lambda: tensorferry.attach("@nobody")]:
            raises(RuntimeError, call, FORKED)
        assert job.value == "job"
        del job  # it is the parent's
        os._exit(0)
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

# Here everything goes on.
memoryview(filled)[0] = 3
box.put(filled)
assert bytes(box.get()) == b"\3\0\0\0"
raises(queue.Empty, work.get_leased_nowait, "empty")
assert job.ack() == "job"
jobs.join(timeout=0)
say("done")
