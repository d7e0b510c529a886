"""Tell other systems what happens in a campaign: signed requests that are repeated until confirmed.

Deliveries are made from the history (``store.queries.webhooks``), so none is lost when a process is
killed. A receiver confirms one with a status from 200 to 299. Anything else is tried again, later
each time, for three days. A receiver may get an event twice, if its confirmation was lost; the
``id`` of the payload is the same then.

Payloads are signed as Standard Webhooks (standardwebhooks.com) defines it, so that receivers verify
them with a library. Signing is three lines: the Python library of it is used in the tests only.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import random
import secrets
import time
from collections.abc import Iterable
from datetime import datetime

from teeter.base.outbound_http import PrivateAddressError, require_http_url, send_request
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.store import LockName
from teeter.campaigns.store.queries.webhooks import (
    SECRET_PREFIX,
    StoredDelivery,
    StoredWebhook,
    WebhookEvent,
)
from teeter.campaigns.trust import (
    is_trusted_webhook,
    trust_webhook,
    untrusted_webhook_sentence,
)
from teeter.errors import InputError, TeeterError

logger = logging.getLogger(__name__)

MAX_WEBHOOKS = 20
"""Webhooks of one campaign."""

MAX_SECRETS = 5
"""Secrets that payloads are signed with at the same time."""

_OVERLAP_SECONDS = 24 * 3600.0
"""Seconds for which payloads are signed with a replaced secret, too."""

_SECRET_BYTES = (24, 64)
"""The smallest and the largest size of a secret."""

_TIMEOUT_SECONDS = 10.0
_LOCK_SECONDS = 60.0
"""Seconds after which another process may deliver although one seems to."""

_MOST_AT_ONCE = 100
"""Deliveries of one call, so that one campaign does not keep the others waiting."""

_FIRST_PAUSE_SECONDS = 5.0
_LONGEST_PAUSE_SECONDS = 3600.0
_MAX_AGE_SECONDS = 3 * 24 * 3600.0
"""After this time a delivery is given up."""

_MAX_ANSWER_BYTES = 64 * 1024
_MAX_ERROR = 300


def add_webhook(
    campaign: Campaign,
    url: str,
    events: Iterable[str] = tuple(WebhookEvent),
    *,
    secret: str | None = None,
    allow_private: bool = False,
    who: str = "me",
) -> StoredWebhook:
    """Send events of a campaign to an address from now on.

    A webhook with the same address and events, that is there already, is returned as it is.

    Args:
        campaign: The campaign.
        url: An ``http`` or ``https`` address. It is resolved at every delivery.
        events: Some of ``WebhookEvent``.
        secret: What payloads are signed with: ``whsec_`` and 24 to 64 bytes in base64. Default: a
            random one.
        allow_private: Whether the address may be in the server's own network. Only who runs the
            server should decide this, so it holds on this machine alone (see ``trust``).
        who: The name for the history.

    Returns:
        The webhook, with its secret.

    Raises:
        InputError: If the address, an event or the secret is not valid, or there are too many
            webhooks.
    """
    require_http_url(url)
    names = set(events)
    unknown = names - set(WebhookEvent)
    if unknown or not names:
        wrong = "No event is given"
        if unknown:
            wrong = f"There is no event {min(unknown)!r}"
        raise InputError(f"{wrong}: choose from {', '.join(WebhookEvent)}.")

    if secret is not None:
        _require_secret(secret)

    with campaign.writing() as change:
        webhooks = change.webhooks.all()
        for webhook in webhooks:
            is_same = webhook.url == url and webhook.events == names
            if is_same and webhook.allow_private == allow_private and secret is None:
                return webhook

        if len(webhooks) >= MAX_WEBHOOKS:
            raise InputError(
                f"A campaign can have at most {MAX_WEBHOOKS} webhooks: remove one first."
            )
        webhook = change.webhooks.add(
            url=url,
            secret=secret or _make_secret(),
            events=[WebhookEvent(name) for name in names],
            allow_private=allow_private,
            who=who,
        )
        # Before the commit: a webhook that gets no event must not be stored as one that does.
        trust_webhook(campaign.database, url, allow_private=allow_private)
    return webhook


def remove_webhook(campaign: Campaign, number: int, *, who: str = "me") -> None:
    """Remove a webhook by its number.

    Raises:
        UnknownResourceError: If there never was such a webhook.
    """
    with campaign.writing() as change:
        change.webhooks.remove(number, who)


def replace_secret(campaign: Campaign, number: int, *, who: str = "me") -> StoredWebhook:
    """Give a webhook a new secret, and return the webhook with it.

    For a day, payloads are signed with the former secret too: receivers have the time to change.

    Raises:
        UnknownResourceError: If there is no such webhook.
        InputError: If it has too many secrets that still sign.
    """
    with campaign.writing() as change:
        if len(change.webhooks.get(number).secrets) == MAX_SECRETS:
            raise InputError(
                f"Webhook {number} has {MAX_SECRETS} secrets already, each of them valid for a day "
                "after it was replaced: replace the newest one later."
            )
        end = change.time_after(_OVERLAP_SECONDS)
        return change.webhooks.replace_secret(number, _make_secret(), end, who)


def _make_secret() -> str:
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def _require_secret(secret: str) -> None:
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except ValueError:
        key = b""

    smallest, largest = _SECRET_BYTES
    has_length = smallest <= len(key) <= largest
    if not secret.startswith(SECRET_PREFIX) or not has_length:
        raise InputError(
            f"The secret is not valid: give {SECRET_PREFIX} and {smallest} to {largest} bytes in "
            "base64, or leave it out to get a random one."
        )


def list_webhooks(campaign: Campaign) -> list[StoredWebhook]:
    """Return the webhooks of a campaign."""
    with campaign.reading() as view:
        return view.webhooks.all()


def list_deliveries(campaign: Campaign, count: int = 20) -> list[StoredDelivery]:
    """Return the events that were sent or wait, newest first."""
    with campaign.reading() as view:
        return view.webhooks.recent(count)


def count_waiting_deliveries(campaign: Campaign) -> int:
    """Return how many events are not confirmed and not given up."""
    with campaign.reading() as view:
        return view.webhooks.count_waiting()


def sign_payload(secret: str, message_id: str, timestamp: str, body: bytes) -> str:
    """Return the signature of a payload.

    Example:
        >>> sign_payload("whsec_c2VjcmV0", "1-4711-labelled", "1700000000", b"{}")[:19]
        'v1,hJRR24P2XiDBn6l7'
    """
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    message = f"{message_id}.{timestamp}.".encode() + body
    digest = hmac.digest(key, message, "sha256")
    signature = base64.b64encode(digest).decode()
    return f"v1,{signature}"


def deliver_due(campaign: Campaign) -> int:
    """Send what is due to the webhooks of a campaign, and return how much was delivered.

    A server calls this again and again. One process delivers at a time; another one returns at
    once. A webhook whose receiver fails is left alone until the next call, so that a receiver that
    is away does not keep the others waiting.
    """
    with campaign.reading() as view:
        has_work = view.webhooks.has_news()
        has_work = has_work or bool(view.webhooks.due(1))
    if not has_work:
        return 0

    with campaign.writing() as change:
        lock = change.locks.acquire(LockName.WEBHOOKS, _LOCK_SECONDS)
        if lock is None:
            return 0
        change.webhooks.enqueue()
        due = change.webhooks.due(_MOST_AT_ONCE)

    delivered = 0
    failing = set()
    try:
        deadline = time.monotonic() + _LOCK_SECONDS - 2 * _TIMEOUT_SECONDS
        for delivery in due:
            if delivery.webhook.row_id in failing:
                continue
            if time.monotonic() > deadline:
                break
            if _deliver(campaign, delivery):
                delivered += 1
            else:
                failing.add(delivery.webhook.row_id)
    finally:
        with campaign.writing() as change:
            change.locks.release(LockName.WEBHOOKS, lock)

    return delivered


def _deliver(campaign: Campaign, delivery: StoredDelivery) -> bool:
    """Attempt a delivery, note what happened, and return whether it was confirmed."""
    status = None
    is_final = False
    try:
        status = _send(campaign, delivery)
        error = f"The receiver answered with status {status}."
    except PrivateAddressError as problem:
        # It stays as it is until the owner allows it, which makes a new webhook. One that only the
        # campaign's file allows waits for the word of who runs the server.
        is_final = not delivery.webhook.allow_private
        error = str(problem)
        if not is_final:
            error = untrusted_webhook_sentence(delivery.webhook.url, allow_private=True)
    except TeeterError as problem:
        error = str(problem)
    except Exception as problem:
        # Whatever it is, the other deliveries must not wait for it.
        logger.exception("Delivery %s failed.", delivery.row_id)
        error = f"The event cannot be sent: {type(problem).__name__}."

    with campaign.writing() as change:
        if status is not None and 200 <= status < 300:
            change.webhooks.note_delivered(delivery.row_id, status)
            return True

        pause = None
        if not is_final:
            pause = _pause_before_next(campaign, delivery)
        change.webhooks.note_failure(
            delivery.row_id, status=status, error=error[:_MAX_ERROR], pause=pause
        )
        return False


def _send(campaign: Campaign, delivery: StoredDelivery) -> int:
    """Send an event, and return the HTTP status of the answer."""
    # The file alone may come from a stranger, who would get every answer.
    webhook = delivery.webhook
    if not is_trusted_webhook(campaign.database, webhook.url, allow_private=False):
        raise InputError(
            untrusted_webhook_sentence(webhook.url, allow_private=webhook.allow_private)
        )

    payload = {"campaign": campaign.name, **json.loads(delivery.payload)}
    body = json.dumps(payload, ensure_ascii=True).encode()
    timestamp = str(int(time.time()))
    # The same at every attempt, and another one in every campaign: their numbers are alike.
    event = f"{webhook.created} {payload['id']}"
    digest = hashlib.sha256(event.encode()).hexdigest()
    message_id = f"msg_{digest[:32]}"
    headers = {
        "Content-Type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(
            sign_payload(secret, message_id, timestamp, body) for secret in webhook.secrets
        ),
    }
    response = send_request(
        "POST",
        webhook.url,
        headers=headers,
        body=body,
        timeout=_TIMEOUT_SECONDS,
        max_bytes=_MAX_ANSWER_BYTES,
        allow_private=webhook.allow_private
        and is_trusted_webhook(campaign.database, webhook.url, allow_private=True),
    )
    return response.status


def _pause_before_next(campaign: Campaign, delivery: StoredDelivery) -> float | None:
    """Return the seconds until the next attempt; None if the delivery is too old."""
    age = campaign.clock() - datetime.fromisoformat(delivery.created)
    if age.total_seconds() > _MAX_AGE_SECONDS:
        return None

    # From the 10th attempt on it is the longest pause, whatever the power of two is.
    doublings = min(delivery.attempts, 20)
    pause = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2.0**doublings)
    # Many deliveries that failed together must not all come back together.
    return pause * random.uniform(0.8, 1.2)
