"""Named datasets ready for a network, and readers of users' own files.

``load_dataset`` loads a named dataset, and ``names`` lists them. The module ``catalogue`` says how
to add one, and ``dataset_from_function`` makes one in another package.

``read_pool``, ``read_head`` and ``read_table`` read files of arrays and tables into memory.
``open_shards`` opens a pool that need not fit in memory.

Names are imported when they are first used, because most of them load torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from teeter.base.lazy_imports import import_lazily

if TYPE_CHECKING:
    from teeter.data.array_files import Head, PoolFile, pool_from_table, read_head, read_pool
    from teeter.data.label_column import Labels, read_labels
    from teeter.data.shards import Shard, Shards, open_shards
    from teeter.data.table_features import TableFeatures, encode_table
    from teeter.data.table_files import TABLE_SUFFIXES, Table, is_missing, read_table
    from teeter.datasets.catalogue import DatasetSpec, find_spec, locate_dataset, names
    from teeter.datasets.loading import load_dataset
    from teeter.datasets.plugin import dataset_from_function
    from teeter.datasets.splits import DatasetSplit, LabelledDataset, LabelledRows, make_long_tailed

__all__ = [
    "TABLE_SUFFIXES",
    "DatasetSpec",
    "DatasetSplit",
    "Head",
    "LabelledDataset",
    "LabelledRows",
    "Labels",
    "PoolFile",
    "Shard",
    "Shards",
    "Table",
    "TableFeatures",
    "dataset_from_function",
    "encode_table",
    "find_spec",
    "is_missing",
    "load_dataset",
    "locate_dataset",
    "make_long_tailed",
    "names",
    "open_shards",
    "pool_from_table",
    "read_head",
    "read_labels",
    "read_pool",
    "read_table",
]

__getattr__, __dir__ = import_lazily(
    __name__,
    {
        "catalogue": ["DatasetSpec", "find_spec", "locate_dataset", "names"],
        "loading": ["load_dataset"],
        "plugin": ["dataset_from_function"],
        "splits": ["DatasetSplit", "LabelledDataset", "LabelledRows", "make_long_tailed"],
    },
)
