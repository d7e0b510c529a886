"""Draw the packages of teeter as layers, from the import contract in pyproject.toml.

    python docs/figures/packages.py [OUT]

writes docs/explanation/packages.svg, or OUT.
"""

from __future__ import annotations

import re
import sys
import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "explanation" / "packages.svg"

WIDTH = 760
BOX_HEIGHT = 34
GAP = 8


def read_layers() -> list[list[str]]:
    """Return the layers of the import contract, from the top."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = project["tool"]["importlinter"]["contracts"]
    return [re.findall(r"\w+", layer) for layer in contract["layers"]]


def draw(layers: list[list[str]]) -> str:
    """Return an SVG with one row of boxes per layer."""
    height = len(layers) * (BOX_HEIGHT + GAP) + GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'font-family="system-ui, sans-serif" font-size="14">',
        "<title>The packages of teeter: each layer imports only from the layers below it</title>",
        f'<rect width="{WIDTH}" height="{height}" rx="6" fill="#ffffff"/>',
    ]

    for row, names in enumerate(layers):
        y = GAP + row * (BOX_HEIGHT + GAP)
        box_width = (WIDTH - GAP * (len(names) + 1)) / len(names)

        for column, name in enumerate(names):
            x = GAP + column * (box_width + GAP)
            parts.append(
                f'<rect x="{x:.1f}" y="{y}" width="{box_width:.1f}" height="{BOX_HEIGHT}" rx="4" '
                'fill="#e8eef7" stroke="#5b7aa8"/>'
            )
            parts.append(
                f'<text x="{x + box_width / 2:.1f}" y="{y + BOX_HEIGHT / 2 + 5}" '
                f'text-anchor="middle" fill="#1b2a41">{escape(name)}</text>'
            )

    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE
    out.write_text(draw(read_layers()), encoding="utf-8")
