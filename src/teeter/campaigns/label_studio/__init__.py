"""A campaign labelled in Label Studio: its questions become tasks there, and annotations become answers here."""

from __future__ import annotations

from teeter.campaigns.label_studio.sync import LabelStudio, SyncResult, sync_campaign

__all__ = ["LabelStudio", "SyncResult", "sync_campaign"]
