"""The rows of an export: an item with its labels, and the columns of the user's table."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from teeter.campaigns.items.columns import (
    ABSENT,
    ImportedTable,
    drop_infinite,
    format_cell,
    merge_columns,
    typed_value,
)
from teeter.campaigns.records import ItemKind, Labeller
from teeter.campaigns.review.consensus import CampaignSnapshot
from teeter.campaigns.store import Reading, StoredItem
from teeter.campaigns.store.queries.imported_tables import StoredRow

if TYPE_CHECKING:
    from teeter.campaigns.finish.certificate import CertifiedLabel

__all__ = [
    "ID_COLUMN",
    "ExportColumns",
    "ExportRow",
    "ImportedExportRows",
    "export_rows",
    "rename_imported",
    "shown_content",
]


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


ID_COLUMN = "id"

_PREFIX = "teeter_"
"""What an added column begins with if an imported one has its name."""

_SUFFIX = "_imported"
"""What an imported column ends with if another tool has a field of its name."""


class ExportColumns:
    """The imported columns of an export, and the names of the added ones beside them.

    Args:
        tables: The tables that the items came from; empty if they came without columns.
        added: The columns that teeter adds, such as ``label``.
    """

    def __init__(self, tables: Sequence[ImportedTable], added: Sequence[str]) -> None:
        self.tables = list(tables)
        self.imported = merge_columns(self.tables)
        """The columns of all tables together."""
        imported_names = {column.name for column in self.imported}

        # The ids need no second column if the first one has them all.
        self.has_ids = ID_COLUMN in imported_names and all(
            table.id_column == ID_COLUMN for table in self.tables if ID_COLUMN in table.names
        )
        """Whether the column ``id`` of the tables holds the item ids."""
        self.name_of: dict[str, str] = {}
        """The name under which each added column is written."""
        for column in added:
            if column == ID_COLUMN and self.has_ids:
                continue
            name = column
            while name in imported_names:
                name = _PREFIX + name
            self.name_of[column] = name

    @property
    def names(self) -> list[str]:
        """The names of all columns, in their order."""
        return [*(column.name for column in self.imported), *self.name_of.values()]

    def rename_added(self, cells: Mapping[str, Any]) -> dict[str, Any]:
        """Return the added cells of a row under the names that they are written with."""
        return {name: cells[column] for column, name in self.name_of.items()}

    def text_cells(self, row: StoredRow | None, item_id: str) -> dict[str, str]:
        """Return the imported cells of a row for a CSV file."""
        cells = {column.name: "" for column in self.imported}
        if row is not None:
            cells |= {name: format_cell(cell) for name, cell in row.values().items()}
        if self.is_id_missing(row):
            cells[ID_COLUMN] = item_id
        return cells

    def json_cells(self, row: StoredRow | None, item_id: str) -> dict[str, Any]:
        """Return the imported cells of a row for a JSON file, but for those it does not have."""
        values = self.typed_values(row, item_id)

        cells = {}
        for column in self.imported:
            if column.name in values:
                cells[column.name] = drop_infinite(values[column.name])
        return cells

    def json_cells_beside(
        self, fields: Mapping[str, Any], row: StoredRow | None, item_id: str
    ) -> dict[str, Any]:
        """Return the imported cells of a row for a file whose other fields have fixed names.

        A column with the name of such a field is called ``NAME_imported``, unless it says the same:
        the text of an item is often just the column ``text``.

        Args:
            fields: The other fields with their values.
            row: The row, or None.
            item_id: The id of its item.
        """
        imported = self.json_cells(row, item_id)
        taken = {*fields, *(column.name for column in self.imported)}

        cells = {}
        for name, cell in imported.items():
            if name not in fields:
                cells[name] = cell
            elif format_cell(cell) != fields[name]:
                cells[rename_imported(name, taken)] = cell
        return cells

    def typed_values(self, row: StoredRow | None, item_id: str) -> dict[str, Any]:
        """Return the values of a row, but for those it does not have."""
        values = {}
        if row is not None:
            for column, cell in zip(row.table.columns, row.cells, strict=True):
                if cell is not ABSENT:
                    values[column.name] = typed_value(cell, column.type)

        if self.is_id_missing(row):
            values[ID_COLUMN] = item_id
        return values

    def is_id_missing(self, row: StoredRow | None) -> bool:
        """Return whether there is a column of ids, in which a row has nothing of its own."""
        if not self.has_ids:
            return False
        return row is None or row.values().get(ID_COLUMN) in (None, ABSENT, "")


def rename_imported(name: str, taken: Collection[str]) -> str:
    """Return a name for a column whose own name means something else to another tool.

    Example:
        >>> rename_imported("text", {"text", "label"})
        'text_imported'
    """
    # At the end: some tools read a column by the end of its name, such as *_file_name.
    renamed = name + _SUFFIX
    while renamed in taken:
        renamed += _SUFFIX
    return renamed


def export_rows(
    items: Sequence[StoredItem],
    snapshot: CampaignSnapshot,
    predictions: Mapping[str, tuple[str, float]],
    certified: Mapping[str, CertifiedLabel] | None = None,
    *,
    unreadable: Container[str] = (),
    folder: Path | None = None,
) -> list[ExportRow]:
    """Return what an export says about each item.

    Args:
        items: the items to export.
        snapshot: the answers and labels.
        predictions: by item id, the predicted class and its probability.
        certified: by item id, the labels that a model gives under a certificate.
        unreadable: the ids of items that could not be read.
        folder: the folder of the images; None if they are not read.
    """
    certified = certified or {}
    answers_by_item: dict[str, dict[str, str]] = {}
    for answer in snapshot.answers:
        answers_of_item = answers_by_item.setdefault(answer.item, {})
        # An annotator has at most one live answer about an item, so none is lost here.
        answers_of_item[answer.annotator] = answer.label or answer.kind

    rows = []
    for item in items:
        consensus = snapshot.consensus.get(item.item_id)
        decision = snapshot.decisions.get(item.item_id)
        predicted, probability = predictions.get(item.item_id, (None, None))
        label = None if consensus is None else consensus.label
        final_label = label
        labelled_by = Labeller.UNDECIDED
        if label is not None:
            labelled_by = Labeller.PERSON
        elif item.item_id in unreadable:
            labelled_by = Labeller.UNREADABLE
        certificate = None
        by_model = certified.get(item.item_id)
        if by_model is not None and label is None:
            # The certified model, which may be older than the newest one.
            predicted = final_label = by_model.label
            probability = by_model.confidence
            labelled_by = Labeller.MODEL
            certificate = by_model.certificate
        file = None
        if item.kind is ItemKind.IMAGE and folder is not None and item.content is not None:
            file = folder / item.content
        answers = answers_by_item.get(item.item_id, {})

        row = ExportRow(
            id=item.item_id,
            kind=item.kind,
            content=item.content,
            label=label,
            annotators=len(answers),
            predicted=predicted,
            # Six digits are more than a prediction is worth, and keep exports comparable by diff.
            confidence=None if probability is None else round(probability, 6),
            left_out=item.item_id in snapshot.left_out,
            agreement=None if consensus is None else round(consensus.confidence, 6),
            decided_by=None if decision is None else decision.reviewer,
            answers=answers,
            file=file,
            final_label=final_label,
            labelled_by=labelled_by,
            certificate=certificate,
        )
        rows.append(row)

    return rows


@dataclass(frozen=True, eq=False)
class ImportedExportRows:
    """What an export says about every row of the files that the items came from.

    The rows of files come first and in their order, those of duplicates among them. Items that came
    without columns follow, and then the ids of their duplicates.

    Every iteration reads the rows again, because their cells may not fit in memory together.
    """

    view: Reading
    """An open transaction, which is read while rows are taken."""
    rows: Iterable[ExportRow]
    """What the export says about each item."""

    def __iter__(self) -> Iterator[ExportRow]:
        row_of_item = {row.id: row for row in self.rows}
        written_items = set()
        written_duplicates = set()
        for imported in self.view.tables.all_rows():
            yield replace(row_of_item[imported.item_id], id=imported.key, row=imported)
            if imported.key == imported.item_id:
                written_items.add(imported.key)
            else:
                written_duplicates.add(imported.key)

        for item, row in row_of_item.items():
            if item not in written_items:
                yield row

        # Duplicates get the row of their stored item, under the id that they came with.
        for given, stored in self.view.items.aliases().items():
            if given not in row_of_item and given not in written_duplicates:
                yield replace(row_of_item[stored], id=given)
