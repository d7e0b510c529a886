"""The rows and networks that items train on: those of a benchmark setting, or digits if quick.

Items that look into a network, instead of only at its accuracy, use this. Items that compare
accuracies over many rounds use ``shared_runs.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from research.paper.item import Array, StudyConfig
from teeter.base.arrays import choose_device
from teeter.base.seeds import stream
from teeter.bench.datasets.loading import load_dataset
from teeter.bench.datasets.splits import LabelledRows, take
from teeter.bench.experiments.settings import Setting, setting_named
from teeter.bench.fused_networks.program import make_program
from teeter.learner.learner import Learner
from teeter.models.networks import build_network_like
from teeter.models.outputs import Outputs
from teeter.training.batched_network import register_program

__all__ = ["StudyData", "last_layer", "last_layer_features", "load_study_data", "tsne_2d"]

# The studies train the networks of experiments, in the same way.
register_program(make_program)


@dataclass(frozen=True, eq=False)
class StudyData:
    """Rows for training and testing, and the setting that says how networks learn from them."""

    setting: Setting
    train: LabelledRows
    test: LabelledRows
    class_count: int
    device: torch.device

    @property
    def description(self) -> str:
        """A sentence on the dataset and the network."""
        return (
            f"Computed on the dataset {self.setting.dataset}, {len(self.train):,} rows, "
            f"by the network {self.setting.network}."
        )

    def make_learner(self, strategy: str, seed: int) -> Learner:
        """Return a learner with the setting's network and no labels yet."""

        def build_network(network_seed: int) -> torch.nn.Module:
            return build_network_like(
                self.setting.network, self.train.inputs, self.class_count, network_seed
            )

        return Learner(
            build_network,
            self.train.inputs,
            strategy,
            classes=self.class_count,
            seed=seed,
            training=self.setting.training,
            device=self.device,
        )


def load_study_data(
    config: StudyConfig,
    setting_name: str,
    *,
    classes: tuple[int, ...] = (),
    rows: int | None = None,
) -> StudyData:
    """Return the rows of a benchmark setting; those of scikit-learn's digits if ``config.quick``.

    Args:
        config: says where datasets and networks live.
        setting_name: the setting of a full computation.
        classes: the classes to keep, which are renumbered in this order; all if empty.
        rows: how many training rows to draw; all if None.
    """
    if config.quick:
        setting_name = "digits"
    setting = setting_named(setting_name)
    device = choose_device(config.device)

    split = load_dataset(setting.dataset, folder=config.folder, seed=setting.seed)
    train = split.train
    test = split.test
    class_count = len(split.classes)

    if classes:
        train = _keep_classes(train, classes)
        test = _keep_classes(test, classes)
        class_count = len(classes)

    if rows is not None and rows < len(train):
        # The stream keeps the name it had when the committed results were computed.
        order = torch.randperm(len(train), generator=stream(config.seed, "material")).numpy()
        train = take(train, np.sort(order[:rows]))

    # Inputs move to the device once, not again for every network.
    train = replace(train, inputs=train.inputs.to(device))
    test = replace(test, inputs=test.inputs.to(device))
    return StudyData(setting, train, test, class_count, device)


def _keep_classes(rows: LabelledRows, classes: tuple[int, ...]) -> LabelledRows:
    """Return the rows of some classes, with labels renumbered in the order of ``classes``."""
    chosen = take(rows, np.flatnonzero(np.isin(rows.labels, classes)))
    new_labels = [classes.index(int(label)) for label in chosen.labels]
    return replace(chosen, labels=np.array(new_labels, dtype=np.int64))


def last_layer(outputs: Outputs) -> tuple[Tensor, Tensor, Tensor]:
    """Return features (N, D), weight (C, D) and bias (C,) of outputs; a missing bias is 0.

    Raises:
        TypeError: the network does not end in a linear layer.
    """
    if outputs.features is None or outputs.weight is None:
        raise TypeError("The networks of the paper end in a linear layer.")

    bias = outputs.bias
    if bias is None:
        bias = outputs.weight.new_zeros(len(outputs.weight))
    return outputs.features, outputs.weight, bias


def last_layer_features(outputs: Outputs) -> Array:
    """Return the inputs of a network's last layer as a NumPy array: (N, D)."""
    features, _, _ = last_layer(outputs)
    return np.asarray(features.cpu().numpy())


def tsne_2d(features: Array, seed: int) -> Array:
    """Return rows in the plane by t-SNE [van der Maaten and Hinton 2008]: (N, D) -> (N, 2).

    Coordinates are rounded to two decimals, which keeps result files small.
    """
    from sklearn.manifold import TSNE

    # t-SNE needs a perplexity that is well below the number of rows.
    perplexity = min(30.0, (len(features) - 1) / 3)
    tsne = TSNE(2, init="pca", perplexity=perplexity, random_state=seed)
    positions: Array = tsne.fit_transform(features)
    return positions.round(2)
