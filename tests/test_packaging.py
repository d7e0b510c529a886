"""What we publish: the wheel, what it brings in, and the extras."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tomllib
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from email.parser import BytesParser
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import teeter
from teeter.cli.installation import CPU_INDEX

pytestmark = pytest.mark.xdist_group("packaging")  # one worker, so one wheel and one environment
builds = pytest.mark.slow
"""Builds the wheel, and most of these install it: half a minute each."""

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
CONSTRAINTS = ROOT / "constraints.txt"
SCRIPTS = "Scripts" if os.name == "nt" else "bin"

FOR_USERS = {
    "label",
    "team",
    "bench",
    "parquet",
    "hf",
    "lightning",
    "onnx",
    "ray",
}
FOR_DEVELOPERS = {"dev", "docs", "oracles", "test-all"}
SLOW_TO_IMPORT = {"sklearn", "matplotlib", "typer"}


def make_environment(**variables: str) -> dict[str, str]:
    """Return the variables of this process, but for those of its Python, and more."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return inherited | variables


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    """Return what ``command`` prints; fail with its whole output if it fails."""
    environment = make_environment(**variables)
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        output = f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        pytest.fail(f"{' '.join(map(str, command))}\n{output}")
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source archive and the wheel that is made from it."""
    folder = tmp_path_factory.mktemp("built")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    (archive,) = folder.glob("*.tar.gz")
    (wheel,) = folder.glob("*.whl")
    return archive, wheel


@pytest.fixture(scope="module")
def wheel(built: tuple[Path, Path]) -> Path:
    return built[1]


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Iterator[Path]:
    """The scripts folder of an environment that holds the wheel and its core dependencies, nothing
    else.
    """
    with empty_environment(wheel) as scripts:
        yield scripts


@contextmanager
def empty_environment(wanted: str | Path, *options: str) -> Iterator[Path]:
    """Yield the scripts folder of an environment that holds nothing but ``wanted`` and what it
    brings in.
    """
    if os.environ.get("TEETER_OFFLINE") == "1":
        pytest.skip(
            "TEETER_OFFLINE=1: installing the wheel in an empty environment needs the network"
        )

    with TemporaryDirectory(prefix="teeter-wheel-") as name:
        folder = Path(name)
        run(sys.executable, "-m", "venv", folder / "env", cwd=folder)
        scripts = folder / "env" / SCRIPTS

        pip = (
            scripts / "python",
            "-m",
            "pip",
            "--disable-pip-version-check",
            "install",
            "--quiet",
            "--no-compile",
        )
        run(*pip, *options, "--constraint", CONSTRAINTS, wanted, cwd=folder)
        yield scripts


def names(requirements: list[str]) -> list[str]:
    return [canonicalize_name(Requirement(requirement).name) for requirement in requirements]


def imported_by_teeter(python: str | Path, cwd: Path) -> set[str]:
    code = (
        "import sys, teeter; teeter.ldm, teeter.Learner; "
        "print(*{name.split('.')[0] for name in sys.modules})"
    )
    return set(run(python, "-c", code, cwd=cwd).split())


@pytest.fixture(scope="module")
def imported_here(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The packages that `import teeter` loads here, where matplotlib and others are
    installed too.
    """
    return imported_by_teeter(sys.executable, tmp_path_factory.mktemp("imported"))


@builds
def test_the_wheel_holds_the_typed_package_and_nothing_else(wheel: Path) -> None:
    files = zipfile.ZipFile(wheel).namelist()
    assert "teeter/py.typed" in files
    version = wheel.name.split("-")[1]
    assert {file.split("/")[0] for file in files} == {"teeter", f"teeter-{version}.dist-info"}


@builds
def test_a_registry_accepts_both_archives(built: tuple[Path, Path]) -> None:
    pytest.importorskip("twine")
    run(sys.executable, "-m", "twine", "check", "--strict", *built, cwd=built[0].parent)


@builds
def test_the_wheel_carries_its_licence(wheel: Path) -> None:
    assert any(
        file.endswith(".dist-info/licenses/LICENSE") for file in zipfile.ZipFile(wheel).namelist()
    )


