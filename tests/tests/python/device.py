"""Tensors of a device, with a driver that this calls itself, as another library would."""

import array
import concurrent.futures
import ctypes
import multiprocessing.reduction
import os
import pickle
import select
import signal
import sys
import threading

import tensorferry
from expect import raises
from link import hear, say

driver = ctypes.CDLL(os.environ["TENSORFERRY_CUDA_DRIVER"])


def call(name, *arguments):
    code = getattr(driver, name)(*arguments)
    assert code == 0, f"{name}: {code}"


def enter():
    """Makes the primary context of the first device current."""
    context = ctypes.c_size_t()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)


def address(tensor):
    return tensor.__cuda_array_interface__["data"][0]


def read(tensor):
    """Its integers."""
    numbers = array.array("i", bytes(tensor.nbytes))
    to = ctypes.c_size_t(numbers.buffer_info()[0])
    call("cuMemcpyDtoH_v2", to, ctypes.c_uint64(address(tensor)), ctypes.c_size_t(tensor.nbytes))
    return numbers.tolist()


def write(tensor, integers):
    numbers = array.array("i", integers)
    origin = ctypes.c_size_t(numbers.buffer_info()[0])
    call("cuMemcpyHtoD_v2", ctypes.c_uint64(address(tensor)), origin, ctypes.c_size_t(tensor.nbytes))


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_uint64),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint8 * 4),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


