"""What items train on: the rows and networks of a benchmark's setting, or digits where it must be quick."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from teeter.arrays import choose_device
from teeter.datasets.loading import load_dataset
from teeter.datasets.splits import LabelledRows, take
from teeter.experiments.settings import Setting, setting_named
from teeter.learner import Learner
from teeter.models.network_registry import build_network_like
from teeter.models.outputs import Outputs
from teeter.seeds import stream
from teeter.studies.items import Scale

__all__ = ["Material", "features_of", "head_of", "load_material", "on_a_map"]

Array = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class Material:
    """Rows to learn from and to test on, and the setting that says how."""

    setting: Setting
    train: LabelledRows
    test: LabelledRows
    classes: int
    device: torch.device

    @property
    def told(self) -> str:
        """What was learned from, in a sentence."""
        setting = self.setting
        return f"Computed on the dataset {setting.dataset}, {len(self.train):,} rows, by the network {setting.network}."

    def learner(self, strategy: str, seed: int) -> Learner:
        """Return a learner of the setting's network that knows no label yet."""
        return Learner(
            lambda start: build_network_like(
                self.setting.network, self.train.inputs, self.classes, start
            ),
            self.train.inputs,
            strategy,
            classes=self.classes,
            seed=seed,
            training=self.setting.training,
            device=self.device,
        )


def load_material(
    scale: Scale, name: str, *, keep: tuple[int, ...] = (), rows: int | None = None
) -> Material:
    """Return the rows of a setting; the digits of scikit-learn, and an MLP, where it must be quick.

    ``keep`` leaves these classes alone, numbered anew in this order; ``rows`` draws so many training rows.
    """
    setting, device = setting_named("digits" if scale.quick else name), choose_device(scale.device)
    split = load_dataset(setting.dataset, folder=scale.folder, seed=setting.seed)
    parts, classes = [split.train, split.test], len(split.classes)
    if keep:
        parts, classes = [_kept(part, keep) for part in parts], len(keep)
    train, test = parts
    if rows is not None and rows < len(train):
        order = torch.randperm(len(train), generator=stream(scale.seed, "material")).numpy()
        train = take(train, np.sort(order[:rows]))
    train, test = (replace(part, inputs=part.inputs.to(device)) for part in (train, test))
    return Material(setting, train, test, classes, device)


def _kept(part: LabelledRows, keep: tuple[int, ...]) -> LabelledRows:
    chosen = take(part, np.flatnonzero(np.isin(part.labels, keep)))
    numbers = {label: k for k, label in enumerate(keep)}
    return replace(
        chosen, labels=np.array([numbers[int(label)] for label in chosen.labels], dtype=np.int64)
    )


def head_of(outputs: Outputs) -> tuple[Tensor, Tensor, Tensor]:
    """Return features (N, D), weight (C, D) and bias (C,), 0 where there is none."""
    if outputs.features is None or outputs.weight is None:
        raise TypeError("The networks of the paper end in a linear layer.")
    weight = outputs.weight
    return (
        outputs.features,
        weight,
        weight.new_zeros(len(weight)) if outputs.bias is None else outputs.bias,
    )


def features_of(outputs: Outputs) -> Array:
    """Return the features of a network's last layer: (N, D)."""
    return np.asarray(head_of(outputs)[0].cpu().numpy())


def on_a_map(features: Array, seed: int) -> Array:
    """Return rows in the plane by t-SNE [van der Maaten and Hinton 2008]: (N, D) -> (N, 2), rounded for a file."""
    from sklearn.manifold import TSNE

    perplexity = min(30.0, (len(features) - 1) / 3)
    found: Array = TSNE(2, init="pca", perplexity=perplexity, random_state=seed).fit_transform(
        features
    )
    return found.round(2)
