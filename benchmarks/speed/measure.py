"""What the speed benchmarks share: timing, the hardware in words, and a result file with a table to
read.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from teeter.arrays import describe_device
from teeter.version import __version__, commit


def seconds(
    work: Callable[[], object], device: torch.device, *, repeats: int = 5, warm: int = 1
) -> float:
    """Return the median time of ``work`` after ``warm`` runs that do not count."""
    for _ in range(warm):
        work()
    times = []
    for _ in range(repeats):
        _wait(device)
        start = time.perf_counter()
        work()
        _wait(device)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def exponent(sizes: Sequence[float], times: Sequence[float]) -> float:
    """Return k of the fit ``time = a * size^k``."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def facts(device: torch.device) -> dict[str, Any]:
    """Return what a result needs to be read later: version, commit, hardware, threads."""
    return {
        "teeter": __version__,
        "commit": commit(),
        "torch": torch.__version__,
        "hardware": describe_device(device),
        "threads": torch.get_num_threads(),
    }


def save(path: Path | None, result: dict[str, Any]) -> None:
    """Write a result as readable JSON."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=1) + "\n")


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows as a Markdown table."""
    heads = list(rows[0])
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    lines += ["| " + " | ".join(_shown(row[head]) for head in heads) + " |" for row in rows]
    return "\n".join(lines)


def _shown(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)
