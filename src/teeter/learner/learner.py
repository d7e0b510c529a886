"""The learner: ask for rows, tell their labels, fit a model, and ask again.

Every active-learning loop in teeter is this one: an experiment is a learner with an oracle, a
campaign is a learner with a database.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from teeter.base.arrays import choose_device
from teeter.base.files import load_weights, merge_arrays, read_state, split_arrays, write_state
from teeter.base.seeds import seeded_global_rng, stream, validate_seed
from teeter.errors import FileError, InputError, TeeterError
from teeter.learner.pool import Pool
from teeter.models.inputs import count_rows, flat_rows, take_rows
from teeter.models.label_encoding import (
    as_list,
    as_row_indices,
    class_array,
    class_names,
    encode_labels,
    is_whole_numbers,
)
from teeter.models.observe import is_estimator, is_estimator_class, is_network, observe
from teeter.models.outputs import Outputs
from teeter.models.posterior import PASSES
from teeter.models.sklearn_model import classes_of, clone_with_seed, require_classifier
from teeter.models.skorch_model import disable_train_split
from teeter.strategies.api import make_strategy, strategy_options
from teeter.strategies.base import Context, Strategy, registry
from teeter.training import (
    Evaluation,
    FitJob,
    FitResult,
    Trainer,
    TrainingConfig,
    evaluate_logits,
    explain_unusable_rows,
    fit_estimator,
    fit_jobs,
)

__all__ = ["Learner", "fit_learners"]

RowArray = npt.NDArray[np.int64]

_UNSEEN_CLASS_MARGIN = 50
"""How far the logit of a class that an estimator has not seen lies below all others."""

logger = logging.getLogger("teeter")


class Learner:
    """A pool, a strategy and a model: ``ask``, ``tell``, ``fit``, ``predict``, ``evaluate``.

    Labels come in through ``tell`` only, so a strategy can never see the label of a candidate.
    Nothing is trained implicitly: ``ask`` uses the model of the last ``fit``, and asking twice
    gives the same rows.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.linear_model import LogisticRegression
        >>> rows, classes = load_iris(return_X_y=True)
        >>> learner = Learner(LogisticRegression(max_iter=1000), rows, "margin", classes=3)
        >>> for _ in range(3):
        ...     picks = learner.ask(10)
        ...     learner.tell(picks, classes[picks])  # an annotator would answer here
        ...     learner.fit()
        >>> len(learner.pool.labelled)
        30
        >>> learner.evaluate(rows, classes).accuracy > 0.8
        True
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
        """Create a learner without labels.

        Args:
            make_model: a function from a seed to a new torch module or scikit-learn classifier, or
                a classifier to clone. Every fit starts from a new model.
            data: the pool: anything that ``teeter.observe`` takes, except a data loader.
            strategy: the name of a strategy, or a strategy.
            classes: the names of the classes, or their number.
            seed: decides initial weights, training order, pool subsets and picks.
            training: how torch modules are trained: a configuration of the built-in loop, or a
                ``Trainer``.
            validation: data and labels that choose the epoch whose weights are kept.
            pool_size: the number of candidates drawn at random for each ask, as in the LDM paper.
                Default: all candidates.
            cold_start: the strategy used while there is no model. It sees the raw data as features.
            members: networks in an ensemble, trained only if the strategy needs one.
            passes: dropout passes, computed only if the strategy needs them.
            batch_size: rows per batch when outputs of a torch module are computed.
            device: where torch modules are trained. Default: a GPU if there is one.
            head: the name of the module's last linear layer, if it cannot be found automatically.

        Raises:
            InputError: if an argument is out of range, or the pool cannot be indexed by row.
        """
        self.make_model = make_model
        self.data = data
        self.strategy = make_strategy(strategy)
        self.cold_start = make_strategy(cold_start)
        self.classes = class_names(classes)
        self.seed = validate_seed(seed)
        self.training = training or TrainingConfig()
        self.pool_size = pool_size
        self.members = members
        self.passes = passes
        self.batch_size = batch_size
        self.device = choose_device(device)
        self.head = head
        self._require_valid_settings()

        self.pool = Pool(count_rows(data))
        self.validation: tuple[Any, Tensor] | None = None
        if validation is not None:
            validation_data, validation_labels = validation
            self.validation = self._encode_validation(validation_data, validation_labels)

        # Changed by finish_fit, all at once, and by resume.
        self._models: list[Any] = []
        self._rounds = 0
        self._memory: dict[str, Any] = {}
        self._validation_accuracy: float | None = None

        # Changed by ask; resume brings back the memory.
        self._pending_memory: dict[str, Any] = {}
        self._notes: dict[int, dict[str, float]] = {}

        # Changed by whatever takes time.
        self._seconds: dict[str, float] = {}

        # (L,) what prepare_fit took from the pool; finish_fit makes them the training rows.
        no_rows: RowArray = np.zeros(0, dtype=np.int64)
        self._prepared_rows = no_rows
        self._prepared_classes = no_rows
        self._training_rows = no_rows
        self._training_classes = no_rows

    @property
    def models(self) -> list[Any]:
        """The models of the last fit: one, an ensemble, or none before the first fit."""
        return list(self._models)

    @property
    def rounds(self) -> int:
        """How many times the learner was fitted."""
        return self._rounds

    @property
    def training_rows(self) -> RowArray:
        """(L,) the rows of the pool that the last fit used."""
        return self._training_rows

    @property
    def training_classes(self) -> RowArray:
        """(L,) the class numbers of ``training_rows`` at the last fit."""
        return self._training_classes

    @property
    def validation_accuracy(self) -> float | None:
        """The accuracy of the last fit's best epoch on the validation rows, if there are any."""
        return self._validation_accuracy

    @property
    def memory(self) -> dict[str, Any]:
        """What the strategy remembers of earlier rounds. Every ask shows it a copy."""
        return dict(self._memory)

    @property
    def pending_memory(self) -> dict[str, Any]:
        """The memory that the strategy left at the last ask. It becomes ``memory`` at the next fit.

        It is kept apart until then, so that asking twice gives the same rows.
        """
        return dict(self._pending_memory)

    @property
    def notes(self) -> dict[int, dict[str, float]]:
        """For each row of the last ask, values that the strategy reported about it, by name."""
        return self._notes

    @property
    def seconds(self) -> dict[str, float]:
        """Wall-clock seconds of each phase since the last fit began.

        The phases are training, validation, evaluation, outputs and selection. A phase that has not
        run since is missing.
        """
        return dict(self._seconds)

    def ask(self, n: int, *, exclude: Iterable[int] = ()) -> RowArray:
        """Choose the rows to label next.

        Args:
            n: the number of rows.
            exclude: rows that must not be chosen, for example because they wait for an answer.

        Returns:
            (n,) rows of the pool, best first.

        Raises:
            InputError: if fewer than n candidates are left, or there are labels but no model yet.
        """
        excluded_rows = as_row_indices(as_list(exclude)).tolist()
        all_candidates = self.pool.candidates(excluded_rows)
        candidates = self._draw_candidates(all_candidates)
        if len(candidates) == 0:
            labelled_count = len(self.pool.labelled)
            raise InputError(
                f"No rows are left to ask about: {labelled_count} of {len(self.pool)} are labelled."
            )
        strategy = self._current_strategy()

        # Outputs and selection are timed apart: the first depends on the model, the second on the
        # strategy.
        started = time.perf_counter()
        context = self._build_context(candidates, strategy)
        self._seconds["outputs"] = time.perf_counter() - started

        started = time.perf_counter()
        rows = strategy.select(context, n)
        self._seconds["selection"] = time.perf_counter() - started

        self._notes = _notes_by_row(context, rows)
        self._pending_memory = context.memory
        return rows

    def tell(self, rows: Iterable[int] | int, labels: Iterable[Any] | Any) -> None:
        """Record the labels of rows. A label told again replaces the old one.

        Args:
            rows: rows of the pool, or one row.
            labels: a class name for each row.

        Raises:
            InputError: if a row or class does not exist, or their numbers differ. Nothing is
                recorded then.
        """
        row_indices = as_row_indices(as_list(rows))
        classes = encode_labels(as_list(labels), self.classes, rows=row_indices)

        row_count = len(row_indices)
        if row_count != len(classes):
            raise InputError(
                f"There are {row_count} rows and {len(classes)} labels: give one label per row."
            )
        if len(np.unique(row_indices)) < row_count:
            raise InputError("A row occurs twice in this call: give each row once.")

        self.pool.label(row_indices, classes)

    def fit(self) -> None:
        """Train a new model on all labelled rows.

        If only one class is labelled, a scikit-learn classifier cannot be trained: there is then no
        model, and the cold start continues to choose rows.

        Raises:
            InputError: if no row is labelled, or the data contain values the model cannot take.
            TrainingError: if the model cannot be trained. The last model and round are kept.
        """
        jobs = self.prepare_fit()
        results = fit_jobs(jobs, self.training)
        self.finish_fit(results)

    def prepare_fit(self) -> list[FitJob]:
        """Return a job for each model of the next round.

        ``fit`` is this, then ``teeter.training.fit_jobs``, then ``finish_fit``. Call the three
        yourself to train the models of several learners at once, as ``fit_learners`` does.

        Raises:
            InputError: if no row is labelled.
        """
        rows = self.pool.labelled
        classes = self.pool.labels
        if len(rows) == 0:
            raise InputError("There is nothing to fit: call tell with some labels first.")

        jobs = self._make_jobs(rows, classes, self._rounds + 1)
        self._prepared_rows = rows
        self._prepared_classes = classes
        return jobs

    def finish_fit(self, results: Sequence[FitResult]) -> None:
        """Adopt the models that training the jobs of ``prepare_fit`` gave, and begin a new round.

        Raises:
            TeeterError: the error of the first result that has one. Nothing changes then.
        """
        for result in results:
            if result.error is not None:
                raise result.error

        self._models = [result.model for result in results]
        self._rounds += 1
        self._training_rows = self._prepared_rows
        self._training_classes = self._prepared_classes
        # A copy: what the strategy remembers must not change if it is asked again.
        self._memory = copy.deepcopy(self._pending_memory)

        # No results: there is only one class, and no model. Of an ensemble the first member counts.
        self._validation_accuracy = None
        if results:
            self._validation_accuracy = results[0].validation_accuracy

        self._seconds = {}
        for phase in ("training", "validation"):
            seconds = [result.seconds.get(phase, 0.0) for result in results]
            self._seconds[phase] = sum(seconds)

    def resume(
        self,
        rounds: int,
        memory: dict[str, Any],
        models: Sequence[Any] | None = None,
    ) -> None:
        """Continue an earlier run from what was recorded about it.

        Tell the labels as usual. The next fit is then round ``rounds`` + 1, with the same random
        numbers as if the learner had been fitted ``rounds`` times.

        Args:
            rounds: the number of fits so far.
            memory: the ``pending_memory`` of the strategy after the last ask.
            models: trained models to continue with. Default: those the learner has.
        """
        self._rounds = rounds
        self._pending_memory = memory
        if models is not None:
            self._models = list(models)

    def predict(self, data: Any = None, *, rows: Any = None) -> npt.NDArray[Any]:
        """Return the predicted class names of new data, or of rows of the pool.

        Args:
            data: new data in the same form as the pool.
            rows: row numbers of the pool, instead of data. Default: all rows of the pool.

        Raises:
            InputError: if there is no model yet, the data contain values it cannot take, or both
                data and rows are given.
        """
        class_numbers = self._predict_logits(data, rows).argmax(dim=1).numpy()
        predictions: npt.NDArray[Any] = class_array(self.classes)[class_numbers]
        return predictions

    def predict_proba(self, data: Any = None, *, rows: Any = None) -> npt.NDArray[np.float64]:
        """Return the probability of each class for new data, or for rows of the pool.

        Args:
            data: new data in the same form as the pool.
            rows: row numbers of the pool, instead of data. Default: all rows of the pool.

        Returns:
            (N, C), with columns in the order of ``classes``. They are those of the model, which
            may be too sure of itself.

        Raises:
            InputError: as for ``predict``.
        """
        probabilities: npt.NDArray[np.float64]
        probabilities = self._predict_logits(data, rows).double().softmax(dim=1).numpy()
        return probabilities

    def evaluate(
        self,
        data: Any = None,
        labels: Iterable[Any] | None = None,
        *,
        rows: Any = None,
    ) -> Evaluation:
        """Measure the model on labelled rows, which should not be among those it was trained on.

        Args:
            data: new data in the same form as the pool.
            labels: a class name for each row.
            rows: row numbers of the pool, instead of data. Default: all rows of the pool.

        Raises:
            InputError: if there is no model yet, rows and labels differ in number, or both data and
                rows are given.
        """
        if labels is None:
            raise InputError("Cannot evaluate a model without labels: give one label per row.")

        started = time.perf_counter()
        classes = torch.from_numpy(encode_labels(labels, self.classes))
        data = self._take_data(data, rows)
        row_count = count_rows(data)
        if row_count != len(classes):
            raise InputError(
                f"There are {row_count} rows and {len(classes)} labels: give one label per row."
            )
        if row_count == 0:
            raise InputError("Cannot evaluate a model on 0 rows.")

        outputs = self.observe(data, ("logits",))
        logits = self._with_all_classes(_require_logits(outputs))
        # Of an ensemble only: a forest has a posterior too, and is a single model.
        posterior = None
        if len(self._models) > 1 and outputs.posterior_logits is not None:
            members = outputs.posterior_logits.cpu()  # (S, N, classes seen)
            posterior = torch.stack([self._with_all_classes(member) for member in members])

        evaluation = evaluate_logits(logits, classes, posterior)
        self._seconds["evaluation"] = time.perf_counter() - started
        return evaluation

    def observe(self, data: Any, needs: Iterable[str]) -> Outputs:
        """Return the outputs of the last fit's model for ``data``.

        Args:
            data: rows in the same form as the pool.
            needs: the outputs wanted, as in ``teeter.observe``.

        Raises:
            InputError: if there is no model yet, or the data contain values it cannot take.
        """
        if not self._models:
            raise InputError(
                "There is no model yet: call tell with labels of at least two classes, then fit."
            )

        first_model = self._models[0]
        model = first_model
        if len(self._models) > 1:
            model = self._models  # observed as an ensemble
        dropout_stream = stream(self.seed, "dropout", self._rounds)

        # What is labelled is for the pool to say, not for the model.
        model_needs = tuple(need for need in needs if need != "labelled")
        try:
            outputs = observe(
                model,
                data,
                model_needs,
                batch_size=self.batch_size,
                seed=_small_seed(dropout_stream),
                head=self.head,
                passes=self.passes,
            )
        except TeeterError:
            raise
        except (TypeError, ValueError):
            # scikit-learn raises these for NaN and text, in words that do not name the rows.
            problem = None
            if is_estimator(first_model):
                problem = explain_unusable_rows(data, first_model)
            if problem is None:
                raise
            raise InputError(problem) from None

        # Outputs of an estimator have a column per class it has seen, those of a network one per
        # unit of its last layer.
        class_count = len(self.classes)
        if is_network(first_model) and outputs.n_classes not in (None, class_count):
            raise InputError(
                f"The network has {outputs.n_classes} outputs, but there are {class_count} "
                f"classes: change its last layer."
            )
        return outputs

    def save(self, path: str | Path) -> None:
        """Write settings, labels, networks and memory to one file.

        The file is replaced only when it is complete. Estimators are not written: ``load`` fits
        them again.

        Raises:
            FileError: if the file cannot be written.
            InputError: if the strategy is not registered, or its memory cannot be written.
        """
        # The names of tensors and header entries are the file format: "fitted" are the training
        # rows, "added" is the pending memory.
        tensors = {
            "labelled.rows": torch.from_numpy(self.pool.labelled),
            "labelled.classes": torch.from_numpy(self.pool.labels),
            "fitted.rows": torch.from_numpy(self._training_rows),
            "fitted.classes": torch.from_numpy(self._training_classes),
        }
        for position, model in enumerate(self._models):
            if isinstance(model, nn.Module):
                for name, value in model.state_dict().items():
                    tensors[f"model.{position}.{name}"] = value

        memory, memory_tensors = split_arrays(self._memory, "memory.")
        pending_memory, pending_tensors = split_arrays(self._pending_memory, "added.")
        tensors.update(memory_tensors)
        tensors.update(pending_tensors)
        header = {
            "settings": self._settings(),
            "size": len(self.pool),
            "rounds": self._rounds,
            "models": len(self._models),
            "memory": memory,
            "added": pending_memory,
        }
        write_state(Path(path), header, tensors)

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
        """Return a learner that ``save`` wrote. It continues with the same picks.

        Networks get their saved weights. Estimators are fitted again to the same rows with the same
        seed, because a file that restores them could run any code.

        Args:
            path: the file.
            make_model: as when the learner was created.
            data: the same pool.
            validation: the same validation rows, if there were any.
            training: the same ``Trainer``, if there was one. A ``TrainingConfig`` is in the file.
            device: where torch modules are trained. Default: a GPU if there is one.

        Raises:
            FileError: if the file cannot be read, or is not a saved learner.
            InputError: if the data, the model or the training do not match the file.
        """
        header, tensors = read_state(Path(path))
        if "settings" not in header:
            raise FileError(f"{path} is not a saved learner: it has no settings.")

        settings: dict[str, Any] = header["settings"]
        saved_training = settings["training"]
        if saved_training is None and training is None:
            raise InputError(
                f"{path} was saved with a custom trainer: pass that trainer again as training=."
            )
        if saved_training is not None and training is not None:
            raise InputError(
                f"{path} was saved with the built-in training loop: leave out training=."
            )
        if saved_training is not None:
            settings["training"] = TrainingConfig(**saved_training)
        else:
            settings["training"] = training

        # Strategies are written as their name and options.
        for name in ("strategy", "cold_start"):
            strategy_name, options = settings[name]
            settings[name] = make_strategy(strategy_name, options)
        learner = cls(make_model, data, validation=validation, device=device, **settings)
        if len(learner.pool) != header["size"]:
            raise InputError(
                f"{path} was saved with {header['size']} rows, but the data have "
                f"{len(learner.pool)}: load it with the same pool."
            )

        labelled_rows = tensors["labelled.rows"].numpy()
        labelled_classes = tensors["labelled.classes"].numpy()
        learner.pool.label(labelled_rows, labelled_classes)
        learner._training_rows = tensors["fitted.rows"].numpy()
        learner._training_classes = tensors["fitted.classes"].numpy()
        learner._rounds = header["rounds"]
        learner._memory = merge_arrays(header["memory"], tensors, "memory.")
        learner._pending_memory = merge_arrays(header["added"], tensors, "added.")
        if header["models"]:
            learner._restore_models(tensors)
        return learner

    def _predict_logits(self, data: Any, rows: Any) -> Tensor:
        """Return the logits of new data or of rows of the pool: (N, C)."""
        outputs = self.observe(self._take_data(data, rows), ("logits",))
        return self._with_all_classes(_require_logits(outputs))

    def _take_data(self, data: Any, rows: Any) -> Any:
        """Return new data as they are, the rows of the pool with these numbers, or the pool."""
        if rows is not None:
            if data is not None:
                raise InputError("Both data and rows are given: give one of them.")
            numbers = self.pool.require_rows(as_row_indices(as_list(rows)))
            return take_rows(self.data, numbers)

        if data is None:
            return self.data
        is_numbers = is_whole_numbers(data) and np.size(data) > 0
        if is_numbers and not _has_number_rows(self.data):
            raise InputError(
                "The data are whole numbers, but the rows of the pool are not: give rows= for row "
                "numbers of the pool."
            )
        return data

    def _settings(self) -> dict[str, Any]:
        """Return the arguments of the constructor that a file can hold."""
        training = None
        if isinstance(self.training, TrainingConfig):
            training = asdict(self.training)
        return {
            "strategy": _name_and_options(self.strategy),
            "cold_start": _name_and_options(self.cold_start),
            "classes": self.classes,
            "seed": self.seed,
            "training": training,
            "pool_size": self.pool_size,
            "members": self.members,
            "passes": self.passes,
            "batch_size": self.batch_size,
            "head": self.head,
        }

    def _restore_models(self, tensors: dict[str, Tensor]) -> None:
        """Load the weights of networks, and fit estimators again as the last fit did."""
        jobs = self._make_jobs(self._training_rows, self._training_classes, self._rounds)
        for position, job in enumerate(jobs):
            if isinstance(job.model, nn.Module):
                load_weights(job.model, tensors, f"model.{position}.")
            else:
                fit_estimator(job)
        self._models = [job.model for job in jobs]

    def _make_jobs(
        self,
        rows: RowArray,
        classes: RowArray,
        round_number: int,
    ) -> list[FitJob]:
        """Return a job per model of a round, none if the models cannot learn a single class."""
        model_count = 1
        if "ensemble_logits" in self.strategy.needs:
            model_count = self.members

        seeds = []
        for member in range(model_count):
            model_stream = stream(self.seed, "model", round_number, member)
            seeds.append(_small_seed(model_stream))
        models = [self._new_model(seed) for seed in seeds]

        has_one_class = len(np.unique(classes)) < 2
        if has_one_class and not is_network(models[0]):
            logger.warning(
                "Only one class is labelled, so no model was trained: %s picks rows until there "
                "are two.",
                self.cold_start.name,
            )
            return []

        inputs = take_rows(self.data, rows)
        labels = torch.from_numpy(classes)
        jobs = []
        for model, seed in zip(models, seeds, strict=True):
            job = FitJob(
                model=model,
                inputs=inputs,
                labels=labels,
                seed=seed,
                validation=self.validation,
            )
            jobs.append(job)
        return jobs

    def _new_model(self, seed: int) -> Any:
        """Return a new model, untrained and on the learner's device."""
        if is_estimator(self.make_model):
            model = clone_with_seed(self.make_model, seed)
        else:
            # A function that ignores its argument still gets reproducible weights.
            with seeded_global_rng(seed, self.device):
                model = self._call_make_model(seed)

        if isinstance(model, nn.Module):
            return model.to(self.device)
        if not is_estimator(model):
            raise InputError(
                f"make_model returned a {type(model).__name__}: return a torch module or a "
                "scikit-learn classifier."
            )
        if disable_train_split(model) and self._rounds == 0:
            logger.info(
                "skorch would hold back every fifth labelled row, so train_split=None was set to "
                "train on all of them."
            )
        return model

    def _call_make_model(self, seed: int) -> Any:
        try:
            return self.make_model(seed)
        except (AttributeError, TypeError, ValueError) as error:
            raise InputError(
                f"make_model({seed}) failed ({error}): it must take a seed and return a new model. "
                "For a model that you train yourself, use teeter.observe and teeter.select instead."
            ) from error

    def _current_strategy(self) -> Strategy:
        """Return the strategy to ask, or the cold start while that lacks a model."""
        if self._models or not self.strategy.needs:
            return self.strategy

        # After a fit without a model only one class is labelled, and the cold start continues.
        label_count = len(self.pool.labelled)
        if label_count and not self._rounds:
            raise InputError(
                f"There are {label_count} labels but no model yet: call fit before ask."
            )
        return self.cold_start

    def _draw_candidates(self, candidates: RowArray) -> RowArray:
        """Return ``pool_size`` random candidates, or all if that is not set."""
        if self.pool_size is None or self.pool_size >= len(candidates):
            return candidates

        # The whole pool is permuted, so that learners with the same seed draw the same rows as far
        # as these are still candidates.
        pool_order = stream(self.seed, "pool", self._rounds)
        order = torch.randperm(len(self.pool), generator=pool_order).numpy()

        is_candidate = np.zeros(len(self.pool), dtype=bool)
        is_candidate[candidates] = True
        shuffled_candidates = order[is_candidate[order]]
        return np.sort(shuffled_candidates[: self.pool_size])

    def _build_context(self, candidates: RowArray, strategy: Strategy) -> Context:
        """Return what the strategy may see: outputs of candidates and, if it uses them, labels."""
        if not strategy.needs:
            # Nothing but the number of candidates.
            outputs = Outputs(features=torch.zeros(len(candidates), 1))
        elif not self._models:
            # A cold start sees the raw data as features.
            raw_rows = take_rows(self.data, candidates)
            outputs = Outputs(features=flat_rows(raw_rows))
        else:
            outputs = self.observe(take_rows(self.data, candidates), strategy.needs)

        labelled = None
        labels = None
        uses_labelled = "labelled" in strategy.needs | strategy.optional_needs
        if self._models and uses_labelled:
            rows, columns = self._rows_of_seen_classes()
            labelled_outputs = self.observe(take_rows(self.data, rows), strategy.needs)
            labelled = labelled_outputs.with_logits()
            labels = columns.to(outputs.device)

        class_count = len(self.classes)
        if self._models and outputs.n_classes:
            class_count = outputs.n_classes  # an estimator knows only the classes it has seen
        return Context(
            candidates=candidates,
            outputs=outputs,
            generator=stream(self.seed, "select", self._rounds),
            labelled=labelled,
            labels=labels,
            n_classes=class_count,
            memory=copy.deepcopy(self._memory),
        )

    def _rows_of_seen_classes(self) -> tuple[RowArray, Tensor]:
        """Return the labelled rows whose class the model has seen, and its column for each."""
        rows = self.pool.labelled
        classes = self.pool.labels
        if is_network(self._models[0]):
            return rows, torch.from_numpy(classes)

        seen_classes = classes_of(self._models[0])
        is_seen = np.isin(classes, seen_classes)
        columns = np.searchsorted(seen_classes, classes[is_seen])
        return rows[is_seen], torch.from_numpy(columns)

    def _with_all_classes(self, logits: Tensor) -> Tensor:
        """Return logits with a column for every class, also those an estimator has not seen."""
        if is_network(self._models[0]):
            return logits

        # An estimator was fitted to class numbers, so its classes are the columns.
        seen_classes = classes_of(self._models[0]).astype(np.int64)
        unseen_logit = float(logits.min()) - _UNSEEN_CLASS_MARGIN
        all_logits = torch.full(
            (len(logits), len(self.classes)),
            unseen_logit,
            dtype=logits.dtype,
        )
        all_logits[:, torch.from_numpy(seen_classes)] = logits
        return all_logits

    def _encode_validation(
        self,
        data: Any,
        labels: Iterable[Any],
    ) -> tuple[Any, Tensor]:
        """Return validation rows as they are, and their labels as class numbers (V,)."""
        classes = encode_labels(labels, self.classes)
        row_count = count_rows(data)
        if row_count != len(classes) or row_count == 0:
            raise InputError(
                f"There are {row_count} validation rows and {len(classes)} labels: give one or "
                "more rows, and one label per row."
            )
        return data, torch.from_numpy(classes)

    def _require_valid_settings(self) -> None:
        """Refuse arguments of the constructor that are out of range."""
        callable_or_estimator = callable(self.make_model) or is_estimator(self.make_model)
        if is_estimator_class(self.make_model):
            class_name = self.make_model.__name__
            raise InputError(
                f"make_model is the class {class_name}: give an instance, {class_name}(...), "
                "which is cloned for every fit."
            )
        if is_estimator(self.make_model):
            require_classifier(self.make_model)
        if isinstance(self.make_model, nn.Module) or not callable_or_estimator:
            raise InputError(
                f"make_model is a {type(self.make_model).__name__}: give a function that takes a "
                f"seed and returns a new model (lambda seed: mlp(64, 10, seed=seed)), or a "
                f"scikit-learn classifier."
            )

        if isinstance(self.data, DataLoader):
            raise InputError(
                "The pool is a data loader, which gives no access to single rows: pass its "
                "dataset instead."
            )

        minimum_values = {
            "pool_size": 1,
            "members": 2,
            "passes": 1,
            "batch_size": 1,
        }
        for name, minimum in minimum_values.items():
            value = getattr(self, name)
            if value is not None and value < minimum:
                raise InputError(f"{name} is {value}: it must be {minimum} or more.")


