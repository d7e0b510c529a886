"""The numbers of a campaign, with advice on whether to continue and on its features.

Features are judged by how many labels models predict that were not trained on these labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from teeter.base.wording import pluralize
from teeter.campaigns.learning.prior import CLASS_NAMES
from teeter.campaigns.learning.stopping import (
    Progress,
    estimate_accuracy,
    estimate_model_accuracy,
    give_advice,
    recent_kappas,
)
from teeter.campaigns.records import (
    AccuracyEstimate,
    AnswerKind,
    EncoderComparison,
    LabelScore,
    ModelRound,
    PickState,
    Status,
    split_labels,
)
from teeter.campaigns.review.consensus import CampaignSnapshot, answers_of_people, read_snapshot
from teeter.campaigns.settings import Settings
from teeter.campaigns.store import Reading, StoredModel

MIN_LABELS = 100
"""With fewer labels, features are not judged."""

MIN_LABELS_PER_CLASS = 4
"""With fewer labels per class, even good features would look poor."""

POOR_SKILL = 0.2
"""Features are poor if models achieve less than this share of the possible gain over guessing."""


def campaign_status(view: Reading) -> Status:
    """Return the numbers of a campaign, with advice on whether to continue."""
    full_snapshot = read_snapshot(view)
    snapshot = full_snapshot.without_withdrawn()
    models = view.models.summaries()

    by_class = dict.fromkeys(view.classes.names(), 0)
    for label in snapshot.labels.values():
        names = [label]
        if view.settings.several:
            names = split_labels(label)
        for name in names:
            by_class[name] += 1

    # Sets, because several annotators may have answered one item. An item can be in two of them.
    items_by_kind: dict[AnswerKind, set[str]] = {kind: set() for kind in AnswerKind}
    for answer in snapshot.answers:
        items_by_kind[answer.kind].add(answer.item)

    progress = _measure_progress(full_snapshot, [model.facts for model in models], view.settings)
    newest_facts: Mapping[str, Any] = {}
    learned = None
    if models:
        newest_facts = models[-1].facts
        learned = describe_learning(len(models), newest_facts)
    by_label = describe_labels(list(by_class), newest_facts)
    macro_f1, micro_f1 = mean_f1(by_label)
    encoder = None
    current = view.encodings.current()
    if current is not None:
        encoder = current.encoder
    unreadable = view.encodings.unreadable().keys() - snapshot.withdrawn
    return Status(
        items=view.items.count() - len(snapshot.withdrawn),
        labelled=len(snapshot.consensus),
        by_class=by_class,
        skipped=len(items_by_kind[AnswerKind.SKIP]),
        unsure=len(items_by_kind[AnswerKind.UNSURE]),
        flagged=len(items_by_kind[AnswerKind.FLAG]),
        open=view.picks.count(PickState.OPEN),
        version=len(models),
        accuracy=progress.accuracy,
        advice=(*give_advice(progress), *describe_features(newest_facts)),
        disagreements=len(snapshot.disagreements()),
        spent=progress.cost,
        encoder=encoder,
        unencoded=count_unencoded(view),
        unreadable=len(unreadable),
        comparison=compare_encoders(newest_facts),
        learned=learned,
        withdrawn=len(snapshot.withdrawn),
        unlearned=view.answers.count_since_newest_model(),
        bulk_agreement=measure_bulk_agreement(view),
        by_label=by_label,
        macro_f1=macro_f1,
        micro_f1=micro_f1,
    )


def describe_labels(classes: Sequence[str], facts: Mapping[str, Any]) -> tuple[LabelScore, ...]:
    """Return how well a model predicts each label of items that may have several.

    It is empty for items with one label, and while no random item is labelled.

    Example:
        >>> describe_labels(["a", "b"], {"by_label": [(1, 1, 2), (0, 0, 0)]})[0].f1
        0.6666666666666666
    """
    scores = []
    counts = facts.get("by_label", [])
    # Labels that were added after the training have no counts.
    for name, (hits, predicted, actual) in zip(classes, counts, strict=False):
        f1 = None
        if predicted or actual:
            f1 = 2 * hits / (predicted + actual)
        scores.append(LabelScore(name, hits, predicted, actual, f1))
    if all(score.f1 is None for score in scores):
        return ()
    return tuple(scores)


def mean_f1(scores: Sequence[LabelScore]) -> tuple[float | None, float | None]:
    """Return the macro F1, over the labels that occur, and the micro F1, over all marks."""
    values = [score.f1 for score in scores if score.f1 is not None]
    if not values:
        return None, None
    hits = sum(score.hits for score in scores)
    marks = sum(score.predicted + score.actual for score in scores)
    macro_f1 = sum(values) / len(values)
    return macro_f1, 2 * hits / marks


def describe_f1(status: Status) -> str | None:
    """Return how well a model predicts labels of items that may have several, in one sentence."""
    if status.macro_f1 is None or status.micro_f1 is None:
        return None
    return (
        f"Macro F1 is {status.macro_f1:.0%}, micro F1 {status.micro_f1:.0%}. The accuracy is the "
        "share of items whose labels are all right."
    )


def measure_bulk_agreement(view: Reading) -> AccuracyEstimate | None:
    """Return how many answers in bulk agree with the blind ones that check them."""
    pairs = view.answers.bulk_checks()
    n_confirmed = 0
    for in_bulk, blind in pairs:
        n_confirmed += in_bulk == blind
    return estimate_accuracy(n_confirmed, len(pairs))


def describe_bulk_answers(agreement: AccuracyEstimate) -> str:
    """Return how far answers in bulk can be trusted, in one sentence.

    Example:
        >>> describe_bulk_answers(AccuracyEstimate(0.95, 0.76, 0.99, total=20, right=19))
        '19 of 20 answers in bulk were confirmed when asked again blind: 76% to 99% are right.'
    """
    return (
        f"{agreement.right:,} of {agreement.total:,} answers in bulk were confirmed when asked "
        f"again blind: {agreement.low:.0%} to {agreement.high:.0%} are right."
    )


def describe_model(model: StoredModel) -> ModelRound:
    """Return what is known of a model."""
    facts = model.facts
    return ModelRound(
        version=model.version,
        trained=model.trained,
        labels=facts["labels"],
        classes=facts["classes"],
        control=tuple(facts["control"]),
        holdout=tuple(facts["holdout"]),
        kappa=facts.get("kappa"),
        changed=facts.get("changed"),
        accuracy=estimate_model_accuracy(facts),
        accuracy_on_new_groups=estimate_on_new_groups(facts),
    )


def estimate_on_new_groups(facts: Mapping[str, Any]) -> AccuracyEstimate | None:
    """Estimate a model's accuracy on items without near copies among the labels."""
    if "new_groups" not in facts:
        return None
    right, total = facts["new_groups"]
    share_judged = min(1.0, total / facts["labels"])
    return estimate_accuracy(right, total, share_judged=share_judged)


