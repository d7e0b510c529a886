"""A linear head for rows that may have several labels: one logistic regression per label.

The labels are fitted together on the same features. A rare label has few rows that have it and very
many that do not, so that its probability is hardly ever above one half. Three steps follow from
that:

1. In each regression, the rows with the label and the rows without it have the same total weight.
2. The logits of rows that a head was not trained on show where to cut them: the cut of a label
   maximises its F1, and that of a rare label is held near the cut that is best for all labels.
3. The same logits are calibrated. Slope and shift are those of all labels, and a label's own shift
   departs from them as far as its rows say so.

The result is a linear head like any other: ``coef_`` and ``intercept_`` give calibrated log odds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.base import BaseEstimator
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from teeter.errors import InputError
from teeter.models.outputs import Outputs

Floats = npt.NDArray[np.float64]
Marks = npt.NDArray[np.bool_]

_FOLDS = 5
_CUTS = 80
"""How many cuts are tried for each label."""
_CUT_PRIOR = 40.0
"""A label with this many rows chooses its cut half by its own F1 and half by that of all labels."""
_SHIFT_DEVIATION = 0.5
"""The standard deviation of a label's own shift of the log odds before any row is seen."""
_INTERCEPT_PENALTY = 1e-3
"""Holds the intercept of a label that no row has, or every row, at a finite value."""
_TOLERANCE = 1e-6
"""A fit ends when a step lowers the loss by less than this share of it."""


