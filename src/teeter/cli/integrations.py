"""Other programs: Label Studio and webhooks."""

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
from teeter.cli.errors import EXIT_INTERRUPTED, Commands
from teeter.cli.options import CampaignArgument, JsonOption, split_names
from teeter.cli.output import echo_json, pluralize, print_table, printable, spinner
from teeter.errors import FileError, InputError, ServerUnavailableError

if TYPE_CHECKING:
    from teeter.campaigns.integrations.label_studio import LabelStudio, SyncResult

__all__ = [
    "sync",
    "webhook",
]


# Permissions of the group and of all other users.
_OTHERS_CAN_ACCESS = stat.S_IRWXG | stat.S_IRWXO

UrlOption = Annotated[
    str | None,
    typer.Option(
        envvar="LABEL_STUDIO_URL",
        metavar="URL",
        help="URL of Label Studio. Default: LABEL_STUDIO_URL, or the URL of the last sync.",
    ),
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        envvar="LABEL_STUDIO_API_KEY",
        metavar="TOKEN",
        help="Legacy or personal access token. Default: LABEL_STUDIO_API_KEY. The token is not "
        "stored.",
    ),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Read the token from a file that only you can read."),
]
CountOption = Annotated[
    int, typer.Option("-n", metavar="N", help="Number of unanswered items to keep in Label Studio.")
]
TrainOption = Annotated[
    bool,
    typer.Option("--train/--no-train", help="Train a model on new answers before picking items."),
]
ImagesOption = Annotated[
    str | None,
    typer.Option(
        metavar="PREFIX",
        help="URL prefix under which the images are served. Without it, the images are uploaded.",
    ),
]
SuggestionsOption = Annotated[
    bool,
    typer.Option(
        "--suggestions", help="Send suggestions as predictions. Annotators see them preselected."
    ),
]
NewProjectOption = Annotated[
    bool,
    typer.Option(
        "--new-project",
        help="Create a new project in Label Studio. Imported answers stay in the campaign.",
    ),
]
OnceOption = Annotated[bool, typer.Option("--once", help="Sync once (the default).")]
WatchOption = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        min=1,
        help="Sync repeatedly, pausing this many seconds in between, until you press Ctrl-C.",
    ),
]


