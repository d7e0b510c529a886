"""The items of a campaign."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from sqlalchemy import ColumnElement, Row, bindparam, func, or_, select

from teeter.campaigns.items.item import HASH_DIGITS, Item, quote_id, require_valid_unicode
from teeter.campaigns.records import ItemKind
from teeter.campaigns.store import schema
from teeter.campaigns.store.queries import Queries, chunks
from teeter.campaigns.store.queries.imported_tables import items_with_text
from teeter.campaigns.store.schema import ITEMS
from teeter.errors import InputError, UnknownItemError

_MOST_COMPARED_IDS = 2000
"""Item ids that are compared with an unknown one, to suggest the one that was meant."""

_MOST_COMPARED_ITEMS = 2000
"""Stored items that new ones are compared with one and all."""

# What lines of the history say about a changed item.
_CHANGED = "item changed"
_WITHDRAWN = "withdrawn"
PUT_BACK = "put back"

_MOST_IDS_IN_LINE = 1000
"""Item ids in one line of the history."""

_ITEM_BY_ID = select(schema.items).where(
    ITEMS.campaign_id == bindparam("campaign_id"),
    ITEMS.key == bindparam("item_id"),
)


@dataclass(frozen=True)
class StoredItem:
    """An item as the database has it."""

    row_id: int
    item_id: str
    kind: ItemKind
    content: str | None
    """The text, or the image's path inside the campaign's folder."""
    digest: str
    holdout: bool
    """Whether it is in the holdout: measured with, never trained on."""
    added: str
    annotators_needed: int
    """How many annotators are to answer it."""
    annotators_missing: int
    """How many of them have not been asked yet."""
    withdrawn: str | None = None
    """When it was taken out of the campaign; None if it is in."""


def deduplicate(
    items: Iterable[Item], stored: Iterable[StoredItem]
) -> tuple[list[Item], list[tuple[str, str]], list[tuple[str, Item]]]:
    """Find the items whose content is new.

    Items of features are compared by their ids too, because equal vectors may be different things.

    Args:
        items: the items to add.
        stored: the items of the campaign.

    Returns:
        The new items; the duplicates, each as the id that it came with and the id of the stored
        item with the same content; and every item with the id that it is stored under.

    Raises:
        InputError: two items have the same id and different contents.
    """
    # Contents are compared by their digests: texts may be long, and images are not read again.
    id_of_content: dict[tuple[str, str], str] = {}
    for row in stored:
        content = _content_key(row.kind, row.digest, row.item_id)
        id_of_content[content] = row.item_id

    taken_ids = set(id_of_content.values())
    new = []
    duplicates = []
    by_stored_id = []

    for item in items:
        content = _content_key(item.kind, item.digest, item.key)

        if content in id_of_content:
            duplicates.append((item.key, id_of_content[content]))
        elif item.key in taken_ids:
            raise InputError(
                f"Two different items have the id {quote_id(item.key)}: give each its own id."
            )
        else:
            new.append(item)
            id_of_content[content] = item.key
            taken_ids.add(item.key)

        by_stored_id.append((id_of_content[content], item))

    return new, duplicates, by_stored_id


def _content_key(kind: str, digest: str, item_id: str) -> tuple[str, str]:
    # A text or an image is the same item under any id. A vector may not be.
    if kind == ItemKind.FEATURES:
        return digest, item_id
    return digest, ""


class ItemQueries(Queries):
    """The items of a campaign, in the order in which they were added."""

    def all(self) -> list[StoredItem]:
        """Return all items in their order."""
        in_order = self._own(schema.items).order_by(ITEMS.id)
        return [_stored_item(row) for row in self._execute(in_order)]

    def contents(self) -> dict[str, str | None]:
        """Return the content of all items by item id, in their order."""
        items = select(ITEMS.key, ITEMS.content).where(self._in_campaign())
        # Fetched in parts: a hundred thousand rows at once are work for the garbage collector.
        rows = self._execute(items.order_by(ITEMS.id), execution_options={"yield_per": 1_000})
        contents: dict[str, str | None] = {}
        for part in rows.partitions():
            contents.update((item_id, content) for item_id, content in part)
        return contents

    def have_own_ids(self) -> bool:
        """Return whether an item has another id than the hash of its content."""
        is_own = ITEMS.key != func.substr(ITEMS.digest, 1, HASH_DIGITS)
        with_own_id = select(ITEMS.id).where(self._in_campaign(), is_own)
        return self._scalar(with_own_id.limit(1)) is not None

    def comparable(self, items: Sequence[Item]) -> list[StoredItem]:
        """Return the stored items that ``deduplicate`` must compare with: those alike, or all.

        A few items that are added to many must not read all of them.
        """
        if self.count() <= _MOST_COMPARED_ITEMS + 4 * len(items):
            return self.all()

        own = self._own(schema.items)
        digests = sorted({item.digest for item in items})
        item_ids = sorted({item.key for item in items})
        alike: dict[int, StoredItem] = {}
        for row in self._in_parts(own, ITEMS.digest, digests):
            alike[row.id] = _stored_item(row)
        for row in self._in_parts(own, ITEMS.key, item_ids):
            alike[row.id] = _stored_item(row)
        return [alike[row_id] for row_id in sorted(alike)]

    def count(self) -> int:
        """Return the number of items, withdrawn or not."""
        return self._count(self._own(schema.items))

    def count_withdrawn(self) -> int:
        """Return the number of items that were taken out of the campaign."""
        is_withdrawn = ITEMS.withdrawn.is_not(None)
        withdrawn = select(ITEMS.id).where(self._in_campaign(), is_withdrawn)
        return self._count(withdrawn)

    def newest_row_id(self) -> int:
        """Return the largest row id of an item; it changes whenever items are added.

        Other campaigns of the database count too: their items change it without need, and the index
        gives it at once.
        """
        newest = self._scalar(select(func.max(ITEMS.id)))
        return int(newest or 0)

    def get(self, item_id: str) -> StoredItem:
        """Return an item.

        Raises:
            UnknownItemError: there is no item of that id.
            InputError: the id is not a string that an item's id can be.
        """
        require_valid_unicode(item_id, "item id")
        values = {"campaign_id": self._campaign_id, "item_id": item_id}
        row = self._first(_ITEM_BY_ID, values)

        if row is None:
            # Only some ids are compared: in a campaign of a million items a hint is not worth more.
            item_ids = select(ITEMS.key).where(self._in_campaign())
            compared = self._scalars(item_ids.limit(_MOST_COMPARED_IDS)).all()
            closest = get_close_matches(item_id, compared, n=1)
            hint = ""
            if closest:
                hint = f" Did you mean {quote_id(closest[0])}?"
            raise UnknownItemError(f"No item is called {quote_id(item_id)}.{hint}")

        return _stored_item(row)

    def get_by_row_id(self, row_id: int) -> StoredItem:
        """Return an item by its row id.

        Raises:
            UnknownItemError: the campaign has no item of that row id.
        """
        items = self.by_row_id([row_id])

        if row_id not in items:
            raise UnknownItemError(f"There is no item with the row id {row_id}.")

        return items[row_id]

    def by_row_id(self, row_ids: Sequence[int]) -> dict[int, StoredItem]:
        """Return those of the items that exist, by row id and in their order."""
        in_order = self._own(schema.items).order_by(ITEMS.id)
        possible = [row_id for row_id in row_ids if 0 < row_id <= schema.MAX_ROW_ID]
        rows = self._in_parts(in_order, ITEMS.id, possible)
        return {row.id: _stored_item(row) for row in rows}

    def by_id(self, item_ids: Sequence[str]) -> dict[str, StoredItem]:
        """Return those of the items that exist, by item id."""
        # No stored id has a NUL character, and PostgreSQL refuses to look for one.
        possible = [item_id for item_id in item_ids if "\0" not in item_id]
        rows = self._in_parts(self._own(schema.items), ITEMS.key, possible)
        return {row.key: _stored_item(row) for row in rows}

    def row_ids(self) -> dict[str, int]:
        """Return the row ids of all items by item id, in their order."""
        items = select(ITEMS.key, ITEMS.id).where(self._in_campaign())
        rows = self._execute(items.order_by(ITEMS.id))
        return {item_id: row_id for item_id, row_id in rows}  # noqa: C416

    def beginnings(self, length: int) -> list[str]:
        """Return the first characters of the contents of all items, in their order."""
        start = func.substr(ITEMS.content, 1, length)
        items = select(start).where(self._in_campaign())
        beginnings = self._scalars(items.order_by(ITEMS.id))
        return [content or "" for content in beginnings]

    def search(
        self, text: str = "", columns: Sequence[tuple[str, str]] = (), *, in_cells: bool = True
    ) -> list[int]:
        """Return the row ids of the items with a text, and with values in columns.

        Args:
            text: part of the content, of the item id or of a cell, in upper or lower case.
            columns: columns, each with the text that its cell must be equal to.
            in_cells: whether the text may be in a cell.

        Raises:
            InputError: the search has a character that no stored text has.
        """
        require_valid_unicode(text, "search")
        query = select(ITEMS.id).where(self._in_campaign())
        if text:
            # autoescape: a user who searches for 100% means the character, not any text.
            in_content = ITEMS.content.icontains(text, autoescape=True)
            in_id = ITEMS.key.icontains(text, autoescape=True)
            places = [in_content, in_id]
            if in_cells:
                cells = items_with_text(self._connection, text, ignore_case=True)
                places.append(ITEMS.id.in_(cells))
            query = query.where(or_(*places))

        for _, value in columns:
            require_valid_unicode(value, "value of a column")
            part = value
            # Lists and objects are stored without the spaces that people see.
            if value.startswith(("[", "{")):
                part = ""
            # Wider than the filter: the text may be in another column.
            rows = items_with_text(self._connection, part, ignore_case=False)
            query = query.where(ITEMS.id.in_(rows))

        row_ids = list(self._scalars(query))
        if columns:
            row_ids = list(self._transaction.tables.matching_items(row_ids, columns))
        return row_ids

    def add(self, items: Iterable[Item], who: str) -> tuple[list[Item], list[tuple[str, str]]]:
        """Store the items whose content is new.

        Returns:
            The new items, and the duplicates: the id each came with and the id of the stored item.

        Raises:
            InputError: two items have the same id and different contents.
        """
        # Compared again inside the write transaction: others may have added items since the caller
        # did so.
        items = list(items)
        new, duplicates, _ = deduplicate(items, self.comparable(items))
        now = self._transaction.now()

        rows = []
        for item in new:
            row = {
                "key": item.key,
                "kind": item.kind,
                "content": item.content,
                "digest": item.digest,
                "holdout": False,
                "added": now,
            }
            rows.append(row)
        self._insert_all(schema.items, rows)

        # The new items and the ids that stand for others, in lines that are not too long.
        all_ids = [item.key for item in new]
        all_aliases = [[given, stored] for given, stored in duplicates if given != stored]
        most = max(len(all_ids), len(all_aliases))
        for start in range(0, most, _MOST_IDS_IN_LINE):
            end = start + _MOST_IDS_IN_LINE
            item_ids = all_ids[start:end]
            aliases = all_aliases[start:end]
            detail = {
                "items": len(item_ids),
                "duplicates": len(aliases),
                "ids": item_ids,
                "same": aliases,
            }
            self._note(who, "added", detail)

        return new, duplicates

    def aliases(self) -> dict[str, str]:
        """Return the ids that duplicates came with, and the id of the stored item for each."""
        aliases: dict[str, str] = {}
        for line in self._transaction.history.lines("added"):
            aliases.update(line.get("same", ()))  # pairs

        return aliases

    def holdout(self) -> set[str]:
        """Return the ids of the items in the holdout."""
        return set(self._ids(ITEMS.holdout))

    def _ids(self, *conditions: ColumnElement[bool]) -> list[str]:
        query = select(ITEMS.key).where(self._in_campaign(), *conditions)
        return list(self._scalars(query.order_by(ITEMS.id)))

    def add_to_holdout(self, item_ids: Sequence[str], who: str) -> None:
        """Hold items out of training, to measure models with."""
        self._change(item_ids, holdout=True)
        self._note(who, "holdout", {"items": list(item_ids)})

    def change_content(self, item: StoredItem, content: str | None, digest: str, who: str) -> None:
        """Replace the text of an item. The history has both, so it shows what each answer saw."""
        self._update(
            schema.items,
            ITEMS.id == item.row_id,
            content=content,
            digest=digest,
        )

        detail = {"from": item.content, "to": content}
        self._note(who, _CHANGED, detail, item.item_id)

    def newest_change(self) -> int:
        """Return a number that grows when a text changes, or items are withdrawn or put back."""
        return self._transaction.history.newest_row_id((_CHANGED, _WITHDRAWN, PUT_BACK))

    def with_digest(self, digest: str) -> list[str]:
        """Return the ids of the items whose content has a digest."""
        return self._ids(ITEMS.digest == digest)

    def withdrawn(self, *, until: str | None = None) -> set[str]:
        """Return the ids of the items that were taken out of the campaign, until a time or ever."""
        if until is not None:
            return set(self._ids(ITEMS.withdrawn <= until))
        return set(self._ids(ITEMS.withdrawn.is_not(None)))

    def withdraw(self, item_ids: Sequence[str], who: str, reason: str | None) -> None:
        """Take items out of the campaign. They keep their answers, picks and features."""
        self._change(item_ids, withdrawn=self._transaction.now())
        self._note_items(who, _WITHDRAWN, item_ids, {"reason": reason})

    def put_back(self, item_ids: Sequence[str], who: str) -> None:
        """Put items that were withdrawn back into the campaign, as they were."""
        self._change(item_ids, withdrawn=None)
        self._note_items(who, PUT_BACK, item_ids, {})

    def _change(self, item_ids: Sequence[str], **values: Any) -> None:
        for part in chunks(item_ids):
            self._update(
                schema.items,
                self._in_campaign(),
                ITEMS.key.in_(part),
                **values,
            )

    def _note_items(
        self,
        who: str,
        what: str,
        item_ids: Sequence[str],
        detail: Mapping[str, Any],
    ) -> None:
        for start in range(0, len(item_ids), _MOST_IDS_IN_LINE):
            part = list(item_ids[start : start + _MOST_IDS_IN_LINE])
            self._note(who, what, {"items": part, **detail})

    def request_annotators(self, item_ids: Sequence[str], count: int) -> None:
        """Set how many annotators are to answer items."""
        self._change(item_ids, annotators_needed=count)


def _stored_item(row: Row[Any]) -> StoredItem:
    return StoredItem(
        row_id=row.id,
        item_id=row.key,
        kind=ItemKind(row.kind),
        content=row.content,
        digest=row.digest,
        holdout=row.holdout,
        added=row.added,
        annotators_needed=row.annotators_needed,
        annotators_missing=row.annotators_missing,
        withdrawn=row.withdrawn,
    )
