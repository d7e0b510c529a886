"""Claims that the paper makes in its text, and the question that it leaves open.

None of them has a figure or a table of its own in the paper. All read runs that other items made:
those of the benchmark (``figure_04_benchmark.py``), and those of the ablations and the small
batches (``figure_12_ablations.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from research.paper.figure_04_benchmark import load_benchmark_runs, select_shared_strategies
from research.paper.figure_12_ablations import measure_ablation, run_ablations, run_small_batches
from research.paper.item import Array, Drawing, Item, Measurement, StudyConfig, decide_verdict
from research.paper.ldm_laplace import LAPLACE
from research.paper.shared_runs import (
    LDM_S,
    Accuracies,
    collect_accuracies,
    collect_curves,
    compute_leads,
    describe_runs,
    draw_runs,
    format_leads,
    is_significantly_ahead,
    is_significantly_behind,
    judge_leads,
    make_leads_table,
)
from teeter.bench.analysis.statistics import performance_profile
from teeter.bench.analysis.table_formats import ReportTable, format_number

__all__ = ["BADGE_ONE", "BEST_SHARE", "CLUSTER_MARGIN", "LDM_ALONE", "OPEN_QUESTION"]

PAPER_SHARE = 0.35
"""How often LDM-S is the best in the paper."""
SMALLEST_LDM_S_SHARE = 0.30
"""How often LDM-S must be the best to pass: about the paper's share."""
LARGEST_RIVAL_SHARE = 0.15
"""Every other strategy must be the best less often than this."""


# How often a strategy is the best


def measure_best_shares(config: StudyConfig) -> Measurement:
    """Compute how often each strategy is the best, over the runs of the benchmark."""
    runs, notes = load_benchmark_runs(config)
    measurement = judge_best_shares(select_shared_strategies(runs, without=["bait"]))
    return replace(measurement, notes=notes)


def judge_best_shares(datasets: Accuracies) -> Measurement:
    """Check that LDM-S is the best in about 35 % of cases, and each other in less than 15 %.

    Args:
        datasets: the accuracies by dataset and strategy. A case is a repetition and a round after
            the first; all datasets have the same weight.
    """
    # The profile at delta = 0 is the share of cases in which no strategy is better.
    profiles = performance_profile(list(datasets.values()))
    shares = {name: profile.at(0) for name, profile in profiles.items()}
    # Ties count for all, so that the shares may sum to more than 1.
    ranked = sorted(shares, key=lambda name: -shares[name])
    rivals = [name for name in ranked if name != LDM_S]
    checks = {
        "LDM-S is often the best": shares[LDM_S] >= SMALLEST_LDM_S_SHARE,
        "no other is": max(shares[name] for name in rivals) < LARGEST_RIVAL_SHARE,
    }

    rival_shares = ", ".join(f"{name} {shares[name]:.0%}" for name in rivals)
    return Measurement(
        numbers={"shares": shares},  # by strategy
        verdict=decide_verdict(checks),
        reason=f"LDM-S is the best in {shares[LDM_S]:.0%} of cases; the others: {rival_shares}.",
        tables=(_make_shares_table({name: shares[name] for name in ranked}),),
    )


def _make_shares_table(shares: Mapping[str, float]) -> ReportTable:
    data = []
    shown = []
    for name, share in shares.items():
        data.append({"strategy": name, "share": share})
        shown.append({"strategy": name, "best in (%)": format_number(100 * share, ".1f")})

    caption = (
        "The share of cases in which a strategy is the best, alone or with others. A case is a "
        "round of a repetition on a dataset."
    )
    return ReportTable("best", caption, data, shown)


def draw_best_shares(measurement: Measurement) -> list[Drawing]:
    """Draw the shares as bars."""
    from teeter.bench.analysis.plots import line_style, new_figure, style_axes

    shares: Mapping[str, float] = measurement.numbers["shares"]
    ranked = sorted(shares, key=lambda name: shares[name])  # the first bar is at the bottom
    percent = [100 * shares[name] for name in ranked]
    colours = [line_style(name)["color"] for name in ranked]

    figure = new_figure(7, 1.3 + 0.32 * len(ranked))
    axes = figure.subplots()
    axes.barh(ranked, percent, color=colours)
    for limit in (LARGEST_RIVAL_SHARE, PAPER_SHARE):
        axes.axvline(100 * limit, color="#222222", linestyle="--", linewidth=1)

    axes.set(xlabel="cases in which it is the best (%); dashed: the paper's 15 and 35")
    style_axes(axes, grid="x")
    return [Drawing(figure, "How often each strategy is the best.")]


BEST_SHARE = Item(
    name="claim-best-share",
    title="LDM-S is the best in 35 % of cases",
    location="section 4.3",
    claim="LDM-S is the most accurate in 35 % of the cases, and every other strategy in less than "
    "15 %.",
    test=f"Two checks: LDM-S is the best in {SMALLEST_LDM_S_SHARE:.0%} of the cases or more, and "
    f"each other strategy in less than {LARGEST_RIVAL_SHARE:.0%}; ties count for all. Holds if "
    "both pass, in part if one does.",
    compute=measure_best_shares,
    draw=draw_best_shares,
    always_recompute=True,
)


