"""The promise of a campaign as the pages and the REST API use it: let the model label the rest."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from teeter.campaigns.finish.certificate import newest_certificate
from teeter.campaigns.finish.promise import MIN_ERROR, PromiseTerms
from teeter.campaigns.finish.report import FinishReport, request_draws, start_finish
from teeter.campaigns.store import StoredCertificate
from teeter.errors import InputError, UnknownResourceError
from teeter.server.service import CampaignService

__all__ = ["CertificateOut", "DrawsIn", "FinishIn", "FinishOut", "FinishService"]

MOST_DRAWS = 100_000
"""Random items that can be asked for at once."""


class FinishIn(BaseModel):
    """What is to be promised."""

    model_config = ConfigDict(extra="forbid")

    error: Annotated[float, Field(ge=MIN_ERROR, lt=0.5)] = 0.05
    """The share of wrong labels that is allowed."""
    confidence: Annotated[float, Field(ge=0.5, lt=1)] = 0.95
    per_class: bool = False
    draws: Annotated[int | None, Field(ge=0, le=MOST_DRAWS)] = None
    """Random items to ask about next. By default as many as the plan needs first."""


class DrawsIn(BaseModel):
    """How many random items to ask about next."""

    model_config = ConfigDict(extra="forbid")

    count: Annotated[int, Field(ge=0, le=MOST_DRAWS)]


class FinishOut(BaseModel):
    """What the model may label, or why it cannot label anything yet."""

    sentences: list[str]
    """The result for people."""
    report: FinishReport | None
    """None if there is no model that could label the rest."""
    coverage: float
    """The share of the items left that the model may label."""
    certificate: str | None
    """The id of the newest certificate of this promise."""


class CertificateOut(BaseModel):
    """A certificate of a promise."""

    id: str
    issued: str
    content: dict[str, object]
    """Everything that it says."""


class FinishService:
    """Lets the model of a campaign label the rest.

    Args:
        service: the campaign.
        annotator: who asks, for the history.
    """

    def __init__(self, service: CampaignService, annotator: str) -> None:
        self.service = service
        self.annotator = annotator

    def describe(self) -> FinishOut:
        """Return what the model may label now, or what it would take."""
        campaign = self.service.campaign
        with campaign.database.reading() as connection:
            report = self.service.look_at_finish(connection)
            certificate = newest_certificate(campaign.repository, connection)

        if isinstance(report, InputError):
            return FinishOut(sentences=[str(report)], report=None, coverage=0, certificate=None)
        return _describe(report, certificate)

    def start(self, body: FinishIn) -> FinishOut:
        """Freeze the newest model, and ask about random items next.

        Raises:
            InputError: there is no model, too few items are left, or answers are newer than it.
        """
        campaign = self.service.campaign
        terms = PromiseTerms(body.error, body.confidence, body.per_class)
        with campaign.database.writing() as connection:
            # Training takes too long for a request, and an older model would label worse.
            version = campaign.repository.models.newest_version(connection)
            newer_answers = campaign.repository.answers.count_since_newest_model(connection)
            if version and newer_answers:
                are = "1 answer is" if newer_answers == 1 else f"{newer_answers:,} answers are"
                raise InputError(f"{are} newer than model {version}: train first.")

            report = start_finish(
                campaign.repository,
                connection,
                campaign.settings,
                terms,
                who=self.annotator,
                draws=body.draws,
            )
        return _describe(report, None)

    def request_draws(self, count: int) -> FinishOut:
        """Let the next questions be so many random items."""
        campaign = self.service.campaign
        with campaign.database.writing() as connection:
            request_draws(
                campaign.repository, connection, campaign.settings, count, who=self.annotator
            )
        return self.describe()

    def certify(self) -> CertificateOut:
        """Write down what is promised now."""
        certificate = self.service.campaign.certify(who=self.annotator)
        return _certificate_out(certificate)

    def certificate(self, code: str) -> CertificateOut:
        """Return a certificate by its id.

        Raises:
            UnknownResourceError: no certificate has this id.
        """
        campaign = self.service.campaign
        with campaign.database.reading() as connection:
            certificate = campaign.repository.finishes.certificate(connection, code)
        if certificate is None:
            raise UnknownResourceError(f"This campaign has no certificate {code[:32]!r}.")
        return _certificate_out(certificate)


def _describe(report: FinishReport, certificate: StoredCertificate | None) -> FinishOut:
    return FinishOut(
        sentences=report.describe(),
        report=report,
        coverage=report.coverage,
        certificate=None if certificate is None else certificate.code,
    )


def _certificate_out(certificate: StoredCertificate) -> CertificateOut:
    return CertificateOut(
        id=certificate.code, issued=certificate.issued, content=certificate.content
    )
