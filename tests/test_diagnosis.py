"""What the diagnosis makes of the metadata of packages."""

from __future__ import annotations

from importlib.metadata import requires

from teeter import diagnosis
from teeter.diagnosis import Extra, diagnose

REQUIREMENTS = [
    "numpy>=2.0",
    "numpy>=2; extra == 'tables'",
    "no-such-package>=1; extra == 'tables'",
    "no-such-package>=1; extra == 'all'",
    "numpy>=2; extra == 'all'",
    'numpy[fast]>=2 ; extra == "arrays"',
    "no-such-linter; (sys_platform == 'linux') and extra == 'dev'",
]


def test_extras_say_what_is_missing() -> None:
    extras = diagnosis._check_extras(REQUIREMENTS)
    assert extras == [Extra("arrays", ()), Extra("tables", ("no-such-package",))]
    assert [extra.is_installed for extra in extras] == [True, False]


def test_the_extras_of_this_installation_are_found() -> None:
    names = {extra.name for extra in diagnosis._check_extras(requires("teeter") or [])}
    assert {"hf", "images", "label-studio", "store", "web"} <= names
    assert not names & {"all", "dev", "docs", "oracles"}, "these are not for users"


def test_the_built_in_encoders_are_listed() -> None:
    encoders = {encoder.name: encoder for encoder in diagnose().encoders}
    assert encoders["texts: words and letters"].is_available
