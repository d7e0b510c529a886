"""What the trainer does for the page: train, pick ahead, say why, look for wrong labels, draw the map, export, make."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load

from teeter.campaigns.campaign import Campaign, Settings
from teeter.campaigns.import_export import detect_kind, format_suffix, read_items
from teeter.campaigns.results import ModelInfo
from teeter.campaigns.selection import RoundState
from teeter.campaigns.settings import settings_from_json
from teeter.campaigns.shortcuts import shortcuts_by_class
from teeter.errors import InputError
from teeter.web import projection

__all__ = ["JOBS", "Say", "TaskHandlers"]

Say = Callable[..., None]
"""Tells the page what is being done."""

_NEIGHBOURS = 3

_BATCH = 20
"""Items that an annotator gets at a time, where the page does not say."""


class TaskHandlers:
    """The campaigns that are open in this process."""

    def __init__(self, say: Say) -> None:
        self.say = say
        self._opened: dict[str, tuple[Campaign, int]] = {}
        self._trained_to: dict[str, int] = {}
        self._told: dict[str, tuple[int, set[str]]] = {}
        """By campaign, the items whose reasons were told, and by which model."""
        self._exhausted: dict[str, int] = {}
        """By campaign, the version of the model that found nothing left to pick ahead."""

    def campaign(self, path: str) -> Campaign:
        """Return a campaign; it is opened anew if it has other items or settings by now, or is another file."""
        if path in self._opened and not self._opened[path][0].database.is_in_place():
            self._opened.pop(path)[0].database.close()
            self._trained_to.pop(path, None)
            self._told.pop(path, None)
            self._exhausted.pop(path, None)
        if path not in self._opened:
            self._opened[path] = (Campaign.open(path), -1)
        campaign, known = self._opened[path]
        with campaign.database.reading() as connection:
            count = campaign.repository.items.count(connection)
            kept = campaign.repository.campaign(connection).settings
        if (
            known not in (-1, count)
            or settings_from_json(kept, campaign.database) != campaign.settings
        ):
            campaign.database.close()
            campaign = Campaign.open(path)
            self._exhausted.pop(path, None)
        self._opened[path] = (campaign, count)
        return campaign

    def look(self, path: str, annotator: str, batch: int) -> dict[str, Any]:
        """Train if a batch's worth of labels is new, and see to it that questions are waiting; tell why each is."""
        campaign = self.campaign(path)
        waiting, new = self._waiting(campaign, annotator), self._new_labels(path, campaign)
        few = len(waiting) <= batch // 2
        must_train = new >= (max(1, batch // 2) if few else batch)

        last_answer = self._last_answer(campaign)
        state = campaign.load_state() if few or must_train else None
        if must_train and state is not None:
            _, state = self._train(path, campaign, state, last_answer, batch)
        if few:
            self.say(doing="picking")
            questions = campaign.ask(len(waiting) + batch, annotator, state=state)
            waiting = [question.item for question in questions]
        self._keep_ready(path, campaign, batch, state)

        why = self._why(path, campaign, waiting[: 3 * batch], state)
        return {"finished": not waiting, "why": why}

    def _keep_ready(
        self, path: str, campaign: Campaign, batch: int, state: RoundState | None
    ) -> None:
        """Pick ahead for the active annotators, unless the newest model found nothing left."""
        with campaign.database.reading() as connection:
            version = campaign.repository.models.newest_version(connection)

        if self._exhausted.get(path) == version:
            return
        if not campaign.keep_ready(batch, state=state):
            self._exhausted[path] = version

    def prepare(self, path: str, count: int) -> None:
        """Read the pool, and have so many items ready for those who will ask."""
        self.say(doing="picking")
        self.campaign(path).pick_ahead(count)

    def train(self, path: str) -> dict[str, Any]:
        """Train a model, if two classes are labelled."""
        campaign = self.campaign(path)
        last_answer = self._last_answer(campaign)
        trained, _ = self._train(path, campaign, campaign.load_state(), last_answer, _BATCH)
        return {"trained": None if trained is None else asdict(trained)}

    def _train(
        self, path: str, campaign: Campaign, state: RoundState, last_answer: int, batch: int
    ) -> tuple[ModelInfo | None, RoundState]:
        """Train a model and pick ahead with it; return it, and the state that it leads to.

        Nothing is trained if fewer than two classes have labels. ``last_answer`` was read before the
        state, so that an answer that came in between counts as new.
        """
        if len(set(state.labels.values())) < 2:
            return None, state

        self.say(doing="training", labels=len(state.labels), version=state.version + 1)
        trained = campaign.train(state=state, pick_ahead=campaign.ready_items_wanted(batch))
        self._trained_to[path] = last_answer
        self.say(doing=None, version=trained.version, trained=True)
        return trained, campaign.with_newest_model(state)

    def suspects(self, path: str, count: int) -> list[dict[str, Any]]:
        """Return labels that may be wrong."""
        self.say(doing="suspects")
        return [asdict(one) for one in self.campaign(path).suspects(count)]

    def export(self, path: str, form: str, folder: str) -> str:
        """Write labels and predictions in a form, and return the file; a folder of them is packed into one."""
        self.say(doing="exporting")
        campaign = self.campaign(path)
        out = Path(tempfile.mkdtemp(dir=folder)) / f"labels{format_suffix(form)}"
        campaign.export(out, form)
        if not out.is_dir():
            return str(out)
        packed = out.with_suffix(".zip")
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for one in sorted(out.rglob("*")):
                archive.write(one, one.relative_to(out))
        return str(packed)

    def chart(self, path: str, folder: str, how: str) -> dict[str, Any]:
        """Lay the pool out in two dimensions, or compute its LDM, and write it where the page reads it."""
        self.say(doing="map")
        state = self.campaign(path).load_state()
        out = Path(tempfile.mkdtemp(dir=folder)) / "map.bin"
        if how == "ldm":
            projection.write_ldm(out, state)
        else:
            ways = {"pca": projection.project_pca, "tsne": projection.project_tsne}
            projection.write(out, state, ways[how](state.features))
        return {"file": str(out), "version": state.version}

    def make(
        self,
        things: str,
        file: str,
        classes: Sequence[str],
        settings: Mapping[str, Any],
        **columns: Any,
    ) -> dict[str, Any]:
        """Make a campaign from a file or a folder; a campaign that fails on its way leaves nothing behind."""
        self.say(doing="making")
        source, target = Path(things), Path(file)
        if target.exists():
            raise InputError(
                f"There is a campaign called {target.stem} already: give another name."
            )
        shortcuts_by_class(classes, settings.get("keys") or ())
        items = read_items(source, **columns)
        folder = str(source.resolve()) if source.is_dir() else None
        own = Settings(**{**settings, "kind": detect_kind(source), "folder": folder})
        added = Campaign.make(target, classes, items, own)
        return {
            "file": file,
            "new": added.new,
            "duplicates": len(added.duplicates),
            "labelled": added.labelled,
        }

    def _last_answer(self, campaign: Campaign) -> int:
        """Return the row id of the newest answer."""
        with campaign.database.reading() as connection:
            return campaign.repository.answers.newest_row_id(connection)

    def _waiting(self, campaign: Campaign, annotator: str) -> list[str]:
        with campaign.database.reading() as connection:
            return [
                pick.item for pick in campaign.repository.picks.open_picks(connection, annotator)
            ]

    def _new_labels(self, path: str, campaign: Campaign) -> int:
        """Return how many labels were given since the newest model began to be trained."""
        with campaign.database.reading() as connection:
            answers = campaign.repository.answers
            if path in self._trained_to:
                return answers.count_labels_after(connection, self._trained_to[path])
            model = campaign.repository.models.newest_summary(connection)
            return answers.count_labels_since(connection, "" if model is None else model.trained)

    def _why(
        self, path: str, campaign: Campaign, items: Sequence[str], state: RoundState | None
    ) -> dict[str, Any]:
        """Return, of each item not told of yet, the probability of each class and the labelled items nearest to it."""
        with campaign.database.reading() as connection:
            current = campaign.repository.models.newest_version(connection)
        version, told = self._told.get(path, (-1, set()))
        if current != version:
            told = set()
        self._told[path] = (current, told)
        new = [item for item in items if item not in told]
        if not new:
            return {}
        told.update(new)
        state = state or campaign.load_state()
        places = {key: k for k, key in enumerate(state.keys)}
        rows = [places[item] for item in new if item in places]
        near, chances = _nearest(state, rows), _chances(state, rows)
        with campaign.database.reading() as connection:
            shown = campaign.repository.items.by_id(
                connection, list({key for found in near for key, _ in found})
            )
        why: dict[str, Any] = {}
        for k, row in enumerate(rows):
            neighbours = [
                {"item": key, "label": label, "content": (shown[key].content or "")[:200]}
                for key, label in near[k]
            ]
            why[state.keys[row]] = {"probabilities": chances[k], "neighbours": neighbours}
        return why


def _nearest(state: RoundState, rows: Sequence[int]) -> list[list[tuple[str, str]]]:
    """Return the labelled items that are nearest to rows by cosine, with their labels."""
    labelled = np.array(sorted(set(state.labels) - set(rows)), dtype=np.int64)
    if not len(labelled):
        return [[] for _ in rows]
    ours, theirs = (_directions(state.features[part]) for part in (np.asarray(rows), labelled))
    order = np.argsort(-(ours @ theirs.T), axis=1)[:, :_NEIGHBOURS]
    return [[(state.keys[k], state.labels[int(k)]) for k in labelled[line]] for line in order]


def _directions(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1), dtype=np.float32)


def _chances(state: RoundState, rows: Sequence[int]) -> list[list[tuple[str, float]]]:
    """Return classes and their probabilities by the kept head, the most probable first; none without one."""
    kept = {} if state.weights is None else load(state.weights)
    if "weight" not in kept or kept["weight"].shape[1] != state.features.shape[1]:
        return [[] for _ in rows]
    logits = state.features[list(rows)] @ kept["weight"].T + kept["bias"]
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    odds /= odds.sum(axis=1, keepdims=True)
    names = [state.classes[k] for k in kept["seen"]]
    return [
        sorted(
            ((name, round(float(p), 4)) for name, p in zip(names, line, strict=True)),
            key=lambda one: -one[1],
        )
        for line in odds
    ]


JOBS = ("look", "prepare", "train", "suspects", "export", "chart", "make")
"""What the trainer can be asked for, each a method of the workbench."""
