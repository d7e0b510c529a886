"""The page of results: all verdicts on top, then each claim beside what was measured.

``write_page`` reads the result files of a folder and draws them; it computes nothing. The page is
one HTML file with all figures inside. Figures and tables are also written beside it, for other
uses.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from research.paper.item import HOLDS, IN_PART, NOT, VERDICTS, Drawing, Item, Measurement
from research.paper.results import NOT_COMPUTED, ItemResult, read_results
from teeter.base.files import atomic_write
from teeter.bench.analysis.report import ReportWriter, Section, render_block, render_page
from teeter.errors import InputError, TeeterError

__all__ = ["write_page"]

logger = logging.getLogger(__name__)

BADGE_STYLES: dict[str, str] = {HOLDS: "yes", IN_PART: "part", NOT: "no"}
"""The CSS class of each verdict."""


def write_page(items: Sequence[Item], out: Path) -> Path:
    """Draw the results of a folder: write index.html, figures/ and tables/ into it.

    Args:
        items: the items to show. The page names those that have no result yet.
        out: the folder of the result files.

    Returns:
        The path of index.html.

    Raises:
        InputError: the folder has no result of these items.
    """
    results = read_results(items, out)
    if not results:
        raise InputError(f"There is no result in {out}: compute items into this folder first.")
    computed = {result.item.name for result in results}
    missing = [item.name for item in items if item.name not in computed]

    writer = ReportWriter(out)
    item_sections = [_make_item_section(result, writer) for result in results]
    sections = [_make_summary_section(results, missing), *item_sections]

    lead = _describe_verdicts(results)
    text = render_page("The paper, item by item", lead, sections, _find_common_facts(results))
    path = out / "index.html"
    atomic_write(path, text.encode())
    return path


def _describe_verdicts(results: Sequence[ItemResult]) -> str:
    counts = Counter(result.verdict for result in results)
    parts = [f"{name}: {counts[name]}" for name in (*VERDICTS, NOT_COMPUTED) if counts[name]]
    return (
        "What “Querying Easily Flip-flopped Samples for Deep Active Learning” (ICLR 2024) claims, "
        "computed again and judged by a stated test. "
        f"The {len(results)} items here: {', '.join(parts)}."
    )


def _make_summary_section(results: Sequence[ItemResult], missing: Sequence[str]) -> Section:
    rows = []
    for result in results:
        item = result.item
        # Markup.format escapes what it inserts.
        rows.append(
            {
                "item": Markup('<a href="#{}">{}</a>').format(item.name, item.title),
                "verdict": _make_badge(result),
                "in the paper": item.location,
                "size": _get_size(result),
            }
        )

    text = (
        "Each verdict is decided by the test given with its item, on fixed seeds. Figures 6, 8 "
        "and 9 of the paper illustrate proofs, and tables 3 and 4 are settings: they claim "
        "nothing that could be computed. Commands look for runs of the benchmark in the folder "
        "runs; use --runs for another folder."
    )
    if missing:
        text += f" Not computed yet: {', '.join(missing)}."
    return Section("Verdicts", text, [render_block("table", rows, style="words")])


def _make_badge(result: ItemResult) -> Markup:
    style = BADGE_STYLES.get(result.verdict, "none")
    return Markup('<span class="verdict {}">{}</span>').format(style, result.verdict)


def _get_size(result: ItemResult) -> str:
    return str(result.facts.get("size", ""))


def _make_item_section(result: ItemResult, writer: ReportWriter) -> Section:
    item = result.item
    measurement = result.measurement

    if measurement is None:
        reason = f"It could not be computed: {result.error}"
    else:
        reason = measurement.reason

    blocks = [
        render_block("paragraph", Markup("<strong>The test.</strong> {}").format(item.test)),
        render_block("paragraph", Markup("{} {}").format(_make_badge(result), reason)),
    ]
    if measurement is not None:
        blocks += _make_figure_blocks(result, measurement, writer)
        for table in measurement.tables:
            blocks.append(render_block("paragraph", table.caption, style="caption"))
            blocks.append(writer.add_table(table, f"{item.name}-", style="even"))
        if measurement.notes:
            blocks.append(render_block("notes", measurement.notes))
    blocks.append(render_block("code", _make_command(result)))
    blocks.append(render_block("details", "What it depends on", result.facts))

    author = "Ours, not the paper's" if item.location.startswith("ours") else "The paper"
    title = f"{item.title} ({item.location})"
    return Section(title, f"{author}: {item.claim}", blocks, anchor=item.name)


def _make_command(result: ItemResult) -> str:
    """Return the command that computes the same result."""
    words = ["python -m research.paper run", result.item.name]
    if _get_size(result) == "quick":
        words.append("--quick")
    if result.facts.get("seed"):
        words.append(f"--seed {result.facts['seed']}")
    return " ".join(words)


def _make_figure_blocks(
    result: ItemResult, measurement: Measurement, writer: ReportWriter
) -> list[Markup]:
    # A figure that fails leaves a hint, and the page is written all the same.
    drawings = _draw_figures(result.item, measurement)
    if drawings is None:
        hint = f"Its file cannot be drawn; {_make_command(result)} --fresh computes it again."
        return [render_block("paragraph", hint)]

    blocks = []
    for number, drawing in enumerate(drawings, start=1):
        name = f"{result.item.name}-{number}"
        blocks.append(writer.add_figure(drawing.figure, name, drawing.caption))
        blocks.append(render_block("paragraph", drawing.caption, style="caption"))
    return blocks


def _draw_figures(item: Item, measurement: Measurement) -> list[Drawing] | None:
    """Return an item's figures, or None if its file lacks the numbers they are drawn from."""
    try:
        return item.draw(measurement)
    except TeeterError:
        raise
    except Exception as problem:  # a file of another version must not stop the page
        logger.warning(
            "%s cannot be drawn from its file: %s: %s", item.name, type(problem).__name__, problem
        )
        return None


def _find_common_facts(results: Sequence[ItemResult]) -> dict[str, Any]:
    """Return the facts that all results share, without the times."""
    common = {}
    for name, value in results[0].facts.items():
        # Times differ between items even if they were computed together.
        if name in ("started", "seconds") or value is None:
            continue
        if all(result.facts.get(name) == value for result in results):
            common[name] = value
    return common
