"""Picks from shards: equal to those in memory, whatever the workers and shards; resumed; and clear
about bad input.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import teeter
from small_shards import FEATURES, HEAD, ROWS, WIDTH, as_lists, ldm_values, select_rows
from teeter.base.seeds import derive_seed, stream
from teeter.data import shards as shards_module
from teeter.data.shards import open_shards
from teeter.errors import FileError, InputError, UnknownNameError
from teeter.kernels.seeding import ldm_log_weights
from teeter.kernels.streaming_seeding import seed_streaming
from teeter.selection import executors, from_shards, scoring, select_from_shards
from teeter.selection.executors import LocalExecutor, Task, make_executor

pa = pytest.importorskip("pyarrow", reason="needs pyarrow")
pq = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")


def test_an_array_a_folder_and_a_pattern_are_the_same_pool(pool: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "array.npy", FEATURES)
    expected = select_rows(pool)
    assert np.array_equal(
        select_rows(f"{pool}/*.parquet", head=tmp_path / "head.npz").rows, expected.rows
    )
    assert np.array_equal(select_rows(tmp_path / "array.npy").rows, expected.rows)
    table = pa.table({f"x{k}": FEATURES[:, k] for k in range(WIDTH)})
    pq.write_table(table, tmp_path / "columns.parquet")
    assert np.array_equal(select_rows(tmp_path / "columns.parquet").rows, expected.rows)


@pytest.mark.parametrize("subspace", [None, 3])
def test_the_ldm_is_that_of_memory_with_the_same_reference(
    pool: Path, subspace: int | None
) -> None:
    selection = select_rows(pool, n=ROWS, strategy="ldm", subspace=subspace)

    seed = derive_seed(stream(0, "select"))
    reference = np.sort(from_shards._draw_rows(ROWS, 400, seed, "reference"))
    in_memory = teeter.ldm(
        FEATURES,
        **HEAD,
        reference=FEATURES[reference],
        rays=32,
        subspace=subspace,
        seed=0,
    )

    assert np.array_equal(ldm_values(selection), in_memory[selection.rows])
    assert np.array_equal(selection.rows, np.argsort(in_memory, kind="stable"))


@pytest.mark.parametrize("negative", [True, False])
def test_picks_are_those_of_the_same_sampler_in_memory(
    pool: Path, tmp_path: Path, negative: bool
) -> None:
    features = FEATURES if negative else np.abs(FEATURES)
    np.save(tmp_path / "array.npy", features)
    selection = select_rows(tmp_path / "array.npy", n=60)

    generator = stream(0, "select")
    seed = derive_seed(generator)
    reference = np.sort(from_shards._draw_rows(ROWS, 400, seed, "reference"))
    values = teeter.ldm(features, **HEAD, reference=features[reference], rays=32, seed=0)
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

    assert np.array_equal(selection.rows, picks)


@pytest.mark.slow
def test_workers_and_shards_change_nothing(
    pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    single = select_rows(pool)
    parallel = select_rows(pool, executor=LocalExecutor(2), work=tmp_path / "two")

    monkeypatch.setattr(shards_module, "BATCH_ROWS", 100)
    monkeypatch.setattr(
        from_shards, "open_shards", lambda pool, **options: open_shards(pool, rows=100, **options)
    )
    small = select_rows(pool, work=tmp_path / "small")

    for other in (parallel, small):
        assert np.array_equal(single.rows, other.rows)
        assert single.ids == other.ids
        assert np.array_equal(ldm_values(single), ldm_values(other))
    assert not np.array_equal(select_rows(pool, seed=1).rows, single.rows)


@pytest.mark.parametrize("strategy", ["entropy", "margin", "least-confidence"])
def test_scores_of_a_row_alone_are_exact(pool: Path, strategy: str) -> None:
    outputs = teeter.Outputs(features=FEATURES, **HEAD)
    selection = select_rows(pool, strategy=strategy)
    assert np.array_equal(selection.rows, teeter.select(strategy, outputs, 30))
    assert not selection.provenance.notes


def test_others_pick_among_some_and_say_so(pool: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "labelled.npy", FEATURES[:10])
    for strategy in ("badge", "seeding-cosine", "coreset", "probcover"):
        selection = select_rows(
            pool, strategy=strategy, candidates=200, labelled=tmp_path / "labelled.npy"
        )
        assert len(set(selection.rows.tolist())) == 30
        assert selection.provenance.candidates == 200
        assert selection.provenance.notes == (
            f"{strategy} picked from 200 of 1,200 rows, drawn at random.",
        )
    assert len(set(select_rows(pool, strategy="random", head=None).rows.tolist())) == 30


def test_picks_are_described_without_reading_them_again(
    pool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[int] = []
    fetch = from_shards.fetch_features

    def count(shards: Any, rows: Any, source: Any, **options: Any) -> torch.Tensor:
        requests.append(len(rows))
        return fetch(shards, rows, source, **options)

    monkeypatch.setattr(from_shards, "fetch_features", count)
    selection = select_rows(pool)
    assert requests == [400, 1, 1024]  # the reference rows, the first pick, and rows ahead of draws

    logits = FEATURES[selection.rows] @ HEAD["weight"].T + HEAD["bias"]
    margins = teeter.scores("margin", teeter.Outputs(logits=logits))
    shown_margins = [pick.margin for pick in selection.picks]
    np.testing.assert_allclose(shown_margins, margins, rtol=1e-4, atol=1e-6)


def test_logits_that_do_not_fit_in_memory_are_fetched_again(
    pool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = select_rows(pool)
    monkeypatch.setattr(from_shards._FetchedLogits, "take", lambda self, rows: None)
    fetched_again = select_rows(pool)
    assert plain.ids == fetched_again.ids
    for first, second in zip(plain.picks, fetched_again.picks, strict=True):
        assert first.margin == pytest.approx(second.margin, abs=1e-6)
        assert first.predicted == second.predicted


def test_what_is_there_is_not_computed_again(
    pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        from_shards, "open_shards", lambda pool, **options: open_shards(pool, rows=128, **options)
    )
    expected = select_rows(pool)

    scores = sorted((tmp_path / "work").glob("ldm-*/*.safetensors"))
    times = {path: path.stat().st_mtime_ns for path in scores}
    lost = [path for path in scores if path.name != "reference.safetensors"][3]
    lost.unlink()

    performed: list[Task] = []
    monkeypatch.setattr(
        executors,
        "run_task",
        lambda task, really=executors.run_task: (performed.append(task), really(task)),
    )

    assert np.array_equal(select_rows(pool).rows, expected.rows)
    assert [task.output for task in performed] == [str(lost)]
    assert {path: path.stat().st_mtime_ns for path in scores if path != lost} == {
        path: time for path, time in times.items() if path != lost
    }

    other = {"weight": HEAD["weight"] + 1e-3, "bias": HEAD["bias"]}
    np.savez(tmp_path / "head.npz", **other)
    performed.clear()
    select_rows(pool)
    assert len(performed) == len(scores) - 1  # another head is another job


def test_another_version_never_meets_old_files(
    pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    select_rows(pool)
    monkeypatch.setattr(from_shards, "__version__", "another")
    select_rows(pool)
    assert len(list((tmp_path / "work").glob("ldm-*/ranks.npy"))) == 2


def test_picks_are_described_as_from_a_file(pool: Path, tmp_path: Path) -> None:
    picks = select_from_shards(
        pool, n=5, head=tmp_path / "head.npz", workers=1, work=tmp_path / "w", reference=100
    )
    selection = json.loads(picks.to_json())
    assert [pick["rank"] for pick in selection["picks"]] == [1, 2, 3, 4, 5]
    assert selection["picks"][0]["id"] == f"item {selection['picks'][0]['row']}"
    assert selection["facts"]["candidates"] == ROWS
    assert selection["facts"]["notes"] == [
        "Flips were counted on 100 of 1,200 rows, drawn at random."
    ]


def test_bad_pools_get_one_sentence(pool: Path, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="No file matches"):
        select_rows(f"{pool}/*.none", head=tmp_path / "head.npz")

    (tmp_path / "empty").mkdir()
    with pytest.raises(FileError, match="no Parquet file"):
        select_rows(tmp_path / "empty")

    with pytest.raises(InputError, match=r"Cannot pick 1201 of 1200 candidates"):
        select_rows(pool, n=1201)

    with pytest.raises(UnknownNameError, match="called 'name'"):
        select_rows(pool, id_column="name")

    with pytest.raises(InputError, match=r"ldm-s needs a head, .* pass head= or model="):
        select_rows(pool, head=None)

    with pytest.raises(InputError, match="dbal needs the logits of several models"):
        select_rows(pool, strategy="dbal")
    with pytest.raises(
        InputError, match="coreset needs labelled rows: pass a file of them as labelled="
    ):
        select_rows(pool, strategy="coreset")

    np.savez(tmp_path / "narrow.npz", weight=HEAD["weight"][:, :3])
    with pytest.raises(InputError, match="rows have 6 features"):
        select_rows(pool, head=tmp_path / "narrow.npz")

    with pytest.raises(InputError, match="No engine is called 'spark'"):
        make_executor("spark")

    bad = FEATURES[:200].copy()
    bad[150, 2] = np.nan
    pq.write_table(
        pa.table({"id": np.arange(200), "features": as_lists(bad)}),
        pool / "9.parquet",
        row_group_size=64,
    )
    with pytest.raises(FileError, match=r"Row 150 of .*9\.parquet holds a feature that is missing"):
        select_rows(pool)

    pq.write_table(
        pa.table({"id": np.arange(5), "features": as_lists(FEATURES[:5, :4])}), pool / "9.parquet"
    )
    with pytest.raises(FileError, match="has 4 features per row, and the files before it have 6"):
        select_rows(pool)

    (pool / "9.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(FileError, match="not a valid Parquet file"):
        select_rows(pool)


def test_ids_are_asked_of_every_file_before_any_work(pool: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"features": as_lists(FEATURES[:5])}), pool / "9.parquet")
    with pytest.raises(
        FileError, match=r"9\.parquet has no id column 'id', unlike the files before it"
    ):
        select_rows(pool)
    (pool / "9.parquet").unlink()
    np.save(pool / "9.npy", FEATURES[:5])
    with pytest.raises(FileError, match=r"9\.npy is an array without an id column 'id'"):
        select_rows(f"{pool}/*", head=tmp_path / "head.npz")
    assert not (tmp_path / "work").exists()


def test_ids_that_tell_nothing_are_noted(tmp_path: Path) -> None:
    np.savez(tmp_path / "head.npz", **HEAD)
    ids: dict[str, Any] = {"none": pa.array([None] * ROWS, pa.string()), "same": ["a"] * ROWS}
    for name, column in ids.items():
        pq.write_table(
            pa.table({"id": column, "features": as_lists(FEATURES)}), tmp_path / f"{name}.parquet"
        )
        assert select_rows(tmp_path / f"{name}.parquet").provenance.notes[1:] == (
            "30 of 30 picks have an empty or repeated id: identify them by their row number.",
        )

    raw = pa.array([f"item {row}".encode() for row in range(ROWS)])
    pq.write_table(
        pa.table({"id": raw, "features": as_lists(FEATURES)}), tmp_path / "bytes.parquet"
    )

    selection = select_rows(tmp_path / "bytes.parquet")
    assert selection.ids == [f"item {row}" for row in selection.rows]
    assert len(selection.provenance.notes) == 1


def test_lists_that_grow_longer_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "head.npz", **HEAD)
    grown = [*FEATURES[:100].tolist(), *np.pad(FEATURES[:100], ((0, 0), (0, 1))).tolist()]
    pq.write_table(pa.table({"features": grown}), tmp_path / "grown.parquet", row_group_size=100)
    for strategy in ("ldm-s", "entropy", "seeding-l2"):
        with pytest.raises(FileError, match=r"near row 100, differ in length from the first"):
            select_rows(tmp_path / "grown.parquet", strategy=strategy)
    np.save(tmp_path / "narrow.npy", FEATURES[:, :0])
    with pytest.raises(FileError, match=r"have the shape \(0,\): they hold no numbers"):
        select_rows(tmp_path / "narrow.npy", strategy="seeding-l2", head=None)


def test_what_cannot_be_written_is_one_sentence(
    pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match=r"Cannot save to .*job\.json: Not a directory"):
        select_rows(pool, work=tmp_path / "file")

    @contextmanager
    def full(path: Path) -> Iterator[Any]:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        yield

    monkeypatch.setattr(scoring, "atomic_open", full)
    with pytest.raises(FileError, match=r"Cannot save to .*ranks\.npy: No space left on device"):
        select_rows(pool)
