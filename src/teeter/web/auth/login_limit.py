"""How many wrong tokens one client may try."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field

from teeter.web.client_network import client_network

__all__ = ["FailedLoginLimit"]

_MAX_CLIENTS = 10_000
"""Clients that are remembered. Older ones are forgotten, so that memory stays bounded."""


@dataclass
class FailedLoginLimit:
    """Count wrong tokens per client.

    Stops guessing tokens. Only failures count, so a right token always works, even from an address
    that an attacker shares.
    """

    attempts: int = 10
    """Failures allowed within ``seconds``."""
    seconds: float = 60.0
    _failures: dict[str, deque[float]] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def record_failure(self, address: str) -> bool:
        """Count a failure, and return whether the client had too many before."""
        client = client_network(address)
        now = time.monotonic()

        with self._lock:
            times = self._failures.setdefault(client, deque())
            while times and times[0] < now - self.seconds:
                times.popleft()

            if len(times) >= self.attempts:
                return True

            times.append(now)
            self._forget_oldest()
            return False

    def _forget_oldest(self) -> None:
        while len(self._failures) > _MAX_CLIENTS:
            del self._failures[next(iter(self._failures))]
