"""A thread that asks a language model for suggestions while people label.

It asks first about items that annotators get next and about labelled control items, which measure
the model. Other items are asked about only when an owner wants it. Texts are sent only to the
server that was named when this one was started: no request can change that.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from teeter.campaigns.campaign import Campaign
from teeter.campaigns.records import ItemKind
from teeter.campaigns.suggestions.language_model import (
    LanguageModel,
    StopReason,
    ask_language_model,
)
from teeter.errors import InputError, ServerError, ServerUnavailableError, StoreError

logger = logging.getLogger(__name__)

_POLL_SECONDS = 2.0
"""Seconds between two looks for items to ask about."""

_PAUSE_SECONDS = 30.0
"""Seconds to wait after an error."""

_PART = 64
"""Items that are asked about before the next campaign has its turn."""


class Suggester:
    """Asks a language model about the items of a server's text campaigns.

    Args:
        model: the language model and its budget, for each campaign.
        list_campaigns: returns the open campaigns.
    """

    def __init__(
        self, model: LanguageModel, list_campaigns: Callable[[], Iterable[Campaign]]
    ) -> None:
        self.model = model
        self._list_campaigns = list_campaigns
        self._wanted: dict[str, int | None] = {}
        """By location, how many more items an owner asked for; None for all."""
        self._problems: dict[str, str] = {}
        self._used_up: dict[str, str] = {}
        """By location, that the budget is used up. It stays so until a reply is paid for again."""
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="teeter-suggester", daemon=True)

    @property
    def host(self) -> str:
        """The host that texts are sent to."""
        return urlsplit(self.model.url).netloc

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def close(self) -> None:
        """Stop. Requests that are on their way are waited for, since they are paid for."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)

    def ask_about_all(self, campaign: Campaign, limit: int | None) -> None:
        """Ask about all items of a campaign, or about so many of them.

        Raises:
            InputError: the items are no texts.
        """
        if campaign.settings.kind != ItemKind.TEXT:
            raise InputError("Only texts can be sent to a language model.")
        with self._lock:
            self._wanted[campaign.location] = limit
        self._wake.set()

    def problem(self, location: str) -> str | None:
        """Return why a campaign gets no suggestions; None if all is well."""
        with self._lock:
            return self._problems.get(location)

    def is_busy(self, location: str) -> bool:
        """Return whether an owner's request is still being worked on."""
        with self._lock:
            return location in self._wanted

    def _run(self) -> None:
        while not self._stop.is_set():
            has_problem = False
            has_more = False
            for campaign in list(self._list_campaigns()):
                if self._stop.is_set():
                    return
                try:
                    has_more |= self._ask(campaign)
                    self._note_problem(campaign.location, self._used_up.get(campaign.location))
                except (ServerError, StoreError, InputError) as error:
                    has_problem = True
                    self._note_problem(campaign.location, str(error))
                except Exception as error:
                    # Whatever it is, the thread must go on, and people must see it.
                    has_problem = True
                    logger.exception("Asking about %s failed", campaign.location)
                    self._note_problem(
                        campaign.location,
                        f"Asking the language model failed with {type(error).__name__}: see the "
                        f"server log.",
                    )

            pause = _PAUSE_SECONDS if has_problem else _POLL_SECONDS
            if not has_more:
                self._wake.wait(pause)
                self._wake.clear()

    def _ask(self, campaign: Campaign) -> bool:
        """Ask about a part of a campaign's items, and return whether more are waiting."""
        if campaign.settings.kind != ItemKind.TEXT:
            return False

        with self._lock:
            is_wanted = campaign.location in self._wanted
            wanted = self._wanted.get(campaign.location)
        # In parts, so that one campaign with many items does not keep the others waiting.
        part = _PART
        if wanted is not None:
            part = min(_PART, wanted)

        run = ask_language_model(
            campaign,
            self.model,
            who="server",
            limit=part,
            only_urgent=not is_wanted,
            stop=self._stop,
        )
        if run.stop_reason is StopReason.BUDGET:
            self._finish(campaign.location)
            sentence = f"The budget of {self.model.budget:g} for {run.source} is used up."
            self._used_up[campaign.location] = sentence
            raise ServerUnavailableError(sentence)
        if run.paid:
            self._used_up.pop(campaign.location, None)
        if not is_wanted:
            return run.stop_reason is StopReason.LIMIT

        remaining = None
        if wanted is not None:
            remaining = wanted - run.paid
        is_done = run.stop_reason is not StopReason.LIMIT or remaining == 0
        with self._lock:
            self._wanted[campaign.location] = remaining
        if is_done:
            self._finish(campaign.location)
        return not is_done

    def _finish(self, location: str) -> None:
        with self._lock:
            self._wanted.pop(location, None)

    def _note_problem(self, location: str, sentence: str | None) -> None:
        with self._lock:
            is_new = sentence is not None and self._problems.get(location) != sentence
            if sentence is None:
                self._problems.pop(location, None)
            else:
                self._problems[location] = sentence
        # An outage is reported once, not at every attempt.
        if is_new:
            logger.warning("%s", sentence)
