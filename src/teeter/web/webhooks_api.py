"""The REST API of webhooks: add and remove them, and list their deliveries."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from teeter.campaigns.campaign import Campaign
from teeter.campaigns.enums import Permission
from teeter.campaigns.integrations.webhooks import (
    add_webhook,
    get_webhook,
    list_deliveries,
    list_webhooks,
    remove_webhook,
)
from teeter.campaigns.store.queries.webhooks import StoredDelivery, StoredWebhook, WebhookEvent
from teeter.web.idempotency import Once
from teeter.web.permissions import current_user, require_permission

__all__ = ["router"]

router = APIRouter(prefix="/api/v1/campaigns/{slug}/webhooks")

_MAX_NUMBER = 2**31 - 1


class WebhookIn(BaseModel):
    """An address to send events to, public unless the server allows private addresses."""

    model_config = ConfigDict(extra="forbid")

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

    secret: str


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


class WebhookNumberIn(BaseModel):
    """The number of a webhook."""

    model_config = ConfigDict(extra="forbid")

    id: int = Field(ge=1, le=_MAX_NUMBER)


@router.get("")
def get_webhooks(request: Request, slug: str) -> list[WebhookOut]:
    """List the webhooks of a campaign."""
    service = require_permission(request, slug, Permission.MANAGE)
    return [WebhookOut(**_describe(webhook)) for webhook in list_webhooks(service.campaign)]


@router.post("", status_code=201)
def create_webhook(request: Request, slug: str, body: WebhookIn, once: Once) -> NewWebhookOut:
    """Send events to an address from now on. The secret of the signatures is shown only once."""
    service = require_permission(request, slug, Permission.MANAGE)

    user = current_user(request)

    # Without the secret, which is stored in one place only.
    row_id = once.stored_as(int)(service, body, _add_webhook, service.campaign, body, user)
    webhook = get_webhook(service.campaign, row_id)
    return NewWebhookOut(secret=webhook.secret, **_describe(webhook))


def _add_webhook(campaign: Campaign, body: WebhookIn, user: str) -> int:
    return add_webhook(campaign, body.url, body.events, who=user).row_id


@router.post("/remove")
def delete_webhook(
    request: Request, slug: str, body: WebhookNumberIn, once: Once
) -> list[WebhookOut]:
    """Remove a webhook, and return those that are left."""
    service = require_permission(request, slug, Permission.MANAGE)
    return once(service, body, _remove_webhook, service.campaign, body.id, current_user(request))


def _remove_webhook(campaign: Campaign, row_id: int, user: str) -> list[WebhookOut]:
    remove_webhook(campaign, row_id, who=user)
    return [WebhookOut(**_describe(webhook)) for webhook in list_webhooks(campaign)]


@router.get("/deliveries")
def get_deliveries(
    request: Request, slug: str, count: Annotated[int, Query(ge=1, le=500)] = 50
) -> list[DeliveryOut]:
    """List the events that were sent or are waiting to be sent, newest first."""
    service = require_permission(request, slug, Permission.MANAGE)
    return [_describe_delivery(delivery) for delivery in list_deliveries(service.campaign, count)]


def _describe(webhook: StoredWebhook) -> dict[str, Any]:
    return {
        "id": webhook.row_id,
        "url": webhook.url,
        "events": sorted(webhook.events),
        "allow_private": webhook.allow_private,
        "created": webhook.created,
    }


def _describe_delivery(delivery: StoredDelivery) -> DeliveryOut:
    is_waiting = delivery.delivered is None and delivery.given_up is None
    return DeliveryOut(
        id=delivery.row_id,
        webhook=delivery.webhook.row_id,
        event=delivery.event,
        created=delivery.created,
        attempts=delivery.attempts,
        next_attempt=delivery.next_attempt if is_waiting else None,
        delivered=delivery.delivered,
        given_up=delivery.given_up,
        status=delivery.status,
        error=delivery.error,
    )
