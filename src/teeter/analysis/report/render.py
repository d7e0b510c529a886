"""The report of one run or several: a page, the figures and the tables, in a folder."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from teeter.analysis.export import write_csv
from teeter.analysis.report.findings import cross_run_findings, run_findings
from teeter.analysis.report.page import details, found, page, section
from teeter.analysis.report.sections import (
    ReportWriter,
    common_strategies,
    sections_across,
    sections_of,
)
from teeter.analysis.run_comparison import RunComparison, compare_runs
from teeter.errors import InputError

if TYPE_CHECKING:
    from teeter.experiments.results import Run

__all__ = ["Report", "write_report"]


@dataclass(frozen=True)
class Report:
    """What a report says, and where it is."""

    page: Path
    files: tuple[Path, ...]
    """All that was written, the page among it."""
    findings: tuple[str, ...]
    notes: tuple[str, ...]
    """What a reader must know: what is missing, quick or failed."""
    tables: dict[str, list[dict[str, Any]]]
    """The tables' data, by the name of their files."""


def write_report(runs: Sequence[Run], out: Path) -> Report:
    """Write the report of ``runs`` into the folder ``out``: index.html, figures/ and tables/."""
    if not runs:
        raise InputError("There is nothing to report: give one run or more.")
    compared = [compare_runs(run, name) for run, name in zip(runs, _names(runs), strict=True)]
    prefixes = _prefixes([one.name for one in compared])
    desk = ReportWriter(out)
    parts = []
    findings, notes = _findings(compared)
    parts.append(found(findings, notes))
    if len(compared) > 1:
        parts += sections_across(compared, desk)
    for one, prefix in zip(compared, prefixes, strict=True):
        parts += sections_of(one, desk, prefix)
        if len(compared) == 1:
            parts += sections_across(compared, desk)
        rounds = desk.folder("tables") / f"{prefix}rounds.csv"
        write_csv(one.run, rounds)
        desk.files.append(rounds)
    parts.append(_settings(compared))
    path = out / "index.html"
    path.write_text(
        page(_title(compared), _lead(compared), parts, _shared_facts(runs)), encoding="utf-8"
    )
    return Report(path, (path, *desk.files), findings, notes, desk.tables)


def _findings(compared: Sequence[RunComparison]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if len(compared) == 1:
        return run_findings(compared[0]), compared[0].notes
    shared, left_out = common_strategies(compared)
    findings = (
        *cross_run_findings([one for one in compared if one.comparable], shared),
        *_first_sentences(compared),
    )
    notes = [f"{one.name}: {note}" for one in compared for note in one.notes]
    if left_out:
        notes.append(
            f"Not in the numbers across runs, for not all have them: {', '.join(left_out)}."
        )
    return findings, tuple(notes)


def _first_sentences(compared: Sequence[RunComparison]) -> list[str]:
    return [said[0] for one in compared if (said := run_findings(one))]


def _settings(compared: Sequence[RunComparison]) -> str:
    told = []
    for one in compared:
        values = _flat({"folder": one.run.folder.name, **asdict(one.run.setting)})
        if len(compared) > 1:
            values |= _flat(one.run.facts)
        values |= {
            f"failed: {strategy}, repetition {repetition}": sentence
            for (strategy, repetition), sentence in one.run.failures.items()
        }
        told.append(details(one.name, values))
    return section("Settings", "All that the results depend on, as it was run.", *told)


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested values in one layer: {"training": {"epochs": 5}} -> {"training.epochs": 5}."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{prefix}{name}.")
        elif isinstance(value, (list, tuple)):
            found[f"{prefix}{name}"] = ", ".join(map(str, value))
        else:
            found[f"{prefix}{name}"] = value
    return found


def _shared_facts(runs: Sequence[Run]) -> dict[str, Any]:
    flat = [_flat(run.facts) for run in runs]
    return {
        name: v
        for name, v in flat[0].items()
        if v is not None and all(one.get(name) == v for one in flat)
    }


def _title(compared: Sequence[RunComparison]) -> str:
    if len(compared) > 1:
        return f"Strategies compared in {len(compared)} runs"
    return f"{compared[0].name}: strategies compared"


def _lead(compared: Sequence[RunComparison]) -> str:
    if len(compared) > 1:
        return f"{', '.join(one.name for one in compared)}."
    (one,) = compared
    setting = one.run.setting
    times = "1 repetition" if one.repetitions == 1 else f"{one.repetitions} repetitions"
    labels = (
        f"{one.labelled[0]:,.0f} to {one.labelled[-1]:,.0f} labels, " if len(one.labelled) else ""
    )
    return f"Dataset {setting.dataset}, network {setting.network}, {labels}{setting.query:,} a round, {times}."


def _names(runs: Sequence[Run]) -> list[str]:
    """Return what each run is called: its setting, with its folder where two share a setting, numbered if need be."""
    count = Counter(run.setting.name for run in runs)
    names: list[str] = []
    for run in runs:
        name = (
            run.setting.name
            if count[run.setting.name] == 1
            else f"{run.setting.name} ({run.folder.name})"
        )
        again = sum(other == name or other.startswith(f"{name} #") for other in names)
        names.append(f"{name} #{again + 1}" if again else name)
    return names


def _prefixes(names: Sequence[str]) -> list[str]:
    """Return what the files of each run begin with, all different; nothing where there is one run."""
    if len(names) == 1:
        return [""]
    found: list[str] = []
    for name in names:
        slug = re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.") or "run"
        number = next(k for k in range(1, len(names) + 1) if _prefix(slug, k) not in found)
        found.append(_prefix(slug, number))
    return found


def _prefix(slug: str, number: int) -> str:
    return f"{slug}-" if number == 1 else f"{slug}-{number}-"
