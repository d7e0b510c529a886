"""A skorch classifier in a scikit-learn pipeline: pip install skorch."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetClassifier
from torch import nn

import teeter


# Every fit creates a new network. A network object would start each fit from its own weights.
def make_network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10))


classifier = NeuralNetClassifier(
    make_network,
    criterion=nn.CrossEntropyLoss,
    max_epochs=40,
    lr=0.1,
    batch_size=16,
    verbose=0,
    train_split=None,  # otherwise skorch holds out every fifth label
)
pipeline = make_pipeline(StandardScaler(), classifier)

digits, answers = load_digits(return_X_y=True)
pool, test = digits[:1200].astype(np.float32), digits[1200:].astype(np.float32)

learner = teeter.Learner(pipeline, pool, "ldm-s", classes=10)
for _ in range(4):
    rows = learner.ask(20)
    learner.tell(rows, answers[rows])  # here a person would answer
    learner.fit()
    accuracy = learner.evaluate(test, answers[1200:]).accuracy
    print(f"{len(learner.pool.labelled)} labels: {accuracy:.1%} right")
