"""LDM as a measure of uncertainty on trained networks: how often rows flip, and how disagreement grows with noise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reproduction.item import (
    Array,
    Drawing,
    Item,
    Measurement,
    StudyConfig,
    decide_verdict,
    make_table,
)
from reproduction.study_data import StudyData, last_layer, load_study_data
from teeter.analysis.plot_style import new_figure, style_axes
from teeter.analysis.table_formats import format_number
from teeter.arrays import full_precision_matmul
from teeter.errors import FileError, InputError
from teeter.models.inputs import take_rows
from teeter.models.outputs import Outputs
from teeter.seeds import normal, stream
from teeter.strategies.api import ldm

__all__ = ["FIGURE_5", "FIGURE_7", "flip_counts", "trained_outputs"]

DATASETS = {"openml-6": 1000, "openml-156": 500, "openml-44135": 500, "mnist": 300, "cifar10": 3000}
"""The paper's settings, and how many labels their networks learn from."""
FEW, MANY = 100, 400
"""The same for digits, where it must be quick: two networks stand for two datasets."""
STRONG, VERY_STRONG, WANTED = -0.7, -0.9, 0.05
"""What is called a strong and a very strong correlation [Schober et al. 2018]; how much a small perturbation flips."""
SURE = 0.001


def trained_outputs(data: StudyData, labels: int, seed: int, rows: int = 2000) -> Outputs:
    """Return what a network trained on so many rows tells of other rows."""
    start = stream(seed, "trained", data.setting.name, labels)
    order = torch.randperm(len(data.train), generator=start).numpy()
    learner = data.make_learner("random", start.initial_seed() % 2**31)
    learner.tell(order[:labels], data.train.labels[order[:labels]])
    learner.fit()
    others = np.sort(order[labels : labels + rows])
    return learner.observe(take_rows(data.train.inputs, others), {"features", "head"})


def networks(config: StudyConfig) -> Iterator[tuple[str, Outputs]]:
    """Yield a trained network's outputs for every dataset that is there."""
    if config.quick:
        data = load_study_data(config, "mnist")
        for labels in (FEW, MANY):
            yield f"digits, {labels} labels", trained_outputs(data, labels, config.seed, 1000)
        return
    for name, labels in DATASETS.items():
        try:
            data = load_study_data(config, name)
        except FileError:
            continue
        yield name, trained_outputs(data, labels, config.seed)


