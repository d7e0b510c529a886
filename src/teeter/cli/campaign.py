"""``teeter campaign``: create a campaign, add to it, back it up. And ``teeter status``."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import Field
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from teeter.base.wording import list_some, pluralize
from teeter.campaigns.records import ItemColumns
from teeter.campaigns.settings import Settings, offered_settings
from teeter.cli.output import (
    DEFAULT_ANNOTATOR,
    EXIT_INTERRUPTED,
    AnnotatorOption,
    CampaignArgument,
    Commands,
    DescribeOption,
    JsonOption,
    Panel,
    TextOption,
    echo_json,
    echo_wrapped,
    printable_line,
    progress,
    spinner,
    split_names,
    terminal_width,
)
from teeter.errors import InputError

if TYPE_CHECKING:
    from teeter.campaigns.campaign import Campaign
    from teeter.campaigns.records import Disagreement, EncodingResult, ImportResult, SuspectLabel


# Classes that are listed with their counts unless all are asked for.
_LISTED = 20

# Classes with fewer labels than this are called rare: a model has hardly anything to learn from.
_FEW_LABELS = 5

# Rare and empty classes that are named in a sentence.
_NAMED = 10

_LONGEST_NAME = 30
_SPACE_BETWEEN_COLUMNS = 3


def format_class_counts(
    counts: Mapping[str, int], *, width: int, show_all: bool = False
) -> list[str]:
    """Return the lines that show how many labels each class has, the most frequent class first.

    Few classes fit on one line. More are listed in columns: the 20 with the most labels, followed
    by a sentence each on the rare and on the empty classes among the others.

    Args:
        counts: the number of labels by class.
        width: columns of the terminal.
        show_all: whether to list all classes in columns.

    Example:
        >>> format_class_counts({"ham": 52, "spam": 1070}, width=80)
        ['spam 1,070, ham 52']
    """
    # A stable sort: classes with equal counts stay in the order of the campaign.
    ranked = sorted(counts.items(), key=lambda entry: -entry[1])

    line = ", ".join(f"{name} {count:,}" for name, count in ranked)
    if _count_cells(line) <= width:
        return [line]

    if show_all:
        return _format_columns(ranked, width)

    hidden = dict(ranked[_LISTED:])
    lines = _format_columns(ranked[:_LISTED], width)
    if hidden:
        more = pluralize(len(hidden), "more class", "more classes")
        lines.append(f"{more}: list them with --all.")
    rare = []
    empty = []
    # The rarest come first, because not all may be named.
    for name, count in sorted(hidden.items(), key=lambda entry: entry[1]):
        if count == 0:
            empty.append(_shorten_class(name))
        elif count < _FEW_LABELS:
            rare.append(f"{_shorten_class(name)} ({count})")

    sentences = []
    if rare:
        names = list_some(rare, _NAMED)
        sentences.append(f"Fewer than {_FEW_LABELS} labels ({len(rare):,}): {names}.")
    if empty:
        names = list_some(empty, _NAMED)
        sentences.append(f"No labels ({len(empty):,}): {names}.")
    return lines + sentences


def _format_columns(counts: list[tuple[str, int]], width: int) -> list[str]:
    """Return counts and names in as many columns as fit, to be read downwards."""
    from rich.columns import Columns
    from rich.console import Console

    digits = max(len(f"{count:,}") for _, count in counts)
    cells = []
    for name, count in counts:
        cells.append(f"{count:>{digits},} {_shorten_class(name)}")
    columns = Columns(cells, column_first=True, equal=True, padding=(0, _SPACE_BETWEEN_COLUMNS))

    # Class names may look like markup or emoji codes, and are printed as they are.
    console = Console(width=width, markup=False, emoji=False, highlight=False)
    with console.capture() as capture:
        console.print(columns)
    return [line.rstrip() for line in capture.get().splitlines()]


def _shorten_class(name: str) -> str:
    """Return a class name that is safe to print and not wider than a column should be."""
    return printable_line(name, _LONGEST_NAME)


def _count_cells(text: str) -> int:
    """Return the number of terminal columns of a text; some characters take two."""
    from rich.cells import cell_len

    return cell_len(text)


# Duplicates and conflicting labels that are named one by one.
_NAMED_ITEMS = 5

# Characters of an item's text that are looked at to shorten it: it may have millions.
_TEXT_START = 1000

campaign = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    help="Create a campaign, and everything else that can be done with it.",
    rich_markup_mode=None,
)


class Reviewed(StrEnum):
    """What ``teeter campaign review`` goes through."""

    SUSPECTS = "suspects"
    DISAGREEMENTS = "disagreements"


ItemsArgument = Annotated[
    Path,
    typer.Argument(
        metavar="ITEMS",
        help="Table (.csv, .parquet, .xlsx, .xls, .ods), JSON (.jsonl, .json), arrays (.npz, .npy, "
        ".safetensors) or a folder of images or .txt files. Of several sheets: book.xlsx#Sheet.",
    ),
]
MoreItemsArgument = Annotated[
    Path,
    typer.Argument(
        metavar="ITEMS",
        help="File or folder of new items, of the same kind as those in the campaign.",
    ),
]
ClassesOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="Comma-separated class names, or a file: .txt with one name per line, or .csv with a "
        "column called name. Default: the values of the column given by --labels.",
    ),
]
FileOption = Annotated[
    str | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help="File to create, or postgresql://…#NAME. Default: ITEMS with the suffix .teeter.",
    ),
]
IdOption = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="COLUMN",
        help="Column of item ids. Default: id if present, otherwise a hash of the content.",
    ),
]
LabelsOption = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Column of known labels; cells may be empty."),
]
ImageOption = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Column of images instead of texts: paths relative to the table, or https://, s3:// "
        "or gs:// links, which are fetched once into a folder beside the table.",
    ),
]


def with_settings(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a command an option for each setting of a new campaign.

    The command itself gets their values as ``settings``, as ``Settings`` takes them.

    Args:
        *names: the settings; by default all that are offered.
    """
    types = get_type_hints(Settings)
    options = [
        _setting_option(declared, types[declared.name])
        for declared in offered_settings()
        if not names or declared.name in names
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**arguments: Any) -> None:
            settings = {}
            for option in options:
                value = arguments.pop(option.name)
                if types[option.name] == list[str]:
                    value = [entry for entry in split_names(value) if entry]
                settings[option.name] = value
            command(**arguments, settings=settings)

        own = signature(command, eval_str=True).parameters.values()
        parameters = [parameter for parameter in own if parameter.name != "settings"]
        # Typer reads the options from it.
        run.__signature__ = Signature([*parameters, *options])  # type: ignore[attr-defined]
        return run

    return decorate


