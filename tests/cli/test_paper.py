"""teeter paper, with items of a made-up paper."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.commands import CommandRunner
from paper_items import item
from teeter.cli import app
from teeter.studies import paper
from teeter.studies.items import Measured, Scale


def broken(scale: Scale) -> Measured:
    raise RuntimeError("no luck")


@pytest.fixture(autouse=True)
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper, "ITEMS", (item("one"), item("two")))


def run(*words: str | Path) -> tuple[int, str, str]:
    done = CommandRunner().invoke(app, ["paper", *map(str, words)])
    return done.exit_code, done.stdout, done.stderr


def test_alone_it_lists_the_items() -> None:
    assert run() == (0, "one  Item <one> (figure 1)\ntwo  Item <two> (figure 1)\n", "")
    told = json.loads(run("--json")[1])
    assert [one["name"] for one in told] == ["one", "two"]
    assert set(told[0]) == {"name", "title", "where", "claim", "test"}


def test_an_item_is_computed_and_drawn(tmp_path: Path) -> None:
    code, said, _ = run("one", "--quick", "--out", tmp_path)
    assert code == 0
    assert said == f"one: holds. 1 < 2 with the seed 0.\nClaims, pictures and verdicts: {tmp_path / 'index.html'}\n"
    assert (tmp_path / "one.json").exists()
    assert not (tmp_path / "two.json").exists()


def test_computing_and_drawing_may_be_apart(tmp_path: Path) -> None:
    code, said, _ = run("all", "--quick", "--no-page", "--seed", "3", "--out", tmp_path)
    assert code == 0
    assert "the seed 3" in said
    assert not (tmp_path / "index.html").exists()
    code, said, _ = run("page", "--out", tmp_path, "--json")
    assert code == 0
    told = json.loads(said)
    assert told["page"] == str(tmp_path / "index.html")
    assert [one["verdict"] for one in told["items"]] == ["holds", "holds"]
    assert (tmp_path / "index.html").exists()


def test_a_failure_is_exit_code_1_and_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper, "ITEMS", (item("one", broken), item("two")))
    code, said, _ = run("all", "--quick", "--out", tmp_path)
    assert code == 1
    assert "one could not be computed: RuntimeError: no luck" in said
    assert "two: holds." in said
    assert "RuntimeError: no luck" in (tmp_path / "index.html").read_text()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["on"], "No item of the paper is called 'on'. Did you mean 'one'?"),
        (["all", "one"], "Cannot take all one together: all and page stand alone."),
        (["one", "--device", "toaster"], "No device is called 'toaster'"),
        (["page"], "There is no result in"),
    ],
)
def test_bad_input_is_one_sentence(words: list[str], sentence: str, tmp_path: Path) -> None:
    code, _, said = run(*words, "--out", tmp_path)
    assert code == 2
    assert sentence in said
    assert len(said.strip().splitlines()) == 1
