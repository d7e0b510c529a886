"""How annotators do: how far they agree, how fast they are, and how often they are right.

Agreement is measured in three ways, each with a 95 % confidence interval: the share of answers that
agree, Cohen's kappa of two annotators [Cohen 1960], and Krippendorff's alpha over all annotators
[Krippendorff 2011]. Kappa and alpha subtract the agreement expected by chance: 1 is perfect
agreement, 0 what chance alone would give.

Ratings are arrays (N, A): the class index of N items by A annotators, -1 for no answer.

An annotator's label counts as right if it agrees with the consensus, or with the decision of a
reviewer. On items drawn at random the result does not depend on how hard the picks were.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from itertools import combinations, pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from teeter.base.array_types import Floats, Integers
from teeter.campaigns.learning.stopping import estimate_accuracy, wilson_interval
from teeter.campaigns.records import (
    AccuracyEstimate,
    Agreement,
    AgreementScore,
    AnnotatorStats,
    Answer,
    AnswerKind,
    ClassAccuracy,
    PairAgreement,
    split_labels,
)
from teeter.campaigns.review.consensus import answers_of_people, index_labels, read_snapshot
from teeter.campaigns.settings import IMPORTED
from teeter.campaigns.store import Reading

Measure: TypeAlias = Callable[[Floats, Floats], Floats]
"""Computes a measure from class counts (..., C) and pair sums (..., 3); see ``_pair_sums``."""

MIN_ITEMS = 5
"""Items with two or more answers that a measure needs."""

MIN_REPORTED = 30
"""Common items that a statistic about people needs to be reported. From fewer, it says little."""

_RESAMPLES = 500
"""Bootstrap samples for an interval."""

_CHUNKS = 10
"""Chunks in which cached bootstrap samples are processed, to bound the memory."""

_MAX_CACHED_ITEMS = 20_000
"""Items up to which bootstrap samples are cached for the next measure."""


def observed_agreement(ratings: Integers) -> AgreementScore | None:
    """Return the share of pairs of answers to the same item that agree.

    Args:
        ratings: Shape (N, A), -1 for no answer.

    Returns:
        The share, or None if fewer than ``MIN_ITEMS`` items have two answers.
    """
    counts = _class_counts(ratings)
    if len(counts) < MIN_ITEMS:
        return None

    def agreeing_share(counts: Floats, pair_sums: Floats) -> Floats:
        agreeing = pair_sums[..., 0]
        pairs = pair_sums[..., 1]
        return np.asarray(agreeing / pairs)

    return _with_interval(counts, agreeing_share, low_if_perfect=lambda share: share)


def cohen_kappa(first: Integers, second: Integers) -> AgreementScore | None:
    """Return Cohen's kappa of two annotators.

    The interval is Wilson's for the observed agreement, with the agreement by chance taken as
    exact, as in Cohen's standard error. It stays honest for few items.

    Args:
        first: Class indices of the first annotator, shape (N,), -1 for no answer.
        second: Those of the second, shape (N,).

    Returns:
        Kappa, or None if fewer than ``MIN_ITEMS`` items have both answers or if both annotators
        gave one and the same class throughout.

    Example:
        >>> first = np.array([0, 0, 1, 1, 1, 0])
        >>> second = np.array([0, 1, 1, 1, 1, 0])
        >>> round(cohen_kappa(first, second).value, 3)
        0.667
    """
    answered_by_both = (first >= 0) & (second >= 0)
    first = first[answered_by_both]
    second = second[answered_by_both]

    n_items = len(first)
    if n_items < MIN_ITEMS:
        return None

    # If both gave one and the same class throughout, kappa would be 0 / 0.
    chance = _chance_agreement(first, second)
    if chance >= 1:
        return None

    agrees = first == second
    share = int(agrees.sum()) / n_items
    low, high = wilson_interval(share, n_items)
    value = _beyond_chance(share, chance)
    low = _beyond_chance(low, chance)
    high = _beyond_chance(high, chance)

    return AgreementScore(
        value=value,
        low=max(-1.0, low),
        high=min(1.0, high),
        items=n_items,
    )


def prediction_agreement(before: Integers, after: Integers) -> tuple[float, float]:
    """Return how far the predictions of two models agree.

    Args:
        before: Class indices predicted by one model, shape (N,).
        after: Those predicted by the other model for the same items, shape (N,).

    Returns:
        Cohen's kappa, and the share of predictions that differ. Kappa is 1 if both models predict
        one and the same class throughout.

    Example:
        >>> prediction_agreement(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1]))
        (0.5, 0.25)
    """
    changed = float((before != after).mean())
    chance = _chance_agreement(before, after)
    if chance == 1:
        return 1.0, changed

    return _beyond_chance(1 - changed, chance), changed


def _chance_agreement(first: Integers, second: Integers) -> float:
    """Return the share of items that would agree if both sides drew classes at random."""
    n_classes = int(max(first.max(), second.max())) + 1
    first_shares = np.bincount(first, minlength=n_classes) / len(first)
    second_shares = np.bincount(second, minlength=n_classes) / len(second)
    return float(first_shares @ second_shares)


def _beyond_chance(share: float, chance: float) -> float:
    """Rescale a share of agreement to 0 for chance and 1 for perfect [Cohen 1960, equation 1]."""
    return (share - chance) / (1 - chance)


def krippendorff_alpha(ratings: Integers) -> AgreementScore | None:
    """Return Krippendorff's alpha for classes without an order.

    The interval comes from a bootstrap over items.

    Args:
        ratings: Shape (N, A), -1 for no answer.

    Returns:
        Alpha, or None if fewer than ``MIN_ITEMS`` items have two answers or if all answers are of
        one class.
    """
    counts = _class_counts(ratings)
    class_counts = counts.sum(axis=0)
    if len(counts) < MIN_ITEMS or np.count_nonzero(class_counts) < 2:
        return None

    expected = float(_expected_disagreement(class_counts))

    def alpha_of_share(share: float) -> float:
        """Return alpha if this share of the items agrees and class frequencies stay the same."""
        return 1 - (1 - share) / expected

    return _with_interval(counts, _alpha, low_if_perfect=alpha_of_share)


def krippendorff_alpha_by_class(ratings: Integers, n_classes: int) -> list[AgreementScore | None]:
    """Return Krippendorff's alpha of each class against all other classes together.

    Args:
        ratings: Shape (N, A), -1 for no answer.
        n_classes: C, the number of classes.

    Returns:
        C scores, None as in ``krippendorff_alpha``.
    """
    scores = []
    for k in range(n_classes):
        is_class = (ratings == k).astype(np.int64)
        binary = np.where(ratings < 0, -1, is_class)
        scores.append(krippendorff_alpha(binary))

    return scores


def _class_counts(ratings: Integers) -> Integers:
    """Count the answers of each class to each item with two or more answers: (N, A) -> (M, C)."""
    n_classes = int(ratings.max(initial=0)) + 1
    counts = np.zeros((len(ratings), n_classes), dtype=np.int64)

    items, annotators = np.nonzero(ratings >= 0)
    classes = ratings[items, annotators]
    # Unlike counts[items, classes] += 1, this counts repeated pairs of an item and a class.
    np.add.at(counts, (items, classes), 1)

    # An item with one answer has no pair to compare.
    n_answers = counts.sum(axis=1)
    return np.asarray(counts[n_answers >= 2])


def _pair_sums(counts: Integers) -> Floats:
    """Count ordered pairs of answers to each item: (M, C) -> (M, 3).

    The columns are the pairs that agree, all pairs, and the pairs that differ divided by the number
    of answers less one, which is an item's contribution to the observed disagreement.
    """
    n_answers = counts.sum(axis=1)
    # c equal answers make c (c - 1) ordered pairs that agree.
    agreeing_by_class = counts * (counts - 1)
    agreeing = agreeing_by_class.sum(axis=1)
    pairs = n_answers * (n_answers - 1)
    disagreement = (pairs - agreeing) / (n_answers - 1)
    return np.stack([agreeing, pairs, disagreement], axis=1)


def _alpha(counts: Floats, pair_sums: Floats) -> Floats:
    """Compute 1 - D_o / D_e [Krippendorff 2011, section C]."""
    # A bootstrap sample may have a single class, and then no alpha.
    with np.errstate(divide="ignore", invalid="ignore"):
        disagreement = pair_sums[..., 2]
        observed = disagreement / counts.sum(axis=-1)
        expected = _expected_disagreement(counts)
        return np.asarray(1 - observed / expected)


def _expected_disagreement(counts: npt.NDArray[Any]) -> Floats:
    """Return the share of ordered pairs of all answers, across items, that differ."""
    total = counts.sum(axis=-1)
    pairs = total * (total - 1)
    squares = counts**2
    differing = total**2 - squares.sum(axis=-1)
    return np.asarray(differing / pairs)


def _with_interval(
    counts: Integers, measure: Measure, low_if_perfect: Callable[[float], float]
) -> AgreementScore:
    """Return a measure with the middle 95 % of its bootstrap distribution over items.

    Args:
        counts: Answers by item and class, shape (M, C).
        measure: The measure to compute.
        low_if_perfect: Turns the lower end of Wilson's interval for M agreeing items into the
            lower end of the measure. The bootstrap cannot tell if all answers agree: every sample
            then agrees, too.
    """
    n_items = len(counts)
    float_counts = counts.astype(np.float64)
    pair_sums = _pair_sums(counts)
    all_counts = float_counts.sum(axis=0)
    all_pairs = pair_sums.sum(axis=0)
    value = float(measure(all_counts, all_pairs))

    disagreement = pair_sums[:, 2]
    if not disagreement.any():
        lowest_share, _ = wilson_interval(1.0, n_items)
        return AgreementScore(value, low_if_perfect(lowest_share), value, n_items)

    # Both arguments of a measure are sums over items, so one product per sample computes both.
    summands = np.concatenate([float_counts, pair_sums], axis=1)
    sums = np.concatenate([draws @ summands for draws in _bootstrap_draws(n_items)])
    class_counts, pairs = np.split(sums, [counts.shape[1]], axis=1)
    values = measure(class_counts, pairs)

    # Samples of a single class have no alpha.
    finite_values = values[np.isfinite(values)]
    low, high = np.percentile(finite_values, (2.5, 97.5))
    return AgreementScore(
        value=value,
        low=min(value, float(low)),
        high=max(value, float(high)),
        items=n_items,
    )


def _bootstrap_draws(n_items: int) -> Iterator[Floats]:
    """Yield how often each item is drawn, in chunks of bootstrap samples: (samples, N)."""
    if n_items <= _MAX_CACHED_ITEMS:
        for chunk in np.split(_cached_draws(n_items), _CHUNKS):
            yield chunk.astype(np.float64)
        return

    # One sample at a time: all of them would take 4 GB for a million items.
    generator = np.random.default_rng(0)
    probabilities = np.full(n_items, 1 / n_items)
    for _ in range(_RESAMPLES):
        draws = generator.multinomial(n_items, probabilities, size=1)
        yield draws.astype(np.float64)


@lru_cache(maxsize=1)
def _cached_draws(n_items: int) -> npt.NDArray[np.int16]:
    """Return all bootstrap samples of N items, which the measures of a campaign share."""
    # The seed is fixed, so that an interval is the same whenever it is computed.
    generator = np.random.default_rng(0)
    probabilities = np.full(n_items, 1 / n_items)
    draws = generator.multinomial(n_items, probabilities, size=_RESAMPLES)
    # int16 holds the counts of 20,000 items in 20 MB.
    return draws.astype(np.int16)


def measure_agreement(answers: Sequence[Answer], classes: Sequence[str]) -> Agreement:
    """Measure how far annotators agree on ``MIN_REPORTED`` items or more, which they answered.

    Labels that came with the items do not count.
    """
    items, annotators, votes = index_labels(answers_of_people(answers), classes)
    # -1, not NaN: classes are integers, and the measures compare them exactly.
    shape = (len(items), len(annotators))
    ratings = np.full(shape, -1, dtype=np.int64)
    rows, columns, given_classes = votes.T
    ratings[rows, columns] = given_classes
    # Items with one rating say nothing about agreement.
    is_rated = ratings >= 0
    n_ratings = is_rated.sum(axis=1)
    several = ratings[n_ratings > 1]

    pairs = []
    for first, second in combinations(range(len(annotators)), 2):
        first_ratings = several[:, first]
        second_ratings = several[:, second]
        is_rated_by_both = (first_ratings >= 0) & (second_ratings >= 0)
        n_items = int(is_rated_by_both.sum())
        if n_items == 0:
            continue
        kappa = None
        if n_items >= MIN_REPORTED:
            kappa = cohen_kappa(first_ratings, second_ratings)
        pair = PairAgreement(
            first=annotators[first],
            second=annotators[second],
            items=n_items,
            kappa=kappa,
        )
        pairs.append(pair)

    observed = None
    alpha = None
    alpha_by_class: list[AgreementScore | None] = [None] * len(classes)
    if len(several) >= MIN_REPORTED:
        observed = observed_agreement(several)
        alpha = krippendorff_alpha(several)
        alpha_by_class = krippendorff_alpha_by_class(several, len(classes))
    return Agreement(
        items=len(several),
        observed=observed,
        alpha=alpha,
        by_class=dict(zip(classes, alpha_by_class, strict=True)),
        pairs=tuple(pairs),
    )


def measure_agreement_on_sets(answers: Sequence[Answer], classes: Sequence[str]) -> Agreement:
    """Measure how far annotators agree on whole sets of labels, and on each label."""
    given = [answer for answer in answers if answer.label is not None]
    sets = list(dict.fromkeys(str(answer.label) for answer in given))
    overall = measure_agreement(given, sets)

    by_label = {}
    for name in classes:
        marks = []
        for answer in given:
            has_label = name in split_labels(str(answer.label))
            marks.append(replace(answer, label=str(has_label)))
        on_label = measure_agreement(marks, ["True", "False"])
        by_label[name] = on_label.alpha
    return replace(overall, by_class=by_label)


def measure_confusion(
    pairs: Iterable[tuple[int, int]], classes: Sequence[str], *, share_judged: float = 0.0
) -> list[ClassAccuracy]:
    """Return what the items of each class are taken for, the most frequent class first.

    Args:
        pairs: the indices of the class that people give an item, and of that which a model gives.
        classes: their names.
        share_judged: as in ``estimate_accuracy``.
    """
    counts = Counter(pairs)
    rows = []
    for k, label in enumerate(classes):
        taken_for = {name: counts[k, j] for j, name in enumerate(classes)}
        by_count = sorted(taken_for.items(), key=lambda entry: -entry[1])
        shown = {name: count for name, count in by_count if count}
        total = sum(taken_for.values())
        accuracy = estimate_accuracy(taken_for[label], total, share_judged=share_judged)
        rows.append(ClassAccuracy(label, shown, accuracy))
    return rows


BREAK_SECONDS = 300.0
"""A longer time between two answers is a break, not work."""

_MIN_WAITS = 5
"""Times between answers that a pace needs."""


def pace_of(times: Sequence[float]) -> tuple[float, float] | None:
    """Return how fast an annotator answers, without breaks.

    Args:
        times: When the annotator answered, in seconds, in ascending order.

    Returns:
        The median seconds from one answer to the next, and the answers in an hour of work; None if
        there are too few answers.

    Example:
        >>> pace_of([0, 10, 20, 30, 4000, 4010, 4020, 4030])
        (10.0, 360.0)
    """
    waits = [later - earlier for earlier, later in pairwise(times)]
    working_waits = [wait for wait in waits if wait <= BREAK_SECONDS]
    total = sum(working_waits)
    # Answers imported at one moment have no time between them.
    if len(working_waits) < _MIN_WAITS or total <= 0:
        return None

    # The median is what an annotator feels, the mean is what an hour holds.
    per_hour = 3600 * len(working_waits) / total
    return statistics.median(working_waits), per_hour


def accuracy_of_annotators(
    answers: Iterable[Answer],
    consensus: Mapping[str, str],
    decided: Mapping[str, str | None],
    random_items: Collection[str],
) -> dict[str, dict[str, AccuracyEstimate | None]]:
    """Return how often the labels of each annotator are right.

    A tie that no reviewer decided counts for nobody: its consensus is the label that was given
    last, which says nothing about who is right.

    Args:
        answers: The current answers of all annotators, and the labels that came with the items.
        consensus: The labels of the items by item id.
        decided: The decisions of reviewers by item id; None for an item that does not belong.
        random_items: The ids of items that were drawn at random.

    Returns:
        By annotator, the fields ``matches_...`` of ``AnnotatorStats`` that can be estimated.
    """
    labels_by_item: dict[str, dict[str, str]] = {}
    for answer in answers:
        if answer.kind == AnswerKind.LABEL and answer.label is not None:
            labels_by_item.setdefault(answer.item, {})[answer.annotator] = answer.label

    # By annotator and field, whether each label that was compared agrees with its reference.
    agreements: dict[str, dict[str, list[bool]]] = {}
    for item, labels in labels_by_item.items():
        # None if there is no decision, or if it is that the item does not belong.
        decision = decided.get(item)
        annotators = [name for name in labels if name != IMPORTED]

        agreed_label = None
        is_settled = decision is not None or not _is_tied(labels.values())
        if len(annotators) > 1 and is_settled:
            agreed_label = consensus.get(item)

        for annotator in annotators:
            references = {"matches_consensus": agreed_label, "matches_decisions": decision}
            if item in random_items:
                references["matches_at_random"] = decision or agreed_label
            by_field = agreements.setdefault(annotator, {})
            for field, reference in references.items():
                if reference is not None:
                    agrees = labels[annotator] == reference
                    by_field.setdefault(field, []).append(agrees)

    accuracies: dict[str, dict[str, AccuracyEstimate | None]] = {}
    for annotator, by_field in agreements.items():
        of_annotator = accuracies.setdefault(annotator, {})
        for field, results in by_field.items():
            of_annotator[field] = estimate_accuracy(sum(results), len(results))
    return accuracies


def _is_tied(labels: Iterable[str]) -> bool:
    """Return whether the two most frequent of the labels are equally frequent."""
    counts = [count for _, count in Counter(labels).most_common(2)]
    return len(counts) == 2 and counts[0] == counts[1]


def annotator_stats(view: Reading) -> list[AnnotatorStats]:
    """Return how fast and how accurate people are: members, then others by name.

    The others labelled before the campaign had members, were removed since, or have open items.
    """
    snapshot = read_snapshot(view)
    measured = snapshot.without_withdrawn()
    decided = {item: decision.label for item, decision in measured.decisions.items()}

    random_items = view.picks.control_items()
    random_items |= view.items.holdout()
    random_items -= snapshot.in_view
    accuracies = accuracy_of_annotators(measured.answers, measured.labels, decided, random_items)

    times_by_annotator = view.answers.times_by_annotator()
    times_by_annotator.pop(IMPORTED, None)  # a file is no annotator
    # All of them: what an annotator did stays done when an item is withdrawn.
    live_counts = Counter(answer.annotator for answer in answers_of_people(snapshot.answers))

    members = {member.name: member for member in view.people.members()}
    open_items = view.picks.count_open_by_annotator()
    others = (set(times_by_annotator) | set(open_items)) - set(members)

    stats = []
    for name in [*members, *sorted(others)]:
        # Sorted, because imported annotations come with times of their own.
        given = times_by_annotator.get(name, [])
        times = sorted(datetime.fromisoformat(time).timestamp() for time in given)
        seconds, per_hour = pace_of(times) or (None, None)
        if per_hour is not None:
            per_hour = round(per_hour)
        role = None
        has_token = False
        if name in members:
            role = members[name].role
            has_token = members[name].has_token
        stats.append(
            AnnotatorStats(
                name=name,
                role=role,
                has_token=has_token,
                answers=live_counts[name],
                seconds=seconds,
                per_hour=per_hour,
                open=open_items.get(name, 0),
                **accuracies.get(name, {}),
            )
        )
    return stats
