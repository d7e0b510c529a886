"""teeter bench: compare strategies on the paper's settings, or on your own.

A run is recorded round by round in a folder. Whatever stops it, the same command resumes it, and
finished rounds are never computed twice.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from teeter.cli.errors import Commands
from teeter.cli.options import DeviceOption, JsonOption
from teeter.cli.output import progress, spinner
from teeter.cli.report import report
from teeter.errors import FileError, InputError

if TYPE_CHECKING:
    from teeter.bench.experiments import Run, Setting

__all__ = ["bench"]

_INTERRUPTED = 130
"""The exit code of a command that Ctrl-C has stopped: 128 + SIGINT."""

bench = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    help="Compare strategies on the paper's settings.",
    rich_markup_mode=None,
)
bench.command()(report)

SettingArgument = Annotated[
    str,
    typer.Argument(
        metavar="SETTING", help="Name of a setting (see teeter bench settings), or a .toml file."
    ),
]
StrategiesOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="Comma-separated strategy names. Default: the strategies of the setting. If the run "
        "already exists, new strategies are added to it.",
    ),
]
RepetitionsOption = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="Number of repetitions per strategy. Default: as in the setting."
    ),
]
RoundsOption = Annotated[
    int | None,
    typer.Option(
        min=0,
        metavar="N",
        help="Stop after N rounds. To continue, run the command again without --rounds.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a value of the setting, such as epochs=20. May be repeated.",
    ),
]
ThreadsOption = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Number of CPU threads for torch.")
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Folder that holds the datasets. Default: TEETER_DATA if set, otherwise the cache.",
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Folder to record the run in. Default: runs/SETTING."),
]
EngineOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Train in several workers: local for processes on this machine, ray for a cluster.",
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Number of engine workers. Default: one per core."),
]
TrackOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KIND:TARGET",
        help="Also send each round to a tracker, such as tensorboard:FOLDER. May be repeated.",
    ),
]


@bench.command()
def run(
    setting: SettingArgument,
    *,
    strategies: StrategiesOption = None,
    repetitions: RepetitionsOption = None,
    rounds: RoundsOption = None,
    change: SetOption = None,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    data: DataOption = None,
    out: OutOption = None,
    engine: EngineOption = None,
    workers: WorkersOption = None,
    track: TrackOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run the experiment that a setting describes.

    To continue an interrupted run, repeat its command.

    \b
    Examples:
      teeter bench run mnist --strategies ldm-s,margin,random --repetitions 3
      teeter bench run mine.toml --set epochs=20 --engine local
    """
    with progress(setting) as on_step:
        # Importing torch takes seconds: the progress bar is on by then.
        import torch

        from teeter.bench.experiments import make_tracker, override, run_setting
        from teeter.selection.executors import make_executor

        changes = dict(_parse_change(text) for text in change or [])
        # A run folder is known by its setting: the same command finds it and continues.
        chosen = override(_find_setting(setting), changes)
        folder = out or Path("runs") / chosen.name

        # Without an engine the groups run one after the other, in this process.
        executor = None
        if engine is not None:
            executor = make_executor(engine, workers)
        if threads is not None:
            torch.set_num_threads(threads)

        try:
            result = run_setting(
                chosen,
                folder,
                strategies=_split_names(strategies),
                repetitions=repetitions,
                rounds=rounds,
                device=device,
                folder=data,
                executor=executor,
                trackers=[make_tracker(text) for text in track or []],
                on_step=on_step,
            )
        except KeyboardInterrupt:
            typer.echo(
                f"Stopped. The finished rounds are in {folder}. Repeat the command to continue.",
                err=True,
            )
            raise typer.Exit(_INTERRUPTED) from None

    if as_json:
        typer.echo(json.dumps(_summary(result), indent=2))
    else:
        for sentence in _sentences(result):
            typer.echo(sentence)

    # Other strategies ran on, so their rounds are there. A script must still notice.
    if result.failures:
        raise typer.Exit(1)


@bench.command("settings")
def list_settings(
    as_json: Annotated[bool, typer.Option("--json", help="Print all values as JSON.")] = False,
) -> None:
    """List the settings that teeter bench run accepts."""
    from teeter.bench.experiments import setting_named, setting_names
    from teeter.models.networks import network_names

    settings = [setting_named(name) for name in setting_names()]
    if as_json:
        values = [asdict(setting) for setting in settings]
        typer.echo(json.dumps(values, indent=2))
        return

    width = max(len(setting.name) for setting in settings)
    for setting in settings:
        name = setting.name.ljust(width)
        typer.echo(f"{name}  {_describe(setting)}")

    networks = "|".join(network_names())
    typer.echo(
        f"To change the network or the dataset, use --set network={networks} or --set "
        f"dataset=NAME (see teeter datasets)."
    )


