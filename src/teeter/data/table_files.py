"""Read tables from CSV and Parquet files, as named columns of NumPy arrays, and JSON lines.

``escape_formula`` is for CSV files that are written: people open them in a spreadsheet program,
which runs some cells.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO, TypeAlias

import numpy as np
import numpy.typing as npt

from teeter.base.files import parse_errors, require_file, require_unpacked_size
from teeter.base.registry import require_known
from teeter.data.parquet_pages import ColumnPages, read_column_pages
from teeter.errors import FileError, InputError, MissingExtraError

__all__ = [
    "JSONL_SUFFIXES",
    "MAX_CELL_LENGTH",
    "MAX_LINE_LENGTH",
    "TABLE_SUFFIXES",
    "Column",
    "CsvRows",
    "Table",
    "convert_arrow_table",
    "convert_csv_rows",
    "escape_formula",
    "is_list_type",
    "is_missing",
    "is_number",
    "open_parquet",
    "read_arrow_table",
    "read_csv_rows",
    "read_json_objects",
    "read_parquet",
    "read_table",
    "require_ids",
    "require_parquet_size",
    "text_column",
]

TABLE_SUFFIXES = (".csv", ".tsv", ".txt", ".parquet")
"""The suffixes of files that ``read_table`` reads."""

_MISSING_VALUES = frozenset({"", "na", "nan", "null", "none", "n/a"})

MAX_CELL_LENGTH = 10_000_000
"""Characters that a cell may have. A longer one is refused before the file is read any further.

