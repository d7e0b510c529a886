"""What all queries of one campaign share."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from teeter.campaigns.clock import Clock, format_time, utc_now

__all__ = ["CampaignScope"]


@dataclass
class CampaignScope:
    """The campaign that queries are about, the clock they read and the lease they give."""

    campaign_id: int
    clock: Clock = utc_now
    lease: timedelta = timedelta(0)
    """Time after which an unanswered item is reassigned; zero for never."""

    def now(self) -> str:
        """Return the current time as it is stored."""
        return format_time(self.clock())

    def time_after(self, seconds: float) -> str:
        """Return the time in so many seconds as it is stored."""
        return format_time(self.clock() + timedelta(seconds=seconds))

    def lease_end(self) -> str | None:
        """Return when a lease given now expires, as it is stored; None for never."""
        if not self.lease:
            return None
        return format_time(self.clock() + self.lease)
