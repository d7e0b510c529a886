"""What runs show, in plain sentences: the best strategy, what LDM-S gains and saves, the paper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from teeter.bench.analysis.plots import HIGHLIGHTED
from teeter.bench.analysis.run_comparison import BASELINE, RunComparison
from teeter.bench.analysis.statistics import (
    NEGLIGIBLE,
    SIGNIFICANCE_LEVEL,
    FloatArray,
    Gain,
    penalty_matrix,
    performance_profile,
)
from teeter.bench.analysis.table_formats import format_number, format_p_value

__all__ = ["cross_run_findings", "display_name", "run_findings"]


def display_name(strategy: str) -> str:
    """Return the name of a strategy as it stands in a sentence."""
    return {HIGHLIGHTED: "LDM-S", BASELINE: "Random"}.get(strategy, strategy)


def run_findings(comparison: RunComparison) -> tuple[str, ...]:
    """Return the findings of a run, a sentence each; none if nothing can be compared."""
    if not comparison.comparable:
        return ()

    return (
        *_best_strategy(comparison),
        *_ldm_s_beside_the_best(comparison),
        *_labels_saved(comparison),
        *_comparison_with_paper(comparison),
    )


def _best_strategy(comparison: RunComparison) -> Iterator[str]:
    """Name the most accurate strategy, or all that tie for it, and its gain over Random."""
    # Strategies are sorted: the first is the most accurate.
    best = next(iter(comparison.accuracy))
    best_accuracy = comparison.mean_accuracy(best)
    count = len(comparison.accuracy)

    if count == 1:
        yield (
            f"On {comparison.name}, only {display_name(best)} was run. Its mean accuracy over "
            f"the rounds is {best_accuracy:.1f} %."
        )
        return

    tied = []
    for name in comparison.accuracy:
        difference = comparison.mean_accuracy(name) - best_accuracy
        if abs(difference) < NEGLIGIBLE:
            tied.append(display_name(name))

    if len(tied) > 1:
        names = f"{', '.join(tied[:-1])} and {tied[-1]}"
        yield (
            f"On {comparison.name}, {names} tied as the most accurate of {count} strategies, with "
            f"a mean accuracy of {best_accuracy:.1f} % over the rounds."
        )
        return

    sentence = (
        f"On {comparison.name}, {display_name(best)} was the most accurate of {count} "
        f"strategies, with a mean accuracy of {best_accuracy:.1f} % over the rounds"
    )

    # Random itself has no gain over Random, and neither has anything if Random was not run.
    gain = comparison.gains.get(best)
    if gain is not None:
        test = _spread_and_test(gain, comparison)
        sentence += f", {_signed_points(gain)} relative to Random{test}"
    yield sentence + "."


def _ldm_s_beside_the_best(comparison: RunComparison) -> Iterator[str]:
    """Compare LDM-S with the best other strategy."""
    if HIGHLIGHTED not in comparison.accuracy or len(comparison.accuracy) == 1:
        return

    # The runner-up if LDM-S is the best, else the best itself.
    best, second, *_ = comparison.accuracy
    rival = second if best == HIGHLIGHTED else best

    difference = comparison.gains_over_ldm_s[rival]
    distance = abs(difference.mean)
    if distance < NEGLIGIBLE:
        return

    verdict = _verdict(difference, comparison)
    points = f"{distance:.2f} points behind{verdict}"

    if best == HIGHLIGHTED:
        # If Random is the only other strategy, the first sentence has said it all.
        if rival != BASELINE or len(comparison.accuracy) > 2:
            yield f"Next comes {display_name(rival)}, {points}."
        return

    gain = comparison.gains.get(HIGHLIGHTED)
    if gain is None or best == BASELINE:
        yield f"LDM-S is {points}."
    else:
        yield (
            f"LDM-S is {points}; its gain over Random is {_signed_points(gain)}"
            f"{_spread_and_test(gain, comparison)}."
        )


def _labels_saved(comparison: RunComparison) -> Iterator[str]:
    """Say how many labels LDM-S needs for Random's final accuracy."""
    saving = comparison.savings.get(HIGHLIGHTED)
    if saving is None:
        return

    target_percent = 100 * saving.target
    target = f"Random's final accuracy of {target_percent:.1f} %"
    if saving.labels is None or saving.saved is None:
        yield f"LDM-S did not reach {target}."
        return

    if saving.saved <= 0:
        yield (
            f"LDM-S saved no labels: it reached {target} with {saving.labels:,.0f} labels, Random "
            f"with {saving.baseline:,.0f}."
        )
        return

    saved_percent = 100 * saving.saved / saving.baseline
    saved_labels = f"{saving.saved:,.0f} labels saved"
    details = f"{saved_labels}, {saved_percent:.0f} %"

    # Missing for a single repetition, and if LDM-S misses the target in one of several.
    if saving.spread is not None and saving.p is not None:
        mean, deviation = saving.spread
        mean_text = format_number(mean, ",.0f")
        deviation_text = format_number(deviation, ",.0f")
        verdict = "significant" if saving.p < SIGNIFICANCE_LEVEL else "not significant"
        p = format_p_value(saving.p, in_sentence=True)
        details += f"; per repetition {mean_text} ± {deviation_text}, {verdict}, {p}"

    yield (
        f"LDM-S reached {target} with {saving.labels:,.0f} labels instead of "
        f"{saving.baseline:,.0f} ({details})."
    )


