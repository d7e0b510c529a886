"""Run folders: rounds are on disk, one process writes, and what cannot be written is reported."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bench.experiments.tiny_runs import TINY, results_without_times
from teeter.bench.experiments.run_folder import Cell, Round, RunFolder, read_run, run_lock
from teeter.bench.experiments.runner import run_setting
from teeter.errors import FileError, InputError


@pytest.fixture(autouse=True)
def _on_one_thread(one_thread: None) -> None:
    torch.set_num_threads(1)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are looked up there")
def test_a_memory_is_on_disk_before_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def fsync_and_note(handle: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", fsync_and_note)
    records = RunFolder(tmp_path)
    with run_lock(tmp_path):
        for number in range(2):
            records.append(Round("x", 0, number, 20, 0.5, 1.0, (), {}, 1), {"a": 1})
    assert synced[-3:] == [synced[-3], "cells", "x-0.jsonl"]
    assert "x-0-memory-1.safetensors" in synced[-3]


def test_rounds_of_early_versions_name_the_accuracy_of_an_ensemble_vote(tmp_path: Path) -> None:
    run = run_setting(TINY, tmp_path, strategies=["random"], repetitions=1, rounds=1, device="cpu")
    path = tmp_path / "cells" / "random-0.jsonl"
    lines = path.read_text().replace('"ensemble_accuracy": null', '"vote": 0.5')
    assert lines != path.read_text()
    path.write_text(lines)
    assert [result.ensemble_accuracy for result in read_run(tmp_path).rounds] == [0.5, 0.5]
    assert [result.accuracy for result in read_run(tmp_path).rounds] == [
        result.accuracy for result in run.rounds
    ]


def test_folders_may_be_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    setting = replace(TINY, strategies=("random",), repetitions=1, final=40, epochs=1)
    run = run_setting(setting, "runs/x", device="cpu", folder="data")
    assert results_without_times(read_run("runs/x")) == results_without_times(run)
    assert len(run.rounds) == 2


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    with run_lock(tmp_path), pytest.raises(InputError, match="Another process is using"):
        run_setting(TINY, tmp_path, device="cpu")


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        FileError, match=r"Cannot record a run in .*file: .*, or choose another folder"
    ):
        run_setting(TINY, tmp_path / "file", device="cpu")


def test_lines_that_end_as_on_windows_are_kept(tmp_path: Path) -> None:
    run_setting(TINY, tmp_path, strategies=["random"], repetitions=1, rounds=1, device="cpu")
    path = tmp_path / "cells" / "random-0.jsonl"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    before = path.read_bytes()
    assert len(RunFolder(tmp_path).rounds(Cell("random", 0))) == 2
    assert path.read_bytes() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="limits need a system that has them")
def test_a_full_disk_is_reported_and_loses_nothing(tmp_path: Path) -> None:
    records = RunFolder(tmp_path)
    round_ = Round("random", 0, 0, 20, 0.5, 1.0, tuple(range(20)), {}, 1)

    with run_lock(tmp_path):
        records.append(round_, {})
        size = (tmp_path / "cells" / "random-0.jsonl").stat().st_size

        child = os.fork()
        if child == 0:
            os._exit(_append_within(records, replace(round_, number=1), size + 40))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7

        assert records.rounds(Cell("random", 0)) == [round_]
        records.append(replace(round_, number=1), {})
        assert [recorded.number for recorded in records.rounds(Cell("random", 0))] == [0, 1]


def _append_within(records: RunFolder, round_: Round, limit: int) -> int:
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        records.append(round_, {})
    except FileError as error:
        return 7 if "Everything recorded so far is safe" in str(error) else 1
    return 2
