"""The number of labels per class, as ``teeter campaign status`` prints it.

Campaigns have two classes or hundreds. Two fit on a line. Hundreds would not be readable, so
only the most frequent ones are listed, with a summary of those that need labels.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from teeter.cli.errors import EXIT_INTERRUPTED, Commands
from teeter.cli.options import (
    DEFAULT_ANNOTATOR,
    AnnotatorOption,
    CampaignArgument,
    DescribeOption,
    JsonOption,
    NamesOption,
    SeedOption,
    TextOption,
    split_names,
)
from teeter.cli.output import (
    Panel,
    atomic_text_file,
    echo_json,
    echo_wrapped,
    list_some,
    pluralize,
    printable_line,
    progress,
    require_writable,
    spinner,
    terminal_width,
)
from teeter.errors import InputError

if TYPE_CHECKING:
    from teeter.campaigns.campaign import Campaign, ImportResult, Settings
    from teeter.campaigns.items.image_links import ImageFetcher
    from teeter.campaigns.items.item import Item
    from teeter.campaigns.results import EncodingResult
    from teeter.campaigns.store import ClassDescription

__all__ = [
    "campaign",
    "campaign_location",
    "create_campaign",
    "format_class_counts",
    "open_campaign",
    "parse_classes",
    "report_left_out_files",
    "require_member",
]


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
        classes = "class" if len(hidden) == 1 else "classes"
        lines.append(f"{len(hidden):,} more {classes}: list them with --all.")
    return lines + _describe_small_classes(hidden)


def _describe_small_classes(counts: Mapping[str, int]) -> list[str]:
    """Return a sentence on the classes with few labels, and one on those without any."""
    rare = []
    empty = []
    # The rarest come first, because not all may be named.
    for name, count in sorted(counts.items(), key=lambda entry: entry[1]):
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
    return sentences


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
    help="Create a campaign, label its items and export the labels.",
    rich_markup_mode=None,
)

ItemsArgument = Annotated[
    Path,
    typer.Argument(
        metavar="ITEMS",
        help="Table (.csv, .parquet), JSON lines (.jsonl), arrays (.npz, .npy, .safetensors) or a "
        "folder of images.",
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
StrategyOption = Annotated[
    str, typer.Option(metavar="NAME", help="Strategy that picks items; see teeter strategies.")
]
HeadOption = Annotated[
    str, typer.Option(metavar="NAME", help="Classifier trained on the features: linear or mlp.")
]
ControlOption = Annotated[
    float,
    typer.Option(
        metavar="SHARE", help="Share of each batch that is drawn at random to measure accuracy."
    ),
]
AuditOption = Annotated[
    int,
    typer.Option(
        metavar="N",
        help="Number of random items set aside to measure accuracy, never used for training.",
    ),
]
CostOption = Annotated[float | None, typer.Option(metavar="AMOUNT", help="Cost of one label.")]
BudgetOption = Annotated[
    float | None, typer.Option(metavar="AMOUNT", help="Budget for all labels. Needs --cost.")
]
EncoderOption = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Encoder that computes the features: auto, a name from teeter encoders, or a model.",
    ),
]
InstructionsOption = Annotated[
    str, typer.Option(metavar="TEXT", help="Instructions shown to annotators.")
]
KeysOption = Annotated[
    str,
    typer.Option(
        metavar="KEYS",
        help="Comma-separated keyboard shortcuts for the classes on the page. Default: 1 to 9, "
        "then letters.",
    ),
]
ImageOption = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Column of images instead of texts: paths relative to the table, or https://, s3:// "
        "or gs:// links, which are fetched once into a folder beside the table.",
    ),
]
RowsOption = Annotated[
    bool,
    typer.Option(
        "--rows",
        help="Label whole rows of a table. Each row is shown as a card, and encoded from its "
        "numbers, dates and categories.",
    ),
]
AllowPrivateOption = Annotated[
    bool,
    typer.Option("--allow-private", help="Also fetch images from addresses in your own network."),
]
ShowOption = Annotated[
    str,
    typer.Option(
        metavar="COLUMNS", help="Comma-separated columns that annotators see beside each item."
    ),
]
LeaseOption = Annotated[
    float,
    typer.Option(
        metavar="MINUTES",
        help="Minutes before an unanswered item is reassigned; 0 means never.",
    ),
]
OverlapOption = Annotated[
    float, typer.Option(metavar="SHARE", help="Share of the items that several annotators answer.")
]
PeopleOption = Annotated[
    int,
    typer.Option(metavar="N", help="Number of annotators who answer a shared item; see --overlap."),
]
ConsensusOption = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="How to combine several answers about an item: majority or dawid-skene.",
    ),
]
CountOption = Annotated[int, typer.Option("-n", metavar="N", help="Number of items to list.")]


@campaign.command(rich_help_panel=Panel.LABEL)
def new(
    items: ItemsArgument,
    *,
    classes: ClassesOption = None,
    file: FileOption = None,
    text: TextOption = None,
    id_column: IdOption = None,
    labels: LabelsOption = None,
    strategy: StrategyOption = "ldm-s",
    head: HeadOption = "linear",
    control: ControlOption = 0.1,
    audit: AuditOption = 0,
    cost: CostOption = None,
    budget: BudgetOption = None,
    encoder: EncoderOption = "auto",
    instructions: InstructionsOption = "",
    keys: KeysOption = "",
    show: ShowOption = "",
    image: ImageOption = None,
    rows: RowsOption = False,
    allow_private: AllowPrivateOption = False,
    lease: LeaseOption = 60,
    overlap: OverlapOption = 0,
    people: PeopleOption = 2,
    consensus: ConsensusOption = "majority",
    describe: DescribeOption = None,
    names: NamesOption = True,
    seed: SeedOption = 0,
) -> None:
    """Create a campaign from a file or folder of items.

    A campaign holds the items, all answers and all models. By default, the best installed encoder
    computes the features of the items, and nothing is downloaded. To list the encoders, run teeter
    encoders. If encoding is interrupted, teeter campaign encode resumes it.

    All columns of a table stay with the items. You can search and filter by them on the page, and
    an export has them in their original order and with their types.

    Control items (see --control) are drawn at random from all items, including those already
    labelled. The audit set holds at most half of the items, and grows when you add items later.
    Withdrawn items do not count in its size: the next items that you add fill it up again.
    When an annotator answers an item, the leases on their other items are renewed. With --consensus
    dawid-skene, the answers of more accurate annotators count more.

    If the image folder is next to the campaign file or in a subfolder, you can move the file and
    the images together.

    \b
    Examples:
      teeter campaign new reviews.csv --classes good,bad
      teeter campaign new questions.csv --classes intents.txt
      teeter campaign new partly_labelled.csv --labels label
      teeter campaign new a.csv --text title,body --show customer --classes x,y
      teeter campaign new messages.csv --classes spam,ham --describe classes.toml
      teeter campaign new photos/ --classes cat,dog,other --audit 100
    """
    if budget is not None and cost is None:
        raise InputError("--budget needs --cost, the cost of one label.")

    # Before torch is imported, so that a wrong name is reported at once.
    location = campaign_location(items, file)

    with spinner("Loading"):  # importing torch takes seconds
        from teeter.campaigns import Settings
        from teeter.campaigns.shortcuts import MAX_SHORTCUTS

    settings = Settings(
        strategy=strategy,
        head=head,
        control=control,
        audit=audit,
        cost=cost,
        budget=budget,
        encoder=encoder,
        instructions=instructions,
        keys=[key for key in split_names(keys) if key],
        show=[name for name in split_names(show) if name],
        lease=lease,
        overlap=overlap,
        people=people,
        consensus=consensus,
        names=names,
        seed=seed,
    )
    class_names = create_campaign(
        items,
        location,
        classes,
        settings,
        text=text,
        id_column=id_column,
        labels=labels,
        image=image,
        rows=rows,
        allow_private=allow_private,
        describe=describe,
    )

    # A terminal shows no images, and finds a class among many only by its name. A team needs the
    # page too.
    needs_page = items.is_dir() or image is not None or len(class_names) > MAX_SHORTCUTS
    command = "teeter serve" if needs_page or overlap > 0 else "teeter campaign label"
    # Without the password, because what a terminal shows is often recorded or shared.
    typer.echo(f"Next: {command} {shlex.quote(_hide_password(location))}")


@campaign.command(rich_help_panel=Panel.LABEL)
def add(
    file: CampaignArgument,
    items: MoreItemsArgument,
    *,
    text: TextOption = None,
    id_column: IdOption = None,
    labels: LabelsOption = None,
    image: ImageOption = None,
    rows: RowsOption = False,
    allow_private: AllowPrivateOption = False,
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
    from teeter.campaigns.items.read_items import read_items

    with open_campaign(file) as opened, progress("Encoding") as show_progress:
        # Images are stored by their paths inside the campaign's folder, so new ones must be in it.
        folder = opened.image_folder
        fetcher = None if folder is None else _make_fetcher(folder, allow_private)
        contents = read_items(
            items,
            text=text,
            key=id_column,
            label=labels,
            folder=folder,
            first=opened.next_item_number(),
            image=image,
            fetcher=fetcher,
            rows=rows,
        )
        result = opened.add(contents, progress=show_progress)

    typer.echo(f"Added {pluralize(result.new, 'item')} and {pluralize(result.labelled, 'label')}.")
    report_left_out_files(items)
    if fetcher is not None:
        _report_failed_links(fetcher)
    for duplicate in result.duplicates[:_NAMED_ITEMS]:
        typer.echo(f"Skipped {_describe_duplicate(duplicate, contents)}.")
    if len(result.duplicates) > _NAMED_ITEMS:
        rest = len(result.duplicates) - _NAMED_ITEMS
        typer.echo(f"Skipped {pluralize(rest, 'more duplicate')}.")
    _report_conflicts(result)
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
    as_json: JsonOption = False,
) -> None:
    """Compute the features of items, or switch to another encoder.

    Only items without features are encoded, so the same command resumes an interrupted run. All
    answers are kept. After a switch, teeter campaign status compares the two encoders.

    \b
    Examples:
      teeter campaign encode reviews.teeter --encoder minilm
    """
    from teeter.campaigns.status import describe_comparison

    with open_campaign(file) as opened, progress("Encoding") as show_progress:
        result = opened.encode(encoder, again=again, progress=show_progress)
        summary = opened.status()

    if as_json:
        echo_json(result)
        return

    typer.echo(f"Encoded {pluralize(result.encoded, 'item')} with {result.encoder}.")
    _report_unreadable(result)
    if result.is_switch and summary.comparison is not None:
        typer.echo(f"Trained model {summary.version} on the new features.")
        echo_wrapped(describe_comparison(summary.comparison))


def _report_unreadable(result: EncodingResult) -> None:
    for sentence in list(result.unreadable.values())[:_NAMED_ITEMS]:
        typer.echo(printable_line(sentence, limit=300), err=True)
    if len(result.unreadable) > _NAMED_ITEMS:
        rest = len(result.unreadable) - _NAMED_ITEMS
        typer.echo(f"{pluralize(rest, 'more item')} cannot be read.", err=True)


@campaign.command("add-class", rich_help_panel=Panel.LABEL)
def add_class(
    file: CampaignArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new class.")],
) -> None:
    """Add a class to a campaign.

    Existing labels are not changed.
    """
    with open_campaign(file) as opened:
        before = opened.classes
        opened.add_class(name)
        count = len(opened.classes)

    done = "The campaign already had" if name.strip() in before else "Added"
    typer.echo(f"{done} the class {name.strip()}. The campaign now has {count} classes.")


@campaign.command(rich_help_panel=Panel.LABEL)
def label(
    file: CampaignArgument,
    n: Annotated[int, typer.Option("-n", metavar="N", help="Items per round.")] = 20,
    annotator: AnnotatorOption = DEFAULT_ANNOTATOR,
    suspects: Annotated[
        bool, typer.Option("--suspects", help="Review labels that may be wrong.")
    ] = False,
    again: Annotated[
        bool,
        typer.Option(
            "--again", help="With --suspects, include labels that have already been confirmed."
        ),
    ] = False,
) -> None:
    """Label in the terminal with one key per class.

    Space skips an item, u means unsure, f flags an item that does not belong in the campaign,
    Backspace undoes the last answer, ? shows the keys, and Esc stops. The keys for the classes are
    the same as on the page. With more than 33 classes, type the beginning of a class name and press
    Enter; Shift U then means unsure, and Shift F flags the item. Every answer is saved to disk
    before the next item is shown. After each round of N items (see -n), a new model is trained.

    With --suspects, press = to keep a label, the key of another class to change it, or space to
    leave it for later. A label that you keep is not shown again.

    \b
    Examples:
      teeter campaign label reviews.teeter
      teeter campaign label reviews.teeter --suspects
    """
    from teeter.cli.label_prompt import label_rounds, make_keyboard, print_legend, review_suspects

    # Said rather than ignored: the user expects something that does not happen.
    if again and not suspects:
        raise InputError("--again needs --suspects.")

    # Ctrl-C stops the prompt like Esc, but scripts must see that it was Ctrl-C.
    is_interrupted = False
    with open_campaign(file) as opened:
        require_member(opened, annotator, "answer")
        keyboard = make_keyboard(opened.classes, opened.settings.keys)
        if opened.settings.instructions:
            typer.echo(opened.settings.instructions)
        _warn_of_shared_name(opened, annotator)
        print_legend(keyboard)

        try:
            if suspects:
                review_suspects(opened, keyboard, n, annotator, again=again)
            else:
                label_rounds(opened, keyboard, n, annotator)
        except EOFError:  # Ctrl-D
            typer.echo()
        except KeyboardInterrupt:
            is_interrupted = True
            typer.echo()

    location = _hide_password(file)
    typer.echo(f"All answers are saved in {location}. Run the same command to continue.")
    if is_interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)


@campaign.command(rich_help_panel=Panel.LABEL)
def ask(
    file: CampaignArgument,
    n: CountOption = 20,
    annotator: AnnotatorOption = DEFAULT_ANNOTATOR,
    as_json: JsonOption = False,
) -> None:
    """List the items to label next, and why each was picked.

    Prints the id, the reason (picked, control, audit or finish) and the content of each item,
    separated by tabs. Until some of the listed items are answered, running the command again lists
    the same ones.

    \b
    Examples:
      teeter campaign ask reviews.teeter -n 5
    """
    from teeter.cli.label_prompt import explain_empty_queue

    with open_campaign(file) as opened, spinner("Picking"):
        require_member(opened, annotator, "answer")
        questions = opened.ask(n, annotator)
        # A script that reads JSON gets an empty list, not a sentence.
        if not questions and not as_json:
            typer.echo(explain_empty_queue(opened))

    if as_json:
        echo_json(questions)
        return

    for question in questions:
        # One line per item: cut, sort and while read expect that.
        text = _shorten(question.content)
        typer.echo(f"{printable_line(question.item)}\t{question.arm}\t{text}")


@campaign.command(rich_help_panel=Panel.LABEL)
def tell(
    file: CampaignArgument,
    item: Annotated[str, typer.Argument(metavar="ITEM", help="Item id.")],
    label: Annotated[
        str | None,
        typer.Argument(metavar="LABEL", help="Class of the item. Omit it if you use --other."),
    ] = None,
    *,
    annotator: AnnotatorOption = DEFAULT_ANNOTATOR,
    other: Annotated[
        str | None,
        typer.Option(metavar="ANSWER", help="Answer with skip, unsure or flag instead of a class."),
    ] = None,
    comment: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Comment to store with the answer.")
    ] = None,
) -> None:
    """Record an answer about an item.

    The answer is on disk when the command returns. Earlier answers stay in the history.

    \b
    Examples:
      teeter campaign tell reviews.teeter a17 good
      teeter campaign tell reviews.teeter a18 --other unsure --comment 'both'
    """
    if (label is None) == (other is None):
        raise InputError("Give either a class or --other skip, unsure or flag.")

    with open_campaign(file) as opened:
        require_member(opened, annotator, "answer")
        if label is not None:
            receipt = opened.tell(item, label, annotator, comment=comment)
        elif other == "skip":
            receipt = opened.skip(item, annotator, comment=comment)
        elif other == "unsure":
            receipt = opened.mark_unsure(item, annotator, comment=comment)
        elif other == "flag":
            receipt = opened.flag(item, annotator, comment=comment)
        else:
            raise InputError(f"--other {other} is unknown: give skip, unsure or flag.")

    if receipt.late:
        # Two people may now answer one item, and they should know.
        holders = ""
        if receipt.asked_now:
            holders = f", and the item is now assigned to {', '.join(receipt.asked_now)}"
        typer.echo(
            f"Your lease on this item had expired{holders}. Your answer still counts.",
            err=True,
        )


@campaign.command(rich_help_panel=Panel.LABEL)
def undo(file: CampaignArgument, annotator: AnnotatorOption = DEFAULT_ANNOTATOR) -> None:
    """Undo the last answer of an annotator.

    If the annotator had answered the same item before, that earlier answer counts again.
    """
    with open_campaign(file) as opened:
        result = opened.undo(annotator)

    if result is None:
        typer.echo(f"{annotator} has no answer to undo.")
        return

    answer = result.answer.label or result.answer.kind
    typer.echo(f"Undid {printable_line(result.answer.item)}: {answer}.")
    if result.before is not None:
        previous = result.before.label or result.before.kind
        typer.echo(f"The earlier answer counts again: {previous}.")


@campaign.command(rich_help_panel=Panel.LABEL)
def train(file: CampaignArgument, as_json: JsonOption = False) -> None:
    """Train a new model on all labels."""
    with open_campaign(file) as opened, spinner("Training"):
        model = opened.train()

    if as_json:
        echo_json(model)
    else:
        typer.echo(
            f"Trained model {model.version} on {pluralize(model.labels, 'label')} "
            f"of {len(model.classes)} classes."
        )


@campaign.command(rich_help_panel=Panel.LABEL)
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

    with open_campaign(file) as opened, spinner("Reading"):
        summary = opened.status()
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
        typer.echo(f"{disagreements} to decide. Run: teeter campaign decide {location}")
    if summary.unencoded:
        location = shlex.quote(_hide_password(file))
        unencoded = pluralize(summary.unencoded, "item")
        typer.echo(f"{unencoded} without features. Run: teeter campaign encode {location}")
    if summary.unreadable:
        typer.echo(f"{pluralize(summary.unreadable, 'unreadable item')} left out.")
    if summary.withdrawn:
        typer.echo(f"{pluralize(summary.withdrawn, 'withdrawn item')} left out.")
    for sentence in summary.advice:
        echo_wrapped(sentence)


@campaign.command(rich_help_panel=Panel.LABEL)
def suspects(
    file: CampaignArgument,
    n: Annotated[int, typer.Option("-n", metavar="N", help="Number of labels to list.")] = 20,
    again: Annotated[
        bool, typer.Option("--again", help="Include labels that have already been confirmed.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List labels that may be wrong.

    A label is listed if it is unlikely according to a model that was not trained on it. To review
    the listed labels, run teeter campaign label --suspects.

    Prints a line for each item, with three columns separated by tabs: the id; the label, its
    probability and the predicted class; and the content.
    """
    with open_campaign(file) as opened, spinner("Looking"):
        suspect_labels = opened.suspects(n, again=again)

    if as_json:
        echo_json(suspect_labels)
        return

    if not suspect_labels:
        typer.echo("No suspect labels.")
    for suspect in suspect_labels:
        typer.echo(
            f"{printable_line(suspect.item)}\tlabelled {suspect.label} "
            f"({suspect.chance:.0%} likely), predicted {suspect.predicted}\t"
            f"{_shorten(suspect.content)}"
        )


