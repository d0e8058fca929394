"""Tasks of asyncio that wait for queues and connections, all in one thread."""

import asyncio
import os
import queue
import threading

import tensorferry
from expect import raises
from link import say

ADDRESS = f"@tensorferry-tasks-{os.getpid()}"


async def raised(kind, awaitable, text):
    try:
        await asyncio.wait_for(awaitable, 60)
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"no {kind}")


async def started(coroutine):
    """A task that waits by now."""
    task = asyncio.create_task(coroutine)
    await asyncio.sleep(0)
    assert not task.done()
    return task


async def streams():
    putting, getting = tensorferry.channel(2)
    there, back = tensorferry.channel(1)

    async def echo():
        for _ in range(200):
            await there.put_async(await getting.get_async())

    async def put():
        for number in range(200):
            await putting.put_async({"number": number})

    async def get():
        return [(await back.get_async())["number"] for _ in range(200)]

    got, _, _ = await asyncio.wait_for(asyncio.gather(get(), echo(), put()), 60)
    assert got == list(range(200))


async def cancellations():
    putting, getting = tensorferry.channel(1)
    task = await started(getting.get_async())
    task.cancel()
    await raised(asyncio.CancelledError, task, "")
    await raised(asyncio.TimeoutError, asyncio.wait_for(getting.get_async(), 0.01), "")
    putting.put(1)
    task = await started(putting.put_async(2))
    task.cancel()
    await raised(asyncio.CancelledError, task, "")
    assert getting.get_nowait() == 1
    raises(queue.Empty, getting.get_nowait, "empty")


async def ends():
    putting, getting = tensorferry.channel(1)
    await raised(TypeError, putting.put_async(object()), "cannot be sent")
    await raised(TypeError, getting.put_async(1), "only get")
    await raised(TypeError, putting.get_async(), "only put")
    putting.put(1)
    waits = await started(putting.put_async(2))
    putting.close()
    await raised(tensorferry.Closed, waits, "closed")
    assert await getting.get_async() == 1
    await raised(tensorferry.Closed, getting.get_async(), "closed")
    putting, getting = tensorferry.channel(1)
    waits = await started(getting.get_async())
    del putting
    await raised(tensorferry.Closed, waits, "let go")


async def leases():
    putting, getting = tensorferry.channel_with_leases(4, 2)
    waits = await started(getting.get_leased_async())
    putting.put("job")
    lease = await asyncio.wait_for(waits, 60)
    waits = await started(getting.get_leased_async())
    lease.give_back()
    with await asyncio.wait_for(waits, 60) as lease:
        assert (lease.value, lease.deliveries) == ("job", 2)
    putting.join(timeout=60)


async def connections():
    listener = tensorferry.Listener(ADDRESS)
    accepted = []
    accepting = threading.Thread(target=lambda: accepted.append(listener.accept(maxsize=1, timeout=60)))
    accepting.start()
    there = tensorferry.connect(ADDRESS, timeout=60)
    accepting.join()
    here = accepted.pop()
    waits = await started(there.recv_async())
    tensor = tensorferry.zeros(3).freeze()
    await here.send_async({"tensor": tensor})
    got = await asyncio.wait_for(waits, 60)
    assert memoryview(got["tensor"]).tolist() == [0, 0, 0]
    # Who closes its own end ends what its tasks wait for.
    await here.send_async(1)
    waits = [await started(here.recv_async()), await started(here.send_async(2))]
    here.close()
    for task in waits:
        await raised(ValueError, task, "closed")
    assert await there.recv_async() == 1
    await raised(tensorferry.Closed, there.recv_async(), "let go")


async def main():
    await streams()
    await cancellations()
    await ends()
    await leases()
    await connections()


asyncio.run(main())
# Outside of a loop a call makes a coroutine and nothing else, as in Python.
putting, getting = tensorferry.channel(1)
coroutine = getting.get_async()
coroutine.close()
say("done")
