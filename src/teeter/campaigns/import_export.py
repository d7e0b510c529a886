"""What comes in and goes out: items from tables, lines and folders; labels and predictions for other tools."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from teeter.campaigns.items import Item, image_items, items_of
from teeter.datasets.array_files import read_pool
from teeter.datasets.file_checks import require_file
from teeter.datasets.table_files import TABLE_SUFFIXES, Table, read_table
from teeter.errors import FileError, InputError, MissingExtraError, UnknownNameError
from teeter.files import atomic_write
from teeter.registry import did_you_mean

__all__ = ["FORMATS", "ExportRow", "kind_of", "read_items", "write_export"]

LINES = (".jsonl", ".ndjson")
ARRAYS = (".npz", ".npy", ".safetensors")
TEXT_COLUMNS = (
    "text",
    "sentence",
    "content",
    "message",
    "review",
    "body",
    "question",
    "query",
    "title",
)
"""Columns that are taken for the texts where nobody says which are."""


def kind_of(path: Path) -> str:
    """Return what items a path holds: images in a folder, features in arrays, else texts."""
    if path.is_dir():
        return "image"
    return "features" if path.suffix.lower() in ARRAYS else "text"


def read_items(
    path: Path,
    *,
    text: str | None = None,
    key: str | None = None,
    label: str | None = None,
    folder: Path | None = None,
    first: int = 0,
) -> Sequence[Item]:
    """Return the items of a table (CSV, Parquet), of lines (JSONL), of arrays, or of a folder of images.

    ``text``, ``key`` and ``label`` name the columns of texts, ids and labels; texts and ids are found by themselves
    where they go by a usual name. ``folder`` is where a campaign's images are, if they are added to; ``first`` is
    the number that rows of arrays without ids are counted from.
    """
    kind = kind_of(path)
    if kind == "image":
        return list(image_items(path, folder))
    if kind == "features":
        return _from_arrays(path, first)
    if path.suffix.lower() in LINES:
        return _from_lines(path, text=text, key=key, label=label)
    table = read_table(require_file(path, (*TABLE_SUFFIXES, *LINES), "a file of items"))
    return _from_table(table, text=text, key=key, label=label)


def _from_arrays(path: Path, first: int) -> list[Item]:
    pool = read_pool(path)
    features = np.asarray(pool.features)
    keys = pool.ids if pool.ids is not None else [str(first + k) for k in range(len(features))]
    return items_of(
        ({"id": one, "features": row} for one, row in zip(keys, features, strict=True)), "features"
    )


def _from_table(
    table: Table, *, text: str | None, key: str | None, label: str | None
) -> list[Item]:
    for name in (text, key, label):
        if name is not None:
            table.require(name)
    texts = text or _text_column(table)
    keys = key or next(
        (name for name in table.columns if name.lower() in ("id", "ids") and name != texts), None
    )
    ids = [None] * len(table) if keys is None else table.ids(keys)
    labels = [None] * len(table) if label is None else table.texts(label)
    contents = table.texts(texts)
    blank = [row for row, content in enumerate(contents, start=2) if not content.strip()]
    if blank:
        raise InputError(
            f"Column {texts!r} of {table.path} is blank in line {blank[0]}: give every row a text."
        )
    rows = zip(ids, contents, labels, strict=True)
    return items_of(
        ({"id": one, "text": content, "label": told} for one, content, told in rows), "text"
    )


def _text_column(table: Table) -> str:
    by_name = {name.lower(): name for name in table.columns}
    for usual in TEXT_COLUMNS:
        if usual in by_name:
            return by_name[usual]
    if len(table.columns) == 1:
        return next(iter(table.columns))
    raise InputError(
        f"Which column of {table.path} has the texts: {', '.join(list(table.columns)[:10])}? Name it (--text)."
    )


def _from_lines(path: Path, *, text: str | None, key: str | None, label: str | None) -> list[Item]:
    found = []
    rows = list(_objects(require_file(path, LINES, "a file of lines")))
    for name in (key, label):
        known = {field: None for _, told in rows for field in told}
        if name is not None and name not in known:
            raise UnknownNameError(
                f"No line of {path} has a field {name!r}. {did_you_mean(name, list(known))}"
            )
    for number, told in rows:
        name = text or next((usual for usual in TEXT_COLUMNS if usual in told), "text")
        if not isinstance(told.get(name), str):
            raise InputError(
                f"Line {number} of {path} has no {name!r} that is a text: name another (--text)."
            )
        chosen = told.get(key) if key is not None else told.get("id")
        found.append(
            {"id": chosen, "text": told[name], "label": told.get(label) if label else None}
        )
    return items_of(found, "text")


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a file, one a line, with the numbers of their lines."""
    try:
        whole = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise FileError(f"{path} is not UTF-8 text: save it as UTF-8.") from None
    blank = True
    for number, line in enumerate(whole.split("\n"), start=1):  # texts may hold other ends of lines
        if not line.strip():
            continue
        blank = False
        try:
            told = json.loads(line)
        except (ValueError, RecursionError):
            told = None
        if not isinstance(told, dict):
            raise FileError(f"Line {number} of {path} is not a JSON object.")
        yield number, told
    if blank:
        raise FileError(f"{path} has no lines but blank ones.")


