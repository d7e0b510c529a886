"""Raw rows through a model on the workers: the same picks as from features that were computed before."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import teeter
from teeter.datasets import shards as shards_module
from teeter.datasets.shards import open_shards
from teeter.distributed import executors, fetch
from teeter.distributed.executors import LocalExecutor, Task
from teeter.errors import FileError, InputError
from teeter.models.network_registry import build_network
from teeter.selection import from_shards
from teeter.selection.from_file import pick_from_file, pick_from_shards
from teeter.selection.from_shards import ShardSelection, select_from_shards

pa = pytest.importorskip("pyarrow", reason="needs pyarrow")
pq = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")

ROWS, SHAPE, CLASSES = 1000, (1, 8, 8), 4
RNG = np.random.default_rng(0)
IMAGES = RNG.standard_normal((ROWS, *SHAPE)).astype(np.float32)
KNOWN = RNG.standard_normal((10, *SHAPE)).astype(np.float32)
NETWORK = build_network("s-cnn", SHAPE, CLASSES, seed=1)


def lists(rows: np.ndarray) -> Any:
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), int(np.prod(rows.shape[1:])))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Raw rows and a model; and the features that it makes of them, with its head."""
    teeter.save_model(tmp_path / "model.safetensors", NETWORK, "s-cnn", shape=SHAPE, classes=list("abcd"))
    observed = teeter.observe(NETWORK, IMAGES)
    assert observed.features is not None
    features = observed.features.numpy()
    for name, rows in (("raw", IMAGES), ("features", features)):
        (tmp_path / name).mkdir()
        for k, start in enumerate(range(0, ROWS, 400)):
            part = rows[start : start + 400]
            table = pa.table({"id": [f"item {start + i}" for i in range(len(part))], "features": lists(part)})
            pq.write_table(table, tmp_path / name / f"{k}.parquet", row_group_size=128)
    np.savez(tmp_path / "head.npz", weight=observed.weight, bias=observed.bias, classes=list("abcd"))
    np.save(tmp_path / "raw.npy", IMAGES)
    np.save(tmp_path / "known.npy", KNOWN)
    np.save(tmp_path / "known_features.npy", teeter.observe(NETWORK, KNOWN).features)
    return tmp_path


def chosen(home: Path, pool: str, n: int = 30, **options: Any) -> ShardSelection:
    of = {"head": home / "head.npz"} if pool.startswith("features") else {"model": home / "model.safetensors"}
    given = {**of, "executor": LocalExecutor(1), "work": home / "work", "reference": 300, "rays": 32, **options}
    return select_from_shards(home / pool, n, **given)


def assert_same(one: ShardSelection, other: ShardSelection) -> None:
    assert np.array_equal(one.rows, other.rows)
    assert one.classes == other.classes
    for name in ("ldm", "score", "predicted", "margin"):
        left, right = getattr(one, name), getattr(other, name)
        assert (left is None) == (right is None)
        if left is not None:
            assert np.allclose(left, right, atol=1e-6)


@pytest.mark.parametrize("strategy", ["ldm-s", "ldm", "entropy", "margin", "badge", "coreset", "probcover", "random"])
def test_picks_are_those_from_features_computed_before(home: Path, strategy: str) -> None:
    options: dict[str, Any] = {"strategy": strategy, "candidates": 200}
    before = chosen(home, "features", labelled=home / "known_features.npy", **options)
    now = chosen(home, "raw", labelled=home / "known.npy", **options)
    assert_same(before, now)
    assert now.ids == before.ids
    assert now.notes == before.notes
    assert_same(now, chosen(home, "raw.npy", labelled=home / "known.npy", **options))