def _setting_option(declared: Field[Any], value_type: Any) -> Parameter:
    help_text = declared.metadata["help"]
    default = declared.default
    if value_type == list[str]:
        value_type = str
        default = ""
        help_text = f"Comma-separated {help_text[0].lower()}{help_text[1:]}"

    names = [f"--{declared.name}"] if value_type is bool else []
    option = typer.Option(*names, metavar=declared.metadata.get("metavar"), help=help_text)
    return Parameter(
        declared.name,
        Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[value_type, option],
    )


@campaign.command(rich_help_panel=Panel.LABEL)
@with_settings()
def new(
    items: ItemsArgument,
    *,
    classes: ClassesOption = None,
    at: FileOption = None,
    text: TextOption = None,
    id_column: IdOption = None,
    labels: LabelsOption = None,
    image: ImageOption = None,
    describe: DescribeOption = None,
    settings: dict[str, Any],
) -> None:
    """Create a campaign from a file or folder of items.

    A campaign holds the items, all answers and all models. By default, the best installed encoder
    computes the features of the items, and nothing is downloaded. To list the encoders, run teeter
    encoders. If encoding is interrupted, teeter campaign encode resumes it.

    All columns of a table stay with the items. You can search and filter by them on the page, and
    an export has them in their original order and with their types.

    Control items (see --control) are drawn at random from all items, including those already
    labelled. The holdout holds at most half of the items, and grows when you add items later.
    Withdrawn items do not count in its size: the next items that you add fill it up again.
    When an annotator answers an item, the leases on their other items are renewed.

    Rarer settings, such as another classifier or seed, are set in Python.

    If the image folder is next to the campaign file or in a subfolder, you can move the file and
    the images together.

    \b
    Examples:
      teeter campaign new reviews.csv --classes good,bad
      teeter campaign new questions.csv --classes intents.txt
      teeter campaign new partly_labelled.csv --labels label
      teeter campaign new a.csv --text title,body --show customer --classes x,y
      teeter campaign new messages.csv --classes spam,ham --describe classes.toml
      teeter campaign new photos/ --classes cat,dog,other --holdout 100
    """
    # Before torch is imported, so that a mistake is reported at once.
    chosen = Settings(**settings)
    if chosen.budget is not None and chosen.cost is None:
        raise InputError("--budget needs --cost, the cost of one label.")
    location = campaign_location(items, at)

    create_campaign(
        items,
        location,
        classes,
        chosen,
        ItemColumns(text, id_column, labels, image),
        describe=describe,
    )

    # Without the password, because what a terminal shows is often recorded or shared.
    typer.echo(f"Next: teeter serve {shlex.quote(_hide_password(location))}")