@builds
def test_the_source_archive_holds_what_the_wheel_is_made_of(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[0]) as archive:
        files = {name.partition("/")[2] for name in archive.getnames()}

    assert {
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "CITATION.cff",
        "pyproject.toml",
        "PKG-INFO",
    } <= files
    assert {file.split("/")[0] for file in files if "/" in file} == {"src"}

    packed = {file.removeprefix("src/") for file in files if file.startswith("src/teeter/")}
    assert packed == {
        file for file in zipfile.ZipFile(built[1]).namelist() if file.startswith("teeter/")
    }

    tracked = run("git", "ls-files", "src/teeter", cwd=ROOT).splitlines()
    assert {file.removeprefix("src/") for file in tracked if (ROOT / file).exists()} <= packed


@builds
def test_the_metadata_say_where_it_runs(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        (name,) = [name for name in file.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = BytesParser().parsebytes(file.read(name))

    assert metadata["Requires-Python"] == ">=3.11"
    versions = [
        classifier.rpartition(" ")[2]
        for classifier in metadata.get_all("Classifier")
        if re.search(r"Python :: 3\.\d+$", classifier)
    ]
    assert versions == ["3.11", "3.12", "3.13"]

    assert set(metadata.get_all("Provides-Extra")) == set(EXTRAS)
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata["License-Expression"] == "Apache-2.0"


@builds
def test_importing_teeter_needs_the_core_dependencies_alone(
    installed: Path, tmp_path: Path
) -> None:
    imported = imported_by_teeter(installed / "python", tmp_path)
    assert "teeter" in imported
    assert not imported & SLOW_TO_IMPORT


def test_importing_teeter_leaves_slow_packages_alone(imported_here: set[str]) -> None:
    assert not imported_here & SLOW_TO_IMPORT


def test_importing_teeter_imports_no_more_than_torch_and_numpy(imported_here: set[str]) -> None:
    assert {"torch", "numpy", "teeter"} <= imported_here
    assert not imported_here & {
        "sklearn",
        "scipy",
        "matplotlib",
        "typer",
        "rich",
        "pandas",
        "pyarrow",
    }


def test_the_public_names_stay() -> None:
    assert {"Outputs", "ldm", "scores", "select", "strategies"} <= set(teeter.__all__)
    assert all(hasattr(teeter, name) for name in teeter.__all__)


def test_the_package_is_typed_and_carries_its_licence() -> None:
    """The settings of the build; that the wheel holds the files is checked with the wheel."""
    assert (ROOT / "src" / "teeter" / "py.typed").is_file()
    assert (ROOT / "LICENSE").is_file()
    assert PROJECT["license"] == "Apache-2.0"


def test_the_project_says_where_it_runs() -> None:
    assert PROJECT["requires-python"] == ">=3.11"
    minor_versions = [
        line for line in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", line)
    ]
    assert [line.rpartition(" ")[2] for line in minor_versions] == ["3.11", "3.12", "3.13"]


@builds
@pytest.mark.parametrize("arguments", [["--help"], ["strategies"], ["doctor"]], ids=" ".join)
def test_the_command_line_needs_the_core_dependencies_alone(
    installed: Path, tmp_path: Path, arguments: list[str]
) -> None:
    assert run(installed / "teeter", *arguments, cwd=tmp_path)


@builds
def test_selecting_needs_the_core_dependencies_alone(installed: Path, tmp_path: Path) -> None:
    rows = [f"{k},{k % 7},{k % 3 if k < 12 else ''}" for k in range(40)]
    (tmp_path / "pool.csv").write_text("\n".join(["a,b,class", *rows]), encoding="utf-8")
    printed = run(
        installed / "teeter", "select", "pool.csv", "--labels", "class", "-n", "5", cwd=tmp_path
    )
    assert len(printed.splitlines()) == 6


@builds
def test_completion_is_part_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    asked = {"_TEETER_COMPLETE": "complete_bash", "COMP_WORDS": "teeter se", "COMP_CWORD": "1"}
    completions = run(installed / "teeter", cwd=tmp_path, **asked).split()
    assert sorted(completions) == ["select", "serve"]


@builds
def test_the_demonstration_needs_one_extra_alone(wheel: Path, tmp_path: Path) -> None:
    with empty_environment(f"{wheel}[bench]") as scripts:
        run(scripts / "teeter", "bench", "demo", "--help", cwd=tmp_path)
        printed = run(scripts / "teeter", "bench", "demo", cwd=tmp_path, OMP_NUM_THREADS="1")
    pages = list(tmp_path.rglob("*.html"))
    assert pages, printed
    assert min(page.stat().st_size for page in pages) > 10_000


@builds
def test_all_extras_resolve_together_under_the_constraints(wheel: Path) -> None:
    with empty_environment(f"{wheel}[all]", "--dry-run"):
        pass


def serve_until_it_responds(*command: str | Path, cwd: Path) -> None:
    """Start a server, request its page, and stop it as Ctrl-C does."""
    environment = make_environment(TEETER_HOME=str(cwd / "home"), OMP_NUM_THREADS="1")
    with subprocess.Popen(
        command, cwd=cwd, env=environment, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        try:
            addresses = (re.search(r"http://127\.0\.0\.1:\d+/\S*", line) for line in server.stdout)
            address = next((found[0] for found in addresses if found is not None), None)
            assert address is not None, f"{command} printed no address"
            with urllib.request.urlopen(address, timeout=60) as page:
                assert page.status == 200
        finally:
            server.send_signal(signal.SIGINT)
            server.communicate()


@builds
def test_the_first_block_of_the_readme_works_in_a_fresh_clone(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = text.partition("```console\n")[2].partition("```")[0]
    install, *servers = [shlex.split(line.removeprefix("$ ")) for line in block.splitlines()]
    assert install[:3] == ["pip", "install", ".[label]"], "nothing is on PyPI before the release"
    assert install[3:] == ["--extra-index-url", CPU_INDEX], "or Linux gets 4.5 GB for CUDA"

    clone = tmp_path / "clone"
    for name in run("git", "ls-files", "-z", cwd=ROOT).split("\0"):
        if name and (ROOT / name).is_file():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, clone / name)

    rows = [f"text number {number}" for number in range(30)]
    (tmp_path / "yourfile.csv").write_text("\n".join(["text", *rows]), encoding="utf-8")
    with empty_environment(f"{clone}[label]") as scripts:
        for program, *arguments in servers:
            serve_until_it_responds(scripts / program, *arguments, cwd=tmp_path)
    assert (tmp_path / "yourfile.teeter").exists()


def test_all_is_every_extra_for_users() -> None:
    assert set(EXTRAS) == FOR_USERS | FOR_DEVELOPERS | {"all"}
    (everything,) = map(Requirement, EXTRAS["all"])
    assert everything.name == "teeter"
    assert everything.extras == FOR_USERS


def test_a_requirement_has_one_bound() -> None:
    bounds: dict[str, set[str]] = {}
    for requirements in [PROJECT["dependencies"], *EXTRAS.values()]:
        assert len(set(names(requirements))) == len(requirements)
        for requirement in map(Requirement, requirements):
            if requirement.name != "teeter":  # an extra that takes in another
                bounds.setdefault(canonicalize_name(requirement.name), set()).add(str(requirement))
    assert [name for name, found in bounds.items() if len(found) > 1] == []


def test_an_extra_repeats_no_core_dependency() -> None:
    core = set(names(PROJECT["dependencies"]))
    assert [extra for extra, needed in EXTRAS.items() if core & set(names(needed))] == []


def test_errors_and_pages_name_extras_that_exist() -> None:
    tracked = run("git", "ls-files", "src", "docs", "examples", "research", cwd=ROOT).splitlines()
    files = [ROOT / name for name in [*tracked, "README.md", "CONTRIBUTING.md", "CHANGELOG.md"]]
    for file in files:
        if file.suffix not in (".py", ".md") or not file.exists():
            continue
        for mention in re.findall(r"teeter\[([a-z,-]+)\]", file.read_text(encoding="utf-8")):
            assert set(mention.split(",")) <= set(EXTRAS), file


def test_every_requirement_is_pinned_within_its_bounds() -> None:
    lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    pinned = {canonicalize_name(name): version for name, version in pins.items()}

    for extra in [
        PROJECT["dependencies"],
        *(EXTRAS[extra] for extra in FOR_USERS | FOR_DEVELOPERS),
    ]:
        for requirement in map(Requirement, extra):
            if requirement.name == "teeter":  # an extra that takes in another
                continue
            version = pinned[canonicalize_name(requirement.name)]
            assert requirement.specifier.contains(version), f"{requirement} and the pin {version}"


def test_constraints_are_plain_pins() -> None:
    for line in CONSTRAINTS.read_text(encoding="utf-8").splitlines():
        assert re.fullmatch(r"#.*|[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line), line


def test_torchvision_is_never_required() -> None:
    requirements = [
        *PROJECT["dependencies"],
        *(line for extra in EXTRAS.values() for line in extra),
    ]
    assert "torchvision" not in names(requirements)
    assert "torchvision" not in CONSTRAINTS.read_text(encoding="utf-8")
