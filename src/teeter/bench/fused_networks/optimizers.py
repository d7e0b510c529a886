"""Optimizer steps in one pass: state, weights and their bfloat16 copies.

torch has no fused RMSprop, and none of its optimizers writes the copies that products on tensor
cores read. The plain twins are torch's optimizers.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl
from torch import Tensor

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
