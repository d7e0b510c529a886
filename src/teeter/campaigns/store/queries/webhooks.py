"""Webhooks and their deliveries, made from the history of a campaign.

Every change of a campaign writes a line of its history in its own transaction, so the history is an
outbox already. ``enqueue`` turns the lines after a webhook's last one into deliveries and moves the
webhook on, in one transaction: a crash before it loses nothing, and a crash after it repeats
nothing. A delivery stays until its receiver has confirmed it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import itemgetter
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, and_, func, select

from teeter.campaigns.records import AnswerKind
from teeter.campaigns.store import schema
from teeter.campaigns.store.queries import Queries
from teeter.campaigns.store.schema import ANSWERS, HISTORY, ITEMS, WEBHOOK_DELIVERIES, WEBHOOKS
from teeter.errors import UnknownResourceError

_LINES_AT_ONCE = 1_000
"""Lines of the history that are read in one transaction."""


SECRET_PREFIX = "whsec_"
"""What a secret begins with; its key follows in base64."""


class WebhookEvent(StrEnum):
    """What can be sent to a webhook."""

    LABELLED = "labelled"
    """An annotator gave an item a class, or a reviewer decided on one."""
    TRAINED = "trained"
    PROMISE_REACHED = "promise_reached"
    """A certificate of the accuracy was issued."""
    FINISHED = "finished"
    """Every item has an answer that is not a skip, or was withdrawn."""


_EVENT_OF_LINE = {
    "answer": WebhookEvent.LABELLED,
    "decided": WebhookEvent.LABELLED,
    "trained": WebhookEvent.TRAINED,
    "certificate": WebhookEvent.PROMISE_REACHED,
}
"""The event that a line of the history stands for."""


@dataclass(frozen=True)
class StoredWebhook:
    """Where events of a campaign are sent."""

    row_id: int
    url: str
    secrets: tuple[str, ...]
    """What payloads are signed with, the newest first. Replaced ones sign for a while."""
    events: frozenset[WebhookEvent]
    allow_private: bool
    """Whether the receiver may be in the server's own network."""
    created: str

    @property
    def secret(self) -> str:
        """The newest secret."""
        return self.secrets[0]


@dataclass(frozen=True)
class StoredDelivery:
    """An event that is sent to a webhook."""

    row_id: int
    webhook: StoredWebhook
    event: WebhookEvent
    payload: str
    """JSON."""
    created: str
    attempts: int
    next_attempt: str
    delivered: str | None
    given_up: str | None
    status: int | None
    """The HTTP status of the last answer."""
    error: str | None
    """Why the last attempt failed."""


