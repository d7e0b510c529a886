"""The campaign of a sample: labelled in part, with models, suspects and something left to do."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from teeter.campaigns import Campaign
from teeter.errors import FileError
from teeter.samples import (
    BATCH,
    HOLDOUT,
    ROUNDS,
    SAMPLES,
    Sample,
    make_sample,
    read_items,
    sample_file,
)


@pytest.mark.parametrize(
    "sample",
    [SAMPLES[0], pytest.param(SAMPLES[1], marks=pytest.mark.slow)],
    ids=lambda sample: sample.name,
)
def test_a_new_sample_has_all_that_the_pages_show(
    sample: Sample, tmp_path: Path, one_thread: None
) -> None:
    now = datetime(2026, 1, 5, 12, tzinfo=UTC)
    steps: list[tuple[int, int]] = []
    folder = tmp_path / "try"
    path = make_sample(
        sample, folder, on_step=lambda done, total: steps.append((done, total)), clock=lambda: now
    )
    assert path == sample_file(sample, folder)
    assert steps[-1] == (ROUNDS, ROUNDS)

    true_labels = dict(read_items(sample, tmp_path / "images"))
    campaign = Campaign.open(path)
    try:
        status = campaign.status()
        assert status.labelled == HOLDOUT + BATCH * ROUNDS
        assert status.version == ROUNDS
        assert status.accuracy is not None
        assert status.accuracy.total == HOLDOUT
        assert status.accuracy.share > 0.7, "the model has learned"
        assert min(status.by_class.values()) > 0, "every class has been seen"

        # Both wrong labels are among the first that Review shows.
        suspects = campaign.review.suspects(20)
        slips = [suspect for suspect in suspects if true_labels[suspect.content] != suspect.label]
        assert len(slips) == 2

        answered = campaign.ask(BATCH)
        assert len(answered) == BATCH, "there is more to label"
    finally:
        campaign.database.close()


def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="Cannot create the folder"):
        make_sample(SAMPLES[0], tmp_path / "none" / "try")
