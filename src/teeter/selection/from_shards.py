"""Picks from a pool of any size: scores shard by shard, then the picks, for which only some rows are fetched.

LDM-S follows the law of the strategy in memory: the LDM counts flips on reference rows drawn from the whole pool, and
LDM-Seeding draws from all rows, of which only those that arrive in the race are fetched. The smallest LDM and scores
that a row has by itself are exact. Any other strategy picks among candidates drawn uniformly, which the answer says.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from teeter.arrays import as_tensor
from teeter.datasets.array_files import Head, read_pool
from teeter.datasets.shards import Shards, open_shards
from teeter.distributed.executors import Executor, run_plan
from teeter.distributed.feature_source import FeatureSource, make_feature_source
from teeter.distributed.fetch import features_at
from teeter.distributed.scoring import Job, make_reference, ray_count, read_scores, tasks_of
from teeter.errors import InputError
from teeter.kernels import uncertainty
from teeter.kernels.seeding import ldm_log_weights
from teeter.kernels.streaming_seeding import seed_streaming
from teeter.models.outputs import Outputs
from teeter.seeds import derive_seed, stream
from teeter.strategies.api import build_context, make_strategy
from teeter.strategies.base import Strategy, TopKStrategy, registry
from teeter.strategies.ldm import Ldm, LdmEstimator, LdmS
from teeter.version import __version__

__all__ = ["CANDIDATES", "REFERENCE", "ShardSelection", "select_from_shards"]

REFERENCE, CANDIDATES = 50_000, 100_000
"""Rows that flips are counted on; and rows that strategies which need all rows at once pick from."""

FETCHED = 1 << 29
"""Bytes of features that are fetched at once for seeding."""

Rows = npt.NDArray[np.int64]
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class ShardSelection:
    """Rows of a pool, best first, and what is known of them."""

    rows: Rows
    ids: list[str]
    ldm: npt.NDArray[np.float32] | None
    score: npt.NDArray[np.float32] | None
    predicted: Rows | None
    margin: npt.NDArray[np.float32] | None
    candidates: int
    classes: tuple[str, ...] | None
    options: dict[str, Any]
    notes: tuple[str, ...]


def select_from_shards(
    pool: str | Path,
    n: int,
    *,
    head: str | Path | None = None,
    model: str | Path | None = None,
    executor: Executor,
    work: str | Path,
    strategy: str = "ldm-s",
    rays: int | None = None,
    reference: int = REFERENCE,
    candidates: int = CANDIDATES,
    labelled: str | Path | None = None,
    seed: int = 0,
    id_column: str | None = None,
    options: Mapping[str, Any] | None = None,
    on_progress: Progress = lambda what, done, whole: None,
) -> ShardSelection:
    """Return n rows of a pool to label next.

    Args:
        pool: a .npy file, a Parquet file, a folder of them, or a pattern such as ``pool/*.parquet``.
        n: how many rows.
        head: a file with the model's last layer; strategies that look at features alone need none.
        model: a file of ``teeter.save_model`` in the head's place: rows are then raw, and workers make their features.
        executor: who scores the shards.
        work: the folder that scores are kept in; the same selection asked for again computes only what is missing.
        strategy: a name of ``teeter.strategies.names()``.
        rays: how many rays the LDM is estimated with.
        reference: how many rows, drawn from the pool, flips are counted on.
        candidates: how many rows, drawn from the pool, a strategy that needs all rows at once picks from.
        labelled: a file with the labelled rows, as the pool has them, for strategies that keep away from them.
        seed: same seed, same picks, whatever the number of workers and the size of shards.
        id_column: the column of ids; ``id`` or ``ids`` if left out, and row numbers if there is none.
        options: the strategy's own.
        on_progress: told what is being done, how much of it is done, and of how much.
    """
    if head is not None and model is not None:
        raise InputError("Give --head or --model, not both: a model brings its last layer along.")
    shards = open_shards(pool, id_column=id_column, raw=model is not None)
    given = dict(options or {})
    chosen = _made(strategy, rays, given)
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= len(shards):
        raise InputError(f"Cannot pick {n!r} of {len(shards)} rows: ask for 1 to {len(shards)}.")
    if reference < 1 or candidates < 1:
        raise InputError(
            f"Cannot draw {reference} reference rows and {candidates} candidates: give 1 or more of both."
        )
    source = make_feature_source(head, model, shards)
    if labelled is None and "labelled" in chosen.needs:
        raise InputError(f"{strategy} needs labelled rows: give a file of them with --labelled.")
    task = _Selection(
        shards, chosen, strategy, n, source, executor, Path(work), seed, given, on_progress
    )
    if chosen.needs & {"head", "logits"}:
        task.require_source()
    if isinstance(chosen, (Ldm, LdmS)):
        return task.by_ldm(chosen, min(reference, len(shards)))
    if isinstance(chosen, TopKStrategy) and chosen.row_independent:
        return task.by_score(chosen)
    if not chosen.needs:
        return task.described(_uniform(len(shards), n, seed), None, None, len(shards))
    return task.among_some(chosen, min(max(candidates, n), len(shards)), labelled)


def _made(strategy: str, rays: int | None, options: dict[str, Any]) -> Strategy:
    if rays is not None and issubclass(registry.get(strategy), LdmEstimator):
        options["rays"] = rays
    chosen = make_strategy(strategy, options)
    if isinstance(chosen, LdmEstimator) and (chosen.method, chosen.sigma_max) != ("rays", None):
        raise InputError(
            "Over shards the LDM is estimated by rays of any strength: leave method= and sigma_max= out."
        )
    if chosen.needs & {"dropout_logits", "ensemble_logits"}:
        raise InputError(
            f"{strategy} needs the logits of several models, which shards do not hold."
        )
    return chosen


@dataclass(frozen=True, eq=False)
class _Selection:
    shards: Shards
    strategy: Strategy
    name: str
    n: int
    source: FeatureSource | None
    executor: Executor
    work: Path
    seed: int
    options: dict[str, Any]
    on_progress: Progress

    @property
    def head(self) -> Head | None:
        return None if self.source is None else self.source.opened().head

    def by_ldm(self, chosen: Ldm | LdmS, reference: int) -> ShardSelection:
        """Return rows by the LDM among reference rows: the smallest, or spread by LDM-Seeding."""
        generator = stream(self.seed, "select")
        rays_seed = derive_seed(generator)
        wanted = chosen.reference_rows or reference
        rows = np.sort(
            _uniform(len(self.shards), min(wanted, len(self.shards)), rays_seed, "reference")
        )
        job = self._job(
            "ldm",
            ray_count(self.require_source().opened().head, chosen.rays),
            rays_seed,
            extra=(len(rows),),
        )
        self.on_progress("Reference rows", 0, 1)
        make_reference(job, rows, self._features)
        self.on_progress("Reference rows", 1, 1)
        values, least = self._scored(job)
        if isinstance(chosen, Ldm):
            best = np.argsort(values, kind="stable")[: self.n]
        else:
            best = self._seeded(values, least, generator)
        note = f"Flips were counted on {len(rows):,} rows of {len(self.shards):,}, drawn from all."
        return self.described(best, values[best], None, len(self.shards), (note,))

    def _seeded(
        self, values: npt.NDArray[np.float32], least: float, generator: torch.Generator
    ) -> Rows:
        """Return rows by LDM-Seeding, fetching only those that are drawn."""
        fetched = [0]

        def fetch(rows: Rows) -> torch.Tensor:
            fetched[0] += len(rows)
            self.on_progress("Rows fetched", fetched[0], 0)
            return self._features(rows)

        width = self.require_source().opened().weight.shape[1]
        return seed_streaming(
            fetch,
            self.n,
            first=int(values.argmin()),
            log_weights=ldm_log_weights(torch.from_numpy(values), self.n).numpy(),
            preference=values,
            farthest=1.0 if least >= 0 else 2.0,
            ahead=min(max(1024, 4 * self.n), FETCHED // (4 * width)),
            generator=generator,
        )

    def by_score(self, chosen: TopKStrategy) -> ShardSelection:
        """Return the rows of the best scores."""
        job = self._job(self.name, 0, 0)
        values, _ = self._scored(job)
        order = np.argsort(values if chosen.best == "smallest" else -values, kind="stable")[
            : self.n
        ]
        return self.described(order, None, values[order], len(self.shards))

    def among_some(
        self, chosen: Strategy, count: int, labelled: str | Path | None
    ) -> ShardSelection:
        """Return what a strategy that needs all rows at once picks from some, drawn uniformly."""
        rows = np.sort(_uniform(len(self.shards), count, self.seed, "candidates"))
        self.on_progress("Candidates", 0, 1)
        outputs = self._outputs(rows)
        self.on_progress("Candidates", 1, 1)
        known = None if labelled is None else self._known(labelled)
        classes = None if known is None else [0] * len(known)  # no strategy of ours looks at them
        picked = rows[
            chosen.select(
                build_context(outputs, labelled=known, labels=classes, seed=self.seed), self.n
            )
        ]
        note = f"{self.name} picked among {count:,} rows drawn from all {len(self.shards):,}."
        return self.described(
            picked, None, None, count, (note,) if count < len(self.shards) else ()
        )

    def require_source(self) -> FeatureSource:
        """Return where features and head come from, or say how to tell."""
        if self.source is None:
            raise InputError(
                f"{self.name} needs the model's last layer: give it with --head, or the whole model with --model."
            )
        return self.source

    def _job(self, strategy: str, rays: int, seed: int, extra: tuple[Any, ...] = ()) -> Job:
        """Return the job, in a folder of its own: what is another selection never meets its files."""
        options = {} if strategy == "ldm" else self.options
        facts = [shard.key() for shard in self.shards.shards] + [
            strategy,
            rays,
            seed,
            *extra,
            sorted(options.items()),
        ]
        source = self.require_source()
        name = hashlib.blake2b(
            repr([__version__, source.digest, *facts]).encode(), digest_size=10
        ).hexdigest()
        job = Job(
            (self.work / f"{strategy}-{name}").resolve(), strategy, options, rays, seed, source
        )
        job.write()
        return job

    def _scored(self, job: Job) -> tuple[npt.NDArray[np.float32], float]:
        tasks = tasks_of(job, self.shards)
        run_plan(
            self.executor, tasks, lambda done, whole: self.on_progress("Shards scored", done, whole)
        )
        return read_scores(tasks)

    def _known(self, path: str | Path) -> Outputs:
        opened = None if self.source is None else self.source.opened()
        model = None if opened is None else opened.model
        stored = read_pool(path, raw=model is not None).features
        shapes = [(self.shards.width,), *([] if model is None else [model.shape])]
        if stored is None or tuple(stored.shape[1:]) not in shapes:
            what = (
                f"{self.shards.width} features a row"
                if model is None
                else f"rows of shape {model.shape}"
            )
            raise InputError(f"{path} does not hold {what}, as the pool does.")
        rows = as_tensor(stored, "features").float()
        if opened is None:
            return self._under_head(rows)
        return self._under_head(opened.features(rows.numpy(), lambda k: f"row {k} of {path}"))

    def _outputs(self, rows: Rows) -> Outputs:
        return self._under_head(self._features(rows))

    def _features(self, rows: Rows) -> torch.Tensor:
        return features_at(self.shards, rows, self.source, executor=self.executor, work=self.work)

    def _under_head(self, features: torch.Tensor) -> Outputs:
        head = self.head
        return Outputs(
            features=features,
            weight=None if head is None else head.weight.float(),
            bias=None if head is None or head.bias is None else head.bias.float(),
        )

    def described(
        self,
        rows: Rows,
        ldm: npt.NDArray[np.float32] | None,
        score: npt.NDArray[np.float32] | None,
        candidates: int,
        notes: tuple[str, ...] = (),
    ) -> ShardSelection:
        """Return picks with what the head makes of them."""
        predicted = margin = None
        if self.head is not None:
            context = build_context(self._outputs(rows).with_logits(), seed=self.seed, device="cpu")
            predicted = context.logits.argmax(dim=1).numpy()
            margin = uncertainty.margin(context.logits).float().numpy()
        ids = self.shards.ids(rows)
        return ShardSelection(
            rows=rows,
            ids=ids,
            ldm=ldm,
            score=score,
            predicted=predicted,
            margin=margin,
            candidates=candidates,
            classes=None if self.head is None else self.head.classes,
            options=self.options,
            notes=(*notes, *_unclear(ids)),
        )


def _unclear(ids: list[str]) -> list[str]:
    """Return a note where ids do not tell picks apart; whether rows that were not picked share them nobody looks."""
    counts = Counter(ids)
    unclear = sum(1 for one in ids if not one.strip() or counts[one] > 1)
    return (
        [f"{unclear:,} of {len(ids):,} picks have no id of their own: go by the row."]
        if unclear
        else []
    )


def _uniform(rows: int, count: int, seed: int, *name: str) -> Rows:
    """Return ``count`` different rows, drawn uniformly."""
    generator = stream(seed, "shards", *name)
    if rows <= 1 << 26 or count > rows // 4:
        return torch.randperm(rows, generator=generator)[:count].numpy()
    found = torch.empty(0, dtype=torch.int64)
    while len(found) < count:  # few are drawn twice
        more = torch.cat([found, torch.randint(rows, (count,), generator=generator)])
        unique, where = np.unique(more.numpy(), return_index=True)
        found = torch.from_numpy(unique[np.argsort(where)])
    return found[:count].numpy()
