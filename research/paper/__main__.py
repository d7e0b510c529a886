"""The command line of the reproduction: ``python -m research.paper list | run | page``.

``list`` names the items, ``run`` computes some of them and draws the page, ``page`` draws results
that were computed earlier, here or on another machine.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from research.paper import catalogue
from research.paper.item import Item, StudyConfig
from research.paper.results import ItemResult, compute_items, read_results
from teeter.cli.output import Commands, progress, spinner
from teeter.errors import InputError

__all__ = ["app"]

app = typer.Typer(
    cls=Commands,
    name="reproduction",
    help="Compute the figures, tables and claims of the paper again, and judge each of them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

OutOption = Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of results and the page.")]
DEFAULT_OUT = Path("reproduction-results")


@app.command("list")
def list_items(
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the items: names, titles and places in the paper."""
    items = catalogue.ITEMS

    if as_json:
        rows = [
            {
                "name": item.name,
                "title": item.title,
                "location": item.location,
                "claim": item.claim,
                "test": item.test,
            }
            for item in items
        ]
        typer.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return

    width = max(len(item.name) for item in items)
    for item in items:
        typer.echo(f"{item.name:{width}}  {item.title} ({item.location})")


@app.command()
def run(
    names: Annotated[
        list[str], typer.Argument(metavar="ITEM...", help="Names from the list, or all.")
    ],
    *,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Take under a minute for each item, on data that scikit-learn carries.",
        ),
    ] = False,
    out: OutOption = DEFAULT_OUT,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Seed of all random draws.")] = 0,
    device: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="cpu or cuda; by default a GPU if there is one."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Folder of the datasets; by default TEETER_DATA or the cache."
        ),
    ] = None,
    runs: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER", help="Folder with a run folder for each setting of the benchmark."
        ),
    ] = Path("runs"),
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Compute items again that have a result.")
    ] = False,
    no_page: Annotated[
        bool, typer.Option("--no-page", help="Compute only; the command page draws later.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdicts as JSON.")] = False,
) -> None:
    """Compute items, print a verdict on each, and write a page.

    The exit code is 1 if an item could not be computed.
    """
    items = _find_items(names)
    config = StudyConfig(quick=quick, device=device, folder=data, runs=runs, seed=seed)

    try:
        with progress("Computing the paper") as step:
            results = compute_items(items, config, out, fresh=fresh, on_step=step)
    except KeyboardInterrupt:
        typer.echo(f"Stopped. Finished items are in {out}; run it again to resume.", err=True)
        # The exit code of shells for a program that Ctrl-C stopped: 128 plus the signal.
        raise typer.Exit(130) from None

    page_path = None
    if not no_page:
        page_path = _write_page(out)
    _print_results(results, page_path, out, as_json)


@app.command()
def page(
    out: OutOption = DEFAULT_OUT,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdicts as JSON.")] = False,
) -> None:
    """Draw the page of the results in a folder, without computing anything."""
    results = read_results(catalogue.ITEMS, out)
    if not results:
        raise InputError(
            f"No result in {out}: run python -m research.paper run all --quick --out {out}."
        )

    page_path = _write_page(out)
    _print_results(results, page_path, out, as_json)


def _find_items(names: Sequence[str]) -> list[Item]:
    """Return the items with these names, each once, or all items for the name "all"."""
    if "all" in names:
        if len(names) > 1:
            raise InputError(f"Cannot run {' '.join(names)} together: all stands alone.")
        return list(catalogue.ITEMS)

    # A name that is given twice is computed once.
    return [catalogue.find_item(name) for name in dict.fromkeys(names)]


def _write_page(out: Path) -> Path:
    with spinner("Drawing"):
        # Imports jinja2 and matplotlib, which machines that only compute may lack.
        from research.paper.page import write_page

        return write_page(catalogue.ITEMS, out)


def _print_results(
    results: Sequence[ItemResult], page_path: Path | None, out: Path, as_json: bool
) -> None:
    """Print results as JSON or as sentences; exit with 1 if an item failed."""
    if as_json:
        typer.echo(_format_results_as_json(results, page_path))
    else:
        for result in results:
            typer.echo(_describe_result(result))
        if page_path is None:
            typer.echo(f"Results: {out}; python -m research.paper page --out {out} draws them.")
        else:
            typer.echo(f"Claims, figures and verdicts: {page_path}")

    if any(result.error is not None for result in results):
        raise typer.Exit(1)


def _format_results_as_json(results: Sequence[ItemResult], page_path: Path | None) -> str:
    """Return results as JSON; an item that failed has an error instead of a verdict."""
    rows = []
    for result in results:
        row: dict[str, Any] = {
            "name": result.item.name,
            "verdict": None,
            "reason": None,
            "error": result.error,
            "facts": result.facts,
        }
        if result.measurement is not None:
            row["verdict"] = result.measurement.verdict
            row["reason"] = result.measurement.reason
        rows.append(row)

    page_name = None if page_path is None else str(page_path)
    return json.dumps({"page": page_name, "items": rows}, ensure_ascii=False, indent=2)


def _describe_result(result: ItemResult) -> str:
    if result.measurement is None:
        return f"{result.item.name} could not be computed: {result.error}"
    return f"{result.item.name}: {result.verdict}. {result.measurement.reason}"


if __name__ == "__main__":
    app(prog_name="python -m research.paper")
