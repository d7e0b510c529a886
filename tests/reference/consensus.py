"""Expectation and maximisation over annotators' errors as the paper writes it, without logarithms
or arrays.
"""

from __future__ import annotations

Votes = list[tuple[int, int, int]]


def dawid_skene(
    votes: Votes, sizes: tuple[int, int, int], *, right: float, wrong: float, rounds: int
) -> tuple[list[list[float]], list[list[list[float]]], list[float]]:
    """Items' classes T_ij, annotators' errors pi_jl^(k) and shares p_j [Dawid and Skene 1979,
    equations 2.3 to 2.5].

    Each count of errors begins at ``right`` or at a part of ``wrong``, each count of classes at 1.
    """
    n_items, n_annotators, n_classes = sizes

    t = [[0.0] * n_classes for _ in range(n_items)]
    for i, _, label in votes:
        t[i][label] += 1
    t = [[value / max(1.0, sum(line)) for value in line] for line in t]

    pi: list[list[list[float]]] = []
    p: list[float] = []

    for _ in range(rounds):
        p = [(1 + sum(line[j] for line in t)) / (n_classes + n_items) for j in range(n_classes)]
        pi = []
        for k in range(n_annotators):
            errors = []
            for j in range(n_classes):
                row = [
                    right if j == label else wrong / (n_classes - 1) for label in range(n_classes)
                ]
                for i, annotator, label in votes:
                    if annotator == k:
                        row[label] += t[i][j]
                errors.append([value / sum(row) for value in row])
            pi.append(errors)

        for i in range(n_items):
            line = list(p)
            for item, k, label in votes:
                if item == i:
                    line = [line[j] * pi[k][j][label] for j in range(n_classes)]
            t[i] = [value / sum(line) for value in line]
    return t, pi, p
