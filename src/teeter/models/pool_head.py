"""Logistic regression that also learns from unlabelled rows: the pool head.

With a label or two per class, a linear head hardly knows where its classes lie, while the pool
knows: rows that the head takes for one class have a mean, and that mean is a good example of the
class. ``PoolHead`` is fitted to labelled rows, computes the soft mean of every class over all rows,
learns from these means as if they were a few more labels, and repeats this. Beside the means it
estimates how frequent the classes are, by expectation maximisation: without that, a rare class
would draw the rows of a frequent one to itself.

The result is a linear head like any other: ``coef_`` and ``intercept_``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import _check_sample_weight, validate_data

from teeter.errors import InputError

Floats = npt.NDArray[np.floating[Any]]
Integers = npt.NDArray[np.int64]

MAX_POOL_ROWS = 200_000
"""A fit draws this many rows at random from a larger pool."""

_TEMPERATURE = 0.35
"""Below 1, because a head of a few labels is underconfident."""
_SHARE_PRIOR = 0.5
"""Prior rows of each class, as a share of N / K."""
_FEWEST_PRIOR_ROWS = 20.0
"""At least this many prior rows, or small pools would lose their rare classes."""
_MEAN_LABELS = 4.0
"""How many labels the mean of a class of average size counts as; it grows by the square root of
the size."""
_SIZE_LIMITS = (0.05, 20.0)
"""Limits of the size of a class relative to the average."""
_LABELS_PER_ROW = 0.25
"""How many labels an unlabelled row behind a mean counts as, at most."""
_SMALLEST_MASS = 0.5
"""A class with fewer rows than this has no mean."""
_CHUNK_NUMBERS = 1 << 22
"""Numbers that are computed at once."""


class ExampleRegression(LogisticRegression):  # type: ignore[misc]
    """Logistic regression in which all classes weigh the same, with examples in every fit.

    ``clone`` copies the examples, so every fold of a cross-validation has them too.

    Args:
        examples: rows (M, D) and their classes (M,), which every fit learns from beside the labels:
            the features of class names, for instance. Each counts as much as a label.
        C: inverse of the regularisation, as in ``LogisticRegression``.
        max_iter: the most steps of the optimiser.
        random_state: as in ``LogisticRegression``.

    Example:
        >>> names = np.array([[-1.0, 0.0], [1.0, 0.0]]), np.array(["no", "yes"])
        >>> model = ExampleRegression(names).fit([[3.0, 1.0]], ["yes"])
        >>> model.predict([[-2.0, 0.0]]).tolist()
        ['no']
    """

    # The parameters are written out, because scikit-learn reads them from the signature.
    def __init__(
        self,
        examples: tuple[Any, Any] | None = None,
        *,
        C: float = 0.1,
        max_iter: int = 1000,
        random_state: int | None = None,
    ) -> None:
        super().__init__(C=C, max_iter=max_iter, random_state=random_state)
        self.examples = examples

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> ExampleRegression:
        """Fit the model to rows and examples.

        Args:
            X: (L, D) labelled rows.
            y: (L,) their classes.
            sample_weight: (L,) how much each row counts. Default: 1.
        """
        rows, classes, weights = self._join_examples(X, y, sample_weight)
        self._fit_balanced(rows, classes, weights)
        return self

    def _join_examples(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Floats]:
        """Return the rows, classes and weights of labels and examples together."""
        if self.examples is None:
            rows, classes = validate_data(
                self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], order="C"
            )
            return rows, classes, _check_sample_weight(sample_weight, rows, dtype=np.float64)

        # Examples may be all there is, so no label is needed.
        rows, classes = validate_data(
            self, X, y, dtype=[np.float64, np.float32], order="C", ensure_min_samples=0
        )
        weights = np.zeros(0)
        if len(rows):
            weights = _check_sample_weight(sample_weight, rows, dtype=np.float64)
        example_rows, example_classes = self.examples
        example_rows = np.asarray(example_rows, rows.dtype)
        example_weights = np.ones(len(example_classes))
        rows = np.concatenate([rows, example_rows])
        classes = np.concatenate([classes, example_classes])
        weights = np.concatenate([weights, example_weights])
        return rows, classes, weights

    def _fit_balanced(self, rows: Any, classes: Any, weights: Floats) -> None:
        """Fit the regression so that all classes have the same total weight."""
        names = getattr(self, "feature_names_in_", None)
        _, codes = np.unique(classes, return_inverse=True)
        totals = np.bincount(codes, weights)
        # A class without weight is left alone.
        divisors = np.where(totals > 0, totals, 1)
        mean_total = totals.sum() / np.count_nonzero(totals)
        factors = mean_total / divisors
        super().fit(rows, classes, weights * factors[codes])
        if names is not None:
            self.feature_names_in_ = names


class PoolHead(ExampleRegression):
    """Logistic regression that learns from labelled and from unlabelled rows.

    Without a pool it is ``ExampleRegression``. A pool helps most at one to five labels per class,
    and adds next to nothing at 25. Rows should have mean 0 and a mean square of 1. A pipeline does
    not hand a pool on: transform the rows before.

    Args:
        examples: rows and classes that every fit learns from, as in ``ExampleRegression``.
        C: inverse of the regularisation, as in ``LogisticRegression``.
        max_iter: the most steps of the optimiser in each fit.
        iterations: how often the means are computed and learned from.
        random_state: decides which rows of a pool of more than ``MAX_POOL_ROWS`` are used.

    Example:
        >>> generator = np.random.default_rng(0)
        >>> centres = np.array([[-1.0, 0.0], [1.0, 0.0]])
        >>> pool = np.concatenate([generator.normal(centre, 0.4, (200, 2)) for centre in centres])
        >>> labelled = np.array([[-1.0, 2.0], [1.0, 3.0]])  # far off, both of them
        >>> model = PoolHead().fit(labelled, [0, 1], pool=pool)
        >>> float(model.score(pool, np.repeat([0, 1], 200))) > 0.95
        True
    """

    def __init__(
        self,
        examples: tuple[Any, Any] | None = None,
        *,
        C: float = 0.1,
        max_iter: int = 1000,
        iterations: int = 4,
        random_state: int | None = None,
    ) -> None:
        super().__init__(examples, C=C, max_iter=max_iter, random_state=random_state)
        self.iterations = iterations

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, pool: Any = None) -> PoolHead:
        """Fit the head to labelled rows, examples and unlabelled rows.

        Args:
            X: (L, D) labelled rows.
            y: (L,) their classes.
            sample_weight: (L,) how much each labelled row counts. Default: 1.
            pool: (N, D) unlabelled rows, without those of ``X``.

        Raises:
            InputError: if the pool does not have the columns of ``X``.
            ValueError: if the pool holds NaN, infinity or no numbers.
        """
        rows, classes, weights = self._join_examples(X, y, sample_weight)
        self._fit_balanced(rows, classes, weights)
        if pool is None or len(pool) == 0:
            return self

        pool = np.asarray(pool)
        if pool.ndim != 2 or pool.shape[1] != self.n_features_in_:
            raise InputError(
                f"The pool has the shape {pool.shape}, but the labelled rows have "
                f"{self.n_features_in_} features."
            )
        pool = check_array(pool, dtype=[np.float64, np.float32], input_name="pool")
        if not isinstance(rows, np.ndarray):
            rows = rows.toarray()
        if len(pool) > MAX_POOL_ROWS:
            generator = check_random_state(self.random_state)
            drawn = generator.choice(len(pool), MAX_POOL_ROWS, replace=False)
            pool = pool[np.sort(drawn)]

        n_labels = len(rows)
        if self.examples is not None:
            _, example_classes = self.examples
            n_labels -= len(example_classes)
        # Each fit begins where the one before ended, which takes a third of the time.
        self.warm_start = True
        try:
            self._learn_from_pool(pool, rows, classes, weights, n_labels)
        finally:
            self.warm_start = False
        return self

    def _learn_from_pool(
        self, pool: Floats, rows: Any, classes: Any, weights: Floats, n_labels: int
    ) -> None:
        """Compute class means over all rows and fit the head to them, a few times.

        Args:
            pool: (N, D) unlabelled rows.
            rows: (L + M, D) labelled rows, then examples.
            classes: (L + M,) their classes.
            weights: (L + M,) how much each counts.
            n_labels: L. Examples are no rows of the pool.
        """
        K = len(self.classes_)
        label_weights = weights[:n_labels]
        N = len(pool) + label_weights.sum()
        prior_rows = max(_SHARE_PRIOR * N / K, _FEWEST_PRIOR_ROWS)

        # What the labelled rows contribute to each class: it is known, and stays the same.
        codes = np.searchsorted(self.classes_, classes[:n_labels])
        counts = np.bincount(codes, label_weights, minlength=K)
        weighted_rows = rows[:n_labels] * label_weights[:, None]
        sums = np.zeros((K, rows.shape[1]))
        np.add.at(sums, codes, weighted_rows)

        shift = np.zeros(K)
        for _ in range(self.iterations):
            pool_mass, pool_sums = self._soft_sums(pool, shift)
            mass = pool_mass + counts
            shift = np.log(K * (mass + prior_rows) / (N + K * prior_rows))

            has_mean = np.flatnonzero(mass > _SMALLEST_MASS)
            all_sums = sums + pool_sums
            means = all_sums[has_mean] / mass[has_mean, None]
            size = np.clip(K * mass / N, *_SIZE_LIMITS)
            most_labels = _LABELS_PER_ROW * pool_mass
            labels_of_mean = np.minimum(_MEAN_LABELS * np.sqrt(size), most_labels)
            self._fit_balanced(
                np.concatenate([rows, means.astype(rows.dtype)]),
                np.concatenate([classes, self.classes_[has_mean]]),
                np.concatenate([weights, labels_of_mean[has_mean]]),
            )

        # scikit-learn before 1.9 fits in the type of the weights.
        self.coef_: Floats = self.coef_.astype(rows.dtype, copy=False)

        # The proportions become a part of the head.
        proportions = _TEMPERATURE * shift
        if K == 2:
            proportions = proportions[1:] - proportions[:1]
        self.intercept_: Floats = (self.intercept_ + proportions).astype(rows.dtype)

    def _soft_sums(self, pool: Floats, shift: Floats) -> tuple[Floats, Floats]:
        """Return how many pool rows each class has, (K,), and their sums, (K, D)."""
        K = len(shift)
        weight = self.coef_
        bias = self.intercept_
        if K == 2:
            # scikit-learn keeps the difference of the two classes.
            weight = np.concatenate([np.zeros_like(weight), weight])
            bias = np.concatenate([np.zeros_like(bias), bias])

        dtype = np.result_type(pool, np.float32)
        weight = (weight.T / _TEMPERATURE).astype(dtype)
        bias = (bias / _TEMPERATURE + shift).astype(dtype)
        mass = np.zeros(K)
        width = pool.shape[1]
        sums = np.zeros((K, width))
        chunk = max(1, _CHUNK_NUMBERS // max(K, width))
        for start in range(0, len(pool), chunk):
            block = pool[start : start + chunk].astype(dtype, copy=False)
            shares = block @ weight
            shares += bias
            shares -= shares.max(axis=1, keepdims=True)
            np.exp(shares, out=shares)
            shares /= shares.sum(axis=1, keepdims=True)
            mass += shares.sum(axis=0, dtype=np.float64)
            sums += shares.T @ block
        return mass, sums
