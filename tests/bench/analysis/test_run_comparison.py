"""Comparisons of rounds from anywhere: data frames, columns, and other metrics of a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import pytest

from fake_runs import fake_accuracy, fake_run
from teeter.bench import compare_strategies
from teeter.errors import InputError

ACCURACY = fake_accuracy(("ldm-s", "random", "margin"), rounds=6)


def make_columns(accuracy: dict[str, Any] = ACCURACY) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {"strategy": [], "seed": [], "labels": [], "accuracy": []}
    for name, runs in accuracy.items():
        for (seed, number), value in np.ndenumerate(runs):
            columns["strategy"].append(name)
            columns["seed"].append(seed)
            columns["labels"].append(20 * (number + 1))
            columns["accuracy"].append(float(value))
    return columns


def make_polars_frame(columns: Any) -> Any:
    return pytest.importorskip("polars").DataFrame(columns)


@pytest.mark.parametrize("make_frame", [dict, pandas.DataFrame, make_polars_frame])
def test_a_frame_is_compared_as_a_run_is(make_frame: Any) -> None:
    comparison = compare_strategies(make_frame(make_columns()))
    expected = compare_strategies(fake_run(ACCURACY))
    assert list(comparison.accuracy) == list(expected.accuracy)
    for name, gain in expected.gains.items():
        assert comparison.gains[name] == gain
        # The run adds 200 labels a round, and the frame 20.
        assert comparison.savings[name].saved == pytest.approx(expected.savings[name].saved / 10)
    assert comparison.penalties.beaten == expected.penalties.beaten
    assert comparison.notes == ()


def test_the_order_of_rows_does_not_matter() -> None:
    frame = pandas.DataFrame(make_columns())
    shuffled = compare_strategies(frame.sample(frac=1, random_state=0))
    assert shuffled.gains == compare_strategies(frame).gains


def test_a_table_for_people_and_one_for_programs() -> None:
    comparison = compare_strategies(make_columns(), baseline="margin")
    gain = comparison.gains["ldm-s"]
    lines = str(comparison).splitlines()
    assert lines[0] == "| strategy | accuracy | gain over margin | p | labels saved | penalty |"
    (row,) = [line for line in lines if line.startswith("| ldm-s")]
    assert f"{gain.mean:+.2f} ± {gain.deviation:.2f}" in row.replace("−", "-")

    by_name = comparison.to_frame("pandas").set_index("strategy")
    assert by_name.gain["ldm-s"] == gain.mean
    assert by_name.p["ldm-s"] == gain.p
    assert np.isnan(by_name.gain["margin"])


def test_the_table_of_a_comparison_is_the_same_in_both_kinds_of_frame() -> None:
    pytest.importorskip("polars")
    comparison = compare_strategies(make_columns(), baseline="margin")
    frame = comparison.to_frame("polars")
    assert list(comparison.to_frame("pandas").columns) == frame.columns
    (row,) = [row for row in frame.to_dicts() if row["strategy"] == "margin"]
    assert row["gain"] is None


def test_less_is_better_for_a_loss() -> None:
    columns = make_columns()
    columns["loss"] = [1 - value for value in columns.pop("accuracy")]
    by_loss = compare_strategies(columns, metric="loss")
    by_accuracy = compare_strategies(make_columns())
    assert by_loss.gains["ldm-s"].mean == pytest.approx(by_accuracy.gains["ldm-s"].mean)
    losses = by_loss.to_frame("pandas").set_index("strategy").loss
    assert losses["ldm-s"] == pytest.approx(1 - by_accuracy.mean_accuracy("ldm-s") / 100)

    columns["regret"] = columns["loss"]
    own = compare_strategies(columns, metric="regret", lower_is_better=True)
    assert own.gains["ldm-s"].mean == pytest.approx(by_loss.gains["ldm-s"].mean)
    assert compare_strategies(columns, metric="regret").gains["ldm-s"].mean < 0


def test_other_metrics_of_a_run_are_compared_too() -> None:
    comparison = compare_strategies(fake_run(ACCURACY), metric="loss")
    assert comparison.metric == "loss"
    assert comparison.repetitions == 5


def test_what_some_strategies_lack_is_left_out_and_said() -> None:
    frame = pandas.DataFrame(make_columns())
    is_missing = (frame.strategy == "margin") & ((frame.seed == 4) | (frame.labels == 120))
    comparison = compare_strategies(frame[~is_missing])
    assert comparison.labelled.tolist() == [20, 40, 60, 80, 100]
    assert comparison.repetitions == 4
    assert comparison.notes == (
        "Only 4 of 5 seeds are compared: those of every strategy.",
        "Only 5 of 6 numbers of labels are compared: those that every strategy and seed has.",
    )

    frame.loc[frame.seed == 2, "accuracy"] = np.nan
    assert compare_strategies(frame).repetitions == 4
    without = compare_strategies(frame[frame.strategy != "random"])
    assert without.gains == {}
    assert "Random was not run" in without.notes[-1]
    assert "| – |" in str(without)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.drop(columns="seed"), "There is no column 'seed' in this DataFrame"),
        (lambda frame: make_polars_frame(frame).drop("labels"), "There is no column 'labels'"),
        (lambda frame: frame[:0], "the data frame has no rows"),
        (lambda frame: pandas.concat([frame, frame]), "There are two rows of ldm-s, seed 0, with"),
        (lambda frame: frame.assign(batch=frame.labels), "There are several values of batch"),
        (lambda frame: frame.assign(accuracy="good"), "The column accuracy has 'good'"),
        (lambda frame: 3, "There is no column 'strategy' in this int"),
    ],
)
def test_frames_that_cannot_be_compared_are_refused(change: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        compare_strategies(change(pandas.DataFrame(make_columns())))


def test_one_round_is_nothing_to_compare() -> None:
    frame = pandas.DataFrame(make_columns())
    comparison = compare_strategies(frame[frame.labels == 20])
    assert not comparison.comparable
    with pytest.raises(InputError, match=r"There is nothing to compare\. Only the initial round"):
        print(comparison)
