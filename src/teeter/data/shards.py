"""A pool that need not fit in memory, cut into shards that are read in batches.

A pool is a .npy file, which is memory-mapped, or one or more Parquet files. A shard is a range of
consecutive rows of one file: of a Parquet file, whole row groups. Shards are independent of each
other, so that processes and machines can read them at the same time. Each carries a fingerprint of
its file, so that a file that changes in between is noticed.

Rows are counted in three ways: in the pool, in the file (from ``Shard.begin``) and in the shard.
"""

from __future__ import annotations

import glob
import hashlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from teeter.base.files import parse_errors, require_file
from teeter.base.registry import require_known
from teeter.data.parquet_pages import read_column_pages
from teeter.data.table_files import is_list_type, open_parquet
from teeter.errors import FileError, InputError

__all__ = [
    "BATCH_BYTES",
    "BATCH_ROWS",
    "FINGERPRINT_END_BYTES",
    "FINGERPRINT_SAMPLES",
    "FINGERPRINT_SAMPLE_BYTES",
    "SHARD_BYTES",
    "SHARD_ROWS",
    "Features",
    "RowShape",
    "Rows",
    "Shard",
    "Shards",
    "open_shards",
]

# Limits of a shard. A larger row group of a Parquet file is still one shard.
SHARD_ROWS = 1 << 18
SHARD_BYTES = 1 << 28

# Limits of what is read at once.
BATCH_ROWS = 1 << 15
BATCH_BYTES = 1 << 25

# A fingerprint covers this many samples of a file and its end, where Parquet has its footer.
FINGERPRINT_SAMPLES = 16
FINGERPRINT_SAMPLE_BYTES = 1 << 12
FINGERPRINT_END_BYTES = 1 << 16

_BYTES_PER_NUMBER = 4  # float32

Features = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
RowShape = tuple[int, ...]


@dataclass(frozen=True)
class Shard:
    """Consecutive rows of one file."""

    path: str
    first: int
    """The index of its first row in the pool."""
    rows: int
    """The number of rows."""
    begin: int
    """The index of its first row in the file."""
    groups: tuple[int, ...]
    """The row groups of a Parquet file, or () for an array."""
    columns: tuple[str, ...]
    """The columns that hold the features: one column of lists, or columns of numbers."""
    fingerprint: str
    """Identifies the contents of the file."""
    width: int
    """The number of features per row."""

    def key(self) -> str:
        """Return a text that identifies the shard and its contents, for names of cached files."""
        contents = repr(asdict(self))
        return hashlib.blake2b(contents.encode(), digest_size=12).hexdigest()

    @property
    def batch_rows(self) -> int:
        """The number of rows that are read at once."""
        rows_in_memory = BATCH_BYTES // (_BYTES_PER_NUMBER * self.width)
        return max(1, min(BATCH_ROWS, rows_in_memory))

    def names(self, start: int) -> Callable[[int], str]:
        """Return a function that names rows in messages: the k-th row from row ``start`` on."""
        first_in_file = self.begin + start
        return lambda k: f"row {first_in_file + k} of {self.path}"

    def batches(self) -> Iterator[Features]:
        """Yield the features of all rows in order, (n, D) at a time. Rows of other shapes are flat.

        Raises:
            FileError: if the file has changed, is damaged, or holds values that are not finite.
        """
        path = Path(self.path)
        if self.groups:
            yield from _read_row_groups(path, self, None)
            return

        array = self._map_rows()
        for start in range(0, self.rows, self.batch_rows):
            stop = start + self.batch_rows
            batch = _flatten_rows(array[start:stop])
            yield _require_finite(batch, path, self.begin + start)

    def take(self, rows: Rows) -> Features:
        """Return the features of some rows.

        Args:
            rows: (k,) indices in this shard, in ascending order.

        Returns:
            (k, D) features.
        """
        path = Path(self.path)
        if not self.groups:
            array = self._map_rows()
            flat = _flatten_rows(array[rows])
            return _require_finite(flat, path, rows + self.begin)

        # Both the batches and the rows ascend, so the pieces are in the order of the rows.
        return np.concatenate(list(_read_row_groups(path, self, rows)))

    def _map_rows(self) -> npt.NDArray[Any]:
        """Map this shard's rows of a .npy file into memory."""
        path = Path(self.path)
        _require_unchanged(path, self)

        # The axes were checked when the pool was opened, so any number of them is right here.
        array = _map_array(path, raw=True)
        end = self.begin + self.rows
        return array[self.begin : end]


