"""Picks from shards: equal to those in memory, whatever the workers and shards; resumed; and clear about bad input."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import teeter
from small_shards import FEATURES, HEAD, RNG, ROWS, WIDTH, chosen
from teeter.datasets import shards as shards_module
from teeter.datasets.shards import open_shards
from teeter.distributed import executors, fetch
from teeter.distributed.executors import LocalExecutor, Task, make_executor, run_plan
from teeter.errors import InputError, TeeterError
from teeter.kernels.seeding import ldm_log_weights
from teeter.kernels.streaming_seeding import seed_streaming
from teeter.seeds import derive_seed, stream
from teeter.selection import from_shards
from teeter.selection.from_file import pick_from_shards

pa = pytest.importorskip("pyarrow", reason="needs pyarrow")
pq = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")


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
    seed = derive_seed(stream(0, "select"))
    reference = np.sort(from_shards._uniform(ROWS, 400, seed, "reference"))
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
    seed = derive_seed(generator)
    reference = np.sort(from_shards._uniform(ROWS, 400, seed, "reference"))
    values = teeter.ldm(features, **HEAD, reference=features[reference], rays=32, seed=seed)
    picks = seed_streaming(
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
    monkeypatch.setattr(shards_module, "BATCH_ROWS", 100)
    monkeypatch.setattr(from_shards, "open_shards", lambda pool, **options: open_shards(pool, rows=100, **options))
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
    monkeypatch.setattr(from_shards, "open_shards", lambda pool, **options: open_shards(pool, rows=128, **options))
    whole = chosen(pool)
    scores = sorted((tmp_path / "work").glob("ldm-*/*.safetensors"))
    times = {path: path.stat().st_mtime_ns for path in scores}
    lost = [path for path in scores if path.name != "reference.safetensors"][3]
    lost.unlink()
    performed: list[Task] = []
    monkeypatch.setattr(
        executors, "run_task", lambda task, really=executors.run_task: (performed.append(task), really(task))
    )
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


def note(output: Path) -> None:
    output.write_text("done")


def test_a_worker_that_is_lost_before_all_is_handed_out_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed: list[Any] = []

    def submit(pool: Any, *given: Any, really: Any = executors.ProcessPoolExecutor.submit) -> Any:
        handed.append(given)
        if len(handed) == 2:
            raise executors.BrokenProcessPool
        return really(pool, *given)

    monkeypatch.setattr(executors.ProcessPoolExecutor, "submit", submit)
    tasks = [Task("distributed.test_select_from_shards:note", {}, str(tmp_path / f"{k}")) for k in range(3)]
    told: list[int] = []
    run_plan(LocalExecutor(2), tasks, lambda done, whole: told.append(done))
    assert told == [0, 1, 2, 3]


def test_a_cluster_that_is_away_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    class Away:
        @staticmethod
        def is_initialized() -> bool:
            return False

        @staticmethod
        def init(**options: Any) -> None:
            raise ConnectionError("No cluster is there.\nMany lines follow.")

    monkeypatch.setitem(sys.modules, "ray", Away)
    monkeypatch.setenv("RAY_ADDRESS", "cluster.invalid:6379")
    with pytest.raises(TeeterError, match=r"^Ray cannot be reached: No cluster is there\.$"):
        make_executor("ray")


def test_a_cluster_is_asked_for_no_more_at_once_than_workers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    at_once: list[int] = []

    class Cluster:
        """As much of Ray as the executor uses, where everything that runs is done."""

        @staticmethod
        def is_initialized() -> bool:
            return True

        @staticmethod
        def remote(**options: Any) -> Any:
            return lambda function: SimpleNamespace(remote=lambda task: task.output)

        @staticmethod
        def cluster_resources() -> dict[str, float]:
            return {"CPU": 8.0}

        @staticmethod
        def wait(running: list[Any], num_returns: int) -> tuple[list[Any], list[Any]]:
            at_once.append(len(running))
            return running[:1], running[1:]

        @staticmethod
        def get(one: Any) -> None:
            """Nothing to get."""

    monkeypatch.setitem(sys.modules, "ray", Cluster)
    tasks = [Task("x:y", {}, str(tmp_path / f"{k}")) for k in range(20)]
    for workers, most in ((3, 3), (None, 16)):
        at_once.clear()
        make_executor("ray", workers).run(tasks, lambda: None)
        assert max(at_once) == most


def test_a_file_that_is_seen_late_is_waited_for(tmp_path: Path) -> None:
    class Late:
        def run(self, tasks: Any, on_done: Any) -> None:
            threading.Timer(0.5, Path(tasks[0].output).touch).start()

    run_plan(Late(), [Task("x:y", {}, str(tmp_path / "late"))])
    assert (tmp_path / "late").exists()


def test_an_executor_that_leaves_something_out_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "SETTLING", 0.3)

    class Lazy:
        def run(self, tasks: Any, on_done: Any) -> None:
            """Does nothing."""

    with pytest.raises(TeeterError, match="1 of 1 shards are still not there"):
        run_plan(Lazy(), [Task("x:y", {}, str(tmp_path / "none"))])


def test_another_version_never_meets_old_files(pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen(pool)
    monkeypatch.setattr(from_shards, "__version__", "another")
    chosen(pool)
    assert len(list((tmp_path / "work").glob("ldm-*/ranks.npy"))) == 2


def test_rows_that_another_process_clears_away_are_fetched_again(pool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Clears(LocalExecutor):
        def run(self, tasks: Any, on_done: Any) -> None:
            LocalExecutor(1).run(tasks, on_done)
            if "rows-" in tasks[0].output and not cleared:
                cleared.append(Path(tasks[0].output).parent)
                shutil.rmtree(cleared[0])

    cleared: list[Path] = []
    one = chosen(pool)
    monkeypatch.setattr(fetch, "READ", 0)
    again = chosen(pool, executor=Clears(1), work=pool.parent / "again")
    assert cleared
    assert np.array_equal(one.rows, again.rows)


def test_picks_are_told_as_from_a_file(pool: Path, tmp_path: Path) -> None:
    picks = pick_from_shards(pool, n=5, head=tmp_path / "head.npz", workers=1, work=tmp_path / "w", reference=100)
    told = json.loads(picks.to_json())
    assert [pick["rank"] for pick in told["picks"]] == [1, 2, 3, 4, 5]
    assert told["picks"][0]["id"] == f"item {told['picks'][0]['row']}"
    assert told["facts"]["candidates"] == ROWS
    assert told["facts"]["notes"] == ["Flips were counted on 100 rows of 1,200, drawn from all."]
