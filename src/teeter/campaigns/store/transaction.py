"""The campaigns of a database, and their transactions, through which all read and change them.

``with campaign.reading() as view:`` and ``with campaign.writing() as change:`` give the queries of
one campaign by subject, made when they are first used::

    with campaign.writing() as change:
        if "spam" in change.classes.names():
            change.classes.rename("spam", "advertising", "ann")

What a transaction guarantees:

- A ``Reading`` sees one state of the database throughout, and never waits for a writer.
- There is one ``Writing`` at a time, over all processes; the others wait for it. When its context
  ends, everything is on disk, so a receipt given after that is true. If it ends with an exception,
  nothing was written.
- Leases, locks and times of answers follow the campaign's clock, ``now()``, which tests replace.
- A file that was moved or replaced meanwhile is neither read nor written: the transaction raises.
- Settings are those of the transaction: what another process changed counts from the next one on.

A function that takes a transaction never opens another: in one thread this raises at once. None is
held while a model is fitted, items are encoded, or another server is asked.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, insert, select, update

from teeter.base.registry import require_known
from teeter.campaigns.items.item import require_valid_unicode
from teeter.campaigns.settings import Settings, settings_from_json, settings_to_dict
from teeter.campaigns.store import schema
from teeter.campaigns.store.database import Clock, Database, format_time, utc_now
from teeter.campaigns.store.locks import LockQueries
from teeter.campaigns.store.queries.answers import AnswerQueries, DecisionQueries
from teeter.campaigns.store.queries.classes import ClassQueries, DescriptionQueries
from teeter.campaigns.store.queries.encodings import EncodingQueries
from teeter.campaigns.store.queries.history import HistoryQueries
from teeter.campaigns.store.queries.imported_tables import ImportedTableQueries
from teeter.campaigns.store.queries.items import ItemQueries
from teeter.campaigns.store.queries.label_studio_links import LabelStudioQueries
from teeter.campaigns.store.queries.people import PeopleQueries
from teeter.campaigns.store.queries.picks import PickQueries
from teeter.campaigns.store.queries.suggestions import SuggestionQueries
from teeter.campaigns.store.queries.trained_models import FinishQueries, ModelQueries, StoredModel
from teeter.campaigns.store.queries.webhooks import WebhookQueries
from teeter.campaigns.store.schema import CAMPAIGNS
from teeter.errors import InputError, StoreError

if TYPE_CHECKING:
    from teeter.campaigns.campaign import Campaign

P = ParamSpec("P")
OwnerT = TypeVar("OwnerT")
ValueT = TypeVar("ValueT")


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
    campaigns = {}
    for row in connection.execute(select(schema.campaigns)):
        campaigns[row.name] = StoredCampaign(row.id, row.name, row.created, row.settings)
    return campaigns


def campaign_names(database: Database) -> list[str]:
    """Return the names of all campaigns of a database, sorted."""
    with database.reading() as connection:
        return sorted(list_campaigns(connection))


def add_campaign(connection: Connection, name: str, created: str, settings: str) -> int:
    """Store a campaign and return its row id. The caller checks that the name is free."""
    statement = insert(schema.campaigns).returning(CAMPAIGNS.id)
    values = {
        "name": name,
        "created": created,
        "settings": settings,
    }
    return int(connection.execute(statement, values).scalar_one())


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

    require_known("campaign", name, campaigns)
    return campaigns[name]


def validate_name(name: str) -> None:
    """Raise InputError if a campaign cannot have this name."""
    if not name.strip():
        raise InputError("A campaign needs a name.")

    require_valid_unicode(name, "campaign's name")


class CampaignStore:
    """A campaign in a database: it opens the campaign's transactions.

    Args:
        database: the database.
        campaign_id: the campaign's row id.
        settings: its settings, as they were read when it was opened.
        clock: returns the current time.
    """

    def __init__(
        self,
        database: Database,
        campaign_id: int,
        settings: Settings,
        clock: Clock = utc_now,
    ) -> None:
        self.database = database
        self.campaign_id = campaign_id
        self.clock = clock
        self.settings = settings
        """The settings, as the last transaction that looked at them saw them."""
        self._parsed: tuple[str, Settings] | None = None

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        """Yield a transaction that sees one state of the campaign throughout."""
        self._require_file()
        with self.database.reading() as connection:
            yield Reading(self, connection)

    @contextmanager
    def writing(self) -> Iterator[Writing]:
        """Yield the only transaction that may write. What it wrote is on disk when it ends."""
        self._require_file()
        with self.database.writing() as connection:
            yield Writing(self, connection)
        # A file that was moved while it was written to is not where people look for an answer.
        self._require_file()

    def _require_file(self) -> None:
        """Raise StoreError if the file is not where it was opened any more."""
        if self.database.is_in_place():
            return

        name = self.database.display_url
        if self.database.path:
            name = self.database.path.name
        raise StoreError(
            f"{name} was moved or removed while it was in use: move it back, then start again."
        )

    def identity(self) -> str:
        """Return a hash that differs for every campaign, also for a later one of the same name."""
        with self.reading() as view:
            stored = view.campaign()

        # The time of creation tells a campaign from a later one in the same file.
        identity = repr((stored.name, stored.created))
        return hashlib.blake2b(identity.encode(), digest_size=8).hexdigest()

    def parse_settings(self, text: str) -> Settings:
        """Return stored settings; those that were read before, unless their text has changed."""
        # One tuple, read and replaced at once: transactions of several threads come here.
        parsed = self._parsed
        if parsed is None or parsed[0] != text:
            file = self.database.path
            location = self.database.display_url
            parsed = text, settings_from_json(text, file=file, location=location)
            self._parsed = parsed
        self.settings = parsed[1]
        return parsed[1]


def cached_by(
    version: Callable[Concatenate[OwnerT, P], Hashable],
) -> Callable[[Callable[Concatenate[OwnerT, P], ValueT]], Callable[Concatenate[OwnerT, P], ValueT]]:
    """Cache the result of a method until its version changes.

    Each object remembers one result. Two threads may compute the same one at the same time, which
    costs time and does no harm.

    Args:
        version: called with the arguments of the method. It must be much cheaper than the method,
            and its result must change whenever that of the method may change.

    Example:
        >>> class Shelf:
        ...     def __init__(self):
        ...         self.books = ["Emma"]
        ...
        ...     @cached_by(lambda shelf: len(shelf.books))
        ...     def describe(self):
        ...         print("Looking.")
        ...         return ", ".join(self.books)
        >>> shelf = Shelf()
        >>> shelf.describe(), shelf.describe()
        Looking.
        ('Emma', 'Emma')
    """

    def decorate(
        method: Callable[Concatenate[OwnerT, P], ValueT],
    ) -> Callable[Concatenate[OwnerT, P], ValueT]:
        attribute = f"_cached_{method.__name__}"

        @wraps(method)
        def get_cached(owner: OwnerT, /, *args: P.args, **kwargs: P.kwargs) -> ValueT:
            # Read before the value: a change in between makes the next call compute it again.
            current = version(owner, *args, **kwargs)

            # One tuple, read and replaced at once: threads may come here together.
            entry: tuple[Hashable, ValueT] | None = getattr(owner, attribute, None)
            if entry is None or entry[0] != current:
                entry = current, method(owner, *args, **kwargs)
                setattr(owner, attribute, entry)
            return entry[1]

        return get_cached

    return decorate


class Part:
    """A part of a campaign, such as ``campaign.people``."""

    def __init__(self, campaign: Campaign) -> None:
        self._campaign = campaign


@contextmanager
def new_campaign(
    database: Database, name: str, settings: Settings, clock: Clock
) -> Iterator[Writing]:
    """Add a campaign to a database, and yield the transaction in which it is made complete.

    Raises:
        InputError: the database has a campaign of this name.
    """
    with database.writing() as connection:
        if name in list_campaigns(connection):
            raise InputError(
                f"{database.display_url} already has a campaign called {name!r}: open it, or "
                f"choose another name."
            )

        stored = json.dumps(settings_to_dict(settings, database.path))
        campaign_id = add_campaign(connection, name, format_time(clock()), stored)
        yield Writing(CampaignStore(database, campaign_id, settings, clock), connection)


class Reading:
    """A transaction that reads a campaign: its queries by subject."""

    def __init__(self, store: CampaignStore, connection: Connection) -> None:
        self.connection = connection
        """For the queries of the store alone."""
        self.campaign_id = store.campaign_id
        self._store = store

    def now(self) -> str:
        """Return the current time as it is stored."""
        return format_time(self._store.clock())

    def time_after(self, seconds: float) -> str:
        """Return the time in so many seconds as it is stored."""
        return format_time(self._store.clock() + timedelta(seconds=seconds))

    @property
    def lease_seconds(self) -> float:
        """Seconds after which an unanswered item is reassigned; 0 for never."""
        return 60 * self.settings.lease

    def lease_end(self) -> str | None:
        """Return when a lease given now expires, as it is stored; None for never."""
        if not self.lease_seconds:
            return None
        return self.time_after(self.lease_seconds)

    @cached_property
    def settings(self) -> Settings:
        """The campaign's settings in this transaction."""
        return self._store.parse_settings(self.campaign().settings)

    def campaign(self) -> StoredCampaign:
        """Return the campaign's name, settings and time of creation, as they are stored."""
        query = select(schema.campaigns).where(CAMPAIGNS.id == self.campaign_id)
        row = self.connection.execute(query).one()
        return StoredCampaign(
            row.id,
            row.name,
            row.created,
            row.settings,
        )

    answers = cached_property(AnswerQueries)
    """What annotators said."""
    classes = cached_property(ClassQueries)
    """The names of the classes."""
    decisions = cached_property(DecisionQueries)
    """What reviewers decided."""
    descriptions = cached_property(DescriptionQueries)
    """What the classes mean."""
    encodings = cached_property(EncodingQueries)
    """The features of items."""
    finishes = cached_property(FinishQueries)
    """Promises and certificates."""
    history = cached_property(HistoryQueries)
    """Every change."""
    items = cached_property(ItemQueries)
    """The items."""
    label_studio = cached_property(LabelStudioQueries)
    """The project in Label Studio."""
    locks = cached_property(LockQueries)
    """Locks that last longer than a transaction."""
    models = cached_property(ModelQueries)
    """The trained models."""
    people = cached_property(PeopleQueries)
    """The members."""
    picks = cached_property(PickQueries)
    """Batches, and who has which item open."""
    suggestions = cached_property(SuggestionQueries)
    """Sources and what they suggest."""
    tables = cached_property(ImportedTableQueries)
    """The files that items came from."""
    webhooks = cached_property(WebhookQueries)
    """Webhooks and what waits to be sent."""


class Writing(Reading):
    """A transaction that reads and changes a campaign: whoever writes asks for one."""

    def write_settings(self, values: Mapping[str, Any]) -> None:
        """Replace the campaign's settings, given as ``settings_to_dict`` returns them."""
        campaign = update(schema.campaigns).where(CAMPAIGNS.id == self.campaign_id)
        settings = json.dumps(values)
        self.connection.execute(campaign.values(settings=settings))
        self.__dict__.pop("settings", None)

    def save_model(self, weights: bytes, facts: Mapping[str, Any], who: str) -> StoredModel:
        """Store a trained model, remove what older ones picked ahead, and return it.

        Args:
            weights: the model as a safetensors file.
            facts: what is known of it. The numbers of answers given and of control items drawn so
                far are added.
            who: who trained it, for the history.
        """
        # The count tells later which answers the model does not know, whatever clocks say.
        facts = {
            **facts,
            "answers": self.answers.count(),
            "controls": len(self.picks.control_items()),
        }
        model = self.models.add(weights, facts)
        self.picks.remove_outdated()
        self.history.append(who, "trained", None, {"version": model.version, **facts})
        return model
