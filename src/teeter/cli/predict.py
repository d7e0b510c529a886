"""teeter predict: label new data with a trained model, inside or outside its campaign."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from teeter.cli.campaign import open_campaign, report_left_out_files
from teeter.cli.options import CampaignArgument, TextOption
from teeter.cli.output import echo_wrapped, list_some, pluralize, progress, spinner

if TYPE_CHECKING:
    from teeter.classifier import Classifier

__all__ = ["export_model", "predict_with_campaign", "predict_with_model"]

# Rows that cannot be read, named one by one.
_NAMED_PROBLEMS = 3

SourceArgument = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="Table (.csv, .parquet) or JSON lines (.jsonl) of texts, or a folder of images.",
    ),
]
TargetArgument = Annotated[
    Path, typer.Argument(metavar="OUT", help="A .csv, .jsonl or .parquet file to write.")
]
SpreadsheetOption = Annotated[
    bool,
    typer.Option(
        "--spreadsheet",
        help="Write a .csv file for spreadsheet programs: texts that would run as formulas begin "
        "with an apostrophe.",
    ),
]
AllowEncoderOption = Annotated[
    bool,
    typer.Option(
        "--allow-encoder",
        help="Also load an encoder that may run code or contact a server. Use this only for "
        "models that you trust.",
    ),
]


def predict_with_campaign(
    file: CampaignArgument,
    source: SourceArgument,
    out: TargetArgument,
    text: TextOption = None,
    spreadsheet: SpreadsheetOption = False,
) -> None:
    """Label new data with the newest model. Nothing is added to the campaign.

    The output has all columns of the input plus the predicted class, its calibrated probability and
    the model number.

    A .csv file has every value unchanged, class names too. Add --spreadsheet if you open it in a
    spreadsheet program, where a value that begins with = would run as a formula.

    \b
    Examples:
      teeter campaign predict reviews.teeter new.csv labelled.csv
    """
    # Closed before labelling, which may take long and needs the classifier only.
    with open_campaign(file) as opened, spinner("Loading the model"):
        classifier = opened.classifier()
    _label_file(classifier, source, out, text, spreadsheet=spreadsheet)


def export_model(
    file: CampaignArgument,
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="A folder to create, or a .onnx file.")
    ],
) -> None:
    """Save the newest model, so that it can be used without the campaign.

    A folder holds the model with its encoder, for teeter predict and teeter.load_classifier. An
    ONNX file holds the model without its encoder, so its inputs are features.

    \b
    Examples:
      teeter campaign model reviews.teeter reviews-model
      teeter predict reviews-model new.csv labelled.csv
    """
    from teeter.classifier import save_classifier
    from teeter.classifier.model_folder import write_onnx_head

    with open_campaign(file) as opened, spinner("Writing"):
        classifier = opened.classifier()
        if out.suffix.lower() == ".onnx":
            write_onnx_head(classifier, out)
        else:
            save_classifier(classifier, out)

    labels = pluralize(classifier.info.labels, "label")
    typer.echo(f"Wrote model {classifier.info.model}, trained on {labels}, to {out}.")
    # teeter predict cannot use an ONNX file, which has no encoder.
    if out.suffix.lower() != ".onnx":
        echo_wrapped(f"Use it with: teeter predict {shlex.quote(str(out))} FILE OUT")


def predict_with_model(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", help="Model folder, as written by the command teeter campaign model."
        ),
    ],
    source: SourceArgument,
    out: TargetArgument,
    *,
    text: TextOption = None,
    spreadsheet: SpreadsheetOption = False,
    allow_encoder: AllowEncoderOption = False,
) -> None:
    """Label new data with a model that was trained in a campaign.

    The output has all columns of the input plus the predicted class, its calibrated probability and
    the model number.

    A .csv file has every value unchanged, class names too. Add --spreadsheet if you open it in a
    spreadsheet program, where a value that begins with = would run as a formula.

    \b
    Examples:
      teeter campaign model reviews.teeter reviews-model
      teeter predict reviews-model new.csv labelled.csv
    """
    from teeter.classifier import load_classifier

    with spinner("Loading the model"):
        classifier = load_classifier(model, allow_encoder=allow_encoder)
    _label_file(classifier, source, out, text, spreadsheet=spreadsheet)


def _label_file(
    classifier: Classifier, source: Path, out: Path, text: str | None, *, spreadsheet: bool
) -> None:
    from teeter.classifier import label_file

    with progress("Labelling") as update:
        result = label_file(
            classifier, source, out, text=text, spreadsheet=spreadsheet, progress=update
        )

    info = classifier.info
    typer.echo(f"Wrote {pluralize(result.labelled, 'prediction')} of model {info.model} to {out}.")
    report_left_out_files(source)
    if info.accuracy is not None:
        share, low, high = info.accuracy
        echo_wrapped(
            f"The accuracy of this model on random items of its campaign is about {share:.0%}, "
            f"between {low:.0%} and {high:.0%} with 95% confidence. It may be different on other "
            f"kinds of data."
        )
    if result.problems:
        rows = pluralize(len(result.problems), "row")
        echo_wrapped(f"{rows} could not be read: {list_some(result.problems, _NAMED_PROBLEMS)}")
