"""Things to label: a text, an image in a folder, or a vector of features, each with an id that people know it by."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from teeter.errors import FileError, InputError
from teeter.paths import resolve_inside

__all__ = [
    "IMAGES",
    "KINDS",
    "Item",
    "image_items",
    "items_of",
    "quote_id",
    "require_printable",
    "require_valid_unicode",
    "vector_items",
]

KINDS = ("text", "image", "features")
IMAGES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff")
_LONGEST_NAME = 60
"""Signs of an id that are said."""

Vector = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Item:
    """One thing to label."""

    key: str
    kind: str
    content: str | None
    """The text; or the path of the image inside the campaign's folder."""
    digest: str
    features: Vector | None = None
    label: str | None = None
    """What it is, where that is known already."""


def items_of(given: Iterable[Any], kind: str, folder: Path | None = None) -> list[Item]:
    """Return items from what people have: texts or paths alone, pairs with an id, dictionaries, or items.

    A dictionary has ``text`` (or ``image``) and may have ``id``, ``label`` and ``features``.
    """
    if isinstance(given, str | bytes | Path | Mapping):
        raise InputError(
            f"Cannot add a {type(given).__name__}: give a list of things, if only of one."
        )
    return [_item(one, kind, folder) for one in given]


def _item(one: Any, kind: str, folder: Path | None) -> Item:
    if isinstance(one, Item):
        return one
    if isinstance(one, str | Path):
        one = {kind: str(one)}
    elif isinstance(one, tuple) and len(one) == 2:
        one = {"id": one[0], kind: one[1]}
    if not isinstance(one, Mapping):
        raise InputError(
            f"Cannot make an item of a {type(one).__name__}: give a {kind}, an (id, {kind}) pair or a dict."
        )
    vector = None if one.get("features") is None else checked_vector(one["features"], one.get("id"))
    if kind == "features":
        if vector is None:
            raise InputError("An item has no features, and this campaign shows nothing else.")
        return _made(one, kind, None, vector, vector.tobytes())
    content = one.get(kind)
    if isinstance(content, str):
        require_valid_unicode(content, kind)
    if not isinstance(content, str) or not content.strip():
        raise InputError(f"An item has no {kind}: {_shortly(one)}.")
    if kind == "text":
        return _made(one, kind, content, vector, content.encode())
    path = resolve_inside(content, folder)
    return _made({"id": content, **one}, kind, content, vector, path.read_bytes())


def _made(
    one: Mapping[str, Any], kind: str, content: str | None, vector: Vector | None, data: bytes
) -> Item:
    digest = hashlib.blake2b(data, digest_size=16).hexdigest()
    key = one.get("id")
    label = one.get("label")
    for what, told in (("id", key), ("label", label)):
        if told is not None:
            require_valid_unicode(str(told), what)
    return Item(
        key=digest[:12] if key is None or str(key) == "" else str(key),
        kind=kind,
        content=content,
        digest=digest,
        features=vector,
        label=None if label is None or str(label).strip() == "" else str(label).strip(),
    )


def require_valid_unicode(text: str, what: str) -> None:
    """Refuse a text that not every database can store.

    Args:
        text: the text.
        what: what it is, for the error message: "comment".

    Raises:
        InputError: it has a lone surrogate, which UTF-8 cannot encode, or a NUL character, which
            PostgreSQL cannot store.
    """
    nul = text.find("\0")
    if nul >= 0:
        raise InputError(
            f"The {what} {quote_id(text)} has a NUL character at position {nul}, which databases "
            "cannot store: remove it."
        )

    try:
        text.encode()
    except UnicodeEncodeError as error:
        where = f"has half a character at place {error.start} (a lone surrogate)"
        raise InputError(f"The {what} {quote_id(text)} {where}: mend it.") from None


def require_printable(name: str, what: str) -> None:
    """Refuse a name that could not be shown as it is: of half characters, or of signs that steer a terminal."""
    require_valid_unicode(name, what)
    odd = next((sign for sign in name if unicodedata.category(sign) in ("Cc", "Zl", "Zp")), None)
    if odd is not None:
        raise InputError(
            f"The {what} {quote_id(name)} holds a control character ({odd!r}): leave it out."
        )


def quote_id(key: str) -> str:
    """Return an id as it is said in a sentence: on one line, and not too long."""
    return repr(key if len(key) <= _LONGEST_NAME else key[: _LONGEST_NAME - 1] + "…")


def _shortly(one: Mapping[str, Any]) -> str:
    shown = str(dict(one))
    return shown if len(shown) <= 80 else shown[:77] + "…"


def image_items(folder: Path, root: Path | None = None) -> Iterator[Item]:
    """Yield the images of a folder and of those inside it, called by their paths in it, or in ``root`` around it."""
    folder = folder.resolve()
    around = folder if root is None else root.resolve()
    if around not in (folder, *folder.parents):
        raise FileError(
            f"{folder} is not in the campaign's folder {root}: put new images there, and add that folder."
        )
    if not folder.is_dir():
        raise FileError(f"{folder} is not a folder of images.")
    paths = sorted(
        path for path in folder.rglob("*") if path.suffix.lower() in IMAGES and path.is_file()
    )
    if not paths:
        raise FileError(f"{folder} has no images: files ending in {', '.join(IMAGES)}.")
    for path in paths:
        yield _item({"image": path.relative_to(around).as_posix()}, "image", around)


def vector_items(keys: Iterable[Any], features: Any) -> Iterator[Item]:
    """Yield items that are a vector each: ids (N,), features (N, D)."""
    for key, vector in zip(keys, np.asarray(features), strict=True):
        yield _item({"id": key, "features": vector}, "features", None)


def checked_vector(values: Any, key: object = None) -> Vector:
    """Return a vector of finite float32 numbers; ``key`` is the id of the item that they are of."""
    whose = "An item's features" if key is None else f"The features of {quote_id(str(key))}"
    try:
        with np.errstate(over="ignore"):  # what is too large is told below
            vector = np.ascontiguousarray(values, dtype=np.float32)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{whose} are not numbers.") from None
    if vector.ndim != 1 or len(vector) == 0:
        raise InputError(
            f"{whose} must be a list of finite numbers, and are of shape {vector.shape}."
        )
    odd = np.flatnonzero(~np.isfinite(vector))
    if len(odd):
        raise InputError(
            f"{whose} must be a list of finite numbers: number {odd[0]} of them is {vector[odd[0]]}."
        )
    return vector
