"""Write the page of measured speed and the tables of rays elsewhere, from the committed results.

python benchmarks/speed/pages.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from teeter.analysis.plot_style import new_figure, style_axes

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results"
_ORDER = ("badge", "coreset", "probcover", "typiclust", "batchbald")
PAGE = ROOT / "docs" / "explanation" / "speed.md"
FILLED = (ROOT / "docs" / "explanation" / "ldm.md",)

HEAD = """# Speed, measured

`python benchmarks/speed/pages.py` writes this page from the results in `benchmarks/speed/results`, and a test fails if
the page is out of date. N, D, C and n are the numbers of rows, features, classes and picks. Times are medians over
seeds in one run. In comparisons with other libraries, each measurement runs in its own process. Ratios between times
depend less on the machine than the times themselves do.
"""


def page() -> str:
    """Return the page."""
    sections = [*_side_by_side(), *_peers(), *_bait(), *_gpu(), *_growth(), *_busy()]
    return "\n".join([HEAD, *sections])


def _read(name: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return result


def _made(result: dict[str, Any], command: str, *, threads: str = "one thread") -> str:
    where = result["hardware"].split(",")[0]
    on = f"{where}, {threads}" if "H200" not in where else where
    commit = str(result["commit"])
    changed = " with uncommitted changes" if commit.endswith("-dirty") else ""
    return (
        f"Measured by `{command}` ({on}, torch {result['torch']}, commit `{commit[:7]}`{changed})."
    )


def _table(heads: list[str], rows: list[list[str]]) -> list[str]:
    rule = "| --- |" + " ---: |" * (len(heads) - 1)
    return [
        "| " + " | ".join(heads) + " |",
        rule,
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
    ]


def _seconds(value: float | str) -> str:
    return f"{value:.2g} s" if isinstance(value, float) and value < 10 else _whole(value, " s")


def _short(value: float) -> str:
    return f"{value:.2g} s" if value >= 1 else f"{value * 1000:.3g} ms"


def _whole(value: float | str, unit: str) -> str:
    return f"{value:,.0f}{unit}" if isinstance(value, float) else "–"


def rays_table() -> str:
    """Return the table of rays and Algorithm 1 by size, which the page on the LDM shows."""
    rows = []
    for name in ("ldm_cpu", "ldm_h200"):
        result = _read(name)
        threads = {1: "one CPU thread", 2: "two CPU cores"}.get(
            result["threads"], f"{result['threads']} CPU cores"
        )
        where = "one H200" if "H200" in result["hardware"] else threads
        rows += [
            [
                where,
                f"{row['N']:,} × {row['D']:,}",
                str(row["C"]),
                f"{row['Algorithm 1 (s)']:.3g} s",
                f"{row['rays']:,} rays, {row['rays (s)']:.2g} s",
                f"**{row['ratio']:.0f}**",
            ]
            for row in result["comparison"]
        ]
    heads = ["machine", "pool", "classes", "Algorithm 1", "rays", "times faster"]
    return "\n".join(_table(heads, rows)[:-1])


def filled(text: str) -> str:
    """Return a page with an up-to-date table of rays."""
    return re.sub(
        r"^\| machine \| pool \|.*\n(?:\|.*\n)+",
        lambda _: rays_table() + "\n",
        text,
        flags=re.MULTILINE,
    )


def _side_by_side() -> list[str]:
    lines = ["## Side by side, and next to a lower bound\n", SIDE_BY_SIDE]
    heads = [
        "strategy",
        "N × D, C",
        "n",
        "teeter",
        "memory",
        "other implementation",
        "its memory",
        "times faster",
        "times the lower bound",
    ]
    for name, where in (("all_cpu", "one CPU thread"), ("all_h200", "one H200")):
        result = _read(name)
        rows = []
        for row in result["table"]:
            other = next(
                (one for one in ("the paper's", "scikit-activeml") if row[f"{one} (s)"]), None
            )
            rows.append(
                [
                    f"`{row['strategy']}`" if row["strategy"] != "seeding" else "seeding alone",
                    f"{row['N']:,} × {row['D']}, {row['C']:,}",
                    f"{row['n']:,}",
                    _short(row["teeter (s)"]),
                    f"{row['teeter (MB)']:,.0f} MB",
                    f"{_short(row[f'{other} (s)'])}, {other}" if other else "",
                    f"{row[f'{other} (MB)']:,.0f} MB" if other else "",
                    f"**{row[f'times faster than {other}']:.3g}**" if other else "",
                    f"{row['times the floor']:,.1f}" if row["times the floor"] else "",
                ]
            )
        rate = result["rates"]
        lines += [
            f"On {where}, with {rate['operations a second'] / 1e9:,.0f} GFLOP/s in matrix products and "
            f"{rate['bytes a second'] / 1e9:,.1f} GB/s in copies:\n",
            *_table(heads, rows),
            _made(
                result,
                "python benchmarks/speed/bench_all.py"
                + (" --device cuda" if "h200" in name else ""),
            )
            + "\n",
        ]
    return [
        *lines,
        "![Time of LDM-S against N, C, D and n: teeter and the paper's implementation.](speed_growth.svg)\n",
    ]


def draw(path: Path) -> None:
    """Draw the time of LDM-S by size, ours and as the paper's authors run it, on a CPU and on a GPU."""
    figure = new_figure(9.5, 3.4)
    panels = dict(zip(("N", "C", "D", "n"), figure.subplots(1, 4, sharey=True), strict=True))
    for name, where, mark in (("all_cpu", "one CPU thread", "-"), ("all_h200", "one H200", "--")):
        for line in _read(name)["growth"]:
            ours = line["library"] == "teeter"
            axes = panels[line["grows"]]
            label = f"{'teeter' if ours else 'as the authors run it'}, {where}"
            colour = "#d55e00" if ours else "#555555"
            axes.plot(
                line["sizes"],
                line["seconds"],
                mark,
                color=colour,
                marker="o",
                markersize=3,
                label=label,
            )
    for name, axes in panels.items():
        axes.set(xscale="log", yscale="log", xlabel=name)
        axes.minorticks_off()
        style_axes(axes, grid="y")
    panels["N"].set_ylabel("seconds for a selection")
    figure.legend(
        *panels["N"].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=4,
        frameon=False,
        fontsize=8,
    )
    figure.savefig(path)


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
        for row in sorted(
            [*result["peers"], *large["peers"]], key=lambda row: _ORDER.index(row["strategy"])
        )
    ]
    heads = [
        "strategy",
        "N",
        "n",
        "teeter",
        "scikit-activeml",
        "times faster",
        "teeter memory",
        "scikit-activeml memory",
    ]
    inertia = result["k-means inertia"]
    gap = inertia["teeter"] / inertia["scikit-learn"] - 1
    return [
        "## Compared with scikit-activeml\n",
        "Each library picks n of N rows on one thread. There are 128 features, 10 classes and 100 labelled rows. The "
        "model outputs are computed before the measurement. The memory columns show the increase in memory use during a selection. A "
        f"dash means that the selection took longer than {result['patience']:.0f} s ({large['patience']:.0f} s at 1,000,000 rows) "
        "or needed more memory than was available. The results for 1,000,000 rows are from a separate run, during which "
        "the other core was busy.\n",
        *_table(heads, rows),
        "Both libraries use a radius of 0.9 for ProbCover and 1,000 label configurations for BatchBALD. teeter's k-means, "
        f"which TypiClust uses, ends with an inertia {abs(gap):.2%} {'above' if gap > 0 else 'below'} that of scikit-learn "
        "(means over 20 seeds). "
        + _made(result, "python benchmarks/speed/bench_strategies.py --part peers")
        + "\n",
    ]


