"""What reviewers see and decide: ``campaign.review``."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from teeter.campaigns.classes import label_text
from teeter.campaigns.items.item import require_printable, require_valid_unicode
from teeter.campaigns.items.items import read_content
from teeter.campaigns.learning.rounds import RoundSettings
from teeter.campaigns.learning.saved_models import load_arrays
from teeter.campaigns.people import require_name
from teeter.campaigns.records import (
    DEFAULT_ANNOTATOR,
    AccuracyEstimate,
    Agreement,
    AnswerKind,
    AnswerReceipt,
    ClassAccuracy,
    Decision,
    Disagreement,
    DisagreementPage,
    RecentAnswer,
    SuspectLabel,
)
from teeter.campaigns.review.annotators import (
    measure_agreement,
    measure_agreement_on_sets,
    measure_confusion,
)
from teeter.campaigns.review.consensus import CampaignSnapshot, read_snapshot
from teeter.campaigns.status import count_unencoded, measure_bulk_agreement
from teeter.campaigns.store import Part, Reading, Writing, cached_by
from teeter.errors import InputError


def _newest_change(review: Review, view: Reading) -> int:
    """Return a number that changes with every answer, decision and setting."""
    return view.history.newest_row_id()


class Review(Part):
    """Labels that may be wrong, disagreements and decisions, and how far annotators agree."""

    def snapshot(self, view: Reading) -> CampaignSnapshot:
        """Return all answers and decisions, and the labels that follow, as a transaction sees them.

        They are kept until the history grows, for all who read the campaign.
        """
        # What a transaction wrote may never be on disk, so it is not kept.
        if isinstance(view, Writing):
            return read_snapshot(view)
        return self._read_snapshot(view)

    @cached_by(_newest_change)
    def _read_snapshot(self, view: Reading) -> CampaignSnapshot:
        return read_snapshot(view)

    def disagreements(self, count: int | None = None) -> DisagreementPage:
        """Return the items that need a decision, or the ``count`` least certain ones of them."""
        listed = []
        with self._campaign.reading() as view:
            snapshot = self.snapshot(view)
            disagreements = snapshot.disagreements()
            # Contents are read only for those that are shown: texts may be long.
            shown = disagreements[:count]
            rows = view.items.by_id([item for item, _ in shown])
            labels = snapshot.labels

            for item, by_annotator in shown:
                label = None
                # A flag by one annotator leaves an item out until a reviewer decides.
                if item not in snapshot.left_out:
                    label = labels.get(item)
                disagreement = Disagreement(
                    item=item,
                    content=read_content(view, rows[item]),
                    answers=dict(sorted(by_annotator.items())),
                    label=label,
                    confidence=snapshot.confidence(item),
                )
                listed.append(disagreement)

        return DisagreementPage(listed, waiting=len(disagreements))

    def suspects(self, count: int = 20, *, again: bool = False) -> list[SuspectLabel]:
        """Return labels that a model which was not trained on them finds unlikely.

        Args:
            count: how many labels to return at most.
            again: include labels that an annotator confirmed.
        """
        from teeter.campaigns.asking.selection import find_suspects

        if count < 1:
            raise InputError(f"Cannot list {count} labels: ask for 1 or more.")

        state = self._campaign.load_state()
        with self._campaign.reading() as view:
            confirmed = {}
            if not again:
                confirmed = view.answers.confirmed_labels()
            labels = self.snapshot(view).labels
        settled = {item for item, label in labels.items() if label == confirmed.get(item)}
        unlikely = find_suspects(
            state, RoundSettings.from_settings(self._campaign.settings), count, settled
        )

        with self._campaign.reading() as view:
            items = view.items.by_id([label.item for label in unlikely])

        return [replace(label, content=items[label.item].content) for label in unlikely]

    def decide(
        self,
        item: str,
        label: str | Collection[str] | None,
        reviewer: str = DEFAULT_ANNOTATOR,
        *,
        comment: str | None = None,
    ) -> AnswerReceipt:
        """Decide what an item is, whatever annotators say. The call is idempotent.

        Args:
            item: the item's id.
            label: a class, or all labels if items may have several; None if the item does not
                belong.
            reviewer: who decides.
            comment: a remark to store with it.

        Raises:
            UnknownNameError: there is no such item or class.
        """
        require_name(reviewer)
        require_valid_unicode(comment or "", "comment")
        decision = Decision(
            str(item),
            None if label is None else label_text(label, several=self._campaign.settings.several),
            reviewer,
            comment or None,
        )

        with self._campaign.writing() as change:
            if decision.label is not None and change.settings.several:
                decision = replace(decision, label=change.classes.find(decision.label)[1])
            current = change.decisions.for_item(decision.item)
            if current == decision and current.number is not None:
                return AnswerReceipt(current.number, recorded=False)
            return AnswerReceipt(change.decisions.record(decision))

    def undo_decision(
        self, reviewer: str = DEFAULT_ANNOTATOR, *, number: int | None = None
    ) -> Decision | None:
        """Take back a reviewer's last decision. The one before it holds again.

        Args:
            reviewer: the reviewer.
            number: the decision to take back. It is taken back once, however often the call is
                repeated, and stays if the reviewer has decided since.

        Returns:
            The decision; None if the reviewer has none, or has decided since.

        Raises:
            UnknownResourceError: there is no decision of this number.
            PermissionDeniedError: another reviewer made it.
        """
        require_printable(reviewer, "reviewer's name")

        with self._campaign.writing() as change:
            return change.decisions.undo(reviewer, number)

    def recent_decisions(self, reviewer: str, count: int = 10) -> list[RecentAnswer]:
        """Return the last decisions of a reviewer, newest first."""
        recent = []
        with self._campaign.reading() as view:
            decisions = view.decisions.recent(reviewer, count)
            rows = view.items.by_id([decision.item for decision in decisions])

            for decision in decisions:
                described = RecentAnswer(
                    number=decision.number,
                    item=decision.item,
                    content=read_content(view, rows[decision.item]),
                    answer=decision.label or AnswerKind.FLAG,
                    comment=decision.comment,
                )
                recent.append(described)

        return recent

    def confusion(self) -> list[ClassAccuracy]:
        """Return what the model takes the items of each class for, in the order of the classes.

        Only items that measure the model count: drawn at random and answered blind. The labels are
        those of today, the predictions those of models that were not trained on the item, when the
        newest model was trained. Empty before that.
        """
        with self._campaign.reading() as view:
            return self._measure_confusion(view)

    @cached_by(lambda _, view: (view.history.newest_row_id(), view.encodings.revision()))
    def _measure_confusion(self, view: Reading) -> list[ClassAccuracy]:
        snapshot = self.snapshot(view)
        labels = snapshot.measuring_labels
        weights = view.models.newest_weights(1)
        # Labels that go together are not mistaken for each other: see Status.by_label.
        if view.settings.several:
            return []
        # While features are computed, the places of a model's items are not known.
        if not weights or count_unencoded(view):
            return []
        arrays = load_arrays(weights[0])
        if "unseen" not in arrays:
            return []  # an earlier version of teeter trained it

        classes = view.classes.names()
        index_of_class = {name: index for index, name in enumerate(classes)}
        items = view.encodings.encoded_items()
        holdout = view.items.holdout()
        control = view.picks.random_items() - snapshot.left_out
        held_out = []
        for item, predicted in zip(items, arrays["predicted"].tolist(), strict=False):
            if item in holdout and item in labels and item not in snapshot.left_out:
                label = index_of_class[labels[item]]
                held_out.append((label, predicted))
        measured = []
        for place, predicted in zip(arrays["places"], arrays["unseen"].tolist(), strict=True):
            item = items[place]
            if item in control and item in labels:
                label = index_of_class[labels[item]]
                measured.append((label, predicted))
        # The larger set, as in ``estimate_model_accuracy``. No model is trained on the holdout.
        n_judged = len(arrays["places"])
        share_judged = min(1.0, len(measured) / n_judged)
        if len(held_out) >= len(measured):
            measured = held_out
            share_judged = 0.0
        if not measured:
            return []
        return measure_confusion(measured, classes, share_judged=share_judged)

    def agreement(self) -> Agreement:
        """Return how far annotators agree: overall, by class and by pair.

        Answers about withdrawn items do not count.
        """
        with self._campaign.reading() as view:
            return self.agreement_in(view)

    def bulk_agreement(self) -> AccuracyEstimate | None:
        """Return how many answers in bulk agree with the blind ones that check them, if any do."""
        with self._campaign.reading() as view:
            return measure_bulk_agreement(view)

    @cached_by(_newest_change)
    def agreement_in(self, view: Reading) -> Agreement:
        """Return how far annotators agree, as a transaction sees it."""
        answers = self.snapshot(view).without_withdrawn().answers
        # Whoever saw the same prediction agrees because of it.
        blind = [answer for answer in answers if answer.origin.is_blind]
        classes = view.classes.names()
        if view.settings.several:
            return measure_agreement_on_sets(blind, classes)
        return measure_agreement(blind, classes)
