"""Small campaigns whose model is right about nearly everything."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from teeter.campaigns.campaign import Campaign
from teeter.campaigns.settings import Settings

CLASSES = ("ant", "bee")


class KnownItems:
    """Items in two clouds, of which everyone knows the class.

    Args:
        count: how many items there are.
        distance: how far the clouds are apart; with 1 they overlap.
    """

    def __init__(self, count: int = 400, distance: float = 8.0, seed: int = 0) -> None:
        generator = np.random.default_rng(seed)
        self.truth = generator.integers(0, 2, count)
        self.features = generator.normal(size=(count, 4)).astype(np.float32)
        self.features[:, 0] += distance * self.truth

    def entries(self) -> list[dict[str, object]]:
        return [{"id": str(k), "features": row} for k, row in enumerate(self.features)]

    def label(self, item: str) -> str:
        return CLASSES[self.truth[int(item)]]


def make_campaign(folder: Path, items: KnownItems, **settings: object) -> Campaign:
    """Return a campaign with the items and without answers."""
    values = {"kind": "features", "strategy": "margin", **settings}
    campaign = Campaign.make([], CLASSES, at=folder / "small.teeter", settings=Settings(**values))
    campaign.add(items.entries())
    return campaign


def label_batches(campaign: Campaign, items: KnownItems, batches: int, size: int = 10) -> None:
    """Answer batches as they are asked, and train after each."""
    for _ in range(batches):
        for question in campaign.ask(size):
            campaign.tell(question.item, items.label(question.item))
        campaign.train()


def answer_draws(campaign: Campaign, items: KnownItems) -> None:
    """Answer all random items that are waiting, without asking for them, which takes longer."""
    labels = campaign.labels()
    with campaign.reading() as view:
        draws = view.finishes.drawn_items()
    for item in draws:
        if item not in labels:
            campaign.tell(item, items.label(item))
