"""teeter try: label a sample project in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from teeter.cli.output import progress, spinner
from teeter.cli.serve import (
    OpenOption,
    PortOption,
    require_web_packages,
    serve_on_this_machine,
)

__all__ = ["try_sample"]

SampleArgument = Annotated[
    str,
    typer.Argument(metavar="SAMPLE", help="The sample to show first: texts or images."),
]
FolderOption = Annotated[
    Path, typer.Option(metavar="FOLDER", help="Folder for the sample campaigns.")
]
FreshOption = Annotated[
    bool, typer.Option("--fresh", help="Remove earlier sample campaigns, and start again.")
]


def try_sample(
    sample: SampleArgument = "texts",
    *,
    folder: FolderOption = Path("teeter-try"),
    fresh: FreshOption = False,
    port: PortOption = None,
    open_page: OpenOption = None,
) -> None:
    """Try labelling with a sample project: real data, some of it labelled, and a trained model.

    The samples are 480 questions from a bank's customers and 360 photographs of clothes. They come
    with teeter, so nothing is downloaded, and all data stays on this machine. Run the same command
    again to continue, and delete the folder when you are done. The page needs pip install
    'teeter[label]'.

    \b
    Examples:
      teeter try
      teeter try images --fresh
    """
    # Before anything is loaded or written, so that a missing extra is reported at once.
    require_web_packages()

    with spinner("Loading"):  # importing torch takes seconds
        from teeter.samples import SAMPLES, find_sample, make_sample, remove_sample, sample_file

    shown_first = find_sample(sample)

    # Both samples share the folder, and each is a campaign of its own.
    if fresh:
        for entry in SAMPLES:
            remove_sample(entry, folder)

    # Only the one that is asked for is built: the browser opens two seconds earlier.
    if not sample_file(shown_first, folder).exists():
        with progress(f"Preparing {shown_first.title}") as on_step:
            make_sample(shown_first, folder, on_step=on_step)
        typer.echo(f"Created a sample campaign in {folder}. Delete the folder when you are done.")

    # The other sample is served too if it was built by an earlier call.
    files = [sample_file(entry, folder) for entry in SAMPLES]
    serve_on_this_machine(
        [file for file in files if file.exists()],
        folder=folder,
        port=port,
        open_page=open_page,
        path=f"c/{shown_first.title}",
    )
