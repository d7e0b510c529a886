"""Read tables from CSV, Parquet and spreadsheet files and from data frames, and objects from JSON.

A table is named columns of NumPy arrays. A data frame of pandas, polars, pyarrow, DuckDB or Hugging
Face datasets is read like a Parquet file, a spreadsheet like a CSV file.

``escape_formula`` is for CSV files that are written: people open them in a spreadsheet program,
which runs some cells.
"""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO, TypeAlias

import numpy as np
import numpy.typing as npt

from teeter.base.files import parse_errors, require_file, require_unpacked_size
from teeter.base.registry import require_known
from teeter.base.wording import pluralize
from teeter.data.parquet_pages import ColumnPages, read_column_pages
from teeter.data.workbooks import WORKBOOK_SUFFIXES, Sheet, format_number, open_sheet, split_sheet
from teeter.errors import FileError, InputError, MissingExtraError

__all__ = [
    "JSONL_SUFFIXES",
    "JSON_SUFFIXES",
    "MAX_CELL_LENGTH",
    "MAX_LINE_LENGTH",
    "TABLE_SUFFIXES",
    "Column",
    "CsvRows",
    "OpenCells",
    "Table",
    "arrow_table_of",
    "convert_arrow_table",
    "convert_csv_rows",
    "escape_formula",
    "find_encoding",
    "frame_of",
    "is_list_type",
    "is_missing",
    "is_number",
    "iterate_json_objects",
    "make_frame",
    "open_cells",
    "open_parquet",
    "read_arrow_table",
    "read_cells",
    "read_json_objects",
    "read_parquet",
    "read_table",
    "refuse_frame",
    "require_ids",
    "require_parquet_size",
    "text_column",
]

TABLE_SUFFIXES = (".csv", ".tsv", ".txt", ".parquet", *WORKBOOK_SUFFIXES)
"""The suffixes of files that ``read_table`` reads."""

_MISSING_VALUES = frozenset({"", "na", "nan", "null", "none", "n/a"})

MAX_CELL_LENGTH = 10_000_000
"""Characters that a cell may have. A longer one is refused before the file is read any further.

It is far above any document, and far below what fills the memory: a cell without an end is often a
quote that was never closed.
"""

_ENCODING_SAMPLE = 50_000
"""Bytes or characters that are read at a time to find out the encoding of a file."""

_REPLACED = "\ufffd"
"""What stands in a text for bytes that could not be decoded."""

