"""Measure what the differences between Keras and torch change, one at a time.

The authors of the paper used Keras. Every variant here trains the same networks on the same random
rows with one thing changed, and is compared with the baseline network by network.

    python research/paper/framework.py --device cuda --data FOLDER --out framework.json

Finished variants are skipped, so that a stopped measurement continues.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Generator, Tensor, nn

from teeter.base.arrays import describe_device
from teeter.base.seeds import stream
from teeter.base.version import __version__, commit
from teeter.bench.experiments.experiment import Experiment
from teeter.bench.experiments.settings import setting_named
from teeter.models.networks import build_network_like
from teeter.training import FitJob, TrainingConfig, batched, fit_jobs

CASES = {
    "mnist": ((100, 40), (320, 40), (1020, 40)),
    "cifar10": ((1400, 20), (3800, 10)),
}
"""Label counts and numbers of networks."""


@dataclass(frozen=True)
class Variant:
    """One thing that is changed, beside the baseline of its dataset."""

    name: str
    training: dict[str, Any]
    """Changed values of the training configuration."""
    truncated: bool = False
    """Whether initial weights are drawn from a normal distribution cut at two deviations."""
    last_of_equal: bool = False
    """Whether the last of equally good epochs counts instead of the first."""
    plain: bool = False
    """Whether torch's layers compute in float32 instead of fused kernels in bfloat16."""


VARIANTS = {
    "mnist": (
        Variant("baseline", {}),
        Variant("epsilon", {"epsilon": 1e-7}),
        Variant("truncated", {}, truncated=True),
        Variant("last-of-equal", {}, last_of_equal=True),
        Variant("float32", {}, plain=True),
    ),
    "cifar10": (
        Variant("baseline", {}),
        Variant("torch-constants", {"alpha": 0.99, "epsilon": 1e-8}),
        Variant("float32", {}, plain=True),
        Variant("truncated", {}, truncated=True),
        Variant("last-of-equal", {}, last_of_equal=True),
        Variant("epsilon-inside", {"epsilon": math.sqrt(1e-7)}),
    ),
}


def truncate_weights(network: nn.Module, generator: Generator) -> None:
    """Draw initial weights as Keras's he_normal does: cut at two deviations, then widened again."""
    # The deviation of a standard normal variable that is cut at -2 and 2.
    cut_deviation = 0.87962566103423978

    for module in network.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            fan_in = module.weight[0].numel()
            deviation = math.sqrt(2 / fan_in) / cut_deviation
            nn.init.trunc_normal_(
                module.weight,
                std=deviation,
                a=-2 * deviation,
                b=2 * deviation,
                generator=generator,
            )


@contextmanager
def last_epoch_counts() -> Iterator[None]:
    """Let the last of equally good epochs count."""
    update = batched._BestWeights.update

    def update_if_as_good(best: Any, epoch: int) -> None:
        # One row less is needed to be better.
        best.correct_rows -= 1
        best.correct_rows.clamp_(min=-1)
        before = best.correct_rows.clone()
        update(best, epoch)
        is_unchanged = best.correct_rows == before
        best.correct_rows += is_unchanged.to(best.correct_rows.dtype)

    with patch.object(batched._BestWeights, "update", update_if_as_good):
        yield


@contextmanager
def torch_layers() -> Iterator[None]:
    """Train with torch's layers in float32."""
    with patch.dict(os.environ, {"TEETER_FUSED": "0"}):
        yield


def measure(
    experiment: Experiment,
    variant: Variant,
    labels: int,
    count: int,
) -> dict[str, Any]:
    """Return the test accuracies of networks trained in one way."""
    setting = experiment.setting
    device = experiment.device
    if experiment.validation is None:
        raise ValueError(setting.name)
    validation = (experiment.validation.inputs, experiment.validation.labels)
    train_labels = torch.as_tensor(experiment.train.labels)

    jobs = []
    for seed in range(count):
        order = torch.randperm(len(train_labels), generator=stream(seed, "framework"))
        rows = order[:labels]
        network = build_network_like(
            setting.network, experiment.train.inputs, experiment.classes, seed
        )
        if variant.truncated:
            truncate_weights(network, stream(seed, "truncated"))
        jobs.append(
            FitJob(
                network.to(device),
                experiment.train.inputs[rows.to(experiment.train.inputs.device)],
                train_labels[rows],
                seed=seed,
                validation=(validation[0], torch.as_tensor(validation[1])),
            )
        )

    config = replace(setting.training, **variant.training)
    started = time.perf_counter()
    results = train(jobs, config, variant)
    seconds = time.perf_counter() - started

    accuracies = []
    test_labels = torch.as_tensor(experiment.test.labels, device=device)
    for result in results:
        if result.error is not None:
            raise result.error
        accuracies.append(accuracy(result.model, experiment.test.inputs, test_labels))
    return {
        "accuracy": accuracies,
        "best_epoch": [result.best_epoch for result in results],
        "seconds": round(seconds, 2),
    }


def train(jobs: list[FitJob], config: TrainingConfig, variant: Variant) -> list[Any]:
    """Train all jobs as a variant says."""
    if variant.plain:
        with torch_layers():
            return fit_jobs(jobs, config)
    if variant.last_of_equal:
        with last_epoch_counts():
            return fit_jobs(jobs, config)
    return fit_jobs(jobs, config)


def accuracy(network: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    """Return the share of test rows that a network classifies correctly, in float32."""
    correct = 0
    with torch.no_grad():
        for rows, classes in zip(inputs.split(2000), labels.split(2000), strict=True):
            correct += int((network(rows.to(labels.device)).argmax(dim=1) == classes).sum())
    return correct / len(labels)


def main() -> None:
    """Measure all variants that the file does not have yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--datasets", default="mnist,cifar10")
    parser.add_argument("--stop-after", type=float, default=math.inf, help="seconds")
    options = parser.parse_args()

    started = time.monotonic()
    device = torch.device(options.device)
    results: dict[str, Any] = {}
    if options.out.exists():
        results = json.loads(options.out.read_text())
    results["facts"] = {
        "teeter": __version__,
        "commit": commit(),
        "torch": str(torch.__version__),
        "hardware": describe_device(device),
    }
    for dataset in options.datasets.split(","):
        experiment = Experiment(setting_named(dataset), options.data, device)
        by_case = results.setdefault(dataset, {})
        for labels, count in CASES[dataset]:
            for variant in VARIANTS[dataset]:
                key = f"{variant.name} {labels}"
                if key in by_case or time.monotonic() - started > options.stop_after:
                    continue
                # torch's layers take several times as long.
                networks = count // 2 if variant.plain else count
                by_case[key] = measure(experiment, variant, labels, networks)
                mean = np.mean(by_case[key]["accuracy"])
                print(dataset, key, f"{mean:.4f}", by_case[key]["seconds"], flush=True)
                options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
