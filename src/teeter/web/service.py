"""A campaign as the page sees it: what to ask next, what was answered, how it stands. Never waits for a model."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from unicodedata import combining, normalize

import numpy as np
from safetensors.numpy import load

from teeter.campaigns.campaign import Campaign
from teeter.campaigns.consensus import ConsensusLabel
from teeter.campaigns.db import Answer, Connection, ItemQuery, Pick, StoredItem
from teeter.campaigns.enums import AnswerKind, ItemKind, PickArm
from teeter.campaigns.people import require_name
from teeter.campaigns.settings import IMPORTED
from teeter.campaigns.shortcuts import shortcuts_by_class
from teeter.campaigns.snapshot import (
    Agreement,
    CampaignSnapshot,
    estimate_model_accuracy,
    read_snapshot,
)
from teeter.errors import FileError, StoreError
from teeter.paths import resolve_inside

__all__ = ["AnswerIn", "CampaignService", "is_blind", "slug_of"]

_LONGEST_TEXT = 20_000
"""Characters of a text that are sent to the page."""

_NUMBERS = 256
"""Features that are sent to the page."""

_WAIT = 10
"""Seconds that an answer waits for another process that is writing; the page waits 20 for the server."""


_LOOKED = 5.0
"""Seconds before it is looked again whether several people have answered by now."""


@dataclass(frozen=True)
class AnswerIn:
    """An answer as it comes from the page."""

    item: str
    kind: AnswerKind
    label: str | None = None
    comment: str | None = None


def slug_of(name: str, taken: Iterable[str]) -> str:
    """Return a name for addresses: small letters, digits and hyphens, and none that is taken."""
    letters = "".join(one for one in normalize("NFKD", name.casefold()) if not combining(one))
    plain = re.sub(r"[^a-z0-9]+", "-", letters).strip("-") or "campaign"
    slug, number = plain, 2
    while slug in set(taken):
        slug, number = f"{plain}-{number}", number + 1
    return slug


def is_blind(question: Mapping[str, Any]) -> bool:
    """Return whether a question must not show what the model predicts."""
    return PickArm(question["arm"]).is_random or bool(question.get("shared"))


class CampaignService:
    """One campaign, open to be labelled."""

    def __init__(self, where: str | Path, slug: str) -> None:
        self.where, self.slug = str(where), slug
        """Where it was opened: a file, or the address of a database."""
        self._campaign = Campaign.open(where)
        self._campaign.database.write_timeout = _WAIT
        self.path = self._campaign.database.path
        """Its file; None for a database on a server."""
        self._numbers: tuple[int, list[int]] | None = None
        self._size: tuple[int, int] | None = None
        self._stood: tuple[int, CampaignSnapshot] | None = None
        self._agreed: tuple[int, Agreement] | None = None
        self._team: tuple[float, bool] | None = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """What people call it."""
        return self._campaign.name

    def identity(self) -> str:
        """Return what tells this campaign from every other, also from a later one of the same name."""
        with self.campaign.database.reading() as connection:
            row = self.campaign.repository.campaign(connection)
        return hashlib.blake2b(repr((row.name, row.created)).encode(), digest_size=8).hexdigest()

    @property
    def campaign(self) -> Campaign:
        """The campaign, if its file is still where it was opened: nothing is read from or written to a lost one."""
        self._require_file()
        return self._campaign

    @property
    def said(self) -> str:
        """Where it is, as people may read it."""
        return self._campaign.database.display_url

    @property
    def images(self) -> Path | None:
        """The folder its images are in."""
        folder = self._campaign.settings.folder
        return None if folder is None else Path(folder)

    def is_team(self) -> bool:
        """Tell whether several people work on it: by its overlap, because it names them, or because they answered."""
        if self._team is None or (not self._team[1] and time.monotonic() - self._team[0] > _LOOKED):
            several = self.campaign.settings.overlap > 0 or len(self.campaign.people.list()) > 1
            if not several:
                with self.campaign.database.reading() as connection:
                    several = self.campaign.repository.answers.has_several_annotators(
                        connection, except_for=IMPORTED
                    )
            self._team = time.monotonic(), several
        return self._team[1]

    def is_there(self) -> bool:
        """Return whether its file is still where it was opened."""
        return self._campaign.database.is_in_place()

    def _require_file(self) -> None:
        if not self.is_there():
            name = self.name if self.path is None else self.path.name
            raise StoreError(
                f"{name} was moved or removed while it is served: put it back and start again."
            )

    def classes(self) -> list[dict[str, Any]]:
        """Return the classes with their keys."""
        return [{"name": name, "key": key} for name, key in self._keys().items()]

    def _keys(self) -> dict[str, str | None]:
        return shortcuts_by_class(self.campaign.classes, self.campaign.settings.keys)

    def questions(
        self, annotator: str, n: int, why: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """Return what is waiting for an annotator, up to n, oldest first."""
        repository = self.campaign.repository
        with self.campaign.database.reading() as connection:
            picks = repository.picks.open_picks(connection, annotator, n)
            rows = repository.items.by_id(connection, [pick.item for pick in picks])
            told = [
                self.shown(rows[pick.item], connection) | self._why_picked(pick) for pick in picks
            ]
        for one in told:
            if not is_blind(one):
                one |= (why or {}).get(one["item"], {})
        return told

    def _why_picked(self, pick: Pick | None) -> dict[str, Any]:
        """Return how an item came to be picked; nothing if it was not.

        What the model predicts is left out for items drawn at random, and for items that several
        annotators answer: it would lead them to agree.
        """
        if pick is None:
            return {}
        why = {"arm": pick.arm, "rank": pick.rank}
        if self.campaign.is_shared(pick.item):
            return {**why, "shared": True}
        return why if pick.arm.is_random else {**why, **pick.reason}

    def give(self, annotator: str, n: int) -> bool:
        """Ask an annotator about items that need no picking, up to n with those that wait; tell whether there were any.

        What waits is counted again inside: the trainer may have asked them meanwhile.
        """
        require_name(annotator)
        with self.campaign.database.reading() as connection:
            if not self.campaign.repository.picks.has_assignable(connection):
                return False
        picks = self.campaign.repository.picks
        with self.campaign.database.writing() as connection:
            missing = n - len(picks.open_picks(connection, annotator, n))
            return missing <= 0 or picks.assign(connection, annotator, missing) > 0

    def shown(self, row: StoredItem, connection: Connection) -> dict[str, Any]:
        """Return an item as the page shows it."""
        content = row.content if row.kind is ItemKind.TEXT else None
        long = content is not None and len(content) > _LONGEST_TEXT
        told: dict[str, Any] = {
            "item": row.item_id,
            "kind": row.kind,
            "text": content[:_LONGEST_TEXT] if content else None,
        }
        if long:
            told["characters"] = len(content or "")
        if row.kind is ItemKind.FEATURES:
            vector = self.campaign.repository.items.features_of(connection, row.row_id)
            values = [] if vector is None else vector[:_NUMBERS].tolist()
            told["features"] = [round(value, 5) for value in values]
        return told

    def answer(self, annotator: str, said: AnswerIn) -> bool:
        """Write an answer; it is on disk when this returns. False if the same was said already, as when sent twice."""
        answer = Answer(said.item, annotator, said.kind, said.label, said.comment)
        receipt = self.campaign.answer(answer)
        self._require_file()
        return receipt.recorded

    def keep(self, annotator: str, item: str, comment: str | None = None) -> None:
        """Say after a second look that a label is right."""
        self.campaign.confirm_label(item, annotator, comment=comment)
        self._require_file()

    def undo(self, annotator: str, item: str | None = None) -> dict[str, Any] | None:
        """Take back an annotator's last answer, if it is of ``item``; None if there is none, or it is of another."""
        repository = self.campaign.repository
        undone = self.campaign.undo(annotator, item=item)
        if undone is None:
            return None
        with self.campaign.database.reading() as connection:
            row = repository.items.get(connection, undone.answer.item)
            picks = repository.picks.last_picks(connection, annotator, [row.row_id])
            shown = self.shown(row, connection) | self._why_picked(picks.get(row.row_id))
        self._require_file()
        before = None if undone.before is None else undone.before.label or undone.before.kind
        return {**shown, "said": undone.answer.label or undone.answer.kind, "before": before}

    def last(self, annotator: str, count: int = 10) -> list[dict[str, Any]]:
        """Return an annotator's last answers, the newest first."""
        repository = self.campaign.repository
        with self.campaign.database.reading() as connection:
            answers = repository.answers.recent(connection, annotator, count)
            rows = repository.items.by_id(connection, [one.item for one in answers])
            row_ids = [row.row_id for row in rows.values()]
            picks = repository.picks.last_picks(connection, annotator, row_ids)
            return [
                {
                    **self.shown(rows[one.item], connection),
                    **self._why_picked(picks.get(rows[one.item].row_id)),
                    "said": one.label or one.kind,
                    "comment": one.comment,
                }
                for one in answers
            ]

    def counts(self) -> dict[str, int]:
        """Return how many items there are, and what was said of them."""
        with self.campaign.database.reading() as connection:
            by_kind = self.campaign.repository.answers.count_items_by_kind(connection)
            return {
                "items": self._count(connection),
                "labelled": by_kind[AnswerKind.LABEL],
                "skipped": by_kind[AnswerKind.SKIP],
                "unsure": by_kind[AnswerKind.UNSURE],
                "flagged": by_kind[AnswerKind.FLAG],
            }

    def _count(self, connection: Connection) -> int:
        """Return how many items there are; they are counted again only when one was added."""
        newest = self.campaign.repository.items.newest_row_id(connection)
        if self._size is None or self._size[0] != newest:
            self._size = newest, self.campaign.repository.items.count(connection)
        return self._size[1]

    def items(self, wanted: ItemQuery) -> list[dict[str, Any]]:
        """Return a page of the table of items."""
        repository = self.campaign.repository
        with self.campaign.database.reading() as connection:
            standing = self.standing(connection)
            rows = self._page_of(wanted, connection, standing)
            said = repository.answers.for_items(connection, [row.row_id for row in rows])
        return [_line(row, said[row.row_id], standing) for row in rows]

    def _page_of(
        self, wanted: ItemQuery, connection: Connection, standing: CampaignSnapshot
    ) -> list[StoredItem]:
        """Return a page of items; those of a class are what counts as that class, whatever single people say."""
        repository, labels, found = self.campaign.repository, standing.labels, list[StoredItem]()
        while len(found) < wanted.count:
            rows = repository.items.search(connection, wanted)
            of_class = [row for row in rows if wanted.label in (None, labels.get(row.item_id))]
            back = wanted.before is not None
            found = (
                [*of_class, *found][-wanted.count :]
                if back
                else [*found, *of_class][: wanted.count]
            )
            if wanted.label is None or len(rows) < wanted.count:
                break
            wanted = (
                replace(wanted, before=rows[0].row_id)
                if back
                else replace(wanted, after=rows[-1].row_id)
            )
        return found

    def standing(self, connection: Connection) -> CampaignSnapshot:
        """Return what items are by consensus and decisions; it is worked out again only when something was said."""
        newest = self.campaign.repository.history.newest_row_id(connection)
        if self._stood is None or self._stood[0] != newest:
            self._stood = (
                newest,
                read_snapshot(self.campaign.repository, connection, self.campaign.settings),
            )
        return self._stood[1]

    def agreement(self) -> Agreement:
        """Return how far people agree; it is worked out again only when something was said."""
        with self.campaign.database.reading() as connection:
            newest = self.campaign.repository.history.newest_row_id(connection)
        if self._agreed is None or self._agreed[0] != newest:
            self._agreed = newest, self.campaign.agreement()
        return self._agreed[1]

    def forget_standing(self) -> None:
        """Work out anew what items are."""
        self._stood = None

    def item(
        self, *, key: str | None = None, number: int | None = None, only: str | None = None
    ) -> dict[str, Any]:
        """Return one item, by its id or by its number, with all that people say of it, or ``only`` one of them."""
        repository = self.campaign.repository
        with self.campaign.database.reading() as connection:
            if number is not None:
                row = repository.items.get_by_row_id(connection, number)
            else:
                row = repository.items.get(connection, key or "")
            said = repository.answers.for_item(connection, row.row_id)
            shown = self.shown(row, connection)
            standing = self.standing(connection)
        if only is not None:
            said = [one for one in said if one.annotator == only]
            label = next((one.label for one in said if one.label is not None), None)
            verdicts = (
                {} if label is None else {row.item_id: ConsensusLabel(label, 1.0, "majority")}
            )
            standing = CampaignSnapshot(said, {}, verdicts, frozenset())
        answers = [asdict(one) for one in said]
        return {**_line(row, said, standing), **shown, "answers": answers, "audit": row.audit}

    def image(self, key: str) -> Path:
        """Return the file of an item's image; nothing outside the campaign's folder is given out."""
        with self.campaign.database.reading() as connection:
            row = self.campaign.repository.items.get(connection, key)
        if row.kind is not ItemKind.IMAGE or self.images is None:
            raise FileError(f"{key} is no image.")
        return resolve_inside(row.content or "", self.images)

    def progress(self) -> dict[str, Any]:
        """Return how the campaign stands, round by round."""
        status = self.campaign.status()
        with self.campaign.database.reading() as connection:
            models = self.campaign.repository.models.summaries(connection)
            times = self.campaign.repository.answers.label_times(connection)
        rounds: list[dict[str, Any]] = [
            {"version": model.version, "trained": model.trained, **model.facts} for model in models
        ]
        for one in rounds:
            found = estimate_model_accuracy(one)
            one["accuracy"] = (
                None
                if found is None
                else {"share": found.share, "low": found.low, "high": found.high}
            )
        own = {"spent": status.spent, "budget": self.campaign.settings.budget}
        return {"status": asdict(status), "rounds": rounds, "times": times, **own}

    def flipped(self, count: int = 20) -> list[dict[str, Any]]:
        """Return items whose predicted class changed with the newest model, those on the table first."""
        repository = self.campaign.repository
        with self.campaign.database.reading() as connection:
            kept = repository.models.newest_weights(connection, 2)
            if len(kept) < 2:
                return []
            after, before = (load(weights)["predicted"] for weights in kept)
            size = min(len(after), len(before))
            places = np.flatnonzero(after[:size] != before[:size])[:count]
            numbers = self.numbers()
            chosen = {numbers[int(k)]: int(k) for k in places if int(k) < len(numbers)}
            rows = repository.items.by_row_id(connection, list(chosen))
            said = repository.answers.for_items(connection, list(chosen))
            standing = self.standing(connection)
        names = self.campaign.classes
        return [
            {
                **_line(row, said[row_id], standing),
                "from": names[before[chosen[row_id]]],
                "to": names[after[chosen[row_id]]],
            }
            for row_id, row in rows.items()
        ]

    def numbers(self) -> list[int]:
        """Return the items' numbers in the order in which models know them."""
        with self._lock, self.campaign.database.reading() as connection:
            count = self._count(connection)
            if self._numbers is None or self._numbers[0] != count:
                items = self.campaign.repository.items
                self._numbers = count, items.row_ids_with_features(connection)
        return self._numbers[1]

    def labelled_places(self) -> list[tuple[int, int]]:
        """Return the places of labelled items in the models' order, and the numbers of their classes."""
        with self.campaign.database.reading() as connection:
            labels = self.standing(connection).labels
            rows = self.campaign.repository.items.by_id(connection, list(labels))
        places = {number: place for place, number in enumerate(self.numbers())}
        names = {name: k for k, name in enumerate(self.campaign.classes)}
        return [
            (places[rows[key].row_id], names[label])
            for key, label in labels.items()
            if rows[key].row_id in places
        ]

    def newest_version(self) -> tuple[int, float | None]:
        """Return the number of the newest model, and when it was trained (seconds since 1970)."""
        from datetime import datetime

        with self.campaign.database.reading() as connection:
            row = self.campaign.repository.models.newest_summary(connection)
        return (
            (0, None)
            if row is None
            else (row.version, datetime.fromisoformat(row.trained).timestamp())
        )

    def close(self) -> None:
        """Let go of the campaign's file."""
        self._campaign.database.close()


def _line(row: StoredItem, said: Sequence[Answer], standing: CampaignSnapshot) -> dict[str, Any]:
    """Return an item as a line of a table; that somebody flagged it shows beside its label."""
    text = row.content or ""
    verdict = standing.consensus.get(row.item_id)
    label = None if verdict is None else verdict.label
    others = sorted(
        {one.kind for one in said if one.kind is not AnswerKind.LABEL}
        | ({AnswerKind.FLAG} if row.item_id in standing.left_out else set())
    )
    shown = [one for one in others if one is AnswerKind.FLAG or label is None]
    return {
        "number": row.row_id,
        "item": row.item_id,
        "kind": row.kind,
        "excerpt": text[:160] + ("…" if len(text) > 160 else "")
        if row.kind is ItemKind.TEXT
        else "",
        "label": label,
        "state": ", ".join([*([] if label is None else [label]), *shown]),
        "by": None if verdict is None else verdict.by,
        "annotators": len({one.annotator for one in said}),
    }
