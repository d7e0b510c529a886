"""The runner: it compares alike, records what is done, and goes on as if it had never been stopped."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from teeter.errors import FileError, InputError, UnknownNameError
from teeter.experiments import runner
from teeter.experiments.results import Round, Run, by_cells, read_run
from teeter.experiments.run_folder import RunFolder, run_lock
from teeter.experiments.runner import run_setting
from teeter.experiments.settings import Setting, setting_named
from teeter.strategies.base import Context, Strategy, registry

TINY = replace(
    setting_named("digits"),
    name="tiny",
    train=300,
    test=100,
    final=80,
    epochs=4,
    repetitions=2,
    strategies=("random", "ldm-s", "cluster-margin"),
)


@pytest.fixture(autouse=True)
def _on_one_thread(one_thread: None) -> None:
    torch.set_num_threads(1)


def told(run: Run) -> dict[Any, list[tuple[Any, ...]]]:
    """What a run found, without the times."""
    return {
        cell: [(one.number, one.labelled, one.accuracy, one.loss, one.picks, one.vote) for one in rounds]
        for cell, rounds in by_cells(run.rounds).items()
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    torch.set_num_threads(1)
    return run_setting(TINY, tmp_path_factory.mktemp("runs") / "whole", device="cpu")


def test_every_cell_goes_from_the_initial_labels_to_the_last(whole: Run) -> None:
    assert whole.finished
    assert whole.failures == {}
    assert set(by_cells(whole.rounds)) == {(name, r) for name in TINY.strategies for r in range(2)}
    for rounds in by_cells(whole.rounds).values():
        assert [one.number for one in rounds] == [0, 1, 2, 3]
        assert [one.labelled for one in rounds] == [20, 40, 60, 80]
        assert [len(one.picks) for one in rounds] == [20, 20, 20, 0]
        picked = [row for one in rounds for row in one.picks]
        assert len(set(picked)) == 60
        assert all(0 <= row < 300 for row in picked)
        assert rounds[-1].accuracy > rounds[0].accuracy
        assert all(one.peak_memory > 0 and one.seconds["training"] > 0 for one in rounds)


def test_strategies_of_a_repetition_begin_alike_and_repetitions_do_not(whole: Run) -> None:
    cells = by_cells(whole.rounds)
    first = {cell: rounds[0].accuracy for cell, rounds in cells.items()}
    assert first["random", 0] == pytest.approx(first["ldm-s", 0], abs=1e-12)
    assert first["random", 1] == pytest.approx(first["ldm-s", 1], abs=1e-12)
    assert cells["random", 0][0].picks != cells["random", 1][0].picks


def test_it_repeats_itself(whole: Run, tmp_path: Path) -> None:
    assert told(run_setting(TINY, tmp_path, device="cpu")) == told(whole)


@pytest.mark.parametrize("rounds", [0, 2])
def test_stopped_after_some_rounds_it_goes_on(rounds: int, whole: Run, tmp_path: Path) -> None:
    part = run_setting(TINY, tmp_path, rounds=rounds, device="cpu")
    assert {len(some) for some in by_cells(part.rounds).values()} == {rounds + 1}
    assert part.finished
    assert told(run_setting(TINY, tmp_path, device="cpu")) == told(whole)


def test_running_again_what_is_done_changes_nothing(whole: Run) -> None:
    before = {path: path.read_bytes() for path in whole.folder.rglob("*") if path.is_file()}
    steps: list[tuple[int, int]] = []
    again = run_setting(TINY, whole.folder, device="cpu", on_step=lambda *step: steps.append(step))
    assert told(again) == told(whole)
    assert {path: path.read_bytes() for path in before} == before
    assert steps[-1] == (24, 24)


def test_strategies_and_repetitions_can_be_added(whole: Run, tmp_path: Path) -> None:
    run_setting(TINY, tmp_path, strategies=["random"], repetitions=1, device="cpu")
    more = run_setting(TINY, tmp_path, strategies=["random", "margin"], repetitions=2, device="cpu")
    assert more.finished
    assert more.strategies == ("random", "margin")
    # Who else is in the stack changes no more than rounding does.
    for ours, theirs in zip(told(more)["random", 0], told(whole)["random", 0], strict=True):
        assert ours[2] == pytest.approx(theirs[2], abs=0.02)


KILLED = """
import sys
from dataclasses import replace
from pathlib import Path
import torch
sys.path.insert(0, {tests!r})
from experiments.test_runner import TINY
from teeter.experiments.runner import run_setting
torch.set_num_threads(1)
print("ready", flush=True)
run_setting(TINY, Path(sys.argv[1]), device="cpu")
"""


def test_killed_at_ten_moments_it_gives_what_an_unbroken_run_gives(whole: Run, tmp_path: Path) -> None:
    script = KILLED.format(tests=str(Path(__file__).parents[1]))
    moments = random.Random(3)
    kills = 0
    for _ in range(60):
        child = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        if kills < 10:
            time.sleep(moments.uniform(0.0, 0.6))
            if child.poll() is None:
                child.send_signal(signal.SIGKILL)
                kills += 1
        child.stdout.close()
        if child.wait() == 0:
            break
    assert kills == 10 or read_run(tmp_path).finished
    assert told(read_run(tmp_path)) == told(whole)


@pytest.mark.parametrize("cell", ["random-0", "ldm-s-1", "cluster-margin-0"])
def test_a_line_cut_short_is_done_again(cell: str, whole: Run, tmp_path: Path) -> None:
    run_setting(TINY, tmp_path, rounds=2, device="cpu")
    path = tmp_path / "cells" / f"{cell}.jsonl"
    path.write_bytes(path.read_bytes()[:-25])
    assert len(by_cells(read_run(tmp_path).rounds)[cell.rsplit("-", 1)[0], int(cell[-1])]) == 2
    path.with_name(f"{cell}-memory-1.safetensors").unlink(missing_ok=True)
    if cell.startswith("cluster"):  # a crash comes before the older memory goes
        path.with_name(f"{cell}-memory-2.safetensors").rename(path.with_name(f"{cell}-memory-1.safetensors"))
    assert told(run_setting(TINY, tmp_path, device="cpu")) == told(whole)


def test_every_other_cell_being_ahead_changes_nothing(whole: Run, tmp_path: Path) -> None:
    run_setting(TINY, tmp_path, rounds=1, device="cpu")
    for name in ("random-0", "ldm-s-0"):
        path = tmp_path / "cells" / f"{name}.jsonl"
        path.write_text(path.read_text().splitlines(keepends=True)[0])
    assert told(run_setting(TINY, tmp_path, device="cpu")) == told(whole)


@pytest.fixture
def moody() -> Any:
    class Moody(Strategy):
        """Fails in its second round while it is told to."""

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


def test_a_failed_cell_is_told_and_the_others_go_on(moody: Any, whole: Run, tmp_path: Path) -> None:
    names = ("random", "moody")
    run = run_setting(TINY, tmp_path, strategies=names, device="cpu")
    assert not run.finished
    assert set(run.failures) == {("moody", 0), ("moody", 1)}
    assert run.failures["moody", 0] == "RuntimeError: not today"
    assert [one.number for one in by_cells(run.rounds)["random", 1]] == [0, 1, 2, 3]
    assert len(by_cells(run.rounds)["moody", 0]) == 1
    lines = (tmp_path / "failures.jsonl").read_text().splitlines()
    assert "Traceback" in json.loads(lines[0])["trace"]
    moody.angry = False
    again = run_setting(TINY, tmp_path, strategies=names, device="cpu")
    assert again.finished
    assert again.failures == {}
    assert told(again)["random", 0] == told(run)["random", 0]


class Killed(BaseException):
    """Stands for a kill: nothing in the runner catches it."""


def killed_before(cell: tuple[str, int], number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next run die before it records a round of a cell."""
    append = RunFolder.append

    def dying(self: RunFolder, one: Round, memory: dict[str, Any]) -> None:
        if (one.strategy, one.repetition, one.number) == (*cell, number):
            monkeypatch.setattr(RunFolder, "append", append)
            raise Killed
        append(self, one, memory)

    monkeypatch.setattr(RunFolder, "append", dying)


