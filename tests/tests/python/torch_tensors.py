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
raises(BufferError, tensor.freeze, "views of the tensor exist")
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
# What is to be done to a tensor when it is read is done, or it is refused.
for lazy in [torch.tensor([1 + 2j]).conj(), torch._neg_view(torch.ones(2))]:
    raises(TypeError, lambda: box.put(lazy), "bit set")
    raises(BufferError, lambda: tensorferry.tensor(lazy), "bit set")
for dtype in [torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.complex32, torch.complex64]:
    name = str(dtype)
    assert torch.from_dlpack(tensorferry.zeros(2, name)).dtype == dtype, name
say("done")
