"""Items that read benchmark runs: their verdicts follow the numbers, and runs are shared."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fake_runs import fake_accuracy, fake_run
from paper_items import assert_drawable
from research.paper import (
    claims,
    figure_04_benchmark,
    figure_12_ablations,
    shared_runs,
    table_02_runtimes,
)
from research.paper.claims import judge_badge, judge_best_shares
from research.paper.figure_04_benchmark import (
    judge_accuracy,
    judge_cross_dataset,
    judge_deltas,
    load_benchmark_runs,
)
from research.paper.figure_12_ablations import judge_batch_sizes
from research.paper.item import HOLDS, IN_PART, NOT, StudyConfig
from research.paper.ldm_laplace import LdmSLaplace
from research.paper.shared_runs import judge_leads, make_digits_setting, run_settings
from research.paper.table_02_runtimes import (
    compute_time_ratios,
    judge_ensemble_time,
    judge_ldm_time,
    judge_runtimes,
    measure_minutes,
    read_solo_minutes,
)
from teeter.bench.analysis import paper_results
from teeter.bench.experiments import Setting, run_setting
from teeter.checks import check_strategy
from teeter.errors import FileError, InputError, TeeterError

TINY = {"initial": 20, "query": 10, "final": 40, "epochs": 3, "repetitions": 2, "pool": 60}
"""Values of a setting that runs in seconds."""

IMAGE_SETS = ("cifar10", "svhn", "cifar100", "tiny-imagenet", "food101")


def make_accuracies(mean: float, spread: float = 0.002) -> np.ndarray:
    """Return accuracies of five repetitions and six rounds around a mean."""
    # A generator per mean: numbers must not depend on which tests ran before.
    generator = np.random.default_rng(round(1000 * mean))
    return mean + spread * generator.standard_normal((5, 6))


def make_tiny_setting(name: str, strategies: tuple[str, ...], **values: object) -> Setting:
    return make_digits_setting(name, **{**TINY, "strategies": strategies, **values})


# Figure 4 and tables 1 and 5


def test_cross_dataset_verdict_follows_the_accuracies() -> None:
    best = {
        "ldm-s": make_accuracies(0.9),
        "random": make_accuracies(0.8),
        "entropy": make_accuracies(0.85),
    }
    worst = {
        "ldm-s": make_accuracies(0.7),
        "random": make_accuracies(0.8),
        "entropy": make_accuracies(0.85),
    }
    middle = {
        "ldm-s": make_accuracies(0.82),
        "random": make_accuracies(0.8),
        "entropy": make_accuracies(0.9),
    }

    measurement = judge_cross_dataset({"a": best, "b": best})
    assert measurement.verdict == HOLDS
    assert "highest share at 101 of 101" in measurement.reason
    assert_drawable(figure_04_benchmark.FIGURE_4, measurement)

    assert judge_cross_dataset({"a": best, "b": best, "c": middle}).verdict == IN_PART
    assert judge_cross_dataset({"a": worst, "b": worst}).verdict == NOT
    assert judge_cross_dataset({"a": middle, "b": middle}).verdict == NOT


@pytest.mark.slow
def test_only_a_significant_lead_beats_ldm_s() -> None:
    ldm_s = make_accuracies(0.9)
    ahead = {"ldm-s": ldm_s, "badge": make_accuracies(0.8)}
    equal = {"ldm-s": ldm_s, "badge": ldm_s.copy()}
    behind = {"ldm-s": ldm_s, "badge": make_accuracies(0.95)}

    assert judge_deltas({"a": ahead, "b": equal}).verdict == HOLDS
    assert judge_deltas({"b": behind}).verdict == NOT

    measurement = judge_deltas({"a": ahead, "b": behind})
    assert measurement.verdict == IN_PART
    assert "It is beaten on b" in measurement.reason
    assert_drawable(figure_04_benchmark.TABLE_1, measurement)


@pytest.mark.slow
def test_accuracy_counts_the_rounds_among_the_two_best() -> None:
    def make_run(*accuracies: float) -> np.ndarray:
        return np.array([[0.1, *accuracies]])

    two_of_three = {
        "ldm-s": make_run(0.5, 0.5, 0.5),
        "x": make_run(0.9, 0.9, 0.1),
        "y": make_run(0.9, 0.1, 0.1),
    }
    measurement = judge_accuracy({"a": two_of_three})
    assert measurement.verdict == HOLDS
    assert measurement.numbers["shares"] == {"a": pytest.approx(2 / 3)}

    one_of_three = {**two_of_three, "y": make_run(0.9, 0.9, 0.1)}
    assert judge_accuracy({"a": two_of_three, "b": one_of_three}).verdict == IN_PART
    assert judge_accuracy({"b": one_of_three}).verdict == NOT


# Table 2 and what the text says about times


def make_minutes(*ratios: float) -> dict[str, dict[str, float]]:
    """Return minutes of LDM-S and Entropy on the first image sets, with these ratios."""
    minutes = {}
    for name, ratio in zip(IMAGE_SETS, ratios, strict=False):
        minutes[name] = {"ldm-s": ratio, "entropy": 1.0}
    return minutes


def make_solo_minutes(*ratios: float) -> dict[str, dict[str, float]]:
    """Return minutes of solo runs of an ensemble and of Entropy, with these ratios."""
    minutes = {}
    for name, ratio in zip(IMAGE_SETS, ratios, strict=False):
        minutes[name] = {"ensemble alone": ratio, "entropy alone": 1.0}
    return minutes


@pytest.mark.slow
def test_time_ratios_prefer_solo_runs() -> None:
    minutes = {
        "a": {"ldm-s": 2.0, "entropy": 1.0, "ldm-s alone": 1.1, "entropy alone": 1.0},
        "b": {"ldm-s": 3.0},
    }
    assert compute_time_ratios(minutes) == {"a": pytest.approx(1.1)}


def test_runtime_verdict_follows_the_ratios() -> None:
    assert judge_runtimes(make_minutes(1.0, 1.2, 1.1, 2.0)).verdict == HOLDS
    assert judge_runtimes(make_minutes(1.0, 1.0, 2.0, 2.0)).verdict == IN_PART
    assert judge_runtimes(make_minutes(2.0, 2.0)).verdict == NOT


def test_the_papers_own_runtimes_pass_the_tests() -> None:
    paper = {}
    for name in paper_results.datasets():
        minutes = paper_results.minutes(name)
        if "entropy" in minutes:
            paper[name] = minutes

    assert len(paper) == 9
    assert judge_runtimes(paper).verdict == HOLDS
    assert judge_ldm_time(paper).verdict == HOLDS

    solo = {}
    for name, minutes in paper.items():
        solo[name] = {f"{strategy} alone": value for strategy, value in minutes.items()}
    assert judge_ensemble_time(solo).verdict == HOLDS


@pytest.mark.slow
def test_ldm_time_is_judged_on_the_five_image_sets() -> None:
    assert judge_ldm_time(make_minutes(1.0, 1.03, 1.05, 1.06, 0.9)).verdict == HOLDS
    assert judge_ldm_time(make_minutes(1.0, 1.5, 1.0, 1.0, 1.0)).verdict == IN_PART
    assert judge_ldm_time(make_minutes(1.5)).verdict == NOT

    mnist = {"mnist": {"ldm-s": 9.0, "entropy": 1.0}}
    incomplete = judge_ldm_time({**make_minutes(1.0, 1.03), **mnist})
    assert incomplete.verdict == IN_PART
    assert "no run of cifar100, tiny-imagenet, food101" in incomplete.notes[0]

    with pytest.raises(InputError, match="None of cifar10, svhn"):
        judge_ldm_time(mnist)


@pytest.mark.slow
def test_an_ensemble_is_judged_by_solo_runs_only() -> None:
    assert judge_ensemble_time(make_solo_minutes(5.0, 4.5)).verdict == HOLDS
    assert judge_ensemble_time(make_solo_minutes(5.0, 2.0)).verdict == IN_PART
    assert judge_ensemble_time(make_solo_minutes(1.5)).verdict == NOT

    with pytest.raises(InputError, match="each run alone"):
        judge_ensemble_time({})


@pytest.fixture
def full_config(tmp_path: Path) -> StudyConfig:
    """A configuration of full size, with an empty folder of runs."""
    return StudyConfig(quick=False, runs=tmp_path, device="cpu")


@pytest.fixture
def letters_setting() -> Setting:
    """A tiny setting on digits, with the name of one of the paper's settings."""
    setting = make_tiny_setting("x", ("ldm-s", "random", "entropy"))
    return replace(setting, name="openml-6")


