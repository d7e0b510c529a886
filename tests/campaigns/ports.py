"""Ports for servers that a test stops and starts again."""

from __future__ import annotations

import socket
import sys
import weakref

__all__ = ["ReservedPort"]


class ReservedPort:
    """A loopback port, chosen by the operating system, that stays ours until it is released.

    A port that is only probed can be taken by another program before our server listens on it, or
    while our server is down: even the client's end of a connection may get it. So the port stays
    bound, until ``release`` is called or the object is no longer used. Linux lets a server listen
    on a port that is bound but not listened on, if both set ``SO_REUSEADDR``; other systems do not,
    and there the port is only probed.
    """

    def __init__(self) -> None:
        reservation = socket.socket()
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reservation.bind(("127.0.0.1", 0))
        self.number = int(reservation.getsockname()[1])

        # Closes the socket without the warning that Python gives for one that was forgotten.
        self.release = weakref.finalize(self, reservation.close)
        if sys.platform != "linux":
            self.release()
