"""A campaign: things to label, the people who label them, and a model that learns from them round by round."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, insert, select

from teeter.campaigns import tables
from teeter.campaigns.advice import Progress, advice, estimate
from teeter.campaigns.copies import restore
from teeter.campaigns.encoders import Encoder, encode_images, encode_texts, encoder_named
from teeter.campaigns.exchange import Exported, write_export
from teeter.campaigns.heads import scaled
from teeter.campaigns.items import Item, items_of
from teeter.campaigns.ledger import Answer, Ledger, Undone
from teeter.campaigns.records import Added, Question, Settings, Status, Trained
from teeter.campaigns.rounds import Plan, State, Suspect, labels_of, picks_for, predictions, suspects, trained
from teeter.campaigns.store import Store, now
from teeter.errors import InputError, StoreError, UnknownNameError
from teeter.registry import did_you_mean
from teeter.seeds import stream

__all__ = ["Added", "Campaign", "Question", "Settings", "Status", "Suspect", "Trained"]

Vectors = npt.NDArray[np.float32]

OWN = "me"
"""Who answers, where nobody says."""


class Campaign:
    """Items, answers and models in a database; whatever writes returns when all of it is on disk."""

    def __init__(self, store: Store, number: int, name: str, settings: Settings) -> None:
        """Use ``Campaign.create`` or ``Campaign.open``."""
        self.store, self.name, self.settings = store, name, settings
        self.ledger = Ledger(number)

    @classmethod
    def create(
        cls, where: str | Path, name: str, classes: Sequence[str], settings: Settings | None = None, *, who: str = OWN
    ) -> Campaign:
        """Make a campaign in a database, which is made too if there is none."""
        settings = settings or Settings()
        names = [str(one).strip() for one in classes]
        if len(names) < 2 or not all(names) or len(set(names)) < len(names):
            raise InputError(f"The classes are {names}: give two or more different names.")
        if not name.strip():
            raise InputError("A campaign needs a name.")
        store = Store(where, create=True)
        with store.writing() as connection:
            if connection.scalar(select(tables.campaigns.c.id).where(tables.campaigns.c.name == name)) is not None:
                raise InputError(f"There is a campaign called {name!r} in {where} already: open it, or name another.")
            values = {"name": name, "created": now(), "settings": json.dumps(asdict(settings))}
            (number,) = connection.execute(insert(tables.campaigns).values(values)).inserted_primary_key or (0,)
            campaign = cls(store, int(number), name, settings)
            campaign.ledger.note(connection, who, "created", None, asdict(settings))
            for one in names:
                campaign.ledger.add_class(connection, one, who)
        return campaign

    @classmethod
    def open(cls, where: str | Path, name: str | None = None) -> Campaign:
        """Open a campaign; its name can be left out where there is only one, or follow a server's address after #."""
        if name is None and isinstance(where, str) and "://" in where:
            where, _, after = where.partition("#")
            name = after or None
        store = Store(where)
        try:
            row = _named(store, name)
            told = json.loads(row.settings)
            strange = sorted(set(told) - {one.name for one in fields(Settings)})
            if strange:
                raise StoreError(
                    f"{store.said} has a setting of a newer teeter ({strange[0]}): update teeter to open it."
                )
        except BaseException:
            store.close()
            raise
        return cls(store, row.id, row.name, Settings(**told))

    @staticmethod
    def restore(backup: str | Path, path: str | Path, *, overwrite: bool = False) -> None:
        """Put a backup in a campaign's place, if it is whole; one that is there is lost only with ``overwrite``."""
        restore(Path(backup), Path(path), overwrite=overwrite)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in their order."""
        with self.store.reading() as connection:
            return tuple(self.ledger.classes(connection))

    def add_class(self, name: str, *, who: str = OWN) -> None:
        """Add a class; what is labelled stays as it is."""
        with self.store.writing() as connection:
            self.ledger.add_class(connection, name, who)

    def add(self, things: Iterable[Any], *, encoder: Encoder | None = None, who: str = OWN) -> Added:
        """Add things to label, with the labels that some may have; what is there already is told, and left out.

        Things without features are encoded together with all that are there, so that all have features of one kind;
        by the settings' encoder, which reads each text alone, only what is new is.
        """
        items = items_of(things, self.settings.kind, self._folder)
        other = next((item for item in items if item.kind != self.settings.kind), None)
        if other is not None:
            raise InputError(f"This campaign is of {self.settings.kind}, and {other.key} is of {other.kind}.")
        with self.store.writing() as connection:
            new, duplicates = self.ledger.add_items(connection, items, who)
            self._encode(connection, new, encoder, who)
            labelled = [item for item in new if item.label is not None]
            for item in labelled:
                self.ledger.answer(connection, Answer(item.key, who, "label", item.label))
            self._set_apart(connection, who)
        self.__dict__.pop("_pool", None)
        return Added(len(new), tuple(duplicates), len(labelled))

    @property
    def _folder(self) -> Path | None:
        return None if self.settings.folder is None else Path(self.settings.folder)

    def _encode(self, connection: Connection, new: Sequence[Item], encoder: Encoder | None, who: str) -> None:
        """Give features to items that have none, and note where features come from."""
        having = self.ledger.with_vectors(connection)
        items = self.ledger.items(connection)
        missing = [row for row in items if row.id not in having]
        given = any(item.features is not None for item in new)
        if not missing:
            if given:
                self.ledger.note(connection, who, "encoded", None, {"by": "you"})
            return
        rows, by = items, "built-in" if encoder is None else "you"
        if encoder is None and self.settings.encoder is not None:
            rows, by = missing, self.settings.encoder
            encoder = encoder_named(by)
        if by == "built-in" and (given or self.ledger.encoded_by(connection) == "you"):
            raise InputError(
                f"{len(missing)} items have no features, and the others have features of your own: "
                "give features to all, or an encoder."
            )
        vectors = self._encoded([row.content or "" for row in rows], encoder)
        if vectors.ndim != 2 or len(vectors) != len(rows) or not np.isfinite(vectors).all():
            raise InputError(
                f"The encoder gave {vectors.shape} for {len(rows)} items: finite (items, features) needed."
            )
        self.ledger.write_vectors(connection, [row.id for row in rows], vectors)
        self.ledger.with_vectors(connection)
        self.ledger.note(connection, who, "encoded", None, {"by": by, "items": len(rows)})

    def _encoded(self, contents: list[str], encoder: Encoder | None) -> Vectors:
        if encoder is not None:
            return np.ascontiguousarray(encoder(contents), dtype=np.float32)
        if self.settings.kind == "image":
            return encode_images(contents, self._folder or Path())
        return encode_texts(contents)

    def _set_apart(self, connection: Connection, who: str) -> None:
        """Draw what is missing of the audit sample from items that nobody has seen; half of all are left to learn."""
        items = self.ledger.items(connection)
        missing = min(self.settings.audit, len(items) // 2) - sum(row.audit for row in items)
        answered = {one.item for one in self.ledger.answers(connection)}
        free = [row.key for row in items if not row.audit and row.key not in answered]
        if missing > 0 and free:
            drawn = np.random.default_rng(stream(self.settings.seed, "audit", len(items)).initial_seed())
            chosen = drawn.choice(len(free), size=min(missing, len(free)), replace=False)
            self.ledger.keep_for_audit(connection, [free[k] for k in sorted(chosen)], who)

    @cached_property
    def _pool(self) -> tuple[list[str], Vectors]:
        """The items' ids and features, about their mean."""
        with self.store.reading() as connection:
            keys = {row.id: row.key for row in self.ledger.items(connection)}
            numbers, vectors = self.ledger.vectors(connection)
        return [keys[number] for number in numbers], scaled(vectors) if len(vectors) else vectors

    def tell(self, item: str, label: str, annotator: str = OWN, *, comment: str | None = None) -> None:
        """Record a label; it is on disk when this returns. What the annotator said before stays in the history."""
        self._answer(Answer(str(item), annotator, "label", label, comment))

    def skip(self, item: str, annotator: str = OWN, *, comment: str | None = None) -> None:
        """Put an item off: it may be asked about again after the next training."""
        self._answer(Answer(str(item), annotator, "skip", comment=comment))

    def unsure(self, item: str, annotator: str = OWN, *, comment: str | None = None) -> None:
        """Say that it cannot be told what an item is: it is not asked about again."""
        self._answer(Answer(str(item), annotator, "unsure", comment=comment))

    def bad(self, item: str, annotator: str = OWN, *, comment: str | None = None) -> None:
        """Say that an item does not belong in the campaign: it is left out of everything."""
        self._answer(Answer(str(item), annotator, "bad", comment=comment))

    def _answer(self, answer: Answer) -> None:
        _require_name(answer.annotator)
        with self.store.writing() as connection:
            self.ledger.answer(connection, answer)

    def undo(self, annotator: str = OWN) -> Undone | None:
        """Take back an annotator's last answer; what they said before holds again. None if there is nothing."""
        with self.store.writing() as connection:
            return self.ledger.undo(connection, annotator)

    def ask(self, n: int, annotator: str = OWN) -> list[Question]:
        """Return n things to label: those the annotator was asked about before and did not answer, then new picks.

        Fewer come back where fewer are left. Asked again without answers in between, it returns the same.
        """
        if n < 1:
            raise InputError(f"Cannot ask about {n} items: ask for 1 or more.")
        _require_name(annotator)
        waiting = self._waiting(annotator)
        if len(waiting) < n:
            state = self.state()
            picks = picks_for(state, self._plan, n - len(waiting))
            with self.store.writing() as connection:
                taken = {pick.item for pick in self.ledger.open_picks(connection)}
                taken |= {one.item for one in self.ledger.answers(connection) if one.kind != "skip"}
                fresh = [pick for pick in picks if pick.item not in taken]  # somebody may have been faster
                if fresh:
                    plan = self._plan
                    self.ledger.write_batch(
                        connection, annotator, fresh, strategy=plan.strategy, seed=plan.seed, version=state.version
                    )
            waiting = self._waiting(annotator)
        return waiting[:n]

    def _waiting(self, annotator: str) -> list[Question]:
        with self.store.reading() as connection:
            picks = self.ledger.open_picks(connection, annotator)
            rows = self.ledger.some_items(connection, [pick.item for pick in picks])
        return [Question(pick.item, rows[pick.item].content, pick.arm, pick.rank, dict(pick.reason)) for pick in picks]

    def train(self, *, who: str = OWN) -> Trained:
        """Train a new model on all labels, and keep it."""
        state = self.state()
        weights, facts = trained(state, self._plan)
        with self.store.writing() as connection:
            version = self.ledger.write_model(connection, weights, facts, who)
        return Trained(version, facts["labels"], tuple(facts["classes"]))

    def suspects(self, count: int = 20, *, again: bool = False) -> list[Suspect]:
        """Return labels that may be wrong: those that a model which did not learn from them finds least likely.

        A label that somebody looked at again and kept is left out, or comes ``again``.
        """
        if count < 1:
            raise InputError(f"Cannot list {count} labels: ask for 1 or more.")
        state = self.state()
        with self.store.reading() as connection:
            kept = {} if again else self.ledger.kept(connection)
            settled = {
                item for item, label in labels_of(self.ledger.answers(connection)).items() if label == kept.get(item)
            }
            found = suspects(state, count, settled)
            rows = self.ledger.some_items(connection, [one.item for one in found])
        return [replace(one, content=rows[one.item].content) for one in found]

    def keep(self, item: str, annotator: str = OWN, *, comment: str | None = None) -> None:
        """Say after a second look that an item's label is right; it is no longer suspected while it stays."""
        _require_name(annotator)
        with self.store.writing() as connection:
            label = labels_of(self.ledger.answers(connection)).get(self.ledger.item(connection, str(item)).key)
            if label is None:
                raise InputError(f"{item} has no label that could be kept.")
            number = self.ledger.answer(connection, Answer(str(item), annotator, "label", label, comment))
            self.ledger.note(connection, annotator, "kept", str(item), {"answer": number, "label": label})

    def status(self) -> Status:
        """Return how the campaign stands, and what speaks for going on."""
        with self.store.reading() as connection:
            answers = self.ledger.answers(connection)
            items, picks = self.ledger.count_items(connection), self.ledger.open_picks(connection)
            facts = self.ledger.models(connection)
        labels = labels_of(answers)
        kinds = {kind: len({one.item for one in answers if one.kind == kind}) for kind in ("skip", "unsure", "bad")}
        by_class = dict.fromkeys(self.classes, 0)
        for label in labels.values():
            by_class[label] += 1
        measured = [estimate(*_measure(one)) for one in facts]
        last = facts[-1] if facts else {}
        cost = self.settings.cost
        progress = Progress(
            labels=len(labels),
            accuracy=measured[-1] if measured else None,
            accuracies=tuple(one.share for one in measured if one is not None),
            kappa=last.get("kappa"),
            changed=last.get("changed"),
            cost=None if cost is None else cost * len(answers),
            budget=self.settings.budget,
        )
        return Status(
            items=items,
            labelled=len(labels),
            by_class=by_class,
            skipped=kinds["skip"],
            unsure=kinds["unsure"],
            bad=kinds["bad"],
            open=len(picks),
            version=len(facts),
            accuracy=progress.accuracy,
            advice=tuple(advice(progress)),
        )

    def export(self, path: str | Path, form: str | None = None) -> int:
        """Write labels, and predictions with their confidence, for other tools; return how many items are labelled.

        The form goes by the ending of the path (.csv, .jsonl, .parquet; a folder for Hugging Face datasets), or by its
        name: prodigy, doccano.
        """
        with self.store.reading() as connection:
            items, answers = self.ledger.items(connection), self.ledger.answers(connection)
        labels = labels_of(answers)
        people: dict[str, set[str]] = {}
        for one in answers:
            people.setdefault(one.item, set()).add(one.annotator)
        left_out = {one.item for one in answers if one.kind == "bad"}
        guessed = predictions(self.state(), self._plan) if items else None
        places = {key: k for k, key in enumerate(self._pool[0])}
        rows = []
        for row in items:
            guess = guessed[places[row.key]] if guessed and row.key in places else (None, None)
            rows.append(
                Exported(
                    id=row.key,
                    content=row.content,
                    label=labels.get(row.key),
                    annotators=len(people.get(row.key, ())),
                    predicted=guess[0],
                    confidence=None if guess[1] is None else round(guess[1], 6),
                    left_out=row.key in left_out,
                )
            )
        write_export(rows, Path(path), form)
        return len(labels)

    def history(self) -> list[dict[str, Any]]:
        """Return everything that happened, oldest first."""
        with self.store.reading() as connection:
            return self.ledger.history(connection)

    def back_up(self, path: str | Path) -> None:
        """Write a copy of the campaign's file as it is now; it opens as a campaign, and ``restore`` puts it back."""
        self.store.back_up(Path(path))

    @property
    def _plan(self) -> Plan:
        own = self.settings
        return Plan(own.strategy, own.options, own.head, own.control, own.seed)

    def state(self) -> State:
        """Return what is known now, as a round sees it."""
        keys, features = self._pool
        places = {key: k for k, key in enumerate(keys)}
        with self.store.reading() as connection:
            answers = self.ledger.answers(connection)
            audit = [row.key for row in self.ledger.items(connection) if row.audit]
            asked = {pick.item for pick in self.ledger.open_picks(connection)}
            drawn = self.ledger.drawn_at_random(connection)
            put_off = self.ledger.put_off(connection)
            model = self.ledger.model(connection)
            batches = self.ledger.count_batches(connection)
        if not keys:
            raise InputError("There is nothing to ask about: add items first.")
        labels = {places[item]: label for item, label in labels_of(answers).items() if item in places}
        left_out = {one.item for one in answers if one.kind == "bad"}
        kept = {places[key]: labels.get(places[key]) for key in audit if key not in left_out}
        answered = {one.item for one in answers if one.kind != "skip"} | put_off | asked
        return State(
            keys=keys,
            features=features,
            classes=self.classes,
            labels={k: label for k, label in labels.items() if k not in kept and keys[k] not in left_out},
            audit=kept,
            control=frozenset(places[key] for key in drawn if key in places),
            taken=frozenset(places[key] for key in answered if key in places),
            version=0 if model is None else model.version,
            weights=None if model is None else model.weights,
            batches=batches,
        )


def _named(store: Store, name: str | None) -> Any:
    """Return the row of the campaign called so, or of the only one."""
    with store.reading() as connection:
        by_name = {row.name: row for row in connection.execute(select(tables.campaigns))}
    if not by_name:
        raise StoreError(f"There is no campaign in {store.said}: make one with teeter campaign new.")
    if name is None and len(by_name) > 1:
        raise InputError(f"{store.said} has several campaigns: say which of {', '.join(sorted(by_name))}.")
    chosen = next(iter(by_name)) if name is None else name
    if chosen not in by_name:
        raise UnknownNameError(f"No campaign is called {chosen!r}. {did_you_mean(chosen, list(by_name))}")
    return by_name[chosen]


def _require_name(annotator: str) -> None:
    if not annotator.strip():
        raise InputError("Whoever answers needs a name, and this one is blank.")


def _measure(facts: dict[str, Any]) -> tuple[int, int]:
    """Return how many of how many random items are right: of the audit sample if there is one, else of controls."""
    right, total = facts["audit"] if facts["audit"][1] else facts["control"]
    return int(right), int(total)
