"""The page of the paper's items: verdicts on top, then every claim beside what we found."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from teeter.analysis.report.render import (
    Block,
    CodeBlock,
    DetailsBlock,
    NotesBlock,
    ParagraphBlock,
    ReportWriter,
    Section,
    TableBlock,
    render_page,
)
from teeter.errors import InputError, TeeterError
from teeter.files import atomic_write
from teeter.studies.items import HOLDS, IN_PART, NOT, VERDICTS, Drawing, Item, Measured
from teeter.studies.paper import Found, read_found

__all__ = ["write_page"]

logger = logging.getLogger(__name__)

_MARKS: dict[str, str] = {HOLDS: "yes", IN_PART: "part", NOT: "no"}
"""The style of a verdict."""


def write_page(items: Sequence[Item], out: Path) -> Path:
    """Write out/index.html, figures/ and tables/ from the files of ``items`` in ``out``, and return the page's path."""
    read = {item.name: read_found(item, out) for item in items}
    found = [one for one in read.values() if one is not None]
    if not found:
        raise InputError(f"There is no result in {out}: run teeter paper all --quick --out {out}.")
    missing = [name for name, one in read.items() if one is None]
    desk = ReportWriter(out)
    parts = [_summary(found, missing), *(_item(one, desk) for one in found)]
    path = out / "index.html"
    text = render_page("The paper, item by item", _lead(found), parts, _shared(found))
    atomic_write(path, text.encode())
    return path


def _lead(found: Sequence[Found]) -> str:
    counted = Counter(one.verdict for one in found)
    told = ", ".join(
        f"{name}: {counted[name]}" for name in (*VERDICTS, "not computed") if counted[name]
    )
    return (
        "What “Querying Easily Flip-flopped Samples for Deep Active Learning” (ICLR 2024) claims, computed again and "
        f"judged by a stated test. The {len(found)} items here: {told}."
    )


def _summary(found: Sequence[Found], missing: Sequence[str]) -> Section:
    rows = [
        {
            "item": Markup('<a href="#{}">{}</a>').format(one.item.name, one.item.title),
            "verdict": _badge(one),
            "in the paper": one.item.where,
            "size": _size(one),
        }
        for one in found
    ]
    text = (
        "Each verdict is decided by the test that stands with its item, on fixed seeds. Figures 6, 8 and 9 of the "
        "paper illustrate proofs, and tables 3 and 4 are settings: they claim nothing that could be computed. Commands "
        "look for runs of the benchmark in runs; --runs names another folder."
    )
    if missing:
        text += f" Not computed yet: {', '.join(missing)}."
    return Section("Verdicts", text, [TableBlock(rows, style="words")])


def _badge(one: Found) -> Markup:
    mark = _MARKS.get(one.verdict, "none")
    return Markup('<span class="verdict {}">{}</span>').format(mark, one.verdict)


def _size(one: Found) -> str:
    return str(one.facts.get("size", ""))


def _item(one: Found, desk: ReportWriter) -> Section:
    item = one.item
    reason = (
        one.measured.reason
        if one.measured is not None
        else f"It could not be computed: {one.error}"
    )
    blocks: list[Block] = [
        ParagraphBlock(Markup("<strong>The test.</strong> {}").format(item.test)),
        ParagraphBlock(Markup("{} {}").format(_badge(one), reason)),
        *_drawn(one, desk),
        *_notes(one),
        CodeBlock(_command(one)),
        DetailsBlock("What it depends on", one.facts),
    ]
    title = f"{item.title} ({item.where})"
    whose = "Ours, not the paper's" if item.where.startswith("ours") else "The paper"
    return Section(title, f"{whose}: {item.claim}", blocks, anchor=item.name)


def _command(one: Found) -> str:
    """Return the words that compute an item as it was."""
    words = ["teeter paper", one.item.name]
    if _size(one) == "quick":
        words.append("--quick")
    if one.facts.get("seed"):
        words.append(f"--seed {one.facts['seed']}")
    return " ".join(words)


def _drawings(one: Found, measured: Measured) -> list[Drawing] | None:
    """Return an item's figures; None where its file has not what they are drawn from."""
    try:
        return one.item.draw(measured)
    except TeeterError:
        raise
    except Exception as problem:  # a file of another version: the other items are drawn
        logger.warning(
            "%s cannot be drawn from its file: %s: %s",
            one.item.name,
            type(problem).__name__,
            problem,
        )
        return None


def _drawn(one: Found, desk: ReportWriter) -> list[Block]:
    if one.measured is None:
        return []
    blocks: list[Block] = []
    drawings = _drawings(one, one.measured)
    if drawings is None:
        blocks.append(
            ParagraphBlock(f"Its file cannot be drawn; {_command(one)} --fresh computes it anew.")
        )
    for number, drawing in enumerate(drawings or [], start=1):
        blocks.append(desk.add_figure(drawing.figure, f"{one.item.name}-{number}", drawing.caption))
        blocks.append(ParagraphBlock(drawing.caption, style="caption"))
    for table in one.measured.tables:
        blocks.append(ParagraphBlock(table.caption, style="caption"))
        blocks.append(desk.add_table(table, f"{one.item.name}-", style="even"))
    return blocks


def _notes(one: Found) -> list[NotesBlock]:
    if one.measured is None or not one.measured.notes:
        return []
    return [NotesBlock(one.measured.notes)]


def _shared(found: Sequence[Found]) -> dict[str, Any]:
    """Return the facts that all items share; a new time is no news."""
    first = found[0].facts
    alike = {
        name: value
        for name, value in first.items()
        if all(one.facts.get(name) == value for one in found)
    }
    return {
        name: value
        for name, value in alike.items()
        if value is not None and name not in ("started", "seconds")
    }
