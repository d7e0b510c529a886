"""Datasets of image files: read, resize and load them in chunks.

Tiny ImageNet, FOOD101 and ImageNet are read from the folders that they are published in. The images
stay on disk and are decoded one at a time. Nothing here loads torch, so that the catalogue, which
names the readers, can be listed without it.
"""

from __future__ import annotations

import csv
import io
import json
import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from teeter.base.files import parse_errors
from teeter.bench.datasets.locate import Layout, MatchedFiles, Reader
from teeter.bench.datasets.splits import (
    LabelledRows,
    RawDataset,
    class_indices_from_array,
    class_indices_from_text,
)
from teeter.data.table_files import open_parquet
from teeter.errors import FileError, MissingExtraError

__all__ = [
    "FOOD101_FIT",
    "FOOD101_LAYOUTS",
    "IMAGENET_FIT",
    "IMAGENET_LAYOUTS",
    "TINY_IMAGENET_FIT",
    "TINY_IMAGENET_LAYOUTS",
    "Fit",
    "ImageFiles",
    "ParquetImages",
    "crop_centre",
    "image_pixels",
    "image_table_layouts",
    "open_image",
    "resize",
]

Fit: TypeAlias = Callable[[Any], Any]
"""Brings a Pillow image to the size that a dataset uses. Workers get it, so it can be pickled."""


def resize(image: Any, side: int) -> Any:
    """Resize an image to a square of ``side`` pixels, whatever its proportions."""
    size = (side, side)
    if image.size == size:
        return image
    return image.resize(size, _bilinear())


def crop_centre(image: Any, shorter: int, side: int) -> Any:
    """Scale an image so that its shorter side is ``shorter`` pixels, then crop its centre.

    The crop is a square of ``side`` pixels.
    """
    width, height = image.size
    scale = shorter / min(width, height)

    # Rounding must not make a side shorter than the crop.
    scaled_width = max(round(width * scale), shorter)
    scaled_height = max(round(height * scale), shorter)
    scaled = image.resize((scaled_width, scaled_height), _bilinear())

    left = (scaled_width - side) // 2
    top = (scaled_height - side) // 2
    return scaled.crop((left, top, left + side, top + side))


def open_image(path: Path, content: bytes | None = None) -> Any:
    """Decode an image file with Pillow.

    Args:
        path: the file, also for error messages.
        content: the encoded image, if it was already read from ``path``.

    Raises:
        MissingExtraError: if Pillow is not installed.
        FileError: if the image is missing or damaged.
    """
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtraError(
            "Reading images needs Pillow: pip install 'teeter[label]'."
        ) from None

    with parse_errors(path, "image file"):
        if content is None:
            content = path.read_bytes()
        image = Image.open(io.BytesIO(content))
        # Image.open reads only the header. Decode here, where errors are converted.
        image.load()
        return image


def image_pixels(image: Any, fit: Fit, channels: int) -> npt.NDArray[np.uint8]:
    """Return the pixels of a Pillow image as (channels, height, width), for 1 or 3 channels."""
    # "L" is Pillow's name for 8-bit grey.
    mode = "L" if channels == 1 else "RGB"
    fitted = fit(image.convert(mode))
    pixels = np.asarray(fitted, dtype=np.uint8)

    # Pillow gives (height, width) for grey and (height, width, 3) for colour.
    if channels == 1:
        # A copy, because torch warns about arrays that it may not write to.
        return pixels[None].copy()
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _bilinear() -> Any:
    from PIL.Image import Resampling

    return Resampling.BILINEAR


_LABEL_COLUMNS = ("label", "fine_label", "labels")


class ImageFiles:
    """Image files that stay on disk and are decoded one at a time.

    Each row is uint8 (3, height, width).

    Args:
        paths: one image file per row.
        fit: brings each image to the same size.
    """

    def __init__(self, paths: Sequence[str | Path], fit: Fit) -> None:
        # Strings, because a million Path objects, as for ImageNet, take much more memory.
        self.paths = [str(path) for path in paths]
        self.fit = fit

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int) -> npt.NDArray[np.uint8]:
        image = open_image(Path(self.paths[row]))
        return image_pixels(image, self.fit, 3)