@dataclass(frozen=True)
class Shards:
    """A pool as a sequence of shards."""

    shards: tuple[Shard, ...]
    shape: RowShape
    """The shape of a row. Features have one axis, inputs of a model may have more."""
    id_column: str | None
    """The column of ids in Parquet files, or None if rows are identified by their index."""

    @property
    def width(self) -> int:
        """The number of features per row."""
        return math.prod(self.shape)

    def __len__(self) -> int:
        return sum(shard.rows for shard in self.shards)

    def take(self, rows: Rows) -> Features:
        """Return the features of some rows of the pool, in any order: (k,) -> (k, D)."""
        shape = (len(rows), self.width)
        features = np.empty(shape, dtype=np.float32)
        for shard, positions in self.group_by_shard(rows):
            # A file is read from front to back, so a shard takes rows in ascending order.
            in_shard = rows[positions] - shard.first
            order = np.argsort(in_shard, kind="stable")
            ascending = in_shard[order]
            features[positions[order]] = shard.take(ascending)
        return features

    def group_by_shard(self, rows: Rows) -> Iterator[tuple[Shard, Rows]]:
        """Yield each shard that holds some of the rows, with their positions in ``rows``."""
        # The shard of a row is the last one that starts at or before it.
        starts = np.array([shard.first for shard in self.shards])
        shard_of_row = np.searchsorted(starts, rows, side="right") - 1
        for index in np.unique(shard_of_row).tolist():
            positions = np.flatnonzero(shard_of_row == index)
            yield self.shards[index], positions

    def ids(self, rows: Rows) -> list[str]:
        """Return the ids of some rows: from the column of ids, or their indices in the pool.

        A row without an id gets an empty text.
        """
        if self.id_column is None:
            return [str(row) for row in rows.tolist()]

        ids = [""] * len(rows)
        for shard, positions in self.group_by_shard(rows):
            in_shard = rows[positions] - shard.first
            shard_ids = _read_ids(shard, self.id_column, in_shard)
            for position, row_id in zip(positions.tolist(), shard_ids, strict=True):
                ids[position] = row_id
        return ids


