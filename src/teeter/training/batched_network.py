"""Networks of one architecture as one: every layer works on all of them at once, each with its own weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Generator, Tensor, nn

__all__ = ["BatchedNetworks", "DropoutMasks", "can_batch"]

_PLAIN = (nn.ReLU, nn.Tanh, nn.GELU, nn.SiLU, nn.Identity)
"""Layers without weights that treat every number alike."""

_MOST_STEPS = 64
_MASK_BYTES = 4 << 20
"""Dropout is drawn for so many steps, or bytes of a member, at once on a GPU: whoever else is in the stack."""


def can_batch(networks: Sequence[nn.Module]) -> bool:
    """Tell whether networks can be one stack: plain chains of known layers, all alike, with a linear end."""
    return all(map(_is_chain, networks)) and len({str(network) for network in networks}) == 1


def _is_chain(network: nn.Module) -> bool:
    """Tell whether a network is what it looks like: nothing overridden, hooked, frozen or shared."""
    if (
        type(network) is not nn.Sequential
        or len(network) == 0
        or type(network[-1]) is not nn.Linear
    ):
        return False
    parameters = [one for layer in network for one in layer.parameters()]
    whole = len({id(one) for one in parameters}) == len(parameters) and all(
        one.requires_grad for one in parameters
    )
    return whole and all(map(_is_known, network)) and not any(map(_is_hooked, network.modules()))


def _is_known(layer: nn.Module) -> bool:
    if type(layer) is nn.Conv2d:
        return layer.groups == 1 and layer.padding_mode == "zeros"
    if type(layer) is nn.Flatten:
        return layer.start_dim == 1 and layer.end_dim == -1
    if type(layer) is nn.Dropout:
        return layer.p < 1
    return type(layer) in (nn.Linear, nn.MaxPool2d, *_PLAIN)


def _is_hooked(module: nn.Module) -> bool:
    hooks = (
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
    )
    return any(len(some) > 0 for some in hooks)


class BatchedNetworks:
    """M networks as one; ``parameters`` are copies of theirs, one above the other: (M, ...) each."""

    def __init__(self, networks: Sequence[nn.Sequential]) -> None:
        self.networks = list(networks)
        together = zip(*(network.parameters() for network in networks), strict=True)
        self.parameters = [
            torch.stack([one.detach() for one in same]).requires_grad_() for same in together
        ]
        names = [name for name, _ in networks[0].named_parameters()]
        self._by_name = dict(zip(names, self.parameters, strict=True))
        self._sees_images = any(isinstance(layer, nn.Conv2d) for layer in networks[0])
        self._layers = _small_first(list(networks[0].named_children()))

    def __len__(self) -> int:
        return len(self.networks)

    def logits(self, rows: Tensor, masks: Iterator[Tensor] | None = None) -> Tensor:
        """Return what each member answers to rows of its own: (M, B, ...) -> (M, B, C).

        ``masks`` gives for every dropout layer in turn what its input is multiplied with: (M, B, ...). Without it
        nothing is dropped.
        """
        own = rows.transpose(0, 1).flatten(1, 2) if self._sees_images else rows
        return self._forward(own, masks, shared=False)

    def logits_of_all(self, rows: Tensor) -> Tensor:
        """Return what each member answers to the same rows: (B, ...) -> (M, B, C)."""
        return self._forward(rows, None, shared=True)

    def _forward(self, x: Tensor, masks: Iterator[Tensor] | None, *, shared: bool) -> Tensor:
        """Images go through as (B, M * channels, height, width), rows as (M, B, ...).

        What the members share is (B, ...) until the first layer with weights.
        """
        images = self._sees_images
        for name, layer in self._layers:
            if isinstance(layer, nn.Linear):
                x, shared = self._linear(name, x, shared), False
            elif isinstance(layer, nn.Conv2d):
                x, shared = self._convolved(name, layer, x, shared), False
            elif isinstance(layer, nn.Dropout):
                if masks is not None:
                    mask = next(masks)
                    x = x * (mask.transpose(0, 1).flatten(1, 2) if images else mask)
            elif isinstance(layer, nn.Flatten):
                if images and not shared:
                    x = x.unflatten(1, (len(self), -1)).transpose(0, 1)
                x, images = x.flatten(1 if shared else 2), False
            else:
                x = layer(x)
        return x

    def _linear(self, name: str, x: Tensor, shared: bool) -> Tensor:
        weight, bias = self._by_name[f"{name}.weight"], self._by_name.get(f"{name}.bias")
        if shared:
            x = (x @ weight.flatten(0, 1).T).view(len(x), *weight.shape[:2]).transpose(0, 1)
            return x if bias is None else x + bias[:, None]
        return x @ weight.mT if bias is None else torch.baddbmm(bias[:, None], x, weight.mT)

    def _convolved(self, name: str, layer: nn.Conv2d, x: Tensor, shared: bool) -> Tensor:
        weight, bias = self._by_name[f"{name}.weight"], self._by_name.get(f"{name}.bias")
        flat = None if bias is None else bias.flatten()
        return nn.functional.conv2d(
            x,
            weight.flatten(0, 1),
            flat,
            layer.stride,
            layer.padding,
            layer.dilation,
            groups=1 if shared else len(self),
        )

    def write_back(self, parameters: Sequence[Tensor]) -> None:
        """Give the networks their weights out of ``parameters`` of the stack's shapes."""
        with torch.no_grad():
            for k, network in enumerate(self.networks):
                for own, values in zip(network.parameters(), parameters, strict=True):
                    own.copy_(values[k])


