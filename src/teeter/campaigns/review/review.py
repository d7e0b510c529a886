"""What reviewers see and decide: ``campaign.review``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from teeter.campaigns.items.items import read_content
from teeter.campaigns.records import (
    Agreement,
    AnswerKind,
    Disagreement,
    DisagreementPage,
    RecentAnswer,
)
from teeter.campaigns.review.annotators import measure_agreement
from teeter.campaigns.review.consensus import CampaignSnapshot, read_snapshot
from teeter.campaigns.store import Reading, Writing
from teeter.campaigns.store.caching import cached_by

if TYPE_CHECKING:
    from teeter.campaigns.campaign import Campaign


def _newest_change(review: Review, view: Reading) -> int:
    """Return a number that changes with every answer, decision and setting."""
    return view.history.newest_row_id()


class Review:
    """Labels that may be wrong, disagreements and decisions, and how far annotators agree."""

    def __init__(self, campaign: Campaign) -> None:
        self._campaign = campaign

    def snapshot(self, view: Reading) -> CampaignSnapshot:
        """Return all answers and decisions, and the labels that follow, as a transaction sees them.

        They are kept until the history grows, for all who read the campaign.
        """
        # What a transaction wrote may never be on disk, so it is not kept.
        return read_snapshot(view) if isinstance(view, Writing) else self._read_snapshot(view)

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
                disagreement = Disagreement(
                    item=item,
                    content=read_content(view, rows[item]),
                    answers=dict(sorted(by_annotator.items())),
                    # A flag by one annotator leaves an item out until a reviewer decides.
                    label=None if item in snapshot.left_out else labels.get(item),
                    confidence=snapshot.confidence(item),
                )
                listed.append(disagreement)

        return DisagreementPage(listed, waiting=len(disagreements))

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

    def agreement(self) -> Agreement:
        """Return how far annotators agree: overall, by class and by pair.

        Answers about withdrawn items do not count.
        """
        with self._campaign.reading() as view:
            return self._measure_agreement(view)

    @cached_by(_newest_change)
    def _measure_agreement(self, view: Reading) -> Agreement:
        answers = self.snapshot(view).without_withdrawn().answers
        return measure_agreement(answers, view.classes.names())
