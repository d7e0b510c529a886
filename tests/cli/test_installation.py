"""What the diagnosis makes of the metadata of packages."""

from __future__ import annotations

from importlib.metadata import requires

import pytest

from teeter.cli import installation
from teeter.cli.installation import EncoderCheck, diagnose

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
    extras = installation._check_extras(REQUIREMENTS)
    assert extras == {"arrays": (), "tables": ("no-such-package",)}


def test_the_extras_of_this_installation_are_found() -> None:
    names = set(installation._check_extras(requires("teeter") or []))
    assert {"hf", "label", "ray"} <= names
    assert not names & {"all", "dev", "docs", "oracles"}, "these are not for users"


def test_encoders_and_what_auto_stands_for_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("teeter.encoders.encoder.find_spec", lambda module: None)
    checks = diagnose().encoders

    check_by_name = {check.name: check for check in checks}
    assert check_by_name["tfidf"] == EncoderCheck("tfidf", True, "texts")
    minilm = EncoderCheck("minilm", False, "needs pip install 'teeter[label]'")
    assert check_by_name["minilm"] == minilm
    assert check_by_name["static"].note == "needs pip install wordllama==0.4.0.post1"
    auto = [check.note for check in checks if check.name == "auto"]
    assert [note.partition(",")[0] for note in auto] == [
        "texts: The encoder is tfidf",
        "images: The encoder is pixels",
    ]