def count_unencoded(view: Reading) -> int:
    """Return the number of items that the current encoder has not encoded yet."""
    current = view.encodings.current()
    if current is None:
        return view.items.count()
    return view.encodings.count_missing(current.row_id)


def has_only_unencoded_items(view: Reading) -> bool:
    """Return whether there are items, but none is encoded yet."""
    return not view.encodings.has_vectors() and view.items.count() > 0


def _measure_progress(
    snapshot: CampaignSnapshot, model_facts: Sequence[Mapping[str, Any]], settings: Settings
) -> Progress:
    """Collect what the advice on stopping depends on."""
    # A model that was trained again on the same labels says nothing about whether more labels help.
    distinct: list[Mapping[str, Any]] = []
    for facts in model_facts:
        if not distinct or facts["labels"] != distinct[-1]["labels"]:
            distinct.append(facts)

    accuracies = [estimate_model_accuracy(facts) for facts in distinct]
    changed = None
    accuracy = None
    if model_facts:
        changed = distinct[-1].get("changed")
        # It may have learned from other unlabelled items than the one before with the same labels.
        accuracy = estimate_model_accuracy(model_facts[-1])

    cost = None
    if settings.cost is not None:
        # Labels that came with the items cost nothing. Those of withdrawn items were paid for.
        cost = settings.cost * len(answers_of_people(snapshot.answers))

    return Progress(
        labels=len(snapshot.without_withdrawn().consensus),
        accuracy=accuracy,
        accuracies=tuple(estimate for estimate in accuracies if estimate is not None),
        kappas=recent_kappas(distinct),
        changed=changed,
        cost=cost,
        budget=settings.budget,
        measurable=settings.control > 0 or settings.holdout > 0,
    )


def compare_encoders(facts: Mapping[str, Any]) -> EncoderComparison | None:
    """Return how two encoders compare on the labels of a model; None if there was only one."""
    if "previous_encoder" not in facts:
        return None

    return EncoderComparison(
        encoder=facts["encoder"],
        right=facts["out_of_fold"][0],
        previous=facts["previous_encoder"],
        previous_right=facts["previous_right"],
        labels=facts["out_of_fold"][1],
    )


