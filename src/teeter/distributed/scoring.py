"""What is computed for each shard: the LDM of its rows among reference rows, or a score that a row has by itself."""

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

from teeter.datasets.array_files import Head
from teeter.datasets.shards import Shard, Shards
from teeter.distributed.executors import Task
from teeter.distributed.feature_source import FeatureSource, LoadedSource
from teeter.errors import FileError, InputError
from teeter.files import atomic_open, atomic_write, read_state, write_errors, write_state
from teeter.kernels.ldm import default_rays, flip_rates, ldm_against_reference, ray_directions
from teeter.models.outputs import Outputs
from teeter.strategies.api import build_context, make_strategy
from teeter.strategies.base import TopKStrategy
from teeter.version import __version__

__all__ = ["Job", "make_reference", "read_scores", "score_shard", "tasks_of"]

HELD = 1 << 28
"""Bytes of directions that a worker keeps; more are drawn anew for each batch."""


@dataclass(frozen=True)
class Job:
    """What all shards are scored by; a worker reads it from the folder of the job."""

    folder: Path
    strategy: str
    options: dict[str, Any]
    """Of a strategy that scores a row by itself."""
    rays: int
    seed: int
    """Of the rays."""
    source: FeatureSource

    @property
    def is_ldm(self) -> bool:
        """Whether rows are ranked among reference rows."""
        return self.strategy == "ldm"

    def key(self) -> str:
        """Return a name for all that scores depend on but the shard."""
        facts = [
            __version__,
            self.source.digest,
            self.strategy,
            sorted(self.options.items()),
            self.rays,
            self.seed,
        ]
        reference = self.folder / "reference.safetensors"
        told = reference.read_bytes() if self.is_ldm and reference.exists() else b""
        return hashlib.blake2b(repr(facts).encode() + told, digest_size=12).hexdigest()

    def write(self) -> None:
        """Leave word for the workers."""
        facts = {
            "strategy": self.strategy,
            "options": self.options,
            "rays": self.rays,
            "seed": self.seed,
        }
        path = self.folder / "job.json"
        with write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(path, json.dumps({**facts, "source": asdict(self.source)}).encode())


def tasks_of(job: Job, shards: Shards) -> list[Task]:
    """Return the plan: a file of scores for each shard."""
    key = job.key()
    return [
        Task(
            "teeter.distributed.scoring:score_shard",
            {"folder": str(job.folder), "shard": shard},
            str(
                job.folder
                / f"{hashlib.blake2b((key + shard.key()).encode(), digest_size=12).hexdigest()}.safetensors"
            ),
        )
        for shard in shards.shards
    ]


def score_shard(output: Path, folder: str, shard: Shard) -> None:
    """Write the scores of a shard's rows, 4 bytes each, and its least feature."""
    job = _job(Path(folder))
    scores, least, start = [], np.inf, 0
    for batch in shard.batches():
        features = job.opened.features(batch, shard.names(start))
        least = min(least, float(features.min()))
        scores.append(job.score(features))
        start += len(batch)
    if start != shard.rows:
        raise FileError(
            f"{shard.path} holds {start:,} rows where it tells of {shard.rows:,}: it is damaged."
        )
    write_state(output, {"least": least}, {"scores": torch.cat(scores).float()})


@lru_cache(maxsize=1)
def _job(folder: Path) -> _Worker:
    facts = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    return _Worker(folder, facts, FeatureSource(**facts["source"]).opened())


class _Worker:
    """What a process keeps from shard to shard."""

    def __init__(self, folder: Path, facts: Mapping[str, Any], opened: LoadedSource) -> None:
        self.facts, self.opened = facts, opened
        self.weight, self.bias = opened.weight, opened.bias
        if facts["strategy"] != "ldm":
            made = make_strategy(facts["strategy"], dict(facts["options"]))
            if not isinstance(made, TopKStrategy):
                raise InputError(f"{facts['strategy']} does not score rows one by one.")
            self.strategy = made
            return
        size = 4 * self.weight.numel() * ((facts["rays"] + 1) // 2)
        self.directions = list(self._drawn()) if size <= HELD else None
        self.reference = torch.from_numpy(
            np.load(folder / "ranks.npy", mmap_mode="c", allow_pickle=False)
        )

    def _drawn(self) -> Any:
        return ray_directions(
            self.facts["seed"], (self.facts["rays"] + 1) // 2, self.weight, self.bias
        )

    def score(self, features: Tensor) -> Tensor:
        if self.facts["strategy"] == "ldm":
            directions = self._drawn() if self.directions is None else self.directions
            return ldm_against_reference(
                features, self.weight, self.bias, directions=directions, ranks=self.reference
            )
        outputs = Outputs(features=features, weight=self.weight, bias=self.bias)
        return self.strategy.scores(build_context(outputs, seed=0, device="cpu"))


def make_reference(
    job: Job, rows: npt.NDArray[np.int64], fetch: Callable[[npt.NDArray[np.int64]], Tensor]
) -> None:
    """Write the flip rates of reference rows, in rising order a ray, for the workers to rank rows among."""
    if (job.folder / "ranks.npy").exists():
        return
    reference = job.folder / "reference.safetensors"
    if not reference.exists():
        write_state(reference, {}, {"rows": torch.from_numpy(rows), "features": fetch(rows)})
    features = read_state(reference, "a file of reference rows")[1]["features"]
    opened = job.source.opened()
    weight, bias = opened.weight, opened.bias
    told = {"descr": "<f4", "fortran_order": False, "shape": (job.rays, len(features))}
    done = 0
    with write_errors(job.folder / "ranks.npy"), atomic_open(job.folder / "ranks.npy") as file:
        np.lib.format.write_array_header_1_0(file, told)
        for block in ray_directions(job.seed, (job.rays + 1) // 2, weight, bias):
            rates = flip_rates(features, weight, bias, [block])[: job.rays - done]
            file.write(rates.sort(dim=1).values.numpy().astype("<f4").tobytes())
            done += len(rates)


def read_scores(tasks: list[Task]) -> tuple[npt.NDArray[np.float32], float]:
    """Return the scores of all rows in the order of the shards, and the least feature of all."""
    pieces, least = [], np.inf
    for task in tasks:
        header, tensors = read_state(Path(task.output), "a file of scores")
        pieces.append(tensors["scores"].numpy())
        least = min(least, float(header["least"]))
    return np.concatenate(pieces), least


def ray_count(head: Head, rays: int | None) -> int:
    """Return how many rays to follow."""
    return rays or default_rays(*head.weight.shape)
