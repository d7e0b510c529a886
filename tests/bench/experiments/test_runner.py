"""The runner: it compares alike, records what is done, and resumes as if it had
never been stopped.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.experiments.killed_runs import run_until_killed
from bench.experiments.tiny_runs import TINY, results_without_times
from campaigns.killed_process import Report, kill_after, needs_fork
from teeter.bench.experiments import runner
from teeter.bench.experiments.run_folder import Round, Run, RunFolder, by_cells, read_run
from teeter.bench.experiments.runner import run_setting
from teeter.bench.experiments.settings import Setting
from teeter.errors import InputError, UnknownNameError
from teeter.strategies.base import Context, Strategy, registry


@pytest.fixture(autouse=True)
def _on_one_thread(one_thread: None) -> None:
    torch.set_num_threads(1)


def test_every_cell_goes_from_the_initial_labels_to_the_last(finished_run: Run) -> None:
    assert finished_run.finished
    assert finished_run.failures == {}
    assert set(by_cells(finished_run.rounds)) == {
        (name, r) for name in TINY.strategies for r in range(2)
    }

    for rounds in by_cells(finished_run.rounds).values():
        assert [round_.number for round_ in rounds] == [0, 1, 2, 3]
        assert [round_.labelled for round_ in rounds] == [20, 40, 60, 80]
        assert [len(round_.picks) for round_ in rounds] == [20, 20, 20, 0]

        picked = [row for round_ in rounds for row in round_.picks]
        assert len(set(picked)) == 60
        assert all(0 <= row < 300 for row in picked)

        assert rounds[-1].loss < rounds[0].loss
        assert all(round_.peak_memory > 0 and round_.seconds["training"] > 0 for round_ in rounds)


def test_strategies_of_a_repetition_begin_alike_and_repetitions_do_not(finished_run: Run) -> None:
    cells = by_cells(finished_run.rounds)
    first = {cell: rounds[0].accuracy for cell, rounds in cells.items()}
    assert first["random", 0] == pytest.approx(first["ldm-s", 0], abs=1e-12)
    assert first["random", 1] == pytest.approx(first["ldm-s", 1], abs=1e-12)
    assert cells["random", 0][0].picks != cells["random", 1][0].picks


def test_networks_that_continue_are_trained_again_when_a_run_resumes(tmp_path: Path) -> None:
    setting = replace(TINY, warm_start=True, strategies=("margin",), repetitions=1)
    unbroken = run_setting(setting, tmp_path / "unbroken", device="cpu")
    run_setting(setting, tmp_path / "resumed", rounds=1, device="cpu")
    resumed = run_setting(setting, tmp_path / "resumed", device="cpu")
    assert results_without_times(resumed) == results_without_times(unbroken)

    anew = run_setting(replace(setting, warm_start=False), tmp_path / "anew", device="cpu")
    accuracies = [[result.accuracy for result in run.rounds] for run in (unbroken, anew)]
    assert accuracies[0][0] == accuracies[1][0]
    assert accuracies[0][1:] != accuracies[1][1:]


def test_it_repeats_itself(finished_run: Run, tmp_path: Path) -> None:
    assert results_without_times(
        run_setting(TINY, tmp_path, device="cpu")
    ) == results_without_times(finished_run)


@pytest.mark.parametrize("rounds", [pytest.param(0, marks=pytest.mark.slow), 2])
def test_stopped_after_some_rounds_it_goes_on(
    rounds: int, finished_run: Run, tmp_path: Path
) -> None:
    part = run_setting(TINY, tmp_path, rounds=rounds, device="cpu")
    assert {len(cell_rounds) for cell_rounds in by_cells(part.rounds).values()} == {rounds + 1}
    assert part.finished
    assert part.is_shortened
    assert (part.last_round, finished_run.is_shortened) == (rounds, False)

    assert results_without_times(
        run_setting(TINY, tmp_path, device="cpu")
    ) == results_without_times(finished_run)


def test_running_again_what_is_done_changes_nothing(finished_run: Run) -> None:
    before = {path: path.read_bytes() for path in finished_run.folder.rglob("*") if path.is_file()}

    steps: list[tuple[int, int]] = []
    again = run_setting(
        TINY, finished_run.folder, device="cpu", on_step=lambda *step: steps.append(step)
    )

    assert results_without_times(again) == results_without_times(finished_run)
    assert {path: path.read_bytes() for path in before} == before
    assert steps[-1] == (24, 24)


def test_strategies_and_repetitions_can_be_added(finished_run: Run, tmp_path: Path) -> None:
    run_setting(TINY, tmp_path, strategies=["random"], repetitions=1, device="cpu")
    more = run_setting(TINY, tmp_path, strategies=["random", "margin"], repetitions=2, device="cpu")
    assert more.finished
    assert more.strategies == ("random", "margin")
    # Which other networks are trained in the batch changes no more than rounding does.
    for ours, theirs in zip(
        results_without_times(more)["random", 0],
        results_without_times(finished_run)["random", 0],
        strict=True,
    ):
        assert ours[2] == pytest.approx(theirs[2], abs=0.02)


@pytest.mark.slow
def test_killed_when_some_rounds_are_on_disk_it_goes_on(finished_run: Run, tmp_path: Path) -> None:
    run_until_killed(TINY, tmp_path, rounds=9)
    assert len(read_run(tmp_path).rounds) == 9
    assert results_without_times(
        run_setting(TINY, tmp_path, device="cpu")
    ) == results_without_times(finished_run)


@needs_fork
@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU, torch cannot train after a fork")
def test_killed_at_ten_moments_it_gives_what_an_unbroken_run_gives(
    finished_run: Run, tmp_path: Path
) -> None:
    moments = random.Random(3)
    done = 0
    killed = 0
    while killed < 10 and len(finished_run.rounds) - done >= 2:
        kill_after(
            partial(run_and_report_rounds, tmp_path),
            reports=moments.randint(1, 2),
            pause=moments.uniform(0, 0.006),
        )
        killed += 1
        rounds = len(read_run(tmp_path).rounds)
        assert rounds > done, "what was done is not done again"
        done = rounds

    assert killed >= 3, "the run ended before the third kill"
    finished = run_setting(TINY, tmp_path, device="cpu")
    assert results_without_times(finished) == results_without_times(finished_run)


def run_and_report_rounds(folder: Path, report: Report) -> None:
    """Run the tiny setting in a process that will be killed, and report each stored round."""
    append = RunFolder.append

    def append_and_report(self: RunFolder, result: Round, memory: dict[str, Any]) -> None:
        append(self, result, memory)
        report("round")

    RunFolder.append = append_and_report  # type: ignore[method-assign]
    run_setting(TINY, folder, device="cpu")


@pytest.mark.slow
@pytest.mark.parametrize(
    "cell",
    [
        pytest.param("random-0", marks=pytest.mark.slow),
        "ldm-s-1",
        pytest.param("cluster-margin-0", marks=pytest.mark.slow),
    ],
)
def test_a_line_cut_short_is_done_again(cell: str, finished_run: Run, tmp_path: Path) -> None:
    run_setting(TINY, tmp_path, rounds=2, device="cpu")
    path = tmp_path / "cells" / f"{cell}.jsonl"

    path.write_bytes(path.read_bytes()[:-25])
    assert len(by_cells(read_run(tmp_path).rounds)[cell.rsplit("-", 1)[0], int(cell[-1])]) == 2

    path.with_name(f"{cell}-memory-1.safetensors").unlink(missing_ok=True)
    if cell.startswith("cluster"):  # a crash comes before the older memory goes
        path.with_name(f"{cell}-memory-2.safetensors").rename(
            path.with_name(f"{cell}-memory-1.safetensors")
        )

    assert results_without_times(
        run_setting(TINY, tmp_path, device="cpu")
    ) == results_without_times(finished_run)


@pytest.mark.slow
def test_every_other_cell_being_ahead_changes_nothing(finished_run: Run, tmp_path: Path) -> None:
    run_setting(TINY, tmp_path, rounds=1, device="cpu")
    for name in ("random-0", "ldm-s-0"):
        path = tmp_path / "cells" / f"{name}.jsonl"
        path.write_text(path.read_text().splitlines(keepends=True)[0])
    assert results_without_times(
        run_setting(TINY, tmp_path, device="cpu")
    ) == results_without_times(finished_run)


@pytest.fixture
def moody() -> Any:
    class Moody(Strategy):
        """Fails in its second round while ``angry`` is set."""

        needs = frozenset({"logits"})
        angry = True

        def choose(self, context: Context, n: int) -> torch.Tensor:
            if Moody.angry and context.memory.get("seen"):
                raise RuntimeError("not today")
            context.memory["seen"] = 1
            return torch.arange(n)

    registry.register("moody")(Moody)
    yield Moody
    registry._classes.pop("moody", None)


def test_a_failed_cell_is_reported_and_the_others_go_on(
    moody: Any, finished_run: Run, tmp_path: Path
) -> None:
    names = ("random", "moody")
    run = run_setting(TINY, tmp_path, strategies=names, device="cpu")

    assert not run.finished
    assert set(run.failures) == {("moody", 0), ("moody", 1)}
    assert run.failures["moody", 0] == "RuntimeError: not today"
    assert [round_.number for round_ in by_cells(run.rounds)["random", 1]] == [0, 1, 2, 3]
    assert len(by_cells(run.rounds)["moody", 0]) == 1

    lines = (tmp_path / "failures.jsonl").read_text().splitlines()
    assert "Traceback" in json.loads(lines[0])["trace"]

    moody.angry = False
    again = run_setting(TINY, tmp_path, strategies=names, device="cpu")
    assert again.finished
    assert again.failures == {}
    assert results_without_times(again)["random", 0] == results_without_times(run)["random", 0]


class KilledBeforeRound(BaseException):
    """Stands for a kill: nothing in the runner catches it."""


def kill_before(cell: tuple[str, int], number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next run die before it records a round of a cell."""
    append = RunFolder.append

    def append_or_die(self: RunFolder, round_: Round, memory: dict[str, Any]) -> None:
        if (round_.strategy, round_.repetition, round_.number) == (*cell, number):
            monkeypatch.setattr(RunFolder, "append", append)
            raise KilledBeforeRound
        append(self, round_, memory)

    monkeypatch.setattr(RunFolder, "append", append_or_die)


