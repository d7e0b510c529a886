"""Pools, heads and folders that are not as they should be: a sentence each, before any work where that can be."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from small_shards import FEATURES, HEAD, ROWS, WIDTH, chosen, lists
from teeter.datasets.shards import open_shards
from teeter.distributed import scoring
from teeter.distributed.executors import make_executor
from teeter.errors import FileError, InputError, UnknownNameError

pa = pytest.importorskip("pyarrow", reason="needs pyarrow")
pq = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")


def test_bad_pools_get_one_sentence(pool: Path, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="No file matches"):
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
        make_executor("spark")
    bad = FEATURES[:200].copy()
    bad[150, 2] = np.nan
    pq.write_table(pa.table({"id": np.arange(200), "features": lists(bad)}), pool / "9.parquet", row_group_size=64)
    with pytest.raises(FileError, match=r"Row 150 of .*9\.parquet holds a feature that is missing"):
        chosen(pool)
    pq.write_table(pa.table({"id": np.arange(5), "features": lists(FEATURES[:5, :4])}), pool / "9.parquet")
    with pytest.raises(FileError, match="has 4 features per row, and the files before it have 6"):
        chosen(pool)
    (pool / "9.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(FileError, match="not a valid Parquet file"):
        chosen(pool)


def test_a_file_that_changes_meanwhile_is_refused(pool: Path) -> None:
    found = open_shards(pool)
    pq.write_table(pa.table({"features": lists(FEATURES[:77])}), pool / "0.parquet")
    with pytest.raises(FileError, match="has changed since the pool was opened"):
        list(found.shards[0].batches())


def test_a_file_of_the_same_size_and_time_is_still_another(pool: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "array.npy", FEATURES)
    for path in (pool / "0.parquet", tmp_path / "array.npy"):
        found, before = open_shards(path), path.stat()
        content = bytearray(path.read_bytes())
        content[len(content) // 2 : len(content) // 2 + 4] = b"\x00\x00\x00\x00"
        path.write_bytes(content)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert path.stat().st_mtime_ns == before.st_mtime_ns
        assert open_shards(path).shards[0].key() != found.shards[0].key()
        with pytest.raises(FileError, match="has changed since the pool was opened"):
            found.shards[0].take(np.array([0]))
        path.unlink()
        with pytest.raises(FileError, match="There is no file"):
            found.take(np.array([0]))


def test_columns_are_read_by_their_names(pool: Path, tmp_path: Path) -> None:
    folder = tmp_path / "columns"
    folder.mkdir()
    names = [f"x{k}" for k in range(WIDTH)]
    for number, order in enumerate((names, names[::-1], sorted(names, reverse=True))):
        part = FEATURES[number * 400 : number * 400 + 400]
        pq.write_table(pa.table({name: part[:, int(name[1:])] for name in order}), folder / f"{number}.parquet")
    assert np.array_equal(open_shards(folder).take(np.arange(ROWS)), FEATURES)
    assert np.array_equal(chosen(folder).rows, chosen(pool).rows)
    pq.write_table(pa.table({f"y{k}": FEATURES[:5, k] for k in range(WIDTH)}), folder / "9.parquet")
    with pytest.raises(FileError, match=r"9\.parquet has its features in y0, .*, and the files before it in x0, x1"):
        open_shards(folder)


def test_ids_are_asked_of_every_file_before_any_work(pool: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"features": lists(FEATURES[:5])}), pool / "9.parquet")
    with pytest.raises(FileError, match=r"9\.parquet has no column 'id' for ids as the files before it have"):
        chosen(pool)
    (pool / "9.parquet").unlink()
    np.save(pool / "9.npy", FEATURES[:5])
    with pytest.raises(FileError, match=r"9\.npy is an array, with no column 'id'"):
        chosen(f"{pool}/*", head=tmp_path / "head.npz")
    assert not (tmp_path / "work").exists()


def test_ids_that_tell_nothing_are_noted(tmp_path: Path) -> None:
    np.savez(tmp_path / "head.npz", **HEAD)
    ids: dict[str, Any] = {"none": pa.array([None] * ROWS, pa.string()), "same": ["a"] * ROWS}
    for name, column in ids.items():
        pq.write_table(pa.table({"id": column, "features": lists(FEATURES)}), tmp_path / f"{name}.parquet")
        assert chosen(tmp_path / f"{name}.parquet").notes[1:] == (
            "30 of 30 picks have no id of their own: go by the row.",
        )
    raw = pa.array([f"item {row}".encode() for row in range(ROWS)])
    pq.write_table(pa.table({"id": raw, "features": lists(FEATURES)}), tmp_path / "bytes.parquet")
    found = chosen(tmp_path / "bytes.parquet")
    assert found.ids == [f"item {row}" for row in found.rows]
    assert len(found.notes) == 1


def test_lists_that_grow_longer_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "head.npz", **HEAD)
    grown = [*FEATURES[:100].tolist(), *np.pad(FEATURES[:100], ((0, 0), (0, 1))).tolist()]
    pq.write_table(pa.table({"features": grown}), tmp_path / "grown.parquet", row_group_size=100)
    for strategy in ("ldm-s", "entropy", "seeding-l2"):
        with pytest.raises(FileError, match=r"near row 100, have another length than the first"):
            chosen(tmp_path / "grown.parquet", strategy=strategy)
    np.save(tmp_path / "narrow.npy", FEATURES[:, :0])
    with pytest.raises(FileError, match=r"have the shape \(0,\): they hold no numbers"):
        chosen(tmp_path / "narrow.npy", strategy="seeding-l2", head=None)


def test_a_head_is_looked_at_before_any_work(pool: Path, tmp_path: Path) -> None:
    weight = HEAD["weight"]
    broken = weight.copy()
    broken[1, 2] = np.nan
    heads = {
        "weight has NaN or infinity in 1 of 4 rows": {"weight": broken},
        "weight has 4 classes and bias has 3": {"weight": weight, "bias": np.zeros(3)},
        "names 2 classes, and has weights for 4": {"weight": weight, "classes": ["a", "b"]},
        "at least 2 are needed": {"weight": weight[:0]},
    }
    for sentence, arrays in heads.items():
        np.savez(tmp_path / "bad.npz", **arrays)
        with pytest.raises(InputError, match=sentence):
            chosen(pool, head=tmp_path / "bad.npz")
    with pytest.raises(InputError, match="Cannot draw 0 reference rows"):
        chosen(pool, reference=0)
    assert not (tmp_path / "work").exists()


def test_what_cannot_be_written_is_one_sentence(pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match=r"Cannot save to .*job\.json: Not a directory"):
        chosen(pool, work=tmp_path / "file")

    @contextmanager
    def full(path: Path) -> Iterator[Any]:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        yield

    monkeypatch.setattr(scoring, "whole_stream", full)
    with pytest.raises(FileError, match=r"Cannot save to .*ranks\.npy: No space left on device"):
        chosen(pool)


def test_a_file_that_holds_less_than_it_tells_is_refused(pool: Path, tmp_path: Path) -> None:
    chosen(pool, strategy="entropy")
    (folder,) = (tmp_path / "work").glob("entropy-*")
    shard = open_shards(pool).shards[0]
    with pytest.raises(FileError, match=r"holds 500 rows where it tells of 501: it is damaged"):
        scoring.score_shard(tmp_path / "out", str(folder), replace(shard, rows=501))
    assert not (tmp_path / "out").exists()
