"""Fill the tables of the page on reproducing the paper, and draw its figures, from the committed runs.

python research/paper/pages.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from teeter.bench.analysis import paper_results
from teeter.bench.analysis.plots import plot_gains
from teeter.bench.analysis.run_comparison import RunComparison, compare_strategies
from teeter.bench.analysis.statistics import gain_over
from teeter.bench.experiments import read_run
from teeter.bench.experiments.run_folder import Curves

sys.path.append(str(Path(__file__).parents[2]))

from research.page_blocks import fill_blocks

ROOT = Path(__file__).parents[2]
RUNS = Path(__file__).parent / "runs"
ISOLET = Path(__file__).parent / "isolet"
OPTIONS = Path(__file__).parent / "options"
TORCH_CONSTANTS = Path(__file__).parent / "cifar10" / "torch-constants"
FRAMEWORK = Path(__file__).parent / "framework.json"
PAGE = ROOT / "docs" / "how_to" / "reproduce_the_paper.md"

FIGURES = ("openml-6",)

TRIES = {
    "seed-1": "other repetitions (seed 1)",
    "pool-all": "all rows as candidates instead of 2,000",
    "speakers": "UCI's fifth group of speakers as test rows",
    "balanced": "the same number of initial labels in every class",
    "standardised": "columns scaled to mean 0 and deviation 1",
    "lr-3e-3": "learning rate 0.003 instead of 0.001",
    "epochs-300": "300 epochs instead of 100",
    "ref-200": "flips for the LDM counted on 200 rows instead of 2,000",
}
"""What was changed in the experiments on ISOLET, one thing at a time."""


FRAMEWORKS = (
    (
        "RMSprop: decay of the mean square, epsilon",
        "0.9, 1e-7",
        "0.9, 1e-7 for CIFAR-10 and SVHN; torch's defaults 0.99, 1e-8 otherwise",
        "torch-constants",
        "torch's defaults",
    ),
    (
        "RMSprop: where epsilon is added",
        "to the root; under the root since Keras 2.11",
        "to the root",
        "epsilon-inside",
        "epsilon 3.2e-4, the root of 1e-7, which bounds the newer Keras",
    ),
    ("Adam: epsilon", "1e-7", "1e-8", "epsilon", "epsilon 1e-7"),
    (
        "He's normal initialisation",
        "cut at two deviations, then widened to the same variance",
        "not cut",
        "truncated",
        "cut",
    ),
    ("precision of convolutions", "float32", "bfloat16 on a GPU", "float32", "float32"),
)
"""What Keras does, what teeter does, and the variant of ``framework.py`` that measures it."""


def finished() -> list[RunComparison]:
    """Return the comparisons of the finished runs of the paper's settings."""
    names = [name for name in paper_results.datasets() if (RUNS / name / "run.json").exists()]
    return [
        compare_strategies(run) for run in (read_run(RUNS / name) for name in names) if run.finished
    ]


def table_of_runs() -> str:
    """Return a row per dataset: LDM-S, the paper's, the best, and how similar the order of strategies is."""
    rows = []
    for summary in finished():
        gain = summary.gains["ldm-s"]
        best = max(summary.gains, key=lambda name: summary.gains[name].mean)
        theirs = paper_results.deltas(summary.name)["ldm-s"]
        saving = summary.savings["ldm-s"]
        agreement = summary.paper_rank_correlation

        assert saving.saved is not None
        assert agreement is not None
        minutes = sum(sum(round_.seconds.values()) for round_ in summary.run.rounds) / 60

        rows.append(
            [
                summary.name,
                f"{gain.mean:+.2f} ± {gain.deviation:.2f}",
                f"{theirs.mean:+.2f} ± {theirs.deviation:.2f}",
                f"{best} {summary.gains[best].mean:+.2f}",
                f"{saving.saved / saving.baseline:.0%}",
                f"{agreement:.2f}",
                f"{minutes:.1f}",
            ]
        )

    heads = [
        "dataset",
        "LDM-S",
        "LDM-S in the paper",
        "best strategy",
        "labels saved",
        "rank correlation",
        "minutes",
    ]
    return _table(heads, rows)