class ParquetImages:
    """Images that stay in Parquet files and are decoded one at a time.

    Each row is uint8 (channels, height, width). The encoded images of one row group are cached, so
    rows are cheap in order and costly at random.

    Args:
        paths: the files. Their rows follow each other.
        channels: 1 for grey images, 3 for colour.
        fit: brings each image to the same size.
    """

    def __init__(self, paths: Sequence[Path], channels: int, fit: Fit) -> None:
        self.channels = channels
        self.fit = fit
        self.groups: list[tuple[Path, int]] = []
        """The row groups of all files: the file, and the group's index in it."""

        sizes: list[int] = []
        for path in paths:
            with open_parquet(path) as file:
                self.image_column, self.label_column = _find_columns(file.schema_arrow, path)
                self.classes = _read_class_names(file.schema_arrow, self.label_column)

                for group in range(file.num_row_groups):
                    self.groups.append((path, group))
                    sizes.append(file.metadata.row_group(group).num_rows)

        self.starts = [0, *accumulate(sizes)]
        """The first row of each row group, then the number of rows."""
        # No group has the index -1, so the first row reads its group.
        self._cached_group = -1
        self._cached_images: list[bytes] = []

    def __len__(self) -> int:
        return self.starts[-1]

    def __getitem__(self, row: int) -> npt.NDArray[np.uint8]:
        # Indexing a range turns negative rows into positive ones and refuses others.
        row = range(len(self))[row]
        group = bisect_right(self.starts, row) - 1
        path, group_in_file = self.groups[group]

        if self._cached_group != group:
            with open_parquet(path) as file:
                table = file.read_row_group(group_in_file, columns=[self.image_column])
                entries = table.column(0).to_pylist()
                self._cached_images = [entry["bytes"] for entry in entries]
            self._cached_group = group

        row_in_group = row - self.starts[group]
        encoded = self._cached_images[row_in_group]
        image = open_image(path, encoded)
        return image_pixels(image, self.fit, self.channels)

    def read_labels(self) -> npt.NDArray[Any]:
        """Return the column of labels, (N,)."""
        # There is nothing to join if no file has rows.
        nothing = np.empty(0, dtype=np.int64)
        parts: list[npt.NDArray[Any]] = [nothing]

        # Each file once, in order, although it has several row groups.
        paths = [path for path, _ in self.groups]
        for path in dict.fromkeys(paths):
            with open_parquet(path) as file:
                table = file.read(columns=[self.label_column])
                parts.append(table.column(0).to_numpy())

        return np.concatenate(parts)

    def decode_all(self) -> npt.NDArray[np.uint8]:
        """Return all images, (N, channels, height, width)."""
        images = [self[row] for row in range(len(self))]

        shapes = {image.shape for image in images}
        if len(shapes) != 1:
            source = "A file"
            if self.groups:
                source = str(self.groups[0][0])
            raise FileError(f"{source} holds images of {len(shapes)} sizes: one size is needed.")

        return np.stack(images)


def _find_columns(schema: Any, path: Path) -> tuple[str, str]:
    """Return the names of the columns of images and of labels."""
    from pyarrow import types

    # get_field_index returns -1 for a field that is not there.
    structures = [field for field in schema if types.is_struct(field.type)]
    image_columns = [field.name for field in structures if field.type.get_field_index("bytes") >= 0]

    label_columns = [name for name in _LABEL_COLUMNS if name in schema.names]

    if not image_columns or not label_columns:
        names = ", ".join(schema.names)
        raise FileError(
            f"{path} has the columns {names}: a column of images (structures "
            "with a field bytes) and a column label are needed."
        )

    return image_columns[0], label_columns[0]


def _read_class_names(schema: Any, label_column: str) -> tuple[str, ...] | None:
    """Return the class names in the metadata that Hugging Face writes, or None."""
    # JSON under the key huggingface: {"info": {"features": {COLUMN: {"names": [...]}}}}.
    schema_metadata = schema.metadata or {}
    metadata = json.loads(schema_metadata.get(b"huggingface", b"{}"))
    info = metadata.get("info", {})
    features = info.get("features", {})
    class_names = features.get(label_column, {}).get("names")

    if not class_names:
        return None
    return tuple(str(name) for name in class_names)


TINY_IMAGENET_FIT = partial(resize, side=64)
"""The published size."""

FOOD101_FIT = partial(resize, side=75)
"""The size in the paper."""

IMAGENET_FIT = partial(crop_centre, shorter=256, side=224)
"""The usual crop."""

# For folders that are listed. Where a published list names images without a suffix, the reader adds
# the one that the published archive uses.
_IMAGE_SUFFIXES = (".jpeg", ".jpg", ".png")


def _class_folder_reader(fit: Fit) -> Reader:
    """Return a reader of a training and a test folder, each with a folder per class."""

    def read(files: MatchedFiles) -> RawDataset:
        train, test = (paths[0] for paths in files)
        classes = _list_classes(train)

        # The training folder decides the indices. The test folder may lack some of its classes.
        for name in _list_classes(test):
            if name not in classes:
                raise FileError(
                    f"{test} has a class {name!r} that the training folder does not have."
                )

        return RawDataset(
            train=_read_class_folders(train, classes, fit),
            test=_read_class_folders(test, classes, fit),
            classes=classes,
        )

    return read


