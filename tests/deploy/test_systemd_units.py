"""The systemd units: valid, hardened, and with commands of teeter."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from deploy.test_container_files import DEPLOY, parse_command

UNITS = sorted((DEPLOY / "systemd").iterdir())
SERVICES = [path for path in UNITS if path.suffix == ".service"]


def teeter_command(path: Path) -> list[str]:
    """Return the command of a service, for a campaign called messages."""
    (line,) = re.findall(r"^ExecStart=/opt/teeter/bin/teeter (.*)$", path.read_text(), re.MULTILINE)
    return line.replace("${CAMPAIGN}", "campaigns/messages.teeter").split()


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.name)
def test_commands_are_accepted(path: Path) -> None:
    parse_command(teeter_command(path))


def test_the_timer_has_its_service() -> None:
    names = {path.name for path in UNITS}
    assert names == {"teeter.service", "teeter-backup@.service", "teeter-backup@.timer"}
    timer = configparser.ConfigParser(interpolation=None)
    timer.read(DEPLOY / "systemd" / "teeter-backup@.timer")
    assert timer["Timer"]["Persistent"] == "true"


@pytest.mark.slow
@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.name)
def test_systemd_finds_nothing_wrong_and_little_exposed(path: Path, tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")

    # A unit names programs that must exist, and a template an instance.
    unit = tmp_path / path.name.replace("@", "@messages")
    unit.write_text(path.read_text().replace("/opt/teeter/bin/teeter", "/bin/true"))
    verified = subprocess.run(
        [analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    assert unit.name not in verified.stderr, verified.stderr

    security = [analyze, "security", "--offline=true", "--threshold=20", "--no-pager", str(unit)]
    rated = subprocess.run(security, capture_output=True, text=True, check=False)
    assert rated.returncode == 0, rated.stdout[-2000:]
