"""Frames: a row a round, the same in every format."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

from fake_runs import fake_accuracy, fake_run
from teeter.bench.analysis.table_formats import round_rows, write_rounds
from teeter.errors import InputError, MissingExtraError

RUN = fake_run(fake_accuracy(("ensemble", "random"), repetitions=2, rounds=3))


def test_a_frame_has_a_row_a_round() -> None:
    rows = round_rows(RUN)
    assert len(rows) == 2 * 2 * 3

    first = rows[0]
    assert (first["setting"], first["strategy"], first["repetition"], first["round"]) == (
        "openml-6",
        "ensemble",
        0,
        0,
    )
    assert (first["labelled"], first["picks"], first["training_seconds"]) == (200, [0, 1, 2], 75)
    assert first["validation"] is None
    assert first["ensemble_accuracy"] == pytest.approx(first["accuracy"] + 0.01)


def test_csv_and_parquet_hold_the_frame(tmp_path: Path) -> None:
    from pyarrow import parquet

    rows = round_rows(RUN)
    write_rounds(RUN, tmp_path / "rounds.parquet")
    assert parquet.read_table(tmp_path / "rounds.parquet").to_pylist() == rows
    write_rounds(RUN, tmp_path / "rounds.csv")
    with (tmp_path / "rounds.csv").open() as file:
        read = list(csv.DictReader(file))
    assert [row["picks"] for row in read] == [" ".join(map(str, row["picks"])) for row in rows]
    assert [float(row["accuracy"]) for row in read] == [row["accuracy"] for row in rows]
    assert list(read[0]) == list(rows[0])


def test_a_run_without_rounds_is_an_empty_frame(tmp_path: Path) -> None:
    empty = fake_run({})
    for name in ("rounds.csv", "rounds.parquet"):
        write_rounds(empty, tmp_path / name)
        assert (tmp_path / name).exists()


def test_other_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"as \.csv or \.parquet"):
        write_rounds(RUN, tmp_path / "rounds.xlsx")


def test_parquet_without_pyarrow_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'teeter\[parquet\]'"):
        write_rounds(RUN, tmp_path / "rounds.parquet")
