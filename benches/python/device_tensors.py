"""Measures torch.multiprocessing's Queue with CUDA tensors for `cargo xtask bench cuda`. Needs torch and a GPU.

    python3 device_tensors.py ROUNDS BYTES,BYTES,..

A round trip is a tensor there and a number back; the receiver reads the first element, so it waits for the data. The last
line of standard output is a JSON object; times are in microseconds.
"""

import json
import statistics
import sys
import time

import torch
import torch.multiprocessing as mp

N_WARM = 20


def answer(messages, replies, keeps):
    held = None
    while (message := messages.get()) is not None:
        if isinstance(message, torch.Tensor):
            first = int(message[0].item())
            held = message if keeps else None
        else:
            first = message
        del message
        replies.put(first)
    del held


def measure(what, size_bytes, rounds):
    context = mp.get_context("spawn")
    messages, replies = context.Queue(), context.Queue()
    peer = context.Process(target=answer, args=(messages, replies, what == "held"))
    peer.start()
    make = lambda: torch.empty(size_bytes // 4, dtype=torch.int32, device="cuda")
    tensor = make() if size_bytes else None
    times_us = []
    for number in range(N_WARM + rounds):
        if what == "fresh":
            tensor = make()
        if size_bytes:
            tensor[0] = number
        begin = time.perf_counter()
        messages.put(tensor if size_bytes else number)
        first = replies.get()
        elapsed = time.perf_counter() - begin
        assert first == number, f"{what}: {first} arrived, not {number}"
        if number >= N_WARM:
            times_us.append(elapsed * 1e6)
    messages.put(None)
    peer.join()
    times_us.sort()
    return {
        "what": what,
        "size_bytes": size_bytes,
        "median_us": statistics.median(times_us),
        "p99_us": times_us[min(len(times_us) - 1, len(times_us) * 99 // 100)],
    }


def main():
    rounds, sizes = int(sys.argv[1]), [int(size) for size in sys.argv[2].split(",")]
    rows = [measure("number", 0, rounds)]
    for size_bytes in sizes:
        rows += [measure(what, size_bytes, rounds) for what in ("held", "dropped", "fresh")]
    print(json.dumps({"version": torch.__version__, "rows": rows}))


if __name__ == "__main__":
    main()
