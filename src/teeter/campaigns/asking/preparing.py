"""Train a campaign's model, pick items and explain them before annotators need them.

An explanation is what the model makes of an item, and the labelled items that are like it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from teeter.base.array_types import Vectors
from teeter.campaigns.asking.assignment import keep_ready, ready_items_wanted
from teeter.campaigns.learning.rounds import RoundState, with_model
from teeter.campaigns.learning.saved_models import load_arrays, load_temperature
from teeter.campaigns.records import (
    Activity,
    Explanation,
    ModelRound,
    Neighbour,
    QuestionsReady,
    StatusReport,
)
from teeter.campaigns.status import count_unencoded, has_only_unencoded_items

if TYPE_CHECKING:
    from teeter.campaigns.campaign import Campaign


_NEIGHBOURS = 3
"""Similar labelled items in an explanation."""

_EXCERPT = 200
"""Characters of a neighbour's text."""

_POOL_CHANGE_SHARE = 0.05
"""A model that learned from unlabelled items is trained again when more than this share of them
was added or withdrawn.
"""

ReportStatus = Callable[[StatusReport], None]


class Preparation:
    """Prepares the next items of a campaign, and remembers what it has done for it."""

    def __init__(self, campaign: Campaign) -> None:
        self.campaign = campaign
        self._explainer = Explainer()
        self._trained_up_to: int | None = None
        """Row id of the last answer when the newest model began to be trained; None if another
        process trained it.
        """
        self._tried_sizes: tuple[int, int] | None = None
        """The numbers of all items and of withdrawn ones when the pool was last looked at."""
        self._exhausted_by: object = None
        """The model, items and settings with which nothing was left to pick ahead."""

    def ensure_questions(self, annotator: str, batch: int, report: ReportStatus) -> QuestionsReady:
        """Train if enough labels are new, and pick items if the annotator has few.

        Nothing is picked before the first items are encoded: the annotator's page asks again.

        Args:
            batch: how many items are picked together, unless the campaign says it.
        """
        batch = self.campaign.settings.batch or batch
        with self.campaign.reading() as view:
            is_audit = view.finishes.is_auditing()
            if has_only_unencoded_items(view) and not is_audit:
                return QuestionsReady(is_finished=False, explanations={})
            waiting = [pick.item for pick in view.picks.open_picks(annotator)]
        has_few = len(waiting) <= batch // 2
        if is_audit:
            # No model learns from an audit before it is ended.
            if has_few:
                waiting = [
                    question.item for question in self.campaign.ask(len(waiting) + batch, annotator)
                ]
            keep_ready(self.campaign, batch)
            return QuestionsReady(is_finished=not waiting, explanations={})

        # While many items wait, a model is trained after a whole batch of new labels. When items
        # are about to be picked anyway, half a batch is enough to make the picks better.
        enough_labels = batch
        if has_few:
            enough_labels = max(1, batch // 2)
        must_train = self._count_new_labels() >= enough_labels or self._pool_has_changed()

        # Loading reads all answers: once for training, picking and explaining together.
        state = None
        if has_few or must_train:
            last_answer = self._newest_answer()
            state = self.campaign.load_state()
            if must_train:
                _, state = self._train(state, last_answer, batch, report)
            # What was asked before may not be what the goal needs next.
            if self.campaign.finish.pursue_goal():
                state = self.campaign.load_state()

        if has_few:
            report(StatusReport(Activity.PICKING))
            questions = self.campaign.ask(len(waiting) + batch, annotator, state=state)
            waiting = [question.item for question in questions]

        # Ahead for the active annotators, unless nothing was left to pick the last time.
        with self.campaign.reading() as view:
            current = (
                view.models.newest_version(),
                view.items.count(),
                view.encodings.revision(),
                view.settings,
            )
            unencoded = count_unencoded(view)
        if self._exhausted_by != current and not keep_ready(self.campaign, batch, state=state):
            self._exhausted_by = current

        # The server keeps explanations, so each is sent once per model.
        explanations = self._explainer.explain(self.campaign, waiting[: 3 * batch], state)
        return QuestionsReady(is_finished=not waiting and not unencoded, explanations=explanations)

    def train(self, batch: int, report: ReportStatus) -> ModelRound | None:
        """Train a model on all labels; None if fewer than two classes have labels."""
        with self.campaign.reading() as view:
            if has_only_unencoded_items(view):
                return None
        last_answer = self._newest_answer()
        batch = self.campaign.settings.batch or batch
        trained, _ = self._train(self.campaign.load_state(), last_answer, batch, report)
        return trained

    def _train(
        self, state: RoundState, last_answer: int, batch: int, report: ReportStatus
    ) -> tuple[ModelRound | None, RoundState]:
        """Train a model and pick ahead with it.

        Args:
            last_answer: row id of the newest answer, read before the state: answers that came in
                between count as new.
            batch: how many items an annotator gets at a time.

        Returns:
            The model and the state with it, or None and the same state if fewer than two classes
            have labels or if items are not encoded yet.
        """
        if state.unencoded or len(set(state.labels.values())) < 2:
            return None, state

        report(StatusReport(Activity.TRAINING, labels=len(state.labels), version=state.version + 1))
        wanted = ready_items_wanted(self.campaign, batch)
        trained = self.campaign.train(state=state, pick_ahead=wanted)

        # Only now: a training that fails is tried again with the next answer.
        self._trained_up_to = last_answer
        report(StatusReport(None, version=trained.version, is_trained=True))
        with self.campaign.reading() as view:
            model = view.models.newest()
        if model is not None and model.version != state.version:
            state = with_model(state, model.version, model.weights)
        return trained, state

    def _count_new_labels(self) -> int:
        """Return the number of labels since the newest model began to be trained."""
        with self.campaign.reading() as view:
            if self._trained_up_to is not None:
                return view.answers.count_labels_after(row_id=self._trained_up_to)

            # The model was trained by another process: only the time is known.
            model = view.models.newest_summary()
            trained_at = ""
            if model is not None:
                trained_at = model.trained
            return view.answers.count_labels_after(time=trained_at)

    def _pool_has_changed(self) -> bool:
        """Return whether many items came or went since the newest model learned from them all."""
        with self.campaign.reading() as view:
            model = view.models.newest_summary()
            # Until all items are encoded, no model is trained.
            if model is None or "pool" not in model.facts or count_unencoded(view):
                return False
            n_items = view.items.count()
            n_withdrawn = view.items.count_withdrawn()

        # If there are too few labels to train again, trying once is enough.
        sizes = (n_items, n_withdrawn)
        if sizes == self._tried_sizes:
            return False
        self._tried_sizes = sizes
        facts = model.facts
        n_items_then, n_withdrawn_then = facts["items"]
        n_changed: int = abs(n_items - n_items_then) + abs(n_withdrawn - n_withdrawn_then)
        n_learned: int = facts["labels"] + facts["pool"]
        return n_changed > _POOL_CHANGE_SHARE * n_learned

    def _newest_answer(self) -> int:
        with self.campaign.reading() as view:
            return view.answers.newest_row_id()


class Explainer:
    """Explains items of a campaign, each once as long as nothing has changed."""

    def __init__(self) -> None:
        self._explained: set[str] = set()
        self._explained_by: tuple[int, list[str], int] | None = None
        """The model that explained these items, the names of the classes then, and the newest
        change of an item.
        """

    def explain(
        self, campaign: Campaign, items: Sequence[str], state: RoundState | None
    ) -> dict[str, Explanation]:
        """Return explanations of items that were not explained before, as things are now."""
        with campaign.reading() as view:
            explained_by = (
                view.models.newest_version(),
                view.classes.names(),
                # A changed text has other neighbours, and a withdrawn item is no neighbour.
                view.items.newest_change(),
            )

        if explained_by != self._explained_by:
            self._explained_by = explained_by
            self._explained.clear()

        new_items = [item for item in items if item not in self._explained]
        if not new_items:
            return {}
        self._explained.update(new_items)

        if state is None:
            state = campaign.load_state()
        row_by_item = {item: row for row, item in enumerate(state.keys)}
        rows = [row_by_item[item] for item in new_items if item in row_by_item]
        neighbours = _nearest_labelled(state, rows)
        probabilities = _class_probabilities(state, rows)

        neighbour_ids = {item for nearest in neighbours for item, _ in nearest}
        with campaign.reading() as view:
            stored_items = view.items.by_id(list(neighbour_ids))
        contents = {item_id: stored.content or "" for item_id, stored in stored_items.items()}

        explanations = {}
        for row, nearest, by_class in zip(rows, neighbours, probabilities, strict=True):
            shown = []
            for item, label in nearest:
                excerpt = contents[item][:_EXCERPT]
                shown.append(Neighbour(item, label, excerpt))
            explanations[state.keys[row]] = Explanation(by_class, shown)
        return explanations


def _nearest_labelled(state: RoundState, rows: Sequence[int]) -> list[list[tuple[str, str]]]:
    """Return for each row the ids and labels of the labelled items with the largest cosine."""
    labelled_rows = set(state.labels) - set(rows)
    if not labelled_rows:
        return [[] for _ in rows]

    labelled = np.array(sorted(labelled_rows), dtype=np.int64)
    # (rows, labelled). Cosines rather than distances: long texts have long vectors.
    vectors = _unit_rows(state.features[list(rows)])
    labelled_vectors = _unit_rows(state.features[labelled])
    cosines = vectors @ labelled_vectors.T
    order = np.argsort(-cosines, axis=1)

    nearest = []
    for neighbour_rows in labelled[order[:, :_NEIGHBOURS]].tolist():
        neighbours = [(state.keys[row], state.labels[row]) for row in neighbour_rows]
        nearest.append(neighbours)
    return nearest


def _unit_rows(vectors: Vectors) -> Vectors:
    """Return rows of length 1; zero rows stay zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1), dtype=np.float32)


def _class_probabilities(state: RoundState, rows: Sequence[int]) -> list[list[tuple[str, float]]]:
    """Return classes and probabilities by the saved linear head, the most probable first.

    The lists are empty if there is no model, no linear one, or one of other features.
    """
    no_probabilities: list[list[tuple[str, float]]] = [[] for _ in rows]
    if state.weights is None:
        return no_probabilities
    arrays = load_arrays(state.weights)
    if "weight" not in arrays or arrays["weight"].shape[1] != state.features.shape[1]:
        return no_probabilities

    features = state.features[list(rows)]
    logits = features @ arrays["weight"].T + arrays["bias"]
    if state.several:
        names = list(state.classes[: len(arrays["weight"])])
        probabilities = 1 / (1 + np.exp(-logits))
    else:
        logits /= load_temperature(state.weights)
        # Softmax; the largest logit is subtracted so that no power overflows.
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities = odds / odds.sum(axis=1, keepdims=True)  # (rows, classes)
        names = [state.classes[index] for index in arrays["seen"]]

    ranked = []
    for row_probabilities in probabilities:
        pairs = [
            (name, round(float(probability), 4))
            for name, probability in zip(names, row_probabilities, strict=True)
        ]
        ranked.append(sorted(pairs, key=lambda pair: -pair[1]))
    return ranked
