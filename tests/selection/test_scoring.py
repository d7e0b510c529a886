"""Scores of a shard: whole, or refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from small_shards import select_rows
from teeter.data.shards import open_shards
from teeter.errors import FileError
from teeter.selection import scoring


def test_a_file_that_holds_less_than_it_declares_is_refused(pool: Path, tmp_path: Path) -> None:
    select_rows(pool, strategy="entropy")
    (folder,) = (tmp_path / "work").glob("entropy-*")
    shard = open_shards(pool).shards[0]
    with pytest.raises(FileError, match=r"holds 500 rows but declares 501, so it is damaged"):
        scoring.score_shard(tmp_path / "out", str(folder), replace(shard, rows=501))
    assert not (tmp_path / "out").exists()
