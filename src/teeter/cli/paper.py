"""teeter paper: every figure, table and claim of the paper, computed, judged and drawn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from teeter.cli.output import progress, spinner
from teeter.errors import InputError

if TYPE_CHECKING:
    from teeter.studies.items import Item
    from teeter.studies.paper import Found

__all__ = ["paper"]


def paper(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ITEM...]",
            help="Names from the list; all for every item, page to draw what is there.",
        ),
    ] = None,
    *,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Within a minute an item, on data that comes with scikit-learn; else on the benchmark's datasets.",
        ),
    ] = False,
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where results and the page go.")
    ] = Path("teeter-paper"),
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Same seed, same draws.")] = 0,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="cpu or cuda; a GPU if there is one and this is left out."
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where datasets are; else TEETER_DATA or the cache."),
    ] = None,
    runs: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER", help="Where the benchmark's runs are, each called after its setting."
        ),
    ] = Path("runs"),
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Compute what is there already once more.")
    ] = False,
    no_page: Annotated[
        bool,
        typer.Option(
            "--no-page", help="Compute only; teeter paper page draws later, here or elsewhere."
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write the list or the verdicts as JSON.")
    ] = False,
) -> None:
    """List the paper's items, or compute some: a verdict on each, and a page."""
    if not names:
        _list_items(as_json)
        return
    from teeter.studies.items import Scale
    from teeter.studies.paper import ITEMS, compute_items, read_found

    if names == ["page"]:
        found = [one for item in ITEMS if (one := read_found(item, out)) is not None]
    else:
        chosen = _chosen(names)
        scale = Scale(quick=quick, device=device, folder=data, runs=runs, seed=seed)
        try:
            with progress("Computing the paper") as step:
                found = compute_items(chosen, scale, out, fresh=fresh, on_step=step)
        except KeyboardInterrupt:
            typer.echo(f"Stopped. What is done is in {out}; the same command goes on.", err=True)
            raise typer.Exit(130) from None
    page = None if no_page else _page(out)
    typer.echo(_as_json(found, page) if as_json else "\n".join(_sentences(found, page, out)))
    if any(one.error is not None for one in found):
        raise typer.Exit(1)


def _chosen(names: list[str]) -> list[Item]:
    from teeter.studies.paper import ITEMS, item_named

    if "all" in names or "page" in names:
        if len(names) > 1:
            raise InputError(f"Cannot take {' '.join(names)} together: all and page stand alone.")
        return list(ITEMS)
    return [item_named(name) for name in dict.fromkeys(names)]


def _page(out: Path) -> Path:
    with spinner("Drawing"):
        from teeter.studies.paper import ITEMS
        from teeter.studies.paper_page import write_page

        return write_page(ITEMS, out)


def _list_items(as_json: bool) -> None:
    from teeter.studies.paper import ITEMS

    if as_json:
        told = [
            {
                "name": one.name,
                "title": one.title,
                "where": one.where,
                "claim": one.claim,
                "test": one.test,
            }
            for one in ITEMS
        ]
        typer.echo(json.dumps(told, ensure_ascii=False, indent=2))
        return
    width = max(len(one.name) for one in ITEMS)
    for one in ITEMS:
        typer.echo(f"{one.name:{width}}  {one.title} ({one.where})")


def _as_json(found: list[Found], page: Path | None) -> str:
    told = {
        "page": None if page is None else str(page),
        "items": [
            {
                "name": one.item.name,
                "verdict": None if one.measured is None else one.measured.verdict,
                "reason": None if one.measured is None else one.measured.reason,
                "error": one.error,
                "facts": one.facts,
            }
            for one in found
        ],
    }
    return json.dumps(told, ensure_ascii=False, indent=2)


def _sentences(found: list[Found], page: Path | None, out: Path) -> list[str]:
    lines = [
        f"{one.item.name}: {one.measured.verdict}. {one.measured.reason}"
        if one.measured is not None
        else f"{one.item.name} could not be computed: {one.error}"
        for one in found
    ]
    end = (
        f"Claims, pictures and verdicts: {page}"
        if page
        else f"Results: {out}; teeter paper page --out {out} draws them."
    )
    return [*lines, end]
