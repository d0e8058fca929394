"""A task waits for what comes only when the interpreter has begun to end."""

import asyncio
import select

import tensorferry
from link import say


class Last:
    """Lets go of the other end when it goes itself, and gives way to whomever that wakes."""

    def __init__(self, putting):
        self.putting, self.give_way = putting, select.select

    def __del__(self):
        self.putting = None
        for _ in range(1000):
            self.give_way([], [], [], 0)


async def begun():
    task = asyncio.create_task(getting.get_async())
    await asyncio.sleep(0)
    assert not task.done()
    return task


putting, getting = tensorferry.channel(1)
loop = asyncio.new_event_loop()
task = loop.run_until_complete(begun())
# asyncio would complain of a task that nobody has ended.
task._log_destroy_pending = False
last = Last(putting)
del putting
say("done")
