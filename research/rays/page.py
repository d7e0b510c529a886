"""Write the tables and the picture of subspace rays in docs/explanation/ldm.md from the results.

python research/rays/page.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.append(str(Path(__file__).parents[2]))

from research.page_blocks import fill_blocks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results"
PAGE = ROOT / "docs" / "explanation" / "ldm.md"
PICTURE = ROOT / "docs" / "explanation" / "subspace_rays.svg"

ISOTROPIC = "isotropic"
DEFAULT = "random 16"
SHOWN = {
    "random 8": "random, r = 8",
    DEFAULT: "random, r = 16",
    "random 32": "random, r = 32",
    "random 16, one for all": "one random for all, r = 16",
    "principal 16": "principal, r = 16",
}
SETTINGS = {
    "openml-6": "letter",
    "openml-44135": "ISOLET",
    "openml-156": "RandomRBF",
    "mnist": "MNIST",
}
KINDS = {"network": ("#0072b2", "o"), "features": ("#d55e00", "s"), "shape": ("#999999", "^")}


def read(name: str) -> dict[str, Any]:
    """Return a committed result."""
    result: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return result


def quality_table() -> str:
    """Return the table of quality against the kind and the size of the subspaces."""
    lines = [
        "| subspaces | pools | mean LDM, relative | rank correlation, difference |",
        "| --- | ---: | ---: | ---: |",
    ]

    for name, title in SHOWN.items():
        ratios = []
        differences = []
        for case in quality_cases():
            values = case["variants"].get(name)
            isotropic = case["variants"][ISOTROPIC]
            if values is None:
                continue
            ratios.append(values["mean LDM"] / isotropic["mean LDM"])
            if values["Spearman"] is not None:
                differences.append(values["Spearman"] - isotropic["Spearman"])

        lines.append(
            f"| {title} | {len(ratios)} | {min(ratios):.2f} to {max(ratios):.2f} | "
            f"{min(differences):+.3f} to {max(differences):+.3f} |"
        )

    return "\n".join(lines)


def quality_cases() -> list[dict[str, Any]]:
    """Return the pools with the quality of every kind of rays."""
    # Subspaces of more dimensions than a pool has rows were measured later.
    later = {case["case"]: case for case in read("quality_few_rows_epyc")["cases"]}
    return [later.get(case["case"], case) for case in read("quality_h200")["cases"]]


def gains_table() -> str:
    """Return the table of gains of LDM-S over Random with both kinds of rays."""
    lines = [
        "| setting | labels | isotropic | r = 16 | difference | p |",
        "| --- | --- |" + " ---: |" * 4,
    ]

    for name in ("gains_h200", "gains_mnist_seed_1_h200"):
        result = read(name)
        for row in result["settings"]:
            variants = row["variants"]
            title = SETTINGS[row["setting"]]
            if result["seed"]:
                title += f", seed {result['seed']}"

            first, last = row["labels"]
            cells = [title, f"{first} to {last:,}"]
            cells.append(f"{variants[ISOTROPIC]['gain over random']:+.2f}")
            values = variants["subspace-16"]
            cells += [
                f"{values['gain over random']:+.2f}",
                f"{values['difference']:+.2f}",
                f"{values['p']:.2f}",
            ]
            lines.append("| " + " | ".join(cells) + " |")

    return "\n".join(lines)


def speed_sentences() -> str:
    """Return how much faster rays in subspaces are, at least and at most, in memory and on disk."""
    speedups = []
    for path in sorted(RESULTS.glob("speed_*.json")):
        result = read(path.stem)
        for row in result["cases"]:
            speedup = row["isotropic rays, earlier version (s)"] / row["subspace rays (s)"]
            size = f"{row['N']:,} × {row['D']:,}, {row['C']:,} classes"
            speedups.append((speedup, f"{size}, {_hardware(result['hardware'], row['threads'])}"))
    (least, smallest), (most, largest) = min(speedups), max(speedups)

    on_disk = []
    for path in sorted(RESULTS.glob("shards_*.json")):
        result = read(path.stem)
        before, now = (result[version]["engines"][0]["seconds"] for version in ("old", "new"))
        on_disk.append(before / now)

    return (
        f"On {len(speedups)} pools, LDM was {least:.1f} ({smallest}) to {most:.1f} ({largest}) "
        "times faster than by the isotropic rays of an earlier version, which also computed ranks "
        "more slowly. Whole selections of 1,000 rows by LDM-S from pools on disk were "
        f"{min(on_disk):.1f} to {max(on_disk):.1f} times faster."
    )


def _hardware(description: str, threads: int) -> str:
    """Return a short name of the hardware, with the threads of a CPU."""
    if "H200" in description:
        return "H200"

    name = "CPU"
    for maker in ("EPYC", "Xeon"):
        if maker in description:
            name = maker
    if threads == 1:
        return f"{name}, 1 thread"
    return f"{name}, {threads} threads"


def fill_page(text: str) -> str:
    """Return the page with the committed results."""
    blocks = {
        "quality of rays": quality_table(),
        "gains of rays": gains_table(),
        "speed of rays": speed_sentences(),
    }
    return fill_blocks(text, blocks)


def draw(path: Path) -> None:
    """Draw mean LDM and rank correlation of all pools beside isotropic rays."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    mpl.rcParams["svg.hashsalt"] = "teeter"
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    cases = quality_cases()
    for place, name in enumerate(SHOWN):
        for number, case in enumerate(cases):
            values = case["variants"].get(name)
            isotropic = case["variants"][ISOTROPIC]
            if values is None:
                continue
            colour, marker = KINDS[case["kind"]]
            x = place + 0.5 * (number / len(cases) - 0.5)
            style = {"color": colour, "marker": marker, "s": 22, "alpha": 0.8, "linewidths": 0}
            left.scatter(x, values["mean LDM"] / isotropic["mean LDM"], **style)
            if values["Spearman"] is not None:
                right.scatter(x, values["Spearman"] - isotropic["Spearman"], **style)

    left.axhline(1, color="#333333", linewidth=0.8)
    right.axhline(0, color="#333333", linewidth=0.8)
    right.axhline(-0.02, color="#333333", linewidth=0.8, linestyle="dotted")
    _label(left, "Mean LDM, relative to isotropic rays", "lower is tighter")
    _label(right, "Rank correlation, minus that of isotropic rays", "with 8,192 isotropic rays")
    for kind, (colour, marker) in KINDS.items():
        label = {"network": "trained networks", "features": "other features", "shape": "shapes"}
        left.scatter([], [], color=colour, marker=marker, s=22, label=label[kind])
    left.legend(frameon=False, fontsize=8, loc="upper left")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _label(axes: Axes, title: str, label: str) -> None:
    short = [
        text.replace(", ", ",\n").replace("random for", "random\nfor") for text in SHOWN.values()
    ]
    axes.set_xticks(range(len(SHOWN)), short, fontsize=8)
    axes.set_title(title, fontsize=10)
    axes.set_ylabel(label, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)


def main() -> None:
    """Write the picture and the tables."""
    draw(PICTURE)
    PAGE.write_text(fill_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
