"""How posterior samples disagree, as the papers write it, one row and one sample at a time."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from reference.uncertainty import probabilities

Array = npt.NDArray[np.float64]


def entropy(p: Array) -> float:
    return -sum(float(value) * math.log(value) for value in p if value > 0)


def mutual_information(logits: Array) -> Array:
    """H(mean over s of p_s) - mean over s of H(p_s): (S, N, C) -> (N,)."""
    p = [probabilities(sample) for sample in logits]
    answer = []
    for i in range(logits.shape[1]):
        mean = sum(sample[i] for sample in p) / len(p)
        answer.append(entropy(mean) - sum(entropy(sample[i]) for sample in p) / len(p))
    return np.array(answer)


def variation_ratio(logits: Array) -> Array:
    """1 - (votes of the most voted class) / S: (S, N, C) -> (N,)."""
    answer = []
    for i in range(logits.shape[1]):
        votes = [0] * logits.shape[2]
        for sample in logits:
            votes[int(np.argmax(sample[i]))] += 1
        answer.append(1 - max(votes) / len(logits))
    return np.array(answer)
