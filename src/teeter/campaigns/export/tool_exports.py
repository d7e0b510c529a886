"""Exports for other tools: Label Studio, spaCy and cleanlab."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from teeter.base.files import atomic_open, atomic_write
from teeter.campaigns.export.rows import ExportColumns, ExportRow, shown_content
from teeter.campaigns.items.columns import replace_surrogates
from teeter.errors import InputError

__all__ = ["CLEANLAB_NEEDS_LABELS", "write_cleanlab", "write_label_studio", "write_spacy"]

CLEANLAB_NEEDS_LABELS = "cleanlab needs labels of two or more classes: label some items first."

_MAX_SPACY_CHARACTERS = 50_000_000

_MESSAGE_PACK = range(-(2**63), 2**64)
"""The integers of MessagePack, in which spaCy stores what belongs to a document."""


def write_label_studio(rows: Iterable[ExportRow], columns: ExportColumns, path: Path) -> None:
    """Write tasks with annotations and predictions, as Label Studio's import takes them.

    They fit a project that ``teeter campaign sync`` creates, and any whose choices are called
    ``label``. Columns are fields of a task's data. One that has the name of a field of teeter, such
    as ``text``, is called ``text_imported``, unless it is the text that annotators see.
    """
    # Imported here: the package talks to servers, and its modules import campaigns.
    from teeter.campaigns.integrations.label_studio.config import CHOICES_TAG, OBJECT_TAG
    from teeter.campaigns.integrations.label_studio.payloads import ITEM_FIELD, MODEL_VERSION

    def choose(label: str) -> list[dict[str, Any]]:
        value = {"choices": [label]}
        return [
            {"from_name": CHOICES_TAG, "to_name": OBJECT_TAG, "type": "choices", "value": value}
        ]

    with atomic_open(path, "w") as file:
        file.write("[")
        separator = "\n"
        for row in rows:
            if row.left_out:
                continue
            fields = {**shown_content(row), ITEM_FIELD: row.id}
            cells = columns.json_cells_beside(fields, row.row, row.id)
            task: dict[str, Any] = {"data": {**cells, **fields}}
            if row.label is not None:
                task["annotations"] = [{"result": choose(row.label)}]
            if row.predicted is not None:
                prediction = {"model_version": MODEL_VERSION, "score": row.confidence}
                task["predictions"] = [{**prediction, "result": choose(row.predicted)}]

            # ASCII, so that a lone surrogate in a column is no obstacle.
            file.write(separator + json.dumps(task))
            separator = ",\n"
        file.write("\n]\n")


def write_spacy(rows: Iterable[ExportRow], columns: ExportColumns, path: Path) -> None:
    """Write labelled texts as a ``DocBin``, with their classes as ``doc.cats`` for ``textcat``.

    The id of an item is in ``doc.user_data["id"]``, its columns are in
    ``doc.user_data["columns"]``.

    The items must be texts.
    """
    import spacy
    from spacy.tokens import DocBin

    labelled = [row for row in rows if row.label is not None and not row.left_out]
    # Only its tokenizer is used, which knows no language in particular.
    pipeline = spacy.blank("xx")
    pipeline.max_length = _MAX_SPACY_CHARACTERS
    classes = sorted({str(row.label) for row in labelled})
    documents = DocBin(store_user_data=True)
    for row in labelled:
        document = pipeline.make_doc(row.content or "")
        document.cats = {name: float(name == row.label) for name in classes}
        document.user_data["id"] = row.id
        cells = columns.json_cells(row.row, row.id)
        document.user_data["columns"] = _to_message_pack(replace_surrogates(cells))
        documents.add(document)

    atomic_write(path, documents.to_bytes())


def _to_message_pack(value: Any) -> Any:
    """Return a JSON value that spaCy can store: with texts instead of integers over 64 bits."""
    if isinstance(value, list):
        return [_to_message_pack(part) for part in value]
    if isinstance(value, dict):
        return {name: _to_message_pack(part) for name, part in value.items()}
    if isinstance(value, int) and not isinstance(value, bool) and value not in _MESSAGE_PACK:
        return str(value)
    return value


def write_cleanlab(rows: Iterable[ExportRow], columns: ExportColumns, path: Path) -> None:
    """Write labels with out-of-fold probabilities as arrays, for ``cleanlab``'s functions.

    The file has ``ids``, ``labels`` (positions in ``classes``), ``pred_probs`` (N, C) from models
    that were not trained on the item, and ``classes``. ``table`` holds the bytes of a JSONL file
    with the id, the label and the columns of each item, for ``cleanlab.Datalab``.

    Raises:
        InputError: If fewer than two classes have labels.
    """
    ids = []
    labels = []
    probabilities = []
    lines = []
    classes: list[str] = []
    for row in rows:
        if row.out_of_fold is None or row.label is None or row.left_out:
            continue
        classes = list(row.out_of_fold)
        ids.append(row.id)
        labels.append(classes.index(row.label))
        probabilities.append(list(row.out_of_fold.values()))

        fields = {"id": row.id, "label": row.label}
        line = {**fields, **columns.json_cells_beside(fields, row.row, row.id)}
        lines.append(json.dumps(replace_surrogates(line), ensure_ascii=False) + "\n")

    if not ids:
        raise InputError(CLEANLAB_NEEDS_LABELS)
    file = io.BytesIO()
    np.savez(
        file,
        ids=np.array(ids),
        labels=np.array(labels),
        pred_probs=np.array(probabilities),
        classes=np.array(classes),
        # Bytes: in an array of texts, all would take the space of the longest one.
        table=np.frombuffer("".join(lines).encode(), dtype=np.uint8),
    )
    atomic_write(path, file.getvalue())
