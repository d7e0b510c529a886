"""teeter demo: see it work on handwritten digits."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from teeter.cli.output import progress

if TYPE_CHECKING:
    from teeter.demo import Demo

__all__ = ["demo"]


def demo(
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where the page and its pictures go.")
    ] = Path("teeter-demo"),
    repetitions: Annotated[
        int, typer.Option(min=1, metavar="N", help="Runs of each strategy.")
    ] = 5,
) -> None:
    """Compare strategies on handwritten digits, and show the picks on a page."""
    with progress("Learning digits") as step:
        from teeter.demo import run_demo

        found = run_demo(
            out, repetitions=repetitions, workers=min(2, os.cpu_count() or 1), on_step=step
        )
    for sentence in _sentences(found):
        typer.echo(sentence)


def _sentences(found: Demo) -> list[str]:
    ldm_s, random = (
        next(line for line in found.lines if line.strategy == name) for name in ("ldm-s", "random")
    )
    if ldm_s.gain is None:
        return []
    saved = (
        "never"
        if ldm_s.labels is None
        else f"with {ldm_s.labels:.0f} labels instead of {found.labels}"
    )
    return [
        f"LDM-S was right on {ldm_s.accuracy:.1%} of new digits over the rounds, Random on {random.accuracy:.1%} "
        f"({ldm_s.gain.mean:+.1f} points, p = {ldm_s.gain.p:.2g}).",
        f"It came to Random's last accuracy of {random.last:.1%} {saved}.",
        f"Curves, table and the digits it asked about: {found.page}",
    ]
