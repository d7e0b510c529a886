"""A campaign labelled in Label Studio: its questions become tasks there, and annotations become answers here."""

from __future__ import annotations

from teeter.campaigns.label_studio.syncing import LabelStudio, Synced, sync_campaign

__all__ = ["LabelStudio", "Synced", "sync_campaign"]
