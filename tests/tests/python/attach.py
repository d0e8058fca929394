"""Takes what a program in Rust has published."""

import sys

import tensorferry
from expect import raises
from link import hear, say

address = sys.argv[1]
raises(ConnectionRefusedError, lambda: tensorferry.attach(address), "cannot connect")
raises(TimeoutError, lambda: tensorferry.attach(address, timeout=0.01, wait=True), "nobody has come to listen")
say("waiting")
value = tensorferry.attach(address, timeout=60, wait=True)
assert value["step"] == 3 and value["name"] == "shelf", value
weights = memoryview(value["weights"])
assert weights.readonly and weights.shape == (2, 2) and weights[1, 1] == 4.0
memoryview(value["hits"])[0] += 1
value["answers"].put(7)
assert tensorferry.bytes_copied() == 0
say("attached")
assert hear() == "gone"
raises(ConnectionRefusedError, lambda: tensorferry.attach(address), "cannot connect")
assert weights[1, 1] == 4.0
say("done")
