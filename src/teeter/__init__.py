"""Active learning and data labelling: ask people about the items that teach a model most.

Names are imported when they are first used, so that ``import teeter`` does not load torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from teeter.base.lazy_imports import import_lazily
from teeter.base.version import __version__
from teeter.errors import TeeterError

if TYPE_CHECKING:
    from teeter import bench, config, strategies
    from teeter.campaigns.campaign import Campaign
    from teeter.classifier import Classifier, load_classifier
    from teeter.client import connect
    from teeter.learner.learner import Learner
    from teeter.models.model_files import save_model
    from teeter.models.observe import observe
    from teeter.models.outputs import Outputs
    from teeter.strategies.api import ldm, scores, select
    from teeter.training.config import TrainingConfig

__all__ = [
    "Campaign",
    "Classifier",
    "Learner",
    "Outputs",
    "TeeterError",
    "TrainingConfig",
    "__version__",
    "bench",
    "config",
    "connect",
    "ldm",
    "load_classifier",
    "observe",
    "save_model",
    "scores",
    "select",
    "strategies",
]

__getattr__, __dir__ = import_lazily(
    __name__,
    {
        "campaigns.campaign": ["Campaign"],
        "classifier": ["Classifier", "load_classifier"],
        "client": ["connect"],
        "learner.learner": ["Learner"],
        "models.model_files": ["save_model"],
        "models.observe": ["observe"],
        "models.outputs": ["Outputs"],
        "strategies.api": ["ldm", "scores", "select"],
        "training.config": ["TrainingConfig"],
    },
    submodules=["bench", "config", "strategies"],
)
