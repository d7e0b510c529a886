"""The learner: ask for rows, tell their labels, fit, and ask again. Every loop in teeter is this one."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from teeter.arrays import choose_device
from teeter.errors import FileError, InputError
from teeter.files import load_weights, merge_arrays, read_state, split_arrays, write_state
from teeter.label_encoding import as_list, as_row_indices, class_array, class_names, encode_labels
from teeter.models.inputs import count_rows, flat_rows, take_rows
from teeter.models.observe import is_estimator, is_network, observe
from teeter.models.outputs import Outputs
from teeter.models.posterior import PASSES
from teeter.models.sklearn_model import classes_of, clone_with_seed
from teeter.models.skorch_model import disable_train_split
from teeter.pool import Pool
from teeter.seeds import seeded_global_rng, stream
from teeter.strategies.api import make_strategy, strategy_options
from teeter.strategies.base import Context, Strategy, registry
from teeter.training.config import FitJob, Trainer, TrainingConfig
from teeter.training.loop import Evaluation, evaluate_logits, fit_estimator, fit_learners

__all__ = ["Learner"]

Rows = npt.NDArray[np.int64]

logger = logging.getLogger("teeter")


class Learner:
    """A model, a pool and a strategy: ``ask``, ``tell``, ``fit``, ``predict``, ``evaluate``, ``save`` and ``load``.

    Labels come in through ``tell`` alone, so no strategy can see one that was not told. Nothing is trained behind the
    caller's back: ``ask`` uses the model of the last ``fit``, and asked twice it answers the same.
    """

    def __init__(
        self,
        make_model: Callable[[int], Any] | Any,
        data: Any,
        strategy: str | Strategy = "ldm-s",
        *,
        classes: int | Sequence[Any],
        seed: int = 0,
        training: TrainingConfig | Trainer | None = None,
        validation: tuple[Any, Iterable[Any]] | None = None,
        pool_size: int | None = None,
        cold_start: str | Strategy = "random",
        members: int = 5,
        passes: int = PASSES,
        batch_size: int = 1024,
        device: torch.device | str | None = None,
        head: str | None = None,
    ) -> None:
        """Set up a learner that knows no label yet.

        Args:
            make_model: a callable from a seed to a new torch module or scikit-learn classifier; or a classifier to
                clone. It is called anew at every fit.
            data: the pool; anything that ``teeter.observe`` takes, but a data loader.
            strategy: a name or a strategy.
            classes: their names, or how many there are.
            seed: decides starts, training orders, pool draws and picks.
            training: how torch modules are trained: by our loop, or in a way of your own (``CustomTraining``).
            validation: data and labels; the epoch that is right on most of them is kept.
            pool_size: draw that many candidates at every ask, as the paper does; all of them if left out.
            cold_start: the strategy while there is no model; it sees the raw data as features.
            members: networks of an ensemble, trained only for a strategy that needs them.
            passes: dropout passes, made only for a strategy that needs them.
            batch_size: rows at a time when a torch module is observed.
            device: where torch modules live; a GPU if there is one.
            head: the name of the module's last linear layer, where it cannot be found by itself.
        """
        self.make_model = make_model
        self.data = data
        self.strategy = make_strategy(strategy)
        self.cold_start = make_strategy(cold_start)
        self.classes = class_names(classes)
        self.seed = seed
        self.training = training or TrainingConfig()
        self.pool_size = pool_size
        self.members, self.passes, self.batch_size = members, passes, batch_size
        self.device = choose_device(device)
        self.head = head
        self._check_settings()
        self.pool = Pool(count_rows(data))
        self.models: list[Any] = []
        self.rounds = 0
        """How often the learner was fitted."""
        self.memory: dict[str, Any] = {}
        """What the strategy remembers of the rounds before; what it adds at an ask is kept from the next fit on."""
        self._added: dict[str, Any] = {}
        self.notes: dict[int, dict[str, float]] = {}
        """For each row of the last ask, what the strategy found out about it."""
        self.seconds: dict[str, float] = {}
        """How long the last training, validation, outputs and selection took."""
        self.fitted: tuple[Rows, Rows] = (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
        """The rows and classes of the last fit."""
        self._begun = self.fitted
        self.validated: float | None = None
        """The best share of validation rows that the model of the last fit was right on."""
        self.validation = None if validation is None else self._encoded(*validation)

    def ask(self, n: int, *, exclude: Iterable[int] = ()) -> Rows:
        """Return the n rows to label next, best first; rows in ``exclude`` are passed over."""
        candidates = self._drawn(self.pool.candidates(as_row_indices(as_list(exclude)).tolist()))
        if len(candidates) == 0:
            raise InputError(
                f"No row is left to ask about: {len(self.pool.labelled)} of {len(self.pool)} are labelled."
            )
        strategy = self._strategy_now()
        started = time.perf_counter()
        context = self._context(candidates, strategy)
        self.seconds["outputs"] = time.perf_counter() - started
        started = time.perf_counter()
        rows = strategy.select(context, n)
        self.seconds["selection"] = time.perf_counter() - started
        self.notes, self._added = _notes_by_row(context, rows), context.memory
        return rows

    def tell(self, rows: Iterable[int] | int, labels: Iterable[Any] | Any) -> None:
        """Record the labels of rows, by class name; a row that has one gets the new one."""
        told, classes = as_row_indices(as_list(rows)), encode_labels(as_list(labels), self.classes)
        if len(told) != len(classes):
            raise InputError(
                f"There are {len(told)} rows and {len(classes)} labels: tell one label a row."
            )
        if len(np.unique(told)) < len(told):
            raise InputError("A row is told twice in one call: tell each row once.")
        self.pool.label(told, classes)

    def fit(self) -> None:
        """Train a new model on all labelled rows."""
        for error in fit_learners([self]).values():
            raise error

    def begin_round(self) -> list[FitJob]:
        """Return a lesson for each model of the next round: none where no model can learn from a single class."""
        rows, classes = self.pool.labelled, self.pool.labels
        if len(rows) == 0:
            raise InputError("There is nothing to fit: tell some labels first.")
        self._begun = rows, classes
        return self._lessons(rows, classes, self.rounds + 1)

    def _lessons(self, rows: Rows, classes: Rows, number: int) -> list[FitJob]:
        count = self.members if "ensemble_logits" in self.strategy.needs else 1
        seeds = [
            stream(self.seed, "model", number, member).initial_seed() % 2**32
            for member in range(count)
        ]
        models = [self._new_model(seed) for seed in seeds]
        if not is_network(models[0]) and len(np.unique(classes)) < 2:
            logger.info(
                "Only one class is labelled: %s picks until there are two.", self.cold_start.name
            )
            return []
        inputs, labels = take_rows(self.data, rows), torch.from_numpy(classes)
        return [
            FitJob(m, inputs, labels, seed, self.validation)
            for m, seed in zip(models, seeds, strict=True)
        ]

    def end_round(self, lessons: list[FitJob]) -> None:
        """Take over the trained models, and with them the next round begins."""
        self.models = [lesson.model for lesson in lessons]
        self.fitted, self.memory = self._begun, copy.deepcopy(self._added)
        self.rounds += 1
        self.validated = lessons[0].validated if lessons else None
        kinds = ("training", "validation")
        self.seconds = {
            kind: sum(lesson.seconds.get(kind, 0.0) for lesson in lessons) for kind in kinds
        }

    @property
    def remembered(self) -> dict[str, Any]:
        """What the strategy will remember from the next fit on."""
        return self._added

    def go_on(self, rounds: int, remembered: dict[str, Any]) -> None:
        """Continue as if fitted so many times, with what the strategy remembered; the next fit is the next round."""
        self.rounds, self._added = rounds, remembered

    def predict(self, rows: Iterable[int] | None = None) -> npt.NDArray[Any]:
        """Return the predicted class names of rows of the pool; of all of them if left out."""
        wanted = (
            np.arange(len(self.pool))
            if rows is None
            else self.pool.checked(as_row_indices(as_list(rows)))
        )
        logits = self._all_classes(
            _logits_of(self.observe(take_rows(self.data, wanted), ("logits",)))
        )
        predicted: npt.NDArray[Any] = class_array(self.classes)[logits.argmax(dim=1).numpy()]
        return predicted

    def evaluate(self, data: Any, labels: Iterable[Any]) -> Evaluation:
        """Return how right the model is on rows of its own, which are not of the pool."""
        classes = torch.from_numpy(encode_labels(labels, self.classes))
        if count_rows(data) != len(classes):
            raise InputError(
                f"There are {count_rows(data)} rows and {len(classes)} labels: one a row is needed."
            )
        if len(classes) == 0:
            raise InputError("Cannot evaluate on no rows.")
        outputs = self.observe(data, ("logits",))
        posterior = outputs.posterior_logits if len(self.models) > 1 else None
        spread = (
            None
            if posterior is None
            else torch.stack([self._all_classes(one.cpu()) for one in posterior])
        )
        return evaluate_logits(self._all_classes(_logits_of(outputs)), classes, spread)

    def observe(self, data: Any, needs: Iterable[str]) -> Outputs:
        """Return what the model of the last fit tells of ``data``."""
        if not self.models:
            raise InputError("There is no model yet: tell labels of two classes or more, and fit.")
        outputs = observe(
            self.models if len(self.models) > 1 else self.models[0],
            data,
            tuple(need for need in needs if need != "labelled"),
            batch_size=self.batch_size,
            seed=stream(self.seed, "dropout", self.rounds).initial_seed() % 2**32,
            head=self.head,
            passes=self.passes,
        )
        if is_network(self.models[0]) and outputs.n_classes != len(self.classes):
            raise InputError(
                f"The network tells of {outputs.n_classes} classes, and there are {len(self.classes)}."
            )
        return outputs

    def save(self, path: str | Path) -> None:
        """Write settings, labels, networks and memory to one file, whole or not at all."""
        tensors = {
            "labelled.rows": torch.from_numpy(self.pool.labelled),
            "labelled.classes": torch.from_numpy(self.pool.labels),
            "fitted.rows": torch.from_numpy(self.fitted[0]),
            "fitted.classes": torch.from_numpy(self.fitted[1]),
        }
        for k, model in enumerate(self.models):
            if isinstance(model, nn.Module):
                tensors |= {
                    f"model.{k}.{name}": value for name, value in model.state_dict().items()
                }
        memory, kept = split_arrays(self.memory, "memory.")
        added, new = split_arrays(self._added, "added.")
        header = {
            "settings": self._settings(),
            "size": len(self.pool),
            "rounds": self.rounds,
            "models": len(self.models),
            "memory": memory,
            "added": added,
        }
        write_state(Path(path), header, tensors | kept | new)

    @classmethod
    def load(
        cls,
        path: str | Path,
        make_model: Callable[[int], Any] | Any,
        data: Any,
        *,
        validation: tuple[Any, Iterable[Any]] | None = None,
        training: Trainer | None = None,
        device: torch.device | str | None = None,
    ) -> Learner:
        """Return a saved learner, which goes on with the same picks.

        Models, data and a training of one's own are the caller's to give again. Networks get their saved weights;
        estimators, which cannot be written without running code on reading, are fitted again to the same rows with the
        same seed.
        """
        header, tensors = read_state(Path(path))
        if "settings" not in header:
            raise FileError(f"{path} is not a saved learner: it has no settings.")
        settings: dict[str, Any] = header["settings"]
        kept = settings["training"]
        if (kept is None) != (training is not None):
            raise InputError(
                f"{path} was saved with {'a training of its own' if kept is None else 'our training'}: "
                f"{'give it again by' if kept is None else 'leave out'} training=."
            )
        settings["training"] = training if kept is None else TrainingConfig(**kept)
        for name in ("strategy", "cold_start"):
            settings[name] = make_strategy(*settings[name])
        learner = cls(make_model, data, validation=validation, device=device, **settings)
        if len(learner.pool) != header["size"]:
            raise InputError(
                f"{path} was saved with {header['size']} rows, and the data has {len(learner.pool)}."
            )
        learner.pool.label(tensors["labelled.rows"].numpy(), tensors["labelled.classes"].numpy())
        learner.fitted = tensors["fitted.rows"].numpy(), tensors["fitted.classes"].numpy()
        learner.rounds = header["rounds"]
        learner.memory = merge_arrays(header["memory"], tensors, "memory.")
        learner._added = merge_arrays(header["added"], tensors, "added.")
        if header["models"]:
            learner._restore(tensors)
        return learner

    def _settings(self) -> dict[str, Any]:
        return {
            "strategy": (_registered_name(self.strategy), strategy_options(self.strategy)),
            "cold_start": (_registered_name(self.cold_start), strategy_options(self.cold_start)),
            "classes": self.classes,
            "seed": self.seed,
            "training": asdict(self.training)
            if isinstance(self.training, TrainingConfig)
            else None,
            "pool_size": self.pool_size,
            "members": self.members,
            "passes": self.passes,
            "batch_size": self.batch_size,
            "head": self.head,
        }

    def _restore(self, tensors: dict[str, Tensor]) -> None:
        lessons = self._lessons(*self.fitted, self.rounds)
        for k, lesson in enumerate(lessons):
            if isinstance(lesson.model, nn.Module):
                load_weights(lesson.model, tensors, f"model.{k}.")
            else:
                fit_estimator(lesson)
        self.models = [lesson.model for lesson in lessons]

    def _strategy_now(self) -> Strategy:
        if self.models or not self.strategy.needs:
            return self.strategy
        if len(self.pool.labelled) and not self.rounds:
            raise InputError(
                f"There are {len(self.pool.labelled)} labels and no model yet: call fit before ask."
            )
        return self.cold_start

    def _drawn(self, candidates: Rows) -> Rows:
        """Return ``pool_size`` of the candidates, drawn anew each round; all where that is not set."""
        if self.pool_size is None or self.pool_size >= len(candidates):
            return candidates
        # Learners of one seed draw alike, as far as the same rows are free.
        order = torch.randperm(
            len(self.pool), generator=stream(self.seed, "pool", self.rounds)
        ).numpy()
        free = np.zeros(len(self.pool), dtype=bool)
        free[candidates] = True
        return np.sort(order[free[order]][: self.pool_size])

    def _context(self, candidates: Rows, strategy: Strategy) -> Context:
        generator, memory = stream(self.seed, "select", self.rounds), copy.deepcopy(self.memory)
        if not self.models:
            outputs = (
                Outputs(features=flat_rows(take_rows(self.data, candidates)))
                if strategy.needs
                else _blank(candidates)
            )
            classes = len(self.classes)
            return Context(
                candidates=candidates,
                outputs=outputs,
                generator=generator,
                n_classes=classes,
                memory=memory,
            )
        outputs = (
            self.observe(take_rows(self.data, candidates), strategy.needs)
            if strategy.needs
            else _blank(candidates)
        )
        context = Context(
            candidates=candidates,
            outputs=outputs,
            generator=generator,
            n_classes=outputs.n_classes or len(self.classes),
            memory=memory,
        )
        if "labelled" not in strategy.needs | strategy.uses:
            return context
        rows, columns = self._known_to_model(self.pool.labelled, self.pool.labels)
        labelled = self.observe(take_rows(self.data, rows), strategy.needs).with_logits()
        return replace(context, labelled=labelled, labels=columns.to(outputs.device))

    def _new_model(self, seed: int) -> Any:
        if is_estimator(self.make_model):
            return self._to_learn_from_all(clone_with_seed(self.make_model, seed))
        if isinstance(self.make_model, nn.Module) or not callable(self.make_model):
            raise InputError(
                f"make_model is a {type(self.make_model).__name__}: give a function from a seed to a new model "
                "(lambda seed: mlp(64, 10, seed=seed)), or a scikit-learn classifier."
            )
        with seeded_global_rng(
            seed, self.device
        ):  # so that a model that ignores its seed follows the learner's all the same
            model = self.make_model(seed)
        if not isinstance(model, nn.Module) and not is_estimator(model):
            raise InputError(
                f"make_model made a {type(model).__name__}: a torch module or a classifier is needed."
            )
        return (
            model.to(self.device)
            if isinstance(model, nn.Module)
            else self._to_learn_from_all(model)
        )

    def _to_learn_from_all(self, estimator: Any) -> Any:
        if disable_train_split(estimator) and not self.rounds:
            logger.info(
                "skorch would hold back every fifth labelled row: train_split=None is set, to learn from all."
            )
        return estimator

    def _all_classes(self, logits: Tensor) -> Tensor:
        """Return logits with a column for every class; those that an estimator has not seen are never the largest."""
        if is_network(self.models[0]):
            return logits
        columns = torch.from_numpy(classes_of(self.models[0]).astype(np.int64))
        spread = torch.full(
            (len(logits), len(self.classes)), float(logits.min()) - 50, dtype=logits.dtype
        )
        spread[:, columns] = logits
        return spread

    def _known_to_model(self, rows: Rows, classes: Rows) -> tuple[Rows, Tensor]:
        """Return the rows whose class the model has seen, and those classes as columns of its outputs."""
        if is_network(self.models[0]):
            return rows, torch.from_numpy(classes)
        seen = classes_of(self.models[0])
        known = np.isin(classes, seen)
        return rows[known], torch.from_numpy(np.searchsorted(seen, classes[known]))

    def _encoded(self, data: Any, labels: Iterable[Any]) -> tuple[Any, Tensor]:
        rows, classes = count_rows(data), encode_labels(labels, self.classes)
        if rows != len(classes) or not rows:
            raise InputError(
                f"There are {rows} validation rows and {len(classes)} labels: one a row is needed."
            )
        return data, torch.from_numpy(classes)

    def _check_settings(self) -> None:
        if isinstance(self.data, DataLoader):
            raise InputError(
                "The pool is a data loader, whose rows cannot be picked out: give its dataset."
            )
        if isinstance(self.seed, bool) or not isinstance(self.seed, int | np.integer):
            raise InputError(f"The seed is {self.seed!r}: give a whole number.")
        for name, least in (("pool_size", 1), ("members", 2), ("passes", 1), ("batch_size", 1)):
            if getattr(self, name) is not None and getattr(self, name) < least:
                raise InputError(f"{name} is {getattr(self, name)}: it must be {least} or more.")


def _registered_name(strategy: Strategy) -> str:
    name = registry.name_of(type(strategy))
    if name is None:
        raise InputError(
            f"{strategy.name} could not be found again by its name: file it with teeter.strategies.register to save it."
        )
    return name


def _logits_of(outputs: Outputs) -> Tensor:
    logits = outputs.with_logits().logits
    if logits is None:
        raise InputError("This model gives no logits, so it predicts nothing.")
    return logits.cpu()


def _blank(candidates: Rows) -> Outputs:
    """Return outputs that tell nothing, for a strategy that needs nothing."""
    return Outputs(features=torch.zeros(len(candidates), 1))


def _notes_by_row(context: Context, rows: Rows) -> dict[int, dict[str, float]]:
    places = {row: place for place, row in enumerate(context.candidates.tolist())}
    notes = {name: values.cpu() for name, values in context.notes.items()}
    return {
        row: {name: float(values[places[row]]) for name, values in notes.items()}
        for row in rows.tolist()
    }
