"""Read images of any kind as upright pictures in red, green and blue, several at a time.

Images are decoded in parallel, because decoding a photograph takes longer than a small network. A
file that cannot be read does not stop the others.
"""

from __future__ import annotations

import os
import warnings
from abc import abstractmethod
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from teeter.base.files import resolve_inside
from teeter.encoders.encoder import ContentKind, Encoder, Encoding, Vectors
from teeter.errors import FileError, InputError, MissingExtraError

__all__ = [
    "HEIF_HINT",
    "HEIF_SUFFIXES",
    "IMAGE_SUFFIXES",
    "ImageEncoder",
    "Pictures",
    "count_left_out_files",
    "describe_left_out_files",
    "enable_heif",
    "find_images",
    "is_image_name",
    "read_image",
]

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif")
"""Files that are taken for images."""

HEIF_SUFFIXES = (".heic", ".heif")
"""Photographs of iPhones, which are taken for images if pillow-heif is installed."""

HEIF_HINT = "to read HEIC photographs, pip install pillow-heif"

Pictures: TypeAlias = npt.NDArray[np.uint8]
"""(B, side, side, 3) red, green and blue; a single picture has no B."""

_NAMED_SUFFIXES = 10
"""Endings of files that are named one by one."""

_BATCH = 32
"""Pictures that are decoded, and then described, at a time."""

_MAX_DECODERS = 8
"""The largest number of threads that decode images."""

_WHITE_VALUES = {
    "I;16": (65535.0,),
    "I": (255.0, 65535.0),
    "F": (1.0, 255.0, 65535.0),
}
"""Values that may stand for white, by the mode of a one-channel image, in ascending order."""

_HINT = "fix or remove the file, or flag the item if it is already in a campaign"


def find_images(folder: Path) -> list[Path]:
    """Return the images of a folder and of the folders inside it, in the order of their paths.

    Raises:
        FileError: If there is none.
    """
    images = [path for path in folder.rglob("*") if _is_image(path)]
    if not images:
        left_out = describe_left_out_files(count_left_out_files(folder))
        reason = left_out or f"no file ends in {', '.join(IMAGE_SUFFIXES)}."
        raise FileError(f"{folder} has no images: {reason}")
    return sorted(images)


def count_left_out_files(folder: Path) -> dict[str, int]:
    """Return how many files ``find_images`` leaves out, by their endings; the most first.

    Hidden files, which programs write for themselves, do not count.
    """
    counts: Counter[str] = Counter()
    for path in folder.rglob("*"):
        parts = path.relative_to(folder).parts
        is_hidden = any(part.startswith(".") for part in parts)
        if not is_hidden and path.is_file() and not _is_image(path):
            counts[path.suffix.lower()] += 1
    # The most frequent first. The sort is stable, so equally frequent ones are in order of name.
    by_name = sorted(counts.items())
    return dict(sorted(by_name, key=lambda entry: -entry[1]))


def describe_left_out_files(counts: Mapping[str, int]) -> str | None:
    """Return a sentence about files that are left out; None if none is.

    Args:
        counts: as ``count_left_out_files`` returns them.

    Example:
        >>> describe_left_out_files({".svg": 10, ".psd": 2})
        '12 files were left out, which are no images that teeter reads: 10 .svg, 2 .psd.'
    """
    if not counts:
        return None

    total = sum(counts.values())
    others = total
    named = []
    for suffix, count in list(counts.items())[:_NAMED_SUFFIXES]:
        named.append(f"{count:,} {suffix or 'without an ending'}")
        others -= count
    if others:
        named.append(f"and {others:,} others")
    were = "1 file was left out, which is no image"
    if total > 1:
        were = f"{total:,} files were left out, which are no images"
    hint = ""
    if any(suffix in counts for suffix in HEIF_SUFFIXES):
        hint = f" ({HEIF_HINT})"
    return f"{were} that teeter reads: {', '.join(named)}{hint}."


def is_image_name(name: str) -> bool:
    """Return whether a file of this name is taken for an image."""
    suffix = Path(name).suffix.lower()
    if suffix in HEIF_SUFFIXES:
        return enable_heif()
    return suffix in IMAGE_SUFFIXES


