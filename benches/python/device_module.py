"""Measures the Python module's device tensors beside torch.multiprocessing's Queue, in one run. Needs torch and a GPU.

    python3 device_module.py ROUNDS BYTES,BYTES,..

The rows are those of `device_tensors.py`: a round trip is a tensor there and a number back, and the receiver reads the
first element. Medians, in microseconds.
"""

import statistics
import subprocess
import sys
import time

import device_tensors
import tensorferry
import torch

ADDRESS = "@tensorferry-device-module"


def answer(keeps):
    held = None
    with tensorferry.connect(ADDRESS, timeout=60) as connection:
        for message in connection:
            array = torch.from_dlpack(message)
            connection.send(int(array[0].item()))
            held = message if keeps else None
            del message, array
    del held


def measure(what, size_bytes, rounds):
    with tensorferry.Listener(ADDRESS) as listener:
        arguments = [sys.executable, __file__, "answer", what]
        peer = subprocess.Popen(arguments, stdin=subprocess.DEVNULL)
        connection = listener.accept(timeout=120)
    make = lambda: tensorferry.empty(size_bytes // 4, torch.int32, device="cuda")
    tensor = make()
    array = torch.from_dlpack(tensor)
    times_us = []
    for number in range(device_tensors.N_WARM + rounds):
        if what == "fresh":
            tensor = make()
            array = torch.from_dlpack(tensor)
        array[0] = number
        begin = time.perf_counter()
        connection.send(tensor)
        first = connection.recv()
        elapsed = time.perf_counter() - begin
        assert first == number, f"{what}: {first} arrived, not {number}"
        if number >= device_tensors.N_WARM:
            times_us.append(elapsed * 1e6)
    connection.close()
    peer.wait(60)
    return statistics.median(times_us)


def main():
    if sys.argv[1] == "answer":
        answer(sys.argv[2] == "held")
        return
    rounds, sizes = int(sys.argv[1]), [int(size) for size in sys.argv[2].split(",")]
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, tensorferry {tensorferry.__version__}")
    print(f"{'what':>8} {'bytes':>12} {'tensorferry':>12} {'torch':>10} {'ratio':>6}")
    for size_bytes in sizes:
        for what in ("held", "dropped", "fresh"):
            ours = measure(what, size_bytes, rounds)
            theirs = device_tensors.measure(what, size_bytes, rounds)["median_us"]
            print(f"{what:>8} {size_bytes:>12} {ours:>12.1f} {theirs:>10.1f} {theirs / ours:>6.1f}")


if __name__ == "__main__":
    main()
