"""The rows of an export: an item with its labels, and the columns of the user's table."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from teeter.campaigns.items.columns import (
    ABSENT,
    ADDED_COLUMNS,
    ImportedTable,
    drop_infinite,
    format_cell,
    merge_columns,
    typed_value,
    typed_values,
)
from teeter.campaigns.records import (
    Answer,
    AnswerOrigin,
    ColumnType,
    ConsensusLabel,
    ItemKind,
    LabelSource,
    TableColumn,
    split_labels,
)
from teeter.campaigns.review.consensus import CampaignSnapshot
from teeter.campaigns.store import Reading
from teeter.campaigns.store.queries.imported_tables import StoredRow
from teeter.data.table_columns import rename_added


# Not frozen: one is made for every row, which would take eight times as long.
@dataclass(slots=True)
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
    item: str | None = None
    """The id of the stored item. A duplicate came with another one."""
    final_label: str | None = None
    """The label, or else the class that the model predicts under a certificate."""
    source: LabelSource | None = None
    """Where the final label comes from; None for an item that no one has labelled yet."""
    who: str | None = None
    """Who gave the final label."""
    when: str | None = None
    """When the final label was given last."""
    certificate: str | None = None
    """The certificate's id, if the model gave it."""
    row: StoredRow | None = None
    """The row of the table that it came from."""
    file: Path | None = None
    """The file of an image."""
    out_of_fold: Mapping[str, float] | None = None
    """The probability of each class from a model that was not trained on the item."""

    @property
    def answers_text(self) -> str | None:
        """The answers of all annotators as one JSON text; None if there are none."""
        if not self.answers:
            return None
        return json.dumps(dict(self.answers), ensure_ascii=False)


def shown_content(row: ExportRow) -> dict[str, str | None]:
    """Return what annotators see of an item, under the name that other tools expect."""
    if row.kind == ItemKind.IMAGE:
        return {"image": row.content}
    # Items of features have no content; their id is all that an annotator sees.
    if row.content is None:
        return {"text": row.id}

    return {"text": row.content}


LABEL_CELLS = ("final_label", "predicted")
"""The attributes of a row that are labels."""

ADDED_CELLS = {name: name for name in ADDED_COLUMNS} | {
    "text": "content",
    "label": "final_label",
    "answers": "answers_text",
}
"""The attributes of a row that the added columns hold where a cell is a single value."""

# A column that is empty in all rows would have the type null, so the types are given.
ADDED_TYPES = {
    "annotators": "int64",
    "left_out": "bool",
    "confidence": "float64",
    "agreement": "float64",
}
"""The Arrow types of the added columns that are no texts."""

_SUFFIX = "_imported"
"""What an imported column ends with if another tool has a field of its name."""


