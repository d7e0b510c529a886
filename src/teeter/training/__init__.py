"""Train and evaluate models: configuration, one loop, and batched training of many networks.

``fit_jobs`` is the way in: it takes a list of ``FitJob`` and returns a ``FitResult`` for each.

==================  ==============================================================================
``config``          ``TrainingConfig``; ``FitJob`` and ``FitResult``; ``Trainer``, for other loops
``loop``            ``fit_jobs``, and the loop that trains one network
``batched``         the loop that trains many small networks of one architecture at once
``batched_network`` torch's layers, dropout and optimizers for many networks, and a hook for others
``metrics``         metrics beside accuracy and loss
``lightning``       Lightning modules trained by Lightning, if it is installed
==================  ==============================================================================

Names are imported when they are first used, because most of them load torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from teeter.base.lazy_imports import import_lazily

if TYPE_CHECKING:
    from teeter.training.config import FitJob, FitResult, Trainer, TrainingConfig
    from teeter.training.lightning import LightningTraining
    from teeter.training.loop import (
        Evaluation,
        evaluate_logits,
        explain_unusable_rows,
        fit_estimator,
        fit_jobs,
    )

__all__ = [
    "Evaluation",
    "FitJob",
    "FitResult",
    "LightningTraining",
    "Trainer",
    "TrainingConfig",
    "evaluate_logits",
    "explain_unusable_rows",
    "fit_estimator",
    "fit_jobs",
]

__getattr__, __dir__ = import_lazily(
    __name__,
    {
        "config": ["FitJob", "FitResult", "Trainer", "TrainingConfig"],
        "lightning": ["LightningTraining"],
        "loop": [
            "Evaluation",
            "evaluate_logits",
            "explain_unusable_rows",
            "fit_estimator",
            "fit_jobs",
        ],
    },
)
