"""Say in a sentence whether models of a campaign learn from the names of its classes."""

from __future__ import annotations

from teeter.campaigns.campaign import Campaign
from teeter.campaigns.descriptions import class_texts
from teeter.campaigns.prior import explain_unused_names

__all__ = ["explain_names"]

_NAMED_CLASSES = 5
"""Classes that are named one by one."""


def explain_names(campaign: Campaign) -> str:
    """Return whether models of a campaign learn from the names of its classes, and why not."""
    with campaign.database.reading() as connection:
        current = campaign.repository.encodings.current(connection)

    encoder = None if current is None else current.encoder
    reason = explain_unused_names(campaign.settings, encoder)
    if reason is not None:
        return reason

    descriptions = campaign.descriptions
    silent = [name for name in campaign.classes if not class_texts(name, descriptions.get(name))]
    listed = ", ".join(silent[:_NAMED_CLASSES])
    if len(silent) > _NAMED_CLASSES:
        listed += f" and {len(silent) - _NAMED_CLASSES:,} more"

    if len(campaign.classes) - len(silent) < 2:
        return (
            f"The class names are not used, because too few of them say anything about their "
            f"items. Describe {listed} with teeter campaign describe."
        )
    if silent:
        subject = "its name says" if len(silent) == 1 else "their names say"
        return (
            f"Models learn from the class names, but not from {listed}, because {subject} nothing "
            "about the items."
        )
    return "Models also learn from the class names, as long as this helps."
