"""One self-contained HTML page from texts, tables and figures: nothing is fetched when it is opened."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from teeter.analysis.plot_style import figure_png

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["chart", "details", "found", "page", "picture", "section", "table"]

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5a6675; --line: #d8dee6; --ground: #fff; --mark: #eef3f8;
  --accent: #d55e00; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6eaf0; --soft: #a0abb8; --line: #39424e; --ground: #14181d; --mark: #1e252d; }
}
body { margin: 0 auto; max-width: 62rem; padding: 2rem 1.2rem 4rem; font: 16px/1.55 system-ui, sans-serif;
  color: var(--ink); background: var(--ground); }
h1 { font-size: 1.7rem; margin: 0 0 .3rem; } h2 { font-size: 1.2rem; margin: 2.2rem 0 .4rem; }
p { max-width: 46rem; } .lead { color: var(--soft); margin-top: 0; }
img { display: block; box-sizing: border-box; width: 100%; height: auto; background: #fff;
  border: 1px solid var(--line); border-radius: 6px; }
.wide { overflow-x: auto; margin: .6rem 0 1.2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .65rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th { white-space: normal; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; } tbody tr:first-child { background: var(--mark); }
.found { background: var(--mark); border-left: 4px solid var(--accent); border-radius: 6px; padding: .8rem 1.1rem;
  margin: 1.2rem 0; } .found p { margin: .3rem 0; max-width: none; }
.notes { color: var(--soft); padding-left: 1.2rem; max-width: 46rem; } .notes li { margin: .2rem 0; }
.chart { overflow-x: auto; margin: .8rem 0; } .plain tbody tr:first-child { background: none; }
.plain td { white-space: normal; text-align: left; overflow-wrap: anywhere; }
.plain td:first-child { white-space: nowrap; overflow-wrap: normal; }
.verdict { display: inline-block; border-radius: 4px; padding: 0 .5rem; margin-right: .3rem; white-space: nowrap;
  color: #fff; background: #5a6675; } .yes { background: #00704f; } .part { background: #8a5a00; }
.no { background: #b3261e; } .verdicts th { text-align: left; } .verdicts td:first-child { white-space: normal; }
.verdicts td { overflow-wrap: normal; }
.even tbody tr:first-child { background: none; }
.caption { color: var(--soft); margin: .2rem 0 1rem; } a { color: inherit; }
pre { overflow-x: auto; background: var(--mark); border-radius: 6px; padding: .5rem .8rem; }
summary { cursor: pointer; } details { margin: .6rem 0; }
@media (max-width: 40rem) {
  .chart img { width: 32rem; max-width: none; } th, td { padding: .3rem .5rem; }
  th:first-child, td:first-child { position: sticky; left: 0; background: var(--ground); }
  tbody tr:first-child td:first-child { background: var(--mark); }
  .plain tbody tr:first-child td:first-child, .even tbody tr:first-child td:first-child { background: var(--ground); }
}
@media (prefers-color-scheme: dark) { .chart img { filter: invert(.91) hue-rotate(180deg); border: 0; } }
footer { margin-top: 3rem; color: var(--soft); font-size: .85rem; overflow-wrap: anywhere; }
"""


def page(title: str, lead: str, parts: Sequence[str], facts: Mapping[str, object]) -> str:
    """Return a whole page: a title, a sentence under it, parts made below, and what the results depend on."""
    told = " · ".join(f"{escape(name)} {escape(str(value))}" for name, value in facts.items())
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>{_STYLE}</style>\n</head>\n'
        f'<body>\n<h1>{escape(title)}</h1>\n<p class="lead">{escape(lead)}</p>\n'
        + "\n".join(parts)
        + f"\n<footer>{told}</footer>\n</body>\n</html>\n"
    )


def section(title: str, text: str, *parts: str, anchor: str | None = None) -> str:
    """Return a heading, a paragraph and what follows it; a link to ``#anchor`` leads to it."""
    begin = "<section>" if anchor is None else f'<section id="{escape(anchor)}">'
    return (
        f"{begin}\n<h2>{escape(title)}</h2>\n<p>{escape(text)}</p>\n"
        + "\n".join(parts)
        + "\n</section>"
    )


def found(sentences: Sequence[str], notes: Sequence[str] = ()) -> str:
    """Return what was found, set apart from the rest, and under it what a reader must know."""
    told = "".join(f"<p>{escape(sentence)}</p>\n" for sentence in sentences)
    warned = "".join(f"<li>{escape(note)}</li>\n" for note in notes)
    return (f'<div class="found">\n{told}</div>\n' if told else "") + (
        f'<ul class="notes">\n{warned}</ul>\n' if warned else ""
    )


def details(title: str, values: Mapping[str, object]) -> str:
    """Return names and values under a title, folded up until it is clicked."""
    told = {name: "–" if value in (None, "") else str(value) for name, value in values.items()}
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>\n"
        for name, value in told.items()
    )
    return (
        f"<details>\n<summary>{escape(title)}</summary>\n"
        f'<div class="wide plain"><table><tbody>\n{rows}</tbody></table></div>\n</details>'
    )


def chart(png: bytes, alt: str, *, inches: float) -> str:
    """Return a drawing as an image that turns dark with the page, and can be moved sideways on a small screen."""
    width = 7.5 * inches  # so that letters are as large in every figure
    return f'<div class="chart" style="max-width: {width:.1f}rem">{_image(png, alt)}</div>'


def table(rows: Sequence[Mapping[str, str]]) -> str:
    """Return rows as a table; the names of the first row's cells are the headings."""
    heads = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row.values()) + "</tr>\n"
        for row in rows
    )
    return f'<div class="wide"><table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>'


def picture(figure: Figure, alt: str) -> str:
    """Return a figure as an image inside the page."""
    return _image(figure_png(figure), alt)


def _image(png: bytes, alt: str) -> str:
    return f'<img alt="{escape(alt)}" src="data:image/png;base64,{base64.b64encode(png).decode()}">'
