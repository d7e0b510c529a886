"""What an audit has found out: ``campaign.judges``.

Everything here reads the database and returns at once. Nothing loads torch.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from teeter.base.array_types import Booleans, Floats, Integers
from teeter.base.wording import pluralize
from teeter.campaigns.finish.bounds import JUDGE_PRIOR, draws_to_decide, running_bounds
from teeter.campaigns.finish.certificate import render_document
from teeter.campaigns.finish.estimates import (
    FEWEST_DRAWS,
    estimate_class_shares,
    measure_reliability,
)
from teeter.campaigns.finish.frozen_model import FrozenFinish, load_finish
from teeter.campaigns.finish.judge_estimates import (
    compare_judges,
    estimate_judged,
    exact_interval,
    group_judged,
    tells_right_from_wrong,
)
from teeter.campaigns.finish.report import SetState, percent
from teeter.campaigns.items.columns import format_cell
from teeter.campaigns.records import (
    DEFAULT_ANNOTATOR,
    AccuracyEstimate,
    AgreementScore,
    AuditReport,
    JudgeComparison,
    JudgeReport,
    ReliabilityBin,
)
from teeter.campaigns.review.annotators import cohen_kappa, measure_confusion
from teeter.campaigns.review.consensus import CampaignSnapshot
from teeter.campaigns.store import Part, Reading, cached_by
from teeter.errors import InputError

ALPHA = 0.05
"""The probability with which an interval may miss the truth."""

_CURVE_POINTS = 60
"""Points of the curve of the interval at most."""

_MOST_VALUES = 20
"""Values of a column by which errors are listed."""

_FEWEST_PER_VALUE = 5
"""Draws per value of such a column, on average. Columns of ids and texts have fewer."""

_LITTLE_AGREEMENT = 0.1
"""The largest kappa with which a judge is said to give no signal, if it may also have none. Its
interval is wide where one class is rare, so that a limit on its upper end would hide this.
"""

_FEWEST_RARER = 5
"""Items of all classes but the most frequent, without which nothing is said about signal."""

_MANY_RIGHT = 50
"""Draws, all of which are right, after which a judge may be the labels of people themselves."""


class Judges(Part):
    """The judges of an audit, and how good their labels are."""

    def report(self) -> AuditReport:
        """Return what the answers so far say of each judge. It may be asked for after every one.

        Raises:
            InputError: the campaign is no audit.
        """
        with self._campaign.reading() as view:
            return self._report(view)

    @cached_by(lambda _, view: view.history.newest_row_id())
    def _report(self, view: Reading) -> AuditReport:
        review = self._campaign.review
        audit = load_finish(view, 1)
        if not view.settings.judges or audit is None:
            raise InputError(
                "This campaign is no audit: create one with teeter audit, or Campaign.audit."
            )
        people = review.agreement_in(view)
        return _make_report(view, audit, review.snapshot(view), people.observed)

    def page(self) -> str:
        """Return the report as an HTML page to save or print, without scripts or links."""
        report = self.report()
        with self._campaign.reading() as view:
            issued = view.now()
        content = {"report": report, "campaign": self._campaign.name, "issued": issued}
        return render_document("audit.html.jinja", content)

    def is_running(self) -> bool:
        """Return whether the campaign is an audit that has not been ended."""
        with self._campaign.reading() as view:
            return self._is_running(view)

    @cached_by(lambda _, view: view.history.newest_row_id())
    def _is_running(self, view: Reading) -> bool:
        return view.finishes.is_auditing()

    def end(self, *, who: str = DEFAULT_ANNOTATOR) -> AuditReport:
        """End the audit: no further items are drawn, and what judges say is hidden no more.

        The campaign is an ordinary one from then on, in which the judges are sources of
        suggestions. A second call changes nothing.

        Raises:
            InputError: the campaign is no audit.
        """
        self.report()
        with self._campaign.writing() as change:
            audit = load_finish(change, 1)
            if audit is not None and change.finishes.is_auditing():
                snapshot = self._campaign.review.snapshot(change)
                state = SetState.read(audit, snapshot, change.classes.names())
                # An audit goes on as long as all items are asked, even if all are answered.
                asked_draws = min(state.n_draws, len(audit.items) - 1)
                change.finishes.set_asked_draws(1, asked_draws, who)
                change.picks.remove_all_ready()
        return self.report()

    def require_ended(self, reason: str) -> None:
        """Raise InputError while the audit goes on.

        Args:
            reason: why something must wait for its end.
        """
        if self.is_running():
            raise InputError(f"{reason}: end the audit first.")


@dataclass(frozen=True, eq=False)
class _Draws:
    """What people say of the first n of N items, in the order of the draws."""

    items: list[str]
    """(N,) the ids."""
    labels: Integers
    """(n,) what people say, -1 where they gave no label."""
    values: dict[str, list[str]]
    """By column, the cell of each drawn item, (n,)."""
    classes: list[str]
    require: float | None


def _make_report(
    view: Reading,
    audit: FrozenFinish,
    snapshot: CampaignSnapshot,
    people: AgreementScore | None,
) -> AuditReport:
    settings = view.settings
    classes = view.classes.names()
    state = SetState.read(audit, snapshot, classes)
    drawn_labels = state.labels[: state.n_draws]
    values = _read_values(view, audit.items[: state.n_draws])
    draws = _Draws(audit.items, drawn_labels, values, classes, settings.require)

    reports = []
    rights: dict[str, Booleans] = {}
    sources = {source.name: source for source in view.suggestions.sources()}
    index_of_class = {name: index for index, name in enumerate(classes)}
    place_of_item = {item: place for place, item in enumerate(audit.items)}
    for judge, confidence in settings.judges.items():
        if judge not in sources:
            continue  # removed after the audit was ended
        labels = np.full(len(audit.items), -2, dtype=np.int64)
        confidences = np.full(len(audit.items), np.nan)
        for entry in view.suggestions.of_source(sources[judge]):
            place = place_of_item.get(entry.item)
            if place is None:
                continue
            labels[place] = index_of_class[entry.label]
            if entry.probability is not None:
                confidences[place] = entry.probability
        rights[judge] = drawn_labels == labels[: state.n_draws]
        reports.append(_report_judge(judge, confidence, labels, confidences, draws))

    comparisons = []
    if state.n_draws >= FEWEST_DRAWS:
        for first, second in combinations(rights, 2):
            difference = compare_judges(rights[first], rights[second])
            comparisons.append(JudgeComparison(first, second, difference))

    unclear = int((drawn_labels < 0).sum())
    report = AuditReport(
        items=len(audit.items),
        draws=state.n_draws,
        unclear=unclear,
        require=settings.require,
        is_running=audit.asked_draws == len(audit.items),
        judges=reports,
        comparisons=comparisons,
        people=people,
        sentences=[],
    )
    report.sentences.extend(_describe_audit(report))
    return report


def _read_values(view: Reading, items: Sequence[str]) -> dict[str, list[str]]:
    """Return the cells of items by column, for columns of few values."""
    stored = view.items.by_id(items)
    row_ids = [stored[item].row_id for item in items]
    rows = view.tables.for_items(row_ids)
    cells: dict[str, list[str]] = {}
    names = [column.name for column in view.tables.columns()]
    judged = {name for pair in view.settings.judges.items() for name in pair}
    most_values = min(_MOST_VALUES, len(items) // _FEWEST_PER_VALUE)
    for name in names:
        if name in judged or not name:
            continue
        column = []
        for row_id in row_ids:
            text = ""
            if row_id in rows:
                value = rows[row_id].values().get(name)
                if value is not None:
                    text = format_cell(value)
            column.append(text)
        if 2 <= len(set(column)) <= most_values:
            cells[name] = column
    return cells


def _report_judge(
    judge: str, confidence: str, labels: Integers, confidences: Floats, draws: _Draws
) -> JudgeReport:
    """Return what the draws say of one judge.

    Args:
        labels: (N,) what it says, in the order of the draws.
        confidences: (N,) NaN where it says nothing.
    """
    size = len(labels)
    n_draws = len(draws.labels)
    drawn = np.arange(n_draws)
    is_right = draws.labels == labels[:n_draws]
    lows, highs = running_bounds(size, ~is_right, ALPHA, JUDGE_PRIOR)
    points = np.linspace(0, n_draws, _CURVE_POINTS).astype(np.int64)
    rights = np.concatenate([[0], np.cumsum(is_right)]).tolist()
    curve = []
    for n in np.unique(points).tolist():
        share = 0.0
        if n:
            share = rights[n] / n
        low = 1 - int(highs[n]) / size
        high = 1 - int(lows[n]) / size
        curve.append(AccuracyEstimate(share, low, high, total=n, right=rights[n]))
    accuracy = curve[-1]

    is_sure = ~np.isnan(confidences)
    estimate = None
    if n_draws and is_sure.any():
        estimate = estimate_judged(group_judged(labels, confidences), drawn, is_right)
    elif n_draws:
        estimate = estimate_judged(group_judged(labels, None), drawn, is_right)

    holds, more = None, None
    if draws.require is not None:
        holds, more = _judge_requirement(draws.require, accuracy, size)

    rows = np.flatnonzero(is_sure[:n_draws])
    drawn_confidences = confidences[rows]
    is_right_then = is_right[rows]
    reliability: list[ReliabilityBin] = []
    if is_sure.any():
        reliability = measure_reliability(drawn_confidences, is_right_then)
    said = labels[:n_draws]
    pairs = zip(draws.labels.tolist(), said.tolist(), strict=True)
    outside = np.zeros(0, dtype=np.int64)
    class_shares = estimate_class_shares(draws.classes, labels, drawn, draws.labels, outside)
    report = JudgeReport(
        judge=judge,
        confidence=confidence,
        accuracy=accuracy,
        estimate=estimate,
        curve=curve,
        holds=holds,
        more=more,
        kappa=cohen_kappa(draws.labels, said),
        class_shares=class_shares,
        by_column=_errors_by_column(judge, said, is_right, draws),
        confusion=measure_confusion(pairs, draws.classes),
        reliability=reliability,
        sentences=[],
    )
    tells = tells_right_from_wrong(drawn_confidences, is_right_then)
    report.sentences.extend(_describe_judge(report, draws.require, tells))
    return report


def _judge_requirement(
    require: float, accuracy: AccuracyEstimate, size: int
) -> tuple[bool | None, int | None]:
    """Return whether a requirement is met, and how many more answers would probably tell."""
    if accuracy.low >= require:
        return True, None
    if accuracy.high < require:
        return False, None
    limit = math.floor((1 - require) * size + 1e-9)
    wrong = accuracy.total - accuracy.right
    more = draws_to_decide(size, accuracy.total, wrong, limit, alpha=ALPHA, prior=JUDGE_PRIOR)
    return None, more


def _errors_by_column(
    judge: str, said: Integers, is_right: Booleans, draws: _Draws
) -> dict[str, dict[str, AccuracyEstimate]]:
    labels = ["" if k < 0 else draws.classes[k] for k in said.tolist()]
    columns = {judge: labels, **draws.values}
    by_column = {}
    for column, values in columns.items():
        counts = Counter(values)
        rights: Counter[str] = Counter()
        for value, right in zip(values, is_right.tolist(), strict=True):
            rights[value] += right
        by_value = {}
        for value, total in counts.most_common():
            # Bonferroni: so many intervals hold together.
            low, high = exact_interval(rights[value], total, ALPHA / len(counts))
            share = rights[value] / total
            by_value[value] = AccuracyEstimate(share, low, high, total, rights[value])
        by_column[column] = by_value
    return by_column


def at_least(share: float) -> str:
    """Return a share in percent, rounded down.

    Example:
        >>> at_least(0.8999), at_least(1.0)
        ('89.9%', '100%')
    """
    return f"{math.floor(1000 * share + 1e-9) / 10:g}%"


def at_most(share: float) -> str:
    """Return a share in percent, rounded up.

    Example:
        >>> at_most(0.8991), at_most(0.5)
        ('90%', '50%')
    """
    return f"{math.ceil(1000 * share - 1e-9) / 10:g}%"


def _describe_judge(report: JudgeReport, require: float | None, tells: bool | None) -> list[str]:
    """Return what a report says of a judge as sentences. The first is the verdict."""
    accuracy = report.accuracy
    if not accuracy.total:
        return [f"Nothing is known of {report.judge} yet: answer some items."]

    between = f"{at_least(accuracy.low)} to {at_most(accuracy.high)}"
    sentences = [
        f"{report.judge} is right on {between} of the items: {accuracy.right:,} of "
        f"{pluralize(accuracy.total, 'random item')} agree with people."
    ]
    if require is not None:
        sentences.insert(0, _describe_verdict(report, require))

    # Of few items, or few of all classes but one, a good judge may get none right by chance.
    by_label = [sum(row.predicted.values()) for row in report.confusion]
    n_rarer = sum(by_label) - max(by_label, default=0)
    is_enough = accuracy.total >= FEWEST_DRAWS and n_rarer >= _FEWEST_RARER
    kappa = report.kappa
    if kappa is not None and kappa.high < 0:
        sentences.append(
            f"{report.judge} agrees with people less often than chance would: look whether its "
            "classes are mixed up."
        )
    elif is_enough and kappa is not None and kappa.low <= 0 and kappa.value <= _LITTLE_AGREEMENT:
        sentences.append(
            f"The labels of {report.judge} give no signal so far: it agrees with people no more "
            "often than chance would."
        )
    if tells is False:
        sentences.append(
            f"Its confidence gives no signal so far: {report.judge} is no surer where it is right."
        )
    if report.reliability:
        n_items = sum(entry.items for entry in report.reliability)
        said = sum(entry.confidence * entry.items for entry in report.reliability) / n_items
        right = sum(entry.right * entry.items for entry in report.reliability) / n_items
        sentences.append(
            f"It says it is right on {said:.0%}; it is on {right:.0%} of the same items."
        )
    if accuracy.right == accuracy.total >= _MANY_RIGHT:
        sentences.append(
            f"All {accuracy.total:,} are right: check that {report.judge} is not the labels of "
            "people themselves."
        )
    return sentences


def _describe_verdict(report: JudgeReport, require: float) -> str:
    accuracy = report.accuracy
    asked = f"{report.judge}: right on at least {percent(require)}"
    if report.holds:
        return f"{asked}? Yes, at least {at_least(accuracy.low)}."
    if report.holds is False:
        return f"{asked}? No, at most {at_most(accuracy.high)}."
    if report.more is None:
        return f"{asked}? Not decided, and too close to decide before nearly all are answered."
    return (
        f"{asked}? Not decided yet: about {pluralize(report.more, 'more answer')} would "
        "probably decide it."
    )


def _describe_audit(report: AuditReport) -> list[str]:
    sentences = []
    if report.unclear:
        items = pluralize(report.unclear, "random item was", "random items were")
        sentences.append(
            f"{items} skipped, flagged or marked as unsure: no label of a judge counts as right "
            "there."
        )
    for comparison in report.comparisons:
        difference = comparison.difference
        better, worse = comparison.first, comparison.second
        low, high = difference.low, difference.high
        if difference.value < 0:
            better, worse = worse, better
            low, high = -high, -low
        if low > 0:
            sentences.append(
                f"{better} is better than {worse} by {100 * low:.1f} to {100 * high:.1f} points, "
                "on the same items."
            )
        else:
            sentences.append(f"Which of {better} and {worse} is better is not known yet.")
    if report.people is not None:
        people = report.people
        sentences.append(
            f"Two people agree on {people.value:.0%} ({people.low:.0%} to {people.high:.0%}) of "
            "the items that both answered: no judge can be expected to agree with people more."
        )
    if report.judges and report.draws:
        sentences.append(
            "The verdict and the share of right labels hold with 95% confidence each, whenever "
            "you look. All other intervals are for a single look."
        )
    return sentences
