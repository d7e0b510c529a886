"""What comes out of a campaign: labels, predictions, models, and the promise of ``finish``."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from teeter.base.wording import list_some, pluralize
from teeter.cli.campaign import open_campaign, report_left_out_files, require_member
from teeter.cli.output import (
    DEFAULT_ANNOTATOR,
    AnnotatorOption,
    CampaignArgument,
    JsonOption,
    TextOption,
    atomic_text_file,
    echo_json,
    echo_wrapped,
    print_table,
    progress,
    require_writable,
    spinner,
)
from teeter.errors import InputError

if TYPE_CHECKING:
    from teeter.campaigns.records import FinishReport
    from teeter.classifier import Classifier


_CERTIFICATE_SUFFIXES = (".html", ".json")

# Rows that cannot be read, named one by one.
_NAMED_PROBLEMS = 3


def export(
    file: CampaignArgument,
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT", help="A .csv, .xlsx, .jsonl or .parquet file to write, or a folder."
        ),
    ],
    format_name: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="csv, spreadsheet, xlsx, jsonl, parquet, datasets, prodigy, doccano, "
            "label-studio, spacy, image-folder or cleanlab. Default: determined by the suffix of "
            "OUT.",
        ),
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Also write the history of all changes to this file, as JSONL."
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")] = False,
) -> None:
    """Export the labels, and a prediction with its confidence for every item.

    Your own columns come first, as they came in. The column label has the label, and source says
    where it comes from: a person, the consensus of several, the model under a certificate of teeter
    campaign finish, or no one yet (empty). Items that were flagged or withdrawn are left_out, and
    images that cannot be read are unreadable. JSONL and Parquet files have more for programs.

    The format csv writes every value unchanged. To open the file in a spreadsheet program, write
    .xlsx or choose the format spreadsheet: a text of a .csv file that begins with = may run as a
    formula.

    \b
    Examples:
      teeter export reviews.teeter labels.csv
      teeter export reviews.teeter labels.xlsx
      teeter export reviews.teeter labels.jsonl --format prodigy
    """
    # All paths are checked first: an error must not leave half of the files behind.
    _require_new_output(out, file, overwrite)
    if history is not None:
        if history.resolve() == out.resolve():
            raise InputError(
                f"Cannot write both the labels and the history to {out}: choose two different "
                f"files."
            )
        if history.is_dir():
            raise InputError(
                f"Cannot write the history to {history}, which is a folder: choose a file."
            )
        if out.resolve() in history.resolve().parents:
            raise InputError(f"Cannot write the history to {history}: choose a file outside {out}.")
        _require_new_output(history, file, overwrite)

    with open_campaign(file) as opened:
        is_audit = opened.judges.is_running()
        if is_audit:
            typer.confirm(
                "The audit goes on, and the file shows what judges say of items that are still to "
                "be answered. Write it all the same?",
                abort=True,
                err=True,
            )
        with spinner("Writing"):
            labelled = opened.export(out, format_name, reveal=is_audit)
            count = opened.items.count().items
            if history is not None:
                with atomic_text_file(history) as stream:
                    for event in opened.history():
                        stream.write(json.dumps(event) + "\n")
            # No one can see in a file that its predictions are older than its labels.
            notes = [opened.finish.note(), opened.prediction_note()]

    items = pluralize(count, "item")
    have = "has" if labelled == 1 else "have"
    typer.echo(f"Wrote {out}: {labelled:,} of {items} {have} a label.")
    for note in notes:
        if note is not None:
            echo_wrapped(note)


def _require_new_output(path: Path, file: str, overwrite: bool) -> None:
    """Check that an export to ``path`` replaces nothing by accident.

    People often export over the file that the campaign was created from.

    Args:
        path: the file or folder to write.
        file: the campaign, which an export must never replace.
        overwrite: whether another file may be replaced.

    Raises:
        InputError: if ``path`` exists.
    """
    from teeter.campaigns.store.database import split_location

    if path.is_dir():
        is_free = not any(path.iterdir())
    else:
        require_writable(path, Path(split_location(file)[0]))
        is_free = not path.exists()

    if not is_free and not overwrite:
        raise InputError(
            f"{path} already exists: choose another path, or replace it with --overwrite."
        )


def predict(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="Campaign, or model folder as written by the command teeter campaign model.",
        ),
    ],
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Table (.csv, .parquet) or JSON lines (.jsonl) of texts, or a folder of images.",
        ),
    ],
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="A .csv, .jsonl or .parquet file to write.")
    ],
    *,
    text: TextOption = None,
    spreadsheet: Annotated[
        bool,
        typer.Option(
            "--spreadsheet",
            help="Write a .csv file for spreadsheet programs: texts that would run as formulas "
            "begin with an apostrophe.",
        ),
    ] = False,
    allow_encoder: Annotated[
        bool,
        typer.Option(
            "--allow-encoder",
            help="Also load an encoder that may run code or contact a server. Use this only for "
            "model folders that you trust.",
        ),
    ] = False,
) -> None:
    """Label new data with the newest model of a campaign, or with a model folder.

    Nothing is added to the campaign. The output has all columns of the input plus the predicted
    class (predicted), its calibrated probability (confidence) and the number of the model.

    A .csv file has every value unchanged, class names too. Add --spreadsheet if you open it in a
    spreadsheet program, where a value that begins with = would run as a formula.

    \b
    Examples:
      teeter predict reviews.teeter new.csv labelled.csv
      teeter predict reviews-model new.csv labelled.csv
    """
    with spinner("Loading the model"):
        classifier = _load_classifier(source, allow_encoder=allow_encoder)

    from teeter.classifier import label_file

    with progress("Labelling") as update:
        predictions = label_file(
            classifier, file, out, text=text, spreadsheet=spreadsheet, progress=update
        )

    info = classifier.info
    problems = [prediction.problem for prediction in predictions if prediction.problem is not None]
    labelled = pluralize(len(predictions) - len(problems), "prediction")
    typer.echo(f"Wrote {labelled} of model {info.model} to {out}.")
    report_left_out_files(file)
    if info.accuracy is not None:
        share, low, high = info.accuracy
        echo_wrapped(
            f"The accuracy of this model on random items of its campaign is about {share:.0%}, "
            f"between {low:.0%} and {high:.0%} with 95% confidence. It may be different on other "
            f"kinds of data."
        )
    if problems:
        rows = pluralize(len(problems), "row")
        echo_wrapped(f"{rows} could not be read: {list_some(problems, _NAMED_PROBLEMS)}")


def _load_classifier(source: str, *, allow_encoder: bool) -> Classifier:
    """Return the newest model of a campaign, or the model in a folder."""
    from teeter.classifier import load_classifier

    # A campaign is a file or a URL, and a model is a folder.
    if "://" not in source and Path(source).is_dir():
        return load_classifier(source, allow_encoder=allow_encoder)

    # Closed before labelling, which may take long and needs the classifier only.
    with open_campaign(source) as opened:
        return opened.classifier()


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
    from teeter.classifier.classifier import write_onnx_head

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


def finish(
    file: CampaignArgument,
    *,
    error: Annotated[
        str | None,
        typer.Option(metavar="SHARE", help="Share of the labels that may be wrong. Default: 5%."),
    ] = None,
    confidence: Annotated[
        str | None,
        typer.Option(metavar="SHARE", help="Confidence of the promise. Default: 95%."),
    ] = None,
    per_class: Annotated[
        bool, typer.Option("--per-class", help="Make the promise for each predicted class.")
    ] = False,
    labelled: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="Make the promise for all labels in the file, those of people included, and draw "
            "until this share of the items has one.",
        ),
    ] = None,
    start: Annotated[
        bool,
        typer.Option("--start", help="Freeze the model, and ask about random items next."),
    ] = False,
    ask: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Ask about N random items next; 0 returns to the picks of the strategy.",
        ),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(
            metavar="OUT", help="Certify the promise and write it to a .html or .json file."
        ),
    ] = None,
    annotator: AnnotatorOption = DEFAULT_ANNOTATOR,
    as_json: JsonOption = False,
) -> None:
    """Find out which items the model may label, and promise how many labels are wrong.

    Without --start, the command shows a plan: how many items the model could label after how many
    random labels. With --start, the model is frozen, and the next items are drawn at random. Run
    the command again at any time to see what the model may label by now. Looking often does not
    weaken the promise. After --certificate, teeter export includes the model's labels.

    \b
    Examples:
      teeter campaign finish reviews.teeter --error 5%
      teeter campaign finish reviews.teeter --error 5% --start
      teeter campaign finish reviews.teeter --certificate promise.html
    """
    given = {"--error": error, "--confidence": confidence, "--labelled": labelled}
    shares = {}
    for option, text in given.items():
        if text is not None:
            shares[option] = parse_share(text, option)
    has_terms = per_class or bool(shares)
    if start and certificate is not None:
        raise InputError(
            "--start and --certificate cannot be combined: start, answer the random items, then "
            "certify."
        )
    if ask is not None and has_terms and not start:
        raise InputError(
            "--ask continues the promise that was started, so it takes no --error, --confidence, "
            "--per-class or --labelled: leave these options out, or start another promise with "
            "--start."
        )
    if certificate is not None:
        if certificate.suffix.lower() not in _CERTIFICATE_SUFFIXES:
            raise InputError(
                f"Cannot write a certificate to {certificate}: use the suffix .html or .json."
            )
        require_writable(certificate)

    with open_campaign(file) as opened:
        if start or ask is not None or certificate is not None:
            require_member(opened, annotator, "manage")

        activity = "Reading"
        if start:
            activity = "Training"
        with spinner(activity):
            if start:
                report = opened.finish.start(
                    shares.get("--error", 0.05),
                    shares.get("--confidence", 0.95),
                    per_class=per_class,
                    labelled=shares.get("--labelled"),
                    draws=ask,
                    who=annotator,
                )
            elif ask is not None:
                report = opened.finish.draw(ask, who=annotator)
            else:
                report = opened.finish.look(
                    shares.get("--error"),
                    shares.get("--confidence"),
                    per_class or None,
                    shares.get("--labelled"),
                )
            issued = None
            if certificate is not None:
                issued = opened.finish.certify(who=annotator)

    if issued is not None and certificate is not None:
        _write_certificate(issued.content, certificate)

    if as_json and issued is not None:
        echo_json(issued.content)
        return
    if as_json:
        echo_json(report)
        return

    _print_report(report)
    if issued is not None:
        typer.echo(f"Wrote certificate {issued.id} to {certificate}.")
    elif not report.is_started:
        options = _repeat_terms(error, confidence, labelled, per_class=per_class)
        typer.echo(f"To begin, run: teeter campaign finish {shlex.quote(file)}{options} --start")
    elif report.waiting_draws and not report.covered:
        typer.echo(f"To answer them, run: teeter serve {shlex.quote(file)}")
    elif report.covered:
        typer.echo(
            f"To use it, run: teeter campaign finish {shlex.quote(file)} --certificate promise.html"
        )


def _repeat_terms(
    error: str | None, confidence: str | None, labelled: str | None, *, per_class: bool
) -> str:
    """Return the given terms as options for the next command: starting must not change them."""
    options = ""
    if error is not None:
        options += f" --error {shlex.quote(error)}"
    if confidence is not None:
        options += f" --confidence {shlex.quote(confidence)}"
    if labelled is not None:
        options += f" --labelled {shlex.quote(labelled)}"
    if per_class:
        options += " --per-class"
    return options


def parse_share(text: str, option: str, *, may_be_all: bool = False) -> float:
    """Return a share that is written as a number or in percent.

    Args:
        text: what the user wrote.
        option: the name of the option, for the error.
        may_be_all: whether it may be 100%.

    Raises:
        InputError: it is neither.

    Example:
        >>> parse_share("5%", "--error"), parse_share("0.05", "--error")
        (0.05, 0.05)
    """
    number = text.strip()
    is_percent = number.endswith("%")
    try:
        share = float(number.removesuffix("%"))
    except ValueError:
        raise InputError(f"{option} is {text!r}: write a share such as 5% or 0.05.") from None

    if is_percent:
        share /= 100
    # A plain 5 could mean 5% or 500%, so it is not guessed.
    is_all = may_be_all and share == 1 and is_percent
    if not (0 < share < 1 or is_all):
        most = "at most" if may_be_all else "below"
        raise InputError(
            f"{option} is {text!r}: it must be above 0% and {most} 100%, such as 5% or 0.05."
        )
    return share


def _write_certificate(content: dict[str, object], path: Path) -> None:
    from teeter.campaigns.finish.certificate import certificate_page

    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    if path.suffix.lower() == ".html":
        text = certificate_page(content)
    with atomic_text_file(path) as stream:
        stream.write(text)


def _print_report(report: FinishReport) -> None:
    for sentence in report.sentences:
        echo_wrapped(sentence)

    if report.per_class:
        rows = [
            [
                str(promise.label),
                f"{promise.items:,}",
                f"{promise.left:,}",
                f"{promise.wrong} of {promise.drawn}",
            ]
            for promise in report.promises
        ]
        print_table(["class", "model may label", "items left", "wrong draws"], rows)

    if report.plan:
        typer.echo("")
        more = "more random labels" if report.draws else "random labels"
        rows = []
        for step in report.plan:
            share = f"{step.coverage:.0%}"
            rows.append([f"{step.labels:,}", f"{step.items:,}", share])
        print_table([more, "items the model could label", "share"], rows)

    if report.class_shares:
        typer.echo("")
        rows = []
        for class_share in report.class_shares:
            interval = f"{class_share.low:.1%} to {class_share.high:.1%}"
            rows.append([class_share.label, f"{class_share.share:.1%}", interval])
        print_table(["class", "share of items", "95% interval"], rows)
        echo_wrapped(report.shares_note)

    if report.is_started:
        drawn = pluralize(report.draws, "random item")
        labeller = report.judge or f"Model {report.model_version}"
        typer.echo(
            f"{labeller}, attempt {report.attempt}: {drawn} answered, "
            f"{report.wrong} of them predicted wrong."
        )