class SeveralLabelsHead(BaseEstimator):  # type: ignore[misc]
    """Logistic regression for rows that may have several of K labels, or none.

    Rows should have mean 0 and a mean square of 1.

    Args:
        examples: rows (M, D) and which labels they have (M, K), which every fit learns from beside
            the labelled rows: the features of label names, for instance.
        example_weight: how many labelled rows an example counts as.
        C: inverse of the regularisation, as in ``LogisticRegression``.
        max_iter: the most steps of the optimiser in each fit.

    Example:
        >>> generator = np.random.default_rng(0)
        >>> rows = generator.normal(size=(200, 2))
        >>> head = SeveralLabelsHead().fit(rows, rows > 1)  # a label for each large feature
        >>> head.predict([[2.0, -2.0], [-2.0, -2.0]]).tolist()
        [[True, False], [False, False]]
    """

    # The parameters are written out, because scikit-learn reads them from the signature.
    def __init__(
        self,
        examples: tuple[Any, Any] | None = None,
        *,
        example_weight: float = 3.0,
        C: float = 0.05,
        max_iter: int = 200,
    ) -> None:
        self.examples = examples
        self.example_weight = example_weight
        self.C = C
        self.max_iter = max_iter

    def fit(self, X: Any, marks: Any) -> SeveralLabelsHead:
        """Fit the head, its cuts and its calibration.

        Args:
            X: (L, D) labelled rows. There may be none if there are examples.
            marks: (L, K) of 0 and 1: which labels each row has.

        Raises:
            InputError: if marks are not 0 and 1, or do not fit the rows or the examples.
        """
        fewest_rows = 1 if self.examples is None else 0
        rows = validate_data(self, X, dtype=np.float64, ensure_min_samples=fewest_rows)
        has_label = self._check_marks(marks, len(rows))

        weight, bias = self._fit_balanced(rows, has_label)
        logits = self._cross_fit(rows, has_label, (weight, bias))
        slope, shifts = calibrate(logits, has_label)
        cuts = choose_cuts(logits, has_label)
        if self.examples is None:
            # Nothing is known of a label that no row has, so it is not predicted either.
            is_unknown = ~has_label.any(axis=0)
            highest = logits.max(axis=0)
            cuts[is_unknown] = highest[is_unknown] + 1

        # Calibrated log odds; the cuts move with them.
        self.coef_: Floats = slope * weight.T
        self.intercept_: Floats = slope * bias + shifts
        self.cuts_: Floats = slope * cuts + shifts
        """(K,) the log odds above which a row is predicted to have a label."""
        self.unseen_: Floats = slope * logits + shifts
        """(L, K) calibrated log odds of the labelled rows, by heads not trained on the row."""
        return self

    def decision_function(self, X: Any) -> Floats:
        """Return the calibrated log odds of each label: (N, K)."""
        rows = validate_data(self, X, dtype=np.float64, reset=False)
        log_odds: Floats = rows @ self.coef_.T + self.intercept_
        return log_odds

    def predict_proba(self, X: Any) -> Floats:
        """Return the calibrated probability of each label: (N, K)."""
        probabilities: Floats = expit(self.decision_function(X))
        return probabilities

    def predict(self, X: Any) -> Marks:
        """Return which labels each row is predicted to have: (N, K)."""
        predicted: Marks = self.decision_function(X) > self.cuts_
        return predicted

    def outputs(self, X: Any) -> Outputs:
        """Return what strategies see: features, and a head that is above 0 for predicted labels."""
        rows = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return Outputs(
            features=rows,
            weight=self.coef_,
            bias=self.intercept_ - self.cuts_,
            several=True,
        )

    def _check_marks(self, marks: Any, n_rows: int) -> Marks:
        """Return marks as booleans, after comparing them with the rows and the examples."""
        values = check_array(marks, ensure_min_samples=0, input_name="marks")
        if len(values) != n_rows:
            raise InputError(
                f"There are {n_rows} rows and {len(values)} rows of marks: give one for each."
            )
        if not np.isin(values, (0, 1)).all():
            raise InputError("marks must be 0 or 1: whether a row has the label of the column.")
        if self.examples is not None:
            n_labels = np.shape(self.examples[1])[1]
            if values.shape[1] != n_labels:
                raise InputError(
                    f"marks have {values.shape[1]} columns, but those of the examples {n_labels}: "
                    "there must be one for each label."
                )
        has_label: Marks = values.astype(bool)
        return has_label

    def _cross_fit(self, rows: Floats, marks: Marks, start: tuple[Floats, Floats]) -> Floats:
        """Return logits (L, K) of rows from heads that were not trained on them.

        The fits begin at ``start``, the head of all rows, which takes fewer steps and leads to the
        same place: the loss has one minimum.
        """
        logits = np.zeros(marks.shape)
        # A single row without examples leaves nothing to train on.
        is_single = len(rows) == 1 and self.examples is None
        if len(rows) == 0 or is_single:
            return logits

        # Shuffled, because rows may come label by label.
        generator = np.random.default_rng(0)
        order = generator.permutation(len(rows))
        n_folds = min(_FOLDS, len(rows))
        for fold in np.array_split(order, n_folds):
            others = np.setdiff1d(order, fold)
            weight, bias = self._fit_balanced(rows[others], marks[others], start)
            logits[fold] = rows[fold] @ weight + bias
        return logits

    def _fit_balanced(
        self, rows: Floats, marks: Marks, start: tuple[Floats, Floats] | None = None
    ) -> tuple[Floats, Floats]:
        """Fit all regressions to rows and examples: (D, K) and (K,)."""
        importance = np.ones(len(rows))
        if self.examples is not None:
            example_rows = np.asarray(self.examples[0], np.float64)
            example_marks = np.asarray(self.examples[1], bool)
            example_importance = np.full(len(example_rows), self.example_weight)
            rows = np.concatenate([rows, example_rows])
            marks = np.concatenate([marks, example_marks])
            importance = np.concatenate([importance, example_importance])

        # With fewer rows than features, the weights lie in the space of the rows.
        basis = None
        if len(rows) < rows.shape[1]:
            basis, triangle = np.linalg.qr(rows.T)
            rows = triangle.T
            if start is not None:
                start = (basis.T @ start[0], start[1])

        weight, bias = _fit_regressions(
            rows, marks, importance, start, strength=self.C, max_iter=self.max_iter
        )
        if basis is not None:
            weight = basis @ weight
        return weight, bias


