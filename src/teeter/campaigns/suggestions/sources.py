"""Suggestions of other models: read from a file, measured on control items, and shown to people.

A suggestion is never a label. It is shown on picked items only: control, holdout and shared items
are always answered blind, so that models and annotators are measured on answers that no suggestion
influenced. One in ten picked items is answered blind, too. If annotators agree with suggestions
more often where they see them than where they do not, suggestions influence them; the team page
shows both shares.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from teeter.base.files import require_file
from teeter.base.registry import did_you_mean
from teeter.base.seeds import stream_seed
from teeter.base.wording import list_some, pluralize
from teeter.campaigns.classes import as_class_name
from teeter.campaigns.items.item import require_printable
from teeter.campaigns.learning.prior import CLASS_NAMES
from teeter.campaigns.learning.stopping import estimate_accuracy
from teeter.campaigns.records import (
    AnswerKind,
    PickArm,
    PredictionImport,
    SourceKind,
    SourceReport,
)
from teeter.campaigns.review.consensus import CampaignSnapshot, answers_of_people, read_snapshot
from teeter.campaigns.settings import IMPORTED
from teeter.campaigns.store import (
    CampaignStore,
    Reading,
    Source,
    Suggestion,
)
from teeter.data.table_files import (
    JSON_SUFFIXES,
    TABLE_SUFFIXES,
    is_missing,
    read_json_objects,
    read_table,
    refuse_frame,
)
from teeter.errors import InputError

BLIND_SHARE = 0.1
"""The share of picked items that are shown without their suggestion, to compare with the others."""

MAX_SOURCE_NAME = 80
"""Characters of the name of a source, which stands on the page."""

_ID_COLUMNS = ("id", "item", "item_id", "ids")
_LABEL_COLUMNS = ("label", "class", "prediction", "predicted", "suggestion")
_PROBABILITY_COLUMNS = ("probability", "confidence", "score", "p")

_NAMED_LABELS = 5
"""Unknown classes of a file that are named one by one."""

_SUM_TOLERANCE = 0.02
"""How far the sum of rounded probabilities may be from 1."""


# Reading predictions


def read_predictions(path: Path, classes: Sequence[str]) -> list[Suggestion]:
    """Return the predictions in a file.

    A table (.csv, .parquet) or JSON lines (.jsonl) with an ``id``, and either a ``label`` with an
    optional ``probability``, or the probability of every class: in columns named after the
    classes, or in an object ``probabilities``.

    Args:
        path: the file.
        classes: the classes of the campaign.

    Raises:
        FileError: the file cannot be read.
        InputError: it has no ids or no predictions, a probability is no number from 0 to 1, or
            those of a row do not cover the classes or do not add up to 1.
    """
    file = require_file(path, (*TABLE_SUFFIXES, *JSON_SUFFIXES), "a file of predictions")

    if file.suffix.lower() in JSON_SUFFIXES:
        objects = read_json_objects(file)
        rows = [fields for _, fields in objects]
        places = [place for place, _ in objects]
    else:
        table = read_table(file)
        places = [table.place(number) for number in range(len(table))]
        columns = {name: table.texts(name) for name in table.columns}
        # As dictionaries, like JSON lines, so that both are read the same way.
        rows = []
        for number in range(len(table)):
            rows.append({name: cells[number] for name, cells in columns.items()})

    return parse_predictions(rows, classes, origin=path.name, places=places)


def parse_predictions(
    rows: Iterable[Mapping[str, Any]],
    classes: Sequence[str],
    *,
    origin: str = "the predictions",
    places: Sequence[str] | None = None,
) -> list[Suggestion]:
    """Return rows of predictions as suggestions. Rows without a prediction are left out.

    Args:
        rows: as in ``read_predictions``.
        classes: the classes of the campaign.
        origin: where they come from, for errors.
        places: where each row is in a file, such as ``line 7``. By default rows are counted from 1.

    Raises:
        InputError: a row has no id or no prediction that can be read, or an item occurs twice.
    """
    refuse_frame(rows)
    suggestions: dict[str, Suggestion] = {}
    for number, row in enumerate(rows, start=1):
        place = f"row {number} of {origin}"
        if places is not None:
            place = f"{places[number - 1]} of {origin}"
        if not isinstance(row, Mapping):
            raise InputError(
                f"There is a {type(row).__name__} in {place}: give a dictionary with id and label."
            )
        item = _find_value(row, _ID_COLUMNS)
        if item is None:
            raise InputError(
                f"{place[0].upper()}{place[1:]} has no item id, which must be in a column called "
                f"'id'. Its columns are: {', '.join(map(str, row)) or 'none'}."
            )

        item_id = str(item)
        if item_id in suggestions:
            raise InputError(f"{origin} has two predictions for the item {item_id!r}: keep one.")

        predicted = _parse_prediction(row, classes, place)
        if predicted is not None:
            label, probability = predicted
            suggestions[item_id] = Suggestion(item_id, label, probability)

    if not suggestions:
        raise InputError(f"There are no predictions in {origin}.")
    return list(suggestions.values())


def _find_value(row: Mapping[str, Any], names: Sequence[str]) -> Any:
    """Return the first value under one of some names; None if all are missing or empty."""
    by_name = {}
    for name, value in row.items():
        plain_name = str(name).strip().lower()
        by_name[plain_name] = value
    for name in names:
        value = by_name.get(name)
        if not _is_missing_value(value):
            return value
    return None


def _is_missing_value(value: Any) -> bool:
    """Return whether a value is None, NaN, or a text that stands for a missing value."""
    if isinstance(value, str):
        return is_missing(value)
    if isinstance(value, float | np.floating):
        # NaN is the only value that differs from itself. Data frames use it for empty cells.
        return bool(value != value)
    return value is None


def _parse_prediction(
    row: Mapping[str, Any], classes: Sequence[str], place: str
) -> tuple[str, float | None] | None:
    """Return the class of a row and its probability; None if the row predicts nothing."""
    label = _find_value(row, _LABEL_COLUMNS)
    if label is not None:
        probability = _find_value(row, _PROBABILITY_COLUMNS)
        if probability is None:
            return as_class_name(label), None
        return as_class_name(label), _parse_probability(probability, place)

    given = row.get("probabilities")
    if isinstance(given, str) and not is_missing(given):
        try:
            given = json.loads(given)
        except ValueError:
            raise InputError(f"The probabilities in {place} are not a JSON object.") from None
    has_columns = not isinstance(given, Mapping)
    by_class: Mapping[Any, Any] = row
    if isinstance(given, Mapping):
        by_class = given

    renamed = _match_classes(tuple(by_class), tuple(classes))
    probabilities = {}
    for key, value in by_class.items():
        name = renamed.get(key, str(key))
        is_class = not has_columns or key in renamed
        if is_class and not _is_missing_value(value):
            probabilities[name] = _parse_probability(value, place)
    if probabilities:
        _require_distribution(probabilities, classes if has_columns else (), place)
        best = max(probabilities, key=probabilities.__getitem__)
        return best, probabilities[best]

    # An empty cell says that a model has no opinion. Without such a column, the file is another.
    columns = {str(name).strip().lower() for name in row}
    expected = {*_LABEL_COLUMNS, "probabilities"}
    expected.update(name.lower() for name in classes)
    if columns.isdisjoint(expected):
        raise InputError(
            f"Cannot find a prediction in {place}: put it in a column called label, or add a "
            f"column named after each class. The columns are {', '.join(map(str, row))}."
        )
    return None


@lru_cache(maxsize=32)
def _match_classes(keys: tuple[Any, ...], classes: tuple[str, ...]) -> dict[Any, str]:
    """Return the class that each key names, whatever its case where only one class fits."""
    # Cached, because all rows of a table have the same keys.
    classes_by_fold: dict[str, list[str]] = {}
    for name in classes:
        classes_by_fold.setdefault(name.casefold(), []).append(name)
    folded = [str(key).strip().casefold() for key in keys]
    n_keys = Counter(folded)

    matched = {key: key for key in keys if key in classes}
    for key, fold in zip(keys, folded, strict=True):
        same = classes_by_fold.get(fold, [])
        is_unique = n_keys[fold] == 1 and len(same) == 1
        if key not in matched and is_unique:
            matched[key] = same[0]
    return matched


def _require_distribution(
    probabilities: Mapping[str, float], classes: Sequence[str], place: str
) -> None:
    """Check that probabilities cover the classes and add up to 1.

    Raises:
        InputError: they do not.
    """
    missing = [name for name in classes if name not in probabilities]
    if missing:
        raise InputError(
            f"There is no probability of {missing[0]!r} in {place}: give the probability of every "
            f"class, or of none."
        )

    total = sum(probabilities.values())
    if abs(total - 1) > _SUM_TOLERANCE:
        raise InputError(
            f"The probabilities in {place} add up to {total:.3g}: they must add up to 1. If they "
            f"are scores of another kind, give only the label."
        )


def _parse_probability(value: Any, place: str) -> float:
    try:
        probability = float(value)
    except (TypeError, ValueError):
        probability = math.nan
    if not 0 <= probability <= 1:
        raise InputError(
            f"The probability {value!r} in {place} must be a number from 0 to 1. If the column "
            f"holds scores of another kind, leave it out."
        )
    return probability


# Storing predictions


def store_predictions(
    store: CampaignStore,
    predictions: Sequence[Suggestion],
    source_name: str,
    *,
    who: str,
    detail: Mapping[str, Any] | None = None,
) -> PredictionImport:
    """Store predictions as suggestions of a source, in place of its earlier ones.

    Predictions about unknown items or classes are left out and counted.

    Raises:
        InputError: not a single prediction is about an item and a class of the campaign, or the
            name belongs to a language model.
    """
    name = validate_source_name(source_name)

    with store.writing() as change:
        require_no_judge(change, name)
        item_ids = {item.item_id for item in change.items.all()}
        aliases = change.items.aliases()
        classes = set(change.classes.names())
        former_names = change.classes.former_names()

        usable: dict[str, Suggestion] = {}
        unknown_items = 0
        unknown_labels: dict[str, int] = {}
        for prediction in predictions:
            # A duplicate that was skipped is known under the id of the stored item.
            item = aliases.get(prediction.item, prediction.item)
            label = former_names.get(prediction.label, prediction.label)
            if item not in item_ids:
                unknown_items += 1
            elif label not in classes:
                unknown_labels[label] = unknown_labels.get(label, 0) + 1
            else:
                usable[item] = Suggestion(item, label, prediction.probability)

        if not usable:
            raise InputError(
                _explain_unusable(predictions, item_ids, sorted(classes), unknown_labels)
            )

        # Replaced as a whole: what a model no longer predicts must not stay behind.
        source = Source(name, SourceKind.PREDICTIONS, dict(detail or {}))
        source = change.suggestions.write_source(source, who)
        change.suggestions.clear(source)
        change.suggestions.write(source, list(usable.values()))

    count = pluralize(len(usable), "suggestion")
    sentences = [f"Added {count} by {name}."]
    if unknown_items:
        count = pluralize(unknown_items, "prediction")
        sentences.append(f"Left out {count} for items that the campaign does not have.")
    if unknown_labels:
        count = pluralize(sum(unknown_labels.values()), "prediction")
        listed = list_some([repr(label) for label in unknown_labels], _NAMED_LABELS)
        sentences.append(f"Left out {count} of classes that the campaign does not have: {listed}.")
    return PredictionImport(
        source=name,
        stored=len(usable),
        unknown_items=unknown_items,
        unknown_labels=unknown_labels,
        missing=len(item_ids) - len(usable),
        sentences=sentences,
    )


def require_no_judge(view: Reading, name: str) -> None:
    """Raise InputError if a source is a judge of the campaign's audit, whose labels must stay."""
    if name in view.settings.judges:
        raise InputError(
            f"{name!r} is a judge of the audit, whose labels cannot change: give the predictions "
            "another name."
        )