@pytest.mark.parametrize("round_of_death", [1, 2])
def test_killed_after_a_cell_failed_the_others_keep_their_company(
    round_of_death: int, moody: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = replace(TINY, repetitions=1, strategies=("moody", "random"))
    unbroken = run_setting(setting, tmp_path / "unbroken", device="cpu")
    assert set(unbroken.failures) == {("moody", 0)}
    killed_before(("random", 0), round_of_death, monkeypatch)
    with pytest.raises(Killed):
        run_setting(setting, tmp_path / "killed", device="cpu")
    companies: list[int] = []
    fit = runner.fit_stack

    def watched(learners: list[Any]) -> Any:
        companies.append(len(learners))
        return fit(learners)

    monkeypatch.setattr(runner, "fit_stack", watched)
    moody.angry = False
    again = run_setting(setting, tmp_path / "killed", device="cpu")
    assert companies[: 4 - round_of_death] == [2, 1, 1][round_of_death - 1 :]
    assert again.finished
    assert told(again)["random", 0] == told(unbroken)["random", 0]


def test_killed_while_failed_cells_are_tried_again_changes_nothing(
    moody: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = replace(TINY, validation=60, epochs=10, strategies=("moody", "random"))
    for name in ("unbroken", "killed"):
        run_setting(setting, tmp_path / name, device="cpu")
    moody.angry = False
    unbroken = run_setting(setting, tmp_path / "unbroken", device="cpu")
    killed_before(("moody", 1), 2, monkeypatch)
    with pytest.raises(Killed):
        run_setting(setting, tmp_path / "killed", device="cpu")
    again = run_setting(setting, tmp_path / "killed", device="cpu")
    assert again.finished
    assert told(again) == told(unbroken)
    groups = json.loads((tmp_path / "killed" / "run.json").read_text())["groups"]
    assert groups == [[["moody", 0], ["moody", 1], ["random", 0], ["random", 1]], [["moody", 0], ["moody", 1]]]


@pytest.fixture
def noting() -> Any:
    class Noting(Strategy):
        """Remembers by the kinds of keys and values that a file does not keep."""

        needs = frozenset({"logits"})
        kept: Any = ()

        def choose(self, context: Context, n: int) -> torch.Tensor:
            seen = context.memory.get("seen", {})
            pair = context.memory.get("pair")
            context.memory.update(seen={0: 1, **seen}, pair=(1, 2), kept=Noting.kept)
            return torch.arange(n) + len(seen) + 5 * isinstance(pair, tuple)

    registry.register("noting")(Noting)
    yield Noting
    registry._classes.pop("noting", None)


def test_what_a_strategy_remembers_is_alike_after_a_restart(noting: Any, tmp_path: Path) -> None:
    names = ["noting", "random"]
    unbroken = run_setting(TINY, tmp_path / "unbroken", strategies=names, device="cpu")
    for rounds in (0, 1, 2, 3):
        again = run_setting(TINY, tmp_path / "again", strategies=names, rounds=rounds, device="cpu")
    assert told(again) == told(unbroken)


@pytest.mark.parametrize("kept", [object(), {(1, 2): 3}], ids=["an object", "a pair as a key"])
def test_a_memory_that_cannot_be_kept_fails_its_cell_alone(kept: Any, noting: Any, tmp_path: Path) -> None:
    noting.kept = kept
    run = run_setting(TINY, tmp_path, strategies=["noting", "random"], device="cpu")
    assert set(run.failures) == {("noting", 0), ("noting", 1)}
    assert len(by_cells(run.rounds)["random", 1]) == 4


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are looked up there")
def test_a_memory_is_on_disk_before_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def watched(handle: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", watched)
    records = RunFolder(tmp_path)
    with run_lock(tmp_path):
        for number in range(2):
            records.append(Round("x", 0, number, 20, 0.5, 1.0, (), {}, 1), {"a": 1})
    assert synced[-3:] == [synced[-3], "cells", "x-0.jsonl"]
    assert "x-0-memory-1.safetensors" in synced[-3]


def test_progress_ends_at_all_there_is_to_do(moody: Any, tmp_path: Path) -> None:
    for names in (["random", "margin"], ["random"], ["random", "moody"], ["moody"]):
        steps: list[tuple[int, int]] = []
        run_setting(
            TINY, tmp_path, strategies=names, rounds=2, device="cpu", on_step=lambda *step, to=steps: to.append(step)
        )
        assert steps[-1][0] == steps[-1][1]
        assert all(done <= all_of_them for done, all_of_them in steps)


def test_ensembles_killed_in_a_judged_stack_go_on_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = replace(TINY, validation=60, pool=100, repetitions=1, strategies=("ensemble", "dbal", "random"))
    unbroken = run_setting(setting, tmp_path / "unbroken", device="cpu")
    for cell, number in ((("dbal", 0), 0), (("ensemble", 0), 1), (("random", 0), 2)):
        killed_before(cell, number, monkeypatch)
        with pytest.raises(Killed):
            run_setting(setting, tmp_path / "killed", device="cpu")
    other_order = ["random", "ensemble", "dbal"]
    again = run_setting(setting, tmp_path / "killed", strategies=other_order, device="cpu")
    assert told(again) == told(unbroken)


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match=r"Cannot record a run in .*file: .*, or choose another folder"):
        run_setting(TINY, tmp_path / "file", device="cpu")


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    with run_lock(tmp_path), pytest.raises(InputError, match="Another process is running"):
        run_setting(TINY, tmp_path, device="cpu")


def test_other_values_in_the_same_folder_are_refused(whole: Run) -> None:
    with pytest.raises(InputError, match=r"holds a run with other values \(epochs was 4 and is now 5\)"):
        run_setting(replace(TINY, epochs=5), whole.folder, device="cpu")


def test_a_run_from_before_a_value_was_there_goes_on(tmp_path: Path) -> None:
    run_setting(TINY, tmp_path, strategies=["random"], rounds=1, device="cpu")
    facts = json.loads((tmp_path / "run.json").read_text())
    del facts["setting"]["imbalance"], facts["setting"]["balanced"]
    (tmp_path / "run.json").write_text(json.dumps(facts))
    assert run_setting(TINY, tmp_path, strategies=["random"], device="cpu").finished
    with pytest.raises(InputError, match=r"imbalance was 1.0 and is now 2.0"):
        run_setting(replace(TINY, imbalance=2.0, final=40), tmp_path, strategies=["random"], device="cpu")


@pytest.mark.parametrize(
    ("setting", "options", "message"),
    [
        (TINY, {"strategies": ["randon"]}, "No strategy is called 'randon'. Did you mean 'random'"),
        (TINY, {"rounds": 9}, "Cannot run 9 rounds: tiny has 3"),
        (replace(TINY, final=400), {}, "tiny needs 400 training rows, and there are 300"),
        (replace(TINY, network="s-cnn"), {}, "s-cnn takes square images, and the rows are of shape"),
        (replace(TINY, dataset="digit"), {}, "No dataset is called 'digit'"),
        (TINY, {"device": "tpu"}, "No device is called 'tpu'"),
        (TINY, {"strategies": []}, "There is no strategy to run"),
        (replace(TINY, strategies=()), {}, "There is no strategy to run"),
        (TINY, {"repetitions": 0}, "Cannot run 0 repetitions: ask for 1 or more"),
        (replace(TINY, options={"few": {"strategy": "ldms"}}), {}, "No strategy is called 'ldms'. Did you mean 'ldm"),
        (replace(TINY, options={"few": {"strategy": "ldm-s", "ray": 8}}), {}, "ldm-s has no option 'ray'"),
        (replace(TINY, options={"ldms": {"rays": 8}}), {}, "No strategy is called 'ldms'. Did you mean 'ldm"),
    ],
)
def test_what_cannot_run_is_told_before_it_starts(
    setting: Setting, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    options = {"device": "cpu", **options}
    with pytest.raises((InputError, UnknownNameError), match=message.replace("?", r"\?")):
        run_setting(setting, tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_a_folder_that_is_no_run_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="There is no run in"):
        read_run(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(FileError, match="is damaged, or something else than a run"):
        read_run(tmp_path)
    (tmp_path / "run.json").write_text('{"format": 99}')
    with pytest.raises(FileError, match="was written by a newer teeter"):
        read_run(tmp_path)


def test_a_damaged_line_in_the_middle_is_told(tmp_path: Path) -> None:
    run_setting(TINY, tmp_path, strategies=["random"], rounds=1, device="cpu")
    path = tmp_path / "cells" / "random-0.jsonl"
    path.write_text("{}\n" + path.read_text())
    with pytest.raises(FileError, match="is damaged: a line of it is not a round"):
        run_setting(TINY, tmp_path, strategies=["random"], device="cpu")


def test_damaged_facts_rounds_and_failures_are_told(tmp_path: Path) -> None:
    run_setting(TINY, tmp_path, strategies=["random"], rounds=2, device="cpu")
    cell, failures = tmp_path / "cells" / "random-0.jsonl", tmp_path / "failures.jsonl"
    lines = cell.read_text()
    cell.write_text("".join(lines.splitlines(keepends=True)[::2]))
    with pytest.raises(FileError, match="is damaged: its rounds are not 0, 1, 2"):
        read_run(tmp_path)
    cell.write_text(lines)
    for damaged in ("{}", "[]", "3", "not JSON"):
        failures.write_text(damaged + "\n")
        with pytest.raises(FileError, match="is damaged: a line of it is not a failure"):
            run_setting(TINY, tmp_path, strategies=["random"], device="cpu")
    failures.unlink()
    facts = json.loads((tmp_path / "run.json").read_text())
    for damage in ({"setting": {"name": "x"}}, {"setting": 3}, {"groups": None}, {"groups": [3]}, {"rounds": "two"}):
        (tmp_path / "run.json").write_text(json.dumps({**facts, **damage}))
        for read in (read_run, lambda folder: run_setting(TINY, folder, strategies=["random"], device="cpu")):
            with pytest.raises(FileError, match="is damaged, or something else than a run"):
                read(tmp_path)
    for missing in ("setting", "strategies", "repetitions", "rounds", "groups"):
        (tmp_path / "run.json").write_text(json.dumps({name: facts[name] for name in facts if name != missing}))
        with pytest.raises(FileError, match="is damaged, or something else than a run"):
            read_run(tmp_path)


def test_lines_that_end_as_on_windows_are_kept(tmp_path: Path) -> None:
    run_setting(TINY, tmp_path, strategies=["random"], repetitions=1, rounds=1, device="cpu")
    path = tmp_path / "cells" / "random-0.jsonl"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    before = path.read_bytes()
    assert len(RunFolder(tmp_path).rounds(("random", 0))) == 2
    assert path.read_bytes() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="limits need a system that has them")
def test_a_full_disk_is_told_and_loses_nothing(tmp_path: Path) -> None:
    records = RunFolder(tmp_path)
    one = Round("random", 0, 0, 20, 0.5, 1.0, tuple(range(20)), {}, 1)
    with run_lock(tmp_path):
        records.append(one, {})
        size = (tmp_path / "cells" / "random-0.jsonl").stat().st_size
        child = os.fork()
        if child == 0:
            os._exit(_append_within(records, replace(one, number=1), size + 40))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert records.rounds(("random", 0)) == [one]
        records.append(replace(one, number=1), {})
        assert [some.number for some in records.rounds(("random", 0))] == [0, 1]


def _append_within(records: RunFolder, one: Round, limit: int) -> int:
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        records.append(one, {})
    except FileError as error:
        return 7 if "What was recorded before is safe" in str(error) else 1
    return 2


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
        votes = {one.strategy: one.vote for one in run.rounds}
        assert votes["random"] is None
        assert 0 <= votes["ensemble"] <= 1


def test_variants_of_one_strategy_run_side_by_side(tmp_path: Path) -> None:
    options = {"same": {"strategy": "ldm-s"}, "rough": {"strategy": "ldm-s", "rays": 1, "reference_rows": 3}}
    setting = replace(TINY, strategies=("ldm-s", "same", "rough"), options=options)
    found = by_cells(run_setting(setting, tmp_path, repetitions=1, device="cpu").rounds)
    picks = {name: [one.picks for one in found[name, 0]] for name in setting.strategies}
    assert picks["same"] == picks["ldm-s"] != picks["rough"]


def test_curves_keep_what_all_strategies_have(whole: Run) -> None:
    curves = whole.curves()
    assert list(curves.accuracy) == list(TINY.strategies)
    assert curves.labelled.tolist() == [20, 40, 60, 80]
    assert curves.accuracy["ldm-s"].shape == (2, 4)
    cells = by_cells(whole.rounds)
    assert curves.accuracy["ldm-s"][1, 2] == cells["ldm-s", 1][2].accuracy
    assert curves.seconds["ldm-s"]["selection"][0, 3] == 0
    shorter = replace(whole, rounds=tuple(one for one in whole.rounds if (one.strategy, one.number) != ("random", 3)))
    assert shorter.curves().labelled.tolist() == [20, 40, 60]
    fewer = replace(whole, rounds=tuple(one for one in whole.rounds if (one.strategy, one.repetition) != ("random", 0)))
    assert np.array_equal(fewer.curves().accuracy["ldm-s"], curves.accuracy["ldm-s"][1:])
    apart = [one for one in whole.rounds if (one.strategy, one.repetition) not in (("random", 0), ("ldm-s", 1))]
    assert replace(whole, rounds=tuple(apart)).curves().accuracy["ldm-s"].shape == (0, 0)
    none = replace(whole, rounds=())
    assert none.curves().accuracy == {}
