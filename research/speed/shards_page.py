"""Estimate what a billion rows need from the result of bench_shards.py, for the page on selecting from files.

python research/speed/shards_page.py
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULT = Path(__file__).parent / "results" / "shards_cpu.json"
PAGE = ROOT / "docs" / "how_to" / "select_from_a_file.md"
BLOCK = re.compile(r"<!-- measured: a billion rows -->\n.*?<!-- end -->", flags=re.DOTALL)
CORES = (16, 256)


@dataclass(frozen=True)
class Requirements:
    """What a selection by ldm-s from ``rows`` needs."""

    rows: int
    scoring: float
    """Core hours."""
    fetching: float
    """Core hours of reading the reference rows, the rows that seeding draws, and the picks."""
    drawing: float
    """Hours on one core, whatever the cluster."""
    stored: float
    """Bytes of the pool."""
    passes: float
    """How often the pool is read in total."""
    driver: float
    """Bytes of memory where the picks are drawn."""
    worker: float
    """Bytes of memory of each worker."""
    rate: float
    """Bytes a second that a core reads while it scores."""

    def hours(self, cores: int) -> float:
        """Return how long it takes on so many cores, if the disks are fast enough."""
        return (self.scoring + self.fetching) / cores + self.drawing


def estimate_requirements(result: dict[str, Any], rows: int = 10**9) -> Requirements:
    """Estimate what so many rows need at the measured rates."""
    local = find_engine(result, "local", "features")
    groups = rows / result["rows a group"]

    def share_of_groups(count: float) -> float:
        """Return the share of row groups, which are read whole, with any of ``count`` rows."""
        return 1 - math.exp(-count / groups)

    fetches = max(1, local["fetches"] - 1)  # the first is of one row
    extra_passes = (
        share_of_groups(local["reference rows"])
        + fetches * share_of_groups(local["rows fetched"] / fetches)
        + share_of_groups(result["n"])
    )
    drawing = result["drawing"]
    return Requirements(
        rows=rows,
        scoring=rows / local["rows a second and core"] / 3600,
        fetching=extra_passes * rows / result["reading"]["rows a second"] / 3600,
        drawing=rows * drawing["seconds"] / drawing["rows"] / 3600,
        stored=rows * result["bytes a row"],
        passes=1 + extra_passes,
        driver=rows * drawing["bytes a row"],
        worker=1e9 * max(engine["worker GB"] for engine in result["engines"]),
        rate=local["rows a second and core"] * result["bytes a row"],
    )


def find_engine(result: dict[str, Any], name: str, form: str) -> dict[str, Any]:
    """Return the measurement of an engine on rows of a form."""
    for engine in result["engines"]:
        if engine["engine"] == name and engine["rows are"] == form:
            return dict(engine)
    raise KeyError(f"{name}, {form}")


def build_block(result: dict[str, Any]) -> str:
    """Return the measured part of the page."""
    needs = estimate_requirements(result)
    local = find_engine(result, "local", "features")
    ray = find_engine(result, "ray", "features")
    speed = local["rows a second and core"]

    setup = result["facts"]
    commit = str(setup["commit"])
    changed = " with uncommitted changes" if commit.endswith("-dirty") else ""
    times = [
        f"{needs.hours(cores):.1f} hours on {cores} cores ({cores * needs.rate / 1e9:.2g} GB/s in total while scoring)"
        for cores in CORES
    ]
    return "\n".join(
        [
            f"We measured with {result['rows']:,} rows of {result['width']} features, {result['classes']} classes, 256 "
            f"directions and {result['workers']} workers with one thread each ({setup['hardware'].split(',')[0]}, commit "
            f"`{commit[:7]}`{changed}). Selecting",
            f"{result['n']:,} rows took {local['seconds']:,.0f} s with local processes and {ray['seconds']:,.0f} s on Ray. "
            f"A core scored {speed:,.0f} rows per second, and a worker used at most {needs.worker / 1e9:.1f} GB.",
            f"The picks {'were' if result['same picks'] else 'were NOT'} the same with local processes and with Ray.",
            "",
            f"From the measured rates, we estimate that {needs.rows:,} such rows need:",
            "",
            f"- {needs.stored / 1e12:.2g} TB of data, read {needs.passes:.1f} times over (reading one row means reading its "
            "whole row group), and "
            f"{4 * needs.rows / 1e9:.0f} GB for the scores,",
            f"- {needs.scoring:,.0f} core hours for scoring and {needs.fetching:,.0f} for reading single rows,",
            f"- {needs.driver / 1e9:.0f} GB of memory and {needs.drawing:.1f} hours on one core for drawing the picks.",
            "",
            f"If the disks are fast enough, the whole selection takes {' and '.join(times)}.",
            "We have not measured these times, and your disks and network may be too slow for this many readers.",
        ]
    )


def fill_page(text: str) -> str:
    """Return the page with an up-to-date block."""
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    block = build_block(result)
    return BLOCK.sub(
        lambda _: f"<!-- measured: a billion rows -->\n\n{block}\n\n<!-- end -->", text
    )


if __name__ == "__main__":
    PAGE.write_text(fill_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
