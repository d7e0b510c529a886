"""Campaigns of two classes with random features, for tests of selection and training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from teeter.campaigns.campaign import Campaign
from teeter.campaigns.settings import Settings

__all__ = ["SETTINGS", "create_campaign", "draw_features", "item_number", "label_batch"]

SETTINGS = Settings(kind="features", control=0.0)


def draw_features(count: int, width: int = 5, seed: int = 0) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)


def create_campaign(
    folder: Path, settings: Settings, features: npt.NDArray[np.float32], name: str = "c"
) -> Campaign:
    """Create a campaign of the classes a and b, with an item i0, i1, ... for each row."""
    campaign = Campaign.make(
        [], ("a", "b"), at=folder / f"{name}.teeter", name=name, settings=settings
    )
    campaign.add({"id": f"i{k}", "features": row} for k, row in enumerate(features))
    return campaign


def item_number(item: str) -> int:
    """Return the row of an item: 3 for i3."""
    return int(item[1:])


def label_batch(
    campaign: Campaign, labels: npt.NDArray[np.int64], n: int, *, train: bool = True
) -> list[str]:
    """Answer n questions by class index, and return the arm of each."""
    questions = campaign.ask(n)
    for question in questions:
        campaign.tell(question.item, "ab"[labels[item_number(question.item)]])
    if train:
        campaign.train()

    return [question.arm for question in questions]
