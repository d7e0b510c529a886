"""teeter campaign people, decide and agreement: several annotators in one campaign.

A campaign without members is open to everyone who can open its file. The first member makes it a
team: from then on the server asks for tokens, and roles decide who may do what.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from teeter.cli.campaign import open_campaign, require_member
from teeter.cli.errors import Commands
from teeter.cli.options import DEFAULT_ANNOTATOR, AnnotatorOption, CampaignArgument, JsonOption
from teeter.cli.output import echo_json, pluralize, print_table, spinner

if TYPE_CHECKING:
    from teeter.campaigns.learning.stopping import AccuracyEstimate
    from teeter.campaigns.people import Person
    from teeter.campaigns.review.agreement import AgreementScore
    from teeter.campaigns.review.annotator_stats import AnnotatorStats

__all__ = ["agreement", "decide", "people"]

_UNKNOWN = "–"

people = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    help="Add and remove annotators, and list their pace and accuracy.",
    rich_markup_mode=None,
)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Annotator name.")]
RoleOption = Annotated[str, typer.Option(metavar="ROLE", help="annotator, reviewer or owner.")]


def decide(
    file: CampaignArgument,
    n: Annotated[
        int | None,
        typer.Option("-n", metavar="N", help="Number of items to decide on. Default: all."),
    ] = None,
    reviewer: AnnotatorOption = DEFAULT_ANNOTATOR,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the disagreements as JSON and exit.")
    ] = False,
) -> None:
    """Decide on items about which annotators disagree, with one key per class.

    Items whose label is least certain come first. Space leaves an item for later, Backspace undoes
    the last decision, f decides that the item does not belong in the campaign, and Esc stops.

    A decision overrides all answers, stays in the history and can be undone. In a campaign with
    members, only reviewers and owners may decide.
    """
    from teeter.cli.label_prompt import make_keyboard, print_legend, resolve_disagreements

    with open_campaign(file) as opened:
        with spinner("Reading"):
            # Read once: a decision that another reviewer makes meanwhile is overridden.
            disagreements = opened.disagreements()[:n]
        if as_json:
            echo_json(disagreements)
            return

        require_member(opened, reviewer, "decide")
        keyboard = make_keyboard(opened.classes, opened.settings.keys)
        print_legend(keyboard)
        count = resolve_disagreements(opened, disagreements, keyboard, reviewer)

    typer.echo(f"Decided on {pluralize(count, 'item')}. Run the same command to continue.")


def agreement(file: CampaignArgument, as_json: JsonOption = False) -> None:
    """Measure how well annotators agree: overall, by class and by pair.

    Prints the observed agreement, Krippendorff's alpha overall and by class, and Cohen's kappa for
    each pair of annotators, with 95% confidence intervals. Only items that two or more annotators
    labelled are counted. A dash means that there is too little data.
    """
    with open_campaign(file) as opened, spinner("Reading"):
        measured = opened.agreement()

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

    rows = [[title, *_score_cells(score)] for title, score in scores.items()]
    print_table(["measure", "value", "95% interval", "items"], rows)


@people.command("add")
def add_person(
    file: CampaignArgument,
    name: NameArgument,
    role: RoleOption = "annotator",
    no_token: Annotated[
        bool,
        typer.Option(
            "--no-token",
            help="Do not create a token. Use this if the annotator logs in with an account.",
        ),
    ] = False,
) -> None:
    """Add an annotator and print their token.

    The token is not shown again, because only its hash is stored. Annotators label items, reviewers
    also decide and export, and owners also manage annotators. In a campaign without members,
    everyone may do anything.

    \b
    Examples:
      teeter campaign people add reviews.teeter ann --role owner
    """
    with open_campaign(file) as opened:
        token = opened.people.add(name, role, has_token=not no_token)

    # Only the token goes to stdout, so that a script can send it on.
    if no_token:
        typer.echo(f"Added {name} without a token.", err=True)
    else:
        typer.echo(f"Added {name}. To log in on the page, {name} needs this token:", err=True)
        typer.echo(token)


@people.command("token")
def token(
    file: CampaignArgument,
    name: NameArgument,
    revoke: Annotated[
        bool, typer.Option("--revoke", help="Revoke the token without creating a new one.")
    ] = False,
) -> None:
    """Replace an annotator's token and print the new one.

    The new token is not shown again, because only its hash is stored.
    """
    with open_campaign(file) as opened:
        if revoke:
            opened.people.revoke(name)
            typer.echo(f"{name} has no token.")
        else:
            typer.echo(opened.people.new_token(name))


@people.command("remove")
def remove(file: CampaignArgument, name: NameArgument) -> None:
    """Remove an annotator.

    The annotator's token stops working, their answers are kept, and their open items go to other
    annotators.
    """
    with open_campaign(file) as opened:
        count = opened.people.remove(name)

    typer.echo(f"Removed {name} and released {pluralize(count, 'open item')}.")


@people.command("list")
def list_people(file: CampaignArgument, as_json: JsonOption = False) -> None:
    """List the annotators with their pace and accuracy.

    The pace is the median time between two answers, not counting breaks. The accuracy is shown in
    three ways: as agreement with the consensus of items that two or more annotators labelled, as
    agreement with the decisions of reviewers, and as agreement on items drawn at random. On items
    drawn at random, an answer is compared with the decision, or with the consensus if there is no
    decision. A tie that no reviewer decided counts for nobody.
    """
    with open_campaign(file) as opened, spinner("Reading"):
        members = {member.name: member for member in opened.people.list()}
        stats = {stat.name: stat for stat in opened.team()}

    # Members come first, then others who answered.
    names = list(dict.fromkeys([*members, *stats]))
    if as_json:
        echo_json([_merge_fields(name, members.get(name), stats.get(name)) for name in names])
        return

    if not names:
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
    for name in names:
        role = members[name].role if name in members else "not a member"
        rows.append([name, role, *_stats_cells(stats.get(name))])
    print_table(header, rows)


def _merge_fields(
    name: str, member: Person | None, stats: AnnotatorStats | None
) -> dict[str, object]:
    """Return an annotator for ``--json``. Members may have no answers, and vice versa."""
    fields: dict[str, object] = {}
    # Statistics win where both have a field, such as the name.
    if member is not None:
        fields |= asdict(member)
    if stats is not None:
        fields |= asdict(stats)
    return {**fields, "name": name}


def _stats_cells(stats: AnnotatorStats | None) -> list[str]:
    """Return the number of answers, the pace and the accuracies of an annotator."""
    if stats is None:
        return ["0", _UNKNOWN, _UNKNOWN, _UNKNOWN, _UNKNOWN]

    pace = _UNKNOWN
    if stats.speed is not None:
        pace = f"{stats.speed.seconds:.1f}"
    return [
        f"{stats.answers:,}",
        pace,
        _format_share(stats.quality.with_consensus),
        _format_share(stats.quality.with_decisions),
        _format_share(stats.quality.at_random),
    ]


def _score_cells(score: AgreementScore | None) -> list[str]:
    """Return the value of a score, its interval and the number of items it is measured on."""
    if score is None:
        return [_UNKNOWN, _UNKNOWN, _UNKNOWN]
    return [f"{score.value:.3f}", f"{score.low:.3f} to {score.high:.3f}", f"{score.items:,}"]


def _format_share(estimate: AccuracyEstimate | None) -> str:
    """Return a share with its 95% interval, such as ``91% (85–95%)``."""
    if estimate is None:
        return _UNKNOWN
    return f"{estimate.share:.0%} ({100 * estimate.low:.0f}–{estimate.high:.0%})"
