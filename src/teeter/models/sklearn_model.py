"""Outputs of a fitted scikit-learn classifier: its features and linear head, or probabilities.

``fit_head`` fits such a head to labelled rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from inspect import signature
from typing import Any

import numpy as np
import numpy.typing as npt

from teeter.errors import InputError
from teeter.models.inputs import count_rows, take_rows
from teeter.models.outputs import Outputs

Floats = npt.NDArray[np.floating[Any]]

_MAX_DENSE_NUMBERS = 1 << 29
"""Numbers in a sparse matrix that is made dense: 2 GiB of float32."""
_SMALLEST_PROBABILITY = 1e-12
"""Smaller ones become this, because log(0) is infinite."""

_ACTIVATIONS: dict[str, Callable[[Floats], Floats]] = {
    "identity": lambda x: x,
    # The logistic function, in a form that does not overflow.
    "logistic": lambda x: 0.5 + 0.5 * np.tanh(0.5 * x),
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
}


def observe_sklearn(model: Any, data: Any) -> Outputs:
    """Return what a fitted classifier, alone or at the end of a pipeline, says about rows.

    A linear model or ``MLPClassifier`` gives logits, features and head. Any other classifier gives
    the logarithms of its probabilities as logits, or its decision function if it has no
    probabilities. A forest or another ensemble gives those of its members as posterior.

    Args:
        model: the classifier, or a pipeline that ends in one.
        data: N rows as the model takes them.

    Returns:
        Outputs whose columns are in the order of the model's ``classes_``.

    Raises:
        InputError: if the model is not a fitted classifier of one class per row, or has no
            coefficients, probabilities or decision function.
    """
    from sklearn.neural_network import MLPClassifier

    if not count_rows(data):
        raise InputError("Cannot observe an empty pool: the data has no rows.")
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    require_classifier(model)
    name = type(model).__name__
    try:
        check_is_fitted(model)
    except NotFittedError:
        raise InputError(
            f"This {name} is not fitted yet: fit it to the labelled rows first."
        ) from None
    expected = getattr(model, "n_features_in_", None)
    shape: tuple[int, ...] = getattr(data, "shape", ())
    if expected is not None and len(shape) == 2 and shape[1] != expected:
        raise InputError(
            f"This {type(model).__name__} was fitted to {expected} features per row, but the data "
            f"has {shape[1]}."
        )
    _require_one_class_per_row(model, data)

    steps, classifier = split_pipeline(model)
    rows = data
    for step in steps:
        rows = step.transform(rows)

    if isinstance(classifier, MLPClassifier):
        return _observe_mlp(classifier, _as_dense(rows))

    # scikit-learn has no class for linear models: the attribute is its convention, and a
    # property that raises AttributeError on an SVC whose kernel is not linear.
    if hasattr(classifier, "coef_") and not _is_one_vs_one(classifier):
        return _observe_linear(classifier, _as_dense(rows))

    outputs = observe_predictions(classifier, rows)
    member_logits = _member_log_probabilities(classifier, rows)
    if member_logits is None:
        return outputs
    return Outputs(logits=outputs.logits, posterior_logits=member_logits)


def observe_predictions(model: Any, rows: Any) -> Outputs:
    """Return the logits of a model by ``predict_proba``, or by ``decision_function`` without it.

    Args:
        model: an object with one of the two methods, of scikit-learn or not.
        rows: N rows as the model takes them.

    Raises:
        InputError: if the model has neither method, or does not return one column per class.

    Example:
        >>> class Thermometer:
        ...     def predict_proba(self, rows):
        ...         return [[0.5, 0.5] for row in rows]
        >>> observe_predictions(Thermometer(), [[1.0], [2.0]])
        Outputs(logits=(2, 2))
    """
    if hasattr(model, "predict_proba"):
        return Outputs(logits=_log_probabilities(model, rows))

    if not hasattr(model, "decision_function"):
        raise InputError(
            f"This {type(model).__name__} has no coefficients, no probabilities and no decision "
            "function: use a classifier that has coef_, predict_proba or decision_function."
        )

    decisions = np.asarray(model.decision_function(rows), dtype=np.float64)
    if decisions.ndim == 1:
        # A binary classifier returns the score of its second class.
        zeros = np.zeros_like(decisions)
        return Outputs(logits=np.stack([zeros, decisions], axis=1))

    classes = getattr(model, "classes_", None)
    columns = decisions.shape[1]
    if classes is not None and columns != len(classes):
        raise InputError(
            f"The decision function of this {type(model).__name__} has {columns} "
            f"columns for {len(classes)} classes: create it with decision_function_shape='ovr'."
        )
    return Outputs(logits=decisions)


def classes_of(model: Any) -> npt.NDArray[Any]:
    """Return the classes that the columns of a fitted classifier's outputs stand for: (C,)."""
    classes: npt.NDArray[Any] = np.asarray(model.classes_)
    return classes


