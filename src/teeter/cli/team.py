"""``teeter campaign people`` and ``agreement``: several annotators in one campaign.

A campaign without members is open to everyone who can open its file. The first member makes it a
team: from then on the server asks for tokens, and roles decide who may do what.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from teeter.base.wording import pluralize
from teeter.cli.campaign import open_campaign
from teeter.cli.output import (
    CampaignArgument,
    JsonOption,
    echo_json,
    print_table,
    spinner,
)
from teeter.errors import InputError

if TYPE_CHECKING:
    from teeter.campaigns.campaign import Campaign
    from teeter.campaigns.records import AccuracyEstimate


_UNKNOWN = "–"


def agreement(file: CampaignArgument, as_json: JsonOption = False) -> None:
    """Measure how well annotators agree: overall, by class and by pair.

    Prints the observed agreement, Krippendorff's alpha overall and by class, and Cohen's kappa for
    each pair of annotators, with 95% confidence intervals. Only items that two or more annotators
    labelled are counted. A dash means that there is too little data.
    """
    with open_campaign(file) as opened, spinner("Reading"):
        measured = opened.review.agreement()

    if as_json:
        echo_json(measured)
        return

    typer.echo(f"{pluralize(measured.items, 'item')} labelled by two or more annotators.")
    scores = {
        "Observed agreement": measured.observed,
        "Krippendorff's alpha": measured.alpha,
    }
    for name, score in measured.by_class.items():
        # Indented below the overall value that they break down.
        scores[f"  of {name}"] = score
    for pair in measured.pairs:
        scores[f"Cohen's kappa of {pair.first} and {pair.second}"] = pair.kappa

    rows = []
    for title, score in scores.items():
        if score is None:
            rows.append([title, _UNKNOWN, _UNKNOWN, _UNKNOWN])
            continue

        value = f"{score.value:.3f}"
        interval = f"{score.low:.3f} to {score.high:.3f}"
        rows.append([title, value, interval, f"{score.items:,}"])
    print_table(["measure", "value", "95% interval", "items"], rows)


def people(
    file: CampaignArgument,
    *,
    add: Annotated[
        str | None, typer.Option(metavar="NAME", help="Add an annotator, and print their token.")
    ] = None,
    role: Annotated[
        str | None,
        typer.Option(
            metavar="ROLE",
            help="With --add: annotator, reviewer or owner. Default: annotator.",
        ),
    ] = None,
    no_token: Annotated[
        bool,
        typer.Option(
            "--no-token",
            help="With --add: create no token, because the annotator logs in with an account.",
        ),
    ] = False,
    new_token: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Replace an annotator's token, and print the new one."),
    ] = None,
    remove: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Remove an annotator. Their token stops working, their answers stay, and their "
            "open items go to others.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the annotators with their pace and accuracy; add or remove one.

    A token is not shown again, because only its hash is stored. Annotators label items, reviewers
    also decide and export, and owners also manage annotators. In a campaign without members,
    everyone may do anything.

    The pace is the median time between two answers, not counting breaks. The accuracy is shown in
    three ways: as agreement with the consensus of items that two or more annotators labelled, as
    agreement with the decisions of reviewers, and as agreement on items drawn at random. On items
    drawn at random, an answer is compared with the decision, or with the consensus if there is no
    decision. A tie that no reviewer decided counts for nobody.

    \b
    Examples:
      teeter campaign people reviews.teeter
      teeter campaign people reviews.teeter --add ann --role owner
      teeter campaign people reviews.teeter --remove ann
    """
    if sum(name is not None for name in (add, new_token, remove)) > 1:
        raise InputError("Give only one of --add, --new-token and --remove.")
    if add is None and (role is not None or no_token):
        raise InputError(f"{'--no-token' if role is None else '--role'} needs --add NAME.")

    with open_campaign(file) as opened:
        if add is not None:
            token = opened.people.add(add, role or "annotator", has_token=not no_token)
            # Only the token goes to stdout, so that a script can send it on.
            if no_token:
                typer.echo(f"Added {add} without a token.", err=True)
            else:
                typer.echo(f"Added {add}. To log in on the page, {add} needs this token:", err=True)
                typer.echo(token)
        elif new_token is not None:
            typer.echo(opened.people.new_token(new_token))
        elif remove is not None:
            released = opened.people.remove(remove).released
            typer.echo(f"Removed {remove} and released {pluralize(released, 'open item')}.")
        else:
            _list_people(opened, as_json=as_json)


def _list_people(opened: Campaign, *, as_json: bool) -> None:
    with spinner("Reading"):
        annotators = opened.people.stats()

    if as_json:
        echo_json(annotators)
        return

    if not annotators:
        typer.echo("The campaign has no members, so anyone who can open it may do anything.")
        return

    header = [
        "name",
        "role",
        "answers",
        "s/answer",
        "match consensus",
        "match decisions",
        "on random items",
    ]
    rows = []
    for stats in annotators:
        seconds = _UNKNOWN
        if stats.seconds is not None:
            seconds = f"{stats.seconds:.1f}"
        cells = [
            stats.name,
            stats.role or "not a member",
            f"{stats.answers:,}",
            seconds,
            _format_share(stats.matches_consensus),
            _format_share(stats.matches_decisions),
            _format_share(stats.matches_at_random),
        ]
        rows.append(cells)
    print_table(header, rows)


def _format_share(estimate: AccuracyEstimate | None) -> str:
    """Return a share with its 95% interval, such as ``91% (85–95%)``."""
    from teeter.campaigns.review.annotators import MIN_REPORTED

    if estimate is None or estimate.total < MIN_REPORTED:
        return _UNKNOWN
    low_percent = 100 * estimate.low
    return f"{estimate.share:.0%} ({low_percent:.0f}–{estimate.high:.0%})"