def flip_counts(outputs: Outputs, sigma: float, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return how often each row flips when the head is moved by Gaussian noise, and what share of rows each draw flips.

    -> (N,) counts, (count,) shares.
    """
    features, weight, bias = last_layer(outputs)
    generator = stream(seed, "flips", f"{sigma:.6g}", device=weight.device)
    counts, shares = torch.zeros(len(features), device=weight.device), []
    with full_precision_matmul():
        predicted = (features @ weight.T + bias).argmax(dim=1)
        for start in range(0, count, 50):
            block = min(50, count - start)
            moves = weight + sigma * normal((block, *weight.shape), generator, weight.device)
            shifts = bias + sigma * normal((block, len(bias)), generator, weight.device)
            logits = (moves.flatten(0, 1) @ features.T).view(block, len(weight), -1) + shifts[
                :, :, None
            ]
            flipped = logits.max(dim=1).indices != predicted
            counts += flipped.sum(dim=0)
            shares.append(flipped.float().mean(dim=1))
    return counts.cpu(), torch.cat(shares).cpu()


# Figure 5


def measure_orders(config: StudyConfig) -> Measurement:
    """Compare the order of LDM with how often rows flip, on each dataset."""
    draws = 1000 if config.quick else 10_000
    found: dict[str, dict[str, Any]] = {}
    for name, outputs in networks(config):
        sigma = small_strength(outputs, config.seed)
        counts, shares = flip_counts(outputs, sigma, draws, config.seed)
        least = ldm(*last_layer(outputs), seed=config.seed, device=config.device)
        found[name] = {
            "sigma": sigma,
            "disagreement": float(shares.mean()),
            "ldm": np.asarray(torch.as_tensor(least).cpu(), dtype=float),
            "frequency": counts.numpy() / draws,
        }
    if not found:
        raise InputError("None of the paper's datasets is there: get one with teeter datasets get.")
    judged_on = judge_orders(found)
    return replace(judged_on, notes=(*judged_on.notes, *notes_on(found, quick=config.quick)))


def notes_on(found: Iterable[str], *, quick: bool) -> tuple[str, ...]:
    """Return what the networks learned from, and which of the paper's datasets are not among them."""
    theirs = "The paper shows MNIST, CIFAR10, SVHN, CIFAR100, Tiny ImageNet and FOOD101."
    if quick:
        return (theirs,)
    labels = ", ".join(f"{name} {DATASETS[name]:,}" for name in found)
    missing = [name for name in DATASETS if name not in set(found)]
    return (
        f"Labels that each network learned from: {labels}; all is measured on 2,000 other rows.",
        theirs + (f" Not there when this was computed: {', '.join(missing)}." if missing else ""),
    )


def small_strength(outputs: Outputs, seed: int) -> float:
    """Return the strength at which about one row in twenty flips, by bisection of the exponent."""
    low, high = -6.0, 2.0
    for step in range(12):
        middle = (low + high) / 2
        share = float(flip_counts(outputs, 10.0**middle, 50, seed + step)[1].mean())
        low, high = (middle, high) if share < WANTED else (low, middle)
    return float(10.0 ** ((low + high) / 2))


def judge_orders(found: Mapping[str, Mapping[str, Any]]) -> Measurement:
    """Check that LDM and the frequency of flips are in strongly opposite orders; both (N,) by dataset."""
    from scipy.stats import spearmanr

    rho = {
        name: float(spearmanr(one["ldm"], one["frequency"]).statistic)
        for name, one in found.items()
    }
    data: list[dict[str, Any]] = [
        {
            "dataset": name,
            "rank correlation": rho[name],
            "σ": float(one["sigma"]),
            "rows that flip (%)": 100 * float(one["disagreement"]),
            "rows that never flip (%)": 100 * float((np.asarray(one["frequency"]) == 0).mean()),
        }
        for name, one in found.items()
    ]
    forms = {"rank correlation": ".3f", "σ": ".3g"}
    caption = "Spearman's rank correlation of the LDM and the frequency of flips under a small perturbation."
    told = ", ".join(f"{name} {format_number(value, '.3f')}" for name, value in rho.items())
    return Measurement(
        numbers={"datasets": dict(found), "rank correlation": rho},
        verdict=decide_verdict({name: value <= STRONG for name, value in rho.items()}),
        reason=f"Rank correlation of the LDM and the frequency of flips: {told}.",
        tables=(make_table("orders", caption, data, forms, ".1f"),),
        notes=(
            f"Very strong, {format_number(VERY_STRONG, '.1f')} or less: "
            f"{sum(value <= VERY_STRONG for value in rho.values())} of {len(rho)}.",
            "Rows that never flip are tied, which holds the correlation back.",
        ),
    )


def draw_orders(measured: Measurement) -> list[Drawing]:
    """Draw the rank by frequency against the rank by LDM."""
    from scipy.stats import rankdata

    found, rho = measured.numbers["datasets"], measured.numbers["rank correlation"]
    columns = 2 if len(found) == 4 else min(3, len(found))
    lines = -(-len(found) // columns)
    figure = new_figure(3.3 * columns, 3.2 * lines)
    grid = figure.subplots(lines, columns, squeeze=False)
    for axes, (name, one) in zip(grid.flat, found.items(), strict=False):
        across, up = rankdata(one["ldm"]), rankdata(-np.array(one["frequency"]))
        axes.plot(
            across, len(up) + 1 - up, ".", color="#0072b2", markersize=2, alpha=0.6, rasterized=True
        )
        axes.set(xlabel="rank by LDM", ylabel="rank by flips")
        axes.set_title(f"{name}: {format_number(rho[name], '.3f')}", fontsize=10)
        style_axes(axes)
    for axes in grid.flat[len(found) :]:
        axes.axis("off")
    caption = (
        "Rows ranked by their LDM, and by how often they flip: high is often. Rows that never flip share a rank, the "
        "line at the bottom."
    )
    return [Drawing(figure, caption)]


FIGURE_5 = Item(
    name="figure-5",
    title="Rows of small LDM flip often",
    location="appendix, figure 5",
    claim="On each dataset the order of LDM and the order of uncertainty, how often a label flips when the network is "
    "perturbed a little, have a strong negative rank correlation.",
    test=f"Holds if Spearman's correlation of LDM and the frequency of flips is {format_number(STRONG, '.1f')} or less, which "
    "is commonly called strong, on every dataset, in part if on some; the perturbation is such that about "
    f"{WANTED:.0%} of the rows flip.",
    compute=measure_orders,
    draw=draw_orders,
)


# Figure 7


def measure_strengths(config: StudyConfig) -> Measurement:
    """Compute the mean disagreement against the strength of the noise on each dataset."""
    draws = 100 if config.quick else 1000
    sigmas = np.logspace(-5, 1, 31)
    means: dict[str, Array] = {}
    errors: dict[str, Array] = {}
    for name, outputs in networks(config):
        shares = [
            flip_counts(outputs, float(sigma), draws, config.seed)[1].numpy() for sigma in sigmas
        ]
        means[name] = np.array([one.mean() for one in shares], dtype=float)
        errors[name] = np.array(
            [one.std(ddof=1) / np.sqrt(len(one)) for one in shares], dtype=float
        )
    if not means:
        raise InputError("None of the paper's datasets is there: get one with teeter datasets get.")
    return replace(
        judge_strengths(sigmas, means, errors), notes=notes_on(means, quick=config.quick)
    )


def judge_strengths(
    sigmas: Array, means: Mapping[str, Array], errors: Mapping[str, Array]
) -> Measurement:
    """Check that no step of the mean falls beyond chance, and that it rises as a whole; all (S,) by dataset."""
    steps = len(sigmas) - 1
    limit = NormalDist().inv_cdf(1 - SURE / steps / len(means))
    checks, told = {}, []
    for name, mean in means.items():
        bound = limit * np.hypot(errors[name][1:], errors[name][:-1])
        falls = int((np.diff(mean) < -bound - 1e-12).sum())
        rises = int((np.diff(mean) > 0).sum())
        checks[name] = falls == 0 and mean[-1] > mean[0]
        told.append(
            f"{name} from {mean[0]:.4f} to {mean[-1]:.2f}, {rises} steps up and {falls} down beyond chance"
        )
    return Measurement(
        numbers={"sigmas": sigmas, "means": dict(means)},
        verdict=decide_verdict(checks),
        reason=f"Mean disagreement over {steps} steps: {'; '.join(told)}.",
    )


def draw_strengths(measured: Measurement) -> list[Drawing]:
    """Draw the mean disagreement against the strength."""
    figure = new_figure(7.5, 4.2)
    axes = figure.subplots()
    colours: Sequence[str] = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#332288", "#999933")
    for colour, marker, (name, mean) in zip(
        colours, "osD^vP", measured.numbers["means"].items(), strict=False
    ):
        axes.plot(
            measured.numbers["sigmas"], mean, f"{marker}-", color=colour, markersize=3.5, label=name
        )
    axes.set(
        xscale="log", xlabel="strength σ of the noise", ylabel="mean disagreement ρ", ylim=(0, 1)
    )
    axes.legend(frameon=False)
    style_axes(axes)
    return [
        Drawing(
            figure, "The mean share of rows that change label against the strength of the noise."
        )
    ]


FIGURE_7 = Item(
    name="figure-7",
    title="Stronger noise, more disagreement, on trained networks",
    location="appendix, figure 7",
    claim="On each dataset and network the mean disagreement rises steadily with the logarithm of the noise.",
    test="Holds if on every dataset no step of a grid of strengths, drawn independently, falls by more than chance "
    "(99.9 % for all together) and the last mean is above the first; in part if on some.",
    compute=measure_strengths,
    draw=draw_strengths,
)
