"""What other programs contribute: Label Studio, predictions of other models, language models."""

from __future__ import annotations

import json
import os
import stat
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from teeter.base.wording import pluralize
from teeter.cli.campaign import open_campaign
from teeter.cli.output import (
    EXIT_INTERRUPTED,
    CampaignArgument,
    JsonOption,
    echo_json,
    echo_wrapped,
    print_table,
    printable,
    progress,
    spinner,
)
from teeter.errors import FileError, InputError, ServerUnavailableError

if TYPE_CHECKING:
    from teeter.campaigns.integrations.label_studio import LabelStudio, SyncResult
    from teeter.campaigns.records import AccuracyEstimate


_UNKNOWN = "–"

# Not an option: all users of a machine see the arguments of its processes.
_TOKEN_VARIABLE = "LABEL_STUDIO_API_KEY"

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
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File with a legacy or personal access token that only you can read. Default: the "
        "token in LABEL_STUDIO_API_KEY. It is not stored.",
    ),
]
CountOption = Annotated[
    int, typer.Option("-n", metavar="N", help="Number of unanswered items to keep in Label Studio.")
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
    token_file: TokenFileOption = None,
    n: CountOption = 20,
    new_project: NewProjectOption = False,
    suggestions: SuggestionsOption = False,
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

    # Before the campaign is opened, so that a missing token is reported at once.
    token = _read_token(token_file)

    with (
        open_campaign(file) as campaign,
        LabelStudio(
            campaign,
            token,
            url,
            n=n,
            new_project=new_project,
            suggestions=suggestions,
        ) as label_studio,
    ):
        if watch is None:
            _print_result(_sync_once(label_studio), as_json)
        else:
            _sync_repeatedly(label_studio, watch, as_json)


def _read_token(token_file: Path | None) -> str:
    """Return the token in a file, or else that of the environment."""
    if token_file is not None:
        try:
            mode = token_file.stat().st_mode
            text = token_file.read_text(encoding="utf-8").strip()
        except UnicodeDecodeError:
            raise FileError(
                f"Cannot read the token in {token_file}: the file is not UTF-8 text."
            ) from None
        except OSError as error:
            raise FileError(
                f"Cannot read the token in {token_file}: {error.strerror or error}."
            ) from None

        if os.name == "posix" and mode & _OTHERS_CAN_ACCESS:
            raise FileError(
                f"Other users can read the token in {token_file}. Run: chmod 600 {token_file}"
            )
        return text

    token = os.environ.get(_TOKEN_VARIABLE)
    if not token:
        raise InputError(
            "Label Studio needs a token: set LABEL_STUDIO_API_KEY or pass --token-file."
        )
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

    labels = pluralize(result.labels, "label")
    skips = pluralize(result.skips, "skip")
    imported = f"{labels} and {skips}"
    # Rare changes are left out if there are none.
    if result.corrected:
        imported += f", corrected {result.corrected:,}"
    if result.withdrawn:
        imported += f", withdrew {result.withdrawn:,}"
    typer.echo(f"Imported {imported}.")
    if result.model is not None:
        typer.echo(f"Trained model {result.model}.")
    sent = pluralize(result.sent, "task")
    waiting = pluralize(result.waiting, "item")
    typer.echo(f"Sent {sent}; {waiting} waiting for answers.")

    for note in result.notes:
        typer.echo(printable(note), err=True)


FromArgument = Annotated[
    str,
    typer.Argument(
        metavar="FROM",
        help="Predictions of another model (.csv, .jsonl, .parquet) with id, label and optionally "
        "probability; or the address of an OpenAI-compatible interface, such as "
        "http://127.0.0.1:8080/v1.",
    ),
]
ModelOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Name of the language model at an address.")
]
LimitOption = Annotated[
    int | None, typer.Option("-n", metavar="N", min=1, help="Ask about at most N items.")
]
InputPriceOption = Annotated[
    float, typer.Option(metavar="AMOUNT", min=0, help="Price per million input tokens.")
]
OutputPriceOption = Annotated[
    float, typer.Option(metavar="AMOUNT", min=0, help="Price per million output tokens.")
]
ModelBudgetOption = Annotated[
    float | None,
    typer.Option(
        metavar="AMOUNT",
        min=0,
        help="Stop before the total cost exceeds this amount. Needs both prices.",
    ),
]


