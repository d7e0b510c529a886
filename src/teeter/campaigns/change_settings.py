"""Change the settings of a campaign while people work with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from teeter.campaigns.items.columns import require_columns
from teeter.campaigns.settings import Settings
from teeter.campaigns.shortcuts import shortcuts_by_class
from teeter.errors import InputError

if TYPE_CHECKING:
    from teeter.campaigns.campaign import Campaign

__all__ = ["CHANGEABLE_SETTINGS", "change_consensus", "change_names", "change_settings"]

CHANGEABLE_SETTINGS = (
    "strategy",
    "options",
    "head",
    "control",
    "cost",
    "budget",
    "instructions",
    "keys",
    "lease",
    "overlap",
    "people",
    "show",
    "consensus",
)
"""Settings that can be changed at any time.

The kind, the folder and whether they are rows belong to the items, the seed and the audit set to
what was measured so far, and another encoder takes a new encoding of all items.
"""


def change_settings(campaign: Campaign, changes: Mapping[str, Any], *, who: str = "me") -> Settings:
    """Change settings of a campaign, all of them or none.

    Args:
        campaign: The campaign.
        changes: New values of some of ``CHANGEABLE_SETTINGS``.
        who: The name for the history.

    Returns:
        The new settings.

    Raises:
        InputError: If a setting cannot be changed, or its value cannot be used.
        UnknownNameError: If it names a strategy or a column that does not exist.
    """
    fixed = sorted(set(changes) - set(CHANGEABLE_SETTINGS))
    if fixed:
        raise InputError(
            f"{fixed[0]!r} cannot be changed: choose from {', '.join(CHANGEABLE_SETTINGS)}."
        )

    for name, value in changes.items():
        try:
            replace(campaign.settings, **{name: value})
        except TypeError:
            raise InputError(f"{name} has a value of the wrong type: {value!r:.100}.") from None
    changed = replace(campaign.settings, **changes)
    if {"strategy", "options", "head"} & set(changes):
        changed.require_strategy()
    if "keys" in changes:
        shortcuts_by_class(campaign.classes, changed.keys)
    if "show" in changes:
        require_columns(changed.show, [column.name for column in campaign.columns])
    if changed.budget is not None and changed.cost is None:
        raise InputError("A budget needs the cost of a label.")

    values = asdict(changed)
    new_values = {name: values[name] for name in changes}
    return _store_changes(campaign, new_values, who=who, line=("settings", new_values))


def change_consensus(campaign: Campaign, method: str, *, who: str) -> Settings:
    """Change how several answers become one label.

    Raises:
        UnknownNameError: If there is no such method.
    """
    replace(campaign.settings, consensus=method)
    line = ("consensus", {"way": method})
    return _store_changes(campaign, {"consensus": method}, who=who, line=line)


def change_names(campaign: Campaign, use: bool, *, who: str) -> Settings:
    """Change whether models learn from the names and descriptions of classes."""
    line = ("names", {"used": use})
    return _store_changes(campaign, {"names": use}, who=who, line=line)


def _store_changes(
    campaign: Campaign,
    changes: Mapping[str, Any],
    *,
    who: str,
    line: tuple[str, Mapping[str, Any]],
) -> Settings:
    """Replace some settings, append a line to the history, and return the new settings."""
    with campaign.writing() as change:
        # Another process may have changed other settings, so only these are replaced.
        stored = json.loads(change.campaign().settings)
        if stored != stored | changes:
            change.write_settings(stored | changes)
            change.history.append(who, line[0], None, line[1])
        return change.settings
