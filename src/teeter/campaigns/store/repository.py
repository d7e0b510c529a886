"""The campaigns of a database, and all queries of one campaign, by subject."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, select, update

from teeter.base.registry import did_you_mean
from teeter.campaigns.items.item import require_valid_unicode
from teeter.campaigns.store import schema
from teeter.campaigns.store.database import Database
from teeter.campaigns.store.locks import LockRepository
from teeter.campaigns.store.queries.answers import AnswerRepository, DecisionRepository
from teeter.campaigns.store.queries.classes import ClassRepository, DescriptionRepository
from teeter.campaigns.store.queries.encodings import EncodingRepository
from teeter.campaigns.store.queries.history import HistoryRepository
from teeter.campaigns.store.queries.imported_tables import ImportedTableRepository
from teeter.campaigns.store.queries.items import ItemRepository
from teeter.campaigns.store.queries.label_studio_links import LabelStudioRepository
from teeter.campaigns.store.queries.people import PeopleRepository
from teeter.campaigns.store.queries.picks import PickRepository
from teeter.campaigns.store.queries.suggestions import SuggestionRepository
from teeter.campaigns.store.queries.trained_models import FinishRepository, ModelRepository
from teeter.campaigns.store.queries.webhooks import WebhookRepository
from teeter.campaigns.store.schema import CAMPAIGNS
from teeter.campaigns.store.scope import CampaignScope, Clock, insert_row, utc_now
from teeter.errors import InputError, StoreError, UnknownNameError

__all__ = [
    "CampaignRepository",
    "StoredCampaign",
    "add_campaign",
    "find_campaign",
    "list_campaigns",
    "validate_name",
]


@dataclass(frozen=True)
class StoredCampaign:
    """A campaign of a database."""

    row_id: int
    name: str
    created: str
    settings: str
    """JSON."""


def list_campaigns(connection: Connection) -> dict[str, StoredCampaign]:
    """Return all campaigns of a database by name."""
    rows = connection.execute(select(schema.campaigns))
    return {row.name: StoredCampaign(row.id, row.name, row.created, row.settings) for row in rows}


def add_campaign(connection: Connection, name: str, created: str, settings: str) -> int:
    """Store a campaign and return its row id. The caller checks that the name is free."""
    values = {
        "name": name,
        "created": created,
        "settings": settings,
    }
    return insert_row(connection, schema.campaigns, values)


def find_campaign(database: Database, name: str | None) -> StoredCampaign:
    """Return a campaign of a database.

    Args:
        database: The database.
        name: The campaign's name, or None if the database has only one.

    Raises:
        StoreError: If the database has no campaign.
        InputError: If it has several and none is named.
        UnknownNameError: If it has none of that name.
    """
    with database.reading() as connection:
        campaigns = list_campaigns(connection)

    if not campaigns:
        raise StoreError(
            f"There is no campaign in {database.display_url}: create one with teeter campaign new."
        )

    if name is None:
        if len(campaigns) > 1:
            raise InputError(
                f"{database.display_url} has several campaigns: name one of "
                f"{', '.join(sorted(campaigns))}, as in {database.display_url}#NAME."
            )
        (name,) = campaigns

    if name not in campaigns:
        raise UnknownNameError(
            f"No campaign is called {name!r}. {did_you_mean(name, list(campaigns))}"
        )
    return campaigns[name]


def validate_name(name: str) -> None:
    """Raise InputError if a campaign cannot have this name."""
    if not name.strip():
        raise InputError("A campaign needs a name.")

    require_valid_unicode(name, "campaign's name")


class CampaignRepository:
    """The queries of a campaign: ``repository.items.get(connection, "a1")``.

    Every method takes a connection of ``Database.reading()`` or ``Database.writing()`` and works
    inside its transaction.

    Args:
        campaign_id: the campaign's row id.
        clock: returns the current time.
        lease: minutes after which an unanswered item is reassigned; 0 for never.
    """

    def __init__(self, campaign_id: int, clock: Clock = utc_now, lease: float = 0) -> None:
        scope = CampaignScope(campaign_id, clock, timedelta(minutes=lease))
        self.scope = scope

        # Each gets those it calls, so that the order shows who depends on whom.
        self.history = HistoryRepository(scope)
        self.classes = ClassRepository(scope, self.history)
        self.descriptions = DescriptionRepository(scope, self.classes, self.history)
        self.items = ItemRepository(scope, self.history)
        self.tables = ImportedTableRepository(scope)
        self.encodings = EncodingRepository(scope, self.items)
        self.models = ModelRepository(scope)
        self.picks = PickRepository(scope, self.items, self.models, self.history)
        self.answers = AnswerRepository(
            scope,
            items=self.items,
            classes=self.classes,
            models=self.models,
            picks=self.picks,
            history=self.history,
        )
        self.decisions = DecisionRepository(
            scope,
            items=self.items,
            classes=self.classes,
            picks=self.picks,
            history=self.history,
        )
        self.webhooks = WebhookRepository(scope, self.history)
        self.suggestions = SuggestionRepository(
            scope, items=self.items, classes=self.classes, history=self.history
        )
        self.finishes = FinishRepository(scope, self.history)
        self.people = PeopleRepository(scope)
        self.locks = LockRepository(scope)
        self.label_studio = LabelStudioRepository(scope)

    def campaign(self, connection: Connection) -> StoredCampaign:
        """Return the campaign's name, settings and time of creation."""
        query = select(schema.campaigns).where(CAMPAIGNS.id == self.scope.campaign_id)
        row = connection.execute(query).one()
        return StoredCampaign(row.id, row.name, row.created, row.settings)

    def write_settings(self, connection: Connection, settings: str) -> None:
        """Replace the campaign's settings, given as JSON."""
        row = CAMPAIGNS.id == self.scope.campaign_id
        statement = update(schema.campaigns).where(row).values(settings=settings)
        connection.execute(statement)

    def save_model(
        self, connection: Connection, weights: bytes, facts: Mapping[str, Any], who: str
    ) -> int:
        """Store a trained model, remove what older ones picked ahead, and return its version.

        Args:
            connection: a connection that may write.
            weights: the model as a safetensors file.
            facts: what is known of it. The numbers of answers given and of control items drawn so
                far are added.
            who: who trained it, for the history.
        """
        # The count tells later which answers the model does not know, whatever clocks say.
        facts = {
            **facts,
            "answers": self.answers.count(connection),
            "controls": len(self.picks.control_items(connection)),
        }
        version = self.models.add(connection, weights, facts)
        self.picks.remove_outdated(connection)
        self.history.append(connection, who, "trained", None, {"version": version, **facts})
        return version
