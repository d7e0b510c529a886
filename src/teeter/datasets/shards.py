"""A pool that need not fit in memory: Parquet files or one memory-mapped array, cut into shards and read in batches."""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from teeter.datasets.files import parsing, require_file
from teeter.errors import FileError, InputError, MissingExtraError, UnknownNameError
from teeter.registry import did_you_mean

__all__ = ["ROWS", "Shard", "Shards", "open_shards"]

ROWS = 1 << 18
"""Rows of a shard at most, where row groups allow it."""
BATCH = 1 << 15
"""Rows that are read at once."""

Features = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Shard:
    """Some rows of a file that follow each other."""

    path: str
    first: int
    """The number of its first row in the whole pool."""
    rows: int
    begin: int
    """The number of its first row in the file."""
    groups: tuple[int, ...]
    """Row groups of a Parquet file; none for an array."""
    columns: tuple[str, ...]
    """What features are read from: one column of lists, or columns of numbers."""
    stamp: str
    """Size and time of the file, so that another file under the same name is another shard."""

    def key(self) -> str:
        """Return a name that no other shard has."""
        return hashlib.blake2b(repr(asdict(self)).encode(), digest_size=12).hexdigest()

    def batches(self) -> Iterator[Features]:
        """Yield the features, (n, D) at a time."""
        for _, batch in self._numbered():
            yield batch

    def take(self, rows: Rows) -> Features:
        """Return the features of some rows of this shard, counted from its first, in rising order: (k,) -> (k, D)."""
        pieces = []
        for start, batch in self._numbered(wanted=rows):
            inside = rows[(rows >= start) & (rows < start + len(batch))]
            pieces.append(batch[inside - start])
        return np.concatenate(pieces)

    def _numbered(self, wanted: Rows | None = None) -> Iterator[tuple[int, Features]]:
        path = Path(self.path)
        if not self.groups:
            array = _mapped(path)[self.begin : self.begin + self.rows]
            for start in range(0, self.rows, BATCH):
                if wanted is None or ((wanted >= start) & (wanted < start + BATCH)).any():
                    yield start, _finite(np.array(array[start : start + BATCH]), path, self.begin + start)
            return
        yield from _read_groups(path, self, wanted)


@dataclass(frozen=True)
class Shards:
    """A whole pool."""

    shards: tuple[Shard, ...]
    width: int
    id_column: str | None

    def __len__(self) -> int:
        """Return the number of rows."""
        return sum(shard.rows for shard in self.shards)

    def take(self, rows: Rows) -> Features:
        """Return the features of some rows of the pool, in any order: (k,) -> (k, D)."""
        found = np.empty((len(rows), self.width), dtype=np.float32)
        for shard, places in self.parted(rows):
            inside = rows[places] - shard.first
            order = np.argsort(inside, kind="stable")
            found[places[order]] = shard.take(inside[order])
        return found

    def parted(self, rows: Rows) -> Iterator[tuple[Shard, Rows]]:
        """Yield the shards that hold some of the rows, each with the places of these among ``rows``."""
        starts = np.array([shard.first for shard in self.shards])
        holder = np.searchsorted(starts, rows, side="right") - 1
        for number in np.unique(holder).tolist():
            yield self.shards[number], np.flatnonzero(holder == number)

    def ids(self, rows: Rows) -> list[str]:
        """Return the ids of some rows: what the column of ids says, or their numbers."""
        if self.id_column is None:
            return [str(row) for row in rows.tolist()]
        found = [""] * len(rows)
        for shard, places in self.parted(rows):
            names = _column(Path(shard.path), shard, self.id_column)
            for place in places.tolist():
                found[place] = names[int(rows[place]) - shard.first]
        return found


def open_shards(pattern: str | Path, *, id_column: str | None = None, rows: int = ROWS) -> Shards:
    """Return the pool in a .npy file, a Parquet file, a folder of them, or what a pattern such as ``pool/*`` finds."""
    paths = _paths(str(pattern))
    shards: list[Shard] = []
    width = 0
    for path in paths:
        found, columns = _shards_of(path, sum(shard.rows for shard in shards), rows, id_column)
        if not found:
            continue
        if width and columns != width:
            raise FileError(f"{path} has {columns} features a row, and the files before it have {width}.")
        width = columns
        shards += found
    if not shards:
        raise FileError(f"There is no row in {pattern}.")
    return Shards(tuple(shards), width, _id_column(paths[0], id_column))


def _paths(pattern: str) -> list[Path]:
    place = Path(pattern)
    if place.is_dir():
        paths = sorted(place.glob("*.parquet")) or sorted(place.glob("*.npy"))
        if not paths:
            raise FileError(f"There is no Parquet file and no .npy file in {pattern}.")
    elif glob.has_magic(pattern) and not place.exists():
        paths = sorted(Path(name) for name in glob.glob(pattern, recursive=True))
        if not paths:
            raise FileError(f"No file is called like {pattern}.")
    else:
        paths = [place]
    return [require_file(path, (".parquet", ".npy"), "a part of a pool that is read in shards") for path in paths]


def _stamp(path: Path) -> str:
    state = path.stat()
    return f"{state.st_size}-{state.st_mtime_ns}"


