"""teeter campaign change, withdraw, put-back and rename-class: correct a running campaign."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from teeter.cli.campaign import open_campaign
from teeter.cli.options import CampaignArgument
from teeter.cli.output import pluralize, printable_line, spinner
from teeter.errors import InputError

if TYPE_CHECKING:
    from teeter.campaigns.items.columns import ColumnType

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
            help="New value of a column: JSON such as 12, true or null, or else a text. In a "
            "column of texts 12 is a text. Can be repeated.",
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
    assignments = dict(_split_change(change) for change in columns or [])
    if text is None and not assignments:
        raise InputError("Nothing to change: give --text or --set.")

    with open_campaign(file) as opened, spinner("Changing"):
        types = {column.name: column.type for column in opened.columns}
        changes = {
            name: _parse_value(value, types.get(name)) for name, value in assignments.items()
        }
        has_changed = opened.change_item(item, text=text, columns=changes)

    name = printable_line(item)
    typer.echo(f"Changed {name}." if has_changed else f"{name} already has these values.")


def _split_change(change: str) -> tuple[str, str]:
    column, separator, value = change.partition("=")
    if not column or not separator:
        raise InputError(f"{change!r} is not a change: write COLUMN=VALUE.")
    return column, value


def _parse_value(value: str, column_type: ColumnType | None) -> Any:
    """Return the value that an option stands for in a column; None as the type of a new one."""
    from teeter.campaigns.items.columns import ColumnType

    if column_type is ColumnType.TEXT and value != "null":
        return value

    try:
        return json.loads(value, parse_constant=_refuse_constant)
    except ValueError:
        return value


def _refuse_constant(name: str) -> None:
    """Refuse NaN and Infinity, which Python reads but JSON does not have."""
    raise ValueError(name)


def withdraw(
    file: CampaignArgument,
    items: ItemsArgument,
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Remark for the history.")
    ] = None,
) -> None:
    """Take items out of a campaign. Nothing is deleted.

    Withdrawn items are not asked about, not trained on, and count in no statistic. Exports have
    them with left_out. They keep their answers, and put-back takes the withdrawal back.
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
