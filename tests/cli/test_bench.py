"""teeter bench run and settings, as a user types them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import Result

from teeter.bench.experiments import read_run, runner, tracking
from teeter.cli.bench import _sentences
from teeter.strategies.base import Context, Strategy, registry

Teeter = Callable[..., Result]
SHORT = ("--set", "epochs=2", "--set", "final=60", "--repetitions", 1, "--device", "cpu")


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_run_says_what_it_found_and_goes_on_when_asked_for_more(teeter: Teeter) -> None:
    lines = teeter(
        "bench", "run", "digits", *SHORT, "--strategies", "random,margin"
    ).stdout.splitlines()

    assert lines[0].startswith("Mean accuracy: ")
    assert lines[1] == (
        "All rounds are in runs/digits; to compare the strategies, run teeter bench report "
        "runs/digits."
    )

    before = Path("runs/digits/cells/random-0.jsonl").read_bytes()
    teeter("bench", "run", "digits", *SHORT, "--strategies", "random,coreset")
    assert len(read_run(Path("runs/digits")).rounds) == 9
    assert Path("runs/digits/cells/random-0.jsonl").read_bytes() == before

    shortened = replace(read_run(Path("runs/digits")), last_round=1)
    assert _sentences(shortened)[-1].startswith("Rounds 0 to 1 of 2 are in runs/digits;")


def test_options_of_strategies_are_set_as_in_a_settings_file(teeter: Teeter) -> None:
    options = ("--set", "options.few-rays.strategy=ldm-s", "--set", "options.few-rays.rays=16")
    teeter("bench", "run", "digits", *SHORT, *options, "--strategies", "few-rays")
    run = read_run(Path("runs/digits"))
    assert run.setting.options == {"few-rays": {"strategy": "ldm-s", "rays": 16}}
    assert run.strategies == ("few-rays",)

    wrong = teeter("bench", "run", "digits", "--set", "options.ldm-s.ray=16", fails=2)
    assert "ldm-s has no option 'ray'. Did you mean 'rays'?" in wrong.stderr


def test_the_settings_are_listed_with_all_values(teeter: Teeter) -> None:
    *lines, values_line = teeter("bench", "settings").stdout.splitlines()
    assert "network=linear|mlp|" in values_line
    settings = json.loads(teeter("bench", "settings", "--json").stdout)
    assert [line.split()[0] for line in lines] == [setting["name"] for setting in settings]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["digitz"], "No setting is called 'digitz'. Did you mean 'digits'?"),
        (["none.toml"], "There is no file none.toml."),
        (["digits", "--set", "epochs"], "--set epochs is not KEY=VALUE"),
        (
            ["digits", "--set", "epoch=3"],
            "A setting has no value called 'epoch'. Did you mean 'epochs'?",
        ),
        (["digits", "--set", "options=x"], "options is 'x': it must be a table for each strategy"),
        (["digits", "--strategies", ","], "There is no strategy to run"),
        (
            ["digits", "--strategies", "randm"],
            "No strategy is called 'randm'. Did you mean 'random'?",
        ),
        (
            ["digits", "--set", "final=5000"],
            "digits needs 5000 training rows, but there are only 1437: lower final.",
        ),
        (
            ["digits", "--set", "validation=1437"],
            "Cannot draw 1437 validation rows out of 1437 training rows",
        ),
        (["digits", "--device", "tpu"], "No device is called 'tpu'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(
    teeter: Teeter, arguments: list[str], sentence: str
) -> None:
    lines = teeter("bench", "run", *arguments, fails=2).stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"Error: {sentence}")
    assert not Path("runs").exists()


def test_a_strategy_that_fails_is_reported_and_the_exit_code_is_1(
    teeter: Teeter, monkeypatch: pytest.MonkeyPatch
) -> None:
    class BrokenStrategy(Strategy):
        """Never chooses."""

        needs = frozenset()

        def choose(self, context: Context, n: int) -> torch.Tensor:
            raise RuntimeError("not today")

    monkeypatch.setitem(registry._classes, "broken", BrokenStrategy)
    lines = teeter(
        "bench", "run", "digits", *SHORT, "--strategies", "random,broken", fails=1
    ).stdout.splitlines()
    assert (
        lines[0]
        == "broken, repetition 0, failed: RuntimeError: not today. Repeat the command to try again."
    )
    assert lines[-1].startswith("The finished rounds are in runs/digits")


def test_stopped_by_hand_it_says_that_it_goes_on(
    teeter: Teeter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(runner, "fit_learners", interrupt)
        stderr = teeter(
            "bench", "run", "digits", *SHORT, "--strategies", "random", fails=130
        ).stderr

    assert (
        stderr
        == "Stopped. The finished rounds are in runs/digits. Repeat the command to continue.\n"
    )

    teeter("bench", "run", "digits", *SHORT, "--strategies", "random")


def test_rounds_are_tracked_as_well(
    teeter: Teeter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class LineTracker:
        """Appends the keys of rounds to a file."""

        def __init__(self, target: str) -> None:
            self.path = Path(target)

        def begin(self) -> list[Any]:
            lines = self.path.read_text().splitlines() if self.path.exists() else []
            return [tuple(json.loads(line)) for line in lines]

        def write(self, row: Any) -> None:
            with self.path.open("a") as file:
                file.write(json.dumps(tracking.round_key(row)) + "\n")

        def end(self) -> None:
            pass

    monkeypatch.setitem(tracking._BUILT_IN, "lines", LineTracker)
    short = (
        "--set",
        "final=40",
        "--set",
        "epochs=1",
        "--strategies",
        "random",
        "--repetitions",
        2,
        "--device",
        "cpu",
    )

    for _ in range(2):
        teeter(
            "bench",
            "run",
            "digits",
            *short,
            "--out",
            tmp_path / "run",
            "--track",
            f"lines:{tmp_path / 'a'}",
        )

    assert len((tmp_path / "a").read_text().splitlines()) == 4
    refused = teeter("bench", "run", "digits", *short, "--track", "tensorbord:a", fails=2)
    assert "Did you mean 'tensorboard'?" in refused.stderr
