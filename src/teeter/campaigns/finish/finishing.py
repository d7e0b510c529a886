"""Start, look at and certify a promise: what ``Campaign`` and the server call.

Everything here reads or writes the database and returns at once. Nothing loads torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from teeter.campaigns.finish.certificate import make_certificate
from teeter.campaigns.finish.freezing import choose_model, freeze, load_finish, store_finish
from teeter.campaigns.finish.look import (
    FinishReport,
    ItemAnswers,
    judge_groups,
    look_at_finish,
    percent,
    wrong_share,
)
from teeter.campaigns.finish.promise import PromiseTerms, StepResult
from teeter.campaigns.review.consensus import CampaignSnapshot, read_snapshot
from teeter.campaigns.settings import Settings
from teeter.campaigns.store import CampaignRepository, Connection, StoredCertificate
from teeter.errors import InputError

__all__ = [
    "CertifiedLabel",
    "certified_labels",
    "certify_finish",
    "choose_terms",
    "look",
    "request_draws",
    "start_finish",
]

FEWEST_DRAWS = 20
"""Draws that are asked for at least when a promise is started."""

_USUAL_DRAWS = 100
"""Draws that are asked for if no number is likely to be enough."""


@dataclass(frozen=True)
class CertifiedLabel:
    """The label that a certified model gives an item."""

    label: str
    confidence: float
    """The calibrated probability of the label."""
    certificate: str
    """The certificate's id."""


def look(
    repository: CampaignRepository,
    connection: Connection,
    settings: Settings,
    terms: PromiseTerms | None = None,
    *,
    snapshot: CampaignSnapshot | None = None,
) -> FinishReport:
    """Return what is promised, or what could be if a promise were started now.

    Args:
        repository: the campaign's rows.
        connection: an open connection.
        settings: the campaign's settings.
        terms: what is to be promised. None for the terms of the promise that was started, or else
            the default terms.
        snapshot: the current answers, if they were read before.

    Raises:
        InputError: a promise with other terms was started, or there is no model to make one with.
    """
    snapshot = snapshot or read_snapshot(repository, connection, settings)
    answers = ItemAnswers.from_answers(snapshot.answers, snapshot.labels, snapshot.left_out)
    classes = repository.classes.names(connection)
    n_items = repository.items.count(connection)

    stored = repository.finishes.newest(connection)
    if stored is not None:
        finish = load_finish(stored, classes)
        if terms is not None and terms != finish.terms:
            raise InputError(
                f"A promise with {_describe_terms(finish.terms)} was started on "
                f"{finish.started[:10]}. Leave out the terms to see that promise, or start another "
                f"one with {_describe_terms(terms)}, which needs more random labels."
            )
        return look_at_finish(finish, answers, classes, n_items=n_items)

    terms = terms or PromiseTerms()
    choice = choose_model(repository, connection, terms)
    preview = freeze(repository, connection, choice, terms, seed=settings.seed)
    # Without the answers: who sees how the draws turn out before choosing the terms could choose
    # those that happen to be kept.
    nothing = ItemAnswers({}, frozenset(), frozenset())
    return look_at_finish(preview, nothing, classes, n_items=n_items, is_started=False)


def _describe_terms(terms: PromiseTerms) -> str:
    per_class = " per class" if terms.per_class else ""
    return f"an error of {terms.error:.6g}{per_class} and a confidence of {terms.confidence:.6g}"


def choose_terms(
    repository: CampaignRepository,
    connection: Connection,
    *,
    error: float | None,
    confidence: float | None,
    per_class: bool | None,
) -> PromiseTerms:
    """Return terms whose missing values are those of the promise that was started, or the default.

    Raises:
        InputError: a value cannot be promised.
    """
    stored = repository.finishes.newest(connection)
    classes = repository.classes.names(connection)
    terms = PromiseTerms() if stored is None else load_finish(stored, classes).terms
    return PromiseTerms(
        error=terms.error if error is None else error,
        confidence=terms.confidence if confidence is None else confidence,
        per_class=terms.per_class if per_class is None else per_class,
    )


def start_finish(
    repository: CampaignRepository,
    connection: Connection,
    settings: Settings,
    terms: PromiseTerms,
    *,
    who: str,
    draws: int | None = None,
) -> FinishReport:
    """Freeze a model, and let the next questions be items drawn at random.

    Args:
        repository: the campaign's rows.
        connection: a connection that may write.
        settings: the campaign's settings.
        terms: what is to be promised.
        who: the name for the history.
        draws: how many random items to ask about next. None for as many as the plan needs first.

    Raises:
        InputError: there is no model to freeze, or too few items are left.
    """
    choice = choose_model(repository, connection, terms)
    finish = freeze(repository, connection, choice, terms, seed=settings.seed)
    store_finish(repository, connection, finish, who)

    # The past control items may be enough, so nothing is asked before looking.
    report = look(repository, connection, settings)
    if draws is None and report.covered:
        draws = 0
    elif draws is None:
        draws = max(FEWEST_DRAWS, report.plan[0].labels if report.plan else _USUAL_DRAWS)
    return _set_draws(repository, connection, report, draws, who)


def request_draws(
    repository: CampaignRepository,
    connection: Connection,
    settings: Settings,
    count: int,
    *,
    who: str,
) -> FinishReport:
    """Let the next questions be so many items drawn at random; 0 for none.

    Raises:
        InputError: no promise was started, or the number is negative.
    """
    if repository.finishes.count(connection) == 0:
        raise InputError("No promise has been started yet: start one first.")

    report = look(repository, connection, settings)
    return _set_draws(repository, connection, report, count, who)


