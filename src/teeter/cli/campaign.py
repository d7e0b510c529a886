"""teeter campaign: label a pool of things, a few at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from teeter.cli.errors import Commands
from teeter.cli.output import pluralize, printable, require_writable, spinner
from teeter.errors import InputError

if TYPE_CHECKING:
    from teeter.campaigns.campaign import Campaign, ImportResult

__all__ = ["File", "Json", "Who", "campaign", "open_campaign", "require_named", "shown_id"]

campaign = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    help="Label a pool of things, a few at a time.",
    rich_markup_mode=None,
)

File = Annotated[
    str,
    typer.Argument(
        metavar="CAMPAIGN",
        help="The campaign's file, FILE#NAME if it has several, or postgresql://…#NAME on a server.",
    ),
]
Who = Annotated[str, typer.Option("--as", metavar="NAME", help="Who answers.")]
Json = Annotated[bool, typer.Option("--json", help="Write JSON.")]
TextColumn = Annotated[
    str | None,
    typer.Option(
        "--text", metavar="COLUMN", help="The column of texts, where it goes by no usual name."
    ),
]
IdColumn = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="COLUMN",
        help="The column of ids; id, or made from the content, if left out.",
    ),
]
LabelColumn = Annotated[
    str | None,
    typer.Option("--labels", metavar="COLUMN", help="The column of labels that are known already."),
]

Encoder = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        help="A sentence-transformers model for texts: its folder, package or name.",
    ),
]


@campaign.command()
def new(
    things: Annotated[
        Path,
        typer.Argument(
            metavar="THINGS", help="A CSV, Parquet or JSONL file, arrays, or a folder of images."
        ),
    ],
    *,
    classes: Annotated[str, typer.Option(metavar="NAMES", help="With commas between them.")],
    file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The campaign's file; THINGS with the ending .teeter if left out."
        ),
    ] = None,
    text: TextColumn = None,
    id_column: IdColumn = None,
    labels: LabelColumn = None,
    strategy: Annotated[
        str, typer.Option(metavar="NAME", help="How to pick; see teeter strategies.")
    ] = "ldm-s",
    head: Annotated[
        str, typer.Option(metavar="NAME", help="What learns: linear or mlp.")
    ] = "linear",
    control: Annotated[
        float,
        typer.Option(metavar="SHARE", help="Share of each batch drawn at random, to measure with."),
    ] = 0.1,
    audit: Annotated[
        int, typer.Option(metavar="N", help="Random items to measure with, never trained on.")
    ] = 0,
    cost: Annotated[
        float | None, typer.Option(metavar="AMOUNT", help="What a label costs.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(metavar="AMOUNT", help="What may be spent in all; with --cost.")
    ] = None,
    encoder: Encoder = None,
    instructions: Annotated[
        str, typer.Option(metavar="TEXT", help="Shown to whoever labels.")
    ] = "",
    keys: Annotated[
        str, typer.Option(metavar="KEYS", help="Keys on the page, one a class, commas between.")
    ] = "",
    lease: Annotated[
        float,
        typer.Option(
            metavar="MINUTES", help="How long a question waits before others get it; 0: always."
        ),
    ] = 60,
    overlap: Annotated[
        float, typer.Option(metavar="SHARE", help="Share of the picks that several people answer.")
    ] = 0,
    people: Annotated[int, typer.Option(metavar="N", help="How many people answer those.")] = 2,
    consensus: Annotated[
        str,
        typer.Option(metavar="NAME", help="What several answers come to: majority or dawid-skene."),
    ] = "majority",
    seed: Annotated[int, typer.Option(metavar="NUMBER", help="Same seed, same picks.")] = 0,
) -> None:
    """Make a campaign from things to label."""
    from teeter.campaigns.import_export import kind_of, read_items
    from teeter.campaigns.shortcuts import shortcuts_by_class

    path = file or _beside(things)
    if path.exists():
        raise InputError(f"{path} exists already: go on with it, or name another with --file.")
    if budget is not None and cost is None:
        raise InputError("--budget goes with --cost: say what a label costs.")
    names = [name.strip() for name in classes.split(",")]
    chosen = [key.strip() for key in keys.split(",") if key.strip()]
    shortcuts_by_class(names, chosen)
    with spinner("Reading"):
        from teeter.campaigns.campaign import Campaign, Settings

        items = read_items(things, text=text, key=id_column, label=labels)
        settings = Settings(
            kind=kind_of(things),
            strategy=strategy,
            head=head,
            control=control,
            audit=audit,
            seed=seed,
            cost=cost,
            budget=budget,
            instructions=instructions,
            folder=str(things.resolve()) if things.is_dir() else None,
            encoder=encoder,
            keys=chosen,
            lease=lease,
            overlap=overlap,
            people=people,
            consensus=consensus,
        )
        added = Campaign.make(path, names, items, settings)
    typer.echo(f"{path}: {pluralize(added.new, 'item')} to label, {added.labelled} with a label.")
    if added.duplicates:
        example = shown_id(added.duplicates[0][0])
        typer.echo(f"{pluralize(len(added.duplicates), 'duplicate')} left out, such as {example}.")
    _tell_conflicts(added)
    if added.audit < audit:
        typer.echo(
            f"{added.audit:,} of {audit:,} items are kept for the audit: at least half are left to learn from."
        )
    typer.echo(f"Go on with: teeter campaign label {path}")


@campaign.command()
def add(
    file: File,
    things: Annotated[Path, typer.Argument(metavar="THINGS", help="More of the same kind.")],
    text: TextColumn = None,
    id_column: IdColumn = None,
    labels: LabelColumn = None,
) -> None:
    """Add things to a campaign; what is there already is told, and left out."""
    from teeter.campaigns.import_export import read_items

    with open_campaign(file) as opened, spinner("Reading"):
        folder, first = opened.settings.folder, opened.next_item_number()
        columns = {"text": text, "key": id_column, "label": labels}
        where = None if folder is None else Path(folder)
        added = opened.add(read_items(things, **columns, folder=where, first=first))
    typer.echo(
        f"{pluralize(added.new, 'item')} added, {pluralize(added.labelled, 'label')} taken over."
    )
    for ours, theirs in added.duplicates[:5]:
        typer.echo(f"{shown_id(ours)} was left out: it is the same as {shown_id(theirs)}.")
    _tell_conflicts(added)


@campaign.command("add-class")
def add_class(
    file: File,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the new class is called.")],
) -> None:
    """Add a class; what is labelled stays as it is."""
    with open_campaign(file) as opened:
        opened.add_class(name)
        names = opened.classes
    typer.echo(f"The classes are {', '.join(names)}.")


@campaign.command()
def ask(
    file: File,
    n: Annotated[int, typer.Option("-n", metavar="N", help="How many.")] = 20,
    who: Who = "me",
    as_json: Json = False,
) -> None:
    """Say what to label next, and why."""
    from teeter.cli.label_prompt import nothing_left

    with open_campaign(file) as opened, spinner("Picking"):
        require_named(opened, who, "answer")
        questions = opened.ask(n, who)
        none_left = None if questions else nothing_left(opened)
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in questions], ensure_ascii=False, indent=2))
        return
    for one in questions:
        typer.echo(f"{shown_id(one.item)}\t{one.arm}\t{_shortened(one.content)}")
    if not questions:
        typer.echo(none_left)


@campaign.command()
def tell(
    file: File,
    item: Annotated[str, typer.Argument(metavar="ITEM", help="The item's id.")],
    label: Annotated[
        str | None, typer.Argument(metavar="[LABEL]", help="Its class; left out with --other.")
    ] = None,
    *,
    who: Who = "me",
    other: Annotated[
        str | None,
        typer.Option(metavar="ANSWER", help="skip, unsure or flag, instead of a class."),
    ] = None,
    comment: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Kept with the answer.")
    ] = None,
) -> None:
    """Record a label; it is on disk when this returns."""
    if (label is None) == (other is None):
        raise InputError("Give a class, or --other skip, unsure or flag.")
    with open_campaign(file) as opened:
        require_named(opened, who, "answer")
        ways = {"skip": opened.skip, "unsure": opened.mark_unsure, "flag": opened.flag}
        if label is not None:
            recorded = opened.tell(item, label, who, comment=comment)
        elif other in ways:
            recorded = ways[other](item, who, comment=comment)
        else:
            raise InputError(f"{other!r} is none of skip, unsure and flag.")
    if recorded.late:
        others = ", ".join(recorded.asked_now) or "nobody"
        typer.echo(
            f"The question had gone back, and {others} is asked now; your answer counts all the same.",
            err=True,
        )


@campaign.command()
def undo(file: File, who: Who = "me") -> None:
    """Take back the last answer."""
    with open_campaign(file) as opened:
        undone = opened.undo(who)
    if undone is None:
        typer.echo(f"{who} has given no answer that could be taken back.")
        return
    before = (
        ""
        if undone.before is None
        else f"; before it was {undone.before.label or undone.before.kind}"
    )
    typer.echo(
        f"{shown_id(undone.answer.item)}: {undone.answer.label or undone.answer.kind} taken back{before}."
    )


@campaign.command()
def train(file: File, as_json: Json = False) -> None:
    """Train a new model on all labels."""
    with open_campaign(file) as opened, spinner("Training"):
        trained = opened.train()
    typer.echo(
        json.dumps(asdict(trained))
        if as_json
        else f"Model {trained.version}, of {trained.labels} labels in {len(trained.classes)} classes."
    )


@campaign.command()
def status(file: File, as_json: Json = False) -> None:
    """Say how the campaign stands, how right the model is, and whether to go on."""
    with open_campaign(file) as opened, spinner("Reading"):
        found = opened.status()
    if as_json:
        typer.echo(json.dumps(asdict(found), ensure_ascii=False, indent=2))
        return
    typer.echo(
        f"{found.labelled} of {pluralize(found.items, 'item')} labelled, {found.open} open, model {found.version}."
    )
    typer.echo(", ".join(f"{name} {count}" for name, count in found.by_class.items()))
    if found.disagreements:
        typer.echo(
            f"{pluralize(found.disagreements, 'item')} on which people disagree: teeter campaign decide {file}"
        )
    for sentence in found.advice:
        typer.echo(sentence)


@campaign.command()
def suspects(
    file: File,
    n: Annotated[int, typer.Option("-n", metavar="N", help="How many at most.")] = 20,
    again: Annotated[
        bool, typer.Option("--again", help="Also those that were kept before.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List labels that may be wrong; label --suspects goes through them."""
    with open_campaign(file) as opened, spinner("Looking"):
        found = opened.suspects(n, again=again)
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in found], ensure_ascii=False, indent=2))
        return
    if not found:
        typer.echo("No label is suspected.")
    for one in found:
        typer.echo(
            f"{shown_id(one.item)}\tlabelled {one.label} ({one.chance:.0%} likely), looks like {one.predicted}"
        )


