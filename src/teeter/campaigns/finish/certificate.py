"""Certificates: a promise written down, with everything that is needed to judge it.

A certificate is a JSON object. Its id is a checksum of it, so that a certificate that was changed
does not fit its id. ``certificate_page`` shows it as one page that needs nothing else, and
``certified_labels`` are what the model labels under it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from teeter.base.version import __version__
from teeter.base.wording import pluralize
from teeter.campaigns.finish.frozen_model import load_finish
from teeter.campaigns.finish.promise import StepResult
from teeter.campaigns.finish.report import (
    SetState,
    describe_error,
    judge_groups,
    newest_certificate,
    percent,
    wrong_share,
)
from teeter.campaigns.records import AgreementScore, Certificate, ConsensusLabel, FinishReport
from teeter.campaigns.review.consensus import CampaignSnapshot
from teeter.campaigns.store import Reading
from teeter.errors import InputError

_STEPS = (
    "may label the items of the largest confidence step "
    "for which the draws show that its wrong labels stay within the limit. Each step is tested "
    "with the prior-posterior ratio martingale of a beta-binomial prior, which holds for any "
    "number of looks, and the steps share the probability of error by the fallback procedure, as "
    "do repeated attempts."
)

METHOD = (
    "A model was frozen, and items were drawn at random, without replacement, from those that no "
    "person had labelled when the model was trained. Annotators label the drawn items without "
    "seeing the model's prediction; they may have seen it only for items that were picked and "
    f"labelled before they were drawn. The model {_STEPS}"
)

JUDGE_METHOD = (
    "The labels of a judge were frozen, and items were drawn at random, without replacement, from "
    "all that it labelled. Annotators label the drawn items without seeing what the judge says. "
    f"The judge {_STEPS}"
)

NOT_PROMISED = (
    "The promise covers only the items of this campaign that are counted here, not items that are "
    "added later or come from elsewhere, and not data that drifts.",
    "A label counts as right if it is the one that people would give. If people label items "
    "wrongly, so does the model.",
    "The error is an average over the counted items. Single classes or groups of items may have a "
    "larger share of wrong labels. A promise per class limits the share in each class.",
    "The confidence refers to the random draws: the promise is kept in at least that share of "
    "campaigns.",
)

_OF_THE_FILE = (
    "The promise is about labels that the model gives, and labels that people gave one by one "
    "without seeing a prediction. Labels that came with the items, were given in bulk, or with a "
    "prediction in view, are not counted."
)


def make_certificate(
    report: FinishReport,
    *,
    campaign: str,
    issued: str,
    classes: Sequence[str],
    agreement: AgreementScore | None = None,
) -> dict[str, Any]:
    """Return a certificate of what a report promises.

    Args:
        report: what the draws show.
        issued: the time, as it is stored.
        agreement: how far two people agree; None if too few items tell.

    Raises:
        InputError: nothing is promised.
    """
    if not report.covered:
        raise InputError(f"There is nothing to certify. {' '.join(report.sentences)}")

    not_promised = list(NOT_PROMISED)
    if report.labelled is not None:
        not_promised.append(_OF_THE_FILE)
    if agreement is not None:
        interval = f"{agreement.low:.0%} to {agreement.high:.0%}"
        not_promised.append(
            f"People's labels are taken as right. Two people agree on {agreement.value:.0%} "
            f"({interval}) of the {agreement.items:,} items that both labelled."
        )
    content: dict[str, Any] = {
        "campaign": campaign,
        "classes": list(classes),
        "issued": issued,
        "teeter": __version__,
        "error": report.error,
        "confidence": report.confidence,
        "per_class": report.per_class,
        "labelled": report.labelled,
        "attempt": report.attempt,
        "model": {"version": report.model_version, "sha256": report.checksum},
        "judge": report.judge,
        "started": report.started,
        "items": report.items,
        "draws": report.draws,
        "wrong_draws": report.wrong,
        "items_left": report.left,
        "items_labelled_by_model": report.covered,
        "wrong_labels_at_most": sum(promise.limit for promise in report.promises if promise.items),
        "promise": describe_error(report),
        "promises": [asdict(promise) for promise in report.promises if promise.items],
        "class_shares": [asdict(share) for share in report.class_shares],
        "class_shares_note": report.shares_note,
        "method": JUDGE_METHOD if report.judge else METHOD,
        "not_promised": not_promised,
    }
    return {"id": certificate_id(content), **content}


def certificate_id(content: Mapping[str, Any]) -> str:
    """Return the id of a certificate: a checksum of everything else in it.

    Example:
        >>> certificate_id({"id": "x", "error": 0.05}) == certificate_id({"error": 0.05})
        True
    """
    # Sorted and in ASCII, so that the same content has the same id everywhere.
    rest = {name: value for name, value in content.items() if name != "id"}
    text = json.dumps(rest, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def certificate_page(content: Mapping[str, Any]) -> str:
    """Return a certificate as an HTML page without scripts, fonts or links to elsewhere."""
    return render_document("certificate.html.jinja", content)


def render_document(template: str, content: Mapping[str, Any]) -> str:
    """Return a template of this folder, filled in."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("teeter.campaigns.finish", "."),
        # Names of campaigns and classes come from users.
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # A name that is misspelt in the template fails instead of printing nothing.
        undefined=StrictUndefined,
    )
    return environment.get_template(template).render(content)