class ExportColumns:
    """The imported columns of an export, and the names of the added ones beside them.

    The ids and texts of items that came without a row are in the columns that hold those of the
    others. Where no column does, they have one of their own.

    Args:
        tables: The tables that the items came from; empty if they came without columns.
        added: The columns that teeter adds, such as ``label``.
        content: What the content of an item is called: text, image, or None if it is not exported.
        has_ids: Whether items have ids other than the hashes of their contents.
        labels: The labels of items that may have several of them; empty if they have one.
    """

    def __init__(
        self,
        tables: Sequence[ImportedTable],
        added: Iterable[str],
        *,
        content: str | None = "text",
        has_ids: bool = True,
        labels: Sequence[str] = (),
    ) -> None:
        self.labels = list(labels)
        self.tables = list(tables)
        self.imported = merge_columns(self.tables)
        """The columns of all tables together."""
        self._imported_names = [column.name for column in self.imported]

        self.id_position = self._find_common([table.id_column for table in tables])
        """The position of the imported column that holds the ids of all items, if there is one."""
        text_position = self._find_common([table.text_column for table in tables])
        # Texts without a row fit into no other type.
        if text_position is not None and self.imported[text_position].type is not ColumnType.TEXT:
            text_position = None
        self._filled: list[tuple[int, str]] = []
        if self.id_position is not None:
            self._filled.append((self.id_position, "id"))
        if text_position is not None:
            self._filled.append((text_position, "content"))

        left_out = set()
        if self.id_position is not None or not has_ids:
            left_out.add("id")
        if text_position is not None or content is None:
            left_out.add("text")

        self.name_of: dict[str, str] = {}
        """The name under which each added column is written."""
        for column in added:
            if column in left_out:
                continue
            name = column
            if column == "text" and content is not None:
                name = content
            self.name_of[column] = rename_added(name, self._imported_names)

        self.mark_names: list[str] = []
        """A column for each label, in files whose cells cannot hold several of them."""
        for label in self.labels:
            taken = [*self._imported_names, *self.name_of.values(), *self.mark_names]
            self.mark_names.append(rename_added(label, taken))

        self._layouts: dict[
            ImportedTable | None, tuple[list[int | None] | None, list[ColumnType]]
        ] = {}

    def _find_common(self, columns: Sequence[str | None]) -> int | None:
        """Return the position of the column that all tables name that have it.

        Args:
            columns: The column that each table names, or None.
        """
        named = {column for column in columns if column is not None}
        if len(named) != 1:
            return None
        name = named.pop()
        for table, column in zip(self.tables, columns, strict=True):
            if name in table.names and column != name:
                return None
        return self._imported_names.index(name)

    def marks(self, row: ExportRow) -> list[int | None]:
        """Return 1 for each label that a row has, and 0 for the others; None without an answer."""
        if row.final_label is None:
            return [None] * len(self.labels)
        names = split_labels(row.final_label)
        return [int(label in names) for label in self.labels]

    def label_value(self, label: str | None) -> Any:
        """Return a label as files with lists have it: a list if items may have several."""
        if label is None or not self.labels:
            return label
        return split_labels(label)

    @property
    def names(self) -> list[str]:
        """The names of all columns, in their order."""
        return [*self._imported_names, *self.name_of.values()]

    def cells(self, row: StoredRow | None) -> list[Any]:
        """Return the cells of a row as they are stored, in the order of ``imported``.

        ``ABSENT`` stands for a column that the row does not have.
        """
        if row is None:
            return [ABSENT] * len(self.imported)

        positions, _ = self._layout(row.table)
        if positions is None:
            return row.cells
        return [ABSENT if place is None else row.cells[place] for place in positions]

    def types(self, row: StoredRow | None) -> list[ColumnType]:
        """Return what the cells of a row stand for in its own table, in the same order."""
        table = None
        if row is not None:
            table = row.table
        _, types = self._layout(table)
        return types

    def _layout(
        self, table: ImportedTable | None
    ) -> tuple[list[int | None] | None, list[ColumnType]]:
        """Return where the columns of the export are in a table, and their types there.

        A column that the table does not have is at None. None instead of a list stands for a table
        with exactly the columns of the export.
        """
        if table not in self._layouts:
            own_columns: Sequence[TableColumn] = ()
            if table is not None:
                own_columns = table.columns
            place_of = {column.name: place for place, column in enumerate(own_columns)}
            positions = [place_of.get(column.name) for column in self.imported]
            types = []
            for place in positions:
                column_type = ColumnType.TEXT
                if place is not None:
                    column_type = own_columns[place].type
                types.append(column_type)
            self._layouts[table] = (positions, types)
            if positions == list(range(len(own_columns))):
                self._layouts[table] = (None, types)
        return self._layouts[table]

    def text_cells(self, row: ExportRow) -> list[str]:
        """Return the imported cells of a row for a CSV file."""
        cells = self.cells(row.row)
        texts = [cell if type(cell) is str else format_cell(cell) for cell in cells]
        for position, value in self.missing_cells(row, cells).items():
            texts[position] = value
        return texts

    def typed_columns(self, rows: Sequence[ExportRow]) -> list[list[Any]]:
        """Return the imported values of some rows by column. None stands for a missing value."""
        columns: list[list[Any]] = [[] for _ in self.imported]

        # Rows that follow each other are nearly always of one table.
        stored_rows = [row.row for row in rows]
        for types, group in groupby(stored_rows, key=self.types):
            cells_of_rows = [self.cells(row) for row in group]
            cells_of_columns = zip(*cells_of_rows, strict=True)
            for values, cells, column_type in zip(columns, cells_of_columns, types, strict=True):
                values += typed_values(cells, column_type)

        for place, row in enumerate(rows):
            if any(columns[position][place] in _MISSING for position, _ in self._filled):
                missing = self.missing_cells(row, self.cells(row.row))
                for position, value in missing.items():
                    columns[position][place] = value
        return columns

    def json_cells(self, row: ExportRow) -> dict[str, Any]:
        """Return the imported cells of a row for a JSON file, but for those it does not have."""
        cells = list(self.cells(row.row))
        types = self.types(row.row)
        for position, value in self.missing_cells(row, cells).items():
            # As it is, like the id of an item that came without a row.
            cells[position] = value
            types = [*types]
            types[position] = ColumnType.TEXT

        values = {}
        for name, cell, column_type in zip(self._imported_names, cells, types, strict=True):
            if cell is not ABSENT:
                values[name] = drop_infinite(typed_value(cell, column_type))
        return values

    def json_cells_beside(self, fields: Mapping[str, Any], row: ExportRow) -> dict[str, Any]:
        """Return the imported cells of a row for a file whose other fields have fixed names.

        A column with the name of such a field is called ``NAME_imported``, unless it says the same:
        the text of an item is often just the column ``text``.

        Args:
            fields: The other fields with their values.
        """
        imported = self.json_cells(row)
        taken = {*fields, *(column.name for column in self.imported)}

        cells = {}
        for name, cell in imported.items():
            if name not in fields:
                cells[name] = cell
            elif format_cell(cell) != fields[name]:
                cells[rename_imported(name, taken)] = cell
        return cells

    def missing_cells(self, row: ExportRow, cells: Sequence[Any]) -> dict[int, str]:
        """Return the id and the text that the table of a row lacks, by the positions of columns.

        Args:
            row: The row.
            cells: What ``cells`` returns for it.
        """
        return {
            position: getattr(row, attribute) or ""
            for position, attribute in self._filled
            if cells[position] in _MISSING
        }


