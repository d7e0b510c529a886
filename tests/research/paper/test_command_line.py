"""python -m research.paper, with items of a made-up paper."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from cli.commands import CommandRunner, build_command
from paper_items import make_item
from research.paper import catalogue
from research.paper.__main__ import app
from research.paper.item import Measurement, StudyConfig

ROOT = Path(__file__).parents[3]
ITEM_NAMES = {item.name for item in catalogue.ITEMS}  # before the fixture replaces them


def fail_to_measure(config: StudyConfig) -> Measurement:
    raise RuntimeError("no luck")


@pytest.fixture(autouse=True)
def made_up_items(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the items of the paper by two that take no time."""
    monkeypatch.setattr(catalogue, "ITEMS", (make_item("one"), make_item("two")))


def run(*words: str | Path) -> tuple[int, str, str]:
    """Run a command, and return its exit code, its output and its errors."""
    result = CommandRunner().invoke(app, list(map(str, words)))
    return result.exit_code, result.stdout, result.stderr


def test_list_prints_the_items() -> None:
    assert run("list") == (0, "one  Item <one> (figure 1)\ntwo  Item <two> (figure 1)\n", "")

    _, output, _ = run("list", "--json")
    items = json.loads(output)
    assert [item["name"] for item in items] == ["one", "two"]
    assert set(items[0]) == {"name", "title", "location", "claim", "test"}


def test_run_computes_and_draws_an_item(tmp_path: Path) -> None:
    code, output, _ = run("run", "one", "--quick", "--out", tmp_path)

    assert code == 0
    assert output.splitlines() == [
        "one: holds. 1 < 2 with the seed 0.",
        f"Claims, figures and verdicts: {tmp_path / 'index.html'}",
    ]
    assert (tmp_path / "one.json").exists()
    assert not (tmp_path / "two.json").exists()


def test_page_draws_what_was_computed_earlier(tmp_path: Path) -> None:
    code, output, _ = run("run", "all", "--quick", "--no-page", "--seed", "3", "--out", tmp_path)
    assert code == 0
    assert "the seed 3" in output
    assert not (tmp_path / "index.html").exists()

    code, output, _ = run("page", "--out", tmp_path, "--json")
    assert code == 0
    content = json.loads(output)
    assert content["page"] == str(tmp_path / "index.html")
    assert [item["verdict"] for item in content["items"]] == ["holds", "holds"]
    assert (tmp_path / "index.html").exists()


def test_a_failed_item_sets_exit_code_1_and_is_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = (make_item("one", fail_to_measure), make_item("two"))
    monkeypatch.setattr(catalogue, "ITEMS", items)

    code, output, _ = run("run", "all", "--quick", "--out", tmp_path)
    assert code == 1
    assert "one could not be computed: RuntimeError: no luck" in output
    assert "two: holds." in output
    assert "RuntimeError: no luck" in (tmp_path / "index.html").read_text()

    _, output, _ = run("page", "--out", tmp_path, "--json")
    failed, computed = json.loads(output)["items"]
    assert failed["verdict"] is None
    assert failed["error"] == "RuntimeError: no luck"
    assert computed["error"] is None


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run", "on"], "No item of the paper is called 'on'. Did you mean 'one'?"),
        (["run", "all", "one"], "Cannot run all one together: all stands alone."),
        (["run", "one", "--device", "toaster"], "No device is called 'toaster'"),
        (["page"], "run python -m research.paper run all --quick --out"),
    ],
)
def test_bad_input_is_reported_in_one_line(words: list[str], sentence: str, tmp_path: Path) -> None:
    code, _, errors = run(*words, "--out", tmp_path)

    assert code == 2
    assert sentence in errors
    assert len(errors.strip().splitlines()) == 1


@pytest.mark.parametrize("page", ["research/paper/README.md", "docs/how_to/reproduce_the_paper.md"])
def test_documented_commands_are_accepted(page: str) -> None:
    """Every command that a page shows parses, and names items of the catalogue."""
    text = (ROOT / page).read_text()
    lines = re.findall(r"^\$ python -m research.paper (.*)$", text, flags=re.MULTILINE)
    assert lines

    group = build_command(app)
    for line in lines:
        command, *words = shlex.split(line)
        context = group.commands[command].make_context(command, words)
        for name in context.params.get("names", []):
            assert name == "all" or name in ITEM_NAMES
