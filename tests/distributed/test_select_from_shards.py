"""Picks from shards: equal to those in memory, whatever the workers and shards; resumed; and clear about bad input."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import teeter
from teeter.datasets import shards as shards_module
from teeter.datasets.shards import open_shards
from teeter.distributed import plan, selecting
from teeter.distributed.plan import LocalExecutor, Task, made_executor, run_plan
from teeter.distributed.selecting import Chosen, select_from_shards
from teeter.errors import FileError, InputError, TeeterError, UnknownNameError
from teeter.kernels.distant_seeding import seed_distant_rows
from teeter.kernels.seeding import ldm_log_weights
from teeter.picking import pick_from_shards
from teeter.seeds import fork, stream

pa = pytest.importorskip("pyarrow", reason="needs pyarrow")
pq = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")

ROWS, WIDTH, CLASSES = 1200, 6, 4
RNG = np.random.default_rng(0)
FEATURES = RNG.standard_normal((ROWS, WIDTH)).astype(np.float32)
HEAD = {"weight": RNG.standard_normal((CLASSES, WIDTH)).astype(np.float32), "bias": np.zeros(CLASSES, np.float32)}


def lists(features: np.ndarray) -> Any:
    return pa.FixedSizeListArray.from_arrays(pa.array(features.ravel()), features.shape[1])


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    """Three files, of several row groups each, and a head."""
    folder = tmp_path / "pool"
    folder.mkdir()
    for k, start in enumerate(range(0, ROWS, 500)):
        part = FEATURES[start : start + 500]
        ids = [f"item {start + i}" for i in range(len(part))]
        pq.write_table(pa.table({"id": ids, "features": lists(part)}), folder / f"{k}.parquet", row_group_size=128)
    np.savez(tmp_path / "head.npz", **HEAD)
    return folder


def chosen(pool: Path | str, n: int = 30, **options: Any) -> Chosen:
    home = Path(pool).parent
    return select_from_shards(
        pool,
        n,
        **{
            "head": home / "head.npz",
            "executor": LocalExecutor(1),
            "work": home / "work",
            "reference": 400,
            "rays": 32,
            **options,
        },
    )


def test_shards_hold_every_row_once(pool: Path) -> None:
    for size in (1, 128, 300, 10_000):
        found = open_shards(pool, rows=size)
        assert len(found) == ROWS
        assert found.width == WIDTH
        whole = np.concatenate([batch for shard in found.shards for batch in shard.batches()])
        assert np.array_equal(whole, FEATURES)
        rows = RNG.permutation(ROWS)[:50]
        assert np.array_equal(found.take(rows), FEATURES[rows])
        assert found.ids(rows) == [f"item {row}" for row in rows]
    assert len({shard.key() for shard in open_shards(pool, rows=128).shards}) == len(open_shards(pool, rows=128).shards)


def test_an_array_a_folder_and_a_pattern_are_the_same_pool(pool: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "array.npy", FEATURES)
    one = chosen(pool)
    assert np.array_equal(chosen(f"{pool}/*.parquet", head=tmp_path / "head.npz").rows, one.rows)
    assert np.array_equal(chosen(tmp_path / "array.npy").rows, one.rows)
    table = pa.table({f"x{k}": FEATURES[:, k] for k in range(WIDTH)})
    pq.write_table(table, tmp_path / "columns.parquet")
    assert np.array_equal(chosen(tmp_path / "columns.parquet").rows, one.rows)


def test_the_ldm_is_that_of_memory_with_the_same_reference(pool: Path) -> None:
    found = chosen(pool, n=ROWS, strategy="ldm")
    seed = fork(stream(0, "select"))
    reference = np.sort(selecting._uniform(ROWS, 400, seed, "reference"))
    in_memory = teeter.ldm(FEATURES, **HEAD, reference=FEATURES[reference], rays=32, seed=seed)
    assert found.ldm is not None
    assert np.array_equal(found.ldm, in_memory[found.rows])
    assert np.array_equal(found.rows, np.argsort(in_memory, kind="stable"))


@pytest.mark.parametrize("negative", [True, False])
def test_picks_are_those_of_the_same_sampler_in_memory(pool: Path, tmp_path: Path, negative: bool) -> None:
    features = FEATURES if negative else np.abs(FEATURES)
    np.save(tmp_path / "array.npy", features)
    found = chosen(tmp_path / "array.npy", n=60)
    generator = stream(0, "select")
    seed = fork(generator)
    reference = np.sort(selecting._uniform(ROWS, 400, seed, "reference"))
    values = teeter.ldm(features, **HEAD, reference=features[reference], rays=32, seed=seed)
    picks = seed_distant_rows(
        lambda rows: torch.from_numpy(features[rows]),
        60,
        first=int(values.argmin()),
        log_weights=ldm_log_weights(torch.from_numpy(values), 60).numpy(),
        preference=values,
        farthest=2.0 if negative else 1.0,
        ahead=1024,
        generator=generator,
    )
    assert np.array_equal(found.rows, picks)


def test_workers_and_shards_change_nothing(pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = chosen(pool)
    two = chosen(pool, executor=LocalExecutor(2), work=tmp_path / "two")
    monkeypatch.setattr(shards_module, "BATCH", 100)
    monkeypatch.setattr(selecting, "open_shards", lambda pool, **options: open_shards(pool, rows=100, **options))
    small = chosen(pool, work=tmp_path / "small")
    for other in (two, small):
        assert np.array_equal(one.rows, other.rows)
        assert one.ids == other.ids
        assert np.array_equal(one.ldm, other.ldm)
    assert not np.array_equal(chosen(pool, seed=1).rows, one.rows)


@pytest.mark.parametrize("strategy", ["entropy", "margin", "least-confidence"])
def test_scores_of_a_row_alone_are_exact(pool: Path, strategy: str) -> None:
    outputs = teeter.Outputs(features=FEATURES, **HEAD)
    found = chosen(pool, strategy=strategy)
    assert np.array_equal(found.rows, teeter.select(strategy, outputs, 30))
    assert not found.notes


def test_others_pick_among_some_and_say_so(pool: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "known.npy", FEATURES[:10])
    for strategy in ("badge", "seeding-cosine", "coreset", "probcover"):
        found = chosen(pool, strategy=strategy, candidates=200, labelled=tmp_path / "known.npy")
        assert len(set(found.rows.tolist())) == 30
        assert found.candidates == 200
        assert found.notes == (f"{strategy} picked among 200 rows drawn from all 1,200.",)
    assert len(set(chosen(pool, strategy="random", head=None).rows.tolist())) == 30


def test_what_is_there_is_not_computed_again(pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selecting, "open_shards", lambda pool, **options: open_shards(pool, rows=128, **options))
    whole = chosen(pool)
    scores = sorted((tmp_path / "work").glob("ldm-*/*.safetensors"))
    times = {path: path.stat().st_mtime_ns for path in scores}
    lost = [path for path in scores if path.name != "reference.safetensors"][3]
    lost.unlink()
    performed: list[Task] = []
    monkeypatch.setattr(plan, "perform", lambda task, really=plan.perform: (performed.append(task), really(task)))
    assert np.array_equal(chosen(pool).rows, whole.rows)
    assert [task.output for task in performed] == [str(lost)]
    assert {path: path.stat().st_mtime_ns for path in scores if path != lost} == {
        path: time for path, time in times.items() if path != lost
    }
    other = {"weight": HEAD["weight"] + 1e-3, "bias": HEAD["bias"]}
    np.savez(tmp_path / "head.npz", **other)
    performed.clear()
    chosen(pool)
    assert len(performed) == len(scores) - 1  # another head is another job


def die_once(output: Path, marker: str) -> None:
    """A task that kills its process the first time."""
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    output.write_text("done")


def fail(output: Path) -> None:
    raise InputError("This shard is bad.")


def test_a_worker_that_is_killed_is_replaced(tmp_path: Path) -> None:
    name = "distributed.test_select_from_shards"
    tasks = [Task(f"{name}:die_once", {"marker": str(tmp_path / "killed")}, str(tmp_path / f"{k}")) for k in range(6)]
    told: list[tuple[int, int]] = []
    run_plan(LocalExecutor(2), tasks, lambda done, whole: told.append((done, whole)))
    assert all(Path(task.output).read_text() == "done" for task in tasks)
    assert told[0] == (0, 6)
    assert told[-1] == (6, 6)
    with pytest.raises(InputError, match=r"This shard is bad\."):
        run_plan(LocalExecutor(2), [Task(f"{name}:fail", {}, str(tmp_path / f"bad{k}")) for k in range(2)])


def test_an_executor_that_leaves_something_out_is_found(tmp_path: Path) -> None:
    class Lazy:
        def run(self, tasks: Any, on_done: Any) -> None:
            """Does nothing."""

    with pytest.raises(TeeterError, match="1 of 1 shards are still not there"):
        run_plan(Lazy(), [Task("x:y", {}, str(tmp_path / "none"))])


def test_bad_pools_get_one_sentence(pool: Path, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="No file is called like"):
        chosen(f"{pool}/*.none", head=tmp_path / "head.npz")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileError, match="no Parquet file"):
        chosen(tmp_path / "empty")
    with pytest.raises(InputError, match=r"Cannot pick 1201 of 1200 rows"):
        chosen(pool, n=1201)
    with pytest.raises(UnknownNameError, match="called 'name'"):
        chosen(pool, id_column="name")
    with pytest.raises(InputError, match="give it with --head"):
        chosen(pool, head=None)
    with pytest.raises(InputError, match="dbal needs the logits of several models"):
        chosen(pool, strategy="dbal")
    with pytest.raises(InputError, match="--labelled"):
        chosen(pool, strategy="coreset")
    np.savez(tmp_path / "narrow.npz", weight=HEAD["weight"][:, :3])
    with pytest.raises(InputError, match="rows have 6 features"):
        chosen(pool, head=tmp_path / "narrow.npz")
    with pytest.raises(InputError, match="No engine is called 'spark'"):
        made_executor("spark")
    bad = FEATURES[:200].copy()
    bad[150, 2] = np.nan
    pq.write_table(pa.table({"features": lists(bad)}), pool / "9.parquet", row_group_size=64)
    with pytest.raises(FileError, match=r"Row 150 of .*9\.parquet holds a feature that is missing"):
        chosen(pool)
    pq.write_table(pa.table({"features": lists(FEATURES[:5, :4])}), pool / "9.parquet")
    with pytest.raises(FileError, match="has 4 features a row, and the files before it have 6"):
        chosen(pool)
    (pool / "9.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(FileError, match="not a whole Parquet file"):
        chosen(pool)


def test_a_file_that_changes_meanwhile_is_refused(pool: Path) -> None:
    found = open_shards(pool)
    pq.write_table(pa.table({"features": lists(FEATURES[:77])}), pool / "0.parquet")
    with pytest.raises(FileError, match="has changed since this began"):
        list(found.shards[0].batches())


def test_picks_are_told_as_from_a_file(pool: Path, tmp_path: Path) -> None:
    picks = pick_from_shards(pool, n=5, head=tmp_path / "head.npz", workers=1, work=tmp_path / "w", reference=100)
    told = json.loads(picks.to_json())
    assert [pick["rank"] for pick in told["picks"]] == [1, 2, 3, 4, 5]
    assert told["picks"][0]["id"] == f"item {told['picks'][0]['row']}"
    assert told["facts"]["candidates"] == ROWS
    assert told["facts"]["notes"] == ["Flips were counted on 100 rows of 1,200, drawn from all."]
