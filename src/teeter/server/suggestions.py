"""Classes and suggestions as the pages and the REST API use them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from teeter.campaigns.learning.prior import explain_unused_names
from teeter.campaigns.store import ClassDescription
from teeter.campaigns.suggestions.sources import SourceReport
from teeter.server.schemas import (
    ClassOut,
    NamesIn,
    PredictionsStored,
    ShareOut,
    SourceOut,
    SourceRemoved,
)
from teeter.server.service import CampaignService

__all__ = ["SuggestionService", "describe_source"]


class SuggestionService:
    """What owners do with classes and suggestions.

    Args:
        service: the campaign.
        user: who makes the changes, for the history.
    """

    def __init__(self, service: CampaignService, user: str) -> None:
        self._service = service
        self._user = user

    def describe_classes(self, descriptions: Mapping[str, ClassDescription]) -> list[ClassOut]:
        """Replace the descriptions of some classes, and return all classes.

        Raises:
            UnknownNameError: there is no such class.
            InputError: a description is too long.
        """
        self._service.campaign.describe(descriptions, who=self._user)
        return self._service.list_classes()

    def use_names(self, use: bool) -> NamesIn:
        """Choose whether models learn from the names and descriptions of the classes."""
        self._service.campaign.use_names(use, who=self._user)
        return NamesIn(use=use)

    def explain_unused_names(self) -> str | None:
        """Return why models do not learn from the names of classes; None if they do."""
        campaign = self._service.campaign
        with campaign.database.reading() as connection:
            current = campaign.repository.encodings.current(connection)
        return explain_unused_names(campaign.settings, None if current is None else current.encoder)

    def add_predictions(self, file: Path, source: str) -> PredictionsStored:
        """Store a file of predictions as suggestions of a source."""
        stored = self._service.campaign.add_predictions(file, source, who=self._user)
        return PredictionsStored(
            source=stored.source,
            stored=stored.stored,
            unknown_items=stored.unknown_items,
            unknown_labels=stored.unknown_labels,
            missing=stored.missing,
        )

    def remove_source(self, name: str) -> SourceRemoved:
        """Remove a source and its suggestions.

        Raises:
            UnknownNameError: there is no such source.
        """
        self._service.campaign.remove_source(name, who=self._user)
        return SourceRemoved(name=name)


def describe_source(report: SourceReport) -> SourceOut:
    """Return a source as it is sent."""
    described = SourceOut(
        name=report.name,
        kind=report.kind,
        items=report.items,
        accuracy=ShareOut.from_estimate(report.accuracy),
        shown=ShareOut.from_estimate(report.shown),
        blind=ShareOut.from_estimate(report.blind),
        remaining_budget=report.remaining_budget,
    )

    if report.usage is not None:
        # Only the host: the path of an address may tell more than annotators should know.
        described.sent_to = urlsplit(str(report.detail.get("url", ""))).netloc
        described.cost = round(report.usage.cost, 6)
        described.tokens = report.usage.input_tokens + report.usage.output_tokens
        described.invalid = report.usage.invalid
        described.usage = report.usage

    return described
