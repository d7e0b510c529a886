"""The programs that train many networks at once: layers, backward pass and optimizer together.

``choose_program`` returns a ``BatchedProgram``: ``FusedNetworks`` on GPUs, for the chains that its
kernels know, and ``AutogradProgram``, which uses torch's layers, for all others.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn

from teeter.base.seeds import is_portable
from teeter.training.batched_network import BatchedNetworks, DropoutMasks
from teeter.training.config import TrainingConfig, make_optimizer
from teeter.training.fused_network import FusedNetworks, can_fuse

__all__ = ["AutogradProgram", "BatchedProgram", "choose_program"]


class BatchedProgram(Protocol):
    """M networks, the members, with the optimizer that trains them."""

    networks: list[nn.Sequential]
    """The members. They keep their old weights until ``write_back``."""
    parameters: list[Tensor]
    """The members' parameters on top of each other, (M, ...) each, in any layout."""
    rate_is_tensor: ClassVar[bool]
    """Whether a recorded step sees a learning rate that changes later."""

    def advance(self, batch_size: int) -> None:
        """Draw what the next step needs, in which ``batch_size`` rows count."""

    def step(
        self,
        inputs: Tensor,
        rows: Tensor,
        labels: Tensor,
        shares: Tensor,
    ) -> Tensor:
        """Take one training step of all members.

        Args:
            inputs: (M, L, ...) the rows of each member.
            rows: (M, B) which of them are the batch.
            labels: (M, B) their classes.
            shares: (M, B) the weight of each row in the loss.

        Returns:
            (M,) the loss of the batch before the step.
        """

    def shared_logits(self, rows: Tensor) -> Tensor:
        """Return the logits of each member for the same rows, (B, ...) -> (M, B, C)."""

    def scale_learning_rate(self, factor: float) -> None:
        """Multiply the learning rate of the steps to come."""

    def write_back(self, parameters: Sequence[Tensor]) -> None:
        """Copy ``parameters``, shaped like ``self.parameters``, into the members."""


class AutogradProgram:
    """M networks of torch's layers, trained by torch's optimizers."""

    rate_is_tensor: ClassVar[bool] = False

    def __init__(
        self,
        networks: Sequence[nn.Sequential],
        config: TrainingConfig,
        *,
        dropout_seeds: Sequence[int],
        batch_size: int,
        rows: Tensor,
    ) -> None:
        self.batched = BatchedNetworks(networks)
        self.networks = self.batched.networks
        self.parameters = self.batched.parameters

        self._masks = DropoutMasks(self.batched, dropout_seeds, batch_size, rows)
        self._optimizer = make_optimizer(
            self.parameters,
            config,
            fused=True,
            on_gpu=rows.is_cuda,
        )

        # (M, 1): with rows (M, B) it indexes the rows of each member.
        self._members = torch.arange(len(networks), device=rows.device)[:, None]

    def advance(self, batch_size: int) -> None:
        """Draw the dropout of the next step."""
        self._masks.advance(batch_size)

    def step(
        self,
        inputs: Tensor,
        rows: Tensor,
        labels: Tensor,
        shares: Tensor,
    ) -> Tensor:
        """Take one training step of all members; see ``BatchedProgram``."""
        masks = self._masks.current(rows.shape[1])
        logits = self.batched.logits(inputs[self._members, rows], masks)  # (M, B, C)

        # cross_entropy takes classes on the second axis: (M, C, B) -> (M, B).
        row_losses = nn.functional.cross_entropy(logits.mT, labels, reduction="none")
        losses = (row_losses * shares).sum(dim=1)

        # The gradient of the sum by a member's weights is the gradient of that member's loss.
        self._optimizer.zero_grad(set_to_none=True)
        losses.sum().backward()
        self._optimizer.step()
        return losses.detach()

    def shared_logits(self, rows: Tensor) -> Tensor:
        """Return the logits of each member for the same rows, (B, ...) -> (M, B, C)."""
        return self.batched.shared_logits(rows)

    def scale_learning_rate(self, factor: float) -> None:
        """Multiply the learning rate of the steps to come."""
        for group in self._optimizer.param_groups:
            group["lr"] *= factor

    def write_back(self, parameters: Sequence[Tensor]) -> None:
        """Copy ``parameters`` into the members."""
        self.batched.write_back(parameters)


def choose_program(
    networks: Sequence[nn.Sequential],
    config: TrainingConfig,
    *,
    dropout_seeds: Sequence[int],
    batch_size: int,
    rows: Tensor,
) -> BatchedProgram:
    """Return the fastest program for networks that ``can_batch`` allows.

    Args:
        networks: the members.
        config: how they are trained.
        dropout_seeds: a seed for the dropout of each member.
        batch_size: the largest number of rows in a batch.
        rows: (B, ...) some rows as the networks take them, for their shape and device.
    """
    if _use_fused_networks(networks[0], rows):
        return FusedNetworks(networks, rows.shape[1:], dropout_seeds, config)
    return AutogradProgram(
        networks,
        config,
        dropout_seeds=dropout_seeds,
        batch_size=batch_size,
        rows=rows,
    )


def _use_fused_networks(network: nn.Sequential, rows: Tensor) -> bool:
    """Return whether to train with fused kernels.

    The environment variable ``TEETER_FUSED=0`` turns them off. Double precision is kept, and
    ``teeter.base.seeds.portable`` promises the same numbers on every device.
    """
    if not rows.is_cuda or rows.dtype != torch.float32:
        return False
    if os.environ.get("TEETER_FUSED") == "0" or is_portable():
        return False

    # bfloat16 on tensor cores came with Ampere, 8.0.
    major_version, _ = torch.cuda.get_device_capability(rows.device)
    has_kernels = major_version >= 8 and find_spec("triton") is not None
    return has_kernels and can_fuse(network, rows.shape[1:])
