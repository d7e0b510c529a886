"""Tables from ARFF files, dense or sparse, as OpenML publishes them."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from math import nan
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np

from teeter.datasets.file_checks import parse_errors
from teeter.datasets.table_files import Column, Table
from teeter.errors import FileError

__all__ = ["read_arff"]

_QUOTED = r"""'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)\""""
_ATTRIBUTE = re.compile(rf"@attribute\s+(?:{_QUOTED}|([^\s{{]+))\s*(.*)", flags=re.IGNORECASE)
_FIELD = re.compile(rf"\s*(?:{_QUOTED}|([^,'\"]*?))\s*(,|$)")
_SPARSE = re.compile(rf"(\d+)\s+(?:{_QUOTED}|([^,'\"\s]+))")
_NOT_PLAIN = re.compile(r"""\\|\s,|,\s|'.*"|".*'""")
"""What the csv module, which is faster, reads otherwise: escapes, spaces beside commas, two kinds of quotes."""
_NUMBERS = ("numeric", "real", "integer")


class _Attribute(NamedTuple):
    name: str
    values: tuple[str, ...] | None
    """The values that a nominal attribute may have."""
    is_number: bool

    @property
    def absent(self) -> str:
        """What a sparse row means that does not mention it."""
        return self.values[0] if self.values else "0"


def read_arff(path: Path, *, rows: int | None = None) -> Table:
    """Return the attributes as columns, numbers as (N,) float64 and others as texts; at most the first ``rows``."""
    with parse_errors(path, "ARFF"), path.open(encoding="utf-8", errors="replace") as stream:
        attributes = _header(stream, path)
        records = list(islice(_records(stream, attributes, path), rows))
        if not records:
            raise FileError(f"{path} has {len(attributes)} attributes and no rows.")
        columns = zip(*records, strict=True)
        return Table(
            path,
            {one.name: _column(one, texts) for one, texts in zip(attributes, columns, strict=True)},
        )


def _header(stream: TextIO, path: Path) -> list[_Attribute]:
    attributes = []
    for line in map(str.strip, stream):
        word = line.split(maxsplit=1)[0].lower() if line else ""
        if word == "@data":
            break
        if word == "@attribute":
            attributes.append(_attribute(line, path))
        elif word and not word.startswith(("%", "@relation")):
            raise FileError(f"{path} is not an ARFF file: {line[:40]!r} stands before @data.")
    else:
        raise FileError(f"{path} is not a whole ARFF file: it has no @data.")
    if len({one.name for one in attributes}) != len(attributes) or not attributes:
        raise FileError(
            f"{path} has {len(attributes)} attributes: at least one is needed, and names must differ."
        )
    return attributes


def _attribute(line: str, path: Path) -> _Attribute:
    match = _ATTRIBUTE.fullmatch(line)
    if match is None:
        raise FileError(f"{path} has an attribute that cannot be read: {line[:60]!r}.")
    single, double, bare, kind = match.groups()
    name = _plain(single if single is not None else double) if bare is None else bare
    if kind.startswith("{"):
        return _Attribute(name, tuple(_fields(kind.strip("{} "), line, path)), is_number=False)
    return _Attribute(
        name, None, is_number=kind.split()[:1] != [] and kind.split()[0].lower() in _NUMBERS
    )


def _records(stream: TextIO, attributes: list[_Attribute], path: Path) -> Iterator[list[str]]:
    for row, line in enumerate(
        (line for line in map(str.strip, stream) if line and line[0] != "%"), start=1
    ):
        where = f"Row {row}"
        fields = _sparse(line, attributes, path) if line[0] == "{" else _fields(line, where, path)
        if len(fields) == len(attributes) + 1 and not fields[-1]:
            fields.pop()  # MOA, which made RandomRBF, ends its rows by a comma
        if len(fields) != len(attributes):
            raise FileError(
                f"{where} of {path} has {len(fields)} fields and {len(attributes)} are named: it is cut short or "
                "damaged."
            )
        yield fields


def _fields(line: str, where: str, path: Path) -> list[str]:
    if "'" not in line and '"' not in line:
        return [field.strip() for field in line.split(",")]
    if _NOT_PLAIN.search(line) is None:
        with suppress(csv.Error):  # what it stumbles over is looked at more closely below
            return next(csv.reader([line], quotechar="'" if "'" in line else '"', strict=True))
    fields, place, more = [], 0, ","
    while more:
        match = _FIELD.match(line, place)
        if match is None:
            raise FileError(f"{where} of {path} cannot be read: check its quotes.")
        single, double, bare, more = match.groups()
        fields.append(_plain(single if single is not None else double) if bare is None else bare)
        place = match.end()
    return fields


def _sparse(line: str, attributes: list[_Attribute], path: Path) -> list[str]:
    """Return the fields of ``{place value, place value}``."""
    fields = [one.absent for one in attributes]
    inside = line.removeprefix("{").removesuffix("}").strip()
    if not line.endswith("}"):
        raise FileError(f"{path} has a sparse row without an end: {line[:60]!r}.")
    for place, single, double, bare in _SPARSE.findall(inside):
        fields[int(place)] = bare or _plain(single or double)
    return fields


def _plain(quoted: str) -> str:
    return re.sub(r"\\(.)", r"\1", quoted)


def _column(attribute: _Attribute, texts: tuple[str, ...]) -> Column:
    if attribute.is_number:
        return np.array([nan if text == "?" else float(text) for text in texts])
    column = np.empty(len(texts), dtype=object)
    column[:] = texts
    return column
