"""Named datasets ready for a network; and files as arrays, with a sentence for whatever cannot be read."""

from __future__ import annotations

from teeter.datasets.catalogue import names
from teeter.datasets.loading import load_dataset
from teeter.datasets.plugin import dataset_from_function
from teeter.datasets.splits import DatasetSplit, LabelledDataset, LabelledRows, make_long_tailed

__all__ = [
    "DatasetSplit",
    "LabelledDataset",
    "LabelledRows",
    "dataset_from_function",
    "load_dataset",
    "make_long_tailed",
    "names",
]
