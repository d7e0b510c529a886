"""teeter bench datasets: the list, and a download."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import Result

from teeter.bench import datasets
from teeter.bench.datasets import downloads
from teeter.bench.datasets.downloads import Download

Teeter = Callable[..., Result]


@pytest.fixture(autouse=True)
def _nothing_of_mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEETER_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_every_dataset_is_listed_with_where_it_is_or_how_to_get_it(
    teeter: Teeter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEETER_DATA", str(tmp_path))
    np.savez(tmp_path / "letter.npz", x=np.zeros((5, 16)), y=np.zeros(5))

    listed = {
        dataset["name"]: dataset
        for dataset in json.loads(teeter("bench", "datasets", "--json").stdout)
    }

    assert list(listed) == datasets.names()
    assert listed["openml-6"]["found"] == str(tmp_path / "letter.npz")
    assert listed["openml-6"]["get"] is None
    assert listed["cifar10"] == {
        "name": "cifar10",
        "about": "small photographs of 10 kinds of animals and vehicles",
        "train": 50_000,
        "test": 10_000,
        "classes": 10,
        "shape": [3, 32, 32],
        "found": None,
        "get": "teeter bench datasets cifar10",
    }

    assert listed["digits"]["found"] == "scikit-learn"
    assert "needs an account" in listed["imagenet"]["get"]


def test_the_table(teeter: Teeter) -> None:
    shown = " ".join(teeter("bench", "datasets").stdout.split())
    for words in (
        "openml-44135 6,237 1,560 26 613",
        "3 x 32 x 32 teeter bench datasets svhn",
        "360 10 64 scikit-learn",
    ):
        assert words in shown


def test_getting_one_tells_checksums_and_where_it_is(
    teeter: Teeter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEETER_DATA", str(tmp_path))

    def fetch(name: str, *, progress: Any) -> tuple[Download, ...]:
        progress("a", 1, 0)
        return (
            Download(tmp_path / "a.gz", "d" * 32, checked=True),
            Download(tmp_path / "b.gz", "e" * 32, checked=False),
        )

    monkeypatch.setattr(downloads, "fetch_dataset", fetch)
    result = teeter("bench", "datasets", "svhn")
    assert result.stdout == f"svhn is in {tmp_path / 'svhn'}.\n"
    assert result.stderr.splitlines() == [
        f"a.gz: MD5 {'d' * 32}, as published.",
        f"b.gz: MD5 {'e' * 32}, no checksum is published; the file can be read.",
    ]


def test_an_available_dataset_is_not_fetched(teeter: Teeter) -> None:
    assert (
        teeter("bench", "datasets", "digits").stdout
        == "digits is already available: scikit-learn.\n"
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("minst", "Error: No dataset is called 'minst'. Did you mean 'mnist'?"),
        ("imagenet", "Error: ImageNet needs an"),
    ],
)
def test_a_dataset_that_cannot_be_fetched_is_one_sentence(
    teeter: Teeter, name: str, message: str
) -> None:
    assert teeter("bench", "datasets", name, fails=2).stderr.startswith(message)
