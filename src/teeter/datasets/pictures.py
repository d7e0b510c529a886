"""Picture files, decoded when asked for and brought to one size."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from teeter.datasets.files import parsing
from teeter.errors import FileError, MissingExtraError

__all__ = ["Fit", "Pictures", "centre_crop", "opened", "pixels_of", "resized"]

Fit = Callable[[Any], Any]
"""What brings a picture of pillow's to the size that is wanted."""

_LARGEST = 1 << 28
"""Pixels of the largest picture that is decoded; a larger one is taken for a trap."""


class Pictures(Dataset[Tensor]):
    """Pictures that stay on disk, each decoded when asked for: float32 (channels, height, width) within [0, 1]."""

    def __init__(self, paths: Sequence[Path], fit: Fit, channels: int = 3) -> None:
        self.paths = [str(path) for path in paths]
        self.fit = fit
        self.channels = channels

    def __len__(self) -> int:
        """Return N."""
        return len(self.paths)

    def __getitem__(self, row: int) -> Tensor:
        """Return one picture."""
        path = Path(self.paths[row])
        with parsing(path, "picture"):
            pixels = pixels_of(opened(path), self.fit, self.channels)
        return torch.from_numpy(pixels.astype(np.float32) / 255)


def opened(source: Path | bytes) -> Any:
    """Return a file, or the bytes of one, as a picture of pillow's."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtraError("Reading pictures needs pillow: pip install 'teeter[images]'.") from None
    path = source if isinstance(source, Path) else Path("a picture")
    with parsing(path, "picture"):
        picture = _open(Image, source)
        if picture.width * picture.height > _LARGEST:
            raise FileError(f"{path} has {picture.width} x {picture.height} pixels: more than {_LARGEST} are not read.")
        picture.load()
        return picture


def _open(image: Any, source: Path | bytes) -> Any:
    before = image.MAX_IMAGE_PIXELS
    image.MAX_IMAGE_PIXELS = None  # the limit is ours, and it is checked before pixels are decoded
    try:
        return image.open(source if isinstance(source, Path) else io.BytesIO(source))
    finally:
        image.MAX_IMAGE_PIXELS = before


def pixels_of(picture: Any, fit: Fit, channels: int) -> npt.NDArray[np.uint8]:
    """Return a picture's bytes at the size that is wanted, (channels, height, width)."""
    fitted = fit(picture.convert("L" if channels == 1 else "RGB"))
    pixels = np.asarray(fitted, dtype=np.uint8)
    return pixels[None] if channels == 1 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def resized(side: int) -> Fit:
    """Return what makes a picture a square of ``side`` pixels, whatever its proportions."""

    def fit(picture: Any) -> Any:
        return picture if picture.size == (side, side) else picture.resize((side, side), _bilinear())

    return fit


def centre_crop(shorter: int, side: int) -> Fit:
    """Return what scales the shorter side of a picture, and cuts a square of ``side`` pixels from its middle."""

    def fit(picture: Any) -> Any:
        scale = shorter / min(picture.size)
        width, height = (max(round(length * scale), shorter) for length in picture.size)
        left, top = (width - side) // 2, (height - side) // 2
        return picture.resize((width, height), _bilinear()).crop((left, top, left + side, top + side))

    return fit


def _bilinear() -> Any:
    from PIL.Image import Resampling

    return Resampling.BILINEAR
