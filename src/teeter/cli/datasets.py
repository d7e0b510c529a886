"""teeter datasets: what there is to learn from, and how to get it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from teeter.cli.output import progress

__all__ = ["datasets"]

datasets = typer.Typer(
    invoke_without_command=True, help="List the named datasets, or get one of them."
)

Folder = Annotated[
    Path | None,
    typer.Option("--folder", metavar="FOLDER", help="Look here, not in TEETER_DATA and the cache."),
]


@datasets.callback()
def listing(
    context: typer.Context,
    folder: Folder = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON instead of a table.")] = False,
) -> None:
    """List the named datasets: rows, classes, shape, and where each was found or how to get it."""
    if context.invoked_subcommand is not None:
        context.obj = folder
        return
    from teeter.datasets import names

    described = [_described(name, folder) for name in names()]
    if as_json:
        typer.echo(json.dumps(described, ensure_ascii=False, indent=2))
    else:
        _draw(described)


@datasets.command()
def get(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name that teeter datasets lists.")],
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Put it in a folder NAME here, not in TEETER_DATA or the cache."
        ),
    ] = None,
) -> None:
    """Fetch a dataset from where it is published, check it and unpack it."""
    from teeter.datasets.catalogue import find_spec
    from teeter.datasets.downloads import fetch_dataset
    from teeter.datasets.locate import download_folder

    find_spec(name)
    folder = context.obj if folder is None else folder
    with progress(f"Fetching {name}") as bar:
        fetched = fetch_dataset(
            name, folder=folder, progress=lambda _, done, whole: bar(done, whole or done)
        )
    for one in fetched:
        known = "as published" if one.checked else "none is published; the file could be read"
        typer.echo(f"{one.path.name}: MD5 {one.md5}, {known}.", err=True)
    if fetched:
        typer.echo(f"{name} is in {download_folder(name, folder)}.")
    else:
        typer.echo(f"{name} is there already: {_described(name, folder)['found']}.")


def _described(name: str, folder: Path | None) -> dict[str, Any]:
    from teeter.datasets.catalogue import find_spec
    from teeter.datasets.loading import locate_dataset
    from teeter.datasets.locate import download_folder
    from teeter.datasets.urls import ACCOUNTS
    from teeter.errors import PluginError

    try:
        entry = find_spec(name)
    except PluginError as error:  # a broken plugin must not hide the others
        nothing = dict.fromkeys(("train", "test", "classes", "found"))
        return {"name": name, "about": str(error), **nothing, "shape": [], "get": str(error)}
    found = locate_dataset(entry, folder)
    by_hand = (
        ACCOUNTS[name].format(home=download_folder(name, folder)) if name in ACCOUNTS else None
    )
    where = None if found is None else str(found.first) if found.files else str(entry.package)
    return {
        "name": name,
        "about": entry.about,
        "train": entry.train,
        "test": entry.test,
        "classes": entry.class_count,
        "shape": list(entry.shape),
        "found": where,
        "get": None if found is not None else by_hand or f"teeter datasets get {name}",
    }


def _draw(described: list[dict[str, Any]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(
        "name",
        "train",
        "test",
        "classes",
        "shape",
        "where it is, or how to get it",
        box=SIMPLE_HEAD,
    )
    for one in described:
        shape = " x ".join(map(str, one["shape"]))
        numbers = [
            "" if one[part] is None else f"{one[part]:,}" for part in ("train", "test", "classes")
        ]
        table.add_row(one["name"], *numbers, shape, one["found"] or one["get"])
    Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else 140).print(table)
