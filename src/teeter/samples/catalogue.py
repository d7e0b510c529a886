"""The sample projects, and how to read their data."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from teeter.base.registry import did_you_mean
from teeter.errors import InputError, MissingExtraError, UnknownNameError

__all__ = ["SAMPLES", "Sample", "SampleItem", "find_sample", "read_items"]

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


@dataclass(frozen=True)
class SampleItem:
    """An item of a sample."""

    content: str
    """The text, or the file name of the image."""
    label: str
    """The class that the publishers of the dataset give it."""


_TOUR = (
    "After every 20 answers, a model is trained, which picks the next items. Progress, Map and "
    "Items show how good the model is. Two of the existing labels are wrong on purpose. Review "
    "finds them."
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
    for sample in SAMPLES:
        if sample.name == name:
            return sample

    names = [sample.name for sample in SAMPLES]
    raise UnknownNameError(f"No sample is called {name!r}. {did_you_mean(name, names)}")


def read_items(sample: Sample, image_folder: Path | None = None) -> list[SampleItem]:
    """Return the items of a sample.

    Args:
        sample: the sample.
        image_folder: the folder that images are written to, if there are any. It is created.

    Example:
        >>> items = read_items(find_sample("texts"))
        >>> len(items), items[0].label
        (480, 'top-ups')
    """
    if sample.kind == "text":
        return [SampleItem(text, team) for text, team in _read_rows("messages.csv")]

    if image_folder is None:
        raise InputError(f"The sample {sample.name!r} has images: choose a folder for them.")
    labels = [label for (label,) in _read_rows("clothes.csv")]
    return _cut_images(labels, image_folder)


def _read_rows(name: str) -> list[list[str]]:
    """Return the rows of a table without its header."""
    table = (_DATA / name).read_text(encoding="utf-8")
    return list(csv.reader(io.StringIO(table, newline="")))[1:]


def _cut_images(labels: Sequence[str], folder: Path) -> list[SampleItem]:
    """Cut the sheet of images into files."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtraError(
            "The sample of images needs Pillow: pip install 'teeter[images]'."
        ) from None

    folder.mkdir(exist_ok=True)
    items = []
    with (_DATA / "clothes.png").open("rb") as file, Image.open(file) as sheet:
        for number, label in enumerate(labels):
            left = number % _SHEET_COLUMNS * _IMAGE_SIDE
            top = number // _SHEET_COLUMNS * _IMAGE_SIDE
            image = sheet.crop((left, top, left + _IMAGE_SIDE, top + _IMAGE_SIDE))

            # The names must not give the classes away.
            item = SampleItem(f"{number:03}.png", label)
            shown = image.resize((_SHOWN_SIDE, _SHOWN_SIDE), Image.Resampling.LANCZOS)
            shown.save(folder / item.content, compress_level=1)
            items.append(item)

    return items
