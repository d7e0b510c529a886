"""Ports for servers that a test stops and starts again."""

from __future__ import annotations

import socket
import sys

__all__ = ["ReservedPort"]


class ReservedPort:
    """A loopback port that the operating system gives to nobody else while a test runs.

    A port that is only probed can be taken by another program before our server listens on it, or while our server
    is down: even the client's end of a connection may get it. So the port stays bound. Linux lets a server listen on
    a port that is bound and not listened on, if both set ``SO_REUSEADDR``; other systems do not, and there the port
    is only probed.
    """

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.number = int(self._socket.getsockname()[1])
        if sys.platform != "linux":
            self._socket.close()

    def release(self) -> None:
        """Let others have the port."""
        self._socket.close()