def fit_learners(learners: Sequence[Learner]) -> dict[int, TeeterError]:
    """Fit several learners at once.

    Small networks of one architecture with equally many labels are trained together, which takes
    much less time than one fit after the other and gives the same models up to rounding.

    Returns:
        The errors of learners that could not be fitted, by their position. They keep their last
        model.
    """
    errors: dict[int, TeeterError] = {}
    jobs_by_learner: dict[int, list[FitJob]] = {}
    for position, learner in enumerate(learners):
        try:
            jobs_by_learner[position] = learner.prepare_fit()
        except TeeterError as error:
            errors[position] = error

    # Jobs of different learners can be trained together if they are trained in the same way.
    jobs_by_training: dict[TrainingConfig | Trainer, list[FitJob]] = {}
    for position, jobs in jobs_by_learner.items():
        training = learners[position].training
        same_training = jobs_by_training.setdefault(training, [])
        same_training.extend(jobs)

    results: dict[FitJob, FitResult] = {}
    for training, jobs in jobs_by_training.items():
        job_results = fit_jobs(jobs, training)
        results.update(zip(jobs, job_results, strict=True))

    for position, jobs in jobs_by_learner.items():
        learner_results = [results[job] for job in jobs]
        try:
            learners[position].finish_fit(learner_results)
        except TeeterError as error:
            errors[position] = error
    return errors


