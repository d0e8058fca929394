"""Tensors as buffers, with what the standard library has."""

import gc
import struct

import tensorferry
from expect import raises
from link import say

# What every tensor has.
tensor = tensorferry.zeros((2, 3))
assert (tensor.shape, tensor.dtype, tensor.nbytes, len(tensor)) == ((2, 3), "float32", 24, 2)
assert repr(tensor) == "tensorferry.TensorMut(shape=(2, 3), dtype='float32')"
assert tensor.__dlpack_device__() == (1, 0)

# It is filled in place, and has a view as long as somebody may write.
view = memoryview(tensor)
assert (view.shape, view.strides, view.format, view.itemsize, view.readonly) == ((2, 3), (12, 4), "f", 4, False)
view[1, 2] = 5
second = view[1:]
raises(BufferError, tensor.freeze, "of the tensor exist")
view.release()
raises(BufferError, tensor.freeze, "of the tensor exist")
second.release()
del view, second
gc.collect()
frozen = tensor.freeze()

# What was frozen is only read, and what was given away is empty.
assert memoryview(frozen).tolist() == [[0, 0, 0], [0, 0, 5]]
assert memoryview(frozen).readonly
raises(ValueError, lambda: memoryview(tensor), "sent away, frozen or shared")
raises(ValueError, tensor.freeze, "sent away, frozen or shared")
assert repr(tensor) == "tensorferry.TensorMut(moved)"
# Through a writable buffer nobody gets at it.
raises(TypeError, lambda: struct.pack_into("f", frozen, 0, 1.0), "read-write")

# Shared ones stay writable.
shared = tensorferry.zeros(3, "int64").share()
memoryview(shared)[1] = 7
assert memoryview(shared).tolist() == [0, 7, 0] and shared.is_shared
wide = tensorferry.zeros(1, "complex128")
raises(TypeError, wide.share, "16 bytes")
assert memoryview(wide).nbytes == 16  # it is still there

# Shapes and types of all kinds.
assert len(bytes(tensorferry.zeros((2, 0, 3), "uint8"))) == 0
assert memoryview(tensorferry.zeros((), "float64")).tolist() == 0.0
assert bytes(tensorferry.zeros(3, "i16")) == b"\0" * 6
assert tensorferry.empty([2, 2], dtype="bool").shape == (2, 2)
raises(TypeError, lambda: len(tensorferry.zeros(())), "no length")
raises(BufferError, lambda: memoryview(tensorferry.zeros(2, "bfloat16")), "use DLPack")
raises(ValueError, lambda: tensorferry.zeros(2, "float31"), "unknown dtype")
raises(TypeError, lambda: tensorferry.zeros(-1), "non-negative")
raises(TypeError, lambda: tensorferry.zeros((2, "a")), "non-negative")
raises(ValueError, lambda: tensorferry.zeros((1 << 40, 1 << 40)), "more elements than memory can hold")
raises(MemoryError, lambda: tensorferry.zeros(1 << 45), "does not fit")
raises(MemoryError, lambda: tensorferry.zeros(1 << 37), "limit")

# A tensor outlives the object that had it, for as long as there is a view.
view = memoryview(tensorferry.zeros((1 << 20,), "uint8"))
view[7] = 9
gc.collect()
assert view[7] == 9 and sum(view) == 9

# Many are made and let go of: what one has is used again.
for step in range(2_000):
    tensor = tensorferry.empty(1 << 16, "uint8")
    memoryview(tensor)[0] = step % 256
    assert memoryview(tensor.freeze())[0] == step % 256
say("done")
