"""The paper's settings of large images, end to end: published files, networks, rounds, results."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from small_datasets import write_picture
from teeter.bench.experiments import override, run_setting, setting_named

pytest.importorskip("PIL.Image")

ROWS_PER_CLASS = 8

SMALL = {
    "initial": 4,
    "query": 2,
    "final": 6,
    "pool": 4,
    "validation": 2,
    "epochs": 1,
    "milestones": (),
    "batch_size": 4,
    "repetitions": 1,
}
"""What is cut to make a run of minutes one of seconds. Networks and files stay as they are."""


def write_cifar100(folder: Path) -> None:
    """Write train.bin and test.bin: a coarse class, a fine class and 3,072 bytes for an image."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True)
    for name, rows in (("train", 2 * ROWS_PER_CLASS), ("test", 4)):
        records = rng.integers(0, 256, (rows, 3074), dtype=np.uint8)
        records[:, 0] = 0
        records[:, 1] = np.arange(rows) % 100
        (folder / f"{name}.bin").write_bytes(records.tobytes())


def write_tiny_imagenet(folder: Path) -> None:
    """Write pictures of 64 x 64, in a folder for each class and in one for validation."""
    annotations = []
    for number, name in enumerate(("n01", "n02")):
        for place in range(ROWS_PER_CLASS):
            path = folder / "train" / name / "images" / f"{name}_{place}.JPEG"
            write_picture(path, 64, 64, 3, seed=100 * number + place)
        for place in range(2):
            file_name = f"val_{number}{place}.JPEG"
            write_picture(folder / "val" / "images" / file_name, 64, 64, 3, seed=50 + place)
            annotations.append(f"{file_name}\t{name}\t0\t0\t62\t62\n")
    (folder / "val" / "val_annotations.txt").write_text("".join(annotations))


def write_food101(folder: Path) -> None:
    """Write pictures of several sizes, and lists of those for training and test."""
    (folder / "meta").mkdir(parents=True)
    (folder / "meta" / "classes.txt").write_text("apple_pie\nwaffles\n")
    for part, places in (("train", range(ROWS_PER_CLASS)), ("test", range(20, 22))):
        names = [f"{name}/{place}" for name in ("apple_pie", "waffles") for place in places]
        (folder / "meta" / f"{part}.txt").write_text("\n".join(names) + "\n")
        for number, name in enumerate(names):
            write_picture(folder / "images" / f"{name}.jpg", 80 + number, 100, 3, seed=number)


def write_imagenet(folder: Path) -> None:
    """Write pictures in a folder for each class."""
    for part, rows in (("train", ROWS_PER_CLASS), ("val", 2)):
        for name in ("n01", "n02"):
            for place in range(rows):
                path = folder / part / name / f"{name}_{place}.JPEG"
                write_picture(path, 280, 260, 3, seed=place)


CASES: dict[str, tuple[Callable[[Path], None], str]] = {
    "cifar100": (write_cifar100, "cifar-100-binary"),
    "tiny-imagenet": (write_tiny_imagenet, "tiny-imagenet-200"),
    "food101": (write_food101, "food-101"),
    "imagenet": (write_imagenet, "imagenet"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_setting_runs_on_files_as_they_are_published(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)  # the numbers of rows are not the published ones
    write, folder = CASES[name]
    write(tmp_path / "data" / folder)
    setting = override(setting_named(name), SMALL)

    run = run_setting(
        setting,
        tmp_path / "run",
        strategies=["random", "ldm-s"],
        device="cpu",
        folder=tmp_path / "data",
    )

    assert not run.failures
    for strategy, accuracy in run.curves().accuracy.items():
        assert accuracy.shape == (1, 2), strategy
        assert ((accuracy >= 0) & (accuracy <= 1)).all()
    picks = {round_.strategy: round_.picks for round_ in run.rounds if round_.number == 0}
    assert all(len(set(rows)) == 2 for rows in picks.values())
