"""BAIT: rows that bring the Fisher information of the last layer nearest to that of the whole pool.

BAIT minimises ``tr((M + sum over picks of U_i U_i')^-1 F)``: ``F`` is the mean Fisher information
of all rows, ``M`` that of the labelled rows plus a regulariser, and ``U_i U_i'`` that of row i. It
picks 2n rows greedily (forward) and then drops n of them (backward).

Row i's factor is the Kronecker product ``U_i = s kron(Q_i', z_i)``, with ``Q_i`` (K, B) from its
class probabilities and ``z_i`` (D,) its features. The usual code multiplies every row's U by a
(B D, B D) matrix for every pick. Here each row keeps two small (B, B) matrices instead:

- ``G[a, b] = z' (M^-1)_ab z``, named ``inverse_forms``,
- ``E[a, b] = z' (M^-1 F M^-1)_ab z``, named ``product_forms``,

where ``_ab`` is the (D, D) block of classes a and b. A row's score follows from them:

    tr((I + s^2 Q G Q')^-1 s^2 Q E Q')

After a pick, the Woodbury identity updates them with thin matrix products.

References: Ash et al., Gone Fishing: Neural Active Learning with Fisher Embeddings, NeurIPS 2021.
The forms with fewer classes: Huseljic et al., Fast Fishing, 2024.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from teeter.base.arrays import available_memory
from teeter.errors import InputError

__all__ = [
    "Form",
    "bait",
    "fisher_factors",
    "peak_memory",
]

Form: TypeAlias = Literal["exact", "top", "binary"]
"""Which factors describe a row: see ``fisher_factors``."""

logger = logging.getLogger("teeter")

_ADD = 1
"""Sign of an update that adds a row."""

_REMOVE = -1
"""Sign of an update that removes a row."""


def fisher_factors(
    logits: Tensor,
    form: Form,
    top: int,
) -> Tensor:
    """Return factors Q such that row i's Fisher information is ``kron(Q_i' Q_i, z_i z_i')``.

    Args:
        logits: (N, C).
        form: ``"exact"``: one factor per class, ``sqrt(p_c) (e_c - p)``, K = B = C. ``"top"``: only
            those of the ``top`` most probable classes, K = top, B = C. ``"binary"``: the most
            probable class against the rest, ``sqrt(p (1 - p))``, K = B = 1.
        top: number of classes for the form ``"top"``.

    Returns:
        (N, K, B) float64.
    """
    p = logits.double().softmax(dim=1)
    C = p.shape[1]
    if form == "binary":
        best = p.amax(dim=1)
        deviation = (best * (1 - best)).sqrt()  # (N,)
        return deviation[:, None, None]

    # (N, K, C): e_c - p of each class c, times sqrt(p_c).
    one_hot = torch.eye(C, dtype=p.dtype, device=p.device)
    if form == "exact":
        differences = one_hot - p[:, None]
        return differences.mul_(p.sqrt()[:, :, None])

    best, classes = p.topk(min(top, C), dim=1)  # (N, K) both
    differences = one_hot[classes] - p[:, None]
    return differences.mul_(best.sqrt()[:, :, None])


def peak_memory(
    rows: int,
    width: int,
    factors: int,
    blocks: int,
    labelled: int = 0,
) -> int:
    """Return an upper estimate of the memory that ``bait`` needs.

    Args:
        rows: N candidates.
        width: D features.
        factors: K, see ``fisher_factors``.
        blocks: B, see ``fisher_factors``.
        labelled: number of labelled rows.

    Returns:
        Bytes.
    """
    # Numbers of 8 bytes. Temporaries of different steps are added up, although they do not all
    # exist at the same time.
    side = blocks * width

    # The (B D, B D) matrices, with their copies while they are inverted and multiplied.
    matrices = 7 * side**2

    # B^2: G, E and a temporary copy of one. B K, which is at least K^2: Q, its products with G and
    # E, the six (K, K) matrices of `scores`, and zV, zR, zP of `update`. D: the features as given,
    # as float64, weighted in `total_fisher` and multiplied in `quadratic_forms`.
    per_row = 3 * blocks**2 + 12 * blocks * factors + 4 * width

    # Labelled rows only need `total_fisher`.
    per_labelled_row = blocks**2 + 3 * blocks * factors + 3 * width

    numbers = matrices + rows * per_row + labelled * per_labelled_row
    return 8 * numbers


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
    """Pick n rows by BAIT.

    Args:
        logits: (N, C).
        features: (N, D).
        n: number of picks, 1 to N.
        labelled: logits (L, C) and features (L, D) of the labelled rows, or None.
        regularisation: multiple of the identity that is added to the labelled rows' information.
        form: which factors describe a row, see ``fisher_factors``. ``"binary"`` needs the least
            memory.
        top: number of classes for the form ``"top"``.
        pruned: whether to prune the forward picks to n.

    Returns:
        (n,) int64 positions, in the order in which the forward pass picked them. If ``pruned`` is
        false: all forward picks, (min(2n, N),).

    Raises:
        InputError: if the matrices do not fit in the free memory.
    """
    N = len(features)
    L = 0
    if labelled is not None:
        labelled_logits, labelled_features = labelled
        L = len(labelled_features)
    _require_memory(logits, features, labelled=L, form=form, top=top)

    candidates = _make_rows(logits, features, form, top)
    pool_fisher = candidates.total_fisher()  # F, once it is divided by N + L
    start = torch.zeros_like(pool_fisher)  # M
    if L:
        labelled_rows = _make_rows(labelled_logits, labelled_features, form, top)
        start = labelled_rows.total_fisher()
        pool_fisher += start
        start /= L + n
    start.diagonal().add_(regularisation)

    # The mean of the labelled rows has the weight L / (L + n), and a pick s^2 = n / (L + n).
    state = _BaitState(start, pool_fisher.div_(N + L), scale=n / (L + n))
    picks = _pick_forward(candidates, state, min(2 * n, N))
    if not pruned:
        return picks

    useful = _prune_backward(candidates.take(picks), state, n)
    return picks[useful]


def _make_rows(
    logits: Tensor,
    features: Tensor,
    form: Form,
    top: int,
) -> _FisherRows:
    """Return rows from their logits (N, C) and features (N, D)."""
    return _FisherRows(
        factors=fisher_factors(logits, form, top),
        features=features.double(),
    )


def _require_memory(
    logits: Tensor,
    features: Tensor,
    *,
    labelled: int,
    form: Form,
    top: int,
) -> None:
    """Raise ``InputError`` if the matrices do not fit in the free memory."""
    N, C = logits.shape
    D = features.shape[1]
    factors = C  # K
    blocks = C  # B
    if form == "top":
        factors = min(top, C)
    elif form == "binary":
        factors = 1
        blocks = 1

    side = blocks * D
    needed = peak_memory(N, D, factors, blocks, labelled)
    free = available_memory(features.device)
    logger.info(
        "bait needs about %.1f GB for its %d x %d matrices; %.1f GB are free.",
        needed / 1e9,
        side,
        side,
        free / 1e9,
    )
    if needed <= free:
        return

    advice = "form='binary', which needs a matrix of features alone"
    if form == "binary":
        advice = "fewer features"
    raise InputError(
        f"bait needs {needed / 1e9:.1f} GB ({side:,} x {side:,} matrices), but only "
        f"{free / 1e9:.1f} GB are free: use {advice}."
    )


@dataclass
class _FisherRows:
    """Rows by their factors and features.

    ``inverse_forms`` (G) and ``product_forms`` (E) belong to one ``_BaitState``, which fills them
    and updates them in place: they are (N, B, B), and a copy per pick would double the memory.
    Invariant between its calls: they are the forms of the state's two matrices as these are now.
    """

    factors: Tensor
    """Q (N, K, B)."""
    features: Tensor
    """z (N, D)."""
    inverse_forms: Tensor | None = None
    """G (N, B, B), None before ``_BaitState.fill_forms``."""
    product_forms: Tensor | None = None
    """E (N, B, B), None before ``_BaitState.fill_forms``."""

    def take(self, rows: Tensor) -> _FisherRows:
        """Return some of the rows, without their forms."""
        return _FisherRows(self.factors[rows], self.features[rows])

    def total_fisher(self) -> Tensor:
        """Return the sum of the rows' Fisher information: (B D, B D)."""
        weights = torch.einsum("nka,nkb->nab", self.factors, self.factors)  # Q' Q: (N, B, B)
        B = weights.shape[1]
        D = self.features.shape[1]
        total = self.features.new_empty((B, D, B, D))

        # Block (a, b) is a weighted sum of z z', hence symmetric, and equal to block (b, a).
        for a in range(B):
            for b in range(a + 1):
                weight = weights[:, a, b, None]
                block = self.features.T @ (self.features * weight)
                total[a, :, b] = block
                total[b, :, a] = block
        return total.view(B * D, B * D)

    def quadratic_forms(self, matrix: Tensor) -> Tensor:
        """Return ``z' matrix_ab z`` of every row, matrix symmetric: (B D, B D) -> (N, B, B)."""
        N, D = self.features.shape
        B = self.factors.shape[2]
        matrix_blocks = matrix.view(B, D, B, D)
        forms = self.features.new_empty((N, B, B))

        for a in range(B):
            for b in range(a + 1):
                block_values = ((self.features @ matrix_blocks[a, :, b]) * self.features).sum(dim=1)
                forms[:, a, b] = block_values
                forms[:, b, a] = block_values
        return forms


