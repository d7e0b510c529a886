"""What people see of an item in Label Studio: a text, an uploaded image or one at an address, or numbers."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from teeter.campaigns.label_studio.client import Server
from teeter.errors import FileError, MissingExtraError, ServerError
from teeter.paths import resolve_inside

__all__ = ["ITEM", "image_addresses", "in_parts", "numbers_of", "uploaded"]

ITEM = "teeter_item"
"""Where in a task's data the item's id stands."""

_NUMBERS = 40
"""Features that are shown."""

_MOST = 100
"""Tasks or files in one request."""

_LARGEST = 8_000_000
"""Bytes in one request, but for a single thing that is larger."""

_SHOWN = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp")
"""Images that Label Studio takes; others go as PNG."""


def numbers_of(key: str, vector: npt.NDArray[np.float32]) -> str:
    """Return the features of an item as people may read them."""
    shown = ", ".join(f"{value:.4g}" for value in vector[:_NUMBERS])
    more = f", … ({len(vector)} numbers)" if len(vector) > _NUMBERS else ""
    return f"{key}\n{shown}{more}"


def image_addresses(prefix: str, paths: Mapping[str, str]) -> dict[str, str]:
    """Return where images are, by item: after a prefix under which they are served already."""
    return {key: f"{prefix}{quote(path)}" for key, path in paths.items()}


def uploaded(
    server: Server, project: int, folder: Path | None, paths: Mapping[str, str]
) -> dict[str, str]:
    """Send images to Label Studio, and return where it has them, by item."""
    files = {key: _file(path, folder) for key, path in paths.items()}
    found: dict[str, str] = {}
    for keys in in_parts(list(files), [len(data) for _, data in files.values()]):
        told = server.upload(
            f"/api/projects/{project}/import",
            [files[key] for key in keys],
            commit_to_project="false",
        )
        numbers = list(told["file_upload_ids"])
        listed = server.get(f"/api/projects/{project}/file-uploads", ids=json.dumps(numbers))
        places = {one["id"]: f"/data/{one['file']}" for one in listed}
        if len(numbers) != len(keys) or not set(numbers) <= set(places):
            raise ServerError(
                f"{server.url} took {len(places)} of {len(keys)} images: run it again."
            )
        found |= {key: places[number] for key, number in zip(keys, numbers, strict=True)}
    return found


def _file(path: str, folder: Path | None) -> tuple[str, bytes]:
    """Return an image's name and bytes, as Label Studio takes them."""
    file = resolve_inside(path, folder)
    data, name = file.read_bytes(), PurePosixPath(path).name
    return (
        (name, data)
        if file.suffix.lower() in _SHOWN
        else (f"{PurePosixPath(path).stem}.png", _as_png(data, path))
    )


def _as_png(data: bytes, path: str) -> bytes:
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtraError("Images need pillow: pip install 'teeter[images]'.") from None
    out = io.BytesIO()
    try:
        with Image.open(io.BytesIO(data)) as image:
            (image if image.mode in ("1", "L", "P", "RGB", "RGBA") else image.convert("RGB")).save(
                out, "PNG"
            )
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        raise FileError(f"{path} is not an image that can be read.") from None
    return out.getvalue()


def in_parts(things: Sequence[Any], sizes: Sequence[int]) -> Iterator[list[Any]]:
    """Yield things in their order, in parts that one request holds."""
    part: list[Any] = []
    size = 0
    for thing, its in zip(things, sizes, strict=True):
        if part and (len(part) == _MOST or size + its > _LARGEST):
            yield part
            part, size = [], 0
        part.append(thing)
        size += its
    if part:
        yield part
