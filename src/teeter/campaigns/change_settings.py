"""Change settings of a campaign that has begun."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any

from teeter.campaigns.campaign import Campaign
from teeter.campaigns.items.columns import require_columns
from teeter.campaigns.settings import Settings
from teeter.campaigns.shortcuts import shortcuts_by_class
from teeter.errors import InputError

__all__ = ["CHANGEABLE_SETTINGS", "change_settings"]

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
        campaign: The campaign, whose ``settings`` are replaced.
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
    with campaign.database.writing() as connection:
        # Another process may have changed other settings, so only these are replaced.
        stored = json.loads(campaign.repository.campaign(connection).settings)
        stored |= new_values
        campaign.repository.write_settings(connection, json.dumps(stored))
        campaign.repository.history.append(connection, who, "settings", None, new_values)

    campaign.settings = changed
    campaign.repository.scope.lease = timedelta(minutes=changed.lease)
    return changed
