"""What the pages of a Parquet file take in memory, from the header before each page.

The footer states the same, but nothing checks it: a footer of a stranger may state a thousand bytes
for a page of gigabytes. A header cannot lie, because a reader allocates the size that it states and
fails if the page is larger. Headers are structures of Thrift's compact protocol, of which only the
few fields that are needed are read here; all others are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

__all__ = [
    "ColumnPages",
    "read_column_pages",
]

_PAGE_BYTES_AT_ONCE = 32_000_000
_MOST_ROWS_AT_ONCE = 4096
_MOST_NESTED = 16
"""Levels of structures in a header, of which valid ones have 3."""

_DICTIONARY_ENCODINGS = frozenset({2, 8})
_DELTA_BYTE_ARRAY = 7
"""Encodings as the format numbers them. Others hold each text as often as it is used."""


@dataclass(frozen=True)
class ColumnPages:
    """The pages of a column in one row group."""

    size: int
    """Their bytes without compression, of the dictionary too."""
    values: int
    largest_page: int
    """Bytes without compression. No text of the column is longer."""
    encodings: frozenset[int]
    """Those of the pages of values."""

    @property
    def has_dictionary(self) -> bool:
        """Whether a text that is repeated may be stored once."""
        return bool(self.encodings & _DICTIONARY_ENCODINGS)

    @property
    def has_shared_prefixes(self) -> bool:
        """Whether a text may be stored as what differs from the text before it."""
        return _DELTA_BYTE_ARRAY in self.encodings

    @property
    def rows_at_once(self) -> int:
        """The number of rows with one text each to read at once, so that they take little."""
        rows = _PAGE_BYTES_AT_ONCE // max(self.largest_page, 1)
        return min(max(rows, 1), _MOST_ROWS_AT_ONCE)


def read_column_pages(stream: BinaryIO, chunk: Any) -> ColumnPages:
    """Read the headers of the pages of a column chunk, up to the last one that a reader needs.

    Args:
        stream: the file.
        chunk: a ``pyarrow.parquet.ColumnChunkMetaData``.

    Raises:
        ValueError: if a header is damaged, or the file ends in one.
    """
    position = chunk.data_page_offset
    dictionary_offset = chunk.dictionary_page_offset
    if dictionary_offset is not None and 0 < dictionary_offset < position:
        position = dictionary_offset
    end = position + chunk.total_compressed_size

    size = 0
    values = 0
    largest_page = 0
    encodings = set()
    while values < chunk.num_values and position < end:
        stream.seek(position)
        header = dict(_read_struct(stream))
        page_size = _size_field(header, 2)
        # A page of values is of the first or of the second version.
        page = header.get(5) or header.get(8)
        if isinstance(page, dict):
            values += _size_field(page, 1)
            encoding_field = 2 if 5 in header else 4
            encodings.add(_size_field(page, encoding_field))

        size += page_size
        largest_page = max(largest_page, page_size)
        position = stream.tell() + _size_field(header, 3)

    return ColumnPages(size, values, largest_page, frozenset(encodings))


def _size_field(fields: dict[int, Any], number: int) -> int:
    value = fields.get(number)
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"The field {number} of the header of a page is {value}.")
    return value


def _read_struct(stream: BinaryIO, depth: int = 0) -> Iterator[tuple[int, Any]]:
    """Yield the number and the value of each field: whole numbers, structures, None for others."""
    if depth > _MOST_NESTED:
        raise ValueError("The header of a page has too many levels.")

    number = 0
    while True:
        byte = _read_byte(stream)
        kind = byte & 0x0F
        if kind == _STOP:
            return
        # The high bits are the distance from the field before, or 0 if the number follows.
        distance = byte >> 4
        if distance:
            number += distance
        else:
            number = _read_signed(stream)
        yield number, _read_value(stream, kind, depth)


_STOP = 0
_TRUE = 1
_FALSE = 2
_BYTE = 3
_INTEGERS = (4, 5, 6)
_DOUBLE = 7
_BINARY = 8
_STRUCT = 12


def _read_value(stream: BinaryIO, kind: int, depth: int) -> Any:
    if kind in (_TRUE, _FALSE):
        return None
    if kind == _BYTE:
        _read_byte(stream)
        return None
    if kind in _INTEGERS:
        return _read_signed(stream)
    if kind == _DOUBLE:
        stream.seek(8, 1)
        return None
    if kind == _BINARY:
        # Statistics of texts: passed over, because they may be long.
        stream.seek(_read_unsigned(stream), 1)
        return None
    if kind == _STRUCT:
        return dict(_read_struct(stream, depth + 1))
    # No header of a page has a list or a map.
    raise ValueError(f"The header of a page has a field of the type {kind}.")


def _read_signed(stream: BinaryIO) -> int:
    value = _read_unsigned(stream)
    return (value >> 1) ^ -(value & 1)


def _read_unsigned(stream: BinaryIO) -> int:
    value = 0
    for shift in range(0, 70, 7):
        byte = _read_byte(stream)
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
    raise ValueError("A number in the header of a page is too long.")


def _read_byte(stream: BinaryIO) -> int:
    byte = stream.read(1)
    if not byte:
        raise ValueError("The file ends in the header of a page.")
    return byte[0]
