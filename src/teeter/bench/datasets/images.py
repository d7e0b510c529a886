"""Datasets of image files: read, resize and load them in chunks."""

from __future__ import annotations

import io
import json
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from teeter.data.file_checks import parse_errors
from teeter.data.table_files import open_parquet
from teeter.errors import FileError, MissingExtraError

__all__ = [
    "CentreCrop",
    "Fit",
    "ImageFiles",
    "ParquetImages",
    "Resize",
    "image_pixels",
    "open_image",
]


Fit: TypeAlias = Callable[[Any], Any]
"""Brings a Pillow image to the size that a dataset uses."""


@dataclass(frozen=True)
class Resize:
    """Resize an image to a square of ``side`` pixels, whatever its proportions."""

    side: int

    def __call__(self, image: Any) -> Any:
        """Return the resized image."""
        size = (self.side, self.side)
        if image.size == size:
            return image
        return image.resize(size, _bilinear())


@dataclass(frozen=True)
class CentreCrop:
    """Scale an image so that its shorter side is ``shorter`` pixels, then crop its centre.

    The crop is a square of ``side`` pixels.
    """

    shorter: int
    side: int

    def __call__(self, image: Any) -> Any:
        """Return the centre of the scaled image."""
        width, height = image.size
        scale = self.shorter / min(width, height)

        # Rounding must not make a side shorter than the crop.
        scaled_width = max(round(width * scale), self.shorter)
        scaled_height = max(round(height * scale), self.shorter)
        scaled = image.resize((scaled_width, scaled_height), _bilinear())

        left = (scaled_width - self.side) // 2
        top = (scaled_height - self.side) // 2
        right = left + self.side
        bottom = top + self.side
        return scaled.crop((left, top, right, bottom))


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
            "Reading images needs Pillow: pip install 'teeter[images]'."
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
        return pixels[None]
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _bilinear() -> Any:
    from PIL.Image import Resampling

    return Resampling.BILINEAR


_LABEL_COLUMNS = ("label", "fine_label", "labels")


class ImageFiles(Dataset[Tensor]):
    """Image files that stay on disk and are decoded one at a time.

    Each row is a float32 tensor (3, height, width) in [0, 1].

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

    def __getitem__(self, row: int) -> Tensor:
        image = open_image(Path(self.paths[row]))
        pixels = image_pixels(image, self.fit, 3)
        return torch.from_numpy(pixels.astype(np.float32) / 255)


class ParquetImages(Dataset[Tensor]):
    """Images that stay in Parquet files and are decoded one at a time.

    The encoded images of one row group are cached, so rows are cheap in order and costly at random.

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

    def __getitem__(self, row: int) -> Tensor:
        # Indexing a range turns negative rows into positive ones and refuses others.
        row = range(len(self))[row]
        pixels = self._decode(row).astype(np.float32)
        return torch.from_numpy(pixels / 255)

    def read_labels(self) -> npt.NDArray[Any]:
        """Return the column of labels, (N,)."""
        # An empty part, because there is nothing to join if no file has rows.
        parts: list[npt.NDArray[Any]] = [np.empty(0, dtype=np.int64)]

        # Each file once, in order, although it has several row groups.
        paths = [path for path, _ in self.groups]
        for path in dict.fromkeys(paths):
            with open_parquet(path) as file:
                table = file.read(columns=[self.label_column])
                parts.append(table.column(0).to_numpy())

        return np.concatenate(parts)

    def decode_all(self) -> npt.NDArray[np.uint8]:
        """Return all images, (N, channels, height, width)."""
        images = [self._decode(row) for row in range(len(self))]

        shapes = {image.shape for image in images}
        if len(shapes) != 1:
            source = "A file"
            if self.groups:
                source = str(self.groups[0][0])
            raise FileError(f"{source} holds images of {len(shapes)} sizes: one size is needed.")

        return np.stack(images)

    def _decode(self, row: int) -> npt.NDArray[np.uint8]:
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
