"""ALFA-Mix and DropQuery as their papers write them, one row and one anchor at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def softmax(logits: Array) -> Array:
    powers = np.exp(logits - logits.max())
    return powers / powers.sum()


def changes_by_mixing(z: Array, anchor: Array, weight: Array, bias: Array, eps: float) -> bool:
    """Parvaneh et al. 2022, equations 4 and 5: whether z mixed with an anchor has another class."""
    logits = weight @ z + bias
    predicted = int(logits.argmax())
    gradient = weight.T @ (softmax(logits) - np.eye(len(weight))[predicted])

    difference = anchor - z
    alpha = eps * np.linalg.norm(difference) / np.linalg.norm(gradient) * gradient / difference
    mixed = alpha * anchor + (1 - alpha) * z
    return int((weight @ mixed + bias).argmax()) != predicted


def dropout_changes(z: Array, masks: list[Array], weight: Array, bias: Array, rate: float) -> int:
    """Gupte et al. 2024, section 4: how many masked predictions differ from that of z."""
    predicted = int((weight @ z + bias).argmax())
    count = 0
    for mask in masks:
        count += int((weight @ (z * mask / (1 - rate)) + bias).argmax()) != predicted
    return count


def nearest_to_centres(units: Array, clusters: npt.NDArray[np.int64], n: int) -> set[int]:
    """The row nearest the mean of each cluster."""
    rows = set()
    for k in range(n):
        members = np.flatnonzero(clusters == k)
        centre = units[members].mean(axis=0)
        distances = [float(((units[row] - centre) ** 2).sum()) for row in members]
        rows.add(int(members[int(np.argmin(distances))]))
    return rows
