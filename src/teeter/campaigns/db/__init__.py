"""The database of a campaign: its schema, its migrations and every query.

``Database`` opens one and ``CampaignRepository`` has the queries of one campaign, by subject.
"""

from __future__ import annotations

from sqlalchemy import Connection

from teeter.campaigns.db.answers import Answer, AnswerReceipt, UndoResult
from teeter.campaigns.db.campaigns import StoredCampaign
from teeter.campaigns.db.database import Database
from teeter.campaigns.db.decisions import Decision
from teeter.campaigns.db.descriptions import ClassDescription
from teeter.campaigns.db.encodings import ItemFeatures, StoredEncoding
from teeter.campaigns.db.finishes import StoredCertificate, StoredFinish
from teeter.campaigns.db.imported_tables import NewRow
from teeter.campaigns.db.items import ItemFilter, ItemQuery, StoredItem
from teeter.campaigns.db.label_studio_links import ImportedAnnotation, ProjectLink
from teeter.campaigns.db.locks import LockName
from teeter.campaigns.db.picks import BatchOrigin, Pick
from teeter.campaigns.db.repository import CampaignRepository
from teeter.campaigns.db.suggestions import (
    ModelReply,
    ModelUsage,
    ShownSuggestion,
    Source,
    SourceKind,
    Suggestion,
)
from teeter.campaigns.db.trained_models import ModelSummary, StoredModel

__all__ = [
    "Answer",
    "AnswerReceipt",
    "BatchOrigin",
    "CampaignRepository",
    "ClassDescription",
    "Connection",
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
]
