"""The forwarded address is believed only from the named proxy."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from teeter.server.access.middlewares import ForwardedHeadersMiddleware, peer_address


@pytest.mark.parametrize(
    ("proxy", "client", "scheme"),
    [
        (None, "127.0.0.1", "http"),
        ("127.0.0.1", "192.0.2.3", "https"),
        ("127.0.0.0/8", "192.0.2.3", "https"),
        ("192.0.2.9", "127.0.0.1", "http"),
    ],
)
def test_a_forwarded_address_is_believed_only_from_the_proxy(
    proxy: str | None, client: str, scheme: str
) -> None:
    seen: list[tuple[str, str, str]] = []

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        seen.append((scope["client"][0], scope["scheme"], peer_address(scope)))

    headers = [(b"x-forwarded-for", b"192.0.2.3"), (b"x-forwarded-proto", b"https")]
    scope = {"type": "http", "scheme": "http", "client": ("127.0.0.1", 1), "headers": headers}
    middleware = ForwardedHeadersMiddleware(app, proxy)
    asyncio.run(middleware(scope, None, None))  # type: ignore[arg-type]
    assert seen == [(client, scheme, "127.0.0.1")]
