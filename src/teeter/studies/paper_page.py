"""The page of the paper's items: verdicts on top, then every claim beside what we found."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from teeter.analysis.report.page import details, page, section
from teeter.analysis.report.sections import ReportWriter
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
    text = page("The paper, item by item", _lead(found), parts, _shared(found))
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


def _summary(found: Sequence[Found], missing: Sequence[str]) -> str:
    rows = "".join(
        f'<tr><td><a href="#{escape(one.item.name)}">{escape(one.item.title)}</a></td>'
        f"<td>{_badge(one)}</td><td>{escape(one.item.where)}</td><td>{escape(_size(one))}</td></tr>\n"
        for one in found
    )
    table = (
        '<div class="wide plain verdicts"><table>\n<thead><tr><th>item</th><th>verdict</th><th>in the paper</th>'
        f"<th>size</th></tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>"
    )
    text = (
        "Each verdict is decided by the test that stands with its item, on fixed seeds. Figures 6, 8 and 9 of the "
        "paper illustrate proofs, and tables 3 and 4 are settings: they claim nothing that could be computed. Commands "
        "look for runs of the benchmark in runs; --runs names another folder."
    )
    if missing:
        text += f" Not computed yet: {', '.join(missing)}."
    return section("Verdicts", text, table)


def _badge(one: Found) -> str:
    return f'<span class="verdict {_MARKS.get(one.verdict, "none")}">{escape(one.verdict)}</span>'


def _size(one: Found) -> str:
    return str(one.facts.get("size", ""))


def _item(one: Found, desk: ReportWriter) -> str:
    item = one.item
    reason = (
        one.measured.reason
        if one.measured is not None
        else f"It could not be computed: {one.error}"
    )
    parts = [
        f"<p><strong>The test.</strong> {escape(item.test)}</p>",
        f"<p>{_badge(one)} {escape(reason)}</p>",
        *_drawn(one, desk),
        *_notes(one),
        f"<pre><code>{escape(_command(one))}</code></pre>",
        details("What it depends on", one.facts),
    ]
    title = f"{item.title} ({item.where})"
    whose = "Ours, not the paper's" if item.where.startswith("ours") else "The paper"
    return section(title, f"{whose}: {item.claim}", *parts, anchor=item.name)


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


def _drawn(one: Found, desk: ReportWriter) -> list[str]:
    if one.measured is None:
        return []
    parts = []
    drawings = _drawings(one, one.measured)
    if drawings is None:
        parts.append(
            f"<p>Its file cannot be drawn; {escape(_command(one))} --fresh computes it anew.</p>"
        )
    for number, drawing in enumerate(drawings or [], start=1):
        parts.append(desk.draw(drawing.figure, f"{one.item.name}-{number}", drawing.caption))
        parts.append(f'<p class="caption">{escape(drawing.caption)}</p>')
    for table in one.measured.tables:
        parts.append(f'<p class="caption">{escape(table.caption)}</p>')
        parts.append(f'<div class="even">{desk.lay(table, f"{one.item.name}-")}</div>')
    return parts


def _notes(one: Found) -> list[str]:
    if one.measured is None or not one.measured.notes:
        return []
    told = "".join(f"<li>{escape(note)}</li>" for note in one.measured.notes)
    return [f'<ul class="notes">{told}</ul>']


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
