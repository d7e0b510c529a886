"""Features of several encoders side by side, each scaled to the same size.

A pretrained network sees what an image shows, and pixels see its colours and layout. Together they
are as good as the better of the two, and on drawings and digits better than both.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from teeter.encoders.encoder import Encoder, EncoderState, Encoding, Vectors
from teeter.encoders.images import ImageEncoder
from teeter.encoders.pixels import PixelEncoder
from teeter.encoders.registry import SIDE_BY_SIDE
from teeter.errors import InputError

__all__ = ["ImagesSideBySide", "TextsSideBySide", "make_side_by_side"]

_SCALE_SAMPLE = 2_000
"""Contents that the scale of each part is learned from."""


def make_side_by_side(parts: Sequence[Encoder]) -> Encoder:
    """Return an encoder with the features of all parts, which read the same kind of content."""
    images = [part for part in parts if isinstance(part, ImageEncoder)]
    if len(images) == len(parts):
        return ImagesSideBySide(images)
    return TextsSideBySide(parts)


class _PartScaler:
    """Centres the features of each part and scales them to a mean square of 1."""

    def __init__(self) -> None:
        self.arrays: dict[str, Vectors] = {}
        """``centre.K`` (D,) and ``size.K`` (1,) of part K."""

    def fit(self, part: int, features: Vectors) -> None:
        centre = features.mean(axis=0, dtype=np.float64)
        mean_square = np.square(features - centre).mean()
        # Features that are all equal have no size to divide by.
        size = float(np.sqrt(mean_square)) or 1.0
        self.arrays[f"centre.{part}"] = centre.astype(np.float32)
        self.arrays[f"size.{part}"] = np.array([size], dtype=np.float32)

    def scale(self, part: int, features: Vectors) -> Vectors:
        centred = features - self.arrays[f"centre.{part}"]
        # By the root of its width, so that a wide part does not outweigh a narrow one.
        width = np.float32(np.sqrt(features.shape[1]))
        scaled: Vectors = centred / (self.arrays[f"size.{part}"] * width)
        return scaled


def _merge_states(parts: Sequence[Encoder], scaler: _PartScaler) -> EncoderState:
    config = {}
    arrays = dict(scaler.arrays)
    for position, part in enumerate(parts):
        state = part.state()
        config[str(position)] = state.config
        for name, array in state.arrays.items():
            arrays[f"part.{position}.{name}"] = array

    return EncoderState(config, arrays)


def _restore_states(parts: Sequence[Encoder], scaler: _PartScaler, state: EncoderState) -> None:
    for position, part in enumerate(parts):
        prefix = f"part.{position}."
        arrays = {}
        for name, array in state.arrays.items():
            if name.startswith(prefix):
                arrays[name.removeprefix(prefix)] = array
        part.restore(EncoderState(state.config[str(position)], arrays))

    for name, array in state.arrays.items():
        if not name.startswith("part."):
            scaler.arrays[name] = array


def _join(parts: Sequence[Encoder], attribute: str) -> str:
    return SIDE_BY_SIDE.join(str(getattr(part, attribute)) for part in parts)


class TextsSideBySide(Encoder):
    """The features of several encoders of texts."""

    def __init__(self, parts: Sequence[Encoder]) -> None:
        self.parts = list(parts)
        self.name = _join(parts, "name")
        self.kind = parts[0].kind
        self.version = _join(parts, "version")
        self.fit_size = max(_SCALE_SAMPLE, *(part.fit_size for part in parts))
        self._scaler = _PartScaler()

    @property
    def checksum(self) -> str:
        """The checksums of the parts."""
        return _join(self.parts, "checksum")

    def fit(self, contents: Sequence[str]) -> None:
        """Fit each part, and learn its scale."""
        for position, part in enumerate(self.parts):
            part.fit(contents)
            # A sample is enough for two numbers per feature, and encoding may be slow.
            sample = part.encode(contents[:_SCALE_SAMPLE])
            self._scaler.fit(position, sample.vectors)

    def state(self) -> EncoderState:
        """Return the states of the parts and their scales."""
        return _merge_states(self.parts, self._scaler)

    def restore(self, state: EncoderState) -> None:
        """Take over the states of the parts and their scales."""
        _restore_states(self.parts, self._scaler, state)

    def encode(self, contents: Sequence[str]) -> Encoding:
        """Return the scaled features of all parts, side by side."""
        if not self._scaler.arrays:
            raise InputError(f"{self.name} has no scales yet: fit it before it encodes anything.")

        scaled = []
        for position, part in enumerate(self.parts):
            scaled.append(self._scaler.scale(position, part.encode(contents).vectors))
        return Encoding(np.hstack(scaled))


class ImagesSideBySide(ImageEncoder):
    """The features of several encoders of images, which are decoded once for all of them."""

    def __init__(self, parts: Sequence[ImageEncoder]) -> None:
        super().__init__(parts[0].folder)
        self.parts = list(parts)
        self.name = _join(parts, "name")
        self.version = _join(parts, "version")
        self.side = max(part.side for part in parts)
        self.fit_size = max(_SCALE_SAMPLE, *(part.fit_size for part in parts))
        self._scaler = _PartScaler()
        self._widths: list[int] = []
        """The number of raw features of each part, known after the first pictures."""
        self._described: dict[str, Vectors] = {}
        """Raw features of the images that were fitted on, so that they are not read twice."""

    @property
    def checksum(self) -> str:
        """The checksums of the parts."""
        return _join(self.parts, "checksum")

    def fit(self, contents: Sequence[str]) -> None:
        """Fit each part, and learn its scale.

        Raises:
            InputError: If none of the images can be read.
        """
        raw = super().describe(contents)
        readable = [row for row in range(len(contents)) if row not in raw.unreadable]
        if not readable:
            sentence = next(iter(raw.unreadable.values()), "There are no images to fit on.")
            raise InputError(sentence)

        # By raw features, so that an image is decoded once for all parts.
        for position, part_raw in enumerate(self._split(raw.vectors[readable])):
            part = self.parts[position]
            if isinstance(part, PixelEncoder):
                part.fit_raw(part_raw)
            self._scaler.fit(position, part.project(part_raw))

        self._described = {contents[row]: raw.vectors[row] for row in readable}

    def state(self) -> EncoderState:
        """Return the states of the parts and their scales."""
        return _merge_states(self.parts, self._scaler)

    def restore(self, state: EncoderState) -> None:
        """Take over the states of the parts and their scales."""
        _restore_states(self.parts, self._scaler, state)

    def describe(self, contents: Sequence[str]) -> Encoding:
        """Return the raw features of images. Those that were fitted on are not read again."""
        new = [path for path in contents if path not in self._described]

        if len(new) == len(contents):
            return super().describe(contents)

        described = super().describe(new)
        width = next(iter(self._described.values())).shape[0]
        vectors = np.zeros((len(contents), width), dtype=np.float32)
        unreadable = {}
        position_of_new = 0
        for row, path in enumerate(contents):
            if path in self._described:
                vectors[row] = self._described[path]
                continue
            if position_of_new in described.unreadable:
                unreadable[row] = described.unreadable[position_of_new]
            else:
                vectors[row] = described.vectors[position_of_new]
            position_of_new += 1

        return Encoding(vectors, unreadable)

    def describe_pictures(self, pictures: npt.NDArray[np.uint8]) -> Vectors:
        """Return the raw features of all parts, side by side."""
        described = [part.describe_pictures(_resize(pictures, part.side)) for part in self.parts]
        self._widths = [raw.shape[1] for raw in described]
        return np.hstack(described)

    def project(self, raw: Vectors) -> Vectors:
        """Return the scaled features of all parts, side by side."""
        if not self._scaler.arrays:
            raise InputError(f"{self.name} has no scales yet: fit it before it encodes anything.")

        scaled = []
        for position, part_raw in enumerate(self._split(raw)):
            features = self.parts[position].project(part_raw)
            scaled.append(self._scaler.scale(position, features))
        return np.hstack(scaled)

    def _split(self, raw: Vectors) -> list[Vectors]:
        """Return the raw features of each part."""
        ends = np.cumsum(self._widths)[:-1]
        return np.split(raw, ends, axis=1)


def _resize(pictures: npt.NDArray[np.uint8], side: int) -> npt.NDArray[np.uint8]:
    """Return square pictures at another size."""
    if pictures.shape[1] == side:
        return pictures

    from PIL import Image

    size = (side, side)
    resized = [Image.fromarray(picture).resize(size) for picture in pictures]
    return np.stack([np.asarray(picture, dtype=np.uint8) for picture in resized])
