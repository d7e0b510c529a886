"""Trackers are told of every round once, whatever is stopped, killed, added or broken."""

from __future__ import annotations

import csv
import json
import logging
import sys
from collections.abc import Callable, Collection
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import teeter
from experiments.killed_runs import run_until_killed
from teeter.distributed.executors import make_executor
from teeter.errors import FileError, InputError, MissingExtraError, PluginError, UnknownNameError
from teeter.experiments.results import Run
from teeter.experiments.runner import run_setting
from teeter.experiments.settings import setting_named
from teeter.experiments.tracking import (
    COLUMNS,
    CsvTracker,
    JsonlTracker,
    TensorBoardTracker,
    Tracker,
    learner_row,
    make_tracker,
    plugins,
    round_key,
)

TINY = replace(
    setting_named("digits"),
    name="tiny",
    train=200,
    test=50,
    final=60,
    epochs=2,
    repetitions=2,
    separate=True,
    strategies=("random", "margin"),
)
ALL = {(name, r, number) for name in ("random", "margin") for r in range(2) for number in range(3)}

Read = Callable[[Path], list[dict[str, Any]]]


@pytest.fixture(autouse=True)
def _on_one_thread(one_thread: None) -> None:
    """Many small networks are slower on several."""


def csv_rows(path: Path) -> list[dict[str, Any]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def jsonl_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


FILES: list[tuple[type[CsvTracker] | type[JsonlTracker], Read]] = [(CsvTracker, csv_rows), (JsonlTracker, jsonl_rows)]
both = pytest.mark.parametrize(("kind", "read"), FILES, ids=["csv", "jsonl"])


def cells(rows: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    return [(row["strategy"], int(row["repetition"]), int(row["round"])) for row in rows]


def run(out: Path, *trackers: Tracker, **options: Any) -> Run:
    return run_setting(TINY, out, trackers=trackers, device="cpu", **options)


class Listener:
    """A tracker of one's own."""

    def __init__(self, *, fails_at: int | None = None) -> None:
        self.rows: list[Any] = []
        self.fails_at, self.ended = fails_at, False

    def begin(self) -> Collection[Any]:
        return [round_key(row) for row in self.rows]

    def write(self, row: Any) -> None:
        if len(self.rows) == self.fails_at:
            raise RuntimeError("the server is away")
        self.rows.append(row)

    def end(self) -> None:
        self.ended = True


@both
def test_a_file_has_every_round_as_it_was(tmp_path: Path, kind: Any, read: Read) -> None:
    found = run(tmp_path / "run", kind(tmp_path / "rounds"))
    rows = read(tmp_path / "rounds")
    assert len(rows) == len(ALL)
    assert set(cells(rows)) == ALL
    assert tuple(rows[0]) == COLUMNS
    by_cell = {(one.strategy, one.repetition, one.number): one for one in found.rounds}
    for row, cell in zip(rows, cells(rows), strict=True):
        one = by_cell[cell]
        assert float(row["accuracy"]) == one.accuracy
        assert int(row["labelled"]) == one.labelled
        assert float(row["training_seconds"]) == one.seconds["training"]
        picks = row["picks"].split() if isinstance(row["picks"], str) else row["picks"]
        assert tuple(map(int, picks)) == one.picks
        assert row["setting"] == "tiny"
        assert row["started"] == found.facts["started"]


@both
def test_a_run_that_goes_on_writes_no_round_twice(tmp_path: Path, kind: Any, read: Read) -> None:
    for rounds in (0, 1, None, None):
        run(tmp_path / "run", kind(tmp_path / "rounds"), rounds=rounds)
    assert sorted(cells(read(tmp_path / "rounds"))) == sorted(ALL)


@both
def test_a_half_line_of_a_crash_is_written_again(tmp_path: Path, kind: Any, read: Read) -> None:
    run(tmp_path / "run", kind(tmp_path / "rounds"))
    whole = (tmp_path / "rounds").read_bytes()
    for kept in (len(whole) - 10, 40, 5, 0):
        (tmp_path / "rounds").write_bytes(whole[:kept])
        run(tmp_path / "run", kind(tmp_path / "rounds"))
        assert sorted(cells(read(tmp_path / "rounds"))) == sorted(ALL)


def test_a_tracker_that_comes_later_is_told_what_was_done_before(tmp_path: Path) -> None:
    run(tmp_path / "run", rounds=1)
    listener = Listener()
    run(tmp_path / "run", listener)
    assert sorted(cells(listener.rows)) == sorted(ALL)
    assert listener.ended


def test_two_runs_share_a_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        other = replace(TINY, name=name)
        run_setting(other, tmp_path / name, rounds=0, device="cpu", trackers=[CsvTracker(tmp_path / "rounds.csv")])
    assert [row["setting"] for row in csv_rows(tmp_path / "rounds.csv")] == ["a"] * 4 + ["b"] * 4


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_rounds_of_workers_are_tracked(tmp_path: Path, workers: int) -> None:
    listener = Listener()
    run(tmp_path / "run", listener, executor=make_executor("local", workers))
    assert sorted(cells(listener.rows)) == sorted(ALL)


def test_a_tracker_that_fails_stops_nothing_and_catches_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    failing, other = Listener(fails_at=5), Listener()
    with caplog.at_level(logging.WARNING):
        assert run(tmp_path / "run", failing, other).finished
    assert caplog.text.count("Listener is told no more: the server is away.") == 1
    assert len(failing.rows) == 5
    assert len(other.rows) == len(ALL)
    failing.fails_at = None
    run(tmp_path / "run", failing)
    assert sorted(cells(failing.rows)) == sorted(ALL)


@both
@pytest.mark.parametrize("content", ["name,age\nann,3\n", "a shopping list", '{"x": 1}\n', "\n\n"])
def test_a_file_of_something_else_is_left_alone(tmp_path: Path, kind: Any, read: Read, content: str) -> None:
    path = tmp_path / "precious"
    path.write_text(content)
    with pytest.raises(FileError, match="holds something else than rounds: name another file"):
        run(tmp_path / "run", kind(path))
    assert path.read_text() == content


def test_a_place_that_cannot_be_written_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="Cannot write"):
        run(tmp_path / "run", CsvTracker(tmp_path / "no folder" / "rounds.csv"))
    assert not list((tmp_path / "run").glob("cells/*.jsonl"))


@pytest.mark.slow
def test_a_killed_run_goes_on_without_doubles(tmp_path: Path) -> None:
    path = tmp_path / "rounds.csv"
    run_until_killed(TINY, tmp_path / "run", rounds=5, trackers=[CsvTracker(path)])
    assert len(csv_rows(path)) == 4
    run(tmp_path / "run", CsvTracker(path))
    assert sorted(cells(csv_rows(path))) == sorted(ALL)


def test_a_learner_of_one_s_own_is_tracked(tmp_path: Path) -> None:
    digits, answers = load_digits(return_X_y=True)
    learner = teeter.Learner(LogisticRegression(max_iter=500), digits[:300], "margin", classes=10)
    tracker = CsvTracker(tmp_path / "rounds.csv")
    tracker.begin()
    for _ in range(2):
        rows = learner.ask(30)
        learner.tell(rows, answers[rows])
        learner.fit()
        judged = learner.evaluate(digits[300:500], answers[300:500])
        tracker.write(learner_row(learner, judged, setting="mine"))
    told = csv_rows(tmp_path / "rounds.csv")
    assert [(row["round"], row["labelled"], row["strategy"]) for row in told] == [
        ("0", "30", "margin"),
        ("1", "60", "margin"),
    ]
    assert float(told[1]["accuracy"]) == judged.accuracy


def test_a_column_that_a_table_does_not_have_is_refused(tmp_path: Path) -> None:
    tracker = CsvTracker(tmp_path / "rounds.csv")
    tracker.begin()
    with pytest.raises(InputError, match="has no column 'mood'"):
        tracker.write({"round": 0, "mood": "good"})


def test_trackers_go_by_kind_and_place() -> None:
    made = make_tracker("jsonl:C:/rounds.jsonl")
    assert isinstance(made, JsonlTracker)
    assert made.path == Path("C:/rounds.jsonl")
    with pytest.raises(UnknownNameError, match=r"No tracker is called 'cvs'\. Did you mean 'csv'\?"):
        make_tracker("cvs:rounds")
    with pytest.raises(InputError, match="write KIND:PLACE, as in csv:rounds"):
        make_tracker("rounds.csv")


def test_trackers_of_other_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    points = {
        "mine": EntryPoint("mine", "teeter.experiments.tracking:JsonlTracker", plugins.group),
        "odd": EntryPoint("odd", "math:sqrt", plugins.group),
    }
    monkeypatch.setitem(plugins.__dict__, "_entry_points", points)
    assert isinstance(make_tracker("mine:somewhere"), JsonlTracker)
    with pytest.raises(PluginError, match="The tracker 'odd' of an unknown package cannot be made"):
        make_tracker("odd:somewhere")


def test_without_tensorboard_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingExtraError, match=r"teeter\[track\]"):
        run(tmp_path / "run", TensorBoardTracker(tmp_path / "board"))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_has_every_round_once(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed: the extra track")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for rounds in (0, None, None):
        found = run(tmp_path / "run", TensorBoardTracker(tmp_path / "board"), rounds=rounds)
    folders = sorted(path.parent for path in (tmp_path / "board").glob("*/*/cell.json"))
    assert [folder.name for folder in folders] == ["margin-0", "margin-1", "random-0", "random-1"]
    expected = [one for one in found.rounds if (one.strategy, one.repetition) == ("margin", 1)]
    events = EventAccumulator(str(folders[1])).Reload()
    assert [event.step for event in events.Scalars("accuracy")] == [20, 40, 60]
    assert [event.value for event in events.Scalars("accuracy")] == pytest.approx([one.accuracy for one in expected])
    assert [event.value for event in events.Scalars("round")] == [0, 1, 2]
    assert "training_seconds" in events.Tags()["scalars"]
