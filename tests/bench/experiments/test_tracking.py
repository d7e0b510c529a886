"""Trackers get every round once, whatever is stopped, killed, added or broken."""

from __future__ import annotations

import json
import logging
import struct
import sys
from collections.abc import Collection, Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import teeter
from bench.experiments.killed_runs import run_until_killed
from teeter.bench.experiments.run_folder import Run
from teeter.bench.experiments.runner import run_setting
from teeter.bench.experiments.settings import setting_named
from teeter.bench.experiments.tracking import (
    COLUMNS,
    MlflowTracker,
    TensorBoardTracker,
    Tracker,
    TrackerSet,
    WandbTracker,
    learner_row,
    make_tracker,
    plugins,
    round_key,
)
from teeter.errors import InputError, MissingExtraError, PluginError, UnknownNameError
from teeter.selection.executors import make_executor

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


@pytest.fixture(autouse=True)
def _on_one_thread(one_thread: None) -> None:
    """Many small networks are slower on several."""


def cells(rows: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    return [(row["strategy"], int(row["repetition"]), int(row["round"])) for row in rows]


def run(out: Path, *trackers: Tracker, **options: Any) -> Run:
    return run_setting(TINY, out, trackers=trackers, device="cpu", **options)


class Listener:
    """A tracker of one's own."""

    def __init__(self, *, fails_at: int | None = None) -> None:
        self.rows: list[Any] = []
        self.fails_at = fails_at
        self.ended = False

    def begin(self) -> Collection[Any]:
        return [round_key(row) for row in self.rows]

    def write(self, row: Any) -> None:
        if len(self.rows) == self.fails_at:
            raise RuntimeError("the server is away")
        self.rows.append(row)

    def end(self) -> None:
        self.ended = True


def test_a_tracker_gets_every_round_as_it_was(tmp_path: Path) -> None:
    listener = Listener()
    finished_run = run(tmp_path / "run", listener)

    assert sorted(cells(listener.rows)) == sorted(ALL)
    by_cell = {
        (round_.strategy, round_.repetition, round_.number): round_
        for round_ in finished_run.rounds
    }

    for row, cell in zip(listener.rows, cells(listener.rows), strict=True):
        round_ = by_cell[cell]
        assert tuple(row) == COLUMNS
        assert (row["accuracy"], row["labelled"]) == (round_.accuracy, round_.labelled)
        assert row["training_seconds"] == round_.seconds["training"]
        assert tuple(row["picks"]) == round_.picks
        assert (row["setting"], row["started"]) == ("tiny", finished_run.facts["started"])


def test_a_run_that_goes_on_sends_no_round_twice(tmp_path: Path) -> None:
    listener = Listener()
    for rounds in (0, 1, None, None):
        run(tmp_path / "run", listener, rounds=rounds)
    assert sorted(cells(listener.rows)) == sorted(ALL)


def test_a_tracker_that_comes_later_gets_the_rounds_before_it(tmp_path: Path) -> None:
    run(tmp_path / "run", rounds=1)
    listener = Listener()
    run(tmp_path / "run", listener)
    assert sorted(cells(listener.rows)) == sorted(ALL)
    assert listener.ended


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_rounds_of_workers_are_tracked(tmp_path: Path, workers: int) -> None:
    listener = Listener()
    run(tmp_path / "run", listener, executor=make_executor("local", workers))
    assert sorted(cells(listener.rows)) == sorted(ALL)


def test_a_tracker_that_fails_stops_nothing_and_catches_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    failing = Listener(fails_at=5)
    other = Listener()
    with caplog.at_level(logging.WARNING):
        assert run(tmp_path / "run", failing, other).finished
    assert caplog.text.count("Tracker Listener failed and was disabled: the server is away.") == 1
    assert len(failing.rows) == 5
    assert len(other.rows) == len(ALL)
    failing.fails_at = None
    run(tmp_path / "run", failing)
    assert sorted(cells(failing.rows)) == sorted(ALL)


class RefusingListener(Listener):
    def begin(self) -> Collection[Any]:
        raise InputError("no server")


def test_a_tracker_that_cannot_begin_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no server"):
        run(tmp_path / "run", RefusingListener())
    assert not list((tmp_path / "run").glob("cells/*.jsonl"))


def test_trackers_that_have_begun_are_ended_if_a_later_one_cannot_begin() -> None:
    listener = Listener()
    refusing = RefusingListener()
    trackers = TrackerSet([listener, refusing], TINY, started="2026-01-01")
    with pytest.raises(InputError, match="no server"):
        trackers.__enter__()

    assert listener.ended
    assert not refusing.ended


class LinesTracker:
    """A tracker that appends rounds to a file, to be read after its process was killed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def rows(self) -> list[Any]:
        return (
            [json.loads(line) for line in self.path.read_text().splitlines()]
            if self.path.exists()
            else []
        )

    def begin(self) -> Collection[Any]:
        return [round_key(row) for row in self.rows()]

    def write(self, row: Any) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(dict(row)) + "\n")

    def end(self) -> None:
        pass


@pytest.mark.slow
def test_a_killed_run_goes_on_without_doubles(tmp_path: Path) -> None:
    tracker = LinesTracker(tmp_path / "rounds")
    run_until_killed(TINY, tmp_path / "run", rounds=5, trackers=[tracker])
    assert len(tracker.rows()) == 4
    run(tmp_path / "run", tracker)
    assert sorted(cells(tracker.rows())) == sorted(ALL)


def test_a_learner_of_one_s_own_is_tracked() -> None:
    digits, answers = load_digits(return_X_y=True)
    learner = teeter.Learner(LogisticRegression(max_iter=500), digits[:300], "margin", classes=10)

    rows = []
    for _ in range(2):
        picks = learner.ask(30)
        learner.tell(picks, answers[picks])
        learner.fit()
        evaluation = learner.evaluate(digits[300:500], answers[300:500])
        rows.append(learner_row(learner, evaluation, setting="mine"))

    assert [tuple(row) for row in rows] == [COLUMNS, COLUMNS]
    assert [(row["round"], row["labelled"], row["strategy"]) for row in rows] == [
        (0, 30, "margin"),
        (1, 60, "margin"),
    ]
    assert rows[1]["accuracy"] == evaluation.accuracy
    assert rows[1]["evaluation_seconds"] > 0


def test_trackers_go_by_kind_and_target() -> None:
    tracker = make_tracker("tensorboard:C:/board")
    assert isinstance(tracker, TensorBoardTracker)
    assert tracker.folder == Path("C:/board")
    with pytest.raises(
        UnknownNameError, match=r"No tracker is called 'tensorbord'\. Did you mean 'tensorboard'\?"
    ):
        make_tracker("tensorbord:board")
    with pytest.raises(InputError, match="write KIND:TARGET, as in tensorboard:FOLDER"):
        make_tracker("board")


def test_trackers_of_other_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    points = {
        "mine": EntryPoint(
            "mine", "teeter.bench.experiments.tracking:TensorBoardTracker", plugins.group
        ),
        "odd": EntryPoint("odd", "math:sqrt", plugins.group),
    }
    monkeypatch.setitem(plugins.__dict__, "_entry_points", points)
    assert isinstance(make_tracker("mine:somewhere"), TensorBoardTracker)
    with pytest.raises(
        PluginError, match="The tracker 'odd' of an unknown package cannot be created"
    ):
        make_tracker("odd:somewhere")


def test_without_tensorboard_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingExtraError, match=r"teeter\[bench\]"):
        run(tmp_path / "run", TensorBoardTracker(tmp_path / "board"))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_has_every_round_once(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed: the extra track")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for rounds in (0, None, None):
        finished_run = run(tmp_path / "run", TensorBoardTracker(tmp_path / "board"), rounds=rounds)

    folders = sorted(path.parent for path in (tmp_path / "board").glob("*/*/cell.json"))
    assert [folder.name for folder in folders] == ["margin-0", "margin-1", "random-0", "random-1"]
    expected = [
        round_
        for round_ in finished_run.rounds
        if (round_.strategy, round_.repetition) == ("margin", 1)
    ]

    events = EventAccumulator(str(folders[1])).Reload()
    assert [event.step for event in events.Scalars("accuracy")] == [20, 40, 60]
    assert [event.value for event in events.Scalars("accuracy")] == pytest.approx(
        [round_.accuracy for round_ in expected]
    )
    assert [event.value for event in events.Scalars("round")] == [0, 1, 2]
    assert "training_seconds" in events.Tags()["scalars"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_mlflow_has_every_round_once(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("alembic")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    for rounds in (0, None, None):
        finished_run = run(tmp_path / "run", MlflowTracker(uri), rounds=rounds)

    client = mlflow.MlflowClient(tracking_uri=uri)
    runs = client.search_runs([client.get_experiment_by_name("teeter").experiment_id])
    assert sorted(run.info.run_name for run in runs) == [
        "margin-0",
        "margin-1",
        "random-0",
        "random-1",
    ]
    (margin,) = [run for run in runs if run.info.run_name == "margin-1"]
    assert margin.info.status == "FINISHED"
    assert margin.data.tags["teeter.setting"] == "tiny"

    accuracies = client.get_metric_history(margin.info.run_id, "accuracy")
    assert [(metric.step, metric.value) for metric in accuracies] == [
        (round_.labelled, round_.accuracy)
        for round_ in finished_run.rounds
        if (round_.strategy, round_.repetition) == ("margin", 1)
    ]


@pytest.mark.slow
def test_weights_and_biases_has_every_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")

    finished_run = run(tmp_path / "run", WandbTracker("digits"))
    wandb.teardown()

    files = {path.stem: path for path in tmp_path.rglob("run-*.wandb")}
    assert len(files) == 4, "one for each cell"
    points = sorted(point for path in files.values() for point in logged_points(path))
    assert points == sorted(
        (round_.labelled, round_.number, round_.accuracy) for round_ in finished_run.rounds
    )


def logged_points(path: Path) -> list[tuple[int, int, float]]:
    """Return the labels, round and accuracy of each point in a file that W&B wrote offline."""
    from wandb.proto.wandb_internal_pb2 import Record

    points = []
    for data in records_of(path.read_bytes()):
        record = Record.FromString(data)
        if record.WhichOneof("record_type") == "history":
            values = {
                item.key or item.nested_key[0]: json.loads(item.value_json)
                for item in record.history.item
            }
            points.append((values["labelled"], record.history.step.num, values["accuracy"]))
    return points


def records_of(content: bytes) -> Iterator[bytes]:
    """Yield the records of a LevelDB log, which has parts of records in blocks of 32 KB."""
    record = b""
    position = 7  # after the header of the file
    while position + 7 <= len(content):
        if 32768 - position % 32768 < 7:
            position += 32768 - position % 32768
        _, length, kind = struct.unpack_from("<IHB", content, position)
        record += content[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # a whole record, or the end of one
            yield record
            record = b""


@pytest.mark.parametrize("kind", ["mlflow", "wandb"])
def test_without_the_library_it_says_what_to_install(
    kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, kind, None)
    with pytest.raises(MissingExtraError, match=f"pip install {kind}"):
        run(tmp_path / "run", make_tracker(f"{kind}:somewhere"))
