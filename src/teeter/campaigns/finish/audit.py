"""Begin an audit: a campaign whose items have the labels of judges, which people are not to see.

A judge is a column of labels, of a language model, a vendor or a rule. Its labels are stored as the
predictions of a source. The items that every judge has labelled are put into one random order, in
which people are asked, and the labels of the first judge are frozen as those of a model that is to
label the rest: so an audit is a promise about a foreign model, and uses its records.

While an item waits for its answer, nobody sees more of it than its text and the columns that the
settings show.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from teeter.base.seeds import stream_seed
from teeter.base.wording import list_some, pluralize
from teeter.campaigns.classes import as_class_name
from teeter.campaigns.finish.frozen_model import (
    FrozenFinish,
    PromiseGroup,
    count_needed,
    goal_terms,
    store_finish,
)
from teeter.campaigns.finish.promise import PromiseTerms, attempt_level, make_steps
from teeter.campaigns.items.columns import ImportedTable, decode_cells, format_cell, require_columns
from teeter.campaigns.items.item import Item
from teeter.campaigns.records import ItemColumns, PickArm, SourceKind
from teeter.campaigns.review.consensus import read_snapshot
from teeter.campaigns.settings import Settings
from teeter.campaigns.store import BatchOrigin, Pick, Reading, Source, Suggestion, Writing
from teeter.campaigns.store.queries.classes import find_alike
from teeter.campaigns.suggestions.sources import validate_source_name
from teeter.data.table_files import is_missing
from teeter.errors import InputError

MOST_CLASSES = 500
"""Different labels that a judge may give. A column with more holds something else."""

READY_DRAWS = 40
"""Items that are ready when an audit begins, so that the first question needs no worker."""

_NAMED = 5
"""Values that a note names."""


def require_blind_columns(settings: Settings, columns: ItemColumns) -> None:
    """Raise InputError if annotators would see what a judge says, or labels came with the items."""
    judged = {name for pair in settings.judges.items() for name in pair if name}
    text = columns.text or ""
    seen = sorted(judged.intersection(settings.show))
    seen += sorted(name for name in judged if _names_column(text, name))
    if seen:
        raise InputError(
            f"{seen[0]!r} is a column of a judge, which nobody may see before an item is "
            "answered: leave it out of the texts and of the columns to show."
        )
    if settings.has_rows:
        raise InputError("Rows of a table show all columns, so they cannot be audited blind.")
    if columns.labels is not None:
        raise InputError(
            "An audit takes no labels with its items (labels=): people give them without seeing "
            "any. To measure labels of people too, make their column a judge."
        )


def _names_column(text: str, name: str) -> bool:
    columns = [part.strip() for part in text.split(",")]
    return name in columns or f"{{{name}}}" in text


@dataclass(frozen=True, eq=False)
class JudgedItems:
    """What judges say of the items of a file."""

    labels: dict[str, dict[str, str]]
    """By judge and item id."""
    confidences: dict[str, dict[str, float]]
    """The same, where a judge says how sure it is."""
    notes: list[str]
    """Sentences on what was found in the columns, and what became of it."""

    def classes(self) -> list[str]:
        """Return the different labels of all judges, the most frequent first."""
        counts: Counter[str] = Counter()
        for labels in self.labels.values():
            counts.update(labels.values())
        return [label for label, _ in counts.most_common()]


def read_judged(
    items: Sequence[Item], judges: Mapping[str, str], classes: Sequence[str] | None
) -> JudgedItems:
    """Return what the judges of an audit say of its items.

    Args:
        items: the items, with the rows that they came from.
        judges: the columns of labels, each with the column of their confidences, or "".
        classes: the classes, if they are given.

    Raises:
        InputError: a column has no labels, too many different ones, or is the text itself.
        UnknownNameError: there is no such column.
    """
    table = ImportedTable(())
    if items and items[0].row is not None:
        table = items[0].row.table
    columns = [name for pair in judges.items() for name in pair if name]
    require_columns(columns, table.names)
    if table.text_column in columns:
        raise InputError(f"Column {table.text_column!r} has the texts: name the one of the labels.")

    # Of rows with the same text, one is asked about.
    rows: dict[str, dict[str, str]] = {}
    first_by_digest: dict[str, str] = {}
    repeated: list[tuple[str, dict[str, str]]] = []
    for item in items:
        if item.row is None:
            continue
        cells = decode_cells(item.row.cells)
        cell_of_column = dict(zip(item.row.table.names, cells, strict=True))
        texts = {name: format_cell(cell_of_column[name]) for name in columns}
        first = first_by_digest.setdefault(item.digest, item.key)
        if first == item.key and first not in rows:
            rows[item.key] = texts
        else:
            repeated.append((first, texts))

    judged = JudgedItems({}, {}, [])
    for judge, column in judges.items():
        cells_by_item = {item: texts[judge] for item, texts in rows.items()}
        judged.labels[judge] = _read_labels(judge, cells_by_item, classes, judged.notes)
        if column:
            given = {item: rows[item][column] for item in judged.labels[judge]}
            judged.confidences[judge] = _read_confidences(column, given, judged.notes)
        differing = 0
        for first, texts in repeated:
            differing += texts[judge] != rows[first][judge]
        if differing:
            more = pluralize(differing, "row repeats", "rows repeat")
            judged.notes.append(
                f"{more} the text of another row with another label of {judge}: the first row of "
                "each text counts."
            )
    return judged


def _read_labels(
    judge: str, cells: Mapping[str, str], classes: Sequence[str] | None, notes: list[str]
) -> dict[str, str]:
    """Return the labels of a judge by item, in one spelling."""
    given = {item: as_class_name(cell).strip() for item, cell in cells.items()}
    counts = Counter(given.values())
    known = set(classes or ())
    filled = {name: n for name, n in counts.items() if name in known or not is_missing(name)}
    if not filled:
        raise InputError(f"Column {judge!r} has no labels: name the column that has them.")
    if len(filled) > MOST_CLASSES:
        raise InputError(
            f"Column {judge!r} has {len(filled):,} different values, too many for classes: name "
            f"the column of labels (judges=)."
        )

    # The given spelling, or else the most frequent one.
    spellings: dict[str, str] = {}
    chosen = list(classes or ())
    for name in sorted(filled, key=lambda name: -filled[name]):
        alike = find_alike(name, chosen)
        if alike is None and classes is None:
            chosen.append(name)
        if alike is not None or classes is None:
            spellings[name] = alike or name

    changed = [
        f"{name!r} as {spelling!r}" for name, spelling in spellings.items() if name != spelling
    ]
    if changed:
        notes.append(f"Column {judge!r} has labels in two spellings: {list_some(changed, _NAMED)}.")
    unknown = [name for name in filled if name not in spellings]
    if unknown:
        n_unknown = sum(filled[name] for name in unknown)
        notes.append(
            f"{pluralize(n_unknown, 'label')} of {judge} are none of the classes, and these items "
            f"are left out of the audit: {list_some([repr(name) for name in unknown], _NAMED)}."
        )
    n_blank = len(cells) - sum(filled.values())
    if n_blank:
        are = pluralize(n_blank, "item has", "items have")
        notes.append(f"{are} no label of {judge}, and are left out of the audit.")
    if len(set(spellings.values())) == 1:
        only = next(iter(spellings.values()))
        notes.append(f"{judge} says {only!r} of all items: it is as often right as they are that.")

    return {item: spellings[name] for item, name in given.items() if name in spellings}


def _read_confidences(column: str, cells: Mapping[str, str], notes: list[str]) -> dict[str, float]:
    """Return the confidences of a judge by item, those that are numbers from 0 to 1."""
    confidences: dict[str, float] = {}
    refused: list[str] = []
    for item, cell in cells.items():
        if is_missing(cell):
            continue
        try:
            confidence = float(cell)
        except ValueError:
            confidence = -1.0
        if 0 <= confidence <= 1:
            confidences[item] = confidence
        else:
            refused.append(cell)

    if refused:
        different = [repr(cell) for cell in dict.fromkeys(refused)]
        examples = list_some(different, _NAMED)
        are = pluralize(len(refused), "value is", "values are")
        outcome = "so no confidence is used"
        if confidences:
            outcome = "they are left out"
        notes.append(
            f"{are} no confidence from 0 to 1 in column {column!r}, {outcome}: {examples}."
        )
    return confidences


def start_audit(change: Writing, judged: JudgedItems, who: str) -> int:
    """Store what judges say, and the random order in which people are asked; return its length.

    Raises:
        InputError: no item has a label of every judge.
    """
    settings = change.settings
    stored = {item.item_id for item in change.items.all()}
    members = stored.intersection(*judged.labels.values())
    if not members:
        raise InputError(
            "No item has a label of every judge, so there is nothing to audit: name one judge."
        )

    for judge, labels in judged.labels.items():
        detail = {"column": judge, "confidence": settings.judges[judge]}
        source = Source(validate_source_name(judge), SourceKind.PREDICTIONS, detail)
        source = change.suggestions.write_source(source, who)
        confidences = judged.confidences.get(judge, {})
        suggestions = [
            Suggestion(item, label, confidences.get(item))
            for item, label in labels.items()
            if item in stored
        ]
        change.suggestions.write(source, suggestions)

    # A hash of each id: the order depends on nothing that a judge or a person says.
    seed = stream_seed(settings.seed, "audit")
    order = sorted(members, key=lambda item: stream_seed(seed, item))
    finish = _freeze_judge(change, judged, order)
    store_finish(change, finish, who)
    change.finishes.set_asked_draws(finish.number, len(order), who)
    picks = next_draws(change, READY_DRAWS)
    shared = [pick.item for pick in picks if settings.is_shared(pick.item)]
    change.items.request_annotators(shared, settings.people)
    change.picks.add_batch(None, picks, BatchOrigin(settings.strategy, settings.seed, 0))
    return len(order)


def _freeze_judge(view: Reading, judged: JudgedItems, order: list[str]) -> FrozenFinish:
    """Return the first judge as a model that is to label the rest."""
    judge, labels = next(iter(judged.labels.items()))
    given = judged.confidences.get(judge, {})
    index_of_class = {name: index for index, name in enumerate(view.classes.names())}
    predicted = [index_of_class[labels[item]] for item in order]
    # Without confidences, all items are in one step.
    confidences = np.array([given.get(item, 0.0) for item in order], dtype=np.float64)

    # What a judge is required to have right is a verdict, which may be read off the interval. A
    # promise has terms of its own, from before the first draw.
    terms = goal_terms(view.settings) or PromiseTerms()
    level = attempt_level(terms.confidence, 1)
    needed = 0
    if terms.labelled is not None:
        needed = count_needed(view, read_snapshot(view), terms.labelled, order)
    if needed > len(order):
        most = math.floor(100 * len(order) / view.items.count())
        raise InputError(
            f"The goal asks for labels of {needed:,} items, and {len(order):,} have one of every "
            f"judge: ask for at most {most}% labelled (goal=)."
        )
    steps = make_steps(confidences, terms, level, needed=needed)
    content = repr([(item, labels[item]) for item in order])
    checksum = hashlib.sha256(content.encode())
    return FrozenFinish(
        number=1,
        started=view.now(),
        model_version=0,
        checksum=checksum.hexdigest(),
        terms=terms,
        items=order,
        predicted=np.array(predicted, dtype=np.int64),
        confidences=confidences,
        groups=(PromiseGroup(None, level, tuple(steps)),),
        asked_draws=len(order),
    )


def next_draws(view: Reading, count: int) -> list[Pick]:
    """Return the next items to ask about, in the order of the draws. It needs no features."""
    answers = view.answers.live()
    settled = {answer.item for answer in answers if answer.origin.is_blind}
    settled |= view.decisions.live().keys()
    settled |= view.picks.open_or_ready_items() | set(view.items.withdrawn())
    picks: list[Pick] = []
    for item in view.finishes.drawn_items():
        if len(picks) == count:
            break
        if item not in settled:
            picks.append(Pick(item, len(picks) + 1, PickArm.CONTROL, {}))
    return picks
