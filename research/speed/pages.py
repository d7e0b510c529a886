"""Write the page of measured speed and the tables of rays elsewhere, from the committed results.

python research/speed/pages.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from teeter.bench.analysis.plot_style import new_figure, style_axes

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results"
PAGE = ROOT / "docs" / "explanation" / "speed.md"
FIGURE = PAGE.with_name("speed_growth.svg")
PAGES_WITH_RAYS_TABLE = (ROOT / "docs" / "explanation" / "ldm.md",)

PEER_ORDER = ("badge", "coreset", "probcover", "typiclust", "batchbald")
SIZES = ("N", "C", "D", "n")

INTRODUCTION = """# Speed, measured

`python research/speed/pages.py` writes this page from the results in `research/speed/results`, and a test fails if
the page is out of date. N, D, C and n are the numbers of rows, features, classes and picks. Times are medians over
seeds in one run. In comparisons with other libraries, each measurement runs in its own process. Ratios between times
depend less on the machine than the times themselves do.
"""

LOWER_BOUND_PARAGRAPH = """\
An algorithm cannot avoid certain operations and memory transfers. The lower bound is the time that they would take at
the rates measured in the same run. For LDM, the unavoidable operations are the products of all rows, classes and
directions, and for seeding, the products of all rows and picks. On a GPU, small tasks take far longer than the lower
bound, because most of the time is spent launching kernels. "The paper's" is LDM-S as the authors of the paper run it,
one hypothesis and one pick at a time, with one stop counter for all rows. The last column is empty if the lower bound
depends on the data. The columns for the other implementation are empty if it was not run or took more than two minutes.
"""


def build_page() -> str:
    """Return the page of measured speed."""
    sections = [
        *build_side_by_side(),
        *build_peers(),
        *build_bait(),
        *build_gpu(),
        *build_growth(),
        *build_busy(),
    ]
    return "\n".join([INTRODUCTION, *sections])


# Parts of the sections


def read_result(name: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return result


def describe_measurement(
    result: dict[str, Any], command: str, *, threads: str = "one thread"
) -> str:
    """Return the sentence that says how a result was measured."""
    machine = result["hardware"].split(",")[0]
    if "H200" not in machine:
        machine = f"{machine}, {threads}"
    commit = str(result["commit"])
    changed = " with uncommitted changes" if commit.endswith("-dirty") else ""
    return (
        f"Measured by `{command}` ({machine}, torch {result['torch']}, "
        f"commit `{commit[:7]}`{changed})."
    )


def format_aligned_table(columns: list[str], rows: list[list[str]]) -> list[str]:
    """Return the lines of a Markdown table with numbers to the right, and an empty line."""
    header = "| " + " | ".join(columns) + " |"
    rule = "| --- |" + " ---: |" * (len(columns) - 1)
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return [header, rule, *lines, ""]


def format_seconds(value: float | str) -> str:
    """Return seconds, or a dash for a selection that was cancelled."""
    if isinstance(value, float) and value < 10:
        return f"{value:.2g} s"
    return format_whole(value, " s")


def format_short_time(value: float) -> str:
    """Return seconds, or milliseconds below one second."""
    if value >= 9.95:
        return f"{value:,.0f} s"
    # What rounds to 1,000 ms is a second.
    if value >= 0.9995:
        return f"{value:.2g} s"
    return f"{value * 1000:.3g} ms"


def format_ratio(value: float) -> str:
    """Return a ratio with three digits, or all digits of a whole number from 1,000 on."""
    if value >= 999.5:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def format_whole(value: float | str, unit: str) -> str:
    """Return a rounded number, or a dash for a selection that was cancelled."""
    if isinstance(value, float):
        return f"{value:,.0f}{unit}"
    return "–"


# The table of rays, which is on another page


def build_rays_table() -> str:
    """Return the table of rays and Algorithm 1 by size, which the page on the LDM shows."""
    rows = []
    for name in ("ldm_cpu", "ldm_h200"):
        result = read_result(name)
        machine = describe_machine(result)
        rays = "rays" if has_subspaces(result) else "isotropic rays"

        rows += [
            [
                machine,
                f"{row['N']:,} × {row['D']:,}",
                str(row["C"]),
                f"{row['Algorithm 1 (s)']:.3g} s",
                f"{row['rays']:,} {rays}, {row['rays (s)']:.2g} s",
                f"**{row['ratio']:.0f}**",
            ]
            for row in result["comparison"]
        ]

    columns = ["machine", "pool", "classes", "Algorithm 1, shared counter", "rays", "times faster"]
    return "\n".join(format_aligned_table(columns, rows)).rstrip("\n")


def has_subspaces(result: dict[str, Any]) -> bool:
    """Return whether a result was measured with rays in subspaces.

    Results from before there were any do not say.
    """
    return result.get("subspace") is not None


def describe_machine(result: dict[str, Any]) -> str:
    if "H200" in result["hardware"]:
        return "one H200"
    threads = result["threads"]
    names = {1: "one CPU thread", 2: "two CPU cores"}
    return names.get(threads, f"{threads} CPU cores")


def fill_rays_table(text: str) -> str:
    """Return a page with an up-to-date table of rays."""
    table = build_rays_table()
    return re.sub(
        r"^\| machine \| pool \|.*\n(?:\|.*\n)+",
        lambda _: table + "\n",
        text,
        flags=re.MULTILINE,
    )


# Sections of the page


def build_side_by_side() -> list[str]:
    command = "python research/speed/bench_all.py"
    columns = [
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

    lines = ["## Side by side, and next to a lower bound\n", LOWER_BOUND_PARAGRAPH]
    for name, machine, options in (
        ("all_cpu", "one CPU thread", ""),
        ("all_h200", "one H200", " --device cuda"),
    ):
        result = read_result(name)
        rates = result["rates"]
        rows = [build_side_by_side_row(row) for row in result["table"]]
        lines += [
            f"On {machine}, with {rates['operations a second'] / 1e9:,.0f} GFLOP/s in matrix products and "
            f"{rates['bytes a second'] / 1e9:,.1f} GB/s in copies:\n",
            *format_aligned_table(columns, rows),
            describe_measurement(result, command + options) + "\n",
        ]
    lines.append(
        "![Time of LDM-S against N, C, D and n: teeter and the paper's implementation.](speed_growth.svg)\n"
    )
    return lines


def build_side_by_side_row(row: dict[str, Any]) -> list[str]:
    """Return the cells of a strategy, empty where there is no other implementation."""
    strategy = f"`{row['strategy']}`"
    if row["strategy"] == "seeding":
        strategy = "seeding alone"

    other_cells = ["", "", ""]
    for other in ("the paper's", "scikit-activeml"):
        if row[f"{other} (s)"]:
            other_cells = [
                f"{format_short_time(row[f'{other} (s)'])}, {other}",
                f"{row[f'{other} (MB)']:,.0f} MB",
                f"**{format_ratio(row[f'times faster than {other}'])}**",
            ]
            break

    lower_bound = ""
    if row["times the floor"]:
        lower_bound = f"{row['times the floor']:,.1f}"

    return [
        strategy,
        f"{row['N']:,} × {row['D']}, {row['C']:,}",
        f"{row['n']:,}",
        format_short_time(row["teeter (s)"]),
        f"{row['teeter (MB)']:,.0f} MB",
        *other_cells,
        lower_bound,
    ]


def draw_figure(path: Path) -> None:
    """Draw the time of LDM-S by size, teeter's and as the paper's authors run it, on a CPU and on a GPU."""
    figure = new_figure(9.5, 3.4)
    panels = dict(zip(SIZES, figure.subplots(1, 4, sharey=True), strict=True))

    for name, machine, line_style in (
        ("all_cpu", "one CPU thread", "-"),
        ("all_h200", "one H200", "--"),
    ):
        for growth in read_result(name)["growth"]:
            library = "as the authors run it"
            colour = "#555555"
            if growth["library"] == "teeter":
                library = "teeter"
                colour = "#d55e00"
            panels[growth["grows"]].plot(
                growth["sizes"],
                growth["seconds"],
                line_style,
                color=colour,
                marker="o",
                markersize=3,
                label=f"{library}, {machine}",
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


def build_peers() -> list[str]:
    result = read_result("peers_cpu")
    large_result = read_result("peers_large_cpu")
    measurements = sorted(
        [*result["peers"], *large_result["peers"]],
        key=lambda row: PEER_ORDER.index(row["strategy"]),
    )
    rows = [
        [
            f"`{row['strategy']}`",
            f"{row['N']:,}",
            str(row["n"]),
            format_seconds(row["teeter (s)"]),
            format_seconds(row["scikit-activeml (s)"]),
            f"**{row['times faster']:.1f}**" if row["times faster"] else "",
            format_whole(row["teeter (MB)"], " MB"),
            format_whole(row["scikit-activeml (MB)"], " MB"),
        ]
        for row in measurements
    ]
    columns = [
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
    difference = inertia["teeter"] / inertia["scikit-learn"] - 1

    return [
        "## Compared with scikit-activeml\n",
        "Each library picks n of N rows on one thread. There are 128 features, 10 classes and 100 labelled rows. The "
        "model outputs are computed before the measurement. The memory columns show the increase in memory use during a selection. A "
        f"dash means that the selection took longer than {result['patience']:.0f} s ({large_result['patience']:.0f} s at 1,000,000 rows) "
        "or needed more memory than was available. The results for 1,000,000 rows are from a separate run, during which "
        "the other core was busy.\n",
        *format_aligned_table(columns, rows),
        "Both libraries use a radius of 0.9 for ProbCover and 1,000 label configurations for BatchBALD. teeter's k-means, "
        f"which TypiClust uses, ends with an inertia {abs(difference):.2%} {'above' if difference > 0 else 'below'} that of scikit-learn "
        "(means over 20 seeds). "
        + describe_measurement(result, "python research/speed/bench_strategies.py --part peers")
        + "\n",
    ]


def build_bait() -> list[str]:
    result = read_result("bait_cpu")
    (row,) = result["bait"]
    same_picks = "the same" if row["same picks"] else "NOT the same"

    return [
        "## BAIT compared with its usual formulation\n",
        f"For {row['N']:,} rows, {row['D']} features, {row['C']} classes and {row['n']} picks, teeter takes "
        f"{row['teeter (s)']:.2g} s. The usual formulation takes {row['usual, forward alone (s)']:.0f} s for its "
        f"forward pass alone, estimated from {row['timed picks']} timed picks. teeter is "
        f"**{row['times faster']:.0f} times** faster, and these picks are {same_picks}. "
        + describe_measurement(result, "python research/speed/bench_strategies.py --part bait")
        + "\n",
    ]


def build_gpu() -> list[str]:
    result = read_result("strategies_h200")
    rows = []
    for row in result["gpu"]:
        is_strategy_name = "," not in row["strategy"]
        rows.append(
            [
                f"`{row['strategy']}`" if is_strategy_name else row["strategy"],
                f"{row['N']:,}",
                str(row["D"]),
                str(row["C"]),
                f"{row['n']:,}",
                format_seconds(row["s"]),
                f"{row['peak MB']:,.0f} MB",
            ]
        )

    rays = []
    if not has_subspaces(result):
        rays.append(
            "`ldm` and the strategies that use it were measured with isotropic rays, the earlier default. Rays in "
            "subspaces [are faster](ldm.md#rays-in-subspaces).\n"
        )

    return [
        "## On a GPU\n",
        *rays,
        *format_aligned_table(["strategy", "N", "D", "C", "n", "time", "peak memory"], rows),
        describe_measurement(result, "python research/speed/bench_strategies.py --part gpu") + "\n",
    ]


def build_growth() -> list[str]:
    result = read_result("growth_cpu")
    growth_by_strategy: dict[str, dict[str, dict[str, Any]]] = {}
    for row in result["growth"]:
        growth_by_strategy.setdefault(row["strategy"], {})[row["grows"]] = row

    rows = []
    for strategy, growth_by_size in growth_by_strategy.items():
        cells = [f"`{strategy}`"]
        for size in SIZES:
            growth = growth_by_size[size]
            first = format_short_time(growth["first (s)"])
            last = format_short_time(growth["last (s)"])
            cells.append(f"{first} to {last}, {growth['exponent']:.2f}")
        rows.append(cells)

    usual_sizes = describe_sizes(growth_by_strategy["ldm-s"])
    small_sizes = describe_sizes(growth_by_strategy["bait"])
    return [
        "## How the time grows\n",
        f"Each size is doubled three times while the others stay fixed ({usual_sizes}; for `bait` and `batchbald` "
        f"{small_sizes}). Each cell shows the times at the smallest and the largest size, and the exponent k of the fit "
        "time = a · size^k.\n",
        *format_aligned_table(["strategy", *SIZES], rows),
        describe_measurement(result, "python research/speed/bench_strategies.py --part growth")
        + "\n",
    ]


def describe_sizes(growth_by_size: dict[str, dict[str, Any]]) -> str:
    """Return from where to where each size grows."""
    return ", ".join(
        f"{size} from {growth_by_size[size]['from']:,} to {growth_by_size[size]['to']:,}"
        for size in SIZES
    )


def build_busy() -> list[str]:
    result = read_result("busy_cpu")
    rows = [
        [
            row["task"],
            format_seconds(row["alone, 1"]),
            format_seconds(row["alone, 2"]),
            format_seconds(row["busy, 1"]),
            format_seconds(row["busy, 2"]),
        ]
        for row in result["busy"]
    ]
    columns = ["task", "alone, one thread", "alone, two", "busy, one thread", "busy, two"]

    return [
        "## On a busy machine\n",
        "Threads that wait for each other in a busy loop are slow when another program needs the same core. teeter's "
        "commands let threads sleep while they wait, unless `OMP_WAIT_POLICY` says otherwise. The table shows times on two "
        "cores, alone and beside a program that keeps one core busy:\n",
        *format_aligned_table(columns, rows),
        describe_measurement(result, "python research/speed/bench_busy.py", threads="two cores")
        + "\n",
    ]


def main() -> None:
    draw_figure(FIGURE)
    for path in PAGES_WITH_RAYS_TABLE:
        text = path.read_text(encoding="utf-8")
        path.write_text(fill_rays_table(text), encoding="utf-8")
    PAGE.write_text(build_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
