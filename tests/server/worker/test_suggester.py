"""The thread that asks a language model survives errors, and says what keeps it from asking."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from teeter.campaigns.records import ItemKind
from teeter.campaigns.suggestions.language_model import LanguageModel, StopReason
from teeter.server.worker import suggester as suggester_module
from teeter.server.worker.suggester import Suggester

MODEL = LanguageModel("http://127.0.0.1:1/v1", "tiny", input_price=1, output_price=1, budget=5)


def start_suggester(monkeypatch: pytest.MonkeyPatch, results: list[Any]) -> Suggester:
    """Return a suggester whose runs have had these results, one after the other."""
    is_over = threading.Event()

    def run(*_: object, **__: object) -> Any:
        if not results:
            is_over.set()
            return make_result(StopReason.DONE)
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(suggester_module, "ask_language_model", run)
    monkeypatch.setattr(suggester_module, "_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(suggester_module, "_POLL_SECONDS", 0.0)
    settings = SimpleNamespace(kind=ItemKind.TEXT)
    campaign: Any = SimpleNamespace(settings=settings, location="texts")

    suggester = Suggester(MODEL, lambda: [campaign])
    suggester.start()
    assert is_over.wait(300)
    return suggester


def make_result(reason: StopReason, paid: int = 0) -> SimpleNamespace:
    return SimpleNamespace(source="tiny", stop_reason=reason, paid=paid)


def test_an_unexpected_error_is_logged_and_does_not_end_the_thread(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    suggester = start_suggester(monkeypatch, [ZeroDivisionError("boom")])
    suggester.close()
    assert "boom" in caplog.text
    assert "ZeroDivisionError: see the server log" in caplog.text


def test_the_page_goes_on_to_say_that_the_budget_is_used_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used_up = [make_result(StopReason.BUDGET), make_result(StopReason.DONE)]
    suggester = start_suggester(monkeypatch, list(used_up))
    suggester.close()
    assert suggester.problem("texts") == "The budget of 5 for tiny is used up."

    # After a restart with a larger budget, or when a cheaper text fits.
    suggester = start_suggester(monkeypatch, [*used_up, make_result(StopReason.DONE, paid=1)])
    suggester.close()
    assert suggester.problem("texts") is None
