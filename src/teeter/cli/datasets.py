"""teeter datasets: list the named datasets and download them.

Nothing is downloaded unless ``teeter datasets get`` is run. Datasets that must be requested from
their authors are listed with instructions instead.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from teeter.cli.output import print_table, progress

__all__ = ["datasets"]

datasets = typer.Typer(
    invoke_without_command=True, help="List the named datasets, or download one of them."
)

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
    """List the named datasets with their size, and where each was found or how to get it."""
    if context.invoked_subcommand is not None:
        # `teeter datasets --folder FOLDER get NAME` hands the folder on to `get`.
        context.obj = folder
        return

    from teeter.bench.datasets import names

    descriptions = [_describe(name, folder) for name in names()]
    if as_json:
        typer.echo(json.dumps(descriptions, ensure_ascii=False, indent=2))
        return

    header = ["name", "train", "test", "classes", "shape", "where it is, or how to get it"]
    rows = [_table_row(description) for description in descriptions]
    print_table(header, rows, has_sentences=True)


@datasets.command()
def get(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of a dataset, as listed by teeter datasets.")
    ],
    folder: TargetFolder = None,
) -> None:
    """Download a dataset from its publisher, check it and unpack it.

    \b
    Examples:
      teeter datasets get mnist
    """
    from teeter.bench.datasets.catalogue import find_spec
    from teeter.bench.datasets.downloads import fetch_dataset
    from teeter.bench.datasets.locate import download_folder

    # A wrong name is reported before the progress bar appears.
    find_spec(name)

    # The option may stand before or after ``get``.
    if folder is None:
        folder = context.obj

    with progress(f"Downloading {name}") as update:

        def on_progress(_: str, received: int, total: int) -> None:
            update(received, total or received)  # 0: the server does not tell the size

        downloads = fetch_dataset(name, folder=folder, progress=on_progress)

    for download in downloads:
        if download.checked:
            verdict = "as published"
        else:
            verdict = "no checksum is published; the file can be read"
        file_name = download.path.name
        typer.echo(f"{file_name}: MD5 {download.md5}, {verdict}.", err=True)

    if downloads:
        typer.echo(f"{name} is in {download_folder(name, folder)}.")
    else:
        location = _describe(name, folder)["found"]
        typer.echo(f"{name} is already available: {location}.")


def _describe(name: str, folder: Path | None) -> dict[str, Any]:
    """Return a dataset's entry in the list. Its keys are those of the JSON output."""
    from teeter.bench.datasets.catalogue import find_spec, locate_dataset
    from teeter.bench.datasets.downloads import MANUAL_DOWNLOADS
    from teeter.bench.datasets.locate import download_folder
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

    # Found in files, or in a package, or not found and there is a way to get it.
    located = locate_dataset(spec, folder)
    source = None
    advice = None
    if located is None:
        advice = f"teeter datasets get {name}"
        if name in MANUAL_DOWNLOADS:
            home = download_folder(name, folder)
            advice = MANUAL_DOWNLOADS[name].format(home=home)
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


def _table_row(description: dict[str, Any]) -> list[str]:
    """Return the cells of a dataset. Numbers of a plugin that cannot be loaded stay empty."""
    row = [description["name"]]
    for key in ("train", "test", "classes"):
        number = description[key]
        row.append("" if number is None else f"{number:,}")

    lengths = [str(length) for length in description["shape"]]
    row.append(" x ".join(lengths))
    row.append(description["found"] or description["get"])
    return row
