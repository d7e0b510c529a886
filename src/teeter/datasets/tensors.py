"""Convert arrays from files to the tensors a network takes: float32 rows, or images in [0, 1]."""

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

__all__ = ["ByteImages", "image_tensor", "row_tensor"]


class ByteImages(Dataset[Tensor]):
    """Images kept in memory as bytes and converted to float32 in [0, 1] one at a time.

    As float32, all images together would take four times the memory.

    Args:
        pixels: (N, channels, height, width) uint8.
    """

    def __init__(self, pixels: Tensor) -> None:
        self.pixels = pixels

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, row: int) -> Tensor:
        return self.pixels[row].float() / 255


def row_tensor(array: Any, source: str) -> Tensor:
    """Return an array of numbers as a float32 tensor (N, D).

    Args:
        array: (N, D) numbers.
        source: where the array comes from, for error messages.

    Raises:
        FileError: if the array has another shape or type, no row, or values that are not finite.
    """
    numbers = np.asarray(array)
    is_matrix = numbers.ndim == 2 and len(numbers) > 0
    is_number = numbers.dtype.kind in "iufb"  # signed, unsigned, floating or boolean
    if not is_matrix or not is_number:
        raise FileError(
            f"{source} is {numbers.dtype} of shape {numbers.shape}: numbers (N, D) are needed."
        )

    contiguous = np.ascontiguousarray(numbers, dtype=np.float32)
    tensor = torch.from_numpy(contiguous)
    if not tensor.isfinite().all():
        raise FileError(f"{source} has missing values: some of its numbers are NaN or infinite.")

    return tensor


def image_tensor(
    array: Any, shape: Sequence[int], source: str, *, keep_bytes: bool = False
) -> Tensor | ByteImages:
    """Return images as float32 (N, channels, height, width) in [0, 1].

    Args:
        array: images as uint8 or as fractions in [0, 1], with their channels first or last, flat,
            or without the channel axis if there is one channel. A torch Dataset is returned as it
            is.
        shape: (channels, height, width).
        source: where the images come from, for error messages.
        keep_bytes: return uint8 images as ``ByteImages``.

    Raises:
        FileError: if the array has another shape or type, or no image.
    """
    if isinstance(array, Dataset):
        return array  # type: ignore[return-value]

    pixels = _with_channels_first(np.asarray(array), tuple(shape), source)

    if pixels.dtype == np.uint8:
        # torch.from_numpy warns about arrays that it may not write to.
        writable = np.require(pixels, requirements=["C", "W"])
        tensor = torch.from_numpy(writable)
        if keep_bytes:
            return ByteImages(tensor)
        return tensor.to(torch.float32).div_(255)

    # Bytes saved as floats, 0 to 255, are refused: dividing them would be a guess.
    is_fraction = pixels.dtype.kind == "f" and pixels.min() >= 0 and pixels.max() <= 1
    if not is_fraction:
        raise FileError(
            f"{source} is {pixels.dtype}: save images as bytes (uint8), or as fractions from 0 to "
            "1."
        )

    return torch.from_numpy(np.ascontiguousarray(pixels, dtype=np.float32))


def _with_channels_first(
    array: npt.NDArray[Any], shape: tuple[int, ...], source: str
) -> npt.NDArray[Any]:
    if array.ndim == 0 or len(array) == 0:
        raise FileError(f"{source} holds no images.")

    channels, height, width = shape
    image_shape = array.shape[1:]

    if image_shape == shape:
        return array
    if image_shape == (height, width, channels):
        return array.transpose(0, 3, 1, 2)

    is_flat = image_shape == (prod(shape),)
    is_grey = channels == 1 and image_shape == (height, width)
    if is_flat or is_grey:
        return array.reshape(-1, *shape)

    raise FileError(
        f"{source} has the shape {array.shape}: "
        f"images (N, {channels}, {height}, {width}) are needed."
    )