_LETTERS = re.compile(r"[^\x00-\x7f\ufffd]+")
"""Characters that UTF-8 has in two bytes or more."""

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
    blank: tuple[int, ...] = ()
    """The lines of rows that were left out because all their cells are blank."""
    encoding: str = "utf-8-sig"
    """How the text of the file was decoded."""

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

        return [format_number(value) for value in values]

    def ids(self, name: str, rows: Sequence[int] | None = None) -> list[str]:
        """Return a column of ids as texts, of all rows or of some.

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
        texts = self.texts(name)
        numbers: Sequence[int] = range(len(texts))
        if rows is not None:
            numbers = rows
        ids = [texts[row] for row in numbers]
        return require_ids(ids, source, lambda position: self.place(numbers[position]))


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
    """Read a CSV file (separated by commas, semicolons or tabs), a Parquet file or a spreadsheet.

    Raises:
        FileError: if the file cannot be read or has no usable column.
        MissingExtraError: if it needs a package that is not installed.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "pool.csv"
        ...     _ = path.write_text("id,size\\na,1\\nb,2\\n")
        ...     read_table(path).texts("size")
        ['1', '2']
    """
    file, _ = split_sheet(Path(path))
    require_file(file, TABLE_SUFFIXES, "a table")
    if file.suffix.lower() == ".parquet":
        return convert_arrow_table(read_arrow_table(file), file)
    return convert_csv_rows(read_cells(Path(path)), file)


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
    blank: tuple[int, ...] = ()
    """The lines of rows that were left out because all their cells are blank."""
    encoding: str = "utf-8-sig"
    """How the text of the file was decoded."""


@dataclass(frozen=True)
class OpenCells:
    """A CSV file or a sheet of a spreadsheet that is being read."""

    names: list[str]
    """The names of the columns, which may be empty."""
    rows: Iterator[tuple[int, list[str]]]
    """The line on which a row begins, and its cells; no cells if all are blank."""
    delimiter: str = ","
    encoding: str = "utf-8-sig"
    """How the text of the file was decoded."""
    sheets: tuple[str, ...] = ()
    """The sheets with any cells, first the one that is read."""


@contextmanager
def open_cells(path: Path) -> Iterator[OpenCells]:
    """Open a CSV file or a spreadsheet to read it row by row, for the length of the block.

    Args:
        path: the file. ``book.xlsx#Sheet`` names a sheet; by default it is the first with cells.

    Raises:
        FileError: if the file cannot be read.
        MissingExtraError: if it is a spreadsheet and python-calamine is not installed.
    """
    file, sheet_name = split_sheet(path)
    if file.suffix.lower() in WORKBOOK_SUFFIXES:
        with open_sheet(file, sheet_name) as sheet:
            rows = _sheet_rows(sheet, file)
            _, names = next(rows, (1, []))
            _require_names(names, path)
            yield OpenCells(names, rows, sheets=(sheet.name, *sheet.others))
        return

    try:
        encoding = find_encoding(path)
        with path.open(encoding=encoding, newline="") as stream:
            # A quoted name may hold any of the delimiters.
            header = re.sub(r'"[^"]*"', "", _read_header(stream))
            delimiter = max(",;\t", key=header.count)
            stream.seek(0)
            rows = _csv_rows(stream, path, delimiter)
            _, names = next(rows, (1, []))
            _require_names(names, path)
            yield OpenCells(names, rows, delimiter, encoding)
    except UnicodeError:
        raise FileError(
            f"{path} is not UTF-8, UTF-16 or Windows-1252 text: save it as UTF-8."
        ) from None
    except OSError as error:
        raise FileError(f"Cannot read {path}: {error.strerror}.") from None


def read_cells(path: Path) -> CsvRows:
    """Read the cells of a CSV file, or of a sheet of a spreadsheet, as they are.

    Args:
        path: the file. ``book.xlsx#Sheet`` names one of several sheets.

    Raises:
        FileError: if the file cannot be read, or has no rows.
        InputError: if it has several sheets and none is named.
        MissingExtraError: if it is a spreadsheet and python-calamine is not installed.
    """
    rows = []
    lines = []
    blank = []
    with open_cells(path) as cells:
        _, sheet = split_sheet(path)
        if len(cells.sheets) > 1 and sheet is None:
            raise InputError(
                f"{path} has the sheets {', '.join(cells.sheets)}: choose one, as in "
                f"'{path}#{cells.sheets[0]}'."
            )
        for line, fields in cells.rows:
            if fields:
                rows.append(fields)
                lines.append(line)
            else:
                blank.append(line)
    if not rows:
        raise FileError(f"{path} has a header ({', '.join(cells.names)}) and no rows.")

    unnamed = []
    for k, name in enumerate(cells.names):
        if not name and any(row[k] for row in rows):
            unnamed.append(k)
    # The first column may be the index that pandas writes. Others are often below a title.
    is_below_title = bool(cells.sheets) and unnamed not in ([], [0])
    if len(unnamed) > 1 or is_below_title:
        raise FileError(
            f"{pluralize(len(unnamed), 'column')} of {path} with values have no name: name each in "
            "the first row that is not blank."
        )
    return CsvRows(
        cells.names, rows, tuple(lines), cells.delimiter, tuple(blank), encoding=cells.encoding
    )


def find_encoding(path: Path) -> str:
    """Return the encoding of a text: UTF-8, UTF-16, or else the code page of Windows.

    Raises:
        FileError: if most of the text is UTF-8, but not all of it.
        UnicodeError: if it is none of them.
    """
    with path.open("rb") as stream:
        start = stream.read(_ENCODING_SAMPLE)
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    # Without a byte order mark: half of the bytes of Latin letters are zero.
    enough_zeros = len(start) / 4
    if start[1::2].count(0) > enough_zeros:
        return "utf-16-le"
    if start[::2].count(0) > enough_zeros:
        return "utf-16-be"

    # Excel writes a byte order mark in UTF-8 too, which utf-8-sig skips. In Windows-1252 nearly any
    # bytes are text, so it comes last.
    try:
        with path.open(encoding="utf-8-sig") as text:
            while text.read(_ENCODING_SAMPLE):
                pass
    except UnicodeError:
        if 0 in start:
            raise
        _refuse_damaged_utf8(path)
        return "cp1252"
    return "utf-8-sig"


def _refuse_damaged_utf8(path: Path) -> None:
    """Refuse a text in UTF-8 with a few wrong bytes, whose letters would all be read wrongly.

    Windows-1252 hardly ever has two letters in a row that are one in UTF-8.
    """
    lines = wrong = right = 0
    first_line = 0
    with path.open(encoding="utf-8", errors="replace") as text:
        while part := text.read(_ENCODING_SAMPLE):
            before, mark, _ = part.partition(_REPLACED)
            if mark and not wrong:
                first_line = 1 + lines + before.count("\n")
            lines += part.count("\n")
            wrong += part.count(_REPLACED)
            right += sum(map(len, _LETTERS.findall(part)))
    if right > wrong:
        raise FileError(
            f"{path} is UTF-8 text, but for {pluralize(wrong, 'character')}, the first in line "
            f"{first_line}: correct it, and save it as UTF-8."
        )


def _sheet_rows(sheet: Sheet, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the names and the rows of a sheet; see ``OpenCells``."""
    has_names = False
    for number, cells in enumerate(sheet.rows, start=1):
        is_blank = not any(cell.strip() for cell in cells)
        if has_names and is_blank:
            yield number, []
        elif has_names:
            yield number, cells
        elif not is_blank:  # Blank rows may stand before the header.
            if number - 1 in sheet.merged_rows:
                raise FileError(
                    f"The header of {path} has cells over several columns: take merged cells "
                    "apart, and name each column."
                )
            has_names = True
            yield number, [cell.strip() for cell in cells]


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
            values = tuple(value.replace(",", ".") for value in values)
        columns[name] = text_column(values)

    return Table(path, columns, lines=content.lines, blank=content.blank, encoding=content.encoding)