@campaign.command(rich_help_panel=Panel.LABEL)
def add(
    file: CampaignArgument,
    items: MoreItemsArgument,
    *,
    text: TextOption = None,
    id_column: IdOption = None,
    labels: LabelsOption = None,
    image: ImageOption = None,
) -> None:
    """Add items to a campaign.

    Duplicates are skipped and reported. If a duplicate has a label and the existing item has none,
    the existing item gets that label. If both have labels that differ, the existing label is kept,
    and the difference is reported. New images must be in the campaign's image folder, or in a
    folder inside it.

    \b
    Examples:
      teeter campaign add reviews.teeter more_reviews.csv
    """
    from teeter.campaigns.items.image_links import ImageFetcher
    from teeter.campaigns.items.read_items import read_items

    with open_campaign(file) as opened:
        # Images are stored by their paths inside the campaign's folder, so new ones must be in it.
        folder = opened.image_folder
        # Who runs the command owns the credentials of this machine.
        fetcher = None
        if folder is not None:
            fetcher = ImageFetcher(folder, allow_stores=True)
        notes: list[str] = []
        with progress("Encoding") as show_progress:
            contents = read_items(
                items,
                ItemColumns(text, id_column, labels, image),
                folder=folder,
                first=opened.items.next_number(),
                fetcher=fetcher,
                rows=opened.settings.rows,
                notes=notes,
            )
            result = opened.add(contents, progress=show_progress)
        named = result.duplicate_items[:_NAMED_ITEMS]
        duplicates = [_describe_duplicate(opened, duplicate) for duplicate in named]

    new = pluralize(result.new, "item")
    labelled = pluralize(result.labelled, "label")
    typer.echo(f"Added {new} and {labelled}.")
    for note in notes:
        echo_wrapped(note)
    report_left_out_files(items)
    if fetcher is not None:
        _report_failed_links(list(fetcher.errors.values()))
    for sentence in duplicates:
        typer.echo(f"Skipped {sentence}.")
    if result.duplicates > _NAMED_ITEMS:
        rest = result.duplicates - _NAMED_ITEMS
        typer.echo(f"Skipped {pluralize(rest, 'more duplicate')}.")
    report_conflicts(result)
    if result.encoding is not None:
        _report_unreadable(result.encoding)
        if result.encoding.is_outgrown:
            echo_wrapped(
                f"The encoder {result.encoding.encoder} was fitted on only "
                f"{result.encoding.fitted_on:,} items. To fit it on all items, run teeter campaign "
                f"encode {shlex.quote(_hide_password(file))} --again."
            )


@campaign.command(rich_help_panel=Panel.LABEL)
def encode(
    file: CampaignArgument,
    encoder: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Encoder to switch to; see teeter encoders. Default: the current encoder.",
        ),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Fit the encoder and encode all items again.")
    ] = False,
) -> None:
    """Compute the features of items, or switch to another encoder.

    Only items without features are encoded, so the same command resumes an interrupted run. All
    answers are kept. After a switch, teeter status compares the two encoders.

    \b
    Examples:
      teeter campaign encode reviews.teeter --encoder minilm
    """
    from teeter.campaigns.status import describe_comparison

    with open_campaign(file) as opened, progress("Encoding") as show_progress:
        result = opened.encode(encoder, again=again, progress=show_progress)
        summary = opened.status()

    typer.echo(f"Encoded {pluralize(result.encoded, 'item')} with {result.encoder}.")
    _report_unreadable(result)
    if result.is_switch and summary.comparison is not None:
        typer.echo(f"Trained model {summary.version} on the new features.")
        echo_wrapped(describe_comparison(summary.comparison))


def _report_unreadable(result: EncodingResult) -> None:
    for sentence in list(result.unreadable_items.values())[:_NAMED_ITEMS]:
        typer.echo(printable_line(sentence, limit=300), err=True)
    if result.unreadable > _NAMED_ITEMS:
        rest = result.unreadable - _NAMED_ITEMS
        typer.echo(f"{pluralize(rest, 'more item')} cannot be read.", err=True)


