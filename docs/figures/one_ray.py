"""Draw one ray: the rows that flip as a head is moved along one direction, and the rank that is
their disagreement.

python docs/figures/one_ray.py docs/explanation/one_ray.svg
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from torch import Tensor

from teeter.base.seeds import stream
from teeter.kernels.flip_rates import flip_rates

COLOURS = ["#4878a8", "#d1813c", "#5b9a5b"]
STRENGTHS = [0.12, 0.3, 0.6]
SHADES = ["#b2182b", "#e4725a", "#f7b799"]


def make_ray() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return 150 rows in a disc, a head of three classes without bias, one direction, and 1 /
    sigma* of each row.
    """
    generator = stream(5, "one ray")
    angle = 2 * torch.pi * torch.rand(150, generator=generator, dtype=torch.float64)
    radius = torch.rand(150, generator=generator, dtype=torch.float64).sqrt()
    rows = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)
    corners = 2 * torch.pi * torch.arange(3, dtype=torch.float64) / 3 + 0.4
    weight = torch.stack([corners.cos(), corners.sin()], dim=1)
    direction = torch.randn(1, 3, 2, generator=generator, dtype=torch.float64)
    return rows, weight, direction[0], flip_rates(rows, weight, None, [(direction, None)])[0]


def draw_plane(axes: Axes, rows: Tensor, weight: Tensor, direction: Tensor, rates: Tensor) -> None:
    """Draw the rows by the strength at which they flip, over the regions of the head."""
    grid = torch.linspace(-1.15, 1.15, 240, dtype=torch.float64)
    plane = torch.cartesian_prod(grid, grid)

    for strength, style in [
        (0.0, "solid"),
        *zip(STRENGTHS, ["dashed", "dashdot", "dotted"], strict=True),
    ]:
        regions = (
            (plane @ (weight + strength * direction).T).argmax(dim=1).reshape(240, 240).T.numpy()
        )

        if strength == 0:
            axes.contourf(
                grid, grid, regions, levels=[-0.5, 0.5, 1.5, 2.5], colors=COLOURS, alpha=0.16
            )
        axes.contour(
            grid, grid, regions, levels=[0.5, 1.5], colors="black", linewidths=0.8, linestyles=style
        )

    classes = (rows @ weight.T).argmax(dim=1)
    stays = rates < 1 / STRENGTHS[-1]
    for c in range(3):
        unflipped = stays & (classes == c)
        axes.scatter(*rows[unflipped].T, s=16, color=COLOURS[c], alpha=0.55, linewidths=0)

    flipped_at = torch.full_like(rates, torch.inf)
    for strength, shade in zip(STRENGTHS, SHADES, strict=True):
        ring = (rates >= 1 / strength) & (flipped_at == torch.inf)
        flipped_at[ring] = strength
        axes.scatter(*rows[ring].T, s=26, color=shade, edgecolors="black", linewidths=0.5)

    axes.set(xticks=[], yticks=[], xlim=(-1.15, 1.15), ylim=(-1.15, 1.15), aspect="equal")
    axes.set_title("Rows flipped at rising strengths: nested sets", fontsize=10)

    handles = [
        Line2D(
            [],
            [],
            marker="o",
            linestyle=style,
            color="black",
            markerfacecolor=shade,
            label=f"by σ = {strength}",
        )
        for strength, shade, style in zip(
            STRENGTHS, SHADES, ["dashed", "dashdot", "dotted"], strict=True
        )
    ]

    unmoved = Line2D([], [], color="black", label="the head, σ = 0")
    axes.legend(
        handles=[unmoved, *handles],
        frameon=False,
        fontsize=8,
        ncols=2,
        loc="upper center",
        bbox_to_anchor=(0.5, 0),
    )


def draw_ranks(axes: Axes, rates: Tensor) -> None:
    """Draw the share of rows that disagree against the strength, and mark one row's value."""
    flips = np.sort(1 / rates[rates > 0].numpy())
    shares = np.arange(1, len(flips) + 1) / len(rates)
    axes.step(np.r_[0, flips], np.r_[0, shares], where="post", color="#333333")

    for strength, shade in zip(STRENGTHS, SHADES, strict=True):
        axes.axvline(strength, color=shade, linewidth=1.2)

    rank = 20
    flip = flips[rank - 1]
    share = shares[rank - 1]
    axes.plot([flip, flip, 0], [0, share, share], color="#2166ac", linewidth=1)
    axes.plot(flip, share, "o", color="#2166ac")

    axes.annotate(
        (
            f"this row flips as the {rank}th of {len(rates)}:\nρ = {rank}/{len(rates)} = "
            f"{share:.3f} on this ray"
        ),
        (flip, share),
        xytext=(0.03, 0.42),
        fontsize=9,
        color="#2166ac",
        bbox={"facecolor": "white", "edgecolor": "none"},
    )

    axes.set(
        xlim=(0, 0.8),
        ylim=(0, 0.5),
        xlabel="strength σ along the ray",
        ylabel="share of rows that disagree, ρ",
    )
    axes.set_title("A row's disagreement is its rank", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)


def main(path: Path) -> None:
    rows, weight, direction, rates = make_ray()
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4.6), layout="constrained")
    draw_plane(left, rows, weight, direction, rates)
    draw_ranks(right, rates)
    plt.rcParams["svg.hashsalt"] = "teeter"
    figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
