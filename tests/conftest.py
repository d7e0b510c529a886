"""Fixtures for every test, the two tiers, and the report of expensive cases.

``make test`` runs the fast tier, ``make test-all`` everything. A case marked ``slow`` is left out
of the fast tier.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # before torch is loaded; several workers would fight for the cores

# Features in tests must not depend on which packages with weights are installed.
os.environ.setdefault("TEETER_ENCODER", "tfidf,pixels")

# What tests trust and sign is no matter of the person who runs them.
if "TEETER_HOME" not in os.environ:
    os.environ["TEETER_HOME"] = tempfile.mkdtemp(prefix="teeter-home-")
    atexit.register(shutil.rmtree, os.environ["TEETER_HOME"], ignore_errors=True)

import torch
from hypothesis import settings
from xdist.scheduler import LoadGroupScheduling

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is imported

CPU_SECONDS_TO_REPORT = 3
"""A case of the fast tier that takes more CPU time than this is listed at the end of the run."""

settings.register_profile("fast", deadline=None, derandomize=True, max_examples=10, print_blob=True)
settings.register_profile(
    "thorough", deadline=None, derandomize=True, max_examples=40, print_blob=True
)


MEMORY_FOLDER = Path("/dev/shm")
MEMORY_NEEDED = 4 << 30


def pytest_configure(config: pytest.Config) -> None:
    keep_temporary_files_in_memory()
    settings.load_profile("fast" if is_fast_tier(config) else "thorough")


def keep_temporary_files_in_memory() -> None:
    """Use a folder in memory for temporary files, if there is one with enough space.

    Campaigns wait for the disk at every answer, and PostgreSQL has 300 files per database: on a
    disk, half of the time of some tests goes into writing and removing files. A process that is
    killed leaves what it has written in memory as it does on a disk.
    """
    if MEMORY_FOLDER.is_dir() and shutil.disk_usage(MEMORY_FOLDER).free > MEMORY_NEEDED:
        os.environ.setdefault("TMPDIR", str(MEMORY_FOLDER))
        tempfile.tempdir = None  # so that the variable is read again


def is_fast_tier(config: pytest.Config) -> bool:
    """Return whether this run leaves out the slow cases."""
    return "not slow" in config.option.markexpr


class FileScheduling(LoadGroupScheduling):
    """Sends a worker whole files, so that a module's fixtures are made once, and whole groups.

    Sent one by one, thousands of cases would keep the process that distributes them busy: after
    each it counts all those before.
    """

    def _split_scope(self, nodeid: str) -> str:
        group_or_case = super()._split_scope(nodeid)
        return group_or_case.split("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileScheduling:
    # Files with many cases would come first, and a group of a few long cases last, on one worker.
    config.option.loadscopereorder = False
    return FileScheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Groups have the longest cases: begun last, they would keep a single worker busy.
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)

    if torch.cuda.is_available():
        return
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="no GPU here"))


def cpu_seconds() -> float:
    """Return the CPU time of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


_cpu_seconds_at_start = pytest.StashKey[float]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    item.stash[_cpu_seconds_at_start] = cpu_seconds()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if call.when == "teardown":
        # User properties travel with the report from a worker of xdist to the process that prints.
        report.user_properties.append(
            ("cpu_seconds", cpu_seconds() - item.stash[_cpu_seconds_at_start])
        )
    return report


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """List the cases that make the fast tier slow.

    CPU time is the same on a quiet and on a busy machine.
    """
    if not is_fast_tier(config):
        return
    expensive = []
    for reports in terminalreporter.stats.values():
        for report in reports:
            seconds = dict(getattr(report, "user_properties", [])).get("cpu_seconds", 0)
            if seconds > CPU_SECONDS_TO_REPORT:
                expensive.append((seconds, report.nodeid))

    if expensive:
        terminalreporter.section(
            f"cases over {CPU_SECONDS_TO_REPORT} s of CPU time: make them cheaper or mark them slow"
        )
        for seconds, nodeid in sorted(expensive, reverse=True):
            terminalreporter.write_line(f"{seconds:6.1f} s  {nodeid}")


@pytest.fixture
def real_data() -> Path:
    """The folder of real datasets, where there is one."""
    folder = Path(os.environ.get("TEETER_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip("no folder of real data: set TEETER_DATA")
    return folder


@pytest.fixture
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
