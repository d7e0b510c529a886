"""Encode images by their pixels, colours and edges, without a model.

Each image is resized to 64 x 64 pixels and described by three groups of numbers: its colours at
16 x 16 places, a histogram of each channel, and the strength of edges by direction in 4 x 4 parts.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from teeter.encoders.encoder import MAX_FEATURES, Vectors
from teeter.errors import FileError, MissingExtraError
from teeter.paths import resolve_inside

__all__ = ["encode_images"]

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

_WHITE_VALUES = {"I;16": (65535.0,), "I": (255.0, 65535.0), "F": (1.0, 255.0, 65535.0)}
"""Values that may stand for white, by the mode of a one-channel image, in ascending order."""

_HINT = "fix or remove the file, or flag the item if it is already in a campaign"


def encode_images(paths: Sequence[str], folder: Path) -> Vectors:
    """Return the features of images, reduced to principal components.

    All images are encoded together: an image has other features next to other images.

    Args:
        paths: The paths of N images, relative to ``folder``.
        folder: The folder that all images are in.

    Returns:
        The features, (N, D), with D at most 256.

    Raises:
        FileError: If an image is missing, outside the folder or cannot be read.
        MissingExtraError: If Pillow is not installed.
    """
    from sklearn.decomposition import PCA

    raw = np.stack(list(_describe_images(paths, folder)))
    centred = raw - raw.mean(axis=0)
    # The small constant keeps a feature that never varies from dividing by zero.
    scaled = centred / (raw.std(axis=0) + 1e-6)

    n_images, n_raw_features = scaled.shape
    width = min(MAX_FEATURES, n_images - 1, n_raw_features)
    if width < 2:
        return np.asarray(scaled, dtype=np.float32)

    pca = PCA(width, whiten=False, random_state=0, svd_solver="randomized")
    return np.asarray(pca.fit_transform(scaled), np.float32)


def _describe_images(paths: Sequence[str], folder: Path) -> Iterator[Floats]:
    """Yield the 920 raw features of each image."""
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise MissingExtraError(
            "Reading images needs Pillow: pip install 'teeter[images]'."
        ) from None

    for path in paths:
        file = _find_image(path, folder)

        try:
            # Pillow warns about large images and about transparent palettes.
            with warnings.catch_warnings(action="ignore"), Image.open(file) as image:
                upright = ImageOps.exif_transpose(image)
                resized = _convert_to_rgb(upright).resize((_SIDE, _SIDE))
                pixels = np.asarray(resized, dtype=np.float64) / 255
        except Exception:  # Pillow raises almost anything for a damaged file.
            raise FileError(f"{path} cannot be read as an image: {_HINT}.") from None

        yield np.concatenate([_grid_colours(pixels), _colour_histograms(pixels), _edges(pixels)])


def _find_image(path: str, folder: Path) -> Path:
    try:
        return resolve_inside(path, folder)
    except FileError as error:
        raise FileError(f"{str(error).removesuffix('.')}: {_HINT}.") from None


def _convert_to_rgb(image: Any) -> Any:
    """Return an image in red, green and blue, over white where it is transparent."""
    from PIL import Image

    # Scientific images hold numbers of any range, which Pillow would clip at 255.
    if image.mode.startswith("I") or image.mode == "F":
        values = np.nan_to_num(np.asarray(image, dtype=np.float64))
        black = min(0.0, float(values.min()))
        white = _guess_white(float(values.max()), image.mode[:4])
        shades = 255 * (values - black) / (white - black)
        return Image.fromarray(np.uint8(shades)).convert("RGB")

    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        layer = image.convert("RGBA")
        background = Image.new("RGBA", layer.size, "white")
        return Image.alpha_composite(background, layer).convert("RGB")

    return image.convert("RGB")


def _guess_white(highest: float, mode: str) -> float:
    """Return the value of white in an image of numbers: the lowest usual one that fits."""
    for white in _WHITE_VALUES[mode]:
        if highest <= white:
            return white

    return highest


def _grid_colours(pixels: Floats) -> Floats:
    """Return the mean colour of each block: (64, 64, 3) -> (768,)."""
    blocks = pixels.reshape(_GRID, _BLOCK, _GRID, _BLOCK, 3)
    colours: Floats = blocks.mean(axis=(1, 3)).ravel()
    return colours


def _colour_histograms(pixels: Floats) -> Floats:
    """Return the square roots of the shares of each bin in each channel: (64, 64, 3) -> (24,)."""
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
    # An edge from dark to light has the direction of one from light to dark.
    angle = np.arctan2(down, right) % np.pi
    bins = (angle / np.pi * _BINS).astype(int)
    direction = np.minimum(bins, _BINS - 1)  # rounding can give pi itself

    totals = np.zeros((_PARTS, _PARTS, _BINS))
    part_side = _SIDE // _PARTS
    rows, columns = np.indices(strength.shape) // part_side
    np.add.at(totals, (rows, columns, direction), strength)

    edges: Floats = np.sqrt(totals.ravel())
    return edges
