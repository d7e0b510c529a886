"""What runs show, in plain sentences: the best strategy, what LDM-S gains and saves, the paper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from teeter.analysis.cross_dataset import penalty_matrix, performance_profile
from teeter.analysis.plot_style import HIGHLIGHTED
from teeter.analysis.run_comparison import BASELINE, RunComparison
from teeter.analysis.statistics import NEGLIGIBLE, SIGNIFICANCE_LEVEL, FloatArray, Gain
from teeter.analysis.table_formats import format_number, format_p_value

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
    # Strategies are sorted: the first is the most accurate.
    best = next(iter(comparison.accuracy))
    best_accuracy = comparison.mean_accuracy(best)
    count = len(comparison.accuracy)

    if count == 1:
        yield (
            f"On {comparison.name} there is one strategy, {display_name(best)}: its accuracy is "
            f"{best_accuracy:.1f} % over the rounds."
        )
        return

    tied = [
        name
        for name in comparison.accuracy
        if abs(comparison.mean_accuracy(name) - best_accuracy) < NEGLIGIBLE
    ]
    if len(tied) > 1:
        yield (
            f"On {comparison.name}, {', '.join(display_name(name) for name in tied)} were equally "
            f"accurate, and the best of {count} strategies: {best_accuracy:.1f} % over the rounds."
        )
        return

    sentence = (
        f"On {comparison.name}, {display_name(best)} was the most accurate of {count} strategies: "
        f"{best_accuracy:.1f} % over the rounds"
    )
    gain = comparison.gains.get(best)
    if gain is not None:
        sentence += f", {_signed_points(gain)} against Random{_spread_and_test(gain, comparison)}"
    yield sentence + "."


def _ldm_s_beside_the_best(comparison: RunComparison) -> Iterator[str]:
    """Compare LDM-S with the best other strategy."""
    if HIGHLIGHTED not in comparison.accuracy or len(comparison.accuracy) == 1:
        return

    best = next(iter(comparison.accuracy))
    # The runner-up if LDM-S is the best, else the best itself.
    rival = next(name for name in comparison.accuracy if name != HIGHLIGHTED)
    difference = comparison.gains_over_ldm_s[rival]
    points = f"{abs(difference.mean):.2f} points behind{_verdict(difference, comparison)}"

    if abs(difference.mean) < NEGLIGIBLE:
        return

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
            f"LDM-S is {points}; against Random it is {_signed_points(gain)}"
            f"{_spread_and_test(gain, comparison)}."
        )


def _labels_saved(comparison: RunComparison) -> Iterator[str]:
    saving = comparison.savings.get(HIGHLIGHTED)
    if saving is None:
        return

    target = f"Random's final accuracy of {100 * saving.target:.1f} %"
    if saving.labels is None or saving.saved is None:
        yield f"LDM-S did not reach {target}."
        return

    if saving.saved <= 0:
        yield (
            f"LDM-S saved no labels: it reached {target} with {saving.labels:,.0f} labels, Random "
            f"with {saving.baseline:,.0f}."
        )
        return

    details = f"{saving.saved:,.0f} labels saved, {100 * saving.saved / saving.baseline:.0f} %"
    if saving.spread is not None and saving.p is not None:
        mean, deviation = (format_number(value, ",.0f") for value in saving.spread)
        verdict = "significant" if saving.p < SIGNIFICANCE_LEVEL else "not significant"
        details += (
            f"; by repetition {mean} ± {deviation}, {verdict}, "
            f"{format_p_value(saving.p, in_sentence=True)}"
        )

    yield (
        f"LDM-S reached {target} with {saving.labels:,.0f} labels instead of "
        f"{saving.baseline:,.0f} ({details})."
    )


def _comparison_with_paper(comparison: RunComparison) -> Iterator[str]:
    printed = comparison.paper_deltas.get(HIGHLIGHTED)
    gain = comparison.gains.get(HIGHLIGHTED)
    if printed is None or gain is None:
        return

    sentence = (
        f"The paper reports {format_number(printed.mean, '+.2f')} ± {printed.deviation:.2f} points "
        f"over Random for LDM-S; ours is {format_number(gain.mean, '+.2f')}, a difference of "
        f"{format_number(gain.mean - printed.mean, '+.2f')}."
    )
    correlation = comparison.paper_rank_correlation
    if correlation is not None:
        sentence += (
            f" The gains of {correlation.count} strategies are ordered as in the paper with a rank "
            f"correlation of {format_number(correlation.rho)}."
        )
    yield sentence


def cross_run_findings(
    comparisons: Sequence[RunComparison], datasets: Sequence[Mapping[str, FloatArray]]
) -> tuple[str, ...]:
    """Return the findings over several runs, a sentence each.

    Args:
        comparisons: The comparable runs.
        datasets: Their accuracies (R, T), of the strategies that all of them have.
    """
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
    profiles = performance_profile(datasets)
    areas = {name: profile.area() for name, profile in profiles.items()}
    best, second, *_ = sorted(areas, key=lambda name: -areas[name])

    return (
        f"Over {len(datasets)} runs, {display_name(best)} stays closest to the best accuracy: the "
        f"area under its performance profile is {areas[best]:.2f} of 10; next comes "
        f"{display_name(second)} with {areas[second]:.2f}."
    )


def _least_beaten(datasets: Sequence[Mapping[str, FloatArray]]) -> str:
    penalties = penalty_matrix(datasets)
    means = dict(zip(penalties.strategies, penalties.column_means.tolist(), strict=True))
    # Strategies often tie, mostly at 0: name all of them.
    smallest = min(means.values())
    least_beaten = [name for name in means if means[name] == smallest]
    sentence = (
        f"Beaten least often: {', '.join(display_name(name) for name in least_beaten)} "
        f"(mean penalty {smallest:.2f})"
    )

    rest = [name for name in means if name not in least_beaten]
    if rest:
        second = min(rest, key=lambda name: means[name])
        sentence += f"; next comes {display_name(second)} ({means[second]:.2f})"

    return sentence + "."


def _ldm_s_over_runs(comparisons: Sequence[RunComparison]) -> Iterator[str]:
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
            if comparison.repetitions > 1 and gain.significant:
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
            f"On the way to Random's final accuracy it saved labels in {len(saved_percents)} of "
            f"{len(with_ldm_s)} runs: {span}."
        )


def _paper_over_runs(comparisons: Sequence[RunComparison]) -> Iterator[str]:
    differences = [
        comparison.gains[HIGHLIGHTED].mean - comparison.paper_deltas[HIGHLIGHTED].mean
        for comparison in comparisons
        if HIGHLIGHTED in comparison.gains and HIGHLIGHTED in comparison.paper_deltas
    ]

    if len(differences) > 1:
        yield (
            f"In {len(differences)} runs of the paper's settings, its gain over Random differs "
            f"from the paper's by {format_number(min(differences), '+.2f')} to "
            f"{format_number(max(differences), '+.2f')} points."
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
    return (
        f" (± {gain.deviation:.2f} over {comparison.repetitions} repetitions; {verdict}, "
        f"{format_p_value(gain.p, in_sentence=True)})"
    )
