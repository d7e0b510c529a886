"""Find the fastest tiles of the fused convolutions on a GPU.

Every layer of S-CNN and K-CNN runs forward and backward for 50 networks and batches of 64 with each
of the tiles below. Kernels are compiled by several processes first, because that takes longer than
to run them. The result has the milliseconds of all tiles, and the tables for ``kernels.py``.

    python research/speed/tune_convolutions.py --out tiles.json
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from teeter.bench.fused_networks import kernels as fused
from teeter.bench.fused_networks.kernels import Tile

MEMBERS = 50
IMAGES = 64

CONVOLVE = (
    Tile(64, 4, 1),
    Tile(64, 4, 2),
    Tile(64, 4, 3),
    Tile(128, 8, 1),
    Tile(128, 8, 2),
    Tile(128, 4, 1),
    Tile(32, 4, 2),
    Tile(64, 8, 2),
)
GRADIENT = tuple(
    Tile(rows, warps, stages, taps)
    for taps in (1, 3)
    for rows, warps, stages in (
        (64, 4, 1),
        (64, 4, 2),
        (128, 4, 1),
        (128, 4, 2),
        (128, 8, 1),
        (128, 8, 2),
        (64, 8, 2),
    )
)


@dataclass(frozen=True)
class Layer:
    """A convolution of one of the paper's networks."""

    name: str
    kernel: int
    channels_in: int
    channels_out: int
    side: int
    """Of its input."""
    padding: int
    pool: bool
    is_first: bool = False
    """Whether it needs no gradient of its input."""
    follows_pool: bool = False


LAYERS = (
    Layer("K-CNN 1", 1, 32, 32, 32, 0, pool=False, is_first=True),
    Layer("K-CNN 2", 3, 32, 32, 32, 1, pool=True),
    Layer("K-CNN 3", 3, 32, 64, 16, 1, pool=False, follows_pool=True),
    Layer("K-CNN 4", 3, 64, 64, 16, 1, pool=True),
    Layer("S-CNN 1", 1, 16, 32, 26, 0, pool=False, is_first=True),
    Layer("S-CNN 2", 3, 32, 64, 26, 0, pool=True),
)


def numbers(*shape: int) -> Tensor:
    """Return random bfloat16 numbers."""
    return torch.randn(*shape, device="cuda").bfloat16()


def calls(layer: Layer, members: int) -> dict[str, Callable[[], Any]]:
    """Return the forward pass, the gradient of the input and that of the weights."""
    K = layer.kernel
    out_side = layer.side + 2 * layer.padding - K + 1
    x = numbers(members, IMAGES, layer.side, layer.side, layer.channels_in)
    weight = numbers(members, K, K, layer.channels_in, layer.channels_out)
    bias = torch.zeros(members, layer.channels_out, device="cuda")
    gradient = numbers(members, IMAGES, out_side, out_side, layer.channels_out)
    dropout = fused.Dropout(
        0.25,
        0,
        torch.arange(members, device="cuda"),
        torch.zeros(1, dtype=torch.int64, device="cuda"),
    )
    padding = layer.padding

    def forward() -> None:
        if layer.pool:
            fused.convolve_and_pool(x, weight, bias, padding=padding, dropout=dropout)
        else:
            fused.convolve(x, weight, bias, padding=padding)

    def by_input() -> None:
        source = None if layer.follows_pool else x
        fused.input_gradient(gradient, weight, padding=padding, source=source)

    def by_weight() -> None:
        fused.weight_gradient(x, gradient, kernel=K, padding=padding)

    calls_by_name: dict[str, Callable[[], Any]] = {"forward": forward, "by weight": by_weight}
    if not layer.is_first:
        calls_by_name["by input"] = by_input
    return calls_by_name


def use(tile: Tile, part: str) -> None:
    """Use a tile for all layers."""
    fused.CONVOLVE_TILES.clear()
    fused.GRADIENT_TILES.clear()
    if part == "by weight":
        fused.GRADIENT_TILE = tile
    else:
        fused.CONVOLVE_TILE = tile


def tiles_of(part: str) -> tuple[Tile, ...]:
    """Return the tiles to try for a part."""
    return GRADIENT if part == "by weight" else CONVOLVE


def compile_one(task: tuple[int, str, Tile]) -> str:
    """Run a kernel once for two networks, so that it is in the cache on disk."""
    number, part, tile = task
    use(tile, part)
    try:
        calls(LAYERS[number], 2)[part]()
        torch.cuda.synchronize()
    except Exception as error:
        return f"{LAYERS[number].name} {part} {tile}: {str(error)[:80]}"
    return ""


def milliseconds(call: Callable[[], Any], repeats: int = 20) -> float:
    """Return the mean time of a call on the GPU."""
    for _ in range(3):
        call()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(repeats):
        call()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / repeats


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--part", choices=["forward", "by input", "by weight"], help="only one")
    options = parser.parse_args()

    # All layers with the slowest to compile first.
    tasks = [
        (number, part, tile)
        for number, layer in enumerate(LAYERS)
        for part in (
            ["forward", "by weight"] if layer.is_first else ["forward", "by input", "by weight"]
        )
        for tile in tiles_of(part)
        if options.part in (None, part)
    ]
    tasks.sort(key=lambda task: (task[1] == "by weight", LAYERS[task[0]].is_first))
    started = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        problems = [text for text in pool.imap_unordered(compile_one, tasks) if text]
    print(f"compiled in {time.perf_counter() - started:.0f} s", *problems, sep="\n", flush=True)

    measured: dict[str, dict[str, float]] = {}
    fastest: dict[str, Any] = {}
    for layer in LAYERS:
        for part, call in calls(layer, MEMBERS).items():
            if options.part not in (None, part):
                continue
            times = {}
            for tile in tiles_of(part):
                use(tile, part)
                try:
                    times[tile] = milliseconds(call)
                except Exception as error:
                    print(layer.name, part, tile, str(error)[:80])
            measured[f"{layer.name} {part}"] = {str(tile): times[tile] for tile in times}
            best = min(times, key=lambda tile: times[tile])
            fastest[f"{layer.name} {part}"] = {**asdict(best), "ms": times[best]}
            print(layer.name, part, best, f"{times[best]:.3f}", flush=True)
    options.out.write_text(json.dumps({"fastest": fastest, "all": measured}, indent=1) + "\n")


if __name__ == "__main__":
    main()
