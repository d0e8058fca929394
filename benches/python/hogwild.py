"""Hogwild with PyTorch, as the example `hogwild` does it: the same data, network, batch size and number of steps.

usage: hogwild.py DATA [--processes N] [--epochs N] [--hidden N] [--batch N] [--seed N]
The last line is a JSON object: samples_per_second, accuracy, torch.
"""

import argparse
import gzip
import json
import time

import torch
import torch.multiprocessing as mp
from torch import nn


def load(path):
    """The images from 0 to 1 and their labels: four fifths to learn from, one fifth held out."""
    with gzip.open(path, "rt") as lines:
        table = torch.tensor([[float(number) for number in line.split(",")] for line in lines])
    table = table[torch.randperm(len(table), generator=torch.Generator().manual_seed(1998))]
    images, labels = table[:, :-1] / 16.0, table[:, -1].long()
    n_held_out = len(table) // 5
    return images[n_held_out:], labels[n_held_out:], images[:n_held_out], labels[:n_held_out]


def batches(n_images, options, seed, n_epochs):
    """The indices of each batch, in another order for each epoch."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(n_epochs):
        yield from torch.randperm(n_images, generator=generator).split(options.batch)


def descend(model, images, labels, chosen_batches):
    """Plain stochastic gradient descent; returns how many samples it has seen."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss_of = nn.CrossEntropyLoss()
    n_samples = 0
    for chosen in chosen_batches:
        optimizer.zero_grad()
        loss_of(model(images[chosen]), labels[chosen]).backward()
        optimizer.step()
        n_samples += len(chosen)
    return n_samples


def network(options):
    return nn.Sequential(
        nn.Linear(64, options.hidden), nn.ReLU(), nn.Linear(options.hidden, 10)
    )


def work(rank, model, images, labels, options, ready, results):
    torch.set_num_threads(1)
    # One epoch on a model of its own, so that nobody pays for first calls after the start.
    descend(network(options), images, labels, batches(len(images), options, 0, 1))
    n_epochs = options.epochs // options.processes + (rank < options.epochs % options.processes)
    seed = options.seed * 1000 + rank
    ready.wait()
    begin = time.clock_gettime(time.CLOCK_MONOTONIC)
    n_samples = descend(model, images, labels, batches(len(images), options, seed, n_epochs))
    results.put((n_samples, begin, time.clock_gettime(time.CLOCK_MONOTONIC)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    for name, default in [("processes", 1), ("epochs", 200), ("hidden", 128), ("batch", 32), ("seed", 0)]:
        parser.add_argument("--" + name, type=int, default=default)
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    images, labels, held_out_images, held_out_labels = load(options.data)
    model = network(options).share_memory()
    images.share_memory_()
    labels.share_memory_()

    context = mp.get_context("spawn")
    ready = context.Barrier(options.processes)
    results = context.SimpleQueue()
    arguments = (model, images, labels, options, ready, results)
    workers = [
        context.Process(target=work, args=(rank, *arguments)) for rank in range(options.processes)
    ]
    for worker in workers:
        worker.start()
    outcomes = [results.get() for _ in workers]
    for worker in workers:
        worker.join()

    seconds = max(end for _, _, end in outcomes) - min(begin for _, begin, _ in outcomes)
    with torch.no_grad():
        right = model(held_out_images).argmax(1) == held_out_labels
    print(
        json.dumps(
            {
                "samples_per_second": sum(n for n, _, _ in outcomes) / seconds,
                "accuracy": right.float().mean().item(),
                "torch": torch.__version__,
            }
        )
    )


if __name__ == "__main__":
    main()
