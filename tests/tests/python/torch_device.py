"""PyTorch on a device, in two processes: this one starts the other."""

import subprocess
import sys

import tensorferry
import torch
from expect import raises
from link import say

address = sys.argv[1]
# Long enough for the other process to be there before the work on a stream is done.
BUSY = 200_000_000


def parent(connection):
    # Made in shared memory, filled by a stream that is busy for a while, and sent at once.
    shared = tensorferry.empty((4, 1024), torch.float16, device=torch.device("cuda"))
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        filled = torch.from_dlpack(shared)
        # On the device already: a copy from the host would wait for the stream.
        rows = torch.arange(4, device="cuda").reshape(4, 1).expand(4, 1024)
        torch.cuda._sleep(BUSY)
        filled.copy_(rows)
    connection.send({"shared": shared})
    assert not side.query(), "the work was done before the tensor was sent"
    # The other process has written it on a busy stream of its own, and sent it back at once.
    came = connection.recv()
    again = torch.from_dlpack(came["shared"])
    assert again.data_ptr() == filled.data_ptr()
    assert again.sum(1).tolist() == [1024, 2048, 3072, 4096], again
    assert torch.as_tensor(came["shared"], device="cuda").data_ptr() == filled.data_ptr()

    # Tensors of PyTorch are copied, on the device.
    own = torch.arange(6, device="cuda").reshape(2, 3)
    copied = tensorferry.bytes_copied()
    for value in [own, own.T, own[:, 1:], torch.tensor([1 + 2j], device="cuda").conj()]:
        connection.send(value)
        assert connection.recv() == repr(value.tolist()), value
    assert tensorferry.bytes_copied() > copied
    raises(TypeError, lambda: connection.send(torch.ones(1, device="cuda", requires_grad=True)), "detach")
    # The copy is complete when `send` returns, so that the memory may be used again.
    for number in range(50):
        value = torch.full((1 << 16,), number, device="cuda")
        connection.send(value)
        del value
        assert connection.recv() == repr([number])

    for dtype in [torch.bool, torch.bfloat16, torch.float8_e4m3fn, torch.complex64, torch.int64]:
        tensor = tensorferry.zeros(2, dtype, device="cuda:0")
        assert torch.from_dlpack(tensor).dtype == dtype and tensor.device == 0, dtype
        assert torch.equal(torch.from_dlpack(tensor.cpu()), torch.zeros(2, dtype=dtype)), dtype
    on_device = tensorferry.tensor(torch.arange(3), device=torch.device("cuda", 0))
    assert torch.from_dlpack(on_device).tolist() == [0, 1, 2]
    connection.send("end")


def child(connection):
    shared = connection.recv()["shared"]
    with torch.cuda.stream(torch.cuda.Stream()):
        array = torch.from_dlpack(shared)  # this stream waits for that of the parent
        torch.cuda._sleep(BUSY)
        array.add_(1)
    connection.send({"shared": shared})
    for value in connection:
        if isinstance(value, str):
            break
        array = torch.from_dlpack(value)
        seen = array.unique() if array.numel() > 100 else array
        connection.send(repr(seen.tolist()))


if not torch.cuda.is_available():
    say("no device")
elif len(sys.argv) > 2:
    with tensorferry.connect(address, timeout=60) as connection:
        child(connection)
else:
    say("a device")
    with tensorferry.Listener(address) as listener:
        other = subprocess.Popen([sys.executable, __file__, address, "child"], stdin=subprocess.DEVNULL)
        with listener.accept(timeout=60) as connection:
            parent(connection)
    assert other.wait(60) == 0
    say("done")
