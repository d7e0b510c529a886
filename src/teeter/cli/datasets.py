"""teeter datasets: list the named datasets and download them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from teeter.cli.output import progress

__all__ = ["datasets"]

datasets = typer.Typer(
    invoke_without_command=True, help="List the named datasets, or download one of them."
)

# The width of the table if it is not printed to a terminal.
_TABLE_WIDTH = 140

SearchFolder = Annotated[
    Path | None,
    typer.Option(
        "--folder",
        metavar="FOLDER",
        help="Search this folder instead of TEETER_DATA and the cache.",
    ),
]
TargetFolder = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Create the folder NAME here instead of in TEETER_DATA or the cache.",
    ),
]


@datasets.callback()
def list_datasets(
    context: typer.Context,
    folder: SearchFolder = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the named datasets: rows, classes, shape, and where each was found or how to get it."""
    if context.invoked_subcommand is not None:
        # `teeter datasets --folder FOLDER get NAME` hands the folder on to `get`.
        context.obj = folder
        return

    from teeter.datasets import names

    descriptions = [_describe(name, folder) for name in names()]
    if as_json:
        typer.echo(json.dumps(descriptions, ensure_ascii=False, indent=2))
    else:
        _print_table(descriptions)


@datasets.command()
def get(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A name from the list of teeter datasets.")
    ],
    folder: TargetFolder = None,
) -> None:
    """Download a dataset from where it is published, check it and unpack it."""
    from teeter.datasets.catalogue import find_spec
    from teeter.datasets.downloads import fetch_dataset
    from teeter.datasets.locate import download_folder

    # A wrong name is reported before the progress bar appears.
    find_spec(name)

    if folder is None:
        folder = context.obj

    with progress(f"Downloading {name}") as update:
        downloads = fetch_dataset(
            name,
            folder=folder,
            progress=lambda _, received, total: update(received, total or received),
        )

    for download in downloads:
        if download.checked:
            verdict = "as published"
        else:
            verdict = "no checksum is published; the file can be read"
        typer.echo(f"{download.path.name}: MD5 {download.md5}, {verdict}.", err=True)

    if downloads:
        typer.echo(f"{name} is in {download_folder(name, folder)}.")
    else:
        typer.echo(f"{name} is already there: {_describe(name, folder)['found']}.")


def _describe(name: str, folder: Path | None) -> dict[str, Any]:
    """Return a dataset's entry in the list. Its keys are those of the JSON output."""
    from teeter.datasets.catalogue import find_spec
    from teeter.datasets.loading import locate_dataset
    from teeter.datasets.locate import download_folder
    from teeter.datasets.urls import MANUAL_DOWNLOADS
    from teeter.errors import PluginError

    try:
        spec = find_spec(name)
    except PluginError as error:
        # A broken plugin must not hide the other datasets.
        return {
            "name": name,
            "about": str(error),
            "train": None,
            "test": None,
            "classes": None,
            "found": None,
            "shape": [],
            "get": str(error),
        }

    located = locate_dataset(spec, folder)
    source = None
    advice = None
    if located is None:
        advice = f"teeter datasets get {name}"
        if name in MANUAL_DOWNLOADS:
            advice = MANUAL_DOWNLOADS[name].format(home=download_folder(name, folder))
    elif located.files:
        source = str(located.first)
    else:
        source = str(spec.package)

    return {
        "name": name,
        "about": spec.about,
        "train": spec.train,
        "test": spec.test,
        "classes": spec.class_count,
        "shape": list(spec.shape),
        "found": source,
        "get": advice,
    }


def _print_table(descriptions: list[dict[str, Any]]) -> None:
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
    for entry in descriptions:
        numbers = []
        for key in ("train", "test", "classes"):
            number = entry[key]
            numbers.append("" if number is None else f"{number:,}")

        shape = " x ".join(str(length) for length in entry["shape"])
        table.add_row(entry["name"], *numbers, shape, entry["found"] or entry["get"])

    width = None if sys.stdout.isatty() else _TABLE_WIDTH
    Console(markup=False, highlight=False, width=width).print(table)
