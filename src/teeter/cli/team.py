"""teeter campaign decide, people and agreement: what a team needs beside labelling."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from teeter.cli.campaign import File, Json, Who, open_campaign, require_named
from teeter.cli.errors import Commands
from teeter.cli.output import spinner

if TYPE_CHECKING:
    from teeter.campaigns.agreement import AgreementScore
    from teeter.campaigns.people import Person
    from teeter.campaigns.snapshot import AnnotatorStats
    from teeter.campaigns.stopping import AccuracyEstimate

__all__ = ["agreement", "decide", "people"]

people = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    help="Who works on a campaign, and how.",
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="What they are called.")]
Role = Annotated[str, typer.Option(metavar="ROLE", help="annotator, reviewer or owner.")]


def decide(
    file: File,
    n: Annotated[
        int | None, typer.Option("-n", metavar="N", help="How many at most; all if left out.")
    ] = None,
    who: Who = "me",
    as_json: Annotated[
        bool, typer.Option("--json", help="List what waits for a decision as JSON, and stop.")
    ] = False,
) -> None:
    """Settle what people disagree on, one key a class; a decision wins over all answers."""
    from teeter.cli.label_prompt import keys_for, settle

    with open_campaign(file) as opened:
        with spinner("Reading"):
            waiting = opened.disagreements()[:n]
        if as_json:
            typer.echo(json.dumps([asdict(one) for one in waiting], ensure_ascii=False, indent=2))
            return
        require_named(opened, who, "decide")
        keys = keys_for(opened.classes)
        typer.echo("  ".join(f"[{key}] {name}" for key, name in keys.items()))
        count = settle(opened, waiting, keys, who)
    typer.echo(f"{count} decided; the same command goes on.")


def agreement(file: File, as_json: Json = False) -> None:
    """Say how far people agree: over all, by class and by pair."""
    with open_campaign(file) as opened, spinner("Reading"):
        found = opened.agreement()
    if as_json:
        typer.echo(json.dumps(asdict(found), ensure_ascii=False, indent=2))
        return
    typer.echo(f"{found.items} items labelled by two or more.")
    typer.echo(f"Observed agreement\t{_measure(found.observed)}")
    typer.echo(f"Krippendorff's alpha\t{_measure(found.alpha)}")
    for name, measure in found.by_class.items():
        typer.echo(f"  {name}\t{_measure(measure)}")
    for pair in found.pairs:
        typer.echo(f"Cohen's kappa of {pair.first} and {pair.second}\t{_measure(pair.kappa)}")


@people.command("add")
def add_person(file: File, name: Name, role: Role = "annotator") -> None:
    """Name somebody, and write their token: it is shown this once."""
    with open_campaign(file) as opened:
        typer.echo(opened.people.add(name, role))


@people.command("token")
def token(
    file: File,
    name: Name,
    revoke: Annotated[
        bool, typer.Option("--revoke", help="Take the token away, and make no other.")
    ] = False,
) -> None:
    """Make a token in the place of the one somebody had; it is shown this once."""
    with open_campaign(file) as opened:
        if revoke:
            opened.people.revoke(name)
            typer.echo(f"{name} has no token.")
        else:
            typer.echo(opened.people.new_token(name))


@people.command("remove")
def remove(file: File, name: Name) -> None:
    """Let somebody go; their answers stay, and open questions go to others."""
    with open_campaign(file) as opened:
        count = opened.people.remove(name)
    typer.echo(f"{name} is removed; {count} open questions went back.")


@people.command("list")
def list_people(file: File, as_json: Json = False) -> None:
    """Say who works on a campaign, how fast, and how right."""
    with open_campaign(file) as opened, spinner("Reading"):
        named = {one.name: one for one in opened.people.list()}
        members = {one.name: one for one in opened.team()}
    names = [*named, *(name for name in members if name not in named)]
    if as_json:
        rows = [{**_of(named.get(name)), **_of(members.get(name)), "name": name} for name in names]
        typer.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    if not names:
        typer.echo(
            "Nobody is named, and nobody has answered: whoever has the campaign may do everything."
        )
    for name in names:
        role = named[name].role if name in named else "not named"
        typer.echo(f"{name}\t{role}\t{_work(members.get(name))}")


def _of(one: Person | AnnotatorStats | None) -> dict[str, object]:
    return {} if one is None else asdict(one)


def _work(member: AnnotatorStats | None) -> str:
    if member is None:
        return "0 answers"
    speed = (
        "speed not yet known"
        if member.speed is None
        else (f"{member.speed.seconds:.1f} s an answer, {member.speed.per_hour:.0f} an hour")
    )
    quality = member.quality
    return (
        f"{member.answers} answers\t{speed}\tas others say: {_estimate(quality.with_others)}"
        f"\tas decided: {_estimate(quality.with_decisions)}\ton random items: {_estimate(quality.at_random)}"
    )


def _measure(found: AgreementScore | None) -> str:
    if found is None:
        return "not yet known"
    return f"{found.value:.3f} ({found.low:.3f} to {found.high:.3f}, {found.items} items)"


def _estimate(found: AccuracyEstimate | None) -> str:
    return (
        "not yet known"
        if found is None
        else f"{found.share:.0%} ({found.low:.0%} to {found.high:.0%})"
    )
