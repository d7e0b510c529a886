"""teeter bench: strategies compared on the paper's settings, and on yours."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from teeter.cli.errors import Commands
from teeter.cli.output import progress, spinner
from teeter.cli.report import report
from teeter.errors import FileError, InputError

if TYPE_CHECKING:
    from teeter.experiments.results import Run
    from teeter.experiments.settings import Setting

__all__ = ["bench"]

bench = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    help="Compare strategies on the paper's settings.",
    rich_markup_mode=None,
)
bench.command()(report)


@bench.command()
def run(
    setting: Annotated[
        str,
        typer.Argument(
            metavar="SETTING", help="A name from teeter bench settings, or a .toml file."
        ),
    ],
    *,
    strategies: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="With commas between them; the setting's own if left out. New names are added to a run.",
        ),
    ] = None,
    repetitions: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Runs of each strategy; the setting's own if left out."
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="Stop after so many rounds; the same command goes on later."
        ),
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Another value than the setting's, such as epochs=20. May be repeated.",
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="cpu or cuda; a GPU if there is one and this is left out."
        ),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Threads that torch uses on a CPU.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where datasets are; else TEETER_DATA or the cache."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where rounds are recorded; runs/SETTING if left out."),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="local or ray: groups of networks that train together, each by a worker.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Workers of the engine; as many as there are cores if left out.",
        ),
    ] = None,
    track: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND:PLACE",
            help="Tell rounds to csv:FILE, jsonl:FILE or tensorboard:FOLDER as well. May be repeated.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Say in JSON what there is in the end.")
    ] = False,
) -> None:
    """Run a setting; started again with the same words, it goes on where it was stopped."""
    from teeter.experiments.settings import override

    chosen = override(_setting(setting), dict(map(_pair, change or [])))
    names = (
        None
        if strategies is None
        else [name.strip() for name in strategies.split(",") if name.strip()]
    )
    folder = out or Path("runs") / chosen.name
    with progress(chosen.name) as step:
        import torch

        from teeter.distributed.executors import make_executor
        from teeter.experiments.runner import run_setting
        from teeter.experiments.tracking import make_tracker

        if threads is not None:
            torch.set_num_threads(threads)
        try:
            found = run_setting(
                chosen,
                folder,
                strategies=names,
                repetitions=repetitions,
                rounds=rounds,
                device=device,
                folder=data,
                executor=None if engine is None else make_executor(engine, workers),
                trackers=[make_tracker(one) for one in track or []],
                on_step=step,
            )
        except KeyboardInterrupt:
            typer.echo(f"Stopped. What is done is in {folder}; the same command goes on.", err=True)
            raise typer.Exit(130) from None
    typer.echo(json.dumps(_summary(found), indent=2) if as_json else "\n".join(_sentences(found)))
    if found.failures:
        raise typer.Exit(1)


@bench.command("settings")
def list_settings(
    as_json: Annotated[bool, typer.Option("--json", help="Write all values as JSON.")] = False,
) -> None:
    """List the settings that can be run."""
    from teeter.experiments.settings import setting_named, setting_names
    from teeter.models.network_registry import network_names

    found = [setting_named(name) for name in setting_names()]
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in found], indent=2))
        return
    width = max(len(one.name) for one in found)
    for one in found:
        typer.echo(f"{one.name:{width}}  {_in_words(one)}")
    typer.echo(
        f"Other networks and datasets by --set: network={'|'.join(network_names())}; see teeter datasets."
    )


@bench.command()
def rounds(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="A folder that teeter bench run has written.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A .csv or .parquet file; CSV to the screen if left out."
        ),
    ] = None,
) -> None:
    """Write all rounds of a run, with their picks, as one table."""
    with spinner("Reading"):
        from teeter.analysis.export import rounds_to_csv, write_rounds
        from teeter.experiments.results import read_run

        found = read_run(run)
        if out is not None:
            write_rounds(found, out)
    if out is None:
        typer.echo(rounds_to_csv(found), nl=False)


def _setting(name: str) -> Setting:
    from teeter.experiments.settings import read_setting, setting_named

    path = Path(name)
    if path.suffix == ".toml":
        return read_setting(path)
    if path.suffix and path.exists():
        raise FileError(
            f"{path} is not a setting: give a name from teeter bench settings, or a .toml file."
        )
    return setting_named(name)


def _pair(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise InputError(f"--set {text} is not KEY=VALUE: write --set epochs=20, say.")
    return key.strip().replace("-", "_"), value.strip()


def _in_words(one: Setting) -> str:
    of_the_paper = (
        ", as in the paper" if one.paper else ", smaller than the paper's" if one.quick else ""
    )
    long_tail = f", long-tailed ({one.imbalance:g} to 1)" if one.imbalance > 1 else ""
    return (
        f"{one.network} on {one.dataset}: {one.initial:,} to {one.final:,} labels by {one.query:,}, "
        f"{one.repetitions} repetitions of {len(one.strategies)} strategies{of_the_paper}{long_tail}"
    )


def _summary(found: Run) -> dict[str, object]:
    return {
        "folder": str(found.folder),
        "setting": found.setting.name,
        "finished": found.finished,
        "rounds": len(found.rounds),
        "failures": [
            {"strategy": cell[0], "repetition": cell[1], "error": told}
            for cell, told in found.failures.items()
        ],
    }


def _sentences(found: Run) -> list[str]:
    lines = [
        f"{cell[0]}, repetition {cell[1]}, failed: {told.rstrip('.')}. The same command tries again."
        for cell, told in found.failures.items()
    ]
    curves = found.curves()
    if len(curves.labelled) > 1:
        means = {name: float(runs[:, 1:].mean()) for name, runs in curves.accuracy.items()}
        best = sorted(means, key=lambda name: -means[name])
        lines += ["Mean accuracy: " + ", ".join(f"{name} {means[name]:.1%}" for name in best) + "."]
    state = "All rounds are" if found.finished else "What is done is"
    return [*lines, f"{state} in {found.folder}; teeter bench report {found.folder} compares them."]
