"""One self-contained HTML page from texts, tables and figures: nothing is fetched when it is opened."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["page", "picture", "section", "table"]

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5a6675; --line: #d8dee6; --ground: #fff; --mark: #eef3f8; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6eaf0; --soft: #a0abb8; --line: #39424e; --ground: #14181d; --mark: #1e252d; }
}
body { margin: 0 auto; max-width: 62rem; padding: 2rem 1.2rem 4rem; font: 16px/1.55 system-ui, sans-serif;
  color: var(--ink); background: var(--ground); }
h1 { font-size: 1.7rem; margin: 0 0 .3rem; } h2 { font-size: 1.2rem; margin: 2.2rem 0 .4rem; }
p { max-width: 46rem; } .lead { color: var(--soft); margin-top: 0; }
img { width: 100%; height: auto; background: #fff; border: 1px solid var(--line); border-radius: 6px; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .8rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } tbody tr:first-child { background: var(--mark); }
footer { margin-top: 3rem; color: var(--soft); font-size: .85rem; }
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


def section(title: str, text: str, *parts: str) -> str:
    """Return a heading, a paragraph and what follows it."""
    return f"<section>\n<h2>{escape(title)}</h2>\n<p>{escape(text)}</p>\n" + "\n".join(parts) + "\n</section>"


def table(rows: Sequence[Mapping[str, str]]) -> str:
    """Return rows as a table; the names of the first row's cells are the headings."""
    heads = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row.values()) + "</tr>\n" for row in rows)
    return f'<div class="wide"><table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>'


def picture(figure: Figure, alt: str) -> str:
    """Return a figure as an image inside the page."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=150)
    content = base64.b64encode(file.getvalue()).decode()
    return f'<img alt="{escape(alt)}" src="data:image/png;base64,{content}">'
