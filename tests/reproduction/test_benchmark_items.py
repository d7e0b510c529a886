"""Items over many runs: verdicts turn when numbers do, runs are shared, and what is missing is told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reproduction import (
    claims,
    figure_04_benchmark,
    figure_12_ablations,
    shared_runs,
    table_02_runtimes,
)
from reproduction.claims import judge_badge, judge_best
from reproduction.figure_04_benchmark import (
    benchmark_runs,
    judge_accuracy,
    judge_across,
    judge_deltas,
)
from reproduction.figure_12_ablations import judge_leads, judge_sizes
from reproduction.item import HOLDS, IN_PART, NOT, Item, Measurement, StudyConfig, to_json_value
from reproduction.ldm_laplace import LdmSLaplace
from reproduction.shared_runs import digits_setting, run_settings
from reproduction.table_02_runtimes import (
    judge_ensemble_time,
    judge_ldm_time,
    judge_runtime,
    time_ratios,
)
from teeter.analysis import paper_results
from teeter.checks import check_strategy
from teeter.errors import FileError, InputError, TeeterError
from teeter.experiments.runner import run_setting

RNG = np.random.default_rng(1)


def curve(mean: float, spread: float = 0.002) -> np.ndarray:
    """Accuracies of five repetitions and six rounds around a mean."""
    return mean + spread * RNG.standard_normal((5, 6))


def drawable(item: Item, found: Measurement) -> None:
    drawings = item.draw(Measurement(to_json_value(found.numbers), found.verdict, found.reason))
    assert drawings
    assert all(one.caption.endswith(".") for one in drawings)


def test_across_turns_with_the_numbers() -> None:
    best = {"ldm-s": curve(0.9), "random": curve(0.8), "entropy": curve(0.85)}
    worst = {"ldm-s": curve(0.7), "random": curve(0.8), "entropy": curve(0.85)}
    middle = {"ldm-s": curve(0.82), "random": curve(0.8), "entropy": curve(0.9)}
    found = judge_across({"a": best, "b": best})
    assert found.verdict == HOLDS
    assert "highest share at 101 of 101" in found.reason
    assert judge_across({"a": worst, "b": worst}).verdict == NOT
    assert judge_across({"a": best, "b": best, "c": middle}).verdict == IN_PART
    assert judge_across({"a": middle, "b": middle}).verdict == NOT
    drawable(figure_04_benchmark.FIGURE_4, found)


@pytest.mark.slow
def test_deltas_are_beaten_only_where_it_is_significant() -> None:
    first = curve(0.9)
    ahead, level, behind = (
        {"ldm-s": first, "badge": other} for other in (curve(0.8), first.copy(), curve(0.95))
    )
    assert judge_deltas({"a": ahead, "b": level}).verdict == HOLDS
    found = judge_deltas({"a": ahead, "b": behind})
    assert found.verdict == IN_PART
    assert "It is beaten on b" in found.reason
    assert judge_deltas({"b": behind}).verdict == NOT
    drawable(figure_04_benchmark.TABLE_1, found)


@pytest.mark.slow
def test_accuracy_counts_the_rounds_among_the_two_best() -> None:
    def runs(*means: float) -> np.ndarray:
        return np.array([[0.1, *means]])

    of_two = {"ldm-s": runs(0.5, 0.5, 0.5), "x": runs(0.9, 0.9, 0.1), "y": runs(0.9, 0.1, 0.1)}
    assert judge_accuracy({"a": of_two}).verdict == HOLDS
    assert judge_accuracy({"a": of_two}).numbers["shares"] == {"a": pytest.approx(2 / 3)}
    of_one = {**of_two, "y": runs(0.9, 0.9, 0.1)}
    assert judge_accuracy({"a": of_two, "b": of_one}).verdict == IN_PART
    assert judge_accuracy({"b": of_one}).verdict == NOT


@pytest.mark.slow
def test_times_are_those_alone_where_there_are_any() -> None:
    times = {
        "a": {"ldm-s": 2.0, "entropy": 1.0, "ldm-s alone": 1.1, "entropy alone": 1.0},
        "b": {"ldm-s": 3.0},
    }
    assert time_ratios(times) == {"a": pytest.approx(1.1)}


SETS = ("cifar10", "svhn", "cifar100", "tiny-imagenet", "food101")


def of(*found: float) -> dict[str, dict[str, float]]:
    return {name: {"ldm-s": r, "entropy": 1.0} for name, r in zip(SETS, found, strict=False)}


def test_runtime_turns_with_the_numbers() -> None:
    assert judge_runtime(of(1.0, 1.2, 1.1, 2.0)).verdict == HOLDS
    assert judge_runtime(of(1.0, 1.0, 2.0, 2.0)).verdict == IN_PART
    assert judge_runtime(of(2.0, 2.0)).verdict == NOT


def test_the_paper_s_own_runtimes_pass_the_tests() -> None:
    theirs = {
        name: found
        for name in paper_results.datasets()
        if "entropy" in (found := paper_results.minutes(name))
    }
    assert len(theirs) == 9
    assert judge_runtime(theirs).verdict == HOLDS
    assert judge_ldm_time(theirs).verdict == HOLDS
    alone = {
        name: {f"{strategy} alone": t for strategy, t in of_it.items()}
        for name, of_it in theirs.items()
    }
    assert judge_ensemble_time(alone).verdict == HOLDS


@pytest.mark.slow
def test_the_few_percent_are_those_of_the_five_image_sets() -> None:
    assert judge_ldm_time(of(1.0, 1.03, 1.05, 1.06, 0.9)).verdict == HOLDS
    missing = judge_ldm_time({**of(1.0, 1.03), "mnist": {"ldm-s": 9.0, "entropy": 1.0}})
    assert missing.verdict == IN_PART
    assert "no run of cifar100, tiny-imagenet, food101" in missing.notes[0]
    assert judge_ldm_time(of(1.0, 1.5, 1.0, 1.0, 1.0)).verdict == IN_PART
    assert judge_ldm_time(of(1.5)).verdict == NOT
    with pytest.raises(InputError, match="None of cifar10, svhn"):
        judge_ldm_time({"mnist": {"ldm-s": 1.0, "entropy": 1.0}})


@pytest.mark.slow
def test_an_ensemble_is_timed_alone_or_not_at_all() -> None:
    def each(*ratios: float) -> dict[str, dict[str, float]]:
        found = zip(SETS, ratios, strict=False)
        return {name: {"ensemble alone": r, "entropy alone": 1.0} for name, r in found}

    assert judge_ensemble_time(each(5.0, 4.5)).verdict == HOLDS
    assert judge_ensemble_time(each(5.0, 2.0)).verdict == IN_PART
    assert judge_ensemble_time(each(1.5)).verdict == NOT
    with pytest.raises(InputError, match="each run alone"):
        judge_ensemble_time({})


@pytest.mark.slow
def test_times_alone_are_of_one_kind_of_machine_and_begun_image_sets_count(tmp_path: Path) -> None:
    config = StudyConfig(quick=False, runs=tmp_path, device="cpu")
    setting = replace(
        shared_runs.digits_setting("x", **TINY, strategies=("ldm-s", "random", "entropy")),
        name="openml-6",
    )
    run_setting(setting, tmp_path / "openml-6", device="cpu")
    for name in ("ldm-s", "entropy", "ensemble"):
        run_setting(setting, tmp_path / f"openml-6-{name}-alone", device="cpu", strategies=[name])
    facts = tmp_path / "openml-6-ldm-s-alone" / "run.json"
    content = json.loads(facts.read_text())
    facts.write_text(json.dumps({**content, "hardware": "another"}))
    assert not any(
        name.endswith("alone") for name in table_02_runtimes.measure_times(config)[1]["openml-6"]
    )
    facts.write_text(json.dumps(content))
    assert {"ldm-s alone", "entropy alone"} < set(
        table_02_runtimes.measure_times(config)[1]["openml-6"]
    )
    found = table_02_runtimes.ENSEMBLE_TIME.compute(config)
    assert found.reason.startswith(
        "An ensemble alone takes as many times as long as Entropy alone: openml-6 "
    )
    assert found.tables[0].data[0]["machine"] == content["hardware"]
    with pytest.raises(InputError, match="None of cifar10"):
        table_02_runtimes.LDM_TIME.compute(config)
    run_setting(replace(setting, name="cifar10"), tmp_path / "cifar10", device="cpu")
    cell = min((tmp_path / "cifar10" / "cells").iterdir())
    cell.write_text(
        "".join(cell.read_text().splitlines(keepends=True)[:-1])
    )  # as if it had been stopped
    found = table_02_runtimes.LDM_TIME.compute(config)
    assert list(found.numbers["ratios"]) == ["cifar10"]
    assert any(
        note.startswith("cifar10 is begun: its times are those of up to 30 labels, on ")
        for note in found.notes
    )
    assert list(found.tables[0].data[0]) == ["strategy", "cifar10"]
    assert found.verdict != HOLDS


@pytest.mark.slow
def test_leads_must_be_significant() -> None:
    first = curve(0.9)
    runs = {
        "a": {"x": first, "y": curve(0.8), "z": first + 0.01 * RNG.standard_normal(first.shape)}
    }
    assert judge_leads(runs, "x", ["y"]).verdict == HOLDS
    assert judge_leads(runs, "x", ["y", "z"]).verdict == IN_PART
    found = judge_leads(runs, "y", ["x"])
    assert found.verdict == NOT
    assert "significantly behind x on a" in found.reason


@pytest.mark.slow
def test_sizes_turn_with_the_numbers() -> None:
    good = {"ldm-s": curve(0.9), "random": curve(0.8), "badge": curve(0.85)}
    bad = {"ldm-s": curve(0.9), "random": curve(0.8), "badge": curve(0.95)}
    like_random = {"ldm-s": good["ldm-s"], "random": good["ldm-s"].copy(), "badge": curve(0.8)}
    assert judge_sizes({"1": good, "10": good}).verdict == HOLDS
    assert judge_sizes({"1": good, "10": bad}).verdict == IN_PART
    assert judge_sizes({"1": bad, "10": like_random}).verdict == NOT


@pytest.mark.slow
def test_the_best_share_turns_with_the_numbers() -> None:
    low = {f"s{k}": curve(0.5) for k in range(8)}
    found = judge_best({"a": {"ldm-s": curve(0.9), **low}})
    assert found.verdict == HOLDS
    assert found.numbers["shares"]["ldm-s"] == 1
    drawable(claims.BEST_SHARE, found)
    assert judge_best({"a": {"ldm-s": curve(0.5), **low, "s0": curve(0.9)}}).verdict == NOT
    mixed = {"a": {"ldm-s": curve(0.9), **low}, "b": {"ldm-s": curve(0.5), **low, "s0": curve(0.9)}}
    assert judge_best(mixed).verdict == IN_PART


@pytest.mark.slow
def test_badge_is_judged_against_its_larger_batches() -> None:
    first, rest = curve(0.9, 0.001), curve(0.8, 0.001)

    def pair(lead: float) -> dict[str, np.ndarray]:
        noise = 0.001 * np.array([[1.0], [-1.0], [2.0], [-2.0], [0.0]])
        return {"ldm-s": first, "badge": first - lead + noise, "random": rest}

    assert judge_badge({"1": pair(0.1), "10": pair(0), "40": pair(-0.02)}).verdict == HOLDS
    assert (
        judge_badge({"1": pair(0.1), "10": pair(0.02), "40": pair(0.0)}).verdict == IN_PART
    )  # behind at 10, too
    assert (
        judge_badge({"1": pair(0), "10": pair(0), "40": pair(0.0)}).verdict == IN_PART
    )  # not poor at 1
    assert judge_badge({"1": pair(-0.1), "10": pair(0.2), "40": pair(0.0)}).verdict == NOT


TINY = {"initial": 20, "query": 10, "final": 40, "epochs": 3, "repetitions": 2, "pool": 60}


def tiny(name: str, strategies: tuple[str, ...], **values: object) -> object:
    return digits_setting(name, **{**TINY, "strategies": strategies, **values})


@pytest.mark.slow
def test_a_trial_is_run_once_and_shared(tmp_path: Path) -> None:
    config, setting = StudyConfig(runs=tmp_path, device="cpu"), tiny("trial", ("ldm-s", "random"))
    (first,) = run_settings(config, [setting])  # type: ignore[list-item]
    written = {
        path: path.stat().st_mtime_ns for path in (tmp_path / "quick-trial" / "cells").iterdir()
    }
    (again,) = run_settings(config, [setting])  # type: ignore[list-item]
    assert written == {
        path: path.stat().st_mtime_ns for path in (tmp_path / "quick-trial" / "cells").iterdir()
    }
    np.testing.assert_array_equal(first.accuracy["ldm-s"], again.accuracy["ldm-s"])
    run_settings(replace(config, seed=3), [setting])  # type: ignore[list-item]
    assert (tmp_path / "quick-trial-seed-3" / "run.json").exists()


@pytest.mark.slow
def test_a_finished_trial_is_read_without_its_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = StudyConfig(runs=tmp_path, device="cpu")
    setting = tiny("trial", ("ldm-s", "random"))
    (first,) = run_settings(config, [setting])

    def refuse(*args: object, **options: object) -> None:
        raise FileError("There is no dataset.")

    monkeypatch.setattr(shared_runs, "run_setting", refuse)
    (again,) = run_settings(config, [setting])
    assert (again.accuracy["ldm-s"] == first.accuracy["ldm-s"]).all()
    for more in (
        {"epochs": 4},
        {"repetitions": 3},
        {"final": 50},
        {"strategies": ("ldm-s", "random", "margin")},
    ):
        with pytest.raises(FileError, match="no dataset"):
            run_settings(config, [replace(setting, **more)])


@pytest.mark.slow
def test_a_trial_that_failed_is_told(tmp_path: Path) -> None:
    setting = tiny(
        "broken", ("random", "probcover"), options={"probcover": {"radius": 1e-30, "purity": 2.0}}
    )
    with pytest.raises(TeeterError):
        run_settings(StudyConfig(runs=tmp_path, device="cpu"), [setting])  # type: ignore[list-item]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """All settings of the items, as small as they can be."""

    def smaller(name: str, **values: object) -> object:
        query = min(int(values.get("query", 10)), 40)  # type: ignore[call-overload]
        return digits_setting(name, **{**values, **TINY, "query": query, "final": 20 + 2 * query})

    for module in (figure_12_ablations, figure_04_benchmark):
        monkeypatch.setattr(module, "digits_setting", smaller)


@pytest.mark.slow
def test_items_of_runs_on_tiny_sizes(tmp_path: Path, small: None) -> None:
    config = StudyConfig(runs=tmp_path, device="cpu")
    for item in (
        figure_04_benchmark.FIGURE_4,
        figure_04_benchmark.FIGURE_17,
        figure_04_benchmark.TABLE_1,
        figure_04_benchmark.TABLE_5,
        table_02_runtimes.TABLE_2,
        table_02_runtimes.LDM_TIME,
        table_02_runtimes.ENSEMBLE_TIME,
        figure_12_ablations.FIGURE_12,
        figure_12_ablations.FIGURE_16,
        figure_12_ablations.FIGURE_13,
        figure_12_ablations.FIGURE_14,
        claims.BEST_SHARE,
        claims.BADGE_ONE,
        claims.CLUSTER_MARGIN,
        claims.LDM_ALONE,
        claims.OPEN_QUESTION,
    ):
        found = item.compute(config)
        assert found.reason.endswith("."), item.name
        assert all(table.shown for table in found.tables), item.name
        assert found.tables, item.name
        if item.name not in ("table-5", "claim-runtime", "claim-ensemble-time"):
            drawable(item, found)
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
def test_the_full_form_reads_finished_runs_and_names_the_missing(tmp_path: Path) -> None:
    config = StudyConfig(quick=False, runs=tmp_path, device="cpu")
    with pytest.raises(InputError, match="no finished run"):
        benchmark_runs(config)
    setting = replace(
        shared_runs.digits_setting("x", **TINY, strategies=("ldm-s", "random", "entropy")),
        name="openml-6",
    )
    run_setting(setting, tmp_path / "openml-6", device="cpu")
    run_setting(
        replace(setting, name="mnist"),
        tmp_path / "mnist",
        rounds=2,
        device="cpu",
        strategies=["random"],
    )
    found, notes = benchmark_runs(config)
    assert [one.name for one in found] == ["openml-6"]
    assert notes[0].startswith("From the finished runs of openml-6, on ")
    assert "mnist (begun)" in notes[1]
    assert "cifar10" in notes[1]


@pytest.mark.slow
def test_the_strategy_that_is_only_tried_here_keeps_the_contract() -> None:
    check_strategy(LdmSLaplace)
    for options in ({"rays": 0}, {"prior": -1.0}):
        with pytest.raises(InputError):
            LdmSLaplace(**options)  # type: ignore[arg-type]


def test_full_settings_are_settings() -> None:
    full = StudyConfig(quick=False)
    every = [
        *figure_12_ablations.ablation_settings(full),
        *figure_12_ablations.batch_settings(full),
        *figure_12_ablations.large_settings(full),
    ]
    assert [one.name for one in every] == [
        "openml-6-ablations",
        "mnist-ablations",
        "cifar10-ablations",
        "mnist-batch-1",
        "mnist-batch-10",
        "mnist-batch-40",
        "openml-6-batch-2000",
        "mnist-batch-5000",
    ]
    for one in every:
        assert one.paper is None
        for name in one.strategies:
            one.strategy(name)