@campaign.command(rich_help_panel=Panel.FILES)
def export(
    file: CampaignArgument,
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT", help="A .csv, .jsonl or .parquet file to write, or a folder."
        ),
    ],
    format_name: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="csv, spreadsheet, jsonl, parquet, datasets, prodigy, doccano, label-studio, "
            "spacy, image-folder or cleanlab. Default: determined by the suffix of OUT.",
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

    The column labelled_by says who gave the final label: a person, the model under a certificate
    of teeter campaign finish, or no one yet (undecided). Images that cannot be read are
    unreadable and have no prediction.

    The format csv writes every value unchanged. Choose the format spreadsheet if you will open the
    file in a spreadsheet program, because such programs treat text that begins with = as a formula.

    \b
    Examples:
      teeter campaign export reviews.teeter labels.csv
      teeter campaign export reviews.teeter labels.jsonl --format prodigy
    """
    # All paths are checked first: an error must not leave half of the files behind.
    _require_new_output(out, file, overwrite)
    if history is not None:
        _require_history_path(history, out)
        _require_new_output(history, file, overwrite)

    with open_campaign(file) as opened, spinner("Writing"):
        labelled = opened.export(out, format_name)
        with opened.database.reading() as connection:
            items = opened.repository.items
            count = items.count(connection) - items.count_withdrawn(connection)
        if history is not None:
            with atomic_text_file(history) as stream:
                for event in opened.history():
                    stream.write(json.dumps(event) + "\n")
        # No one can see in a file that its predictions are older than its labels.
        notes = [opened.certificate_note(), opened.prediction_note()]

    have = "has" if labelled == 1 else "have"
    typer.echo(f"Wrote {out}: {labelled:,} of {pluralize(count, 'item')} {have} a label.")
    for note in notes:
        if note is not None:
            echo_wrapped(note)


@campaign.command(rich_help_panel=Panel.FILES)
def backup(
    file: CampaignArgument,
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="File to write; with --keep, a folder.")
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
    """Copy a campaign to a file, even while annotators are working on it.

    The copy is a campaign that you can open. For scheduled backups, use --keep, which removes old
    backups only after the new one has been checked.

    \b
    Examples:
      teeter campaign backup reviews.teeter backups/monday.teeter
      teeter campaign backup reviews.teeter backups --keep 14
    """
    with open_campaign(file) as opened:
        if keep is None:
            opened.back_up(out)
            typer.echo(f"Copied {_hide_password(file)} to {out}.")
            return

        from teeter.campaigns.store.backup import back_up_and_rotate
        from teeter.campaigns.store.scope import utc_now

        rotated = back_up_and_rotate(opened, out, keep, utc_now())

    removed = pluralize(len(rotated.removed), "old backup")
    typer.echo(
        f"Copied {_hide_password(file)} to {rotated.path}, checked it and removed {removed}."
    )


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


@campaign.command("copy-to", rich_help_panel=Panel.FILES)
def copy_to(
    file: CampaignArgument,
    target: Annotated[
        str,
        typer.Argument(metavar="TARGET", help="A new file, or a database URL (postgresql://…)."),
    ],
) -> None:
    """Copy a campaign to a database server, or to a new file.

    The original is not changed. After copying, work with only one of the two campaigns. The address
    of a campaign on a server is postgresql://…#NAME.

    \b
    Examples:
      teeter campaign copy-to reviews.teeter postgresql://ann@server/labels
    """
    from teeter.campaigns.store.copies import copy_to_location

    with open_campaign(file) as opened, spinner("Copying"):
        location, counts = copy_to_location(opened.database, opened.name, target)

    items = pluralize(counts["items"], "item")
    answers = pluralize(counts["answers"], "answer")
    typer.echo(f"Copied {opened.name} to {location}: {items}, {answers}.")
    # Out of habit people continue with the old file, and have their answers in two places.
    source = opened.database.display_url
    typer.echo(f"{source} is unchanged. Continue with only one of the two campaigns.")


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
    if file is not None and "://" in file:
        url, _, name = file.partition("#")
        return f"{url}#{name or _default_path(items).stem}"

    if file is not None:
        return file
    return str(_default_path(items))


def create_campaign(
    items: Path,
    location: str,
    classes: str | None,
    settings: Settings,
    *,
    text: str | None = None,
    id_column: str | None = None,
    labels: str | None = None,
    image: str | None = None,
    rows: bool = False,
    allow_private: bool = False,
    describe: Path | None = None,
    encode_all: bool = True,
) -> list[str]:
    """Create a campaign from a file or folder, completely or not at all, and print a summary.

    Args:
        items: a table, lines, arrays or a folder of images.
        location: the campaign's file or database URL; see ``campaign_location``.
        classes: comma-separated class names, or the path of a file of class names. Default: the
            values of the column of known labels.
        settings: settings of the campaign. Their kind and folder are taken from ``items``.
        text: column of texts.
        id_column: column of item ids.
        labels: column of known labels.
        image: column of images, as paths or links.
        rows: whether the items are whole rows.
        allow_private: whether images may be fetched from private addresses.
        describe: file that says what the classes mean. Default: the file of classes, if it does.
        encode_all: whether to encode all items now, or only enough to begin to label.

    Returns:
        The class names.

    Raises:
        InputError: if the file already exists, or if something does not fit.
    """
    if "://" not in location and Path(location).exists():
        raise InputError(
            f"{location} already exists: continue with it, or choose another file with --file."
        )

    from teeter.campaigns import Campaign
    from teeter.campaigns.classes import require_known_classes
    from teeter.campaigns.items.read_items import read_items
    from teeter.campaigns.shortcuts import shortcuts_by_class

    # Before the items are read, which may take long.
    names = None if classes is None else parse_classes(classes)
    descriptions = _read_descriptions(describe, classes)
    if names is None and labels is None:
        raise InputError(
            "The classes are missing: list them with --classes, or name the column that holds them "
            "with --labels."
        )

    with progress("Encoding") as show_progress:
        folder = items.resolve().parent if image is not None else None
        fetcher = None if folder is None else _make_fetcher(folder, allow_private)
        contents = read_items(
            items,
            text=text,
            key=id_column,
            label=labels,
            image=image,
            folder=folder,
            fetcher=fetcher,
            rows=rows,
        )
        if names is None:
            names = _classes_of(contents)
        require_known_classes(descriptions, names)
        shortcuts_by_class(names, settings.keys)  # raises if two classes would share a shortcut

        settings = _complete_settings(settings, items, image_folder=folder, rows=rows)
        result = Campaign.make(
            location,
            names,
            contents,
            settings,
            descriptions=descriptions,
            encode_all=encode_all,
            progress=show_progress,
        )

    typer.echo(
        f"Created {_hide_password(location)}: {pluralize(result.new, 'item')}, "
        f"{result.labelled:,} of them labelled."
    )
    report_left_out_files(items)
    if fetcher is not None:
        _report_failed_links(fetcher)
    if labels is None:
        _report_unused_labels(items, names)
    if result.encoding is not None:
        _report_encoding(result.encoding, location)
    _report_skipped(result, contents)
    _report_conflicts(result)
    _report_small_audit(result, settings)
    return names


def _complete_settings(
    settings: Settings, items: Path, *, image_folder: Path | None, rows: bool
) -> Settings:
    """Return settings with the kind and the folder of the items, and whether they are whole rows.

    What annotators see follows from the source, so there is no option for it.
    """
    from teeter.campaigns.items.read_items import detect_kind

    if items.is_dir():
        return replace(settings, kind=detect_kind(items), folder=str(items.resolve()))
    if image_folder is not None:
        return replace(settings, kind="image", folder=str(image_folder))
    return replace(settings, kind=detect_kind(items), rows=rows)


def _report_encoding(encoding: EncodingResult, location: str) -> None:
    """Say which encoder a new campaign uses, whether class names help, and what is not encoded."""
    echo_wrapped(encoding.sentence)
    _report_names(location)
    if encoding.unencoded:
        unencoded = pluralize(encoding.unencoded, "item")
        typer.echo(f"{unencoded} will be encoded while you label.")
    _report_unreadable(encoding)


def _report_skipped(result: ImportResult, items: Iterable[Item]) -> None:
    """Say how many duplicates were skipped, with an example."""
    if result.duplicates:
        count = pluralize(len(result.duplicates), "duplicate")
        example = _describe_duplicate(result.duplicates[0], items)
        typer.echo(f"Skipped {count}, such as {example}.")


def _report_small_audit(result: ImportResult, settings: Settings) -> None:
    """Say that the audit set is smaller than asked for, if it is."""
    if result.audit < settings.audit:
        typer.echo(
            f"The audit set has {result.audit:,} instead of {settings.audit:,} items, because it "
            "holds at most half of all items."
        )


def _make_fetcher(folder: Path, allow_private: bool) -> ImageFetcher:
    from teeter.campaigns.items.image_links import ImageFetcher

    # Who runs the command owns the credentials of this machine.
    return ImageFetcher(folder, allow_private=allow_private, allow_stores=True)


def report_left_out_files(items: Path) -> None:
    """Say which files of a folder are no images."""
    if not items.is_dir():
        return

    from teeter.encoders.images import count_left_out_files, describe_left_out_files

    left_out = describe_left_out_files(count_left_out_files(items))
    if left_out is not None:
        echo_wrapped(left_out)


def _report_failed_links(fetcher: ImageFetcher) -> None:
    for sentence in list(fetcher.errors.values())[:_NAMED_ITEMS]:
        typer.echo(printable_line(sentence, limit=300), err=True)
    if fetcher.errors:
        count = pluralize(len(fetcher.errors), "image")
        typer.echo(f"{count} could not be fetched. Add the same table again to retry.", err=True)


def _read_descriptions(describe: Path | None, classes: str | None) -> dict[str, ClassDescription]:
    """Return the descriptions in a file, or those that stand beside the names of the classes."""
    from teeter.campaigns.classes import is_class_file, parse_description_table, read_descriptions

    if describe is not None:
        return read_descriptions(describe)
    if classes is None or not is_class_file(classes) or Path(classes).suffix.lower() == ".txt":
        return {}
    return parse_description_table(Path(classes).read_text(encoding="utf-8-sig"), Path(classes))


def _report_names(location: str) -> None:
    """Say whether models learn from the names of the classes, if that could be expected."""
    from teeter.campaigns.enums import ItemKind
    from teeter.campaigns.learning.prior import explain_names

    with open_campaign(location) as opened:
        has_texts = opened.settings.kind == ItemKind.TEXT
        if opened.descriptions or (has_texts and opened.settings.names):
            echo_wrapped(explain_names(opened))


def _classes_of(items: Sequence[Item]) -> list[str]:
    """Return the different labels of items, in the order in which they first occur."""
    from teeter.data.table_files import is_missing

    labels = [item.label for item in items if item.label is not None]
    return list(dict.fromkeys(label for label in labels if not is_missing(label)))


def _report_unused_labels(items: Path, classes: Sequence[str]) -> None:
    """Say that a file has a column of labels which was not asked for."""
    from teeter.campaigns.items.read_items import find_unused_labels

    unused = find_unused_labels(items)
    if unused is None:
        return

    option = shlex.quote(unused.column)
    sentence = (
        f"The column {unused.column!r} holds {pluralize(unused.filled, 'value')} that were not "
        f"imported as labels. If they are labels, create the campaign again with --labels {option}."
    )
    unknown_values = [value for value in unused.values if value not in classes]
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


def _default_path(items: Path) -> Path:
    """Return the campaign file for a file or folder of items: beside it, with the same name."""
    path = items
    if not path.name or path.name == "..":
        # ``.`` and ``..`` have no name of their own. What they point to has.
        path = path.resolve()
    if not path.name:
        raise InputError(f"Cannot derive a campaign name from {items}: give one with --file.")
    return path.with_name(f"{path.name.removesuffix(path.suffix)}.teeter")


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


def _shorten(content: str | None) -> str:
    """Return the content of an item on one line, shortened."""
    start = (content or "")[:_TEXT_START]
    return printable_line(" ".join(start.split()))


def _describe_duplicate(duplicate: tuple[str, str], items: Iterable[Item]) -> str:
    """Return which item was skipped, and which item has the same content.

    Args:
        duplicate: the id of the item that was skipped, and that of the item it duplicates.
        items: the items of the file.
    """
    skipped_id, original_id = duplicate
    # Without an id of its own, an item is known by a hash, which tells nothing.
    if skipped_id != original_id:
        return f"{printable_line(skipped_id)}: same content as {printable_line(original_id)}"

    content = next((item.content for item in items if item.key == skipped_id), None)
    if content is None or content == skipped_id:
        return f"{printable_line(original_id)}, which the campaign already has"
    return f"another copy of “{_shorten(content)}”"


def _report_conflicts(result: ImportResult) -> None:
    """Print the items whose label in the file differs from their label in the campaign."""
    for item, given, current in result.conflicts[:_NAMED_ITEMS]:
        typer.echo(f"{printable_line(item)} keeps its label {current}; the file says {given}.")

    if len(result.conflicts) > _NAMED_ITEMS:
        rest = len(result.conflicts) - _NAMED_ITEMS
        typer.echo(
            f"{pluralize(rest, 'more item')} kept labels that differ from those in the file."
        )


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


def _require_history_path(history: Path, out: Path) -> None:
    """Check that the history goes to a file of its own, outside of the exported folder."""
    if history.resolve() == out.resolve():
        raise InputError(
            f"Cannot write both the labels and the history to {out}: choose two different files."
        )
    if history.is_dir():
        raise InputError(
            f"Cannot write the history to {history}, which is a folder: choose a file."
        )
    if out.resolve() in history.resolve().parents:
        raise InputError(f"Cannot write the history to {history}: choose a file outside {out}.")
