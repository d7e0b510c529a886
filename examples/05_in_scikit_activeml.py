"""LDM-S as a query strategy in a loop of scikit-activeml: pip install scikit-activeml."""

from typing import Any

import numpy as np
from skactiveml.base import SingleAnnotatorPoolQueryStrategy
from skactiveml.classifier import SklearnClassifier
from skactiveml.utils import is_labeled
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import teeter


class TeeterStrategy(SingleAnnotatorPoolQueryStrategy):  # type: ignore[misc]
    """A strategy of teeter that looks at the estimator inside a SklearnClassifier."""

    def __init__(self, strategy: str = "ldm-s", random_state: int | None = None) -> None:
        super().__init__(random_state=random_state)
        self.strategy = strategy

    def query(self, X: Any, y: Any, clf: Any, candidates: Any = None, batch_size: int = 1) -> Any:
        """Return the samples to label next, best first; random ones until two classes are known."""
        X, y, candidates, batch_size, _ = self._validate_data(
            X, y, candidates, batch_size, return_utilities=False, reset=True
        )
        rows, mapping = self._transform_candidates(candidates, X, y)
        seed = int(self.random_state_.randint(2**31 - 1))

        labelled = is_labeled(y)
        if len(np.unique(y[labelled])) < 2:
            picks = teeter.select("random", teeter.Outputs(features=rows), batch_size, seed=seed)
        else:
            model = clone(clf).fit(X, y).estimator_
            known = teeter.observe(model, X[labelled])
            labels = np.searchsorted(model.classes_, y[labelled])
            outputs = teeter.observe(model, rows)
            picks = teeter.select(
                self.strategy, outputs, batch_size, labelled=known, labels=labels, seed=seed
            )
        return picks if mapping is None else mapping[picks]


digits, answers = load_digits(return_X_y=True)
X, y_true = digits[:1000] / 16, answers[:1000]
y = np.full(len(X), np.nan)  # no labels yet: the first query is random

classifier = SklearnClassifier(LogisticRegression(max_iter=500), classes=range(10), random_state=0)
strategy = TeeterStrategy("ldm-s", random_state=0)
for _ in range(5):
    picks = strategy.query(X, y, classifier, batch_size=20)
    y[picks] = y_true[picks]
    classifier.fit(X, y)
    accuracy = np.mean(classifier.predict(digits[1000:] / 16) == answers[1000:])
    print(f"{np.isfinite(y).sum():3} labels: {accuracy:.1%}")
