"""A Lightning module, trained by Lightning's own trainer: pip install 'teeter[lightning]'."""

import torch
from lightning import LightningModule
from sklearn.datasets import load_digits
from torch import Tensor, nn

import teeter
from teeter.training import LightningTraining


class Digits(LightningModule):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network(images)
        return logits

    def training_step(self, batch: tuple[Tensor, Tensor], number: int) -> Tensor:
        images, classes = batch
        return nn.functional.cross_entropy(self(images), classes)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=3e-3)


digits, answers = load_digits(return_X_y=True)
images = torch.tensor(digits / 16, dtype=torch.float32)

# LightningTraining also takes the arguments of lightning.Trainer.
training = LightningTraining(max_epochs=40, batch_size=32)
learner = teeter.Learner(
    lambda seed: Digits(), images[:1200], "ldm-s", classes=10, training=training
)
for _ in range(4):
    rows = learner.ask(20)
    learner.tell(rows, answers[rows])  # here a person would answer
    learner.fit()
    accuracy = learner.evaluate(images[1200:], answers[1200:]).accuracy
    print(f"{len(learner.pool.labelled)} labels: {accuracy:.1%} right")
