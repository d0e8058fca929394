"""PyTorch's tensors."""

import gc

import tensorferry
import torch
from expect import raises
from link import say

tensor = tensorferry.zeros((2, 3))
weights = torch.from_dlpack(tensor)
weights += 1
assert memoryview(tensor).tolist() == [[1, 1, 1], [1, 1, 1]]
raises(BufferError, tensor.freeze, "of the tensor exist")
del weights
gc.collect()
frozen = tensor.freeze()
assert torch.from_dlpack(frozen).sum().item() == 6

shared = tensorferry.zeros(4).share()
torch.from_dlpack(shared).add_(torch.arange(4))
assert torch.from_dlpack(shared).tolist() == [0, 1, 2, 3]

box = tensorferry.Queue(1)
box.put({"t": torch.ones(2, 2, dtype=torch.bfloat16)})
assert torch.from_dlpack(box.get()["t"]).tolist() == [[1, 1], [1, 1]]
# What is to be done to a tensor when it is read is done.
for lazy in [torch.tensor([1 + 2j]).conj(), torch._neg_view(torch.ones(2)), torch.tensor([1 + 2j]).conj().imag]:
    box.put(lazy)
    for came in [box.get(), tensorferry.tensor(lazy)]:
        assert torch.equal(torch.from_dlpack(came), lazy), lazy
raises(TypeError, lambda: box.put(torch.ones(1, requires_grad=True)), "detach")
assert torch.from_dlpack(tensorferry.tensor(torch.arange(6).reshape(2, 3).T)).tolist() == [[0, 3], [1, 4], [2, 5]]
for dtype in [torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.complex32, torch.complex64]:
    assert torch.from_dlpack(tensorferry.zeros(2, dtype)).dtype == dtype, dtype
say("done")
