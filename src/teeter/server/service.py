"""A campaign as its pages and REST need it, with values that are kept until it changes."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from unicodedata import combining, normalize

import numpy as np
from safetensors.numpy import load

from teeter.base.files import resolve_inside
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.finish.report import FinishReport, look
from teeter.campaigns.items.columns import read_shown_columns, replace_surrogates
from teeter.campaigns.learning.stopping import estimate_model_accuracy
from teeter.campaigns.people import require_name
from teeter.campaigns.records import (
    Answer,
    AnswerKind,
    ClassDescription,
    ConsensusMethod,
    ItemFilter,
    ItemKind,
    ItemQuery,
    ShownSuggestion,
)
from teeter.campaigns.review.consensus import CampaignSnapshot, ConsensusLabel
from teeter.campaigns.settings import IMPORTED
from teeter.campaigns.shortcuts import shortcuts_by_class
from teeter.campaigns.store import ModelSummary, Pick, Reading, StoredItem
from teeter.campaigns.store.caching import cached_by
from teeter.campaigns.suggestions.sources import SourceReport, measure_sources, visible_suggestions
from teeter.errors import FileError, InputError, StoreError, UnknownItemError
from teeter.server.schemas import (
    AnswerOut,
    ChangedPrediction,
    ClassOut,
    ItemContent,
    ItemOut,
    ItemRow,
    ItemsOut,
    LabelsOut,
    ModelRound,
    PickOut,
    ProgressOut,
    QuestionOut,
    RecentAnswer,
    ShownColumn,
    SuggestionOut,
    UndoneAnswer,
    UndoOut,
)
from teeter.server.worker.requests import Explanation

__all__ = [
    "CampaignService",
    "ItemCounts",
    "NewestModel",
    "make_slug",
]


_MAX_TEXT = 20_000
"""Characters of a text that are sent to the page."""

_MAX_FEATURES = 256
"""Features of an item that are sent to the page."""

_MIN_SEARCHED = 500
"""Items that one search for a value in a column looks at."""

_MAX_EXCERPT = 160
"""Characters of a text in a table."""

_WRITE_TIMEOUT = 10
"""Seconds that an answer waits for another process that writes. The page waits 20 for us."""

_MEASURE_SECONDS = 10.0
"""How long a measured accuracy of a source is used. Measuring reads all answers."""

_TEAM_CHECK_SECONDS = 5.0
"""How long it may take until a second annotator is noticed."""


@dataclass(frozen=True)
class ItemCounts:
    """How many items a campaign has, and how many have answers of each kind.

    Withdrawn items do not count.
    """

    items: int
    labelled: int
    skipped: int
    unsure: int
    flagged: int


@dataclass(frozen=True)
class NewestModel:
    """The newest model of a campaign."""

    version: int
    """0 before there is a model."""
    trained_at: float | None
    """When it was trained, in seconds since 1970."""


def make_slug(name: str, taken: Iterable[str]) -> str:
    """Return a name for addresses: lower-case letters, digits and hyphens.

    Args:
        taken: names that the new one must differ from.

    Example:
        >>> make_slug("Straße 1", taken=[]), make_slug("Spam!", taken=["spam"])
        ('strasse-1', 'spam-2')
    """
    # NFKD splits letters from their accents.
    decomposed = normalize("NFKD", name.casefold())
    letters = "".join(character for character in decomposed if not combining(character))
    stem = re.sub(r"[^a-z0-9]+", "-", letters).strip("-") or "campaign"

    taken = set(taken)
    slug = stem
    number = 2
    while slug in taken:
        slug = f"{stem}-{number}"
        number += 1
    return slug


class CampaignService:
    """One campaign that is open to be labelled.

    Args:
        location: the campaign's file or database URL.
        slug: its name in addresses.
    """

    def __init__(self, location: str | Path, slug: str) -> None:
        self.location = str(location)
        self.slug = slug
        self._campaign = Campaign.open(location)
        # Shorter than the default: people should see at once that an answer is not saved.
        self._campaign.database.write_timeout = _WRITE_TIMEOUT
        self._was_team = False

    # The campaign itself

    @property
    def campaign(self) -> Campaign:
        """The campaign.

        Raises:
            StoreError: its file was moved or removed. Nothing is read from or written to it then.
        """
        self._require_file()
        return self._campaign

    @property
    def name(self) -> str:
        """The name that people know it by."""
        return self._campaign.name

    @property
    def path(self) -> Path | None:
        """Its file; None for a database on a server."""
        return self._campaign.database.path

    @property
    def display_location(self) -> str:
        """Its file or database URL, without a password."""
        return self._campaign.database.display_url

    @property
    def image_folder(self) -> Path | None:
        """The folder that it names for its images; None if it has no images."""
        folder = self._campaign.settings.folder
        return None if folder is None else Path(folder)

    def compute_identity(self) -> str:
        """Return a hash that differs for every campaign, also for a later one of the same name."""
        with self.campaign.reading() as view:
            stored = view.campaign()

        # The time of creation tells a campaign from a later one in the same file.
        identity = repr((stored.name, stored.created))
        return hashlib.blake2b(identity.encode(), digest_size=8).hexdigest()

    def is_in_place(self) -> bool:
        """Return whether its file is still where it was opened."""
        return self._campaign.database.is_in_place()

    def _require_file(self) -> None:
        if self.is_in_place():
            return

        name = self.name if self.path is None else self.path.name
        raise StoreError(
            f"{name} was moved or removed while the server was running: move it back, then "
            f"restart the server."
        )

    def is_team(self) -> bool:
        """Return whether several people work on it. A campaign that was a team stays one."""
        # Remembered: the tabs of a page must not come and go with the number of people at work.
        if not self._was_team:
            self._was_team = self._has_several_people()
        return self._was_team

    @cached_by(lambda service: int(time.monotonic() / _TEAM_CHECK_SECONDS))
    def _has_several_people(self) -> bool:
        if self.campaign.settings.overlap > 0 or len(self.campaign.people.list()) > 1:
            return True

        with self.campaign.reading() as view:
            return view.answers.has_several_annotators(except_for=IMPORTED)

    def list_classes(self) -> list[ClassOut]:
        """Return the classes with their shortcuts and descriptions."""
        # Read every time: classes can be added and described while the server runs.
        shortcuts = shortcuts_by_class(self.campaign.classes, self.campaign.settings.keys)
        descriptions = self.campaign.descriptions

        described = []
        for name, shortcut in shortcuts.items():
            description = descriptions.get(name, ClassDescription())
            described.append(
                ClassOut(
                    name=name,
                    shortcut=shortcut,
                    description=description.description,
                    examples=list(description.examples),
                )
            )
        return described

    def newest_model(self) -> NewestModel:
        """Return the version of the newest model, and when it was trained."""
        with self.campaign.reading() as view:
            summary = view.models.newest_summary()

        if summary is None:
            return NewestModel(version=0, trained_at=None)
        trained_at = datetime.fromisoformat(summary.trained).timestamp()
        return NewestModel(summary.version, trained_at)

    def has_unencoded_items(self) -> bool:
        """Return whether the current encoder has not encoded all items yet."""
        with self.campaign.reading() as view:
            current = view.encodings.current()
            # Without a stored state there is no encoder that could encode the rest.
            if current is None or current.state is None:
                return False
            return view.encodings.count_missing(current.row_id) > 0

    def close(self) -> None:
        """Close the database."""
        self._campaign.database.close()

    # Questions

    def list_questions(
        self, annotator: str, n: int, explanations: Mapping[str, Explanation]
    ) -> list[QuestionOut]:
        """Return the items that wait for an annotator, oldest first.

        Args:
            explanations: what the model makes of items, by item id.
        """
        questions = []
        with self.campaign.reading() as view:
            picks = view.picks.open_picks(annotator, n)
            rows = view.items.by_id([pick.item for pick in picks])
            suggestions = self._find_suggestions(view, list(rows.values()))

            for stored_pick in picks:
                pick = self._describe_pick(stored_pick)
                question = QuestionOut(
                    item=stored_pick.item,
                    content=self.read_content(rows[stored_pick.item], view),
                    pick=pick,
                )
                # Control, audit and shared items are labelled without the model's opinion.
                if not pick.is_blind:
                    question.explanation = explanations.get(stored_pick.item)
                    question.suggestion = suggestions.get(stored_pick.item)
                questions.append(question)

        return questions

    # Suggestions

    def _suggestion_version(self, view: Reading) -> tuple[int, tuple[object, ...]]:
        """Return a value that changes with the sources, and every few seconds with the answers."""
        seconds = int(time.monotonic() / _MEASURE_SECONDS)
        return seconds, view.suggestions.revision()

    @cached_by(_suggestion_version)
    def measure_sources(self, view: Reading) -> list[SourceReport]:
        """Return the sources of suggestions with their accuracy, a few seconds old at most."""
        return measure_sources(view)

    def _find_suggestions(
        self, view: Reading, rows: Sequence[StoredItem]
    ) -> dict[str, SuggestionOut]:
        """Return the suggestion to show with each item, by item id."""
        reports = self.measure_sources(view)
        accuracies = {report.name: report.accuracy for report in reports}
        visible = visible_suggestions(
            view,
            reports,
            [row.row_id for row in rows],
        )

        shown = {}
        for item, suggestion in visible.items():
            shown[item] = SuggestionOut(
                source=suggestion.source,
                label=suggestion.label,
                probability=suggestion.probability,
                accuracy=accuracies[suggestion.source],
            )
        return shown

    def assign_ready_items(self, annotator: str, n: int) -> bool:
        """Assign items that need no picking, until n items wait for an annotator.

        Returns:
            Whether n items wait for the annotator now, or at least one was assigned.
        """
        require_name(annotator)
        with self.campaign.reading() as view:
            # Most polls end here, without the write lock that answers need.
            if not view.picks.has_assignable():
                return False

        with self.campaign.writing() as change:
            # Counted in the transaction that assigns: the worker may have assigned items meanwhile.
            missing = n - len(change.picks.open_picks(annotator, n))
            return missing <= 0 or change.picks.assign(annotator, missing) > 0

    def _describe_pick(self, pick: Pick) -> PickOut:
        """Return why an item was picked, without the prediction if annotators must not see it."""
        described = PickOut(
            arm=pick.arm, rank=pick.rank, is_shared=self.campaign.settings.is_shared(pick.item)
        )
        if described.is_blind:
            return described

        for name, value in pick.reason.items():
            if name == "predicted":
                described.predicted = value
            elif name == "probability":
                described.probability = value
            else:
                described.scores[name] = value
        return described

    def read_content(self, row: StoredItem, view: Reading) -> ItemContent:
        """Return what annotators see of an item."""
        content = ItemContent(kind=row.kind)

        if row.kind is ItemKind.TEXT and row.content:
            # A text of megabytes would stall the browser. The page says that it is cut.
            content.text = row.content[:_MAX_TEXT]
            if len(row.content) > _MAX_TEXT:
                content.characters = len(row.content)

        if row.kind is ItemKind.FEATURES:
            vector = view.encodings.vector_of(row.row_id)
            values = [] if vector is None else vector[:_MAX_FEATURES].tolist()
            content.features = [round(value, 5) for value in values]

        names = self.campaign.settings.show
        shown = read_shown_columns(view, names, [row.row_id])
        for name, value in shown.get(row.row_id, {}).items():
            content.columns.append(ShownColumn(name=name, value=value))

        return content

    # Answers

    def record_answer(self, answer: Answer, shown: ShownSuggestion | None = None) -> AnswerOut:
        """Record an answer. It is on disk when this returns.

        Args:
            shown: the suggestion that the annotator saw, if any.

        Raises:
            UnknownNameError: there is no such item or class.
            InputError: the kind and the label do not fit.
            StoreError: the answer could not be stored, or the file was moved meanwhile.
        """
        # Idempotent: a page that got no response sends the answer again, and it counts once.
        receipt = self.campaign.answer(answer, shown=shown)
        # A file that was moved while it was written to is not where people look for the answer.
        self._require_file()
        return AnswerOut(
            new=receipt.recorded,
            labelled=self.count_items().labelled,
            number=receipt.number,
            late=receipt.late,
        )

    def confirm_label(self, annotator: str, item: str, comment: str | None = None) -> AnswerOut:
        """Record that a label was reviewed and is right."""
        # Stored as an answer of its own, so that undo takes it back like any other.
        receipt = self.campaign.confirm_label(item, annotator, comment=comment)
        self._require_file()
        return AnswerOut(
            new=receipt.recorded, labelled=self.count_items().labelled, number=receipt.number
        )

    def undo_answer(self, annotator: str, number: int) -> UndoOut:
        """Undo the last answer of an annotator.

        Args:
            number: the answer. It stays if they have answered since.
        """
        undone = self.campaign.undo(annotator, number=number)
        if undone is None:
            return UndoOut(undone=None)

        with self.campaign.reading() as view:
            row = view.items.get(undone.answer.item)
            # The page shows the item again as it was, with the reason why it was picked.
            picks = view.picks.last_picks(annotator, [row.row_id])
            pick = picks.get(row.row_id)

            described = UndoneAnswer(
                item=row.item_id,
                content=self.read_content(row, view),
                pick=None if pick is None else self._describe_pick(pick),
                answer=_format_answer(undone.answer),
                previous=None if undone.before is None else _format_answer(undone.before),
                undone_answer=undone.answer,
                previous_answer=undone.before,
            )

        self._require_file()
        return UndoOut(undone=described)

    def recent_answers(self, annotator: str, count: int = 10) -> list[RecentAnswer]:
        """Return the last answers of an annotator, newest first."""
        recent = []
        with self.campaign.reading() as view:
            answers = view.answers.recent(annotator, count)
            rows = view.items.by_id([answer.item for answer in answers])
            row_ids = [row.row_id for row in rows.values()]
            picks = view.picks.last_picks(annotator, row_ids)

            for answer in answers:
                row = rows[answer.item]
                pick = picks.get(row.row_id)
                described = RecentAnswer(
                    number=answer.number,
                    item=answer.item,
                    content=self.read_content(row, view),
                    pick=None if pick is None else self._describe_pick(pick),
                    answer=_format_answer(answer),
                    comment=answer.comment,
                )
                recent.append(described)

        return recent

    # Labels

    def _newest_change(self, view: Reading) -> int:
        """Return a number that changes with every answer, decision and setting."""
        return view.history.newest_row_id()

    @cached_by(_newest_change)
    def look_at_finish(self, view: Reading) -> FinishReport | InputError:
        """Return what the model may label, or why there is nothing to look at.

        An error is returned rather than raised, so that it is remembered like a report.
        """
        snapshot = self.campaign.review.snapshot(view)
        try:
            return look(view, snapshot=snapshot)
        except InputError as error:
            return error

    def count_items(self) -> ItemCounts:
        """Return how many items there are, and how many have answers of each kind."""
        with self.campaign.reading() as view:
            by_kind = view.answers.count_items_by_kind()
            n_withdrawn = view.items.count_withdrawn()
            return ItemCounts(
                items=self._count_all_items(view) - n_withdrawn,
                labelled=by_kind[AnswerKind.LABEL],
                skipped=by_kind[AnswerKind.SKIP],
                unsure=by_kind[AnswerKind.UNSURE],
                flagged=by_kind[AnswerKind.FLAG],
            )

    def count_held_by_others(self, annotator: str) -> int:
        """Return the number of items that other annotators have open."""
        with self.campaign.reading() as view:
            open_items = view.picks.count_open_by_annotator()

        return sum(open_items.values()) - open_items.get(annotator, 0)

    def _newest_item(self, view: Reading) -> int:
        return view.items.newest_row_id()

    @cached_by(_newest_item)
    def _count_all_items(self, view: Reading) -> int:
        return view.items.count()

    # Items

    def list_items(self, query: ItemQuery) -> ItemsOut:
        """Return a page of the table of items."""
        with self.campaign.reading() as view:
            snapshot = self.campaign.review.snapshot(view)
            rows = self._search_items(query, view, snapshot)
            row_ids = [row.row_id for row in rows]
            by_item = view.answers.for_items(row_ids)
            unreadable = view.encodings.unreadable(row_ids)

        items = [_describe_row(row, by_item[row.row_id], snapshot, unreadable) for row in rows]
        page = ItemsOut(items=items, after=None, before=None)
        if items:
            page.before = items[0].row_id
        if len(items) == query.count:
            page.after = items[-1].row_id
        return page

    def _search_items(
        self, query: ItemQuery, view: Reading, snapshot: CampaignSnapshot
    ) -> list[StoredItem]:
        """Return the items of a page.

        The database finds items that any annotator gave a class, and items with a text in any
        column. Those that do not fit exactly are left out here, so it takes as many searches as are
        needed to fill the page.
        """
        labels = snapshot.labels
        is_backwards = query.before is not None
        is_narrowed = query.label is not None or bool(query.columns)
        count = query.count
        if query.columns:
            query = replace(query, count=max(count, _MIN_SEARCHED))

        page: list[StoredItem] = []
        while True:
            rows = view.items.search(query)
            matches = rows
            if query.label is not None:
                matches = [row for row in rows if labels.get(row.item_id) == query.label]
            if query.columns:
                row_ids = [row.row_id for row in matches]
                fitting = view.tables.matching_items(row_ids, query.columns)
                matches = [row for row in matches if row.row_id in fitting]

            if is_backwards:
                page = [*matches, *page][-count:]
            else:
                page = [*page, *matches][:count]

            is_last_search = not is_narrowed or len(rows) < query.count
            if is_last_search or len(page) == count:
                return page

            if is_backwards:
                query = replace(query, before=rows[0].row_id)
            else:
                query = replace(query, after=rows[-1].row_id)

    def describe_item(self, item: str, *, only_by: str | None = None) -> ItemOut:
        """Return an item with its answers.

        Args:
            only_by: an annotator; the answers of all others are hidden, and so is the label that
                follows from them.

        Raises:
            UnknownItemError: there is no such item.
        """
        with self.campaign.reading() as view:
            row = view.items.get(item)
            answers = view.answers.for_item(row.row_id)
            content = self.read_content(row, view)
            snapshot = self.campaign.review.snapshot(view)
            unreadable = view.encodings.unreadable([row.row_id])

        all_columns = {} if only_by is not None else replace_surrogates(self.campaign.row(item))
        if only_by is not None:
            answers = [answer for answer in answers if answer.annotator == only_by]
            snapshot = _snapshot_of_answers(row.item_id, answers)

        summary = _describe_row(row, answers, snapshot, unreadable)
        return ItemOut(
            row_id=row.row_id,
            item=row.item_id,
            content=content,
            label=summary.label,
            state=summary.state,
            by=summary.by,
            annotators=summary.annotators,
            audit=row.audit,
            withdrawn=row.withdrawn is not None,
            answers=answers,
            row=all_columns,
        )

    def find_image(self, item: str) -> Path:
        """Return the file of an item's image, which is inside the campaign's folder.

        Raises:
            UnknownItemError: there is no such item.
            FileError: it is not an image, its file is missing or outside the folder.
            InputError: only the campaign's file says that images may be read there.
        """
        with self.campaign.reading() as view:
            row = view.items.get(item)

        folder = self.campaign.image_folder
        if row.kind is not ItemKind.IMAGE or folder is None:
            raise FileError(f"{item} is not an image.")
        return resolve_inside(row.content or "", folder)

    # The map

    def _newest_features(self, view: Reading) -> tuple[int, int]:
        return view.encodings.revision()

    @cached_by(_newest_features)
    def _mapped_row_ids(self, view: Reading) -> list[int]:
        """Return row ids by index on the map, which is the row in a model's input."""
        return view.encodings.encoded_row_ids()

    def find_mapped_item(self, index: int) -> str:
        """Return the id of an item by its index on the map.

        Raises:
            UnknownItemError: the map has fewer items.
        """
        with self.campaign.reading() as view:
            row_ids = self._mapped_row_ids(view)
            if index >= len(row_ids):
                raise UnknownItemError(
                    f"No item has the index {index}: the campaign has {len(row_ids)} items."
                )

            row = view.items.get_by_row_id(row_ids[index])
        return row.item_id

    def newest_item_change(self) -> int:
        """Return a number that grows when a text changes, or items are withdrawn or put back."""
        with self.campaign.reading() as view:
            return view.items.newest_change()

    def labels_on_map(self) -> LabelsOut:
        """Return which items on the map are labelled or withdrawn, by their indices."""
        classes = list(self.campaign.classes)
        with self.campaign.reading() as view:
            snapshot = self.campaign.review.snapshot(view)
            labels = snapshot.without_withdrawn().labels
            shown_items = [*labels, *snapshot.withdrawn]
            rows = view.items.by_id(shown_items)
            row_ids = self._mapped_row_ids(view)

        index_of_row = {row_id: index for index, row_id in enumerate(row_ids)}
        index_of_class = {name: index for index, name in enumerate(classes)}

        points = []
        for item, label in labels.items():
            # Items without features are not on the map.
            index = index_of_row.get(rows[item].row_id)
            if index is not None:
                points.append((index, index_of_class[label]))

        withdrawn = [index_of_row.get(rows[item].row_id) for item in snapshot.withdrawn]
        return LabelsOut(
            classes=classes,
            labels=points,
            withdrawn=sorted(index for index in withdrawn if index is not None),
        )

    # Progress

    def describe_progress(self) -> ProgressOut:
        """Return the progress of the campaign, model by model."""
        status = self.campaign.status()
        with self.campaign.reading() as view:
            models = view.models.summaries()
            times = view.answers.label_times()

        return ProgressOut(
            status=status,
            rounds=[_describe_model(model) for model in models],
            times=times,
            spent=status.spent,
            budget=self.campaign.settings.budget,
        )

    def changed_predictions(self, count: int = 20) -> list[ChangedPrediction]:
        """Return items whose predicted class changed with the newest model, in their order."""
        classes = self.campaign.classes

        with self.campaign.reading() as view:
            weights = view.models.newest_weights(2)
            if len(weights) < 2:
                return []

            after, before = (load(stored)["predicted"] for stored in weights)
            row_ids = self._mapped_row_ids(view)
            # Items that were added between the two models have only one prediction.
            size = min(len(after), len(before), len(row_ids))
            is_changed = after[:size] != before[:size]
            snapshot = self.campaign.review.snapshot(view)
            # What a model predicts for items that could not be read means nothing.
            hidden = snapshot.withdrawn | view.encodings.unreadable().keys()
            hidden_items = view.items.by_id(list(hidden))
            hidden_row_ids = [row.row_id for row in hidden_items.values()]
            is_changed &= ~np.isin(row_ids[:size], hidden_row_ids)
            indices = np.flatnonzero(is_changed)[:count].tolist()

            rows = view.items.by_row_id([row_ids[index] for index in indices])
            answers = view.answers.for_items(list(rows))

        changed = []
        for index in indices:
            row_id = row_ids[index]
            summary = _describe_row(rows[row_id], answers[row_id], snapshot, unreadable=())
            prediction = ChangedPrediction(
                item=summary.item,
                excerpt=summary.excerpt,
                label=summary.label,
                before=classes[before[index]],
                after=classes[after[index]],
            )
            changed.append(prediction)
        return changed


