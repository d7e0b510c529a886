"""Encode texts or images with any sentence-transformers or transformers model.

The model is a folder, an installed package that holds one, or a name on the Hugging Face Hub.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from teeter.encoders.encoder import (
    MAX_TEXT_LENGTH,
    ContentKind,
    Encoder,
    Encoding,
    Vectors,
    checksum_files,
    encode_by_length,
)
from teeter.encoders.images import ImageEncoder, Pictures
from teeter.errors import InputError, MissingExtraError

__all__ = [
    "SentenceTransformersEncoder",
    "TransformersImageEncoder",
    "TransformersTextEncoder",
    "make_pretrained",
]

_SENTENCE_MODEL_FILE = "modules.json"
"""A file that is in the folder of every sentence-transformers model."""

_WEIGHT_SUFFIXES = (".safetensors", ".bin")

_TEXT_BATCH = 32
"""The number of texts in a batch."""

_MAX_TOKENS = 512
"""The number of tokens of a text that are read."""

_DEFAULT_SIDE = 224
"""Pixels along each side of a picture, if the model's config does not say."""

_DEFAULT_COLOUR = (0.5, 0.5, 0.5)
"""The mean and the deviation of colours from 0 to 1, if the model's folder does not say."""

ModelT = TypeVar("ModelT")


def make_pretrained(name: str, kind: ContentKind, folder: Path | None = None) -> Encoder:
    """Load a pretrained model as an encoder.

    Args:
        name: The folder of a model, an installed package with a model in its folder ``model``, or
            the name of a model on the hub.
        kind: What to encode. Images are encoded with transformers. Texts are encoded with
            transformers if the model is a folder without the files of sentence-transformers,
            otherwise with sentence-transformers.
        folder: The folder that holds the images.

    Raises:
        InputError: If the model cannot be loaded.
        MissingExtraError: If the library that the model needs is not installed.
    """
    if kind is ContentKind.IMAGE:
        return TransformersImageEncoder(name, folder)

    # The files of sentence-transformers also say how the tokens are pooled.
    model_folder = _find_model_folder(name)
    if model_folder is None:
        return SentenceTransformersEncoder(name)
    if (model_folder / _SENTENCE_MODEL_FILE).is_file():
        return SentenceTransformersEncoder(name)
    return TransformersTextEncoder(name)


