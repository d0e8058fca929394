"""Trains what `trainer.rs` sends: `trainer.py ADDRESS`. With PyTorch if it is installed, else with plain Python."""

import sys

import tensorferry

try:
    import torch
except ImportError:
    torch = None

RATE = 0.1


def step_of_torch(weights, x, y):
    """A step of gradient descent, in place. The tensors are the sender's memory."""
    error = weights[0] * x + weights[1] - y
    weights -= RATE * torch.stack([(error * x).mean(), error.mean()]) * 2
    return (error ** 2).mean().item()


def step_of_python(weights, x, y):
    """The same, element by element."""
    errors = [weights[0] * a + weights[1] - b for a, b in zip(x, y)]
    weights[0] -= RATE * 2 * sum(e * a for e, a in zip(errors, x)) / len(errors)
    weights[1] -= RATE * 2 * sum(errors) / len(errors)
    return sum(e * e for e in errors) / len(errors)


view, step = (torch.from_dlpack, step_of_torch) if torch else (memoryview, step_of_python)

with tensorferry.connect(sys.argv[1]) as connection:
    start = connection.recv()
    weights = view(start["weights"])
    for batch in start["batches"]:
        loss = step(weights, view(batch["x"]), view(batch["y"]))
        if batch["step"] % 50 == 49:
            connection.send({"step": batch["step"], "loss": loss})
print(f"trained with {'PyTorch ' + torch.__version__ if torch else 'plain Python'};", tensorferry.bytes_copied(), "bytes copied")