class _BaitState:
    """``M^-1`` and ``M^-1 F M^-1``, and how adding or removing a row changes them.

    Both matrices are (B D, B D) and updated in place, because they are the largest arrays here.
    """

    def __init__(
        self,
        start: Tensor,
        fisher: Tensor,
        *,
        scale: float,
    ) -> None:
        self.inverse = torch.linalg.inv(start).contiguous()  # M^-1
        self.product = self.inverse @ fisher @ self.inverse  # M^-1 F M^-1
        self.scale = scale  # s^2

    def fill_forms(self, rows: _FisherRows) -> None:
        """Compute the forms of rows under this state from scratch."""
        rows.inverse_forms = rows.quadratic_forms(self.inverse)
        rows.product_forms = rows.quadratic_forms(self.product)

    def scores(self, rows: _FisherRows, sign: int) -> Tensor:
        """Return how much the objective falls (``_ADD``) or rises (``_REMOVE``) per row: (N,)."""
        inverse_forms, product_forms = _require_forms(rows)
        # tr((I + sign s^2 Q G Q')^-1 s^2 Q E Q'), from (N, K, K) matrices.
        inverse_projections = self._project(rows.factors, inverse_forms)
        product_projections = self._project(rows.factors, product_forms)
        identity = _identity_like(inverse_projections)
        # The matrices are positive definite, and checking that would make a GPU wait.
        solved, _ = torch.linalg.solve_ex(
            identity + sign * inverse_projections, product_projections
        )
        scores: Tensor = solved.diagonal(dim1=1, dim2=2).sum(dim=1)
        return scores

    def update(
        self,
        rows: _FisherRows,
        row: Tensor,
        sign: int,
    ) -> None:
        """Add or remove a row, and update both matrices and the forms of all rows in place.

        Args:
            rows: all rows.
            row: () the position of the one to add or remove. A tensor: reading it would make a GPU
                wait once for each pick, which takes longer than the update.
            sign: ``_ADD`` or ``_REMOVE``.
        """
        inverse_forms, product_forms = _require_forms(rows)
        Q = _take_row(rows.factors, row)  # (K, B)
        z = _take_row(rows.features, row)  # (D,)

        V = self._times_factor(self.inverse, Q, z)  # M^-1 U: (B D, K)
        Y = self._times_factor(self.product, Q, z)  # M^-1 F M^-1 U: (B D, K)
        # U' M^-1 U and U' M^-1 F M^-1 U: (K, K).
        inverse_form = _take_row(inverse_forms, row)
        product_form = _take_row(product_forms, row)
        inverse_projection = self.scale * Q @ inverse_form @ Q.T
        product_projection = self.scale * Q @ product_form @ Q.T

        # Woodbury: (M + sign U U')^-1 = M^-1 - sign V W V', with W = (I + sign U' M^-1 U)^-1. The
        # product with F on both sides changes by -sign (P R' + R P'), which is symmetric.
        identity = _identity_like(inverse_projection)
        W, _ = torch.linalg.inv_ex(identity + sign * inverse_projection)
        P = V @ W
        R = Y - sign * 0.5 * (P @ product_projection)
        self.inverse.addmm_(P, V.T, alpha=-sign)
        self.product.addmm_(P, R.T, alpha=-sign)
        self.product.addmm_(R, P.T, alpha=-sign)

        # The same changes as seen by every row's features: (N, B, K) each.
        zV = _blockwise_products(rows.features, V)
        zR = _blockwise_products(rows.features, R)
        zP = zV @ W
        inverse_forms.baddbmm_(zP, zV.transpose(1, 2), alpha=-sign)
        product_forms.baddbmm_(zP, zR.transpose(1, 2), alpha=-sign)
        product_forms.baddbmm_(zR, zP.transpose(1, 2), alpha=-sign)

    def _project(self, factors: Tensor, forms: Tensor) -> Tensor:
        """Return ``U' matrix U`` of every row from its form: (N, K, B), (N, B, B) -> (N, K, K)."""
        return self.scale * torch.einsum("nka,nab,nlb->nkl", factors, forms, factors)

    def _times_factor(
        self,
        matrix: Tensor,
        Q: Tensor,
        z: Tensor,
    ) -> Tensor:
        """Return ``matrix U`` for ``U = s kron(Q', z)``: (B D, B D) -> (B D, K)."""
        B = Q.shape[1]
        blocks = matrix.view(-1, len(z))
        by_class = (blocks @ z).view(-1, B)  # (B D, B)
        product: Tensor = by_class @ (self.scale**0.5 * Q.T)
        return product