@campaign.command(rich_help_panel=Panel.LABEL)
def classes(
    file: CampaignArgument,
    *,
    add: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Add a class. Can be repeated.")
    ] = None,
    rename: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OLD=NEW",
            help="Rename a class. If NEW is a class, too, merge the two, which asks first; without "
            "NEW, remove a class that nothing names. Can be repeated.",
        ),
    ] = None,
    describe: DescribeOption = None,
    names: Annotated[
        bool | None,
        typer.Option(
            "--names/--no-names",
            help="Whether models learn from the names and descriptions of the classes.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the classes and what they mean; add, rename, merge, remove or describe them.

    Adding or renaming a class changes no label, model or promise. Merging ends a promise that was
    started. Answers that arrive with the old name of a class still count for it.

    Annotators see the descriptions beside the item. Models learn from the names, descriptions and
    examples, as long as this improves their predictions. A TOML file has lines such as spam =
    "Unwanted advertising.", or tables with description and examples. A CSV file has the columns
    name, description and example.

    \b
    Examples:
      teeter campaign classes messages.teeter
      teeter campaign classes messages.teeter --add other --rename spam=ads
      teeter campaign classes messages.teeter --rename adverts=ads --rename none=
      teeter campaign classes messages.teeter --describe classes.toml
    """
    from teeter.campaigns import ClassDescription
    from teeter.campaigns.classes import read_descriptions
    from teeter.campaigns.learning.prior import explain_names

    renamed = {}
    for text in rename or []:
        old, equals, new = text.partition("=")
        if not equals:
            raise InputError(
                f"--rename {text} is not OLD=NEW: write --rename spam=ads, for example."
            )
        renamed[old] = new

    descriptions = None
    if describe is not None:
        descriptions = read_descriptions(describe)

    with open_campaign(file) as opened:
        for old, new in renamed.items():
            _rename_class(opened, old, new.strip())
        for name in add or []:
            opened.classes.add(name)
        if descriptions is not None:
            opened.classes.describe(descriptions)
        if names is not None:
            opened.change_settings(names=names)

        described = opened.classes.descriptions()
        class_names = opened.classes.names()
        note = explain_names(opened)

    if as_json:
        undescribed = ClassDescription("")
        echo_json({name: described.get(name, undescribed) for name in class_names})
        return

    for name in class_names:
        if name not in described:
            echo_wrapped(name)
            continue
        description = described[name]
        echo_wrapped(f"{name}: {description.description}")
        for example in description.examples:
            echo_wrapped(f"  {example}")
    typer.echo(f"{len(described)} of {len(class_names)} classes are described.")
    echo_wrapped(note)


def _rename_class(opened: Campaign, old: str, new: str) -> None:
    """Rename a class, merge it into one that is there, or remove it if there is no new name."""
    names = opened.classes.names()
    if not new:
        opened.classes.remove(old)
    elif old in names and new in names and old != new:
        counts = opened.status().by_class
        typer.confirm(
            f"Merge {old} ({pluralize(counts[old], 'label')}) into {new} "
            f"({pluralize(counts[new], 'label')})? This cannot be undone.",
            abort=True,
            err=True,
        )
        opened.classes.merge(old, new)
    elif old in names or opened.classes.current_names([old]) != [new]:
        opened.classes.rename(old, new)


@campaign.command(rich_help_panel=Panel.LABEL)
def train(file: CampaignArgument) -> None:
    """Train a new model on all labels.

    The page and teeter campaign label train by themselves. Use this command after adding labels.
    """
    with open_campaign(file) as opened, spinner("Training"):
        model = opened.train()

    typer.echo(
        f"Trained model {model.version} on {pluralize(model.labels, 'label')} "
        f"of {len(model.classes)} classes."
    )


@campaign.command(rich_help_panel=Panel.LABEL)
def label(
    file: CampaignArgument,
    n: Annotated[int, typer.Option("-n", metavar="N", help="Items per round.")] = 20,
    annotator: AnnotatorOption = DEFAULT_ANNOTATOR,
) -> None:
    """Label in the terminal with one key per class. The page, teeter serve, can do more.

    Space skips an item, u means unsure, f flags an item that does not belong in the campaign,
    Backspace undoes the last answer, ? shows the keys, and Esc stops. The keys for the classes are
    the same as on the page. With more than 33 classes, type the beginning of a class name and press
    Enter; Shift U then means unsure, and Shift F flags the item. Every answer is saved to disk
    before the next item is shown. After each round of N items (see -n), a new model is trained.

    \b
    Examples:
      teeter campaign label reviews.teeter
    """
    from teeter.cli.label_prompt import label_rounds, make_keyboard, print_legend

    with open_campaign(file) as opened:
        require_member(opened, annotator, "answer")
        settings = opened.settings
        keyboard = make_keyboard(opened.classes.names(), settings.keys, several=settings.several)
        if opened.settings.instructions:
            typer.echo(opened.settings.instructions)
        _warn_of_shared_name(opened, annotator)
        print_legend(keyboard)

        with _end_of_prompt(file):
            label_rounds(opened, keyboard, n, annotator)


@campaign.command(rich_help_panel=Panel.LABEL)
def review(
    file: CampaignArgument,
    what: Annotated[
        Reviewed,
        typer.Argument(
            metavar="WHAT",
            help="suspects are labels that may be wrong; disagreements are items that annotators "
            "labelled differently.",
        ),
    ],
    n: Annotated[int, typer.Option("-n", metavar="N", help="Number of items to review.")] = 20,
    annotator: AnnotatorOption = DEFAULT_ANNOTATOR,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the items as JSON and exit.")
    ] = False,
) -> None:
    """Review labels that may be wrong, or items about which annotators disagree.

    A label is suspect if it is unlikely according to a model that was not trained on it. Press = to
    keep it, the key of another class to change it, or space to leave it for later. A label that you
    keep is not shown again.

    Of the disagreements, those whose label is least certain come first. Space leaves an item for
    later, Backspace undoes the last decision, and f decides that the item does not belong in the
    campaign. A decision overrides all answers, stays in the history and can be undone. In a
    campaign with members, only reviewers and owners may decide.

    \b
    Examples:
      teeter campaign review reviews.teeter suspects
      teeter campaign review reviews.teeter disagreements --as rey
    """
    from teeter.cli.label_prompt import (
        make_keyboard,
        print_legend,
        resolve_disagreements,
        review_suspects,
    )

    with open_campaign(file) as opened:
        suspects: list[SuspectLabel] = []
        disagreements: list[Disagreement] = []
        permission = "answer"
        with spinner("Reading"):
            if what is Reviewed.SUSPECTS:
                suspects = opened.review.suspects(n)
            else:
                # Read once: a decision that another reviewer makes meanwhile is overridden.
                disagreements = opened.review.disagreements(n).disagreements
                permission = "decide"
        if as_json:
            echo_json(suspects or disagreements)
            return

        require_member(opened, annotator, permission)
        settings = opened.settings
        keyboard = make_keyboard(opened.classes.names(), settings.keys, several=settings.several)
        print_legend(keyboard)
        if what is Reviewed.SUSPECTS:
            with _end_of_prompt(file):
                review_suspects(opened, suspects, keyboard, annotator)
            return

        count = resolve_disagreements(opened, disagreements, keyboard, annotator)

    typer.echo(f"Decided on {pluralize(count, 'item')}. Run the same command to continue.")


def status(
    file: CampaignArgument,
    all_classes: Annotated[
        bool, typer.Option("--all", help="List all classes, not only the 20 most frequent.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the progress, the model's accuracy and whether to stop.

    The accuracy is measured on items drawn at random, with a 95% confidence interval. After a
    switch to another encoder, the two encoders are compared.
    """
    from teeter.campaigns.items.image_links import describe_missing_images
    from teeter.campaigns.status import describe_bulk_answers, describe_f1

    with open_campaign(file) as opened, spinner("Reading"):
        summary = opened.status()
        goal = opened.finish.goal()
        missing_images = describe_missing_images(opened)

    if missing_images is not None:
        typer.echo(missing_images, err=True)

    if as_json:
        echo_json(summary)
        return

    typer.echo(
        f"{summary.labelled:,} of {pluralize(summary.items, 'item')} labelled, "
        f"{summary.open:,} open, model {summary.version}."
    )
    counts = format_class_counts(summary.by_class, width=terminal_width(), show_all=all_classes)
    for line in counts:
        echo_wrapped(line)

    if summary.disagreements:
        disagreements = pluralize(summary.disagreements, "disagreement")
        location = shlex.quote(_hide_password(file))
        typer.echo(
            f"{disagreements} to decide. Run: teeter campaign review {location} disagreements"
        )
    if summary.unencoded:
        location = shlex.quote(_hide_password(file))
        unencoded = pluralize(summary.unencoded, "item")
        typer.echo(f"{unencoded} without features. Run: teeter campaign encode {location}")
    if summary.unreadable:
        typer.echo(f"{pluralize(summary.unreadable, 'unreadable item')} left out.")
    if summary.learned is not None:
        echo_wrapped(summary.learned)
    if summary.withdrawn:
        typer.echo(f"{pluralize(summary.withdrawn, 'withdrawn item')} left out.")
    if summary.bulk_agreement is not None:
        echo_wrapped(describe_bulk_answers(summary.bulk_agreement))
    f1 = describe_f1(summary)
    if f1 is not None:
        echo_wrapped(f1)
        for score in summary.by_label:
            shown = "does not occur"
            if score.f1 is not None:
                shown = f"F1 {score.f1:.0%}"
            counts_of_label = f"{score.actual:,} have it, {score.predicted:,} are predicted to"
            echo_wrapped(
                f"  {score.label}: {shown}; {counts_of_label}, {score.hits:,} of them both"
            )
    advice: Sequence[str] = summary.advice
    if goal is not None:
        advice = goal.sentences
    for sentence in advice:
        echo_wrapped(sentence)


@campaign.command(rich_help_panel=Panel.FILES)
def backup(
    file: CampaignArgument,
    out: Annotated[
        str,
        typer.Argument(
            metavar="OUT",
            help="File to write, or a database URL (postgresql://…); with --keep, a folder.",
        ),
    ],
    keep: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Write a backup with the time in its name, check it, and keep only the N newest.",
        ),
    ] = None,
) -> None:
    """Copy a campaign to a file or a database server, even while annotators are working on it.

    The copy is a campaign that you can open. To move a campaign to a database server, or back to a
    file, copy it there, and from then on work with the copy only. For scheduled backups, use
    --keep, which removes old backups only after the new one has been checked.

    \b
    Examples:
      teeter campaign backup reviews.teeter backups/monday.teeter
      teeter campaign backup reviews.teeter backups --keep 14
      teeter campaign backup reviews.teeter postgresql://ann@server/labels
    """
    is_server = "://" in out
    if is_server and keep is not None:
        raise InputError("--keep needs a folder of backups: give a folder, not a database URL.")

    with open_campaign(file) as opened:
        if is_server:
            from teeter.campaigns.store.copies import copy_to_location

            with spinner("Copying"):
                location, counts = copy_to_location(opened.database, opened.name, out)

            items = pluralize(counts["items"], "item")
            answers = pluralize(counts["answers"], "answer")
            typer.echo(f"Copied {opened.name} to {location}: {items}, {answers}.")
            # Out of habit people continue with the old file, and have their answers in two places.
            source = opened.database.display_url
            typer.echo(f"{source} is unchanged. Continue with only one of the two campaigns.")
            return
        if keep is None:
            opened.back_up(out)
            typer.echo(f"Copied {_hide_password(file)} to {out}.")
            return

        from teeter.campaigns.store.backup import back_up_and_rotate
        from teeter.campaigns.store.database import utc_now

        path, old = back_up_and_rotate(opened, Path(out), keep, utc_now())

    removed = pluralize(len(old), "old backup")
    typer.echo(f"Copied {_hide_password(file)} to {path}, checked it and removed {removed}.")


