"""Score the rows of a sharded pool: one task and one file of scores per shard.

The features of rows come from a ``FeatureSource``: they are stored beside a head file, or a model
file computes them from raw rows.

There are two kinds of scores. A ``row_independent`` strategy scores a row from that row alone. The
least disagree metric (LDM) ranks a row's flip rate among those of reference rows, which are
computed once and shared by all workers in ``ranks.npy``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from teeter.base.files import atomic_open, atomic_write, read_state, write_errors, write_state
from teeter.base.threads import limit_threads, prefetch
from teeter.base.version import __version__
from teeter.data.array_files import Head, read_head
from teeter.data.shards import Shard, Shards
from teeter.errors import FileError, InputError
from teeter.kernels.directions import Directions, SubspaceDirections, draw_directions
from teeter.kernels.flip_rates import flip_rates
from teeter.kernels.ldm import ldm_against_reference
from teeter.models.model_files import SavedModel, file_digest, read_model
from teeter.models.outputs import Outputs
from teeter.selection.executors import Task
from teeter.strategies.api import build_context, make_strategy
from teeter.strategies.base import TopKStrategy

__all__ = [
    "JOB_FILE",
    "MAX_CACHED_DIRECTIONS",
    "MODEL_CHUNK",
    "RANKS_FILE",
    "REFERENCE_FILE",
    "FeatureSource",
    "LoadedSource",
    "ScoringJob",
    "fetch_features",
    "make_feature_source",
    "make_scoring_tasks",
    "read_scores",
    "score_shard",
    "write_reference",
]

MODEL_CHUNK = 1 << 26
"""Bytes of raw rows that are held at once while a model computes the features of some rows."""

_FLOAT_BYTES = 4


@dataclass(frozen=True)
class FeatureSource:
    """A head file or a model file, identified by its content.

    It is small and is sent to workers, which load the file themselves.
    """

    path: str
    is_model: bool
    digest: str
    """Hash of the file: a changed file under the same name is another source."""

    def load(self) -> LoadedSource:
        """Return the content of the file. Each process reads it once.

        Raises:
            FileError: the file has changed since this source was made.
        """
        return _load_source(self)


@dataclass(frozen=True, eq=False)
class LoadedSource:
    """The head and, if features are computed, the model of a source."""

    head: Head
    model: SavedModel | None

    @property
    def weight(self) -> Tensor:
        """(C, D) in single precision."""
        return self.head.weight.float()

    @property
    def bias(self) -> Tensor | None:
        """(C,) in single precision, or None for a head without one."""
        if self.head.bias is None:
            return None
        return self.head.bias.float()

    def features(self, rows: npt.NDArray[np.float32], describe_row: Callable[[int], str]) -> Tensor:
        """Return the features of stored rows.

        Args:
            rows: (n, ...) as stored in the pool.
            describe_row: maps a position among ``rows`` to words for an error message.

        Returns:
            (n, D): the rows themselves, or what the model computes from them.

        Raises:
            InputError: the model computes NaN or infinity.
        """
        stored = torch.from_numpy(rows)
        if self.model is None:
            return stored

        # As in workers: the number of threads changes how sums are split, and so how they round.
        with limit_threads(1):
            features = self.model.features(stored)

        is_bad = (~torch.isfinite(features)).any(dim=1)
        if is_bad.any():
            row = describe_row(int(is_bad.nonzero()[0]))
            raise InputError(
                f"{self.model.description} computes NaN or infinity for {row}: "
                "scale the rows like those that it was trained on."
            )
        return features


# Two, so that a process can alternate between two selections without reading files again.
@lru_cache(maxsize=2)
def _load_source(source: FeatureSource) -> LoadedSource:
    if file_digest(source.path) != source.digest:
        raise FileError(f"{source.path} has changed since the selection started: start it again.")

    if source.is_model:
        model = read_model(source.path)
        return LoadedSource(model.head(), model)

    return LoadedSource(read_head(source.path), None)


def make_feature_source(
    head: str | Path | None, model: str | Path | None, shards: Shards
) -> FeatureSource | None:
    """Return the source for a pool after checking that the file fits its rows.

    Args:
        head: a head file; the pool then stores features.
        model: a model file; the pool then stores the model's inputs.
        shards: the pool.

    Returns:
        The source, or None if neither file is given.

    Raises:
        InputError: the head or model does not fit the rows or cannot be used.
    """
    path = model
    if path is None:
        path = head
    if path is None:
        return None

    # Resolved, because workers may have another working directory.
    source = FeatureSource(
        path=str(Path(path).resolve()),
        is_model=model is not None,
        digest=file_digest(path),
    )
    loaded = source.load()

    if loaded.model is not None:
        accepted_shapes = (loaded.model.shape, (loaded.model.width,))
        if shards.shape not in accepted_shapes:
            raise InputError(
                f"{loaded.model.description} takes rows of shape {loaded.model.shape}, flat or "
                f"not, but the pool has rows of shape {shards.shape}."
            )
    else:
        weight = loaded.head.weight
        if weight.ndim != 2 or weight.shape[1] != shards.width:
            raise InputError(
                f"The head in {path} has the shape {tuple(weight.shape)}, but rows have "
                f"{shards.width} features."
            )

    _check_head(loaded, path)
    return source


def fetch_features(
    shards: Shards,
    rows: npt.NDArray[np.int64],
    source: FeatureSource | None,
) -> Tensor:
    """Return the features of some rows of a sharded pool.

    Args:
        shards: the pool.
        rows: (k,) row numbers, in any order.
        source: the head or model; None if the pool stores features and there is no head.

    Returns:
        (k, D), in the order of ``rows``.
    """
    if source is None or not source.is_model:
        return torch.from_numpy(shards.take(rows))

    # In the order of the files, a chunk at a time: raw rows may be much larger than features.
    loaded = source.load()
    order = np.argsort(rows, kind="stable")
    step = max(1, MODEL_CHUNK // (_FLOAT_BYTES * shards.width))
    feature_width = loaded.weight.shape[1]
    features = torch.empty(len(rows), feature_width)

    for start in range(0, len(rows), step):
        positions = order[start : start + step]
        chunk = rows[positions]

        # The default binds this chunk; a closure would see the chunk of the next iteration.
        def describe_row(k: int, chunk: npt.NDArray[np.int64] = chunk) -> str:
            return f"row {chunk[k]} of the pool"

        computed = loaded.features(shards.take(chunk), describe_row)
        features[torch.from_numpy(positions)] = computed

    return features


def _check_head(loaded: LoadedSource, path: str | Path) -> None:
    """Refuse an unusable head now, before hours of work."""
    weight = loaded.weight

    # Outputs checks a head; a single row of zeros stands for the features.
    features = torch.zeros(1, weight.shape[1])
    try:
        Outputs(features=features, weight=weight, bias=loaded.bias)
    except InputError as error:
        raise InputError(f"The head in {path} cannot be used: {error}") from None

    class_names = loaded.head.classes
    if class_names is not None and len(class_names) != len(weight):
        raise InputError(
            f"The head in {path} names {len(class_names)} classes, but has weights for "
            f"{len(weight)}."
        )


MAX_CACHED_DIRECTIONS = 1 << 28
"""Bytes of ray directions that a worker keeps; larger sets are drawn again for each batch."""

REFERENCE_FILE = "reference.safetensors"
RANKS_FILE = "ranks.npy"
JOB_FILE = "job.json"


@dataclass(frozen=True)
class ScoringJob:
    """What all shards are scored by. Workers read it from ``job.json`` in its folder."""

    folder: Path
    strategy: str
    """``"ldm"``, or the name of a strategy that scores rows independently."""
    options: dict[str, Any]
    """Options of the strategy; empty for the LDM."""
    rays: int
    """Number of rays of the LDM; 0 for other strategies."""
    subspace: int | None
    """Dimensions of the subspaces of the rays; None for isotropic rays and other strategies."""
    seed: int
    """Seed of the rays."""
    source: FeatureSource

    @property
    def is_ldm(self) -> bool:
        """Whether rows are ranked among reference rows."""
        return self.strategy == "ldm"

    def key(self) -> str:
        """Return a hash of everything that scores depend on except the shard."""
        parameters = [
            __version__,
            self.source.digest,
            self.strategy,
            sorted(self.options.items()),
            self.rays,
            self.subspace,
            self.seed,
        ]
        # Scores by the LDM depend on the features of the reference rows.
        reference = self.folder / REFERENCE_FILE
        reference_content = b""
        if self.is_ldm and reference.exists():
            reference_content = reference.read_bytes()

        content = repr(parameters).encode() + reference_content
        return hashlib.blake2b(content, digest_size=12).hexdigest()

    def write(self) -> None:
        """Write the job into its folder for the workers."""
        content = asdict(self)
        del content["folder"]

        path = self.folder / JOB_FILE
        with write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(path, json.dumps(content).encode())


def make_scoring_tasks(job: ScoringJob, shards: Shards) -> list[Task]:
    """Return one task per shard, each of which writes a file of scores."""
    job_key = job.key()
    tasks = []

    # The name holds the content of job and shard, so a file that exists is never out of date.
    for shard in shards.shards:
        content = (job_key + shard.key()).encode()
        name = hashlib.blake2b(content, digest_size=12).hexdigest()
        task = Task(
            function="teeter.selection.scoring:score_shard",
            arguments={"folder": str(job.folder), "shard": shard},
            output=str(job.folder / f"{name}.safetensors"),
        )
        tasks.append(task)

    return tasks


def score_shard(output: Path, folder: str, shard: Shard) -> None:
    """Write the scores of a shard's rows (4 bytes each) and its smallest feature.

    Args:
        output: the file to write.
        folder: the folder of the job.
        shard: the rows to score.

    Raises:
        FileError: the shard holds fewer or more rows than it declares.
    """
    scorer = _load_scorer(Path(folder))
    scores = []
    smallest = np.inf
    start = 0

    # The next rows are read while these are scored.
    for batch in prefetch(shard.batches()):
        features = scorer.source.features(batch, shard.names(start))

        # Seeding needs to know whether any feature is negative: it bounds the cosine distances.
        smallest = min(smallest, float(features.min()))
        scores.append(scorer.score(features))
        start += len(batch)

    # A damaged Parquet file may end early without an error.
    if start != shard.rows:
        raise FileError(
            f"{shard.path} holds {start:,} rows but declares {shard.rows:,}, so it is damaged."
        )
    all_scores = torch.cat(scores).float()
    write_state(output, {"least": smallest}, {"scores": all_scores})


# A worker scores many shards of one job: it reads the head, the model and the ranks once.
@lru_cache(maxsize=1)
def _load_scorer(folder: Path) -> _ShardScorer:
    text = (folder / JOB_FILE).read_text(encoding="utf-8")
    job = json.loads(text)
    source = FeatureSource(**job["source"]).load()
    return _ShardScorer(folder, job, source)


class _ShardScorer:
    """What a worker process keeps between shards."""

    def __init__(self, folder: Path, job: Mapping[str, Any], source: LoadedSource) -> None:
        self.job = job
        self.source = source
        self.weight = source.weight
        self.bias = source.bias

        if job["strategy"] != "ldm":
            strategy = make_strategy(job["strategy"], dict(job["options"]))
            if not isinstance(strategy, TopKStrategy):
                raise InputError(f"{job['strategy']} does not score rows independently.")
            self.strategy = strategy
            return

        # A ray and its mirror image share a direction: half as many directions as rays.
        self.n_directions: int = (job["rays"] + 1) // 2
        self.cached_directions: Directions | None = None
        first = next(iter(self._draw_directions()))
        if isinstance(first, SubspaceDirections):
            numbers = first.bases.numel() + first.coefficients.numel()
            drawn = len(first)
        else:
            numbers = first[0].numel()
            drawn = len(first[0])
        direction_bytes = 4 * numbers * self.n_directions // drawn
        if direction_bytes <= MAX_CACHED_DIRECTIONS:
            self.cached_directions = list(self._draw_directions())

        # Mapped, not read: all workers of a machine share the pages. Copy-on-write because torch
        # warns about arrays that it cannot write to.
        ranks = np.load(folder / RANKS_FILE, mmap_mode="c", allow_pickle=False)
        self.reference_ranks = torch.from_numpy(ranks)

    def _draw_directions(self) -> Directions:
        return draw_directions(
            self.job["seed"],
            self.n_directions,
            self.weight,
            self.bias,
            subspace=self.job["subspace"],
        )

    def score(self, features: Tensor) -> Tensor:
        """Return the scores of rows: (n, D) -> (n,)."""
        if self.job["strategy"] != "ldm":
            # Any seed: a row-independent score draws nothing.
            outputs = Outputs(features=features, weight=self.weight, bias=self.bias)
            context = build_context(outputs, seed=0, device="cpu")
            return self.strategy.scores(context)

        directions = self.cached_directions
        if directions is None:
            directions = self._draw_directions()

        return ldm_against_reference(
            features,
            self.weight,
            self.bias,
            directions=directions,
            ranks=self.reference_ranks,
        )


def write_reference(
    job: ScoringJob,
    rows: npt.NDArray[np.int64],
    fetch: Callable[[npt.NDArray[np.int64]], Tensor],
) -> None:
    """Write the sorted flip rates of the reference rows, one line per ray, into ``ranks.npy``.

    Args:
        job: an LDM job; nothing is done if its folder has the file.
        rows: (M,) the reference rows.
        fetch: returns the features of rows, (M,) -> (M, D).
    """
    ranks_path = job.folder / RANKS_FILE
    if ranks_path.exists():
        return

    reference_path = job.folder / REFERENCE_FILE
    if not reference_path.exists():
        content = {
            "rows": torch.from_numpy(rows),
            "features": fetch(rows),
        }
        write_state(reference_path, {}, content)

    _, tensors = read_state(reference_path, "a file of reference rows")
    features = tensors["features"]

    source = job.source.load()
    weight = source.weight
    bias = source.bias
    n_directions = (job.rays + 1) // 2
    array_header = {
        "descr": "<f4",  # float32, little-endian
        "fortran_order": False,
        "shape": (job.rays, len(features)),
    }
    n_written = 0

    # Written ray by ray: all ranks together (rays x reference rows) may not fit in memory.
    with write_errors(ranks_path), atomic_open(ranks_path) as file:
        np.lib.format.write_array_header_1_0(file, array_header)
        blocks = draw_directions(job.seed, n_directions, weight, bias, subspace=job.subspace)
        for block in blocks:
            # With an odd number of rays, the mirror image of the last direction is left out.
            rates = flip_rates(features, weight, bias, [block])
            rates = rates[: job.rays - n_written]

            # Sorted, so that a worker finds the rank of a row by binary search. NumPy sorts several
            # times faster than torch, which also returns the order.
            sorted_rates = np.sort(rates.numpy(), axis=1)
            file.write(sorted_rates.astype("<f4").tobytes())
            n_written += len(rates)


def read_scores(tasks: list[Task]) -> tuple[npt.NDArray[np.float32], float]:
    """Read the files that the tasks wrote.

    Returns:
        The scores of all rows in the order of the shards, (N,), and the smallest feature of all.
    """
    scores = []
    smallest = np.inf

    for task in tasks:
        header, tensors = read_state(Path(task.output), "a file of scores")
        scores.append(tensors["scores"].numpy())
        smallest = min(smallest, float(header["least"]))

    return np.concatenate(scores), smallest