def _comparison_with_paper(comparison: RunComparison) -> Iterator[str]:
    """Set the gain of LDM-S, and the order of the strategies, beside the paper's."""
    printed = comparison.paper_deltas.get(HIGHLIGHTED)
    gain = comparison.gains.get(HIGHLIGHTED)
    if printed is None or gain is None:
        return

    printed_mean = format_number(printed.mean, "+.2f")
    our_mean = format_number(gain.mean, "+.2f")
    difference = format_number(gain.mean - printed.mean, "+.2f")
    sentence = (
        f"The paper reports {printed_mean} ± {printed.deviation:.2f} points over Random for "
        f"LDM-S; this run measured {our_mean}, a difference of {difference}."
    )

    correlation = comparison.paper_rank_correlation
    if correlation is not None:
        sentence += (
            f" The gains of {correlation.count} strategies have a rank correlation of "
            f"{format_number(correlation.rho)} with those in the paper."
        )
    yield sentence


def cross_run_findings(
    comparisons: Sequence[RunComparison], datasets: Sequence[Mapping[str, FloatArray]]
) -> tuple[str, ...]:
    """Return the findings over several runs, a sentence each.

    Args:
        comparisons: the comparable runs.
        datasets: their accuracies (R, T), of the strategies that all of them have.
    """
    # A single run has findings of its own, and a single strategy nothing to be compared with.
    if len(datasets) < 2 or len(datasets[0]) < 2:
        return ()

    findings = [_closest_to_best(datasets)]
    if all(comparison.repetitions > 1 for comparison in comparisons):
        findings.append(_least_beaten(datasets))

    return (
        *findings,
        *_ldm_s_over_runs(comparisons),
        *_paper_over_runs(comparisons),
    )


def _closest_to_best(datasets: Sequence[Mapping[str, FloatArray]]) -> str:
    """Name the strategies with the two largest areas under their performance profiles."""
    profiles = performance_profile(datasets)
    areas = {name: profile.area() for name, profile in profiles.items()}
    ranked = sorted(areas, key=lambda name: -areas[name])
    best = ranked[0]
    second = ranked[1]

    return (
        f"Over {len(datasets)} runs, {display_name(best)} stays closest to the best accuracy: the "
        f"area under its performance profile is {areas[best]:.2f} of 10; next comes "
        f"{display_name(second)} with {areas[second]:.2f}."
    )


