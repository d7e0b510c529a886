from __future__ import annotations

import pytest
import torch

from bench.experiments.tiny_runs import TINY
from teeter.bench.experiments.run_folder import Run
from teeter.bench.experiments.runner import run_setting


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The tiny run, never interrupted. Tests must leave its folder as it is."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    run = run_setting(TINY, tmp_path_factory.mktemp("runs") / "whole", device="cpu")
    torch.set_num_threads(before)
    return run
