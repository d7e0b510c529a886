"""A small pool of images in Parquet files and a model; beside them the features that the model
makes of the images.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import teeter
from small_shards import write_shards
from teeter.models.networks import build_network
from teeter.selection import Selection, select_from_shards
from teeter.selection.executors import LocalExecutor

ROWS, SHAPE, CLASSES = 1000, (1, 8, 8), 4
RNG = np.random.default_rng(0)
IMAGES = RNG.standard_normal((ROWS, *SHAPE)).astype(np.float32)
LABELLED_IMAGES = RNG.standard_normal((10, *SHAPE)).astype(np.float32)
NETWORK = build_network("s-cnn", SHAPE, CLASSES, seed=1)


def write_model_pool(home: Path) -> None:
    """Write the images, the model, the features of the images, and the model's head."""
    teeter.save_model(
        home / "model.safetensors", NETWORK, "s-cnn", shape=SHAPE, classes=list("abcd")
    )
    outputs = teeter.observe(NETWORK, IMAGES)
    assert outputs.features is not None

    write_shards(home / "raw", IMAGES, rows_per_file=400)
    write_shards(home / "features", outputs.features.numpy(), rows_per_file=400)
    np.savez(home / "head.npz", weight=outputs.weight, bias=outputs.bias, classes=list("abcd"))
    np.save(home / "raw.npy", IMAGES)
    np.save(home / "known.npy", LABELLED_IMAGES)
    np.save(home / "known_features.npy", teeter.observe(NETWORK, LABELLED_IMAGES).features)


def select_from(home: Path, pool: str, n: int = 30, **options: Any) -> Selection:
    """Select in this process: from features with the head, from anything else with the model."""
    source = (
        {"head": home / "head.npz"}
        if pool.startswith("features")
        else {"model": home / "model.safetensors"}
    )

    defaults = {
        **source,
        "executor": LocalExecutor(1),
        "work": home / "work",
        "reference": 300,
        "rays": 32,
    }

    return select_from_shards(home / pool, n, **{**defaults, **options})


def assert_same(first: Selection, second: Selection) -> None:
    """Check that two selections picked the same rows and say the same of them."""
    assert first.provenance.classes == second.provenance.classes
    for left, right in zip(first.picks, second.picks, strict=True):
        assert (left.row, left.predicted) == (right.row, right.predicted)
        for name in ("ldm", "score", "margin"):
            assert getattr(left, name) == pytest.approx(getattr(right, name), abs=1e-6)
