"""The workflows of GitHub Actions: what they run exists, on the Python versions that we promise."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from cli.commands import build_command
from teeter.cli import app

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def read_workflow(file: Path) -> dict[str, Any]:
    # YAML 1.1 reads the key "on" as true; without types it stays a word.
    workflow: dict[str, Any] = yaml.load(file.read_text(encoding="utf-8"), yaml.BaseLoader)
    return workflow


JOBS = {
    f"{file.stem}-{name}": job
    for file in FILES
    for name, job in read_workflow(file)["jobs"].items()
}
STEPS = [step for job in JOBS.values() for step in job["steps"]]
COMMANDS = "\n".join(step["run"].replace("\\\n", " ") for step in STEPS if "run" in step)


def supported_versions() -> list[str]:
    """Return the Python versions that the package names in its classifiers."""
    pattern = re.compile(r"Programming Language :: Python :: (3\.\d+)$")
    matches = [pattern.match(classifier) for classifier in PROJECT["classifiers"]]
    return [match[1] for match in matches if match is not None]


def test_there_are_workflows_for_tests_documentation_and_releases() -> None:
    assert [file.stem for file in FILES] == ["docs", "release", "tests"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_workflow_may_read_only_unless_a_job_says_more(file: Path) -> None:
    workflow = read_workflow(file)
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow["on"].keys() <= {"push", "pull_request"}, "pull_request_target has secrets"


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_a_job_is_bounded_and_its_parts_are_pinned(job: dict[str, Any]) -> None:
    assert int(job["timeout-minutes"]) <= 180
    assert re.fullmatch(r"ubuntu-\d\d\.04", job["runs-on"])

    for step in job["steps"]:
        assert ("uses" in step) != ("run" in step), step
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+\.\d+\.\d+", step["uses"])
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] == "false"


def test_a_job_needs_jobs_that_exist() -> None:
    for file in FILES:
        jobs = read_workflow(file)["jobs"]
        for job in jobs.values():
            needs = job.get("needs", [])
            assert set([needs] if isinstance(needs, str) else needs) <= jobs.keys()


def test_an_action_has_one_version_everywhere() -> None:
    actions = {step["uses"] for step in STEPS if "uses" in step}
    names = [action.partition("@")[0] for action in actions]
    assert len(names) == len(set(names)), sorted(actions)


def test_the_targets_of_make_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    used = set(re.findall(r"\bmake ([a-z-]+)", COMMANDS))
    assert used == {"test", "test-all", "test-lowest", "docs"}
    assert used <= targets


def test_the_commands_of_teeter_exist() -> None:
    commands = re.findall(r"/bin/teeter (.*)$", COMMANDS, flags=re.MULTILINE)
    assert len(commands) >= 4
    for line in commands:
        words = line.split()
        if words == ["--version"]:
            continue

        command: Any = build_command(app)
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        # The files of these commands are made by the workflow: only the options are checked.
        names = {name for parameter in command.params for name in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= names, line


def test_extras_and_files_exist() -> None:
    (extras,) = re.findall(r"\*\.whl\)\[([\w,-]+)\]", COMMANDS)
    assert set(extras.split(",")) <= PROJECT["optional-dependencies"].keys()

    files = re.findall(r"--(?:file|constraint) (\S+)", COMMANDS)
    files += [
        step["with"]["cache-dependency-path"] for step in STEPS if "cache" in step.get("with", {})
    ]
    assert {"deploy/Containerfile", "constraints.txt"} <= set(files)
    for file in files:
        assert (ROOT / file).is_file(), file


def test_the_python_versions_are_those_of_the_package() -> None:
    versions = supported_versions()
    assert JOBS["tests-versions"]["strategy"]["matrix"]["python"] == versions
    assert PROJECT["requires-python"] == f">={versions[0]}"

    # constraints.txt is resolved for the oldest of them.
    single = {
        step["with"]["python-version"]
        for step in STEPS
        if step.get("uses", "").startswith("actions/setup-python@")
    }
    assert single == {versions[0], "${{ matrix.python }}"}


def test_a_release_checks_the_version_before_it_publishes() -> None:
    assert JOBS["release-publish"]["needs"] == "build"
    assert JOBS["release-publish"]["permissions"] == {"id-token": "write"}
    assert "CHANGELOG.md" in str(JOBS["release-build"]["steps"])
