"""Texts and campaigns for the benchmarks of campaigns and of the page."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from teeter.campaigns.campaign import Campaign
from teeter.campaigns.settings import Settings

__all__ = ["create_feature_campaign", "write_table", "write_texts"]

VOCABULARY_SIZE = 5_000
WORDS_PER_TEXT = 12


def write_texts(path: Path, count: int) -> None:
    """Write a CSV file of random texts, whose word frequencies follow Zipf's law."""
    generator = np.random.default_rng(0)
    word_numbers = generator.zipf(1.3, size=(count, WORDS_PER_TEXT)) % VOCABULARY_SIZE

    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text"])
        for number, numbers in enumerate(word_numbers):
            words = [f"word{k}" for k in numbers]
            # The number makes every text unique: a campaign skips duplicates.
            rows.writerow([" ".join([*words, str(number)])])


def write_table(path: Path, count: int, labels: int) -> None:
    """Write a CSV file of texts with numbers, dates, categories and blank cells beside them."""
    generator = np.random.default_rng(0)
    word_numbers = generator.zipf(1.3, size=(count, WORDS_PER_TEXT)) % VOCABULARY_SIZE

    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "text", "amount", "count", "date", "category", "note", "label"])
        for number, numbers in enumerate(word_numbers):
            words = [f"word{k}" for k in numbers]
            rows.writerow(
                [
                    f"r{number}",
                    " ".join([*words, str(number)]),
                    f"{number * 0.37 % 100:.2f}",
                    number % 1000 if number % 7 else "",
                    f"2026-{1 + number % 12:02d}-{1 + number % 28:02d}",
                    ("red", "green", "blue")[number % 3],
                    f"note {number}" if number % 10 == 0 else "",
                    "abc"[number % 3] if number < labels else "",
                ]
            )


def create_feature_campaign(
    path: Path, *, items: int, width: int, class_count: int, labels: int
) -> Campaign:
    """Create a campaign of random features around a centre per class, the first items labelled."""
    generator = np.random.default_rng(0)
    class_centres = generator.normal(size=(class_count, width)).astype(np.float32)
    true_classes = generator.integers(class_count, size=items)
    noise = generator.normal(size=(items, width)).astype(np.float32)
    features = class_centres[true_classes] + noise  # (items, width)

    class_names = [f"class {k}" for k in range(class_count)]
    campaign = Campaign.make([], class_names, at=path, settings=Settings(kind="features"))
    campaign.add(
        {
            "id": str(k),
            "features": features[k],
            "label": class_names[true_classes[k]] if k < labels else None,
        }
        for k in range(items)
    )
    return campaign
