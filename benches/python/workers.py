"""Measures Python's pool and manager, and torch's data loader, for `cargo xtask bench workers`.

    python3 workers.py SECONDS

The last line of standard output is a JSON object; times are in microseconds, rates for each second.
"""

import json
import statistics
import sys
import time

import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info

N_WORKERS = [0, 2]
N_SHARDS, SHARD_LEN, SEQUENCE_LEN = 4, 3_200, 1_024
WORK_S = 700e-6


def nothing(n):
    return n


class Images(Dataset):
    def __init__(self, with_work):
        self.with_work = with_work

    def __len__(self):
        return 640 if self.with_work else 1_280

    def __getitem__(self, index):
        begin = time.perf_counter()
        image = torch.full((3, 224, 224), float(index))
        while self.with_work and time.perf_counter() - begin < WORK_S:
            pass
        return image, index


class Sequences(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        for shard in range(first, N_SHARDS, step):
            for _ in range(SHARD_LEN):
                yield torch.full((SEQUENCE_LEN,), shard)

    def __len__(self):
        return N_SHARDS * SHARD_LEN


def rows():
    return TensorDataset(torch.full((64_000, 64), 0.5), torch.arange(64_000))


def samples_per_s(dataset, batch_size, seconds):
    rates = []
    for n_workers in N_WORKERS:
        shuffle = None if isinstance(dataset, IterableDataset) else True
        loader = DataLoader(dataset, batch_size=batch_size, shuffle=shuffle, num_workers=n_workers,
                            persistent_workers=n_workers > 0)
        for _ in loader:
            pass
        begin, n_epochs = time.perf_counter(), 0
        while n_epochs == 0 or time.perf_counter() - begin < seconds:
            n_epochs += 1
            for _ in loader:
                pass
        rates.append(n_epochs * len(dataset) / (time.perf_counter() - begin))
    return rates


def pool(seconds):
    with mp.get_context("spawn").Pool(2) as workers:
        workers.map(nothing, range(1_000))
        times, begin = [], time.perf_counter()
        while time.perf_counter() - begin < seconds:
            at = time.perf_counter()
            workers.apply(nothing, (7,))
            times.append((time.perf_counter() - at) * 1e6)
        n_tasks, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < seconds:
            n_tasks += len(workers.map(nothing, range(10_000), chunksize=1))
        return statistics.median(times), n_tasks / (time.perf_counter() - begin)


def dictionary(seconds):
    with mp.get_context("spawn").Manager() as manager:
        shared = manager.dict({7: 49})
        times, begin = [], time.perf_counter()
        while time.perf_counter() - begin < seconds:
            at = time.perf_counter()
            assert shared[7] == 49
            times.append((time.perf_counter() - at) * 1e6)
        return statistics.median(times)


def main():
    seconds = float(sys.argv[1])
    apply_us, tasks_per_s = pool(seconds)
    print(json.dumps({
        "version": torch.__version__,
        "figures": {
            "apply_us": apply_us,
            "tasks_per_s": tasks_per_s,
            "dict_get_us": dictionary(seconds),
            "rows_per_s": samples_per_s(rows(), 64, seconds),
            "images_per_s": samples_per_s(Images(False), 32, seconds),
            "images_with_work_per_s": samples_per_s(Images(True), 32, seconds),
            "sequences_per_s": samples_per_s(Sequences(), 32, seconds),
        },
    }))


if __name__ == "__main__":
    main()
