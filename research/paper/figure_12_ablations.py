"""Figures 12, 13, 14 and 16: LDM-S with parts replaced, and with small and large batches.

LDM-S picks rows by *seeding*: it draws them with weights that fall with the LDM, far from each
other in cosine distance.

Figure 12
    LDM-S against its two parts alone, and against LDM with other ways to spread the picks.

Figure 16
    LDM-S against Entropy and Margin with the same seeding.

Figures 13 and 14
    Strategies with batches of 1, 10 and 40 rows, and with batches of thousands.

The strategies of all ablations run together in one run for each dataset, which the items of
``claims.py`` read as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

from research.paper.item import Item, Measurement, StudyConfig, decide_verdict, format_p
from research.paper.ldm_laplace import LAPLACE, LaplaceSetting
from research.paper.shared_runs import (
    LDM_S,
    Accuracies,
    collect_accuracies,
    collect_curves,
    describe_runs,
    draw_runs,
    find_closest_rival,
    find_unbeaten,
    is_significantly_ahead,
    judge_leads,
    make_digits_setting,
    make_leads_table,
    run_settings,
)
from teeter.bench.analysis.run_comparison import RunComparison
from teeter.bench.analysis.table_formats import format_number
from teeter.bench.experiments import Setting, setting_named

__all__ = [
    "FIGURE_12",
    "FIGURE_13",
    "FIGURE_14",
    "FIGURE_16",
    "measure_ablation",
    "run_ablations",
    "run_small_batches",
]

PARTS = ("ldm", "seeding-cosine", "seeding-l2", "ldm-fass", "ldm-cluster-margin")
"""The smallest LDM alone, seeding alone, and LDM with other ways to spread the picks."""

SEEDED = ("entropy-s", "margin-s")
"""Other measures of uncertainty with the seeding of LDM-S."""

ABLATIONS = (LDM_S, "random", *PARTS, *SEEDED, LAPLACE)
"""The strategies that run together."""

COMPARED = (LDM_S, "random", "entropy", "margin", "coreset", "badge")
SMALL_BATCH_STRATEGIES = (*COMPARED, "batchbald")
LARGE_BATCH_STRATEGIES = (*COMPARED, "cluster-margin")

SMALL_BATCHES = {1: 70, 10: 220, 40: 420}
"""The number of labels at the end of a run, by batch size."""
QUICK_SMALL_BATCHES = {1: 40, 10: 90, 40: 140}

PAPER_DATASETS = "The paper shows MNIST to 1,020 labels, CIFAR10 and CIFAR100."


# The runs


def make_ablation_settings(config: StudyConfig) -> list[Setting]:
    """Return a setting with all ablations for each dataset."""
    settings: list[Setting]
    if config.quick:
        settings = [make_digits_setting("ablations", repetitions=8, final=160)]
    else:
        letters = replace(setting_named("openml-6"), name="openml-6-ablations")
        digits = replace(setting_named("mnist"), name="mnist-ablations", final=420, validation=1000)
        images = replace(
            setting_named("cifar10"),
            name="cifar10-ablations",
            final=2600,
            validation=1000,
            repetitions=3,
            # torch's constants: the run is older than those of Keras in the setting.
            alpha=0.99,
            epsilon=1e-8,
        )
        settings = [letters, digits, images]

    return [_add_ablations(setting) for setting in settings]


def _add_ablations(setting: Setting) -> LaplaceSetting:
    """Return a setting with the strategies of all ablations, also the one of the open question."""
    values = {value.name: getattr(setting, value.name) for value in fields(setting)}
    # It has other strategies and labels than the paper's setting, so the numbers do not compare.
    values["paper"] = None
    values["strategies"] = ABLATIONS
    return LaplaceSetting(**values)


def run_ablations(config: StudyConfig) -> list[RunComparison]:
    """Return the runs of the ablations, which several items share."""
    return run_settings(config, make_ablation_settings(config))


def make_small_batch_settings(config: StudyConfig) -> list[Setting]:
    """Return a setting for each small batch size."""
    if config.quick:
        # The joint entropy of BatchBALD is estimated from fewer configurations of labels.
        quick_options = {"batchbald": {"configurations": 2000}}
        return [
            make_digits_setting(
                f"batch-{size}",
                query=size,
                final=final,
                pool=150,
                epochs=40,
                strategies=SMALL_BATCH_STRATEGIES,
                options=quick_options,
            )
            for size, final in QUICK_SMALL_BATCHES.items()
        ]

    # With 1,000 rows for validation, the network of the best epoch is used, not of the last.
    base = replace(
        setting_named("mnist"),
        validation=1000,
        paper=None,
        strategies=SMALL_BATCH_STRATEGIES,
        options={"batchbald": {"configurations": 10_000}},
    )
    return [
        replace(base, name=f"mnist-batch-{size}", query=size, final=final)
        for size, final in SMALL_BATCHES.items()
    ]


def run_small_batches(config: StudyConfig) -> list[RunComparison]:
    """Return the runs with small batches, which two items share."""
    return run_settings(config, make_small_batch_settings(config))


def make_large_batch_settings(config: StudyConfig) -> list[Setting]:
    """Return settings with batches that are a large part of the pool."""
    if config.quick:
        digits = make_digits_setting(
            "batch-large",
            initial=100,
            query=200,
            final=700,
            pool=None,
            strategies=LARGE_BATCH_STRATEGIES,
        )
        return [digits]

    # Without a sample of the pool, all unlabelled rows are candidates.
    letters = replace(
        setting_named("openml-6"),
        name="openml-6-batch-2000",
        initial=2000,
        query=2000,
        final=10_000,
        pool=None,
        paper=None,
        strategies=LARGE_BATCH_STRATEGIES,
    )
    images = replace(
        setting_named("mnist"),
        name="mnist-batch-5000",
        initial=5000,
        query=5000,
        final=20_000,
        pool=None,
        validation=1000,
        epochs=15,
        repetitions=3,
        paper=None,
        strategies=LARGE_BATCH_STRATEGIES,
    )
    return [letters, images]


# Figures 12 and 16


def measure_ablation(config: StudyConfig, strategy: str, baselines: Sequence[str]) -> Measurement:
    """Run the ablations, and check that a strategy is significantly ahead of baselines.

    Args:
        config: the size, the seed and the folders.
        strategy: one of ``ABLATIONS``.
        baselines: the ablations that it is claimed to be better than.
    """
    runs = run_ablations(config)
    measurement = judge_leads(collect_accuracies(runs), strategy, baselines)
    return replace(
        measurement,
        numbers=collect_curves(runs, (strategy, *baselines)),
        notes=(*describe_runs(runs), PAPER_DATASETS),
    )


def measure_parts(config: StudyConfig) -> Measurement:
    """Compare LDM-S with its parts alone and with other ways to spread the picks."""
    return measure_ablation(config, LDM_S, PARTS)


def measure_seeded_uncertainties(config: StudyConfig) -> Measurement:
    """Compare LDM-S with other measures of uncertainty under the same seeding."""
    return measure_ablation(config, LDM_S, SEEDED)


FIGURE_12 = Item(
    name="figure-12",
    title="Both LDM and seeding are needed",
    location="appendix, figure 12",
    claim="LDM-S is more accurate than the smallest LDM alone, than seeding alone by cosine or "
    "Euclidean distance, and than LDM spread by FASS or by Cluster-Margin.",
    test="On each dataset the mean accuracy of LDM-S is significantly above that of each of the "
    "five (paired t-test over repetitions, 5 %). Holds if so in all comparisons, in part if in "
    "some.",
    compute=measure_parts,
    draw=draw_runs,
)

FIGURE_16 = Item(
    name="figure-16",
    title="LDM against entropy and margin with the same seeding",
    location="appendix, figure 16",
    claim="Even when Entropy and Margin are given the same weighted seeding, LDM-S is more "
    "accurate.",
    test="On each dataset the mean accuracy of LDM-S is significantly above that of each of the "
    "two (paired t-test over repetitions, 5 %). Holds if so in all comparisons, in part if in "
    "some.",
    compute=measure_seeded_uncertainties,
    draw=draw_runs,
)


# Figures 13 and 14


def measure_small_batches(config: StudyConfig) -> Measurement:
    """Compare strategies at batch sizes of 1, 10 and 40."""
    return _measure_batch_sizes(run_small_batches(config))


def measure_large_batches(config: StudyConfig) -> Measurement:
    """Compare strategies at large batch sizes."""
    runs = run_settings(config, make_large_batch_settings(config))
    measurement = _measure_batch_sizes(runs)
    note = (
        "The paper's batches are 5,000 rows of CIFAR10, SVHN and CIFAR100; these are other "
        "datasets."
    )
    return replace(measurement, notes=(*measurement.notes, note))


def _measure_batch_sizes(runs: Sequence[RunComparison]) -> Measurement:
    measurement = judge_batch_sizes(collect_accuracies(runs))
    return replace(measurement, numbers=collect_curves(runs), notes=describe_runs(runs))


def judge_batch_sizes(runs: Accuracies) -> Measurement:
    """Check at each batch size that LDM-S is ahead of Random and behind no strategy.

    Args:
        runs: the accuracies by run, which has one batch size, and by strategy.
    """
    unbeaten, leads = find_unbeaten(runs)

    checks = {}
    phrases = []
    for run, gains in leads.items():
        over_random = gains["random"]
        checks[run] = unbeaten[run] and is_significantly_ahead(over_random)

        rival = find_closest_rival(gains)
        phrases.append(
            f"{run} {format_number(over_random.mean, '+.2f')} over Random and "
            f"{format_number(gains[rival].mean, '+.2f')} over the best of the others, {rival} "
            f"({format_p(gains[rival].p)})"
        )

    return Measurement(
        numbers={},
        verdict=decide_verdict(checks),
        reason=f"The lead of LDM-S, in points: {'; '.join(phrases)}.",
        tables=(make_leads_table(LDM_S, leads),),
    )


BATCH_SIZES_TEST = (
    "At each size the mean accuracy of LDM-S is significantly above Random's, and no strategy is "
    "significantly above it (paired t-tests over repetitions, 5 %). Holds if so at all sizes, in "
    "part if at some."
)

FIGURE_13 = Item(
    name="figure-13",
    title="Small batches: 1, 10 and 40",
    location="appendix, figure 13",
    claim="LDM-S does well whether it picks one, ten or forty rows at a time, also in comparison "
    "with BatchBALD.",
    test=BATCH_SIZES_TEST,
    compute=measure_small_batches,
    draw=draw_runs,
)

FIGURE_14 = Item(
    name="figure-14",
    title="Large batches",
    location="appendix, figure 14",
    claim="LDM-S also does well with batches of thousands of rows, also in comparison with "
    "Cluster-Margin.",
    test=BATCH_SIZES_TEST,
    compute=measure_large_batches,
    draw=draw_runs,
)
