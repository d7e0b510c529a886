"""How much faster networks of one architecture are trained together than one after the other.

Each row trains the same networks on the same rows three times: one after the other by the plain
loop, together, and on a GPU also together without CUDA graphs. The two kinds of network are those
of the paper's experiments on tables and on MNIST.

    python research/speed/bench_training.py --threads 1     on one CPU core
    python research/speed/bench_training.py --device cuda   on the GPU
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from measure import describe_setup, format_table, measure_seconds, save_result
from torch import Tensor, nn

from teeter.models.networks import mlp, s_cnn
from teeter.training import FitJob, TrainingConfig, batched, fit_jobs

ROWS = 500
EPOCHS = 10
REPEATS = 3
NETWORK_COUNTS = (5, 50)

KINDS = {"cpu": ("MLP",), "cuda": ("MLP", "S-CNN")}
"""Convolutions are not batched on a CPU."""


def make_network(kind: str, seed: int) -> nn.Module:
    """Return a network for 16 numbers and 26 classes (OpenML 6), or for images (MNIST)."""
    if kind == "MLP":
        return mlp(16, 26, seed=seed)
    return s_cnn(1, 28, 10, seed=seed)


def make_rows(kind: str) -> tuple[Tensor, Tensor]:
    """Return random rows and labels of the right shape."""
    shape: tuple[int, ...] = (1, 28, 28)
    classes = 10
    if kind == "MLP":
        shape = (16,)
        classes = 26

    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(ROWS, *shape, generator=generator)
    labels = torch.randint(classes, (ROWS,), generator=generator)
    return inputs, labels


def compare(kind: str, count: int, device: torch.device) -> dict[str, Any]:
    """Time the ways to train ``count`` networks."""
    inputs, labels = make_rows(kind)
    config = TrainingConfig(epochs=EPOCHS)

    def make_jobs() -> list[FitJob]:
        networks = [make_network(kind, seed).to(device) for seed in range(count)]
        return [FitJob(network, inputs, labels, seed=k) for k, network in enumerate(networks)]

    def train() -> None:
        for result in fit_jobs(make_jobs(), config):
            if result.error is not None:
                raise result.error

    def train_alone() -> None:
        # can_batch is what sends a network to the batched loop.
        with patch.object(batched, "can_batch", lambda networks: False):
            train()

    def train_without_graphs() -> None:
        with patch.object(batched, "_MIN_STEPS_TO_CAPTURE", 10**9):
            train()

    # Making the networks is timed on its own, and subtracted.
    making_seconds = measure_seconds(make_jobs, device, repeats=REPEATS)
    alone_seconds = measure_seconds(train_alone, device, repeats=REPEATS) - making_seconds
    batched_seconds = measure_seconds(train, device, repeats=REPEATS) - making_seconds

    row = {
        "network": kind,
        "networks": count,
        "alone (s)": alone_seconds,
        "batched (s)": batched_seconds,
    }
    if device.type == "cuda":
        seconds = measure_seconds(train_without_graphs, device, repeats=REPEATS)
        row["without graphs (s)"] = seconds - making_seconds
    row["speed-up"] = alone_seconds / batched_seconds
    return row


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)

    rows = []
    for kind in KINDS[device.type]:
        for count in NETWORK_COUNTS:
            rows.append(compare(kind, count, device))
            print(json.dumps(rows[-1]), flush=True)

    print(format_table(rows))
    setup = {"rows": ROWS, "epochs": EPOCHS, "batch_size": TrainingConfig().batch_size}
    save_result(options.out, {**describe_setup(device), "setup": setup, "training": rows})


if __name__ == "__main__":
    main()
