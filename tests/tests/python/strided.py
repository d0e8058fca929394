"""Views of a program in Rust, whose elements do not lie side by side."""

import ctypes
import sys

import tensorferry
from link import say

PYBUF_ND, PYBUF_STRIDES = 0x8, 0x10 | 0x8
C_CONTIGUOUS, F_CONTIGUOUS, ANY_CONTIGUOUS = (flag | PYBUF_STRIDES for flag in (0x20, 0x40, 0x80))


def lends(tensor, flags, buffer):
    """Whether it lends a buffer to who asks like this."""
    get = ctypes.pythonapi.PyObject_GetBuffer
    get.argtypes = [ctypes.py_object, ctypes.c_void_p, ctypes.c_int]
    try:
        get(tensor, buffer, flags)
    except BufferError:
        return False
    release = ctypes.pythonapi.PyBuffer_Release
    release.argtypes = [ctypes.c_void_p]
    release(buffer)
    return True


with tensorferry.connect(sys.argv[1], timeout=60) as connection:
    for tensor in connection:
        view = memoryview(tensor)
        asked = [0, PYBUF_ND, PYBUF_STRIDES, C_CONTIGUOUS, F_CONTIGUOUS, ANY_CONTIGUOUS]
        lent = [lends(tensor, flags, ctypes.create_string_buffer(256)) for flags in asked]
        connection.send([view.tolist(), list(view.strides or []), lent])
        assert not lends(tensor, PYBUF_STRIDES, None), "there is nothing to fill"
        view.release()
