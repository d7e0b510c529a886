"""Every round of a run as a plain row, for those who want to compute something else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from teeter.analysis.table_formats import to_csv
from teeter.errors import InputError, MissingExtraError
from teeter.experiments.results import round_to_row

if TYPE_CHECKING:
    from teeter.experiments.results import Run

__all__ = ["csv_of", "frame", "write_csv", "write_frame", "write_parquet"]


def frame(run: Run) -> list[dict[str, Any]]:
    """Return one row a round: what was run, how good it was, what it took, and the rows that were picked."""
    return [round_to_row(run.setting, one) for one in run.rounds]


def write_frame(run: Run, path: Path) -> None:
    """Write the frame of a run as CSV or Parquet, by the ending of the path."""
    writers = {".csv": write_csv, ".parquet": write_parquet}
    if path.suffix not in writers:
        raise InputError(f"Cannot write {path.name}: a frame is written as .csv or .parquet.")
    writers[path.suffix](run, path)


def write_csv(run: Run, path: Path) -> None:
    """Write the frame as CSV."""
    path.write_text(csv_of(run), encoding="utf-8", newline="")


def csv_of(run: Run) -> str:
    """Return the frame as CSV, the picks as numbers with spaces between."""
    return to_csv([{**row, "picks": " ".join(map(str, row["picks"]))} for row in frame(run)])


def write_parquet(run: Run, path: Path) -> None:
    """Write the frame as Parquet, the picks as lists."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise MissingExtraError(
            "Writing Parquet needs pyarrow: pip install 'teeter[parquet]'."
        ) from None
    rows = frame(run)
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names}
    types = {
        "picks": pyarrow.list_(pyarrow.int64()),
        "validation": pyarrow.float64(),
        "vote": pyarrow.float64(),
    }
    parquet.write_table(
        pyarrow.table({name: pyarrow.array(c, types.get(name)) for name, c in columns.items()}),
        path,
    )
