"""teeter campaign describe, predictions, suggest and sources: start from what is known."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from teeter.cli.campaign import open_campaign
from teeter.cli.options import CampaignArgument, JsonOption
from teeter.cli.output import (
    echo_json,
    echo_wrapped,
    list_some,
    pluralize,
    print_table,
    progress,
    spinner,
)

if TYPE_CHECKING:
    from teeter.campaigns.learning.stopping import AccuracyEstimate
    from teeter.campaigns.suggestions.language_model import SuggestionRun
    from teeter.campaigns.suggestions.sources import SourceReport

__all__ = ["describe", "predictions", "sources", "suggest"]

_UNKNOWN = "–"

# Unknown classes of a file that are named one by one.
_NAMED_LABELS = 5

UrlArgument = Annotated[
    str,
    typer.Argument(
        metavar="URL",
        help="Address of an OpenAI-compatible interface, such as http://127.0.0.1:8080/v1.",
    ),
]
ModelOption = Annotated[str, typer.Option(metavar="NAME", help="Name of the language model.")]
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
SourceNameOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Name of the suggestions on the page. Default: the name of the model."
    ),
]


def describe(
    file: CampaignArgument,
    descriptions: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="TOML or CSV file of descriptions. Without it, the descriptions are printed.",
        ),
    ] = None,
    names: Annotated[
        bool | None,
        typer.Option(
            "--names/--no-names",
            help="Whether models learn from the names and descriptions of the classes.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Describe what the classes mean, or print their descriptions.

    Annotators see the descriptions beside the item. Models learn from the names, descriptions and
    examples, as long as this improves their predictions. A TOML file has lines such as spam =
    "Unwanted advertising.", or tables with description and examples. A CSV file has the columns
    name, description and example.

    \b
    Examples:
      teeter campaign describe messages.teeter classes.toml
      teeter campaign describe messages.teeter
    """
    from teeter.campaigns.classes import read_descriptions
    from teeter.campaigns.learning.prior import explain_names

    with open_campaign(file) as opened:
        if descriptions is not None:
            opened.describe(read_descriptions(descriptions))
        if names is not None:
            opened.use_names(names)
        described = opened.descriptions
        count = len(opened.classes)
        note = explain_names(opened)

    if as_json:
        echo_json({name: asdict(description) for name, description in described.items()})
        return

    if descriptions is None:
        for name, description in described.items():
            echo_wrapped(f"{name}: {description.description}")
            for example in description.examples:
                echo_wrapped(f"  {example}")
    typer.echo(f"{len(described)} of {count} classes are described.")
    echo_wrapped(note)


def predictions(
    file: CampaignArgument,
    predictions_file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Predictions (.csv, .jsonl, .parquet) with id, label and optionally probability.",
        ),
    ],
    source: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Name of the predictions on the page. Default: the name of the file.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Add the predictions of another model as suggestions.

    Suggestions never become labels. Annotators see them on picked items, and their accuracy is
    measured on control items, where annotators do not see them. Models learn from them as long as
    that helps. Adding predictions under the same name replaces the earlier ones.

    Instead of a label, a row may have the probability of every class, in columns named after the
    classes.

    \b
    Examples:
      teeter campaign predictions messages.teeter old_model.csv
      teeter campaign predictions messages.teeter out.parquet --source bert
    """
    with open_campaign(file) as opened, spinner("Reading"):
        result = opened.add_predictions(predictions_file, source or predictions_file.stem)

    if as_json:
        echo_json(result)
        return

    typer.echo(f"Added {pluralize(result.stored, 'suggestion')} by {result.source}.")
    if result.unknown_items:
        count = pluralize(result.unknown_items, "prediction")
        typer.echo(f"Left out {count} for items that the campaign does not have.")
    if result.unknown_labels:
        count = pluralize(sum(result.unknown_labels.values()), "prediction")
        listed = list_some([repr(name) for name in result.unknown_labels], _NAMED_LABELS)
        echo_wrapped(f"Left out {count} of classes that the campaign does not have: {listed}.")
    if result.missing:
        typer.echo(f"{pluralize(result.missing, 'item')} without a prediction.")


def suggest(
    file: CampaignArgument,
    url: UrlArgument,
    *,
    model: ModelOption,
    n: LimitOption = None,
    input_price: InputPriceOption = 0,
    output_price: OutputPriceOption = 0,
    budget: ModelBudgetOption = None,
    source: SourceNameOption = None,
    parallel: Annotated[
        int, typer.Option(metavar="N", min=1, max=32, help="Number of requests sent in parallel.")
    ] = 4,
    again: Annotated[
        bool,
        typer.Option(
            "--again",
            help="If descriptions or instructions have changed, ask again about the same items.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Ask a language model for suggestions. The texts of the items are sent to its server.

    The instructions and the descriptions of the classes are the prompt. Each text is sent in a
    separate request, so no text can influence the label of another. Items that annotators get next
    and labelled control items come first. Every reply is stored at once, so the same command
    resumes an interrupted run, and no text is paid for twice.

    The server's key is read from TEETER_SUGGEST_KEY and is never stored.

    \b
    Examples:
      teeter campaign suggest sms.teeter http://127.0.0.1:8080/v1 --model qwen3
      teeter campaign suggest sms.teeter https://llm.example.org/v1 --model big \\
        --input-price 0.5 --output-price 1.5 --budget 2
    """
    from teeter.campaigns.suggestions.chat_client import ChatClient
    from teeter.campaigns.suggestions.language_model import LanguageModel

    language_model = LanguageModel(
        url,
        model,
        source=source,
        input_price=input_price,
        output_price=output_price,
        budget=budget,
        parallel=parallel,
    )
    # Refuses an address that cannot be used before anything is said or sent.
    ChatClient(url, model)
    if not as_json:
        typer.echo(f"The texts of the items are sent to {language_model.url}.", err=True)
    with open_campaign(file) as opened, progress("Asking") as show_progress:
        run = opened.suggest(language_model, limit=n, again=again, progress=show_progress)

    if as_json:
        echo_json(run)
    else:
        _print_run(run)


def _print_run(run: SuggestionRun) -> None:
    """Print what a language model said, and what it cost."""
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


def sources(
    file: CampaignArgument,
    remove: Annotated[
        str | None, typer.Option(metavar="NAME", help="Remove a source and its suggestions.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the sources of suggestions, and how often annotators agree with each.

    The accuracy is measured on control and audit items, where annotators see no suggestion. The
    last two columns compare labels of picked items with the suggestion, where it was shown and
    where it was not: a large difference means that suggestions influence annotators.
    """
    with open_campaign(file) as opened, spinner("Reading"):
        if remove is not None:
            opened.remove_source(remove)
        reports = opened.sources()

    if as_json:
        echo_json(reports)
        return
    if not reports:
        typer.echo("There are no suggestions.")
        return

    rows = [_source_cells(report) for report in reports]
    heads = ["source", "kind", "items", "accuracy", "agreement, shown", "agreement, blind"]
    print_table(heads, rows)


def _source_cells(report: SourceReport) -> list[str]:
    """Return the row of a source in the table."""
    return [
        report.name,
        str(report.kind),
        f"{report.items:,}",
        _format_share(report.accuracy),
        _format_share(report.shown),
        _format_share(report.blind),
    ]


def _format_share(estimate: AccuracyEstimate | None) -> str:
    if estimate is None:
        return _UNKNOWN
    return f"{estimate.share:.0%} of {estimate.total:,}"
