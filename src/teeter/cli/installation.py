"""``teeter doctor``, ``encoders`` and ``strategies``: what is installed, and what can be chosen.

The output of ``doctor`` is made to be pasted into a bug report, so it names no user: the home
folder is written as ``~``, and no token or address is read.
"""

from __future__ import annotations

import inspect
import json
import os
import platform
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distributions, requires, version
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from teeter.base.registry import entry_points_by_name
from teeter.base.version import __version__, commit
from teeter.bench.datasets.locate import search_folders
from teeter.cli.output import JsonOption, echo_json, echo_wrapped, print_table, spinner
from teeter.encoders import AUTO, ContentKind, choose_encoder, is_installed, names
from teeter.encoders import encoders as registry
from teeter.errors import MissingExtraError, PluginError

_PACKAGES = (
    "torch",
    "numpy",
    "scipy",
    "scikit-learn",
    "safetensors",
    "typer",
    "sqlalchemy",
    "pydantic",
    "fastapi",
    "uvicorn",
    "pillow",
    "matplotlib",
    "transformers",
    "sentence-transformers",
    "lightning",
    "ray",
    "triton",
)
"""Packages whose versions matter in a bug report."""

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
"""Where PyTorch offers its builds without CUDA."""

_REQUIREMENT = re.compile(r"(?P<package>[\w.-]+).*extra\s*==\s*['\"](?P<extra>[\w.-]+)['\"]")
"""A requirement of an extra, such as ``pyarrow>=18; extra == 'parquet'``."""

_MODEL_FILE = re.compile(r"[\w.-]+/model/modules\.json")
"""Where a package holds a sentence-transformers model."""


@dataclass(frozen=True)
class EncoderCheck:
    """Whether an encoder can be used."""

    name: str
    """As ``--encoder`` takes it."""
    is_available: bool
    note: str
    """What it reads, or what is missing."""


@dataclass(frozen=True)
class Folder:
    """A folder that teeter uses."""

    purpose: str
    path: str
    """With ``~`` for the home folder."""
    exists: bool


@dataclass(frozen=True)
class Diagnosis:
    """What is installed, found and missing."""

    teeter: str
    commit: str | None
    """The commit, if teeter runs from its repository."""
    python: str
    system: str
    packages: dict[str, str]
    """Versions of the installed packages that matter."""
    threads: int
    devices: dict[str, str]
    """What torch can compute on, by the names that ``--device`` takes."""
    extras: dict[str, tuple[str, ...]]
    """The packages that each optional part of teeter needs and that are not installed."""
    encoders: tuple[EncoderCheck, ...]
    folders: tuple[Folder, ...]
    unused_cuda: dict[str, int]
    """The packages for NVIDIA GPUs on a machine without one, each with its size in bytes."""


def diagnose() -> Diagnosis:
    """Return what is installed, found and missing. Nothing is changed and nothing is downloaded."""
    import torch

    versions = {}
    for package in _PACKAGES:
        installed = _installed_version(package)
        if installed is not None:
            versions[package] = installed

    return Diagnosis(
        teeter=__version__,
        commit=commit(),
        python=f"{platform.python_version()} ({platform.python_implementation()})",
        system=f"{platform.system()} {platform.release()}, {platform.machine()}",
        packages=versions,
        threads=torch.get_num_threads(),
        devices=_find_devices(),
        extras=_check_extras(requires("teeter") or []),
        encoders=tuple(_find_encoders()),
        folders=tuple(_find_folders()),
        unused_cuda={} if torch.cuda.is_available() else _find_cuda_packages(),
    )


def _installed_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _find_devices() -> dict[str, str]:
    import torch

    devices = {"cpu": f"{os.cpu_count()} cores"}

    for number in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(number)
        memory = properties.total_memory / 2**30
        devices[f"cuda:{number}"] = f"{properties.name}, {memory:.0f} GiB"

    if torch.backends.mps.is_available():
        devices["mps"] = "Apple GPU"

    return devices


