"""What was found, in plain sentences: who was best, what LDM-S gains and saves, and how that compares to the paper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from teeter.analysis.cross_dataset import penalty_matrix, performance_profile
from teeter.analysis.plot_style import HIGHLIGHTED
from teeter.analysis.run_comparison import BASELINE, Array, RunComparison
from teeter.analysis.statistics import EQUAL, Gain
from teeter.analysis.table_formats import format_number

__all__ = ["cross_run_findings", "display_name", "run_findings"]


def display_name(strategy: str) -> str:
    """Return a strategy's name as it stands in a sentence."""
    return {HIGHLIGHTED: "LDM-S", BASELINE: "Random"}.get(strategy, strategy)


def run_findings(one: RunComparison) -> tuple[str, ...]:
    """Return what a run says, in a few sentences; none where nothing can be compared."""
    if not one.comparable:
        return ()
    return tuple(
        sentence
        for part in (_who_was_best, _first_and_others, _labels, _paper)
        for sentence in part(one)
    )


def _who_was_best(one: RunComparison) -> Iterator[str]:
    best = next(iter(one.accuracy))
    if len(one.accuracy) == 1:
        yield f"On {one.name} there is one strategy, {display_name(best)}: {one.mean(best):.1f} % right over the rounds."
        return
    level = [name for name in one.accuracy if abs(one.mean(name) - one.mean(best)) < EQUAL]
    if len(level) > 1:
        yield (
            f"On {one.name}, {', '.join(map(display_name, level))} were equally accurate, and no strategy of "
            f"{len(one.accuracy)} more so: {one.mean(best):.1f} % over the rounds."
        )
        return
    gain = one.gains.get(best)
    against = (
        ""
        if gain is None
        else f", {format_number(gain.mean, '+.2f')} points against Random{_in_brackets(gain, one)}"
    )
    yield (
        f"On {one.name}, {display_name(best)} was the most accurate of {len(one.accuracy)} strategies: "
        f"{one.mean(best):.1f} % over the rounds{against}."
    )


def _first_and_others(one: RunComparison) -> Iterator[str]:
    if HIGHLIGHTED not in one.accuracy or len(one.accuracy) == 1:
        return
    best = next(iter(one.accuracy))
    other = next(name for name in one.accuracy if name != HIGHLIGHTED)
    apart = one.losses[other]
    if abs(apart.mean) < EQUAL:
        return
    if best == HIGHLIGHTED:
        if other != BASELINE or len(one.accuracy) > 2:
            yield f"Next comes {display_name(other)}, {_points(apart)} behind{_judged(apart, one)}."
        return
    gain = one.gains.get(HIGHLIGHTED)
    behind = f"LDM-S is {_points(apart)} behind{_judged(apart, one)}"
    if gain is None or best == BASELINE:
        yield f"{behind}."
    else:
        yield f"{behind}; against Random it is {format_number(gain.mean, '+.2f')} points{_in_brackets(gain, one)}."


def _labels(one: RunComparison) -> Iterator[str]:
    saving = one.savings.get(HIGHLIGHTED)
    if saving is None:
        return
    target = f"Random's last accuracy of {100 * saving.target:.1f} %"
    if saving.labels is None or saving.saved is None:
        yield f"LDM-S did not come to {target}."
        return
    each = ""
    if saving.spread is not None and saving.p is not None:
        mean, deviation = (format_number(value, ",.0f") for value in saving.spread)
        sure = "significant" if saving.p < 0.05 else "not significant"
        each = f"; by repetition {mean} ± {deviation}, {sure}, {_p(saving.p)}"
    if saving.saved > 0:
        worth = (
            f"{saving.saved:,.0f} labels saved, {100 * saving.saved / saving.baseline:.0f} %{each}"
        )
        yield f"LDM-S came to {target} with {saving.labels:,.0f} labels instead of {saving.baseline:,.0f} ({worth})."
    else:
        needed = f"{saving.labels:,.0f} labels, Random with {saving.baseline:,.0f}"
        yield f"LDM-S saved no labels: it came to {target} with {needed}."


