"""Read images of any kind as upright pictures in red, green and blue, several at a time.

Photographs are decoded in parallel, because decoding takes longer than a small network. A file that
cannot be read does not stop the others.
"""

from __future__ import annotations

import os
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from teeter.encoders.encoder import ContentKind, Encoder, Encoding, Vectors
from teeter.errors import FileError, MissingExtraError
from teeter.paths import resolve_inside

__all__ = ["ImageEncoder", "read_image"]

Picture = npt.NDArray[np.uint8]
"""(side, side, 3) red, green and blue."""

_BATCH = 32
"""Pictures that a network sees at once."""

_MOST_DECODERS = 8
"""Threads that decode images. Pillow releases the interpreter lock while it decodes."""

_WHITE_VALUES = {"I;16": (65535.0,), "I": (255.0, 65535.0), "F": (1.0, 255.0, 65535.0)}
"""Values that may stand for white, by the mode of a one-channel image, in ascending order."""

_HINT = "fix or remove the file, or flag the item if it is already in a campaign"


@dataclass(frozen=True, eq=False)
class _ReadResult:
    """A picture, or why it could not be read."""

    picture: Picture | None
    error: str | None = None


class ImageEncoder(Encoder):
    """An encoder that sees images as square pictures.

    Subclasses say how large the pictures are and describe a batch of them. ``describe_pictures``
    depends on nothing but its pictures; what is fitted belongs in ``project``.

    Args:
        folder: The folder that all images are in, and that no path may leave. Without it, paths
            are used as they are.
    """

    kind = ContentKind.IMAGE

    side: int
    """Pixels along each side of the pictures that the encoder sees."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder

    @abstractmethod
    def describe_pictures(self, pictures: npt.NDArray[np.uint8]) -> Vectors:
        """Return raw features of pictures: (B, side, side, 3) -> (B, R)."""

    def project(self, raw: Vectors) -> Vectors:
        """Return the features of raw features: (N, R) -> (N, D)."""
        return raw

    def describe(self, contents: Sequence[str]) -> Encoding:
        """Return the raw features of images by their paths, (N, R)."""
        described: list[Vectors] = []
        rows: list[int] = []
        unreadable: dict[int, str] = {}

        # Here and not in the threads that decode: the filters of warnings are of the whole process.
        with warnings.catch_warnings(action="ignore"):
            for start, results in self._read_batches(contents):
                pictures = []
                for row, result in enumerate(results, start=start):
                    if result.picture is None:
                        unreadable[row] = result.error or ""
                    else:
                        pictures.append(result.picture)
                        rows.append(row)
                if pictures:
                    described.append(self.describe_pictures(np.stack(pictures)))

        if not described:
            return Encoding(np.zeros((len(contents), 0), dtype=np.float32), unreadable)

        readable = np.concatenate(described)
        vectors = np.zeros((len(contents), readable.shape[1]), dtype=np.float32)
        vectors[rows] = readable
        return Encoding(vectors, unreadable)

    def encode(self, contents: Sequence[str]) -> Encoding:
        """Return the features of images by their paths."""
        raw = self.describe(contents)
        readable = [row for row in range(len(contents)) if row not in raw.unreadable]
        # Unreadable rows stay zero, whatever the projection would make of zeros.
        if readable:
            features = self.project(raw.vectors[readable])
        else:
            # The width of the features is needed all the same: a blank picture has it.
            blank = np.full((1, self.side, self.side, 3), 255, dtype=np.uint8)
            features = self.project(self.describe_pictures(blank))[:0]

        vectors = np.zeros((len(contents), features.shape[1]), dtype=np.float32)
        vectors[readable] = features
        return Encoding(vectors, raw.unreadable)

    def _read_batches(self, contents: Sequence[str]) -> Iterator[tuple[int, list[_ReadResult]]]:
        """Yield the pictures of batches, with the position of the first of each.

        One batch is decoded ahead while the network works on the one before.
        """
        # More threads than cores gain nothing: decoding waits for no one.
        n_threads = min(_MOST_DECODERS, os.cpu_count() or 1)

        with ThreadPoolExecutor(n_threads, thread_name_prefix="decode") as pool:
            paths = iter(contents)
            waiting = [pool.submit(self._try_to_read, path) for path in islice(paths, _BATCH)]
            start = 0

            while waiting:
                # Submitted before the results are awaited, so that decoding never pauses.
                ahead = [pool.submit(self._try_to_read, path) for path in islice(paths, _BATCH)]
                yield start, [future.result() for future in waiting]
                start += len(waiting)
                waiting = ahead

    def _try_to_read(self, path: str) -> _ReadResult:
        try:
            return _ReadResult(_read_image(path, self.side, self.folder))
        except FileError as error:
            return _ReadResult(None, str(error))


def read_image(path: str, side: int, folder: Path | None = None) -> Picture:
    """Read an image as a square picture: upright, over white where it is transparent.

    The first frame of an animation is read. The whole image is kept: it is squeezed, not cropped.

    Args:
        path: The image, relative to ``folder`` if there is one.
        side: Pixels along each side of the picture.
        folder: The folder that the image must be in.

    Raises:
        FileError: If the file is missing, outside the folder, or cannot be read as an image.
        MissingExtraError: If Pillow is not installed.
    """
    # Pillow warns about large images and about transparent palettes.
    with warnings.catch_warnings(action="ignore"):
        return _read_image(path, side, folder)


def _read_image(path: str, side: int, folder: Path | None) -> Picture:
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise MissingExtraError(
            "Reading images needs Pillow: pip install 'teeter[images]'."
        ) from None

    file = Path(path)
    if folder is not None:
        try:
            file = resolve_inside(path, folder)
        except FileError as error:
            raise FileError(f"{str(error).removesuffix('.')}: {_HINT}.") from None

    try:
        with Image.open(file) as image:
            # JPEG files can be decoded at a fraction of their size, which is several times faster.
            image.draft(None, (2 * side, 2 * side))
            upright = ImageOps.exif_transpose(image)
            resized = _convert_to_rgb(upright).resize((side, side), Image.Resampling.BICUBIC)
            return np.asarray(resized, dtype=np.uint8)
    except Exception:  # Pillow raises almost anything for a damaged file.
        raise FileError(f"{path} cannot be read as an image: {_HINT}.") from None


def _convert_to_rgb(image: Any) -> Any:
    """Return an image in red, green and blue, over white where it is transparent."""
    from PIL import Image

    # Scientific images hold numbers of any range, which Pillow would clip at 255.
    if image.mode.startswith("I") or image.mode == "F":
        # NaN stands for missing pixels in some scientific files.
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
