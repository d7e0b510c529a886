"""Many networks of one architecture as one tensor program, with dropout streams and optimizer.

``BatchedNetworks`` holds the weights of M networks, the members, on top of each other: a (C, D)
weight matrix becomes (M, C, D). Each layer then computes all members in one call: linear layers as
a batched matrix product, convolutions as one convolution with M groups of channels. The functions
below say which networks can be treated this way; ``teeter.training.batched`` trains them.

A ``BatchedProgram`` is what takes the steps: layers, backward pass and optimizer together.
``AutogradProgram`` uses torch's layers and optimizers. ``choose_program`` asks first whether one of
the registered makers has a faster program for these networks.

Two layouts
    Flat rows are (M, B, ...), as a batched product takes them. Images are (B, M * channels, height,
    width), as a convolution in groups takes them: the channels of all members side by side.
    ``nn.Flatten`` leads from the second to the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeAlias

import torch
from torch import Generator, Tensor, nn

from teeter.training.config import TrainingConfig, make_optimizer

__all__ = [
    "AutogradProgram",
    "BatchedNetworks",
    "BatchedProgram",
    "DropoutMasks",
    "NamedLayer",
    "ProgramMaker",
    "can_batch",
    "choose_program",
    "register_program",
]

NamedLayer: TypeAlias = tuple[str, nn.Module]
"""The name of a layer in its chain, which its parameters start with, and the layer."""

_ELEMENTWISE_LAYERS = (
    nn.ReLU,
    nn.Tanh,
    nn.GELU,
    nn.SiLU,
    nn.Identity,
)
"""Layers without weights that treat every number alike, whatever the shape of their input."""

_MAX_MASK_STEPS = 64
_MAX_MASK_BYTES = 4 << 20
"""On a GPU, dropout masks are drawn for at most so many steps, or bytes per member, at once.

