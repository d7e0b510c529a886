"""Heads and models: looked at before any work, read once, and refused when they change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from small_model_shards import (
    select_from,
)
from small_shards import HEAD, select_rows
from teeter.data.shards import open_shards
from teeter.errors import FileError, InputError
from teeter.selection import from_shards, scoring
from teeter.selection.executors import LocalExecutor


def test_a_head_is_looked_at_before_any_work(pool: Path, tmp_path: Path) -> None:
    weight = HEAD["weight"]
    broken = weight.copy()
    broken[1, 2] = np.nan
    heads = {
        "weight has NaN or infinity in 1 of 4 rows": {"weight": broken},
        "weight has 4 classes and bias has 3": {"weight": weight, "bias": np.zeros(3)},
        "names 2 classes, but has weights for 4": {"weight": weight, "classes": ["a", "b"]},
        "at least 2 are needed": {"weight": weight[:0]},
    }

    for sentence, arrays in heads.items():
        np.savez(tmp_path / "bad.npz", **arrays)
        with pytest.raises(InputError, match=sentence):
            select_rows(pool, head=tmp_path / "bad.npz")

    with pytest.raises(InputError, match="Cannot draw 0 reference rows"):
        select_rows(pool, reference=0)
    assert not (tmp_path / "work").exists()


def test_a_model_that_changes_meanwhile_is_refused(home: Path) -> None:
    class Changes:
        def run(self, tasks: Any, on_done: Any) -> None:
            path = home / "model.safetensors"
            path.write_bytes(path.read_bytes() + b" ")
            scoring._load_source.cache_clear()
            LocalExecutor(1).run(tasks, on_done)

    with pytest.raises(FileError, match="has changed since the selection started"):
        select_from(home, "raw", executor=Changes())


def test_a_process_reads_the_model_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scoring._load_source.cache_clear()
    read: list[Any] = []
    monkeypatch.setattr(
        scoring,
        "read_model",
        lambda path, really=scoring.read_model: (read.append(path), really(path))[1],
    )
    monkeypatch.setattr(
        from_shards, "open_shards", lambda pool, **options: open_shards(pool, rows=128, **options)
    )

    select_from(home, "raw")
    assert len(read) == 1
