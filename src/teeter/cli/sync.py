"""teeter campaign sync: label a campaign in Label Studio."""

from __future__ import annotations

import json
import os
import stat
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from teeter.cli.campaign import open_campaign
from teeter.cli.options import CampaignArgument, JsonOption
from teeter.cli.output import pluralize, printable, spinner
from teeter.errors import FileError, InputError, ServerUnavailableError

if TYPE_CHECKING:
    from teeter.campaigns.label_studio import LabelStudio, SyncResult

__all__ = ["sync"]


def sync(
    file: CampaignArgument,
    *,
    url: Annotated[
        str | None,
        typer.Option(
            envvar="LABEL_STUDIO_URL",
            metavar="URL",
            help="Where Label Studio is, if not in LABEL_STUDIO_URL; remembered from the first time on.",
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="LABEL_STUDIO_API_KEY",
            metavar="TOKEN",
            help="A legacy or a personal access token, if not in LABEL_STUDIO_API_KEY; it is not kept.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A file with the token that nobody else can read."),
    ] = None,
    n: Annotated[
        int, typer.Option("-n", metavar="N", help="Questions that wait in Label Studio.")
    ] = 20,
    train: Annotated[
        bool,
        typer.Option(
            "--train/--no-train",
            help="Train a model before new questions are picked, or leave that to you.",
        ),
    ] = True,
    images: Annotated[
        str | None,
        typer.Option(
            metavar="PREFIX", help="Where images are served already; they are uploaded if left out."
        ),
    ] = None,
    new_project: Annotated[
        bool,
        typer.Option(
            "--new-project",
            help="Begin another project, where the one before is lost; what was answered stays.",
        ),
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Sync once, as without any option.")] = False,
    watch: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=1,
            help="Sync again and again, with this pause between, until Ctrl+C.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Label in Label Studio: annotations in, a new model when questions run out, and the next questions out."""
    from teeter.campaigns.label_studio import LabelStudio

    if once and watch is not None:
        raise InputError("--once and --watch exclude each other: leave one out.")
    secret = _token(token, token_file)
    with open_campaign(file) as opened:
        studio = LabelStudio(
            opened, secret, url, n=n, train=train, images=images, new_project=new_project
        )
        try:
            if watch is None:
                _show(_synced(studio), as_json)
            else:
                _watch(studio, watch, as_json)
        finally:
            studio.close()


def _token(given: str | None, file: Path | None) -> str:
    """Return the token that was given, from a file that only its owner reads, or from the environment."""
    if file is None:
        if not given:
            raise InputError(
                "Label Studio needs a token: put it into LABEL_STUDIO_API_KEY, or name a --token-file."
            )
        return given
    try:
        mode = file.stat().st_mode
        told = file.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        raise FileError(f"Cannot read the token in {file}: it is not a text.") from None
    except OSError as error:
        raise FileError(f"Cannot read the token in {file}: {error.strerror or error}.") from None
    if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
        raise FileError(f"Others can read the token in {file}: chmod 600 {file}.")
    return told


def _synced(studio: LabelStudio) -> SyncResult:
    with spinner("Talking to Label Studio"):
        return studio.sync()


def _watch(studio: LabelStudio, pause: float, as_json: bool) -> None:
    """Sync until somebody stops it; a server that is away is told of once, and waited for."""
    typer.echo("Ctrl+C stops; every answer is in the campaign when it is told of.", err=True)
    told: object = None
    try:
        while True:
            try:
                found = _synced(studio)
            except ServerUnavailableError as error:
                if told != str(error):
                    typer.echo(printable(str(error)), err=True)
                told = str(error)
            else:
                if found.is_news or found.notes != told:
                    _show(found, as_json)
                told = found.notes
            time.sleep(pause)
    except KeyboardInterrupt:
        typer.echo("Stopped; the same command goes on.", err=True)
        raise typer.Exit(130) from None


def _show(found: SyncResult, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(asdict(found), ensure_ascii=False))
        return
    where = f"{found.url}/projects/{found.project}"
    typer.echo(f"{where}{' is made' if found.made else ''}: {_came(found)}.")
    model = "" if found.model is None else f"Model {found.model} is trained. "
    typer.echo(
        f"{model}{pluralize(found.sent, 'task')} sent, {pluralize(found.waiting, 'question')} waiting."
    )
    for note in found.notes:
        typer.echo(printable(note), err=True)


def _came(found: SyncResult) -> str:
    counts = {"corrected": found.corrected, "taken back": found.withdrawn}
    more = "".join(f", {count} {what}" for what, count in counts.items() if count)
    return f"{pluralize(found.labels, 'label')} and {pluralize(found.skips, 'skip')} in{more}"
