"""Publishes values at an address."""

import os
import select
import sys

import tensorferry
from expect import raises
from link import hear, say



def copy():
    """A process with copies of all descriptors, which ends when the test wants nothing any more."""
    if os.fork() == 0:
        end = select.poll()
        end.register(0, 0)
        say("forked")
        end.poll()
        os._exit(0)


address = sys.argv[1]
weights = tensorferry.zeros((2, 3), "float32")
memoryview(weights)[1, 2] = 5.0
for exclusive in [weights, {"a": [weights]}]:
    raises(TypeError, lambda: tensorferry.publish(address, exclusive), "freeze()")
raises(TypeError, lambda: tensorferry.publish(address, object()), "cannot be sent")
hits = tensorferry.zeros(1, "int64").share()
value = {"step": 1, "weights": weights.freeze(), "hits": hits, "names": ["a", "b"]}

with tensorferry.publish(address, value) as published:
    raises(OSError, lambda: tensorferry.publish(address, 1), f"cannot listen at {address}")
    # It is as it was, whatever becomes of the dict; and it is here too.
    value["step"] = 100
    here = tensorferry.attach(address, timeout=60)
    assert here["step"] == 1 and memoryview(here["weights"])[1, 2] == 5.0, here
    assert tensorferry.bytes_copied() == 0
    say("published")
    assert hear() == "replace"
    assert memoryview(hits)[0] == 40
    raises(TypeError, lambda: published.replace([tensorferry.zeros(1)]), "freeze()")
    published.replace({**value, "step": 2})
    say("replaced")
    while hear() != "fork":
        say(f"{published.n_attached} {published.n_refused} {published.last_refusal}")
    copy()
    assert hear() == "close"
raises(ValueError, lambda: published.replace(1), "the publication is closed")
raises(ConnectionRefusedError, lambda: tensorferry.attach(address), "cannot connect")
say("closed")
assert hear() == "again"
# The copy keeps the name.
raises(OSError, lambda: tensorferry.publish(address, 1), "cannot listen")
published = tensorferry.publish(address + "-next", 3)
copy()
hear()
