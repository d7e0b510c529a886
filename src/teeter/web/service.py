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
from sqlalchemy import Connection, Row, select

from teeter.campaigns.campaign import Campaign
from teeter.campaigns.consensus import ConsensusLabel
from teeter.campaigns.db import schema
from teeter.campaigns.db.repository import Answer, Kind
from teeter.campaigns.people import require_name
from teeter.campaigns.shortcuts import shortcuts_by_class
from teeter.campaigns.snapshot import Agreement, CampaignSnapshot, accuracy_of, read_standing
from teeter.errors import FileError, InputError, StoreError, UnknownItemError
from teeter.paths import resolve_inside
from teeter.web import lookup
from teeter.web.lookup import ItemQuery

__all__ = ["AnswerIn", "CampaignService", "slug_of"]

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
    kind: Kind
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


class CampaignService:
    """One campaign, open to be labelled."""

    def __init__(self, where: str | Path, slug: str) -> None:
        self.where, self.slug = str(where), slug
        """Where it was opened: a file, or the address of a database."""
        self._campaign = Campaign.open(where)
        self._campaign.database.wait = _WAIT
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
        own = schema.campaigns.c.id == self.campaign.repository.campaign
        with self.campaign.database.reading() as connection:
            row = connection.execute(
                select(schema.campaigns.c.name, schema.campaigns.c.created).where(own)
            ).one()
        return hashlib.blake2b(repr((row.name, row.created)).encode(), digest_size=8).hexdigest()

    @property
    def campaign(self) -> Campaign:
        """The campaign, if its file is still where it was opened: nothing is read from or written to a lost one."""
        self._require_file()
        return self._campaign

    @property
    def said(self) -> str:
        """Where it is, as people may read it."""
        return self._campaign.database.said

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
                    several = lookup.several_answered(self.campaign.repository, connection)
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
            picks = repository.open_picks(connection, annotator, n)
            rows = repository.some_items(connection, [pick.item for pick in picks])
            told = [
                self.shown(rows[pick.item], connection)
                | self._blind(pick.item, lookup.why_picked(pick.arm, pick.rank, pick.reason))
                for pick in picks
            ]
        for one in told:
            if not lookup.is_blind(one):
                explanation = (why or {}).get(one["item"])
                one |= {} if explanation is None else asdict(explanation)
        return told

    def _blind(self, item: str, why: dict[str, Any]) -> dict[str, Any]:
        """Leave out what the model thinks of an item that several people answer, or they would agree by it."""
        if not why or not self.campaign.is_shared(item):
            return why
        return {"arm": why["arm"], "rank": why["rank"], "shared": True}

    def give(self, annotator: str, n: int) -> bool:
        """Ask an annotator about items that need no picking, up to n with those that wait; tell whether there were any.

        What waits is counted again inside: the trainer may have asked them meanwhile.
        """
        require_name(annotator)
        with self.campaign.database.reading() as connection:
            if not self.campaign.repository.has_some_to_give(connection):
                return False
        with self.campaign.database.writing() as connection:
            missing = n - len(self.campaign.repository.open_picks(connection, annotator, n))
            return missing <= 0 or self.campaign.repository.give(connection, annotator, missing) > 0

    def shown(self, row: Row[Any], connection: Connection) -> dict[str, Any]:
        """Return an item as the page shows it."""
        content = row.content if row.kind == "text" else None
        long = content is not None and len(content) > _LONGEST_TEXT
        told: dict[str, Any] = {
            "item": row.key,
            "kind": row.kind,
            "text": content[:_LONGEST_TEXT] if content else None,
        }
        if long:
            told["characters"] = len(content or "")
        if row.kind == "features":
            told["features"] = (lookup.vector_of(connection, row.id) or [])[:_NUMBERS]
        return told

    def answer(self, annotator: str, said: AnswerIn) -> bool:
        """Write an answer; it is on disk when this returns. False if the same was said already, as when sent twice."""
        require_name(annotator)
        if (said.label is None) == (said.kind == "label"):
            raise InputError("A label needs a class, and nothing else has one.")
        repository = self.campaign.repository
        with self.campaign.database.writing() as connection:
            row = repository.item(connection, said.item)
            held = [
                one
                for one in lookup.answers_of(repository, connection, [row.id])[row.id]
                if one.annotator == annotator
            ]
            answer = Answer(said.item, annotator, said.kind, said.label, said.comment or None)
            if held == [answer] and not self._is_open(connection, row.id, annotator):
                return False
            repository.answer(connection, answer)
        self._require_file()
        return True

    def _is_open(self, connection: Connection, item: int, annotator: str) -> bool:
        picks, batches = schema.picks, schema.batches
        found = connection.scalar(
            select(picks.c.id)
            .join(batches, batches.c.id == picks.c.batch_id)
            .where(
                picks.c.item_id == item, picks.c.state == "open", batches.c.annotator == annotator
            )
        )
        return found is not None

    def keep(self, annotator: str, item: str, comment: str | None = None) -> None:
        """Say after a second look that a label is right."""
        self.campaign.confirm_label(item, annotator, comment=comment)
        self._require_file()

    def undo(self, annotator: str, item: str | None = None) -> dict[str, Any] | None:
        """Take back an annotator's last answer, if it is of ``item``; None if there is none, or it is of another."""
        repository = self.campaign.repository
        with self.campaign.database.writing() as connection:
            if item is not None:
                mine = (schema.answers.c.annotator == annotator, schema.answers.c.undone.is_(False))
                newest = connection.scalar(
                    select(schema.items.c.key)
                    .join(schema.answers, schema.answers.c.item_id == schema.items.c.id)
                    .where(*mine, schema.items.c.campaign_id == repository.campaign)
                    .order_by(schema.answers.c.id.desc())
                    .limit(1)
                )
                if newest != item:
                    return None
            undone = repository.undo(connection, annotator)
            if undone is None:
                return None
            row = repository.item(connection, undone.answer.item)
            why = lookup.picked_for(repository, connection, annotator, [row.id]).get(row.id, {})
            shown = self.shown(row, connection) | self._blind(row.key, why)
        self._require_file()
        before = None if undone.before is None else undone.before.label or undone.before.kind
        return {**shown, "said": undone.answer.label or undone.answer.kind, "before": before}

    def last(self, annotator: str, count: int = 10) -> list[dict[str, Any]]:
        """Return an annotator's last answers, the newest first."""
        repository = self.campaign.repository
        with self.campaign.database.reading() as connection:
            answers = repository.last_answers(connection, annotator, count)
            rows = repository.some_items(connection, [one.item for one in answers])
            why = lookup.picked_for(
                repository, connection, annotator, [row.id for row in rows.values()]
            )
            return [
                {
                    **self.shown(rows[one.item], connection),
                    **self._blind(one.item, why.get(rows[one.item].id, {})),
                    "said": one.label or one.kind,
                    "comment": one.comment,
                }
                for one in answers
            ]

    def counts(self) -> dict[str, int]:
        """Return how many items there are, and what was said of them."""
        with self.campaign.database.reading() as connection:
            return {
                "items": self._count(connection),
                **lookup.counts(self.campaign.repository, connection),
            }

    def _count(self, connection: Connection) -> int:
        """Return how many items there are; they are counted again only when one was added."""
        newest = lookup.newest_item(connection)
        if self._size is None or self._size[0] != newest:
            self._size = newest, self.campaign.repository.count_items(connection)
        return self._size[1]

    def items(self, wanted: ItemQuery) -> list[dict[str, Any]]:
        """Return a page of the table of items."""
        repository = self.campaign.repository
        with self.campaign.database.reading() as connection:
            standing = self.standing(connection)
            rows = self._page_of(wanted, connection, standing)
            said = lookup.answers_of(repository, connection, [row.id for row in rows])
        return [_line(row, said[row.id], standing) for row in rows]

    def _page_of(
        self, wanted: ItemQuery, connection: Connection, standing: CampaignSnapshot
    ) -> list[Row[Any]]:
        """Return a page of items; those of a class are what counts as that class, whatever single people say."""
        repository, labels, found = self.campaign.repository, standing.labels, list[Row[Any]]()
        while len(found) < wanted.count:
            rows = lookup.items_page(repository, connection, wanted)
            of_class = [row for row in rows if wanted.label in (None, labels.get(row.key))]
            back = wanted.before is not None
            found = (
                [*of_class, *found][-wanted.count :]
                if back
                else [*found, *of_class][: wanted.count]
            )
            if wanted.label is None or len(rows) < wanted.count:
                break
            wanted = (
                replace(wanted, before=rows[0].id) if back else replace(wanted, after=rows[-1].id)
            )
        return found

    def standing(self, connection: Connection) -> CampaignSnapshot:
        """Return what items are by consensus and decisions; it is worked out again only when something was said."""
        newest = lookup.newest_line(self.campaign.repository, connection)
        if self._stood is None or self._stood[0] != newest:
            self._stood = (
                newest,
                read_standing(self.campaign.repository, connection, self.campaign.settings),
            )
        return self._stood[1]

    def agreement(self) -> Agreement:
        """Return how far people agree; it is worked out again only when something was said."""
        with self.campaign.database.reading() as connection:
            newest = lookup.newest_line(self.campaign.repository, connection)
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
                own = (
                    schema.items.c.campaign_id == repository.campaign,
                    schema.items.c.id == number,
                )
                row = connection.execute(select(schema.items).where(*own)).first()
                if row is None:
                    raise UnknownItemError(f"There is no item number {number}.")
            else:
                row = repository.item(connection, key or "")
            said = lookup.answers_of(repository, connection, [row.id])[row.id]
            shown = self.shown(row, connection)
            standing = self.standing(connection)
        if only is not None:
            said = [one for one in said if one.annotator == only]
            label = next((one.label for one in said if one.label is not None), None)
            verdicts = {} if label is None else {row.key: ConsensusLabel(label, 1.0, "majority")}
            standing = CampaignSnapshot(said, {}, verdicts, frozenset())
        answers = [asdict(one) for one in said]
        return {**_line(row, said, standing), **shown, "answers": answers, "audit": row.audit}

    def image(self, key: str) -> Path:
        """Return the file of an item's image; nothing outside the campaign's folder is given out."""
        with self.campaign.database.reading() as connection:
            row = self.campaign.repository.item(connection, key)
        if row.kind != "image" or self.images is None:
            raise FileError(f"{key} is no image.")
        return resolve_inside(row.content or "", self.images)

    def progress(self) -> dict[str, Any]:
        """Return how the campaign stands, round by round."""
        status = self.campaign.status()
        with self.campaign.database.reading() as connection:
            rounds = lookup.rounds(self.campaign.repository, connection)
            times = lookup.times_of_answers(self.campaign.repository, connection)
        for one in rounds:
            found = accuracy_of(one)
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
            models = schema.models
            own = select(models.c.weights).where(models.c.campaign_id == repository.campaign)
            kept = list(connection.scalars(own.order_by(models.c.version.desc()).limit(2)))
            if len(kept) < 2:
                return []
            after, before = (load(weights)["predicted"] for weights in kept)
            size = min(len(after), len(before))
            places = np.flatnonzero(after[:size] != before[:size])[:count]
            numbers = self.numbers()
            chosen = {numbers[int(k)]: int(k) for k in places if int(k) < len(numbers)}
            rows = connection.execute(
                select(schema.items).where(schema.items.c.id.in_(list(chosen)))
            ).all()
            said = lookup.answers_of(repository, connection, list(chosen))
            standing = self.standing(connection)
        names = self.campaign.classes
        return [
            {
                **_line(row, said[row.id], standing),
                "from": names[before[chosen[row.id]]],
                "to": names[after[chosen[row.id]]],
            }
            for row in rows
        ]

    def numbers(self) -> list[int]:
        """Return the items' numbers in the order in which models know them."""
        with self._lock, self.campaign.database.reading() as connection:
            count = self._count(connection)
            if self._numbers is None or self._numbers[0] != count:
                self._numbers = count, lookup.item_numbers(self.campaign.repository, connection)
        return self._numbers[1]

    def labelled_places(self) -> list[tuple[int, int]]:
        """Return the places of labelled items in the models' order, and the numbers of their classes."""
        with self.campaign.database.reading() as connection:
            labels = self.standing(connection).labels
            rows = self.campaign.repository.some_items(connection, list(labels))
        places = {number: place for place, number in enumerate(self.numbers())}
        names = {name: k for k, name in enumerate(self.campaign.classes)}
        return [
            (places[rows[key].id], names[label])
            for key, label in labels.items()
            if rows[key].id in places
        ]

    def newest_version(self) -> tuple[int, float | None]:
        """Return the number of the newest model, and when it was trained (seconds since 1970)."""
        from datetime import datetime

        models = schema.models
        with self.campaign.database.reading() as connection:
            row = connection.execute(
                select(models.c.version, models.c.trained)
                .where(models.c.campaign_id == self.campaign.repository.campaign)
                .order_by(models.c.version.desc())
                .limit(1)
            ).first()
        return (
            (0, None)
            if row is None
            else (row.version, datetime.fromisoformat(row.trained).timestamp())
        )

    def close(self) -> None:
        """Let go of the campaign's file."""
        self._campaign.database.close()


def _line(row: Row[Any], said: Sequence[Answer], standing: CampaignSnapshot) -> dict[str, Any]:
    """Return an item as a line of a table; that somebody flagged it shows beside its label."""
    text = row.content or ""
    verdict = standing.verdicts.get(row.key)
    label = None if verdict is None else verdict.label
    others = sorted(
        {one.kind for one in said if one.kind != "label"}
        | ({"bad"} if row.key in standing.left_out else set())
    )
    shown = [one for one in others if one == "bad" or label is None]
    return {
        "number": row.id,
        "item": row.key,
        "kind": row.kind,
        "excerpt": text[:160] + ("…" if len(text) > 160 else "") if row.kind == "text" else "",
        "label": label,
        "state": ", ".join([*([] if label is None else [label]), *shown]),
        "by": None if verdict is None else verdict.by,
        "annotators": len({one.annotator for one in said}),
    }