def validate_source_name(name: str) -> str:
    """Return the name of a source without spaces around it.

    Raises:
        InputError: it is blank, too long, cannot be displayed, or stands for the class names.
    """
    stripped = name.strip()
    require_printable(stripped, "name of a source")
    if not stripped or len(stripped) > MAX_SOURCE_NAME or stripped == CLASS_NAMES:
        raise InputError(
            f"{name!r} cannot be the name of a source: give 1 to {MAX_SOURCE_NAME} characters, "
            f"and not {CLASS_NAMES!r}."
        )
    return stripped


def _explain_unusable(
    predictions: Sequence[Suggestion],
    item_ids: set[str],
    classes: Sequence[str],
    unknown_labels: Mapping[str, int],
) -> str:
    """Return why no prediction can be used: wrong ids, or wrong classes."""
    if unknown_labels:
        label = next(iter(unknown_labels))
        return (
            f"No prediction names a class of the campaign: there is no class {label!r}. "
            f"{did_you_mean(label, classes)}"
        )
    given = predictions[0].item
    stored = next(iter(sorted(item_ids)), None)
    example = "it has no items" if stored is None else f"its ids look like {stored!r}"
    return (
        f"No prediction is for an item of the campaign: the campaign has no item {given!r}; "
        f"{example}."
    )


