"""Locations of campaigns: files and URLs, with the name of a campaign after ``#``."""

from __future__ import annotations

from pathlib import Path

import pytest

from teeter.campaigns.store.database import is_url, split_location


@pytest.mark.parametrize(
    ("location", "place", "name"),
    [
        ("reviews.teeter", "reviews.teeter", None),
        ("reviews.teeter#first", "reviews.teeter", "first"),
        ("reviews.teeter#", "reviews.teeter", None),
        ("postgresql://ann:secret@host/reviews", "postgresql://ann:secret@host/reviews", None),
        ("postgresql://host/reviews#first", "postgresql://host/reviews", "first"),
    ],
)
def test_the_name_follows_the_last_hash(location: str, place: str, name: str | None) -> None:
    assert split_location(location) == (place, name)


def test_a_file_with_a_hash_in_its_name_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a#b.teeter"
    assert split_location(str(path)) == (str(tmp_path / "a"), "b.teeter")

    path.touch()

    assert split_location(str(path)) == (str(path), None)
    assert split_location(path) == (path, None)


def test_a_path_is_never_a_url() -> None:
    assert is_url("sqlite:///c.teeter")
    assert not is_url("c.teeter")
    assert not is_url(Path("a://b"))
