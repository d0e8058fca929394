"""Measures torch's spawn for `cargo xtask bench processes`.

    python3 processes.py ROUNDS COUNT,COUNT,.. GRACE_MS

The last line of standard output is a JSON object; times are medians, in milliseconds.
"""

import json
import logging
import re
import signal
import statistics
import sys
import time

import torch
import torch.multiprocessing as mp

N_DEAF = 8


def nothing(index):
    pass


def fail(index):
    raise ValueError(f"raised at {time.monotonic_ns()}")


def fail_or_be_deaf(index, ready, go):
    if index == 0:
        go.wait()
        raise ValueError(f"raised at {time.monotonic_ns()}")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ready.release()
    while True:
        signal.pause()


def ms_since_raised(error):
    return (time.monotonic_ns() - int(re.search(r"raised at (\d+)", str(error))[1])) / 1e6


def start_to_join(count):
    begin = time.monotonic_ns()
    mp.spawn(nothing, nprocs=count)
    return (time.monotonic_ns() - begin) / 1e6


def raise_to_error():
    try:
        mp.spawn(fail, nprocs=1)
    except mp.ProcessRaisedException as error:
        return ms_since_raised(error)


def failure_to_stopped(grace_s):
    context = mp.get_context("spawn")
    ready, go = context.Semaphore(0), context.Event()
    processes = mp.spawn(fail_or_be_deaf, (ready, go), nprocs=1 + N_DEAF, join=False)
    for _ in range(N_DEAF):
        ready.acquire()
    go.set()
    try:
        while not processes.join(grace_period=grace_s):
            pass
    except mp.ProcessRaisedException as error:
        return ms_since_raised(error)


def main():
    rounds, grace_s = int(sys.argv[1]), int(sys.argv[3]) / 1e3
    counts = [int(count) for count in sys.argv[2].split(",")]
    logging.disable(logging.WARNING)
    median = lambda measure: statistics.median(measure() for _ in range(rounds))
    print(json.dumps({
        "version": torch.__version__,
        "start_to_join_ms": [median(lambda: start_to_join(count)) for count in counts],
        "raise_to_error_ms": median(raise_to_error),
        "failure_to_stopped_ms": median(lambda: failure_to_stopped(grace_s)),
    }))


if __name__ == "__main__":
    main()