def _shards_of(path: Path, first: int, rows: int, id_column: str | None) -> tuple[list[Shard], int]:
    absolute, stamp = str(path.resolve()), _stamp(path)
    if path.suffix.lower() == ".npy":
        array = _mapped(path)
        parts = [
            Shard(absolute, first + start, min(rows, len(array) - start), start, (), (), stamp)
            for start in range(0, len(array), rows)
        ]
        return parts, array.shape[1]
    with parsing(path, "Parquet"), _parquet().ParquetFile(path) as file:
        columns, width = _feature_columns(file, path, id_column)
        sizes = [file.metadata.row_group(k).num_rows for k in range(file.metadata.num_row_groups)]
    shards: list[Shard] = []
    begin = 0
    for groups in _grouped(sizes, rows):
        count = sum(sizes[k] for k in groups)
        shards.append(Shard(absolute, first + begin, count, begin, tuple(groups), columns, stamp))
        begin += count
    return shards, width


def _grouped(sizes: Sequence[int], rows: int) -> Iterator[list[int]]:
    """Yield row groups that follow each other and hold at most ``rows``, or one group that holds more."""
    held: list[int] = []
    for number, size in enumerate(sizes):
        if held and sum(sizes[k] for k in held) + size > rows:
            yield held
            held = []
        if size:
            held.append(number)
    if held:
        yield held


def _mapped(path: Path) -> npt.NDArray[Any]:
    with parsing(path, ".npy"):
        array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise FileError(f"{path} holds an array of shape {array.shape} and {array.dtype}: (rows, features) is needed.")
    return array


def _parquet() -> Any:
    try:
        from pyarrow import parquet
    except ImportError:
        raise MissingExtraError("Reading Parquet needs pyarrow: pip install 'teeter[parquet]'.") from None
    return parquet


def _id_column(path: Path, asked: str | None) -> str | None:
    if path.suffix.lower() == ".npy":
        if asked is not None:
            raise InputError(f"{path} is one array and has no column {asked!r}: leave --id out.")
        return None
    with parsing(path, "Parquet"), _parquet().ParquetFile(path) as file:
        names = file.schema_arrow.names
    if asked is None:
        return next((name for name in ("id", "ids") if name in names), None)
    if asked not in names:
        raise UnknownNameError(f"No column of {path} is called {asked!r}. {did_you_mean(asked, names)}")
    return asked


def _feature_columns(file: Any, path: Path, id_column: str | None) -> tuple[tuple[str, ...], int]:
    """Return the column of lists called features, or the only one of lists, or else all columns of numbers."""
    from pyarrow import types

    schema = file.schema_arrow
    lists = [field.name for field in schema if _is_list(field.type)]
    chosen = "features" if "features" in lists else lists[0] if len(lists) == 1 else None
    if chosen is not None:
        return (chosen,), _width(file, path, chosen)
    if lists:
        raise FileError(f"{path} has {len(lists)} columns of lists ({', '.join(lists)}): call one of them features.")
    ids = {id_column} if id_column else {"id", "ids"}
    numbers = tuple(
        field.name
        for field in schema
        if field.name not in ids and (types.is_integer(field.type) or types.is_floating(field.type))
    )
    if not numbers:
        raise FileError(f"{path} has no column of lists called features, and no column of numbers.")
    return numbers, len(numbers)


def _is_list(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _width(file: Any, path: Path, column: str) -> int:
    for batch in file.iter_batches(batch_size=1, columns=[column]):
        if batch.num_rows:
            return int(_matrix([batch.column(0)], path, 0).shape[1])
    return 0


def _read_groups(path: Path, shard: Shard, wanted: Rows | None) -> Iterator[tuple[int, Features]]:
    with parsing(path, "Parquet"), _parquet().ParquetFile(path) as file:
        if _stamp(path) != shard.stamp:
            raise FileError(f"{path} has changed since this began: begin again.")
        start = 0
        for group in shard.groups:
            size = file.metadata.row_group(group).num_rows
            if wanted is not None and not ((wanted >= start) & (wanted < start + size)).any():
                start += size
                continue
            for batch in file.iter_batches(batch_size=BATCH, row_groups=[group], columns=list(shard.columns)):
                if batch.num_rows:
                    columns = [batch.column(name) for name in shard.columns]
                    yield start, _finite(_matrix(columns, path, shard.begin + start), path, shard.begin + start)
                start += batch.num_rows


def _matrix(columns: Sequence[Any], path: Path, row: int) -> npt.NDArray[Any]:
    """Return pyarrow arrays as one matrix: a column of lists, or one of numbers each."""
    if _is_list(columns[0].type):
        lists = columns[0]
        values = lists.flatten().to_numpy(zero_copy_only=False)
        if lists.null_count or len(values) % len(lists) or not len(values):
            raise FileError(f"Lists of features in {path}, near row {row}, are missing or differ in length.")
        matrix: npt.NDArray[Any] = values.reshape(len(lists), -1)
        return matrix
    return np.stack([column.to_numpy(zero_copy_only=False) for column in columns], axis=1)


def _finite(batch: npt.NDArray[Any], path: Path, row: int) -> Features:
    found = np.require(batch, np.float32, ["C", "W"])  # torch wants what it may write to
    if not np.isfinite(found).all():
        where = row + int(np.flatnonzero(~np.isfinite(found).all(axis=1))[0])
        raise FileError(f"Row {where} of {path} holds a feature that is missing or not finite.")
    return found


def _column(path: Path, shard: Shard, name: str) -> list[str]:
    with parsing(path, "Parquet"), _parquet().ParquetFile(path) as file:
        column = file.read_row_groups(list(shard.groups), columns=[name]).column(0)
    return [str(value) for value in column.to_pylist()]
