"""Users' files: tables, lines, arrays and shards.

``read_pool``, ``read_head`` and ``read_table`` read files of arrays and tables into memory.
``open_shards`` opens a pool that need not fit in memory.

Names are imported when they are first used, because most of them load torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from teeter.base.lazy_imports import import_lazily

if TYPE_CHECKING:
    from teeter.data.array_files import Head, PoolFile, pool_from_table, read_head, read_pool
    from teeter.data.shards import Shard, Shards, open_shards
    from teeter.data.table_columns import Labels, encode_table, read_labels
    from teeter.data.table_files import TABLE_SUFFIXES, Table, is_missing, read_table

__all__ = [
    "TABLE_SUFFIXES",
    "Head",
    "Labels",
    "PoolFile",
    "Shard",
    "Shards",
    "Table",
    "encode_table",
    "is_missing",
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
        "array_files": ["Head", "PoolFile", "pool_from_table", "read_head", "read_pool"],
        "shards": ["Shard", "Shards", "open_shards"],
        "table_columns": ["Labels", "encode_table", "read_labels"],
        "table_files": ["TABLE_SUFFIXES", "Table", "is_missing", "read_table"],
    },
)
