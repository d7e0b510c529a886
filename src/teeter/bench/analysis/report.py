"""Write a report on one or more runs: an HTML page with figures and tables, and their files.

``render_block`` and ``render_page`` turn values into HTML by the templates beside this file, for
any page. ``write_report`` builds the page on runs.
"""

from __future__ import annotations

import base64
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from teeter.bench.analysis.plots import (
    plot_curves,
    plot_gains,
    plot_labels,
    plot_penalties,
    plot_profile,
    plot_runtime,
    save_figure,
)
from teeter.bench.analysis.report_tables import (
    accuracy_table,
    cross_dataset_table,
    deltas_table,
    gains_table,
    labels_table,
    paper_accuracy_table,
    penalties_table,
    runtime_table,
)
from teeter.bench.analysis.run_comparison import (
    BASELINE,
    RunComparison,
    compare_strategies,
    cross_run_findings,
    run_findings,
)
from teeter.bench.analysis.statistics import FloatArray, penalty_matrix, performance_profile
from teeter.bench.analysis.table_formats import ReportTable, write_rounds
from teeter.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup
    from matplotlib.figure import Figure

    from teeter.bench.experiments.run_folder import Run

__all__ = [
    "Report",
    "ReportWriter",
    "Section",
    "TableData",
    "picture",
    "render_block",
    "render_page",
    "write_report",
]


TableData = list[dict[str, Any]]
"""The rows of a table in full precision, each by column."""


@dataclass(frozen=True)
class Section:
    """A heading, a paragraph, and what is under it."""

    title: str
    text: str
    blocks: Sequence[Markup] = ()
    """HTML, as ``render_block`` and ``ReportWriter`` return it."""
    anchor: str | None = None
    """Name for links to the section, ``#anchor``."""


def render_block(kind: str, *values: object, **options: object) -> Markup:
    """Return a table, paragraph, picture, ... as HTML. Text is escaped; ``Markup`` is not.

    Args:
        kind: a macro of ``report_blocks.html.jinja``, which says what it takes.
        *values: what the macro takes.
        **options: what the macro takes by name.
    """
    macro = getattr(_load_template("report_blocks.html.jinja").module, kind)
    html: Markup = macro(*values, **options)
    return html


def picture(png: bytes, alt: str, inches: float | None = None) -> Markup:
    """Return a picture that is part of the page.

    Args:
        png: the file.
        alt: what it shows, for readers who cannot see it.
        inches: width of a chart, which the dark theme inverts; None for a picture of full width.
    """
    url = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    return render_block("picture", url, alt, inches)


