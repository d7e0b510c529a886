"""Small convolutional networks as one program of fused kernels, for GPUs.

``FusedNetworks`` computes what ``BatchedNetworks`` and an optimizer compute, for chains of the form

    (convolution, ReLU, [max pool of 2 x 2, [dropout]]) ..., flatten, (linear, ReLU, [dropout]) ...,
    linear

S-CNN and K-CNN of the paper are such chains. It does not use autograd: the backward pass is written
out below, so that every tensor is read and written as few times as possible. For 50 K-CNNs these
passes over memory, not the arithmetic, are what takes the time.

Precision
    Weights, the states of the optimizer, sums, the last layer and the loss are float32. Products on
    tensor cores take bfloat16, and activations and their gradients are stored so.

Layouts
    Weights are kept as the kernels read them, and ``write_back`` turns them into torch's layouts.
    A convolution's are (M, K, K, C_in, C_out). The first convolution has few channels; its K x K
    pixels are laid out as the channels of one (``extract_patches``), so it has (M, 1, 1, columns,
    C_out). The first linear layer takes (height, width, channels), where torch's takes (channels,
    height, width). Optimizers work number by number, so that no layout changes what is learned.

Dropout
    Drawn inside the kernels, from a counter and a seed per member: no masks are stored, and the
    draws of a member do not depend on the others.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import torch
from torch import Tensor, nn

from teeter.base.seeds import is_portable
from teeter.training.batched_network import BatchedProgram
from teeter.training.config import TrainingConfig

if TYPE_CHECKING:
    from teeter.bench.fused_networks.kernels import Dropout


_CHANNELS = (16, 32, 64)
"""Numbers of channels that fill the tiles of the kernels."""

_MAX_PATCH_COLUMNS = 64

_ADAM_DECAYS = (0.9, 0.999)
"""Of the two moments, the same in torch and Keras."""


@dataclass(frozen=True)
class _Stage:
    """A convolution or a linear layer with what follows it."""

    name: str
    """The name of the layer, which its parameters start with."""
    rate: float = 0.0
    """The rate of the dropout that follows."""
    kernel: int = 0
    padding: int = 0
    pool: bool = False
    """Whether a max pool of 2 x 2 follows."""


_Plan: TypeAlias = tuple[list[_Stage], list[_Stage], tuple[int, int, int]]
"""The convolutions of a chain, its linear layers, and the channels, height and width of what is
flattened."""


@dataclass
class _Parameter:
    """A parameter of all members, its copy for products, and the states of its optimizer."""

    values: Tensor
    """(M, ...) float32."""
    copy: Tensor | None
    """The same in the precision of products; None if no product takes it."""
    states: tuple[Tensor | None, Tensor | None] = field(default=(None, None))


def make_program(
    networks: Sequence[nn.Sequential],
    config: TrainingConfig,
    dropout_seeds: Sequence[int],
    rows: Tensor,
) -> BatchedProgram | None:
    """Return a program of fused kernels for networks, an optimizer and a GPU they know, or None.

    The environment variable ``TEETER_FUSED=0`` turns them off. Double precision is kept, and
    ``teeter.config.portable`` promises the same numbers on every device.
    """
    if not rows.is_cuda or rows.dtype != torch.float32:
        return None
    if os.environ.get("TEETER_FUSED") == "0" or is_portable():
        return None
    if config.optimizer == "adamw":
        return None

    # bfloat16 on tensor cores came with Ampere, 8.0.
    major_version, _ = torch.cuda.get_device_capability(rows.device)
    has_kernels = major_version >= 8 and find_spec("triton") is not None
    if not has_kernels or not can_fuse(networks[0], rows.shape[1:]):
        return None
    return FusedNetworks(networks, rows.shape[1:], dropout_seeds, config)


def can_fuse(network: nn.Sequential, row_shape: Sequence[int]) -> bool:
    """Return whether ``FusedNetworks`` can compute a network.

    Args:
        network: a chain for which ``can_batch`` is true.
        row_shape: the shape of a row.
    """
    return _make_plan(network, row_shape) is not None


def _make_plan(network: nn.Sequential, row_shape: Sequence[int]) -> _Plan | None:
    """Return the stages of a network, or None if it is not of the form described above."""
    if len(row_shape) != 3:
        return None
    layers = list(network.named_children())
    shape = (row_shape[0], row_shape[1], row_shape[2])
    convolutions: list[_Stage] = []
    linears: list[_Stage] = []

    position = 0
    while position < len(layers):
        name, convolution = layers[position]
        if not isinstance(convolution, nn.Conv2d):
            break
        if not _is_fusable(convolution, is_first=not convolutions):
            return None
        if not _is_layer(layers, position + 1, nn.ReLU):
            return None

        padding = int(convolution.padding[0])
        kernel = convolution.kernel_size[0]
        side_change = 2 * padding - kernel + 1
        _, height, width = shape
        shape = (convolution.out_channels, height + side_change, width + side_change)
        position += 2

        rate = 0.0
        pool = _is_layer(layers, position, nn.MaxPool2d)
        if pool:
            channels, height, width = shape
            if not _halves(layers[position][1]) or height % 2 or width % 2:
                return None
            shape = (channels, height // 2, width // 2)
            position += 1
            rate, position = _read_dropout(layers, position)
        convolutions.append(_Stage(name, rate, kernel, padding, pool))

    if not convolutions or min(shape) < 1:
        return None
    if not _is_layer(layers, position, nn.Flatten):
        return None
    position += 1

    while position < len(layers):
        name, linear = layers[position]
        if not isinstance(linear, nn.Linear) or linear.bias is None:
            return None
        position += 1
        if position == len(layers):
            linears.append(_Stage(name))
            return convolutions, linears, shape

        if not _is_layer(layers, position, nn.ReLU):
            return None
        rate, position = _read_dropout(layers, position + 1)
        linears.append(_Stage(name, rate))
    return None


def _is_layer(layers: list[tuple[str, nn.Module]], position: int, kind: type[nn.Module]) -> bool:
    if position >= len(layers):
        return False
    _, layer = layers[position]
    return isinstance(layer, kind)


def _read_dropout(layers: list[tuple[str, nn.Module]], position: int) -> tuple[float, int]:
    """Return the rate of a dropout at ``position``, or 0, and the next position."""
    if position < len(layers):
        _, layer = layers[position]
        if isinstance(layer, nn.Dropout):
            return layer.p, position + 1
    return 0.0, position


def _is_fusable(layer: nn.Conv2d, *, is_first: bool) -> bool:
    kernel = layer.kernel_size
    if kernel not in ((1, 1), (3, 3)) or layer.padding not in ((0, 0), (1, 1)):
        return False
    if layer.stride != (1, 1) or layer.dilation != (1, 1) or layer.bias is None:
        return False
    if layer.out_channels not in _CHANNELS:
        return False
    if is_first:
        height, width = kernel
        return height * width * layer.in_channels <= _MAX_PATCH_COLUMNS
    return layer.in_channels in _CHANNELS


def _halves(pool: nn.Module) -> bool:
    return (
        isinstance(pool, nn.MaxPool2d)
        and pool.kernel_size in (2, (2, 2))
        and pool.stride in (2, (2, 2))
        and pool.padding in (0, (0, 0))
        and pool.dilation in (1, (1, 1))
    )


class FusedNetworks:
    """M networks with the optimizer that trains them.

    Args:
        networks: chains for which ``can_batch`` and ``can_fuse`` are true.
        row_shape: channels, height and width of a row.
        seeds: a seed for the dropout of each member.
        config: the optimizer and its constants.
        dtype: that of products.

    Attributes:
        networks: the members. They keep their old weights until ``write_back``.
        parameters: the members' parameters on top of each other, in the layouts of the kernels.
    """

    rate_is_tensor: ClassVar[bool] = True

    def __init__(
        self,
        networks: Sequence[nn.Sequential],
        row_shape: Sequence[int],
        seeds: Sequence[int],
        config: TrainingConfig,
        dtype: torch.dtype = torch.bfloat16,
    ) -> None:
        plan = _make_plan(networks[0], row_shape)
        if plan is None:
            raise ValueError("The networks cannot be computed by fused kernels.")
        self.networks = list(networks)
        self.config = config
        self.dtype = dtype
        self._convolutions, self._linears, self._map_shape = plan
        self._parameters: dict[str, _Parameter] = {}
        for name, _ in networks[0].named_parameters():
            values = [network.get_parameter(name).detach() for network in networks]
            self._add_parameter(name, torch.stack(values).float())
        self.parameters = [parameter.values for parameter in self._parameters.values()]

        device = self.parameters[0].device
        self.step_number = torch.zeros(1, dtype=torch.int64, device=device)
        self.learning_rate = torch.full((1,), config.learning_rate, device=device)
        masked_seeds = [seed & (2**63 - 1) for seed in seeds]
        self._seeds = torch.tensor(masked_seeds, dtype=torch.int64, device=device)

    def _add_parameter(self, name: str, values: Tensor) -> None:
        packed = self._to_kernel_layout(name, values).contiguous()
        last_layer = self._linears[-1]
        copy = None
        if name.endswith("weight") and name != f"{last_layer.name}.weight":
            copy = packed.to(self.dtype, copy=True)
        kind = self.config.optimizer
        first = None
        if kind in ("adam", "nesterov"):
            first = torch.zeros_like(packed)
        second = None
        if kind in ("adam", "rmsprop"):
            second = torch.zeros_like(packed)
        self._parameters[name] = _Parameter(packed, copy, (first, second))

    def _to_kernel_layout(self, name: str, values: Tensor) -> Tensor:
        """Return a parameter as the kernels read it."""
        if name == f"{self._convolutions[0].name}.weight":
            from teeter.bench.fused_networks.kernels import patch_width

            M, C_out, C_in, K, _ = values.shape
            columns = K * K * C_in
            channels_last = values.permute(0, 3, 4, 2, 1)
            padded = values.new_zeros(M, patch_width(K, C_in), C_out)
            padded[:, :columns] = channels_last.reshape(M, columns, C_out)
            return padded[:, None, None]
        if values.ndim == 5:
            return values.permute(0, 3, 4, 2, 1)
        if name == f"{self._linears[0].name}.weight":
            # (M, D, channels, height, width)
            by_map: Tensor = values.unflatten(2, self._map_shape)
            return by_map.permute(0, 1, 3, 4, 2).flatten(2)
        return values

    def _to_torch_layout(self, name: str, values: Tensor) -> Tensor:
        """Undo ``_to_kernel_layout``."""
        if name == f"{self._convolutions[0].name}.weight":
            M = len(values)
            C_out, C_in, K, _ = self.networks[0].get_parameter(name).shape
            rows = values[:, 0, 0, : K * K * C_in]
            channels_last = rows.reshape(M, K, K, C_in, C_out)
            return channels_last.permute(0, 4, 3, 1, 2)
        if values.ndim == 5:
            return values.permute(0, 4, 3, 1, 2)
        if name == f"{self._linears[0].name}.weight":
            channels, height, width = self._map_shape
            by_map: Tensor = values.unflatten(2, (height, width, channels))
            return by_map.permute(0, 1, 4, 2, 3).flatten(2)
        return values

    def __len__(self) -> int:
        """Return the number of members, M."""
        return len(self.networks)

    def advance(self, batch_size: int) -> None:
        """Do nothing: the kernels draw dropout themselves."""

    def scale_learning_rate(self, factor: float) -> None:
        """Multiply the learning rate of the steps to come."""
        self.learning_rate *= factor

    def step(
        self,
        inputs: Tensor,
        rows: Tensor,
        labels: Tensor,
        shares: Tensor,
    ) -> Tensor:
        """Take one training step of all members.

        Args:
            inputs: (M, L, channels, height, width) the rows of each member.
            rows: (M, B) which of them are the batch.
            labels: (M, B) their classes.
            shares: (M, B) the weight of each row in the loss.

        Returns:
            (M,) the loss of the batch before the step.
        """
        from teeter.bench.fused_networks import kernels as fused

        first = self._convolutions[0]
        patches = fused.extract_patches(
            inputs, rows, kernel=first.kernel, padding=first.padding, dtype=self.dtype
        )
        maps, codes = self._convolve(patches, training=True)
        last_map = maps[-1]
        hidden = self._apply_linears(last_map.flatten(2), training=True)
        logits = self._last_layer(hidden[-1])

        label_columns = labels[..., None]
        row_shares = shares[..., None]
        log_probabilities = logits.log_softmax(dim=2)
        row_losses = -log_probabilities.gather(2, label_columns).squeeze(2)
        losses = (row_losses * shares).sum(dim=1)

        gradient = log_probabilities.exp()  # (M, B, C), by the logits
        gradient.scatter_add_(2, label_columns, -torch.ones_like(row_shares))
        gradient = gradient * row_shares
        flat_gradient = self._backward_linears(gradient, hidden)
        self._backward_convolutions(flat_gradient.view_as(last_map), maps, codes)
        self.step_number += 1
        return losses

    def shared_logits(self, rows: Tensor) -> Tensor:
        """Return the logits of each member for the same rows, (B, ...) -> (M, B, C)."""
        from teeter.bench.fused_networks import kernels as fused

        first = self._convolutions[0]
        positions = torch.arange(len(rows), device=rows.device)[None]
        patches = fused.extract_patches(
            rows[None], positions, kernel=first.kernel, padding=first.padding, dtype=self.dtype
        )
        maps, _ = self._convolve(patches, training=False)
        hidden = self._apply_linears(maps[-1].flatten(2), training=False)
        return self._last_layer(hidden[-1])

    def _convolve(
        self,
        patches: Tensor,
        *,
        training: bool,
    ) -> tuple[list[Tensor], list[Tensor | None]]:
        """Return the input and output of each convolution, and where its maxima are."""
        from teeter.bench.fused_networks import kernels as fused

        maps = [patches]
        codes: list[Tensor | None] = []
        for number, stage in enumerate(self._convolutions):
            weight = self._copy_of(stage)
            bias = self._values_of(stage, "bias")
            # Patches have the padding of the first convolution in them.
            padding = stage.padding if number > 0 else 0
            if stage.pool:
                output, code = fused.convolve_and_pool(
                    maps[-1],
                    weight,
                    bias,
                    padding=padding,
                    dropout=self._dropout(stage) if training else None,
                    needs_codes=training,
                )
            else:
                output = fused.convolve(maps[-1], weight, bias, padding=padding)
                code = None
            if not training:
                maps = []  # memory for the next layer
            maps.append(output)
            codes.append(code)
        return maps, codes

    def _apply_linears(self, flat: Tensor, *, training: bool) -> list[Tensor]:
        """Return the input of each linear layer, (M, B, D)."""
        from teeter.bench.fused_networks import kernels as fused

        hidden = [flat]
        for stage in self._linears[:-1]:
            weight = self._copy_of(stage)
            bias = self._values_of(stage, "bias")
            product = torch.bmm(hidden[-1], weight.mT)
            dropout = self._dropout(stage) if training else None
            hidden.append(fused.drop_rectified(product, bias, dropout))
        return hidden

    def _last_layer(self, features: Tensor) -> Tensor:
        stage = self._linears[-1]
        weight = self._values_of(stage, "weight")
        bias = self._values_of(stage, "bias")
        return torch.baddbmm(bias[:, None], features.float(), weight.mT)

    def _backward_linears(self, gradient: Tensor, hidden: list[Tensor]) -> Tensor:
        """Update the linear layers and return the gradient of the first one's input.

        Args:
            gradient: (M, B, C) by the logits.
            hidden: the input of each linear layer.
        """
        last = self._linears[-1]
        weight = self._values_of(last, "weight")
        by_input = (gradient @ weight).to(self.dtype)
        by_weight = gradient.mT @ hidden[-1].float()
        self._update(last, by_weight, gradient.sum(dim=1))

        for number in reversed(range(len(self._linears) - 1)):
            stage = self._linears[number]
            # What was dropped is 0, like what the ReLU cut.
            is_alive = hidden[number + 1] > 0
            before_relu = torch.where(is_alive, by_input / (1 - stage.rate), 0)
            by_weight = torch.bmm(before_relu.mT, hidden[number])
            by_bias = before_relu.sum(dim=1, dtype=torch.float32)
            by_input = torch.bmm(before_relu, self._copy_of(stage))
            self._update(stage, by_weight, by_bias)
        return by_input

    def _backward_convolutions(
        self,
        gradient: Tensor,
        maps: list[Tensor],
        codes: list[Tensor | None],
    ) -> None:
        """Update the convolutions.

        Args:
            gradient: that of the last convolution's output.
            maps: the input of each convolution, and the output of the last one.
            codes: where the maxima of each convolution are.
        """
        from teeter.bench.fused_networks import kernels as fused

        if not self._convolutions[-1].pool:
            gradient = torch.where(maps[-1] > 0, gradient, 0)

        for number in reversed(range(len(self._convolutions))):
            stage = self._convolutions[number]
            x = maps[number]
            code = codes[number]
            if code is not None:
                gradient = fused.unpool(gradient.contiguous(), code, stage.rate)

            by_input = None
            if number > 0:
                # Pooled inputs have the ReLU in their codes.
                is_pooled = self._convolutions[number - 1].pool
                by_input = fused.input_gradient(
                    gradient,
                    self._copy_of(stage),
                    padding=stage.padding,
                    source=None if is_pooled else x,
                )
            by_weight, by_bias = fused.weight_gradient(
                x,
                gradient,
                kernel=stage.kernel if number > 0 else 1,
                padding=stage.padding if number > 0 else 0,
            )
            self._update(stage, by_weight, by_bias)
            if by_input is not None:
                gradient = by_input

    def _update(self, stage: _Stage, by_weight: Tensor, by_bias: Tensor) -> None:
        """Take the step of the optimizer for the parameters of a layer."""
        from teeter.bench.fused_networks.kernels import optimizer_step

        match self.config.optimizer:
            case "adam":
                first_decay = _ADAM_DECAYS[0]
            case "rmsprop":
                first_decay = self.config.alpha
            case _:
                first_decay = self.config.momentum

        for kind, gradient in (("weight", by_weight), ("bias", by_bias)):
            parameter = self._parameters[f"{stage.name}.{kind}"]
            optimizer_step(
                parameter.values,
                parameter.copy,
                gradient.contiguous(),
                parameter.states,
                kind=self.config.optimizer,
                learning_rate=self.learning_rate,
                step=self.step_number,
                weight_decay=self.config.weight_decay,
                alpha=first_decay,
                beta=_ADAM_DECAYS[1],
                epsilon=self.config.epsilon,
            )

    def _dropout(self, stage: _Stage) -> Dropout | None:
        from teeter.bench.fused_networks.kernels import Dropout

        if stage.rate == 0:
            return None
        stages = [*self._convolutions, *self._linears]
        position = stages.index(stage)
        return Dropout(stage.rate, position, self._seeds, self.step_number)

    def _copy_of(self, stage: _Stage) -> Tensor:
        copy = self._parameters[f"{stage.name}.weight"].copy
        if copy is None:
            raise KeyError(stage.name)
        return copy

    def _values_of(self, stage: _Stage, kind: str) -> Tensor:
        return self._parameters[f"{stage.name}.{kind}"].values

    def write_back(self, parameters: Sequence[Tensor]) -> None:
        """Copy ``parameters``, shaped like ``self.parameters``, into the members."""
        with torch.no_grad():
            for name, values in zip(self._parameters, parameters, strict=True):
                in_torch_layout = self._to_torch_layout(name, values)
                for network, member_values in zip(self.networks, in_torch_layout, strict=True):
                    network.get_parameter(name).copy_(member_values)