@campaign.command()
def export(
    file: File,
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="A .csv, .jsonl or .parquet file, or a folder.")
    ],
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="csv, jsonl, parquet, datasets, prodigy or doccano; by OUT's ending if left out.",
        ),
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write everything that happened too, as JSONL."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
) -> None:
    """Write labels, and predictions with their confidence for everything else."""
    if history is not None and history.resolve() == out.resolve():
        raise InputError(f"Labels and history cannot both go to {out}: name another file.")
    if history is not None and history.is_dir():
        raise InputError(f"The history cannot go to {history}, which is a folder: name a file.")
    if history is not None and out.resolve() in history.resolve().parents:
        raise InputError(f"The history cannot go to {history}: name a file outside of {out}.")
    for path in (out, history):
        _require_free(path, file, overwrite)
    with open_campaign(file) as opened, spinner("Writing"):
        count = opened.export(out, form)
        if history is not None:
            history.write_text(
                "".join(json.dumps(line) + "\n" for line in opened.history()), encoding="utf-8"
            )
        about = opened.prediction_note()
    typer.echo(f"{out}: {pluralize(count, 'label')}.")
    if about is not None:
        typer.echo(about)


@campaign.command()
def backup(
    file: File, out: Annotated[Path, typer.Argument(metavar="OUT", help="Where the copy goes.")]
) -> None:
    """Copy a campaign as it is now."""
    with open_campaign(file) as opened:
        opened.back_up(out)
    typer.echo(f"{out} is a copy of {file}.")


