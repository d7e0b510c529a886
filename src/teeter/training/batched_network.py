"""Many networks of one architecture as one tensor program, and a dropout stream for each of them.

``BatchedNetworks`` holds the weights of M networks, the members, on top of each other: a (C, D)
weight matrix becomes (M, C, D). Each layer then computes all members in one call: linear layers as
a batched matrix product, convolutions as one convolution with M groups of channels. The functions
below say which networks can be treated this way; ``teeter.training.batched`` trains them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Generator, Tensor, nn

__all__ = ["BatchedNetworks", "DropoutMasks", "can_batch"]

_ELEMENTWISE_LAYERS = (nn.ReLU, nn.Tanh, nn.GELU, nn.SiLU, nn.Identity)
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
    architectures = {str(network) for network in networks}
    return len(architectures) == 1 and all(map(_is_plain_chain, networks))


def _is_plain_chain(network: nn.Module) -> bool:
    if type(network) is not nn.Sequential or len(network) == 0:
        return False
    if type(network[-1]) is not nn.Linear:
        return False

    parameters = [parameter for layer in network for parameter in layer.parameters()]
    distinct_parameters = {id(parameter) for parameter in parameters}
    if len(distinct_parameters) < len(parameters):
        return False

    return (
        all(parameter.requires_grad for parameter in parameters)
        and all(map(_is_supported_layer, network))
        and not any(map(_has_hooks, network.modules()))
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
        self.parameters: list[Tensor] = []
        for same_parameter in zip(*(network.parameters() for network in networks), strict=True):
            values = [parameter.detach() for parameter in same_parameter]
            self.parameters.append(torch.stack(values).requires_grad_())

        names = [name for name, _ in networks[0].named_parameters()]
        self._parameter_by_name = dict(zip(names, self.parameters, strict=True))
        self._takes_images = any(isinstance(layer, nn.Conv2d) for layer in networks[0])
        self._layers = _pool_before_relu(list(networks[0].named_children()))

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
            # The channels of all members side by side: (B, M * channels, height, width).
            x = rows.transpose(0, 1).flatten(1, 2)
        return self._forward(x, masks, shared=False)

    def shared_logits(self, rows: Tensor) -> Tensor:
        """Return the logits of each member for the same rows, (B, ...) -> (M, B, C)."""
        return self._forward(rows, None, shared=True)

    def _forward(self, x: Tensor, masks: Iterator[Tensor] | None, *, shared: bool) -> Tensor:
        """Run all layers.

        Layout of ``x``: images are (B, M * channels, height, width), flat rows are (M, B, ...).
        Rows that the members share are (B, ...) until the first layer with weights, after which
        every member has values of its own.
        """
        images = self._takes_images
        for name, layer in self._layers:
            if isinstance(layer, nn.Linear):
                x = self._linear(name, x, shared)
                shared = False
            elif isinstance(layer, nn.Conv2d):
                x = self._convolution(name, layer, x, shared)
                shared = False
            elif isinstance(layer, nn.Dropout):
                if masks is not None:
                    mask = next(masks)
                    if images:
                        mask = mask.transpose(0, 1).flatten(1, 2)
                    x = x * mask
            elif isinstance(layer, nn.Flatten):
                # Images of members, (B, M * channels, ...), become rows of members, (M, B, ...).
                if images and not shared:
                    x = x.unflatten(1, (len(self), -1)).transpose(0, 1)
                first_dimension = 1 if shared else 2
                x = x.flatten(first_dimension)
                images = False
            else:
                x = layer(x)
        return x

    def _linear(self, name: str, x: Tensor, shared: bool) -> Tensor:
        weight = self._parameter_by_name[f"{name}.weight"]
        bias = self._parameter_by_name.get(f"{name}.bias")

        if shared:
            # One large product with the weights of all members side by side.
            product = x @ weight.flatten(0, 1).T  # (B, M * C)
            logits = product.view(len(x), *weight.shape[:2]).transpose(0, 1)  # (M, B, C)
            if bias is None:
                return logits
            return logits + bias[:, None]
        if bias is None:
            return x @ weight.mT
        return torch.baddbmm(bias[:, None], x, weight.mT)

    def _convolution(self, name: str, layer: nn.Conv2d, x: Tensor, shared: bool) -> Tensor:
        weight = self._parameter_by_name[f"{name}.weight"]
        bias = self._parameter_by_name.get(f"{name}.bias")
        if bias is not None:
            bias = bias.flatten()

        # In groups, each member sees its own channels only. Shared images have one set of them.
        groups = 1 if shared else len(self)
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


def _pool_before_relu(layers: list[tuple[str, nn.Module]]) -> list[tuple[str, nn.Module]]:
    """Swap every ReLU with a max pool that follows it: the same result from fewer numbers."""
    for k in range(len(layers) - 1):
        is_relu = isinstance(layers[k][1], nn.ReLU)
        if is_relu and isinstance(layers[k + 1][1], nn.MaxPool2d):
            layers[k : k + 2] = [layers[k + 1], layers[k]]
    return layers


class DropoutMasks:
    """The factors that dropout multiplies with, drawn from a random stream per member.

    ``nn.Dropout`` draws from the global generator, so that the masks of a network would depend on
    which others are trained with it. Here each member has a generator of its own.

    Call ``advance`` before every training step, then ``current`` as often as needed.
    """

    def __init__(
        self, networks: BatchedNetworks, seeds: Sequence[int], batch_size: int, rows: Tensor
    ) -> None:
        """Allocate the masks.

        Args:
            networks: the members.
            seeds: a seed for each member.
            batch_size: the largest number of rows in a batch.
            rows: (B, ...) some rows as the networks take them, for their shape and device.
        """
        # One row through the network shows the shape at each dropout layer.
        self.rates: list[float] = []
        shapes: list[torch.Size] = []
        x = rows[:1]
        for layer in networks.networks[0]:
            if isinstance(layer, nn.Dropout):
                self.rates.append(layer.p)
                shapes.append(x.shape[1:])
            else:
                with torch.no_grad():
                    x = layer(x)

        self.generators = [Generator(rows.device).manual_seed(seed) for seed in seeds]

        # A GPU draws the masks of many steps at once, as booleans: starting a kernel for each
        # member and step would take longer than the step. A CPU draws them step by step, as
        # factors, so that they stay in its cache.
        self.steps = 1
        mask_dtype = rows.dtype
        if rows.is_cuda:
            mask_size = batch_size * sum(shape.numel() for shape in shapes)
            self.steps = max(1, min(_MAX_MASK_STEPS, _MAX_MASK_BYTES // max(1, mask_size)))
            mask_dtype = torch.bool

        self.masks: list[Tensor] = []  # (M, steps, B, ...) for each dropout layer
        self._random_words: list[Tensor] = []  # (M, words) for each dropout layer, on a CPU only
        for shape in shapes:
            self.masks.append(
                torch.empty(
                    (len(networks), self.steps, batch_size, *shape),
                    dtype=mask_dtype,
                    device=rows.device,
                )
            )
            words = 0 if rows.is_cuda else _words_for(batch_size * shape.numel())
            self._random_words.append(torch.empty((len(networks), words), dtype=torch.int64))

        # The step is a tensor, because a CUDA graph reads it again at every replay.
        self._step = torch.zeros(1, dtype=torch.int64, device=rows.device)
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
        for rate, masks in zip(self.rates, self.masks, strict=True):
            if masks.is_cuda:
                yield masks.index_select(1, self._step)[:, 0, :batch_size] * (1 / (1 - rate))
            else:
                yield masks[:, 0, :batch_size]

    def _draw(self, batch_size: int) -> None:
        for rate, masks, words in zip(self.rates, self.masks, self._random_words, strict=True):
            if masks.is_cuda:
                for member_masks, generator in zip(masks, self.generators, strict=True):
                    member_masks.bernoulli_(1 - rate, generator=generator)
            else:
                self._draw_on_cpu(rate, masks[:, 0, :batch_size], words)

    def _draw_on_cpu(self, rate: float, masks: Tensor, words: Tensor) -> None:
        """Fill masks (M, B, ...) from random 64-bit words, four numbers of 16 bits from each.

        About ten times faster than ``bernoulli_``. The rate is exact to 2^-16.
        """
        size = masks[0].numel()
        for member_words, generator in zip(words, self.generators, strict=True):
            member_words[: _words_for(size)].random_(-(2**63), None, generator=generator)

        # A 16-bit number is uniform in -2^15 ... 2^15 - 1; the lowest (1 - rate) of them are kept.
        numbers = words.view(torch.int16)[:, :size].view_as(masks)
        highest_kept = round((1 - rate) * 2**16) - 2**15 - 1
        torch.le(numbers, highest_kept, out=masks).mul_(1 / (1 - rate))


def _words_for(numbers: int) -> int:
    """Return how many 64-bit words hold so many 16-bit numbers."""
    return (numbers + 3) // 4