def _fit_regressions(
    rows: Floats,
    marks: Marks,
    importance: Floats,
    start: tuple[Floats, Floats] | None,
    *,
    strength: float,
    max_iter: int,
) -> tuple[Floats, Floats]:
    """Fit a balanced logistic regression per label: (L, D), (L, K), (L,) -> (D, K), (K,)."""
    D = rows.shape[1]
    K = marks.shape[1]
    total = importance.sum()
    with_label = importance @ marks  # (K,)
    without = total - with_label
    # A label that no row has, or every row, has one kind of rows only.
    factor_with = total / (2 * np.maximum(with_label, 1e-9))
    factor_without = total / (2 * np.maximum(without, 1e-9))
    weights = importance[:, None] * np.where(marks, factor_with, factor_without)
    weights *= strength

    signs = np.where(marks, 1.0, -1.0)
    balance = (with_label > 0).astype(float) - (without > 0).astype(float)
    expected_bias = balance * np.log(total + 1)

    def loss(parameters: Floats) -> tuple[float, Floats]:
        matrix = parameters.reshape(D + 1, K)
        weight = matrix[:D]
        bias_excess = matrix[D] - expected_bias
        margins = signs * (rows @ weight + matrix[D])

        misfit = float((weights * np.logaddexp(0, -margins)).sum())
        penalty = np.square(weight).sum() + _INTERCEPT_PENALTY * np.square(bias_excess).sum()
        pull = -weights * signs * expit(-margins)
        gradient = np.empty_like(matrix)
        gradient[:D] = rows.T @ pull + weight
        gradient[D] = pull.sum(axis=0) + _INTERCEPT_PENALTY * bias_excess
        return misfit + float(penalty) / 2, gradient.ravel()

    if start is None:
        start = (np.zeros((D, K)), expected_bias)
    parameters = np.vstack(start)
    result = minimize(
        loss,
        parameters.ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": max_iter, "ftol": _TOLERANCE},
    )
    matrix = result.x.reshape(D + 1, K)
    return matrix[:D], matrix[D]


def calibrate(logits: Floats, marks: Marks) -> tuple[float, Floats]:
    """Return the slope and the shifts (K,) that turn logits of unseen rows into log odds.

    Args:
        logits: (L, K) of heads that were not trained on the row.
        marks: (L, K) whether each row has each label.
    """
    L, K = marks.shape
    shares = (marks.sum(axis=0) + 0.5) / (L + 1)
    # A balanced regression does not know how frequent a label is.
    base = np.log(shares / (1 - shares))
    signs = np.where(marks, 1.0, -1.0)

    # The logarithm of the slope, the common shift, and each label's own shift.
    def loss(parameters: Floats) -> tuple[float, Floats]:
        log_slope, shift = parameters[:2]
        own_shifts = parameters[2:]
        scaled = np.exp(log_slope) * logits
        margins = signs * (scaled + base + shift + own_shifts)

        misfit = np.logaddexp(0, -margins).sum()
        deviations = own_shifts / _SHIFT_DEVIATION
        penalty = log_slope**2 + shift**2 + np.square(deviations).sum()
        pull = -signs * expit(-margins)
        gradient = np.empty_like(parameters)
        gradient[0] = (pull * scaled).sum() + log_slope
        gradient[1] = pull.sum() + shift
        gradient[2:] = pull.sum(axis=0) + own_shifts / _SHIFT_DEVIATION**2
        return float(misfit + penalty / 2), gradient

    result = minimize(loss, np.zeros(K + 2), jac=True, method="L-BFGS-B")
    log_slope, shift = result.x[:2]
    own_shifts = result.x[2:]
    return float(np.exp(log_slope)), base + shift + own_shifts


def choose_cuts(logits: Floats, marks: Marks) -> Floats:
    """Return the logit (K,) above which a row is predicted to have a label.

    A cut maximises the label's F1 on unseen rows, averaged with the mean F1 of all labels at the
    same cut. The fewer rows have the label, the more that mean counts.

    Args:
        logits: (L, K) of heads that were not trained on the row.
        marks: (L, K) whether each row has each label.
    """
    counts = marks.sum(axis=0)  # (K,)
    # A label that every row has says only that its cut may be as low as can be.
    is_counted = (counts > 0) & (counts < len(marks))
    if not is_counted.any():
        is_counted = counts > 0
    if not is_counted.any():
        return np.zeros(len(counts))

    # Closer together among the large logits: most labels are rare. The first is below all.
    shares = 1 - np.geomspace(1 / logits.size, 1, _CUTS)
    candidates = np.unique(np.quantile(logits, shares))
    candidates = np.concatenate([[candidates[0] - 1], candidates])

    f1 = np.empty((len(candidates), len(counts)))
    for row, cut in enumerate(candidates):
        is_predicted = logits > cut
        n_predicted = is_predicted.sum(axis=0)
        hits = (is_predicted & marks).sum(axis=0)
        f1[row] = 2 * hits / np.maximum(n_predicted + counts, 1)

    mean_f1 = f1[:, is_counted].mean(axis=1, keepdims=True)
    own_share = counts / (counts + _CUT_PRIOR)
    guarded = own_share * f1 + (1 - own_share) * mean_f1
    cuts: Floats = candidates[guarded.argmax(axis=0)]
    return cuts