def _csv_rows(stream: TextIO, path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the names and the rows of a CSV file; see ``OpenCells``."""
    # The csv module's own limit of 128 KiB is too short for long documents.
    csv.field_size_limit(MAX_CELL_LENGTH)

    lines_of_row: list[str] = []
    first_line_of_row = 1
    reader = csv.reader(_read_lines(stream, lines_of_row), delimiter=delimiter, strict=True)
    names: list[str] = []

    try:
        for fields in reader:
            is_blank = not any(field.strip() for field in fields)
            if not names:
                # Blank lines before the header have no fields. Excel writes the separator.
                if fields and fields != ["sep=", ""]:
                    names = fields
                    yield first_line_of_row, [name.strip() for name in names]
            elif len(fields) == len(names):
                yield first_line_of_row, fields
            elif is_blank and fields:
                # Only separators, but not as many as the header has.
                yield first_line_of_row, []
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


def refuse_frame(values: Any) -> None:
    """Raise InputError for a data frame of any library, which would be read as its column names.

    A single column is refused too: its index, which often holds the ids, would be lost.
    """
    type_name = type(values).__name__
    if hasattr(values, "collect"):
        raise InputError(f"Cannot read a {type_name}: collect() its rows first.")
    if isinstance(values, Mapping) and hasattr(values, "num_rows"):
        raise InputError(
            f"Cannot read a {type_name}: choose one of its splits ({', '.join(values)})."
        )
    if hasattr(values, "with_format") and not hasattr(values, "num_rows"):
        raise InputError(f"Cannot read a {type_name}, whose rows come one by one: load it whole.")
    if hasattr(values, "columns"):
        raise InputError(
            f"Cannot read a {type_name}: give a list of dictionaries, one per row. In pandas, this "
            "is frame.to_dict('records')."
        )
    if hasattr(values, "to_frame"):
        raise InputError(
            f"Cannot read a {type_name}: give a list of its values. In pandas, this is "
            "series.tolist()."
        )


def arrow_table_of(value: Any) -> Any | None:
    """Return a data frame as a ``pyarrow.Table``; None for anything else.

    Labels of Hugging Face datasets, which are numbers with names, become their names.

    Raises:
        InputError: if it is a single column, or a frame that cannot be read: see ``refuse_frame``.
        MissingExtraError: if pyarrow is not installed.
    """
    is_dataset = all(hasattr(value, name) for name in ("with_format", "features", "num_rows"))
    is_frame = False
    # In this order: polars warns about the columns of a frame that is not collected yet.
    if hasattr(value, "__arrow_c_stream__"):
        is_frame = any(hasattr(value, name) for name in ("columns", "column_names", "schema"))
    if not is_dataset and not is_frame:
        refuse_frame(value)
        return None

    try:
        import pyarrow
    except ImportError:
        raise MissingExtraError(
            "Reading data frames needs pyarrow: pip install 'teeter[label]'."
        ) from None
    if is_dataset:
        # With the rows that were selected, in their order.
        table = value.with_format("arrow")[:]
        for position, name in enumerate(table.column_names):
            names = getattr(value.features[name], "names", None)
            if names is not None:
                # Rows without a label have none, or -1.
                name_of = dict(enumerate(names))
                numbers = table[name].to_pylist()
                labels = pyarrow.array([name_of.get(number) for number in numbers], "string")
                table = table.set_column(position, name, labels)
    elif type(value).__module__.startswith("polars"):
        import polars

        # Without views of texts, which pyarrow can hardly write inside of lists.
        table = value.to_arrow(compat_level=polars.CompatLevel.oldest())
        table = table.replace_schema_metadata({"polars": ""})
    else:
        try:
            table = pyarrow.table(value)
        except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as error:
            raise InputError(
                f"A column of the data frame has values of several types: {error.args[-1]}."
            ) from None
        # Two columns of one name, lone surrogates, and types that Arrow does not have.
        except (ValueError, pyarrow.ArrowNotImplementedError) as error:
            raise InputError(f"The data frame cannot be read: {error.args[-1]}.") from None

    _require_names(table.column_names, Path("the data frame"))
    if not table.num_rows:
        raise InputError("The data frame has no rows.")
    try:
        size = table.num_rows * _FRAME_BYTES_PER_ROW + table.nbytes
        require_unpacked_size("The data frame", size)
    except FileError as error:
        problem, _, _ = str(error).partition(":")
        raise InputError(f"{problem}: add a part of its rows at a time.") from None
    # Views of texts are a type of their own.
    for position, field in enumerate(table.schema):
        if str(field.type) == "string_view":
            strings = table[field.name].cast("string")
            table = table.set_column(position, field.name, strings)
    return table


_FRAME_BYTES_PER_ROW = 1000
"""What a row of a data frame takes in memory as an item, at least."""

_FRAMES = ("pandas", "polars")


def frame_of(table: Any, kind: str | None = None) -> Any:
    """Return a ``pyarrow.Table`` as a data frame with the same values.

    Args:
        table: the table.
        kind: pandas or polars. By default the library that the table came from, if it is
            installed, or else the first one that is.

    Raises:
        MissingExtraError: if the library is not installed, or none is.
    """
    came_from_polars = b"polars" in (table.schema.metadata or {})
    if _choose_frame_library(kind, prefer_polars=came_from_polars) == "polars":
        import polars

        return polars.from_arrow(table)

    import pandas
    from pyarrow import types

    frame = table.to_pandas()
    for name in set(table.column_names) & set(frame.columns):
        column = table[name]
        # pandas would make floats of integers if one is missing, and arrays of lists.
        has_missing = str(column.type) == "int64" and column.null_count
        if has_missing and frame[name].dtype.kind == "f":
            # As an array: a series would be aligned with the index of the frame.
            integers = column.to_pandas(types_mapper={column.type: pandas.Int64Dtype()}.get)
            frame[name] = integers.array
        elif types.is_nested(column.type):
            frame[name] = pandas.Series(column.to_pylist(), frame.index, dtype=object)
    return frame


def make_frame(columns: Mapping[str, Sequence[Any]], kind: str | None = None) -> Any:
    """Return columns as a data frame. Missing numbers are None.

    Args:
        columns: the values by column, equally many each.
        kind: pandas or polars. By default the first one that is installed.

    Raises:
        MissingExtraError: if the library is not installed, or none is.
    """
    if _choose_frame_library(kind) == "polars":
        import polars

        return polars.DataFrame(dict(columns), strict=False)

    import pandas

    return pandas.DataFrame(dict(columns))


def _choose_frame_library(kind: str | None, *, prefer_polars: bool = False) -> str:
    """Return the library of a data frame: the one asked for, or the first that is installed."""
    kinds = list(_FRAMES)
    if kind is not None:
        require_known("kind of data frame", kind, _FRAMES)
        kinds = [kind]
    elif prefer_polars:
        kinds.reverse()

    installed = [name for name in kinds if find_spec(name) is not None]
    if not installed:
        raise MissingExtraError(f"A data frame needs {' or '.join(kinds)}: pip install {kinds[0]}.")
    return installed[0]


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

    lengths = compute.list_value_length(column)
    limits = compute.min_max(lengths).as_py()
    shortest = limits["min"]
    longest = limits["max"]
    if shortest != longest or longest == 0:
        return None

    values: Column = compute.list_flatten(column).to_numpy()
    return values.reshape(len(column), -1)


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
    repeated = {}
    for (group, index), column_pages in pages.items():
        is_text = metadata.schema.column(index).physical_type == "BYTE_ARRAY"
        if is_text and (column_pages.has_dictionary or column_pages.has_shared_prefixes):
            repeated[group, index] = column_pages
            counted = column_pages.size - column_pages.values * _BYTES_PER_VALUE
            text_size -= max(counted, 0)
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
            column_path = metadata.schema.column(index).path
            columns_of_group.setdefault(group, []).append(column_path)
    all_columns = sorted({name for names in columns_of_group.values() for name in names})

    with open_parquet(path, dictionary_columns=all_columns) as file:
        for group, columns in columns_of_group.items():
            for column in file.read_row_group(group, columns=columns).columns:
                yield sum(_unpacked_size(chunk) for chunk in column.chunks)


def _unpacked_size(array: Any) -> int:
    """Return the bytes of an array when each text in it is stored as often as it is used."""
    from pyarrow import compute, types

    if types.is_dictionary(array.type):
        length_of_text = compute.binary_length(array.dictionary).cast("int64")
        lengths = length_of_text.take(array.indices)
        return int(compute.sum(lengths).as_py() or 0)
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
"""The suffixes of files with a JSON object on each line."""

JSON_SUFFIXES = (*JSONL_SUFFIXES, ".json")
"""The suffixes of JSON files."""

# Possessive quantifiers (++ and *+) keep the memory constant on strings of any length.
_JSON_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\Z)', re.DOTALL)


def read_json_objects(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return all objects of a JSON file with their places; see ``iterate_json_objects``."""
    if path.suffix.lower() == ".json":
        with parse_errors(path, "JSON file"):
            require_unpacked_size(path, _JSON_EXPANSION * path.stat().st_size)
    return list(iterate_json_objects(path))


def iterate_json_objects(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a JSON file with their places: ``line 3``, or ``entry 3`` of a list.

    Objects stand on a line each, or in one list in a file that ends in .json. Blank lines are
    skipped.
    """
    if path.suffix.lower() == ".json" and not _has_json_lines(path):
        yield from _read_json_list(path)
        return

    is_blank = True
    try:
        with path.open(encoding="utf-8-sig") as stream:
            number = 0
            # One character more than allowed shows that there is more. Unlike str.splitlines,
            # readline leaves line separators inside texts alone.
            while line := stream.readline(MAX_LINE_LENGTH + 1):
                number += 1
                if len(line) > MAX_LINE_LENGTH:
                    raise _json_length_error(path, f"line {number}", _find_long_field(line))
                if not line.strip():
                    continue

                is_blank = False
                try:
                    value = json.loads(line)
                except (ValueError, RecursionError):
                    value = None
                yield f"line {number}", _require_object(value, f"line {number}", path)
    except UnicodeDecodeError:
        raise FileError(f"{path} is not UTF-8 text: save it as UTF-8.") from None
    except OSError as error:
        raise FileError(f"Cannot read {path}: {error.strerror}.") from None

    if is_blank:
        raise FileError(f"{path} has only blank lines.")


_JSON_EXPANSION = 8
"""How many times the size of a JSON file its objects take in memory, about."""

_JSON_CHUNK = 1_000_000
"""Characters of a list that are read at a time, at least."""

_JSON_SPACE = re.compile(r"[ \t\r\n]*")


def _has_json_lines(path: Path) -> bool:
    """Return whether the first line of a file is an object, and others follow."""
    with parse_errors(path, "JSON file"), path.open(encoding="utf-8-sig") as stream:
        try:
            is_object = isinstance(json.loads(_read_header(stream)), dict)
        except (ValueError, RecursionError):
            return False
        return is_object and _read_header(stream) != ""


def _read_json_list(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a file that is one list. A part of the file at a time is in memory."""
    decoder = json.JSONDecoder()
    text = ""
    position = 0
    line = 1
    number = 0
    with parse_errors(path, "JSON file"), path.open(encoding="utf-8-sig") as stream:
        while True:
            start = _skip_space(text, position)
            mark = text[start : start + 1]
            message = "Expecting ',' or ']'"
            end = start
            if number and mark == "]":
                break
            if mark == ("," if number else "["):
                begin = _skip_space(text, start + 1)
                try:
                    value, position = decoder.raw_decode(text, begin)
                except json.JSONDecodeError as error:
                    message = error.msg
                    end = error.pos
                else:
                    number += 1
                    place = f"entry {number}"
                    yield place, _require_object(value, place, path)
                    continue

            # The entry may go on in what was not read yet. Twice as much each time, so that a long
            # one is not searched too often.
            line += text.count("\n", 0, position)
            rest = text[position:]
            more = ""
            if len(rest) <= MAX_LINE_LENGTH:
                more = stream.read(max(_JSON_CHUNK, len(rest)))
            if not more:
                # The error counts lines, which takes long for each entry.
                problem = json.JSONDecodeError(message, rest, end - position)
                raise _json_list_error(path, number, problem, line)
            text = rest + more
            position = 0

        rest = text[start + 1 :] + stream.read(_JSON_CHUNK)
        if rest.strip():
            raise FileError(f"{path} goes on after its list: put all objects into one list.")


def _skip_space(text: str, position: int) -> int:
    space = _JSON_SPACE.match(text, position)
    if space is None:
        return position
    return space.end()


def _json_list_error(
    path: Path, number: int, problem: json.JSONDecodeError, line: int
) -> FileError:
    """Return the error for a file that is no list, or whose next entry cannot be read."""
    text = problem.doc.strip()
    if number == 0 and not text.startswith("["):
        return FileError(f"{path} is not a list of objects: put its objects into [ ].")
    if number == 0 and text[1:].lstrip().startswith("]"):
        return FileError(f"{path} is an empty list.")
    if len(problem.doc) > MAX_LINE_LENGTH:
        field = _find_long_field(problem.doc)
        return _json_length_error(path, f"entry {number + 1}", field)
    line += problem.doc.count("\n", 0, problem.pos)
    return FileError(f"Line {line} of {path} is no JSON ({problem.msg}): check what is before it.")


def _require_object(value: Any, place: str, path: Path) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FileError(f"{place.capitalize()} of {path} is not a JSON object.")

    for name, field in value.items():
        if isinstance(field, str) and len(field) > MAX_CELL_LENGTH:
            raise _json_length_error(path, place, name)
    return value


def _find_long_field(line: str) -> str | None:
    """Return the name of the field that is too long in the beginning of a JSON object."""
    previous = ""
    for match in _JSON_STRING.finditer(line):
        if match.end() - match.start() > MAX_CELL_LENGTH:
            return previous.strip('"') or None
        previous = match.group()

    return None


def _json_length_error(path: Path, place: str, field_name: str | None) -> FileError:
    if field_name is None:
        return FileError(
            f"{place.capitalize()} of {path} has more than {MAX_LINE_LENGTH:,} characters: "
            "shorten it, or remove it."
        )

    return FileError(
        f"The field {field_name!r} in {place} of {path} has more than {MAX_CELL_LENGTH:,} "
        "characters: shorten it, or remove the line."
    )
