"""Pictures from Parquet files as Hugging Face publishes them: a column of encoded pictures and one of labels."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from teeter.datasets.class_numbers import class_indices_from_array
from teeter.datasets.file_checks import parse_errors
from teeter.datasets.image_files import Fit, image_pixels, open_image
from teeter.datasets.locate import Layout
from teeter.datasets.splits import LabelledRows, RawDataset
from teeter.errors import FileError, MissingExtraError

__all__ = ["ParquetImages", "image_table_reader"]

_LABELS = ("label", "fine_label", "labels")


def image_table_reader(
    test: str, classes: Sequence[str] | int, channels: int, fit: Fit, *, stream: bool
) -> list[Layout]:
    """Return the layouts of train*.parquet and ``test``*.parquet, in a folder called data or not.

    ``stream`` leaves the pictures in their files, else all are decoded at once.
    """

    def read(found: Sequence[Sequence[Path]]) -> RawDataset:
        parts, names = [], None
        for paths in found:
            pictures = ParquetImages(paths, channels, fit)
            labels = class_indices_from_array(
                pictures.labels(), "labels", pictures.classes or classes, paths[0]
            )
            parts.append(LabelledRows(pictures if stream else pictures.decoded(), labels))
            names = names or pictures.classes
        return RawDataset(parts[0], parts[1], names)

    within = ("", "data/")
    return [
        Layout((f"{at}train*.parquet", f"{at}{test}*.parquet"), read, tells_name=False)
        for at in within
    ]


class ParquetImages(Dataset[Tensor]):
    """Pictures that stay in Parquet files. Rows asked for in order are cheap: one row group is kept at a time."""

    def __init__(self, paths: Sequence[Path], channels: int, fit: Fit) -> None:
        self.channels, self.fit = channels, fit
        self.groups: list[tuple[Path, int]] = []
        counts: list[int] = []
        for path in paths:
            with parse_errors(path, "Parquet"), _file(path) as file:
                self.image, self.label = _columns(file.schema_arrow, path)
                self.classes = _class_names(file.schema_arrow, self.label)
                self.groups += [(path, group) for group in range(file.num_row_groups)]
                counts += [
                    file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)
                ]
        self.starts = [0, *accumulate(counts)]
        self._kept: tuple[int, list[bytes]] = (-1, [])

    def __len__(self) -> int:
        """Return N."""
        return self.starts[-1]

    def __getitem__(self, row: int) -> Tensor:
        """Return one picture as float32 within [0, 1]."""
        return torch.from_numpy(self._pixels(range(len(self))[row]).astype(np.float32) / 255)

    def labels(self) -> Any:
        """Return the column of labels."""
        parts = [np.empty(0, dtype=np.int64)]
        for path in dict.fromkeys(path for path, _ in self.groups):
            with parse_errors(path, "Parquet"), _file(path) as file:
                parts.append(file.read(columns=[self.label]).column(0).to_numpy())
        return np.concatenate(parts)

    def decoded(self) -> npt.NDArray[np.uint8]:
        """Return all pictures, (N, channels, height, width)."""
        pictures = [self._pixels(row) for row in range(len(self))]
        sizes = {picture.shape for picture in pictures}
        if len(sizes) != 1:
            raise FileError(
                f"{self.groups[0][0] if self.groups else 'A file'} holds pictures of {len(sizes)} sizes."
            )
        return np.stack(pictures)

    def _pixels(self, row: int) -> npt.NDArray[np.uint8]:
        group = bisect_right(self.starts, row) - 1
        path, inner = self.groups[group]
        if self._kept[0] != group:
            with parse_errors(path, "Parquet"), _file(path) as file:
                column = file.read_row_group(inner, columns=[self.image]).column(0)
                self._kept = group, [entry["bytes"] for entry in column.to_pylist()]
        return image_pixels(
            open_image(path, self._kept[1][row - self.starts[group]]), self.fit, self.channels
        )


def _file(path: Path) -> Any:
    try:
        from pyarrow import parquet
    except ImportError:
        raise MissingExtraError(
            "Reading Parquet needs pyarrow: pip install 'teeter[parquet]'."
        ) from None
    return parquet.ParquetFile(path)


def _columns(schema: Any, path: Path) -> tuple[str, str]:
    """Return the names of the columns of pictures and of labels."""
    from pyarrow import types

    structures = (field for field in schema if types.is_struct(field.type))
    image = next(
        (field.name for field in structures if field.type.get_field_index("bytes") >= 0), None
    )
    label = next((name for name in _LABELS if name in schema.names), None)
    if image is None or label is None:
        raise FileError(
            f"{path} has the columns {', '.join(schema.names)}: pictures as structures with bytes, and label, are "
            "needed."
        )
    return image, label


def _class_names(schema: Any, label: str) -> tuple[str, ...] | None:
    """Return the names of the classes where Hugging Face left them."""
    told = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    names = told.get("info", {}).get("features", {}).get(label, {}).get("names")
    return tuple(map(str, names)) if names else None