class WebhookQueries(Queries):
    """The webhooks of a campaign, and the events that are sent to them."""

    def add(
        self,
        *,
        url: str,
        secret: str,
        events: Sequence[WebhookEvent],
        allow_private: bool,
        who: str,
    ) -> StoredWebhook:
        """Add a webhook. It gets the events from now on."""
        # Before the line below, which is no event of its own.
        newest = self._transaction.history.newest_row_id()
        row_id = self._insert(
            schema.webhooks,
            url=url,
            secret=json.dumps({secret: None}),
            events=json.dumps(sorted(set(events))),
            allow_private=allow_private,
            created=self._transaction.now(),
            history_id=newest,
        )
        self._note(who, "webhook added", {"webhook": row_id})
        return self.get(row_id)

    def replace_secret(self, row_id: int, secret: str, end: str, who: str) -> StoredWebhook:
        """Give a webhook a new secret. Its former secret is valid until ``end``.

        Raises:
            UnknownResourceError: There is no such webhook.
        """
        self.get(row_id)
        is_webhook = WEBHOOKS.id == row_id
        stored = self._scalar(select(WEBHOOKS.secret).where(is_webhook))
        secrets = self._read_secrets(str(stored))
        former = next(iter(secrets))
        secrets = {secret: None, **secrets, former: end}
        self._update(
            schema.webhooks,
            is_webhook,
            secret=json.dumps(secrets),
        )
        self._note(who, "webhook secret replaced", {"webhook": row_id})
        return self.get(row_id)

    def _read_secrets(self, stored: str) -> dict[str, str | None]:
        """Return the secrets that are valid now, each with the end of its validity."""
        if not stored.startswith("{"):
            # Written before secrets had a form: the same key, as Standard Webhooks writes keys.
            key = base64.b64encode(stored.encode()).decode()
            return {SECRET_PREFIX + key: None}

        now = self._transaction.now()
        secrets: dict[str, str | None] = json.loads(stored)
        return {secret: end for secret, end in secrets.items() if end is None or end > now}

    def remove(self, row_id: int, who: str) -> None:
        """Remove a webhook. Its deliveries stay on record; those that wait are never sent.

        Raises:
            UnknownResourceError: There never was such a webhook.
        """
        is_webhook = and_(WEBHOOKS.campaign_id == self._campaign_id, WEBHOOKS.id == row_id)
        removed = self._scalar(select(WEBHOOKS.removed).where(is_webhook))
        if removed is not None:
            return

        self.get(row_id)
        # The secret goes at once: nothing is signed with it any more.
        self._update(
            schema.webhooks,
            is_webhook,
            removed=self._transaction.now(),
            secret="",
        )
        self._note(who, "webhook removed", {"webhook": row_id})

    def get(self, row_id: int) -> StoredWebhook:
        """Return a webhook.

        Raises:
            UnknownResourceError: There is no such webhook.
        """
        webhooks = self._by_id(WEBHOOKS.removed.is_(None))
        if row_id not in webhooks:
            raise UnknownResourceError(f"There is no webhook {row_id}.")
        return webhooks[row_id]

    def all(self) -> list[StoredWebhook]:
        """Return the webhooks in the order in which they were added."""
        return list(self._by_id(WEBHOOKS.removed.is_(None)).values())

    def _by_id(self, *conditions: ColumnElement[bool]) -> dict[int, StoredWebhook]:
        query = self._own(schema.webhooks).where(*conditions)
        webhooks = {}
        for row in self._execute(query.order_by(WEBHOOKS.id)):
            events = json.loads(row.events)
            webhooks[row.id] = StoredWebhook(
                row_id=row.id,
                url=row.url,
                secrets=tuple(self._read_secrets(row.secret)),
                events=frozenset(WebhookEvent(name) for name in events),
                allow_private=row.allow_private,
                created=row.created,
            )
        return webhooks

    def has_news(self) -> bool:
        """Return whether a webhook has lines of the history before it."""
        query = self._own(schema.webhooks).where(WEBHOOKS.removed.is_(None))
        oldest = self._scalar(query.with_only_columns(func.min(WEBHOOKS.history_id)))
        if oldest is None:
            return False
        return bool(oldest < self._transaction.history.newest_row_id())

    def enqueue(self) -> int:
        """Turn new lines of the history into deliveries, and return how many there are."""
        return sum(self._enqueue_for(webhook) for webhook in self.all())

    def _enqueue_for(self, webhook: StoredWebhook) -> int:
        is_webhook = WEBHOOKS.id == webhook.row_id
        last_line = self._scalar(select(WEBHOOKS.history_id).where(is_webhook))
        later = self._own(schema.history).where(HISTORY.id > last_line)
        in_order = later.order_by(HISTORY.id)
        lines = self._execute(in_order.limit(_LINES_AT_ONCE)).all()
        if not lines:
            return 0

        rows = []
        may_be_last = False
        for line in lines:
            detail = json.loads(line.detail)
            event = _EVENT_OF_LINE.get(line.what)
            if event is WebhookEvent.LABELLED or line.what == "withdrawn":
                may_be_last = True
            # A skip, a doubt or a flag is an answer too, but gives no label.
            if event is WebhookEvent.LABELLED and detail.get("label") is None:
                continue
            if event in webhook.events:
                rows.append(self._delivery(webhook, event, line, detail))

        if WebhookEvent.FINISHED in webhook.events and may_be_last:
            rows += self._finished_delivery(webhook, lines[-1])
        self._insert_all(schema.webhook_deliveries, rows)
        self._update(
            schema.webhooks,
            is_webhook,
            history_id=lines[-1].id,
        )
        return len(rows)

    def _delivery(
        self, webhook: StoredWebhook, event: WebhookEvent, line: Row[Any], detail: dict[str, Any]
    ) -> dict[str, Any]:
        payload = {
            "event": event,
            "id": f"{webhook.row_id}-{line.id}-{event}",
            "at": line.at,
            "by": line.who,
            "item": line.item,
            "label": detail.get("label"),
            "detail": {name: value for name, value in detail.items() if name != "label"},
        }
        now = self._transaction.now()
        return {
            "webhook_id": webhook.row_id,
            "history_id": line.id,
            "event": event,
            # Escaped, because a comment may have characters that PostgreSQL cannot store.
            "payload": json.dumps(payload),
            "created": now,
            "attempts": 0,
            "next_attempt": now,
        }

    def _finished_delivery(self, webhook: StoredWebhook, line: Row[Any]) -> list[dict[str, Any]]:
        """Return the delivery that says that nothing is left, unless it was sent already."""
        is_no_skip = ANSWERS.kind != AnswerKind.SKIP
        answered = select(ANSWERS.item_id).where(ANSWERS.live, is_no_skip)
        open_items = (
            select(ITEMS.id)
            .where(
                self._in_campaign(),
                ITEMS.id.not_in(answered),
                ITEMS.withdrawn.is_(None),
            )
            .limit(1)
        )
        if self._scalar(open_items) is not None:
            return []

        last_finish = self._scalar(
            select(func.max(WEBHOOK_DELIVERIES.history_id)).where(
                WEBHOOK_DELIVERIES.webhook_id == webhook.row_id,
                WEBHOOK_DELIVERIES.event == WebhookEvent.FINISHED,
            )
        )
        # Items that were added or put back since make it a new end.
        added = self._transaction.history.newest_row_id(("added", "put back"))
        if last_finish is not None and last_finish > added:
            return []
        return [self._delivery(webhook, WebhookEvent.FINISHED, line, {})]

    def due(self, count: int) -> list[StoredDelivery]:
        """Return deliveries to attempt now, an equal share of each webhook.

        The oldest of a webhook come first. Webhooks take turns, but those with failed attempts come
        after the others: a receiver that is away takes time at every attempt.

        Args:
            count: The largest number of deliveries, though each webhook has one at least.
        """
        failures = self._failed_attempts()
        if not failures:
            return []

        webhooks = self._by_id()
        share = max(1, count // len(failures))
        ordered: list[tuple[int, int, StoredDelivery]] = []
        for webhook_id, attempts in failures.items():
            query = (
                self._waiting()
                .where(WEBHOOK_DELIVERIES.webhook_id == webhook_id)
                .where(WEBHOOK_DELIVERIES.next_attempt <= self._transaction.now())
                .order_by(WEBHOOK_DELIVERIES.id)
                .limit(share)
            )
            webhook = webhooks[webhook_id]
            for turn, row in enumerate(self._execute(query)):
                delivery = _stored_delivery(row, webhook)
                ordered.append((attempts, turn, delivery))

        ordered.sort(key=itemgetter(0, 1))
        return [delivery for _, _, delivery in ordered]

    def _waiting(self) -> Select[Any]:
        """Select the deliveries that are not confirmed and not given up."""
        return (
            self._own(schema.webhook_deliveries)
            .join(schema.webhooks)
            .where(WEBHOOK_DELIVERIES.delivered.is_(None), WEBHOOK_DELIVERIES.given_up.is_(None))
            .where(WEBHOOKS.removed.is_(None))
        )

    def _failed_attempts(self) -> dict[int, int]:
        """Return the attempts of the deliveries that wait, by webhook."""
        webhook_id = WEBHOOK_DELIVERIES.webhook_id
        query = (
            self._waiting()
            .with_only_columns(webhook_id, func.sum(WEBHOOK_DELIVERIES.attempts))
            .group_by(webhook_id)
            .order_by(webhook_id)
        )
        return {number: int(attempts) for number, attempts in self._execute(query)}

    def recent(self, count: int) -> list[StoredDelivery]:
        """Return the newest deliveries, newest first, also those of removed webhooks."""
        query = (
            self._own(schema.webhook_deliveries).order_by(WEBHOOK_DELIVERIES.id.desc()).limit(count)
        )
        webhooks = self._by_id()
        rows = self._execute(query)
        return [_stored_delivery(row, webhooks[row.webhook_id]) for row in rows]

    def count_waiting(self) -> int:
        """Return how many deliveries are not confirmed and not given up."""
        return self._count(self._waiting().with_only_columns(WEBHOOK_DELIVERIES.id))

    def note_delivered(self, row_id: int, status: int) -> None:
        """Note that a receiver has confirmed a delivery."""
        delivered = self._transaction.now()
        self._note_attempt(row_id, delivered=delivered, status=status, error=None)

    def note_failure(
        self,
        row_id: int,
        *,
        status: int | None,
        error: str,
        pause: float | None,
    ) -> None:
        """Note that an attempt failed.

        Args:
            row_id: The delivery.
            status: The HTTP status, if there was an answer.
            error: Why it failed.
            pause: Seconds until the next attempt; None to give up.
        """
        values: dict[str, Any] = {"status": status, "error": error}
        if pause is None:
            values["given_up"] = self._transaction.now()
        else:
            values["next_attempt"] = self._transaction.time_after(pause)
        self._note_attempt(row_id, **values)

    def _note_attempt(self, row_id: int, **values: Any) -> None:
        is_delivery = WEBHOOK_DELIVERIES.id == row_id
        attempts = WEBHOOK_DELIVERIES.attempts + 1
        self._update(
            schema.webhook_deliveries,
            is_delivery,
            attempts=attempts,
            **values,
        )


def _stored_delivery(row: Row[Any], webhook: StoredWebhook) -> StoredDelivery:
    return StoredDelivery(
        row_id=row.id,
        webhook=webhook,
        event=WebhookEvent(row.event),
        payload=row.payload,
        created=row.created,
        attempts=row.attempts,
        next_attempt=row.next_attempt,
        delivered=row.delivered,
        given_up=row.given_up,
        status=row.status,
        error=row.error,
    )
