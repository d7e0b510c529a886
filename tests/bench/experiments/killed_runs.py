"""A run in a process of its own that is killed when some rounds are on disk."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from teeter.base.worker_process import worker_context
from teeter.bench.experiments.run_folder import Round, RunFolder
from teeter.bench.experiments.runner import run_setting
from teeter.bench.experiments.settings import Setting
from teeter.bench.experiments.tracking import Tracker


def run_until_killed(
    setting: Setting, folder: Path, rounds: int, trackers: Sequence[Tracker] = ()
) -> None:
    """Run a setting in another process, which gets SIGKILL when so many rounds are on disk."""
    process = worker_context().Process(
        target=_run_and_die, args=(setting, folder, rounds, trackers)
    )
    process.start()
    process.join(300)
    assert process.exitcode == -signal.SIGKILL


def _run_and_die(setting: Setting, folder: Path, rounds: int, trackers: Sequence[Tracker]) -> None:
    append = RunFolder.append
    recorded = 0

    def append_then_die(self: RunFolder, result: Round, memory: dict[str, Any]) -> None:
        nonlocal recorded
        append(self, result, memory)
        recorded += 1
        if recorded == rounds:
            os.kill(os.getpid(), signal.SIGKILL)  # before trackers get the round

    RunFolder.append = append_then_die  # type: ignore[method-assign]
    torch.set_num_threads(1)
    run_setting(setting, folder, device="cpu", trackers=trackers)