# BADGE, one row at a time


def measure_badge(config: StudyConfig) -> Measurement:
    """Compare BADGE with LDM-S and Random at batch sizes of 1, 10 and 40."""
    runs = run_small_batches(config)
    by_size = {run.run.setting.query: run.accuracy for run in runs}
    return replace(
        judge_badge(by_size),
        numbers=collect_curves(runs, (LDM_S, "badge")),
        notes=describe_runs(runs),
    )


def judge_badge(by_size: Mapping[int, Mapping[str, Array]]) -> Measurement:
    """Check that BADGE is behind LDM-S at size 1 only, and ahead of Random at larger sizes.

    Args:
        by_size: the accuracies by batch size and strategy, each (R, T). One size is 1.
    """
    leads = {
        size: compute_leads(accuracy, "badge", [LDM_S, "random"])
        for size, accuracy in by_size.items()
    }

    # At larger sizes it must be ahead of Random and keep up with LDM-S.
    does_well = []
    for size, gains in leads.items():
        if size > 1:
            keeps_up = not is_significantly_behind(gains[LDM_S])
            does_well.append(is_significantly_ahead(gains["random"]) and keeps_up)
    checks = {
        "poor at 1": is_significantly_behind(leads[1][LDM_S]),
        "good at larger sizes": all(does_well),
    }

    phrases = [f"{size}: {format_leads(gains)}" for size, gains in leads.items()]
    by_name = {f"batches of {size}": gains for size, gains in leads.items()}
    return Measurement(
        numbers={},
        verdict=decide_verdict(checks),
        reason=f"The lead of BADGE in points, by batch size: {'; '.join(phrases)}.",
        tables=(make_leads_table("badge", by_name),),
    )


BADGE_ONE = Item(
    name="claim-badge-one",
    title="BADGE is poor at one row at a time",
    location="appendix, effect of batch size",
    claim="On MNIST BADGE does well with batches of 10 or 40 rows, but is poor with batches of "
    "one.",
    test="Two checks by paired t-tests over repetitions (5 %): with batches of one, the mean "
    "accuracy of BADGE is significantly below that of LDM-S; with batches of 10 and of 40 it is "
    "significantly above Random's and not significantly below that of LDM-S. Holds if both pass, "
    "in part if one does.",
    compute=measure_badge,
    draw=draw_runs,
)


# LDM and ways to spread it


def measure_cluster_margin(config: StudyConfig) -> Measurement:
    """Compare LDM with and without Cluster-Margin."""
    return measure_ablation(config, "ldm", ("ldm-cluster-margin",))


CLUSTER_MARGIN = Item(
    name="claim-cluster-margin",
    title="Cluster-Margin harms LDM",
    location="appendix, effectiveness of LDM",
    claim="Spreading the rows of small LDM by Cluster-Margin makes accuracy worse than the "
    "smallest LDM alone.",
    test="On each dataset the mean accuracy of the smallest LDM is significantly above that of "
    "LDM with Cluster-Margin (paired t-test over repetitions, 5 %). Holds if so on all datasets, "
    "in part if on some.",
    compute=measure_cluster_margin,
    draw=draw_runs,
)


def measure_ldm_alone(config: StudyConfig) -> Measurement:
    """Compare LDM without seeding with seeding without LDM."""
    return measure_ablation(config, "ldm", ("seeding-cosine", "seeding-l2"))


LDM_ALONE = Item(
    name="claim-ldm-alone",
    title="LDM alone beats seeding alone",
    location="appendix, effectiveness of LDM",
    claim="Picking the smallest LDM, without any diversity, is already much better than seeding "
    "without LDM.",
    test="On each dataset the mean accuracy of the smallest LDM is significantly above that of "
    "seeding by cosine and by Euclidean distance (paired t-tests over repetitions, 5 %). Holds if "
    "so in all comparisons, in part if in some.",
    compute=measure_ldm_alone,
    draw=draw_runs,
)


# The open question


def measure_open_question(config: StudyConfig) -> Measurement:
    """Compare LDM-S along directions of a Laplace posterior with LDM-S along isotropic ones."""
    runs = run_ablations(config)
    measurement = judge_leads(collect_accuracies(runs), LAPLACE, [LDM_S])
    note = (
        "The posterior is that of the last layer, with Kronecker factors and a prior precision of "
        "1; only directions matter to rays, not their length."
    )
    return replace(
        measurement,
        numbers=collect_curves(runs, (LDM_S, LAPLACE)),
        notes=(note, *describe_runs(runs)),
    )


OPEN_QUESTION = Item(
    name="open-question",
    title="Directions from a Laplace posterior",
    location="conclusion",
    claim="Drawing hypotheses from a posterior instead of isotropic noise could improve LDM-S, "
    "which the paper leaves open.",
    test="On each dataset the mean accuracy of LDM-S with directions from a Laplace posterior of "
    "the last layer is significantly above that of LDM-S as it is (paired t-test over "
    "repetitions, 5 %). Holds if so on all datasets, in part if on some.",
    compute=measure_open_question,
    draw=draw_runs,
)
