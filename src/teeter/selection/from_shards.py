"""Candidates in shards: score all rows shard by shard, then fetch only the rows that matter.

There are four ways to pick, depending on the strategy:

- LDM and LDM-S: the LDM counts flips on reference rows drawn from the pool. LDM takes the smallest
  values. LDM-S draws from all rows as in memory, but fetches only those that win the exponential
  race of ``kernels.streaming_seeding``.
- strategies that score rows independently: exact, because a row's score needs no other row.
- strategies without needs (random): rows are drawn uniformly and nothing is scored.
- all others pick in memory from a uniform sample of the pool, and a note says so.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from teeter.base.arrays import as_tensor
from teeter.base.seeds import derive_seed, stream
from teeter.base.version import __version__
from teeter.data.array_files import read_pool
from teeter.data.shards import Shards, open_shards
from teeter.errors import InputError
from teeter.kernels.directions import default_rays
from teeter.kernels.seeding import ldm_log_weights
from teeter.kernels.streaming_seeding import seed_streaming
from teeter.models.outputs import Outputs
from teeter.selection.executors import Executor, run_plan
from teeter.selection.request import Selection, SelectionRequest, build_selection
from teeter.selection.scoring import (
    FeatureSource,
    ScoringJob,
    fetch_features,
    make_feature_source,
    make_scoring_tasks,
    read_scores,
    write_reference,
)
from teeter.strategies.ablations import Ldm
from teeter.strategies.api import build_context
from teeter.strategies.base import Strategy, TopKStrategy
from teeter.strategies.ldm import LdmS

__all__ = [
    "MAX_FETCH",
    "Progress",
    "Rows",
    "Scores",
    "ShardCandidates",
    "open_candidates",
]

MAX_FETCH = 1 << 29
"""Bytes of features that seeding fetches at a time."""

Rows = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]
Progress = Callable[[str, int, int], None]


def open_candidates(
    request: SelectionRequest, executor: Executor, on_progress: Progress
) -> ShardCandidates:
    """Open the shards of a request and check the head or model. No row is scored yet.

    Raises:
        FileError: a file cannot be read, or files do not fit each other.
        InputError: the head or model does not fit the pool.
    """
    shards = open_shards(
        request.pool,
        id_column=request.id_column,
        raw=request.model is not None,
    )

    source = make_feature_source(request.head, request.model, shards)
    return ShardCandidates(
        request=request,
        shards=shards,
        source=source,
        executor=executor,
        on_progress=on_progress,
    )


@dataclass(frozen=True, eq=False)
class ShardCandidates:
    """All rows of a sharded pool. None of them is labelled."""

    request: SelectionRequest
    shards: Shards
    source: FeatureSource | None
    executor: Executor
    on_progress: Progress

    def __len__(self) -> int:
        """Return the number of rows of the pool."""
        return len(self.shards)

    @property
    def available(self) -> frozenset[str]:
        """The needs of strategies that can be filled."""
        needs = {"features"}
        if self.source is not None:
            needs |= {"head", "logits"}
        if self.request.labelled is not None:
            needs.add("labelled")
        return frozenset(needs)

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names of the classes, if the head has them."""
        if self.source is None:
            return None
        return self.source.load().head.classes

    def pick(self, strategy: Strategy) -> Selection:
        """Pick rows in the way that fits the strategy."""
        if isinstance(strategy, (Ldm, LdmS)):
            return self._select_by_ldm(strategy)

        if isinstance(strategy, TopKStrategy) and strategy.row_independent:
            # No seed: a row-independent score has no randomness, so all seeds share the files.
            job = self._make_job(self.request.strategy, rays=0, subspace=None, seed=0)
            scores, _ = self._score_shards(job)

            keys = scores
            if strategy.best == "largest":
                keys = -scores
            order = np.argsort(keys, kind="stable")
            picks = order[: self.request.n]
            return self._describe_picks(picks, candidates=len(self), score=scores[picks])

        if not strategy.needs:
            rows = _draw_rows(len(self), self.request.n, self.request.seed)
            return self._describe_picks(rows, candidates=len(self))

        return self._select_from_sample(strategy)

    def _select_by_ldm(self, strategy: Ldm | LdmS) -> Selection:
        """Pick by the LDM: the smallest values, or spread by LDM-Seeding."""
        request = self.request
        source = self._require_source()

        # The strategies in memory use this stream in the same order: first the seed of the rays,
        # then the draws of LDM-Seeding. Both paths so follow the same rays.
        generator = stream(request.seed, "select")
        rays_seed = derive_seed(generator)

        # Sorted, so that files are read from front to back.
        n_reference = min(strategy.reference_rows or request.reference, len(self))
        drawn = _draw_rows(len(self), n_reference, rays_seed, "reference")
        reference_rows = np.sort(drawn)

        weight = source.load().head.weight
        rays = strategy.rays or default_rays(*weight.shape)
        job = self._make_job(
            "ldm",
            rays=rays,
            subspace=strategy.subspace,
            seed=rays_seed,
            extra=(len(reference_rows),),
        )

        self.on_progress("Reference rows", 0, 1)
        write_reference(job, reference_rows, self._fetch)
        self.on_progress("Reference rows", 1, 1)

        ldm, smallest_feature = self._score_shards(job)
        fetched = _FetchedLogits()
        if isinstance(strategy, Ldm):
            # Stable: equal values go to the lowest row, as in memory.
            order = np.argsort(ldm, kind="stable")
            picks = order[: request.n]
        else:
            picks = self._seed_by_ldm(ldm, smallest_feature, generator, fetched)

        note = f"Flips were counted on {n_reference:,} of {len(self):,} rows, drawn at random."
        return self._describe_picks(
            picks,
            candidates=len(self),
            ldm=ldm[picks],
            logits=fetched.take(picks),
            notes=(note,),
        )

    def _seed_by_ldm(
        self,
        ldm: Scores,
        smallest_feature: float,
        generator: torch.Generator,
        fetched: _FetchedLogits,
    ) -> Rows:
        """Return rows by LDM-Seeding, fetching only those that are drawn.

        Args:
            ldm: (N,) the LDM of all rows.
            smallest_feature: of the whole pool.
            generator: source of randomness.
            fetched: receives the logits of the rows that are fetched.
        """
        n = self.request.n
        n_fetched = 0

        def fetch(rows: Rows) -> torch.Tensor:
            nonlocal n_fetched
            n_fetched += len(rows)
            self.on_progress("Rows fetched", n_fetched, 0)  # the total is not known
            features = self._fetch(rows)
            logits = self._apply_head(features).with_logits().logits
            if logits is not None:
                fetched.add(rows, logits)
            return features

        # Cosine distances are at most 1 if no feature is negative.
        farthest = 2.0
        if smallest_feature >= 0:
            farthest = 1.0

        # About 4 rows are fetched per pick; few large requests are cheaper than many small ones.
        width = self._require_source().load().weight.shape[1]
        rows_in_memory = MAX_FETCH // (4 * width)  # 4 bytes per feature
        ahead = min(max(1024, 4 * n), rows_in_memory)

        log_weights = ldm_log_weights(torch.from_numpy(ldm), n)
        return seed_streaming(
            fetch,
            n,
            first=int(ldm.argmin()),
            log_weights=log_weights.numpy(),
            preference=ldm,
            farthest=farthest,
            ahead=ahead,
            generator=generator,
        )

    def _select_from_sample(self, strategy: Strategy) -> Selection:
        """Let a strategy that needs all its candidates at once pick from a uniform sample."""
        request = self.request
        enough = max(request.candidates, request.n)
        count = min(enough, len(self))
        drawn = _draw_rows(len(self), count, request.seed, "candidates")
        rows = np.sort(drawn)

        self.on_progress("Candidates", 0, 1)
        outputs = self._apply_head(self._fetch(rows))
        self.on_progress("Candidates", 1, 1)

        labelled = None
        if request.labelled is not None:
            labelled = self._read_labelled(request.labelled)

        context = build_context(outputs, labelled=labelled, seed=request.seed)
        positions = strategy.select(context, request.n)
        picks = rows[positions]

        notes: tuple[str, ...] = ()
        if count < len(self):
            note = (
                f"{request.strategy} picked from {count:,} of {len(self):,} rows, drawn at random."
            )
            notes = (note,)
        return self._describe_picks(picks, candidates=count, notes=notes)

    def _require_source(self) -> FeatureSource:
        if self.source is None:
            # check_needs has refused strategies that need a head.
            raise InputError(f"{self.request.strategy} needs a head: pass head= or model=.")
        return self.source

    def _make_job(
        self,
        strategy: str,
        *,
        rays: int,
        subspace: int | None,
        seed: int,
        extra: tuple[Any, ...] = (),
    ) -> ScoringJob:
        """Write a job into a folder named by everything that its scores depend on."""
        # LDM and LDM-S share their scores: the options of the LDM are its rays and reference rows.
        options: dict[str, Any] = {}
        if strategy != "ldm":
            options = self.request.strategy_options()

        source = self._require_source()
        shard_keys = [shard.key() for shard in self.shards.shards]
        parameters = [
            __version__,
            source.digest,
            *shard_keys,
            strategy,
            rays,
            subspace,
            seed,
            *extra,
            sorted(options.items()),
        ]
        content = repr(parameters).encode()
        name = hashlib.blake2b(content, digest_size=10).hexdigest()

        # Resolved, because workers may have another working directory.
        folder = Path(self.request.work) / f"{strategy}-{name}"
        folder = folder.resolve()

        job = ScoringJob(
            folder=folder,
            strategy=strategy,
            options=options,
            rays=rays,
            subspace=subspace,
            seed=seed,
            source=source,
        )
        job.write()
        return job

    def _score_shards(self, job: ScoringJob) -> tuple[Scores, float]:
        """Return the scores of all rows, (N,), and the smallest feature of the pool."""

        def report(done: int, total: int) -> None:
            self.on_progress("Shards scored", done, total)

        tasks = make_scoring_tasks(job, self.shards)
        run_plan(self.executor, tasks, report)
        return read_scores(tasks)

    def _read_labelled(self, path: str | Path) -> Outputs:
        """Return the outputs of the labelled rows in a file."""
        loaded = None
        if self.source is not None:
            loaded = self.source.load()
        model = None
        if loaded is not None:
            model = loaded.model

        # Rows may be stored flat. With a model they are its inputs, otherwise features.
        accepted_shapes: list[tuple[int, ...]] = [(self.shards.width,)]
        expected = f"{self.shards.width} features per row"
        if model is not None:
            accepted_shapes.append(model.shape)
            expected = f"rows of shape {model.shape}"

        stored = read_pool(path, raw=model is not None).features
        if stored is None or tuple(stored.shape[1:]) not in accepted_shapes:
            raise InputError(f"{path} must hold {expected}, as the pool does.")

        rows = as_tensor(stored, "features").float()
        if loaded is None:
            return self._apply_head(rows)

        # Through the model, if there is one: labelled rows are stored as the pool is.
        features = loaded.features(rows.numpy(), lambda k: f"row {k} of {path}")
        return self._apply_head(features)

    def _fetch(self, rows: Rows) -> torch.Tensor:
        """Return the features of rows: (k,) -> (k, D)."""
        return fetch_features(self.shards, rows, self.source)

    def _apply_head(self, features: torch.Tensor) -> Outputs:
        if self.source is None:
            return Outputs(features=features)
        loaded = self.source.load()
        return Outputs(features=features, weight=loaded.weight, bias=loaded.bias)

    def _describe_picks(
        self,
        rows: Rows,
        *,
        candidates: int,
        ldm: Scores | None = None,
        score: Scores | None = None,
        logits: torch.Tensor | None = None,
        notes: tuple[str, ...] = (),
    ) -> Selection:
        """Fetch the ids of picks, and their logits unless they are given."""
        if logits is None and self.source is not None:
            logits = self._apply_head(self._fetch(rows)).with_logits().logits

        ids = self.shards.ids(rows)
        # Ids of other rows are not compared.
        counts = Counter(ids)
        ambiguous = sum(not name.strip() or counts[name] > 1 for name in ids)
        if ambiguous:
            share = f"{ambiguous:,} of {len(ids):,} picks"
            problem = f"{share} have an empty or repeated id: identify them by their row number."
            notes = (*notes, problem)

        return build_selection(
            self.request,
            rows=rows,
            ids=ids,
            logits=logits,
            ldm=ldm,
            score=score,
            candidates=candidates,
            classes=self.classes,
            device=torch.device("cpu"),
            notes=notes,
        )


