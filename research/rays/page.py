"""Write the tables and the picture of subspace rays in docs/explanation/ldm.md from the results.

python research/rays/page.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
RAYS_OF_SHARDS = 512
"""The default of a selection, with which the shards were scored."""
KINDS = {"network": ("#0072b2", "o"), "features": ("#d55e00", "s"), "shape": ("#999999", "^")}


def read(name: str) -> dict[str, Any]:
    """Return a committed result."""
    result: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return result


def quality_table() -> str:
    """Return the table of quality against the kind and the size of the subspaces."""
    lines = [
        "| features | D, C | isotropic | " + " | ".join(SHOWN.values()) + " |",
        "| --- | ---: |" + " ---: |" * (len(SHOWN) + 1),
    ]

    dimensions = {
        name: options.get("subspace", 0)
        for name, options in read("quality_h200")["variants"].items()
    }

    for case in quality_cases():
        cells = []
        for name in (ISOTROPIC, *SHOWN):
            # A subspace as wide as the features, with the bias as one more, is left out.
            is_isotropic = dimensions[name] > case["D"]
            cells.append(_cell(case["variants"].get(name), is_isotropic=is_isotropic))

        sizes = f"{case['D']:,}, {case['C']:,}"
        lines.append(f"| {case['case']} | {sizes} | " + " | ".join(cells) + " |")

    return "\n".join(lines)


def quality_cases() -> list[dict[str, Any]]:
    """Return the pools with the quality of every kind of rays."""
    # Subspaces of more dimensions than a pool has rows were measured later.
    later = {case["case"]: case for case in read("quality_few_rows_epyc")["cases"]}
    return [later.get(case["case"], case) for case in read("quality_h200")["cases"]]


def _cell(values: dict[str, Any] | None, *, is_isotropic: bool) -> str:
    if is_isotropic:
        return "isotropic"
    if values is None:
        return "–"
    correlation = "–" if values["Spearman"] is None else f"{values['Spearman']:.3f}"
    return f"{values['mean LDM']:.4f}, {correlation}"


def gains_table() -> str:
    """Return the table of gains of LDM-S over Random with both kinds of rays."""
    lines = [
        "| setting | labels | isotropic | r = 16 | difference | p | r = 32 | difference | p |",
        "| --- | --- |" + " ---: |" * 7,
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
            for variant in ("subspace-16", "subspace-32"):
                values = variants[variant]
                cells += [
                    f"{values['gain over random']:+.2f}",
                    f"{values['difference']:+.2f}",
                    f"{values['p']:.2f}",
                ]
            lines.append("| " + " | ".join(cells) + " |")

    return "\n".join(lines)


def speed_table() -> str:
    """Return the table of times beside isotropic rays of an earlier version and Algorithm 1."""
    lines = [
        "| hardware | pool | classes | rays | isotropic, before | subspace | times faster |",
        "| --- |" + " ---: |" * 6,
    ]

    for path in sorted(RESULTS.glob("speed_*.json")):
        result = read(path.stem)
        for row in result["cases"]:
            hardware = _hardware(result["hardware"], row["threads"])
            before = row["isotropic rays, earlier version (s)"]
            now = row["subspace rays (s)"]

            cells = [
                hardware,
                f"{row['N']:,} × {row['D']:,}",
                f"{row['C']:,}",
                f"{row['rays']:,}",
                _seconds(before),
                _seconds(now),
                f"**{before / now:.1f}**",
            ]
            lines.append("| " + " | ".join(cells) + " |")

    return "\n".join([*lines, *_shard_rows()])


def _shard_rows() -> list[str]:
    """Return rows with the times of selections by LDM-S from pools on disk."""
    lines = []
    for path in sorted(RESULTS.glob("shards_*.json")):
        result = read(path.stem)
        now = result["new"]
        before_seconds, now_seconds = (
            result[version]["engines"][0]["seconds"] for version in ("old", "new")
        )

        cells = [
            _hardware(now["facts"]["hardware"], now["workers"]),
            f"{now['rows']:,} × {now['width']} on disk",
            str(now["classes"]),
            str(RAYS_OF_SHARDS),
            _seconds(before_seconds),
            _seconds(now_seconds),
            f"**{before_seconds / now_seconds:.1f}**",
        ]
        lines.append("| " + " | ".join(cells) + " |")

    return lines


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


def _seconds(value: float) -> str:
    if value < 0.1:
        return f"{1000 * value:.3g} ms"
    return f"{value:.3g} s"


TABLES = {
    "| features | D, C |": quality_table,
    "| setting | labels | isotropic |": gains_table,
    "| hardware | pool | classes | rays |": speed_table,
}


def filled(text: str) -> str:
    """Return a page with up-to-date tables."""
    for head, make_table in TABLES.items():
        pattern = rf"^{re.escape(head)}.*\n(?:\|.*\n)+"
        # Backslashes in a replacement would be escapes.
        table = make_table().replace("\\", "\\\\")
        text = re.sub(pattern, table + "\n", text, flags=re.MULTILINE)
    return text


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
    PAGE.write_text(filled(PAGE.read_text()))


if __name__ == "__main__":
    main()
