"""Figure 1: what the LDM is, and its exact value beside estimates of it.

The least disagree metric (LDM) of a row is the smallest share of rows on which a hypothesis must
disagree with g in order to disagree on this row. On the disc it is the angle between the row and
the boundary of g, over pi. We estimate it by rays and by the paper's Algorithm 1, and compare.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from research.paper.disc import (
    WEIGHT,
    Array,
    disagreement_shares,
    exact_ldm,
    rng,
    row_angles,
    sample_disc,
)
from research.paper.item import Drawing, Item, Measurement, StudyConfig, decide_verdict, make_table
from teeter.bench.analysis.plots import new_figure, style_axes
from teeter.strategies.api import ldm

__all__ = ["FIGURE_1"]

# The estimators: ours, and the paper's with its own patience s and with ten times as much.
RAYS = "rays"
SHORT = "Algorithm 1, s = 10"
LONG = "Algorithm 1, s = 100"

JUDGED = (RAYS, LONG)
"""The estimators that should be exact; the paper's own s = 10 is shown beside them."""


def measure_illustration(config: StudyConfig) -> Measurement:
    """Estimate the LDM of rows on the disc, and compare it with |theta| / pi."""
    row_count = 100 if config.quick else 500
    reference_count = 5000 if config.quick else 100_000
    rows = sample_disc(row_count, rng(config.seed, "figure 1", "rows"))
    reference = sample_disc(reference_count, rng(config.seed, "figure 1", "reference"))

    def estimate(method: Literal["rays", "gaussian"], patience: int = 10) -> Array:
        return ldm(
            rows,
            WEIGHT,
            reference=reference,
            method=method,
            patience=patience,
            seed=config.seed,
            device=config.device,
        )

    estimates = {
        RAYS: estimate("rays"),
        SHORT: estimate("gaussian"),
        LONG: estimate("gaussian", patience=100),
    }
    return judge_illustration(rows, reference, estimates)


def judge_illustration(rows: Array, reference: Array, estimates: dict[str, Array]) -> Measurement:
    """Check that estimates are as close to the exact LDM as a random sample allows.

    Args:
        rows: the rows whose LDM is estimated: (N, 2).
        reference: the rows on which disagreement was measured: (M, 2).
        estimates: the estimated LDM by estimator, each (N,).
    """
    angles = row_angles(rows)
    exact = exact_ldm(angles)
    allowed = allowed_error(len(reference))
    errors = {name: np.abs(values - exact) for name, values in estimates.items()}

    # The best that an estimator can do: the share of the sample itself. The boundary reaches a row
    # by a rotation to the left or to the right, and the smaller share counts.
    sorted_angles = np.sort(row_angles(reference))
    sample_shares = np.minimum(
        disagreement_shares(angles, sorted_angles),
        disagreement_shares(angles - np.pi, sorted_angles),
    )

    data = []
    for name in estimates:
        distance = np.abs(estimates[name] - sample_shares)
        data.append(
            {
                "estimator": name,
                "mean error": float(errors[name].mean()),
                "largest error": float(errors[name].max()),
                "allowed": allowed,
                "largest distance to the sample's share": float(distance.max()),
            }
        )
    caption = (
        f"Errors of the estimated LDM against |θ| / π, disagreement measured on "
        f"{len(reference):,} rows."
    )

    largest = " and ".join(f"{float(errors[name].max()):.4f} by {name}" for name in JUDGED)
    short_is_within = bool((errors[SHORT] <= allowed).all())
    return Measurement(
        numbers={
            "rows": rows,  # (N, 2)
            "true": exact,  # (N,)
            "estimates": estimates,  # by estimator: (N,)
            "band": allowed,
        },
        verdict=decide_verdict({name: bool((errors[name] <= allowed).all()) for name in JUDGED}),
        reason=f"Over {len(rows):,} rows, the largest error is {largest}, and {allowed:.4f} is "
        "allowed.",
        tables=(make_table("errors", caption, data, default_format=".5f"),),
        notes=(
            f"Algorithm 1 with the paper's own s = 10 is not judged here: its largest error is "
            f"{float(errors[SHORT].max()):.4f}, {'within' if short_is_within else 'beyond'} what "
            "is allowed. It stops before the rows of large LDM are settled.",
        ),
    )


