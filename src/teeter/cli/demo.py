"""teeter demo: compare strategies on handwritten digits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from teeter.cli.output import progress

if TYPE_CHECKING:
    from teeter.bench.demo import DemoResult

__all__ = ["demo"]


def demo(
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder for the page and its figures.")
    ] = Path("teeter-demo"),
    repetitions: Annotated[
        int, typer.Option(min=1, metavar="N", help="Number of repetitions per strategy.")
    ] = 5,
) -> None:
    """Compare strategies on handwritten digits, and show the picks on a page."""
    with progress("Learning digits", as_lines=True) as on_step:
        # Importing torch and matplotlib takes seconds: the progress bar is on by then.
        from teeter.bench.demo import DEMO_SETTING, run_demo
        from teeter.bench.experiments import override

        setting = override(DEMO_SETTING, {"repetitions": repetitions})
        result = run_demo(out, setting=setting, on_step=on_step)

    for sentence in _sentences(result):
        typer.echo(sentence)


def _sentences(result: DemoResult) -> list[str]:
    """Say how LDM-S compares with Random, and where the page is."""
    ldm_s = result.row("ldm-s")
    random = result.row("random")
    gain = ldm_s.gain
    if gain is None:
        return []

    test = f"p = {gain.p:.2g}"
    if result.repetitions == 1:
        test = "not tested, because a test needs two or more repetitions"

    # The accuracy at which Random ends: LDM-S should be there with fewer labels.
    target = f"Random's final accuracy of {random.last:.1%}"
    saving = f"LDM-S never reached {target}."
    if ldm_s.labels is not None:
        saving = (
            f"LDM-S reached {target} with {ldm_s.labels:.0f} labels instead of {result.labels}."
        )

    return [
        f"Averaged over the rounds, LDM-S classified {ldm_s.accuracy:.1%} of new digits "
        f"correctly and Random {random.accuracy:.1%} ({gain.mean:+.1f} points for LDM-S, {test}).",
        saving,
        f"Curves, a table and the digits that LDM-S picked: {result.page}",
    ]
