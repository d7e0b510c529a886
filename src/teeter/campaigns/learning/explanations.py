"""What the model makes of an item: its probabilities, and the labelled items that are like it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from teeter.campaigns.learning.rounds import RoundState
from teeter.campaigns.learning.saved_models import load_arrays, load_temperature
from teeter.campaigns.records import Explanation, Neighbour

if TYPE_CHECKING:
    from teeter.campaigns.campaign import Campaign


_NEIGHBOURS = 3
"""Similar labelled items in an explanation."""

_EXCERPT = 200
"""Characters of a neighbour's text."""


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
            explanations[state.keys[row]] = Explanation(
                by_class,
                [Neighbour(item, label, contents[item][:_EXCERPT]) for item, label in nearest],
            )
        return explanations


def _nearest_labelled(state: RoundState, rows: Sequence[int]) -> list[list[tuple[str, str]]]:
    """Return for each row the ids and labels of the labelled items with the largest cosine."""
    labelled = np.array(sorted(set(state.labels) - set(rows)), dtype=np.int64)
    if len(labelled) == 0:
        return [[] for _ in rows]

    # (rows, labelled). Cosines rather than distances: long texts have long vectors.
    cosines = _unit_rows(state.features[list(rows)]) @ _unit_rows(state.features[labelled]).T
    order = np.argsort(-cosines, axis=1)[:, :_NEIGHBOURS]  # (rows, neighbours)

    nearest = []
    for positions in order:
        neighbour_rows = [int(row) for row in labelled[positions]]
        nearest.append([(state.keys[row], state.labels[row]) for row in neighbour_rows])
    return nearest


def _unit_rows(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return rows of length 1; zero rows stay zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1), dtype=np.float32)


def _class_probabilities(state: RoundState, rows: Sequence[int]) -> list[list[tuple[str, float]]]:
    """Return classes and probabilities by the saved linear head, the most probable first.

    The lists are empty if there is no model, no linear one, or one of other features.
    """
    arrays = {} if state.weights is None else load_arrays(state.weights)
    if (
        state.weights is None
        or "weight" not in arrays
        or arrays["weight"].shape[1] != state.features.shape[1]
    ):
        return [[] for _ in rows]

    logits = state.features[list(rows)] @ arrays["weight"].T + arrays["bias"]
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
