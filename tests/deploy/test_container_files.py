"""The image and the compose file: what they name exists, and commands are those of teeter."""

from __future__ import annotations

import ipaddress
import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from cli.commands import build_command
from teeter.cli import app
from teeter.cli.installation import CPU_INDEX
from teeter.cli.serve import _read_tokens
from teeter.encoders.image_encoders import EFFICIENTNET_PACKAGE
from teeter.encoders.minilm import MINILM_PACKAGE
from teeter.server.access import HEALTH_PATH, read_login_config, read_server_settings

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CONTAINERFILE = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
TEETER_SERVICES = ["teeter", "backup"]


def instructions(name: str) -> list[str]:
    """Return the arguments of all instructions of a kind in the Containerfile."""
    joined = CONTAINERFILE.replace("\\\n", " ")
    return re.findall(rf"^{name}\s+(.*)$", joined, flags=re.MULTILINE)


def parse_command(words: list[str]) -> dict[str, Any]:
    """Let teeter's own parser read a command, and return its parameters."""
    command: Any = build_command(app)
    while hasattr(command, "commands"):
        command = command.commands[words[0]]
        words = words[1:]
    parameters: dict[str, Any] = command.make_context(command.name, list(words)).params
    return parameters


def test_the_image_installs_extras_that_exist() -> None:
    (extras,) = [line for line in instructions("ARG") if line.startswith("EXTRAS=")]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = extras.removeprefix("EXTRAS=").split(",")
    assert set(names) <= set(project["optional-dependencies"])
    assert names == ["team"]

    # The pretrained encoders are part of the image: it downloads nothing when it runs.
    requirements = project["optional-dependencies"]
    assert "teeter[label]" in requirements["team"]
    packages = {Requirement(line).name for line in requirements["label"]}
    assert {MINILM_PACKAGE.distribution, EFFICIENTNET_PACKAGE.distribution} <= packages
    (index,) = [line for line in instructions("ARG") if line.startswith("TORCH_INDEX=")]
    assert index == f"TORCH_INDEX={CPU_INDEX}"


def test_what_is_copied_exists_and_is_not_ignored() -> None:
    allowed = (ROOT / ".containerignore").read_text(encoding="utf-8").splitlines()
    for line in instructions("COPY"):
        if line.startswith("--from"):
            continue
        *sources, _ = line.split()
        for source in sources:
            assert (ROOT / source).exists()
            assert f"!{source}" in allowed


def test_the_server_of_the_image_listens_where_the_health_check_asks() -> None:
    (command,) = instructions("CMD")
    parameters = parse_command(json.loads(command))
    (port,) = instructions("EXPOSE")
    assert parameters["port"] == int(port)
    assert parameters["host"] == "0.0.0.0"

    (check,) = instructions("HEALTHCHECK")
    assert f"http://127.0.0.1:{port}{HEALTH_PATH}'" in check
    assert json.loads(instructions("ENTRYPOINT")[0]) == ["teeter"]


def test_the_image_is_no_root_and_keeps_its_data_in_the_volume() -> None:
    (user,) = instructions("USER")
    assert int(user) >= 1000
    (volume,) = instructions("VOLUME")
    parameters = parse_command(json.loads(instructions("CMD")[0]))
    assert Path(volume) in Path(parameters["folder"]).parents
    assert f"TEETER_HOME={volume}/home" in CONTAINERFILE


@pytest.mark.parametrize("name", TEETER_SERVICES)
def test_the_commands_of_the_services_are_accepted(name: str) -> None:
    parse_command(SERVICES[name]["command"])


def test_the_settings_of_the_server_are_where_its_command_looks() -> None:
    # Older versions of Typer leave it a text until the command runs.
    settings = Path(parse_command(SERVICES["teeter"]["command"])["server_settings"])
    assert f"./settings:{settings.parent}:ro" in SERVICES["teeter"]["volumes"]
    assert (DEPLOY / "settings" / settings.name).exists()


def test_the_server_trusts_the_address_of_the_proxy_only() -> None:
    address = SERVICES["proxy"]["networks"]["front"]["ipv4_address"]
    assert read_server_settings(DEPLOY / "settings" / "server.toml").proxy == address
    (subnet,) = COMPOSE["networks"]["front"]["ipam"]["config"]
    network = ipaddress.ip_network(subnet["subnet"])
    assert ipaddress.ip_address(address) in network
    assert ipaddress.ip_address(SERVICES["teeter"]["networks"]["front"]["ipv4_address"]) in network


def test_only_the_proxy_can_be_reached_from_outside() -> None:
    assert [name for name, service in SERVICES.items() if "ports" in service] == ["proxy"]
    assert list(SERVICES["db"]["networks"]) == ["back"]
    assert COMPOSE["networks"]["back"]["internal"] is True


@pytest.mark.parametrize("name", TEETER_SERVICES)
def test_the_database_is_found_at_its_address(name: str) -> None:
    address = SERVICES["db"]["networks"]["back"]["ipv4_address"]
    assert SERVICES[name]["extra_hosts"] == [f"db:{address}"]


@pytest.mark.parametrize("name", SERVICES)
def test_services_have_few_rights(name: str) -> None:
    service = SERVICES[name]
    assert "no-new-privileges:true" in service["security_opt"]
    if name in TEETER_SERVICES:
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]


def test_no_secret_is_in_the_files() -> None:
    for service in SERVICES.values():
        for variable, value in service.get("environment", {}).items():
            if any(word in variable for word in ("PASSWORD", "TOKEN", "SECRET")):
                assert value.startswith("${"), variable


def test_variables_of_the_server_are_those_of_its_options() -> None:
    command: Any = build_command(app).commands["serve"]
    variables = {parameter.envvar for parameter in command.params if parameter.envvar}
    variables |= {"TEETER_TOKEN", "TEETER_OIDC_CLIENT_SECRET", "PGPASSWORD"}
    assert set(SERVICES["teeter"]["environment"]) <= variables


def test_empty_variables_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compose file passes on variables that are not set, as empty ones."""
    for variable in ("TEETER_TOKEN", "TEETER_DATABASE"):
        monkeypatch.setenv(variable, "")
    assert parse_command(["serve", "--folder", "x"])["database"] is None
    assert len(_read_tokens(None)) == 0


def test_the_example_of_a_login_file_is_valid(tmp_path: Path) -> None:
    copy = tmp_path / "login.toml"
    shutil.copy(DEPLOY / "settings" / "login.example.toml", copy)
    assert read_login_config(copy).oidc is not None


def test_the_proxy_configuration_is_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    caddy = shutil.which("caddy")
    if caddy is None:
        pytest.skip("caddy is not installed")
    monkeypatch.setenv("TEETER_HOST", "label.example.org")
    command = [caddy, "adapt", "--adapter", "caddyfile", "--config", str(DEPLOY / "Caddyfile")]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 0, result.stderr
    assert "label.example.org" in result.stdout
    assert '"dial":"teeter:8765"' in result.stdout