def _small_first(layers: list[tuple[str, nn.Module]]) -> list[tuple[str, nn.Module]]:
    """Return layers with every ReLU after the pool that follows it, which gives the same of less."""
    for k in range(len(layers) - 1):
        if isinstance(layers[k][1], nn.ReLU) and isinstance(layers[k + 1][1], nn.MaxPool2d):
            layers[k : k + 2] = [layers[k + 1], layers[k]]
    return layers


class DropoutMasks:
    """What dropout multiplies with, drawn for every member from a stream of its own: whoever else is in the stack."""

    def __init__(
        self, stack: BatchedNetworks, seeds: Sequence[int], batch: int, rows: Tensor
    ) -> None:
        """Prepare for batches of up to ``batch`` rows like ``rows`` (B, ...), from a seed a member."""
        self.rates: list[float] = []
        shapes, x = [], rows[:1]
        for layer in stack.networks[0]:
            if isinstance(layer, nn.Dropout):
                self.rates.append(layer.p)
                shapes.append(x.shape[1:])
            else:
                with torch.no_grad():
                    x = layer(x)
        self.generators = [Generator(rows.device).manual_seed(seed) for seed in seeds]
        size = batch * sum(shape.numel() for shape in shapes)
        self.steps = max(1, min(_MOST_STEPS, _MASK_BYTES // max(1, size))) if rows.is_cuda else 1
        """For how many steps they are drawn at once."""
        kind = torch.bool if rows.is_cuda else rows.dtype
        self.kept = [
            torch.empty((len(stack), self.steps, batch, *shape), dtype=kind, device=rows.device)
            for shape in shapes
        ]
        self.at, self._left = torch.zeros(1, dtype=torch.int64, device=rows.device), 0
        words = [-(-batch * shape.numel() // 4) for shape in shapes]
        self._bits = [
            torch.empty((len(stack), 0 if rows.is_cuda else count), dtype=torch.int64)
            for count in words
        ]

    def advance(self, batch: int) -> None:
        """Go on to the next step, in which ``batch`` rows count."""
        if self._left == 0:
            self._draw(batch)
            self.at.zero_()
            self._left = self.steps
        else:
            self.at += 1
        self._left -= 1

    def now(self, batch: int) -> Iterator[Tensor]:
        """Yield for each dropout layer what this step multiplies with, for so many rows: (M, B, ...)."""
        for rate, kept in zip(self.rates, self.kept, strict=True):
            if kept.is_cuda:
                yield kept.index_select(1, self.at)[:, 0, :batch] * (1 / (1 - rate))
            else:
                yield kept[:, 0, :batch]

    def _draw(self, batch: int) -> None:
        for rate, kept, bits in zip(self.rates, self.kept, self._bits, strict=True):
            if kept.is_cuda:
                for member, generator in zip(kept, self.generators, strict=True):
                    member.bernoulli_(1 - rate, generator=generator)
                continue
            size = batch * kept[0, 0, 0].numel()
            for member, generator in zip(
                bits, self.generators, strict=True
            ):  # ten times faster than bernoulli_
                member[: -(-size // 4)].random_(-(2**63), None, generator=generator)
            places = bits.view(torch.int16)[:, :size].view_as(kept[:, 0, :batch])
            torch.le(places, round((1 - rate) * 2**16) - 2**15 - 1, out=kept[:, 0, :batch]).mul_(
                1 / (1 - rate)
            )
