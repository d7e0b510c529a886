"""teeter campaign finish: let the model label the rest, with a promise."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from teeter.cli.campaign import open_campaign, require_member
from teeter.cli.options import DEFAULT_ANNOTATOR, AnnotatorOption, CampaignArgument, JsonOption
from teeter.cli.output import (
    atomic_text_file,
    echo_json,
    echo_wrapped,
    pluralize,
    print_table,
    require_writable,
    spinner,
)
from teeter.errors import InputError

if TYPE_CHECKING:
    from teeter.campaigns.finish.report import FinishReport

__all__ = ["finish"]

_CERTIFICATE_SUFFIXES = (".html", ".json")


def finish(
    file: CampaignArgument,
    *,
    error: Annotated[
        str | None,
        typer.Option(metavar="SHARE", help="Share of the labels that may be wrong. Default: 5%."),
    ] = None,
    confidence: Annotated[
        str | None,
        typer.Option(metavar="SHARE", help="Confidence of the promise. Default: 95%."),
    ] = None,
    per_class: Annotated[
        bool, typer.Option("--per-class", help="Make the promise for each predicted class.")
    ] = False,
    start: Annotated[
        bool,
        typer.Option("--start", help="Freeze the model, and ask about random items next."),
    ] = False,
    ask: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Ask about N random items next; 0 returns to the picks of the strategy.",
        ),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(
            metavar="OUT", help="Certify the promise and write it to a .html or .json file."
        ),
    ] = None,
    annotator: AnnotatorOption = DEFAULT_ANNOTATOR,
    as_json: JsonOption = False,
) -> None:
    """Find out which items the model may label, and promise how many labels are wrong.

    Without --start, the command shows a plan: how many items the model could label after how many
    random labels. With --start, the model is frozen, and the next items are drawn at random. Run
    the command again at any time to see what the model may label by now. Looking often does not
    weaken the promise. After --certificate, teeter campaign export includes the model's labels.

    \b
    Examples:
      teeter campaign finish reviews.teeter --error 5%
      teeter campaign finish reviews.teeter --error 5% --start
      teeter campaign finish reviews.teeter --certificate promise.html
    """
    error_share = None if error is None else parse_share(error, "--error")
    confidence_share = None if confidence is None else parse_share(confidence, "--confidence")
    has_terms = error is not None or confidence is not None or per_class
    if start and certificate is not None:
        raise InputError(
            "--start and --certificate cannot be combined: start, answer the random items, then "
            "certify."
        )
    if ask is not None and has_terms and not start:
        raise InputError(
            "--ask continues the promise that was started, so it takes no --error, --confidence or "
            "--per-class: leave these options out, or start another promise with --start."
        )
    if certificate is not None:
        _require_certificate_path(certificate)

    with open_campaign(file) as opened:
        if start or ask is not None or certificate is not None:
            require_member(opened, annotator, "manage")

        with spinner("Training" if start else "Reading"):
            if start:
                report = opened.start_finish(
                    0.05 if error_share is None else error_share,
                    0.95 if confidence_share is None else confidence_share,
                    per_class=per_class,
                    draws=ask,
                    who=annotator,
                )
            elif ask is not None:
                report = opened.request_draws(ask, who=annotator)
            else:
                report = opened.finish(error_share, confidence_share, per_class or None)
            issued = None
            if certificate is not None:
                issued = opened.certify(who=annotator)

    if issued is not None and certificate is not None:
        _write_certificate(issued.content, certificate)

    if as_json:
        echo_json(report if issued is None else issued.content)
        return

    _print_report(report)
    if issued is not None:
        typer.echo(f"Wrote certificate {issued.code} to {certificate}.")
    elif not report.is_started:
        options = _repeat_terms(error, confidence, per_class=per_class)
        typer.echo(f"To begin, run: teeter campaign finish {shlex.quote(file)}{options} --start")
    elif report.waiting_draws and not report.covered:
        typer.echo(f"To answer them, run: teeter campaign label {shlex.quote(file)}")
    elif report.covered:
        typer.echo(
            f"To use it, run: teeter campaign finish {shlex.quote(file)} --certificate promise.html"
        )


def _repeat_terms(error: str | None, confidence: str | None, *, per_class: bool) -> str:
    """Return the given terms as options for the next command: starting must not change them."""
    options = ""
    if error is not None:
        options += f" --error {shlex.quote(error)}"
    if confidence is not None:
        options += f" --confidence {shlex.quote(confidence)}"
    return options + (" --per-class" if per_class else "")


def parse_share(text: str, option: str) -> float:
    """Return a share that is written as a number or in percent.

    Args:
        text: what the user wrote.
        option: the name of the option, for the error.

    Raises:
        InputError: it is neither.

    Example:
        >>> parse_share("5%", "--error"), parse_share("0.05", "--error")
        (0.05, 0.05)
    """
    number = text.strip()
    is_percent = number.endswith("%")
    try:
        share = float(number.removesuffix("%"))
    except ValueError:
        raise InputError(f"{option} is {text!r}: write a share such as 5% or 0.05.") from None

    if is_percent:
        share /= 100
    # A plain 5 could mean 5% or 500%, so it is not guessed.
    if not 0 < share < 1:
        raise InputError(
            f"{option} is {text!r}: it must be above 0% and below 100%, such as 5% or 0.05."
        )
    return share


def _require_certificate_path(path: Path) -> None:
    if path.suffix.lower() not in _CERTIFICATE_SUFFIXES:
        raise InputError(f"Cannot write a certificate to {path}: use the suffix .html or .json.")
    require_writable(path)


def _write_certificate(content: dict[str, object], path: Path) -> None:
    from teeter.campaigns.finish.certificate import certificate_page

    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    if path.suffix.lower() == ".html":
        text = certificate_page(content)
    with atomic_text_file(path) as stream:
        stream.write(text)


def _print_report(report: FinishReport) -> None:
    for sentence in report.describe():
        echo_wrapped(sentence)

    if report.per_class:
        rows = [
            [
                str(promise.label),
                f"{promise.items:,}",
                f"{promise.left:,}",
                f"{promise.wrong} of {promise.drawn}",
            ]
            for promise in report.promises
        ]
        print_table(["class", "model may label", "items left", "wrong draws"], rows)

    if report.plan:
        typer.echo("")
        more = "more random labels" if report.draws else "random labels"
        rows = [
            [f"{step.labels:,}", f"{step.items:,}", f"{step.coverage:.0%}"] for step in report.plan
        ]
        print_table([more, "items the model could label", "share"], rows)

    if report.class_shares:
        typer.echo("")
        rows = [
            [share.label, f"{share.share:.1%}", f"{share.low:.1%} to {share.high:.1%}"]
            for share in report.class_shares
        ]
        print_table(["class", "share of items", "95% interval"], rows)
        echo_wrapped(report.describe_shares())

    if report.is_started:
        drawn = pluralize(report.draws, "random item")
        typer.echo(
            f"Model {report.model_version}, attempt {report.attempt}: {drawn} answered, "
            f"{report.wrong} of them predicted wrong."
        )