def render_page(
    title: str,
    intro: str,
    sections: Sequence[Section],
    facts: Mapping[str, object],
    *,
    findings: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> str:
    """Render an HTML page that contains its images and style, and loads nothing.

    Args:
        title: heading of the page.
        intro: a sentence under the heading.
        sections: the content.
        facts: what the results depend on, by name, for the footer.
        findings: sentences on what was found, shown in a box before the sections.
        notes: sentences that readers must know, shown below the findings.

    Raises:
        MissingExtraError: if Jinja2 is not installed.
    """
    return _load_template("report.html.jinja").render(
        title=title,
        intro=intro,
        sections=sections,
        facts=facts,
        findings=findings,
        notes=notes,
    )


@cache
def _load_template(name: str) -> Template:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise MissingExtraError("Reports need Jinja2: pip install 'teeter[bench]'.") from None

    environment = Environment(
        loader=PackageLoader("teeter.bench.analysis", "."),
        # Names of strategies and runs come from users.
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # A name that is misspelt in the template fails instead of printing nothing.
        undefined=StrictUndefined,
    )
    return environment.get_template(name)


class ReportWriter:
    """Writes the figures and tables of a report, and returns them as HTML for its page."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: list[Path] = []
        """Everything written so far."""
        self.tables: dict[str, TableData] = {}
        """The data of the tables by the name of their files, with None for infinite and NaN."""

    def add_figure(self, figure: Figure, name: str, alt: str) -> Markup:
        """Write a figure to ``figures/`` as SVG and PNG."""
        stem = self._subfolder("figures") / name
        svg, png = save_figure(figure, stem)
        self.files += [svg, png]

        # The page holds the PNG. The SVG is for papers and slides.
        return picture(png.read_bytes(), alt, figure.get_figwidth())

    def add_table(self, table: ReportTable, prefix: str = "", style: str = "") -> Markup:
        """Write a table to ``tables/`` as CSV, Markdown and LaTeX; an empty one is not written.

        Args:
            table: the table.
            prefix: put before the table's name, to tell the files of several runs apart.
            style: CSS classes: "even" does not mark the first row.
        """
        if table.shown:
            name = prefix + table.name
            stem = self._subfolder("tables") / name
            self.files += table.write(stem)

            self.tables[name] = []
            for row in table.data:
                cells = dict(row)
                for column, value in row.items():
                    # JSON has no infinite numbers and no NaN.
                    if isinstance(value, float) and not math.isfinite(value):
                        cells[column] = None
                self.tables[name].append(cells)

        return render_block("table", table.shown, style)

    def add_rounds(self, run: Run, prefix: str) -> None:
        """Write every round of a run to ``tables/rounds.csv``."""
        path = self._subfolder("tables") / f"{prefix}rounds.csv"
        write_rounds(run, path)
        self.files.append(path)

    def _subfolder(self, name: str) -> Path:
        path = self.folder / name
        path.mkdir(parents=True, exist_ok=True)
        return path


@dataclass(frozen=True)
class Report:
    """What a report says, and where it was written."""

    page: Path
    files: tuple[Path, ...]
    """All files written, the page first."""
    findings: tuple[str, ...]
    notes: tuple[str, ...]
    """What readers must know: what is missing, unfinished or failed."""
    tables: dict[str, TableData]
    """The data of the tables, by the name of their files."""


def write_report(runs: Sequence[Run], out: Path) -> Report:
    """Compare the strategies of one or more runs and write a report.

    Args:
        runs: the runs, finished or not, as ``read_run`` returns them.
        out: folder of the report; it gets ``index.html``, ``figures/`` and ``tables/``.

    Returns:
        The findings, the notes, the tables and the paths of the files.

    Raises:
        InputError: if there is no run.
        MissingExtraError: if matplotlib or Jinja2 is not installed.
    """
    if not runs:
        raise InputError("There is nothing to report: give at least one run.")

    comparisons = []
    for run, name in zip(runs, _run_names(runs), strict=True):
        comparisons.append(compare_strategies(run, name))
    prefixes = _file_prefixes([comparison.name for comparison in comparisons])
    findings, notes = _findings_and_notes(comparisons)
    writer = ReportWriter(out)
    sections: list[Section] = []

    # Several runs are compared with each other first. A single run is described first.
    if len(comparisons) > 1:
        sections += _cross_run_sections(comparisons, writer)

    # Sections write their figures and tables as they are built.
    for comparison, prefix in zip(comparisons, prefixes, strict=True):
        sections += _run_sections(comparison, writer, prefix)
        if len(comparisons) == 1:
            sections += _cross_run_sections(comparisons, writer)
        writer.add_rounds(comparison.run, prefix)

    sections.append(_settings_section(comparisons))

    title = f"{comparisons[0].name}: strategies compared"
    if len(comparisons) > 1:
        title = f"Strategies compared in {len(comparisons)} runs"

    page = out / "index.html"
    html = render_page(
        title,
        _intro(comparisons),
        sections,
        _shared_facts(runs),
        findings=findings,
        notes=notes,
    )
    page.write_text(html, encoding="utf-8")

    return Report(
        page=page,
        files=(page, *writer.files),
        findings=findings,
        notes=notes,
        tables=writer.tables,
    )


def _findings_and_notes(
    comparisons: Sequence[RunComparison],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the sentences at the top of the page: what was found, and what readers must know."""
    if len(comparisons) == 1:
        return run_findings(comparisons[0]), comparisons[0].notes

    datasets, left_out = _common_strategies(comparisons)
    comparable = [comparison for comparison in comparisons if comparison.comparable]
    findings = list(cross_run_findings(comparable, datasets))
    notes = []

    for comparison in comparisons:
        # The first finding names the best strategy; the rest is in the sections of the run.
        findings += run_findings(comparison)[:1]
        notes += [f"{comparison.name}: {note}" for note in comparison.notes]

    if left_out:
        notes.append(
            f"Left out of the comparison across runs, because some runs lack them: "
            f"{', '.join(left_out)}."
        )

    return tuple(findings), tuple(notes)


def _common_strategies(
    comparisons: Sequence[RunComparison],
) -> tuple[list[dict[str, FloatArray]], list[str]]:
    """Find the strategies that all comparable runs have.

    Returns:
        Their accuracies in each run, and the names of the strategies that some run lacks. The
        accuracies are empty if the runs share no strategy.
    """
    comparable = [comparison for comparison in comparisons if comparison.comparable]

    # In the order in which they first appear, which a dict keeps and a set does not.
    runs_with: Counter[str] = Counter()
    for comparison in comparable:
        runs_with.update(comparison.accuracy.keys())

    shared = [name for name in runs_with if runs_with[name] == len(comparable)]
    left_out = [name for name in runs_with if name not in shared]
    if not shared:
        return [], left_out

    datasets = []
    for comparison in comparable:
        accuracy = {name: comparison.accuracy[name] for name in shared}
        datasets.append(accuracy)
    return datasets, left_out


def _run_sections(comparison: RunComparison, writer: ReportWriter, prefix: str) -> list[Section]:
    """Return the sections on one run.

    Args:
        comparison: the run.
        writer: writes the files.
        prefix: what the files of the run begin with; empty for the only run of a report.
    """
    if not comparison.comparable:
        return []

    heading = ""
    if prefix:
        heading = f"{comparison.name}: "
    text = "Gains are means over the rounds after the first, in points of accuracy."

    if comparison.repetitions > 1:
        text += (
            f" ± shows the standard deviation over {comparison.repetitions} repetitions. p comes "
            f"from "
            "a two-sided t-test paired over repetitions, and is not corrected for the number of "
            "tests; n.s. means not significant (p of 0.05 or more)."
        )
    if comparison.paper_deltas and comparison.gains:
        text += " The difference is ours minus the paper's."
    sections = [
        _curves_section(comparison, writer, prefix, heading),
        Section(
            title=f"{heading}Gains",
            text=text,
            blocks=[writer.add_table(deltas_table(comparison), prefix)],
        ),
        Section(
            title=f"{heading}Accuracy",
            text=(
                "Test accuracy in percent by number of labels; the CSV file beside the page has "
                "every round."
            ),
            blocks=[writer.add_table(accuracy_table(comparison), prefix)],
        ),
    ]

    paper_accuracy = paper_accuracy_table(comparison)
    if paper_accuracy is not None:
        sections.append(
            Section(
                title=f"{heading}Accuracy compared with the paper's",
                text="The paper's test accuracy in percent. The numbers in brackets are ours "
                "minus the paper's.",
                blocks=[writer.add_table(paper_accuracy, prefix)],
            )
        )

    if comparison.savings:
        sections.append(_labels_section(comparison, writer, prefix, heading))

    sections.append(_runtime_section(comparison, writer, prefix, heading))
    return sections


def _curves_section(
    comparison: RunComparison, writer: ReportWriter, prefix: str, heading: str
) -> Section:
    if comparison.repetitions == 1:
        text = "One repetition."
    else:
        text = (
            f"The mean of {comparison.repetitions} repetitions, with a band of one standard "
            "deviation."
        )
    text += " All strategies start from the same labels and share the first round."

    curves = plot_curves(comparison.labelled, comparison.accuracy)
    curves_alt = f"Learning curves on {comparison.name}"
    blocks = [writer.add_figure(curves, f"{prefix}curves", curves_alt)]

    if comparison.gains:
        accuracy = dict(comparison.accuracy)
        baseline = accuracy.pop(BASELINE)
        gains = plot_gains(comparison.labelled, accuracy, baseline)
        gains_alt = f"Gain over Random at each round on {comparison.name}"
        blocks.append(writer.add_figure(gains, f"{prefix}gains", gains_alt))

    return Section(f"{heading}Accuracy against labels", text, blocks)


def _labels_section(
    comparison: RunComparison, writer: ReportWriter, prefix: str, heading: str
) -> Section:
    text = (
        "How many labels a strategy needs to reach Random's final accuracy, read off its mean "
        "curve. Each dot is one repetition, compared with Random in the same repetition. The "
        "curve of a single repetition is noisy, so it tends to reach the target early. Because "
        "this is also true of Random's curve, the saving per repetition can be smaller."
    )
    figure = plot_labels(comparison.savings)
    blocks = [
        writer.add_figure(figure, f"{prefix}labels", f"Labels needed on {comparison.name}"),
        writer.add_table(labels_table(comparison), prefix),
    ]
    return Section(f"{heading}Labels needed", text, blocks)


def _runtime_section(
    comparison: RunComparison, writer: ReportWriter, prefix: str, heading: str
) -> Section:
    unit, units_per_minute = comparison.time_unit
    text = f"{unit.capitalize()} per repetition, from the first round to the last."
    if comparison.paper_minutes:
        text += (
            " The paper's minutes come from other machines, so compare them only with each "
            "other, not with ours."
        )

    times: dict[str, dict[str, float]] = {}
    for name, phases in comparison.minutes.items():
        times[name] = {}
        for phase, minutes in phases.items():
            times[name][phase] = units_per_minute * float(minutes.mean())

    figure = plot_runtime(times, unit)
    blocks = [
        writer.add_figure(figure, f"{prefix}runtime", f"Time per run on {comparison.name}"),
        writer.add_table(runtime_table(comparison), prefix),
    ]
    return Section(f"{heading}Runtime", text, blocks)


def _cross_run_sections(
    comparisons: Sequence[RunComparison], writer: ReportWriter
) -> list[Section]:
    """Return the sections that take all runs together; they make sense for a single one, too."""
    datasets, _ = _common_strategies(comparisons)
    if not datasets or len(datasets[0]) < 2:
        return []

    comparable = [comparison for comparison in comparisons if comparison.comparable]
    tested = all(comparison.repetitions > 1 for comparison in comparable)
    sections = []

    gains = gains_table(comparable)
    if len(comparable) > 1 and gains.shown:
        block = writer.add_table(gains)
        sections.append(Section("Gains in every run", gains.caption, [block]))

    text = (
        "A performance profile shows in what share of cases (repetitions and rounds) a strategy is "
        "within delta points of the best one. Its area from 0 to 10 points is 10 for a strategy "
        "that is always the best. The penalty matrix shows in what share of rounds one strategy "
        "beats another significantly, summed over datasets; its last row shows how often a "
        "strategy is beaten on average."
    )
    profile = plot_profile(performance_profile(datasets))
    blocks = [
        writer.add_table(cross_dataset_table(datasets, tested=tested)),
        writer.add_figure(profile, "profile", "Performance profiles"),
    ]

    if tested:
        penalties = penalty_matrix(datasets)
        writer.add_table(penalties_table(penalties))  # the page has it as a figure
        figure = plot_penalties(penalties)
        blocks.append(writer.add_figure(figure, "penalties", "Penalty matrix"))
    else:
        text += " Penalties need more than one repetition, so none are shown."

    title = "Across runs"
    if len(comparisons) == 1:
        title = "Who is close to the best, and who beats whom"
    sections.append(Section(title, text, blocks))
    return sections


def _settings_section(comparisons: Sequence[RunComparison]) -> Section:
    blocks = []

    for comparison in comparisons:
        run = comparison.run
        # The run may have other strategies and repetitions than its setting proposes.
        setting = {
            **asdict(run.setting),
            "strategies": list(comparison.accuracy),
            "repetitions": comparison.repetitions,
        }
        values = _flatten({"folder": run.folder.name, **setting})

        # The facts of a single run stand in the footer.
        if len(comparisons) > 1:
            values |= _flatten(run.facts)
        for (strategy, repetition), error in run.failures.items():
            values[f"failed: {strategy}, repetition {repetition}"] = error

        blocks.append(render_block("details", comparison.name, values))

    return Section(
        "Settings", "Everything that the results depend on, as recorded by the run.", blocks
    )


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested values in one level: {"training": {"epochs": 5}} -> {"training.epochs": 5}."""
    flat: dict[str, Any] = {}

    for name, value in values.items():
        full_name = f"{prefix}{name}"
        if isinstance(value, dict):
            flat |= _flatten(value, f"{full_name}.")
        elif isinstance(value, (list, tuple)):
            flat[full_name] = ", ".join(str(entry) for entry in value)
        else:
            flat[full_name] = value

    return flat


def _shared_facts(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the facts that are the same in all runs, without those that are unknown."""
    first, *rest = [_flatten(run.facts) for run in runs]
    shared = {}

    for name, value in first.items():
        is_shared = all(facts.get(name) == value for facts in rest)
        if value is not None and is_shared:
            shared[name] = value

    return shared


def _intro(comparisons: Sequence[RunComparison]) -> str:
    if len(comparisons) > 1:
        names = ", ".join(comparison.name for comparison in comparisons)
        return f"{names}."

    (comparison,) = comparisons
    setting = comparison.run.setting
    parts = [f"Dataset {setting.dataset}", f"network {setting.network}"]

    # A run may have been stopped before its first round.
    if len(comparison.labelled) > 0:
        first = comparison.labelled[0]
        last = comparison.labelled[-1]
        parts.append(f"{first:,.0f} to {last:,.0f} labels")

    parts.append(f"{setting.query:,} per round")
    if comparison.repetitions == 1:
        parts.append("1 repetition")
    else:
        parts.append(f"{comparison.repetitions} repetitions")
    return f"{', '.join(parts)}."


def _run_names(runs: Sequence[Run]) -> list[str]:
    """Return a name for each run: its setting, with its folder and a number where two collide."""
    setting_names = [run.setting.name for run in runs]
    runs_of_setting = Counter(setting_names)
    names: list[str] = []

    for run in runs:
        name = run.setting.name
        if runs_of_setting[name] > 1:
            name = f"{name} ({run.folder.name})"

        # Two folders of the same name, in different places.
        same = names.count(name) + sum(other.startswith(f"{name} #") for other in names)
        if same:
            name = f"{name} #{same + 1}"
        names.append(name)

    return names


def _file_prefixes(names: Sequence[str]) -> list[str]:
    """Return what the files of each run begin with, all different; empty for a single run."""
    if len(names) == 1:
        return [""]

    prefixes: list[str] = []

    for name in names:
        # Names of runs may have any character; those of files must be safe everywhere.
        slug = re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.")
        if not slug:
            slug = "run"
        prefix = f"{slug}-"
        number = 1

        while prefix in prefixes:
            number += 1
            prefix = f"{slug}-{number}-"
        prefixes.append(prefix)

    return prefixes
