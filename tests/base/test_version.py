"""The commit that results are stamped with."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from teeter.base import version


def test_the_commit_is_that_of_teeter_s_own_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*arguments: str) -> None:
        names = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *names, *arguments], cwd=tmp_path, check=True, capture_output=True)

    table = tmp_path / "pool.csv"
    (tmp_path / "src" / "teeter").mkdir(parents=True)
    monkeypatch.setattr(
        version, "__file__", str(tmp_path / "src" / "teeter" / "base" / "version.py")
    )
    monkeypatch.delenv("TEETER_COMMIT", raising=False)
    assert version.commit() is None
    git("init")
    assert version.commit() is None
    table.write_text("a\n")
    git("add", ".")
    git("commit", "-m", "first")
    commit = version.commit()
    assert commit is not None
    assert re.fullmatch("[0-9a-f]{40}", commit)
    table.write_text("b\n")
    assert version.commit() == f"{commit}-dirty"
