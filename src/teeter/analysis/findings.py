"""What was found, in plain sentences: who was best, what LDM-S gains and saves, and how that compares to the paper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from teeter.analysis.across import penalty_matrix, performance_profile
from teeter.analysis.compared import BASELINE, Array, Compared
from teeter.analysis.comparison import EQUAL, Gain
from teeter.analysis.drawing import FIRST
from teeter.analysis.tables import number

__all__ = ["found_across", "found_in", "spoken"]


def spoken(strategy: str) -> str:
    """Return a strategy's name as it stands in a sentence."""
    return {FIRST: "LDM-S", BASELINE: "Random"}.get(strategy, strategy)


def found_in(one: Compared) -> tuple[str, ...]:
    """Return what a run says, in a few sentences; none where nothing can be compared."""
    if not one.comparable:
        return ()
    return tuple(sentence for part in (_who_was_best, _first_and_others, _labels, _paper) for sentence in part(one))


def _who_was_best(one: Compared) -> Iterator[str]:
    best = next(iter(one.accuracy))
    if len(one.accuracy) == 1:
        yield f"On {one.name} there is one strategy, {spoken(best)}: {one.mean(best):.1f} % right over the rounds."
        return
    level = [name for name in one.accuracy if abs(one.mean(name) - one.mean(best)) < EQUAL]
    if len(level) > 1:
        yield (
            f"On {one.name}, {', '.join(map(spoken, level))} were equally accurate, and no strategy of "
            f"{len(one.accuracy)} more so: {one.mean(best):.1f} % over the rounds."
        )
        return
    gain = one.gains.get(best)
    against = "" if gain is None else f", {number(gain.mean, '+.2f')} points against Random{_in_brackets(gain, one)}"
    yield (
        f"On {one.name}, {spoken(best)} was the most accurate of {len(one.accuracy)} strategies: "
        f"{one.mean(best):.1f} % over the rounds{against}."
    )


def _first_and_others(one: Compared) -> Iterator[str]:
    if FIRST not in one.accuracy or len(one.accuracy) == 1:
        return
    best = next(iter(one.accuracy))
    other = next(name for name in one.accuracy if name != FIRST)
    apart = one.losses[other]
    if abs(apart.mean) < EQUAL:
        return
    if best == FIRST:
        if other != BASELINE or len(one.accuracy) > 2:
            yield f"Next comes {spoken(other)}, {_points(apart)} behind{_judged(apart, one)}."
        return
    gain = one.gains.get(FIRST)
    behind = f"LDM-S is {_points(apart)} behind{_judged(apart, one)}"
    if gain is None or best == BASELINE:
        yield f"{behind}."
    else:
        yield f"{behind}; against Random it is {number(gain.mean, '+.2f')} points{_in_brackets(gain, one)}."


def _labels(one: Compared) -> Iterator[str]:
    saving = one.savings.get(FIRST)
    if saving is None:
        return
    target = f"Random's last accuracy of {100 * saving.target:.1f} %"
    if saving.labels is None or saving.saved is None:
        yield f"LDM-S did not come to {target}."
        return
    each = ""
    if saving.spread is not None and saving.p is not None:
        mean, deviation = (number(value, ",.0f") for value in saving.spread)
        sure = "significant" if saving.p < 0.05 else "not significant"
        each = f"; by repetition {mean} ± {deviation}, {sure}, {_p(saving.p)}"
    if saving.saved > 0:
        worth = f"{saving.saved:,.0f} labels saved, {100 * saving.saved / saving.baseline:.0f} %{each}"
        yield f"LDM-S came to {target} with {saving.labels:,.0f} labels instead of {saving.baseline:,.0f} ({worth})."
    else:
        needed = f"{saving.labels:,.0f} labels, Random with {saving.baseline:,.0f}"
        yield f"LDM-S saved no labels: it came to {target} with {needed}."


