"""The command line: one file per command group; each command calls the library."""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated

import typer

from teeter.base.version import __version__
from teeter.cli.audit import audit
from teeter.cli.bench import bench
from teeter.cli.campaign import campaign, status
from teeter.cli.export import export, export_model, finish, predict
from teeter.cli.installation import doctor, encoders, strategies
from teeter.cli.integrations import sources, suggest, sync
from teeter.cli.output import Commands, Panel
from teeter.cli.select import select
from teeter.cli.serve import serve, try_sample
from teeter.cli.team import agreement, people

__all__ = ["app", "main", "wait_passively"]

app = typer.Typer(
    cls=Commands,
    name="teeter",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

campaign.command(rich_help_panel=Panel.TEAM)(people)
campaign.command(rich_help_panel=Panel.TEAM)(agreement)
campaign.command(rich_help_panel=Panel.SUGGESTIONS)(suggest)
campaign.command(rich_help_panel=Panel.SUGGESTIONS)(sources)
campaign.command(rich_help_panel=Panel.SUGGESTIONS)(sync)
campaign.command(rich_help_panel=Panel.RESULTS)(finish)
campaign.command("model", rich_help_panel=Panel.RESULTS)(export_model)

app.command("try", rich_help_panel=Panel.START)(try_sample)
app.command(rich_help_panel=Panel.START)(serve)
app.command(rich_help_panel=Panel.START)(audit)
app.command(rich_help_panel=Panel.START)(status)
app.command(rich_help_panel=Panel.START)(export)
app.command(rich_help_panel=Panel.START)(predict)
app.add_typer(campaign, name="campaign", rich_help_panel=Panel.MORE)
app.add_typer(bench, name="bench", rich_help_panel=Panel.MORE)
app.command(rich_help_panel=Panel.MORE)(select)
app.command(rich_help_panel=Panel.MORE)(strategies)
app.command(rich_help_panel=Panel.MORE)(encoders)
app.command(rich_help_panel=Panel.MORE)(doctor)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"teeter {__version__}")
        raise typer.Exit


@app.callback()
def teeter(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,  # before the check that a command is given
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    """Label texts and images, a few at a time: a model picks what to label next.

    New here? Run teeter try.
    """


# Numerical libraries read these when they are loaded, which no command has done yet.
_PASSIVE_WAITING = {
    "OMP_WAIT_POLICY": "PASSIVE",  # OpenMP: torch, scikit-learn
    "OPENBLAS_THREAD_TIMEOUT": "4",  # OpenBLAS: NumPy, SciPy; the lowest it takes
}


def wait_passively() -> None:
    """Let threads that wait for each other sleep, unless the environment says otherwise.

    By default they spin. If another program uses a core, a spinning thread takes turns with the
    very thread that it waits for, and two threads are slower than one. The server of a page in a
    notebook calls this, too.
    """
    for name, value in _PASSIVE_WAITING.items():
        os.environ.setdefault(name, value)


def main() -> None:
    """Run the command line."""
    wait_passively()
    for stream in (sys.stdout, sys.stderr):
        # Item ids and class names come in any script, and a Windows console may not.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")

    # Without a name, ``python -m teeter`` would call itself __main__.py in its help.
    app(prog_name="teeter")
