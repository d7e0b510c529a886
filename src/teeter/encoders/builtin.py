"""Features that need no download: of texts by their words, of images by pixels and edges; or by a model at hand."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from teeter.errors import FileError, InputError, MissingExtraError
from teeter.paths import resolve_inside

__all__ = ["Encoder", "encode_images", "encode_texts", "encoder_named"]

Vectors = npt.NDArray[np.float32]
Encoder = Callable[[Sequence[str]], Any]
"""Gives (N, D) numbers for N texts, or for the paths of N images."""

LONGEST_TEXT = 1_000_000
"""Characters of a text that are encoded. A longer text is stored in full."""

WIDTH = 256
_VOCABULARY = 10_000
_SIDE = 16
_BINS = 8
_RANGES = {"I;16": (65535.0,), "I": (255.0, 65535.0), "F": (1.0, 255.0, 65535.0)}
"""What white may be in images of numbers, by their mode."""

_MENDING = "mend it, take it out, or, in a campaign that has it, flag it"
_MARK = "modules.json"
"""The file that a folder of a sentence-transformers model has."""


def encode_texts(texts: Sequence[str]) -> Vectors:
    """Return features of texts: words and pairs of them, and letters in threes and fours, reduced together: (N, D)."""
    from scipy.sparse import hstack
    from sklearn.feature_extraction.text import TfidfVectorizer

    cut = [text[:LONGEST_TEXT] for text in texts]
    # A text of one word or sign still says something by its letters.
    shared: dict[str, Any] = {"sublinear_tf": True, "dtype": np.float32}
    words = TfidfVectorizer(
        ngram_range=(1, 2), max_features=2 * _VOCABULARY, token_pattern=r"(?u)\S+", **shared
    )
    letters = TfidfVectorizer(
        analyzer="char_wb", ngram_range=(3, 4), max_features=_VOCABULARY, **shared
    )
    try:
        counted = hstack([words.fit_transform(cut), letters.fit_transform(cut)]).tocsr()
    except ValueError:
        raise InputError("The texts have no words to tell them apart by.") from None
    return _reduced(counted)


def _reduced(matrix: Any) -> Vectors:
    """Return the first principal directions of rows, each row of length 1: (N, V) -> (N, D)."""
    from sklearn.decomposition import TruncatedSVD

    width = min(WIDTH, *(size - 1 for size in matrix.shape))
    if width < 2:
        dense = np.asarray(
            matrix.todense() if hasattr(matrix, "todense") else matrix, dtype=np.float32
        )
        return dense[:, :WIDTH]
    with np.errstate(divide="ignore", invalid="ignore"):  # of texts that are all alike
        found = TruncatedSVD(width, n_iter=3, random_state=0).fit_transform(matrix)
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    return np.asarray(found / np.where(lengths > 0, lengths, 1), dtype=np.float32)


def encode_images(paths: Sequence[str], folder: Path) -> Vectors:
    """Return features of images: small pixels, colours and edges, reduced to principal components: (N, D)."""
    from sklearn.decomposition import PCA

    raw = np.stack(list(_looked_at(paths, folder)))
    scaled = (raw - raw.mean(axis=0)) / (raw.std(axis=0) + 1e-6)
    width = min(WIDTH, len(scaled) - 1, scaled.shape[1])
    if width < 2:
        return np.asarray(scaled, dtype=np.float32)
    return np.asarray(
        PCA(width, whiten=False, random_state=0, svd_solver="randomized").fit_transform(scaled),
        np.float32,
    )


def _looked_at(paths: Sequence[str], folder: Path) -> Iterator[npt.NDArray[np.float64]]:
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise MissingExtraError(
            "Reading images needs Pillow: pip install 'teeter[images]'."
        ) from None
    for path in paths:
        file = _there(path, folder)
        try:
            with (
                warnings.catch_warnings(action="ignore"),
                Image.open(file) as image,
            ):  # of size and of palettes
                small = _coloured(ImageOps.exif_transpose(image)).resize((4 * _SIDE, 4 * _SIDE))
                pixels = np.asarray(small, dtype=np.float64) / 255
        except Exception:  # whatever a damaged file makes Pillow say
            raise FileError(f"{path} is not an image that can be read: {_MENDING}.") from None
        yield np.concatenate([_small(pixels), _colours(pixels), _edges(pixels)])


def _there(path: str, folder: Path) -> Path:
    try:
        return resolve_inside(path, folder)
    except FileError as error:
        raise FileError(f"{str(error).removesuffix('.')}: {_MENDING}.") from None


def _coloured(image: Any) -> Any:
    """Return an image in red, green and blue: numbers of any range rescaled to it, what is transparent over white."""
    from PIL import Image

    if image.mode.startswith("I") or image.mode == "F":
        values = np.nan_to_num(np.asarray(image, dtype=np.float64))
        lowest, highest = min(0.0, float(values.min())), float(values.max())
        whole = next((range_ for range_ in _RANGES[image.mode[:4]] if highest <= range_), highest)
        return Image.fromarray(np.uint8(255 * (values - lowest) / (whole - lowest))).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        clear = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear).convert("RGB")
    return image.convert("RGB")


def _small(pixels: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    small: npt.NDArray[np.float64] = pixels.reshape(_SIDE, 4, _SIDE, 4, 3).mean(axis=(1, 3)).ravel()
    return small


def _colours(pixels: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    counts = [
        np.histogram(pixels[..., channel], bins=_BINS, range=(0, 1))[0] for channel in range(3)
    ]
    return np.sqrt(np.concatenate(counts) / pixels[..., 0].size)


def _edges(pixels: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return how strong edges of each direction are in each of 4 x 4 parts of an image."""
    down, right = np.gradient(pixels.mean(axis=2))
    strength, angle = np.hypot(down, right), np.arctan2(down, right) % np.pi
    direction = np.minimum((angle / np.pi * _BINS).astype(int), _BINS - 1)
    parts = np.zeros((4, 4, _BINS))
    rows, columns = np.indices(strength.shape) // _SIDE
    np.add.at(parts, (rows, columns, direction), strength)
    lengths: npt.NDArray[np.float64] = np.sqrt(parts.ravel())
    return lengths


