"""Campaigns: people label a pool of items, a model learns along, and no answer is lost.

Names are imported when they are first used, because they load torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from teeter.base.lazy_imports import import_lazily

if TYPE_CHECKING:
    from teeter.campaigns.campaign import Campaign
    from teeter.campaigns.integrations.webhooks import add_webhook, replace_secret
    from teeter.campaigns.learning.stopping import estimate_accuracy
    from teeter.campaigns.people import require_permission
    from teeter.campaigns.records import ClassDescription, ItemColumns
    from teeter.campaigns.review.annotators import prediction_agreement
    from teeter.campaigns.settings import Settings
    from teeter.campaigns.suggestions.language_model import LanguageModel

__all__ = [
    "Campaign",
    "ClassDescription",
    "ItemColumns",
    "LanguageModel",
    "Settings",
    "add_webhook",
    "estimate_accuracy",
    "prediction_agreement",
    "replace_secret",
    "require_permission",
]

__getattr__, __dir__ = import_lazily(
    __name__,
    {
        "campaign": ["Campaign", "Settings"],
        "integrations.webhooks": ["add_webhook", "replace_secret"],
        "learning.stopping": ["estimate_accuracy"],
        "people": ["require_permission"],
        "review.annotators": ["prediction_agreement"],
        "records": ["ClassDescription", "ItemColumns"],
        "suggestions.language_model": ["LanguageModel"],
    },
)
