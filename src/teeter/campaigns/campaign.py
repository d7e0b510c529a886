"""A campaign: things to label, the people who label them, and a model that learns from them round by round."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, insert, select

from teeter.campaigns.adjudication import Decision, Disagreement, undo_decision, write_decision
from teeter.campaigns.backup import atomic_file, restore
from teeter.campaigns.clock import Clock, utc, written
from teeter.campaigns.consensus import ConsensusLabel
from teeter.campaigns.db import schema
from teeter.campaigns.db.campaigns import list_campaigns
from teeter.campaigns.db.database import Database
from teeter.campaigns.db.pick_lock import acquire_pick_lock, release_pick_lock, wait_for_pick_lock
from teeter.campaigns.db.picks_repository import NOBODY
from teeter.campaigns.db.repository import Answer, AnswerReceipt, CampaignRepository, UndoResult
from teeter.campaigns.import_export import write_export
from teeter.campaigns.import_items import add_items, require_kind
from teeter.campaigns.items import parse_items, require_printable, require_valid_unicode
from teeter.campaigns.location import (
    find_campaign,
    is_url,
    split_location,
    validate_classes,
    validate_name,
)
from teeter.campaigns.people import People, require_name
from teeter.campaigns.results import ImportResult, ModelInfo, Question, Status
from teeter.campaigns.saved_models import (
    FeatureScaler,
    has_same_features,
    rescale_model,
    scale_features,
)
from teeter.campaigns.selection import (
    RoundSettings,
    RoundState,
    SuspectLabel,
    choose_picks,
    find_suspects,
)
from teeter.campaigns.settings import Settings, settings_from_json, settings_to_dict
from teeter.campaigns.snapshot import (
    Agreement,
    AnnotatorStats,
    agreement_of,
    disagreements_of,
    export_rows,
    read_standing,
    status_of,
    team_of,
)
from teeter.campaigns.training import predict_items, train_model
from teeter.campaigns.transfer import move_campaign
from teeter.encoders import Encoder
from teeter.errors import FileError, InputError
from teeter.seeds import stream

__all__ = [
    "Campaign",
    "ImportResult",
    "ModelInfo",
    "Question",
    "Settings",
    "Status",
    "SuspectLabel",
]

Vectors = npt.NDArray[np.float32]

OWN = "me"
"""Who answers, where nobody says."""

_AHEAD = 1000
"""Items that are picked ahead at most, for others who are at work."""

_TRIES = 50
"""Times to pick anew when others were faster."""


@dataclass(frozen=True, eq=False)
class _Pool:
    """Items as models see them."""

    newest: int
    keys: list[str]
    features: Vectors
    """(N, D), about their mean."""
    frame: FeatureScaler
    audit: frozenset[str]


class Campaign:
    """Items, answers and models in a database; whatever writes returns when all of it is on disk."""

    def __init__(
        self, store: Database, number: int, name: str, settings: Settings, *, clock: Clock = utc
    ) -> None:
        """Use ``Campaign.create`` or ``Campaign.open``."""
        self.database, self.name, self.settings = store, name, settings
        self.repository = CampaignRepository(number, clock, settings.lease)
        self.people = People(store, self.repository)
        self._read: _Pool | None = None

    @classmethod
    def create(
        cls,
        where: str | Path,
        name: str,
        classes: Sequence[str],
        settings: Settings | None = None,
        *,
        who: str = OWN,
        clock: Clock = utc,
    ) -> Campaign:
        """Make a campaign in a database, which is made too if there is none."""
        settings = settings or Settings()
        settings.require_head_outputs()
        names = validate_classes(classes)
        validate_name(name)
        store = Database(where, create=True)
        kept = settings_to_dict(settings, store.path)
        with store.writing() as connection:
            if (
                connection.scalar(
                    select(schema.campaigns.c.id).where(schema.campaigns.c.name == name)
                )
                is not None
            ):
                raise InputError(
                    f"There is a campaign called {name!r} in {where} already: open it, or name another."
                )
            values = {"name": name, "created": written(clock()), "settings": json.dumps(kept)}
            (number,) = connection.execute(
                insert(schema.campaigns).values(values)
            ).inserted_primary_key or (0,)
            campaign = cls(store, int(number), name, settings, clock=clock)
            campaign.repository.note(connection, who, "created", None, kept)
            for one in names:
                campaign.repository.add_class(connection, one, who)
        return campaign

    @classmethod
    def open(cls, where: str | Path, name: str | None = None, *, clock: Clock = utc) -> Campaign:
        """Open a campaign; its name can be left out where there is only one, or follow the file or address after #."""
        if name is None:
            where, name = split_location(where)
        store = Database(where)
        try:
            row = find_campaign(store, name)
            settings = settings_from_json(row.settings, store)
        except BaseException:
            store.close()
            raise
        return cls(store, row.row_id, row.name, settings, clock=clock)

    @classmethod
    def make(
        cls,
        path: str | Path,
        classes: Sequence[str],
        things: Iterable[Any],
        settings: Settings | None = None,
    ) -> ImportResult:
        """Create a campaign with its items, or nothing if something fails or the process is killed.

        Args:
            path: A new file, or the URL of a database. ``URL#NAME`` names the campaign; without it, it is called like
                the database, or like the file without its suffix.
            classes: The names of two or more classes.
            things: The items, as in ``add``.
            settings: The settings of the campaign.

        Raises:
            InputError: If the file or the campaign exists already, or if an item is invalid.
            FileError: If the file cannot be written.
            StoreError: If the database cannot be reached.
        """
        if is_url(path):
            return cls._make_in_database(str(path), classes, things, settings)
        path = Path(path)
        if path.exists():
            raise InputError(f"{path} exists already: go on with it, or name another.")
        if not path.parent.is_dir():
            raise FileError(f"Cannot make {path}: there is no folder {path.parent}.")
        with atomic_file(path) as part:
            campaign = cls.create(part, path.stem, classes, settings)
            try:
                added = campaign.add(things)
            finally:
                campaign.database.close()
        return added

    @classmethod
    def _make_in_database(
        cls,
        location: str,
        classes: Sequence[str],
        things: Iterable[Any],
        settings: Settings | None,
    ) -> ImportResult:
        """Create a campaign in a temporary file, and copy it to a database in one transaction."""
        url, name = split_location(location)
        target = Database(url, create=True)
        if name is None and target.path is not None:
            name = target.path.stem
        name = name or target.url.database or "campaign"

        try:
            # Known before the items are encoded, which takes long. The copy checks it again.
            with target.reading() as connection:
                if name in list_campaigns(connection):
                    raise InputError(
                        f"There is a campaign called {name!r} in {target.said} already: open it, or name another."
                    )

            with TemporaryDirectory(prefix="teeter-") as folder:
                campaign = cls.create(Path(folder) / "new.teeter", name, classes, settings)
                try:
                    added = campaign.add(things)
                    move_campaign(campaign.database, target, name)
                finally:
                    campaign.database.close()
        finally:
            target.close()
        return added

    @staticmethod
    def restore(backup: str | Path, path: str | Path, *, overwrite: bool = False) -> None:
        """Put a backup in a campaign's place, if it is whole; one that is there is lost only with ``overwrite``."""
        restore(Path(backup), Path(path), overwrite=overwrite)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in their order."""
        with self.database.reading() as connection:
            return tuple(self.repository.classes(connection))

    def add_class(self, name: str, *, who: str = OWN) -> None:
        """Add a class; what is labelled stays as it is."""
        require_printable(name.strip(), "class")
        with self.database.writing() as connection:
            self.repository.add_class(connection, name, who)

    def add(
        self, things: Iterable[Any], *, encoder: Encoder | None = None, who: str = OWN
    ) -> ImportResult:
        """Add things to label, with the labels that some may have; what is there already is told, and left out.

        A label that comes with something that is there is its label, if it has none.

        Things without features are encoded together with all that are there, so that all have features of one kind;
        by the settings' encoder, which reads each text alone, only what is new is.
        """
        folder = None if self.settings.folder is None else Path(self.settings.folder)
        items = parse_items(things, self.settings.kind, folder)
        require_kind(items, self.settings.kind)
        return add_items(
            self.database, self.repository, self.settings, items, encoder=encoder, who=who
        )

    def _pool(self, connection: Connection) -> _Pool:
        """Return the items and their features; they are read again when somebody added some."""
        newest = self.repository.newest_item(connection)
        if self._read is None or self._read.newest != newest:
            keys, vectors = self.repository.keyed_vectors(connection)
            if not keys:
                raise InputError("There is nothing to ask about: add items first.")
            self._read = _Pool(
                newest,
                keys,
                *scale_features(vectors),
                frozenset(self.repository.audit_items(connection)),
            )
        return self._read

    def tell(
        self, item: str, label: str, annotator: str = OWN, *, comment: str | None = None
    ) -> AnswerReceipt:
        """Record a label; it is on disk when this returns. What the annotator said before stays in the history.

        It counts also where the question went back to others before; what is returned tells so.
        """
        return self._answer(Answer(str(item), annotator, "label", label, comment))

    def skip(self, item: str, annotator: str = OWN, *, comment: str | None = None) -> AnswerReceipt:
        """Put an item off: it may be asked about again after the next training."""
        return self._answer(Answer(str(item), annotator, "skip", comment=comment))

    def mark_unsure(
        self, item: str, annotator: str = OWN, *, comment: str | None = None
    ) -> AnswerReceipt:
        """Say that it cannot be told what an item is: it is not asked about again."""
        return self._answer(Answer(str(item), annotator, "unsure", comment=comment))

    def flag(self, item: str, annotator: str = OWN, *, comment: str | None = None) -> AnswerReceipt:
        """Say that an item does not belong in the campaign: it is left out of everything."""
        return self._answer(Answer(str(item), annotator, "bad", comment=comment))

    def _answer(self, answer: Answer) -> AnswerReceipt:
        require_name(answer.annotator)
        require_valid_unicode(answer.comment or "", "comment")
        require_valid_unicode(answer.item, "id")
        with self.database.writing() as connection:
            return self.repository.answer(connection, answer)

    def undo(self, annotator: str = OWN) -> UndoResult | None:
        """Take back an annotator's last answer; what they said before holds again. None if there is nothing."""
        with self.database.writing() as connection:
            return self.repository.undo(connection, annotator)

    def ask(self, n: int, annotator: str = OWN) -> list[Question]:
        """Return n things to label: those the annotator was asked about before and did not answer, then others.

        Others are what several people are to answer, what was picked ahead, and new picks, in this order. Fewer come
        back where fewer are left. Asked again without answers in between, it returns the same, while the lease lasts or
        nobody else asks.
        """
        if n < 1:
            raise InputError(f"Cannot ask about {n} items: ask for 1 or more.")
        require_name(annotator)
        waiting = self._waiting(annotator, n)
        if len(waiting) == n:
            self._stay(annotator)
        for _ in range(_TRIES):
            if len(waiting) == n:
                break
            with self.database.writing() as connection:
                missing = (
                    n - len(waiting) - self.repository.give(connection, annotator, n - len(waiting))
                )
                turn = missing > 0 and acquire_pick_lock(self.repository, connection, annotator)
                others = self.repository.others_at_work(connection, annotator)
            if turn and not self._pick(annotator, missing, min(2 * n * others, _AHEAD)):
                return self._waiting(annotator, n)
            if missing and not turn:
                wait_for_pick_lock(self.database, self.repository, annotator)
            waiting = self._waiting(annotator, n)
        return waiting

    def _pick(self, annotator: str, n: int, ahead: int) -> bool:
        """Ask an annotator about n new picks, and keep some ready for others; False if nothing is left to pick."""
        try:
            state, plan = self.state(), self._plan
            picks = choose_picks(state, plan, n + ahead)
        except BaseException:
            with self.database.writing() as connection:
                release_pick_lock(self.repository, connection)
            raise
        asked = [pick for pick in picks if pick.asked]
        told = partial(
            self.repository.write_batch,
            strategy=plan.strategy,
            seed=plan.seed,
            version=state.version,
        )
        with self.database.writing() as connection:
            release_pick_lock(self.repository, connection)
            fresh = self.repository.free(connection, asked)  # somebody may have been faster
            shared = [pick.item for pick in fresh if self.is_shared(pick.item)]
            self.repository.share(connection, shared, self.settings.people)
            known = [pick for pick in picks if not pick.asked] if fresh else []
            is_newest = self.repository.newest_version(connection) == state.version
            for who, some in (
                (annotator, [*fresh[:n], *known]),
                (NOBODY, fresh[n:] if is_newest else []),
            ):
                if some:
                    told(connection, who, some)
        return bool(asked)

    def pick_ahead(self, n: int) -> None:
        """Keep n items ready for whoever asks, so that those who come at once do not wait for each other."""
        with self.database.writing() as connection:
            missing = n - self.repository.count_ready(connection)
            turn = missing > 0 and acquire_pick_lock(self.repository, connection, NOBODY)
        if turn:
            self._pick(NOBODY, 0, missing)

    def _stay(self, annotator: str) -> None:
        """Let an annotator's leases begin anew where half has passed: whoever asks is at work."""
        with self.database.reading() as connection:
            late = self.repository.is_half_over(connection, annotator)
        if late:
            with self.database.writing() as connection:
                self.repository.renew(connection, annotator)

    def is_shared(self, item: str) -> bool:
        """Tell whether several people are to answer about an item: drawn by its name, so that it stays so."""
        drawn = stream(self.settings.seed, "overlap", item).initial_seed() % 2**53 / 2**53
        return drawn < self.settings.overlap

    def _waiting(self, annotator: str, n: int) -> list[Question]:
        with self.database.reading() as connection:
            picks = self.repository.open_picks(connection, annotator, n)
            rows = self.repository.some_items(connection, [pick.item for pick in picks])
        return [
            Question(pick.item, rows[pick.item].content, pick.arm, pick.rank, dict(pick.reason))
            for pick in picks
        ]

    def release_items(self, annotator: str = OWN, *, who: str = OWN) -> int:
        """Let others have an annotator's open questions; return how many there were."""
        with self.database.writing() as connection:
            return self.repository.release_items(connection, annotator, who)

    def train(self, *, who: str = OWN) -> ModelInfo:
        """Train a new model on all labels, and keep it."""
        state = self.state()
        weights, facts = train_model(state, self._plan)
        with self.database.writing() as connection:
            version = self.repository.write_model(connection, weights, facts, who)
        return ModelInfo(version, facts["labels"], tuple(facts["classes"]))

    def suspects(self, count: int = 20, *, again: bool = False) -> list[SuspectLabel]:
        """Return labels that may be wrong: those that a model which did not learn from them finds least likely.

        A label that somebody looked at again and kept is left out, or comes ``again``.
        """
        if count < 1:
            raise InputError(f"Cannot list {count} labels: ask for 1 or more.")
        state = self.state()
        with self.database.reading() as connection:
            kept = {} if again else self.repository.kept(connection)
            labels = read_standing(self.repository, connection, self.settings).labels
            settled = {item for item, label in labels.items() if label == kept.get(item)}
            found = find_suspects(state, self._plan, count, settled)
            rows = self.repository.some_items(connection, [one.item for one in found])
        return [replace(one, content=rows[one.item].content) for one in found]

    def confirm_label(self, item: str, annotator: str = OWN, *, comment: str | None = None) -> None:
        """Say after a second look that an item's label is right; it is no longer suspected while it stays."""
        require_name(annotator)
        with self.database.writing() as connection:
            labels = read_standing(self.repository, connection, self.settings).labels
            label = labels.get(self.repository.item(connection, str(item)).key)
            if label is None:
                raise InputError(f"{item} has no label that could be kept.")
            number = self.repository.answer(
                connection, Answer(str(item), annotator, "label", label, comment)
            ).number
            self.repository.note(
                connection, annotator, "kept", str(item), {"answer": number, "label": label}
            )

    def labels(self) -> dict[str, ConsensusLabel]:
        """Return what items are, by id: as decided, or by consensus; with how clear it is."""
        with self.database.reading() as connection:
            return read_standing(self.repository, connection, self.settings).verdicts

    def disagreements(self) -> list[Disagreement]:
        """Return the items that wait for a reviewer's decision, those that are least clear first."""
        with self.database.reading() as connection:
            standing = read_standing(self.repository, connection, self.settings)
            rows = self.repository.some_items(
                connection, [item for item, _ in standing.disagreements()]
            )
        return disagreements_of(standing, rows)

    def decide(
        self, item: str, label: str | None, reviewer: str = OWN, *, comment: str | None = None
    ) -> None:
        """Settle what an item is, whatever people say of it; None: it does not belong."""
        require_name(reviewer)
        with self.database.writing() as connection:
            write_decision(
                self.repository, connection, Decision(str(item), label, reviewer, comment)
            )

    def undo_decision(self, reviewer: str = OWN) -> Decision | None:
        """Take back a reviewer's last decision; None if there is none."""
        with self.database.writing() as connection:
            return undo_decision(self.repository, connection, reviewer)

    def agreement(self) -> Agreement:
        """Return how people agree: over all, by class and by pair."""
        with self.database.reading() as connection:
            answers, classes = (
                self.repository.answers(connection),
                list(self.repository.classes(connection)),
            )
        return agreement_of(answers, classes)

    def team(self) -> list[AnnotatorStats]:
        """Return how fast and how right everybody is who answered."""
        with self.database.reading() as connection:
            return team_of(self.repository, connection, self.settings)

    def status(self) -> Status:
        """Return how the campaign stands, and what speaks for going on."""
        with self.database.reading() as connection:
            return status_of(self.repository, connection, self.settings)

    def export(self, path: str | Path, form: str | None = None) -> int:
        """Write labels, and predictions with their confidence, for other tools; return how many items are labelled.

        The form goes by the ending of the path (.csv, .jsonl, .parquet; a folder for Hugging Face datasets), or by its
        name: prodigy, doccano, or spreadsheet. ``csv`` has every cell exactly as it is; open ``spreadsheet`` in a
        spreadsheet program, where a text that begins with = + - or @ would otherwise run as a formula.
        """
        with self.database.reading() as connection:
            items, standing = (
                self.repository.items(connection),
                read_standing(self.repository, connection, self.settings),
            )
            same = self.repository.same_as(connection)
        state = self.state() if items else None
        guessed = predict_items(state, self._plan) if state is not None else None
        guesses = (
            dict(zip(state.keys, guessed, strict=True)) if state is not None and guessed else {}
        )
        rows = {row.id: row for row in export_rows(items, standing, guesses)}
        again = [
            replace(rows[theirs], id=ours) for ours, theirs in same.items() if ours not in rows
        ]
        write_export([*rows.values(), *again], Path(path), form)
        return len(standing.verdicts)

    def next_item_number(self) -> int:
        """Return the number that things without ids go on from: one above all ids that are numbers."""
        with self.database.reading() as connection:
            return 1 + max(
                (int(row.key) for row in self.repository.items(connection) if row.key.isdecimal()),
                default=-1,
            )

    def prediction_note(self) -> str | None:
        """Return a sentence on the model that predictions are of, where answers are newer or features others."""
        with self.database.reading() as connection:
            model, newer = (
                self.repository.model(connection),
                self.repository.newer_answers(connection),
            )
            changed = model is not None and not has_same_features(
                model.weights, self._pool(connection).frame
            )
        if model is None or not (newer or changed):
            return None
        told = f"Predictions are of model {model.version}"
        are = "1 answer is" if newer == 1 else f"{newer} answers are"
        told += f"; {are} newer: train, and export again to use them" if newer else ""
        return told + (
            "; features changed since, and it was trained on its labels again." if changed else "."
        )

    def history(self) -> list[dict[str, Any]]:
        """Return everything that happened, oldest first."""
        with self.database.reading() as connection:
            return self.repository.history(connection)

    def back_up(self, path: str | Path) -> None:
        """Write a copy of the campaign's file as it is now; it opens as a campaign, and ``restore`` puts it back."""
        self.database.back_up(Path(path))

    @property
    def _plan(self) -> RoundSettings:
        own = self.settings
        return RoundSettings(own.strategy, own.options, own.head, own.control, own.seed)

    def state(self) -> RoundState:
        """Return what is known now, as a round sees it."""
        with self.database.reading() as connection:
            pool = self._pool(connection)
            standing = read_standing(self.repository, connection, self.settings)
            asked = self.repository.asked_items(connection)
            drawn = self.repository.drawn_at_random(connection)
            put_off = self.repository.put_off(connection)
            model = self.repository.model(connection)
            batches = self.repository.count_batches(connection)
            classes = tuple(self.repository.classes(connection))
        keys, places = pool.keys, {key: k for k, key in enumerate(pool.keys)}
        labels = {places[item]: label for item, label in standing.labels.items() if item in places}
        kept = {
            places[key]: labels.get(places[key])
            for key in pool.audit
            if key not in standing.left_out
        }
        answered = {one.item for one in standing.answers if one.kind != "skip"}
        answered |= asked | set(standing.decisions)
        put_off -= answered
        return RoundState(
            keys=keys,
            features=pool.features,
            classes=classes,
            labels={
                k: label
                for k, label in labels.items()
                if k not in kept and keys[k] not in standing.left_out
            },
            audit=kept,
            control=frozenset(places[key] for key in drawn if key in places),
            taken=frozenset(places[key] for key in answered | put_off if key in places),
            version=0 if model is None else model.version,
            weights=None if model is None else rescale_model(model.weights, pool.frame),
            batches=batches,
            skipped=frozenset(places[key] for key in put_off if key in places),
            scaler=pool.frame,
        )
