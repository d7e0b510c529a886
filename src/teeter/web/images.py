"""Images as browsers can show them."""

from __future__ import annotations

import io
from pathlib import Path

from fastapi.responses import FileResponse, Response

from teeter.errors import FileError, MissingExtraError

__all__ = ["image_response"]

_TYPE_BY_SIGNATURE = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"BM": "image/bmp",
}
"""Media types that browsers show, by the first bytes of a file."""

_SIGNATURE_BYTES = 16


def image_response(path: Path) -> Response:
    """Return an image as a response.

    The type follows from the content, never from the name, so that an HTML or SVG file called
    ``cat.png`` is not run in the browser. TIFF images are converted to PNG.

    Raises:
        FileError: the file is not an image in a known format.
        MissingExtraError: it has to be converted, and Pillow is not installed.
    """
    with path.open("rb") as file:
        signature = file.read(_SIGNATURE_BYTES)

    headers = {"cache-control": "private, max-age=3600"}
    media_type = _media_type(signature)
    if media_type is not None:
        return FileResponse(path, media_type=media_type, headers=headers)
    return Response(_convert_to_png(path), media_type="image/png", headers=headers)


def _media_type(signature: bytes) -> str | None:
    for start, media_type in _TYPE_BY_SIGNATURE.items():
        if signature.startswith(start):
            return media_type

    # "RIFF", four bytes of length, "WEBP".
    if signature[:4] == b"RIFF" and signature[8:12] == b"WEBP":
        return "image/webp"
    return None


def _convert_to_png(path: Path) -> bytes:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise MissingExtraError(
            "Showing this image needs Pillow: pip install 'teeter[images]'."
        ) from None

    png = io.BytesIO()
    try:
        # Only TIFF: every other decoder of Pillow is one more that a hostile file could attack.
        with Image.open(path, formats=("TIFF",)) as image:
            image.convert("RGB").save(png, "PNG")
    except (UnidentifiedImageError, OSError, SyntaxError, Image.DecompressionBombError):
        raise FileError(f"{path.name} cannot be displayed as an image.") from None
    return png.getvalue()