def _bait() -> list[str]:
    result = _read("bait_cpu")
    (row,) = result["bait"]
    return [
        "## BAIT compared with its usual formulation\n",
        f"For {row['N']:,} rows, {row['D']} features, {row['C']} classes and {row['n']} picks, teeter takes "
        f"{row['teeter (s)']:.2g} s. The usual formulation takes {row['usual, forward alone (s)']:.0f} s for its "
        f"forward pass alone, estimated from {row['timed picks']} timed picks. teeter is "
        f"**{row['times faster']:.0f} times** faster, with the same picks. "
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
        return ", ".join(
            f"{one} from {of[one]['from']:,} to {of[one]['to']:,}" for one in ("N", "C", "D", "n")
        )

    return [
        "## How the time grows\n",
        f"Each size is doubled three times while the others stay fixed ({sizes(base)}; for `bait` and `batchbald` "
        f"{sizes(small)}). Each cell shows the times at the smallest and the largest size, and the exponent k of the fit "
        "time = a · size^k.\n",
        *_table(["strategy", "N", "C", "D", "n"], rows),
        _made(result, "python benchmarks/speed/bench_strategies.py --part growth") + "\n",
    ]


def _busy() -> list[str]:
    result = _read("busy_cpu")
    rows = [
        [
            row["task"],
            _seconds(row["alone, 1"]),
            _seconds(row["alone, 2"]),
            _seconds(row["busy, 1"]),
            _seconds(row["busy, 2"]),
        ]
        for row in result["busy"]
    ]
    heads = ["task", "alone, one thread", "alone, two", "busy, one thread", "busy, two"]
    return [
        "## On a busy machine\n",
        "Threads that wait for each other in a busy loop are slow when another program needs the same core. teeter's "
        "commands let threads sleep while they wait, unless `OMP_WAIT_POLICY` says otherwise. The table shows times on two "
        "cores, alone and beside a program that keeps one core busy:\n",
        *_table(heads, rows),
        _made(result, "python benchmarks/speed/bench_busy.py", threads="two cores") + "\n",
    ]


SIDE_BY_SIDE = """\
An algorithm cannot avoid certain operations and memory transfers. The lower bound is the time that they would take at
the rates measured in the same run. For LDM, the unavoidable operations are the products of all rows, classes and
directions, and for seeding, the products of all rows and picks. On a GPU, small tasks take far longer than the lower
bound, because most of the time is spent launching kernels. "The paper's" is LDM-S as the authors of the paper run it,
one hypothesis and one pick at a time. The last column is empty if the lower bound depends on the data. The columns for
the other implementation are empty if it was not run or took more than two minutes.
"""


if __name__ == "__main__":
    draw(PAGE.with_name("speed_growth.svg"))
    for path in FILLED:
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