def says_the_same(content: Mapping[str, Any], report: FinishReport) -> bool:
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


def certified_labels(
    view: Reading,
    snapshot: CampaignSnapshot,
) -> tuple[dict[str, ConsensusLabel], str | None]:
    """Return the labels that the model gives under the newest certificate, by item id.

    Their confidence is the calibrated probability, and ``by`` is the id of the certificate.

    Args:
        snapshot: the current answers. Items that people labelled are left out.

    Returns:
        The labels, and a sentence about them: how many are wrong at most, or why there are none
        because later labels refute the certificate or labels that it rests on were corrected. None
        without a certificate, or if people labelled everything.
    """
    certificate = newest_certificate(view)
    finish = load_finish(view)
    if certificate is None or finish is None:
        return {}, None

    classes = view.classes.names()
    state = SetState.read(finish, snapshot, classes)
    results_now = {
        (group.label, result.step.threshold): result
        for group, results in zip(finish.groups, judge_groups(finish, state, classes), strict=True)
        for result in results
    }

    labels: dict[str, ConsensusLabel] = {}
    counted = limit = 0
    for promise in certificate.content["promises"]:
        # The step itself must hold: a larger one may have all its wrong labels in this one.
        # Classes keep their positions, but may be called differently now.
        group_label = promise["label"]
        if group_label is not None:
            group_label = classes[certificate.content["classes"].index(group_label)]
        result = results_now[group_label, promise["threshold"]]
        if not result.holds:
            return {}, _explain_end(certificate, result)
        if result.remaining:
            counted += result.counted
            limit += result.counted_limit

        group = next(group for group in finish.groups if group.label == group_label)
        for row in finish.rows_of(group, classes).tolist():
            confidence = float(finish.confidences[row])
            if confidence >= promise["threshold"] and not state.is_settled[row]:
                label = classes[int(finish.predicted[row])]
                labels[finish.items[row]] = ConsensusLabel(label, confidence, certificate.id)
    if not labels:
        return {}, None

    are = pluralize(len(labels), "more item is", "more items are")
    labeller = certificate.content.get("judge") or "the model"
    confidence_text = percent(finish.terms.confidence)
    share = wrong_share(limit, len(labels))
    note = (
        f"{are} labelled by {labeller}, under certificate {certificate.id}: with "
        f"{confidence_text} confidence, at most {limit:,} of the {counted:,} items that the "
        f"certificate counts are labelled wrong. If all of these are among {labeller}'s own "
        f"labels, up to {share} of them are wrong."
    )
    return labels, note


def _explain_end(certificate: Certificate, result: StepResult) -> str:
    """Return why a certificate no longer holds, as a sentence."""
    if result.known_wrong > result.step.limit:
        return (
            f"Certificate {certificate.id} is refuted: people have found {result.known_wrong:,} "
            f"wrong labels by {certificate.content.get('judge') or 'the model'}, but the "
            f"certificate allows only {result.step.limit:,}. Train a new model, and start again."
        )
    return (
        f"Certificate {certificate.id} no longer holds, because labels that it rests on were "
        "changed: certify again."
    )
