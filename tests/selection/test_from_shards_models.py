"""Raw rows through a model on the workers: the same picks as from features that were computed
before.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import teeter
from small_model_shards import (
    CLASSES,
    IMAGES,
    NETWORK,
    ROWS,
    SHAPE,
    assert_same,
    select_from,
)
from small_shards import ldm_values
from teeter.data import shards as shards_module
from teeter.data.shards import open_shards
from teeter.errors import FileError, InputError
from teeter.models.networks import build_network
from teeter.selection import (
    executors,
    from_shards,
    scoring,
    select_from_file,
    select_from_shards,
)
from teeter.selection.executors import LocalExecutor, Task

pa = pytest.importorskip("pyarrow", reason="needs pyarrow")
pq = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")


@pytest.mark.parametrize(
    "strategy", ["ldm-s", "ldm", "entropy", "margin", "badge", "coreset", "probcover", "random"]
)
def test_picks_are_those_from_features_computed_before(home: Path, strategy: str) -> None:
    options: dict[str, Any] = {"strategy": strategy, "candidates": 200}
    before = select_from(home, "features", labelled=home / "known_features.npy", **options)
    now = select_from(home, "raw", labelled=home / "known.npy", **options)
    assert_same(before, now)
    assert now.ids == before.ids
    assert now.provenance.notes == before.provenance.notes
    assert_same(now, select_from(home, "raw.npy", labelled=home / "known.npy", **options))


@pytest.mark.slow
def test_workers_change_nothing(home: Path) -> None:
    single = select_from(home, "raw")
    parallel = select_from(home, "raw", executor=LocalExecutor(2), work=home / "two")
    assert np.array_equal(single.rows, parallel.rows)
    assert np.array_equal(ldm_values(single), ldm_values(parallel))


@pytest.mark.slow
def test_shards_batches_and_threads_change_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = select_from(home, "raw")

    monkeypatch.setattr(scoring, "MODEL_CHUNK", 0)  # the model gets one row at a time
    by_row = select_from(home, "raw", work=home / "by row")

    monkeypatch.setattr(shards_module, "BATCH_ROWS", 77)
    monkeypatch.setattr(
        from_shards, "open_shards", lambda pool, **options: open_shards(pool, rows=100, **options)
    )

    threads = torch.get_num_threads()
    torch.set_num_threads(threads % 2 + 1)
    small = select_from(home, "raw.npy", work=home / "small")
    torch.set_num_threads(threads)

    for other in (by_row, small):
        assert np.array_equal(expected.rows, other.rows)
        assert np.array_equal(ldm_values(expected), ldm_values(other))


def test_rows_may_be_nested_lists_tensors_or_small_numbers(home: Path) -> None:
    integers = np.round(IMAGES * 40).astype(np.int8)
    np.save(home / "whole.npy", integers)
    expected = select_from(home, "whole.npy")

    flat = pa.array(integers.ravel())
    nested = flat
    for size in reversed(SHAPE):
        nested = pa.FixedSizeListArray.from_arrays(nested, size)
    pq.write_table(pa.table({"picture": nested}), home / "nested.parquet")

    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(integers)
    pq.write_table(pa.table({"inputs": tensors, "other": nested}), home / "tensors.parquet")

    for other in ("nested.parquet", "tensors.parquet"):
        assert open_shards(home / other, raw=True).shape == SHAPE
        assert_same(select_from(home, other), expected)


@pytest.mark.slow
def test_another_model_never_meets_old_files(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = select_from(home, "raw")
    performed: list[Task] = []
    monkeypatch.setattr(
        executors,
        "run_task",
        lambda task, really=executors.run_task: (performed.append(task), really(task)),
    )

    assert_same(select_from(home, "raw"), expected)
    assert not performed

    other = build_network("s-cnn", SHAPE, CLASSES, seed=2)
    teeter.save_model(home / "model.safetensors", other, "s-cnn", shape=SHAPE, classes=list("abcd"))
    assert not np.array_equal(select_from(home, "raw").rows, expected.rows)
    assert performed


def test_in_memory_too(home: Path) -> None:
    np.savez(
        home / "raw.npz",
        inputs=IMAGES,
        features=np.zeros((ROWS, 2)),
        ids=[f"i{k}" for k in range(ROWS)],
    )

    observed = teeter.observe(NETWORK, IMAGES)
    np.savez(home / "pool.npz", features=observed.features, ids=[f"i{k}" for k in range(ROWS)])

    for strategy in ("ldm-s", "entropy"):
        options: dict[str, Any] = {"n": 20, "strategy": strategy, "rays": 32, "device": "cpu"}
        before = select_from_file(home / "pool.npz", head=home / "head.npz", **options)
        for pool in ("raw.npz", "raw/0.parquet"):
            now = select_from_file(home / pool, model=home / "model.safetensors", **options)
            assert now.provenance.model == str(home / "model.safetensors")
            if pool == "raw.npz":
                assert [pick.id for pick in now.picks] == [pick.id for pick in before.picks]
                assert {pick.predicted for pick in now.picks} <= set("abcd")


@pytest.mark.slow
def test_facts_name_the_model(home: Path) -> None:
    picks = select_from_shards(
        home / "raw", n=3, model=home / "model.safetensors", workers=1, work=home / "w"
    )
    facts = json.loads(picks.to_json())["facts"]
    assert (facts["head"], os.path.basename(facts["model"])) == (None, "model.safetensors")
    assert facts["classes"] == list("abcd")


def test_bad_rows_and_models_get_one_sentence(home: Path) -> None:
    model = home / "model.safetensors"
    with pytest.raises(InputError, match=r"Give only one of head= and model="):
        select_from(home, "raw", head=home / "head.npz")

    np.save(home / "narrow.npy", IMAGES[..., :7])
    with pytest.raises(
        InputError,
        match=r"takes rows of shape \(1, 8, 8\), flat or not, but .* shape \(1, 8, 7\)\.",
    ):
        select_from(home, "narrow.npy")
    with pytest.raises(
        InputError,
        match=r"takes rows of shape \(1, 8, 8\), flat or not, but .* shape \(1, 8, 7\)\.",
    ):
        select_from_file(home / "narrow.npy", n=1, model=model)

    with pytest.raises(InputError, match=r"must hold rows of shape \(1, 8, 8\), as the pool does"):
        select_from(home, "raw", strategy="coreset", labelled=home / "narrow.npy")

    with pytest.raises(FileError, match=r"numbers \(rows, features\) are needed"):
        select_from_shards(
            home / "raw.npy", 3, head=home / "head.npz", executor=LocalExecutor(1), work=home / "w"
        )

    pq.write_table(pa.table({"inputs": [[1.0, 2.0, 3.0], [1.0]]}), home / "ragged.parquet")
    with pytest.raises(FileError, match="differ in length"):
        list(open_shards(home / "ragged.parquet", raw=True).shards[0].batches())

    np.save(home / "ok.npy", IMAGES[:5])
    (home / "mixed").mkdir()
    np.save(home / "mixed" / "0.npy", IMAGES[:5])
    np.save(home / "mixed" / "1.npy", IMAGES[:5, :, :4])
    with pytest.raises(
        FileError,
        match=r"has rows of shape \(1, 4, 8\), and the files before it have rows of shape",
    ):
        select_from(home, "mixed")


def test_what_the_model_cannot_bear_is_named_by_its_row(home: Path) -> None:
    huge = IMAGES.copy()
    huge[431] = 3e38
    np.save(home / "huge.npy", huge)
    with pytest.raises(
        InputError, match=r"\(s-cnn\) computes NaN or infinity for row 431 of .*huge\.npy"
    ):
        select_from(home, "huge.npy", strategy="entropy")
    with pytest.raises(
        InputError, match=r"\(s-cnn\) returned outputs that cannot be used: .*first in row 431"
    ):
        select_from_file(home / "huge.npy", n=1, model=home / "model.safetensors")
