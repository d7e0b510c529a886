"""Fused kernels are compiled for a GPU, which the interpreter does not do and which needs none."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="needs Triton")

HOPPER = """
from triton import compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from teeter.bench.fused_networks import kernels
from teeter.kernels.fused import flip_rates, ranks, seeding
from teeter.kernels.fused import subspace_rates


def assembly(kernel, kinds, fixed, **options):
    names = [name for name in kernel.arg_names if name not in fixed]
    signature = dict(zip(names, kinds.split(";"), strict=True))
    signature |= {name: "constexpr" for name in fixed}
    source = ASTSource(kernel, {name: signature[name] for name in kernel.arg_names}, fixed)
    built = compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert built.metadata.shared <= 227 << 10, "more than a program may hold"
    return built.asm["ptx"]


cases = ((10, 20, False), (200, 512, False), (1000, 512, True), (1000, 512, False))
for classes, width, tied in cases:
    sizes = flip_rates._tile_sizes(classes, width)
    options = {name: sizes.pop(name) for name in ("num_warps", "num_stages")}
    rows, some, deep = sizes["ROWS"], sizes["CLASSES"], sizes["WIDTH"]
    kinds = (
        f"*fp32;tensordesc<bf16[{rows}, {deep}]>;*i64;tensordesc<fp32[{rows}, {some}]>;"
        f"tensordesc<bf16[{some}, {deep}]>;*bf16;*fp32;i32;i32;i32;i32;i64;i64"
    )
    constants = {"has_bias": True, "tied": tied, "one_class_tile": classes <= some}
    constants |= {"NEIGHBOURS": 8, "ROUNDING": 1e-5}
    assert "wgmma" in assembly(flip_rates._flip_rates, kinds, constants | sizes, **options)

sizes = {name: getattr(subspace_rates, name) for name in ("ROWS", "DIRECTIONS", "CLASSES")}
for rank in (16, 64):
    rows, some, columns = sizes["ROWS"], sizes["CLASSES"], sizes["DIRECTIONS"] * sizes["CLASSES"]
    kinds = (
        f"*fp32;tensordesc<bf16[{rows}, {rank}]>;*i32;tensordesc<fp32[{rows}, {some}]>;"
        f"tensordesc<bf16[{columns}, {rank}]>;*bf16;i32;i32;i32;i64;i64"
    )
    for tied, one_class_tile in ((False, True), (False, False), (True, False)):
        constants = {"tied": tied, "one_class_tile": one_class_tile, "RANK": rank}
        constants |= {"GROUPS_PER_BLOCK": 2, "ROUNDING": 1e-5} | sizes
        kernel = subspace_rates._subspace_rates
        assert "wgmma" in assembly(kernel, kinds, constants, **subspace_rates.PROGRAM)
constants = {"ROUNDING": 1e-6, "ROWS": 8, "COLUMNS": 128}
assembly(subspace_rates._invert_gaps, "*fp32;*i32;*i32;i32;i32;i32", constants)

constants = {"SHIFT": 18, "ROWS": ranks.ROWS}
assembly(ranks._count_cells, "*i32;*fp32;i32;i32", constants)
assembly(ranks._group_by_cell, "*fp32;*i32;*fp32;i32;i32", constants)
constants |= {"equality_factor": 0.999, "RAYS": ranks.RAYS}
assembly(ranks._lower_bounds, "*i32;*fp32;*i32;i32;i32;i32;i32", constants)
kinds = "*i64;*i64;*i32;*fp32;*i32;i32;i32;i32;i32;i32"
assembly(ranks._find_candidates, kinds, constants)
constants = {"equality_factor": 0.999, "SHIFT": 18}
constants |= {"CANDIDATES": ranks.CANDIDATES, "LANES": ranks.LANES}
kinds = "*i32;*i64;*fp32;*fp32;*i32;i32;i32;i32;i32;i32"
assembly(ranks._count_exactly, kinds, constants)

tile = {name: seeding.PRODUCT_TILE[name] for name in ("PICKS", "WIDTH")} | {"ROWS": seeding.ROWS}
constants = {"negligible": 1e-5, "scale": seeding.LOWER_SCALE} | tile
kinds = "*fp64;*fp16;*fp16;*i64;*i32;i32;i32"
warps = seeding.PRODUCT_TILE["num_warps"]
assert "wgmma" in assembly(seeding._lower_nearest, kinds, constants, num_warps=warps)
assembly(seeding._weigh_tiles, "*fp64;*fp64;*fp64;*fp64;*fp64;i32", {"ROWS": 128})
for groups, draws in ((16, 16), (8192, 2)):  # the second for 100 million rows
    constants = {"GROUPS": groups, "ROWS": 128, "DRAWS": draws}
    assembly(seeding._draw_rows, "*i64;*fp64;*fp64;*fp64;*fp64;*fp64;i32;i32", constants)
constants = {"LOWEST": seeding.LOWEST, "GROUPS": seeding.GROUPS_AT_ONCE, "ROWS": 128}
assembly(seeding._weigh_groups, "*fp64;*fp64;*fp64;*fp64;*fp64;i32", constants)
kinds = "*i64;*i32;*i64;*i32;*i64;*fp32;*fp64;*fp64;*fp64;i32"
assembly(seeding._accept_candidates, kinds, {"BLOCK": 256}, num_warps=16)

# The second convolution of K-CNN: forward with pool and dropout, and the gradient of its input.
constants = {"padding": 1, "KERNEL": 3, "C_IN": 32, "C_OUT": 32, "layer": 1, "WINDOWS": 64}
forward = {"TRANSPOSED": False, "POOL": True, "MASKED": False, "rate": 0.25, "source": None}
kinds = "*bf16;*u8;*bf16;*bf16;*fp32;*i64;*i64;i32;i32;i32;i32;i32;i64"
assert "wgmma" in assembly(kernels._convolve, kinds, constants | forward, num_warps=4)
backward = {"TRANSPOSED": True, "POOL": False, "MASKED": True, "rate": 0.0}
backward |= {name: None for name in ("codes", "bias", "seeds", "step")}
kinds = "*bf16;*bf16;*bf16;*bf16;i32;i32;i32;i32;i32;i64"
assert "wgmma" in assembly(kernels._convolve, kinds, constants | backward, num_warps=4)
constants = {"padding": 1, "KERNEL": 3, "C_IN": 32, "C_OUT": 32, "SPLITS": 8, "PIXELS": 128}
constants |= {"COLUMNS": 128, "TAPS": 3}
kinds = "*fp32;*fp32;*bf16;*bf16;i32;i32;i32;i32;i32;i32"
gradient = assembly(kernels._weight_gradient, kinds, constants, num_warps=4, num_stages=2)
assert "wgmma" in gradient
constants = {"KIND": 1, "weight_decay": 0.0, "alpha": 0.9, "beta": 0.999, "epsilon": 1e-7}
constants |= {"LOG_ALPHA": 0.0, "LOG_BETA": 0.0, "BLOCK": 1024, "first_state": None}
kinds = "*fp32;*bf16;*bf16;*fp32;*fp32;*i64;i32"
assembly(kernels._optimizer_step, kinds, constants)
print("compiled")
"""


@pytest.mark.slow
def test_every_kernel_compiles_and_uses_tensor_cores() -> None:
    here = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", HOPPER], env=here, capture_output=True, text=True, check=False
    )
    assert done.stdout == "compiled\n", done.stderr
