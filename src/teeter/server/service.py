"""A campaign as its pages and REST need it, with values that are kept until it changes."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from unicodedata import combining, normalize

from teeter.campaigns.campaign import Campaign
from teeter.campaigns.finish.report import FinishReport, look
from teeter.campaigns.items.items import read_content
from teeter.campaigns.learning.stopping import estimate_model_accuracy
from teeter.campaigns.people import require_name
from teeter.campaigns.records import (
    Answer,
    ShownSuggestion,
)
from teeter.campaigns.settings import IMPORTED
from teeter.campaigns.store import ModelSummary, Pick, Reading, StoredItem
from teeter.campaigns.store.caching import cached_by
from teeter.campaigns.suggestions.sources import visible_suggestions
from teeter.errors import InputError, StoreError
from teeter.server.schemas import (
    AnswerOut,
    ModelRound,
    PickOut,
    ProgressOut,
    QuestionOut,
    RecentAnswer,
    SuggestionOut,
    UndoneAnswer,
    UndoOut,
)
from teeter.server.worker.requests import Explanation

__all__ = [
    "CampaignService",
    "NewestModel",
    "make_slug",
]


_WRITE_TIMEOUT = 10
"""Seconds that an answer waits for another process that writes. The page waits 20 for us."""

_TEAM_CHECK_SECONDS = 5.0
"""How long it may take until a second annotator is noticed."""


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
                    content=read_content(view, rows[stored_pick.item]),
                    pick=pick,
                )
                # Control, audit and shared items are labelled without the model's opinion.
                if not pick.is_blind:
                    question.explanation = explanations.get(stored_pick.item)
                    question.suggestion = suggestions.get(stored_pick.item)
                questions.append(question)

        return questions

    def _find_suggestions(
        self, view: Reading, rows: Sequence[StoredItem]
    ) -> dict[str, SuggestionOut]:
        """Return the suggestion to show with each item, by item id."""
        reports = self.campaign.suggestions.recent_sources(view)
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
            labelled=self.campaign.items.count().labelled,
            number=receipt.number,
            late=receipt.late,
        )

    def confirm_label(self, annotator: str, item: str, comment: str | None = None) -> AnswerOut:
        """Record that a label was reviewed and is right."""
        # Stored as an answer of its own, so that undo takes it back like any other.
        receipt = self.campaign.confirm_label(item, annotator, comment=comment)
        self._require_file()
        return AnswerOut(
            new=receipt.recorded,
            labelled=self.campaign.items.count().labelled,
            number=receipt.number,
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
                content=read_content(view, row),
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
                    content=read_content(view, row),
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

    def count_held_by_others(self, annotator: str) -> int:
        """Return the number of items that other annotators have open."""
        with self.campaign.reading() as view:
            open_items = view.picks.count_open_by_annotator()

        return sum(open_items.values()) - open_items.get(annotator, 0)

    # Items

    # The map

    def newest_item_change(self) -> int:
        """Return a number that grows when a text changes, or items are withdrawn or put back."""
        with self.campaign.reading() as view:
            return view.items.newest_change()

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


def _format_answer(answer: Answer) -> str:
    return answer.label or answer.kind


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
