"""Tensors to be told from others."""

import tensorferry


def filled(element, n=1000):
    tensor = tensorferry.empty(n, "uint8")
    memoryview(tensor)[:] = bytes([element]) * n
    return tensor