def allowed_error(reference_count: int, probability: float = 0.001) -> float:
    """Return the error that all shares of a random sample stay below, except with a probability.

    The share of a wedge is a value of the empirical distribution of row angles, so the bound of
    Dvoretzky, Kiefer and Wolfowitz [1956] holds, with the constant of Massart [1990]:

        P(error > e) <= 2 exp(-2 M e^2).

    Args:
        reference_count: the number M of rows in the sample.
        probability: how often some share may have a larger error.
    """
    return float(np.sqrt(np.log(2 / probability) / (2 * reference_count)))


def draw_illustration(measurement: Measurement) -> list[Drawing]:
    """Draw the disc with the wedge of one row, and estimates against the exact LDM."""
    numbers = measurement.numbers
    exact = np.asarray(numbers["true"])

    figure = new_figure(9.5, 4.4)
    disc, axes = figure.subplots(1, 2, width_ratios=[1, 1.1])
    _draw_wedge(disc)

    # Rays last, so that they are on top. The long search is not drawn: it would cover them.
    for name, colour, marker in ((SHORT, "#0072b2", "x"), (RAYS, "#d55e00", ".")):
        estimates = numbers["estimates"][name]
        axes.plot(exact, estimates, marker, color=colour, markersize=5, label=name)
    axes.plot([0, 0.5], [0, 0.5], color="#555555", linewidth=1, zorder=1, label="|θ| / π")
    axes.set(xlabel="true LDM, |θ| / π", ylabel="estimated LDM", aspect="equal")
    axes.legend(frameon=False)
    style_axes(axes)

    caption = (
        "Left: the boundary of g, and the one that first passes x₀; rows in the shaded wedge, a "
        "share of |θ₀| / π, change label along with it. Right: estimates of the LDM against its "
        "true value."
    )
    return [Drawing(figure, caption)]


def _draw_wedge(axes: Any) -> None:
    """Draw the disc, the boundaries of g and of h, and the wedges between them."""
    from matplotlib.patches import Arc, Circle, Wedge

    rotation = 35.0  # degrees
    axes.add_patch(Circle((0, 0), 1, fill=False, color="#888888"))

    # The boundary of g is vertical, so the wedges between the two start at 90 and 270 degrees.
    for start in (90, 270):
        wedge = Wedge((0, 0), 1, start, start + rotation, color="#d55e00", alpha=0.25, linewidth=0)
        axes.add_patch(wedge)

    boundaries = ((90.0, "#222222", "boundary of g"), (90 + rotation, "#d55e00", "boundary of h"))
    for angle, colour, name in boundaries:
        along = _unit_vector(angle)
        axes.plot(*np.outer(along, [-1.12, 1.12]), color=colour, linewidth=1.8, label=name)

    # The row lies one degree before the boundary of h, which has just passed it.
    row = 0.72 * _unit_vector(90 + rotation - 1)
    axes.plot(*row, "o", color="#222222", markersize=6)
    axes.annotate("x₀", row, xytext=(-16, -12), textcoords="offset points")
    axes.add_patch(Arc((0, 0), 0.7, 0.7, theta1=90, theta2=90 + rotation, color="#222222"))
    axes.annotate("θ₀", (0, 0), xytext=(-0.17, 0.42), ha="center")

    axes.set(aspect="equal", xlim=(-1.15, 1.15), ylim=(-1.15, 1.15))
    axes.axis("off")
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, 0.02), ncols=2, fontsize=9)


def _unit_vector(degrees: float) -> Array:
    return np.array([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))])


FIGURE_1 = Item(
    name="figure-1",
    title="The least disagree metric, illustrated",
    location="figure 1",
    claim="For rows uniform on a disc and lines through its centre, the LDM of a row is |θ| / π, "
    "with θ the angle between the row and the boundary.",
    test="Holds if rays and Algorithm 1 with s = 100 come within the error that a random "
    "reference sample allows (a Dvoretzky-Kiefer-Wolfowitz band of 99.9 %) of |θ| / π on every "
    "row; in part if one of them does.",
    compute=measure_illustration,
    draw=draw_illustration,
)