def _paper(one: Compared) -> Iterator[str]:
    printed, gain = one.paper.get(FIRST), one.gains.get(FIRST)
    if printed is None or gain is None:
        return
    said = (
        f"The paper reports {number(printed.mean, '+.2f')} ± {printed.deviation:.2f} points over Random for LDM-S; "
        f"ours is {number(gain.mean, '+.2f')}, {number(gain.mean - printed.mean, '+.2f')} from it"
    )
    alike = one.agreement
    if alike is not None:
        said += (
            f". The gains of {alike.count} strategies are ordered as the paper's with a rank correlation of "
            f"{number(alike.rho)}"
        )
    yield said + "."


def found_across(runs: Sequence[Compared], datasets: Sequence[dict[str, Array]]) -> tuple[str, ...]:
    """Return what several runs say together."""
    if len(datasets) < 2 or len(datasets[0]) < 2:
        return ()
    areas = {name: profile.area() for name, profile in performance_profile(datasets).items()}
    best, following, *_ = sorted(areas, key=lambda name: -areas[name])
    said = [
        f"Over {len(datasets)} runs, {spoken(best)} stays closest to the best accuracy: the area under its performance "
        f"profile is {areas[best]:.2f} of 10; next comes {spoken(following)} with {areas[following]:.2f}."
    ]
    if all(one.repetitions > 1 for one in runs):
        penalties = penalty_matrix(datasets)
        means = dict(zip(penalties.strategies, penalties.column_means.tolist(), strict=True))
        least = [name for name in means if means[name] == min(means.values())]
        others = [name for name in means if name not in least]
        then = min(others, key=lambda name: means[name], default=None)
        after = "" if then is None else f"; next comes {spoken(then)} ({means[then]:.2f})"
        said.append(
            f"Beaten least by the others: {', '.join(map(spoken, least))} (mean penalty {means[least[0]]:.2f}){after}."
        )
    return (*said, *_first_in_all(runs), *_paper_in_all(runs))


def _first_in_all(runs: Sequence[Compared]) -> Iterator[str]:
    ours = [one for one in runs if FIRST in one.gains]
    if not ours:
        return
    ahead = sum(one.gains[FIRST].mean > 0 for one in ours)
    sure = sum(one.gains[FIRST].mean > 0 and _tested(one.gains[FIRST], one) for one in ours)
    yield f"LDM-S is more accurate than Random in {ahead} of {len(ours)} runs, significantly so in {sure}."
    savings = [one.savings[FIRST] for one in ours]
    shares = [saving.saved / saving.baseline for saving in savings if saving.saved is not None and saving.saved > 0]
    if shares:
        span = (
            f"{100 * min(shares):.0f} % to {100 * max(shares):.0f} %" if len(shares) > 1 else f"{100 * shares[0]:.0f} %"
        )
        yield f"To be as accurate as Random at its end it saved labels in {len(shares)} of {len(ours)} runs: {span}."


def _paper_in_all(runs: Sequence[Compared]) -> Iterator[str]:
    apart = [one.gains[FIRST].mean - one.paper[FIRST].mean for one in runs if FIRST in one.gains and FIRST in one.paper]
    if len(apart) > 1:
        yield (
            f"Against the paper, in {len(apart)} runs, its gain over Random differs by "
            f"{number(min(apart), '+.2f')} to {number(max(apart), '+.2f')} points."
        )


def _points(gain: Gain) -> str:
    return f"{abs(gain.mean):.2f} points"


def _tested(gain: Gain, one: Compared) -> bool:
    return one.repetitions > 1 and gain.significant


def _judged(gain: Gain, one: Compared) -> str:
    if one.repetitions < 2:
        return ""
    return (
        f", a significant difference ({_p(gain.p)})"
        if gain.significant
        else f", which is not significant ({_p(gain.p)})"
    )


def _in_brackets(gain: Gain, one: Compared) -> str:
    if one.repetitions < 2:
        return ""
    spread = f"± {gain.deviation:.2f} over {one.repetitions} repetitions"
    return f" ({spread}; {'significant' if gain.significant else 'not significant'}, {_p(gain.p)})"


def _p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
