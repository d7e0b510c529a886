"""Read image files with Pillow and bring them to one size."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from teeter.data.file_checks import parse_errors
from teeter.errors import MissingExtraError

__all__ = ["CentreCrop", "Fit", "Resize", "image_pixels", "open_image"]

Fit: TypeAlias = Callable[[Any], Any]
"""Brings a Pillow image to the size that a dataset uses."""


@dataclass(frozen=True)
class Resize:
    """Resize an image to a square of ``side`` pixels, whatever its proportions."""

    side: int

    def __call__(self, image: Any) -> Any:
        """Return the resized image."""
        size = (self.side, self.side)
        if image.size == size:
            return image
        return image.resize(size, _bilinear())


@dataclass(frozen=True)
class CentreCrop:
    """Scale an image so that its shorter side is ``shorter`` pixels, then crop its centre.

    The crop is a square of ``side`` pixels.
    """

    shorter: int
    side: int

    def __call__(self, image: Any) -> Any:
        """Return the centre of the scaled image."""
        width, height = image.size
        scale = self.shorter / min(width, height)

        # Rounding must not make a side shorter than the crop.
        scaled_width = max(round(width * scale), self.shorter)
        scaled_height = max(round(height * scale), self.shorter)
        scaled = image.resize((scaled_width, scaled_height), _bilinear())

        left = (scaled_width - self.side) // 2
        top = (scaled_height - self.side) // 2
        right = left + self.side
        bottom = top + self.side
        return scaled.crop((left, top, right, bottom))


def open_image(path: Path, content: bytes | None = None) -> Any:
    """Decode an image file with Pillow.

    Args:
        path: the file, also for error messages.
        content: the encoded image, if it was already read from ``path``.

    Raises:
        MissingExtraError: if Pillow is not installed.
        FileError: if the image is missing or damaged.
    """
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtraError(
            "Reading images needs Pillow: pip install 'teeter[images]'."
        ) from None

    with parse_errors(path, "image file"):
        if content is None:
            content = path.read_bytes()
        image = Image.open(io.BytesIO(content))
        # Image.open reads only the header. Decode here, where errors are converted.
        image.load()
        return image


def image_pixels(image: Any, fit: Fit, channels: int) -> npt.NDArray[np.uint8]:
    """Return the pixels of a Pillow image as (channels, height, width), for 1 or 3 channels."""
    # "L" is Pillow's name for 8-bit grey.
    mode = "L" if channels == 1 else "RGB"
    fitted = fit(image.convert(mode))
    pixels = np.asarray(fitted, dtype=np.uint8)

    # Pillow gives (height, width) for grey and (height, width, 3) for colour.
    if channels == 1:
        return pixels[None]
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _bilinear() -> Any:
    from PIL.Image import Resampling

    return Resampling.BILINEAR
