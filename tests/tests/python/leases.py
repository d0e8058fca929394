"""What becomes of a lease in one process."""

import gc
import queue
import sys
import threading

import tensorferry
from expect import raises
from link import say

gc.disable()
jobs, work = tensorferry.channel_with_leases(8, max_leases=2)

# It is acknowledged once, and its value is there to stay.
jobs.put({"n": 1})
raises(TimeoutError, lambda: jobs.join(timeout=0), "1 are not done")
job = work.get_leased()
raises(TypeError, lambda: tensorferry.Queue().put(job), "Lease cannot be sent")
assert (job.value, job.deliveries) == ({"n": 1}, 1) and repr(job) == "tensorferry.Lease(deliveries=1)"
raises(TimeoutError, lambda: jobs.join(timeout=0.06), "1 are not done")
assert job.ack() is job.value
jobs.join()
for again in [job.ack, job.give_back, job.__enter__]:
    raises(ValueError, again, "acknowledged already")
assert job.value == {"n": 1} and repr(job) == "tensorferry.Lease(deliveries=1, acknowledged)"
del job
raises(queue.Empty, work.get_leased_nowait, "empty")
raises(queue.Empty, lambda: work.get_leased(timeout=0.06), "empty")
raises(ValueError, lambda: work.get_leased(timeout=-1), "non-negative")

# What nobody refers to any more comes back, and before all others.
jobs.put(["first"])
jobs.put(["second"])
job = work.get_leased()
del job
job = work.get_leased()
assert (job.value, job.deliveries) == (["first"], 2)
job.give_back()
for again in [job.ack, job.give_back, job.__enter__, lambda: job.value]:
    raises(ValueError, again, "given back")
assert job.deliveries == 2 and repr(job) == "tensorferry.Lease(deliveries=2, given back)"

# The collector of garbage finds it in a cycle.
job = work.get_leased()
assert (job.value, job.deliveries) == (["first"], 3)
job.value.append(job)
other = work.get_leased()
assert other.value == ["second"]
raises(RuntimeError, work.get_leased, "all 2 leases")
del job
raises(RuntimeError, work.get_leased, "all 2 leases")
gc.collect()
job = work.get_leased(timeout=60)
assert (job.value, job.deliveries) == (["first"], 4)
job.ack()
other.ack()


class Last:
    """Looks at a lease when it goes."""

    def __init__(self, lease):
        self.lease = lease

    def __del__(self):
        seen.append(repr(self.lease))


# What a value drags along may look at the lease.
seen = []
jobs.put([])
job = work.get_leased()
job.value.append(Last(job))
job.give_back()
assert seen == ["tensorferry.Lease(deliveries=1, given back)"]
work.get_leased().ack()

# A block acknowledges when it ends, and gives back when it raises, whatever it raises.
jobs.put("block")
for n, raised in enumerate([ZeroDivisionError, KeyboardInterrupt, SystemExit], 1):
    kept = []
    try:
        with work.get_leased(timeout=60) as job:
            assert (job.value, job.deliveries) == ("block", n)
            raise raised
    except raised as error:
        kept.append(error)  # with its traceback, and so with the frame
    raises(ValueError, job.ack, "given back")
with work.get_leased() as job:
    assert job.deliveries == 4
assert job.value == "block"
raises(ValueError, job.ack, "acknowledged already")
jobs.join(timeout=0)

# What the block has done itself is not done again.
jobs.put("early")
with work.get_leased() as job:
    job.give_back()
with work.get_leased() as job:
    assert job.deliveries == 2 and job.ack() == "early"
    jobs.join(timeout=0)

# One after the other, until there is no more.
source, sink = tensorferry.channel_with_leases()
for n in range(11):
    source.put(n)
del source
order = []
for job in sink.leases():
    if job.deliveries == 1 and job.value % 3 == 0:
        continue  # gone, when the next one is there
    with job:
        order.append(job.value)
assert sorted(order) == list(range(11)) and order[:3] == [1, 0, 2], order
closing, sink = tensorferry.channel_with_leases()
closing.put(1)
closing.close()
assert [job.ack() for job in sink.leases()] == [1]

# A plain get takes it for good, and needs no lease.
jobs.put(1)
assert work.get() == 1
jobs.join(timeout=0)

# Tensors are the same memory at each delivery, and stay; those that are exclusive are refused.
made = tensorferry.zeros(3, "uint8")
memoryview(made)[1] = 7
raises(TypeError, lambda: jobs.put({"x": made}), "may be delivered again, so nothing exclusive can be in it: freeze()")
memoryview(made)[2] = 8
frozen, shared = made.freeze(), tensorferry.zeros(1, "uint8").share()
inner = tensorferry.channel(1)
jobs.put({"frozen": frozen, "shared": shared, "reply": inner[0]})
first = work.get_leased()
memoryview(first.value["shared"])[0] = 9
kept = first.value["frozen"]
first.give_back()
with work.get_leased() as second:
    assert second.deliveries == 2
    second.value["reply"].put("reply")
assert bytes(kept) == bytes(second.value["frozen"]) == b"\0\7\x08"
assert bytes(shared) == bytes(second.value["shared"]) == b"\x09" and inner[1].get() == "reply"
assert tensorferry.bytes_copied() == 0

# Any thread may have it, and who waits for one keeps nobody from running.
got = []
waiter = threading.Thread(target=lambda: got.append(work.get_leased()))
waiter.start()
jobs.put("thread")
waiter.join()
got.pop().ack()
joined = threading.Thread(target=jobs.join)
jobs.put("joined")
joined.start()
work.get_leased().ack()
joined.join()

# Who is joined by is told when nobody is left to do the work.
jobs.put("left")
del work, job, first, second
raises(tensorferry.Closed, jobs.join, "some are left")

# Not every queue, and not every end.
box = tensorferry.Queue(2)
box.put(1)
raises(TypeError, box.get_leased, "without leases: make it by channel_with_leases")
raises(TypeError, lambda: next(box.leases()), "without leases")
raises(TimeoutError, lambda: box.join(timeout=0), "1 are not done")
assert box.get() == 1
box.join()
raises(TypeError, jobs.get_leased, "only put")
raises(TypeError, jobs.leases, "only put")
raises(TypeError, box.receiver().join, "only get")
raises(ValueError, lambda: tensorferry.channel_with_leases(0), "at least 1")
raises(ValueError, lambda: tensorferry.channel_with_leases(max_leases=0), "max_leases is at least 1")
raises(ValueError, lambda: box.join(timeout=float("nan")), "no number")

# One that is there at the end of the program is no matter.
jobs, work = tensorferry.channel_with_leases()
jobs.put([])
left = work.get_leased()
left.value.append(left)
sys.left = work
say("done")
