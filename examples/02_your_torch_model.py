"""Your own torch model: any module that ends in a linear layer, asked three times for 20 rows."""

import torch
from sklearn.datasets import load_digits
from torch import nn

import teeter


def build_network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 16, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 36, 10),
    )


digits, labels = load_digits(return_X_y=True)
images = torch.tensor(digits / 16, dtype=torch.float32)
pool, test = images[:1200], images[1200:]

learner = teeter.Learner(
    build_network, pool, "ldm-s", classes=10, training=teeter.TrainingConfig(epochs=40)
)
for _ in range(4):
    rows = learner.ask(20)  # the first time there is no model, so the rows are random
    learner.tell(rows, labels[rows])  # here a person would answer
    learner.fit()
    print(
        f"{len(learner.pool.labelled)} labels: "
        f"{learner.evaluate(test, labels[1200:]).accuracy:.1%} right"
    )
