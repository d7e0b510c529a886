"""Audits of rows whose true labels are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from teeter.campaigns import Campaign

SECRET = "zebra"
"""A word that only columns of judges have. Whoever finds it before an answer is not blind."""


def make_rows(size: int, *, right: float = 0.8, seed: int = 0) -> list[dict[str, Any]]:
    """Return rows with two judges, of which the first is right on a share of them."""
    generator = np.random.default_rng(seed)
    rows = []
    for number in range(size):
        truth = "spam" if generator.random() < 0.3 else "ham"
        other = "ham" if truth == "spam" else "spam"
        is_right = generator.random() < right
        rows.append(
            {
                "id": f"m{number}",
                "text": f"message {number} {truth}",
                "language": "en" if number % 3 else "de",
                "llm": truth if is_right else other,
                "sure": round(float(generator.beta(8, 2) if is_right else generator.beta(5, 3)), 3),
                "rule": truth if generator.random() < 0.95 else other,
                "reason": f"{SECRET} {number}",
            }
        )
    return rows


def make_audit(tmp_path: Path, size: int = 400, **options: Any) -> Campaign:
    """Return an audit of the judges ``llm`` and ``rule``."""
    rows = make_rows(size, right=options.pop("right", 0.8))
    judges = options.pop("judges", {"llm": "sure", "rule": ""})
    return Campaign.audit(rows, judges, at=tmp_path / "audit.teeter", **options)


def answer_rightly(campaign: Campaign, count: int, annotator: str = "me") -> list[str]:
    """Give the next items their true labels, and return their ids."""
    answered: list[str] = []
    while len(answered) < count:
        questions = campaign.ask(min(20, count - len(answered)), annotator)
        if not questions:
            break
        for question in questions:
            truth = str(question.content).rsplit(" ", 1)[1]
            campaign.tell(question.item, truth, annotator)
            answered.append(question.item)
    return answered
