"""What stands in files as what a network takes: float32 rows, or images with their channels first and within [0, 1]."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from teeter.errors import FileError

__all__ = ["Pixels", "images", "rows"]


class Pixels(Dataset[Tensor]):
    """Images kept as bytes, (N, channels, height, width), each handed out as float32 within [0, 1]."""

    def __init__(self, pixels: Tensor) -> None:
        self.pixels = pixels

    def __len__(self) -> int:
        """Return N."""
        return len(self.pixels)

    def __getitem__(self, row: int) -> Tensor:
        """Return one image."""
        return self.pixels[row].float() / 255


def rows(array: Any, where: str) -> Tensor:
    """Return numbers as a float32 tensor (N, D)."""
    numbers = np.asarray(array)
    if numbers.ndim != 2 or numbers.dtype.kind not in "iufb" or not len(numbers):
        raise FileError(
            f"{where} is {numbers.dtype} of shape {numbers.shape}: numbers (N, D) are needed."
        )
    tensor = torch.from_numpy(np.ascontiguousarray(numbers, dtype=np.float32))
    if not tensor.isfinite().all():
        raise FileError(f"{where} has gaps: some of its numbers are NaN or infinite.")
    return tensor


def images(
    array: Any, shape: Sequence[int], where: str, *, as_bytes: bool = False
) -> Tensor | Pixels:
    """Return images, bytes or fractions in any of the usual orders, as (N, *shape); ``as_bytes`` keeps them small."""
    if isinstance(array, Dataset):
        return array  # type: ignore[return-value]
    pixels = _arranged(np.asarray(array), tuple(shape), where)
    if pixels.dtype == np.uint8:
        whole = torch.from_numpy(np.require(pixels, requirements=["C", "W"]))
        return Pixels(whole) if as_bytes else whole.to(torch.float32).div_(255)
    if pixels.dtype.kind != "f" or not (pixels.min() >= 0 and pixels.max() <= 1):
        raise FileError(
            f"{where} is {pixels.dtype}: save images as bytes (uint8), or as fractions from 0 to 1."
        )
    return torch.from_numpy(np.ascontiguousarray(pixels, dtype=np.float32))


def _arranged(array: npt.NDArray[Any], shape: tuple[int, ...], where: str) -> npt.NDArray[Any]:
    channels, height, width = shape
    found = array.shape[1:]
    if not len(array.shape) or not len(array):
        raise FileError(f"{where} holds no images.")
    if found == shape:
        return array
    if found == (height, width, channels):
        return array.transpose(0, 3, 1, 2)
    if (found == (height, width) and channels == 1) or found == (prod(shape),):
        return array.reshape(-1, *shape)
    raise FileError(
        f"{where} is of shape {array.shape}: images (N, {channels}, {height}, {width}) are needed."
    )
