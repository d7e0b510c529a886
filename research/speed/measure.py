"""Timing, result files and Markdown tables for the speed benchmarks."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from teeter.base.arrays import describe_device
from teeter.base.version import __version__, commit


def measure_seconds(
    work: Callable[[], object], device: torch.device, *, repeats: int = 5, warmups: int = 1
) -> float:
    """Return the median time of ``work`` in seconds, after warm-up runs that do not count."""
    for _ in range(warmups):
        work()

    times = []
    for _ in range(repeats):
        synchronize(device)
        started = time.perf_counter()
        work()
        synchronize(device)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has finished its work. A CPU has nothing to wait for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def fit_exponent(sizes: Sequence[float], times: Sequence[float]) -> float:
    """Return k of the fit ``time = a * size^k``."""
    slope, _ = np.polyfit(np.log(sizes), np.log(times), 1)
    return float(slope)


def describe_setup(device: torch.device) -> dict[str, Any]:
    """Return what a result needs to be read later: versions, commit, hardware and threads."""
    return {
        "teeter": __version__,
        "commit": commit(),
        "torch": torch.__version__,
        "hardware": describe_device(device),
        "threads": torch.get_num_threads(),
    }


def save_result(path: Path | None, result: dict[str, Any]) -> None:
    """Write a result as indented JSON, unless ``path`` is None."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")


def format_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return a Markdown table whose columns are the keys of the first row."""
    columns = list(rows[0])
    header = "| " + " | ".join(columns) + " |"
    rule = "|" + " --- |" * len(columns)
    lines = [format_table_row([row[column] for column in columns]) for row in rows]
    return "\n".join([header, rule, *lines])


def format_table_row(values: Iterable[object]) -> str:
    """Return a row of a Markdown table."""
    return "| " + " | ".join(format_value(value) for value in values) + " |"


def format_value(value: object) -> str:
    """Return a value as it is printed in a table."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)
