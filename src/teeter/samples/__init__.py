"""Sample projects that come with teeter: real texts and images, labelled in part.

``README.md`` in this folder says where the data comes from and under which licences.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib.resources import files
from pathlib import Path

from teeter.base.registry import require_known
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.records import DEFAULT_ANNOTATOR, Answer, AnswerKind
from teeter.campaigns.settings import Settings
from teeter.campaigns.store.backup import atomic_file
from teeter.campaigns.store.database import Clock, utc_now
from teeter.errors import FileError, InputError, MissingExtraError

__all__ = [
    "BATCH",
    "ROUNDS",
    "SAMPLES",
    "Sample",
    "find_sample",
    "make_sample",
    "read_items",
    "sample_file",
]


_DATA = files("teeter.samples") / "data"

_SHEET_COLUMNS = 20
"""Images per row of the file that holds them all."""

_IMAGE_SIDE = 28
_SHOWN_SIDE = 224
"""Pixels along each side of an image as it is drawn, and as the page shows it."""


@dataclass(frozen=True)
class Sample:
    """A sample project."""

    name: str
    """How the command line calls it."""
    title: str
    """The name of its campaign."""
    kind: str
    """text or image."""
    classes: tuple[str, ...]
    instructions: str


_TOUR = (
    "After every 20 answers, a model is trained, which picks the next items. *Progress*, *Map* "
    "and *Find* show how good the model is. Two of the existing labels are wrong on purpose. "
    "*Review* finds them."
)

SAMPLES = (
    Sample(
        "texts",
        "messages",
        "text",
        ("cards", "payments", "cash", "transfers", "top-ups", "identity"),
        "Customers write to a bank. Which team should answer? Press the shortcut of the team.\n\n"
        + _TOUR,
    ),
    Sample(
        "images",
        "clothes",
        "image",
        (
            "T-shirt",
            "trousers",
            "pullover",
            "dress",
            "coat",
            "sandal",
            "trainer",
            "bag",
            "boot",
        ),
        "What does the photograph show? Press the shortcut of the class.\n\n" + _TOUR,
    ),
)


def find_sample(name: str) -> Sample:
    """Return the sample with a name.

    Raises:
        UnknownNameError: there is no such sample.

    Example:
        >>> find_sample("texts").classes[:2]
        ('cards', 'payments')
    """
    samples = {sample.name: sample for sample in SAMPLES}
    require_known("sample", name, samples)
    return samples[name]


def read_items(sample: Sample, image_folder: Path | None = None) -> list[tuple[str, str]]:
    """Return the items of a sample: each text or file name of an image, and its published class.

    Args:
        sample: the sample.
        image_folder: the folder that images are written to, if there are any. It is created.

    Example:
        >>> items = read_items(find_sample("texts"))
        >>> _, label = items[0]
        >>> len(items), label
        (480, 'top-ups')
    """
    if sample.kind == "text":
        return [(text, team) for text, team in _read_rows("messages.csv")]

    if image_folder is None:
        raise InputError(f"The sample {sample.name!r} has images: choose a folder for them.")
    labels = [label for (label,) in _read_rows("clothes.csv")]
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtraError(
            "The sample of images needs Pillow: pip install 'teeter[label]'."
        ) from None

    image_folder.mkdir(exist_ok=True)
    items = []
    with (_DATA / "clothes.png").open("rb") as file, Image.open(file) as sheet:
        for number, label in enumerate(labels):
            left = number % _SHEET_COLUMNS * _IMAGE_SIDE
            top = number // _SHEET_COLUMNS * _IMAGE_SIDE
            right = left + _IMAGE_SIDE
            bottom = top + _IMAGE_SIDE
            image = sheet.crop((left, top, right, bottom))

            # The names must not give the classes away.
            name = f"{number:03}.png"
            shown = image.resize((_SHOWN_SIDE, _SHOWN_SIDE), Image.Resampling.LANCZOS)
            shown.save(image_folder / name, compress_level=1)
            items.append((name, label))

    return items


def _read_rows(name: str) -> list[list[str]]:
    """Return the rows of a table without its header."""
    table = (_DATA / name).read_text(encoding="utf-8")
    _, *rows = csv.reader(io.StringIO(table, newline=""))
    return rows


BATCH = 20
"""Labels before each training."""

ROUNDS = 4
"""Trained models of a new sample."""

HOLDOUT = 60
"""Random items that are labelled first and never trained on. With so many, Progress shows a curve
that rises with the labels; a handful of control items would show chance."""

_SLIPS = (12, 53)
"""Which answers that models are trained on, from 0, name the wrong class."""

_SECONDS_PER_ANSWER = 6
"""The pace of the answers in the history, so that they do not seem to come all at once."""

_ENCODERS = {"text": "tfidf", "image": "pixels"}
"""The encoder of each kind of sample. These encoders need no weights."""

OnStep = Callable[[int, int], None]


def sample_file(sample: Sample, folder: Path) -> Path:
    """Return the file of a sample's campaign."""
    # Not only the title: the file of a user's own campaign must never be taken for a sample.
    return folder / f"sample-{sample.title}.teeter"


