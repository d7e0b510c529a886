"""Write the page of measured speed and the tables of rays elsewhere, from the committed results.

python research/speed/pages.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from teeter.bench.analysis.plots import new_figure, style_axes

sys.path.append(str(Path(__file__).parents[2]))

from research.page_blocks import fill_blocks

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results"
PAGE = ROOT / "docs" / "explanation" / "speed.md"
FIGURE = PAGE.with_name("speed_growth.svg")
RAYS_PAGE = ROOT / "docs" / "explanation" / "ldm.md"

PEER_ORDER = ("badge", "coreset", "probcover", "typiclust", "batchbald")
SIZES = ("N", "C", "D", "n")

INTRODUCTION = """# Speed, measured

`python research/speed/pages.py` writes this page from the results in `research/speed/results`. N, D, C and n are the
numbers of rows, features, classes and picks. Times are medians over seeds in one run. Ratios between times depend less
on the machine than the times themselves do.

On a busy machine, threads that wait for each other in a busy loop are slow, so teeter's commands let them sleep while
they wait, unless `OMP_WAIT_POLICY` says otherwise.
"""

LOWER_BOUND_PARAGRAPH = """\
"The paper's" is LDM-S as the authors of the paper run it, one hypothesis and one pick at a time, with one stop counter
for all rows; its column is empty if it took more than two minutes. The lower bound is the time of the unavoidable
matrix products and memory transfers at the rates measured in the same run. On a GPU, small tasks take far longer,
because most of the time is spent launching kernels.
"""


def build_page() -> str:
    """Return the page of measured speed."""
    sections = [
        *build_side_by_side(),
        *build_peers(),
        *build_bait(),
        *build_strategies(),
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
    """Return the table of rays and Algorithm 1 by size on a CPU, and a sentence on a GPU."""
    result = read_result("ldm_cpu")
    rows = [
        [
            f"{row['N']:,} × {row['D']:,}",
            str(row["C"]),
            f"{row['Algorithm 1 (s)']:.3g} s",
            f"{row['rays']:,}, {row['rays (s)']:.2g} s",
            f"**{row['ratio']:.0f}**",
        ]
        for row in result["comparison"]
    ]
    machine = describe_machine(result)
    columns = [f"pool, on {machine}", "classes", "Algorithm 1", "rays", "times faster"]
    table = format_aligned_table(columns, rows)

    gpu = read_result("ldm_h200")
    ratios = [row["ratio"] for row in gpu["comparison"]]
    rays = "rays" if has_subspaces(gpu) else "isotropic rays, the earlier default,"
    sentence = (
        f"On {describe_machine(gpu)}, {rays} were {min(ratios):.0f} to {max(ratios):.0f} times "
        f"faster on {len(ratios)} pools."
    )
    return "\n".join([*table, sentence])


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


def fill_rays_page(text: str) -> str:
    """Return the page on the LDM with up-to-date measurements of rays."""
    return fill_blocks(text, {"rays and Algorithm 1": build_rays_table()})


# Sections of the page


def build_side_by_side() -> list[str]:
    columns = [
        "",
        "N × D, C",
        "n",
        "teeter",
        "memory",
        "the paper's",
        "its memory",
        "times faster",
        "times the lower bound",
    ]

    lines = ["## LDM-S beside the paper's, and next to a lower bound\n", LOWER_BOUND_PARAGRAPH]
    for name, machine, options in (
        ("all_cpu", "one CPU thread", ""),
        ("all_h200", "one H200", " --device cuda"),
    ):
        result = read_result(name)
        rows = [
            build_side_by_side_row(row)
            for row in result["table"]
            if row["strategy"] in ("ldm", "ldm-s", "seeding")
        ]
        command = "python research/speed/bench_all.py" + options
        lines += [
            f"On {machine}:\n",
            *format_aligned_table(columns, rows),
            describe_measurement(result, command) + "\n",
        ]
    lines.append(
        "![Time of LDM-S against N, C, D and n: teeter and the paper's implementation.](speed_growth.svg)\n"
    )
    return lines


def build_side_by_side_row(row: dict[str, Any]) -> list[str]:
    """Return the cells of a measurement, empty where the paper's implementation was not run."""
    strategy = f"`{row['strategy']}`"
    if row["strategy"] == "seeding":
        strategy = "seeding alone"

    other_cells = ["", "", ""]
    if row["the paper's (s)"]:
        other_memory = row["the paper's (MB)"]
        speedup = row["times faster than the paper's"]
        other_cells = [
            format_short_time(row["the paper's (s)"]),
            f"{other_memory:,.0f} MB",
            f"**{format_ratio(speedup)}**",
        ]

    return [
        strategy,
        f"{row['N']:,} × {row['D']}, {row['C']:,}",
        f"{row['n']:,}",
        format_short_time(row["teeter (s)"]),
        f"{row['teeter (MB)']:,.0f} MB",
        *other_cells,
        f"{row['times the floor']:,.1f}" if row["times the floor"] else "",
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
        "teeter",
        "scikit-activeml",
        "times faster",
        "teeter memory",
        "scikit-activeml memory",
    ]

    return [
        "## Compared with scikit-activeml\n",
        "Each library picks 100 of N rows (`batchbald`: 10) on one thread, in its own process, with 128 features, 10 classes "
        "and 100 labelled rows, from computed model outputs. Memory is the increase during a selection. A "
        f"dash means that the selection took longer than {result['patience']:.0f} s ({large_result['patience']:.0f} s at 1,000,000 rows) "
        "or needed more memory than was available. While 1,000,000 rows were measured, the other core was busy.\n",
        *format_aligned_table(columns, rows),
        "Both libraries use a radius of 0.9 for ProbCover and 1,000 label configurations for BatchBALD. "
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


def build_strategies() -> list[str]:
    """Return the section on every strategy: growth on a CPU, and the time of one size on a GPU."""
    growth = read_result("growth_cpu")
    growth_by_strategy: dict[str, dict[str, dict[str, Any]]] = {}
    for row in growth["growth"]:
        growth_by_strategy.setdefault(row["strategy"], {})[row["grows"]] = row

    gpu = read_result("strategies_h200")
    # The largest pool of each strategy comes last.
    gpu_by_strategy = {row["strategy"]: row for row in gpu["gpu"]}

    rows = []
    for strategy, growth_by_size in growth_by_strategy.items():
        on_gpu = gpu_by_strategy.get(strategy)
        rows.append(
            [
                f"`{strategy}`",
                format_short_time(growth_by_size["N"]["last (s)"]),
                f"{growth_by_size['N']['exponent']:.2f}",
                "–" if on_gpu is None else format_short_time(on_gpu["s"]),
            ]
        )

    usual_sizes = describe_sizes(growth_by_strategy["ldm-s"])
    small_sizes = describe_sizes(growth_by_strategy["bait"])
    bait, batchbald = (gpu_by_strategy[name] for name in ("bait", "batchbald"))
    rays = ""
    if not has_subspaces(gpu):
        rays = (
            " On the GPU, strategies that use the LDM were measured with isotropic rays, "
            "which [are slower](ldm.md#rays-in-subspaces)."
        )

    columns = ["strategy", "CPU", "k", "H200"]
    return [
        "## Every strategy, and how its time grows\n",
        f"On one CPU thread, N is doubled three times ({usual_sizes}; for `bait` and `batchbald` {small_sizes}). The "
        "table shows the time at the largest N, and the exponent k of the fit time = a · N^k; [The strategies](strategies.md) "
        "has the other costs. On the H200, strategies picked 100 of 100,000 rows with 128 features and 10 classes "
        f"(`bait`: {bait['n']} of {bait['N']:,}, `batchbald`: {batchbald['n']} of {batchbald['N']:,}).{rays}\n",
        *format_aligned_table(columns, rows),
        describe_measurement(growth, "python research/speed/bench_strategies.py --part growth"),
        describe_measurement(gpu, "python research/speed/bench_strategies.py --part gpu") + "\n",
    ]


def describe_sizes(growth_by_size: dict[str, dict[str, Any]]) -> str:
    """Return from where to where N grows, and the sizes that stay fixed."""
    rows = growth_by_size["N"]
    fixed = ", ".join(f"{size} = {growth_by_size[size]['from']:,}" for size in ("C", "D", "n"))
    return f"from {rows['from']:,} to {rows['to']:,}, {fixed}"


def main() -> None:
    draw_figure(FIGURE)
    RAYS_PAGE.write_text(fill_rays_page(RAYS_PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    PAGE.write_text(build_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