def open_shards(
    pattern: str | Path, *, id_column: str | None = None, raw: bool = False, rows: int = SHARD_ROWS
) -> Shards:
    """Open a pool without reading its rows.

    Features are the column of lists called ``features``, or else the only column of lists, or else
    all columns of numbers.

    Args:
        pattern: a .npy file, a Parquet file, a folder of them, or a pattern such as ``pool/*``.
        id_column: the column of ids in Parquet files. By default it is ``id`` or ``ids``.
        raw: read the inputs of a model instead of features. They may have any number of axes and
            may be called ``inputs``.
        rows: the largest number of rows in a shard.

    Raises:
        FileError: if there are no files or rows, or the files do not fit together.
        UnknownNameError: if there is no ``id_column``.
        InputError: if ``id_column`` is given and the pool is an array.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     np.save(Path(folder) / "pool.npy", np.zeros((5, 3), dtype=np.float32))
        ...     pool = open_shards(Path(folder) / "pool.npy", rows=2)
        >>> len(pool), pool.width, [shard.rows for shard in pool.shards]
        (5, 3, [2, 2, 1])
    """
    paths = _find_files(str(pattern))
    id_column = _find_id_column(paths[0], id_column)

    shards: list[Shard] = []
    shape: RowShape = ()
    columns: tuple[str, ...] = ()
    row_count = 0
    for path in paths:
        cut = _cut_parquet
        if path.suffix.lower() == ".npy":
            cut = _cut_array
        file_shards, file_shape = cut(path, row_count, rows, id_column, raw)
        if not file_shards:
            continue

        if shape and file_shape != shape:
            raise FileError(
                f"{path} has {_describe_shape(file_shape, raw)}, and the files before it have "
                f"{_describe_shape(shape, raw)}."
            )

        # A .npy file has no column names, and fits any that came before.
        columns = columns or file_shards[0].columns
        if file_shards[0].columns not in ((), columns):
            file_columns = file_shards[0].columns
            if sorted(file_columns) != sorted(columns):
                raise FileError(
                    f"{path} has its features in {_list_names(file_columns)}, and the files before "
                    f"it in {_list_names(columns)}: use the same column names."
                )
            # In the order of the files before it.
            file_shards = [replace(shard, columns=columns) for shard in file_shards]

        shape = file_shape
        row_count += sum(shard.rows for shard in file_shards)
        shards += file_shards

    if not shards:
        raise FileError(f"There are no rows in {pattern}.")
    if math.prod(shape) == 0:
        raise FileError(f"The rows in {pattern} have the shape {shape}: they hold no numbers.")

    return Shards(tuple(shards), shape, id_column)


def _find_files(pattern: str) -> list[Path]:
    location = Path(pattern)
    if location.is_dir():
        # Not both: a folder may hold arrays beside a pool in Parquet.
        paths = sorted(location.glob("*.parquet"))
        if not paths:
            paths = sorted(location.glob("*.npy"))
        if not paths:
            raise FileError(f"There is no Parquet file and no .npy file in {pattern}.")
    elif glob.has_magic(pattern) and not location.exists():
        # A file may have a * or a [ in its name, so an existing one is no pattern.
        names = glob.glob(pattern, recursive=True)
        paths = sorted(Path(name) for name in names)
        if not paths:
            raise FileError(f"No file matches {pattern}.")
    else:
        paths = [location]

    for path in paths:
        require_file(path, (".parquet", ".npy"), "a part of a pool that is read in shards")
    return paths


def _find_id_column(path: Path, id_column: str | None) -> str | None:
    if path.suffix.lower() == ".npy":
        if id_column is not None:
            raise InputError(
                f"{path} is an array and has no column {id_column!r}: leave out id_column=."
            )
        return None

    with open_parquet(path) as file:
        names = file.schema_arrow.names

    if id_column is None:
        for name in ("id", "ids"):
            if name in names:
                return name
        return None

    require_known(f"column of {path}", id_column, names)
    return id_column


def _describe_shape(shape: RowShape, raw: bool) -> str:
    if raw:
        return f"rows of shape {shape}"
    return f"{shape[0]} features per row"


def _list_names(names: Sequence[str]) -> str:
    listed = ", ".join(names[:5])
    if len(names) > 5:
        return f"{listed}, ..."
    return listed


def _cut_array(
    path: Path, first: int, rows: int, id_column: str | None, raw: bool
) -> tuple[list[Shard], RowShape]:
    if id_column is not None:
        raise FileError(
            f"{path} is an array without an id column {id_column!r}, unlike the files before it."
        )

    fingerprint = _fingerprint(path)
    array = _map_array(path, raw=raw)
    shape = tuple(array.shape[1:])
    step = _rows_per_shard(rows, math.prod(shape))

    begins = range(0, len(array), step)
    sizes = [min(step, len(array) - begin) for begin in begins]
    pieces = [(size, ()) for size in sizes]
    return _make_shards(path, first, fingerprint, pieces, shape=shape), shape