def fill_page(text: str) -> str:
    """Return the page with the committed results."""
    blocks = {
        "paper runs": table_of_runs(),
        "best strategies": _best(),
        "paper gains": _gains(),
        "paper times": _times(),
        "frameworks": _framework(),
        "ISOLET changes": _isolet(),
        "ISOLET queries": _twice_as_many(),
        "CIFAR-10": _cifar(),
        "ProbCover": _probcover(),
        "BAIT": _bait(),
    }
    return fill_blocks(text, blocks)


def draw(folder: Path) -> list[Path]:
    """Write the figures of the page: gains over Random against labels."""
    paths = []
    for name in FIGURES:
        curves = read_run(RUNS / name).curves()
        accuracy = {key: runs for key, runs in curves.accuracy.items() if key != "random"}
        figure = plot_gains(curves.labelled, accuracy, curves.accuracy["random"])
        paths.append(folder / f"gains_{name}.png")
        figure.savefig(paths[-1], dpi=110)
    return paths


def _table(heads: list[str], rows: list[list[str]]) -> str:
    rule = "| --- |" + " ---: |" * (len(heads) - 1)
    return "\n".join(
        ["| " + " | ".join(heads) + " |", rule, *("| " + " | ".join(row) + " |" for row in rows)]
    )


def _best() -> str:
    """Return a sentence on LDM-S beside the best other strategy of each dataset."""
    parts = []
    for summary in finished():
        accuracy = summary.run.curves().accuracy
        best = max(
            (name for name in summary.gains if name != "ldm-s"),
            key=lambda name: summary.gains[name].mean,
        )
        lead = gain_over(accuracy["ldm-s"], accuracy[best])
        significant = ", **significant**" if lead.significant else ""
        parts.append(f"{lead.mean:+.2f} on {summary.name} ({best}, p = {lead.p:.2f}{significant})")

    return (
        "LDM-S minus the best other strategy, in points and paired by repetition: "
        f"{'; '.join(parts)}."
    )


def _gains() -> str:
    runs = finished()
    names = [name for name in paper_results.NAMES.values() if name != "random"]
    rows = []
    for name in names:
        row = [name]
        for summary in runs:
            theirs = paper_results.deltas(summary.name).get(name)
            ours = summary.gains.get(name)
            row.append(f"{ours.mean:+.2f} / {theirs.mean:+.2f}" if ours and theirs else "–")
        rows.append(row)
    return _table(["ours / the paper's", *(summary.name for summary in runs)], rows)


def _isolet() -> str:
    """Return a sentence on the gains after each change, as far apart as they are."""
    theirs = paper_results.deltas("openml-44135")
    parts = []
    for name in ("ldm-s", "margin"):
        default = gain_of(RUNS / "openml-44135", name)
        gains = [gain_of(ISOLET / folder, name) for folder in TRIES]
        parts.append(
            f"`{name}` gains {default:+.2f} as the paper says, {min(gains):+.2f} to {max(gains):+.2f} after a change, "
            f"and {theirs[name].mean:+.2f} in the paper"
        )
    changes = "; ".join(TRIES.values())
    return f"We tried: {changes}. {'; '.join(parts)}."


def gain_of(folder: Path, name: str) -> float:
    """Return the mean gain of a strategy over Random in a run."""
    accuracy = read_run(folder).curves().accuracy
    return gain_over(accuracy[name], accuracy["random"]).mean