@cache
def enable_heif() -> bool:
    """Let Pillow read HEIC photographs, and return whether it can: with pillow-heif."""
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        return False

    register_heif_opener()
    return True


def _is_image(path: Path) -> bool:
    return is_image_name(path.name) and path.is_file()


class ImageEncoder(Encoder):
    """An encoder that sees images as square pictures.

    Features are computed in two steps, so that several encoders can share the first one.
    ``describe_pictures`` turns pictures into raw features and learns nothing. ``project`` turns raw
    features into features, with what ``fit_raw`` has learned.

    Args:
        folder: The folder that holds the images; paths are relative to it and must not lead out of
            it. Without it, paths are used as they are.
    """

    kind = ContentKind.IMAGE

    side: int
    """Pixels along each side of the pictures that the encoder sees."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._raw_by_path: dict[str, Vectors] = {}
        """The raw features of the images that ``fit`` read, until they are encoded."""

    @abstractmethod
    def describe_pictures(self, pictures: Pictures) -> Vectors:
        """Return the raw features of pictures: (B, side, side, 3) -> (B, R)."""

    def fit_raw(self, raw: Vectors) -> None:
        """Learn what ``project`` needs from raw features, (N, R)."""

    def project(self, raw: Vectors) -> Vectors:
        """Return the features of raw features: (N, R) -> (N, D)."""
        return raw

    def fit(self, contents: Sequence[str]) -> None:
        """Learn from images by their paths.

        Raises:
            InputError: If none of the images can be read.
        """
        if not self.fit_size:
            return

        raw = self.describe(contents)
        rows = raw.readable_rows
        if not rows:
            if not raw.unreadable:
                raise InputError("There are no images to fit the encoder on.")
            reason = next(iter(raw.unreadable.values()))
            raise InputError(reason)

        self.fit_raw(raw.vectors[rows])
        # The same images are encoded next, and decoding them again would double the time.
        self._raw_by_path = {contents[row]: raw.vectors[row] for row in rows}

    def encode(self, contents: Sequence[str]) -> Encoding:
        """Return the features of images by their paths."""
        raw = self._describe_once(contents)
        rows = raw.readable_rows

        if rows:
            features = self.project(raw.vectors[rows])
        else:
            # A blank picture tells the width of the features.
            shape = (1, self.side, self.side, 3)
            blank = np.full(shape, 255, dtype=np.uint8)
            raw_of_blank = self.describe_pictures(blank)
            features = self.project(raw_of_blank)[:0]

        # Unreadable rows stay zero, whatever the projection would make of them.
        return Encoding.of_readable(features, rows, raw.unreadable)

    def describe(self, contents: Sequence[str]) -> Encoding:
        """Return the raw features of images by their paths, (N, R)."""
        described: list[Vectors] = []
        rows: list[int] = []
        unreadable: dict[int, str] = {}

        # Pillow warns about large images and transparent palettes. The filter is set here, not in
        # the threads that decode, because it applies to the whole process.
        with (
            warnings.catch_warnings(action="ignore"),
            closing(self._read_batches(contents)) as batches,
        ):
            row = 0
            for results in batches:
                pictures = []
                for result in results:
                    if isinstance(result, FileError):
                        unreadable[row] = str(result)
                    else:
                        pictures.append(result)
                        rows.append(row)
                    row += 1

                if pictures:
                    described.append(self.describe_pictures(np.stack(pictures)))

        readable = np.zeros((0, 0), dtype=np.float32)
        if described:
            readable = np.concatenate(described)
        return Encoding.of_readable(readable, rows, unreadable)

    def _describe_once(self, contents: Sequence[str]) -> Encoding:
        """Return raw features; images that ``fit`` has read are not read again."""
        if not self._raw_by_path:
            return self.describe(contents)

        width = len(next(iter(self._raw_by_path.values())))
        vectors = np.zeros((len(contents), width), dtype=np.float32)
        new_rows = []
        for row, path in enumerate(contents):
            raw = self._raw_by_path.pop(path, None)
            if raw is None:
                new_rows.append(row)
            else:
                vectors[row] = raw

        new = self.describe([contents[row] for row in new_rows])
        unreadable = {}
        for position, row in enumerate(new_rows):
            if position in new.unreadable:
                unreadable[row] = new.unreadable[position]
            else:
                vectors[row] = new.vectors[position]

        return Encoding(vectors, unreadable)

    def _read_batches(
        self, contents: Sequence[str]
    ) -> Generator[list[Pictures | FileError], None, None]:
        """Yield the pictures of one batch after the other.

        The next batch is decoded while the caller works on the one before.
        """
        # Decoding only computes, so more threads than cores gain nothing.
        n_threads = min(_MAX_DECODERS, os.cpu_count() or 1)

        with ThreadPoolExecutor(n_threads, thread_name_prefix="decode") as pool:
            waiting: list[Future[Pictures | FileError]] = []

            for start in range(0, len(contents), _BATCH):
                paths = contents[start : start + _BATCH]
                # Submitted before the batch before is awaited, so that decoding never pauses.
                submitted = [pool.submit(self._try_to_read, path) for path in paths]
                if waiting:
                    yield [future.result() for future in waiting]
                waiting = submitted

            yield [future.result() for future in waiting]

    def _try_to_read(self, path: str) -> Pictures | FileError:
        """Return a picture, or why it could not be read."""
        try:
            return _read_image(path, self.side, self.folder)
        except FileError as error:
            return error


def read_image(path: str, side: int, folder: Path | None = None) -> Pictures:
    """Read an image as a square picture: upright, over white where it is transparent.

    Of an animation, the first frame is read. The whole image is used: it is squeezed, not cropped.

    Args:
        path: The image, relative to ``folder`` if there is one.
        side: Pixels along each side of the picture.
        folder: The folder that the image must be in.

    Returns:
        Shape (side, side, 3).

    Raises:
        FileError: If the file is missing, outside the folder, or cannot be read as an image.
        MissingExtraError: If Pillow is not installed.
    """
    with warnings.catch_warnings(action="ignore"):
        return _read_image(path, side, folder)


def _read_image(path: str, side: int, folder: Path | None) -> Pictures:
    """Read an image in a thread, which must not change the filters of warnings."""
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise MissingExtraError(
            "Reading images needs Pillow: pip install 'teeter[label]'."
        ) from None

    file = Path(path)
    if not enable_heif() and file.suffix.lower() in HEIF_SUFFIXES:
        raise FileError(f"{path} cannot be read: {HEIF_HINT}.")
    if folder is not None:
        try:
            file = resolve_inside(path, folder)
        except FileError as error:
            raise FileError(f"{str(error).removesuffix('.')}: {_HINT}.") from None

    try:
        with Image.open(file) as image:
            # JPEG files can be decoded at a fraction of their size, which is several times faster.
            large_enough = 2 * side
            image.draft(None, (large_enough, large_enough))
            upright = ImageOps.exif_transpose(image)
            colours = _convert_to_rgb(upright)
            resized = colours.resize((side, side), Image.Resampling.BICUBIC)
            return np.asarray(resized, dtype=np.uint8)
    except Exception:  # Pillow raises almost anything for a damaged file.
        raise FileError(f"{path} cannot be read as an image: {_HINT}.") from None


def _convert_to_rgb(image: Any) -> Any:
    """Return an image in red, green and blue, over white where it is transparent."""
    from PIL import Image

    # Scientific images hold numbers of any range, which Pillow would clip at 255.
    if image.mode.startswith("I") or image.mode == "F":
        # In some scientific files, NaN stands for a missing pixel.
        values = np.asarray(image, dtype=np.float64)
        values = np.nan_to_num(values)
        lowest = float(values.min())
        highest = float(values.max())

        black = min(0.0, lowest)
        # The lowest usual value of white that fits.
        usual = _WHITE_VALUES[image.mode[:4]]
        white = next((value for value in usual if highest <= value), highest)
        shades = 255 * (values - black) / (white - black)
        return Image.fromarray(np.uint8(shades)).convert("RGB")

    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        layer = image.convert("RGBA")
        background = Image.new("RGBA", layer.size, "white")
        return Image.alpha_composite(background, layer).convert("RGB")

    return image.convert("RGB")
