"""What we publish: the wheel, what it brings in, and the extras."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = pytest.mark.xdist_group("packaging")  # one worker, so one wheel and one environment

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
CONSTRAINTS = ROOT / "constraints.txt"
SCRIPTS = "Scripts" if os.name == "nt" else "bin"

FOR_USERS = {
    "parquet",
    "images",
    "store",
    "report",
    "web",
    "postgres",
    "label-studio",
    "ray",
    "hf",
    "skorch",
    "skactiveml",
    "lightning",
    "track",
    "quality",
}
FOR_DEVELOPERS = {"dev", "docs", "oracles"}
SLOW_TO_IMPORT = {"sklearn", "matplotlib", "typer"}


def run(*command: str | Path, cwd: Path) -> str:
    """Return what ``command`` prints; fail with all it said if it fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        said = f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        pytest.fail(f"{' '.join(map(str, command))}\n{said}")
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Iterator[Path]:
    """The scripts folder of an environment that holds the wheel and its core dependencies, nothing else."""
    if os.environ.get("TEETER_OFFLINE") == "1":
        pytest.skip("TEETER_OFFLINE=1: installing the wheel in an empty environment needs the network")
    with TemporaryDirectory(prefix="teeter-wheel-") as name:
        folder = Path(name)
        run(sys.executable, "-m", "venv", folder / "env", cwd=folder)
        scripts = folder / "env" / SCRIPTS
        pip = (scripts / "python", "-m", "pip", "--disable-pip-version-check")
        run(*pip, "install", "--quiet", "--no-compile", "--constraint", CONSTRAINTS, wheel, cwd=folder)
        yield scripts


def names(requirements: list[str]) -> list[str]:
    return [canonicalize_name(Requirement(requirement).name) for requirement in requirements]


def imported_by_teeter(python: str | Path, cwd: Path) -> set[str]:
    return set(run(python, "-c", "import sys, teeter; print(*sys.modules)", cwd=cwd).split())


def test_the_wheel_holds_the_typed_package_and_nothing_else(wheel: Path) -> None:
    files = zipfile.ZipFile(wheel).namelist()
    assert "teeter/py.typed" in files
    version = wheel.name.split("-")[1]
    assert {file.split("/")[0] for file in files} == {"teeter", f"teeter-{version}.dist-info"}


def test_the_wheel_carries_its_licence(wheel: Path) -> None:
    assert any(file.endswith(".dist-info/licenses/LICENSE") for file in zipfile.ZipFile(wheel).namelist())


def test_importing_teeter_needs_the_core_dependencies_alone(installed: Path, tmp_path: Path) -> None:
    imported = imported_by_teeter(installed / "python", tmp_path)
    assert "teeter" in imported
    assert not imported & SLOW_TO_IMPORT


def test_importing_teeter_leaves_slow_packages_alone(tmp_path: Path) -> None:
    """Here, where matplotlib is installed too."""
    assert not imported_by_teeter(sys.executable, tmp_path) & SLOW_TO_IMPORT


@pytest.mark.parametrize("arguments", [["--help"], ["strategies"]], ids=" ".join)
def test_the_command_line_needs_the_core_dependencies_alone(
    installed: Path, tmp_path: Path, arguments: list[str]
) -> None:
    assert run(installed / "teeter", *arguments, cwd=tmp_path)


def test_all_is_every_extra_for_users() -> None:
    assert set(EXTRAS) == FOR_USERS | FOR_DEVELOPERS | {"all"}
    (everything,) = map(Requirement, EXTRAS["all"])
    assert everything.name == "teeter"
    assert everything.extras == FOR_USERS


def test_a_requirement_is_declared_once() -> None:
    declared = Counter(names(PROJECT["dependencies"]))
    for extra in FOR_USERS | FOR_DEVELOPERS:
        declared.update(names(EXTRAS[extra]))
    del declared["teeter"]  # an extra that takes in another
    assert [name for name, times in declared.items() if times > 1] == []


def test_every_requirement_is_pinned_within_its_bounds() -> None:
    lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    pinned = {canonicalize_name(name): version for name, version in pins.items()}
    for extra in [PROJECT["dependencies"], *(EXTRAS[extra] for extra in FOR_USERS | FOR_DEVELOPERS)]:
        for requirement in map(Requirement, extra):
            if requirement.name == "teeter":  # an extra that takes in another
                continue
            version = pinned[canonicalize_name(requirement.name)]
            assert requirement.specifier.contains(version), f"{requirement} and the pin {version}"


def test_constraints_are_plain_pins() -> None:
    for line in CONSTRAINTS.read_text(encoding="utf-8").splitlines():
        assert re.fullmatch(r"#.*|[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line), line


def test_torchvision_is_never_required() -> None:
    requirements = [*PROJECT["dependencies"], *(line for extra in EXTRAS.values() for line in extra)]
    assert "torchvision" not in names(requirements)
    assert "torchvision" not in CONSTRAINTS.read_text(encoding="utf-8")
