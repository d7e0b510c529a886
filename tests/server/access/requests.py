"""What attackers send."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.types import ASGIApp

TOKEN = "correct-horse-battery-staple"


async def send_slowly(
    app: ASGIApp, path: str, headers: dict[str, str]
) -> tuple[int, dict[bytes, bytes]]:
    """Post a body that never ends, a byte now and then; return the status and headers."""
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0.05)
        return {"type": "http.request", "body": b"\n", "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "root_path": "",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    await asyncio.wait_for(app(scope, receive, send), 120)
    return sent[0]["status"], dict(sent[0]["headers"])
