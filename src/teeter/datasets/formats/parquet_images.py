"""Read images from Parquet files as Hugging Face publishes them.

The files have a column of encoded images (structures with a field ``bytes``) and a column of
labels.
"""

from __future__ import annotations

from collections.abc import Sequence

from teeter.datasets.classes import class_indices_from_array
from teeter.datasets.image_files import Fit
from teeter.datasets.locate import Layout, MatchedFiles
from teeter.datasets.splits import LabelledRows, RawDataset

__all__ = ["image_table_layouts"]


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
        from teeter.datasets.image_datasets import ParquetImages

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
