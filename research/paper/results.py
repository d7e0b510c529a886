"""How items are computed: one after the other, each into a JSON file of its own.

A result file is called after its item and holds

- ``facts``: the version, the size, the seed, the hardware and the time of the computation,
- ``numbers``: all that figures are drawn from,
- ``verdict``, ``reason``, ``tables`` and ``notes``, as they are shown on the page,
- or, instead of the last two lines, the ``error`` that prevented a measurement.

So items can be computed on a machine without matplotlib and drawn on another one. A result is used
again if its version, size and seed are those that are asked for.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from research.paper.item import VERDICTS, Item, Measurement, StudyConfig, to_json_value
from teeter.base.arrays import choose_device, describe_device
from teeter.base.files import atomic_write
from teeter.base.threads import limit_threads
from teeter.base.version import __version__, commit
from teeter.bench.analysis.table_formats import ReportTable
from teeter.errors import FileError, TeeterError

__all__ = ["NOT_COMPUTED", "ItemResult", "compute_items", "read_result", "read_results"]

logger = logging.getLogger(__name__)

NOT_COMPUTED = "not computed"
"""Replaces the verdict of an item that failed."""


@dataclass(frozen=True)
class ItemResult:
    """The content of an item's result file: a measurement, or the error that prevented it."""

    item: Item
    measurement: Measurement | None
    error: str | None
    facts: dict[str, Any]
    """What the result depends on: version, size, seed, hardware and so on."""

    @property
    def verdict(self) -> str:
        """The verdict, or ``NOT_COMPUTED``."""
        if self.measurement is None:
            return NOT_COMPUTED
        return self.measurement.verdict


def compute_items(
    items: Sequence[Item],
    config: StudyConfig,
    out: Path,
    *,
    fresh: bool = False,
    on_step: Callable[[int, int], None] = lambda done, total: None,
) -> list[ItemResult]:
    """Compute items into result files, and return all results.

    An item that fails does not stop the others, and its error never replaces an earlier
    measurement.

    Args:
        items: what to compute, in this order.
        config: the size, the seed and the folders.
        out: the folder of the result files; it is created if it is missing.
        fresh: whether to compute items again that have a result of the same size and seed.
        on_step: called with the number of finished items and the number of all items.

    Raises:
        InputError: there is no such device.
        FileError: a file in ``out`` is damaged or from another version.
    """
    choose_device(config.device)
    out.mkdir(parents=True, exist_ok=True)

    # A damaged file is reported before hours are spent on other items.
    earlier: dict[str, ItemResult | None] = {}
    for item in items:
        if not fresh and not item.always_recompute:
            earlier[item.name] = read_result(item, out)

    results = []
    on_step(0, len(items))
    for done, item in enumerate(items, start=1):
        result = earlier.get(item.name)

        # An item that failed before is tried again.
        if result is None or result.measurement is None or not _is_current(result, config):
            result = _compute_item(item, config)
            # An error must not replace a measurement, not even one of another size or seed.
            if result.measurement is not None or not _has_measurement(item, out):
                _write_result(result, out)
                result = _read_back(item, out)

        results.append(result)
        on_step(done, len(items))
    return results


def _has_measurement(item: Item, out: Path) -> bool:
    try:
        result = read_result(item, out)
    except FileError:
        return False
    return result is not None and result.measurement is not None


def _is_current(result: ItemResult, config: StudyConfig) -> bool:
    return all(result.facts.get(name) == value for name, value in _get_identity(config).items())


def _get_identity(config: StudyConfig) -> dict[str, Any]:
    """Return the facts that make a result another one. The device is not among them."""
    size = "quick" if config.quick else "full"
    return {"teeter": __version__, "size": size, "seed": config.seed}


def _compute_item(item: Item, config: StudyConfig) -> ItemResult:
    started = time.perf_counter()
    started_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    measurement = None
    error = None

    try:
        with ExitStack() as stack:
            if config.quick:
                # Splitting the small arrays of quick items among threads costs more than it gains.
                stack.enter_context(limit_threads(1, blas=True))
            measurement = item.compute(config)
    except TeeterError as problem:
        error = str(problem)
    except Exception as problem:  # a bug in one item must not stop the others
        error = f"{type(problem).__name__}: {problem}"
        logger.warning("%s failed: %s", item.name, error, exc_info=True)

    facts = {
        **_get_identity(config),
        "commit": commit(),
        "torch": str(torch.__version__),
        "hardware": describe_device(choose_device(config.device)),
        "started": started_at,
        "seconds": round(time.perf_counter() - started, 2),
    }
    return ItemResult(item, measurement, error, facts)


def _write_result(result: ItemResult, out: Path) -> None:
    content: dict[str, Any] = {"item": result.item.name, "facts": result.facts}

    if result.measurement is None:
        content["error"] = result.error
    else:
        content["verdict"] = result.measurement.verdict
        content["reason"] = result.measurement.reason
        content["notes"] = result.measurement.notes
        content["tables"] = [
            {"name": table.name, "caption": table.caption, "data": table.data, "shown": table.shown}
            for table in result.measurement.tables
        ]
        content["numbers"] = result.measurement.numbers

    # allow_nan=False: a NaN that slipped through would make a file that is not JSON.
    text = json.dumps(to_json_value(content), ensure_ascii=False, allow_nan=False)
    atomic_write(_result_path(result.item, out), (text + "\n").encode())


def read_result(item: Item, out: Path) -> ItemResult | None:
    """Return the result of an item in a folder, or None if it has no file there.

    Raises:
        FileError: the file is damaged, or of another version.
    """
    path = _result_path(item, out)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise FileError(
            f"Cannot read the result {path}, it may be damaged ({error}): remove it."
        ) from None

    try:
        return _parse_result(item, content)
    except (KeyError, TypeError, ValueError):
        raise FileError(
            f"{path} is not a result of this version of the reproduction: remove it and compute "
            "the item again, or choose another folder."
        ) from None


def read_results(items: Sequence[Item], out: Path) -> list[ItemResult]:
    """Return the results that a folder has of some items, in the order of the items."""
    results = []
    for item in items:
        result = read_result(item, out)
        if result is not None:
            results.append(result)
    return results


def _parse_result(item: Item, content: Any) -> ItemResult:
    """Return the result that a file describes; otherwise raise Key-, Type- or ValueError."""
    # A file of another item or version has other keys or types, which raises one of these.
    facts = content["facts"]
    if content["item"] != item.name or not isinstance(facts, dict):
        raise ValueError(item.name)

    if "error" in content:
        return ItemResult(item, None, str(content["error"]), facts)

    if not isinstance(content["numbers"], dict):
        raise TypeError(item.name)
    measurement = Measurement(
        numbers=content["numbers"],
        verdict=VERDICTS[VERDICTS.index(content["verdict"])],
        reason=str(content["reason"]),
        tables=tuple(ReportTable(**table) for table in content["tables"]),
        notes=tuple(content["notes"]),
    )
    return ItemResult(item, measurement, None, facts)


def _read_back(item: Item, out: Path) -> ItemResult:
    """Return a result as its file has it, so that a first call and a later one return the same."""
    result = read_result(item, out)
    if result is None:
        raise FileError(f"{_result_path(item, out)} is gone, although it was just written.")
    return result


def _result_path(item: Item, out: Path) -> Path:
    return out / f"{item.name}.json"