def encoder_named(name: str) -> Encoder:
    """Return a sentence-transformers encoder: by its folder, by an installed package that has one, or by its name."""
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise MissingExtraError(
            "This encoder needs sentence-transformers: pip install 'teeter[hf]'."
        ) from None
    where = _model_folder(name)
    try:
        with _quietly():
            model = SentenceTransformer(name if where is None else str(where), device="cpu")
    except Exception as error:  # whatever a hub, a cache or a damaged file says
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise InputError(
            f"Cannot load the encoder {name!r} ({said[0]}): name a folder with a model, or a package that has one."
        ) from None

    def encode(texts: Sequence[str]) -> Any:
        cut = [text[:LONGEST_TEXT] for text in texts]
        return model.encode(cut, normalize_embeddings=True, show_progress_bar=False)

    return encode


@contextmanager
def _quietly() -> Iterator[None]:
    """Within it, no bars are drawn while a model loads, and a hub that is out of reach is not told of at every try."""
    from transformers.utils import logging as bars

    shown, hub = bars.is_progress_bar_enabled(), logging.getLogger("huggingface_hub")
    level = hub.level
    bars.disable_progress_bar()
    hub.setLevel(logging.ERROR)
    try:
        yield
    finally:
        hub.setLevel(level)
        if shown:
            bars.enable_progress_bar()


def _model_folder(name: str) -> Path | None:
    """Return the folder of a model that lies on this machine: the folder itself, or one inside a package."""
    if Path(name).is_dir():
        return Path(name)
    package = name.replace("-", "_")
    spec = find_spec(package) if package.isidentifier() else None
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    return next(
        (Path(place) / "model" for place in places if (Path(place) / "model" / _MARK).is_file()),
        None,
    )
