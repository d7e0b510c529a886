"""teeter bench report: compare the strategies of runs on an HTML page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from teeter.cli.output import spinner

if TYPE_CHECKING:
    from teeter.bench.analysis.report import Report

__all__ = ["report"]


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Run folders written by teeter bench run."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder for the report. Default: RUN/report, or teeter-report for several runs.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the findings and all tables as JSON.")
    ] = False,
) -> None:
    """Write a report that compares the strategies of one or more runs.

    \b
    Examples:
      teeter bench report runs/mnist
      teeter bench report runs/mnist runs/letter --out report
    """
    with spinner("Comparing"):
        # Importing matplotlib and reading runs may take seconds: the spinner is on by then.
        from teeter.bench.analysis.report import write_report
        from teeter.bench.experiments import read_run

        loaded = [read_run(folder) for folder in runs]
        written = write_report(loaded, out or _default_folder(runs))

    if as_json:
        typer.echo(_to_json(written))
        return

    # What was found, then what limits it.
    for sentence in (*written.findings, *written.notes):
        typer.echo(sentence)
    typer.echo(f"Curves, tables and settings: {written.page}")


def _default_folder(runs: list[Path]) -> Path:
    """Return the default folder of a report: in its run, or the current folder for several."""
    if len(runs) == 1:
        # Where ``teeter serve --folder`` looks for reports.
        return runs[0] / "report"

    return Path("teeter-report")


def _to_json(written: Report) -> str:
    """Return the report as JSON. Scripts read these keys."""
    content = {
        "page": str(written.page),
        "findings": written.findings,
        "notes": written.notes,
        "tables": written.tables,
        "files": [str(path) for path in written.files],
    }
    return json.dumps(content, ensure_ascii=False, indent=2)
