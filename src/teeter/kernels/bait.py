"""BAIT: rows that bring the Fisher information of the last layer nearest to that of the whole pool.

Minimise ``tr((M + sum of U_i U_i')^-1 F)`` over the picks: forward greedy to 2n, then backward pruning to n. Row i's
Fisher information is ``U_i U_i'`` with ``U_i = s Q_i' (x) z_i``; the usual code multiplies every row's U by a matrix of
C D x C D for every pick. Here each row keeps two small matrices instead, ``G[a, b] = z' (M^-1)_ab z`` and
``E[a, b] = z' (M^-1 F M^-1)_ab z``, from which its score follows, and which follow a pick by thin products.

Reference: Ash et al., Gone Fishing: Neural Active Learning with Fisher Embeddings, NeurIPS 2021. The forms with fewer
classes: Huseljic et al., Fast Fishing, 2024.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from teeter.arrays import available_memory
from teeter.errors import InputError

__all__ = ["Form", "bait", "fisher_factors", "peak_memory"]

Form: TypeAlias = Literal["exact", "top", "binary"]

logger = logging.getLogger("teeter")


def fisher_factors(logits: Tensor, form: Form, top: int) -> Tensor:
    """Return Q, so that row i's Fisher information is ``Q_i' Q_i (x) z_i z_i'``: (N, C) -> (N, K, B), float64.

    exact: one factor a class, ``sqrt(p_c) (e_c - p)``, K = B = C. top: those of the ``top`` most probable classes,
    K = top, B = C. binary: the most probable class against the rest, ``sqrt(p (1 - p))``, K = B = 1.
    """
    p = logits.double().softmax(dim=1)
    if form == "binary":
        best = p.amax(dim=1)
        return (best * (1 - best)).sqrt()[:, None, None]
    one_hot = torch.eye(p.shape[1], dtype=p.dtype, device=p.device)
    if form == "exact":
        return (one_hot - p[:, None]).mul_(p.sqrt()[:, :, None])
    best, classes = p.topk(min(top, p.shape[1]), dim=1)
    return (one_hot[classes] - p[:, None]).mul_(best.sqrt()[:, :, None])


def peak_memory(rows: int, width: int, factors: int, blocks: int, known: int = 0) -> int:
    """Return how many bytes ``bait`` takes at its peak, a little more rather than less."""
    side = blocks * width
    per_row = 3 * blocks**2 + 12 * blocks * factors + 4 * width
    return 8 * (
        7 * side**2 + rows * per_row + known * (blocks**2 + 3 * blocks * factors + 3 * width)
    )


def bait(
    logits: Tensor,
    features: Tensor,
    n: int,
    *,
    labelled: tuple[Tensor, Tensor] | None,
    regularisation: float = 1.0,
    form: Form = "exact",
    top: int = 2,
    pruned: bool = True,
) -> Tensor:
    """Return n rows, in the order in which the forward pass picked them.

    logits (N, C), features (N, D), labelled: logits (L, C) and features (L, D) -> (n,); not pruned, all that the
    forward pass picked: (min(2n, N),).
    """
    rows, classes, width = len(features), logits.shape[1], features.shape[1]
    blocks, factors = (
        (1, 1) if form == "binary" else (classes, classes if form == "exact" else min(top, classes))
    )
    known = 0 if labelled is None else len(labelled[1])
    _require_memory(
        peak_memory(rows, width, factors, blocks, known), blocks * width, features.device, form
    )
    candidates = _Rows(fisher_factors(logits, form, top), features.double())
    pool_fisher = candidates.fisher()
    start = torch.zeros_like(pool_fisher)
    if labelled is not None and known:
        start = _Rows(fisher_factors(labelled[0], form, top), labelled[1].double()).fisher()
        pool_fisher += start
        start /= known + n
    start.diagonal().add_(regularisation)
    state = _State(start, pool_fisher.div_(rows + known), scale=n / (known + n))
    picks = _forward(candidates, state, min(2 * n, rows))
    return picks[_kept(candidates.take(picks), state, n)] if pruned else picks


def _require_memory(needed: int, side: int, device: torch.device, form: Form) -> None:
    free = available_memory(device)
    logger.info(
        "bait takes about %.1f GB for its %d x %d matrices, of %.1f GB free.",
        needed / 1e9,
        side,
        side,
        free / 1e9,
    )
    if needed > free:
        way = (
            "form='binary', which needs a matrix of features alone"
            if form != "binary"
            else "fewer features"
        )
        raise InputError(
            f"bait would take {needed / 1e9:.1f} GB ({side:,} x {side:,} matrices) and {free / 1e9:.1f} GB are free: "
            f"use {way}."
        )


@dataclass
class _Rows:
    """Rows by their factors Q (N, K, B) and features (N, D); G and E (N, B, B) once a state is known."""

    factors: Tensor
    features: Tensor
    inner: Tensor | None = None
    outer: Tensor | None = None

    def take(self, rows: Tensor) -> _Rows:
        return _Rows(self.factors[rows], self.features[rows])

    def fisher(self) -> Tensor:
        """Return the sum of the rows' Fisher information: (B D, B D)."""
        weights = torch.einsum("nka,nkb->nab", self.factors, self.factors)
        blocks, width = weights.shape[1], self.features.shape[1]
        total = self.features.new_empty((blocks, width, blocks, width))
        for a in range(blocks):
            for b in range(a + 1):
                block = self.features.T @ (self.features * weights[:, a, b, None])
                total[a, :, b], total[b, :, a] = block, block
        return total.view(blocks * width, blocks * width)

    def forms(self, matrix: Tensor) -> Tensor:
        """Return ``z' matrix_ab z`` of every row for a symmetric matrix: (B D, B D) -> (N, B, B)."""
        blocks, width = self.factors.shape[2], self.features.shape[1]
        parts = matrix.view(blocks, width, blocks, width)
        answer = self.features.new_empty((len(self.features), blocks, blocks))
        for a in range(blocks):
            for b in range(a + 1):
                form = ((self.features @ parts[a, :, b]) * self.features).sum(dim=1)
                answer[:, a, b], answer[:, b, a] = form, form
        return answer


