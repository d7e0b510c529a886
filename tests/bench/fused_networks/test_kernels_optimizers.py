"""Fused optimizer steps, beside torch's optimizers, in Triton's interpreter."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="needs Triton")

from teeter.bench.fused_networks.kernels import optimizer_step

OPTIMIZERS: dict[str, Any] = {
    "adam": lambda w: torch.optim.Adam([w], lr=0.01, eps=1e-7, weight_decay=0.1),
    "rmsprop": lambda w: torch.optim.RMSprop([w], lr=0.01, alpha=0.9, eps=1e-7, weight_decay=0.1),
    "nesterov": lambda w: torch.optim.SGD(
        [w], lr=0.01, momentum=0.9, nesterov=True, weight_decay=0.1
    ),
    "sgd": lambda w: torch.optim.SGD([w], lr=0.01, weight_decay=0.1),
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_steps_are_those_of_torch(kind: str) -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(3, 700, generator=generator)
    reference = weight.clone().requires_grad_()
    optimizer = OPTIMIZERS[kind](reference)
    copy = torch.empty_like(weight, dtype=torch.float16)
    states = (torch.zeros_like(weight), torch.zeros_like(weight))

    for number in range(5):
        gradient = torch.randn(3, 700, generator=generator)
        reference.grad = gradient.clone()
        optimizer.step()
        optimizer_step(
            weight,
            copy,
            gradient,
            states,
            kind=kind,
            learning_rate=torch.tensor([0.01]),
            step=torch.tensor([number]),
            weight_decay=0.1,
            alpha=0.9,
            beta=0.999,
            epsilon=1e-7,
        )

    torch.testing.assert_close(weight, reference.detach(), rtol=1e-5, atol=1e-5)
    assert torch.equal(copy, weight.half())
