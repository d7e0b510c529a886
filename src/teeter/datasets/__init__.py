"""Named datasets ready for a network; and files as arrays, with a sentence for whatever cannot be read."""

from __future__ import annotations

from teeter.datasets.catalogue import names
from teeter.datasets.loading import load_dataset
from teeter.datasets.made import dataset
from teeter.datasets.parts import NamedDataset, Part, Split, thinned

__all__ = ["NamedDataset", "Part", "Split", "dataset", "load_dataset", "names", "thinned"]