def clone_with_seed(model: Any, seed: int) -> Any:
    """Return an unfitted copy of an estimator with all random states, also inside it, set to seed.

    Example:
        >>> from sklearn.ensemble import RandomForestClassifier
        >>> clone_with_seed(RandomForestClassifier(), 7).random_state
        7
    """
    from sklearn.base import clone

    # Parameters of estimators inside are named like "step__random_state".
    copy = clone(model)
    seeded = {}
    for name in copy.get_params():
        if name.split("__")[-1] == "random_state":
            seeded[name] = seed
    return copy.set_params(**seeded)


def split_pipeline(model: Any) -> tuple[list[Any], Any]:
    """Return the steps before the classifier, in order, and the classifier.

    A pipeline at the end of a pipeline is split too. A model that is not a pipeline has no steps.
    """
    from sklearn.pipeline import Pipeline

    if not isinstance(model, Pipeline):
        return [], model

    inner_steps, classifier = split_pipeline(model[-1])
    if len(model) == 1:
        return inner_steps, classifier

    # All steps but the last are a pipeline themselves.
    outer_steps = model[:-1]
    return [outer_steps, *inner_steps], classifier


def require_classifier(model: Any) -> None:
    """Refuse estimators of other kinds."""
    from sklearn.base import is_classifier

    if not is_classifier(model):
        raise InputError(f"{type(model).__name__} is not a classifier, but teeter needs one.")


def learns_from_pool(model: Any) -> bool:
    """Return whether a classifier learns from unlabelled rows: ``fit(X, y, pool=rows)``.

    Example:
        >>> from teeter.models import PoolHead
        >>> learns_from_pool(PoolHead())
        True
    """
    return "pool" in signature(model.fit).parameters


def _require_one_class_per_row(model: Any, data: Any) -> None:
    """Refuse classifiers of several outputs or labels."""
    # Multi-output classifiers have a list of classes for each output. Multi-label ones look like
    # others until they predict.
    predicts_several = isinstance(model.classes_, list)
    if not predicts_several:
        first_row = take_rows(data, np.arange(1))
        predicts_several = np.ndim(model.predict(first_row)) != 1

    if predicts_several:
        raise InputError(
            f"This {type(model).__name__} predicts several labels per row: teeter needs one "
            f"class per row."
        )


def _as_dense(rows: Any) -> Floats:
    """Return features as an array of floats. TF-IDF and one-hot columns come sparse."""
    from scipy.sparse import issparse

    if issparse(rows):
        N, D = rows.shape
        if N * D > _MAX_DENSE_NUMBERS:
            raise InputError(
                f"The features are sparse, {N:,} x {D:,}, too many to convert to a dense array: "
                f"put TruncatedSVD before the classifier, or pick from fewer rows."
            )
        rows = rows.toarray()

    dense: Floats = np.asarray(rows)
    if dense.dtype.kind != "f":
        return dense.astype(np.float32)
    return dense


def _observe_linear(model: Any, features: Floats) -> Outputs:
    """Return the rows as features, and the coefficients as head."""
    weight = np.atleast_2d(_as_dense(model.coef_))
    classes = len(model.classes_)

    coefficient_rows = len(weight)
    if coefficient_rows not in (1, classes):
        raise InputError(
            f"{type(model).__name__} keeps {coefficient_rows} rows of coefficients for {classes} "
            "classes: it is not a linear head."
        )

    # Without an intercept, scikit-learn stores a single 0.
    intercept = np.asarray(model.intercept_)
    bias = np.broadcast_to(intercept, coefficient_rows)
    return _outputs_with_head(features, weight, bias)


def _is_one_vs_one(model: Any) -> bool:
    """Return whether coefficients separate pairs of classes, of which three classes have three."""
    from sklearn.svm import SVC, NuSVC

    return len(model.classes_) > 2 and isinstance(model, SVC | NuSVC)


def _observe_mlp(model: Any, inputs: Floats) -> Outputs:
    """Return the last hidden layer as features, and the output layer as head."""
    activate = _ACTIVATIONS[model.activation]
    *hidden_weights, head_weight = model.coefs_
    *hidden_biases, head_bias = model.intercepts_

    features = inputs
    for weight, bias in zip(hidden_weights, hidden_biases, strict=True):
        features = activate(features @ weight + bias)

    # scikit-learn has (inputs, outputs), a head (classes, features).
    return _outputs_with_head(features, head_weight.T, head_bias)


