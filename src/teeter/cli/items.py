"""teeter campaign change, withdraw, put-back and rename-class: correct a running campaign."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from teeter.cli.campaign import open_campaign
from teeter.cli.options import CampaignArgument
from teeter.cli.output import pluralize, printable_line, spinner
from teeter.errors import InputError

__all__ = ["change", "put_back", "rename_class", "withdraw"]

ItemArgument = Annotated[str, typer.Argument(metavar="ITEM", help="Item ID.")]
ItemsArgument = Annotated[list[str], typer.Argument(metavar="ITEM...", help="Item IDs.")]


def change(
    file: CampaignArgument,
    item: ItemArgument,
    text: Annotated[str | None, typer.Option(metavar="TEXT", help="New text of the item.")] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="COLUMN=VALUE",
            help="New value of a column: JSON such as 12, true or null, or else a text. Can be "
            "repeated.",
        ),
    ] = None,
) -> None:
    """Change the text or columns of an item. Its answers stay.

    The history keeps the old values. If the new text may have another label, withdraw the item and
    add the text as a new item.

    \b
    Examples:
      teeter campaign change reviews.teeter r17 --text "The bread was stale."
      teeter campaign change reviews.teeter r17 --set customer=ACME --set stars=4
    """
    changes = dict(_parse_change(change) for change in columns or [])
    if text is None and not changes:
        raise InputError("Nothing to change: give --text or --set.")

    with open_campaign(file) as opened, spinner("Changing"):
        has_changed = opened.change_item(item, text=text, columns=changes)

    name = printable_line(item)
    typer.echo(f"Changed {name}." if has_changed else f"{name} already has these values.")


def _parse_change(change: str) -> tuple[str, Any]:
    column, separator, value = change.partition("=")
    if not column or not separator:
        raise InputError(f"{change!r} is not a change: write COLUMN=VALUE.")

    try:
        return column, json.loads(value)
    except ValueError:
        return column, value


def withdraw(
    file: CampaignArgument,
    items: ItemsArgument,
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Remark for the history.")
    ] = None,
) -> None:
    """Take items out of a campaign. Nothing is deleted.

    Withdrawn items are not asked about and not trained on. Exports have them with left_out. They
    keep their answers, and put-back takes the withdrawal back.
    """
    with open_campaign(file) as opened:
        count = opened.withdraw(items, reason=reason)
    typer.echo(f"Withdrew {pluralize(count, 'item')}.")


def put_back(file: CampaignArgument, items: ItemsArgument) -> None:
    """Put withdrawn items back into a campaign, with all their answers."""
    with open_campaign(file) as opened:
        count = opened.put_back(items)
    typer.echo(f"Put back {pluralize(count, 'item')}.")


def rename_class(
    file: CampaignArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the class.")],
    new_name: Annotated[str, typer.Argument(metavar="NEW", help="New name of the class.")],
) -> None:
    """Rename a class. Its labels, models and promises stay.

    Answers that arrive with the old name still count for the class.
    """
    with open_campaign(file) as opened:
        opened.rename_class(name, new_name)
    typer.echo(f"Renamed the class {name} to {new_name.strip()}.")
