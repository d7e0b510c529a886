"""Get suggestions from a language model, within a budget, and never twice for the same text.

Every reply is stored together with its suggestion before the next request is sent in its place. If
the process is killed, only requests that were on their way are sent again, with the same
idempotency key.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from teeter.campaigns.records import ItemKind, ModelReply, ModelUsage, SourceKind
from teeter.campaigns.settings import Settings
from teeter.campaigns.store import (
    CampaignStore,
    Reading,
    Source,
    StoredItem,
    Suggestion,
)
from teeter.campaigns.suggestions.chat_client import (
    MAX_REPLY_TOKENS,
    ChatClient,
    Prompt,
    TextRefusedError,
    build_prompt,
    estimate_input_tokens,
    normalize_endpoint,
)
from teeter.campaigns.suggestions.sources import validate_source_name
from teeter.errors import InputError, ServerUnavailableError

MAX_PARALLEL = 32
"""Requests that may be on their way at once."""

MAX_REFUSALS = 5
"""Texts in a row that a server may refuse before the run ends."""

_PRICED_TOKENS = 1_000_000
"""Prices are given for so many tokens."""


@dataclass(frozen=True)
class LanguageModel:
    """A language model, and what it may cost."""

    url: str
    """The address of an OpenAI-compatible interface, such as ``http://127.0.0.1:8080/v1``."""
    model: str
    source: str | None = None
    """What its suggestions are called. Default: the name of the model."""
    input_price: float = 0.0
    """The price of a million tokens of input."""
    output_price: float = 0.0
    """The price of a million tokens of output."""
    budget: float | None = None
    """What all replies together may cost; None for no limit."""
    parallel: int = 4
    """Requests that are on their way at once."""

    def __post_init__(self) -> None:
        """Raise InputError if a value is invalid."""
        normalize_endpoint(self.url)
        validate_source_name(self.source_name)

        if not 1 <= self.parallel <= MAX_PARALLEL:
            raise InputError(
                f"Cannot send {self.parallel} requests at once: choose 1 to {MAX_PARALLEL}."
            )

        for name in ("input_price", "output_price", "budget"):
            value = getattr(self, name)
            # Written so that NaN is refused, too.
            if value is not None and not value >= 0:
                raise InputError(f"{name} is {value}: it must be 0 or more.")

        if self.budget is not None and not (self.input_price or self.output_price):
            raise InputError(
                "A budget needs the input and output prices of the language model, per million "
                "tokens."
            )

    @property
    def source_name(self) -> str:
        """What its suggestions are called."""
        return self.source or self.model

    def cost(self, input_tokens: int, output_tokens: int) -> float:
        """Return the price of so many tokens."""
        input_cost = self.input_price * input_tokens
        output_cost = self.output_price * output_tokens
        return (input_cost + output_cost) / _PRICED_TOKENS


class StopReason(StrEnum):
    """Why a run ended."""

    DONE = "done"
    """There is nothing left to ask about."""
    LIMIT = "limit"
    """The number of items was limited."""
    BUDGET = "budget"
    STOPPED = "stopped"
    """The caller stopped it, or the source was removed."""


@dataclass(frozen=True)
class SuggestionRun:
    """What a run did."""

    source: str
    suggested: int
    """Items that got a suggestion."""
    paid: int
    """Items that the model was asked about."""
    cached: int
    """Items whose text had a stored reply."""
    invalid: int
    """Items about which the reply named no class."""
    refused: int
    """Items whose text the server refused. They are not sent again with the same prompt."""
    stop_reason: StopReason
    usage: ModelUsage
    """What the model has used in this campaign, with all earlier runs."""
    remaining_budget: float | None


def require_texts(settings: Settings) -> None:
    """Refuse campaigns whose items are no texts.

    Raises:
        InputError: a language model cannot read the items.
    """
    if settings.kind != ItemKind.TEXT:
        raise InputError(
            f"The items of this campaign are of kind {settings.kind}: only texts can be sent to a "
            "language model."
        )


def ask_language_model(
    store: CampaignStore,
    model: LanguageModel,
    *,
    who: str,
    limit: int | None = None,
    only_urgent: bool = False,
    again: bool = False,
    progress: Callable[[int, int], None] | None = None,
    stop: threading.Event | None = None,
    client: ChatClient | None = None,
) -> SuggestionRun:
    """Ask a language model about the items that it has said nothing about.

    Args:
        model: the language model.
        who: the name for the history.
        limit: the number of items to ask about at most.
        only_urgent: ask only about items that measure the model or that annotators get next.
        again: ask about all items, after the descriptions or instructions have changed. Replies to
            the same prompt are still not paid for twice.
        progress: called with the number of items done and of all.
        stop: set to end the run early. Requests that are on their way are waited for, and none is
            sent again.
        client: sends the requests. Default: one for the address of the model.

    Raises:
        InputError: the items are no texts, or the name belongs to predictions of a file.
        ServerError: the server refuses requests. What was stored stays.
        ServerUnavailableError: the server cannot be reached.
    """
    require_texts(store.settings)
    if client is None:
        has_budget = model.budget is not None
        client = ChatClient(model.url, model.model, needs_limit=has_budget)

    with store.writing() as change:
        # Never the key, which is in the environment only.
        detail = {
            "url": client.url,
            "model": model.model,
            "input_price": model.input_price,
            "output_price": model.output_price,
            "budget": model.budget,
        }
        source = Source(model.source_name, SourceKind.LANGUAGE_MODEL, detail)
        source = change.suggestions.write_source(source, who)
    with store.reading() as view:
        prompt = build_prompt(
            view.classes.names(),
            view.descriptions.all(),
            view.settings.instructions,
        )
        items = view.suggestions.items_to_ask(source, only_urgent=only_urgent, again=again)

    run = _Run(store, model, source, prompt, client, again)
    return run.execute(items, limit, progress, stop or threading.Event())