def _least_beaten(datasets: Sequence[Mapping[str, FloatArray]]) -> str:
    """Name the strategies with the smallest mean in the penalty matrix."""
    penalties = penalty_matrix(datasets)
    column_means = penalties.column_means.tolist()
    means = dict(zip(penalties.strategies, column_means, strict=True))

    # Strategies often tie, mostly at 0: name all of them.
    smallest = min(means.values())
    least_beaten = [name for name in means if means[name] == smallest]
    listed = ", ".join(display_name(name) for name in least_beaten)
    sentence = f"Beaten least often: {listed} (mean penalty {smallest:.2f})"

    rest = [name for name in means if name not in least_beaten]
    if rest:
        second = min(rest, key=lambda name: means[name])
        second_mean = means[second]
        sentence += f"; next comes {display_name(second)} ({second_mean:.2f})"

    return sentence + "."


def _ldm_s_over_runs(comparisons: Sequence[RunComparison]) -> Iterator[str]:
    """Count the runs in which LDM-S beats Random and saves labels."""
    with_ldm_s = [comparison for comparison in comparisons if HIGHLIGHTED in comparison.gains]
    if not with_ldm_s:
        return

    ahead = 0
    significantly_ahead = 0
    saved_percents = []

    for comparison in with_ldm_s:
        gain = comparison.gains[HIGHLIGHTED]
        if gain.mean > 0:
            ahead += 1
            # A single repetition has p = 1 and is never significant.
            if gain.significant:
                significantly_ahead += 1

        saving = comparison.savings[HIGHLIGHTED]
        if saving.saved is not None and saving.saved > 0:
            saved_percents.append(100 * saving.saved / saving.baseline)

    yield (
        f"LDM-S is more accurate than Random in {ahead} of {len(with_ldm_s)} runs, significantly "
        f"so in {significantly_ahead}."
    )

    if saved_percents:
        span = f"{min(saved_percents):.0f} %"
        if len(saved_percents) > 1:
            span += f" to {max(saved_percents):.0f} %"
        yield (
            f"In {len(saved_percents)} of {len(with_ldm_s)} runs, LDM-S reached Random's final "
            f"accuracy with fewer labels ({span} saved)."
        )


def _paper_over_runs(comparisons: Sequence[RunComparison]) -> Iterator[str]:
    """Give the range of the differences between our gains of LDM-S and the paper's."""
    differences = []
    for comparison in comparisons:
        gain = comparison.gains.get(HIGHLIGHTED)
        printed = comparison.paper_deltas.get(HIGHLIGHTED)
        if gain is not None and printed is not None:
            differences.append(gain.mean - printed.mean)

    if len(differences) > 1:
        smallest = format_number(min(differences), "+.2f")
        largest = format_number(max(differences), "+.2f")
        yield (
            f"In {len(differences)} runs of the paper's settings, the gain of LDM-S over Random "
            f"differs from the paper's by {smallest} to {largest} points."
        )


def _signed_points(gain: Gain) -> str:
    return f"{format_number(gain.mean, '+.2f')} points"


def _verdict(difference: Gain, comparison: RunComparison) -> str:
    """Return whether a difference is significant, to follow it; nothing without a test."""
    if comparison.repetitions < 2:
        return ""

    p = format_p_value(difference.p, in_sentence=True)
    if difference.significant:
        return f", a significant difference ({p})"

    return f", which is not significant ({p})"


def _spread_and_test(gain: Gain, comparison: RunComparison) -> str:
    """Return the spread and the test of a gain in brackets; nothing without a test."""
    if comparison.repetitions < 2:
        return ""

    verdict = "significant" if gain.significant else "not significant"
    p = format_p_value(gain.p, in_sentence=True)
    spread = f"± {gain.deviation:.2f} over {comparison.repetitions} repetitions"
    return f" ({spread}; {verdict}, {p})"
