"""``teeter bench``: run experiments, report on them, and fetch the datasets."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from teeter.cli.output import (
    Commands,
    DeviceOption,
    echo_json,
    parse_option,
    print_table,
    progress,
    spinner,
    split_names,
    split_pair,
)
from teeter.errors import FileError

if TYPE_CHECKING:
    from teeter.bench.analysis.run_comparison import RunComparison
    from teeter.bench.experiments import Run, Setting


_INTERRUPTED = 130
"""The exit code of a command that Ctrl-C has stopped: 128 + SIGINT."""

_DEMO_FOLDER = Path("teeter-demo")

bench = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    help="Compare strategies in experiments: on digits, or on the settings of the paper.",
    rich_markup_mode=None,
)

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
        help="Change a value of the setting, such as epochs=20, or an option of a strategy, such "
        "as options.ldm-s.rays=64. May be repeated.",
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
        help="Also send each round to a tracker: tensorboard:FOLDER, mlflow:URI, wandb:PROJECT, or "
        "one of a plugin. May be repeated.",
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
    out: OutOption = None,
    engine: EngineOption = None,
    workers: WorkersOption = None,
    track: TrackOption = None,
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
        from teeter.bench.experiments import make_tracker, override, run_setting
        from teeter.selection.executors import make_executor

        # A run folder is known by its setting: the same command finds it and continues.
        named = _find_setting(setting)
        chosen = override(named, _parse_changes(change or [], named))
        folder = out or Path("runs") / chosen.name

        names = None
        if strategies is not None:
            names = [name for name in split_names(strategies) if name]

        # Without an engine the groups run one after the other, in this process.
        executor = None
        if engine is not None:
            executor = make_executor(engine, workers)

        try:
            result = run_setting(
                chosen,
                folder,
                strategies=names,
                repetitions=repetitions,
                rounds=rounds,
                device=device,
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
    from teeter.models import network_names

    settings = [setting_named(name) for name in setting_names()]
    if as_json:
        echo_json(settings)
        return

    width = max(len(setting.name) for setting in settings)
    for setting in settings:
        name = setting.name.ljust(width)
        typer.echo(f"{name}  {_describe(setting)}")

    networks = "|".join(network_names())
    typer.echo(
        f"To change the network or the dataset, use --set network={networks} or --set "
        f"dataset=NAME (see teeter bench datasets)."
    )


def _parse_changes(texts: list[str], setting: Setting) -> dict[str, Any]:
    """Return the values that ``--set`` changes, with those of options as a settings file has them.

    Example:
        >>> from teeter.bench.experiments import setting_named
        >>> _parse_changes(["batch-size=8", "options.ldm-s.rays=64"], setting_named("digits"))
        {'batch_size': '8', 'options': {'ldm-s': {'rays': 64}}}
    """
    changes: dict[str, Any] = {}
    for text in texts:
        form = "KEY=VALUE: write --set epochs=20 or --set options.ldm-s.rays=64, for example"
        key, value = split_pair("--set", text, form)
        if not key.startswith("options."):
            # batch-size is how an option would be spelt.
            changes[key.replace("-", "_")] = value
            continue

        # Names of strategies may have dots, names of options have none.
        strategy, _, option = key.removeprefix("options.").rpartition(".")
        options = changes.setdefault("options", copy.deepcopy(setting.options))
        options.setdefault(strategy, {})[option] = parse_option(value)
    return changes


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


@bench.command()
def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Run folders written by teeter bench run."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder for the report. Default: RUN/report, or teeter-report for several runs.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the findings and all tables as JSON.")
    ] = False,
) -> None:
    """Write a report that compares the strategies of one or more runs.

    \b
    Examples:
      teeter bench report runs/mnist
      teeter bench report runs/mnist runs/letter --out report
    """
    with spinner("Comparing"):
        # Importing matplotlib and reading runs may take seconds: the spinner is on by then.
        from teeter.bench.analysis.report import write_report
        from teeter.bench.experiments import read_run

        loaded = [read_run(folder) for folder in runs]
        if out is None:
            # ``teeter serve --folder`` looks for the report of a run in it.
            is_single = len(runs) == 1
            out = runs[0] / "report" if is_single else Path("teeter-report")
        written = write_report(loaded, out)

    if as_json:
        # Scripts read these keys.
        echo_json(
            {
                "page": str(written.page),
                "findings": written.findings,
                "notes": written.notes,
                "tables": written.tables,
                "files": [str(path) for path in written.files],
            }
        )
        return

    # What was found, then what limits it.
    for sentence in (*written.findings, *written.notes):
        typer.echo(sentence)
    typer.echo(f"Curves, tables and settings: {written.page}")


@bench.command()
def demo() -> None:
    """Compare strategies on handwritten digits, and show the picks on a page.

    The page and its figures are written to the folder teeter-demo.
    """
    with progress("Learning digits", as_lines=True) as on_step:
        # Importing torch and matplotlib takes seconds: the progress bar is on by then.
        from teeter.bench.demo import run_demo

        result = run_demo(_DEMO_FOLDER, on_step=on_step)

    for sentence in _describe_demo(result, _DEMO_FOLDER / "index.html"):
        typer.echo(sentence)


def _describe_demo(comparison: RunComparison, page: Path) -> list[str]:
    """Say how LDM-S compares with Random, and where the page is."""
    gain = comparison.gains["ldm-s"]
    test = f"p = {gain.p:.2g}"
    if comparison.repetitions == 1:
        test = "not tested, because a test needs two or more repetitions"

    # The accuracy at which Random ends: LDM-S should be there with fewer labels.
    saving = comparison.savings["ldm-s"]
    target = f"Random's final accuracy of {saving.target:.1%}"
    saved = f"LDM-S never reached {target}."
    if saving.labels is not None:
        final = int(comparison.labelled[-1])
        saved = f"LDM-S reached {target} with {saving.labels:.0f} labels instead of {final}."

    ldm_s = comparison.mean_accuracy("ldm-s")
    random = comparison.mean_accuracy("random")
    return [
        f"Averaged over the rounds, LDM-S classified {ldm_s:.1f}% of new digits correctly and "
        f"Random {random:.1f}% ({gain.mean:+.1f} points for LDM-S, {test}).",
        saved,
        f"Curves, a table and the digits that LDM-S picked: {page}",
    ]


@bench.command()
def datasets(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of a dataset to download.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the named datasets, and where each was found; or download one.

    A download is checked, and unpacked to TEETER_DATA if that is set, otherwise to the cache.

    \b
    Examples:
      teeter bench datasets
      teeter bench datasets mnist
    """
    if name is not None:
        _download(name)
        return

    from teeter.bench.datasets import names

    descriptions = [_describe_dataset(name) for name in names()]
    if as_json:
        echo_json(descriptions)
        return

    header = ["name", "train", "test", "classes", "shape", "where it is, or how to get it"]
    rows = [_table_row(description) for description in descriptions]
    print_table(header, rows, has_sentences=True)


