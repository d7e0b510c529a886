"""teeter campaign webhook: tell other systems about labels, models and the end of a campaign."""

from __future__ import annotations

from typing import Annotated

import typer

from teeter.cli.campaign import open_campaign
from teeter.cli.errors import Commands
from teeter.cli.options import CampaignArgument, JsonOption, split_names
from teeter.cli.output import echo_json, pluralize, print_table

__all__ = ["webhook"]

webhook = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    help="Send signed events to other systems: labelled, trained, promise_reached, finished.",
    rich_markup_mode=None,
)


@webhook.command("add")
def add(
    file: CampaignArgument,
    url: Annotated[str, typer.Argument(metavar="URL", help="Address to send events to.")],
    events: Annotated[
        str, typer.Option(metavar="NAMES", help="Comma-separated events. Default: all.")
    ] = "",
    allow_private: Annotated[
        bool,
        typer.Option(
            "--allow-private", help="Allow an address in your own network, such as localhost."
        ),
    ] = False,
) -> None:
    """Send events to an address from now on, and print the secret that they are signed with.

    A running server delivers events within seconds. Without a server, run teeter campaign webhook
    deliver.

    \b
    Examples:
      teeter campaign webhook add reviews.teeter https://example.org/labels
      teeter campaign webhook add a.teeter http://localhost:9000 --allow-private
    """
    from teeter.campaigns.integrations.webhooks import WebhookEvent, add_webhook

    names = split_names(events) if events else list(WebhookEvent)
    with open_campaign(file) as opened:
        added = add_webhook(opened, url, names, allow_private=allow_private)

    typer.echo(f"Added webhook {added.row_id}. Its secret, which is not shown again:")
    typer.echo(added.secret)


@webhook.command("list")
def show(file: CampaignArgument, as_json: JsonOption = False) -> None:
    """List the webhooks and their latest deliveries."""
    from teeter.campaigns.integrations.webhooks import list_deliveries, list_webhooks

    with open_campaign(file) as opened:
        webhooks = list_webhooks(opened)
        deliveries = list_deliveries(opened)

    rows = [[str(hook.row_id), hook.url, ", ".join(sorted(hook.events))] for hook in webhooks]
    if as_json:
        echo_json(
            [
                {"id": hook.row_id, "url": hook.url, "events": sorted(hook.events)}
                for hook in webhooks
            ]
        )
        return

    print_table(["id", "url", "events"], rows)
    for delivery in deliveries:
        outcome = delivery.error or "waits"
        if delivery.delivered is not None:
            outcome = f"delivered {delivery.delivered}"
        typer.echo(f"{delivery.row_id}  {delivery.event}  {delivery.created}  {outcome}")


@webhook.command("remove")
def remove(
    file: CampaignArgument,
    number: Annotated[int, typer.Argument(metavar="ID", help="Number of the webhook.")],
) -> None:
    """Remove a webhook. Events that have not been delivered to it yet are never sent."""
    from teeter.campaigns.integrations.webhooks import remove_webhook

    with open_campaign(file) as opened:
        remove_webhook(opened, number)

    typer.echo(f"Removed webhook {number}.")


@webhook.command("deliver")
def deliver(file: CampaignArgument) -> None:
    """Deliver the events that are due now, for campaigns without a running server."""
    from teeter.campaigns.integrations.webhooks import deliver_due

    with open_campaign(file) as opened:
        counts = deliver_due(opened)

    typer.echo(
        f"Delivered {pluralize(counts.delivered, 'event')}. "
        f"{pluralize(counts.failed, 'webhook')} failed."
    )
