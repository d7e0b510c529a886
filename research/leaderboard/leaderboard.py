"""The leaderboard: a page made from committed run folders, and a check that runs cells again.

python research/leaderboard/leaderboard.py page         # fill docs/explanation/leaderboard.md
python research/leaderboard/leaderboard.py check RUN    # run three cells again
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from teeter.bench.analysis import RunComparison, compare_strategies, paper_results
from teeter.bench.analysis.table_formats import (
    format_mean_and_std,
    format_number,
    format_p_value,
    to_markdown,
)
from teeter.bench.experiments import Cell, Experiment, Round, Run, by_cells, read_run
from teeter.errors import InputError

sys.path.append(str(Path(__file__).parents[2]))

from research.page_blocks import fill_blocks

ROOT = Path(__file__).parents[2]
RUNS = Path(__file__).parent / "runs"
PAPER_RUNS = ROOT / "research" / "paper" / "runs"
PAGE = ROOT / "docs" / "explanation" / "leaderboard.md"

BASELINE = "random"
LEAST_REPETITIONS = 3

CELLS_TO_CHECK = 3
TOLERANCE = 1.0
"""How many points the mean accuracy of a cell may differ when it is run again: other hardware adds
in another order, and a single different pick changes what follows."""


def find_runs() -> list[Run]:
    """Return the runs of the paper's settings, then those that were contributed."""
    folders = [PAPER_RUNS / name for name in paper_results.datasets()]
    folders += sorted(path.parent for path in RUNS.glob("*/run.json"))
    return [read_run(folder) for folder in folders if (folder / "run.json").exists()]


def require_comparable(run: Run) -> None:
    """Refuse a run that cannot stand beside others.

    Raises:
        InputError: if it is not finished, quick, too small, or has no baseline.
    """
    problem = None
    if not run.finished or run.is_shortened:
        problem = "it is not finished"
    elif run.setting.quick:
        problem = "its setting is a quick one"
    elif BASELINE not in run.strategies:
        problem = f"it has no {BASELINE}, which gains are measured against"
    elif run.repetitions < LEAST_REPETITIONS:
        problem = f"it has {run.repetitions} repetitions, and {LEAST_REPETITIONS} are needed"
    if problem is not None:
        raise InputError(f"{run.folder} cannot be on the leaderboard: {problem}.")


def render_table(comparisons: list[RunComparison]) -> str:
    """Return a row for each strategy of each run of one setting, the largest gain first."""
    entries = []
    for comparison in comparisons:
        for name, gain in comparison.gains.items():
            saving = comparison.savings[name]
            saved = None if saving.saved is None else 100 * saving.saved / saving.baseline
            row = {
                "strategy": name,
                "accuracy": format_number(comparison.mean_accuracy(name), ".1f"),
                "gain over Random": format_mean_and_std(
                    gain.mean, gain.deviation, comparison.repetitions, "+.2f"
                ),
                "p": format_p_value(gain.p),
                "labels saved, %": format_number(saved, ".0f"),
                "run": str(comparison.run.folder.resolve().relative_to(ROOT)),
            }
            entries.append((gain.mean, row))
    entries.sort(key=lambda entry: -entry[0])
    return to_markdown([row for _, row in entries])


def render_board() -> str:
    """Return a table for each setting."""
    by_setting: dict[str, list[RunComparison]] = {}
    for run in find_runs():
        require_comparable(run)
        by_setting.setdefault(run.setting.name, []).append(compare_strategies(run))

    sections = []
    for name, comparisons in by_setting.items():
        setting = comparisons[0].run.setting
        final = setting.initial + setting.rounds * setting.query
        sections.append(
            f"## {name}\n\n{setting.network}, {setting.initial:,} to {final:,} labels in steps of "
            f"{setting.query:,}.\n\n{render_table(comparisons)}"
        )
    return "\n".join(sections)


def fill_page(text: str) -> str:
    """Return the page with the tables up to date."""
    return fill_blocks(text, {"leaderboard": render_board()})


@dataclass(frozen=True)
class CellCheck:
    """A cell, and its mean accuracy in percent as committed and when it was run again."""

    cell: Cell
    committed: float
    again: float

    @property
    def agrees(self) -> bool:
        """Whether the two are close enough."""
        return abs(self.again - self.committed) <= TOLERANCE


def choose_cells(run: Run) -> list[Cell]:
    """Return the cells to run again, drawn by the name of the setting, of different strategies."""
    generator = np.random.default_rng(list(run.setting.name.encode()))
    strategies = generator.permutation(run.strategies).tolist()
    return [
        Cell(strategies[number % len(strategies)], int(generator.integers(run.repetitions)))
        for number in range(CELLS_TO_CHECK)
    ]


def run_cell(experiment: Experiment, cell: Cell) -> Iterator[Round]:
    """Run a cell from its initial labels to the end."""
    learner = experiment.make_learner(cell)
    for number in range(experiment.setting.rounds + 1):
        learner.fit()
        result = experiment.evaluate_and_ask(learner, cell, number)
        yield result
        experiment.tell_labels(learner, result)


def check_run(run: Run, device: torch.device) -> list[CellCheck]:
    """Run three cells again."""
    require_comparable(run)
    experiment = Experiment(run.setting, None, device)
    experiment.require_runnable(run.setting.rounds)
    committed_rounds = by_cells(run.rounds)
    checks = []
    for cell in choose_cells(run):
        committed = [result.accuracy for result in committed_rounds[cell]]
        again = [result.accuracy for result in run_cell(experiment, cell)]
        means = 100 * np.mean(committed), 100 * np.mean(again)
        checks.append(CellCheck(cell, float(means[0]), float(means[1])))
    return checks


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("page")
    check = commands.add_parser("check")
    check.add_argument("run", type=Path)
    check.add_argument("--device", default="cpu")
    arguments = parser.parse_args()

    if arguments.command == "page":
        PAGE.write_text(fill_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return

    checks = check_run(read_run(arguments.run), torch.device(arguments.device))
    for entry in checks:
        verdict = "agrees" if entry.agrees else "DIFFERS"
        print(
            f"{entry.cell.strategy}, repetition {entry.cell.repetition}: {entry.committed:.2f} % "
            f"committed, {entry.again:.2f} % now: {verdict}"
        )
    if not all(entry.agrees for entry in checks):
        sys.exit(1)


if __name__ == "__main__":
    main()
