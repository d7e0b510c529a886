"""The database of a campaign: its schema, its migrations and every query.

``CampaignStore`` opens the transactions of one campaign: a ``Reading`` or a ``Writing``, which
has the queries by subject.
"""

from __future__ import annotations

from importlib.util import find_spec

from teeter.errors import MissingExtraError

if find_spec("sqlalchemy") is None:
    raise MissingExtraError("Campaigns need SQLAlchemy: pip install 'teeter[label]'.")

from teeter.campaigns.store.database import Database
from teeter.campaigns.store.locks import LockName
from teeter.campaigns.store.queries.encodings import ItemFeatures, NearCopies, StoredEncoding
from teeter.campaigns.store.queries.items import StoredItem
from teeter.campaigns.store.queries.label_studio_links import ImportedAnnotation, ProjectLink
from teeter.campaigns.store.queries.picks import BatchOrigin, Pick
from teeter.campaigns.store.queries.suggestions import Source, Suggestion
from teeter.campaigns.store.queries.trained_models import StoredModel
from teeter.campaigns.store.transaction import (
    CampaignStore,
    Part,
    Reading,
    StoredCampaign,
    Writing,
    cached_by,
)

__all__ = [
    "BatchOrigin",
    "CampaignStore",
    "Database",
    "ImportedAnnotation",
    "ItemFeatures",
    "LockName",
    "NearCopies",
    "Part",
    "Pick",
    "ProjectLink",
    "Reading",
    "Source",
    "StoredCampaign",
    "StoredEncoding",
    "StoredItem",
    "StoredModel",
    "Suggestion",
    "Writing",
    "cached_by",
]