def _cut_parquet(
    path: Path, first: int, rows: int, id_column: str | None, raw: bool
) -> tuple[list[Shard], RowShape]:
    # Taken before the metadata is read: a change after that is noticed when a shard is read.
    fingerprint = _fingerprint(path)
    with open_parquet(path) as file:
        if id_column is not None and id_column not in file.schema_arrow.names:
            raise FileError(f"{path} has no id column {id_column!r}, unlike the files before it.")

        columns, shape = _find_feature_columns(file, path, id_column, raw)
        groups = range(file.metadata.num_row_groups)
        group_sizes = [file.metadata.row_group(group).num_rows for group in groups]

    pieces = []
    for shard_groups in _combine_groups(group_sizes, _rows_per_shard(rows, math.prod(shape))):
        shard_rows = sum(group_sizes[group] for group in shard_groups)
        pieces.append((shard_rows, tuple(shard_groups)))
    shards = _make_shards(path, first, fingerprint, pieces, shape=shape, columns=columns)
    return shards, shape


def _make_shards(
    path: Path,
    first: int,
    fingerprint: str,
    pieces: Iterable[tuple[int, tuple[int, ...]]],
    *,
    shape: RowShape,
    columns: tuple[str, ...] = (),
) -> list[Shard]:
    """Return the shards of a file, whose pieces are given as their rows and their row groups."""
    shards = []
    begin = 0
    for rows, groups in pieces:
        shard = Shard(
            path=str(path.resolve()),
            first=first + begin,
            rows=rows,
            begin=begin,
            groups=groups,
            columns=columns,
            fingerprint=fingerprint,
            width=math.prod(shape),
        )
        shards.append(shard)
        begin += rows
    return shards


def _rows_per_shard(rows: int, width: int) -> int:
    rows_in_memory = SHARD_BYTES // (_BYTES_PER_NUMBER * max(1, width))
    return max(1, min(rows, rows_in_memory))


def _combine_groups(sizes: Sequence[int], rows: int) -> Iterator[list[int]]:
    """Yield consecutive row groups of at most ``rows`` together, or one group that is larger."""
    groups: list[int] = []
    count = 0
    for group, size in enumerate(sizes):
        if groups and count + size > rows:
            yield groups
            groups = []
            count = 0

        # Empty row groups are left out, because a shard without groups is one of an array.
        if size > 0:
            groups.append(group)
            count += size

    if groups:
        yield groups


def _fingerprint(path: Path) -> str:
    """Identify the contents of a file by its size, its time and samples of its bytes.

    Hashing all of a large file would take as long as scoring its rows.
    """
    digest = hashlib.blake2b(digest_size=12)
    with parse_errors(path, "pool file"), path.open("rb") as file:
        status = os.fstat(file.fileno())
        size = status.st_size

        step = max(FINGERPRINT_SAMPLE_BYTES, size // FINGERPRINT_SAMPLES)
        for start in range(0, size, step):
            file.seek(start)
            digest.update(file.read(FINGERPRINT_SAMPLE_BYTES))

        # The footer of a Parquet file has the position of every column, so it changes with them.
        file.seek(max(0, size - FINGERPRINT_END_BYTES))
        digest.update(file.read(FINGERPRINT_END_BYTES))

    return f"{size}-{status.st_mtime_ns}-{digest.hexdigest()}"


def _require_unchanged(path: Path, shard: Shard) -> None:
    if _fingerprint(path) != shard.fingerprint:
        raise FileError(f"{path} has changed since the pool was opened: start the selection again.")


def _map_array(path: Path, *, raw: bool) -> npt.NDArray[Any]:
    with parse_errors(path, ".npy file"):
        array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)

    has_right_axes = array.ndim == 2
    if raw:
        has_right_axes = array.ndim >= 2

    is_number = array.dtype.kind in "fiu"  # floating, signed or unsigned
    if not has_right_axes or not is_number:
        raise FileError(
            f"{path} holds an array of shape {array.shape} and {array.dtype}: "
            "numbers (rows, features) are needed."
        )
    return array