def sync(
    file: CampaignArgument,
    *,
    url: UrlOption = None,
    token: TokenOption = None,
    token_file: TokenFileOption = None,
    n: CountOption = 20,
    train: TrainOption = True,
    images: ImagesOption = None,
    new_project: NewProjectOption = False,
    suggestions: SuggestionsOption = False,
    once: OnceOption = False,
    watch: WatchOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import annotations from Label Studio, train a model, and send the next items.

    \b
    Examples:
      teeter campaign sync reviews.teeter --url http://localhost:8080
      teeter campaign sync reviews.teeter --watch 30
    """
    from teeter.campaigns.integrations.label_studio import LabelStudio

    if once and watch is not None:
        raise InputError("Pass --once or --watch, not both.")
    # Before the campaign is opened, so that a missing token is reported at once.
    token = _read_token(token, token_file)

    with (
        open_campaign(file) as campaign,
        LabelStudio(
            campaign,
            token,
            url,
            n=n,
            train=train,
            images=images,
            new_project=new_project,
            suggestions=suggestions,
        ) as label_studio,
    ):
        if watch is None:
            _print_result(_sync_once(label_studio), as_json)
        else:
            _sync_repeatedly(label_studio, watch, as_json)


def _read_token(token: str | None, token_file: Path | None) -> str:
    """Return the token of the option or the environment, or that of a file if one is given."""
    if token_file is not None:
        return _read_token_file(token_file)
    if not token:
        raise InputError(
            "Label Studio needs a token: set LABEL_STUDIO_API_KEY or pass --token-file."
        )
    return token


def _read_token_file(path: Path) -> str:
    """Return the token in a file.

    Raises:
        FileError: if it cannot be read, or if other users can read it.
    """
    try:
        mode = path.stat().st_mode
        token = path.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        raise FileError(f"Cannot read the token in {path}: the file is not UTF-8 text.") from None
    except OSError as error:
        raise FileError(f"Cannot read the token in {path}: {error.strerror or error}.") from None

    if os.name == "posix" and mode & _OTHERS_CAN_ACCESS:
        raise FileError(f"Other users can read the token in {path}. Run: chmod 600 {path}")
    return token


def _sync_once(label_studio: LabelStudio) -> SyncResult:
    with spinner("Syncing with Label Studio"):
        return label_studio.sync()


def _sync_repeatedly(label_studio: LabelStudio, pause: float, as_json: bool) -> None:
    """Sync until Ctrl-C. Print only what is new, and wait for a server that is unavailable."""
    typer.echo(
        "Press Ctrl-C to stop. Every answer that is reported here is stored in the campaign.",
        err=True,
    )

    last_notes: tuple[str, ...] | None = None
    last_error: str | None = None
    try:
        while True:
            try:
                result = _sync_once(label_studio)
            except ServerUnavailableError as error:
                # An outage is reported once, not at every attempt.
                if str(error) != last_error:
                    typer.echo(printable(str(error)), err=True)
                last_error = str(error)
                # After an outage the notes are printed again, to show where things stand.
                last_notes = None
            else:
                if result.has_changes or result.notes != last_notes:
                    _print_result(result, as_json)
                last_error = None
                last_notes = result.notes

            time.sleep(pause)
    except KeyboardInterrupt:
        typer.echo("Stopped. Run the same command to continue.", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _print_result(result: SyncResult, as_json: bool) -> None:
    """Print what a sync did: sentences, or a line of JSON, so that --watch gives JSON lines."""
    if as_json:
        typer.echo(json.dumps(asdict(result), ensure_ascii=False))
        return

    project = f"{result.url}/projects/{result.project}"
    if result.created:
        typer.echo(f"Created project {project}.")
    else:
        typer.echo(f"Synced with project {project}.")

    typer.echo(f"Imported {_describe_imports(result)}.")
    if result.model is not None:
        typer.echo(f"Trained model {result.model}.")
    sent = pluralize(result.sent, "task")
    typer.echo(f"Sent {sent}; {pluralize(result.waiting, 'item')} waiting for answers.")

    for note in result.notes:
        typer.echo(printable(note), err=True)


def _describe_imports(result: SyncResult) -> str:
    """Return the counts of imported answers. Rare changes are left out if there are none."""
    parts = [f"{pluralize(result.labels, 'label')} and {pluralize(result.skips, 'skip')}"]
    if result.corrected:
        parts.append(f"corrected {result.corrected:,}")
    if result.withdrawn:
        parts.append(f"withdrew {result.withdrawn:,}")
    return ", ".join(parts)


webhook = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    help="Send signed events to other systems: labelled, trained, promise_reached, finished.",
    rich_markup_mode=None,
)


@webhook.command("add")
def add(
    file: CampaignArgument,
    url: Annotated[str, typer.Argument(metavar="URL", help="Address to send events to.")],
    events: Annotated[
        str, typer.Option(metavar="NAMES", help="Comma-separated events. Default: all.")
    ] = "",
    allow_private: Annotated[
        bool,
        typer.Option(
            "--allow-private", help="Allow an address in your own network, such as localhost."
        ),
    ] = False,
) -> None:
    """Send events to an address from now on, and print the secret that they are signed with.

    A running server delivers events within seconds. Without a server, run teeter campaign webhook
    deliver.

    \b
    Examples:
      teeter campaign webhook add reviews.teeter https://example.org/labels
      teeter campaign webhook add a.teeter http://localhost:9000 --allow-private
    """
    from teeter.campaigns.integrations.webhooks import WebhookEvent, add_webhook

    names = split_names(events) if events else list(WebhookEvent)
    with open_campaign(file) as opened:
        added = add_webhook(opened, url, names, allow_private=allow_private)

    typer.echo(f"Added webhook {added.row_id}. Its secret, which is not shown again:")
    typer.echo(added.secret)


@webhook.command("list")
def show(file: CampaignArgument, as_json: JsonOption = False) -> None:
    """List the webhooks and their latest deliveries."""
    from teeter.campaigns.integrations.webhooks import list_deliveries, list_webhooks

    with open_campaign(file) as opened:
        webhooks = list_webhooks(opened)
        deliveries = list_deliveries(opened)

    rows = [[str(hook.row_id), hook.url, ", ".join(sorted(hook.events))] for hook in webhooks]
    if as_json:
        echo_json(
            [
                {"id": hook.row_id, "url": hook.url, "events": sorted(hook.events)}
                for hook in webhooks
            ]
        )
        return

    print_table(["id", "url", "events"], rows)
    for delivery in deliveries:
        outcome = delivery.error or "waits"
        if delivery.delivered is not None:
            outcome = f"delivered {delivery.delivered}"
        typer.echo(f"{delivery.row_id}  {delivery.event}  {delivery.created}  {outcome}")


@webhook.command("remove")
def remove(
    file: CampaignArgument,
    number: Annotated[int, typer.Argument(metavar="ID", help="Number of the webhook.")],
) -> None:
    """Remove a webhook. Events that have not been delivered to it yet are never sent."""
    from teeter.campaigns.integrations.webhooks import remove_webhook

    with open_campaign(file) as opened:
        remove_webhook(opened, number)

    typer.echo(f"Removed webhook {number}.")


@webhook.command("deliver")
def deliver(file: CampaignArgument) -> None:
    """Deliver the events that are due now, for campaigns without a running server."""
    from teeter.campaigns.integrations.webhooks import deliver_due

    with open_campaign(file) as opened:
        counts = deliver_due(opened)

    typer.echo(
        f"Delivered {pluralize(counts.delivered, 'event')}. "
        f"{pluralize(counts.failed, 'webhook')} failed."
    )
