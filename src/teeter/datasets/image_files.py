"""Picture files, decoded when asked for and brought to one size."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from teeter.datasets.file_checks import parse_errors
from teeter.errors import MissingExtraError

__all__ = ["CentreCrop", "Fit", "ImageFiles", "Resize", "image_pixels", "open_image"]

Fit: TypeAlias = Callable[[Any], Any]
"""What brings a picture of pillow's to the size that is wanted."""


@dataclass(frozen=True)
class Resize:
    """Makes a picture a square of ``side`` pixels, whatever its proportions."""

    side: int

    def __call__(self, picture: Any) -> Any:
        """Return the picture at that size."""
        size = (self.side, self.side)
        return picture if picture.size == size else picture.resize(size, _bilinear())


@dataclass(frozen=True)
class CentreCrop:
    """Scales the shorter side of a picture to ``shorter``, and cuts a square of ``side`` pixels from its middle."""

    shorter: int
    side: int

    def __call__(self, picture: Any) -> Any:
        """Return the square."""
        scale = self.shorter / min(picture.size)
        width, height = (max(round(length * scale), self.shorter) for length in picture.size)
        left, top = (width - self.side) // 2, (height - self.side) // 2
        scaled = picture.resize((width, height), _bilinear())
        return scaled.crop((left, top, left + self.side, top + self.side))


class ImageFiles(Dataset[Tensor]):
    """Pictures that stay on disk, each decoded when asked for: float32 (3, height, width) within [0, 1]."""

    def __init__(self, paths: Sequence[str | Path], fit: Fit) -> None:
        self.paths = [
            str(path) for path in paths
        ]  # of ImageNet's million, texts take the least room
        self.fit = fit

    def __len__(self) -> int:
        """Return N."""
        return len(self.paths)

    def __getitem__(self, row: int) -> Tensor:
        """Return one picture."""
        pixels = image_pixels(open_image(Path(self.paths[row])), self.fit, 3)
        return torch.from_numpy(pixels.astype(np.float32) / 255)


def open_image(path: Path, content: bytes | None = None) -> Any:
    """Return a file, or ``content`` that was read from it, as a picture of pillow's."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtraError(
            "Reading pictures needs pillow: pip install 'teeter[images]'."
        ) from None
    with parse_errors(path, "picture"):
        picture = Image.open(io.BytesIO(path.read_bytes() if content is None else content))
        picture.load()
        return picture


def image_pixels(picture: Any, fit: Fit, channels: int) -> npt.NDArray[np.uint8]:
    """Return a picture's bytes at the size that is wanted, (channels, height, width)."""
    fitted = fit(picture.convert("L" if channels == 1 else "RGB"))
    pixels = np.asarray(fitted, dtype=np.uint8)
    return pixels[None] if channels == 1 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _bilinear() -> Any:
    from PIL.Image import Resampling

    return Resampling.BILINEAR
