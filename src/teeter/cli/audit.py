"""teeter audit: find out how good labels are that items already have."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from teeter.base.wording import pluralize
from teeter.campaigns.records import ItemColumns
from teeter.campaigns.settings import Settings
from teeter.cli.campaign import (
    IdOption,
    campaign_location,
    create_campaign,
    open_campaign,
    with_settings,
)
from teeter.cli.export import parse_share
from teeter.cli.output import (
    JsonOption,
    TextOption,
    atomic_text_file,
    echo_json,
    echo_wrapped,
    print_table,
    require_writable,
)
from teeter.cli.serve import OpenOption, PortOption, serve_on_this_machine
from teeter.errors import InputError

if TYPE_CHECKING:
    from teeter.campaigns.records import AuditReport, JudgeReport

# Mistakes that are listed, the most frequent first.
_LISTED = 10


@with_settings("show", "instructions", "goal")
def audit(
    source: Annotated[
        str,
        typer.Argument(
            metavar="ITEMS", help="Table of items with labels; or the audit's campaign."
        ),
    ],
    *,
    judge: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Column of labels to audit. May be repeated."),
    ] = None,
    confidence: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of its confidences, from 0 to 1. The second belongs to the second judge.",
        ),
    ] = None,
    require: Annotated[
        str | None,
        typer.Option(metavar="SHARE", help="Share of its labels that a judge must have right."),
    ] = None,
    people: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, help="Ask a fifth of the items of N people, who may disagree."
        ),
    ] = 1,
    classes: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Comma-separated class names, or a file of them. Default: the labels of the "
            "judges.",
        ),
    ] = None,
    text: TextOption = None,
    id_column: IdOption = None,
    end: Annotated[
        bool, typer.Option("--end", help="End the audit: judges' labels are hidden no more.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option(metavar="OUT", help="Write the report to a .html file to print.")
    ] = None,
    as_json: JsonOption = False,
    port: PortOption = None,
    open_page: OpenOption = None,
    settings: dict[str, Any],
) -> None:
    """Find out how good labels are: of a language model, a vendor or a rule.

    Makes a campaign beside the table and opens its page, which asks about items drawn at random.
    Nobody sees what the judges say before an item is answered. Look at the report as often as you
    like, on the page or by the same command with the campaign: the share of right labels holds
    whenever you look.

    \b
    Examples:
      teeter audit answers.csv --judge llm_label --confidence llm_prob
      teeter audit answers.csv --judge model_a --judge model_b
      teeter audit answers.teeter
      teeter audit answers.teeter --html report.html
    """
    is_campaign = "://" in source or Path(source).suffix == ".teeter"
    location = source
    if not is_campaign:
        location = campaign_location(Path(source))
    is_set = confidence or require or people > 1 or classes or any(settings.values())
    # A table with a judge is to be audited again, which has an error of its own.
    is_made = is_campaign or (Path(location).exists() and not judge)
    if is_made and (judge or is_set):
        raise InputError(
            f"{location} is a campaign already: its judges, requirement, classes, people, goal and "
            "other settings were given with the table of its items."
        )
    if is_campaign:
        if html is not None:
            require_writable(html)
        _report(source, end=end, html=html, as_json=as_json)
        return
    if end or html is not None or as_json:
        raise InputError(
            "--end, --html and --json are about an audit that exists: give its campaign, such as "
            f"{campaign_location(Path(source))}."
        )

    if not Path(location).exists() or judge:
        if not judge:
            raise InputError("--judge is missing: name the column of the labels to audit.")
        if len(confidence or ()) > len(judge):
            raise InputError("There are more --confidence than --judge: name a judge for each.")
        columns = [*(confidence or ()), *[""] * len(judge)]
        if Path(location).exists():
            raise InputError(
                f"{location} exists already: go on with teeter audit {source}, or read its report "
                f"with teeter audit {location}."
            )
        chosen = Settings(**settings).for_audit(
            dict(zip(judge, columns, strict=False)),
            None if require is None else parse_share(require, "--require", may_be_all=True),
            people,
        )
        create_campaign(Path(source), location, classes, chosen, ItemColumns(text, id_column))
        typer.echo(f"Report: teeter audit {shlex.quote(location)}")
    serve_on_this_machine([location], port=port, open_page=open_page)


def _report(file: str, *, end: bool, html: Path | None, as_json: bool) -> None:
    """Print the report of an audit."""
    with open_campaign(file) as opened:
        if end:
            report = opened.judges.end()
        else:
            report = opened.judges.report()
        goal = opened.finish.goal()
        page = ""
        if html is not None:
            page = opened.judges.page()

    if html is not None:
        with atomic_text_file(html) as stream:
            stream.write(page)
        typer.echo(f"Wrote {html}.")
    elif as_json:
        echo_json(report)
    else:
        _print_report(report)
        for sentence in goal.sentences if goal is not None else ():
            echo_wrapped(sentence)
        if end:
            typer.echo(f"The audit is over. To label the rest: teeter serve {shlex.quote(file)}")
        elif report.is_running:
            typer.echo(f"To go on, run: teeter serve {shlex.quote(file)}")


def _print_report(report: AuditReport) -> None:
    for judge in report.judges:
        for sentence in judge.sentences:
            echo_wrapped(sentence)
        _print_tables(judge)
        typer.echo()
    for sentence in report.sentences:
        echo_wrapped(sentence)
    typer.echo(f"{report.draws:,} of {pluralize(report.items, 'item')} were drawn and answered.")


def _print_tables(judge: JudgeReport) -> None:
    for column, by_value in judge.by_column.items():
        rows = []
        for value, accuracy in by_value.items():
            interval = f"{accuracy.low:.0%} to {accuracy.high:.0%}"
            rows.append([value, f"{accuracy.right:,} of {accuracy.total:,}", interval])
        if rows:
            print_table([column, "right", "95% interval, all together"], rows[:_LISTED])

    rows = []
    for share in judge.class_shares:
        interval = f"{share.low:.1%} to {share.high:.1%}"
        rows.append([share.label, f"{share.predicted:.1%}", f"{share.share:.1%}", interval])
    if rows:
        header = ["class", f"share by {judge.judge}", "corrected", "95% interval, one look"]
        print_table(header, rows[:_LISTED])

    mistakes = [
        (count, row.label, said)
        for row in judge.confusion
        for said, count in row.predicted.items()
        if said != row.label
    ]
    mistakes.sort(key=lambda mistake: -mistake[0])
    rows = [[said, label, f"{count:,}"] for count, label, said in mistakes[:_LISTED]]
    if rows:
        print_table([f"{judge.judge} says", "people say", "items"], rows)