def described(capsule):
    """What a consumer finds in a capsule of the first version."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ctypes.cast(get(capsule, b"dltensor"), ctypes.POINTER(DLTensor)).contents


def alone():
    tensor = tensorferry.zeros((2, 3), "int32", device="cuda")
    enter()
    assert repr(tensor) == "tensorferry.CudaTensor(shape=(2, 3), dtype='int32')", tensor
    assert (tensor.shape, tensor.dtype, tensor.nbytes, len(tensor)) == ((2, 3), "int32", 24, 2)
    assert (tensor.device, tensor.is_shared, tensor.__dlpack_device__()) == (0, True, (2, 0))

    # The CUDA array interface.
    assert read(tensor) == [0] * 6
    write(tensor, range(6))
    assert memoryview(tensor.cpu()).tolist() == [[0, 1, 2], [3, 4, 5]]
    interface = tensor.__cuda_array_interface__
    assert interface | {"data": None} == {
        "shape": (2, 3),
        "typestr": "<i4",
        "data": None,
        "strides": None,
        "version": 3,
        "stream": 1,
    }
    assert interface["data"][1] is False
    bfloats = tensorferry.empty(2, "bfloat16", device=0)
    assert not hasattr(bfloats, "__cuda_array_interface__")

    # DLPack, for each kind of stream.
    stream = ctypes.c_size_t()
    call("cuStreamCreate", ctypes.byref(stream), 1)
    for consumer in [None, 1, -1, stream.value]:
        capsule = tensor.__dlpack__(stream=consumer)
        tells = described(capsule)
        assert tells.data + tells.byte_offset == address(tensor)
        assert (list(tells.device), list(tells.dtype)) == ([2, 0], [0, 32, 1, 0])
        assert tells.shape[: tells.ndim] == [2, 3] and tells.strides[: tells.ndim] == [3, 1]
        del capsule
    raises(BufferError, lambda: tensor.__dlpack__(stream=2), "per-thread")
    raises(ValueError, lambda: tensor.__dlpack__(stream=0), "0")
    raises(BufferError, lambda: tensor.__dlpack__(copy=True), "zero-copy")
    raises(BufferError, lambda: tensor.__dlpack__(dl_device=(1, 0)), "cross-device")
    # What has a capsule keeps the memory.
    capsule = bfloats.__dlpack__()
    kept = described(capsule).data
    del bfloats
    assert address(tensorferry.empty(4, "uint8", device=0)) != kept
    del capsule

    # A consumer's stream waits for those who used the memory before, of whom it knows nothing.
    if hold := getattr(driver, "tensorferry_sim_cuda_control", None):
        consumer = ctypes.c_size_t()
        call("cuStreamCreate", ctypes.byref(consumer), 1)
        former = tensorferry.zeros(1 << 16, "uint8", device=0)
        capsule = former.__dlpack__(stream=stream.value)
        was = described(capsule).data
        assert hold(b"held") == 0
        call("cuMemsetD8Async", ctypes.c_uint64(was), ctypes.c_uint8(1), ctypes.c_size_t(1 << 16), stream)
        del capsule, former
        later = tensorferry.empty(1 << 16, "uint8", device=0)
        assert driver.cuStreamQuery(consumer) == 0
        capsule = later.__dlpack__(stream=consumer.value)
        assert described(capsule).data == was
        assert driver.cuStreamQuery(consumer) == 600, "it does not wait"
        assert hold(b"running") == 0
        call("cuStreamSynchronize", consumer)
        del capsule, later

        # So does it wait for another consumer of this tensor, and so does a copy.
        shared, long = tensorferry.zeros(1 << 20, "uint8", device=0), 200
        capsules = [shared.__dlpack__(stream=stream.value)]
        first = described(capsules[0]).data
        for copied in [lambda: shared.cpu(), lambda: tensorferry.tensor(shared).cpu()]:
            call("cuMemsetD8Async", ctypes.c_uint64(first), ctypes.c_uint8(0), ctypes.c_size_t(1 << 20), stream)
            call("cuStreamSynchronize", stream)
            assert hold(b"held") == 0
            for element in range(long):
                call("cuMemsetD8Async", ctypes.c_uint64(first), ctypes.c_uint8(element), ctypes.c_size_t(1 << 20), stream)
            assert driver.cuStreamQuery(consumer) == 0
            capsules.append(shared.__dlpack__(stream=-1))
            assert driver.cuStreamQuery(consumer) == 0, "nobody is to wait"
            capsules.append(shared.__dlpack__(stream=consumer.value))
            assert driver.cuStreamQuery(consumer) == 600, "it does not wait"
            with concurrent.futures.ThreadPoolExecutor() as executor:
                copy = executor.submit(copied)
                assert hold(b"running") == 0
                assert bytes(copy.result(60)) == bytes([long - 1]) * (1 << 20)
            call("cuStreamSynchronize", consumer)
        del capsules, shared

    # Copies: on the device, to it and from it.
    copied = tensorferry.bytes_copied()
    copy = tensorferry.tensor(tensor)
    assert read(copy) == list(range(6)) and address(copy) != address(tensor)
    assert tensorferry.bytes_copied() == copied + 24
    host = copy.cpu()
    assert memoryview(host).tolist() == [[0, 1, 2], [3, 4, 5]]
    for device in ["cuda:0", 0]:
        assert read(tensorferry.tensor(host, device=device)) == list(range(6))
    assert type(tensorferry.tensor(host, device="cpu")) is tensorferry.Tensor
    assert type(tensorferry.zeros(1, device="cpu")) is tensorferry.TensorMut

    # In messages: the same memory, however often.
    box = tensorferry.Queue(2)
    box.put({"tensor": tensor, "again": [tensor, 1]})
    came = box.get()
    assert came["again"][1] == 1
    assert {address(came["tensor"]), address(came["again"][0])} == {address(tensor)}
    box.put([tensorferry.zeros((0, 2), device=0), tensorferry.zeros((), "int64", device=0)])
    nothing, scalar = box.get()
    assert (nothing.shape, nothing.nbytes, address(nothing)) == ((0, 2), 0, 0)
    # Of no elements it does not matter on which device they are.
    assert tensorferry.tensor(nothing, device=1).nbytes == 0
    assert memoryview(nothing.cpu()).tolist() == [] and memoryview(scalar.cpu()).tolist() == 0
    capsule = nothing.__dlpack__()
    assert described(capsule).data == 0

    class Foreign:
        """An array of another library, which knows no versions, on the first device."""

        def __dlpack_device__(self):
            return (2, 0)

        def __dlpack__(self, stream):
            assert stream > 2
            return tensor.__dlpack__(stream=stream)

    box.put(Foreign())
    sent = box.get()
    assert read(sent) == list(range(6)) and address(sent) != address(tensor)

    class Broken:
        """Says what is not so."""

        def __init__(self, capsule):
            self.capsule = capsule

        def __dlpack_device__(self):
            return (2, 0)

        def __dlpack__(self, stream=None, max_version=None):
            return self.capsule

    # The pickler of `multiprocessing` has it in a token.
    pickled = multiprocessing.reduction.ForkingPickler.dumps(tensor)
    assert address(pickle.loads(pickled)) == address(tensor)

    forks()

    # What cannot be.
    for nothing in [tensor, None]:
        raises(TypeError, lambda: tensorferry.tensor(Broken(nothing)), "PyCapsule")
    named = ctypes.pythonapi.PyCapsule_New
    named.restype, named.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    raises(BufferError, lambda: tensorferry.tensor(Broken(named(1, b"other", None))), "none of DLPack")
    for data, offset in [(0, 0), (0, 8), (-8, 8), (-8, 4)]:
        capsule = tensor.__dlpack__()
        tells = described(capsule)
        tells.data, tells.byte_offset = data, offset
        raises(BufferError, lambda: tensorferry.tensor(Broken(capsule)), "without memory")
    raises(RuntimeError, lambda: tensorferry.zeros(1, device="cuda:7"), "INVALID_DEVICE")
    raises(ValueError, lambda: tensorferry.zeros(1, device="gpu"), "no device")
    raises(ValueError, lambda: tensorferry.zeros(1, device=True), "no device")
    raises(ValueError, lambda: tensorferry.tensor(tensor, device="cpu"), ".cpu()")
    raises(ValueError, lambda: tensorferry.tensor(tensor, device=1), "another device")
    raises(MemoryError, lambda: tensorferry.empty(1 << 40, device=0), "no room")
    raises(TypeError, lambda: box.put(b"\xfdCUDA"), "by chance")
    box.put([b"\xfdCUDB", 1])
    assert box.get() == [b"\xfdCUDB", 1]


def forks():
    """A process that is forked while another thread is busy with the device lets go of its tensors, and ends."""
    many = [tensorferry.empty(4, "uint8", device=0) for _ in range(20)]
    is_over = threading.Event()

    def busy():
        while not is_over.is_set():
            tensorferry.empty(4, "uint8", device=0)

    with concurrent.futures.ThreadPoolExecutor() as executor:
        thread = executor.submit(busy)
        try:
            for _ in range(50):
                child = os.fork()
                if child == 0:
                    many.clear()
                    os._exit(0)
                is_there = os.pidfd_open(child)
                ended, _, _ = select.select([is_there], [], [], 60)
                if not ended:
                    os.kill(child, signal.SIGKILL)
                os.close(is_there)
                assert os.waitpid(child, 0)[1] == 0
        finally:
            is_over.set()
        thread.result(60)


def member():
    """Does what the test says with tensors that come through a connection."""
    executor = concurrent.futures.ThreadPoolExecutor()
    with tensorferry.connect(sys.argv[2], timeout=60) as connection:
        tensors = {}
        say("connected")
        while True:
            command, *integers = hear().split()
            match command:
                case "make":
                    tensors["x"] = tensorferry.zeros(len(integers), "int32", device="cuda")
                    enter()
                    write(tensors["x"], [int(text) for text in integers])
                case "send":
                    connection.send({"x": tensors["x"]})
                case "recv":
                    tensors = connection.recv()
                case "write":
                    enter()
                    write(tensors["x"], [int(text) for text in integers])
                case "queue":
                    # It is never done.
                    assert driver.tensorferry_sim_cuda_control(b"held") == 0
                    enter()
                    call("cuMemsetD8Async", ctypes.c_uint64(address(tensors["x"])), ctypes.c_uint8(1), ctypes.c_size_t(4), 1)
                case "is_written":
                    say(tensors["x"].is_written())
                    continue
                case "copy":
                    copy = executor.submit(tensorferry.tensor, tensors["x"])
                case "gone":
                    raises(RuntimeError, lambda: copy.result(60), "ended before its stream had written it")
                    for use in [lambda x: x.cpu(), tensorferry.tensor, lambda x: x.is_written()]:
                        raises(RuntimeError, lambda: use(tensors["x"]), "ended before its stream had written it")
                case "cpu":
                    say(memoryview(tensors["x"].cpu()).tolist())
                    continue
                case "drop":
                    tensors = {}
                case "end":
                    break
            say("ok")


if sys.argv[1] == "alone":
    alone()
else:
    member()
say("done")