def test_workers_shards_batches_and_threads_change_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = chosen(home, "raw")
    two = chosen(home, "raw", executor=LocalExecutor(2), work=home / "two")
    monkeypatch.setattr(fetch, "COMPUTED", 0)  # every row is fetched by workers
    fetched = chosen(home, "raw", work=home / "fetched")
    assert not list((home / "fetched").glob("rows-*"))
    monkeypatch.setattr(shards_module, "BATCH_ROWS", 77)
    monkeypatch.setattr(from_shards, "open_shards", lambda pool, **options: open_shards(pool, rows=100, **options))
    threads = torch.get_num_threads()
    torch.set_num_threads(threads % 2 + 1)
    small = chosen(home, "raw.npy", work=home / "small")
    torch.set_num_threads(threads)
    for other in (two, fetched, small):
        assert np.array_equal(one.rows, other.rows)
        assert np.array_equal(one.ldm, other.ldm)


def test_features_are_fetched_by_workers_where_much_must_be_read(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = chosen(home, "features", n=60)
    performed: list[Task] = []
    monkeypatch.setattr(fetch, "READ", 0)
    monkeypatch.setattr(
        executors, "run_task", lambda task, really=executors.run_task: (performed.append(task), really(task))
    )
    assert_same(chosen(home, "features", n=60, work=home / "other"), here)
    assert any("fetch_shard" in task.function for task in performed)


def test_rows_may_be_nested_lists_tensors_or_small_numbers(home: Path) -> None:
    whole = np.round(IMAGES * 40).astype(np.int8)
    np.save(home / "whole.npy", whole)
    one = chosen(home, "whole.npy")
    flat = pa.array(whole.ravel())
    nested = flat
    for size in reversed(SHAPE):
        nested = pa.FixedSizeListArray.from_arrays(nested, size)
    pq.write_table(pa.table({"picture": nested}), home / "nested.parquet")
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(whole)
    pq.write_table(pa.table({"inputs": tensors, "other": nested}), home / "tensors.parquet")
    for other in ("nested.parquet", "tensors.parquet"):
        assert open_shards(home / other, raw=True).shape == SHAPE
        assert_same(chosen(home, other), one)


def test_another_model_never_meets_old_files(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = chosen(home, "raw")
    performed: list[Task] = []
    monkeypatch.setattr(
        executors, "run_task", lambda task, really=executors.run_task: (performed.append(task), really(task))
    )
    assert_same(chosen(home, "raw"), one)
    assert not performed
    other = build_network("s-cnn", SHAPE, CLASSES, seed=2)
    teeter.save_model(home / "model.safetensors", other, "s-cnn", shape=SHAPE, classes=list("abcd"))
    assert not np.array_equal(chosen(home, "raw").rows, one.rows)
    assert performed


def test_a_model_that_changes_meanwhile_is_refused(home: Path) -> None:
    class Changes:
        def run(self, tasks: Any, on_done: Any) -> None:
            path = home / "model.safetensors"
            path.write_bytes(path.read_bytes() + b" ")
            from teeter.distributed.feature_source import _opened

            _opened.cache_clear()
            LocalExecutor(1).run(tasks, on_done)

    with pytest.raises(FileError, match="has changed since this began"):
        chosen(home, "raw", executor=Changes())


def test_a_process_reads_the_model_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from teeter.distributed import feature_source

    feature_source._opened.cache_clear()
    read: list[Any] = []
    monkeypatch.setattr(
        feature_source,
        "read_model",
        lambda path, really=feature_source.read_model: (read.append(path), really(path))[1],
    )
    monkeypatch.setattr(from_shards, "open_shards", lambda pool, **options: open_shards(pool, rows=128, **options))
    chosen(home, "raw")
    assert len(read) == 1


def test_wide_rows_are_read_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards_module, "SHARD_BYTES", 64 * 50 * 4)
    monkeypatch.setattr(shards_module, "BATCH_BYTES", 64 * 7 * 4)
    np.save(tmp_path / "raw.npy", IMAGES[:120])
    found = open_shards(tmp_path / "raw.npy", raw=True)
    assert [shard.rows for shard in found.shards] == [50, 50, 20]
    assert [len(batch) for batch in found.shards[2].batches()] == [7, 7, 6]
    assert np.array_equal(found.take(np.array([119, 3, 50])), IMAGES[[119, 3, 50]].reshape(3, -1))


def test_in_memory_too(home: Path) -> None:
    np.savez(home / "raw.npz", inputs=IMAGES, features=np.zeros((ROWS, 2)), ids=[f"i{k}" for k in range(ROWS)])
    observed = teeter.observe(NETWORK, IMAGES)
    np.savez(home / "pool.npz", features=observed.features, ids=[f"i{k}" for k in range(ROWS)])
    for strategy in ("ldm-s", "entropy"):
        options: dict[str, Any] = {"n": 20, "strategy": strategy, "rays": 32, "device": "cpu"}
        before = pick_from_file(home / "pool.npz", head=home / "head.npz", **options)
        for pool in ("raw.npz", "raw/0.parquet"):
            now = pick_from_file(home / pool, model=home / "model.safetensors", **options)
            assert now.facts.model == str(home / "model.safetensors")
            if pool == "raw.npz":
                assert [pick.id for pick in now.picks] == [pick.id for pick in before.picks]
                assert {pick.predicted for pick in now.picks} <= set("abcd")


def test_facts_name_the_model(home: Path) -> None:
    picks = pick_from_shards(home / "raw", n=3, model=home / "model.safetensors", workers=1, work=home / "w")
    facts = json.loads(picks.to_json())["facts"]
    assert (facts["head"], os.path.basename(facts["model"])) == (None, "model.safetensors")
    assert facts["classes"] == list("abcd")


def test_bad_rows_and_models_get_one_sentence(home: Path) -> None:
    model = home / "model.safetensors"
    with pytest.raises(InputError, match=r"Give --head or --model, not both"):
        chosen(home, "raw", head=home / "head.npz")
    np.save(home / "narrow.npy", IMAGES[..., :7])
    with pytest.raises(InputError, match=r"takes rows of shape \(1, 8, 8\), flat or not, and .* shape \(1, 8, 7\)\."):
        chosen(home, "narrow.npy")
    with pytest.raises(InputError, match=r"takes rows of shape \(1, 8, 8\), flat or not, and .* shape \(1, 8, 7\)\."):
        pick_from_file(home / "narrow.npy", n=1, model=model)
    with pytest.raises(InputError, match=r"does not hold rows of shape \(1, 8, 8\), as the pool does"):
        chosen(home, "raw", strategy="coreset", labelled=home / "narrow.npy")
    with pytest.raises(FileError, match=r"numbers \(rows, features\) are needed"):
        select_from_shards(home / "raw.npy", 3, head=home / "head.npz", executor=LocalExecutor(1), work=home / "w")
    pq.write_table(pa.table({"inputs": [[1.0, 2.0, 3.0], [1.0]]}), home / "ragged.parquet")
    with pytest.raises(FileError, match="differ in length"):
        list(open_shards(home / "ragged.parquet", raw=True).shards[0].batches())
    np.save(home / "ok.npy", IMAGES[:5])
    (home / "mixed").mkdir()
    np.save(home / "mixed" / "0.npy", IMAGES[:5])
    np.save(home / "mixed" / "1.npy", IMAGES[:5, :, :4])
    with pytest.raises(FileError, match=r"has rows of shape \(1, 4, 8\), and the files before it have rows of shape"):
        chosen(home, "mixed")


def test_what_the_model_cannot_bear_is_named_by_its_row(home: Path) -> None:
    huge = IMAGES.copy()
    huge[431] = 3e38
    np.save(home / "huge.npy", huge)
    with pytest.raises(InputError, match=r"\(s-cnn\) makes NaN or infinity of row 431 of .*huge\.npy"):
        chosen(home, "huge.npy", strategy="entropy")
    with pytest.raises(InputError, match=r"\(s-cnn\) makes what cannot be used: .*first in row 431"):
        pick_from_file(home / "huge.npy", n=1, model=home / "model.safetensors")