It is far above any document, and far below what fills the memory: a cell without an end is often a
quote that was never closed.
"""

MAX_LINE_LENGTH = 50_000_000
"""Characters of a line that are read at most, to bound the memory that a damaged file can take."""

_NUMBER_WITH_COMMA = re.compile(r"[+-]?[0-9]+(,[0-9]+)?([eE][+-]?[0-9]+)?")

Column: TypeAlias = npt.NDArray[Any]
"""(N,) texts of dtype object, (N,) numbers, or (N, K) numbers from lists of equal length."""


@dataclass(frozen=True, eq=False)
class Table:
    """The columns of a file."""

    path: Path
    columns: dict[str, Column]
    nested: tuple[str, ...] = ()
    """The names of columns that are not read: structures, bytes, and lists that are no vectors."""
    lines: tuple[int, ...] | None = None
    """The line of the file on which each row begins; None for a file without lines."""

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def place(self, row: int) -> str:
        """Return where a row is in the file, for error messages: ``line 7``, or ``row 6``."""
        if self.lines is None:
            return f"row {row + 1}"
        return f"line {self.lines[row]}"

    def require(self, name: str) -> None:
        """Raise UnknownNameError if no column is called ``name``."""
        require_known(f"column of {self.path}", name, [*self.columns, *self.nested])

    def texts(self, name: str) -> list[str]:
        """Return a column as texts.

        Floating-point numbers lose a trailing ``.0``, and missing ones become empty texts.
        """
        column = self.columns[name]
        values = column.tolist()
        if column.dtype.kind != "f":
            return [str(value) for value in values]

        return [_format_number(value) for value in values]

    def ids(self, name: str) -> list[str]:
        """Return a column of ids as texts.

        Raises:
            InputError: if the column holds lists, or if an id is blank or occurs twice.
        """
        self.require(name)
        holds_lists = name in self.nested or self.columns[name].ndim > 1
        if holds_lists:
            raise InputError(
                f"Column {name!r} of {self.path} holds lists: an id is a string or a number."
            )

        source = f"column {name!r} of {self.path}"
        return require_ids(self.texts(name), source, self.place)


def is_missing(text: str) -> bool:
    """Return whether a cell stands for a missing value: blank, NA, N/A, NaN, null or None.

    Example:
        >>> is_missing(" n/a "), is_missing("0")
        (True, False)
    """
    return text.strip().lower() in _MISSING_VALUES


def require_ids(
    ids: list[str], source: str, place: Callable[[int], str] = "row {}".format
) -> list[str]:
    """Return ``ids`` if none is blank and all differ.

    Args:
        ids: one id per row.
        source: where the ids come from, for error messages.
        place: returns what to call a row, by its number from 0.

    Raises:
        InputError: if an id is blank or occurs twice.
    """
    row_of: dict[str, int] = {}
    for row, text in enumerate(ids):
        if not text.strip():
            raise InputError(f"The id in {source} is blank in {place(row)}: every row needs one.")
        if text in row_of:
            raise InputError(
                f"The id {text!r} in {source} is used in {place(row_of[text])} and {place(row)}: "
                f"ids must be unique."
            )
        row_of[text] = row

    return ids


def read_table(path: str | Path) -> Table:
    """Read a CSV file (separated by commas, semicolons or tabs) or a Parquet file.

    Raises:
        FileError: if the file cannot be read or has no usable column.
        MissingExtraError: if it is a Parquet file and pyarrow is not installed.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "pool.csv"
        ...     _ = path.write_text("id,size\\na,1\\nb,2\\n")
        ...     read_table(path).texts("size")
        ['1', '2']
    """
    path = require_file(path, TABLE_SUFFIXES, "a table")
    if path.suffix.lower() == ".parquet":
        return convert_arrow_table(read_arrow_table(path), path)
    return convert_csv_rows(read_csv_rows(path), path)


def text_column(texts: Iterable[str]) -> Column:
    """Return texts as an (N,) array of dtype object."""
    return np.array(list(texts), dtype=object)


@dataclass(frozen=True, eq=False)
class CsvRows:
    """The cells of a CSV file, exactly as they are."""

    names: list[str]
    """The names of the columns, which may be empty."""
    rows: list[list[str]]
    lines: tuple[int, ...]
    """The line on which each row begins. A cell in quotes may have several lines."""
    delimiter: str


def read_csv_rows(path: Path) -> CsvRows:
    """Read a CSV file separated by commas, semicolons or tabs.

    Raises:
        FileError: if the file cannot be read, or has no rows.
    """
    try:
        # Excel writes a byte order mark, which utf-8-sig skips.
        with path.open(encoding="utf-8-sig", newline="") as stream:
            content = _parse_csv(stream, path)
    except UnicodeDecodeError as error:
        # Most often a file in a Windows code page.
        byte = error.object[error.start]
        raise FileError(
            f"{path} is not UTF-8 text (it holds the byte 0x{byte:02x}): save it as UTF-8."
        ) from None
    except OSError as error:
        raise FileError(f"Cannot read {path}: {error.strerror}.") from None

    _require_names(content.names, path)
    if not content.rows:
        raise FileError(f"{path} has a header ({', '.join(content.names)}) and no rows.")

    return content


def convert_csv_rows(content: CsvRows, path: Path) -> Table:
    """Return the named columns of a CSV file."""
    columns = {}
    columns_of_cells = zip(*content.rows, strict=True)
    for name, values in zip(content.names, columns_of_cells, strict=True):
        # A column without a name is the index that pandas writes.
        if not name:
            continue
        # Where semicolons separate columns, commas may separate decimals.
        if content.delimiter == ";" and _has_decimal_commas(values):
            columns[name] = text_column(value.replace(",", ".") for value in values)
        else:
            columns[name] = text_column(values)

    return Table(path, columns, lines=content.lines)


def _parse_csv(stream: TextIO, path: Path) -> CsvRows:
    # The csv module's own limit of 128 KiB is too short for long documents.
    csv.field_size_limit(MAX_CELL_LENGTH)

    # A quoted name may hold any of the delimiters.
    header = re.sub(r'"[^"]*"', "", _read_header(stream))
    delimiter = max(",;\t", key=header.count)
    stream.seek(0)
    lines_of_row: list[str] = []
    first_line_of_row = 1
    reader = csv.reader(_read_lines(stream, lines_of_row), delimiter=delimiter, strict=True)
    names: list[str] = []
    rows: list[list[str]] = []
    lines: list[int] = []

    try:
        for fields in reader:
            if not names:
                names = fields  # Blank lines before the header have no fields.
            elif len(fields) == len(names):
                rows.append(fields)
                lines.append(first_line_of_row)
            elif fields:  # Blank lines are skipped.
                raise FileError(
                    f"Line {reader.line_num} of {path} has {len(fields)} fields and the header has "
                    f"{len(names)}: they must have the same number."
                )
            lines_of_row.clear()
            first_line_of_row = reader.line_num + 1

    except _LineTooLongError:
        column = _find_long_cell("".join(lines_of_row), delimiter)
        raise _length_error(path, first_line_of_row, names, column) from None
    except csv.Error as error:
        # The error has no code, so the row is searched to tell a long cell from a wrong quote.
        column = _find_long_cell("".join(lines_of_row), delimiter)
        if column is not None:
            raise _length_error(path, first_line_of_row, names, column) from None
        raise FileError(
            f"Line {reader.line_num} of {path} cannot be read ({error}): check its quotes."
        ) from None

    return CsvRows([name.strip() for name in names], rows, tuple(lines), delimiter)


def _read_header(stream: TextIO) -> str:
    """Return the first line that is not blank, or as much of it as a line may have."""
    # Files exported from spreadsheets may begin with blank lines.
    while line := stream.readline(MAX_LINE_LENGTH):
        if line.strip():
            return line

    return ""


class _LineTooLongError(Exception):
    """A line has more than ``MAX_LINE_LENGTH`` characters."""


def _read_lines(stream: TextIO, lines_of_row: list[str]) -> Iterator[str]:
    """Yield the lines of a file for ``csv.reader``, and append them to ``lines_of_row``.

    Raises:
        _LineTooLongError: If a line is too long. The rest of it is not read.
    """
    # One character more than allowed shows that there is more.
    while line := stream.readline(MAX_LINE_LENGTH + 1):
        lines_of_row.append(line)
        if len(line) > MAX_LINE_LENGTH:
            raise _LineTooLongError
        yield line


def _find_long_cell(row: str, delimiter: str) -> int | None:
    """Return the first column, from 0, whose cell is longer than ``MAX_CELL_LENGTH``."""
    column = 0
    start = 0
    while True:
        position = start
        if row.startswith('"', start):
            position = _end_of_quotes(row, start)

        end = row.find(delimiter, position)
        if end < 0:
            end = len(row)
        if end - start > MAX_CELL_LENGTH:
            return column
        if end == len(row):
            return None

        start = end + 1
        column += 1


def _end_of_quotes(row: str, start: int) -> int:
    """Return the position after the quote that closes the one at ``start``."""
    position = start + 1
    while True:
        quote = row.find('"', position)
        if quote < 0:
            return len(row)
        # Two quotes stand for one inside the cell.
        if not row.startswith('"', quote + 1):
            return quote + 1
        position = quote + 2


def _length_error(path: Path, line: int, names: Sequence[str], column: int | None) -> FileError:
    """Return the error for a row with a cell that is too long, or with a line that is."""
    if column is None:
        return FileError(
            f"Line {line} of {path} has more than {MAX_LINE_LENGTH:,} characters: shorten it, or "
            "remove it."
        )

    column_name = f"column {column + 1}"
    if column < len(names):
        column_name = f"column {names[column].strip()!r}"
    return FileError(
        f"The cell in line {line}, {column_name} of {path} has more than {MAX_CELL_LENGTH:,} "
        "characters: shorten it, or check whether a quote is missing at its end."
    )


def _has_decimal_commas(values: Sequence[str]) -> bool:
    """Return whether a column holds only numbers, and some of them have a comma."""
    numbers = [value.strip() for value in values if not is_missing(value)]
    if not any("," in number for number in numbers):
        return False

    return all(_NUMBER_WITH_COMMA.fullmatch(number) for number in numbers)


def _require_names(names: Sequence[str], path: Path) -> None:
    if not any(names):
        raise FileError(f"{path} has no header: its first line must name the columns.")

    for name, count in Counter(names).items():
        if name and count > 1:
            raise FileError(f"{path} has {count} columns called {name!r}: names must be unique.")


def read_arrow_table(path: Path) -> Any:
    """Read a Parquet file as a ``pyarrow.Table``.

    Raises:
        FileError: if the file cannot be read, or has no rows.
        MissingExtraError: if pyarrow is not installed.
    """
    table = read_parquet(path)
    _require_names(table.column_names, path)
    if not table.num_rows:
        raise FileError(f"{path} has {table.num_columns} columns and no rows.")
    return table


def convert_arrow_table(table: Any, path: Path) -> Table:
    """Return the columns of a ``pyarrow.Table`` that hold texts, numbers or vectors.

    Raises:
        FileError: if no column holds any of them.
    """
    columns = {}
    nested = []
    with parse_errors(path, "Parquet file"):
        for name in table.column_names:
            # pandas writes its index under such a name.
            if name.startswith("__index_level_"):
                continue

            column = _convert_column(table.column(name))
            if column is None:
                nested.append(name)
            else:
                columns[name] = column

    if not columns:
        raise FileError(
            f"No column of {path} can be read: {', '.join(nested)} hold structures, or lists "
            "with missing values or of different lengths."
        )
    return Table(path, columns, tuple(nested))


def _convert_column(column: Any) -> Column | None:
    """Return a pyarrow column as an array, or None if it is nested and no vector."""
    import pyarrow
    from pyarrow import types

    # pandas writes categories as a dictionary of their values.
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if types.is_decimal(column.type):
        column = column.cast("float64")

    if types.is_integer(column.type) or types.is_floating(column.type):
        numbers: Column = column.to_numpy()
        return numbers
    if is_list_type(column.type):
        return _convert_lists(column)
    if types.is_nested(column.type):
        return None

    # Dates and booleans too: ``table_columns`` decides what a text stands for.
    try:
        texts = column.cast("string").fill_null("")
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError):
        # Bytes that are no UTF-8, such as images.
        return None
    return text_column(texts.to_pylist())


def _convert_lists(column: Any) -> Column | None:
    """Return lists of numbers of equal length as (N, K), or None for other lists."""
    from pyarrow import compute, types

    value_type = column.type.value_type
    holds_numbers = types.is_integer(value_type) or types.is_floating(value_type)
    if column.null_count or not holds_numbers:
        return None

    lengths = compute.min_max(compute.list_value_length(column)).as_py()
    shortest = lengths["min"]
    longest = lengths["max"]
    if shortest != longest or longest == 0:
        return None

    values: Column = compute.list_flatten(column).to_numpy()
    return values.reshape(len(column), -1)


def _format_number(value: float) -> str:
    if value != value:  # NaN: the cell is missing.
        return ""

    # pandas turns a column of whole numbers into floats if one is missing: 7.0 was 7.
    if value.is_integer():
        return str(int(value))
    return repr(value)


_BYTES_PER_ROW = 200
_BYTES_PER_VALUE = 8
"""What a row, and a value in it, take in memory at least. Encoded, a million may take no byte."""


def read_parquet(path: Path) -> Any:
    """Read a whole Parquet file as a ``pyarrow.Table``, if it fits in memory.

    Raises:
        MissingExtraError: if pyarrow is not installed.
        FileError: if the file cannot be read, or unpacks to more than half of the free memory.
    """
    require_parquet_size(path)
    with open_parquet(path) as file:
        return file.read()


def require_parquet_size(path: Path, limit: int | None = None) -> None:
    """Refuse a Parquet file that takes too much memory. A few hundred bytes may fill all of it.

    The headers of the pages state the size without compression. A text that is repeated may be
    stored once even so: only its length and the number of its uses tell what the rows take.

    Args:
        path: the file.
        limit: the most bytes. By default half of the free memory.

    Raises:
        MissingExtraError: if pyarrow is not installed.
        FileError: if the file takes more, or is damaged.
    """
    with open_parquet(path) as file:
        metadata = file.metadata
        pages = _read_pages(path, metadata)

    size = metadata.num_rows * _BYTES_PER_ROW
    text_size = 0
    for (_, index), column_pages in pages.items():
        column = metadata.schema.column(index)
        # Values of fixed length say their length; it is 0 for all others.
        value_size = max(_BYTES_PER_VALUE, column.length)
        column_size = max(column_pages.size, column_pages.values * value_size)
        if column.physical_type == "BYTE_ARRAY":
            text_size += column_size
        else:
            size += column_size
    require_unpacked_size(path, size + text_size, limit)

    # All other pages hold each text as often as it is used.
    repeated = {
        place: column_pages
        for place, column_pages in pages.items()
        if metadata.schema.column(place[1]).physical_type == "BYTE_ARRAY"
        and (column_pages.has_dictionary or column_pages.has_shared_prefixes)
    }
    for column_pages in repeated.values():
        text_size -= max(column_pages.size - column_pages.values * _BYTES_PER_VALUE, 0)
    for unpacked in _unpack_texts(path, metadata, repeated):
        text_size += unpacked
        require_unpacked_size(path, size + text_size, limit)


_Pages: TypeAlias = dict[tuple[int, int], ColumnPages]
"""The pages of column chunks by row group and column."""


def _read_pages(path: Path, metadata: Any) -> _Pages:
    pages = {}
    chunk_bytes = 0
    with path.open("rb") as stream:
        for group in range(metadata.num_row_groups):
            row_group = metadata.row_group(group)
            for index in range(metadata.num_columns):
                chunk = row_group.column(index)
                # Chunks that overlap would let a small file take hours.
                chunk_bytes += chunk.total_compressed_size
                if chunk_bytes > path.stat().st_size:
                    raise ValueError("The columns have more bytes than the file.")
                column_pages = read_column_pages(stream, chunk)
                values = max(column_pages.values, chunk.num_values)
                size = max(column_pages.size, chunk.total_uncompressed_size)
                pages[group, index] = replace(column_pages, size=size, values=values)
    return pages


def _unpack_texts(path: Path, metadata: Any, pages: _Pages) -> Iterator[int]:
    """Yield the bytes of texts that are stored once or by what differs, a few rows at a time."""
    with open_parquet(path) as file:
        for (group, index), column_pages in pages.items():
            column = metadata.schema.column(index)
            if not column_pages.has_shared_prefixes:
                continue
            # One row may hold any number of texts, each as long as a page.
            if column.max_repetition_level > 0:
                yield column_pages.values * column_pages.largest_page
                continue

            batches = file.iter_batches(
                column_pages.rows_at_once, row_groups=[group], columns=[column.path]
            )
            for batch in batches:
                yield sum(_unpacked_size(array) for array in batch.columns)

    # pyarrow reads only these as dictionaries, without a copy of each text.
    columns_of_group: dict[int, list[str]] = {}
    for (group, index), column_pages in pages.items():
        if not column_pages.has_shared_prefixes:
            columns_of_group.setdefault(group, []).append(metadata.schema.column(index).path)
    all_columns = sorted({name for names in columns_of_group.values() for name in names})

    with open_parquet(path, dictionary_columns=all_columns) as file:
        for group, columns in columns_of_group.items():
            for column in file.read_row_group(group, columns=columns).columns:
                yield sum(_unpacked_size(chunk) for chunk in column.chunks)


def _unpacked_size(array: Any) -> int:
    """Return the bytes of an array when each text in it is stored as often as it is used."""
    from pyarrow import compute, types

    if types.is_dictionary(array.type):
        lengths = compute.binary_length(array.dictionary).cast("int64")
        return int(compute.sum(lengths.take(array.indices)).as_py() or 0)
    if types.is_struct(array.type):
        return sum(_unpacked_size(field) for field in array.flatten())
    if types.is_map(array.type):
        return _unpacked_size(array.keys) + _unpacked_size(array.items)
    if is_list_type(array.type):
        return _unpacked_size(array.flatten())
    return int(array.nbytes)


@contextmanager
def open_parquet(path: Path, *, dictionary_columns: Sequence[str] = ()) -> Iterator[Any]:
    """Open a Parquet file as a ``pyarrow.parquet.ParquetFile`` for the length of the block.

    Args:
        path: the file.
        dictionary_columns: columns of texts that are read as dictionaries of their values.

    Raises:
        MissingExtraError: if pyarrow is not installed.
        FileError: if opening the file, or anything else in the block, fails.
    """
    try:
        from pyarrow import parquet
    except ImportError:
        raise MissingExtraError(
            "Reading Parquet needs pyarrow: pip install 'teeter[parquet]'."
        ) from None

    with (
        parse_errors(path, "Parquet file"),
        parquet.ParquetFile(path, read_dictionary=list(dictionary_columns)) as file,
    ):
        yield file


def is_list_type(arrow_type: Any) -> bool:
    """Return whether a pyarrow type is a list of any kind, or a tensor of fixed shape."""
    from pyarrow import types

    # An extension type, such as a tensor of fixed shape, wraps the type that is stored.
    arrow_type = getattr(arrow_type, "storage_type", arrow_type)
    return bool(
        types.is_list(arrow_type)
        or types.is_large_list(arrow_type)
        or types.is_fixed_size_list(arrow_type)
    )


_FORMULA_STARTS = (
    *("=", "+", "-", "@"),
    *("\uff1d", "\uff0b", "\uff0d", "\uff20"),  # the same in full width, for Japanese Excel
    *("\t", "\r", "\n"),  # skipped by spreadsheet programs, which then see what follows
)

# A leading zero or plus means that the digits are a postcode, a phone number or another name. So do
# more than 15 digits, which the numbers of many programs cannot hold.
_NUMBER = re.compile(r"-?((0|[1-9][0-9]{0,14})(\.[0-9]+)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")


def is_number(text: str) -> bool:
    """Return whether a text is a decimal number, without a plus or zeros before it.

    Example:
        >>> [is_number(text) for text in ("-1.50", "2e-5", ".5", "007", "+1", "-", "-1+1")]
        [True, True, True, False, False, False, False]
    """
    return _NUMBER.fullmatch(text) is not None


def escape_formula(text: str) -> str:
    """Put an apostrophe before a text that a spreadsheet program would run as a formula.

    Example:
        >>> escape_formula("=1+1"), escape_formula("-5"), escape_formula("a = b")
        ("'=1+1", '-5', 'a = b')
    """
    if text.startswith(_FORMULA_STARTS) and not is_number(text):
        return f"'{text}"
    return text


JSONL_SUFFIXES = (".jsonl", ".ndjson")

# Possessive quantifiers (++ and *+) keep the memory constant on strings of any length.
_JSON_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\Z)', re.DOTALL)


def read_json_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a JSONL file with their line numbers. Blank lines are skipped."""
    is_blank = True
    try:
        with path.open(encoding="utf-8-sig") as stream:
            number = 0
            # One character more than allowed shows that there is more. Unlike str.splitlines,
            # readline leaves line separators inside texts alone.
            while line := stream.readline(MAX_LINE_LENGTH + 1):
                number += 1
                if len(line) > MAX_LINE_LENGTH:
                    raise _json_length_error(path, number, _find_long_field(line))
                if not line.strip():
                    continue

                is_blank = False
                yield number, _parse_object(line, number, path)
    except UnicodeDecodeError:
        raise FileError(f"{path} is not UTF-8 text: save it as UTF-8.") from None
    except OSError as error:
        raise FileError(f"Cannot read {path}: {error.strerror}.") from None

    if is_blank:
        raise FileError(f"{path} has only blank lines.")


def _parse_object(line: str, number: int, path: Path) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise FileError(f"Line {number} of {path} is not a JSON object.")

    for name, value in fields.items():
        if isinstance(value, str) and len(value) > MAX_CELL_LENGTH:
            raise _json_length_error(path, number, name)
    return fields


def _find_long_field(line: str) -> str | None:
    """Return the name of the field that is too long in the beginning of a JSON object."""
    previous = ""
    for match in _JSON_STRING.finditer(line):
        if match.end() - match.start() > MAX_CELL_LENGTH:
            return previous.strip('"') or None
        previous = match.group()

    return None


def _json_length_error(path: Path, line: int, field_name: str | None) -> FileError:
    if field_name is None:
        return FileError(
            f"Line {line} of {path} has more than {MAX_LINE_LENGTH:,} characters: shorten it, or "
            "remove it."
        )

    return FileError(
        f"The field {field_name!r} in line {line} of {path} has more than {MAX_CELL_LENGTH:,} "
        "characters: shorten it, or remove the line."
    )