def _read_tiny_imagenet(files: MatchedFiles) -> RawDataset:
    """Read train/CLASS/images/, and val/images/ with the classes of val_annotations.txt."""
    train, annotations = (paths[0] for paths in files)
    classes = _list_classes(train)

    images = annotations.parent / "images"
    paths = []
    class_names = []
    for line in _read_lines(annotations):
        # A file name, its class and the corners of a box, separated by tabs.
        fields = line.split("\t")
        if len(fields) < 2:
            raise FileError(
                f"{annotations} has lines without a class: "
                "a file name, a tab and a class are needed."
            )
        paths.append(images / fields[0])
        class_names.append(fields[1])

    labels = class_indices_from_text(class_names, classes, annotations)
    return _with_class_folders(train, classes, paths, labels, TINY_IMAGENET_FIT)


def _read_food101(files: MatchedFiles) -> RawDataset:
    """Read images/CLASS/NUMBER.jpg as listed in meta/train.txt and meta/test.txt."""
    classes_file, train_list, test_list, images = (paths[0] for paths in files)
    classes = tuple(_read_lines(classes_file))

    def read_listed(listing: Path) -> LabelledRows:
        paths = []
        class_names = []
        for entry in _read_lines(listing):
            # An entry is CLASS/NUMBER. All images of the published archive end in .jpg.
            paths.append(images / f"{entry}.jpg")
            class_names.append(entry.split("/")[0])

        labels = class_indices_from_text(class_names, classes, listing)
        return _image_rows(paths, labels, FOOD101_FIT)

    return RawDataset(
        train=read_listed(train_list),
        test=read_listed(test_list),
        classes=classes,
    )


def _read_imagenet_with_csv(files: MatchedFiles) -> RawDataset:
    """Read ImageNet as Kaggle publishes it, with the validation classes in a CSV file."""
    train, test, solution = (paths[0] for paths in files)
    classes = _list_classes(train)

    with (
        parse_errors(solution, "CSV file"),
        solution.open(encoding="utf-8", newline="") as stream,
    ):
        rows = []
        for record in csv.DictReader(stream):
            # The class, then the corners of a box, perhaps several times.
            class_name = record["PredictionString"].split()[0]
            rows.append((record["ImageId"], class_name))

        # In the order of the file names, as with the devkit. Inside the block, because a short
        # record has None as its ImageId, which cannot be compared.
        rows.sort()

    # All validation images of the published archive end in .JPEG.
    paths = [test / f"{image_id}.JPEG" for image_id, _ in rows]
    class_names = [class_name for _, class_name in rows]
    labels = class_indices_from_text(class_names, classes, solution)
    return _with_class_folders(train, classes, paths, labels, IMAGENET_FIT)


def _read_imagenet_with_devkit(files: MatchedFiles) -> RawDataset:
    """Read ImageNet as image-net.org publishes it, with the validation classes in the devkit.

    The ground truth has one ILSVRC2012_ID per validation image, in the order of the file names.
    """
    from scipy.io import loadmat

    train, test, meta, ground_truth = (paths[0] for paths in files)
    classes = _list_classes(train)

    with parse_errors(meta, "MATLAB file"):
        synsets = loadmat(meta, squeeze_me=True)["synsets"]

        # A synset begins with its ILSVRC2012_ID and its WordNet ID, which names the class folder.
        # The IDs are not in the order of the folders.
        class_of_id = {}
        for synset in synsets:
            class_of_id[int(synset[0])] = str(synset[1])

    with parse_errors(ground_truth, "list of numbers"):
        ids = [int(line) for line in _read_lines(ground_truth)]
        class_names = [class_of_id[synset_id] for synset_id in ids]
        labels = class_indices_from_text(class_names, classes, ground_truth)

    paths = _list_images(test)
    if len(paths) != len(labels):
        raise FileError(
            f"{test} has {len(paths)} images and {ground_truth} has {len(labels)} classes: "
            "one class per image is needed."
        )
    return _with_class_folders(train, classes, paths, labels, IMAGENET_FIT)


def _with_class_folders(
    train: Path,
    classes: tuple[str, ...],
    paths: Sequence[str | Path],
    labels: npt.NDArray[np.int64],
    fit: Fit,
) -> RawDataset:
    """Return the images of a training folder with a folder per class, and test images."""
    rows = _read_class_folders(train, classes, fit)
    return RawDataset(rows, _image_rows(paths, labels, fit), classes)


