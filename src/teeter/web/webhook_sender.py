"""The thread of a server that delivers the webhooks of its campaigns."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from teeter.campaigns.integrations.webhooks import deliver_due
from teeter.errors import TeeterError
from teeter.web.service import CampaignService

__all__ = ["WebhookSender"]

logger = logging.getLogger(__name__)

_PAUSE_SECONDS = 1.0
"""Seconds between two looks at the campaigns."""


class WebhookSender:
    """Delivers what is due, campaign by campaign, while the server runs.

    Args:
        list_services: Returns the campaigns that are open now.
    """

    def __init__(self, list_services: Callable[[], Iterable[CampaignService]]) -> None:
        self._list_services = list_services
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to deliver."""
        self._thread = threading.Thread(target=self._run, name="webhooks", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop after the delivery that is being made. What is left is delivered next time."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(_PAUSE_SECONDS):
            for service in self._list_services():
                if self._stopping.is_set():
                    return
                try:
                    deliver_due(service.campaign)
                except TeeterError as error:
                    # A database that is away comes back, and its deliveries with it.
                    logger.warning("Webhooks of %s: %s", service.name, error)
                except Exception:
                    # The thread serves all campaigns: one that fails must not end it.
                    logger.exception("Webhooks of %s failed.", service.name)
