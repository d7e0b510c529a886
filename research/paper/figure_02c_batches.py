"""Figure 2c: batches from three classes of digits, near boundaries or far from each other.

A network learns three similar classes from a few labels, and each strategy picks a batch from the
other rows. Two numbers describe a batch: how near its rows lie to a boundary between classes, and
how far they lie from each other. Both are measured in the features, the inputs of the last layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from research.paper.item import (
    Array,
    Drawing,
    Item,
    Measurement,
    StudyConfig,
    decide_verdict,
    make_table,
    significantly_below,
)
from research.paper.study_data import (
    StudyData,
    last_layer,
    last_layer_features,
    load_study_data,
    tsne_2d,
)
from teeter.base.seeds import stream
from teeter.bench.analysis.plots import line_style, new_figure
from teeter.models.inputs import take_rows
from teeter.models.outputs import Outputs
from teeter.strategies.api import select

__all__ = ["FIGURE_2C", "mean_distance"]

BATCH_STRATEGIES = ("ldm", "entropy", "coreset", "random")
DIGITS = (3, 5, 8)
"""The classes of MNIST that are used, which look alike."""
LABEL_COUNT = 30
"""How many rows are labelled at first."""
BATCH_SIZE = 20
"""How many rows each strategy picks."""
QUICK_REPETITIONS = 8
FULL_REPETITIONS = 20


def measure_batches(config: StudyConfig) -> Measurement:
    """Pick a batch from three classes of digits with each strategy, and measure where it lies."""
    repetitions = QUICK_REPETITIONS if config.quick else FULL_REPETITIONS
    data = load_study_data(config, "mnist", classes=DIGITS, rows=2000)
    nearer_share = {name: np.zeros(repetitions) for name in BATCH_STRATEGIES}
    spread = {name: np.zeros(repetitions) for name in BATCH_STRATEGIES}
    example: dict[str, Any] = {}

    for repetition in range(repetitions):
        pool, labelled, labels = _train_and_observe(data, config.seed, repetition)
        features = last_layer_features(pool)
        distance = boundary_distance(pool)

        picks = {}
        for name in BATCH_STRATEGIES:
            rows = select(
                name,
                pool,
                BATCH_SIZE,
                labelled=labelled,
                labels=labels,
                seed=repetition,
                device=config.device,
            )
            picks[name] = rows

            # Over all (pool row, pick) pairs: how often the pool row is nearer to a boundary.
            is_nearer = distance[:, None] < distance[rows]
            nearer_share[name][repetition] = float(is_nearer.mean())
            spread[name][repetition] = mean_distance(features[rows])

        # The figure shows the first repetition, with the labelled rows after the pool.
        if repetition == 0:
            all_features = np.concatenate([features, last_layer_features(labelled)])
            positions = tsne_2d(all_features, config.seed)
            example = {"map": positions, "pool": len(pool), "picks": picks}

    measurement = judge_batches(nearer_share, spread)
    return replace(
        measurement, numbers={**measurement.numbers, **example}, notes=(data.description,)
    )


def _train_and_observe(
    data: StudyData, seed: int, repetition: int
) -> tuple[Outputs, Outputs, npt.NDArray[np.int64]]:
    """Train a network on a few rows.

    Returns:
        Its outputs on the other rows, its outputs on the labelled rows, and their labels.
    """
    generator = stream(seed, "figure 2c", repetition)
    rows = torch.randperm(len(data.train), generator=generator).numpy()[:LABEL_COUNT]
    labels = data.train.labels[rows]

    learner = data.make_learner("random", generator.initial_seed() % 2**31)
    learner.tell(rows, labels)
    learner.fit()

    needs = {"logits", "features", "head"}
    inputs = data.train.inputs
    pool = learner.observe(take_rows(inputs, learner.pool.candidates()), needs)
    labelled = learner.observe(take_rows(inputs, rows), needs)
    return pool, labelled, labels


def boundary_distance(outputs: Outputs) -> Array:
    """Return the distance (N,) of features to the nearest boundary of their predicted class."""
    _, weight, _ = last_layer(outputs)
    if outputs.logits is None:
        raise TypeError("There are no logits.")
    logits = outputs.logits.cpu().double()
    weight = weight.cpu().double()

    # The boundary to class c is where the logits are equal: at gap / |w_predicted - w_c|.
    predicted = logits.argmax(dim=1)
    gaps = logits.gather(1, predicted[:, None]) - logits
    weight_distances = torch.cdist(weight, weight)[predicted]
    distances = (gaps / weight_distances).masked_fill(weight_distances == 0, torch.inf)
    return np.asarray(distances.amin(dim=1).numpy())


def mean_distance(features: Array) -> float:
    """Return the mean cosine distance between the rows of a batch: (n, D)."""
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    unit = features / np.maximum(norms, 1e-12)
    distances = 1 - unit @ unit.T

    # Rows have no distance to themselves, so only n (n - 1) of the n^2 entries count.
    count = len(unit)
    return float(distances.sum() / (count * (count - 1)))


def judge_batches(nearer_share: Mapping[str, Array], spread: Mapping[str, Array]) -> Measurement:
    """Check which strategies pick near boundaries, and which ones pick rows far from each other.

    Args:
        nearer_share: the share of the pool nearer to a boundary than a pick, by strategy: (R,).
        spread: the mean distance between picks, by strategy: (R,).
    """
    # Both must pick nearer to boundaries than Random, and less diversely than Coreset.
    checks = {}
    for name in ("ldm", "entropy"):
        checks[f"{name} near"] = significantly_below(nearer_share[name], nearer_share["random"])
        checks[f"{name} narrower"] = significantly_below(spread[name], spread["coreset"])

    data = [
        {
            "strategy": name,
            "rows nearer to a boundary (%)": 100 * float(nearer_share[name].mean()),
            "distance between picks": float(spread[name].mean()),
        }
        for name in nearer_share
    ]
    caption = (
        "Means over repetitions: how many rows of the pool lie nearer to a boundary than a pick, "
        "and the cosine distance between picks of a batch."
    )

    nearer = ", ".join(f"{name} {100 * float(v.mean()):.0f} %" for name, v in nearer_share.items())
    distances = ", ".join(f"{name} {float(v.mean()):.2f}" for name, v in spread.items())
    return Measurement(
        numbers={
            "near": dict(nearer_share),  # by strategy: (R,)
            "spread": dict(spread),  # by strategy: (R,)
        },
        verdict=decide_verdict(checks),
        reason=f"Rows of the pool nearer to a boundary than a pick: {nearer}; mean distance "
        f"between picks: {distances}.",
        tables=(make_table("batches", caption, data),),
    )


def draw_batches(measurement: Measurement) -> list[Drawing]:
    """Draw the batch of each strategy on a map of the pool."""
    numbers = measurement.numbers
    positions = np.array(numbers["map"])
    pool = positions[: numbers["pool"]]
    labelled = positions[numbers["pool"] :]

    figure = new_figure(9.5, 9.0)
    panels = figure.subplots(2, 2).flat
    for axes, (name, rows) in zip(panels, numbers["picks"].items(), strict=True):
        axes.scatter(*pool.T, s=5, color="#c4c4c4", linewidths=0, rasterized=True)
        axes.scatter(*labelled.T, s=16, color="#222222", marker="s", linewidths=0, label="labelled")
        axes.scatter(
            *positions[rows].T, s=34, color=line_style(name)["color"], label="picked", zorder=3
        )
        axes.set(title=name, xticks=[], yticks=[])
        axes.legend(frameon=False, loc="best", fontsize=8)

    digits = ", ".join(map(str, DIGITS))
    caption = (
        f"A batch of {BATCH_SIZE} picked by each strategy from digits {digits}, laid out by t-SNE."
    )
    return [Drawing(figure, caption)]


FIGURE_2C = Item(
    name="figure-2c",
    title="A batch of digits by four strategies",
    location="figure 2, c",
    claim="On three classes of MNIST with a deep network, LDM and Entropy pick rows near the "
    "boundaries, and Coreset picks rows that are more diverse.",
    test="Four checks by paired t-tests over repetitions (5 %): picks of LDM, and of Entropy, are "
    "nearer to a boundary in the features than Random's; the cosine distance between Coreset's "
    "picks is larger than between LDM's, and than between Entropy's. Holds if all pass, in part "
    "if some do.",
    compute=measure_batches,
    draw=draw_batches,
)