_MISSING = (None, ABSENT, "")


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


class ExportRows:
    """What an export says about every row of the files that the items came from.

    The rows of files come first and in their order, those of duplicates among them. Items that came
    without columns follow, and then the ids of their duplicates.

    Every iteration reads the rows again, because their cells may not fit in memory together.

    Args:
        view: an open transaction, which is read while rows are taken.
        snapshot: the answers and labels.
        predictions: by item id, the predicted class and its probability.
        certified: by item id, the labels that a model gives under a certificate.
        certifier: this model, and when it was certified.
        out_of_fold: by item id, the probability of each class from models not trained on the item.
        folder: the folder of the images; None if they are not read.
    """

    def __init__(
        self,
        view: Reading,
        snapshot: CampaignSnapshot,
        predictions: Mapping[str, tuple[str, float]],
        certified: Mapping[str, ConsensusLabel],
        *,
        certifier: tuple[str | None, str | None],
        out_of_fold: Mapping[str, Mapping[str, float]],
        folder: Path | None = None,
    ) -> None:
        self._view = view
        self._snapshot = snapshot
        self._predictions = predictions
        self._certified = certified
        self._certifier = certifier
        self._out_of_fold = out_of_fold
        self._folder = folder
        self._kind = view.settings.kind
        self._unreadable = view.encodings.unreadable()

        # An annotator has at most one live answer about an item.
        self._answers: dict[str, list[Answer]] = {}
        for answer in snapshot.answers:
            self._answers.setdefault(answer.item, []).append(answer)

    def __iter__(self) -> Iterator[ExportRow]:
        contents = self._view.items.contents()
        written_items = set()
        written_duplicates = set()
        for row in self._view.tables.all_rows():
            yield self._export_row(row.item_id, contents[row.item_id], row.key, row)
            if row.key == row.item_id:
                written_items.add(row.key)
            else:
                written_duplicates.add(row.key)

        for item_id, content in contents.items():
            if item_id not in written_items:
                yield self._export_row(item_id, content, item_id, None)

        # Duplicates get the row of their stored item, under the id that they came with.
        for given, stored in self._view.items.aliases().items():
            if given not in contents and given not in written_duplicates:
                yield self._export_row(stored, contents[stored], given, None)

    def _export_row(
        self,
        item_id: str,
        content: str | None,
        exported_id: str,
        row: StoredRow | None,
    ) -> ExportRow:
        """Return what an export says about an item, for a row of a file or for the item alone."""
        consensus = self._snapshot.consensus.get(item_id)
        decision = self._snapshot.decisions.get(item_id)
        predicted, probability = self._predictions.get(item_id, (None, None))
        answers = self._answers.get(item_id, [])
        label = None
        if consensus is not None:
            label = consensus.label
        certified = self._certified.get(item_id)

        final_label = label
        source = None
        who = None
        when = None
        certificate = None
        if item_id in self._snapshot.left_out:
            final_label = None
            source = LabelSource.LEFT_OUT
        elif label is not None and decision is not None:
            source = LabelSource.PERSON
            who = decision.reviewer
            when = decision.at
        elif label is not None:
            given = [answer for answer in answers if answer.label is not None]
            source = LabelSource.CONSENSUS
            if len(given) == 1:
                source = LabelSource.PERSON
            agreeing = [answer for answer in given if answer.label == label]
            if all(answer.origin is AnswerOrigin.COPY for answer in agreeing):
                source = LabelSource.COPY
            who = ", ".join(answer.annotator for answer in agreeing)
            when = max((answer.at or "" for answer in agreeing), default=None)
        elif certified is not None:
            # The certified model, which may be older than the newest one.
            predicted = final_label = certified.label
            probability = certified.confidence
            source = LabelSource.MODEL
            who, when = self._certifier
            certificate = certified.by
        elif item_id in self._unreadable:
            source = LabelSource.UNREADABLE
        file = None
        if self._folder is not None and content is not None:
            file = self._folder / content
        # Six digits are more than a prediction is worth, and keep exports comparable by diff.
        if probability is not None:
            probability = round(probability, 6)
        agreement = None
        if consensus is not None:
            agreement = round(consensus.confidence, 6)
        decided_by = None
        if decision is not None:
            decided_by = decision.reviewer

        return ExportRow(
            id=exported_id,
            kind=self._kind,
            content=content,
            label=label,
            annotators=len(answers),
            predicted=predicted,
            confidence=probability,
            left_out=item_id in self._snapshot.left_out,
            agreement=agreement,
            decided_by=decided_by,
            answers={answer.annotator: answer.label or answer.kind for answer in answers},
            item=item_id,
            file=file,
            final_label=final_label,
            source=source,
            who=who,
            when=when,
            certificate=certificate,
            row=row,
            out_of_fold=self._out_of_fold.get(item_id),
        )
