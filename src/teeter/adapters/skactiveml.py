"""Strategies of teeter as a query strategy of scikit-activeml."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from teeter.base.seeds import seeded_global_rng
from teeter.errors import InputError, MissingExtraError
from teeter.models.inputs import flat_rows
from teeter.models.observe import observe
from teeter.models.outputs import Outputs
from teeter.models.sklearn_model import classes_of, clone_with_seed
from teeter.strategies import Context, ScoringStrategy, Strategy
from teeter.strategies.api import build_context, make_strategy

try:
    from skactiveml.base import SingleAnnotatorPoolQueryStrategy, SkactivemlClassifier
    from skactiveml.classifier import SklearnClassifier
    from skactiveml.utils import MISSING_LABEL, check_equal_missing_label, check_type, is_labeled
except ModuleNotFoundError as error:
    # Anything else that is missing is a broken installation and not a missing extra.
    library, _, _ = (error.name or "").partition(".")
    if library != "skactiveml":
        raise
    raise MissingExtraError(
        "This needs scikit-activeml: pip install 'teeter[skactiveml]'."
    ) from None

__all__ = ["TeeterStrategy"]

Array = npt.NDArray[Any]

logger = logging.getLogger(__name__)

_NEEDS_WITHOUT_MODEL = frozenset({"features", "labelled"})
"""Needs that the raw samples fill: they serve as features."""


class TeeterStrategy(SingleAnnotatorPoolQueryStrategy):  # type: ignore[misc]
    """A strategy of teeter under scikit-activeml's contract: same arguments and results, no state.

    The same query gives the same result. A strategy that remembers clusters between rounds computes
    them again each time.
    """

    def __init__(
        self,
        strategy: str | Strategy = "ldm-s",
        *,
        options: Mapping[str, Any] | None = None,
        cold_start: str | Strategy = "random",
        members: int = 5,
        missing_label: Any = MISSING_LABEL,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        """Store the parameters unchanged, so that scikit-learn can clone them.

        Args:
            strategy: a name of ``teeter.strategies.names()``, or a strategy.
            options: options of the named strategy.
            cold_start: the strategy until labels of two classes are known; it gets the samples as
                features.
            members: how many classifiers to fit, each with its own seed, for a strategy that needs
                an ensemble.
            missing_label: the value of an unknown label.
            random_state: same state, same picks.
        """
        super().__init__(missing_label=missing_label, random_state=random_state)
        self.strategy = strategy
        self.options = options
        self.cold_start = cold_start
        self.members = members

    def query(
        self,
        X: Any,
        y: Any,
        clf: SkactivemlClassifier | None = None,
        fit_clf: bool = True,
        *,
        sample_weight: Any = None,
        candidates: Any = None,
        batch_size: int = 1,
        return_utilities: bool = False,
    ) -> Array | tuple[Array, Array]:
        """Return the samples to label next, best first, and their utilities if asked for.

        Args:
            X: (samples, features) labelled and unlabelled samples.
            y: (samples,) their labels, or ``missing_label``.
            clf: the classifier; not needed for strategies that use features only, which then are
                the samples.
            fit_clf: whether to fit a copy of the classifier to ``X`` and ``y`` first; else it is
                used as it is.
            sample_weight: (samples,) weights for the fit.
            candidates: indices of X, or other samples; the unlabelled ones if left out.
            batch_size: how many samples.
            return_utilities: whether to return the utilities as well.

        Returns:
            (batch_size,) indices of X, or of ``candidates`` if those are samples; and (batch_size,
            samples) utilities before each pick, larger is better, NaN for samples that cannot be
            picked. They are the scores of a strategy; one that spreads its picks, as LDM-S does,
            may pass over the largest. A strategy without scores gives its pick 1 and all others 0.
        """
        X, y, candidates, batch_size, return_utilities = self._validate_data(
            X, y, candidates, batch_size, return_utilities, reset=True
        )

        # mapping has the index in X of each row, or is None if the candidates are other samples.
        rows, mapping = self._transform_candidates(candidates, X, y)

        strategy = make_strategy(self.strategy, self.options)
        self._check_request(strategy, clf, fit_clf, len(rows))
        seed = int(self.random_state_.randint(2**31 - 1))

        models = self._fit_classifiers(
            strategy,
            clf,
            X,
            y,
            fit=fit_clf,
            weight=sample_weight,
            seed=seed,
        )
        if self._must_start_cold(strategy, models, y):
            logger.info(
                "There are too few labels for %s, so the cold start picks instead.", strategy.name
            )
            strategy = make_strategy(self.cold_start)
            models = []

        # A context has a generator, which selecting moves. So the utilities get a new context.
        context = self._build_context(strategy, models, rows, X, y, seed=seed)
        picks = strategy.select(context, batch_size)
        indices = picks if mapping is None else mapping[picks]
        if not return_utilities:
            return indices

        context = self._build_context(strategy, models, rows, X, y, seed=seed)
        utilities = _utilities(strategy, context, picks)
        if mapping is None:
            return indices, utilities

        # scikit-activeml wants a column for every sample of X.
        all_utilities = np.full((len(picks), len(X)), np.nan)
        all_utilities[:, mapping] = utilities
        return indices, all_utilities

    def _check_request(self, strategy: Strategy, clf: Any, fit_clf: bool, candidates: int) -> None:
        """Refuse a query without the classifier it needs, without candidates or members."""
        check_type(fit_clf, "fit_clf", bool)
        if clf is not None:
            check_type(clf, "clf", SkactivemlClassifier)
            check_equal_missing_label(clf.missing_label, self.missing_label_)
        elif not strategy.needs <= _NEEDS_WITHOUT_MODEL:
            raise InputError(
                f"{strategy.name} needs a classifier: pass clf=SklearnClassifier(...)."
            )

        if not candidates:
            raise InputError("There is no candidate to pick: every sample has a label.")

        is_integer = isinstance(self.members, int | np.integer)
        if not is_integer or isinstance(self.members, bool) or self.members < 2:
            raise InputError(
                f"members is {self.members!r}: it must be a whole number of 2 or more."
            )

    def _fit_classifiers(
        self,
        strategy: Strategy,
        clf: Any,
        X: Array,
        y: Array,
        *,
        fit: bool,
        weight: Any,
        seed: int,
    ) -> list[_FittedClassifier]:
        """Return the classifiers to observe: several for an ensemble.

        None if the strategy needs no classifier, or if a classifier has fewer than two classes.
        """
        from sklearn.base import clone

        if clf is None or not strategy.needs:
            return []

        if fit:
            labels = y[is_labeled(y, missing_label=self.missing_label_)]
            if len(set(labels.tolist())) < 2:
                return []

            # The first member keeps the user's random state. The others get one each.
            copies = [clone(clf)]
            if "ensemble_logits" in strategy.needs:
                copies += [clone_with_seed(clf, seed + k) for k in range(self.members - 1)]

            classifiers = []
            for k, copy in enumerate(copies):
                fitted_copy = _fit(copy, X, y, weight, seed + k)
                classifiers.append(fitted_copy)
        else:
            classifiers = [clf]

        fitted = [_unwrap_classifier(classifier) for classifier in classifiers]
        if any(len(model.classes) < 2 for model in fitted):
            return []
        return fitted

    def _must_start_cold(
        self, strategy: Strategy, models: list[_FittedClassifier], y: Array
    ) -> bool:
        """Return whether the strategy lacks a classifier, or labelled samples, that it needs."""
        if not models and not strategy.needs <= _NEEDS_WITHOUT_MODEL:
            return True
        has_labels = is_labeled(y, missing_label=self.missing_label_).any()
        return "labelled" in strategy.needs and not has_labels

    def _build_context(
        self,
        strategy: Strategy,
        models: list[_FittedClassifier],
        rows: Array,
        X: Array,
        y: Array,
        *,
        seed: int,
    ) -> Context:
        """Return what the strategy may look at: outputs of the rows, and of labelled samples."""
        outputs = _observe(models, rows, strategy, seed)
        if "labelled" not in strategy.needs | strategy.optional_needs:
            return build_context(outputs, seed=seed)

        # The classes in the order of the classifier's columns, as the labels must be numbered.
        is_usable = is_labeled(y, missing_label=self.missing_label_)
        if models:
            classes = models[0].classes
        else:
            classes = sorted(set(y[is_usable].tolist()))
        class_numbers = {label: number for number, label in enumerate(classes)}

        # A classifier that is used as it is may not know all classes of y.
        is_class = [label in class_numbers for label in y.tolist()]
        is_usable &= np.array(is_class)
        if not is_usable.any():
            return build_context(outputs, seed=seed)

        usable_labels = y[is_usable].tolist()
        labels = np.array([class_numbers[label] for label in usable_labels])
        labelled = _observe(models, X[is_usable], strategy, seed)
        return build_context(outputs, labelled=labelled, labels=labels, seed=seed)


@dataclass(frozen=True)
class _FittedClassifier:
    """What ``observe`` can look at, taken out of a classifier of scikit-activeml."""

    model: Any
    classes: list[Any]
    """The classes of its columns, or none if the fit failed, about which scikit-activeml warned."""


def _fit(clf: Any, X: Array, y: Array, weight: Any, seed: int) -> Any:
    # Torch modules draw their initial weights and their dropout from the global generator.
    with seeded_global_rng(seed, torch.device("cpu")):
        if weight is None:
            return clf.fit(X, y)
        return clf.fit(X, y, sample_weight=weight)


def _unwrap_classifier(clf: Any) -> _FittedClassifier:
    """Return the estimator or the torch module inside a fitted classifier of scikit-activeml."""
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(clf)
    except NotFittedError:
        raise InputError(
            f"This {type(clf).__name__} is not fitted yet: fit it, or leave fit_clf=True."
        ) from None

    if isinstance(clf, SklearnClassifier):
        classes = []
        if clf.is_fitted_:
            classes = classes_of(clf.estimator_).tolist()
        return _FittedClassifier(clf.estimator_, classes)

    # The class SkorchClassifier exists only if skorch is installed, so its attribute decides.
    model = clf
    net = vars(clf).get("neural_net_")
    if net is not None:
        model = net.module_
    return _FittedClassifier(model, classes_of(clf).tolist())


def _observe(
    models: list[_FittedClassifier], rows: Array, strategy: Strategy, seed: int
) -> Outputs:
    """Return the outputs of the classifiers, or the samples as features if there are none."""
    if not models:
        return Outputs(features=flat_rows(rows))

    inner_models = [fitted.model for fitted in models]

    # scikit-activeml validates samples as float64, and torch modules have float32 weights.
    if isinstance(inner_models[0], nn.Module):
        rows = rows.astype(np.float32)

    model: Any = inner_models
    if len(inner_models) == 1:
        model = inner_models[0]

    needs = strategy.needs - {"labelled"}
    outputs = observe(model, rows, needs, seed=seed)
    return outputs.with_logits()


def _utilities(strategy: Strategy, context: Context, picks: npt.NDArray[np.int64]) -> Array:
    """Return the utilities of the candidates before each pick: (n, N)."""
    utilities = np.zeros((len(picks), len(context)))
    if isinstance(strategy, ScoringStrategy):
        # The same scores for each pick. A utility is better if it is larger.
        scores = strategy.scores(context).double().cpu().numpy()
        utilities += scores if strategy.best == "largest" else -scores
    else:
        order = np.arange(len(picks))
        utilities[order, picks] = 1

    # A sample that is picked already cannot be picked again.
    for position in range(len(picks)):
        utilities[position, picks[:position]] = np.nan
    return utilities
