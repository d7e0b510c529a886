"""The learner: ask for rows, tell their labels, fit a model, and ask again.

Every active-learning loop in teeter is this one: an experiment is a learner with an oracle, a
campaign is a learner with a database.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from teeter.base.arrays import choose_device
from teeter.base.seeds import stream, validate_seed
from teeter.data.table_files import make_frame
from teeter.errors import InputError, TeeterError
from teeter.learner.rounds import (
    FitRecord,
    LearnerState,
    finish_fit,
    prepare_fit,
    small_stream_seed,
)
from teeter.learner.saving import load_learner, save_learner
from teeter.models.inputs import count_rows, flat_rows, take_rows
from teeter.models.label_encoding import (
    as_list,
    as_row_indices,
    class_array,
    class_names,
    encode_labels,
    is_whole_numbers,
)
from teeter.models.observe import PASSES, is_estimator, is_estimator_class, is_network, observe
from teeter.models.outputs import Outputs
from teeter.models.sklearn_model import classes_of, require_classifier
from teeter.strategies.api import make_strategy
from teeter.strategies.base import Context, Strategy
from teeter.training import (
    Evaluation,
    Trainer,
    TrainingConfig,
    evaluate_logits,
    explain_unusable_rows,
    fit_jobs,
)
from teeter.training.metrics import Metric, find_metrics

logger = logging.getLogger("teeter")

RowArray = npt.NDArray[np.int64]

_UNLABELLED = -1

_UNSEEN_CLASS_MARGIN = 50
"""How far the logit of a class that an estimator has not seen lies below all others."""


class Pool:
    """N rows, each of which has a class number or no label yet.

    Example:
        >>> import numpy as np
        >>> pool = Pool(5)
        >>> pool.label(np.array([3, 1]), np.array([0, 2]))
        >>> pool.labelled.tolist(), pool.labels.tolist()
        ([1, 3], [2, 0])
        >>> pool.candidates(exclude=[4]).tolist()
        [0, 2]
    """

    def __init__(self, size: int) -> None:
        # (N,) class number of each row.
        self._classes: RowArray = np.full(size, _UNLABELLED)

    def __len__(self) -> int:
        """Return the number of rows, N."""
        return len(self._classes)

    @property
    def labelled(self) -> RowArray:
        """(L,) the labelled rows in ascending order."""
        return np.flatnonzero(self._classes != _UNLABELLED)

    @property
    def labels(self) -> RowArray:
        """(L,) the class numbers of the labelled rows."""
        return self._classes[self.labelled]

    def label(self, rows: RowArray, classes: RowArray) -> None:
        """Set the classes of rows, replacing those they had.

        Raises:
            InputError: if the pool does not have one of the rows. None is labelled then.
        """
        # Checked before anything is written.
        valid_rows = self.require_rows(rows)
        self._classes[valid_rows] = classes

    def candidates(self, exclude: Iterable[int] = ()) -> RowArray:
        """Return the rows without a label, except those in ``exclude``, in ascending order.

        Raises:
            InputError: if the pool does not have one of the excluded rows.
        """
        excluded_rows = np.fromiter(exclude, dtype=np.int64)
        is_candidate = self._classes == _UNLABELLED
        is_candidate[self.require_rows(excluded_rows)] = False
        return np.flatnonzero(is_candidate)

    def require_rows(self, rows: RowArray) -> RowArray:
        """Return ``rows`` unchanged.

        Raises:
            InputError: if the pool does not have one of them.
        """
        # NumPy would take -1 for the last row.
        is_outside = (rows < 0) | (rows >= len(self))
        outside = rows[is_outside]
        if len(outside):
            last_row = len(self) - 1
            raise InputError(f"The pool has no row {outside[0]}: its rows are 0 to {last_row}.")
        return rows


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
        model: Callable[[int], Any] | Any,
        data: Any,
        strategy: str | Strategy = "ldm-s",
        *,
        options: Mapping[str, Any] | None = None,
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
            model: a scikit-learn classifier to clone, or a function from a seed to a new torch
                module or classifier. Every fit starts from a new model.
            data: the pool: anything that ``teeter.observe`` takes, except a data loader.
            strategy: the name of a strategy, or a strategy.
            options: options of the strategy, if it is given by its name.
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
        self.untrained_model = model
        self.data = data
        self.strategy = make_strategy(strategy, options)
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
            codes = encode_labels(validation_labels, self.classes)
            row_count = count_rows(validation_data)
            if row_count != len(codes) or row_count == 0:
                raise InputError(
                    f"There are {row_count} validation rows and {len(codes)} labels: give one or "
                    "more rows, and one label per row."
                )
            self.validation = (validation_data, torch.from_numpy(codes))

        # Changed by fits and asks; saved and resumed.
        self.state = LearnerState()

    def __repr__(self) -> str:
        """Return the strategy, the number of labels and the number of fits."""
        return (
            f"<Learner: {self.strategy.name}, {len(self.pool.labelled)} of {len(self.pool)} rows "
            f"labelled, {self.rounds} rounds>"
        )

    @property
    def models(self) -> list[Any]:
        """The models of the last fit: one, an ensemble, or none before the first fit."""
        return list(self.state.models)

    @property
    def rounds(self) -> int:
        """How many times the learner was fitted."""
        return self.state.rounds

    @property
    def history(self) -> list[FitRecord]:
        """A record of each fit since the learner was made: its rows, accuracy, picks and seconds.

        A loaded learner begins with a record of the last fit.
        """
        return list(self.state.history)

    def to_frame(self, kind: str | None = None) -> Any:
        """Return the history as a data frame, a row for each fit.

        The columns are those of a run of the benchmark: strategy, seed, round (the first fit is
        round 0), labels, what ``evaluate`` measured, and the seconds of each phase. Frames of
        several learners, one below the other, are what ``teeter.bench.compare_strategies`` takes.

        Args:
            kind: pandas or polars. By default the first one that is installed.

        Raises:
            MissingExtraError: if the library is not installed.
        """
        names = ["strategy", "seed", "round", "labels", "accuracy", "loss"]
        rows = []
        for record in self.state.history:
            row = {
                "strategy": self.strategy.name,
                "seed": self.seed,
                "round": record.round - 1,
                "labels": len(record.rows),
            }
            if record.evaluation is not None:
                row |= record.evaluation.by_name()
            row |= {f"{phase}_seconds": value for phase, value in record.seconds.items()}
            rows.append(row)

        for row in rows:
            names += row
        columns = {}
        for name in dict.fromkeys(names):
            columns[name] = [row.get(name) for row in rows]
        return make_frame(columns, kind)

    def ask(self, n: int, *, exclude: Iterable[int] = (), waiting: Iterable[int] = ()) -> RowArray:
        """Choose the rows to label next.

        Args:
            n: the number of rows.
            exclude: rows that must not be chosen.
            waiting: rows that were chosen before and wait for a label. They are excluded, and
                strategies that cover the pool leave out what these rows cover.

        Returns:
            (n,) rows of the pool, best first.

        Raises:
            InputError: if fewer than n candidates are left, or there are labels but no model yet.
        """
        waiting_rows = self.pool.require_rows(as_row_indices(as_list(waiting)))
        excluded_rows = as_row_indices(as_list(exclude)).tolist()
        all_candidates = self.pool.candidates([*excluded_rows, *waiting_rows.tolist()])
        candidates = self._draw_candidates(all_candidates)
        if len(candidates) == 0:
            labelled_count = len(self.pool.labelled)
            raise InputError(
                f"No rows are left to ask about: {labelled_count} of {len(self.pool)} are labelled."
            )
        strategy = self._current_strategy()
        if strategy.needs:
            self._log_new_labels()

        # Outputs and selection are timed apart: the first depends on the model, the second on the
        # strategy.
        started = time.perf_counter()
        context = self._build_context(candidates, waiting_rows, strategy)
        outputs_seconds = time.perf_counter() - started

        started = time.perf_counter()
        rows = strategy.select(context, n)
        selection_seconds = time.perf_counter() - started

        state = self.state
        state.notes = _notes_by_row(context, rows)
        state.pending_memory = context.memory
        if state.history:
            record = state.history[-1]
            record.picks = rows
            record.seconds["outputs"] = outputs_seconds
            record.seconds["selection"] = selection_seconds
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
        _require_label_per_row(row_count, len(classes))
        if len(np.unique(row_indices)) < row_count:
            raise InputError("A row occurs twice in this call: give each row once.")

        self.pool.label(row_indices, classes)

    def fit(self, *, exclude: Iterable[int] = ()) -> None:
        """Train a new model on all labelled rows.

        A scikit-learn classifier whose ``fit`` takes ``pool=``, as ``teeter.models.PoolHead`` does,
        learns from the unlabelled rows too. If only one class is labelled, a scikit-learn
        classifier cannot be trained: there is then no model, and the cold start continues to choose
        rows.

        Args:
            exclude: rows without a label that models must not learn from.

        Raises:
            InputError: if no row is labelled, or the data contain values the model cannot take.
            TrainingError: if the model cannot be trained. The last model and round are kept.
        """
        excluded_rows = self.pool.require_rows(as_row_indices(as_list(exclude)))
        jobs = prepare_fit(self, excluded_rows)
        results = fit_jobs(jobs, self.training)
        finish_fit(self, results, excluded_rows)

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
        metrics: Iterable[str | Metric] = (),
    ) -> Evaluation:
        """Measure the model on labelled rows, which should not be among those it was trained on.

        Args:
            data: new data in the same form as the pool.
            labels: a class name for each row.
            rows: row numbers of the pool, instead of data. Default: all rows of the pool.
            metrics: what to measure beside accuracy and loss: ``macro_f1``, ``balanced_accuracy``,
                ``calibration_error``, or functions of the true class numbers (N,) and the
                probabilities (N, C).

        Raises:
            InputError: if there is no model yet, rows and labels differ in number, or both data and
                rows are given.
        """
        if labels is None:
            raise InputError("Cannot evaluate a model without labels: give one label per row.")

        started = time.perf_counter()
        metric_functions = find_metrics(metrics)
        classes = torch.from_numpy(encode_labels(labels, self.classes))
        data = self._take_data(data, rows)
        row_count = count_rows(data)
        _require_label_per_row(row_count, len(classes))
        if row_count == 0:
            raise InputError("Cannot evaluate a model on 0 rows.")

        outputs = self.observe(data, ("logits",))
        logits = self._with_all_classes(_require_logits(outputs))
        # Of an ensemble only: a forest has a posterior too, and is a single model.
        posterior = None
        if len(self.state.models) > 1 and outputs.posterior_logits is not None:
            members = outputs.posterior_logits.cpu()  # (S, N, classes seen)
            posterior = torch.stack([self._with_all_classes(member) for member in members])

        evaluation = evaluate_logits(logits, classes, posterior, metric_functions)
        if self.state.history:
            record = self.state.history[-1]
            record.evaluation = evaluation
            record.seconds["evaluation"] = time.perf_counter() - started
        return evaluation

    def observe(self, data: Any, needs: Iterable[str]) -> Outputs:
        """Return the outputs of the last fit's model for ``data``.

        Args:
            data: rows in the same form as the pool.
            needs: the outputs wanted, as in ``teeter.observe``.

        Raises:
            InputError: if there is no model yet, or the data contain values it cannot take.
        """
        if not self.state.models:
            raise InputError(
                "There is no model yet: call tell with labels of at least two classes, then fit."
            )

        first_model = self.state.models[0]
        model = first_model
        if len(self.state.models) > 1:
            model = self.state.models  # observed as an ensemble
        if isinstance(first_model, nn.Module):
            data = _cast_whole_numbers(data, self.data)

        # What is labelled is for the pool to say, not for the model.
        model_needs = tuple(need for need in needs if need != "labelled")
        try:
            outputs = observe(
                model,
                data,
                model_needs,
                batch_size=self.batch_size,
                seed=small_stream_seed(self.seed, "dropout", self.rounds),
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
        save_learner(self, Path(path))

    @classmethod
    def load(
        cls,
        path: str | Path,
        model: Callable[[int], Any] | Any,
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
            model: as when the learner was created.
            data: the same pool.
            validation: the same validation rows, if there were any.
            training: the same ``Trainer``, if there was one. A ``TrainingConfig`` is in the file.
            device: where torch modules are trained. Default: a GPU if there is one.

        Raises:
            FileError: if the file cannot be read, or is not a saved learner.
            InputError: if the data, the model or the training do not match the file.
        """
        return load_learner(
            cls,
            Path(path),
            model,
            data,
            validation=validation,
            training=training,
            device=device,
        )

    def _predict_logits(self, data: Any, rows: Any) -> Tensor:
        """Return the logits of new data or of rows of the pool: (N, C)."""
        taken = self._take_data(data, rows)
        if rows is not None and count_rows(taken) == 0:
            raise InputError("Cannot predict the classes of 0 rows: give at least one row number.")
        outputs = self.observe(taken, ("logits",))
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

    def _current_strategy(self) -> Strategy:
        """Return the strategy to ask, or the cold start while that lacks a model."""
        if self.state.models or not self.strategy.needs:
            return self.strategy

        # After a fit without a model only one class is labelled, and the cold start continues.
        label_count = len(self.pool.labelled)
        if label_count and not self.rounds:
            raise InputError(
                f"There are {label_count} labels but no model yet: call fit before ask."
            )
        return self.cold_start

    def _log_new_labels(self) -> None:
        """Log, once a round, that labels were told since the last fit."""
        state = self.state
        if not state.history or state.stale_round == self.rounds:
            return
        new_labels = len(np.setdiff1d(self.pool.labelled, state.history[-1].rows))
        if new_labels:
            state.stale_round = self.rounds
            logger.warning(
                "%d labels were told since the last fit, and the picks do not depend on them: call "
                "fit before ask.",
                new_labels,
            )

    def _draw_candidates(self, candidates: RowArray) -> RowArray:
        """Return ``pool_size`` random candidates, or all if that is not set."""
        if self.pool_size is None or self.pool_size >= len(candidates):
            return candidates

        # The whole pool is permuted, so that learners with the same seed draw the same rows as far
        # as these are still candidates.
        pool_order = stream(self.seed, "pool", self.rounds)
        order = torch.randperm(len(self.pool), generator=pool_order).numpy()

        is_candidate = np.zeros(len(self.pool), dtype=bool)
        is_candidate[candidates] = True
        shuffled_candidates = order[is_candidate[order]]
        return np.sort(shuffled_candidates[: self.pool_size])

    def _build_context(
        self, candidates: RowArray, waiting_rows: RowArray, strategy: Strategy
    ) -> Context:
        """Return what the strategy may see: outputs of candidates and, if it uses them, labels."""
        if not strategy.needs:
            # Nothing but the number of candidates.
            outputs = Outputs(features=torch.zeros(len(candidates), 1))
        elif not self.state.models:
            # A cold start sees the raw data as features.
            raw_rows = take_rows(self.data, candidates)
            outputs = Outputs(features=flat_rows(raw_rows))
        else:
            outputs = self.observe(take_rows(self.data, candidates), strategy.needs)

        labelled = None
        labels = None
        uses_labelled = "labelled" in strategy.needs | strategy.optional_needs
        if self.state.models and uses_labelled:
            rows, columns = self._rows_of_seen_classes()
            labelled_outputs = self.observe(take_rows(self.data, rows), strategy.needs)
            labelled = labelled_outputs.with_logits()
            labels = columns.to(outputs.device)

        # Labels that no model has learned from are as good as unknown.
        if not self.state.models:
            waiting_rows = np.union1d(waiting_rows, self.pool.labelled)
        waiting = None
        if "waiting" in strategy.optional_needs and len(waiting_rows):
            rows_data = take_rows(self.data, waiting_rows)
            if self.state.models:
                waiting = self.observe(rows_data, ("features",)).features
            else:
                waiting = Outputs(features=flat_rows(rows_data)).features

        class_count = len(self.classes)
        if self.state.models and outputs.n_classes:
            class_count = outputs.n_classes  # an estimator knows only the classes it has seen
        return Context(
            candidates=candidates,
            outputs=outputs,
            generator=stream(self.seed, "select", self.rounds),
            labelled=labelled,
            labels=labels,
            waiting=waiting,
            n_classes=class_count,
            memory=copy.deepcopy(self.state.memory),
        )

    def _rows_of_seen_classes(self) -> tuple[RowArray, Tensor]:
        """Return the labelled rows whose class the model has seen, and its column for each."""
        rows = self.pool.labelled
        classes = self.pool.labels
        if is_network(self.state.models[0]):
            return rows, torch.from_numpy(classes)

        seen_classes = classes_of(self.state.models[0])
        is_seen = np.isin(classes, seen_classes)
        columns = np.searchsorted(seen_classes, classes[is_seen])
        return rows[is_seen], torch.from_numpy(columns)

    def _with_all_classes(self, logits: Tensor) -> Tensor:
        """Return logits with a column for every class, also those an estimator has not seen."""
        if is_network(self.state.models[0]):
            return logits

        # An estimator was fitted to class numbers, so its classes are the columns.
        seen_classes = classes_of(self.state.models[0]).astype(np.int64)
        unseen_logit = float(logits.min()) - _UNSEEN_CLASS_MARGIN
        all_logits = torch.full(
            (len(logits), len(self.classes)),
            unseen_logit,
            dtype=logits.dtype,
        )
        all_logits[:, torch.from_numpy(seen_classes)] = logits
        return all_logits

    def _require_valid_settings(self) -> None:
        """Refuse arguments of the constructor that are out of range."""
        model = self.untrained_model
        callable_or_estimator = callable(model) or is_estimator(model)
        if is_estimator_class(model):
            class_name = model.__name__
            raise InputError(
                f"model is the class {class_name}: give an instance, {class_name}(...), "
                "which is cloned for every fit."
            )
        if is_estimator(model):
            require_classifier(model)
        if isinstance(model, nn.Module) or not callable_or_estimator:
            raise InputError(
                f"model is a {type(model).__name__}: give a function that takes a "
                f"seed and returns a new model (lambda seed: mlp(64, 10, seed=seed)), or a "
                f"scikit-learn classifier."
            )

        if isinstance(self.data, DataLoader):
            raise InputError(
                "The pool is a data loader, which gives no access to single rows: pass its "
                "dataset instead."
            )

        for strategy in (self.strategy, self.cold_start):
            if strategy.labels_per_row == "several":
                raise InputError(
                    f"{strategy.name} picks rows that may have several labels, and a learner's "
                    "have one: choose another strategy, or use teeter.select with "
                    "Outputs(..., several=True)."
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


def _require_label_per_row(rows: int, labels: int) -> None:
    if rows != labels:
        raise InputError(f"There are {rows} rows and {labels} labels: give one label per row.")


def _has_number_rows(pool: Any) -> bool:
    """Return whether each row of a pool is a single number."""
    dtype = getattr(pool, "dtype", None)
    if dtype is not None and pool.ndim == 1:
        return np.asarray(pool[:0]).dtype.kind in "iuf"
    return is_whole_numbers(pool)


def _cast_whole_numbers(data: Any, pool: Any) -> Any:
    """Return whole numbers as floats if the pool has floats, because its networks take only these.

    Other data are returned as they are.
    """
    if isinstance(pool, Mapping) and isinstance(data, Mapping):
        parts = {}
        for name, part in data.items():
            parts[name] = part
            if name in pool:
                parts[name] = _cast_whole_numbers(part, pool[name])
        return parts

    dtype = _float_dtype(pool)
    if dtype is None or not isinstance(data, Tensor | np.ndarray | list):
        return data
    if isinstance(data, list):
        try:
            data = np.asarray(data)
        except ValueError:  # rows of several lengths, which the model refuses
            return data
    if isinstance(data, np.ndarray):
        if data.dtype.kind not in "biu":
            return data
        data = torch.from_numpy(data)
    if data.is_floating_point() or data.is_complex():
        return data
    return data.to(dtype)


def _float_dtype(pool: Any) -> torch.dtype | None:
    """Return the type of the numbers of a pool; None if they are not floats."""
    if isinstance(pool, list):
        pool = np.asarray(pool[:1])
    if isinstance(pool, np.ndarray) and pool.dtype.kind == "f":
        pool = torch.from_numpy(np.empty(0, pool.dtype))
    if isinstance(pool, Tensor) and pool.is_floating_point():
        return pool.dtype
    return None


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