@campaign.command(rich_help_panel=Panel.FILES)
def restore(
    copy: Annotated[Path, typer.Argument(metavar="BACKUP", help="Backup file to restore.")],
    file: Annotated[
        str,
        typer.Argument(
            metavar="CAMPAIGN", help="Campaign file to write, or a database URL (postgresql://…)."
        ),
    ],
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace an existing campaign. Stop its server first."),
    ] = False,
) -> None:
    """Restore a backup after checking that it is complete.

    A backup that is damaged, is not a campaign, or comes from a newer version of teeter is refused,
    and an existing campaign is left unchanged.

    \b
    Examples:
      teeter campaign restore backups/monday.teeter reviews.teeter --overwrite
    """
    # Before the import, which takes longer than the check.
    is_file = "://" not in file
    if is_file and Path(file).exists() and not overwrite:
        raise InputError(
            f"{file} already exists: choose another file, or replace it with --overwrite."
        )

    from teeter.campaigns import Campaign

    Campaign.restore(copy, file, overwrite=overwrite)
    typer.echo(f"Restored {_hide_password(file)} from {copy}.")


@contextmanager
def open_campaign(file: str) -> Iterator[Campaign]:
    """Open a campaign for the length of the block.

    Closing it merges SQLite's log into the file, so that nothing is left beside it.

    Args:
        file: a campaign file or database URL, as ``CampaignArgument`` takes it.

    Raises:
        FileError: if there is no such file.
        StoreError: if it is not a campaign, or the database cannot be used.
    """
    from teeter.campaigns import Campaign

    opened = Campaign.open(file)
    try:
        yield opened
    finally:
        opened.database.close()


