"""Convolutions and optimizer steps of many small networks at once.

M networks, the members, have the same layers and their own weights. Activations are bfloat16 in the
order (M, B, height, width, channels), so that the channels of a pixel are next to each other. (In
tests they are float32: Triton's interpreter has no bfloat16.) The plain twin of every function here
is a layer of torch; ``training.batched_network`` has them.

One program of ``_convolve`` computes 2 x 2 neighbouring outputs of 64 windows of one member. A
3 x 3 convolution needs 16 pixels for the 4 outputs of a window and loads each of them once, where
4 separate outputs would load 36. Bias, ReLU, the 2 x 2 maximum and dropout follow in registers:
what is written is what the next layer reads.

A step of an optimizer is one pass, too: state, weights and their bfloat16 copies. torch has no
fused RMSprop, and none of its optimizers, the plain twins, writes the copies that products on
tensor cores read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

CHANNELS = (16, 32, 64)
"""Numbers of channels that fill the tiles of these kernels."""


@dataclass(frozen=True)
class Tile:
    """How much a program does at once, and with what.

    The tables below have the fastest on an H200, by ``research/speed/tune_convolutions.py``.
    """

    rows: int
    """Windows of 2 x 2 outputs in ``_convolve``, pixels in ``_weight_gradient``."""
    warps: int
    stages: int
    """Loads that are under way at once."""
    taps: int = 1
    """Taps of a 3 x 3 kernel in a product of ``_weight_gradient``: 1, or a row of 3."""


CONVOLVE_TILES: dict[tuple[int, int, int, bool], Tile] = {
    (1, 32, 32, False): Tile(64, 4, 3),
    (3, 32, 32, True): Tile(64, 4, 2),
    (3, 32, 32, False): Tile(64, 4, 1),
    (3, 32, 64, False): Tile(64, 4, 2),
    (3, 64, 32, False): Tile(128, 4, 1),
    (3, 64, 64, True): Tile(32, 4, 2),
    (3, 64, 64, False): Tile(32, 4, 2),
    (1, 16, 32, False): Tile(64, 4, 1),
    (3, 32, 64, True): Tile(64, 4, 2),
}
"""Tiles of ``_convolve`` by kernel, channels in and out, and whether a pool follows."""

CONVOLVE_TILE = Tile(64, 4, 1)
"""The tile where ``CONVOLVE_TILES`` has none."""

GRADIENT_TILES: dict[tuple[int, int, int], Tile] = {
    (1, 32, 32): Tile(128, 4, 1),
    (3, 32, 32): Tile(128, 4, 2, taps=3),
    (3, 32, 64): Tile(128, 4, 2, taps=3),
    (3, 64, 64): Tile(128, 4, 1),
    (1, 16, 32): Tile(128, 4, 1),
}
"""Tiles of ``_weight_gradient`` by kernel and channels in and out."""

GRADIENT_TILE = Tile(128, 4, 1)
"""The tile where ``GRADIENT_TILES`` has none."""

SPLITS = 8
"""Programs that share the pixels of a member in ``_weight_gradient``. A constant, so that sums are
added in the same order whatever the number of members is."""

DEAD = tl.constexpr(4)
"""What ``_convolve`` writes for a window that passes no gradient on: dropped, or not above 0."""

ROUNDS = tl.constexpr(7)
"""Rounds of the counter-based generator Philox, the fewest that pass the usual tests."""


@dataclass(frozen=True)
class Dropout:
    """The dropout of a layer, drawn inside a kernel by a counter and the seed of each member."""

    rate: float
    """The share of numbers that is dropped."""
    layer: int
    """The number of the layer, so that layers do not share their draws."""
    seeds: Tensor
    """(M,) int64, one for each member."""
    step: Tensor
    """(1,) int64, the number of the training step."""


@triton.jit  # type: ignore[untyped-decorator]
def _is_kept(
    seeds: tl.tensor,
    step: tl.tensor,
    member: tl.tensor,
    positions: tl.tensor,
    rate: tl.constexpr,
    layer: tl.constexpr,
) -> tl.tensor:
    """Return which numbers dropout keeps, from the positions of the numbers in their member."""
    seed = tl.load(seeds + member)
    counter = positions.to(tl.uint32)
    zeros = counter * 0
    low_step = zeros + tl.load(step).to(tl.uint32)
    bits, _, _, _ = tl.philox(seed, counter, low_step, zeros + layer, zeros, ROUNDS)

    # 24 bits are as many as a float32 holds.
    uniform = (bits >> 8).to(tl.float32) * (1.0 / 16777216.0)
    return uniform >= rate


@triton.jit  # type: ignore[untyped-decorator]
def _pixels(
    x: tl.tensor,
    image: tl.tensor,
    row: tl.tensor,
    column: tl.tensor,
    is_window: tl.tensor,
    height: tl.tensor,
    width: tl.tensor,
    channels: tl.constexpr,
) -> tl.tensor:
    """Load a pixel of each window, (WINDOWS, channels), with zeros outside the images."""
    is_inside = is_window & (row >= 0) & (row < height) & (column >= 0) & (column < width)
    pixel = (image * height + row) * width + column
    pointers = x + pixel[:, None] * channels + tl.arange(0, channels)[None, :]
    return tl.load(pointers, mask=is_inside[:, None], other=0.0)


@triton.jit  # type: ignore[untyped-decorator]
def _store_pixels(
    out: tl.tensor,
    values: tl.tensor,
    source: tl.tensor,
    image: tl.tensor,
    row: tl.tensor,
    column: tl.tensor,
    is_window: tl.tensor,
    height: tl.tensor,
    width: tl.tensor,
    channels: tl.constexpr,
    masked: tl.constexpr,
) -> None:
    """Store an output of each window; with ``masked``, 0 where ``source`` is not above 0."""
    is_inside = is_window & (row < height) & (column < width)
    pixel = (image * height + row) * width + column
    offsets = pixel[:, None] * channels + tl.arange(0, channels)[None, :]
    if masked:
        activation = tl.load(source + offsets, mask=is_inside[:, None], other=0.0)
        values = tl.where(activation > 0, values, 0.0)
    tl.store(out + offsets, values.to(out.dtype.element_ty), mask=is_inside[:, None])


@triton.jit  # type: ignore[untyped-decorator]
def _sum_taps(
    x: tl.tensor,
    weight: tl.tensor,
    image: tl.tensor,
    row: tl.tensor,
    column: tl.tensor,
    is_window: tl.tensor,
    height: tl.tensor,
    width: tl.tensor,
    padding: tl.constexpr,
    KERNEL: tl.constexpr,
    C_IN: tl.constexpr,
    C_OUT: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    WINDOWS: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """Return the four outputs of each window before the bias, by row and column.

    Each is (WINDOWS, C_OUT) float32. ``x`` and ``weight`` point to the images and the weights of
    the member, ``row`` and ``column`` are those of the first output of each window.
    """
    SIZE: tl.constexpr = C_IN * C_OUT
    c_in = tl.arange(0, C_IN)
    c_out = tl.arange(0, C_OUT)
    if TRANSPOSED:
        offsets = c_out[None, :] * C_IN + c_in[:, None]
    else:
        offsets = c_in[:, None] * C_OUT + c_out[None, :]

    sum_00 = tl.zeros((WINDOWS, C_OUT), tl.float32)
    sum_01 = tl.zeros((WINDOWS, C_OUT), tl.float32)
    sum_10 = tl.zeros((WINDOWS, C_OUT), tl.float32)
    sum_11 = tl.zeros((WINDOWS, C_OUT), tl.float32)
    for dy in tl.range(0, KERNEL):
        tap_row = weight + dy * KERNEL * SIZE
        if TRANSPOSED:
            # A gradient flows back through the taps in reverse.
            tap_row = weight + (KERNEL * KERNEL - 1 - dy * KERNEL) * SIZE

        taps = tl.zeros((C_IN, C_OUT), x.dtype.element_ty)
        for v in tl.static_range(KERNEL + 1):
            y = row + dy - padding
            z = column + v - padding
            upper = _pixels(x, image, y, z, is_window, height, width, C_IN)
            lower = _pixels(x, image, y + 1, z, is_window, height, width, C_IN)

            # The right outputs of a window see the pixel by the tap before.
            if v > 0:
                sum_01 = tl.dot(upper, taps, sum_01)
                sum_11 = tl.dot(lower, taps, sum_11)
            if v < KERNEL:
                if TRANSPOSED:
                    taps = tl.load(tap_row - v * SIZE + offsets)
                else:
                    taps = tl.load(tap_row + v * SIZE + offsets)
                sum_00 = tl.dot(upper, taps, sum_00)
                sum_10 = tl.dot(lower, taps, sum_10)

    return sum_00, sum_01, sum_10, sum_11


@triton.jit  # type: ignore[untyped-decorator]
def _store_maxima(
    out: tl.tensor,
    codes: tl.tensor,
    sums: tl.tuple,
    biases: tl.tensor,
    seeds: tl.tensor,
    step: tl.tensor,
    member: tl.tensor,
    window: tl.tensor,
    window_count: tl.tensor,
    channels: tl.constexpr,
    rate: tl.constexpr,
    layer: tl.constexpr,
    WINDOWS: tl.constexpr,
) -> None:
    """Store the largest output of each window after ReLU and dropout, and which of the four it is.

    ``codes`` may be None, which stores the maxima alone.
    """
    # The first of equal outputs is the maximum, as in torch.
    largest = sums[0]
    code = tl.zeros((WINDOWS, channels), tl.int32)
    for k in tl.static_range(1, 4):
        code = tl.where(sums[k] > largest, k, code)
        largest = tl.maximum(largest, sums[k])
    largest += biases

    is_alive = largest > 0
    offsets = window[:, None] * channels + tl.arange(0, channels)[None, :]
    if rate > 0:
        is_alive &= _is_kept(seeds, step, member, offsets, rate, layer)
        largest *= 1 / (1 - rate)

    member_offset = member * window_count * channels
    is_window = (window < window_count)[:, None]
    values = tl.where(is_alive, largest, 0.0).to(out.dtype.element_ty)
    tl.store(out + member_offset + offsets, values, mask=is_window)
    if codes is not None:
        code = tl.where(is_alive, code, DEAD).to(tl.uint8)
        tl.store(codes + member_offset + offsets, code, mask=is_window)


# One compilation for all batch sizes.
@triton.jit(do_not_specialize=["images"])  # type: ignore[untyped-decorator]
def _convolve(
    out: tl.tensor,
    codes: tl.tensor,
    x: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    source: tl.tensor,
    seeds: tl.tensor,
    step: tl.tensor,
    images: tl.tensor,
    height: tl.tensor,
    width: tl.tensor,
    out_height: tl.tensor,
    out_width: tl.tensor,
    member_stride: tl.tensor,
    padding: tl.constexpr,
    KERNEL: tl.constexpr,
    C_IN: tl.constexpr,
    C_OUT: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    POOL: tl.constexpr,
    MASKED: tl.constexpr,
    rate: tl.constexpr,
    layer: tl.constexpr,
    WINDOWS: tl.constexpr,
) -> None:
    """Convolve images (B, height, width, C_IN) of a member; see the functions below.

    ``weight`` is (M, KERNEL, KERNEL, C_IN, C_OUT), or for ``TRANSPOSED`` that of the convolution
    whose input gradient this is, (M, KERNEL, KERNEL, C_OUT, C_IN).
    """
    member = tl.program_id(1).to(tl.int64)
    window_rows = (out_height + 1) // 2
    window_columns = (out_width + 1) // 2
    window_count = images * window_rows * window_columns

    window = tl.program_id(0) * WINDOWS + tl.arange(0, WINDOWS)
    is_window = window < window_count
    image = window // (window_rows * window_columns)
    row = window // window_columns % window_rows * 2
    column = window % window_columns * 2

    sums = _sum_taps(
        x + member * member_stride,
        weight + member * (KERNEL * KERNEL * C_IN * C_OUT),
        image,
        row,
        column,
        is_window,
        height,
        width,
        padding,
        KERNEL,
        C_IN,
        C_OUT,
        TRANSPOSED,
        WINDOWS,
    )
    if not TRANSPOSED:
        biases = tl.load(bias + member * C_OUT + tl.arange(0, C_OUT))[None, :]

    if POOL:
        _store_maxima(
            out,
            codes,
            sums,
            biases,
            seeds,
            step,
            member,
            window,
            window_count,
            C_OUT,
            rate,
            layer,
            WINDOWS,
        )
    else:
        member_offset = member * images * out_height * out_width * C_OUT
        out += member_offset
        if MASKED:
            source += member_offset

        for k in tl.static_range(4):
            values = sums[k]
            if not TRANSPOSED:
                values = tl.maximum(values + biases, 0.0)
            _store_pixels(
                out,
                values,
                source,
                image,
                row + k // 2,
                column + k % 2,
                is_window,
                out_height,
                out_width,
                C_OUT,
                MASKED,
            )


def convolve(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    padding: int,
) -> Tensor:
    """Return the ReLU of a convolution with stride 1.

    Args:
        x: (M, B, height, width, C_in) bfloat16, or (1, ...) for images that all members share.
        weight: (M, K, K, C_in, C_out) bfloat16.
        bias: (M, C_out) float32.
        padding: zeros around the images.

    Returns:
        (M, B, height', width', C_out) bfloat16.
    """
    M, K, _, _, C_out = weight.shape
    _, B, height, width, _ = x.shape
    grown = 2 * padding - K + 1
    out = x.new_empty((M, B, height + grown, width + grown, C_out))
    _launch(out, x, weight, bias=bias, padding=padding)
    return out


def convolve_and_pool(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    padding: int,
    dropout: Dropout | None,
    needs_codes: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """Return the maxima of 2 x 2 outputs of ``convolve``, after dropout, and where they are.

    Args:
        x: as for ``convolve``. The outputs must have an even height and width.
        weight: as for ``convolve``.
        bias: as for ``convolve``.
        padding: zeros around the images.
        dropout: what to drop, or None.
        needs_codes: whether to return codes, which only ``unpool`` needs.

    Returns:
        (M, B, height' / 2, width' / 2, C_out) bfloat16 and, of the same shape, bytes: 0 to 3 for
        the output of the window that is the maximum, 4 if no gradient passes.
    """
    M, K, _, _, C_out = weight.shape
    _, B, height, width, _ = x.shape
    grown = 2 * padding - K + 1
    out = x.new_empty((M, B, (height + grown) // 2, (width + grown) // 2, C_out))
    codes = None
    if needs_codes:
        codes = torch.empty_like(out, dtype=torch.uint8)
    _launch(out, x, weight, bias=bias, padding=padding, codes=codes, pool=True, dropout=dropout)
    return out, codes


def input_gradient(
    gradient: Tensor,
    weight: Tensor,
    *,
    padding: int,
    source: Tensor | None,
) -> Tensor:
    """Return the gradient of the input of a convolution.

    Args:
        gradient: (M, B, height', width', C_out) bfloat16, that of its output before the ReLU.
        weight: (M, K, K, C_in, C_out) bfloat16.
        padding: that of the convolution.
        source: (M, B, height, width, C_in) its input, if that is the output of a ReLU: the gradient
            is then that before the ReLU.

    Returns:
        (M, B, height, width, C_in) bfloat16.
    """
    M, K, _, C_in, _ = weight.shape
    _, B, height, width, _ = gradient.shape
    grown = K - 1 - 2 * padding
    out = gradient.new_empty((M, B, height + grown, width + grown, C_in))
    _launch(out, gradient, weight, padding=K - 1 - padding, source=source, transposed=True)
    return out


def _launch(
    out: Tensor,
    x: Tensor,
    weight: Tensor,
    *,
    padding: int,
    bias: Tensor | None = None,
    codes: Tensor | None = None,
    source: Tensor | None = None,
    transposed: bool = False,
    pool: bool = False,
    dropout: Dropout | None = None,
) -> None:
    M, K = weight.shape[:2]
    shared, B, height, width, C_in = x.shape
    grown = 2 * padding - K + 1
    out_height = height + grown
    out_width = width + grown
    C_out = out.shape[-1]
    window_count = B * ((out_height + 1) // 2) * ((out_width + 1) // 2)
    member_stride = B * height * width * C_in
    if shared == 1 and M > 1:
        member_stride = 0

    seeds, step, rate, layer = _dropout_arguments(dropout)
    tile = CONVOLVE_TILES.get((K, C_in, C_out, pool), CONVOLVE_TILE)
    grid = (triton.cdiv(window_count, tile.rows), M)
    _convolve[grid](
        out,
        codes,
        x,
        weight,
        bias,
        source,
        seeds,
        step,
        B,
        height,
        width,
        out_height,
        out_width,
        member_stride,
        padding=padding,
        KERNEL=K,
        C_IN=C_in,
        C_OUT=C_out,
        TRANSPOSED=transposed,
        POOL=pool,
        MASKED=source is not None,
        rate=rate,
        layer=layer,
        WINDOWS=tile.rows,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )


def _dropout_arguments(
    dropout: Dropout | None,
) -> tuple[Tensor | None, Tensor | None, float, int]:
    """Return the seeds, the step, the rate and the layer that a kernel takes."""
    if dropout is None:
        return None, None, 0.0, 0
    return dropout.seeds, dropout.step, dropout.rate, dropout.layer


# One compilation for all batch sizes.
@triton.jit(do_not_specialize=["images"])  # type: ignore[untyped-decorator]
def _weight_gradient(
    weight_parts: tl.tensor,
    bias_parts: tl.tensor,
    x: tl.tensor,
    gradient: tl.tensor,
    images: tl.tensor,
    height: tl.tensor,
    width: tl.tensor,
    out_height: tl.tensor,
    out_width: tl.tensor,
    span: tl.tensor,
    padding: tl.constexpr,
    KERNEL: tl.constexpr,
    C_IN: tl.constexpr,
    C_OUT: tl.constexpr,
    COLUMNS: tl.constexpr,
    TAPS: tl.constexpr,
    SPLITS: tl.constexpr,
    PIXELS: tl.constexpr,
) -> None:
    """Add up a share of the pixels of a member, for ``TAPS`` taps of one row of the kernel.

    Neighbouring pixels are next to each other in memory, so the pixels of several taps are one load
    of ``COLUMNS`` numbers and one product, from which the rows past the last tap are left out.
    """
    taps_per_row: tl.constexpr = KERNEL // TAPS
    first_tap = tl.program_id(0) % taps_per_row * TAPS
    dy = tl.program_id(0) // taps_per_row % KERNEL
    split = tl.program_id(0) // (taps_per_row * KERNEL)
    member = tl.program_id(1).to(tl.int64)

    pixel_count = images * out_height * out_width
    gradient += member * pixel_count * C_OUT
    x += member * images * height * width * C_IN
    position = tl.arange(0, COLUMNS)
    tap = position // C_IN
    c_out = tl.arange(0, C_OUT)

    total = tl.zeros((COLUMNS, C_OUT), tl.float32)
    bias_sum = tl.zeros((C_OUT,), tl.float32)
    end = tl.minimum((split + 1) * span, pixel_count)
    for start in tl.range(split * span, end, PIXELS):
        pixel = start + tl.arange(0, PIXELS)
        is_pixel = pixel < end
        image = pixel // (out_height * out_width)
        row = pixel // out_width % out_height + dy - padding
        column = pixel % out_width + first_tap - padding

        gradients = tl.load(
            gradient + pixel[:, None] * C_OUT + c_out[None, :],
            mask=is_pixel[:, None],
            other=0.0,
        )
        if dy == 0 and first_tap == 0:
            bias_sum += tl.sum(gradients.to(tl.float32), axis=0)

        columns = column[:, None] + tap[None, :]
        is_inside = (columns >= 0) & (columns < width) & (tap < TAPS)[None, :]
        is_inside &= (is_pixel & (row >= 0) & (row < height))[:, None]
        first = (image * height + row) * width + column
        pixels = tl.load(x + first[:, None] * C_IN + position[None, :], mask=is_inside, other=0.0)
        total = tl.dot(tl.trans(pixels), gradients, total)

    part = member * SPLITS + split
    taps = (part * KERNEL + dy) * KERNEL + first_tap
    offsets = taps * C_IN * C_OUT + position[:, None] * C_OUT + c_out[None, :]
    tl.store(weight_parts + offsets, total, mask=(tap < TAPS)[:, None])
    if dy == 0 and first_tap == 0:
        tl.store(bias_parts + part * C_OUT + c_out, bias_sum)


def weight_gradient(
    x: Tensor,
    gradient: Tensor,
    *,
    kernel: int,
    padding: int,
) -> tuple[Tensor, Tensor]:
    """Return the gradients of the weights and the biases of a convolution.

    Args:
        x: (M, B, height, width, C_in) bfloat16, its input.
        gradient: (M, B, height', width', C_out) bfloat16, that of its output before the ReLU.
        kernel: the side K of the kernel, 1 or 3.
        padding: zeros around the images.

    Returns:
        (M, K, K, C_in, C_out) and (M, C_out), float32.
    """
    M, B, height, width, C_in = x.shape
    _, _, out_height, out_width, C_out = gradient.shape
    weight_parts = torch.empty(
        (M, SPLITS, kernel, kernel, C_in, C_out), dtype=torch.float32, device=x.device
    )
    bias_parts = torch.empty((M, SPLITS, C_out), dtype=torch.float32, device=x.device)

    pixel_count = B * out_height * out_width
    tile = GRADIENT_TILES.get((kernel, C_in, C_out), GRADIENT_TILE)
    taps = min(tile.taps, kernel)
    span = triton.cdiv(triton.cdiv(pixel_count, SPLITS), tile.rows) * tile.rows
    _weight_gradient[(SPLITS * kernel * (kernel // taps), M)](
        weight_parts,
        bias_parts,
        x,
        gradient,
        B,
        height,
        width,
        out_height,
        out_width,
        span,
        padding=padding,
        KERNEL=kernel,
        C_IN=C_in,
        C_OUT=C_out,
        COLUMNS=triton.next_power_of_2(taps * C_in),
        TAPS=taps,
        SPLITS=SPLITS,
        PIXELS=tile.rows,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    return weight_parts.sum(dim=1), bias_parts.sum(dim=1)


@triton.jit  # type: ignore[untyped-decorator]
def _unpool(
    out: tl.tensor,
    gradient: tl.tensor,
    codes: tl.tensor,
    window_count: tl.tensor,
    window_columns: tl.tensor,
    scale: tl.constexpr,
    CHANNELS: tl.constexpr,
    WINDOWS: tl.constexpr,
) -> None:
    """Write the gradient of each maximum to its place in the window, and 0 to the others."""
    member = tl.program_id(1).to(tl.int64)
    window = tl.program_id(0) * WINDOWS + tl.arange(0, WINDOWS)
    is_window = (window < window_count)[:, None]
    channel = tl.arange(0, CHANNELS)[None, :]
    offsets = member * window_count * CHANNELS + window[:, None] * CHANNELS + channel
    gradients = tl.load(gradient + offsets, mask=is_window, other=0.0)
    code = tl.load(codes + offsets, mask=is_window, other=DEAD)
    scaled = (gradients.to(tl.float32) * scale).to(out.dtype.element_ty)
    zeros = tl.zeros_like(scaled)

    # Rows of windows follow each other through all images: a row of windows is two of pixels.
    row = window // window_columns * 2
    column = window % window_columns * 2
    width = window_columns * 2
    out += member * window_count * 4 * CHANNELS
    for k in tl.static_range(4):
        pixel = (row + k // 2) * width + column + k % 2
        pointers = out + pixel[:, None] * CHANNELS + channel
        tl.store(pointers, tl.where(code == k, scaled, zeros), mask=is_window)


def unpool(gradient: Tensor, codes: Tensor, rate: float) -> Tensor:
    """Return the gradient before the ReLU, the maximum and the dropout of ``convolve_and_pool``.

    Args:
        gradient: (M, B, height, width, channels) bfloat16, that of its output.
        codes: of the same shape, its second result.
        rate: that of its dropout.

    Returns:
        (M, B, 2 height, 2 width, channels) bfloat16.
    """
    M, B, height, width, channels = gradient.shape
    out = gradient.new_empty((M, B, 2 * height, 2 * width, channels))
    window_count = B * height * width

    _unpool[(triton.cdiv(window_count, 64), M)](
        out,
        gradient,
        codes,
        window_count,
        width,
        scale=1 / (1 - rate),
        CHANNELS=channels,
        WINDOWS=64,
        num_warps=4,
    )
    return out


# One compilation for all batch sizes.
@triton.jit(do_not_specialize=["images"])  # type: ignore[untyped-decorator]
def _extract_patches(
    out: tl.tensor,
    inputs: tl.tensor,
    rows: tl.tensor,
    images: tl.tensor,
    member_rows: tl.tensor,
    height: tl.tensor,
    width: tl.tensor,
    out_height: tl.tensor,
    out_width: tl.tensor,
    padding: tl.constexpr,
    KERNEL: tl.constexpr,
    CHANNELS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PIXELS: tl.constexpr,
) -> None:
    """Copy the pixels that each output of a convolution sees, side by side."""
    member = tl.program_id(1).to(tl.int64)
    pixel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    is_pixel = pixel < images * out_height * out_width
    image = pixel // (out_height * out_width)
    row = pixel // out_width % out_height
    column = pixel % out_width
    source = tl.load(rows + member * images + image, mask=is_pixel, other=0)

    position = tl.arange(0, COLUMNS)
    tap = position // CHANNELS
    channel = position % CHANNELS
    y = row[:, None] + (tap // KERNEL)[None, :] - padding
    x = column[:, None] + (tap % KERNEL)[None, :] - padding
    is_inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
    is_inside &= is_pixel[:, None] & (tap < KERNEL * KERNEL)[None, :]

    # 64 bits for the image, 32 inside it.
    first_pixel = inputs + (member * member_rows + source) * CHANNELS * height * width
    offsets = (channel[None, :] * height + y) * width + x
    values = tl.load(first_pixel[:, None] + offsets, mask=is_inside, other=0.0)
    out += member * images * out_height * out_width * COLUMNS
    pointers = out + pixel[:, None] * COLUMNS + position[None, :]
    tl.store(pointers, values.to(out.dtype.element_ty), mask=is_pixel[:, None])


def patch_width(kernel: int, channels: int) -> int:
    """Return the number of columns of ``extract_patches``: a power of two from 16 on."""
    columns: int = triton.next_power_of_2(kernel * kernel * channels)
    return max(16, columns)


def extract_patches(
    inputs: Tensor,
    rows: Tensor,
    *,
    kernel: int,
    padding: int,
    dtype: torch.dtype,
) -> Tensor:
    """Return the pixels that each output of a first convolution sees.

    With them, a convolution of few channels is one of a single pixel and many channels.

    Args:
        inputs: (M, L, channels, height, width) the images of each member.
        rows: (M, B) which of them.
        kernel: the side K of the kernel.
        padding: zeros around the images.
        dtype: that of the result.

    Returns:
        (M, B, height', width', columns), in the order (K, K, channels), then zeros.
    """
    M, L, channels, height, width = inputs.shape
    B = rows.shape[1]
    grown = 2 * padding - kernel + 1
    columns = patch_width(kernel, channels)
    out = torch.empty(
        (M, B, height + grown, width + grown, columns), dtype=dtype, device=inputs.device
    )

    pixel_count = B * (height + grown) * (width + grown)
    _extract_patches[(triton.cdiv(pixel_count, 64), M)](
        out,
        inputs,
        rows,
        B,
        L,
        height,
        width,
        height + grown,
        width + grown,
        padding=padding,
        KERNEL=kernel,
        CHANNELS=channels,
        COLUMNS=columns,
        PIXELS=64,
        num_warps=4,
    )
    return out


@triton.jit  # type: ignore[untyped-decorator]
def _drop_rectified(
    out: tl.tensor,
    x: tl.tensor,
    bias: tl.tensor,
    seeds: tl.tensor,
    step: tl.tensor,
    size: tl.tensor,
    WIDTH: tl.constexpr,
    rate: tl.constexpr,
    layer: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    member = tl.program_id(1).to(tl.int64)
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    is_inside = offsets < size
    values = tl.load(x + member * size + offsets, mask=is_inside, other=0.0).to(tl.float32)
    values += tl.load(bias + member * WIDTH + offsets % WIDTH)
    is_alive = values > 0
    if rate > 0:
        is_alive &= _is_kept(seeds, step, member, offsets, rate, layer)
        values *= 1 / (1 - rate)
    values = tl.where(is_alive, values, 0.0)
    tl.store(out + member * size + offsets, values.to(out.dtype.element_ty), mask=is_inside)


def drop_rectified(
    x: Tensor,
    bias: Tensor,
    dropout: Dropout | None,
) -> Tensor:
    """Return bias, ReLU and dropout of the product of a linear layer, in one pass.

    Args:
        x: (M, B, D) bfloat16.
        bias: (M, D) float32.
        dropout: what to drop, or None.
    """
    M, B, D = x.shape
    out = torch.empty_like(x)
    seeds, step, rate, layer = _dropout_arguments(dropout)
    grid = (triton.cdiv(B * D, 1024), M)
    _drop_rectified[grid](
        out,
        x,
        bias,
        seeds,
        step,
        B * D,
        WIDTH=D,
        rate=rate,
        layer=layer,
        BLOCK=1024,
        num_warps=4,
    )
    return out


BLOCK = 1024

KINDS = {"adam": 0, "rmsprop": 1, "nesterov": 2, "sgd": 3}


# One compilation for all parameters.
@triton.jit(do_not_specialize=["size"])  # type: ignore[untyped-decorator]
def _optimizer_step(
    weight: tl.tensor,
    copy: tl.tensor,
    gradient: tl.tensor,
    first_state: tl.tensor,
    second_state: tl.tensor,
    learning_rate: tl.tensor,
    step: tl.tensor,
    size: tl.tensor,
    KIND: tl.constexpr,
    weight_decay: tl.constexpr,
    alpha: tl.constexpr,
    beta: tl.constexpr,
    epsilon: tl.constexpr,
    LOG_ALPHA: tl.constexpr,
    LOG_BETA: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    is_inside = offsets < size
    w = tl.load(weight + offsets, mask=is_inside)
    g = tl.load(gradient + offsets, mask=is_inside).to(tl.float32)
    rate = tl.load(learning_rate)
    if weight_decay > 0:
        g += weight_decay * w

    if KIND == 0:  # Adam: alpha and beta are the decays of the two moments
        number = (tl.load(step) + 1).to(tl.float32)
        mean = tl.load(first_state + offsets, mask=is_inside)
        square = tl.load(second_state + offsets, mask=is_inside)
        mean = mean + (1 - alpha) * (g - mean)
        square = beta * square + (1 - beta) * g * g
        tl.store(first_state + offsets, mean, mask=is_inside)
        tl.store(second_state + offsets, square, mask=is_inside)
        mean_share = 1 - tl.exp2(number * LOG_ALPHA)
        square_share = 1 - tl.exp2(number * LOG_BETA)
        w -= rate / mean_share * mean / (tl.sqrt(square / square_share) + epsilon)
    elif KIND == 1:  # RMSprop
        square = tl.load(second_state + offsets, mask=is_inside)
        square = alpha * square + (1 - alpha) * g * g
        tl.store(second_state + offsets, square, mask=is_inside)
        w -= rate * g / (tl.sqrt(square) + epsilon)
    elif KIND == 2:  # SGD with Nesterov's momentum
        momentum = alpha * tl.load(first_state + offsets, mask=is_inside) + g
        tl.store(first_state + offsets, momentum, mask=is_inside)
        w -= rate * (g + alpha * momentum)
    else:
        w -= rate * g

    tl.store(weight + offsets, w, mask=is_inside)
    if copy is not None:
        tl.store(copy + offsets, w.to(copy.dtype.element_ty), mask=is_inside)


def optimizer_step(
    weight: Tensor,
    copy: Tensor | None,
    gradient: Tensor,
    states: tuple[Tensor | None, Tensor | None],
    *,
    kind: str,
    learning_rate: Tensor,
    step: Tensor,
    weight_decay: float,
    alpha: float,
    beta: float,
    epsilon: float,
) -> None:
    """Change weights in place by one step of an optimizer.

    Args:
        weight: float32 of any shape.
        copy: bfloat16 of the same shape, overwritten with the new weights; or None.
        gradient: float32 or bfloat16 of the same shape.
        states: the first and second moment, each float32 of the same shape; None where the
            optimizer has none.
        kind: ``"adam"``, ``"rmsprop"``, ``"nesterov"`` or ``"sgd"``.
        learning_rate: (1,) float32.
        step: (1,) int64, how many steps were taken before.
        weight_decay: times the weights, added to the gradient.
        alpha: the decay of the first moment, or the momentum; for RMSprop that of its only moment.
        beta: the decay of the second moment.
        epsilon: added to the root of the second moment.
    """
    size = weight.numel()
    _optimizer_step[(triton.cdiv(size, BLOCK),)](
        weight,
        copy,
        gradient,
        states[0],
        states[1],
        learning_rate,
        step,
        size,
        KIND=KINDS[kind],
        weight_decay=weight_decay,
        alpha=alpha,
        beta=beta,
        epsilon=epsilon,
        LOG_ALPHA=_log2(alpha),
        LOG_BETA=_log2(beta),
        BLOCK=BLOCK,
        num_warps=4,
    )


def _log2(decay: float) -> float:
    return math.log2(decay) if decay > 0 else 0.0
