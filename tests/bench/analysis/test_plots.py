"""Figures: a strategy looks the same in each, and each draws what it was given."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from fake_runs import NAMES, fake_accuracy
from teeter import strategies
from teeter.bench.analysis.plots import (
    line_style,
    new_figure,
    pca_2d,
    plot_curves,
    plot_gains,
    plot_labels,
    plot_penalties,
    plot_picks,
    plot_profile,
    plot_runtime,
    save_figure,
)
from teeter.bench.analysis.statistics import penalty_matrix, performance_profile, saving_over
from teeter.errors import MissingExtraError

LABELLED = 200.0 * np.arange(1, 21)
ACCURACY = fake_accuracy()


def lines(figure: object) -> dict[str, object]:
    (axes,) = figure.axes
    return {line.get_label().split("  ")[0]: line for line in axes.lines}


def test_ten_strategies_are_told_apart() -> None:
    looks = [line_style(name) for name in NAMES]
    assert len({look["color"] for look in looks}) == len({look["marker"] for look in looks}) == 10
    assert max(NAMES, key=lambda name: line_style(name)["linewidth"]) == "ldm-s"


def test_every_strategy_has_a_look_of_its_own() -> None:
    looks = [
        (look["color"], look["marker"], look["linestyle"])
        for look in map(line_style, strategies.names())
    ]
    assert len(set(looks)) == len(looks)


def test_a_look_does_not_depend_on_the_other_strategies_drawn() -> None:
    few = {name: ACCURACY[name] for name in ("badge", "ldm-s")}
    alone, together = lines(plot_curves(LABELLED, few)), lines(plot_curves(LABELLED, ACCURACY))
    for name in few:
        assert alone[name].get_color() == together[name].get_color() == line_style(name)["color"]
        assert alone[name].get_marker() == together[name].get_marker() == line_style(name)["marker"]
    assert line_style("my-plugin") == line_style("my-plugin")


def test_curves_and_gains_are_means() -> None:
    curves = lines(plot_curves(LABELLED, ACCURACY))
    np.testing.assert_allclose(curves["bait"].get_ydata(), 100 * ACCURACY["bait"].mean(axis=0))
    gains = lines(plot_gains(LABELLED, {"bait": ACCURACY["bait"]}, ACCURACY["random"]))
    expected = 100 * (ACCURACY["bait"] - ACCURACY["random"]).mean(axis=0)
    np.testing.assert_allclose(gains["bait"].get_ydata(), expected)


def test_a_strategy_that_falls_far_below_does_not_flatten_the_others() -> None:
    accuracy = {name: ACCURACY[name] for name in ("ldm-s", "badge")}
    accuracy["coreset"] = ACCURACY["random"] - 0.2 * (np.arange(20) > 0)
    figure = plot_gains(LABELLED, accuracy, ACCURACY["random"])
    assert figure.axes[0].get_ylim()[0] > -10
    assert "coreset (falls to −20)" in lines(figure)


def test_a_lone_strategy_that_falls_is_in_the_picture() -> None:
    figure = plot_gains(LABELLED, {"coreset": ACCURACY["random"] - 0.2}, ACCURACY["random"])
    low, high = figure.axes[0].get_ylim()
    assert low < -20 < high


def test_the_profile_is_drawn_as_steps() -> None:
    profiles = performance_profile([ACCURACY])
    for name, line in lines(plot_profile(profiles)).items():
        x, y = line.get_data()
        assert line.get_drawstyle() == "steps-post"
        np.testing.assert_allclose(y, [100 * profiles[name].at(delta) for delta in x])


def test_penalties_show_every_number_off_the_diagonal() -> None:
    penalties = penalty_matrix([ACCURACY])
    texts = [text.get_text() for text in plot_penalties(penalties).axes[0].texts]
    expected = [f"{v:.2f}" for v in penalties.matrix[~np.eye(10, dtype=bool)]]
    assert sorted(texts) == sorted([*expected, *(f"{v:.2f}" for v in penalties.column_means)])


def test_bars_are_the_minutes() -> None:
    figure = plot_runtime(
        {"a": {"training": 2.0, "selection": 1.0, "mine": 0.5}, "b": {"training": 1.0}}
    )
    widths = [patch.get_width() for patch in figure.axes[0].patches]
    assert sorted(widths) == [0, 0, 0.5, 1, 1, 2]
    assert plot_runtime({"a": {}}).axes


def test_labels_not_reached_are_marked() -> None:
    savings = {
        name: saving_over(LABELLED, ACCURACY[name], ACCURACY["random"])
        for name in ("ldm-s", "entropy")
    }
    texts = [text.get_text() for text in plot_labels(savings).axes[0].texts]
    assert texts[0] == "not reached"
    assert texts[1] == f"{savings['ldm-s'].labels:,.0f}"


def test_files_are_the_same_each_time(tmp_path: Path) -> None:
    few = {name: ACCURACY[name] for name in ("ldm-s", "random")}
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        save_figure(plot_curves(LABELLED, few), tmp_path / folder / "openml-6.5")
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == [
        "openml-6.5.png",
        "openml-6.5.svg",
    ]
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_drawing_without_matplotlib_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'teeter\[bench\]'"):
        new_figure(1, 1)


def test_the_plane_keeps_the_largest_variances() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(200, 6)) * [1, 5, 1, 1, 10, 1] + 3
    flat = pca_2d(features)
    np.testing.assert_allclose(flat.mean(axis=0), 0, atol=1e-9)
    assert abs(np.corrcoef(flat[:, 0], features[:, 4])[0, 1]) > 0.99
    assert abs(np.corrcoef(flat[:, 1], features[:, 1])[0, 1]) > 0.99


def test_pictures_show_every_pick() -> None:
    rng = np.random.default_rng(0)
    figure = plot_picks(
        rng.normal(size=(50, 2)), rng.uniform(0.01, 1, 50), np.arange(7), rng.normal(size=(7, 8, 8))
    )
    scatter, side = figure.subfigs
    assert len(scatter.axes[0].collections[1].get_offsets()) == 7
    assert sum(bool(cell.images) for cell in side.axes) == 7