def make_sample(
    sample: Sample,
    folder: Path,
    *,
    on_step: OnStep = lambda done, total: None,
    clock: Clock = utc_now,
) -> Path:
    """Create the campaign of a sample, complete or not at all.

    Args:
        sample: the sample.
        folder: where its file and its images go. It is created if its parent exists.
        on_step: called with the number of finished rounds and of all rounds.
        clock: returns the time at which the last answer seems to be given.

    Returns:
        The campaign's file.

    Raises:
        FileError: the folder or the file cannot be written.
    """
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise FileError(f"Cannot create the folder {folder}: {error.strerror}.") from None

    path = sample_file(sample, folder)
    image_folder = folder / f"sample-{sample.title}"
    labels = dict(read_items(sample, image_folder))

    folder_name = None
    if sample.kind == "image":
        folder_name = str(image_folder)
    settings = Settings(
        kind=sample.kind,
        # Not auto: the sample must look the same whatever is installed, and open within seconds.
        encoder=_ENCODERS[sample.kind],
        folder=folder_name,
        holdout=HOLDOUT,
        instructions=sample.instructions,
    )
    past = _PastClock(clock())

    with atomic_file(path) as temporary:
        campaign = Campaign.make(
            [{sample.kind: content} for content in labels],
            sample.classes,
            at=temporary,
            name=sample.title,
            settings=settings,
            clock=past,
        )
        try:
            _label(campaign, labels, past, on_step)
        finally:
            campaign.database.close()

    return path


class _PastClock:
    """A clock that starts in the past and moves only by ``advance``."""

    def __init__(self, end: datetime) -> None:
        duration = timedelta(seconds=_SECONDS_PER_ANSWER * (HOLDOUT + BATCH * ROUNDS))
        self.now = end - duration

    def __call__(self) -> datetime:
        return self.now

    def advance(self) -> None:
        """Move on by the time that an answer takes."""
        self.now += timedelta(seconds=_SECONDS_PER_ANSWER)


def _label(campaign: Campaign, labels: dict[str, str], clock: _PastClock, on_step: OnStep) -> None:
    """Answer as an annotator would who makes two slips, and train after each batch.

    Args:
        campaign: the campaign, whose items have no answers yet.
        labels: the true labels by content.
        clock: the campaign's clock.
        on_step: called after each round.
    """
    classes = campaign.classes.names()
    with campaign.reading() as view:
        holdout_ids = view.items.holdout()
        holdout_items = view.items.by_id(sorted(holdout_ids))
    _answer(
        campaign,
        clock,
        {item_id: labels[str(item.content)] for item_id, item in holdout_items.items()},
    )

    answer_count = 0
    for round_number in range(ROUNDS):
        answers = {}
        for question in campaign.ask(BATCH):
            label = labels[str(question.content)]
            if answer_count in _SLIPS:
                wrong = (classes.index(label) + 1) % len(classes)
                label = classes[wrong]
            answers[question.item] = label
            answer_count += 1

        _answer(campaign, clock, answers)
        campaign.train()
        on_step(round_number + 1, ROUNDS)


def _answer(campaign: Campaign, clock: _PastClock, labels: dict[str, str]) -> None:
    """Record labels by item id, in one transaction: each transaction waits for the disk."""
    with campaign.writing() as change:
        for item, label in labels.items():
            clock.advance()
            answer = Answer(item, DEFAULT_ANNOTATOR, AnswerKind.LABEL, label)
            change.answers.record(answer)
