"""What a fitted scikit-learn classifier tells: its linear head and its features, or its probabilities alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from teeter.errors import InputError
from teeter.models.inputs import count_rows, take_rows
from teeter.models.outputs import Outputs

__all__ = ["classes_of", "clone_with_seed", "observe_sklearn", "split_pipeline"]

Floats = npt.NDArray[np.floating[Any]]

_TOO_WIDE = 1 << 29

_ACTIVATIONS: dict[str, Callable[[Floats], Floats]] = {
    "identity": lambda x: x,
    "logistic": lambda x: 0.5 + 0.5 * np.tanh(0.5 * x),  # does not overflow
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
}


def observe_sklearn(model: Any, data: Any) -> Outputs:
    """Return logits, features and head of a linear model or MLPClassifier; log-probabilities of any other classifier.

    Columns are in the order of the model's ``classes_``. The members of a forest are its posterior.
    """
    if not count_rows(data):
        raise InputError("Cannot observe an empty pool: the data has no rows.")
    _require_fitted(model)
    _require_one_class_a_row(model, data)
    steps, last = split_pipeline(model)
    rows = data
    for step in steps:
        rows = step.transform(rows)
    if hasattr(last, "coefs_"):
        return _multilayer(last, _dense(rows))
    if hasattr(last, "coef_"):
        return _linear(last, _dense(rows))
    return Outputs(logits=_log_probabilities(last, rows), posterior_logits=_votes(last, rows))


def classes_of(model: Any) -> npt.NDArray[Any]:
    """Return the classes that the columns of a fitted classifier's outputs stand for: (C,)."""
    classes = np.asarray(model.classes_)
    return classes


def clone_with_seed(model: Any, seed: int) -> Any:
    """Return an unfitted copy of an estimator whose random states, its parts' among them, are this seed."""
    from sklearn.base import clone

    copy = clone(model)
    states = [name for name in copy.get_params() if name.split("__")[-1] == "random_state"]
    return copy.set_params(**dict.fromkeys(states, seed))


def _require_fitted(model: Any) -> None:
    from sklearn.base import is_classifier
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    name = type(model).__name__
    if not is_classifier(model):
        raise InputError(f"{name} is not a classifier: teeter picks rows to classify.")
    try:
        check_is_fitted(model)
    except NotFittedError:
        raise InputError(
            f"This {name} is not fitted yet: fit it to the labelled rows first."
        ) from None


def _require_one_class_a_row(model: Any, data: Any) -> None:
    if (
        isinstance(model.classes_, list)
        or np.ndim(model.predict(take_rows(data, np.arange(1)))) != 1
    ):
        raise InputError(
            f"This {type(model).__name__} predicts several labels a row: teeter takes one class a row."
        )


def split_pipeline(model: Any) -> tuple[list[Any], Any]:
    """Return what comes before the classifier, in turn, and the classifier."""
    from sklearn.pipeline import Pipeline

    if not isinstance(model, Pipeline):
        return [], model
    deeper, classifier = split_pipeline(model[-1])
    return [model[:-1], *deeper] if len(model) > 1 else deeper, classifier


def _dense(rows: Any) -> Floats:
    """Return features as an array; TF-IDF and one-hot columns come sparse."""
    if hasattr(rows, "toarray"):
        if rows.shape[0] * rows.shape[1] > _TOO_WIDE:
            raise InputError(
                f"The features are sparse, {rows.shape[0]:,} x {rows.shape[1]:,}, too many to unfold: "
                "put TruncatedSVD before the classifier, or pick from fewer rows."
            )
        rows = rows.toarray()
    dense: Floats = np.asarray(rows)
    return dense.astype(np.float32) if dense.dtype.kind != "f" else dense


def _linear(model: Any, features: Floats) -> Outputs:
    weight, classes = np.atleast_2d(_dense(model.coef_)), len(model.classes_)
    in_pairs = classes > 2 and hasattr(
        model, "dual_coef_"
    )  # three pairs of three classes look like a head
    if in_pairs or len(weight) not in (1, classes):
        raise InputError(
            f"{type(model).__name__} keeps {len(weight)} rows of coefficients for {classes} classes: "
            "it is no linear head (for SVC use LinearSVC)."
        )
    return _headed(features, weight, np.broadcast_to(np.asarray(model.intercept_), len(weight)))


def _headed(features: Floats, weight: Floats, bias: Floats) -> Outputs:
    """Return outputs in one precision."""
    dtype = np.result_type(features, weight)
    return Outputs(
        features=features.astype(dtype, copy=False),
        weight=_two_rows(weight.astype(dtype, copy=False)),
        bias=_two_rows(bias.astype(dtype)),
    ).with_logits()


def _two_rows(head: Floats) -> Floats:
    """Return a binary head [w] as [0; w], and any other as it is."""
    answer: Floats = (
        np.concatenate([np.zeros_like(head), head]) if len(head) == 1 else np.array(head)
    )
    return answer


def _multilayer(model: Any, inputs: Floats) -> Outputs:
    """Return the last hidden layer as features, and the output layer as head."""
    activate = _ACTIVATIONS[model.activation]
    features = inputs
    for weight, bias in zip(model.coefs_[:-1], model.intercepts_[:-1], strict=True):
        features = activate(features @ weight + bias)
    return _headed(features, model.coefs_[-1].T, model.intercepts_[-1])


def _log_probabilities(model: Any, rows: Any) -> Floats:
    if not hasattr(model, "predict_proba"):
        raise InputError(
            f"This {type(model).__name__} has neither coefficients nor probabilities, so it tells nothing: "
            "use one that has predict_proba or coef_ (for SVC, LinearSVC)."
        )
    probabilities = np.asarray(model.predict_proba(rows), dtype=np.float64)
    answer: Floats = np.log(np.clip(probabilities, 1e-12, None))
    return answer


def _votes(model: Any, rows: Any) -> Floats | None:
    """Return the log-probabilities of each member of a forest or the like: (S, N, C); None of any other model."""
    from sklearn.ensemble import AdaBoostClassifier, BaseEnsemble, VotingClassifier

    if not isinstance(model, BaseEnsemble | VotingClassifier):
        return None
    members = list(model.estimators_)
    if not all(hasattr(member, "predict_proba") for member in members):
        return None
    views = (
        [rows] * len(members)
        if isinstance(model, VotingClassifier)
        else _views(model, rows, len(members))
    )
    places = {name: place for place, name in enumerate(model.classes_)}
    votes = np.full((len(members), count_rows(rows), len(model.classes_)), np.log(1e-12))
    for vote, member, view in zip(votes, members, views, strict=True):
        own = member.classes_  # names in AdaBoost, places in the others
        columns = (
            [places[name] for name in own]
            if isinstance(model, AdaBoostClassifier)
            else own.astype(int)
        )
        vote[:, columns] = _log_probabilities(member, view)
    return votes


def _views(model: Any, rows: Any, members: int) -> list[Any]:
    """Return what each member looks at, all columns or its own, as plain arrays, since members know no names."""
    plain = rows.tocsr() if hasattr(rows, "tocsr") else np.asarray(rows)
    columns = getattr(model, "estimators_features_", None)
    return [plain] * members if columns is None else [plain[:, own] for own in columns]