class _FetchedLogits:
    """Logits of rows that were fetched, so that picks are not read from the files again.

    Reading a few rows from each of many Parquet row groups takes as long as reading all rows.
    """

    def __init__(self) -> None:
        self._rows: list[Rows] = []
        self._logits: list[torch.Tensor] = []
        self._bytes = 0

    def add(self, rows: Rows, logits: torch.Tensor) -> None:
        """Keep the logits (k, C) of rows (k,), as long as they fit in memory."""
        self._bytes += logits.numel() * logits.element_size()
        if self._bytes <= MAX_FETCH:
            self._rows.append(rows)
            self._logits.append(logits)

    def take(self, rows: Rows) -> torch.Tensor | None:
        """Return the logits of rows: (k,) -> (k, C), or None if any of them is not here."""
        if not self._rows:
            return None
        fetched_rows = np.concatenate(self._rows)
        order = np.argsort(fetched_rows, kind="stable")
        places = np.searchsorted(fetched_rows, rows, sorter=order)
        positions = order.take(places, mode="clip")
        if not np.array_equal(fetched_rows[positions], rows):
            return None
        return torch.cat(self._logits)[torch.from_numpy(positions)]


def _draw_rows(n_rows: int, count: int, seed: int, *name: str) -> Rows:
    """Return ``count`` different rows of ``n_rows``, drawn uniformly."""
    generator = stream(seed, "shards", *name)

    # A permutation is cheap for small pools, and for samples that are a large part of the pool.
    if n_rows <= 1 << 26 or count > n_rows // 4:
        permutation = torch.randperm(n_rows, generator=generator)
        return permutation[:count].numpy()

    # Otherwise draw with replacement and drop repetitions, which are few, until there are enough.
    rows = torch.empty(0, dtype=torch.int64)
    while len(rows) < count:
        new_draws = torch.randint(n_rows, (count,), generator=generator)
        draws = torch.cat([rows, new_draws])

        # In the order of drawing: np.unique sorts, and the smallest rows would come first.
        unique, first_positions = np.unique(draws.numpy(), return_index=True)
        order = np.argsort(first_positions)
        rows = torch.from_numpy(unique[order])
    return rows[:count].numpy()
