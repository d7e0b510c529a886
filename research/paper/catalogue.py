"""Every item of the paper, in one list. A new item is added here and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence

from research.paper.claims import BADGE_ONE, BEST_SHARE, CLUSTER_MARGIN, LDM_ALONE, OPEN_QUESTION
from research.paper.figure_01_definition import FIGURE_1
from research.paper.figure_02ab_selection import FIGURE_2AB
from research.paper.figure_02c_batches import FIGURE_2C
from research.paper.figure_03_diversity import FIGURE_3
from research.paper.figure_04_benchmark import FIGURE_4, FIGURE_17, TABLE_1, TABLE_5
from research.paper.figure_05_uncertainty import FIGURE_5, FIGURE_7
from research.paper.figure_10_clusters import FIGURE_10
from research.paper.figure_11_stop_condition import FIGURE_11, FIGURE_11_RAYS
from research.paper.figure_12_ablations import FIGURE_12, FIGURE_13, FIGURE_14, FIGURE_16
from research.paper.figure_15_variants import FIGURE_15
from research.paper.item import Item
from research.paper.propositions import PROPOSITION_1, PROPOSITION_2, PROPOSITION_3
from research.paper.table_02_runtimes import ENSEMBLE_TIME, LDM_TIME, TABLE_2
from research.paper.theorem_01_convergence import COROLLARY_1, THEOREM_1
from teeter.base.registry import did_you_mean
from teeter.errors import UnknownNameError

__all__ = ["ITEMS", "find_item"]

ITEMS: tuple[Item, ...] = (
    FIGURE_1,
    PROPOSITION_1,
    PROPOSITION_2,
    PROPOSITION_3,
    THEOREM_1,
    COROLLARY_1,
    FIGURE_2AB,
    FIGURE_2C,
    FIGURE_3,
    FIGURE_10,
    FIGURE_4,
    FIGURE_17,
    TABLE_1,
    TABLE_2,
    TABLE_5,
    FIGURE_5,
    FIGURE_7,
    FIGURE_11,
    FIGURE_11_RAYS,
    FIGURE_15,
    FIGURE_12,
    FIGURE_16,
    FIGURE_13,
    FIGURE_14,
    BEST_SHARE,
    LDM_TIME,
    ENSEMBLE_TIME,
    BADGE_ONE,
    CLUSTER_MARGIN,
    LDM_ALONE,
    OPEN_QUESTION,
)
"""All items, in the order of the page: by subject, and within a subject by the paper's numbers."""


def find_item(name: str, items: Sequence[Item] | None = None) -> Item:
    """Return the item called ``name``, among all items unless some are given.

    Raises:
        UnknownNameError: no item has this name. The message suggests one that is spelled alike.
    """
    if items is None:
        items = ITEMS
    by_name = {item.name: item for item in items}

    if name not in by_name:
        suggestion = did_you_mean(name, list(by_name))
        raise UnknownNameError(f"No item of the paper is called {name!r}. {suggestion}")
    return by_name[name]
