"""Random streams: what decides their numbers, and what does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import teeter
from teeter.base import seeds
from teeter.base.seeds import normal, stream, validate_seed
from teeter.bench.datasets import load_dataset
from teeter.bench.experiments.settings import setting_named
from teeter.campaigns import Campaign, Settings
from teeter.errors import InputError
from teeter.models.networks import mlp
from teeter.selection.request import SelectionRequest


def test_streams_depend_on_seed_and_name_alone() -> None:
    def draw(*name: Any) -> list[float]:
        return torch.rand(3, generator=seeds.stream(*name)).tolist()

    assert draw(0, "a", 1) == draw(0, "a", 1) == draw(np.int64(0), "a", 1)
    names = [(0, "a", 1), (0, "a", 2), (0, "b", 1), (1, "a", 1), (0, "a")]
    assert len({tuple(draw(*name)) for name in names}) == 5


def test_a_fork_moves_the_stream_on() -> None:
    generator = seeds.stream(0, "x")
    assert seeds.derive_seed(generator) != seeds.derive_seed(generator)


def test_the_default_dtype_decides_no_draw() -> None:
    plain = normal((4,), stream(0, "x"), torch.device("cpu"))
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(normal((4,), stream(0, "x"), torch.device("cpu")), plain)
    finally:
        torch.set_default_dtype(torch.float32)


ROWS = np.eye(3, dtype=np.float32)
OUTPUTS = teeter.Outputs(features=ROWS, weight=ROWS[:2])

SEEDED: dict[str, Callable[[int], Any]] = {
    "ldm": lambda seed: teeter.ldm(ROWS, ROWS[:2], seed=seed),
    "scores": lambda seed: teeter.scores("ldm", OUTPUTS, seed=seed),
    "select": lambda seed: teeter.select("random", OUTPUTS, 1, seed=seed),
    "observe": lambda seed: teeter.observe(mlp(3, 2), ROWS, seed=seed),
    "Learner": lambda seed: teeter.Learner(lambda s: mlp(3, 2), ROWS, classes=2, seed=seed),
    "a network": lambda seed: mlp(3, 2, seed=seed),
    "load_dataset": lambda seed: load_dataset("digits", seed=seed),
    "a setting": lambda seed: replace(setting_named("digits"), seed=seed),
    "a file": lambda seed: SelectionRequest(pool="pool.npz", n=3, seed=seed),
}


@pytest.mark.parametrize("name", SEEDED)
def test_a_negative_seed_is_refused(name: str) -> None:
    SEEDED[name](0)
    with pytest.raises(InputError, match="seed is -1: it must be a whole number of 0 or more"):
        SEEDED[name](-1)


def test_a_new_campaign_has_no_negative_seed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="seed is -1"):
        Campaign.make([], ["x", "y"], at=tmp_path / "a.teeter", settings=Settings(seed=-1))


@pytest.mark.parametrize("seed", [True, 1.0, "1", None])
def test_a_seed_is_a_whole_number(seed: object) -> None:
    with pytest.raises(InputError, match="it must be a whole number of 0 or more"):
        validate_seed(seed)