@bench.command()
def rounds(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="Run folder written by teeter bench run.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A .csv or .parquet file to write. Without it, CSV is printed to standard output.",
        ),
    ] = None,
) -> None:
    """Write all rounds of a run, with their picks, as one table."""
    with spinner("Reading"):
        from teeter.bench.analysis.table_formats import rounds_to_csv, write_rounds
        from teeter.bench.experiments import read_run

        result = read_run(run)
        if out is not None:
            write_rounds(result, out)

    # After the spinner, which would share the terminal with the table.
    if out is None:
        typer.echo(rounds_to_csv(result), nl=False)


def _find_setting(name: str) -> Setting:
    """Return a named setting, or the one in a .toml file.

    Raises:
        FileError: if it is a file of another kind, or cannot be read.
        UnknownNameError: if no setting has this name.
    """
    from teeter.bench.experiments import read_setting, setting_named

    path = Path(name)
    if path.suffix == ".toml":
        return read_setting(path)

    # A file of another kind would only give the error that no setting has this name.
    if path.suffix and path.exists():
        raise FileError(
            f"{path} is not a setting: give a name that 'teeter bench settings' lists, or a .toml "
            f"file."
        )
    return setting_named(name)


def _parse_change(text: str) -> tuple[str, str]:
    """Return the name of a setting's value and its new value, as text: ``override`` parses it."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InputError(f"--set {text} is not KEY=VALUE: write --set epochs=20, for example.")

    # batch-size is how an option would be spelt.
    name = key.strip().replace("-", "_")
    return name, value.strip()


def _split_names(text: str | None) -> list[str] | None:
    """Return comma-separated names, or None for the default.

    Example:
        >>> _split_names("ldm-s, random,")
        ['ldm-s', 'random']
    """
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    return [name for name in names if name]


def _describe(setting: Setting) -> str:
    """Return a setting in one line."""
    notes = ""
    if setting.paper:
        notes += ", as in the paper"
    elif setting.quick:
        notes += ", smaller than the paper's"
    if setting.imbalance > 1:
        notes += f", long-tailed ({setting.imbalance:g} to 1)"

    labels = f"{setting.initial:,} to {setting.final:,} labels in steps of {setting.query:,}"
    runs = f"{setting.repetitions} repetitions of {len(setting.strategies)} strategies"
    return f"{setting.network} on {setting.dataset}: {labels}, {runs}{notes}"


def _summary(run: Run) -> dict[str, object]:
    """Return what a run came to, as --json prints it. Scripts read these keys."""
    failures = []
    for cell, error in run.failures.items():
        failure = {
            "strategy": cell.strategy,
            "repetition": cell.repetition,
            "error": error,
        }
        failures.append(failure)

    return {
        "folder": str(run.folder),
        "setting": run.setting.name,
        "finished": run.finished,
        "shortened": run.is_shortened,
        "rounds": len(run.rounds),
        "failures": failures,
    }


def _sentences(run: Run) -> list[str]:
    """Return what a run came to: its failures, the mean accuracies, and where it is."""
    sentences = []
    for cell, error in run.failures.items():
        reason = error.rstrip(".")
        sentences.append(
            f"{cell.strategy}, repetition {cell.repetition}, failed: {reason}. "
            "Repeat the command to try again."
        )

    # The first round is the same for all strategies, so it does not count.
    curves = run.curves()
    if len(curves.labelled) > 1:
        means = {}
        # Repetitions are rows, rounds are columns.
        for name, accuracy in curves.accuracy.items():
            later_rounds = accuracy[:, 1:]
            means[name] = float(later_rounds.mean())

        ranking = sorted(means, key=lambda name: -means[name])
        accuracies = [f"{name} {means[name]:.1%}" for name in ranking]
        sentences.append(f"Mean accuracy: {', '.join(accuracies)}.")

    recorded = "The finished rounds are"
    if run.finished and run.is_shortened:
        recorded = f"Rounds 0 to {run.last_round} of {run.setting.rounds} are"
    elif run.finished:
        recorded = "All rounds are"
    advice = f"to compare the strategies, run teeter bench report {run.folder}"
    sentences.append(f"{recorded} in {run.folder}; {advice}.")
    return sentences