def _download(name: str) -> None:
    """Download a dataset from its publisher, check it and unpack it."""
    from teeter.bench.datasets.catalogue import find_spec
    from teeter.bench.datasets.downloads import fetch_dataset
    from teeter.bench.datasets.locate import download_folder

    # A wrong name is reported before the progress bar appears.
    find_spec(name)

    with progress(f"Downloading {name}") as update:

        def on_progress(_: str, received: int, total: int) -> None:
            update(received, total or received)  # 0: the server does not tell the size

        downloads = fetch_dataset(name, progress=on_progress)

    for download in downloads:
        if download.checked:
            verdict = "as published"
        else:
            verdict = "no checksum is published; the file can be read"
        file_name = download.path.name
        typer.echo(f"{file_name}: MD5 {download.md5}, {verdict}.", err=True)

    if downloads:
        typer.echo(f"{name} is in {download_folder(name)}.")
    else:
        location = _describe_dataset(name)["found"]
        typer.echo(f"{name} is already available: {location}.")


def _describe_dataset(name: str) -> dict[str, Any]:
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
    located = locate_dataset(spec)
    source = None
    advice = None
    if located is None:
        advice = f"teeter bench datasets {name}"
        if name in MANUAL_DOWNLOADS:
            home = download_folder(name)
            advice = MANUAL_DOWNLOADS[name].format(home=home)
    else:
        _, files = located
        source = str(spec.package)
        if files:
            first_pattern = files[0]
            source = str(first_pattern[0])

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
        cell = "" if number is None else f"{number:,}"
        row.append(cell)

    lengths = [str(length) for length in description["shape"]]
    row.append(" x ".join(lengths))
    row.append(description["found"] or description["get"])
    return row
