"""teeter bench report: what runs found, as a page, figures and tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from teeter.cli.output import spinner

if TYPE_CHECKING:
    from teeter.analysis.report.render import Report

__all__ = ["report"]


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Folders that teeter bench run has written."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where the report goes; RUN/report, or teeter-report for several runs, if left out.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write what was found and all tables as JSON.")
    ] = False,
) -> None:
    """Compare the strategies of one run or several: a page, figures and tables."""
    with spinner("Comparing"):
        from teeter.analysis.report.render import write_report
        from teeter.experiments.results import read_run

        written = write_report([read_run(folder) for folder in runs], out or _beside(runs))
    if as_json:
        typer.echo(_as_json(written))
        return
    for sentence in (*written.findings, *written.notes):
        typer.echo(sentence)
    typer.echo(f"Curves, tables and settings: {written.page}")


def _beside(runs: list[Path]) -> Path:
    """Return the folder of a report nobody named: inside the run, or here if there are several."""
    return runs[0] / "report" if len(runs) == 1 else Path("teeter-report")


def _as_json(written: Report) -> str:
    told = {
        "page": str(written.page),
        "findings": written.findings,
        "notes": written.notes,
        "tables": written.tables,
        "files": [str(path) for path in written.files],
    }
    return json.dumps(told, ensure_ascii=False, indent=2)
