"""Suggestions: what named sources say about items. They are never labels.

A source is a file of predictions or a language model. A source says at most one thing about an
item; what it says later replaces what it said before. What stood on the page when an annotator
answered is stored with the answer and never changes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Row, Select, and_, delete, func, select

from teeter.base.registry import did_you_mean
from teeter.campaigns.records import (
    ModelReply,
    ModelUsage,
    PickArm,
    PickState,
    ShownSuggestion,
    SourceKind,
)
from teeter.campaigns.store import schema
from teeter.campaigns.store.queries import Queries, chunks
from teeter.campaigns.store.queries.items import StoredItem
from teeter.campaigns.store.schema import (
    ANSWERS,
    BATCHES,
    CLASSES,
    ITEMS,
    MODEL_REPLIES,
    PICKS,
    SHOWN_SUGGESTIONS,
    SOURCES,
    SUGGESTIONS,
)
from teeter.errors import InputError, UnknownNameError

_SOURCE_REMOVED = "source removed"
"""The line of the history with the name of a source that was removed."""

_REMOVED = "removed"
"""Stored as the kind of a language model that was removed. What it cost must not be forgotten."""


_TAKEN_BY = {
    SourceKind.PREDICTIONS.value: "predictions from a file",
    SourceKind.LANGUAGE_MODEL.value: "a language model",
}


@dataclass(frozen=True)
class Source:
    """A source of suggestions."""

    name: str
    kind: SourceKind
    detail: Mapping[str, Any] = field(default_factory=dict)
    """What is known of it, such as the address of a language model."""
    row_id: int = 0
    revision: int = 0
    """Changes whenever its suggestions change."""


@dataclass(frozen=True)
class Suggestion:
    """What a source says about an item."""

    item: str
    label: str
    probability: float | None = None
    """The probability that the source gives the class, if it gives one."""
    source: str = ""
    """The name of the source, where it does not follow from the context."""


class SuggestionQueries(Queries):
    """The sources and suggestions of a campaign."""

    # Sources

    def sources(self) -> list[Source]:
        """Return all sources, oldest first."""
        query = self._own(schema.sources).where(SOURCES.kind != _REMOVED)
        rows = self._execute(query.order_by(SOURCES.id))
        return [_source(row) for row in rows]

    def source(self, name: str) -> Source:
        """Return a source by its name.

        Raises:
            UnknownNameError: there is no such source.
        """
        sources = {source.name: source for source in self.sources()}
        if name not in sources:
            hint = "There are no sources yet."
            if sources:
                hint = did_you_mean(name, list(sources))
            raise UnknownNameError(f"No source is called {name!r}. {hint}")
        return sources[name]

    def was_removed(self, name: str) -> bool:
        """Return whether there was a source of this name, and there is none now."""
        if name in [source.name for source in self.sources()]:
            return False
        lines = self._transaction.history.lines(_SOURCE_REMOVED)
        return name in [line["name"] for line in lines]

    def write_source(self, source: Source, who: str) -> Source:
        """Add a source, or replace what is known of the one of that name; return it.

        Raises:
            InputError: the name belongs to a source of another kind.
        """
        detail = json.dumps(dict(source.detail), ensure_ascii=False)
        # Removed ones too: a language model that comes back has already used a part of its budget.
        has_name = self._own(schema.sources).where(SOURCES.name == source.name)
        stored = self._execute(has_name).one_or_none()

        if stored is not None:
            if stored.kind in _TAKEN_BY and stored.kind != source.kind:
                raise InputError(
                    f"{source.name!r} is already the name of {_TAKEN_BY[stored.kind]}: give the "
                    f"{source.kind} another name."
                )
            # A server that asks every few seconds must not fill the history.
            is_same = json.loads(stored.detail) == dict(source.detail)
            if stored.kind == source.kind and is_same:
                return _source(stored)

            is_source = SOURCES.id == stored.id
            self._update(
                schema.sources,
                is_source,
                kind=source.kind,
                detail=detail,
            )
        else:
            self._insert(
                schema.sources,
                name=source.name,
                kind=source.kind,
                detail=detail,
                added=self._transaction.now(),
                revision=0,
            )

        line = {"name": source.name, "kind": source.kind, **source.detail}
        self._note(who, "source", line)
        return self.source(source.name)

    def remove_source(self, source: Source, who: str) -> None:
        """Remove a source, its suggestions, and the record of where they were shown.

        The replies of a language model and what they cost stay, for its budget.
        """
        # Those with foreign keys go before the source that the keys point to.
        for table in (schema.shown_suggestions, schema.suggestions):
            self._delete(table, table.c.source_id == source.row_id)

        is_source = SOURCES.id == source.row_id
        replies = select(MODEL_REPLIES.id).where(MODEL_REPLIES.source_id == source.row_id)
        # A request may be on its way, so a language model stays even without a reply.
        if source.kind is SourceKind.LANGUAGE_MODEL or self._count(replies):
            revision = SOURCES.revision + 1
            self._update(
                schema.sources,
                is_source,
                kind=_REMOVED,
                revision=revision,
            )
        else:
            self._delete(schema.sources, is_source)
        self._note(who, _SOURCE_REMOVED, {"name": source.name})

    # Suggestions

    def write(self, source: Source, suggestions: Sequence[Suggestion]) -> None:
        """Store what a source says about items, in place of what it said about them before.

        Raises:
            UnknownNameError: there is no such item or class.
        """
        if not suggestions:
            return

        # Looked up at once: a file may hold 100,000 predictions.
        items = self._transaction.items.by_id([suggestion.item for suggestion in suggestions])
        class_ids = self._transaction.classes.row_ids()
        now = self._transaction.now()

        rows = []
        for suggestion in suggestions:
            # A class may have been renamed since the source was asked.
            if suggestion.label not in class_ids:
                class_ids[suggestion.label] = self._transaction.classes.row_id(suggestion.label)
            row = {
                "source_id": source.row_id,
                "item_id": items[suggestion.item].row_id,
                "class_id": class_ids[suggestion.label],
                "probability": suggestion.probability,
                "at": now,
            }
            rows.append(row)

        # Deleted first: SQLite and PostgreSQL have no common statement to insert or replace.
        for part in chunks(rows):
            item_ids = [row["item_id"] for row in part]
            of_source = SUGGESTIONS.source_id == source.row_id
            self._delete(
                schema.suggestions,
                of_source,
                SUGGESTIONS.item_id.in_(item_ids),
            )
        self._insert_all(schema.suggestions, rows)
        self._count_revision(source)

    def withdraw(self, source: Source, items: Sequence[StoredItem]) -> None:
        """Remove what a source says about some items. What was shown stays recorded."""
        n_withdrawn = 0
        of_source = delete(schema.suggestions).where(SUGGESTIONS.source_id == source.row_id)
        for part in chunks([item.row_id for item in items]):
            withdrawn = of_source.where(SUGGESTIONS.item_id.in_(part))
            n_withdrawn += self._execute(withdrawn).rowcount
        if n_withdrawn:
            self._count_revision(source)

    def remove_item(self, item: StoredItem) -> None:
        """Remove what all sources say about an item, because its content has changed."""
        for source in self.sources():
            self.withdraw(source, [item])

    def _count_revision(self, source: Source) -> None:
        is_source = SOURCES.id == source.row_id
        self._update(
            schema.sources,
            is_source,
            revision=SOURCES.revision + 1,
        )

    def count_revisions(self) -> None:
        """Note that what the sources say has changed, because classes were merged."""
        for source in self.sources():
            self._count_revision(source)

    def clear(self, source: Source) -> None:
        """Remove all suggestions of a source. What was shown to annotators stays recorded."""
        self._delete(schema.suggestions, SUGGESTIONS.source_id == source.row_id)

    def _select(self) -> Select[Any]:
        return (
            select(
                ITEMS.key,
                SUGGESTIONS.item_id,
                SUGGESTIONS.probability,
                CLASSES.name.label("label"),
                SOURCES.name.label("source"),
            )
            .join(schema.items)
            .join(schema.classes)
            .join(schema.sources)
            .where(SUGGESTIONS.campaign_id == self._campaign_id)
        )

    def of_source(self, source: Source) -> list[Suggestion]:
        """Return the suggestions of a source, in the order of the items, without withdrawn ones."""
        query = self._select().where(
            SUGGESTIONS.source_id == source.row_id, ITEMS.withdrawn.is_(None)
        )
        rows = self._execute(query.order_by(SUGGESTIONS.item_id))
        return [_suggestion(row) for row in rows]

    def for_items(self, row_ids: Sequence[int]) -> dict[str, dict[str, Suggestion]]:
        """Return the suggestions about items, by item id and then by source."""
        by_item: dict[str, dict[str, Suggestion]] = {}
        for row in self._in_parts(self._select(), SUGGESTIONS.item_id, row_ids):
            by_item.setdefault(row.key, {})[row.source] = _suggestion(row)
        return by_item

    def revision(self) -> tuple[object, ...]:
        """Return a value that changes whenever a source or its suggestions change."""
        # With name and time: SQLite gives the id of a removed row to the next one.
        columns = (
            SOURCES.id,
            SOURCES.name,
            SOURCES.added,
            SOURCES.revision,
        )
        sources = self._own(schema.sources).with_only_columns(*columns)
        rows = self._execute(sources.order_by(SOURCES.id))
        return tuple(value for row in rows for value in row)

    # What was shown

    def record_shown(self, answer_id: int, shown: ShownSuggestion) -> None:
        """Store with an answer which suggestion stood on the page.

        A source that was removed since is ignored: an answer must not be lost for it.
        """
        sources = {source.name: source.row_id for source in self.sources()}
        classes = self._transaction.classes.row_ids()
        if shown.source not in sources or shown.label not in classes:
            return

        self._insert(
            schema.shown_suggestions,
            answer_id=answer_id,
            source_id=sources[shown.source],
            class_id=classes[shown.label],
        )

    def shown_with_live_answers(self) -> dict[tuple[str, str], ShownSuggestion]:
        """Return what was shown with each live answer, by item id and annotator."""
        query = (
            select(
                ITEMS.key,
                ANSWERS.annotator,
                SOURCES.name.label("source"),
                CLASSES.name.label("label"),
            )
            .join(schema.answers, ANSWERS.id == SHOWN_SUGGESTIONS.answer_id)
            .join(schema.items, ITEMS.id == ANSWERS.item_id)
            .join(schema.sources, SOURCES.id == SHOWN_SUGGESTIONS.source_id)
            .join(schema.classes, CLASSES.id == SHOWN_SUGGESTIONS.class_id)
            .where(SHOWN_SUGGESTIONS.campaign_id == self._campaign_id, ANSWERS.live)
        )

        shown = {}
        for row in self._execute(query):
            shown[row.key, row.annotator] = ShownSuggestion(row.source, row.label)
        return shown

    # Language models

    def items_to_ask(
        self,
        source: Source,
        *,
        only_urgent: bool,
        again: bool,
    ) -> list[StoredItem]:
        """Return the items that a source has said nothing about, the most urgent first.

        Urgent are items that measure the source, because they are drawn at random and labelled,
        and items that annotators have open or will get next.

        Args:
            source: the source.
            only_urgent: leave out all other items.
            again: include items that it has said something about.
        """
        has_suggestion = and_(
            SUGGESTIONS.item_id == ITEMS.id, SUGGESTIONS.source_id == source.row_id
        )
        query = (
            select(ITEMS.id)
            .outerjoin(schema.suggestions, has_suggestion)
            .where(self._in_campaign(), ITEMS.withdrawn.is_(None))
            .order_by(ITEMS.id)
        )
        if not again:
            query = query.where(SUGGESTIONS.id.is_(None))

        # Asked for by themselves: a server looks for them every few seconds, and they are few.
        urgent = sorted(self._urgent_row_ids())
        ordered = [row.id for row in self._in_parts(query, ITEMS.id, urgent)]
        if not only_urgent:
            is_urgent = set(urgent)
            row_ids = self._scalars(query)
            ordered += [row_id for row_id in row_ids if row_id not in is_urgent]

        items = self._transaction.items.by_row_id(ordered)
        return [items[row_id] for row_id in ordered]

    def _urgent_row_ids(self) -> set[int]:
        is_about_item = and_(ANSWERS.item_id == ITEMS.id, ANSWERS.live)
        is_measuring = (PICKS.arm == PickArm.CONTROL) | ITEMS.holdout
        measuring = (
            select(ITEMS.id)
            .join(schema.answers, is_about_item)
            .outerjoin(schema.picks, PICKS.item_id == ITEMS.id)
            .where(self._in_campaign(), is_measuring)
        )
        waiting = (
            select(PICKS.item_id)
            .join(schema.batches)
            .where(
                BATCHES.campaign_id == self._campaign_id,
                PICKS.state.in_((PickState.OPEN, PickState.READY)),
            )
        )
        return set(self._scalars(measuring)) | set(self._scalars(waiting))

    def find_replies(self, digests: Iterable[str]) -> dict[str, str | None]:
        """Return the classes of replies that are stored already, by digest."""
        query = (
            select(MODEL_REPLIES.digest, CLASSES.name)
            .outerjoin(schema.classes)
            .where(MODEL_REPLIES.campaign_id == self._campaign_id)
        )
        rows = self._in_parts(query, MODEL_REPLIES.digest, list(digests))
        return {row.digest: row.name for row in rows}

    def add_reply(self, source: Source, digest: str, reply: ModelReply, cost: float) -> None:
        """Store a reply, so that the same text is never paid for twice.

        Args:
            digest: of the model, the prompt and the text.
            cost: what it cost.
        """
        stored = self._own(schema.model_replies)
        # Two processes may have asked about the same text at the same time. Both replies cost.
        if self._count(stored.where(MODEL_REPLIES.digest == digest)):
            same_text = stored.where(MODEL_REPLIES.digest.startswith(digest))
            digest = f"{digest}-{self._count(same_text) + 1}"

        class_id = None
        if reply.label is not None:
            class_id = self._transaction.classes.row_id(reply.label)
        self._insert(
            schema.model_replies,
            source_id=source.row_id,
            digest=digest,
            class_id=class_id,
            input_tokens=reply.input_tokens,
            output_tokens=reply.output_tokens,
            cost=cost,
            at=self._transaction.now(),
        )

    def is_registered(self, source: Source) -> bool:
        """Return whether a source has not been removed."""
        return any(stored.row_id == source.row_id for stored in self.sources())

    def usage(self, source: Source) -> ModelUsage:
        """Return what a language model has used so far."""
        query = select(
            func.count(MODEL_REPLIES.id),
            func.count(MODEL_REPLIES.class_id),
            func.coalesce(func.sum(MODEL_REPLIES.input_tokens), 0),
            func.coalesce(func.sum(MODEL_REPLIES.output_tokens), 0),
            func.coalesce(func.sum(MODEL_REPLIES.cost), 0.0),
        ).where(MODEL_REPLIES.source_id == source.row_id)
        replies, valid, input_tokens, output_tokens, cost = self._execute(query).one()
        return ModelUsage(replies, replies - valid, input_tokens, output_tokens, float(cost))


def _source(row: Row[Any]) -> Source:
    return Source(
        name=row.name,
        kind=SourceKind(row.kind),
        detail=json.loads(row.detail),
        row_id=row.id,
        revision=row.revision,
    )


def _suggestion(row: Row[Any]) -> Suggestion:
    return Suggestion(row.key, row.label, row.probability, row.source)