@contextmanager
def _end_of_prompt(file: str) -> Iterator[None]:
    """Say at the end of a prompt that the answers are saved, however it was left."""
    # Ctrl-C stops the prompt like Esc, but scripts must see that it was Ctrl-C.
    is_interrupted = False
    try:
        yield
    except EOFError:  # Ctrl-D
        typer.echo()
    except KeyboardInterrupt:
        is_interrupted = True
        typer.echo()

    location = _hide_password(file)
    typer.echo(f"All answers are saved in {location}. Run the same command to continue.")
    if is_interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)


def _warn_of_shared_name(opened: Campaign, annotator: str) -> None:
    """Say so if the default name is used in another terminal, too."""
    if annotator != DEFAULT_ANNOTATOR:
        return

    from teeter.campaigns.people import SessionKind, note_session, terminal_identity

    if note_session(opened, annotator, SessionKind.TERMINAL, terminal_identity()):
        echo_wrapped(
            f"Another terminal has labelled this campaign as {annotator} in the last hour. If that "
            f"was not you, stop and give your own name with --as NAME, so that the answers are "
            f"kept apart."
        )


def require_member(opened: Campaign, annotator: str, right: str) -> None:
    """Check that an annotator may do something in a campaign.

    Without ``--as``, everything is allowed: anyone who can open the campaign file owns it.

    Args:
        opened: the campaign.
        annotator: who wants to do it.
        right: one of ``Permission``, such as ``answer`` or ``decide``.

    Raises:
        UnknownAnnotatorError: if the campaign names its annotators, and this is none of them.
        PermissionDeniedError: if their role does not include the right.
    """
    if annotator != DEFAULT_ANNOTATOR:
        opened.people.require(annotator, right)