@pytest.mark.parametrize("round_of_death", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_killed_after_a_cell_failed_the_others_keep_their_company(
    round_of_death: int, moody: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = replace(TINY, repetitions=1, strategies=("moody", "random"))
    unbroken = run_setting(setting, tmp_path / "unbroken", device="cpu")
    assert set(unbroken.failures) == {("moody", 0)}
    kill_before(("random", 0), round_of_death, monkeypatch)
    with pytest.raises(KilledBeforeRound):
        run_setting(setting, tmp_path / "killed", device="cpu")
    companies: list[int] = []
    fit = runner.fit_learners

    def watched(learners: list[Any]) -> Any:
        companies.append(len(learners))
        return fit(learners)

    monkeypatch.setattr(runner, "fit_learners", watched)
    moody.angry = False
    again = run_setting(setting, tmp_path / "killed", device="cpu")
    assert companies[: 4 - round_of_death] == [2, 1, 1][round_of_death - 1 :]
    assert again.finished
    assert results_without_times(again)["random", 0] == results_without_times(unbroken)["random", 0]


@pytest.mark.slow
def test_killed_while_failed_cells_are_tried_again_changes_nothing(
    moody: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = replace(TINY, validation=60, epochs=10, strategies=("moody", "random"))
    for name in ("unbroken", "killed"):
        run_setting(setting, tmp_path / name, device="cpu")

    moody.angry = False
    unbroken = run_setting(setting, tmp_path / "unbroken", device="cpu")

    kill_before(("moody", 1), 2, monkeypatch)
    with pytest.raises(KilledBeforeRound):
        run_setting(setting, tmp_path / "killed", device="cpu")
    again = run_setting(setting, tmp_path / "killed", device="cpu")

    assert again.finished
    assert results_without_times(again) == results_without_times(unbroken)

    groups = json.loads((tmp_path / "killed" / "run.json").read_text())["groups"]
    assert groups == [
        [["moody", 0], ["moody", 1], ["random", 0], ["random", 1]],
        [["moody", 0], ["moody", 1]],
    ]


@pytest.fixture
def noting() -> Any:
    class MemoryStrategy(Strategy):
        """Remembers by the kinds of keys and values that a file does not keep."""

        needs = frozenset({"logits"})
        extra: Any = ()

        def choose(self, context: Context, n: int) -> torch.Tensor:
            seen = context.memory.get("seen", {})
            pair = context.memory.get("pair")
            context.memory.update(seen={0: 1, **seen}, pair=(1, 2), extra=MemoryStrategy.extra)
            return torch.arange(n) + len(seen) + 5 * isinstance(pair, tuple)

    registry.register("noting")(MemoryStrategy)
    yield MemoryStrategy
    registry._classes.pop("noting", None)


@pytest.mark.slow
def test_what_a_strategy_remembers_is_alike_after_a_restart(noting: Any, tmp_path: Path) -> None:
    names = ["noting", "random"]
    unbroken = run_setting(TINY, tmp_path / "unbroken", strategies=names, device="cpu")
    for rounds in (0, 1, 2, 3):
        again = run_setting(TINY, tmp_path / "again", strategies=names, rounds=rounds, device="cpu")
    assert results_without_times(again) == results_without_times(unbroken)


@pytest.mark.parametrize("extra", [object(), {(1, 2): 3}], ids=["an object", "a pair as a key"])
def test_a_memory_that_cannot_be_kept_fails_its_cell_alone(
    extra: Any, noting: Any, tmp_path: Path
) -> None:
    noting.extra = extra
    run = run_setting(TINY, tmp_path, strategies=["noting", "random"], device="cpu")
    assert set(run.failures) == {("noting", 0), ("noting", 1)}
    assert len(by_cells(run.rounds)["random", 1]) == 4


def test_progress_ends_at_all_there_is_to_do(moody: Any, tmp_path: Path) -> None:
    for names in (["random", "margin"], ["random"], ["random", "moody"], ["moody"]):
        steps: list[tuple[int, int]] = []

        run_setting(
            TINY,
            tmp_path,
            strategies=names,
            rounds=2,
            device="cpu",
            on_step=lambda *step, to=steps: to.append(step),
        )

        assert steps[-1][0] == steps[-1][1]
        assert all(done <= total for done, total in steps)


@pytest.mark.slow
def test_ensembles_killed_in_a_judged_stack_go_on_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = replace(
        TINY, validation=60, pool=100, repetitions=1, strategies=("ensemble", "dbal", "random")
    )
    unbroken = run_setting(setting, tmp_path / "unbroken", device="cpu")
    for cell, number in ((("dbal", 0), 0), (("ensemble", 0), 1), (("random", 0), 2)):
        kill_before(cell, number, monkeypatch)
        with pytest.raises(KilledBeforeRound):
            run_setting(setting, tmp_path / "killed", device="cpu")
    other_order = ["random", "ensemble", "dbal"]
    again = run_setting(setting, tmp_path / "killed", strategies=other_order, device="cpu")
    assert results_without_times(again) == results_without_times(unbroken)


def test_other_values_in_the_same_folder_are_refused(finished_run: Run) -> None:
    with pytest.raises(
        InputError, match=r"holds a run with different values \(epochs was 4 and is now 5\)"
    ):
        run_setting(replace(TINY, epochs=5), finished_run.folder, device="cpu")


def test_a_run_from_before_a_value_was_there_goes_on(tmp_path: Path) -> None:
    run_setting(TINY, tmp_path, strategies=["random"], rounds=1, device="cpu")
    facts = json.loads((tmp_path / "run.json").read_text())
    del facts["setting"]["imbalance"], facts["setting"]["balanced"]
    (tmp_path / "run.json").write_text(json.dumps(facts))
    assert run_setting(TINY, tmp_path, strategies=["random"], device="cpu").finished
    with pytest.raises(InputError, match=r"imbalance was 1.0 and is now 2.0"):
        run_setting(
            replace(TINY, imbalance=2.0, final=40), tmp_path, strategies=["random"], device="cpu"
        )


@pytest.mark.parametrize(
    ("setting", "options", "message"),
    [
        (TINY, {"strategies": ["randon"]}, "No strategy is called 'randon'. Did you mean 'random'"),
        (TINY, {"rounds": 9}, "Cannot run 9 rounds: tiny has 3"),
        (replace(TINY, final=400), {}, "tiny needs 400 training rows, but there are only 300"),
        (
            replace(TINY, network="s-cnn"),
            {},
            "s-cnn takes square images, but the rows have the shape",
        ),
        (replace(TINY, dataset="digit"), {}, "No dataset is called 'digit'"),
        (TINY, {"device": "tpu"}, "No device is called 'tpu'"),
        (TINY, {"strategies": []}, "There is no strategy to run"),
        (replace(TINY, strategies=()), {}, "There is no strategy to run"),
        (TINY, {"repetitions": 0}, "Cannot run 0 repetitions: ask for 1 or more"),
        (
            replace(TINY, options={"few": {"strategy": "ldms"}}),
            {},
            "No strategy is called 'ldms'. Did you mean 'ldm",
        ),
        (
            replace(TINY, options={"few": {"strategy": "ldm-s", "ray": 8}}),
            {},
            "ldm-s has no option 'ray'",
        ),
        (
            replace(TINY, options={"ldms": {"rays": 8}}),
            {},
            "No strategy is called 'ldms'. Did you mean 'ldm",
        ),
    ],
)
def test_what_cannot_run_is_refused_before_it_starts(
    setting: Setting, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    options = {"device": "cpu", **options}
    with pytest.raises((InputError, UnknownNameError), match=message.replace("?", r"\?")):
        run_setting(setting, tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "values",
    [
        {"network": "linear"},
        {"pool": 100},
        {"balanced": True},
        {"imbalance": 10.0, "train": None},
        {"validation": 50},
        {"options": {"ldm-s": {"rays": 32}}},
        {"strategies": ("dbal", "ensemble", "random")},
    ],
    ids=lambda values: next(iter(values)),
)
def test_variants_run(values: dict[str, Any], tmp_path: Path) -> None:
    setting = replace(TINY, **{"strategies": ("ldm-s", "random"), **values})
    run = run_setting(setting, tmp_path, repetitions=1, rounds=1, device="cpu")
    assert run.finished
    first = run.rounds[0]
    assert (first.validation is not None) == bool(setting.validation)
    if "ensemble" in setting.strategies:
        votes = {round_.strategy: round_.ensemble_accuracy for round_ in run.rounds}
        assert votes["random"] is None
        assert 0 <= votes["ensemble"] <= 1


def test_variants_of_one_strategy_run_side_by_side(tmp_path: Path) -> None:
    options = {
        "same": {"strategy": "ldm-s"},
        "rough": {"strategy": "ldm-s", "rays": 1, "reference_rows": 3},
    }
    setting = replace(TINY, strategies=("ldm-s", "same", "rough"), options=options)

    rounds = by_cells(run_setting(setting, tmp_path, repetitions=1, device="cpu").rounds)
    picks = {name: [round_.picks for round_ in rounds[name, 0]] for name in setting.strategies}
    assert picks["same"] == picks["ldm-s"] != picks["rough"]
