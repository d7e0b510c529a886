"""teeter doctor: say what is installed, found and missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from teeter.cli.options import JsonOption
from teeter.cli.output import echo_json, spinner

if TYPE_CHECKING:
    from teeter.diagnosis import Diagnosis

__all__ = ["doctor"]

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
        from teeter.diagnosis import diagnose

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