def _find_cuda_packages() -> dict[str, int]:
    """Return the packages of CUDA that are installed, each with its size in bytes."""
    sizes = {}
    for distribution in distributions():
        name = distribution.name
        if name.startswith(("nvidia-", "cuda-")) or name == "triton":
            files = distribution.files or ()
            sizes[name] = sum(file.size or 0 for file in files)
    return sizes


def _check_extras(requirements: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the extras for users, and the packages that each lacks.

    Args:
        requirements: the requirements of teeter, as the metadata of its package lists them.
    """
    packages: dict[str, set[str]] = {}
    for requirement in requirements:
        match = _REQUIREMENT.match(requirement)
        if match is not None:
            package = match["package"]
            packages.setdefault(match["extra"], set()).add(package)

    for_users = packages.pop("all", set())
    extras = {}
    for name, needed in sorted(packages.items()):
        # The extras for developers need packages that "all" leaves out.
        if needed <= for_users:
            missing = [package for package in needed if _installed_version(package) is None]
            extras[name] = tuple(sorted(missing))

    return extras


def _find_encoders() -> list[EncoderCheck]:
    """Return the registered encoders, and packages that hold a model of sentence-transformers."""
    checks = [_check_encoder(name) for name in names()]
    for kind in ContentKind:
        choice = choose_encoder(kind)
        note = f"{kind}s: {choice.sentence}"
        checks.append(EncoderCheck(AUTO, True, note))

    has_library = _installed_version("sentence-transformers") is not None
    for distribution in distributions():
        for file in distribution.files or ():
            if _MODEL_FILE.fullmatch(str(file)):
                note = "texts, by a model of sentence-transformers"
                if not has_library:
                    note = "needs pip install 'teeter[hf]'"
                checks.append(EncoderCheck(distribution.name, has_library, note))

    return checks


def _check_encoder(name: str) -> EncoderCheck:
    try:
        encoder_class = registry.get(name)
    except PluginError as error:
        return EncoderCheck(name, False, str(error))

    kind = encoder_class.kind
    if kind is ContentKind.IMAGE and _installed_version("pillow") is None:
        return EncoderCheck(name, False, "needs pip install 'teeter[label]'")

    package = encoder_class.package
    if package is not None and not is_installed(name):
        return EncoderCheck(name, False, f"needs pip install {package.requirement}")
    return EncoderCheck(name, True, f"{kind}s")


def _find_folders() -> list[Folder]:
    folders = [("datasets", path) for path in search_folders()]

    try:
        from teeter.campaigns.trust import home
    except MissingExtraError:
        pass  # there is no server without the extra
    else:
        folders.append(("keys of the server", home()))

    return [Folder(purpose, _hide_home(path), path.is_dir()) for purpose, path in folders]


def _hide_home(path: Path) -> str:
    """Return a path with ``~`` for the home folder, which often has a person's name."""
    try:
        absolute = path.expanduser().absolute()
        below_home = absolute.relative_to(Path.home())
    except (ValueError, RuntimeError):  # outside the home folder, or the user has no home
        return str(path)
    return str(Path("~") / below_home)


# The width of the first column.
_NAME_WIDTH = 12


def doctor(
    show_all: Annotated[
        bool,
        typer.Option("--all", help="Print versions, devices, extras, encoders and folders, too."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Say whether all that labelling needs is installed.

    With --all or --json, the command prints what a bug report needs. It reads no tokens or data,
    shows the home folder as ~, and does not use the network.

    \b
    Examples:
      teeter doctor
      teeter doctor --all
    """
    with spinner("Looking"):  # importing torch takes seconds
        diagnosis = diagnose()

    if as_json:
        echo_json(diagnosis)
        return

    missing = diagnosis.extras.get("label", ())
    if missing:
        echo_wrapped(f"To label, run pip install 'teeter[label]'. It adds {', '.join(missing)}.")
    else:
        echo_wrapped("All that labelling needs is installed. To begin, run teeter try.")
    if diagnosis.unused_cuda:
        gigabytes = sum(diagnosis.unused_cuda.values()) / 1e9
        packages = " ".join(sorted(diagnosis.unused_cuda))
        echo_wrapped(
            f"PyTorch finds no GPU here, but CUDA packages take {gigabytes:.1f} GB. To remove "
            f"them, run pip uninstall torch {packages}, then pip install torch --index-url "
            f"{CPU_INDEX}."
        )
    if not show_all:
        return
    for title, lines in _sections(diagnosis).items():
        typer.echo(title)
        for line in lines:
            typer.echo(f"  {line}")


def _sections(diagnosis: Diagnosis) -> dict[str, list[str]]:
    """Return the lines of the report below each title."""
    teeter_version = diagnosis.teeter
    if diagnosis.commit is not None:
        teeter_version += f", commit {diagnosis.commit}"

    versions = [
        _row("teeter", teeter_version),
        _row("Python", diagnosis.python),
        _row("system", diagnosis.system),
    ]
    width = max(len(name) for name in diagnosis.packages)
    packages = [f"{name:{width}}  {number}" for name, number in diagnosis.packages.items()]

    devices = [_row(name, description) for name, description in diagnosis.devices.items()]
    devices[0] += f", torch uses {diagnosis.threads}"

    extras = []
    for name, missing in diagnosis.extras.items():
        state = "installed"
        if missing:
            state = f"missing {', '.join(missing)}: pip install 'teeter[{name}]'"
        extras.append(_row(name, state))

    width = max(len(encoder.name) for encoder in diagnosis.encoders)
    encoders = [f"{encoder.name:{width}}  {encoder.note}" for encoder in diagnosis.encoders]

    width = max(len(folder.purpose) for folder in diagnosis.folders)
    folders = []
    for folder in diagnosis.folders:
        line = f"{folder.purpose:{width}}  {folder.path}"
        if not folder.exists:
            line += "  (not there)"
        folders.append(line)

    return {
        "Versions": versions,
        "Packages": packages,
        "Devices": devices,
        "Extras": extras,
        "Encoders": encoders,
        "Folders": folders,
    }


def _row(name: str, value: str) -> str:
    return f"{name:{_NAME_WIDTH}}  {value}"


STRATEGY_LIST = Path(__file__).with_name("strategy_list.json")
"""The file that describes the built-in strategies."""

StrategyEntry: TypeAlias = dict[str, Any]
"""A strategy as JSON: its name, group, needs, options with their defaults, whether the smallest or
the largest scores are picked first (null without scores), and a sentence."""

_ABLATIONS = "teeter.strategies.ablations"

_PLUGIN_GROUP = "teeter.strategies"


def list_strategies() -> list[StrategyEntry]:
    """Return all strategies in alphabetical order: the built-in ones and those of plugins.

    Example:
        >>> [entry["name"] for entry in list_strategies()][:3]
        ['alfa-mix', 'badge', 'bait']
    """
    entries: list[StrategyEntry] = json.loads(STRATEGY_LIST.read_text(encoding="utf-8"))

    built_in_names = {entry["name"] for entry in entries}
    plugin_names = entry_points_by_name(_PLUGIN_GROUP).keys() - built_in_names
    entries += [_describe_plugin(name) for name in plugin_names]

    return sorted(entries, key=lambda entry: str(entry["name"]))


def describe_built_in_strategies() -> list[StrategyEntry]:
    """Return what ``strategy_list.json`` should hold, from the strategies themselves."""
    from teeter.strategies.base import registry

    entries = []
    for name, strategy in sorted(registry.loaded_classes().items()):
        # Programs and plugins may have registered strategies of their own.
        if strategy.__module__.startswith("teeter.strategies."):
            entries.append(_describe(name, strategy))
    return entries


def write_strategy_list() -> None:
    """Write ``strategy_list.json`` from the strategies."""
    text = json.dumps(describe_built_in_strategies(), ensure_ascii=False, indent=2)
    STRATEGY_LIST.write_text(f"{text}\n", encoding="utf-8")


def _describe_plugin(name: str) -> StrategyEntry:
    from teeter.strategies import get

    try:
        return _describe(name, get(name))
    except PluginError as error:
        # A broken plugin must not hide the others.
        return {
            "name": name,
            "group": "strategy",
            "needs": [],
            "options": {},
            "best": None,
            "about": str(error),
        }


def _describe(name: str, strategy: type[Any]) -> StrategyEntry:
    # A strategy is a dataclass: the parameters of its constructor are its options.
    parameters = inspect.signature(strategy).parameters
    docstring = inspect.getdoc(strategy) or ""
    first_line, _, _ = docstring.partition("\n")
    group = "strategy"
    if strategy.__module__ == _ABLATIONS:
        group = "ablation"
    return {
        "name": name,
        "group": group,
        "needs": sorted(strategy.needs),
        "options": {option: parameter.default for option, parameter in parameters.items()},
        "best": getattr(strategy, "best", None),
        "about": first_line,
    }


def strategies(
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the strategies: what each needs, its options, which scores come first, what it picks."""
    entries = list_strategies()
    if as_json:
        echo_json(entries)
    else:
        header = ["name", "needs", "options", "picks"]
        rows = [_table_row(entry) for entry in entries if entry["group"] == "strategy"]
        print_table(header, rows, has_sentences=True)

        typer.echo("\nAblations of LDM-S in its paper, for comparisons:\n")
        rows = [_table_row(entry) for entry in entries if entry["group"] == "ablation"]
        print_table(header, rows, has_sentences=True)


def _table_row(entry: StrategyEntry) -> list[str]:
    """Return the cells of a strategy."""
    options = [f"{name}={default!r}" for name, default in entry["options"].items()]
    about = entry["about"]
    if entry["best"] is not None:
        about += f" The {entry['best']} scores come first."
    return [
        entry["name"],
        ", ".join(entry["needs"]),
        ", ".join(options),
        about,
    ]


@dataclass(frozen=True)
class _EncoderRow:
    """An encoder in the list."""

    name: str
    reads: str
    is_installed: bool
    package: str | None
    """The package with its weights."""
    licence: str | None
    """The licence of its weights."""
    about: str


def encoders(as_json: JsonOption = False) -> None:
    """List the encoders, with what they read, their weights and their licences.

    auto stands for the best installed encoder. The option --encoder also accepts a
    sentence-transformers or transformers model, given by its folder, its package or its name on the
    hub; a Python function, written package.module:function; or a model behind an OpenAI-compatible
    embeddings endpoint, written http://HOST/v1#MODEL.
    """
    rows = [_describe_encoder(name) for name in names()]
    if as_json:
        echo_json(rows)
        return

    table = []
    for row in rows:
        package = row.package or ""
        if not row.is_installed:
            package += " (not installed)"
        licence = row.licence or ""
        table.append([row.name, row.reads, package, licence, row.about])
    print_table(["name", "reads", "weights", "licence", "about"], table, has_sentences=True)

    for kind in ContentKind:
        typer.echo(f"auto for {kind}s: {choose_encoder(kind).sentence}")


def _describe_encoder(name: str) -> _EncoderRow:
    try:
        encoder_class = registry.get(name)
    except PluginError as error:
        # A broken plugin must not hide the others.
        return _EncoderRow(name, "", False, None, None, str(error))

    package = None
    licence = None
    if encoder_class.package is not None:
        package = encoder_class.package.distribution
        licence = encoder_class.package.licence
    docstring = inspect.getdoc(encoder_class) or ""
    return _EncoderRow(
        name=name,
        reads=f"{encoder_class.kind}s",
        is_installed=is_installed(name),
        package=package,
        licence=licence,
        # The first line is a summary. A table has no room for more.
        about=docstring.partition("\n")[0],
    )
