"""The link of a campaign to its project, and the lock that lets one sync work at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaigns.fake_clock import FakeClock
from campaigns.label_studio_backends import fake_backend
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.integrations.label_studio import sync as project_link
from teeter.campaigns.integrations.label_studio.sync import hold_sync_lock
from teeter.errors import StoreError


def do_not_wait(_: float) -> None:
    pass


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    """A campaign that was synced once."""
    backend = fake_backend(tmp_path)
    campaign = backend.create_campaign()
    backend.sync(campaign, n=2)
    return campaign


def test_a_sync_does_not_wait_forever_for_another(campaign: Campaign) -> None:
    second_lock = hold_sync_lock(campaign, do_not_wait)
    with (
        hold_sync_lock(campaign),
        pytest.raises(StoreError, match="Another sync of this campaign is still running"),
    ):
        second_lock.__enter__()

    # The lock is free again.
    with hold_sync_lock(campaign, do_not_wait):
        pass


def test_a_lock_that_is_extended_does_not_expire(campaign: Campaign) -> None:
    clock = FakeClock()
    campaign.clock = clock

    with hold_sync_lock(campaign) as extend_lock:
        for _ in range(6):
            clock.wait(0.5)
            extend_lock()
            assert project_link._acquire_lock(campaign) is None

        clock.wait(-1440)
        extend_lock()
        assert project_link._acquire_lock(campaign) is None, "although the clock was set back"


def test_the_lock_of_a_killed_sync_expires(campaign: Campaign) -> None:
    clock = FakeClock()
    campaign.clock = clock

    assert project_link._acquire_lock(campaign) is not None
    assert project_link._acquire_lock(campaign) is None

    clock.wait(-1440)
    assert project_link._acquire_lock(campaign) is not None, (
        "a lock from before the clock was set back does not block for a day"
    )

    clock.wait(1)
    assert project_link._acquire_lock(campaign) is not None, "a lock lasts 45 seconds"