def _has_number_rows(pool: Any) -> bool:
    """Return whether each row of a pool is a single number."""
    dtype = getattr(pool, "dtype", None)
    if dtype is not None and pool.ndim == 1:
        return np.asarray(pool[:0]).dtype.kind in "iuf"
    return is_whole_numbers(pool)


def _small_seed(generator: torch.Generator) -> int:
    """Return the seed of a stream below 2^32, as NumPy and scikit-learn need it."""
    return generator.initial_seed() % 2**32


def _name_and_options(strategy: Strategy) -> tuple[str, dict[str, Any]]:
    """Return what a file can hold of a strategy: its registered name, and its options."""
    name = registry.name_of(type(strategy))
    if name is None:
        raise InputError(
            f"{strategy.name} has no registered name, so it could not be loaded again: register "
            f"it with teeter.strategies.register before saving."
        )
    return name, strategy_options(strategy)


def _require_logits(outputs: Outputs) -> Tensor:
    """Return the logits of outputs on the CPU: (N, C)."""
    logits = outputs.with_logits().logits
    if logits is None:
        raise InputError("This model returns no logits, so it cannot predict classes.")
    return logits.cpu()


def _notes_by_row(context: Context, rows: RowArray) -> dict[int, dict[str, float]]:
    """Return what the strategy noted about the picked rows."""
    candidates = context.candidates.tolist()
    position_of = {row: position for position, row in enumerate(candidates)}

    notes: dict[int, dict[str, float]] = {row: {} for row in rows.tolist()}
    for name, values in context.notes.items():
        candidate_values = values.cpu()
        for row, row_notes in notes.items():
            position = position_of[row]
            row_notes[name] = float(candidate_values[position])
    return notes