@dataclass(frozen=True)
class ExportRow:
    """One item as it goes out."""

    id: str
    content: str | None
    label: str | None
    """What people say it is."""
    annotators: int
    predicted: str | None
    confidence: float | None
    left_out: bool
    """Whether it does not belong: somebody says so, or a reviewer decided."""
    agreement: float | None = None
    """How clear the label is: the share of people who gave it, or its probability."""
    decided_by: str | None = None
    """The reviewer who settled it."""
    kind: str = "text"
    """What it is: text, image or features."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """What each person says: a class, or skip, unsure or flag."""


def write_export(rows: Sequence[ExportRow], path: Path, form: str | None = None) -> None:
    """Write items in a form: by its name, or by the ending of the path."""
    chosen = form or {".csv": "csv", ".jsonl": "jsonl", ".parquet": "parquet"}.get(
        path.suffix.lower()
    )
    if chosen is None and not path.suffix:
        chosen = "datasets"
    if chosen not in FORMATS:
        raise InputError(
            f"{path} is of no known form: end it in .csv, .jsonl or .parquet, or name {', '.join(FORMATS)}."
        )
    try:
        FORMATS[chosen](rows, path)
    except OSError as error:
        raise FileError(f"Cannot write {path}: {error.strerror or error}.") from None


def _plain(row: ExportRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "content": row.content,
        "label": row.label,
        "annotators": row.annotators,
        "predicted": row.predicted,
        "confidence": row.confidence,
        "left_out": row.left_out,
        "agreement": row.agreement,
        "decided_by": row.decided_by,
        "answers": dict(row.answers),
    }


def _flat(row: ExportRow) -> dict[str, Any]:
    """Return an item for a table: what each person says as one text."""
    return {
        **_plain(row),
        "answers": json.dumps(dict(row.answers), ensure_ascii=False) if row.answers else None,
    }


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", errors="surrogatepass")


def _csv(rows: Sequence[ExportRow], path: Path) -> None:
    text = io.StringIO(newline="")
    table = csv.DictWriter(text, list(_flat(_NOTHING)), lineterminator="\n")
    table.writeheader()
    table.writerows(_flat(row) for row in rows)
    atomic_write(path, _encoded(text.getvalue()))


def _jsonl(rows: Sequence[ExportRow], path: Path) -> None:
    _lines(path, (_plain(row) for row in rows))


def _lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    atomic_write(
        path, _encoded("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    )


def _parquet(rows: Sequence[ExportRow], path: Path) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise MissingExtraError(
            "Writing Parquet needs pyarrow: pip install 'teeter[parquet]'."
        ) from None
    kinds = {"annotators": pyarrow.int64(), "left_out": pyarrow.bool_()}
    kinds |= dict.fromkeys(("confidence", "agreement"), pyarrow.float64())
    plain = [_flat(row) for row in rows]
    columns = {
        name: pyarrow.array([row[name] for row in plain], kinds.get(name, pyarrow.string()))
        for name in _flat(_NOTHING)
    }
    file = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), file)
    atomic_write(path, file.getvalue())


def _datasets(rows: Sequence[ExportRow], path: Path) -> None:
    """Write a folder that ``datasets.load_dataset`` reads: the labelled items as train, the others beside them."""
    path.mkdir(parents=True, exist_ok=True)
    _parquet(
        [row for row in rows if row.label is not None and not row.left_out], path / "train.parquet"
    )
    _parquet(
        [row for row in rows if row.label is None and not row.left_out], path / "unlabelled.parquet"
    )
    atomic_write(path / "README.md", _CARD.encode())


def _prodigy(rows: Sequence[ExportRow], path: Path) -> None:
    labelled = [row for row in rows if row.label is not None or row.left_out]
    _lines(
        path,
        (
            {
                **_seen(row),
                "label": row.label,
                "answer": "reject" if row.left_out else "accept",
                "meta": {"id": row.id},
            }
            for row in labelled
        ),
    )


def _seen(row: ExportRow) -> dict[str, Any]:
    """Return what people see of an item, under the name that other tools look for."""
    return (
        {"image": row.content}
        if row.kind == "image"
        else {"text": row.id if row.content is None else row.content}
    )


def _doccano(rows: Sequence[ExportRow], path: Path) -> None:
    labelled = [row for row in rows if row.label is not None and not row.left_out]
    _lines(path, ({"id": row.id, **_seen(row), "label": [row.label]} for row in labelled))


_NOTHING = ExportRow("", None, None, 0, None, None, False)

_CARD = """---
configs:
- config_name: default
  data_files:
  - split: train
    path: train.parquet
  - split: unlabelled
    path: unlabelled.parquet
---

Labels and predictions from a teeter campaign. Labels were picked by active learning: do not measure with them.
"""

FORMATS: dict[str, Callable[[Sequence[ExportRow], Path], None]] = {
    "csv": _csv,
    "jsonl": _jsonl,
    "parquet": _parquet,
    "datasets": _datasets,
    "prodigy": _prodigy,
    "doccano": _doccano,
}
"""The forms that labels go out in."""
