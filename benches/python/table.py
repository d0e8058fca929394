"""Measures torch for `cargo xtask bench table`.

    python3 table.py file_descriptor|file_system

One measurement for each line of standard input, as JSON; one line of figures for each on standard output. Each side has
one thread. A fresh tensor is made with torch.full and shared by the send; "again" fills four shared tensors in turn,
which a semaphore gives back.
"""

import json
import statistics
import sys
import threading
import time

import torch
import torch.multiprocessing as mp

AGAIN = 4
PAUSE_S = 1e-3
PIECES = 8
QUEUES = {"forth": 1024, "back": 1024, "messages": 16}


def set_up(strategy):
    torch.set_num_threads(1)
    mp.set_sharing_strategy(strategy)


def n_elements(ask):
    return max(1, ask["size_bytes"] // 4)


def value_of(number):
    return 1.0 if number % 2 == 0 else 2.0


def touch(tensor):
    return float(tensor[::1024].sum())


def far(strategy, queues, control, returns):
    set_up(strategy)
    while True:
        order = control.recv()
        if order is None:
            return
        ask, n_messages = order
        existing = torch.ones(n_elements(ask)).share_memory_()
        pool = [torch.zeros(n_elements(ask)).share_memory_() for _ in range(AGAIN if ask["again"] else 0)]
        pause = threading.Event()
        control.send("ready")
        for number in range(n_messages):
            if ask["row"] == "latency":
                touch(queues["forth"].get())
                queues["back"].put(existing)
            elif ask["row"] == "asleep":
                pause.wait(PAUSE_S)
                queues["messages"].put((time.monotonic_ns(), existing))
            elif ask["row"] == "stream":
                queues["messages"].put((0, existing))
            elif ask["again"]:
                returns.acquire()
                queues["messages"].put((0, pool[number % AGAIN].fill_(value_of(number))))
            else:
                queues["messages"].put((0, torch.full((n_elements(ask),), value_of(number))))
        # What was sent lives until it was received.
        control.recv()


def one_run(ask, queues, control, returns, n_messages):
    """Times of the messages, in seconds: round trips, latencies, or pieces of a stream."""
    existing = torch.ones(n_elements(ask)).share_memory_()
    control.send((ask, n_messages))
    control.recv()
    times = []
    last = time.perf_counter()
    for number in range(n_messages):
        if ask["row"] == "latency":
            queues["forth"].put(existing)
            touch(queues["back"].get())
        else:
            stamp, tensor = queues["messages"].get()
            if ask["row"] == "fresh":
                assert float(tensor.sum()) == value_of(number) * n_elements(ask)
            else:
                touch(tensor)
            del tensor
            if ask["again"]:
                returns.release()
        if ask["row"] == "asleep":
            times.append((time.monotonic_ns() - stamp) / 1e9)
        else:
            now = time.perf_counter()
            times.append(now - last)
            last = now
    control.send("received")
    return times


def quantile(values, fraction):
    return sorted(values)[min(len(values) - 1, int(fraction * len(values)))]


def answer(ask, queues, control, returns):
    warm = one_run(ask, queues, control, returns, 20)
    one = statistics.median(warm) + (PAUSE_S if ask["row"] == "asleep" else 0)
    n_messages = int(max(PIECES * 2, min(20_000, ask["seconds"] / one)))
    times = one_run(ask, queues, control, returns, n_messages)
    if ask["row"] in ("latency", "asleep"):
        half = 0.5e6 if ask["row"] == "latency" else 1e6
        figures = {"one_way_us": 0.5, "p50_us": 0.5, "p99_us": 0.99, "p999_us": 0.999}
        return {name: quantile(times, fraction) * half for name, fraction in figures.items()} | {"samples": len(times)}
    n_piece = n_messages // PIECES
    rates = [n_piece / sum(times[piece * n_piece : (piece + 1) * n_piece]) for piece in range(PIECES)]
    rate = statistics.median(rates)
    return {"messages_per_s": rate, "gb_per_s": rate * ask["size_bytes"] / 1e9}


def nothing(_rank):
    pass


def spawned(ask):
    begin = time.perf_counter()
    mp.spawn(nothing, nprocs=ask["count"])
    return {"spawn_us": (time.perf_counter() - begin) * 1e6}


def main():
    strategy = sys.argv[1]
    set_up(strategy)
    context = mp.get_context("spawn")
    queues = {name: context.Queue(maxsize) for name, maxsize in QUEUES.items()}
    control, theirs = context.Pipe()
    returns = context.Semaphore(AGAIN)
    process = context.Process(target=far, args=(strategy, queues, theirs, returns), daemon=True)
    process.start()
    print(json.dumps({"torch": torch.__version__, "python": sys.version.split()[0]}), flush=True)
    for line in sys.stdin:
        ask = json.loads(line)
        ask["again"] = ask["way"].endswith("again")
        figures = spawned(ask) if ask["row"] == "spawn" else answer(ask, queues, control, returns)
        print(json.dumps(figures), flush=True)
    control.send(None)
    process.join()


if __name__ == "__main__":
    main()
