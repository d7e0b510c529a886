"""A pool that need not fit in memory: Parquet files or one memory-mapped array, cut into shards and read in batches."""

from __future__ import annotations

import glob
import hashlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from teeter.datasets.file_checks import parse_errors, require_file
from teeter.errors import FileError, InputError, MissingExtraError, UnknownNameError
from teeter.registry import did_you_mean

__all__ = ["ROWS", "Shard", "Shards", "open_shards"]

ROWS, BYTES = 1 << 18, 1 << 28
"""Rows of a shard, and bytes of them, at most, where row groups allow it."""
BATCH, BATCH_BYTES = 1 << 15, 1 << 25
"""Rows that are read at once, and bytes of them, at most."""
LOOKS, LOOKED, END = 16, 1 << 12, 1 << 16
"""Places at which a file is looked at to know it again, bytes at each, and bytes at its end, where Parquet sums up."""

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
    """Size, time and some bytes of the file, so that another file under the same name is another shard."""
    width: int
    """Numbers in a row."""

    def key(self) -> str:
        """Return a name that no other shard has."""
        return hashlib.blake2b(repr(asdict(self)).encode(), digest_size=12).hexdigest()

    @property
    def batch(self) -> int:
        """Rows that are read at once."""
        return max(1, min(BATCH, BATCH_BYTES // (4 * self.width)))

    def names(self, start: int) -> Callable[[int], str]:
        """Return what to call rows in sentences: the k-th after that with the number ``start`` in this shard."""
        return lambda k: f"row {self.begin + start + k} of {self.path}"

    def batches(self) -> Iterator[Features]:
        """Yield the features, (n, D) at a time; rows of another shape are flat."""
        path = Path(self.path)
        if self.groups:
            yield from (batch for _, batch in _read_groups(path, self, None))
            return
        array = self._array()
        for start in range(0, self.rows, self.batch):
            yield _finite(_flat(array[start : start + self.batch]), path, self.begin + start)

    def take(self, rows: Rows) -> Features:
        """Return the features of some rows of this shard, counted from its first, in rising order: (k,) -> (k, D)."""
        path = Path(self.path)
        if not self.groups:
            return _finite(_flat(self._array()[rows]), path, rows + self.begin)
        pieces = []
        for start, batch in _read_groups(path, self, rows):
            inside = rows[(rows >= start) & (rows < start + len(batch))]
            pieces.append(batch[inside - start])
        return np.concatenate(pieces)

    def _array(self) -> npt.NDArray[Any]:
        path = Path(self.path)
        _require_unchanged(path, self)
        return _mapped(path, raw=True)[self.begin : self.begin + self.rows]


@dataclass(frozen=True)
class Shards:
    """A whole pool."""

    shards: tuple[Shard, ...]
    shape: tuple[int, ...]
    """Of a row; features have one axis."""
    id_column: str | None

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return math.prod(self.shape)

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
        """Return the ids of some rows: what the column of ids says, nothing where it does not, or their numbers."""
        if self.id_column is None:
            return [str(row) for row in rows.tolist()]
        found = [""] * len(rows)
        for shard, places in self.parted(rows):
            names = _ids(Path(shard.path), shard, self.id_column, rows[places] - shard.first)
            for place, name in zip(places.tolist(), names, strict=True):
                found[place] = name
        return found


def open_shards(
    pattern: str | Path, *, id_column: str | None = None, raw: bool = False, rows: int = ROWS
) -> Shards:
    """Return the pool in a .npy file, a Parquet file, a folder of them, or what a pattern such as ``pool/*`` finds.

    Rows are features; where ``raw``, they are a model's inputs, which may have more than one axis.
    """
    paths = _paths(str(pattern))
    id_column = _id_column(paths[0], id_column)
    shards: list[Shard] = []
    shape: tuple[int, ...] = ()
    columns: tuple[str, ...] = ()
    count = 0
    for path in paths:
        found, here = _shards_of(path, count, rows, id_column, raw)
        if not found:
            continue
        if shape and here != shape:
            told = [
                f"rows of shape {one}" if raw else f"{one[0]} features a row"
                for one in (here, shape)
            ]
            raise FileError(f"{path} has {told[0]}, and the files before it have {told[1]}.")
        columns = columns or found[0].columns
        if found[0].columns not in ((), columns):
            found = _in_order(found, columns, path)
        shape, count = here, count + sum(shard.rows for shard in found)
        shards += found
    if not shards:
        raise FileError(f"There is no row in {pattern}.")
    if not math.prod(shape):
        raise FileError(f"The rows in {pattern} are of shape {shape}: they hold no number.")
    return Shards(tuple(shards), shape, id_column)


def _in_order(shards: list[Shard], columns: tuple[str, ...], path: Path) -> list[Shard]:
    """Return a file's shards with the columns in the order of the files before it, whatever its own order is."""
    if sorted(shards[0].columns) != sorted(columns):
        told = [
            ", ".join(some[:5]) + (", ..." if len(some) > 5 else "")
            for some in (shards[0].columns, columns)
        ]
        raise FileError(
            f"{path} has its rows in {told[0]}, and the files before it in {told[1]}: name columns alike."
        )
    return [replace(shard, columns=columns) for shard in shards]


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
    return [
        require_file(path, (".parquet", ".npy"), "a part of a pool that is read in shards")
        for path in paths
    ]


def _stamp(path: Path) -> str:
    """Return what tells a file from another of its name; to read all of it would take as long as to score it."""
    digest = hashlib.blake2b(digest_size=12)
    with parse_errors(path, "pool's"), path.open("rb") as file:
        state = os.fstat(file.fileno())
        size = state.st_size
        for start in range(0, size, max(LOOKED, size // LOOKS)):
            file.seek(start)
            digest.update(file.read(LOOKED))
        file.seek(max(0, size - END))
        digest.update(file.read(END))
    return f"{size}-{state.st_mtime_ns}-{digest.hexdigest()}"


def _shards_of(
    path: Path, first: int, rows: int, id_column: str | None, raw: bool
) -> tuple[list[Shard], tuple[int, ...]]:
    absolute, stamp = str(path.resolve()), _stamp(path)
    if path.suffix.lower() == ".npy":
        if id_column is not None:
            raise FileError(
                f"{path} is an array, with no column {id_column!r} for ids as the files before it have."
            )
        array = _mapped(path, raw=raw)
        shape = tuple(array.shape[1:])
        width = math.prod(shape)
        step = _fitting(rows, width)
        parts = [
            Shard(
                absolute, first + start, min(step, len(array) - start), start, (), (), stamp, width
            )
            for start in range(0, len(array), step)
        ]
        return parts, shape
    with parse_errors(path, "Parquet"), _parquet().ParquetFile(path) as file:
        if id_column is not None and id_column not in file.schema_arrow.names:
            raise FileError(
                f"{path} has no column {id_column!r} for ids as the files before it have."
            )
        columns, shape = _feature_columns(file, path, id_column, raw)
        sizes = [file.metadata.row_group(k).num_rows for k in range(file.metadata.num_row_groups)]
    shards: list[Shard] = []
    begin, width = 0, math.prod(shape)
    for groups in _grouped(sizes, _fitting(rows, width)):
        count = sum(sizes[k] for k in groups)
        shards.append(
            Shard(absolute, first + begin, count, begin, tuple(groups), columns, stamp, width)
        )
        begin += count
    return shards, shape


def _fitting(rows: int, width: int) -> int:
    return max(1, min(rows, BYTES // (4 * max(1, width))))


def _grouped(sizes: Sequence[int], rows: int) -> Iterator[list[int]]:
    """Yield row groups that follow each other and hold at most ``rows``, or one group that holds more."""
    held: list[int] = []
    count = 0
    for number, size in enumerate(sizes):
        if held and count + size > rows:
            yield held
            held, count = [], 0
        if size:
            held.append(number)
            count += size
    if held:
        yield held


def _mapped(path: Path, *, raw: bool) -> npt.NDArray[Any]:
    with parse_errors(path, ".npy"):
        array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.ndim < 2 or (array.ndim > 2 and not raw) or array.dtype.kind not in "fiu":
        raise FileError(
            f"{path} holds an array of shape {array.shape} and {array.dtype}: (rows, features) is needed."
        )
    return array


def _flat(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.array(rows).reshape(len(rows), -1)


def _parquet() -> Any:
    try:
        from pyarrow import parquet
    except ImportError:
        raise MissingExtraError(
            "Reading Parquet needs pyarrow: pip install 'teeter[parquet]'."
        ) from None
    return parquet


def _id_column(path: Path, asked: str | None) -> str | None:
    if path.suffix.lower() == ".npy":
        if asked is not None:
            raise InputError(f"{path} is one array and has no column {asked!r}: leave --id out.")
        return None
    with parse_errors(path, "Parquet"), _parquet().ParquetFile(path) as file:
        names = file.schema_arrow.names
    if asked is None:
        return next((name for name in ("id", "ids") if name in names), None)
    if asked not in names:
        raise UnknownNameError(
            f"No column of {path} is called {asked!r}. {did_you_mean(asked, names)}"
        )
    return asked


def _feature_columns(
    file: Any, path: Path, id_column: str | None, raw: bool
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the column of lists called features (or inputs), or the only one of lists, or all columns of numbers."""
    from pyarrow import types

    schema = file.schema_arrow
    lists = [field.name for field in schema if _is_list(field.type)]
    named = [name for name in (("inputs", "features") if raw else ("features",)) if name in lists]
    chosen = named[0] if named else lists[0] if len(lists) == 1 else None
    if chosen is not None:
        shape = _shape(file, path, chosen)
        if len(shape) > 1 and not raw:
            raise FileError(
                f"{path} holds rows of shape {shape} in {chosen}: features are one list of numbers a row."
            )
        return (chosen,), shape
    if lists:
        wanted = "inputs" if raw else "features"
        raise FileError(
            f"{path} has {len(lists)} columns of lists ({', '.join(lists)}): call one of them {wanted}."
        )
    ids = {id_column} if id_column else {"id", "ids"}
    numbers = tuple(
        field.name
        for field in schema
        if field.name not in ids and (types.is_integer(field.type) or types.is_floating(field.type))
    )
    if not numbers:
        raise FileError(f"{path} has no column of lists called features, and no column of numbers.")
    return numbers, (len(numbers),)


def _is_list(kind: Any) -> bool:
    from pyarrow import types

    kind = getattr(kind, "storage_type", kind)  # of tensors of a fixed shape
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _shape(file: Any, path: Path, column: str) -> tuple[int, ...]:
    """Return the shape of a row: that of a tensor, or of lists in lists."""
    for batch in file.iter_batches(batch_size=1, columns=[column]):
        if batch.num_rows:
            lists = batch.column(0)
            whole = tuple(getattr(lists.type, "shape", ()))
            return whole or tuple(_matrix([lists], path, 0, flat=False).shape[1:])
    return (0,)


def _read_groups(path: Path, shard: Shard, wanted: Rows | None) -> Iterator[tuple[int, Features]]:
    with parse_errors(path, "Parquet"), _parquet().ParquetFile(path) as file:
        _require_unchanged(path, shard)
        start = 0
        for group in shard.groups:
            size = file.metadata.row_group(group).num_rows
            if wanted is not None and not ((wanted >= start) & (wanted < start + size)).any():
                start += size
                continue
            for batch in file.iter_batches(
                batch_size=shard.batch, row_groups=[group], columns=list(shard.columns)
            ):
                if batch.num_rows:
                    row = shard.begin + start
                    found = _matrix([batch.column(name) for name in shard.columns], path, row)
                    if found.shape[1] != shard.width:
                        raise FileError(
                            f"Lists of features in {path}, near row {row}, are not as long as the first."
                        )
                    yield start, _finite(found, path, row)
                start += batch.num_rows


def _require_unchanged(path: Path, shard: Shard) -> None:
    if _stamp(path) != shard.stamp:
        raise FileError(f"{path} has changed since this began: begin again.")


def _matrix(columns: Sequence[Any], path: Path, row: int, *, flat: bool = True) -> npt.NDArray[Any]:
    """Return pyarrow arrays as one matrix: a column of lists, or one of numbers each; lists in lists are axes."""
    if not _is_list(columns[0].type):
        return np.stack([column.to_numpy(zero_copy_only=False) for column in columns], axis=1)
    lists = getattr(columns[0], "storage", columns[0])
    shape = [len(lists)]
    while _is_list(lists.type):
        inner = lists.flatten()
        if lists.null_count or not len(inner) or _ragged(lists):
            raise FileError(
                f"Lists of features in {path}, near row {row}, are missing or differ in length."
            )
        shape.append(len(inner) // len(lists))
        lists = inner
    values: npt.NDArray[Any] = lists.to_numpy(zero_copy_only=False)
    return values.reshape(shape[0], -1) if flat else values.reshape(shape)


def _ragged(lists: Any) -> bool:
    from pyarrow import compute, types

    if types.is_fixed_size_list(lists.type):
        return False
    ends = compute.min_max(compute.list_value_length(lists)).as_py()
    return bool(ends["min"] != ends["max"])


def _finite(batch: npt.NDArray[Any], path: Path, row: int | Rows) -> Features:
    """Return rows as the kernels take them; ``row`` is the number of the first in the file, or the numbers of all."""
    found = np.require(batch, np.float32, ["C", "W"])  # torch wants what it may write to
    if not np.isfinite(found).all():
        where = int(np.flatnonzero(~np.isfinite(found).all(axis=1))[0])
        number = row + where if isinstance(row, int) else int(row[where])
        raise FileError(f"Row {number} of {path} holds a feature that is missing or not finite.")
    return found


def _ids(path: Path, shard: Shard, column: str, rows: Rows) -> list[str]:
    """Return the ids of some rows of a shard, counted from its first; nothing for a row that has none."""
    with parse_errors(path, "Parquet"), _parquet().ParquetFile(path) as file:
        _require_unchanged(path, shard)
        found = (
            file.read_row_groups(list(shard.groups), columns=[column])
            .column(0)
            .take(rows)
            .to_pylist()
        )
    return [
        "" if one is None else one.decode(errors="replace") if isinstance(one, bytes) else str(one)
        for one in found
    ]
