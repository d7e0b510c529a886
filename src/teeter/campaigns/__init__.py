"""Campaigns: people label a pool of items, a model learns along, and no answer is lost.

Names are imported when they are first used, because they load torch.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from teeter.errors import MissingExtraError

if TYPE_CHECKING:
    from teeter.campaigns.agreement import prediction_agreement
    from teeter.campaigns.campaign import Campaign, Settings
    from teeter.campaigns.people import require_permission
    from teeter.campaigns.stopping import estimate_accuracy

if find_spec("sqlalchemy") is None:
    raise MissingExtraError("Campaigns need SQLAlchemy: pip install 'teeter[store]'.")

__all__ = [
    "Campaign",
    "Settings",
    "estimate_accuracy",
    "prediction_agreement",
    "require_permission",
]

_HOMES = {
    "Campaign": "campaign",
    "Settings": "campaign",
    "estimate_accuracy": "stopping",
    "prediction_agreement": "agreement",
    "require_permission": "people",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'teeter.campaigns' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"teeter.campaigns.{_HOMES[name]}"), name)
    return value
