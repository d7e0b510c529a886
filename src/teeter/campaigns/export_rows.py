"""What an export says about an item."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from teeter.campaigns.enums import ItemKind, Labeller
from teeter.campaigns.store.queries.imported_tables import StoredRow

__all__ = ["ExportRow", "shown_content"]


@dataclass(frozen=True)
class ExportRow:
    """An item with its label and prediction, as it is exported."""

    id: str
    content: str | None
    label: str | None
    """The decision of a reviewer, or the consensus of the annotators."""
    annotators: int
    """How many annotators answered."""
    predicted: str | None
    """The class that the newest model predicts."""
    confidence: float | None
    """The probability of the predicted class."""
    left_out: bool
    """Whether the item does not belong: an annotator flagged it, or a reviewer decided so."""
    agreement: float | None = None
    """The share of annotators who gave the label, or its probability."""
    decided_by: str | None = None
    """The reviewer who decided."""
    kind: str = "text"
    """One of ``ItemKind``."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """The answer of each annotator: a class, or skip, unsure or flag."""
    final_label: str | None = None
    """The label, or else the class that the model predicts under a certificate."""
    labelled_by: Labeller = Labeller.UNDECIDED
    """Who gave the final label."""
    certificate: str | None = None
    """The certificate's id, if the model gave it."""
    row: StoredRow | None = None
    """The row of the table that it came from."""
    file: Path | None = None
    """The file of an image."""
    out_of_fold: Mapping[str, float] | None = None
    """The probability of each class from a model that was not trained on the item."""


def shown_content(row: ExportRow) -> dict[str, str | None]:
    """Return what annotators see of an item, under the name that other tools expect."""
    if row.kind == ItemKind.IMAGE:
        return {"image": row.content}
    # Items of features have no content; their id is all that an annotator sees.
    if row.content is None:
        return {"text": row.id}

    return {"text": row.content}
