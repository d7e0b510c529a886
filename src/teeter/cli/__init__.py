"""The command line: one file per command group; each command calls the library."""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated

import typer

from teeter.base.version import __version__
from teeter.cli.bench import bench, datasets, demo
from teeter.cli.campaign import campaign
from teeter.cli.diagnosis import doctor
from teeter.cli.errors import Commands
from teeter.cli.finish import finish
from teeter.cli.integrations import sync, webhook
from teeter.cli.items import change, put_back, rename_class, withdraw
from teeter.cli.listings import encoders, strategies
from teeter.cli.output import Panel
from teeter.cli.predict import export_model, predict_with_campaign, predict_with_model
from teeter.cli.select import select
from teeter.cli.serve import serve, try_sample
from teeter.cli.suggestions import describe, predictions, sources, suggest
from teeter.cli.team import agreement, decide, people

__all__ = ["app", "main"]

app = typer.Typer(
    cls=Commands,
    name="teeter",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

campaign.add_typer(people, name="people", rich_help_panel=Panel.TEAM)
campaign.add_typer(webhook, name="webhook", rich_help_panel=Panel.TEAM)
campaign.command(rich_help_panel=Panel.LABEL)(change)
campaign.command(rich_help_panel=Panel.LABEL)(withdraw)
campaign.command("put-back", rich_help_panel=Panel.LABEL)(put_back)
campaign.command("rename-class", rich_help_panel=Panel.LABEL)(rename_class)
campaign.command(rich_help_panel=Panel.TEAM)(decide)
campaign.command(rich_help_panel=Panel.TEAM)(agreement)
campaign.command(rich_help_panel=Panel.TEAM)(sync)
campaign.command(rich_help_panel=Panel.SUGGESTIONS)(describe)
campaign.command(rich_help_panel=Panel.SUGGESTIONS)(predictions)
campaign.command(rich_help_panel=Panel.SUGGESTIONS)(suggest)
campaign.command(rich_help_panel=Panel.SUGGESTIONS)(sources)
campaign.command(rich_help_panel=Panel.FILES)(finish)
campaign.command("predict", rich_help_panel=Panel.FILES)(predict_with_campaign)
campaign.command("model", rich_help_panel=Panel.FILES)(export_model)

app.command("try", rich_help_panel=Panel.START)(try_sample)
app.command(rich_help_panel=Panel.START)(doctor)
app.add_typer(campaign, name="campaign", rich_help_panel=Panel.LABEL)
app.command(rich_help_panel=Panel.LABEL)(serve)
app.command(rich_help_panel=Panel.LABEL)(select)
app.command("predict", rich_help_panel=Panel.LABEL)(predict_with_model)
app.command(rich_help_panel=Panel.LABEL)(encoders)
app.add_typer(bench, name="bench", rich_help_panel=Panel.RESEARCH)
app.add_typer(datasets, name="datasets", rich_help_panel=Panel.RESEARCH)
app.command(rich_help_panel=Panel.RESEARCH)(strategies)
app.command(rich_help_panel=Panel.RESEARCH)(demo)


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


def _wait_passively() -> None:
    """Let threads that wait for each other sleep, unless the environment says otherwise.

    By default they spin. If another program uses a core, a spinning thread takes turns with the
    very thread that it waits for, and two threads are slower than one.
    """
    for name, value in _PASSIVE_WAITING.items():
        os.environ.setdefault(name, value)


def main() -> None:
    """Run the command line."""
    _wait_passively()
    for stream in (sys.stdout, sys.stderr):
        # Item ids and class names come in any script, and a Windows console may not.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")

    # Without a name, ``python -m teeter`` would call itself __main__.py in its help.
    app(prog_name="teeter")
