"""Shards: every row once, in files that stay as they were, with columns known by their names."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from small_model_shards import IMAGES
from small_shards import FEATURES, RNG, ROWS, WIDTH, as_lists, select_rows
from teeter.data import shards as shards_module
from teeter.data.shards import open_shards
from teeter.errors import FileError

pa = pytest.importorskip("pyarrow", reason="needs pyarrow")
pq = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")


def test_shards_hold_every_row_once(pool: Path) -> None:
    for size in (1, 128, 300, 10_000):
        shards = open_shards(pool, rows=size)
        assert len(shards) == ROWS
        assert shards.width == WIDTH
        all_rows = np.concatenate([batch for shard in shards.shards for batch in shard.batches()])
        assert np.array_equal(all_rows, FEATURES)

        rows = RNG.permutation(ROWS)[:50]
        assert np.array_equal(shards.take(rows), FEATURES[rows])
        assert shards.ids(rows) == [f"item {row}" for row in rows]

    assert len({shard.key() for shard in open_shards(pool, rows=128).shards}) == len(
        open_shards(pool, rows=128).shards
    )


def test_few_of_many_long_ids_are_read_in_little_memory(tmp_path: Path) -> None:
    # A text that is repeated is stored once, so that the file has a few kilobytes.
    ids = [f"{number} {'x' * 1_000_000}" for number in (0, 1)]
    numbers = pa.array([0, 1, *([1] * 598)], pa.int32())
    id_column = pa.DictionaryArray.from_arrays(numbers, pa.array(ids))
    features = as_lists(FEATURES[:600])
    table = pa.table({"id": id_column, "features": features})
    path = tmp_path / "pool.parquet"
    pq.write_table(table, path, store_schema=False, compression="zstd")
    shards = open_shards(path)

    default = pa.default_memory_pool()
    memory = pa.proxy_memory_pool(default)
    pa.set_memory_pool(memory)
    try:
        assert shards.ids(np.array([599, 0])) == [ids[1], ids[0]]
        assert memory.max_memory() < 150_000_000
    finally:
        pa.set_memory_pool(default)


def test_a_file_that_changes_meanwhile_is_refused(pool: Path) -> None:
    shards = open_shards(pool)
    pq.write_table(pa.table({"features": as_lists(FEATURES[:77])}), pool / "0.parquet")
    with pytest.raises(FileError, match="has changed since the pool was opened"):
        list(shards.shards[0].batches())


def test_a_file_of_the_same_size_and_time_is_still_another(pool: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "array.npy", FEATURES)
    for path in (pool / "0.parquet", tmp_path / "array.npy"):
        shards = open_shards(path)
        before = path.stat()

        content = bytearray(path.read_bytes())
        content[len(content) // 2 : len(content) // 2 + 4] = b"\x00\x00\x00\x00"
        path.write_bytes(content)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

        assert path.stat().st_mtime_ns == before.st_mtime_ns
        assert open_shards(path).shards[0].key() != shards.shards[0].key()
        with pytest.raises(FileError, match="has changed since the pool was opened"):
            shards.shards[0].take(np.array([0]))

        path.unlink()
        with pytest.raises(FileError, match="There is no file"):
            shards.take(np.array([0]))


def test_columns_are_read_by_their_names(pool: Path, tmp_path: Path) -> None:
    folder = tmp_path / "columns"
    folder.mkdir()
    names = [f"x{k}" for k in range(WIDTH)]
    for number, order in enumerate((names, names[::-1], sorted(names, reverse=True))):
        part = FEATURES[number * 400 : number * 400 + 400]
        pq.write_table(
            pa.table({name: part[:, int(name[1:])] for name in order}), folder / f"{number}.parquet"
        )

    assert np.array_equal(open_shards(folder).take(np.arange(ROWS)), FEATURES)
    assert np.array_equal(select_rows(folder).rows, select_rows(pool).rows)

    pq.write_table(pa.table({f"y{k}": FEATURES[:5, k] for k in range(WIDTH)}), folder / "9.parquet")
    with pytest.raises(
        FileError, match=r"9\.parquet has its features in y0, .*, and the files before it in x0, x1"
    ):
        open_shards(folder)


def test_wide_rows_are_read_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards_module, "SHARD_BYTES", 64 * 50 * 4)
    monkeypatch.setattr(shards_module, "BATCH_BYTES", 64 * 7 * 4)
    np.save(tmp_path / "raw.npy", IMAGES[:120])
    shards = open_shards(tmp_path / "raw.npy", raw=True)
    assert [shard.rows for shard in shards.shards] == [50, 50, 20]
    assert [len(batch) for batch in shards.shards[2].batches()] == [7, 7, 6]
    assert np.array_equal(shards.take(np.array([119, 3, 50])), IMAGES[[119, 3, 50]].reshape(3, -1))
