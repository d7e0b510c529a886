"""The configuration is complete when made."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from teeter.server.access import SecurityConfig, is_loopback


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("evil", False)],
)
def test_loopback_addresses_are_recognised(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_it_cannot_be_changed_later() -> None:
    with pytest.raises(FrozenInstanceError):
        SecurityConfig(b"secret").cookie_name = "other"  # type: ignore[misc]


def test_it_does_not_show_its_secret() -> None:
    assert "secret" not in repr(SecurityConfig(b"hidden"))
    assert "hidden" not in repr(SecurityConfig(b"hidden"))