def _take_row(values: Tensor, row: Tensor) -> Tensor:
    """Return ``values[row]`` for a position that stays on the device."""
    return values.index_select(0, row.view(1))[0]


def _identity_like(matrices: Tensor) -> Tensor:
    """Return the identity (K, K) for one matrix (K, K) or many (N, K, K)."""
    K = matrices.shape[-1]
    return torch.eye(K, dtype=matrices.dtype, device=matrices.device)


def _require_forms(rows: _FisherRows) -> tuple[Tensor, Tensor]:
    if rows.inverse_forms is None or rows.product_forms is None:
        raise TypeError("The rows have no forms yet: call fill_forms first.")
    return rows.inverse_forms, rows.product_forms


def _blockwise_products(features: Tensor, matrix: Tensor) -> Tensor:
    """Return ``z' matrix_a`` of every row and block: (N, D), (B D, K) -> (N, B, K)."""
    N, D = features.shape
    B = len(matrix) // D
    blocks = matrix.view(B, D, -1)
    side_by_side = blocks.transpose(0, 1).reshape(D, -1)  # (D, B K)
    return (features @ side_by_side).view(N, B, -1)


def _pick_forward(
    rows: _FisherRows,
    state: _BaitState,
    count: int,
) -> Tensor:
    """Return ``count`` rows, each the one that lowers the objective most: (count,)."""
    state.fill_forms(rows)
    is_taken = rows.features.new_zeros(len(rows.features), dtype=torch.bool)
    picks = []

    for _ in range(count):
        scores = state.scores(rows, _ADD)
        best = scores.masked_fill_(is_taken, -torch.inf).argmax()
        picks.append(best)
        is_taken.index_fill_(0, best.view(1), True)
        state.update(rows, best, _ADD)

    return torch.stack(picks)


def _prune_backward(
    rows: _FisherRows,
    state: _BaitState,
    n: int,
) -> Tensor:
    """Return the n rows that are left when the least useful ones are removed: (n,), ascending."""
    state.fill_forms(rows)
    is_removed = rows.features.new_zeros(len(rows.features), dtype=torch.bool)

    for _ in range(len(rows.features) - n):
        scores = state.scores(rows, _REMOVE)
        worst = scores.masked_fill_(is_removed, torch.inf).argmin()
        is_removed.index_fill_(0, worst.view(1), True)
        state.update(rows, worst, _REMOVE)

    return (~is_removed).nonzero().squeeze(1)