def _cifar() -> str:
    """Return sentences on gains and accuracies at the label counts that the paper prints."""
    curves = read_run(RUNS / "cifar10").curves()
    theirs = paper_results.accuracy("cifar10")
    counts = [count for count in theirs["random"] if count in curves.labelled]

    gaps: dict[str, float] = {}
    for name in curves.accuracy:
        paper = np.array([theirs[name][count] for count in counts])
        gaps[name] = float((paper - _percent_at(curves, name, counts).mean(axis=0)).mean())

    theirs_gain = np.mean([theirs["ldm-s"][count] - theirs["random"][count] for count in counts])
    ours = _percent_at(curves, "ldm-s", counts) - _percent_at(curves, "random", counts)
    gain = ours.mean(axis=1)  # by repetition
    earlier = _gaps_before(theirs)
    return (
        f"At the label counts of the paper's table, LDM-S gains {gain.mean():+.2f} ± {gain.std(ddof=1):.2f} over "
        f"Random, and {theirs_gain:+.2f} in the paper. Our accuracies are {np.mean(list(gaps.values())):.1f} points "
        f"below the paper's on average, for Random by {gaps['random']:.1f} points. An earlier run with torch's "
        f"constants of RMSprop was {earlier['before']:.1f} points below on average, up to {earlier['worst']:.1f} points."
    )


def _gaps_before(theirs: dict[str, dict[int, float]]) -> dict[str, float]:
    """Return how far the run with torch's constants was below the paper, on average and at most."""
    curves = read_run(TORCH_CONSTANTS).curves()
    counts = [count for count in theirs["random"] if count in curves.labelled]
    gaps = []
    for name in curves.accuracy:
        ours = _percent_at(curves, name, counts).mean(axis=0)
        gaps += [theirs[name][count] - value for count, value in zip(counts, ours, strict=True)]
    return {"before": float(np.mean(gaps)), "worst": max(gaps)}


def _percent_at(curves: Curves, name: str, counts: list[int]) -> np.ndarray:
    """Return a strategy's accuracies in percent: (repetitions, label counts)."""
    labelled = list(curves.labelled)
    places = [labelled.index(count) for count in counts]
    return 100 * np.asarray(curves.accuracy[name])[:, places]


def _probcover() -> str:
    """Return ProbCover's accuracy as it is, at best after a change, and in the paper."""
    curves = read_run(OPTIONS / "mnist-probcover").curves()
    theirs = paper_results.accuracy("mnist")
    counts = [120, 220]
    ours = {name: _percent_at(curves, name, counts).mean(axis=0) for name in curves.accuracy}
    changed = [value for name, value in ours.items() if name.startswith("probcover-")]

    rows = [
        ["`random`", *(f"{value:.1f}" for value in ours["random"])],
        ["`probcover`", *(f"{value:.1f}" for value in ours["probcover"])],
        ["best of the changes", *(f"{value:.1f}" for value in np.max(changed, axis=0))],
    ]
    for name in ("random", "probcover"):
        values = [f"**{theirs[name][count]:.1f}**" for count in counts]
        rows.append([f"**{name} in the paper**", *values])
    return _table(["accuracy in percent", "120 labels", "220 labels"], rows)


def _bait() -> str:
    """Return how BAIT's regulariser changes its gain."""
    bait = read_run(OPTIONS / "openml-6-bait").curves()
    default = read_run(RUNS / "openml-6").curves()
    theirs = paper_results.accuracy("openml-6")
    counts = [400, 800, 1200, 1600]
    repetitions = len(bait.accuracy["random"])
    small = _percent_at(bait, "bait-lambda=0.01", counts) - _percent_at(bait, "random", counts)
    usual = _percent_at(default, "bait", counts) - _percent_at(default, "random", counts)
    paper = [theirs["bait"][count] - theirs["random"][count] for count in counts]
    rows = [
        ["regulariser 1 (the default)", *_signed(usual[:repetitions].mean(axis=0))],
        ["regulariser 0.01", *_signed(small.mean(axis=0))],
        ["**the paper**", *(f"**{gain:+.1f}**" for gain in paper)],
    ]
    heads = ["gain over Random in points", *(f"{count:,} labels" for count in counts)]
    return _table(heads, rows)


def _signed(values: np.ndarray) -> list[str]:
    return [f"{value:+.1f}" for value in values]


