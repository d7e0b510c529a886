"""Sweeps: data of one's own, own strategies, models and metrics, several batch sizes, one frame."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

import teeter
from bench.experiments.tiny_runs import results_without_times
from teeter.bench.experiments import read_run, run_setting
from teeter.errors import FileError, InputError, UnknownNameError
from teeter.strategies import Context, TopKStrategy

RNG = np.random.default_rng(0)
LABELS = np.arange(120) % 3
ROWS = (RNG.normal(size=(120, 5)) + 2 * np.eye(3, 5)[LABELS]).astype(np.float32)
NAMES = np.array(["cat", "dog", "owl"])[LABELS]


class FirstClass(TopKStrategy):
    """Rows of which the model says the first class."""

    needs = frozenset({"logits"})
    best = "largest"

    def score(self, context: Context) -> Tensor:
        return context.logits.softmax(dim=1)[:, 0]


def error_rate(labels: Any, probabilities: Any) -> float:
    return float((probabilities.argmax(axis=1) != labels).mean())


def small_network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))


@pytest.fixture(autouse=True)
def _on_one_thread(one_thread: None) -> None:
    torch.set_num_threads(1)


def run_sweep(out: Path, **values: Any) -> Any:
    arguments = {
        "data": (ROWS, LABELS),
        "strategies": ["random", "margin"],
        "batch": 6,
        "seeds": 2,
        "final": 18,
        "epochs": 3,
        "device": "cpu",
        **values,
    }
    return teeter.bench.sweep(arguments.pop("data"), out=out, **arguments)


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_a_sweep_has_a_row_for_each_round_of_each_batch_size(kind: str, tmp_path: Path) -> None:
    pytest.importorskip(kind)
    result = run_sweep(
        tmp_path,
        strategies=["random", FirstClass, "few-rays"],
        options={"few-rays": {"strategy": "ldm-s", "rays": 8}},
        batch=[6, 12],
        metrics=["macro_f1", error_rate],
    )
    frame = result.to_frame(kind)
    assert type(frame).__module__.startswith(kind)
    columns = {name: list(frame[name]) for name in frame.columns}
    # 6 to 18 labels: three rounds of 6, two of 12.
    assert columns["batch"] == [6] * 18 + [12] * 12
    assert set(columns["labels"][:18]) == {6, 12, 18}
    assert set(columns["strategy"]) == {"random", "FirstClass", "few-rays"}
    assert set(columns["seed"]) == {0, 1}
    assert np.allclose(columns["error_rate"], 1 - np.array(columns["accuracy"]))
    assert all(0 <= value <= 1 for value in columns["macro_f1"])

    run = read_run(tmp_path / "batch-6")
    assert run.setting.options["FirstClass"] == {"strategy": f"{__name__}:FirstClass"}
    assert run.setting.metrics == ("macro_f1", f"{__name__}:error_rate")
    first_frame = result.runs[0].to_frame(kind)
    assert list(run.to_frame(kind).columns) == list(first_frame.columns)


def test_it_continues_and_takes_more_strategies_and_seeds(tmp_path: Path) -> None:
    first = run_sweep(tmp_path, strategies=["random"], seeds=1).runs[0]
    more = run_sweep(tmp_path, seeds=2).runs[0]
    assert len(more.rounds) == 12
    kept = results_without_times(more)["random", 0]
    assert kept == results_without_times(first)["random", 0]
    assert len(list(run_sweep(tmp_path).to_frame()["labels"])) == 12

    with pytest.raises(InputError, match="holds a sweep of other data: choose another folder"):
        run_sweep(tmp_path, data=(ROWS[:60], LABELS[:60]))
    with pytest.raises(InputError, match="holds a run with different values"):
        run_sweep(tmp_path, model="mlp")


@pytest.mark.parametrize("model", [LogisticRegression(max_iter=50), small_network])
def test_a_model_of_one_s_own_is_taken(model: Any, tmp_path: Path) -> None:
    result = run_sweep(tmp_path, model=model)
    (run,) = result.runs
    assert run.failures == {}
    assert run.setting.network in (
        "own: LogisticRegression(max_iter=50)",
        f"own: {__name__}:small_network",
    )
    assert min(result.to_frame()["accuracy"]) > 0.2
    with pytest.raises(InputError, match="pass a model if it is your own, and none otherwise"):
        run_setting(run.setting, tmp_path / "again", strategies=["random"], folder=tmp_path)


@pytest.mark.slow
def test_workers_import_what_is_of_one_s_own(tmp_path: Path) -> None:
    values = {
        "strategies": ["random", FirstClass],
        "metrics": [error_rate],
        "model": LogisticRegression(),
    }
    here = run_sweep(tmp_path / "here", **values, separate=True)
    there = run_sweep(tmp_path / "there", **values, engine="local", workers=2)
    assert there.runs[0].failures == {}
    expected = results_without_times(here.runs[0])
    assert results_without_times(there.runs[0]).keys() == expected.keys()
    for cell, rounds in results_without_times(there.runs[0]).items():
        assert [entry[2] for entry in rounds] == [entry[2] for entry in expected[cell]]


def test_trackers_get_the_metrics_too(tmp_path: Path) -> None:
    class Notes:
        def __init__(self) -> None:
            self.rows: list[Any] = []

        def begin(self) -> list[Any]:
            return []

        def write(self, row: Any) -> None:
            self.rows.append(row)

        def end(self) -> None:
            pass

    notes = Notes()
    run_sweep(tmp_path, metrics=["macro_f1"], trackers=[notes], seeds=1)
    assert len(notes.rows) == 6
    assert all(0 <= row["macro_f1"] <= 1 for row in notes.rows)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_a_file_of_arrays_is_a_dataset(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors.numpy import save_file

    arrays = {
        "x_train": ROWS[:80],
        "y_train": LABELS[:80],
        "x_test": ROWS[80:],
        "y_test": LABELS[80:],
    }
    if suffix == ".npz":
        np.savez(tmp_path / "rows.npz", **arrays)
    else:
        save_file(arrays, tmp_path / "rows.safetensors")
    monkeypatch.chdir(tmp_path)
    result = run_sweep(tmp_path / "out", data=f"rows{suffix}")
    assert set(result.to_frame()["dataset"]) == {"rows"}
    assert result.runs[0].setting.dataset == f"rows{suffix}"


def test_classes_may_be_names_and_the_test_rows_be_given(tmp_path: Path) -> None:
    by_name = run_sweep(tmp_path / "names", data=(ROWS, NAMES))
    by_number = run_sweep(tmp_path / "numbers", data=(ROWS, LABELS))
    assert results_without_times(by_name.runs[0]) == results_without_times(by_number.runs[0])
    split = run_sweep(tmp_path / "split", data=(ROWS[:90], NAMES[:90], ROWS[90:], NAMES[90:]))
    accuracies = np.array(list(split.to_frame()["accuracy"]))
    assert np.allclose(accuracies * 30, (accuracies * 30).round())


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"data": (ROWS,)}, InputError, "There are 1 arrays: give (x, y), or"),
        ({"data": (ROWS, LABELS[:-1])}, FileError, "one label per row is needed"),
        ({"data": (ROWS * np.nan, LABELS)}, FileError, "has missing values"),
        ({"data": "no-such.npz"}, FileError, "There is no file"),
        ({"data": "digitz"}, UnknownNameError, "Did you mean 'digits'?"),
        ({"batch": []}, InputError, "There is no batch size to run"),
        ({"strategies": ["margn"]}, UnknownNameError, "Did you mean 'margin'?"),
        ({"strategies": []}, InputError, "There is no strategy to run"),
        ({"metrics": [lambda labels, p: 0.0]}, InputError, "define it at the top level"),
        ({"metrics": ["f1"]}, UnknownNameError, "calibration_error, macro_f1."),
        ({"final": 7}, InputError, "final must be 12 or more"),
        ({"engine": "spark"}, InputError, "No engine is called 'spark'"),
        ({"trackers": ["wandb"]}, InputError, "write KIND:TARGET"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_sentence(
    values: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error) as refusal:
        run_sweep(tmp_path, **values)
    assert message in str(refusal.value)


def test_a_mistake_in_the_data_can_be_put_right_in_the_same_folder(tmp_path: Path) -> None:
    with pytest.raises(FileError):
        run_sweep(tmp_path, data=(ROWS, LABELS[:-1]))
    assert run_sweep(tmp_path).runs[0].finished


def test_two_strategies_of_one_name_need_names(tmp_path: Path) -> None:
    ldm_s = teeter.strategies.get("ldm-s")
    with pytest.raises(InputError, match="There are two strategies called ldm-s"):
        run_sweep(tmp_path, strategies=[ldm_s(rays=8), ldm_s(rays=16)])