_Pending: TypeAlias = dict[Future[ModelReply], tuple[list[StoredItem], float]]
"""The items that a request on its way is about, and what it may cost."""


@dataclass(eq=False)
class _Run:
    """One run over the items that a language model is to be asked about.

    Requests are sent by threads. Only the thread that executes the run uses the database.
    """

    store: CampaignStore
    model: LanguageModel
    source: Source
    prompt: Prompt
    client: ChatClient
    again: bool
    """Whether items with a suggestion are asked about, too."""
    counts: Counter[str] = field(default_factory=Counter)
    """What was done so far, by the field of ``SuggestionRun``."""
    has_replied: bool = False
    """Whether the server has ever replied. If not, it refuses the request, not the text."""
    refused: list[list[StoredItem]] = field(default_factory=list)
    """Texts in a row that the server refused."""

    def execute(
        self,
        items: Sequence[StoredItem],
        limit: int | None,
        progress: Callable[[int, int], None] | None,
        stop: threading.Event,
    ) -> SuggestionRun:
        """Use stored replies, then ask about the other items."""
        # Stored replies first: they cost nothing, and count against no limit.
        waiting = self._use_stored_replies(items)
        reason = StopReason.DONE
        if limit is not None and len(waiting) > limit:
            waiting = waiting[:limit]
            reason = StopReason.LIMIT

        total = self._done() + sum(len(same_text) for same_text in waiting)
        self.has_replied = self._usage().replies > 0
        pending: _Pending = {}
        queue = deque(waiting)

        # Threads only wait for the network, so they are cheap. Leaving the block waits for them.
        with ThreadPoolExecutor(self.model.parallel, thread_name_prefix="teeter-chat") as pool:
            try:
                while queue or pending:
                    stop_reason = self._send_requests(pool, queue, pending, stop)
                    if stop_reason is not None:
                        reason = stop_reason
                        queue.clear()

                    finished, _ = wait(pending, return_when=FIRST_COMPLETED)
                    for future in finished:
                        same_text, _ = pending[future]
                        # An error ends the run. The others are waited for below.
                        is_registered = self._take_reply(future, same_text)
                        del pending[future]
                        if not is_registered:
                            reason = StopReason.STOPPED
                            queue.clear()
                    if progress is not None:
                        progress(self._done(), total)
            except ServerUnavailableError:
                self._store_finished(pending)
                # No further attempt was made, so the server may well be available.
                if not stop.is_set():
                    raise
                reason = StopReason.STOPPED
            except BaseException as error:
                # Ctrl-C, while a server that hangs is asked again and again.
                if not isinstance(error, Exception):
                    stop.set()
                self._store_finished(pending)
                raise

        self._store_refusals()
        usage = self._usage()
        remaining = None
        if self.model.budget is not None:
            remaining = max(0.0, self.model.budget - usage.cost)
        return SuggestionRun(
            source=self.source.name,
            suggested=self.counts["suggested"],
            paid=self.counts["paid"],
            cached=self.counts["cached"],
            invalid=self.counts["invalid"],
            refused=self.counts["refused"],
            stop_reason=reason,
            usage=usage,
            remaining_budget=remaining,
        )

    def _done(self) -> int:
        return self.counts["paid"] + self.counts["cached"] + self.counts["refused"]

    def _send_requests(
        self,
        pool: ThreadPoolExecutor,
        queue: deque[list[StoredItem]],
        pending: _Pending,
        stop: threading.Event,
    ) -> StopReason | None:
        """Move texts from ``queue`` to ``pending``, as many as may be asked about at once.

        Returns:
            Why no more requests are to be sent, or None to continue.
        """
        while queue and len(pending) < self.model.parallel:
            if stop.is_set():
                return StopReason.STOPPED

            same_text = queue[0]
            text = same_text[0].content or ""
            # What the request may cost at most.
            input_tokens = estimate_input_tokens(self.prompt, text)
            expected = self.model.cost(input_tokens, MAX_REPLY_TOKENS)
            if not self._can_pay(expected, pending):
                # A cheaper reply than expected may leave room for the next request.
                return None if pending else StopReason.BUDGET

            queue.popleft()
            future = pool.submit(self.client.ask, self.prompt, text, stop)
            pending[future] = (same_text, expected)

        return None

    def _can_pay(self, expected: float, pending: _Pending) -> bool:
        """Return whether the budget has room for a request beside those on their way."""
        if self.model.budget is None:
            return True
        reserved = sum(cost for _, cost in pending.values())
        # Read each time: another process may pay from the same budget.
        return self._usage().cost + reserved + expected <= self.model.budget

    def _use_stored_replies(self, items: Sequence[StoredItem]) -> list[list[StoredItem]]:
        """Store suggestions whose replies are known; return the other items, grouped by text."""
        items_by_digest: dict[str, list[StoredItem]] = {}
        for item in items:
            digest = self._digest(item)
            items_by_digest.setdefault(digest, []).append(item)

        with self.store.reading() as view:
            replies = view.suggestions.find_replies(items_by_digest)

        label_by_item: dict[StoredItem, str] = {}
        without_class = []
        for digest, label in replies.items():
            for item in items_by_digest.pop(digest):
                self.counts["cached"] += 1
                if label is None:
                    without_class.append(item)
                else:
                    label_by_item[item] = label
        self.counts["invalid"] += len(without_class)
        # A server looks for items every few seconds, and must not lock the database each time.
        if label_by_item or (self.again and without_class):
            with self.store.writing() as change:
                suggestions = [
                    Suggestion(item.item_id, label_by_item[item])
                    for item in self._unchanged(change, list(label_by_item))
                ]
                change.suggestions.write(self.source, suggestions)
                # What it said in reply to an earlier prompt.
                unchanged = self._unchanged(change, without_class)
                change.suggestions.withdraw(self.source, unchanged)
            self.counts["suggested"] += len(suggestions)

        return list(items_by_digest.values())

    def _unchanged(self, view: Reading, items: Sequence[StoredItem]) -> list[StoredItem]:
        """Return the items that still have the text that a reply is about.

        Called in the transaction that stores the reply, so that no text can change in between.
        """
        stored = view.items.by_id([item.item_id for item in items])
        return [item for item in items if stored[item.item_id].digest == item.digest]

    def _take_reply(self, future: Future[ModelReply], same_text: list[StoredItem]) -> bool:
        """Store the reply about a text, or note that the server refuses the text.

        Returns:
            False if the source was removed.
        """
        try:
            reply = future.result()
        except TextRefusedError:
            self.refused.append(same_text)
            if not self.has_replied or len(self.refused) >= MAX_REFUSALS:
                raise
            return True

        self.has_replied = True
        is_registered = self._store(same_text, reply)
        # A server that replies to the next text has refused the others for what they say.
        self._store_refusals()
        return is_registered

    def _digest(self, item: StoredItem) -> str:
        """Return the hash of what the reply about an item depends on."""
        return self.prompt.digest(self.model.model, item.content or "")

    def _store_refusals(self) -> None:
        """Store that texts were refused, so that they are not sent at every run."""
        for same_text in self.refused:
            digest = self._digest(same_text[0])
            no_reply = ModelReply(None, 0, 0)
            with self.store.writing() as change:
                change.suggestions.add_reply(self.source, digest, no_reply, 0.0)
                unchanged = self._unchanged(change, same_text)
                change.suggestions.withdraw(self.source, unchanged)
            self.counts["refused"] += len(same_text)
        self.refused.clear()

    def _store(self, same_text: Sequence[StoredItem], reply: ModelReply) -> bool:
        """Store a reply with its suggestions, in one transaction.

        Returns:
            False if only the reply was stored, because the source was removed.
        """
        cost = self.model.cost(reply.input_tokens, reply.output_tokens)
        suggestions: list[Suggestion] = []

        # Together, so that a reply that was paid for never lacks its suggestion.
        with self.store.writing() as change:
            digest = self._digest(same_text[0])
            change.suggestions.add_reply(self.source, digest, reply, cost)
            is_registered = change.suggestions.is_registered(self.source)
            # A reply says nothing about a text that was changed meanwhile.
            unchanged = self._unchanged(change, same_text)
            if reply.label is not None:
                suggestions = [Suggestion(item.item_id, reply.label) for item in unchanged]
            if is_registered:
                change.suggestions.write(self.source, suggestions)
            if is_registered and reply.label is None:
                change.suggestions.withdraw(self.source, unchanged)

        self.counts["paid"] += 1
        if is_registered:
            self.counts["suggested"] += len(suggestions)
        if reply.label is None:
            self.counts["invalid"] += 1
        return is_registered

    def _store_finished(self, pending: _Pending) -> None:
        """Wait for requests on their way, and store the replies that come: they are paid for."""
        wait(pending)
        for future, (same_text, _) in pending.items():
            if future.exception() is None:
                self._store(same_text, future.result())

    def _usage(self) -> ModelUsage:
        with self.store.reading() as view:
            return view.suggestions.usage(self.source)
