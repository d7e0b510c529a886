"""Encode texts with a pretrained sentence-transformers model: a folder, a package or a name."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from teeter.encoders.encoder import MAX_TEXT_LENGTH, Encoder
from teeter.errors import InputError, MissingExtraError

__all__ = ["load_sentence_encoder"]

_MODEL_FILE = "modules.json"
"""A file that every folder of a sentence-transformers model has."""


def load_sentence_encoder(name: str) -> Encoder:
    """Load a sentence-transformers model as an encoder of texts.

    Args:
        name: The folder of a model, an installed package with a model in its folder ``model``, or
            the name of a model on the hub.

    Returns:
        A function from N texts to (N, D) features of length 1. It reads each text alone.

    Raises:
        InputError: If the model cannot be loaded.
        MissingExtraError: If sentence-transformers is not installed.
    """
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise MissingExtraError(
            "This encoder needs sentence-transformers: pip install 'teeter[hf]'."
        ) from None

    folder = _find_model_folder(name)
    location = name if folder is None else str(folder)

    try:
        with _quiet_loading():
            model = SentenceTransformer(location, device="cpu")
    except Exception as error:  # Hubs, caches and damaged files raise almost anything.
        reasons = str(error).strip().splitlines() or [type(error).__name__]
        raise InputError(
            f"Cannot load the encoder {name!r} ({reasons[0]}): name a folder that holds a model, "
            f"or a package that contains one."
        ) from None

    def encode(texts: Sequence[str]) -> Any:
        start_of_texts = [text[:MAX_TEXT_LENGTH] for text in texts]
        return model.encode(start_of_texts, normalize_embeddings=True, show_progress_bar=False)

    return encode


@contextmanager
def _quiet_loading() -> Iterator[None]:
    """Hide progress bars, and the hub's warning for each attempt to reach it."""
    from transformers.utils import logging as transformers_logging

    had_progress_bars = transformers_logging.is_progress_bar_enabled()
    hub_logger = logging.getLogger("huggingface_hub")
    hub_level = hub_logger.level

    transformers_logging.disable_progress_bar()
    hub_logger.setLevel(logging.ERROR)
    try:
        yield
    # Restored even if loading fails: a program that embeds teeter has its own settings.
    finally:
        hub_logger.setLevel(hub_level)
        if had_progress_bars:
            transformers_logging.enable_progress_bar()


def _find_model_folder(name: str) -> Path | None:
    """Return the folder of a model on this machine, or None if ``name`` is for the hub."""
    if Path(name).is_dir():
        return Path(name)

    # Packages are searched without importing them.
    package = name.replace("-", "_")
    spec = find_spec(package) if package.isidentifier() else None
    if spec is None:
        return None

    for package_folder in spec.submodule_search_locations or ():
        model_folder = Path(package_folder) / "model"
        if (model_folder / _MODEL_FILE).is_file():
            return model_folder

    return None
