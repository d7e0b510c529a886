"""What a billion rows take, reckoned from the committed result of bench_shards.py, for the page on big pools:

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
PAGE = ROOT / "docs" / "how_to" / "big_pools.md"
BLOCK = re.compile(r"<!-- measured: a billion rows -->\n.*?<!-- end -->", flags=re.DOTALL)
CORES = (16, 64, 256, 1024)


@dataclass(frozen=True)
class Bill:
    """What a selection by ldm-s from ``rows`` takes."""

    rows: int
    scoring: float
    """Core hours."""
    fetching: float
    """Core hours of reading for the reference, for the rows that seeding draws, and for what is told of the picks."""
    drawing: float
    """Hours on one core, whatever the cluster."""
    stored: float
    """Bytes of the pool."""
    passes: float
    """How often the pool is read, all in all."""
    driver: float
    """Bytes of memory where the picks are drawn."""
    worker: float
    """Bytes of memory of each worker."""
    rate: float
    """Bytes a second that a core reads while it scores."""

    def hours(self, cores: int) -> float:
        """Return how long it takes on so many cores, where disks keep up."""
        return (self.scoring + self.fetching) / cores + self.drawing


def bill(result: dict[str, Any], rows: int = 10**9) -> Bill:
    """Return what so many rows take at the measured rates."""
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
    """Return what the page says."""
    told = bill(result)
    local, ray, model = (
        one_of(result, *key)
        for key in (("local", "features"), ("ray", "features"), ("local", "model"))
    )
    speed = local["rows a second and core"]
    facts = result["facts"]
    rows = [
        f"| {cores:,} | {told.hours(cores):.1f} h | {cores * told.rate / 1e9:.2g} GB/s |"
        for cores in CORES
    ]
    return "\n".join(
        [
            f"Measured with {result['rows']:,} rows of {result['width']} features in {result['classes']} classes, by "
            f"{result['workers']} workers of one thread ({facts['hardware'].split(',')[0]}, commit "
            f"`{str(facts['commit'])[:7]}`{' with changes' if str(facts['commit']).endswith('-dirty') else ''}):",
            "",
            f"- a core scores {speed:,.0f} rows a second by 256 directions, reading them included, "
            f"{ray['rows a second and core']:,.0f} on Ray, and {model['rows a second and core']:,.0f} through a small "
            f"network (`mlp`, whose features are narrower; {model['rows']:,} rows); it only reads "
            f"{result['reading']['rows a second']:,.0f};",
            f"- a row is {result['bytes a row']:,.0f} bytes on disk, its score 4;",
            f"- the whole selection of {result['n']:,} took {local['seconds']:,.0f} s and {local['peak GB']:.1f} GB of "
            f"memory, all processes together, by local processes, and {ray['seconds']:,.0f} s and "
            f"{ray['peak GB']:.1f} GB on Ray;",
            f"- a worker holds {told.worker / 1e9:.1f} GB at most, whatever the size of the pool;",
            f"- LDM-Seeding fetched {local['rows fetched']:,} rows for {result['n']:,} picks; drawing them takes "
            f"{told.drawing * 3600e6 / told.rows:.2g} s and {told.driver / told.rows:.0f} MB for each million rows of "
            "the pool, on the machine that starts it all;",
            f"- the picks {'were' if result['same picks'] else 'were NOT'} the same by local processes and by Ray.",
            "",
            f"So {told.rows:,} such rows are {told.stored / 1e12:.2g} TB, which are read {told.passes:.1f} times "
            f"(a row group is read whole for one of its rows), {told.scoring:,.0f} core hours of scoring and "
            f"{told.fetching:,.0f} of fetching, {4 * told.rows / 1e9:.0f} GB of scores, and {told.driver / 1e9:.0f} GB "
            f"of memory and {told.drawing:.1f} hours of one core where the picks are drawn. Where the disks keep up:",
            "",
            "| cores | time | read by all while scoring |",
            "| ---: | ---: | ---: |",
            *rows,
            "",
            "These are reckoned, not measured: nothing says that your disks and network bear so many readers.",
            "`python benchmarks/speed/bench_shards.py` measures, and `shards_page.py` beside it reckons.",
        ]
    )


def filled(text: str) -> str:
    """Return the page with the block made anew."""
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    return BLOCK.sub(
        lambda _: f"<!-- measured: a billion rows -->\n\n{block(result)}\n\n<!-- end -->", text
    )


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
