"""Estimate what a billion rows need from the result of bench_shards.py, for the page on big pools.

python benchmarks/speed/shards_page.py
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
SUBSPACE_RESULT = ROOT / "benchmarks" / "rays" / "results" / "shards_epyc.json"
"""The same pool with isotropic rays, as in ``RESULT``, and with rays in subspaces."""
PAGE = ROOT / "docs" / "how_to" / "big_pools.md"
BLOCK = re.compile(r"<!-- measured: a billion rows -->\n.*?<!-- end -->", flags=re.DOTALL)
CORES = (16, 64, 256, 1024)


@dataclass(frozen=True)
class Bill:
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


def bill(result: dict[str, Any], rows: int = 10**9) -> Bill:
    """Return what so many rows need at the measured rates."""
    local = one_of(result, "local", "features")
    groups = rows / result["rows a group"]

    def touched(count: float) -> float:
        """Return the share of row groups, which are read whole, that hold one of ``count`` rows or more."""
        return 1 - math.exp(-count / groups)

    fetches = max(1, local["fetches"] - 1)  # the first is of one row
    extra = (
        touched(local["reference rows"])
        + fetches * touched(local["rows fetched"] / fetches)
        + touched(result["n"])
    )
    drawing = result["drawing"]
    return Bill(
        rows=rows,
        scoring=rows / local["rows a second and core"] / 3600,
        fetching=extra * rows / result["reading"]["rows a second"] / 3600,
        drawing=rows * drawing["seconds"] / drawing["rows"] / 3600,
        stored=rows * result["bytes a row"],
        passes=1 + extra,
        driver=rows * drawing["bytes a row"],
        worker=1e9 * max(one["worker GB"] for one in result["engines"]),
        rate=local["rows a second and core"] * result["bytes a row"],
    )


def one_of(result: dict[str, Any], engine: str, form: str) -> dict[str, Any]:
    (found,) = [
        one for one in result["engines"] if (one["engine"], one["rows are"]) == (engine, form)
    ]
    return dict(found)


def block(result: dict[str, Any]) -> str:
    """Return the measured part of the page."""
    told = bill(result)
    local, ray, model = (
        one_of(result, *key)
        for key in (("local", "features"), ("ray", "features"), ("local", "model"))
    )
    speed = local["rows a second and core"]
    later = json.loads(SUBSPACE_RESULT.read_text(encoding="utf-8"))
    isotropic = later["old"]["engines"][0]["seconds"]
    subspace = later["new"]["engines"][0]["seconds"]
    facts = result["facts"]
    commit = str(facts["commit"])
    changed = " with uncommitted changes" if commit.endswith("-dirty") else ""
    rows = [
        f"| {cores:,} | {told.hours(cores):.1f} h | {cores * told.rate / 1e9:.2g} GB/s |"
        for cores in CORES
    ]
    return "\n".join(
        [
            f"We measured with {result['rows']:,} rows of {result['width']} features, {result['classes']} classes and "
            f"{result['workers']} workers with one thread each ({facts['hardware'].split(',')[0]}, commit "
            f"`{commit[:7]}`{changed}):",
            "",
            f"- With 256 directions, a core reads and scores {speed:,.0f} rows per second with local processes, and "
            f"{ray['rows a second and core']:,.0f} on Ray.",
            f"  With a small network (`mlp`, with fewer features; {model['rows']:,} rows), a core scores "
            f"{model['rows a second and core']:,.0f} rows per second.",
            f"  Without scoring, a core reads {result['reading']['rows a second']:,.0f} rows per second.",
            f"- A row takes {result['bytes a row']:,.0f} bytes on disk, and its score takes 4 bytes.",
            f"- Selecting {result['n']:,} rows took {local['seconds']:,.0f} s with local processes and "
            f"{ray['seconds']:,.0f} s on Ray. All processes together used",
            f"  {local['peak GB']:.1f} GB of memory locally and {ray['peak GB']:.1f} GB on Ray.",
            "- These times are of isotropic rays. In a later measurement with local processes on the same kind of "
            f"machine, selecting took {isotropic:,.0f} s with",
            f"  isotropic rays and {subspace:,.0f} s with rays in subspaces, which are now the default.",
            f"- A worker uses at most {told.worker / 1e9:.1f} GB, whatever the size of the pool.",
            f"- LDM-Seeding read {local['rows fetched']:,} rows for {result['n']:,} picks. On the machine that starts "
            "the job, drawing the picks takes",
            f"  {told.drawing * 3600e6 / told.rows:.2g} s and {told.driver / told.rows:.0f} MB for each million "
            "rows of the pool.",
            f"- The picks {'were' if result['same picks'] else 'were NOT'} the same with local processes and with Ray.",
            "",
            f"From these rates, we estimate that {told.rows:,} such rows need:",
            "",
            f"- {told.stored / 1e12:.2g} TB of data, read {told.passes:.1f} times over (reading one row means reading its "
            "whole row group),",
            f"- {told.scoring:,.0f} core hours for scoring and {told.fetching:,.0f} for reading single rows,",
            f"- {4 * told.rows / 1e9:.0f} GB of disk space for the scores,",
            f"- {told.driver / 1e9:.0f} GB of memory and {told.drawing:.1f} hours on one core for drawing the picks.",
            "",
            "If the disks are fast enough, the whole selection takes:",
            "",
            "| cores | time | total reading rate while scoring |",
            "| ---: | ---: | ---: |",
            *rows,
            "",
            "We have not measured these times, and your disks and network may be too slow for this many readers.",
            "`python benchmarks/speed/bench_shards.py` measures the rates, and `shards_page.py` next to it computes "
            "the estimates.",
        ]
    )


def filled(text: str) -> str:
    """Return the page with an up-to-date block."""
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    return BLOCK.sub(
        lambda _: f"<!-- measured: a billion rows -->\n\n{block(result)}\n\n<!-- end -->", text
    )


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
