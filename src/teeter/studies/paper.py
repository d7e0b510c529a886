"""Every item of the paper in one list, and how items are computed: each into a file of its own, one after the other."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from teeter.analysis.table_formats import ReportTable
from teeter.arrays import choose_device, describe_device
from teeter.errors import FileError, TeeterError, UnknownNameError
from teeter.files import atomic_write
from teeter.registry import did_you_mean
from teeter.studies.ablations import FIGURE_12, FIGURE_13, FIGURE_14, FIGURE_16
from teeter.studies.across import FIGURE_4, FIGURE_17, TABLE_1, TABLE_5
from teeter.studies.batches import FIGURE_2C
from teeter.studies.choices import FIGURE_15
from teeter.studies.claims import BADGE_ONE, BEST_SHARE, CLUSTER_MARGIN, LDM_ALONE, OPEN_QUESTION
from teeter.studies.convergence import COROLLARY_1, THEOREM_1
from teeter.studies.definition import FIGURE_1
from teeter.studies.diversity import FIGURE_3
from teeter.studies.groups import FIGURE_10
from teeter.studies.items import VERDICTS, Item, Measured, Scale, plain
from teeter.studies.picking import FIGURE_2AB
from teeter.studies.runtimes import ENSEMBLE_TIME, LDM_TIME, TABLE_2
from teeter.studies.stopping import FIGURE_11, FIGURE_11_RAYS
from teeter.studies.theory import PROPOSITION_1, PROPOSITION_2, PROPOSITION_3
from teeter.studies.uncertainty import FIGURE_5, FIGURE_7
from teeter.version import __version__, commit

__all__ = ["ITEMS", "Found", "compute_items", "item_named", "read_found"]

logger = logging.getLogger(__name__)

ITEMS: tuple[Item, ...] = (
    FIGURE_1,
    PROPOSITION_1,
    PROPOSITION_2,
    PROPOSITION_3,
    THEOREM_1,
    COROLLARY_1,
    FIGURE_2AB,
    FIGURE_2C,
    FIGURE_3,
    FIGURE_10,
    FIGURE_4,
    FIGURE_17,
    TABLE_1,
    TABLE_2,
    TABLE_5,
    FIGURE_5,
    FIGURE_7,
    FIGURE_11,
    FIGURE_11_RAYS,
    FIGURE_15,
    FIGURE_12,
    FIGURE_16,
    FIGURE_13,
    FIGURE_14,
    BEST_SHARE,
    LDM_TIME,
    ENSEMBLE_TIME,
    BADGE_ONE,
    CLUSTER_MARGIN,
    LDM_ALONE,
    OPEN_QUESTION,
)
"""All items, in the order of the paper. A new one is added here and nowhere else."""


@dataclass(frozen=True)
class Found:
    """What an item's file holds: what was measured, or why it could not be."""

    item: Item
    measured: Measured | None
    error: str | None
    facts: dict[str, Any]
    """All that the result depends on."""

    @property
    def verdict(self) -> str:
        """The verdict, or that there is none."""
        return "not computed" if self.measured is None else self.measured.verdict


def item_named(name: str, items: Sequence[Item] | None = None) -> Item:
    """Return an item by its name."""
    known = {item.name: item for item in (ITEMS if items is None else items)}
    if name not in known:
        raise UnknownNameError(
            f"No item of the paper is called {name!r}. {did_you_mean(name, list(known))}"
        )
    return known[name]


def compute_items(
    items: Sequence[Item],
    scale: Scale,
    out: Path,
    *,
    fresh: bool = False,
    on_step: Callable[[int, int], None] = lambda done, whole: None,
) -> list[Found]:
    """Compute items into ``out``, one JSON file each, and return what there is; one that fails does not stop others.

    An item whose file is there with the same settings is left as it is, unless ``fresh``; a result that is there is
    never lost to a failure. ``on_step`` is told how many items are done, of how many.
    """
    choose_device(scale.device)
    out.mkdir(parents=True, exist_ok=True)
    kept = [item for item in items if not (fresh or item.always)]
    for item in kept:
        read_found(item, out)  # a damaged file is told of before hours are spent on others
    found = []
    on_step(0, len(items))
    for done, item in enumerate(items, start=1):
        known = read_found(item, out) if item in kept else None
        if known is None or known.measured is None or not _same(known.facts, scale):
            known = _computed(item, scale)
            if known.measured is not None or not _there(item, out):
                _write(out, known)
                known = _require(item, out)
        found.append(known)
        on_step(done, len(items))
    return found


