"""The paper's networks. Each ends in a linear layer, and starts from He-normal weights drawn from a seed."""

from __future__ import annotations

import torch
from torch import Generator, nn

from teeter.models.torch_model import drawing
from teeter.seeds import stream

__all__ = ["he_normal", "mlp"]


def mlp(inputs: int, classes: int, *, seed: int = 0, hidden: int = 128, dropout: float = 0.3) -> nn.Sequential:
    """Return [hidden - dropout - hidden - dropout - classes] with ReLU; inputs of any shape are flattened."""
    with drawing(seed, torch.device("cpu")):  # layers draw a start of their own, which he_normal writes over
        network = nn.Sequential(
            nn.Flatten(),
            nn.Linear(inputs, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, classes),
        )
    return he_normal(network, stream(seed, "start"))


def he_normal(network: nn.Sequential, generator: Generator) -> nn.Sequential:
    """Draw every linear and convolutional weight from N(0, 2 / inputs), set biases to 0, and return the network."""
    for module in network.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu", generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    return network
