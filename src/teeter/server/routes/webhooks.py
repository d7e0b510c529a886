"""Webhooks over REST, and the thread of a server that delivers them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from teeter.campaigns.campaign import Campaign
from teeter.campaigns.integrations.webhooks import (
    add_webhook,
    deliver_due,
    list_deliveries,
    list_webhooks,
    remove_webhook,
    replace_secret,
)
from teeter.campaigns.store.queries.webhooks import StoredDelivery, StoredWebhook, WebhookEvent
from teeter.campaigns.store.schema import MAX_ROW_ID
from teeter.errors import TeeterError
from teeter.server.access.permissions import (
    CampaignToManage,
    User,
)
from teeter.server.routes import RequestBody

logger = logging.getLogger(__name__)

_PAUSE_SECONDS = 1.0
"""Seconds between two looks at the campaigns."""


class WebhookSender:
    """Delivers what is due, campaign by campaign, while the server runs.

    Args:
        list_campaigns: Returns the campaigns that are open now.
    """

    def __init__(self, list_campaigns: Callable[[], Iterable[Campaign]]) -> None:
        self._list_campaigns = list_campaigns
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to deliver."""
        self._thread = threading.Thread(target=self._run, name="webhooks", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop after the delivery that is being made. What is left is delivered next time."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(_PAUSE_SECONDS):
            for campaign in self._list_campaigns():
                if self._stopping.is_set():
                    return
                try:
                    deliver_due(campaign)
                except TeeterError as error:
                    # A database that is away comes back, and its deliveries with it.
                    logger.warning("Webhooks of %s: %s", campaign.name, error)
                except Exception:
                    # The thread serves all campaigns: one that fails must not end it.
                    logger.exception("Webhooks of %s failed.", campaign.name)


router = APIRouter(prefix="/api/v1/campaigns/{slug}/webhooks")


class WebhookIn(RequestBody):
    """An address to send events to, public unless the server allows private addresses."""

    url: str = Field(min_length=1, max_length=2000)
    events: list[WebhookEvent] = Field(
        default_factory=lambda: list(WebhookEvent), min_length=1, max_length=len(WebhookEvent)
    )


class WebhookOut(BaseModel):
    """A webhook."""

    id: int
    url: str
    events: list[WebhookEvent]
    allow_private: bool
    created: str


class NewWebhookOut(WebhookOut):
    """A new webhook, with the secret that signs its events. The secret is shown only once."""

    secret: str | None
    """None if the same webhook was there already."""


class DeliveryOut(BaseModel):
    """An event that was sent, or is to be sent."""

    id: int
    webhook: int
    event: WebhookEvent
    created: str
    attempts: int
    next_attempt: str | None
    """When delivery is tried again; None if it is not."""
    delivered: str | None
    given_up: str | None
    status: int | None
    error: str | None


class WebhookNumberIn(RequestBody):
    """The number of a webhook."""

    id: int = Field(ge=1, le=MAX_ROW_ID)


@router.get("")
def get_webhooks(campaign: CampaignToManage) -> list[WebhookOut]:
    """List the webhooks of a campaign."""
    return [WebhookOut(**_describe(webhook)) for webhook in list_webhooks(campaign)]


@router.post("", status_code=201)
def create_webhook(campaign: CampaignToManage, user: User, body: WebhookIn) -> NewWebhookOut:
    """Send events to an address from now on. The secret of the signatures is shown only once.

    Sent again, it returns the webhook that is there, without its secret.
    """
    before = {webhook.row_id for webhook in list_webhooks(campaign)}

    webhook = add_webhook(campaign, body.url, body.events, who=user)
    secret = None if webhook.row_id in before else webhook.secret
    return NewWebhookOut(secret=secret, **_describe(webhook))


@router.post("/remove")
def delete_webhook(
    campaign: CampaignToManage, user: User, body: WebhookNumberIn
) -> list[WebhookOut]:
    """Remove a webhook, and return those that are left."""
    remove_webhook(campaign, body.id, who=user)
    return [WebhookOut(**_describe(webhook)) for webhook in list_webhooks(campaign)]


@router.post("/secret")
def replace_webhook_secret(
    campaign: CampaignToManage, user: User, body: WebhookNumberIn
) -> NewWebhookOut:
    """Give a webhook a new secret. For a day, events are signed with the former one, too."""
    webhook = replace_secret(campaign, body.id, who=user)
    return NewWebhookOut(secret=webhook.secret, **_describe(webhook))


@router.get("/deliveries")
def get_deliveries(
    campaign: CampaignToManage, count: Annotated[int, Query(ge=1, le=500)] = 50
) -> list[DeliveryOut]:
    """List the events that were sent or are waiting to be sent, newest first."""
    return [_describe_delivery(delivery) for delivery in list_deliveries(campaign, count)]


def _describe(webhook: StoredWebhook) -> dict[str, Any]:
    return {
        "id": webhook.row_id,
        "url": webhook.url,
        "events": sorted(webhook.events),
        "allow_private": webhook.allow_private,
        "created": webhook.created,
    }


def _describe_delivery(delivery: StoredDelivery) -> DeliveryOut:
    next_attempt = None
    if delivery.delivered is None and delivery.given_up is None:
        next_attempt = delivery.next_attempt
    return DeliveryOut(
        id=delivery.row_id,
        webhook=delivery.webhook.row_id,
        event=delivery.event,
        created=delivery.created,
        attempts=delivery.attempts,
        next_attempt=next_attempt,
        delivered=delivery.delivered,
        given_up=delivery.given_up,
        status=delivery.status,
        error=delivery.error,
    )
