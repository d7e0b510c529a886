"""Images as browsers can show them."""

from __future__ import annotations

import io
from pathlib import Path

from fastapi.responses import FileResponse, Response

from teeter.campaigns.items.image_links import SIGNATURE_BYTES, image_suffix
from teeter.errors import FileError, MissingExtraError

__all__ = ["image_response"]

_TYPE_BY_SUFFIX = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".gif": "image/gif",
    ".bmp": "image/bmp",
    ".webp": "image/webp",
}
"""Media types that browsers show, by the suffix of the format."""


def image_response(path: Path) -> Response:
    """Return an image as a response.

    The type follows from the content, never from the name, so that an HTML or SVG file called
    ``cat.png`` is not run in the browser. TIFF images are converted to PNG.

    Raises:
        FileError: the file is not an image in a known format.
        MissingExtraError: it has to be converted, and Pillow is not installed.
    """
    with path.open("rb") as file:
        signature = file.read(SIGNATURE_BYTES)

    headers = {"cache-control": "private, max-age=3600"}
    media_type = _TYPE_BY_SUFFIX.get(image_suffix(signature) or "")
    if media_type is not None:
        return FileResponse(path, media_type=media_type, headers=headers)
    return Response(_convert_to_png(path), media_type="image/png", headers=headers)


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
