"""How long a training step of each of the paper's networks takes on a GPU.

S-CNN and K-CNN are trained many at a time: by torch's layers (one convolution with a group for each
network) and by fused kernels. The large networks are trained one at a time.

    python research/speed/bench_steps.py --out research/speed/results/steps_h200.json
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from measure import describe_setup, measure_seconds, save_result
from torch import nn

from teeter.bench.experiments import setting_named
from teeter.bench.fused_networks.program import make_program
from teeter.models.networks import build_network_like
from teeter.training import FitJob, batched
from teeter.training.batched_network import register_program
from teeter.training.config import make_optimizer

register_program(make_program)

BATCH_SIZE = 64
ROWS = 512
EPOCHS = 4
VALIDATION_ROWS = 512

SMALL = {
    "mnist": (1, 28, 28),
    "cifar10": (3, 32, 32),
}
"""Settings of the networks that are trained together, and the shape of a row."""

LARGE = {
    "cifar100": ((3, 32, 32), 100),
    "tiny-imagenet": ((3, 64, 64), 200),
    "food101": ((3, 75, 75), 101),
    "imagenet": ((3, 224, 224), 1000),
}
"""Settings of the networks that are trained alone, the shape of a row and the classes."""


def measure_together(name: str, count: int, *, fused: bool, device: torch.device) -> dict[str, Any]:
    """Return the milliseconds of a step of ``count`` networks, and of their validation."""
    setting = setting_named(name)
    shape = SMALL[name]
    generator = torch.Generator().manual_seed(0)
    rows = torch.rand(ROWS, *shape, generator=generator).to(device)
    labels = torch.randint(10, (ROWS,), generator=generator)
    config = replace(setting.training, batch_size=BATCH_SIZE)

    with patch.dict(os.environ, {"TEETER_FUSED": "1" if fused else "0"}):
        jobs = []
        for seed in range(count):
            network = build_network_like(setting.network, rows, 10, seed).to(device)
            jobs.append(FitJob(network, rows, labels, seed=seed))
        trainer = batched._BatchedTrainer(jobs, config)

        orders = [torch.Generator().manual_seed(seed) for seed in range(count)]

        def train() -> None:
            for _ in range(EPOCHS):
                trainer.train_epoch(orders)

        def validate() -> None:
            with torch.no_grad():
                trainer.program.shared_logits(rows[:VALIDATION_ROWS])

        with batched._deterministic_convolutions():
            steps = EPOCHS * len(trainer.batch_sizes)
            step_seconds = measure_seconds(train, device, repeats=5, warmups=2) / steps
            validation_seconds = measure_seconds(validate, device, repeats=5, warmups=2)
        return {
            "setting": name,
            "network": setting.network,
            "networks": count,
            "program": type(trainer.program).__name__,
            "step (ms)": 1000 * step_seconds,
            f"validation of {VALIDATION_ROWS} rows (ms)": 1000 * validation_seconds,
        }


def measure_alone(name: str, device: torch.device) -> dict[str, Any]:
    """Return the milliseconds of a step of one large network, and of 128 rows without training."""
    setting = setting_named(name)
    shape, classes = LARGE[name]
    rows = torch.rand(setting.batch_size, *shape, device=device)
    labels = torch.randint(classes, (setting.batch_size,), device=device)
    network = build_network_like(setting.network, rows, classes, 0).to(device)
    optimizer = make_optimizer(network.parameters(), setting.training)

    def step() -> None:
        loss = nn.functional.cross_entropy(network(rows), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    def predict() -> None:
        with torch.no_grad():
            network(rows)

    network.train()
    step_seconds = measure_seconds(step, device, repeats=8, warmups=4)
    network.eval()
    predict_seconds = measure_seconds(predict, device, repeats=8, warmups=2)
    return {
        "setting": name,
        "network": setting.network,
        "batch": setting.batch_size,
        "step (ms)": 1000 * step_seconds,
        "prediction of a batch (ms)": 1000 * predict_seconds,
    }


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device = torch.device(options.device)

    together = []
    for name in SMALL:
        for count in (5, 50):
            for fused in (False, True):
                together.append(measure_together(name, count, fused=fused, device=device))
                print(json.dumps(together[-1]), flush=True)
                torch.cuda.empty_cache()
    alone = []
    for name in LARGE:
        alone.append(measure_alone(name, device))
        print(json.dumps(alone[-1]), flush=True)
        torch.cuda.empty_cache()

    setup = {"batch_size": BATCH_SIZE, "rows": ROWS}
    save_result(
        options.out,
        {**describe_setup(device), "setup": setup, "together": together, "alone": alone},
    )


if __name__ == "__main__":
    main()
