"""The history of a campaign: a line for every change, never changed and never deleted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Row, func

from teeter.campaigns.items.item import require_valid_unicode
from teeter.campaigns.store import schema
from teeter.campaigns.store.queries import Queries
from teeter.campaigns.store.schema import HISTORY


class HistoryQueries(Queries):
    """The lines of a campaign's history."""

    def append(self, who: str, what: str, item_id: str | None, *details: Mapping[str, Any]) -> None:
        """Append a line for each detail, in one statement.

        Args:
            who: the person or program that made the change.
            what: the change in one or two words: "answer", "trained", "person added".
            item_id: the item that it is about, if it is about one.
            details: everything else, as JSON can hold it.

        Raises:
            InputError: the name has a character that cannot be stored.
        """
        require_valid_unicode(who, "name")
        line = {
            "at": self._transaction.now(),
            "who": who,
            "what": what,
            "item": item_id,
        }
        rows = []
        for detail in details:
            text = json.dumps(dict(detail))
            rows.append({**line, "detail": text})
        self._insert_all(schema.history, rows)

    def lines(self, *changes: str, since: str | None = None) -> list[dict[str, Any]]:
        """Return all lines, or those of some kinds of change or after a time, oldest first.

        Each line has ``at``, ``who``, ``what`` and ``item``, and the entries of its detail.
        """
        query = self._own(schema.history)
        if changes:
            query = query.where(HISTORY.what.in_(changes))
        if since is not None:
            query = query.where(HISTORY.at >= since)

        # By id: times would be out of order after a clock was set back.
        rows = self._execute(query.order_by(HISTORY.id))
        return [_as_line(row) for row in rows]

    def last_time(self, *changes: str) -> str | None:
        """Return when one of some kinds of change was last made, or None if none ever was."""
        # The latest time, not that of the last line: the clock may have been set back.
        times = [str(line["at"]) for line in self.lines(*changes)]
        return max(times, default=None)

    def page(self, after: int, count: int) -> tuple[list[dict[str, Any]], int | None]:
        """Return lines in their order, beginning after a row id, and the last row id.

        Returns:
            The lines as ``lines`` has them, and None as the row id if no line follows.
        """
        later = self._own(schema.history).where(HISTORY.id > after)
        in_order = later.order_by(HISTORY.id)
        # One more than a page has shows whether another page follows.
        rows = self._execute(in_order.limit(count + 1)).all()
        lines = [_as_line(row) for row in rows[:count]]
        if len(rows) <= count:
            return lines, None
        return lines, rows[count - 1].id

    def newest_row_id(self, changes: Sequence[str] = ()) -> int:
        """Return the row id of the last line, or of the last one about some kinds of change, or 0.

        Every change of the campaign changes it.
        """
        query = self._own(schema.history).with_only_columns(func.max(HISTORY.id))
        if changes:
            query = query.where(HISTORY.what.in_(changes))
        return int(self._scalar(query) or 0)


def _as_line(row: Row[Any]) -> dict[str, Any]:
    line = {
        "at": row.at,
        "who": row.who,
        "what": row.what,
        "item": row.item,
    }
    return {**line, **json.loads(row.detail)}