def _outputs_with_head(
    features: Floats,
    weight: Floats,
    bias: Floats,
) -> Outputs:
    """Return outputs with logits, all in the higher precision of features and weight."""
    dtype = np.result_type(features, weight)
    outputs = Outputs(
        features=features.astype(dtype, copy=False),
        weight=_with_zero_class(weight.astype(dtype, copy=False)),
        bias=_with_zero_class(bias.astype(dtype)),
    )
    return outputs.with_logits()


def _with_zero_class(head: Floats) -> Floats:
    """Return a binary head [w] as [0; w], and any other head as a copy."""
    if len(head) > 1:
        return np.array(head)
    two_rows: Floats = np.concatenate([np.zeros_like(head), head])
    return two_rows


def _log_probabilities(model: Any, rows: Any) -> Floats:
    """Return the logarithms of a classifier's probabilities: (N, C), finite."""
    probabilities = np.asarray(model.predict_proba(rows), dtype=np.float64)
    if probabilities.ndim != 2:
        raise InputError(
            f"predict_proba of this {type(model).__name__} returned an array of shape "
            f"{probabilities.shape}: it must have the shape (rows, classes)."
        )
    positive = np.clip(probabilities, _SMALLEST_PROBABILITY, None)
    logarithms: Floats = np.log(positive)
    return logarithms


def _member_log_probabilities(model: Any, rows: Any) -> Floats | None:
    """Return those of each member of an ensemble: (S, N, C). None if it is not an ensemble."""
    from sklearn.ensemble import AdaBoostClassifier, BaseEnsemble, VotingClassifier

    if not isinstance(model, BaseEnsemble | VotingClassifier):
        return None

    members = list(model.estimators_)
    if not all(hasattr(member, "predict_proba") for member in members):
        return None

    # A vote trains its members on the rows as they come.
    if isinstance(model, VotingClassifier):
        member_rows = [rows] * len(members)
    else:
        member_rows = _rows_of_members(model, rows, len(members))

    # A member that never saw a class has no column for it.
    classes = model.classes_
    shape = (len(members), count_rows(rows), len(classes))
    logarithms = np.full(shape, np.log(_SMALLEST_PROBABILITY))
    columns_by_class = {name: column for column, name in enumerate(classes)}

    for position, member in enumerate(members):
        if isinstance(model, AdaBoostClassifier):
            columns = [columns_by_class[name] for name in member.classes_]
        else:
            # All other ensembles train their members on the positions of the classes.
            columns = member.classes_.astype(int)
        member_logarithms = _log_probabilities(member, member_rows[position])
        logarithms[position][:, columns] = member_logarithms
    return logarithms


def _rows_of_members(
    model: Any,
    rows: Any,
    members: int,
) -> list[Any]:
    """Return the rows for each member: all columns, or those that bagging gave it.

    They come as plain arrays, because members are trained without column names.
    """
    from scipy.sparse import issparse

    if issparse(rows):
        plain_rows = rows.tocsr()  # a form whose columns can be selected
    else:
        plain_rows = np.asarray(rows)

    column_subsets = getattr(model, "estimators_features_", None)
    if column_subsets is None:
        return [plain_rows] * members
    return [plain_rows[:, columns] for columns in column_subsets]


def fit_head(
    features: npt.NDArray[np.float32], labels: npt.NDArray[np.int64], n_classes: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Fit the last layer of a classifier by logistic regression.

    Args:
        features: (L, D) the labelled rows, in columns of similar scale.
        labels: (L,) their classes, from 0 to C - 1. Every class must occur.
        n_classes: C, at least 2.

    Returns:
        The weight (C, D) and the bias (C,).

    Example:
        >>> features = np.array([[-2.0, 0.0], [-1.0, 1.0], [1.0, 0.0], [2.0, 1.0]], np.float32)
        >>> weight, bias = fit_head(features, np.array([0, 0, 1, 1]), 2)
        >>> (features @ weight.T + bias).argmax(axis=1).tolist()
        [0, 0, 1, 1]
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    classes_present = np.unique(labels)
    all_classes = np.arange(n_classes)
    if n_classes < 2 or not np.array_equal(classes_present, all_classes):
        raise InputError(
            f"Only {len(classes_present)} of {n_classes} classes have labelled rows: a head "
            f"needs at least 2."
        )

    with warnings.catch_warnings():
        # A head that has nearly converged ranks rows as well.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = LogisticRegression(max_iter=1000).fit(features, labels)

    weight = model.coef_.astype(np.float32)
    bias = model.intercept_.astype(np.float32)

    # scikit-learn stores a binary head as one row w, which is the head [0; w] of two classes.
    if n_classes == 2:
        weight = np.vstack([np.zeros_like(weight), weight])
        bias = np.concatenate([np.zeros_like(bias), bias])
    return weight, bias