def describe_comparison(comparison: EncoderComparison) -> str:
    """Return how two encoders compare, in one sentence.

    Example:
        >>> describe_comparison(EncoderComparison("minilm", 82, "tfidf", 61, labels=100))
        'With minilm, models correctly predict 82% of 100 labels that they were not trained on; \
with tfidf, 61%.'
    """
    share = comparison.right / comparison.labels
    previous_share = comparison.previous_right / comparison.labels
    return (
        f"With {comparison.encoder}, models correctly predict {share:.0%} of "
        f"{comparison.labels:,} labels that they were not trained on; with {comparison.previous}, "
        f"{previous_share:.0%}."
    )


def describe_features(facts: Mapping[str, Any]) -> list[str]:
    """Return sentences about the features that a model was trained on.

    Args:
        facts: what is known of the model; see ``ModelFacts``.

    Example:
        >>> facts = {"labels": 120, "classes": ["a", "b"], "out_of_fold": [66, 120],
        ...          "most_frequent": 63, "mean_recall": 0.54, "encoder": "pixels"}
        >>> for sentence in describe_features(facts):
        ...     print(sentence)
        The features of pixels hardly tell the classes apart: models correctly predict 55% of 120 \
labels that they were not trained on, and always guessing the most frequent class would be right \
for 52%. Try another encoder (teeter campaign encode), or check that annotators can tell the \
classes apart.
    """
    sentences = []

    on_new_groups = estimate_on_new_groups(facts)
    if on_new_groups is not None:
        sentences.append(
            f"The accuracy on new groups is about {on_new_groups.share:.0%}, between "
            f"{on_new_groups.low:.0%} and {on_new_groups.high:.0%}: on random items, by models "
            "that know none of their near copies."
        )

    comparison = compare_encoders(facts)
    if comparison is not None:
        sentences.append(describe_comparison(comparison))

    if _are_poor(facts):
        right, total = facts["out_of_fold"]
        of_encoder = ""
        if "encoder" in facts:
            of_encoder = f" of {facts['encoder']}"
        guessed = facts["most_frequent"] / total
        sentences.append(
            f"The features{of_encoder} hardly tell the classes apart: models correctly predict "
            f"{right / total:.0%} of {total:,} labels that they were not trained on, and always "
            f"guessing the most frequent class would be right for {guessed:.0%}. Try another "
            "encoder (teeter campaign encode), or check that annotators can tell the classes apart."
        )

    return sentences


def describe_learning(version: int, facts: Mapping[str, Any]) -> str:
    """Return what a model learned from, in a sentence.

    Example:
        >>> facts = {"labels": 154, "prior": ["class names", "gpt"], "names": 77, "pool": 9845}
        >>> describe_learning(3, facts)
        'Model 3 learned from 154 labels, the names of 77 classes, the predictions of gpt and \
9,845 unlabelled items.'
    """
    learned = [pluralize(facts["labels"], "label")]
    for origin in facts.get("prior", []):
        if origin == CLASS_NAMES and "names" in facts:
            learned.append(f"the names of {pluralize(facts['names'], 'class', 'classes')}")
        elif origin == CLASS_NAMES:
            learned.append("class names")  # an earlier version of teeter did not count them
        else:
            learned.append(f"the predictions of {origin}")
    if facts.get("pool"):
        learned.append(pluralize(facts["pool"], "unlabelled item"))

    *others, last = learned
    if others:
        last = f"{', '.join(others)} and {last}"
    return f"Model {version} learned from {last}."


def _are_poor(facts: Mapping[str, Any]) -> bool:
    """Return whether models hardly do better than guessing.

    Two measures must agree. If one class is very frequent, even good features gain little accuracy
    over always guessing it, but they raise the mean recall of the classes.
    """
    if "out_of_fold" not in facts:
        return False  # an earlier version of teeter trained the model

    right, total = facts["out_of_fold"]
    n_classes = len(facts["classes"])
    if total < max(MIN_LABELS, MIN_LABELS_PER_CLASS * n_classes):
        return False

    accuracy_skill = _skill(right / total, facts["most_frequent"] / total)
    # Always guessing one class has a recall of 1 for that class and of 0 for all others.
    recall_skill = _skill(facts["mean_recall"], 1 / n_classes)
    return max(accuracy_skill, recall_skill) < POOR_SKILL


def _skill(value: float, guess: float) -> float:
    """Return the share of the possible gain over guessing: 0 for guessing, 1 for perfect."""
    if guess >= 1:
        return 1.0  # there is a single class
    return (value - guess) / (1 - guess)
