"""What other models say of the items: ``campaign.suggestions``."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from teeter.campaigns.learning.encoding import ProgressReport
from teeter.campaigns.records import PredictionImport, ShownSuggestion, SourceReport
from teeter.campaigns.store import Part, Reading, cached_by
from teeter.campaigns.suggestions.language_model import (
    LanguageModel,
    SuggestionRun,
    ask_language_model,
)
from teeter.campaigns.suggestions.sources import (
    measure_sources,
    parse_predictions,
    read_predictions,
    require_no_judge,
    store_predictions,
    visible_suggestions,
)
from teeter.errors import InputError

_MEASURE_SECONDS = 10.0
"""How long a measured accuracy of a source is used. Measuring reads all answers."""


class Suggestions(Part):
    """Predictions of other models and language models. They never become labels."""

    def add(
        self,
        predictions: str | Path | Iterable[Mapping[str, Any]],
        source: str,
        *,
        who: str = "me",
    ) -> PredictionImport:
        """Add the predictions of another model as suggestions. They never become labels.

        Annotators see them on picked items. Their accuracy is measured on control items, where
        annotators do not see them. Models learn from them as long as they help.

        Args:
            predictions: a file (.csv, .jsonl or .parquet), or rows with ``id``, ``label`` and
                optionally ``probability``, or with ``id`` and ``probabilities`` by class.
            source: what they are called. Earlier predictions of that name are replaced.
            who: who adds them, for the history.

        Raises:
            InputError: they cannot be read, or none is about an item and class of the campaign.
        """
        self._require_one_label()
        with self._campaign.reading() as view:
            classes = view.classes.names()
        detail = {}
        if isinstance(predictions, str | Path):
            rows = read_predictions(Path(predictions), classes)
            detail["file"] = Path(predictions).name
        else:
            rows = parse_predictions(predictions, classes)

        return store_predictions(self._campaign, rows, source, who=who, detail=detail)

    def ask(
        self,
        model: LanguageModel,
        *,
        limit: int | None = None,
        again: bool = False,
        who: str = "me",
        progress: ProgressReport | None = None,
    ) -> SuggestionRun:
        """Ask a language model for suggestions. The texts of the items are sent to its server.

        Every reply is on disk before the next request is sent in its place, so an interrupted call
        is resumed by the next one, and no text is paid for twice. The key of the server comes from
        the environment variable ``TEETER_SUGGEST_KEY``.

        Args:
            model: the language model and its budget.
            limit: how many items to ask about at most.
            again: ask about items with a suggestion too, if the prompt has changed since.
            who: who asks, for the history.
            progress: called with the number of items done and the number of all items.

        Raises:
            InputError: the items are no texts.
            ServerError: the server refuses the requests, or cannot be reached.
        """
        self._require_one_label()
        return ask_language_model(
            self._campaign,
            model,
            who=who,
            limit=limit,
            again=again,
            progress=progress,
        )

    def _require_one_label(self) -> None:
        if self._campaign.settings.several:
            raise InputError(
                "Suggestions are for items that have one label: items of this campaign may have "
                "several."
            )

    def sources(self) -> list[SourceReport]:
        """Return the sources of suggestions, and how often annotators agree with each."""
        with self._campaign.reading() as view:
            return measure_sources(view, self._campaign.review.snapshot(view))

    def recent_sources(self) -> list[SourceReport]:
        """Return the sources with an accuracy that is a few seconds old at most, for pages."""
        with self._campaign.reading() as view:
            return self._measure(view)

    def visible(self, view: Reading, row_ids: Sequence[int]) -> dict[str, ShownSuggestion]:
        """Return by item id the suggestion to show with each picked item.

        Items that are to be answered blind are left out. The caller leaves out control, holdout and
        shared items, too.
        """
        reports = self._measure(view)
        accuracies = {report.name: report.accuracy for report in reports}
        return {
            item: ShownSuggestion(
                source=suggestion.source,
                label=suggestion.label,
                probability=suggestion.probability,
                accuracy=accuracies[suggestion.source],
            )
            for item, suggestion in visible_suggestions(view, reports, row_ids).items()
        }

    def _version(self, view: Reading) -> tuple[int, tuple[object, ...]]:
        """Return a value that changes with the sources, and every few seconds with the answers."""
        seconds = int(time.monotonic() / _MEASURE_SECONDS)
        return seconds, view.suggestions.revision()

    @cached_by(_version)
    def _measure(self, view: Reading) -> list[SourceReport]:
        return measure_sources(view, self._campaign.review.snapshot(view))

    def remove(self, name: str, *, who: str = "me") -> None:
        """Remove a source and all its suggestions. What a language model has cost stays recorded.

        Raises:
            UnknownNameError: there never was such a source.
        """
        with self._campaign.writing() as change:
            if change.suggestions.was_removed(name):
                return
            source = change.suggestions.source(name)
            require_no_judge(change, name)
            change.suggestions.remove_source(source, who)
