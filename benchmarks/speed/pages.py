"""The page of measured speed, made from the committed results:

python benchmarks/speed/pages.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results"
_ORDER = ("badge", "coreset", "probcover", "typiclust", "batchbald")
PAGE = ROOT / "docs" / "explanation" / "speed.md"

HEAD = """# Speed, measured

Made from the results in `benchmarks/speed/results` by `python benchmarks/speed/pages.py`; a test fails when it is out
of date. Times are medians over seeds in one run, each cell in a process of its own; machines differ, ratios less so.
"""


def page() -> str:
    """Return the page."""
    return "\n".join([HEAD, *_peers(), *_bait(), *_gpu(), *_growth()])


def _read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return found


def _made(result: dict[str, Any], command: str) -> str:
    where = result["hardware"].split(",")[0]
    on = f"{where}, one thread" if "H200" not in where else where
    return f"`{command}`; {on}, torch {result['torch']}, commit `{str(result['commit'])[:7]}`."


def _table(heads: list[str], rows: list[list[str]]) -> list[str]:
    rule = "| --- |" + " ---: |" * (len(heads) - 1)
    return ["| " + " | ".join(heads) + " |", rule, *("| " + " | ".join(row) + " |" for row in rows), ""]


def _seconds(value: float | str) -> str:
    return f"{value:.2g} s" if isinstance(value, float) and value < 10 else _whole(value, " s")


def _short(value: float) -> str:
    return f"{value:.2g} s" if value >= 1 else f"{value * 1000:.3g} ms"


def _whole(value: float | str, unit: str) -> str:
    return f"{value:,.0f}{unit}" if isinstance(value, float) else "–"


def _peers() -> list[str]:
    result, large = _read("peers_cpu"), _read("peers_large_cpu")
    rows = [
        [
            f"`{row['strategy']}`",
            f"{row['N']:,}",
            str(row["n"]),
            _seconds(row["teeter (s)"]),
            _seconds(row["scikit-activeml (s)"]),
            f"**{row['times faster']:.1f}**" if row["times faster"] else "",
            _whole(row["teeter (MB)"], " MB"),
            _whole(row["scikit-activeml (MB)"], " MB"),
        ]
        for row in sorted([*result["peers"], *large["peers"]], key=lambda row: _ORDER.index(row["strategy"]))
    ]
    heads = ["strategy", "N", "n", "teeter", "scikit-activeml", "times faster", "teeter", "scikit-activeml"]
    inertia = result["k-means inertia"]
    gap = inertia["teeter"] / inertia["scikit-learn"] - 1
    return [
        "## Beside scikit-activeml\n",
        "Picking n of N rows with 128 features and 10 classes, 100 labelled, on one thread each; the model's "
        "outputs are there already. The right columns are how far a selection raised the memory in use. A dash: it "
        f"took longer than {result['patience']:.0f} s ({large['patience']:.0f} s at 1,000,000 rows, which are from a "
        "run of their own while the other core was busy), or more memory than there was.\n",
        *_table(heads, rows),
        "ProbCover at one radius (0.9) each, BatchBALD with 1,000 configurations of labels each. TypiClust's k-means "
        f"ends at an inertia {abs(gap):.2%} {'above' if gap > 0 else 'below'} scikit-learn's (means of 20 seeds). "
        + _made(result, "python benchmarks/speed/bench_strategies.py --part peers")
        + "\n",
    ]


def _bait() -> list[str]:
    result = _read("bait_cpu")
    (row,) = result["bait"]
    return [
        "## BAIT beside its usual formulation\n",
        f"{row['N']:,} rows, {row['D']} features, {row['C']} classes, {row['n']} picks: {row['teeter (s)']:.2g} s, and "
        f"{row['usual, forward alone (s)']:.0f} s as it is usually written (its forward pass alone, from "
        f"{row['timed picks']} timed picks): **{row['times faster']:.0f} times** faster, with the same picks. "
        + _made(result, "python benchmarks/speed/bench_strategies.py --part bait")
        + "\n",
    ]


def _gpu() -> list[str]:
    result = _read("strategies_h200")
    rows = [
        [
            f"`{row['strategy']}`" if "," not in row["strategy"] else row["strategy"],
            f"{row['N']:,}",
            str(row["D"]),
            str(row["C"]),
            f"{row['n']:,}",
            _seconds(row["s"]),
            f"{row['peak MB']:,.0f} MB",
        ]
        for row in result["gpu"]
    ]
    return [
        "## On a GPU\n",
        *_table(["strategy", "N", "D", "C", "n", "time", "peak memory"], rows),
        _made(result, "python benchmarks/speed/bench_strategies.py --part gpu") + "\n",
    ]


def _growth() -> list[str]:
    result = _read("growth_cpu")
    by_strategy: dict[str, dict[str, dict[str, Any]]] = {}
    for row in result["growth"]:
        by_strategy.setdefault(row["strategy"], {})[row["grows"]] = row
    rows = []
    for name, grown in by_strategy.items():
        cells = [
            f"{_short(row['first (s)'])} to {_short(row['last (s)'])}, {row['exponent']:.2f}"
            for row in (grown[one] for one in ("N", "C", "D", "n"))
        ]
        rows.append([f"`{name}`", *cells])
    base = by_strategy["ldm-s"]
    small = by_strategy["bait"]

    def sizes(of: dict[str, dict[str, Any]]) -> str:
        return ", ".join(f"{one} from {of[one]['from']:,} to {of[one]['to']:,}" for one in ("N", "C", "D", "n"))

    return [
        "## How cost grows\n",
        f"Each size is doubled three times while the others stay ({sizes(base)}; for `bait` and `batchbald` "
        f"{sizes(small)}): the time at the first and the last size, and the exponent k of the fit time = a · size^k.\n",
        *_table(["strategy", "N", "C", "D", "n"], rows),
        _made(result, "python benchmarks/speed/bench_strategies.py --part growth") + "\n",
    ]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