def _there(item: Item, out: Path) -> bool:
    """Return whether ``out`` has a result of an item that can be read."""
    try:
        found = read_found(item, out)
    except FileError:
        return False
    return found is not None and found.measured is not None


def _same(facts: dict[str, Any], scale: Scale) -> bool:
    return all(facts.get(name) == value for name, value in _settings(scale).items())


def _settings(scale: Scale) -> dict[str, Any]:
    """Return what makes a result another one; devices only make it faster."""
    return {"teeter": __version__, "size": "quick" if scale.quick else "full", "seed": scale.seed}


def _computed(item: Item, scale: Scale) -> Found:
    started, date = time.perf_counter(), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    measured, error = None, None
    try:
        with _one_thread() if scale.quick else nullcontext():
            measured = item.compute(scale)
    except Exception as problem:  # whatever it is, other items go on
        error = (
            str(problem)
            if isinstance(problem, TeeterError)
            else f"{type(problem).__name__}: {problem}"
        )
        if not isinstance(problem, TeeterError):
            logger.warning("%s failed: %s", item.name, error, exc_info=True)
    facts = {
        **_settings(scale),
        "commit": commit(),
        "torch": str(torch.__version__),
        "hardware": describe_device(choose_device(scale.device)),
        "started": date,
        "seconds": round(time.perf_counter() - started, 2),
    }
    return Found(item, measured, error, facts)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Within it, small arrays are not cut into pieces for several threads, which costs more than it gains."""
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(limits=1):
            yield
    finally:
        torch.set_num_threads(before)


def _write(out: Path, found: Found) -> None:
    content: dict[str, Any] = {"item": found.item.name, "facts": found.facts}
    if found.measured is None:
        content["error"] = found.error
    else:
        one = found.measured
        content |= {"verdict": one.verdict, "reason": one.reason, "notes": one.notes}
        content["tables"] = [
            {"name": table.name, "caption": table.caption, "data": table.data, "shown": table.shown}
            for table in one.tables
        ]
        content["numbers"] = one.numbers
    text = json.dumps(plain(content), ensure_ascii=False, allow_nan=False)
    atomic_write(_path(out, found.item), (text + "\n").encode())


def read_found(item: Item, out: Path) -> Found | None:
    """Return what ``out`` has of an item; None where it has nothing."""
    path = _path(out, item)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise FileError(
            f"{path} is no result of teeter paper, or it is damaged ({error}): remove it."
        ) from None
    try:
        return _parsed(item, content)
    except (KeyError, TypeError, ValueError):
        raise FileError(
            f"{path} is no result of this version of teeter paper: remove it, compute it anew with --fresh, or choose "
            "another folder."
        ) from None


def _parsed(item: Item, content: Any) -> Found:
    """Return what a file says, or raise what Python raises where it says something else."""
    facts = content["facts"]
    if content["item"] != item.name or not isinstance(facts, dict):
        raise ValueError(item.name)
    if "error" in content:
        return Found(item, None, str(content["error"]), facts)
    if not isinstance(content["numbers"], dict):
        raise TypeError(item.name)
    measured = Measured(
        numbers=content["numbers"],
        verdict=VERDICTS[VERDICTS.index(content["verdict"])],
        reason=str(content["reason"]),
        tables=tuple(ReportTable(**table) for table in content["tables"]),
        notes=tuple(content["notes"]),
    )
    return Found(item, measured, None, facts)


def _require(item: Item, out: Path) -> Found:
    found = read_found(item, out)
    if found is None:
        raise FileError(f"{_path(out, item)} is gone, although it was just written.")
    return found


def _path(out: Path, item: Item) -> Path:
    return out / f"{item.name}.json"
