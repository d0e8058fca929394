"""NumPy's arrays and tensors."""

import gc

import numpy
import tensorferry
from expect import raises
from link import say

# One memory, in both directions, by DLPack and as a buffer.
tensor = tensorferry.zeros((2, 3), "int32")
for array in [numpy.from_dlpack(tensor), numpy.asarray(tensor)]:
    array[1, 0] += 4
    assert array.flags.writeable and array.dtype == numpy.int32
    raises(BufferError, tensor.freeze, "of the tensor exist")
    del array
    gc.collect()
frozen = tensor.freeze()
for array in [numpy.from_dlpack(frozen), numpy.asarray(frozen)]:
    assert array.tolist() == [[0, 0, 0], [8, 0, 0]] and not array.flags.writeable

# A copy says that it is one.
before = tensorferry.bytes_copied()
copied = tensorferry.tensor(numpy.arange(6.0).reshape(2, 3))
assert tensorferry.bytes_copied() - before == 48
assert numpy.asarray(copied).tolist() == [[0, 1, 2], [3, 4, 5]]
columns = numpy.arange(6).reshape(2, 3).T
assert numpy.asarray(tensorferry.tensor(columns)).tolist() == columns.tolist()
assert numpy.asarray(tensorferry.tensor(numpy.arange(9)[::-2])).tolist() == [8, 6, 4, 2, 0]
raises(BufferError, lambda: frozen.__dlpack__(copy=True, max_version=(1, 0)), "zero-copy")
raises(BufferError, lambda: frozen.__dlpack__(dl_device=(2, 0), max_version=(1, 0)), "memory of the CPU")
# An old consumer cannot be told that it must not write.
raises(BufferError, frozen.__dlpack__, "legacy")

# Arrays and numbers of NumPy inside of a message.
box = tensorferry.Queue(1)
box.put({"array": numpy.arange(3, dtype="uint8"), "number": numpy.float32(1.5), "index": numpy.int64(7)})
came = box.get()
box.put([numpy.bool_(True), numpy.str_("x"), numpy.float64(0.5), numpy.uint64(1 << 63)])
assert box.get() == [True, "x", 0.5, 1 << 63]
raises(TypeError, lambda: box.put(numpy.complex64(1 + 2j)), "complex64")
assert bytes(came["array"]) == b"\0\1\2" and (came["number"], came["index"]) == (1.5, 7)

for dtype in ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32",
              "float64", "complex64", "complex128"]:
    assert numpy.from_dlpack(tensorferry.zeros(2, dtype)).dtype == numpy.dtype(dtype), dtype
    assert numpy.asarray(tensorferry.zeros(2, dtype)).dtype == numpy.dtype(dtype), dtype
for dtype in [numpy.float32, numpy.dtype("float32"), "float32", "torch.float32", "f32"]:
    assert tensorferry.zeros(1, dtype).dtype == "float32"

# What is no array is an error, and not an array of objects.
raises(ValueError, lambda: numpy.asarray(tensor), "sent away")
raises((BufferError, RuntimeError), lambda: numpy.asarray(tensorferry.zeros(2, "float8_e5m2")), "dtype")
zeros = tensorferry.zeros(2)
assert numpy.asarray(zeros, dtype="float64").dtype == numpy.float64

# A copy is made where it is wanted or needed, and refused where it must not be.
address = numpy.from_dlpack(zeros).ctypes.data
for dtype, copy, is_copy in [(None, None, False), (None, False, False), (None, True, True), ("float32", None, False),
                             ("float32", False, False), ("float32", True, True), ("float64", None, True)]:
    assert (zeros.__array__(dtype, copy).ctypes.data != address) == is_copy, (dtype, copy)
raises(ValueError, lambda: zeros.__array__("float64", False), "would be a copy")
say("done")