def _list_classes(folder: Path) -> tuple[str, ...]:
    """Return the names of the folders in ``folder``, sorted."""
    # os.scandir, because Path.is_dir would ask the system about each entry again.
    with parse_errors(folder, "folder of classes"), os.scandir(folder) as entries:
        classes = [entry.name for entry in entries if entry.is_dir()]

    if not classes:
        raise FileError(f"{folder} has no folders in it: one per class is needed.")
    return tuple(sorted(classes))


def _read_class_folders(folder: Path, classes: Sequence[str], fit: Fit) -> LabelledRows:
    """Return the images in ``folder``/CLASS/ or ``folder``/CLASS/images/, class by class."""
    paths: list[str] = []
    class_sizes = []
    for name in classes:
        # Tiny ImageNet has a folder images in the folder of each class.
        class_folder = folder / name
        inner = class_folder / "images"
        if inner.is_dir():
            class_folder = inner

        class_paths = _list_images(class_folder)
        paths += class_paths
        class_sizes.append(len(class_paths))

    if not paths:
        raise FileError(
            f"{folder} has {len(classes)} class folders and no image in "
            f"{', '.join(_IMAGE_SUFFIXES)}."
        )

    class_indices = np.arange(len(classes), dtype=np.int64)
    labels = np.repeat(class_indices, class_sizes)
    return _image_rows(paths, labels, fit)


def _list_images(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []

    with os.scandir(folder) as entries:
        files = list(entries)

    paths = [file.path for file in files if file.name.lower().endswith(_IMAGE_SUFFIXES)]

    # The system lists entries in any order. Rows must have the same order everywhere.
    return sorted(paths)


def _read_lines(path: Path) -> list[str]:
    """Return the lines of a text file that are not blank."""
    with parse_errors(path, "text file"):
        text = path.read_text(encoding="utf-8")

    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise FileError(f"{path} is empty.")
    return lines


TINY_IMAGENET_LAYOUTS = (
    Layout(("train", "val/val_annotations.txt"), _read_tiny_imagenet, identifies_dataset=False),
    Layout(("train", "val"), _class_folder_reader(TINY_IMAGENET_FIT), identifies_dataset=False),
)

FOOD101_LAYOUTS = (
    Layout(
        ("meta/classes.txt", "meta/train.txt", "meta/test.txt", "images"),
        _read_food101,
        identifies_dataset=False,
    ),
)

IMAGENET_LAYOUTS = (
    Layout(
        (
            "train",
            "val",
            "ILSVRC2012_devkit_t12/data/meta.mat",
            "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt",
        ),
        _read_imagenet_with_devkit,
        identifies_dataset=False,
    ),
    Layout(
        ("ILSVRC/Data/CLS-LOC/train", "ILSVRC/Data/CLS-LOC/val", "LOC_val_solution.csv"),
        _read_imagenet_with_csv,
        identifies_dataset=False,
    ),
    Layout(("train", "val"), _class_folder_reader(IMAGENET_FIT), identifies_dataset=False),
)


def _image_rows(
    paths: Sequence[str | Path], labels: npt.NDArray[np.int64], fit: Fit
) -> LabelledRows:
    """Return image files, which stay on disk, with their class indices."""
    return LabelledRows(ImageFiles(paths, fit), labels)


def image_table_layouts(
    test: str, classes: Sequence[str] | int, channels: int, fit: Fit, *, stream: bool
) -> list[Layout]:
    """Return the layouts of train*.parquet and ``test``*.parquet, in a folder called data or not.

    Args:
        test: how the names of the test files begin.
        classes: the class names, or their number. Names in the files replace them.
        channels: 1 for grey images, 3 for colour.
        fit: brings each image to the same size.
        stream: leave the images in their files and decode them one at a time. Otherwise all are
            decoded at once.
    """

    def read(files: MatchedFiles) -> RawDataset:
        parts = []
        class_names = None
        for paths in files:
            images = ParquetImages(paths, channels, fit)
            allowed = images.classes or classes
            label_column = images.read_labels()
            labels = class_indices_from_array(label_column, "labels", allowed, paths[0])

            inputs = images if stream else images.decode_all()
            parts.append(LabelledRows(inputs, labels))
            class_names = class_names or images.classes

        train, test_rows = parts
        return RawDataset(train, test_rows, class_names)

    layouts = []
    for folder in ("", "data/"):
        patterns = (f"{folder}train*.parquet", f"{folder}{test}*.parquet")
        layouts.append(Layout(patterns, read, identifies_dataset=False))
    return layouts
