"""LDM-S as a query strategy in a loop of scikit-activeml: pip install 'teeter[skactiveml]'."""

import numpy as np
from skactiveml.classifier import SklearnClassifier
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from teeter.adapters import TeeterStrategy

digits, answers = load_digits(return_X_y=True)
X, y_true = digits[:1000] / 16, answers[:1000]
y = np.full(len(X), np.nan)  # no labels yet: the first query is a cold start

classifier = SklearnClassifier(LogisticRegression(max_iter=500), classes=range(10), random_state=0)
strategy = TeeterStrategy("ldm-s", random_state=0)
for _ in range(5):
    picks = strategy.query(X, y, classifier, batch_size=20)
    y[picks] = y_true[picks]
    classifier.fit(X, y)
    print(
        f"{np.isfinite(y).sum():3} labels: "
        f"{np.mean(classifier.predict(digits[1000:] / 16) == answers[1000:]):.1%}"
    )
