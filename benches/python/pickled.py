"""Measures tensors through Python's `multiprocessing` beside torch's, in one run. Needs torch and NumPy.

    python3 pickled.py ROUNDS BYTES,BYTES,..

A round trip is a fresh tensor there, of which the first element is read, and a number back. Making it is not measured.
Medians of each round, in microseconds.
"""

import multiprocessing
import statistics
import sys
import time

import numpy
import tensorferry
import torch
import torch.multiprocessing

N_MESSAGES = 1000
WAYS = ("torch", "tensorferry, pickled", "tensorferry's queue")


def first_of(tensor):
    return tensor[0].item() if isinstance(tensor, torch.Tensor) else numpy.asarray(tensor)[0]


def answer(there, back):
    while (tensor := there.get()) is not None:
        back.put(float(first_of(tensor)))
        del tensor


def queues(way, context):
    if way == "tensorferry's queue":
        return tensorferry.Queue(1), tensorferry.Queue(1)
    return context.SimpleQueue(), context.SimpleQueue()


def made(way, n_elements):
    if way == "torch":
        return torch.full((n_elements,), 2.0)
    tensor = tensorferry.empty(n_elements)
    numpy.asarray(tensor)[:] = 2.0
    return tensor.freeze()


def round_trip_us(way, n_elements):
    context = (torch.multiprocessing if way == "torch" else multiprocessing).get_context("spawn")
    there, back = queues(way, context)
    process = context.Process(target=answer, args=(there, back))
    process.start()
    taken = []
    for _ in range(N_MESSAGES):
        tensor = made(way, n_elements)
        start = time.perf_counter()
        there.put(tensor)
        assert back.get() == 2.0
        taken.append(time.perf_counter() - start)
        del tensor
    there.put(None)
    process.join()
    return statistics.median(taken[N_MESSAGES // 10:]) * 1e6


def main():
    n_rounds, sizes = int(sys.argv[1]), [int(size) for size in sys.argv[2].split(",")]
    for size_bytes in sizes:
        rounds = [[round_trip_us(way, size_bytes // 4) for way in WAYS] for _ in range(n_rounds)]
        for way, taken in zip(WAYS, zip(*rounds)):
            print(f"{size_bytes} bytes, {way}: {statistics.median(taken):.1f} us ({min(taken):.1f} .. {max(taken):.1f})")


if __name__ == "__main__":
    main()
