"""The database of a campaign: its schema, its migrations and every query.

``CampaignStore`` opens the transactions of one campaign: a ``Reading`` or a ``Writing``, which
has the queries by subject.
"""

from __future__ import annotations

from teeter.campaigns.store.database import Database
from teeter.campaigns.store.locks import LockName
from teeter.campaigns.store.queries.answers import Answer, AnswerReceipt, Decision, UndoResult
from teeter.campaigns.store.queries.classes import ClassDescription
from teeter.campaigns.store.queries.encodings import ItemFeatures, StoredEncoding
from teeter.campaigns.store.queries.imported_tables import NewRow
from teeter.campaigns.store.queries.items import ItemFilter, ItemQuery, StoredItem
from teeter.campaigns.store.queries.label_studio_links import ImportedAnnotation, ProjectLink
from teeter.campaigns.store.queries.picks import BatchOrigin, Pick
from teeter.campaigns.store.queries.suggestions import (
    ModelReply,
    ModelUsage,
    ShownSuggestion,
    Source,
    SourceKind,
    Suggestion,
)
from teeter.campaigns.store.queries.trained_models import (
    ModelSummary,
    StoredCertificate,
    StoredFinish,
    StoredModel,
)
from teeter.campaigns.store.transaction import CampaignStore, Reading, StoredCampaign, Writing

__all__ = [
    "Answer",
    "AnswerReceipt",
    "BatchOrigin",
    "CampaignStore",
    "ClassDescription",
    "Database",
    "Decision",
    "ImportedAnnotation",
    "ItemFeatures",
    "ItemFilter",
    "ItemQuery",
    "LockName",
    "ModelReply",
    "ModelSummary",
    "ModelUsage",
    "NewRow",
    "Pick",
    "ProjectLink",
    "Reading",
    "ShownSuggestion",
    "Source",
    "SourceKind",
    "StoredCampaign",
    "StoredCertificate",
    "StoredEncoding",
    "StoredFinish",
    "StoredItem",
    "StoredModel",
    "Suggestion",
    "UndoResult",
    "Writing",
]