# Measuring sources


def visible_suggestions(
    view: Reading,
    reports: Sequence[SourceReport],
    row_ids: Sequence[int],
) -> dict[str, Suggestion]:
    """Return the suggestion to show with each picked item, of the best source that has one.

    Items that are to be answered blind are left out. The caller leaves out control, holdout and
    shared items, too.

    Args:
        reports: the sources with their measured accuracy.
        row_ids: the row ids of the items.

    Returns:
        By item id.
    """
    if not reports:
        return {}

    # One suggestion per item: several would be a vote, which only consensus may hold.
    ranked = rank_sources(reports)
    by_item = view.suggestions.for_items(row_ids)
    visible = {}
    for item, by_source in by_item.items():
        if not is_answered_blind(item, view.settings.seed):
            best = next(name for name in ranked if name in by_source)
            visible[item] = by_source[best]
    return visible


def is_answered_blind(item: str, seed: int) -> bool:
    """Return whether a picked item is shown without a suggestion, to measure their influence.

    The item's id alone decides, so that the answer never changes.
    """
    # 53 bits fill a float exactly: a uniform number in [0, 1).
    bits = stream_seed(seed, "blind", item) % 2**53
    return bits / 2**53 < BLIND_SHARE


def measure_sources(view: Reading, snapshot: CampaignSnapshot | None = None) -> list[SourceReport]:
    """Return all sources with their measured accuracy, oldest first.

    Args:
        snapshot: its answers, if they were read before.
    """
    sources = view.suggestions.sources()
    if not sources:
        return []

    snapshot = snapshot or read_snapshot(view)
    snapshot = snapshot.without_withdrawn()
    random_items = view.picks.control_items()
    random_items |= view.items.holdout()
    # Random items of what was left are no sample of all, and no picks of the strategy either.
    finish_items = view.picks.items_of_arm(PickArm.FINISH)
    shown = view.suggestions.shown_with_live_answers()

    shown_items = {item for item, _ in shown}
    labels = snapshot.measuring_labels
    # Labels that came with a file do not count: an old model may have been trained on them.
    by_people = {answer.item for answer in answers_of_people(snapshot.answers)}
    imported = {answer.item for answer in snapshot.answers} - by_people
    measurable = (random_items & labels.keys()) - shown_items - imported

    reports = []
    for source in sources:
        suggested = {
            suggestion.item: suggestion.label for suggestion in view.suggestions.of_source(source)
        }
        usage = None
        if source.kind is SourceKind.LANGUAGE_MODEL:
            usage = view.suggestions.usage(source)

        measured = [item for item in measurable if item in suggested]
        right = sum(labels[item] == suggested[item] for item in measured)

        # Whether annotators answered what was suggested, on picked items.
        shown_agreements = []
        blind_agreements = []
        for answer in snapshot.answers:
            is_label = answer.kind is AnswerKind.LABEL and answer.annotator != IMPORTED
            if not is_label or answer.item in random_items | finish_items:
                continue

            visible = shown.get((answer.item, answer.annotator))
            if visible is not None and visible.source == source.name:
                shown_agreements.append(visible.label == answer.label)
            elif visible is None and answer.item in suggested:
                blind_agreements.append(suggested[answer.item] == answer.label)

        budget = source.detail.get("budget")
        remaining = None
        if budget is not None and usage is not None:
            remaining = max(0.0, float(budget) - usage.cost)

        report = SourceReport(
            name=source.name,
            kind=source.kind,
            items=len(suggested),
            accuracy=estimate_accuracy(right, len(measured)),
            shown=estimate_accuracy(sum(shown_agreements), len(shown_agreements)),
            blind=estimate_accuracy(sum(blind_agreements), len(blind_agreements)),
            # Only the host: the path of an address may tell more than annotators should know.
            sent_to=urlsplit(str(source.detail.get("url", ""))).netloc or None,
            remaining_budget=remaining,
            usage=usage,
        )
        reports.append(report)
    return reports


def rank_sources(reports: Sequence[SourceReport]) -> list[str]:
    """Return the names of sources in the order in which their suggestions are shown.

    By measured accuracy, with one right and one wrong answer added so that a few lucky items do not
    decide; the newer source first where that is equal.
    """

    def sort_key(entry: tuple[int, SourceReport]) -> tuple[float, int]:
        position, report = entry
        right = 0
        total = 0
        if report.accuracy is not None:
            right = report.accuracy.right
            total = report.accuracy.total
        return ((right + 1) / (total + 2), position)

    ranked = sorted(enumerate(reports), key=sort_key, reverse=True)
    return [report.name for _, report in ranked]
