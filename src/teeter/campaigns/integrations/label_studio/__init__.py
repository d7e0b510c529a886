"""Label a campaign in Label Studio: its picks become tasks, and annotations become answers."""

from __future__ import annotations

from teeter.campaigns.integrations.label_studio.sync import LabelStudio, SyncResult

__all__ = ["LabelStudio", "SyncResult"]