@campaign.command()
def restore(
    copy: Annotated[Path, typer.Argument(metavar="BACKUP", help="What backup wrote.")],
    file: Annotated[
        Path, typer.Argument(metavar="CAMPAIGN", help="The campaign's file, as it is to be again.")
    ],
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite", help="Replace a campaign that is there, if nobody has it open."
        ),
    ] = False,
) -> None:
    """Put a backup back, if it is whole."""
    from teeter.campaigns.campaign import Campaign

    if file.exists() and not overwrite:
        raise InputError(
            f"{file} exists already: name another file, or replace it with --overwrite."
        )
    Campaign.restore(copy, file, overwrite=overwrite)
    typer.echo(f"{file} is as {copy} was.")


@campaign.command()
def label(
    file: File,
    n: Annotated[int, typer.Option("-n", metavar="N", help="Questions a round.")] = 20,
    who: Who = "me",
    suspects: Annotated[
        bool, typer.Option("--suspects", help="Look again at labels that may be wrong.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="With --suspects, also at those kept before.")
    ] = False,
) -> None:
    """Label in the terminal, one key a class; a new model is trained after each round."""
    from teeter.cli.label_prompt import go_on, keys_for, look_again

    if again and not suspects:
        raise InputError("--again goes with --suspects.")
    with open_campaign(file) as opened:
        require_named(opened, who, "answer")
        keys = keys_for(opened.classes)
        if opened.settings.instructions:
            typer.echo(opened.settings.instructions)
        typer.echo("  ".join(f"[{key}] {name}" for key, name in keys.items()))
        stopped = False
        try:
            if suspects:
                look_again(opened, keys, n, who, again=again)
            else:
                go_on(opened, keys, n, who)
        except EOFError:  # Ctrl-D
            typer.echo()
        except KeyboardInterrupt:
            stopped = True
            typer.echo()
    typer.echo(f"Everything is in {file}; the same command goes on.")
    if stopped:
        raise typer.Exit(130)


@campaign.command()
def move(
    file: File,
    to: Annotated[
        str,
        typer.Argument(metavar="TO", help="A new file, or the address of a PostgreSQL database."),
    ],
) -> None:
    """Copy a campaign, whole, to a server or back to a file; then go on with the copy."""
    from teeter.campaigns.transfer import move_to

    with open_campaign(file) as opened, spinner("Moving"):
        where, counts = move_to(opened.database, opened.name, to)
    answers = pluralize(counts["answers"], "answer")
    typer.echo(f"{where}: {opened.name} with {pluralize(counts['items'], 'item')}, {answers}.")
    typer.echo(f"{opened.database.display_url} is as it was: go on in one of them, not in both.")


@contextmanager
def open_campaign(file: str) -> Iterator[Campaign]:
    """Yield a campaign, and let go of its file, so that nothing is left beside it."""
    from teeter.campaigns.campaign import Campaign

    opened = Campaign.open(file)
    try:
        yield opened
    finally:
        opened.database.close()


def require_named(opened: Campaign, who: str, what: str) -> None:
    """Refuse a name that is none of the campaign's people; whoever gives none has the campaign, and may do all."""
    if who != "me":
        opened.people.require(who, what)


def _require_free(path: Path | None, file: str, overwrite: bool) -> None:
    """Refuse a path that is taken: what people export over is often what the campaign was made from."""
    from teeter.campaigns.settings_store import split_location

    if path is None:
        return
    if not path.is_dir():
        require_writable(path, Path(split_location(file)[0]))
    if not overwrite and path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise InputError(f"{path} exists already: name another, or replace it with --overwrite.")


def _beside(things: Path) -> Path:
    """Return the campaign's file that goes with a file or a folder: beside it, and called like it."""
    place = things.resolve() if not things.name or things.name == ".." else things
    if not place.name:
        raise InputError(
            f"{things} has no name to call the campaign by: name its file with --file."
        )
    return place.with_name(f"{place.name.removesuffix(place.suffix)}.teeter")


def _tell_conflicts(added: ImportResult) -> None:
    for item, given, held in added.conflicts[:5]:
        typer.echo(f"{shown_id(item)} came with the label {given} and keeps {held}.")
    if len(added.conflicts) > 5:
        typer.echo(f"{len(added.conflicts) - 5} more came with another label than they keep.")


def _shortened(text: str | None) -> str:
    line = " ".join((text or "")[:1000].split())
    return printable(line if len(line) <= 100 else line[:99] + "…")


def shown_id(key: str) -> str:
    """Return an id as a terminal can show it: on one line, and not too long."""
    return printable(key if len(key) <= 100 else key[:99] + "…").translate(
        {9: "\ufffd", 10: "\ufffd"}
    )
