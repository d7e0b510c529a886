"""How much faster networks of one architecture are trained together than one after the other.

Each row trains the same networks on the same rows three times: one after the other by the plain
loop, together, and on a GPU also together without CUDA graphs. The two kinds of network are those
of the paper's experiments on tables and on MNIST.

    python benchmarks/speed/bench_training.py --threads 1     on one CPU core
    python benchmarks/speed/bench_training.py --device cuda   on the GPU
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
COUNTS = (5, 50)
KINDS = {"cpu": ("MLP",), "cuda": ("MLP", "S-CNN")}
"""Convolutions are not batched on a CPU."""


def make_network(kind: str, seed: int) -> nn.Module:
    """Return a network for 16 numbers and 26 classes (OpenML 6), or for images (MNIST)."""
    return mlp(16, 26, seed=seed) if kind == "MLP" else s_cnn(1, 28, 10, seed=seed)


def make_rows(kind: str) -> tuple[Tensor, Tensor]:
    """Return random rows and labels of the right shape."""
    generator = torch.Generator().manual_seed(0)
    shape, classes = ((16,), 26) if kind == "MLP" else ((1, 28, 28), 10)
    inputs = torch.randn(ROWS, *shape, generator=generator)
    return inputs, torch.randint(classes, (ROWS,), generator=generator)


def compare(kind: str, count: int, device: torch.device) -> dict[str, Any]:
    """Time the ways to train ``count`` networks."""
    inputs, labels = make_rows(kind)
    config = TrainingConfig(epochs=EPOCHS)

    def jobs() -> list[FitJob]:
        networks = [make_network(kind, seed).to(device) for seed in range(count)]
        return [FitJob(network, inputs, labels, seed=k) for k, network in enumerate(networks)]

    def train(prepared: list[FitJob]) -> None:
        for result in fit_jobs(prepared, config):
            if result.error is not None:
                raise result.error

    def train_alone() -> None:
        # can_batch is what sends a network to the batched loop.
        with patch.object(batched, "can_batch", lambda networks: False):
            train(jobs())

    def train_without_graphs() -> None:
        with patch.object(batched, "_MIN_STEPS_TO_CAPTURE", 10**9):
            train(jobs())

    repeats = 3
    making = measure_seconds(jobs, device, repeats=repeats)
    alone = measure_seconds(train_alone, device, repeats=repeats) - making
    together = measure_seconds(lambda: train(jobs()), device, repeats=repeats) - making
    row = {"network": kind, "networks": count, "alone (s)": alone, "batched (s)": together}
    if device.type == "cuda":
        row["without graphs (s)"] = (
            measure_seconds(train_without_graphs, device, repeats=repeats) - making
        )
    row["speed-up"] = alone / together
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
        for count in COUNTS:
            rows.append(compare(kind, count, device))
            print(json.dumps(rows[-1]), flush=True)
    print(format_table(rows))
    setup = {"rows": ROWS, "epochs": EPOCHS, "batch_size": TrainingConfig().batch_size}
    save_result(options.out, {**describe_setup(device), "setup": setup, "training": rows})


if __name__ == "__main__":
    main()