def _flatten_rows(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    # A copy in memory, because the rows are still mapped from the file.
    copied = np.array(rows)
    return copied.reshape(len(rows), -1)


def _find_feature_columns(
    file: Any, path: Path, id_column: str | None, raw: bool
) -> tuple[tuple[str, ...], RowShape]:
    """Return the columns that hold the features of a Parquet file, and the shape of a row."""
    from pyarrow import types

    list_columns = [field.name for field in file.schema_arrow if is_list_type(field.type)]

    if list_columns:
        column = _choose_list_column(list_columns, path, raw)
        shape = _read_row_shape(file, path, column)
        if len(shape) > 1 and not raw:
            raise FileError(
                f"{path} holds rows of shape {shape} in {column}: "
                "give one list of numbers per row as features."
            )
        return (column,), shape

    id_columns = {"id", "ids"}
    if id_column is not None:
        id_columns = {id_column}
    columns = []
    for field in file.schema_arrow:
        if field.name in id_columns:
            continue
        if types.is_integer(field.type) or types.is_floating(field.type):
            columns.append(field.name)

    if not columns:
        raise FileError(f"{path} has no column of lists called features, and no column of numbers.")
    return tuple(columns), (len(columns),)


def _choose_list_column(list_columns: Sequence[str], path: Path, raw: bool) -> str:
    """Return the column called inputs (if raw) or features, or else the only column of lists."""
    preferred = ("inputs", "features") if raw else ("features",)
    for name in preferred:
        if name in list_columns:
            return name

    if len(list_columns) == 1:
        return list_columns[0]
    raise FileError(
        f"{path} has {len(list_columns)} columns of lists ({', '.join(list_columns)}): "
        f"call one of them {preferred[0]}."
    )


def _read_row_shape(file: Any, path: Path, column: str) -> RowShape:
    """Return the shape of a row: that of a tensor, or the lengths of lists in lists."""
    for batch in file.iter_batches(batch_size=1, columns=[column]):
        if batch.num_rows == 0:
            continue

        # The type of a tensor column tells its shape. Lists must be measured.
        lists = batch.column(0)
        tensor_shape = tuple(getattr(lists.type, "shape", ()))
        if tensor_shape:
            return tensor_shape
        return _lists_to_array(lists, path, 0).shape[1:]

    return (0,)


def _read_row_groups(path: Path, shard: Shard, wanted: Rows | None) -> Iterator[Features]:
    """Yield the features of a shard's rows in batches.

    Args:
        path: the Parquet file.
        shard: the shard.
        wanted: the only rows of the shard to yield, ascending. Row groups with none of them are
            skipped. None: all rows.
    """
    with open_parquet(path) as file:
        _require_unchanged(path, shard)

        start = 0
        for group in shard.groups:
            size = file.metadata.row_group(group).num_rows
            if wanted is not None:
                in_group = (wanted >= start) & (wanted < start + size)
                if not in_group.any():
                    start += size
                    continue

            # One row group at a time, so that the others are never decompressed.
            batches = file.iter_batches(
                batch_size=shard.batch_rows,
                row_groups=[group],
                columns=list(shard.columns),
            )
            for batch in batches:
                if batch.num_rows == 0:
                    continue

                columns = [batch.column(name) for name in shard.columns]
                first_row = shard.begin + start
                features = _columns_to_features(columns, path, shard, first_row)
                if wanted is None:
                    yield _require_finite(features, path, first_row)
                else:
                    # Only these rows are copied and checked: the others are often most of them.
                    is_here = (wanted >= start) & (wanted < start + batch.num_rows)
                    positions = wanted[is_here] - start
                    yield _require_finite(features[positions], path, first_row + positions)
                start += batch.num_rows


def _columns_to_features(
    columns: Sequence[Any], path: Path, shard: Shard, row: int
) -> npt.NDArray[Any]:
    """Return pyarrow columns as (n, D) numbers. ``row`` is the index of the first in the file."""
    if is_list_type(columns[0].type):
        array = _lists_to_array(columns[0], path, row)
        features = array.reshape(len(array), -1)
    else:
        numbers = [column.to_numpy(zero_copy_only=False) for column in columns]
        features = np.stack(numbers, axis=1)

    if features.shape[1] != shard.width:
        raise FileError(
            f"Lists of features in {path}, near row {row}, differ in length from the first list."
        )
    return features


def _lists_to_array(column: Any, path: Path, row: int) -> npt.NDArray[Any]:
    """Return a pyarrow array of lists as a NumPy array. Lists in lists become more axes."""
    lists = getattr(column, "storage", column)  # A tensor column stores lists.
    shape = [len(lists)]

    # Each turn removes one level of lists and finds the length of one axis.
    while is_list_type(lists.type):
        values = lists.flatten()
        is_empty = len(values) == 0
        if lists.null_count or is_empty or _differ_in_length(lists):
            raise FileError(
                f"Lists of features in {path}, near row {row}, are missing or differ in length."
            )
        shape.append(len(values) // len(lists))
        lists = values

    array: npt.NDArray[Any] = lists.to_numpy(zero_copy_only=False)
    return array.reshape(shape)


def _differ_in_length(lists: Any) -> bool:
    from pyarrow import compute, types

    if types.is_fixed_size_list(lists.type):
        return False

    lengths = compute.min_max(compute.list_value_length(lists)).as_py()
    return bool(lengths["min"] != lengths["max"])


def _require_finite(batch: npt.NDArray[Any], path: Path, rows: int | Rows) -> Features:
    """Return rows as contiguous float32.

    Args:
        batch: (n, D) numbers.
        path: the file, for error messages.
        rows: the index of the first row in the file, or the indices of all rows.
    """
    # Writable, because torch.from_numpy warns about arrays that are not.
    features = np.require(batch, np.float32, ["C", "W"])
    if np.isfinite(features).all():
        return features

    is_broken = ~np.isfinite(features).all(axis=1)
    position = int(np.flatnonzero(is_broken)[0])
    if isinstance(rows, int):
        row = rows + position
    else:
        row = int(rows[position])
    raise FileError(f"Row {row} of {path} holds a feature that is missing or not finite.")


def _read_ids(shard: Shard, column: str, rows: Rows) -> list[str]:
    """Return the ids of some rows of a shard, or '' for a row without an id."""
    path = Path(shard.path)
    ids = [""] * len(rows)
    start = 0
    with open_parquet(path) as file:
        _require_unchanged(path, shard)
        for group in shard.groups:
            stop = start + file.metadata.row_group(group).num_rows
            positions = np.flatnonzero((rows >= start) & (rows < stop))
            rows_of_group = rows[positions] - start
            values = _read_id_values(file, path, group, column, rows_of_group)
            for position, value in zip(positions.tolist(), values, strict=True):
                if isinstance(value, bytes):
                    ids[position] = value.decode(errors="replace")
                elif value is not None:
                    ids[position] = str(value)
            start = stop
    return ids


def _read_id_values(file: Any, path: Path, group: int, column: str, rows: Rows) -> list[Any]:
    """Return the ids of some rows of a row group, in little memory even if all ids are long."""
    if len(rows) == 0:
        return []

    metadata = file.metadata
    rows_at_once = BATCH_ROWS
    column_root, _, _ = column.partition(".")
    with path.open("rb") as stream:
        for index in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(index)
            chunk_root, _, _ = chunk.path_in_schema.partition(".")
            if chunk_root == column_root:
                pages = read_column_pages(stream, chunk)
                rows_at_once = min(rows_at_once, pages.rows_at_once)

    values: list[Any] = [None] * len(rows)
    start = 0
    for batch in file.iter_batches(rows_at_once, row_groups=[group], columns=[column]):
        stop = start + batch.num_rows
        positions = np.flatnonzero((rows >= start) & (rows < stop))
        rows_of_batch = rows[positions] - start
        wanted = batch.column(0).take(rows_of_batch).to_pylist()
        for position, value in zip(positions.tolist(), wanted, strict=True):
            values[position] = value
        start = stop
    return values