def campaign_location(items: Path, file: str | None = None) -> str:
    """Return where to create a campaign: beside its items, unless ``file`` says otherwise.

    A campaign in a database is named after its items, unless the URL ends in ``#NAME``.

    Args:
        items: the file or folder of items.
        file: the value of ``--file``.

    Example:
        >>> campaign_location(Path("reviews.csv"))
        'reviews.teeter'
        >>> campaign_location(Path("reviews.csv"), "postgresql://db.example.org/labels")
        'postgresql://db.example.org/labels#reviews'

    Raises:
        InputError: if the items have no name to derive one from.
    """
    from teeter.campaigns.campaign import default_location

    if file is not None and "://" in file:
        url, _, name = file.partition("#")
        return f"{url}#{name or default_location(items).stem}"

    if file is not None:
        return file
    return str(default_location(items))


def create_campaign(
    items: Path,
    location: str,
    classes: str | None,
    settings: Settings,
    columns: ItemColumns,
    *,
    describe: Path | None = None,
    encode_now: bool = True,
) -> None:
    """Create a campaign from a file or folder, completely or not at all, and print a summary.

    Args:
        items: a table, lines, arrays or a folder of images.
        location: the campaign's file or database URL; see ``campaign_location``.
        classes: comma-separated class names, or the path of a file of class names. Default: the
            values of the column of known labels.
        settings: settings of the campaign. Their kind and folder are taken from ``items``.
        columns: what the columns of a table hold.
        describe: file that says what the classes mean. Default: the file of classes, if it does.
        encode_now: whether to encode the items now, or leave that to a server.

    Raises:
        InputError: if the file already exists, or if something does not fit.
    """
    if "://" not in location and Path(location).exists():
        raise InputError(
            f"{location} already exists: continue with it, or choose another file with --file."
        )

    from teeter.campaigns import Campaign
    from teeter.campaigns.classes import is_class_file, read_descriptions

    names: list[str] | Path | None = None
    if classes is not None and is_class_file(classes):
        names = Path(classes)
    elif classes is not None:
        names = split_names(classes)
    descriptions = None
    if describe is not None:
        descriptions = read_descriptions(describe)

    with progress("Encoding") as show_progress:
        campaign = Campaign.make(
            items,
            names,
            at=location,
            settings=settings,
            columns=columns,
            descriptions=descriptions,
            encode_now=encode_now,
            progress=show_progress,
        )
    with closing(campaign.database):
        _report_creation(campaign, items, location)
        if columns.labels is None and not settings.judges:
            _report_unused_labels(items, campaign.classes.names())


def _report_creation(campaign: Campaign, items: Path, location: str) -> None:
    """Say what a new campaign holds, and what was left out."""
    result = campaign.imported
    judges = campaign.settings.judges
    labelled = f"{result.labelled:,} of them labelled"
    if judges:
        labelled = f"an audit of {list_some(list(judges), len(judges))}"
    typer.echo(f"Created {_hide_password(location)}: {pluralize(result.new, 'item')}, {labelled}.")
    for note in result.notes:
        echo_wrapped(note)
    report_left_out_files(items)
    _report_failed_links([reason for _, reason in result.failed_items])
    if not judges:
        _report_encoding(campaign, result.encoding)
    if result.duplicates:
        count = pluralize(result.duplicates, "duplicate")
        example = _describe_duplicate(campaign, result.duplicate_items[0])
        typer.echo(f"Skipped {count}, such as {example}.")
    report_conflicts(result)
    if result.holdout < campaign.settings.holdout:
        typer.echo(
            f"The holdout has {result.holdout:,} instead of {campaign.settings.holdout:,} items, "
            "because it holds at most half of all items."
        )


