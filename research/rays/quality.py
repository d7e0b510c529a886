"""How good estimates by rays in subspaces are, beside isotropic rays and a long reference.

    python research/rays/quality.py --data FOLDER --cache FOLDER --out research/rays/results/...

Every estimate is an upper bound of the LDM, so a lower mean is tighter. The order of rows is
compared with that by 8,192 isotropic rays of another seed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cases import CASES, CaseSpec, Folders, Pool, load_pool
from torch import Tensor

from teeter.base.arrays import choose_device, describe_device
from teeter.base.seeds import normal, stream
from teeter.base.version import __version__, commit
from teeter.kernels.directions import (
    BLOCK,
    Directions,
    SubspaceDirections,
    ray_directions,
    subspace_directions,
)
from teeter.kernels.ldm import ldm_by_rays

RAYS = 512
REFERENCE_RAYS = 8_192
REFERENCE_SEED = 999
SEEDS = 5
TOP_SHARE = 0.05

ISOTROPIC = "isotropic"
VARIANTS = {
    ISOTROPIC: {},
    "random 8": {"subspace": 8},
    "random 16": {"subspace": 16},
    "random 32": {"subspace": 32},
    "random 16, 64 directions in each": {"subspace": 16, "directions": 64},
    "random 16, one for all": {"subspace": 16, "directions": 1 << 20},
    "principal 16": {"subspace": 16, "principal": True},
}


def draw(name: str, seed: int, pool: Pool) -> Directions | None:
    """Return the directions of a variant; None if it is not another one than isotropic rays.

    A random subspace needs fewer dimensions than the features have, a principal one also fewer than
    there are rows.
    """
    options = VARIANTS[name]
    count = RAYS // 2
    if not options:
        return ray_directions(seed, count, pool.weight, pool.bias)

    subspace = int(options["subspace"])
    width = pool.weight.shape[1] + (pool.bias is not None)
    if subspace >= width:
        return None
    if options.get("principal"):
        if subspace >= len(pool.features):
            return None
        return principal_directions(seed, count, pool, subspace)
    directions = int(options.get("directions", BLOCK))
    return shared_subspaces(seed, count, pool, subspace, directions)


def shared_subspaces(
    seed: int, count: int, pool: Pool, subspace: int, directions: int
) -> Iterator[SubspaceDirections]:
    """Yield the directions of teeter, with a new subspace after so many of them only."""
    parts = subspace_directions(seed, count, pool.weight, pool.bias, subspace=subspace)
    blocks = chain.from_iterable(part.cut(1) for part in parts)
    for k, block in enumerate(blocks):
        if k * BLOCK % directions == 0:
            owner = block
        yield replace(block, bases=owner.bases, bias_bases=owner.bias_bases)


def principal_directions(
    seed: int, count: int, pool: Pool, subspace: int
) -> Iterator[SubspaceDirections]:
    """Yield directions inside the space of the first principal directions of the features."""
    rows = pool.features.double()
    if pool.bias is not None:
        rows = torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)
    components = torch.linalg.svd(rows, full_matrices=False).Vh[:subspace].T.to(pool.weight.dtype)

    D = pool.weight.shape[1]
    bias_bases = components[None, D] if pool.bias is not None else None
    for k in range(count // BLOCK):
        generator = stream(seed, "principal ray", k, device=pool.weight.device)
        shape = (1, BLOCK, len(pool.weight), subspace)
        coefficients = normal(shape, generator, pool.weight.device).to(pool.weight.dtype)
        yield SubspaceDirections(components[None, :D], bias_bases, coefficients, count=BLOCK)


def estimate(pool: Pool, directions: Directions, rays: int) -> Tensor:
    """Return the LDM along directions."""
    return ldm_by_rays(pool.features, pool.weight, pool.bias, directions=directions, rays=rays)


def rank_correlation(first: Tensor, second: Tensor) -> float | None:
    """Return Spearman's correlation, None if all values are the same."""
    from scipy.stats import rankdata

    ranks = [rankdata(values.cpu().numpy()) for values in (first, second)]
    if not all(np.ptp(rank) for rank in ranks):
        return None
    return float(np.corrcoef(*ranks)[0, 1])


def top_overlap(first: Tensor, second: Tensor) -> float:
    """Return the share of the rows of smallest value that both have in common."""
    count = max(1, round(TOP_SHARE * len(first)))
    tops = [set(v.argsort(stable=True)[:count].tolist()) for v in (first, second)]
    return len(tops[0] & tops[1]) / count


def measure(spec: CaseSpec, pool: Pool) -> dict[str, Any]:
    """Compare all variants on one pool."""
    directions = ray_directions(REFERENCE_SEED, REFERENCE_RAYS // 2, pool.weight, pool.bias)
    reference = estimate(pool, directions, REFERENCE_RAYS)

    rows = {}
    for name in VARIANTS:
        means = []
        correlations = []
        overlaps = []
        for seed in range(SEEDS):
            variant = draw(name, seed, pool)
            if variant is None:
                break
            values = estimate(pool, variant, RAYS)
            means.append(float(values.mean()))
            correlations.append(rank_correlation(values, reference))
            overlaps.append(top_overlap(values, reference))
        if not means:
            continue

        # Equal values on all rows have no order to compare.
        defined = [value for value in correlations if value is not None]
        rows[name] = {
            "mean LDM": statistics.mean(means),
            "Spearman": statistics.mean(defined) if defined else None,
            "top overlap": statistics.mean(overlaps),
        }
    N, D = pool.features.shape
    return {
        "case": spec.name,
        "kind": spec.kind,
        "N": N,
        "D": D,
        "C": len(pool.weight),
        "reference mean LDM": float(reference.mean()),
        "variants": rows,
    }


def main() -> None:
    """Measure all cases and write the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=os.environ.get("TEETER_DATA"))
    parser.add_argument("--cache", type=Path, required=True, help="folder of pools made before")
    parser.add_argument("--device")
    parser.add_argument("--only", metavar="CASE", help="name of the only case to measure")
    parser.add_argument("--out", type=Path, required=True, help="file for the result as JSON")
    options = parser.parse_args()

    folders = Folders(options.data, options.cache)
    device = choose_device(options.device)
    cases = []
    for spec in CASES:
        if options.only is not None and spec.name != options.only:
            continue
        pool = load_pool(spec, folders).to(device)
        cases.append(measure(spec, pool))
        print(json.dumps(cases[-1]), flush=True)

    result = {
        "teeter": __version__,
        "commit": commit(),
        "torch": torch.__version__,
        "hardware": describe_device(device),
        "rays": RAYS,
        "reference rays": REFERENCE_RAYS,
        "seeds": list(range(SEEDS)),
        "top share": TOP_SHARE,
        "variants": VARIANTS,
        "cases": cases,
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
