"""python -m reproduction, with items of a made-up paper."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from cli.commands import CommandRunner, build_command
from paper_items import item
from reproduction import catalogue
from reproduction.__main__ import app
from reproduction.item import Measurement, StudyConfig

ITEM_NAMES = {item.name for item in catalogue.ITEMS}  # before the fixture replaces them


def broken(config: StudyConfig) -> Measurement:
    raise RuntimeError("no luck")


@pytest.fixture(autouse=True)
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "ITEMS", (item("one"), item("two")))


def run(*words: str | Path) -> tuple[int, str, str]:
    done = CommandRunner().invoke(app, list(map(str, words)))
    return done.exit_code, done.stdout, done.stderr


def test_it_lists_the_items() -> None:
    assert run("list") == (0, "one  Item <one> (figure 1)\ntwo  Item <two> (figure 1)\n", "")
    told = json.loads(run("list", "--json")[1])
    assert [one["name"] for one in told] == ["one", "two"]
    assert set(told[0]) == {"name", "title", "location", "claim", "test"}


def test_an_item_is_computed_and_drawn(tmp_path: Path) -> None:
    code, said, _ = run("run", "one", "--quick", "--out", tmp_path)
    assert code == 0
    assert (
        said
        == f"one: holds. 1 < 2 with the seed 0.\nClaims, figures and verdicts: {tmp_path / 'index.html'}\n"
    )
    assert (tmp_path / "one.json").exists()
    assert not (tmp_path / "two.json").exists()


def test_computing_and_drawing_may_be_apart(tmp_path: Path) -> None:
    code, said, _ = run("run", "all", "--quick", "--no-page", "--seed", "3", "--out", tmp_path)
    assert code == 0
    assert "the seed 3" in said
    assert not (tmp_path / "index.html").exists()
    code, said, _ = run("page", "--out", tmp_path, "--json")
    assert code == 0
    told = json.loads(said)
    assert told["page"] == str(tmp_path / "index.html")
    assert [one["verdict"] for one in told["items"]] == ["holds", "holds"]
    assert (tmp_path / "index.html").exists()


def test_a_failure_is_exit_code_1_and_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "ITEMS", (item("one", broken), item("two")))
    code, said, _ = run("run", "all", "--quick", "--out", tmp_path)
    assert code == 1
    assert "one could not be computed: RuntimeError: no luck" in said
    assert "two: holds." in said
    assert "RuntimeError: no luck" in (tmp_path / "index.html").read_text()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run", "on"], "No item of the paper is called 'on'. Did you mean 'one'?"),
        (["run", "all", "one"], "Cannot run all one together: all stands alone."),
        (["run", "one", "--device", "toaster"], "No device is called 'toaster'"),
        (["page"], "There is no result in"),
    ],
)
def test_bad_input_is_one_sentence(words: list[str], sentence: str, tmp_path: Path) -> None:
    code, _, said = run(*words, "--out", tmp_path)
    assert code == 2
    assert sentence in said
    assert len(said.strip().splitlines()) == 1


ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["reproduction/README.md", "docs/how_to/reproduce_the_paper.md"])
def test_documented_commands_are_accepted(page: str) -> None:
    """Every command that a page shows parses, and names an item of the catalogue."""
    group = build_command(app)
    lines = re.findall(
        r"^\$ python -m reproduction (.*)$", (ROOT / page).read_text(), flags=re.MULTILINE
    )
    assert lines
    for line in lines:
        command, *words = shlex.split(line)
        context = group.commands[command].make_context(command, words)
        for name in context.params.get("names", []):
            assert name == "all" or name in ITEM_NAMES
