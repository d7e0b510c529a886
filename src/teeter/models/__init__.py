"""What a model says about rows of data: ``Outputs``, and ``observe``, which fills them.

========================= ========================================================================
``outputs``               ``Outputs``: logits, features and head: all that strategies see of a model
``observe``               ``observe``, for every kind of model; dropout passes and ensembles
``torch_model``           torch modules: find the head, and record its input
``sklearn_model``         scikit-learn classifiers and pipelines; logistic regression on features
``huggingface``           texts, images and labels of ``datasets`` for classifiers of transformers
``sentence_transformers`` a frozen sentence encoder as a step of a scikit-learn pipeline
``inputs``                rows of arrays, lists and frames: count, take, split into batches
``pool_head``             ``PoolHead``: logistic regression that learns from unlabelled rows too
``several_labels_head``   ``SeveralLabelsHead``: a logistic regression per label
``networks``              the networks of the paper, and how to build one by its name
========================= ========================================================================

The names below are imported when they are first used, because most of them need torch, and some a
library of an extra: its file says which extra to install if that is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from teeter.base.lazy_imports import import_lazily
from teeter.base.registry import Plugins

if TYPE_CHECKING:
    from teeter.models.huggingface import Images, Texts, labels_of
    from teeter.models.inputs import BatchedInputs, batches, count_rows, take_rows
    from teeter.models.networks import (
        build_network,
        k_cnn,
        linear,
        mlp,
        resnet_18,
        s_cnn,
        wrn_16_8,
    )
    from teeter.models.observe import dropout_logits, stacked_logits
    from teeter.models.outputs import OUTPUTS, Outputs
    from teeter.models.pool_head import ExampleRegression, PoolHead
    from teeter.models.sentence_transformers import SentenceEncoder
    from teeter.models.several_labels_head import SeveralLabelsHead
    from teeter.models.sklearn_model import fit_head
    from teeter.models.torch_model import find_head

__all__ = [
    "OUTPUTS",
    "BatchedInputs",
    "ExampleRegression",
    "Images",
    "Outputs",
    "PoolHead",
    "SentenceEncoder",
    "SeveralLabelsHead",
    "Texts",
    "batches",
    "build_network",
    "count_rows",
    "dropout_logits",
    "find_head",
    "fit_head",
    "k_cnn",
    "labels_of",
    "linear",
    "mlp",
    "network_names",
    "resnet_18",
    "s_cnn",
    "stacked_logits",
    "take_rows",
    "wrn_16_8",
]

# ``observe`` is not here: ``teeter.models.observe`` is the module of that name as soon as anything
# imports it, and a name that is sometimes a function is a trap. Use ``teeter.observe``.
__getattr__, __dir__ = import_lazily(
    __name__,
    {
        "huggingface": ["Images", "Texts", "labels_of"],
        "inputs": ["BatchedInputs", "batches", "count_rows", "take_rows"],
        "sentence_transformers": ["SentenceEncoder"],
        "sklearn_model": ["fit_head"],
        "networks": [
            "build_network",
            "k_cnn",
            "linear",
            "mlp",
            "resnet_18",
            "s_cnn",
            "wrn_16_8",
        ],
        "observe": ["dropout_logits", "stacked_logits"],
        "outputs": ["OUTPUTS", "Outputs"],
        "pool_head": ["ExampleRegression", "PoolHead"],
        "several_labels_head": ["SeveralLabelsHead"],
        "torch_model": ["find_head"],
    },
)

# The names of networks are here because commands list them, which needs no torch.

NETWORKS = ("linear", "mlp", "s-cnn", "k-cnn", "wrn-16-8", "resnet-18")

plugins: Plugins[Callable[..., Any]] = Plugins(
    "network",
    "teeter.networks",
    is_valid=callable,
    expected="a function make(shape, classes, *, seed) that gives a torch module",
)
"""Networks of other packages, through the entry-point group ``teeter.networks``."""


def network_names() -> list[str]:
    """Return the names of our networks, then those of other packages, without importing these."""
    # A dictionary keeps the order and drops a plugin with a name of ours.
    names = dict.fromkeys([*NETWORKS, *plugins.names()])
    return list(names)
