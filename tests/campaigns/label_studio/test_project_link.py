"""The link of a campaign to its project: one sync at a time, and a killed one blocks the next for minutes only."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaigns.fake_clock import FakeClock
from campaigns.label_studio_backends import LabelStudioBackend, imaginary
from teeter.campaigns.label_studio import project_link
from teeter.errors import StoreError


@pytest.fixture
def backend(tmp_path: Path) -> LabelStudioBackend:
    return imaginary(tmp_path)


def test_a_sync_that_never_ends_is_told_of(backend: LabelStudioBackend) -> None:
    campaign = backend.campaign()
    backend.sync(campaign, n=2)
    again = project_link.turn(campaign, lambda _: None)
    with (
        project_link.turn(campaign),
        pytest.raises(StoreError, match="Another sync of this campaign goes on"),
    ):
        again.__enter__()
    with project_link.turn(campaign, lambda _: None):
        pass


def test_a_turn_goes_on_while_there_is_life(backend: LabelStudioBackend) -> None:
    watch = FakeClock()
    campaign = backend.campaign()
    campaign.repository.scope.clock = watch
    backend.sync(campaign, n=2)
    with project_link.turn(campaign) as alive:
        for _ in range(6):
            watch.wait(0.5)
            alive()
            assert project_link._acquire(campaign) is None
        watch.wait(-1440)
        alive()
        assert project_link._acquire(campaign) is None, "the clock was set back, and it goes on"
        watch.wait(-1440)
        assert project_link._acquire(campaign) is not None, (
            "one that was killed before the clock was set back is not waited for"
        )
        alive()
        watch.wait(1)
        assert project_link._acquire(campaign) is not None, (
            "a killed one is waited for no longer than that"
        )
