"""Images as browsers take them: of the kind they are, and nothing else."""

from __future__ import annotations

import io
from pathlib import Path

from fastapi.responses import FileResponse, Response

from teeter.errors import FileError, MissingExtraError

__all__ = ["image_response"]

_KINDS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"BM": "image/bmp",
}


def image_response(path: Path) -> Response:
    """Return an image's file; a kind that browsers do not show comes as PNG, and what is no image is refused."""
    with path.open("rb") as file:
        begin = file.read(16)
    kind = next((kind for mark, kind in _KINDS.items() if begin.startswith(mark)), None)
    if begin[:4] == b"RIFF" and begin[8:12] == b"WEBP":
        kind = "image/webp"
    kept = {"cache-control": "private, max-age=3600"}
    if kind is not None:
        return FileResponse(path, media_type=kind, headers=kept)
    return Response(_as_png(path), media_type="image/png", headers=kept)


def _as_png(path: Path) -> bytes:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise MissingExtraError(
            "Showing this image needs Pillow: pip install 'teeter[images]'."
        ) from None
    out = io.BytesIO()
    try:
        with Image.open(path, formats=("TIFF",)) as image:
            image.convert("RGB").save(out, "PNG")
    except (UnidentifiedImageError, OSError, SyntaxError, Image.DecompressionBombError):
        raise FileError(f"{path.name} is not an image that can be shown.") from None
    return out.getvalue()