def _format_answer(answer: Answer) -> str:
    return answer.label or answer.kind


def _describe_row(
    row: StoredItem,
    answers: Sequence[Answer],
    snapshot: CampaignSnapshot,
    unreadable: Container[str],
) -> ItemRow:
    """Return an item as a row of a table."""
    consensus = snapshot.consensus.get(row.item_id)
    label = None if consensus is None else consensus.label

    other_kinds = {answer.kind for answer in answers if answer.kind is not AnswerKind.LABEL}
    if row.item_id in snapshot.left_out and row.withdrawn is None:
        other_kinds.add(AnswerKind.FLAG)

    state: list[str] = sorted(other_kinds)
    if label is not None:
        # Beside a label, skips and doubts are of no interest. A flag is: the item is left out.
        flags = [kind for kind in state if kind == AnswerKind.FLAG]
        state = [label, *flags]
    if row.item_id in unreadable:
        state.append(ItemFilter.UNREADABLE)
    if row.withdrawn is not None:
        state.append(ItemFilter.WITHDRAWN)

    excerpt = ""
    if row.kind is ItemKind.TEXT and row.content:
        excerpt = row.content[:_MAX_EXCERPT]
        if len(row.content) > _MAX_EXCERPT:
            excerpt += "…"

    return ItemRow(
        row_id=row.row_id,
        item=row.item_id,
        kind=row.kind,
        excerpt=excerpt,
        label=label,
        state=", ".join(state),
        by=None if consensus is None else consensus.by,
        annotators=len({answer.annotator for answer in answers}),
        confidence=None if consensus is None else consensus.confidence,
    )


def _snapshot_of_answers(item: str, answers: Sequence[Answer]) -> CampaignSnapshot:
    """Return a campaign in which only the answers of one annotator about one item exist."""
    consensus = {}
    for answer in answers:
        if answer.label is not None:
            consensus[item] = ConsensusLabel(answer.label, 1.0, ConsensusMethod.MAJORITY)

    return CampaignSnapshot(list(answers), {}, consensus, frozenset())


def _describe_model(model: ModelSummary) -> ModelRound:
    facts = model.facts
    return ModelRound(
        version=model.version,
        trained=model.trained,
        labels=facts["labels"],
        classes=facts["classes"],
        control=facts["control"],
        audit=facts["audit"],
        kappa=facts.get("kappa"),
        changed=facts.get("changed"),
        accuracy=estimate_model_accuracy(facts),
    )