Constants per member: the draws of a member must not depend on the number of the others."""


def can_batch(networks: Sequence[nn.Module]) -> bool:
    """Return whether networks can be members of one ``BatchedNetworks``.

    They must be ``nn.Sequential`` chains of known layers that end in a linear layer, with the same
    architecture, and do only what their layers say: no hooks, no frozen or shared parameters, no
    subclasses of layers.
    """
    # The text of a chain names every layer with its sizes.
    architectures = {str(network) for network in networks}
    if len(architectures) != 1:
        return False
    return all(_is_plain_chain(network) for network in networks)


def _is_plain_chain(network: nn.Module) -> bool:
    """Return whether a network does only what its layers say, one after the other."""
    if type(network) is not nn.Sequential or len(network) == 0:
        return False
    if type(network[-1]) is not nn.Linear:
        return False

    # Layer by layer: network.parameters() would name a shared parameter once.
    parameters: list[nn.Parameter] = []
    for layer in network:
        parameters.extend(layer.parameters())
    distinct_parameters = {id(parameter) for parameter in parameters}
    if len(distinct_parameters) < len(parameters):
        return False

    return (
        all(parameter.requires_grad for parameter in parameters)
        and all(_is_supported_layer(layer) for layer in network)
        and not any(_has_hooks(module) for module in network.modules())
    )


def _is_supported_layer(layer: nn.Module) -> bool:
    # Exact types: a subclass may override forward.
    if type(layer) is nn.Conv2d:
        return layer.groups == 1 and layer.padding_mode == "zeros"
    if type(layer) is nn.Flatten:
        return layer.start_dim == 1 and layer.end_dim == -1
    if type(layer) is nn.Dropout:
        return layer.p < 1
    return type(layer) in (nn.Linear, nn.MaxPool2d, *_ELEMENTWISE_LAYERS)


def _has_hooks(module: nn.Module) -> bool:
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
    )


class BatchedNetworks:
    """M networks computed together.

    Attributes:
        networks: the members. They keep their old weights until ``write_back``.
        parameters: copies of the members' parameters on top of each other, (M, ...) each.
    """

    def __init__(self, networks: Sequence[nn.Sequential]) -> None:
        """Copy the parameters of networks for which ``can_batch`` is true."""
        self.networks = list(networks)
        first_network = networks[0]

        # In the order of network.parameters(), which is the same for all members.
        self.parameters: list[Tensor] = []
        parameters_of_members = [network.parameters() for network in networks]
        for same_parameter in zip(*parameters_of_members, strict=True):
            values = [parameter.detach() for parameter in same_parameter]
            stacked = torch.stack(values)
            self.parameters.append(stacked.requires_grad_())

        names = [name for name, _ in first_network.named_parameters()]
        self._parameter_by_name = dict(zip(names, self.parameters, strict=True))
        self._takes_images = any(isinstance(layer, nn.Conv2d) for layer in first_network)
        self._layers = _pool_before_relu(list(first_network.named_children()))

    def __len__(self) -> int:
        """Return the number of members, M."""
        return len(self.networks)

    def logits(self, rows: Tensor, masks: Iterator[Tensor] | None = None) -> Tensor:
        """Return the logits of each member for its own rows.

        Args:
            rows: (M, B, ...) a batch for each member.
            masks: for each dropout layer in turn, the factors (M, B, ...) of its input. Without
                them nothing is dropped.

        Returns:
            (M, B, C).
        """
        x = rows
        if self._takes_images:
            x = _channels_side_by_side(rows)
        return self._forward(x, masks, shared=False)

    def shared_logits(self, rows: Tensor) -> Tensor:
        """Return the logits of each member for the same rows, (B, ...) -> (M, B, C)."""
        return self._forward(rows, None, shared=True)

    def _forward(
        self,
        x: Tensor,
        masks: Iterator[Tensor] | None,
        *,
        shared: bool,
    ) -> Tensor:
        """Run all layers.

        Layout of ``x``: images are (B, M * channels, height, width), flat rows are (M, B, ...).
        Rows that the members share are (B, ...) until the first layer with weights, after which
        every member has values of its own.
        """
        images = self._takes_images
        for name, layer in self._layers:
            if isinstance(layer, nn.Linear):
                x = self._linear(name, x, shared=shared)
                shared = False
            elif isinstance(layer, nn.Conv2d):
                x = self._convolution(name, layer, x, shared=shared)
                shared = False
            elif isinstance(layer, nn.Dropout):
                if masks is not None:
                    mask = next(masks)
                    if images:
                        mask = _channels_side_by_side(mask)
                    x = x * mask
            elif isinstance(layer, nn.Flatten):
                x = self._flatten(x, images=images, shared=shared)
                images = False
            else:
                x = layer(x)
        return x

    def _flatten(
        self,
        x: Tensor,
        *,
        images: bool,
        shared: bool,
    ) -> Tensor:
        """Flatten each row: to (B, features) if shared, otherwise to (M, B, features)."""
        if shared:
            return x.flatten(1)
        if images:
            # Images of members, (B, M * channels, ...), become rows of members, (M, B, ...).
            by_member = x.unflatten(1, (len(self), -1))
            x = by_member.transpose(0, 1)
        return x.flatten(2)

    def _linear(
        self,
        name: str,
        x: Tensor,
        *,
        shared: bool,
    ) -> Tensor:
        """Apply a linear layer: (M, B, D), or (B, D) if shared, to (M, B, C)."""
        weight = self._parameter_by_name[f"{name}.weight"]  # (M, C, D)
        bias = self._parameter_by_name.get(f"{name}.bias")  # (M, C) or None

        if shared:
            # One large product with the weights of all members side by side.
            M, C, _ = weight.shape
            product = x @ weight.flatten(0, 1).T  # (B, M * C)
            logits = product.view(len(x), M, C).transpose(0, 1)  # (M, B, C)
            if bias is None:
                return logits
            return logits + bias[:, None]

        if bias is None:
            return x @ weight.mT
        return torch.baddbmm(bias[:, None], x, weight.mT)

    def _convolution(
        self,
        name: str,
        layer: nn.Conv2d,
        x: Tensor,
        *,
        shared: bool,
    ) -> Tensor:
        """Apply a convolution to images, with the channels of all members side by side."""
        weight = self._parameter_by_name[f"{name}.weight"]
        bias = self._parameter_by_name.get(f"{name}.bias")
        if bias is not None:
            bias = bias.flatten()

        # In groups, each member sees its own channels only. Shared images have one set of them.
        groups = len(self)
        if shared:
            groups = 1
        return nn.functional.conv2d(
            x,
            weight.flatten(0, 1),
            bias,
            layer.stride,
            layer.padding,
            layer.dilation,
            groups=groups,
        )

    def write_back(self, parameters: Sequence[Tensor]) -> None:
        """Copy ``parameters``, shaped like ``self.parameters``, into the members."""
        with torch.no_grad():
            for member, network in enumerate(self.networks):
                for target, values in zip(network.parameters(), parameters, strict=True):
                    target.copy_(values[member])


def _channels_side_by_side(rows: Tensor) -> Tensor:
    """Return images or their masks as a convolution in groups takes them.

    (M, B, channels, ...) -> (B, M * channels, ...).
    """
    return rows.transpose(0, 1).flatten(1, 2)


def _pool_before_relu(layers: list[NamedLayer]) -> list[NamedLayer]:
    """Swap every ReLU with a max pool that follows it: the same result from fewer numbers."""
    swapped = list(layers)
    for k in range(len(swapped) - 1):
        first, second = swapped[k : k + 2]
        _, layer = first
        _, next_layer = second
        if isinstance(layer, nn.ReLU) and isinstance(next_layer, nn.MaxPool2d):
            swapped[k : k + 2] = [second, first]
    return swapped


@dataclass(frozen=True)
class _LayerMasks:
    """The dropout of one layer. Both tensors are allocated once and filled again and again."""

    rate: float
    """The share of numbers that is dropped."""
    masks: Tensor
    """(M, steps, B, ...) booleans on a GPU, factors on a CPU."""
    words: Tensor
    """(M, words) random bits to make masks of, on a CPU only."""

    @property
    def factor(self) -> float:
        """What numbers that are kept are multiplied with, so that their mean stays as it was."""
        return 1 / (1 - self.rate)


class DropoutMasks:
    """The factors that dropout multiplies with, drawn from a random stream per member.

    ``nn.Dropout`` draws from the global generator, so that the masks of a network would depend on
    which others are trained with it. Here each member has a generator of its own.

    Call ``advance`` before every training step, then ``current`` as often as needed.

    Masks are drawn into memory that is allocated once: a CUDA graph reads it at fixed addresses,
    and on a CPU it stays in the cache.
    """

    def __init__(
        self,
        networks: BatchedNetworks,
        seeds: Sequence[int],
        batch_size: int,
        rows: Tensor,
    ) -> None:
        """Allocate the masks.

        Args:
            networks: the members.
            seeds: a seed for each member.
            batch_size: the largest number of rows in a batch.
            rows: (B, ...) some rows as the networks take them, for their shape and device.
        """
        device = rows.device
        self.generators = [Generator(device).manual_seed(seed) for seed in seeds]

        rates, shapes = _dropout_rates_and_shapes(networks.networks[0], rows[:1])

        # A GPU draws the masks of many steps at once, as booleans: starting a kernel for each
        # member and step would take longer than the step. A CPU draws them step by step, as
        # factors, so that they stay in its cache.
        self.steps = 1
        mask_dtype = rows.dtype
        if rows.is_cuda:
            row_size = sum(shape.numel() for shape in shapes)
            mask_bytes = max(1, batch_size * row_size)
            fitting_steps = min(_MAX_MASK_STEPS, _MAX_MASK_BYTES // mask_bytes)
            self.steps = max(1, fitting_steps)
            mask_dtype = torch.bool

        member_count = len(networks)
        self._layers: list[_LayerMasks] = []
        for rate, shape in zip(rates, shapes, strict=True):
            word_count = 0
            if not rows.is_cuda:
                word_count = _words_for(batch_size * shape.numel())

            layer = _LayerMasks(
                rate=rate,
                masks=torch.empty(
                    (member_count, self.steps, batch_size, *shape),
                    dtype=mask_dtype,
                    device=device,
                ),
                words=torch.empty((member_count, word_count), dtype=torch.int64),
            )
            self._layers.append(layer)

        # Which of the steps that are drawn is the current one. A tensor, because a CUDA graph reads
        # it again at every replay.
        self._step = torch.zeros(1, dtype=torch.int64, device=device)
        self._steps_left = 0

    def advance(self, batch_size: int) -> None:
        """Continue with the next step, in which ``batch_size`` rows count."""
        if self._steps_left == 0:
            self._draw(batch_size)
            self._step.zero_()
            self._steps_left = self.steps
        else:
            self._step += 1
        self._steps_left -= 1

    def current(self, batch_size: int) -> Iterator[Tensor]:
        """Yield the factors of this step for each dropout layer: (M, batch_size, ...)."""
        for layer in self._layers:
            if layer.masks.is_cuda:
                # Booleans become factors here.
                masks = layer.masks.index_select(1, self._step)
                yield masks[:, 0, :batch_size] * layer.factor
            else:
                yield layer.masks[:, 0, :batch_size]

    def _draw(self, batch_size: int) -> None:
        """Fill the masks of the next steps. On a CPU, of one step with ``batch_size`` rows."""
        for layer in self._layers:
            if not layer.masks.is_cuda:
                # From random 64-bit words, four numbers of 16 bits from each: about ten times
                # faster than bernoulli_, and the rate is exact to 2^-16.
                masks = layer.masks[:, 0, :batch_size]  # (M, batch_size, ...)

                # Only as many words as the batch needs, so that a smaller batch draws fewer.
                size = masks[0].numel()
                word_count = _words_for(size)
                for member_words, cpu_generator in zip(layer.words, self.generators, strict=True):
                    member_words[:word_count].random_(-(2**63), None, generator=cpu_generator)

                # A 16-bit number is uniform in -2^15 ... 2^15 - 1; the lowest (1 - rate) of them
                # are kept.
                half_words = layer.words.view(torch.int16)
                numbers = half_words[:, :size].view_as(masks)
                kept_count = round((1 - layer.rate) * 2**16)
                highest_kept = kept_count - 2**15 - 1
                torch.le(numbers, highest_kept, out=masks).mul_(layer.factor)
                continue

            for member_masks, generator in zip(layer.masks, self.generators, strict=True):
                member_masks.bernoulli_(1 - layer.rate, generator=generator)


def _dropout_rates_and_shapes(
    network: nn.Sequential,
    row: Tensor,
) -> tuple[list[float], list[torch.Size]]:
    """Return the rate of each dropout layer, and the shape of a row at that layer.

    Args:
        network: a chain of layers.
        row: (1, ...) a row, which goes through the network without dropout.
    """
    rates: list[float] = []
    shapes: list[torch.Size] = []
    x = row
    for layer in network:
        if isinstance(layer, nn.Dropout):
            rates.append(layer.p)
            shapes.append(x.shape[1:])
        else:
            with torch.no_grad():
                x = layer(x)
    return rates, shapes


def _words_for(numbers: int) -> int:
    """Return how many 64-bit words hold so many 16-bit numbers."""
    return (numbers + 3) // 4


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


ProgramMaker: TypeAlias = Callable[
    [Sequence[nn.Sequential], TrainingConfig, Sequence[int], Tensor], BatchedProgram | None
]
"""Takes networks, their configuration, a dropout seed for each, and some rows for their shape and
device. Returns a program that trains them faster than torch's layers do, or None."""

_program_makers: list[ProgramMaker] = []


def register_program(make_program: ProgramMaker) -> None:
    """Offer programs for some networks, such as the fused kernels of ``teeter.bench``.

    ``choose_program`` asks the makers in the order in which they were registered. A maker that is
    registered already stays where it is.
    """
    if make_program not in _program_makers:
        _program_makers.append(make_program)


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
    for make_program in _program_makers:
        program = make_program(networks, config, dropout_seeds, rows)
        if program is not None:
            return program
    return AutogradProgram(
        networks,
        config,
        dropout_seeds=dropout_seeds,
        batch_size=batch_size,
        rows=rows,
    )