def _paper(one: RunComparison) -> Iterator[str]:
    printed, gain = one.paper.get(HIGHLIGHTED), one.gains.get(HIGHLIGHTED)
    if printed is None or gain is None:
        return
    said = (
        f"The paper reports {format_number(printed.mean, '+.2f')} ± {printed.deviation:.2f} points over Random for LDM-S; "
        f"ours is {format_number(gain.mean, '+.2f')}, {format_number(gain.mean - printed.mean, '+.2f')} from it"
    )
    alike = one.agreement
    if alike is not None:
        said += (
            f". The gains of {alike.count} strategies are ordered as the paper's with a rank correlation of "
            f"{format_number(alike.rho)}"
        )
    yield said + "."


def cross_run_findings(
    runs: Sequence[RunComparison], datasets: Sequence[dict[str, Array]]
) -> tuple[str, ...]:
    """Return what several runs say together."""
    if len(datasets) < 2 or len(datasets[0]) < 2:
        return ()
    areas = {name: profile.area() for name, profile in performance_profile(datasets).items()}
    best, following, *_ = sorted(areas, key=lambda name: -areas[name])
    said = [
        f"Over {len(datasets)} runs, {display_name(best)} stays closest to the best accuracy: the area under its performance "
        f"profile is {areas[best]:.2f} of 10; next comes {display_name(following)} with {areas[following]:.2f}."
    ]
    if all(one.repetitions > 1 for one in runs):
        penalties = penalty_matrix(datasets)
        means = dict(zip(penalties.strategies, penalties.column_means.tolist(), strict=True))
        least = [name for name in means if means[name] == min(means.values())]
        others = [name for name in means if name not in least]
        then = min(others, key=lambda name: means[name], default=None)
        after = "" if then is None else f"; next comes {display_name(then)} ({means[then]:.2f})"
        said.append(
            f"Beaten least by the others: {', '.join(map(display_name, least))} (mean penalty {means[least[0]]:.2f}){after}."
        )
    return (*said, *_first_in_all(runs), *_paper_in_all(runs))


def _first_in_all(runs: Sequence[RunComparison]) -> Iterator[str]:
    ours = [one for one in runs if HIGHLIGHTED in one.gains]
    if not ours:
        return
    ahead = sum(one.gains[HIGHLIGHTED].mean > 0 for one in ours)
    sure = sum(
        one.gains[HIGHLIGHTED].mean > 0 and _tested(one.gains[HIGHLIGHTED], one) for one in ours
    )
    yield f"LDM-S is more accurate than Random in {ahead} of {len(ours)} runs, significantly so in {sure}."
    savings = [one.savings[HIGHLIGHTED] for one in ours]
    shares = [
        saving.saved / saving.baseline
        for saving in savings
        if saving.saved is not None and saving.saved > 0
    ]
    if shares:
        span = (
            f"{100 * min(shares):.0f} % to {100 * max(shares):.0f} %"
            if len(shares) > 1
            else f"{100 * shares[0]:.0f} %"
        )
        yield f"To be as accurate as Random at its end it saved labels in {len(shares)} of {len(ours)} runs: {span}."


def _paper_in_all(runs: Sequence[RunComparison]) -> Iterator[str]:
    apart = [
        one.gains[HIGHLIGHTED].mean - one.paper[HIGHLIGHTED].mean
        for one in runs
        if HIGHLIGHTED in one.gains and HIGHLIGHTED in one.paper
    ]
    if len(apart) > 1:
        yield (
            f"Against the paper, in {len(apart)} runs, its gain over Random differs by "
            f"{format_number(min(apart), '+.2f')} to {format_number(max(apart), '+.2f')} points."
        )


def _points(gain: Gain) -> str:
    return f"{abs(gain.mean):.2f} points"


def _tested(gain: Gain, one: RunComparison) -> bool:
    return one.repetitions > 1 and gain.significant


def _judged(gain: Gain, one: RunComparison) -> str:
    if one.repetitions < 2:
        return ""
    return (
        f", a significant difference ({_p(gain.p)})"
        if gain.significant
        else f", which is not significant ({_p(gain.p)})"
    )


def _in_brackets(gain: Gain, one: RunComparison) -> str:
    if one.repetitions < 2:
        return ""
    spread = f"± {gain.deviation:.2f} over {one.repetitions} repetitions"
    return f" ({spread}; {'significant' if gain.significant else 'not significant'}, {_p(gain.p)})"


def _p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
