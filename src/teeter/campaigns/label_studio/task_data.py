"""What annotators see of an item in Label Studio: its text, its image or its features.

Images are uploaded to Label Studio, unless they are served somewhere else already.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TypeVar
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from teeter.base.files import resolve_inside
from teeter.campaigns.label_studio.client import LabelStudioClient
from teeter.errors import FileError, MissingExtraError, ServerError

__all__ = ["format_features", "image_urls", "split_by_size", "upload_images"]

T = TypeVar("T")

MAX_SHOWN_FEATURES = 40

MAX_REQUEST_ENTRIES = 100
"""Tasks or files in one request."""

MAX_REQUEST_BYTES = 8_000_000
"""Bytes in one request, unless a single task or file is larger."""

ACCEPTED_IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp")
"""Images that Label Studio accepts. Others are converted to PNG."""

_PNG_MODES = ("1", "L", "P", "RGB", "RGBA")
"""Pixel formats of Pillow that can be saved as PNG and that every browser shows."""


def format_features(item_id: str, features: npt.NDArray[np.float32]) -> str:
    """Return the id and the first features of an item as text.

    Example:
        >>> format_features("a1", np.array([0.5, 2.0], dtype=np.float32))
        'a1\\n0.5, 2'
    """
    shown = ", ".join(f"{value:.4g}" for value in features[:MAX_SHOWN_FEATURES])
    if len(features) > MAX_SHOWN_FEATURES:
        shown += f", … ({len(features)} features)"
    return f"{item_id}\n{shown}"


def image_urls(prefix: str, paths: Mapping[str, str]) -> dict[str, str]:
    """Return the URLs of images that are served already.

    Args:
        prefix: What comes before the path of each image.
        paths: Path of each image in the campaign's folder, by item id.
    """
    return {item_id: f"{prefix}{quote(path)}" for item_id, path in paths.items()}


def upload_images(
    client: LabelStudioClient, project_id: int, folder: Path | None, paths: Mapping[str, str]
) -> dict[str, str]:
    """Upload images to a project.

    Args:
        client: Connection to Label Studio.
        project_id: The project that the images are for.
        folder: The campaign's image folder.
        paths: Path of each image in the folder, by item id.

    Returns:
        The URL of each image in Label Studio, by item id.

    Raises:
        FileError: an image cannot be read.
        ServerError: Label Studio did not store every image.
    """
    files = {item_id: _read_image(path, folder) for item_id, path in paths.items()}
    sizes = [len(content) for _, content in files.values()]

    urls: dict[str, str] = {}
    for item_ids in split_by_size(list(files), sizes):
        upload_ids = client.import_files(project_id, [files[item_id] for item_id in item_ids])
        # The upload returns ids; where the files are takes a second request.
        uploads = client.list_file_uploads(project_id, upload_ids)
        url_by_upload = {upload.id: f"/data/{upload.file}" for upload in uploads}

        if len(upload_ids) != len(item_ids) or not url_by_upload.keys() >= set(upload_ids):
            raise ServerError(
                f"{client.url} stored only {len(url_by_upload)} of {len(item_ids)} images. "
                "Run the sync again."
            )

        for item_id, upload_id in zip(item_ids, upload_ids, strict=True):
            urls[item_id] = url_by_upload[upload_id]

    return urls


def _read_image(path: str, folder: Path | None) -> tuple[str, bytes]:
    """Return the name and the content of an image, in a format that Label Studio accepts."""
    file = resolve_inside(path, folder)
    content = file.read_bytes()

    # Paths in a campaign have forward slashes on every operating system.
    if file.suffix.lower() in ACCEPTED_IMAGE_SUFFIXES:
        return PurePosixPath(path).name, content
    return f"{PurePosixPath(path).stem}.png", _convert_to_png(content, path)


def _convert_to_png(content: bytes, path: str) -> bytes:
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtraError("Images need pillow: pip install 'teeter[images]'.") from None

    png = io.BytesIO()
    try:
        with Image.open(io.BytesIO(content)) as image:
            if image.mode in _PNG_MODES:
                image.save(png, "PNG")
            else:
                image.convert("RGB").save(png, "PNG")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        raise FileError(f"Cannot read {path} as an image.") from None

    return png.getvalue()


def split_by_size(entries: Sequence[T], sizes: Sequence[int]) -> Iterator[list[T]]:
    """Split tasks or files into parts that each fit into one request, in order.

    Args:
        entries: What to send.
        sizes: The size of each entry in bytes.
    """
    part: list[T] = []
    part_size = 0

    for entry, size in zip(entries, sizes, strict=True):
        # An entry that exceeds the limit by itself is sent alone: the server may accept it.
        is_full = len(part) == MAX_REQUEST_ENTRIES or part_size + size > MAX_REQUEST_BYTES
        if part and is_full:
            yield part
            part = []
            part_size = 0

        part.append(entry)
        part_size += size

    if part:
        yield part
