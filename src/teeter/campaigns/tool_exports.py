"""Exports for other tools: Label Studio, spaCy, image folders and cleanlab."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from teeter.campaigns.export_columns import ExportColumns
from teeter.campaigns.export_rows import ExportRow, shown_content
from teeter.errors import InputError, MissingExtraError
from teeter.files import atomic_open, atomic_write

__all__ = ["write_cleanlab", "write_image_folder", "write_label_studio", "write_spacy"]

_SAFE_CHARACTERS = " -_.,()&+'"
"""Characters beside letters and digits that stay as they are in the names of folders and files."""

_MAX_SPACY_CHARACTERS = 50_000_000


def write_label_studio(rows: Iterable[ExportRow], columns: ExportColumns, path: Path) -> None:
    """Write tasks with annotations and predictions, as Label Studio's import takes them.

    They fit a project that ``teeter campaign sync`` creates, and any whose choices are called
    ``label``. Columns are fields of a task's data.
    """
    # Imported here: the package talks to servers, and its modules import campaigns.
    from teeter.campaigns.label_studio.config import CHOICES_TAG, OBJECT_TAG
    from teeter.campaigns.label_studio.payloads import ITEM_FIELD, MODEL_VERSION

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
            data = {**columns.json_cells(row.row, row.id), **shown_content(row)}
            task: dict[str, Any] = {"data": {**data, ITEM_FIELD: row.id}}
            if row.label is not None:
                task["annotations"] = [{"result": choose(row.label)}]
            if row.predicted is not None:
                prediction = {"model_version": MODEL_VERSION, "score": row.confidence}
                task["predictions"] = [{**prediction, "result": choose(row.predicted)}]

            # ASCII, so that a lone surrogate in a column is no obstacle.
            file.write(separator + json.dumps(task))
            separator = ",\n"
        file.write("\n]\n")


def write_spacy(rows: Iterable[ExportRow], _: ExportColumns, path: Path) -> None:
    """Write labelled texts as a ``DocBin``, with their classes as ``doc.cats`` for ``textcat``.

    The id of an item is in ``doc.user_data["id"]``.

    Raises:
        MissingExtraError: If spaCy is not installed.
        InputError: If the items are no texts.
    """
    try:
        import spacy
        from spacy.tokens import DocBin
    except ImportError:
        raise MissingExtraError("Writing this format needs spaCy: pip install spacy.") from None

    labelled = [row for row in rows if row.label is not None and not row.left_out]
    if any(row.kind != "text" for row in labelled):
        raise InputError(
            "The format spacy is only for texts: export images or features in another format."
        )

    # Only its tokenizer is used, which knows no language in particular.
    pipeline = spacy.blank("xx")
    pipeline.max_length = _MAX_SPACY_CHARACTERS
    classes = sorted({str(row.label) for row in labelled})
    documents = DocBin(store_user_data=True)
    for row in labelled:
        document = pipeline.make_doc(row.content or "")
        document.cats = {name: float(name == row.label) for name in classes}
        document.user_data["id"] = row.id
        documents.add(document)

    atomic_write(path, documents.to_bytes())


def write_image_folder(rows: Iterable[ExportRow], _: ExportColumns, path: Path) -> None:
    """Copy labelled images into one folder per class, as most trainers of image models read them.

    Characters of a class that a file system may refuse are written as in addresses: ``%2F``.

    Raises:
        InputError: If the items are no images.
    """
    for row in rows:
        if row.label is None or row.left_out:
            continue
        if row.file is None:
            raise InputError(
                "The format image-folder is only for images: export texts in another format."
            )

        folder = path / _folder_name(row.label)
        folder.mkdir(parents=True, exist_ok=True)
        # Images of different folders may have the same name.
        name = quote(row.content or row.file.name, safe=_SAFE_CHARACTERS)
        target = folder / name
        shutil.copyfile(row.file, target)


def _folder_name(label: str) -> str:
    name = quote(label, safe=_SAFE_CHARACTERS)
    # A name of dots alone is another folder, and others begin hidden ones.
    return "%2E" + name[1:] if name.startswith(".") else name


def write_cleanlab(rows: Iterable[ExportRow], _: ExportColumns, path: Path) -> None:
    """Write labels with out-of-fold probabilities as arrays, for ``cleanlab``'s functions.

    The file has ``ids``, ``labels`` (positions in ``classes``), ``pred_probs`` (N, C) from models
    that were not trained on the item, and ``classes``.

    Raises:
        InputError: If fewer than two classes have labels.
    """
    ids = []
    labels = []
    probabilities = []
    classes: list[str] = []
    for row in rows:
        if row.out_of_fold is None or row.label is None or row.left_out:
            continue
        classes = list(row.out_of_fold)
        ids.append(row.id)
        labels.append(classes.index(row.label))
        probabilities.append(list(row.out_of_fold.values()))

    if not ids:
        raise InputError("cleanlab needs labels of two or more classes: label some items first.")
    file = io.BytesIO()
    np.savez(
        file,
        ids=np.array(ids),
        labels=np.array(labels),
        pred_probs=np.array(probabilities),
        classes=np.array(classes),
    )
    atomic_write(path, file.getvalue())
