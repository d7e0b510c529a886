"""A user's own encoder, as ``encoders.own_function:encode`` names it."""

from __future__ import annotations

from collections.abc import Sequence

version = "7"
NOT_A_FUNCTION = 3


def encode(texts: Sequence[str]) -> list[list[float]]:
    return [[len(text), text.count("a"), sum(map(ord, text[:20])) % 97] for text in texts]
