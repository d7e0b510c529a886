"""A query strategy of scikit-activeml that picks by any of teeter's strategies."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from teeter.errors import InputError, MissingExtraError
from teeter.models.inputs import flat_rows
from teeter.models.observe import observe
from teeter.models.outputs import Outputs
from teeter.models.sklearn_model import classes_of, clone_with_seed
from teeter.seeds import seeded_global_rng
from teeter.strategies import Context, ScoringStrategy, Strategy
from teeter.strategies.api import build_context, make_strategy

try:
    from skactiveml.base import SingleAnnotatorPoolQueryStrategy, SkactivemlClassifier
    from skactiveml.classifier import SklearnClassifier
    from skactiveml.utils import MISSING_LABEL, check_equal_missing_label, check_type, is_labeled
except ModuleNotFoundError as error:
    if (error.name or "").split(".")[0] != "skactiveml":
        raise
    raise MissingExtraError(
        "This needs scikit-activeml: pip install 'teeter[skactiveml]'."
    ) from None

__all__ = ["TeeterStrategy"]

Array = npt.NDArray[Any]

logger = logging.getLogger(__name__)

_WITHOUT_MODEL = frozenset({"features", "labelled"})
"""What the raw samples tell."""


class TeeterStrategy(SingleAnnotatorPoolQueryStrategy):  # type: ignore[misc]
    """One of teeter's strategies under scikit-activeml's contract: same arguments, same answers, no state.

    The same query gives the same answer, as there; strategies that remember clusters make them anew each time.
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
        """Keep the parameters as they are, so that scikit-learn can clone them.

        Args:
            strategy: a name of ``teeter.strategies.names()``, or a strategy.
            options: the named strategy's own.
            cold_start: the strategy while labels of two classes are not there; it sees the samples as features.
            members: classifiers that are fitted for a strategy that needs an ensemble, by seeds of their own.
            missing_label: stands for a label that is not known.
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
        """Return the samples to label next, best first, and on demand their utilities.

        Args:
            X: (samples, features) labelled and unlabelled samples.
            y: (samples,) their labels, or ``missing_label``.
            clf: the classifier; strategies that look at features alone do without, and take the samples for features.
            fit_clf: whether a copy of it is fitted to ``X`` and ``y`` first; else it is used as it is.
            sample_weight: (samples,) weights for the fit.
            candidates: indices of X, or samples of their own; the unlabelled ones if left out.
            batch_size: how many samples.
            return_utilities: whether to return the utilities as well.

        Returns:
            (batch_size,) indices of X, or of ``candidates`` where those are samples; and (batch_size, samples)
            utilities, those before each pick, larger is better, NaN where nothing is to be picked. They are a
            strategy's scores; one that spreads its picks, as LDM-S does, may pass over the largest. A strategy without
            scores gives its pick 1 and all others 0.
        """
        X, y, candidates, batch_size, return_utilities = self._validate_data(
            X, y, candidates, batch_size, return_utilities, reset=True
        )
        rows, mapping = self._transform_candidates(candidates, X, y)
        strategy = make_strategy(self.strategy, self.options)
        self._require_possible(strategy, clf, fit_clf, len(rows))
        seed = int(self.random_state_.randint(2**31 - 1))
        models = self._models(strategy, clf, X, y, fit=fit_clf, weight=sample_weight, seed=seed)
        alone = (
            "labelled" in strategy.needs
            and not is_labeled(y, missing_label=self.missing_label_).any()
        )
        if alone or (not models and not strategy.needs <= _WITHOUT_MODEL):
            logger.info("There are too few labels for %s: the cold start picks.", strategy.name)
            strategy, models = make_strategy(self.cold_start), []

        def context() -> Context:  # new for each use, since its generator moves on
            return self._context(strategy, models, rows, X, y, seed=seed)

        picks = strategy.select(context(), batch_size)
        indices = picks if mapping is None else mapping[picks]
        if not return_utilities:
            return indices
        utilities = _utilities(strategy, context(), picks)
        if mapping is None:
            return indices, utilities
        spread = np.full((len(picks), len(X)), np.nan)
        spread[:, mapping] = utilities
        return indices, spread

    def _require_possible(
        self, strategy: Strategy, clf: Any, fit_clf: bool, candidates: int
    ) -> None:
        check_type(fit_clf, "fit_clf", bool)
        if clf is not None:
            check_type(clf, "clf", SkactivemlClassifier)
            check_equal_missing_label(clf.missing_label, self.missing_label_)
        elif not strategy.needs <= _WITHOUT_MODEL:
            raise InputError(
                f"{strategy.name} needs a classifier: pass clf=SklearnClassifier(...)."
            )
        if not candidates:
            raise InputError("There is no candidate to pick: every sample has a label.")
        if (
            isinstance(self.members, bool)
            or not isinstance(self.members, int | np.integer)
            or self.members < 2
        ):
            raise InputError(f"members is {self.members!r}: it must be a whole number from 2 up.")

    def _models(
        self, strategy: Strategy, clf: Any, X: Array, y: Array, *, fit: bool, weight: Any, seed: int
    ) -> list[_Seen]:
        """Return the fitted classifiers to look at; none where there are fewer than two classes or no need of any."""
        if clf is None or not strategy.needs:
            return []
        if not fit:
            found = [_seen(clf)]
        elif len(set(y[is_labeled(y, missing_label=self.missing_label_)].tolist())) < 2:
            return []
        else:
            from sklearn.base import clone

            others = self.members - 1 if "ensemble_logits" in strategy.needs else 0
            new = [clone(clf), *(clone_with_seed(clf, seed + k) for k in range(others))]
            found = [_seen(_fitted(one, X, y, weight, seed + k)) for k, one in enumerate(new)]
        return found if all(len(one.classes) > 1 for one in found) else []

    def _context(
        self, strategy: Strategy, models: list[_Seen], rows: Array, X: Array, y: Array, *, seed: int
    ) -> Context:
        outputs = _told(models, rows, strategy, seed)
        if "labelled" not in strategy.needs | strategy.optional_needs:
            return build_context(outputs, seed=seed)
        known = is_labeled(y, missing_label=self.missing_label_)
        classes = models[0].classes if models else sorted(set(y[known].tolist()))
        places = {label: place for place, label in enumerate(classes)}
        known &= np.array([label in places for label in y.tolist()])
        if not known.any():
            return build_context(outputs, seed=seed)
        labels = np.array([places[label] for label in y[known].tolist()])
        return build_context(
            outputs, labelled=_told(models, X[known], strategy, seed), labels=labels, seed=seed
        )


@dataclass(frozen=True)
class _Seen:
    """What a fitted classifier of theirs wraps, whose head can be seen, and the classes of its columns."""

    model: Any
    classes: list[Any]


def _fitted(clf: Any, X: Array, y: Array, weight: Any, seed: int) -> Any:
    with seeded_global_rng(
        seed, torch.device("cpu")
    ):  # torch modules draw their start and their dropout from the global stream
        return clf.fit(X, y) if weight is None else clf.fit(X, y, sample_weight=weight)


def _seen(clf: Any) -> _Seen:
    """Return what is to be seen of a classifier; no class where its fit failed, of which it warned."""
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(clf)
    except NotFittedError:
        raise InputError(
            f"This {type(clf).__name__} is not fitted yet: fit it, or leave fit_clf=True."
        ) from None
    if isinstance(clf, SklearnClassifier):
        return _Seen(clf.estimator_, classes_of(clf.estimator_).tolist() if clf.is_fitted_ else [])
    network = vars(clf).get(
        "neural_net_"
    )  # of a SkorchClassifier, which is there only where skorch is
    return _Seen(clf if network is None else network.module_, classes_of(clf).tolist())


def _told(models: list[_Seen], rows: Array, strategy: Strategy, seed: int) -> Outputs:
    if not models:
        return Outputs(features=flat_rows(rows))
    inner = [one.model for one in models]
    data = rows.astype(np.float32) if isinstance(inner[0], nn.Module) else rows
    return observe(
        inner if len(inner) > 1 else inner[0], data, strategy.needs - {"labelled"}, seed=seed
    ).with_logits()


def _utilities(strategy: Strategy, context: Context, picks: npt.NDArray[np.int64]) -> Array:
    """Return the candidates' utilities before each pick: (n, N)."""
    utilities = np.zeros((len(picks), len(context)))
    if isinstance(strategy, ScoringStrategy):
        scores = strategy.scores(context).double().cpu().numpy()
        utilities += scores if strategy.best == "largest" else -scores
    else:
        utilities[np.arange(len(picks)), picks] = 1
    for turn in range(len(picks)):
        utilities[turn, picks[:turn]] = np.nan
    return utilities
