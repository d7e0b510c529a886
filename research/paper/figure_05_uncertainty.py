"""Figures 5 and 7: rows of small LDM flip often, and more noise means more disagreement.

Both items train a network on each dataset, add Gaussian noise of standard deviation sigma to its
last layer many times, and count the rows whose predicted class changes. Such a row *flips*; the
share of rows that flip in one draw is the *disagreement* of that draw.

Figure 5
    The rank correlation of the LDM of rows and how often they flip, at a sigma so small that only
    about 5 % of the rows flip.

Figure 7
    The mean disagreement against sigma.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from torch import Tensor

from research.paper.item import (
    Array,
    Drawing,
    Item,
    Measurement,
    StudyConfig,
    decide_verdict,
    make_table,
)
from research.paper.study_data import StudyData, last_layer, load_study_data
from teeter.base.arrays import full_precision_matmul
from teeter.base.seeds import normal, stream
from teeter.bench.analysis.plots import new_figure, style_axes
from teeter.bench.analysis.table_formats import ReportTable, format_number
from teeter.errors import FileError, InputError
from teeter.models.inputs import take_rows
from teeter.models.outputs import Outputs
from teeter.strategies.api import ldm

__all__ = ["FIGURE_5", "FIGURE_7", "count_flips", "train_and_observe"]

LABEL_COUNTS = {
    "openml-6": 1000,
    "openml-156": 500,
    "openml-44135": 500,
    "mnist": 300,
    "cifar10": 3000,
}
"""The settings whose datasets are used, and how many labels their networks learn from."""

QUICK_LABEL_COUNTS = (100, 400)
"""The labels of a quick computation: two networks on digits stand for two datasets."""

DRAWS_PER_BLOCK = 50
"""How many perturbed heads are evaluated at once."""

STRONG = -0.7
"""A rank correlation of at most this is strong [Schober et al. 2018]."""
VERY_STRONG = -0.9
"""A rank correlation of at most this is very strong."""

FLIPPED_SHARE = 0.05
"""The share of rows that a small perturbation flips."""

FALSE_ALARM = 0.001
"""How often chance alone may fail the test of figure 7, for all steps and datasets together."""

NO_DATASET = "There is no dataset of the paper: get one with teeter bench datasets NAME."


# What both figures measure


def train_and_observe(
    data: StudyData, label_count: int, seed: int, row_count: int = 2000
) -> Outputs:
    """Train a network on random rows, and return its outputs on other rows.

    Args:
        data: the rows, and the network to train.
        label_count: how many rows to train on.
        seed: the seed of the rows and of the network.
        row_count: the largest number of rows to observe.

    Returns:
        The features of the observed rows, and the head of the network.
    """
    # The stream keeps the name it had when the committed results were computed.
    generator = stream(seed, "trained", data.setting.name, label_count)
    order = torch.randperm(len(data.train), generator=generator).numpy()
    labelled = order[:label_count]
    observed = np.sort(order[label_count : label_count + row_count])

    learner = data.make_learner("random", generator.initial_seed() % 2**31)
    learner.tell(labelled, data.train.labels[labelled])
    learner.fit()
    return learner.observe(take_rows(data.train.inputs, observed), {"features", "head"})


def train_networks(config: StudyConfig) -> Iterator[tuple[str, Outputs]]:
    """Train a network on each available dataset.

    Yields:
        The name of the dataset, and the outputs of its network on rows that it has not seen.
        Datasets that were not downloaded are skipped.
    """
    if config.quick:
        data = load_study_data(config, "mnist")
        for label_count in QUICK_LABEL_COUNTS:
            outputs = train_and_observe(data, label_count, config.seed, row_count=1000)
            yield f"digits, {label_count} labels", outputs
        return

    for name, label_count in LABEL_COUNTS.items():
        # A dataset that is missing is named in a note, and does not stop the others.
        try:
            data = load_study_data(config, name)
        except FileError:
            continue
        yield name, train_and_observe(data, label_count, config.seed)


def count_flips(
    outputs: Outputs, sigma: float, draw_count: int, seed: int
) -> tuple[Tensor, Tensor]:
    """Perturb the head of a network many times, and count the rows whose class changes.

    Args:
        outputs: the features of N rows, and the head.
        sigma: the standard deviation of the noise on each weight and bias.
        draw_count: how many times to perturb the head.
        seed: the seed of the noise.

    Returns:
        How many draws flip each row, (N,); and the disagreement of each draw, (draw_count,).
    """
    features, weight, bias = last_layer(outputs)
    generator = stream(seed, "flips", f"{sigma:.6g}", device=weight.device)
    counts = torch.zeros(len(features), device=weight.device)
    disagreements = []

    with full_precision_matmul():
        predicted = (features @ weight.T + bias).argmax(dim=1)

        for start in range(0, draw_count, DRAWS_PER_BLOCK):
            block = min(DRAWS_PER_BLOCK, draw_count - start)
            weight_noise = normal((block, *weight.shape), generator, weight.device)
            bias_noise = normal((block, len(bias)), generator, weight.device)
            weights = weight + sigma * weight_noise
            biases = bias + sigma * bias_noise

            # All heads of the block in one product: (B * C, D) @ (D, N), seen as (B, C, N).
            products = weights.flatten(0, 1) @ features.T
            logits = products.view(block, len(weight), -1) + biases[:, :, None]

            is_flipped = logits.max(dim=1).indices != predicted
            counts += is_flipped.sum(dim=0)
            disagreements.append(is_flipped.float().mean(dim=1))

    return counts.cpu(), torch.cat(disagreements).cpu()


def describe_datasets(names: Iterable[str], *, quick: bool) -> tuple[str, ...]:
    """Return sentences on the datasets that were used, and on those of the paper that were not.

    Args:
        names: the datasets that were used, keys of ``LABEL_COUNTS`` unless it was quick.
        quick: whether digits were used instead.
    """
    paper = "The paper shows MNIST, CIFAR10, SVHN, CIFAR100, Tiny ImageNet and FOOD101."
    if quick:
        return (paper,)

    used = list(names)
    label_counts = ", ".join(f"{name} {LABEL_COUNTS[name]:,}" for name in used)
    missing = [name for name in LABEL_COUNTS if name not in used]
    if missing:
        paper += f" Not available when this was computed: {', '.join(missing)}."
    return (
        f"Labels that each network learned from: {label_counts}; everything is measured on 2,000 "
        "other rows.",
        paper,
    )


# Figure 5


@dataclass(frozen=True, eq=False)
class FlipFrequencies:
    """The LDM of the rows of one dataset, and how often they flip. Result files have its fields."""

    sigma: float
    """The standard deviation of the noise."""
    disagreement: float
    """The mean share of rows that flip in a draw."""
    ldm: Array
    """The LDM of each row: (N,)."""
    frequency: Array
    """The share of draws that flip each row: (N,)."""


def measure_flip_frequencies(config: StudyConfig) -> Measurement:
    """Compare the LDM of rows with how often they flip, on each dataset.

    Raises:
        InputError: none of the datasets was downloaded.
    """
    draw_count = 1000 if config.quick else 10_000
    datasets = {}

    for name, outputs in train_networks(config):
        sigma = find_small_sigma(outputs, config.seed)
        counts, disagreements = count_flips(outputs, sigma, draw_count, config.seed)
        ldm_values = ldm(*last_layer(outputs), seed=config.seed, device=config.device)
        datasets[name] = FlipFrequencies(
            sigma=sigma,
            disagreement=float(disagreements.mean()),
            ldm=np.asarray(torch.as_tensor(ldm_values).cpu(), dtype=float),
            frequency=counts.numpy() / draw_count,
        )

    if not datasets:
        raise InputError(NO_DATASET)

    measurement = judge_flip_frequencies(datasets)
    notes = describe_datasets(datasets, quick=config.quick)
    return replace(measurement, notes=(*measurement.notes, *notes))


def find_small_sigma(outputs: Outputs, seed: int) -> float:
    """Return the sigma at which about ``FLIPPED_SHARE`` of the rows flip.

    The mean disagreement rises with sigma (proposition 2), so log10(sigma) is found by bisection.
    """
    low = -6.0
    high = 2.0
    for step in range(12):
        middle = (low + high) / 2
        # Each step has its own noise, so that one unlucky draw does not steer all of them.
        _, disagreements = count_flips(outputs, 10.0**middle, DRAWS_PER_BLOCK, seed + step)
        if float(disagreements.mean()) < FLIPPED_SHARE:
            low = middle
        else:
            high = middle
    return float(10.0 ** ((low + high) / 2))


def judge_flip_frequencies(datasets: Mapping[str, FlipFrequencies]) -> Measurement:
    """Check on each dataset that rows of smaller LDM flip more often.

    Args:
        datasets: the LDM and the frequency of flips of the rows, by dataset.
    """
    from scipy.stats import spearmanr

    # Negative, because rows of small LDM should flip often.
    correlations = {}
    for name, dataset in datasets.items():
        correlations[name] = float(spearmanr(dataset.ldm, dataset.frequency).statistic)

    phrases = [f"{name} {format_number(rho, '.3f')}" for name, rho in correlations.items()]
    very_strong_count = sum(rho <= VERY_STRONG for rho in correlations.values())
    return Measurement(
        numbers={
            "datasets": {name: asdict(dataset) for name, dataset in datasets.items()},
            "rank correlation": correlations,
        },
        verdict=decide_verdict({name: rho <= STRONG for name, rho in correlations.items()}),
        reason=f"Rank correlation of the LDM and the frequency of flips: {', '.join(phrases)}.",
        tables=(_make_flips_table(datasets, correlations),),
        notes=(
            f"Very strong, {format_number(VERY_STRONG, '.1f')} or less: {very_strong_count} of "
            f"{len(correlations)}.",
            "Rows that never flip are tied, which weakens the correlation.",
        ),
    )


def _make_flips_table(
    datasets: Mapping[str, FlipFrequencies], correlations: Mapping[str, float]
) -> ReportTable:
    data = []
    for name, dataset in datasets.items():
        never_flips = np.asarray(dataset.frequency) == 0
        data.append(
            {
                "dataset": name,
                "rank correlation": correlations[name],
                "σ": dataset.sigma,
                "rows that flip (%)": 100 * dataset.disagreement,
                "rows that never flip (%)": 100 * float(never_flips.mean()),
            }
        )

    caption = (
        "Spearman's rank correlation of the LDM and the frequency of flips under a small "
        "perturbation."
    )
    formats = {"rank correlation": ".3f", "σ": ".3g"}
    return make_table("orders", caption, data, formats, ".1f")


def draw_flip_frequencies(measurement: Measurement) -> list[Drawing]:
    """Draw the rank of rows by the frequency of flips against their rank by LDM."""
    from scipy.stats import rankdata

    datasets = measurement.numbers["datasets"]
    correlations = measurement.numbers["rank correlation"]

    # Four panels look better as two rows of two than as a row of three and one left over.
    columns = 2 if len(datasets) == 4 else min(3, len(datasets))
    rows = -(-len(datasets) // columns)
    figure = new_figure(3.3 * columns, 3.2 * rows)
    grid = figure.subplots(rows, columns, squeeze=False)

    for axes, (name, dataset) in zip(grid.flat, datasets.items(), strict=False):
        ldm_rank = rankdata(dataset["ldm"])
        flip_rank = rankdata(dataset["frequency"])
        axes.plot(
            ldm_rank, flip_rank, ".", color="#0072b2", markersize=2, alpha=0.6, rasterized=True
        )
        axes.set(xlabel="rank by LDM", ylabel="rank by flips")
        axes.set_title(f"{name}: {format_number(correlations[name], '.3f')}", fontsize=10)
        style_axes(axes)

    # Five datasets leave one panel of six empty.
    for axes in grid.flat[len(datasets) :]:
        axes.axis("off")

    caption = (
        "Rows ranked by their LDM, and by how often they flip: high is often. Rows that never "
        "flip share a rank, the line at the bottom."
    )
    return [Drawing(figure, caption)]


FIGURE_5 = Item(
    name="figure-5",
    title="Rows of small LDM flip often",
    location="appendix, figure 5",
    claim="On each dataset the LDM of rows and their uncertainty, which is how often the label "
    "flips when the network is perturbed a little, have a strong negative rank correlation.",
    test="Holds if Spearman's correlation of the LDM and the frequency of flips is "
    f"{format_number(STRONG, '.1f')} or less, which is commonly called strong, on every dataset, "
    f"in part if on some; the perturbation is such that about {FLIPPED_SHARE:.0%} of the rows "
    "flip.",
    compute=measure_flip_frequencies,
    draw=draw_flip_frequencies,
)


# Figure 7


def measure_disagreement_curves(config: StudyConfig) -> Measurement:
    """Compute the mean disagreement at a range of noise levels, on each dataset.

    Raises:
        InputError: none of the datasets was downloaded.
    """
    draw_count = 100 if config.quick else 1000
    sigmas = np.logspace(-5, 1, 31)
    means: dict[str, Array] = {}
    errors: dict[str, Array] = {}

    # The noise at each sigma comes from a stream of its own, so that means are independent.
    for name, outputs in train_networks(config):
        means[name] = np.zeros(len(sigmas))
        errors[name] = np.zeros(len(sigmas))
        for k, sigma in enumerate(sigmas):
            _, disagreements = count_flips(outputs, float(sigma), draw_count, config.seed)
            values = disagreements.numpy()
            means[name][k] = values.mean()
            errors[name][k] = values.std(ddof=1) / np.sqrt(len(values))

    if not means:
        raise InputError(NO_DATASET)

    measurement = judge_disagreement_curves(sigmas, means, errors)
    return replace(measurement, notes=describe_datasets(means, quick=config.quick))


def judge_disagreement_curves(
    sigmas: Array, means: Mapping[str, Array], errors: Mapping[str, Array]
) -> Measurement:
    """Check that the mean disagreement rises, and that no step falls by more than chance.

    Args:
        sigmas: the noise levels in rising order: (S,).
        means: the mean disagreement by dataset: (S,).
        errors: the standard errors of the means, by dataset: (S,).
    """
    step_count = len(sigmas) - 1
    # Bonferroni: the steps of all datasets share the probability of a false alarm.
    limit = NormalDist().inv_cdf(1 - FALSE_ALARM / step_count / len(means))

    checks = {}
    phrases = []
    for name, mean in means.items():
        steps = np.diff(mean)
        # The draws at two sigmas are independent, so the variances of their means add up.
        step_errors = np.hypot(errors[name][1:], errors[name][:-1])
        falls = int((steps < -limit * step_errors - 1e-12).sum())
        rises = int((steps > 0).sum())

        checks[name] = falls == 0 and mean[-1] > mean[0]
        phrases.append(
            f"{name} from {mean[0]:.4f} to {mean[-1]:.2f}, {rises} steps up and {falls} down "
            "beyond chance"
        )

    return Measurement(
        numbers={
            "sigmas": sigmas,  # (S,)
            "means": dict(means),  # by dataset: (S,)
        },
        verdict=decide_verdict(checks),
        reason=f"Mean disagreement over {step_count} steps: {'; '.join(phrases)}.",
    )


def draw_disagreement_curves(measurement: Measurement) -> list[Drawing]:
    """Draw the mean disagreement against sigma, with a line for each dataset."""
    sigmas = measurement.numbers["sigmas"]
    means: Mapping[str, Any] = measurement.numbers["means"]
    colours = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#332288", "#999933")
    markers = "osD^vP"

    figure = new_figure(7.5, 4.2)
    axes = figure.subplots()
    for colour, marker, (name, mean) in zip(colours, markers, means.items(), strict=False):
        axes.plot(sigmas, mean, f"{marker}-", color=colour, markersize=3.5, label=name)

    axes.set(xscale="log", xlabel="strength σ of the noise")
    axes.set(ylabel="mean disagreement ρ", ylim=(0, 1))
    axes.legend(frameon=False)
    style_axes(axes)
    caption = "The mean share of rows that change label against the strength of the noise."
    return [Drawing(figure, caption)]


FIGURE_7 = Item(
    name="figure-7",
    title="Stronger noise, more disagreement, on trained networks",
    location="appendix, figure 7",
    claim="On each dataset and network the mean disagreement rises steadily with the logarithm of "
    "the noise.",
    test="Holds if on every dataset no step between noise levels, drawn independently, falls by "
    "more than chance (99.9 % for all together) and the last mean is above the first; in part if "
    "on some.",
    compute=measure_disagreement_curves,
    draw=draw_disagreement_curves,
)