def _report_encoding(campaign: Campaign, encoding: EncodingResult | None) -> None:
    """Say which encoder a new campaign uses, whether class names help, and what is not encoded."""
    from teeter.campaigns.learning.encoding import choose_encoder, has_unencoded_items
    from teeter.campaigns.learning.prior import explain_names
    from teeter.campaigns.records import ItemKind

    is_encoded_later = has_unencoded_items(campaign)
    if encoding is not None:
        echo_wrapped(encoding.sentence)
    elif is_encoded_later:
        echo_wrapped(choose_encoder(campaign.settings).sentence)
    has_texts = campaign.settings.kind == ItemKind.TEXT
    if campaign.classes.descriptions() or (has_texts and campaign.settings.names):
        echo_wrapped(explain_names(campaign))
    if is_encoded_later:
        typer.echo("The items are encoded while you label.")
    if encoding is not None:
        _report_unreadable(encoding)


def report_left_out_files(items: Path) -> None:
    """Say which files of a folder are no images."""
    from teeter.campaigns.items.image_archives import ARCHIVE_SUFFIX, list_archived_images
    from teeter.campaigns.items.read_items import detect_kind
    from teeter.campaigns.records import ItemKind
    from teeter.encoders.images import count_left_out_files, describe_left_out_files

    if items.suffix.lower() == ARCHIVE_SUFFIX:
        _, counts = list_archived_images(items)
    elif items.is_dir() and detect_kind(items) == ItemKind.IMAGE:
        counts = count_left_out_files(items)
    else:
        return
    left_out = describe_left_out_files(counts)
    if left_out is not None:
        echo_wrapped(left_out)


def _report_failed_links(reasons: Sequence[str]) -> None:
    for sentence in reasons[:_NAMED_ITEMS]:
        typer.echo(printable_line(sentence, limit=300), err=True)
    if reasons:
        count = pluralize(len(reasons), "image")
        typer.echo(f"{count} could not be fetched. Add the same table again to retry.", err=True)


def _report_unused_labels(items: Path, classes: Sequence[str]) -> None:
    """Say that a file has a column of labels which was not asked for."""
    from teeter.campaigns.items.read_items import find_unused_labels

    unused = find_unused_labels(items)
    if unused is None:
        return

    column, values = unused
    option = shlex.quote(column)
    sentence = (
        f"The column {column!r} holds {pluralize(len(values), 'value')} that were not "
        f"imported as labels. If they are labels, create the campaign again with --labels {option}."
    )
    unknown_values = [value for value in dict.fromkeys(values) if value not in classes]
    if unknown_values:
        listed = list_some([repr(value) for value in unknown_values], _NAMED_ITEMS)
        sentence += f" Some are not among the classes: {listed}."
    echo_wrapped(sentence)


def parse_classes(classes: str) -> list[str]:
    """Return the class names in the value of ``--classes``.

    Raises:
        FileError: if it names a file that cannot be read.
    """
    from teeter.campaigns.classes import is_class_file, read_class_file

    if is_class_file(classes):
        return read_class_file(Path(classes))
    return split_names(classes)


def _hide_password(location: str) -> str:
    """Return a location as it may be printed: without the password of a database URL.

    Example:
        >>> _hide_password("postgresql://ann:secret@db.example.org/labels#reviews")
        'postgresql://ann:***@db.example.org/labels#reviews'
    """
    if "://" not in location:
        return location

    from sqlalchemy import make_url

    url, separator, name = location.partition("#")
    return make_url(url).render_as_string(hide_password=True) + separator + name


def _describe_duplicate(campaign: Campaign, duplicate: tuple[str, str]) -> str:
    """Return which item was skipped, and which item has the same content.

    Args:
        campaign: the campaign, which has that content.
        duplicate: the id of the item that was skipped, and that of the item it duplicates.
    """
    skipped_id, original_id = duplicate
    # Without an id of its own, an item is known by a hash, which tells nothing.
    if skipped_id != original_id:
        return f"{printable_line(skipped_id)}: same content as {printable_line(original_id)}"

    content = campaign.items.content(original_id)
    if content is None or content == skipped_id:
        return f"{printable_line(original_id)}, which the campaign already has"
    start = " ".join(content[:_TEXT_START].split())
    return f"another copy of “{printable_line(start)}”"


def report_conflicts(result: ImportResult) -> None:
    """Print the items whose label in the file differs from their label in the campaign."""
    for item, given, current in result.conflicting_items[:_NAMED_ITEMS]:
        typer.echo(f"{printable_line(item)} keeps its label {current}; the file says {given}.")

    if result.conflicts > _NAMED_ITEMS:
        rest = result.conflicts - _NAMED_ITEMS
        typer.echo(
            f"{pluralize(rest, 'more item')} kept labels that differ from those in the file."
        )