def suggest(
    file: CampaignArgument,
    source: FromArgument,
    *,
    model: ModelOption = None,
    n: LimitOption = None,
    input_price: InputPriceOption = 0,
    output_price: OutputPriceOption = 0,
    budget: ModelBudgetOption = None,
    again: Annotated[
        bool,
        typer.Option(
            "--again",
            help="If descriptions or instructions have changed, ask again about the same items.",
        ),
    ] = False,
) -> None:
    """Add suggestions: predictions in a file, or answers of a language model.

    Suggestions never become labels. Annotators see them on picked items, and their accuracy is
    measured on control items, where annotators do not see them. Models learn from them as long as
    that helps.

    The suggestions of a file have its name, and replace those of an earlier file of that name.
    Instead of a label, a row may have the probability of every class, in columns named after the
    classes.

    With --model, the texts of the items are sent to the server of the language model. The
    instructions and the descriptions of the classes are the prompt. Each text is sent in a
    separate request, so no text can influence the label of another. Items that annotators get next
    and labelled control items come first. Every reply is stored at once, so the same command
    resumes an interrupted run, and no text is paid for twice. The server's key is read from
    TEETER_SUGGEST_KEY and is never stored.

    \b
    Examples:
      teeter campaign suggest sms.teeter old_model.csv
      teeter campaign suggest sms.teeter http://127.0.0.1:8080/v1 --model qwen3
      teeter campaign suggest sms.teeter https://llm.example.org/v1 --model big \\
        --input-price 0.5 --output-price 1.5 --budget 2
    """
    if model is None:
        if "://" in source:
            raise InputError("A language model needs its name: add --model NAME.")
        if n is not None or input_price or output_price or budget is not None or again:
            raise InputError(
                "-n, --input-price, --output-price, --budget and --again are for a language model: "
                "leave them out, or add --model NAME."
            )
        _add_predictions(file, Path(source))
        return

    from teeter.campaigns.suggestions.chat_client import ChatClient
    from teeter.campaigns.suggestions.language_model import LanguageModel

    language_model = LanguageModel(
        source, model, input_price=input_price, output_price=output_price, budget=budget
    )
    # Refuses an address that cannot be used before anything is said or sent.
    ChatClient(source, model)
    typer.echo(f"The texts of the items are sent to {language_model.url}.", err=True)
    with open_campaign(file) as opened, progress("Asking") as show_progress:
        run = opened.suggestions.ask(language_model, limit=n, again=again, progress=show_progress)
    typer.echo(
        f"{run.source} was asked about {pluralize(run.paid, 'text')} and gave "
        f"{pluralize(run.suggested, 'suggestion')}; {run.cached:,} came from stored replies."
    )
    if run.invalid:
        typer.echo(f"{pluralize(run.invalid, 'item')} got a reply that names no class.")
    if run.refused:
        typer.echo(f"The server refused the text of {pluralize(run.refused, 'item')}.")

    usage = run.usage
    tokens = usage.input_tokens + usage.output_tokens
    cost = f"So far: {pluralize(tokens, 'token')}"
    if usage.cost:
        cost += f", cost {usage.cost:.4g}"
    if run.remaining_budget is not None:
        cost += f", {run.remaining_budget:.4g} of the budget left"
    typer.echo(f"{cost}.")
    if run.stop_reason == "budget":
        typer.echo("Stopped, because the next request might exceed the budget.")


def _add_predictions(file: str, predictions: Path) -> None:
    with open_campaign(file) as opened, spinner("Reading"):
        result = opened.suggestions.add(predictions, predictions.stem)

    for sentence in result.sentences:
        echo_wrapped(sentence)
    if result.missing:
        typer.echo(f"{pluralize(result.missing, 'item')} without a prediction.")


def sources(
    file: CampaignArgument,
    remove: Annotated[
        str | None, typer.Option(metavar="NAME", help="Remove a source and its suggestions.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the sources of suggestions, and how often annotators agree with each.

    The accuracy is measured on control and holdout items, where annotators see no suggestion. The
    last two columns compare labels of picked items with the suggestion, where it was shown and
    where it was not: a large difference means that suggestions influence annotators.
    """
    with open_campaign(file) as opened, spinner("Reading"):
        if remove is not None:
            opened.suggestions.remove(remove)
        reports = opened.suggestions.sources()

    if as_json:
        echo_json(reports)
        return
    if not reports:
        typer.echo("There are no suggestions.")
        return

    rows = [
        [
            report.name,
            str(report.kind),
            f"{report.items:,}",
            _format_share(report.accuracy),
            _format_share(report.shown),
            _format_share(report.blind),
        ]
        for report in reports
    ]
    heads = ["source", "kind", "items", "accuracy", "agreement, shown", "agreement, blind"]
    print_table(heads, rows)


def _format_share(estimate: AccuracyEstimate | None) -> str:
    if estimate is None:
        return _UNKNOWN
    return f"{estimate.share:.0%} of {estimate.total:,}"