def _set_draws(
    repository: CampaignRepository,
    connection: Connection,
    report: FinishReport,
    count: int,
    who: str,
) -> FinishReport:
    """Let ``count`` more draws be asked, and return the report with them."""
    if count < 0:
        raise InputError(f"Cannot ask about {count} random items: ask for 0 or more.")

    asked_draws = min(report.draws + count, report.items)
    repository.finishes.set_asked_draws(connection, report.attempt, asked_draws, who)
    # Picks made ahead would be asked first.
    repository.picks.remove_outdated(connection)
    return replace(report, asked_draws=asked_draws)


def certify_finish(
    repository: CampaignRepository,
    connection: Connection,
    settings: Settings,
    *,
    campaign: str,
    who: str,
) -> StoredCertificate:
    """Write down what is promised now.

    Raises:
        InputError: no promise was started, or it does not hold for any item yet.
    """
    stored = repository.finishes.newest(connection)
    if stored is None:
        raise InputError("No promise has been started yet: start one first.")

    report = look(repository, connection, settings)
    # A second certificate of the same facts would only differ in its date.
    newest = newest_certificate(repository, connection)
    if newest is not None and _says_the_same(newest.content, report):
        return newest

    classes = repository.classes.names(connection)
    issued = repository.scope.now()
    content = make_certificate(report, campaign=campaign, issued=issued, classes=classes)
    return repository.finishes.add_certificate(connection, stored, content, who)


def _says_the_same(content: Mapping[str, Any], report: FinishReport) -> bool:
    """Return whether a certificate is still about the same draws and items."""
    now = (report.attempt, report.draws, report.wrong, report.left, report.covered)
    then = (
        content["attempt"],
        content["draws"],
        content["wrong_draws"],
        content["items_left"],
        content["items_labelled_by_model"],
    )
    return now == then


def newest_certificate(
    repository: CampaignRepository, connection: Connection
) -> StoredCertificate | None:
    """Return the newest certificate of the newest promise, or None."""
    # A new attempt replaces the model, and the labels of the old one with it.
    certificates = repository.finishes.certificates(connection)
    attempt = repository.finishes.count(connection)
    if not certificates or certificates[-1].finish != attempt:
        return None
    return certificates[-1]


def certified_labels(
    repository: CampaignRepository,
    connection: Connection,
    settings: Settings,
    snapshot: CampaignSnapshot,
) -> tuple[dict[str, CertifiedLabel], str | None]:
    """Return the labels that the model gives under the newest certificate, by item id.

    Args:
        repository: the campaign's rows.
        connection: an open connection.
        settings: the campaign's settings.
        snapshot: the current answers. Items that people labelled are left out.

    Returns:
        The labels, and a sentence about them: how many are wrong at most, or why there are none
        because later labels refute the certificate or labels that it rests on were corrected. None
        without a certificate, or if people labelled everything.
    """
    certificate = newest_certificate(repository, connection)
    stored = repository.finishes.newest(connection)
    if certificate is None or stored is None:
        return {}, None

    classes = repository.classes.names(connection)
    finish = load_finish(stored, classes)
    answers = ItemAnswers.from_answers(snapshot.answers, snapshot.labels, snapshot.left_out)
    results_now = {
        (group.label, result.step.threshold): result
        for group, results in zip(
            finish.groups, judge_groups(finish, answers, classes), strict=True
        )
        for result in results
    }

    labels: dict[str, CertifiedLabel] = {}
    counted = limit = 0
    for promise in certificate.content["promises"]:
        # The step itself must hold: a larger one may have all its wrong labels in this one.
        group_label = _current_name(promise["label"], certificate, classes)
        result = results_now[group_label, promise["threshold"]]
        if not result.holds:
            return {}, _explain_end(certificate, result)
        if result.remaining:
            counted += result.counted
            limit += result.counted_limit

        group = next(group for group in finish.groups if group.label == group_label)
        for row in finish.rows_of(group, classes).tolist():
            confidence = float(finish.frozen.confidences[row])
            item = finish.items[row]
            is_labelled = item in answers.labels or item in answers.set_aside
            if confidence >= promise["threshold"] and not is_labelled:
                label = classes[int(finish.frozen.predicted[row])]
                labels[item] = CertifiedLabel(label, confidence, certificate.code)
    if not labels:
        return {}, None

    are = "1 more item is" if len(labels) == 1 else f"{len(labels):,} more items are"
    note = (
        f"{are} labelled by the model, under certificate {certificate.code}: with "
        f"{percent(finish.terms.confidence)} confidence, at most {limit:,} of the {counted:,} "
        f"items that the certificate counts are labelled wrong. If all of these are among the "
        f"model's own labels, up to {wrong_share(limit, len(labels))} of them are wrong."
    )
    return labels, note


def _current_name(
    label: str | None, certificate: StoredCertificate, classes: Sequence[str]
) -> str | None:
    """Return what a class of a certificate is called now. Classes keep their positions."""
    if label is None:
        return None
    position: int = certificate.content["classes"].index(label)
    return classes[position]


def _explain_end(certificate: StoredCertificate, result: StepResult) -> str:
    """Return why a certificate no longer holds, as a sentence."""
    if result.known_wrong > result.step.limit:
        return (
            f"Certificate {certificate.code} is refuted: people have found {result.known_wrong:,} "
            f"wrong labels by the model, but the certificate allows only {result.step.limit:,}. "
            f"Train a new model, and start again."
        )
    return (
        f"Certificate {certificate.code} no longer holds, because labels that it rests on were "
        "changed: certify again."
    )