class _PretrainedModel:
    """Where a model is, and which weights it has."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.folder = _find_model_folder(name)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"

    @property
    def location(self) -> str:
        """The folder or the hub name from which libraries load the model."""
        if self.folder is None:
            return self.name
        return str(self.folder)

    @cached_property
    def checksum(self) -> str:
        """A checksum of the weights in the folder; empty for a model from the hub."""
        # Which revision the hub's cache holds is known to the hub's library only.
        if self.folder is None:
            return ""

        paths = self.folder.rglob("*")
        return checksum_files(path for path in paths if path.suffix in _WEIGHT_SUFFIXES)

    def load(self, auto_class: Any) -> Any:
        """Load a part of the model by a class of transformers."""
        return _load(self.name, lambda: auto_class.from_pretrained(self.location))


class SentenceTransformersEncoder(Encoder):
    """A sentence-transformers model. Features have length 1."""

    kind = ContentKind.TEXT

    def __init__(self, name: str) -> None:
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError:
            raise _missing_library("sentence-transformers") from None

        self.name = name
        self._source = _PretrainedModel(name)
        location = self._source.location
        device = self._source.device
        self._model = _load(name, lambda: SentenceTransformer(location, device=device))

    @property
    def checksum(self) -> str:
        """A checksum of the weights, if they are in a folder."""
        return self._source.checksum

    def encode(self, contents: Sequence[str]) -> Encoding:
        """Return the embeddings of texts."""
        texts = [text[:MAX_TEXT_LENGTH] for text in contents]
        vectors = self._model.encode(
            texts,
            normalize_embeddings=True,
            show_progress_bar=False,
        )
        return Encoding(np.asarray(vectors, dtype=np.float32))


class TransformersTextEncoder(Encoder):
    """A transformers model of texts. The features are the mean of its tokens, of length 1."""

    kind = ContentKind.TEXT

    def __init__(self, name: str) -> None:
        try:
            from transformers import AutoModel, AutoTokenizer
        except ImportError:
            raise _missing_library("transformers") from None

        self.name = name
        self._source = _PretrainedModel(name)
        self._tokenizer = self._source.load(AutoTokenizer)
        self._model = self._source.load(AutoModel).to(self._source.device).eval()

    @property
    def checksum(self) -> str:
        """A checksum of the weights, if they are in a folder."""
        return self._source.checksum

    @torch.no_grad()
    def encode(self, contents: Sequence[str]) -> Encoding:
        """Return the embeddings of texts."""
        texts = [text[:MAX_TEXT_LENGTH] for text in contents]
        return Encoding(encode_by_length(texts, self._embed, _TEXT_BATCH))

    def _embed(self, texts: list[str]) -> Vectors:
        inputs = self._tokenizer(
            texts,
            padding=True,
            truncation=True,
            max_length=_MAX_TOKENS,
            return_tensors="pt",
        )
        inputs = inputs.to(self._source.device)

        # CLIP and SigLIP have one head for texts and one for images.
        if hasattr(self._model, "get_text_features"):
            return _normalize(_pooled_output(self._model.get_text_features(**inputs)))

        tokens = self._model(**inputs).last_hidden_state
        mask = inputs["attention_mask"][..., None]
        # The sum is enough: it has the direction of the mean, and its length becomes 1.
        return _normalize((tokens * mask).sum(dim=1))


class TransformersImageEncoder(ImageEncoder):
    """A transformers model of images: CLIP, SigLIP, DINO or ViT. Features have length 1."""

    def __init__(self, name: str, folder: Path | None = None) -> None:
        try:
            from transformers import AutoModel
        except ImportError:
            raise _missing_library("transformers") from None

        super().__init__(folder)
        self.name = name
        self._source = _PretrainedModel(name)
        self._model = self._source.load(AutoModel).to(self._source.device).eval()
        config: dict[str, Any] = {}
        if self._source.folder is not None:
            config_file = self._source.folder / "preprocessor_config.json"
            if config_file.is_file():
                config = json.loads(config_file.read_text())

        # CLIP and SigLIP have one config for images and one for texts.
        vision = getattr(self._model.config, "vision_config", self._model.config)
        side = getattr(vision, "image_size", _DEFAULT_SIDE)
        self.side = _DEFAULT_SIDE
        if isinstance(side, int):
            self.side = side

        mean = torch.tensor(config.get("image_mean", _DEFAULT_COLOUR))
        deviation = torch.tensor(config.get("image_std", _DEFAULT_COLOUR))
        self._mean = mean.view(1, 3, 1, 1)
        self._deviation = deviation.view(1, 3, 1, 1)

    @property
    def checksum(self) -> str:
        """A checksum of the weights, if they are in a folder."""
        return self._source.checksum

    @torch.no_grad()
    def describe_pictures(self, pictures: Pictures) -> Vectors:
        """Return the embeddings of pictures."""
        channels_first = torch.from_numpy(pictures).permute(0, 3, 1, 2)
        colours = channels_first.float() / 255
        scaled = (colours - self._mean) / self._deviation
        pixels = scaled.to(self._source.device)

        if hasattr(self._model, "get_image_features"):
            return _normalize(_pooled_output(self._model.get_image_features(pixel_values=pixels)))

        hidden = self._model(pixel_values=pixels).last_hidden_state
        if hidden.dim() == 4:
            # The output of a convolutional network is a map: (B, D, height, width).
            return _normalize(hidden.mean(dim=(2, 3)))
        # The first token of a ViT or DINO stands for the whole image.
        return _normalize(hidden[:, 0])


def _pooled_output(output: Any) -> torch.Tensor:
    """Return the output of a CLIP head, which some versions of transformers wrap."""
    if torch.is_tensor(output):
        return output
    pooled: torch.Tensor = output.pooler_output
    return pooled


def _normalize(pooled: torch.Tensor) -> Vectors:
    """Return rows of length 1 as an array."""
    rows = torch.nn.functional.normalize(pooled.float(), dim=1)
    vectors: Vectors = rows.cpu().numpy()
    return vectors


def _missing_library(library: str) -> MissingExtraError:
    return MissingExtraError(f"This encoder needs {library}: pip install 'teeter[hf]'.")


def _load(name: str, load: Callable[[], ModelT]) -> ModelT:
    """Load a part of a model.

    Raises:
        InputError: If it cannot be loaded.
    """
    try:
        with _quiet_loading():
            return load()
    except Exception as error:  # Hubs, caches and damaged files raise almost anything.
        lines = str(error).strip().splitlines()
        reason = lines[0] if lines else type(error).__name__
        raise InputError(
            f"Cannot load the encoder {name!r} ({reason}): name one of teeter's own encoders, "
            "a folder that holds a model, or a package that contains one."
        ) from None


@contextmanager
def _quiet_loading() -> Iterator[None]:
    """Hide progress bars, and the warnings about each attempt to reach the hub."""
    from transformers.utils import logging as transformers_logging

    had_progress_bars = transformers_logging.is_progress_bar_enabled()
    hub_logger = logging.getLogger("huggingface_hub")
    hub_level = hub_logger.level

    transformers_logging.disable_progress_bar()
    hub_logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        hub_logger.setLevel(hub_level)
        if had_progress_bars:
            transformers_logging.enable_progress_bar()


def _find_model_folder(name: str) -> Path | None:
    """Return the folder of a model on this machine, or None if ``name`` is a name on the hub."""
    if Path(name).is_dir():
        return Path(name)

    # The package is only searched: importing it may import a whole framework.
    package = name.replace("-", "_")
    spec = None
    if package.isidentifier():
        spec = find_spec(package)
    if spec is None:
        return None

    for package_folder in spec.submodule_search_locations or ():
        model_folder = Path(package_folder) / "model"
        if (model_folder / _SENTENCE_MODEL_FILE).is_file():
            return model_folder

    return None
