"""Named datasets, ready for a network.

``load_dataset`` loads a named dataset, and ``names`` lists them. The module ``catalogue`` says how
to add one, and ``dataset_from_function`` makes one in another package.

Names are imported when they are first used, because most of them load torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from teeter.base.lazy_imports import import_lazily

if TYPE_CHECKING:
    from teeter.bench.datasets.catalogue import (
        DatasetSpec,
        dataset_from_function,
        find_spec,
        locate_dataset,
        names,
    )
    from teeter.bench.datasets.loading import load_dataset
    from teeter.bench.datasets.splits import (
        DatasetSplit,
        LabelledRows,
        make_long_tailed,
    )

__all__ = [
    "DatasetSpec",
    "DatasetSplit",
    "LabelledRows",
    "dataset_from_function",
    "find_spec",
    "load_dataset",
    "locate_dataset",
    "make_long_tailed",
    "names",
]

__getattr__, __dir__ = import_lazily(
    __name__,
    {
        "catalogue": [
            "DatasetSpec",
            "dataset_from_function",
            "find_spec",
            "locate_dataset",
            "names",
        ],
        "loading": ["load_dataset"],
        "splits": ["DatasetSplit", "LabelledRows", "make_long_tailed"],
    },
)
