"""Export every round of a run as a flat table, for analyses of your own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from teeter.analysis.table_formats import to_csv
from teeter.errors import InputError, MissingExtraError
from teeter.experiments.results import round_to_row

if TYPE_CHECKING:
    from teeter.experiments.results import Run

__all__ = ["round_rows", "rounds_to_csv", "write_rounds"]


def round_rows(run: Run) -> list[dict[str, Any]]:
    """Return one row per round: what was run, its accuracy, its cost and the rows it picked."""
    return [round_to_row(run.setting, entry) for entry in run.rounds]


def rounds_to_csv(run: Run) -> str:
    """Return the rounds of a run as CSV. Picks are one cell, separated by spaces."""
    rows = round_rows(run)

    # Spaces, so that a list does not need quotes inside a CSV file.
    for row in rows:
        picks = row["picks"]
        row["picks"] = " ".join(str(pick) for pick in picks)

    return to_csv(rows)


def write_rounds(run: Run, path: str | Path) -> None:
    """Write the rounds of a run to a CSV or Parquet file.

    Args:
        run: the run to export.
        path: where to write; its extension, ``.csv`` or ``.parquet``, chooses the format.

    Raises:
        InputError: if the path has another extension.
        MissingExtraError: if Parquet is asked for and pyarrow is not installed.
    """
    path = Path(path)
    if path.suffix == ".csv":
        path.write_text(rounds_to_csv(run), encoding="utf-8", newline="")
    elif path.suffix == ".parquet":
        _write_parquet(run, path)
    else:
        raise InputError(f"Cannot write {path.name}: rounds are exported as .csv or .parquet.")


def _write_parquet(run: Run, path: Path) -> None:
    """Write the rounds as Parquet, with picks as lists of integers."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise MissingExtraError(
            "Writing Parquet needs pyarrow: pip install 'teeter[parquet]'."
        ) from None

    # pyarrow would infer "null" for a column that is None in every row.
    types = {
        "picks": pyarrow.list_(pyarrow.int64()),
        "validation": pyarrow.float64(),
        "vote": pyarrow.float64(),
    }
    # Rows may differ in their columns: phases of the time depend on the strategy.
    rows = round_rows(run)
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {}

    for name in names:
        values = [row.get(name) for row in rows]
        column_type = types.get(name)
        columns[name] = pyarrow.array(values, column_type)

    parquet.write_table(pyarrow.table(columns), path)
