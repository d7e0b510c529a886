"""Active learning and data labelling: ask people about the items that teach a model most.

Names are imported when they are first used, so that ``import teeter`` does not load torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from teeter.errors import TeeterError
from teeter.version import __version__

if TYPE_CHECKING:
    from teeter import strategies
    from teeter.arrays import working_memory
    from teeter.campaigns.campaign import Campaign
    from teeter.learner import Learner
    from teeter.model_files import save_model
    from teeter.models.observe import observe
    from teeter.models.outputs import Outputs
    from teeter.seeds import portable
    from teeter.strategies.api import ldm, scores, select
    from teeter.training.config import TrainingConfig

__all__ = [
    "Campaign",
    "Learner",
    "Outputs",
    "TeeterError",
    "TrainingConfig",
    "__version__",
    "ldm",
    "observe",
    "portable",
    "save_model",
    "scores",
    "select",
    "strategies",
    "working_memory",
]

_HOMES = {
    "Campaign": "teeter.campaigns.campaign",
    "Learner": "teeter.learner",
    "Outputs": "teeter.models.outputs",
    "TrainingConfig": "teeter.training.config",
    "ldm": "teeter.strategies.api",
    "observe": "teeter.models.observe",
    "portable": "teeter.seeds",
    "save_model": "teeter.model_files",
    "scores": "teeter.strategies.api",
    "select": "teeter.strategies.api",
    "working_memory": "teeter.arrays",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name == "strategies":
        return import_module("teeter.strategies")
    if name not in _HOMES:
        raise AttributeError(f"module 'teeter' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