def _framework() -> str:
    """Return the table of differences between Keras and torch, with their measured effects."""
    results = json.loads(FRAMEWORK.read_text())
    rows = []
    for difference, keras, ours, variant, tried in FRAMEWORKS:
        cells = [_effects(results[dataset], variant) for dataset in ("mnist", "cifar10")]
        rows.append([difference, keras, ours, tried, *cells])
    heads = ["", "Keras", "teeter", "tried", "effect on MNIST", "effect on CIFAR-10"]
    return _table(heads, rows).replace(" ---: |", " --- |")


def _effects(by_case: dict[str, Any], variant: str) -> str:
    """Return the mean change of accuracy in points with its standard error, by label count."""
    parts = []
    for case, measured in by_case.items():
        name, labels = case.rsplit(" ", 1)
        if name != variant:
            continue

        accuracy = np.array(measured["accuracy"])
        baseline = np.array(by_case[f"baseline {labels}"]["accuracy"])[: len(accuracy)]
        changes = 100 * (accuracy - baseline)
        error = changes.std(ddof=1) / np.sqrt(len(changes))

        mean = round(float(changes.mean()), 2) + 0.0  # no -0.00
        parts.append(f"{int(labels):,}: {mean:+.2f} ± {error:.2f}")

    return "; ".join(parts) or "–"


def _twice_as_many() -> str:
    """Return how far the paper is above us, at L labels, and at 2L - 100 with 200 labels per round."""
    once = read_run(RUNS / "openml-44135").curves()
    twice = read_run(ISOLET / "query-200").curves()

    rows = []
    for name in ("ldm-s", "margin", "probcover", "badge", "random"):
        theirs = {
            labels: value
            for labels, value in paper_results.accuracy("openml-44135")[name].items()
            if labels >= 200
        }
        ours = [_at(once.labelled, once.accuracy[name], labels) for labels in theirs]
        more = [_at(twice.labelled, twice.accuracy[name], 2 * labels - 100) for labels in theirs]
        gap_once, gap_twice = (
            float(np.mean(np.array(list(theirs.values())) - accuracies))
            for accuracies in (ours, more)
        )

        rows.append([name, f"{gap_once:+.1f}", f"{gap_twice:+.1f}"])

    return _table(["strategy", "paper - ours", "paper - ours with 200 per round"], rows)


def _at(labelled: np.ndarray, accuracy: np.ndarray, labels: int) -> float:
    (column,) = np.flatnonzero(labelled == labels)
    return float(100 * accuracy[:, column].mean())


def _times() -> str:
    times = [json.loads(line) for line in (RUNS / "times.jsonl").read_text().splitlines()]
    spent = {record["folder"]: record["seconds"] for record in times}

    rows = []
    for name in ("openml-6", "mnist"):
        alone, entropy = spent[f"{name}-ldm-s-alone"], spent[f"{name}-entropy-alone"]
        minutes = paper_results.minutes(name)
        rows.append(
            [
                name,
                f"{alone:.0f} s",
                f"{entropy:.0f} s",
                f"**{alone / entropy:.2f}**",
                f"{minutes['ldm-s'] / minutes['entropy']:.2f}",
            ]
        )

    mnist = next(summary.run for summary in finished() if summary.name == "mnist")
    by_kind: dict[str, float] = {}
    for round_ in mnist.rounds:
        for kind, seconds in round_.seconds.items():
            by_kind[kind] = by_kind.get(kind, 0.0) + seconds
    learning = by_kind["training"] + by_kind["outputs"] + by_kind["selection"]
    evaluation = by_kind["validation"] + by_kind["evaluation"]

    heads = ["dataset", "LDM-S", "Entropy", "ratio", "in the paper"]
    return "\n".join(
        [
            _table(heads, rows),
            "",
            f"On MNIST, all ten strategies with 5 repetitions took {learning / 60:.1f} minutes for training, outputs and "
            f"selection, and {evaluation / 60:.1f} minutes for evaluation. According to the paper's table of runtimes, the "
            f"same runs took its authors {5 * sum(paper_results.minutes('mnist').values()) / 60:.0f} hours, not counting Random.",
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(fill_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    for path in [PAGE, *draw(PAGE.parent)]:
        print(f"wrote {path.relative_to(ROOT)}")
