"""A table of 20 columns with everything that files may hold, for tests of imports and exports."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import parquet

MEGABYTE = "long cell, " * 95_000
"""A cell of more than a megabyte."""

_PLACE = pyarrow.struct([("zip", pyarrow.string()), ("at", pyarrow.timestamp("ns"))])

SCHEMA = pyarrow.schema(
    [
        ("id", pyarrow.string()),
        ("title", pyarrow.string()),
        ("text", pyarrow.large_string()),
        ("customer", pyarrow.dictionary(pyarrow.int8(), pyarrow.string())),
        ("sold", pyarrow.date32()),
        ("sold_ms", pyarrow.date64()),
        ("at", pyarrow.timestamp("ns")),
        ("at_zone", pyarrow.timestamp("us", tz="Europe/Vienna")),
        ("opens", pyarrow.time64("us")),
        ("lasted", pyarrow.duration("ms")),
        ("count", pyarrow.int32()),
        ("huge", pyarrow.uint64()),
        ("price", pyarrow.decimal128(12, 2)),
        ("share", pyarrow.float32()),
        ("is_new", pyarrow.bool_()),
        ("photo", pyarrow.binary()),
        ("tags", pyarrow.list_(pyarrow.string())),
        ("place", _PLACE),
        ("places", pyarrow.map_(pyarrow.string(), pyarrow.list_(_PLACE))),
        ("notes", pyarrow.string()),
    ]
)

_NS = 1_700_000_000_123_456_789


def wide_rows() -> list[dict[str, Any]]:
    """Return four rows as pyarrow takes them. The third is a duplicate of the first."""
    full: dict[str, Any] = {
        "id": "a",
        "title": "Größe ändern",
        "text": "The first text\nhas two lines, and a comma.",
        "customer": "ACME",
        "sold": date(2024, 2, 29),
        "sold_ms": date(1969, 12, 31),
        "at": _NS,
        "at_zone": datetime(2024, 3, 31, 1, 30, tzinfo=UTC),
        "opens": time(8, 30, 0, 5),
        "lasted": timedelta(seconds=1, milliseconds=5),
        "count": -5,
        "huge": 2**64 - 1,
        "price": Decimal("-12.30"),
        "share": 0.25,
        "is_new": True,
        "photo": bytes(range(256)),
        "tags": ["=1+1", None, "日本語"],
        "place": {"zip": "01010", "at": _NS + 1},
        "places": [("home", [{"zip": None, "at": None}, None]), ("work", None)],
        "notes": "NUL \0 and 'quotes\" and 🙂",
    }

    empty = dict.fromkeys(full) | {"id": "b", "text": "The second text"}
    duplicate = full | {"id": "c", "customer": "Umbrella", "count": 7, "tags": [], "notes": ""}
    long = full | {"id": "d", "text": "The last text", "notes": MEGABYTE, "share": float("nan")}
    return [full, empty, duplicate, long]


def wide_table() -> pyarrow.Table:
    """Return the rows as an Arrow table of 20 columns, each of another type."""
    return pyarrow.Table.from_pylist(wide_rows(), SCHEMA)


def write_wide_parquet(path: Path) -> pyarrow.Table:
    """Write the table as a Parquet file, and return what a reader sees in it."""
    parquet.write_table(wide_table(), path)
    return parquet.read_table(path)


def wide_objects() -> list[dict[str, Any]]:
    """Return rows as JSON has them: some lack fields, and some fields have several types."""
    full: dict[str, Any] = {
        "id": "a",
        "title": "Größe ändern",
        "text": "The first text",
        "customer": {"name": "ACME", "zip": "01010", "tags": ["x", {"y": None}]},
        "sold": "2024-02-29",
        "at": "2024-02-29T10:00:00.123456789Z",
        "count": -5,
        "whole": 1.0,
        "huge": 2**80,
        "share": 0.1,
        "tiny": 5e-324,
        "is_new": True,
        "nothing": None,
        "tags": [],
        "object": {},
        "value": {"value": 1},
        "mixed": "text",
        "line": "one\u2028two\r\nthree",
        "surrogate": "\ud800",
        "notes": "NUL \0 and 🙂",
    }

    sparse = {"id": "b", "text": "The second text", "mixed": 1}
    duplicate = full | {"id": "c", "mixed": [1, "two"], "is_new": None}
    long = full | {"id": "d", "text": "The last text", "notes": MEGABYTE}
    return [full, sparse, duplicate, long]


def write_wide_jsonl(path: Path) -> list[dict[str, Any]]:
    """Write the objects as a JSONL file, and return them."""
    lines = [json.dumps(fields) + "\n" for fields in wide_objects()]
    path.write_text("".join(lines), encoding="utf-8")
    return wide_objects()