@pytest.mark.slow
def test_solo_runs_count_if_all_have_the_same_hardware(
    full_config: StudyConfig, letters_setting: Setting
) -> None:
    folder = full_config.runs
    run_setting(letters_setting, folder / "openml-6", device="cpu")
    for name in ("ldm-s", "entropy", "ensemble"):
        solo_folder = folder / f"openml-6-{name}-alone"
        run_setting(letters_setting, solo_folder, device="cpu", strategies=[name])

    facts_path = folder / "openml-6-ldm-s-alone" / "run.json"
    facts = json.loads(facts_path.read_text())
    facts_path.write_text(json.dumps({**facts, "hardware": "another"}))
    _, minutes, _ = measure_minutes(full_config)
    assert not any(name.endswith("alone") for name in minutes["openml-6"])

    facts_path.write_text(json.dumps(facts))
    _, minutes, _ = measure_minutes(full_config)
    assert {"ldm-s alone", "entropy alone"} < set(minutes["openml-6"])

    measurement = table_02_runtimes.ENSEMBLE_TIME.compute(full_config)
    assert "as a multiple of Entropy's alone: openml-6 " in measurement.reason
    assert measurement.tables[0].data[0]["machine"] == facts["hardware"]


def test_a_solo_run_without_comparable_accuracies_is_skipped(
    full_config: StudyConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    accuracy = fake_accuracy(("ldm-s",))
    runs = {
        "openml-6-ldm-s-alone": fake_run(accuracy),
        "openml-6-entropy-alone": fake_run(fake_accuracy(("entropy",))),
    }
    monkeypatch.setattr(table_02_runtimes, "read_run_if_any", lambda folder: runs.get(folder.name))
    assert read_solo_minutes(full_config, "openml-6", "ldm-s") is not None

    not_numbers = {"ldm-s": np.full_like(accuracy["ldm-s"], np.nan)}
    runs["openml-6-ldm-s-alone"] = fake_run(not_numbers)
    assert read_solo_minutes(full_config, "openml-6", "ldm-s") is None

    del runs["openml-6-entropy-alone"]
    assert read_solo_minutes(full_config, "openml-6", "ldm-s") is None


def test_notes_say_why_a_run_is_left_out(
    full_config: StudyConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = {
        "openml-6": fake_run(fake_accuracy(("ldm-s", "random"))),
        "mnist": fake_run(fake_accuracy(("random",))),
        "svhn": fake_run(fake_accuracy(("ldm-s", "random")), finished=False),
    }
    monkeypatch.setattr(
        figure_04_benchmark, "read_run_if_any", lambda folder: runs.get(folder.name)
    )

    _, notes = load_benchmark_runs(full_config)
    assert "mnist (without ldm-s)" in notes[1]
    assert "svhn (unfinished)" in notes[1]


@pytest.mark.slow
def test_unfinished_runs_of_image_sets_count_for_times(
    full_config: StudyConfig, letters_setting: Setting
) -> None:
    folder = full_config.runs
    run_setting(letters_setting, folder / "openml-6", device="cpu")
    with pytest.raises(InputError, match="None of cifar10"):
        table_02_runtimes.LDM_TIME.compute(full_config)

    # Without its last line, a cell is as if the run had been stopped.
    run_setting(replace(letters_setting, name="cifar10"), folder / "cifar10", device="cpu")
    cell = min((folder / "cifar10" / "cells").iterdir())
    lines = cell.read_text().splitlines(keepends=True)
    cell.write_text("".join(lines[:-1]))

    measurement = table_02_runtimes.LDM_TIME.compute(full_config)
    assert list(measurement.numbers["ratios"]) == ["cifar10"]
    assert list(measurement.tables[0].data[0]) == ["strategy", "cifar10"]
    assert measurement.verdict != HOLDS

    note = "The run of cifar10 is not finished: its times are those of up to 30 labels, on "
    assert any(text.startswith(note) for text in measurement.notes)


# Ablations, batch sizes and claims


@pytest.mark.slow
def test_leads_must_be_significant() -> None:
    x = make_accuracies(0.9)
    noise = 0.01 * np.random.default_rng(0).standard_normal(x.shape)
    runs = {"a": {"x": x, "y": make_accuracies(0.8), "z": x + noise}}

    assert judge_leads(runs, "x", ["y"]).verdict == HOLDS
    assert judge_leads(runs, "x", ["y", "z"]).verdict == IN_PART

    measurement = judge_leads(runs, "y", ["x"])
    assert measurement.verdict == NOT
    assert "significantly behind x on a" in measurement.reason


@pytest.mark.slow
def test_batch_sizes_verdict_follows_the_accuracies() -> None:
    good = {
        "ldm-s": make_accuracies(0.9),
        "random": make_accuracies(0.8),
        "badge": make_accuracies(0.85),
    }
    beaten = {**good, "badge": make_accuracies(0.95)}
    like_random = {**good, "random": good["ldm-s"].copy(), "badge": make_accuracies(0.8)}

    assert judge_batch_sizes({"1": good, "10": good}).verdict == HOLDS
    assert judge_batch_sizes({"1": good, "10": beaten}).verdict == IN_PART
    assert judge_batch_sizes({"1": beaten, "10": like_random}).verdict == NOT


@pytest.mark.slow
def test_best_shares_verdict_follows_the_accuracies() -> None:
    rivals = {f"s{k}": make_accuracies(0.5) for k in range(8)}
    ldm_s_is_best = {"ldm-s": make_accuracies(0.9), **rivals}
    rival_is_best = {"ldm-s": make_accuracies(0.5), **rivals, "s0": make_accuracies(0.9)}

    measurement = judge_best_shares({"a": ldm_s_is_best})
    assert measurement.verdict == HOLDS
    assert measurement.numbers["shares"]["ldm-s"] == 1
    assert_drawable(claims.BEST_SHARE, measurement)

    assert judge_best_shares({"a": ldm_s_is_best, "b": rival_is_best}).verdict == IN_PART
    assert judge_best_shares({"a": rival_is_best}).verdict == NOT


@pytest.mark.slow
def test_badge_is_judged_against_its_larger_batches() -> None:
    ldm_s = make_accuracies(0.9, 0.001)
    random = make_accuracies(0.8, 0.001)

    def make_run(lead_of_ldm_s: float) -> dict[str, np.ndarray]:
        noise = 0.001 * np.array([[1.0], [-1.0], [2.0], [-2.0], [0.0]])
        return {"ldm-s": ldm_s, "badge": ldm_s - lead_of_ldm_s + noise, "random": random}

    poor_at_one = {1: make_run(0.1), 10: make_run(0), 40: make_run(-0.02)}
    assert judge_badge(poor_at_one).verdict == HOLDS

    also_poor_at_ten = {1: make_run(0.1), 10: make_run(0.02), 40: make_run(0.0)}
    assert judge_badge(also_poor_at_ten).verdict == IN_PART

    good_at_one = {1: make_run(0), 10: make_run(0), 40: make_run(0.0)}
    assert judge_badge(good_at_one).verdict == IN_PART

    poor_at_ten_only = {1: make_run(-0.1), 10: make_run(0.2), 40: make_run(0.0)}
    assert judge_badge(poor_at_ten_only).verdict == NOT


def test_full_settings_have_valid_strategies() -> None:
    full = StudyConfig(quick=False)
    settings = [
        *figure_12_ablations.make_ablation_settings(full),
        *figure_12_ablations.make_small_batch_settings(full),
        *figure_12_ablations.make_large_batch_settings(full),
    ]
    assert [setting.name for setting in settings] == [
        "openml-6-ablations",
        "mnist-ablations",
        "cifar10-ablations",
        "mnist-batch-1",
        "mnist-batch-10",
        "mnist-batch-40",
        "openml-6-batch-2000",
        "mnist-batch-5000",
    ]

    for setting in settings:
        assert setting.paper is None
        for name in setting.strategies:
            setting.strategy(name)


@pytest.mark.slow
def test_the_laplace_strategy_passes_the_contract() -> None:
    check_strategy(LdmSLaplace)

    for options in ({"rays": 0}, {"prior": -1.0}):
        with pytest.raises(InputError):
            LdmSLaplace(**options)  # type: ignore[arg-type]


# Runs


@pytest.mark.slow
def test_a_setting_is_run_once(tmp_path: Path) -> None:
    config = StudyConfig(runs=tmp_path, device="cpu")
    setting = make_tiny_setting("shared", ("ldm-s", "random"))
    cells = tmp_path / "quick-shared" / "cells"

    (first,) = run_settings(config, [setting])
    times = {path: path.stat().st_mtime_ns for path in cells.iterdir()}
    (second,) = run_settings(config, [setting])

    assert times == {path: path.stat().st_mtime_ns for path in cells.iterdir()}
    np.testing.assert_array_equal(first.accuracy["ldm-s"], second.accuracy["ldm-s"])

    run_settings(replace(config, seed=3), [setting])
    assert (tmp_path / "quick-shared-seed-3" / "run.json").exists()


@pytest.mark.slow
def test_a_finished_run_is_read_without_its_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = StudyConfig(runs=tmp_path, device="cpu")
    setting = make_tiny_setting("shared", ("ldm-s", "random"))
    (first,) = run_settings(config, [setting])

    def refuse(*args: object, **options: object) -> None:
        raise FileError("There is no dataset.")

    monkeypatch.setattr(shared_runs, "run_setting", refuse)
    (second,) = run_settings(config, [setting])
    assert (second.accuracy["ldm-s"] == first.accuracy["ldm-s"]).all()

    # A setting that asks for more than the run has must be run, which needs the dataset.
    for values in (
        {"epochs": 4},
        {"repetitions": 3},
        {"final": 50},
        {"strategies": ("ldm-s", "random", "margin")},
    ):
        with pytest.raises(FileError, match="no dataset"):
            run_settings(config, [replace(setting, **values)])


@pytest.mark.slow
def test_a_failed_run_is_reported(tmp_path: Path) -> None:
    options = {"probcover": {"radius": 1e-30, "purity": 2.0}}
    setting = make_tiny_setting("broken", ("random", "probcover"), options=options)

    with pytest.raises(TeeterError):
        run_settings(StudyConfig(runs=tmp_path, device="cpu"), [setting])


@pytest.fixture
def tiny_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make all settings of the items as small as they can be."""

    def make_smaller_setting(name: str, **values: object) -> Setting:
        query = min(int(values.get("query", 10)), 40)  # type: ignore[call-overload]
        final = 20 + 2 * query
        return make_digits_setting(name, **{**values, **TINY, "query": query, "final": final})

    for module in (figure_12_ablations, figure_04_benchmark):
        monkeypatch.setattr(module, "make_digits_setting", make_smaller_setting)


@pytest.mark.slow
@pytest.mark.usefixtures("tiny_settings")
def test_all_items_compute_and_draw_at_tiny_sizes(tmp_path: Path) -> None:
    config = StudyConfig(runs=tmp_path, device="cpu")
    items_without_figures = (
        figure_04_benchmark.TABLE_5,
        table_02_runtimes.LDM_TIME,
        table_02_runtimes.ENSEMBLE_TIME,
    )
    items_with_figures = (
        figure_04_benchmark.FIGURE_4,
        figure_04_benchmark.FIGURE_17,
        figure_04_benchmark.TABLE_1,
        table_02_runtimes.TABLE_2,
        figure_12_ablations.FIGURE_12,
        figure_12_ablations.FIGURE_16,
        figure_12_ablations.FIGURE_13,
        figure_12_ablations.FIGURE_14,
        claims.BEST_SHARE,
        claims.BADGE_ONE,
        claims.CLUSTER_MARGIN,
        claims.LDM_ALONE,
        claims.OPEN_QUESTION,
    )

    for item in (*items_without_figures, *items_with_figures):
        measurement = item.compute(config)
        assert measurement.reason.endswith("."), item.name
        assert measurement.tables, item.name
        assert all(table.shown for table in measurement.tables), item.name
        if item in items_with_figures:
            assert_drawable(item, measurement)

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "quick-ablations",
        "quick-across",
        "quick-across-ensemble-alone",
        "quick-across-entropy-alone",
        "quick-across-imbalanced",
        "quick-batch-1",
        "quick-batch-10",
        "quick-batch-40",
        "quick-batch-large",
    ]


@pytest.mark.slow
def test_a_full_computation_reads_finished_runs_and_names_the_missing(
    full_config: StudyConfig, letters_setting: Setting
) -> None:
    with pytest.raises(InputError, match="no finished run"):
        load_benchmark_runs(full_config)

    folder = full_config.runs
    run_setting(letters_setting, folder / "openml-6", device="cpu")
    run_setting(
        replace(letters_setting, name="mnist"),
        folder / "mnist",
        rounds=2,
        device="cpu",
        strategies=["random"],
    )

    runs, notes = load_benchmark_runs(full_config)
    assert [run.name for run in runs] == ["openml-6"]
    assert notes[0].startswith("From the finished runs of openml-6, on ")
    assert "mnist (without ldm-s)" in notes[1]
    assert "cifar10" in notes[1]