class _State:
    """``M^-1`` and ``M^-1 F M^-1``, and what a row's coming or going does to them."""

    def __init__(self, start: Tensor, fisher: Tensor, *, scale: float) -> None:
        self.inverse = torch.linalg.inv(start).contiguous()
        self.spread = self.inverse @ fisher @ self.inverse
        self.scale = scale

    def meet(self, rows: _Rows) -> None:
        """Give rows their small matrices under this state."""
        rows.inner, rows.outer = rows.forms(self.inverse), rows.forms(self.spread)

    def scores(self, rows: _Rows, sign: int) -> Tensor:
        """Return how much the objective falls (sign 1) or rises (-1) when a row comes or goes: (N,)."""
        small, large = self._small(rows, rows.inner), self._small(rows, rows.outer)
        eye = torch.eye(small.shape[1], dtype=small.dtype, device=small.device)
        solved: Tensor = torch.linalg.solve(eye + sign * small, large)
        return solved.diagonal(dim1=1, dim2=2).sum(dim=1)

    def _small(self, rows: _Rows, forms: Tensor | None) -> Tensor:
        """Return ``U' matrix U`` of every row from its form: (N, K, K)."""
        if forms is None:
            raise TypeError("rows must meet the state first")
        return self.scale * torch.einsum("nka,nab,nlb->nkl", rows.factors, forms, rows.factors)

    def move(self, rows: _Rows, row: int, sign: int) -> None:
        """Let a row come (sign 1) or go (-1), and bring the small matrices of all rows up to date."""
        factor, z = rows.factors[row], rows.features[row]
        blocks, width = factor.shape[1], len(z)
        V, Y = (self._times(matrix, factor, z) for matrix in (self.inverse, self.spread))
        if rows.inner is None or rows.outer is None:
            raise TypeError("rows must meet the state first")
        small = self.scale * factor @ rows.inner[row] @ factor.T
        large = self.scale * factor @ rows.outer[row] @ factor.T
        K = torch.linalg.inv(
            torch.eye(len(small), dtype=small.dtype, device=small.device) + sign * small
        )
        P = V @ K
        R = Y - sign * 0.5 * (P @ large)
        self.inverse.addmm_(P, V.T, alpha=-sign)
        self.spread.addmm_(P, R.T, alpha=-sign).addmm_(R, P.T, alpha=-sign)
        TV, TR = (self._seen(rows.features, part, blocks, width) for part in (V, R))
        TP = TV @ K
        rows.inner.baddbmm_(TP, TV.transpose(1, 2), alpha=-sign)
        rows.outer.baddbmm_(TP, TR.transpose(1, 2), alpha=-sign).baddbmm_(
            TR, TP.transpose(1, 2), alpha=-sign
        )

    def _times(self, matrix: Tensor, factor: Tensor, z: Tensor) -> Tensor:
        """Return ``matrix U`` for ``U = s Q' (x) z``: (B D, K)."""
        blocks = factor.shape[1]
        seen = (matrix.view(-1, len(z)) @ z).view(-1, blocks)
        answer: Tensor = seen @ (self.scale**0.5 * factor.T)
        return answer

    @staticmethod
    def _seen(features: Tensor, part: Tensor, blocks: int, width: int) -> Tensor:
        """Return ``z' part_a`` of every row and block: (N, D), (B D, K) -> (N, B, K)."""
        flat = part.view(blocks, width, -1).transpose(0, 1).reshape(width, -1)
        return (features @ flat).view(len(features), blocks, -1)


def _forward(rows: _Rows, state: _State, count: int) -> Tensor:
    state.meet(rows)
    taken = torch.zeros(len(rows.features), dtype=torch.bool, device=rows.features.device)
    picks = []
    for _ in range(count):
        best = int(state.scores(rows, 1).masked_fill_(taken, -torch.inf).argmax())
        picks.append(best)
        taken[best] = True
        state.move(rows, best, 1)
    return torch.tensor(picks, device=taken.device)


def _kept(rows: _Rows, state: _State, n: int) -> Tensor:
    """Return which rows are left when those that cost least are pruned to n: (n,) in their order."""
    state.meet(rows)
    gone = torch.zeros(len(rows.features), dtype=torch.bool, device=rows.features.device)
    for _ in range(len(rows.features) - n):
        worst = int(state.scores(rows, -1).masked_fill_(gone, torch.inf).argmin())
        gone[worst] = True
        state.move(rows, worst, -1)
    return (~gone).nonzero().squeeze(1)
