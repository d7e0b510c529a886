"""Uploaded files: of known formats, under safe names, and not too large when unpacked."""

from __future__ import annotations

import hashlib
import io
import re
import shutil
import tempfile
from pathlib import Path

from fastapi import UploadFile
from fastapi.responses import FileResponse, Response

from teeter.campaigns.items.image_links import SIGNATURE_BYTES, image_suffix
from teeter.data.table_files import (
    JSON_SUFFIXES,
    TABLE_SUFFIXES,
    WORKBOOK_SUFFIXES,
    require_parquet_size,
    require_workbook_size,
)
from teeter.errors import FileError, InputError, MissingExtraError

_SUFFIXES = (*TABLE_SUFFIXES, *JSON_SUFFIXES)

_MAX_NAME = 80
_CHUNK = 1024 * 1024


def save_upload(file: UploadFile, folder: Path, limit: int) -> Path:
    """Write an uploaded file into a new folder inside ``folder``.

    Args:
        file: the upload. Of its name only letters, digits, dots and hyphens are used.
        folder: has one folder per upload.
        limit: the most bytes that a Parquet file or a spreadsheet may unpack to. A small file can
            hold a table that fills the memory.

    Returns:
        The path of the file. The caller removes its folder.

    Raises:
        InputError: the format is unknown.
        FileError: it is damaged, or unpacks to more than ``limit``.
    """
    name = Path(file.filename or "")
    suffix = name.suffix.lower()
    if suffix not in _SUFFIXES:
        formats = ", ".join(_SUFFIXES)
        kind = f"{suffix} files" if suffix else "a file without a suffix"
        raise InputError(f"Cannot read {kind}: upload {formats}.")

    # Separators become underscores, so that the name cannot lead out of the folder.
    safe_stem = re.sub(r"[^\w.-]", "_", name.stem)[:_MAX_NAME]
    upload_folder = Path(tempfile.mkdtemp(dir=folder))
    path = upload_folder / f"{safe_stem}{suffix}"

    try:
        with path.open("wb") as target:
            shutil.copyfileobj(file.file, target)
        if suffix == ".parquet":
            _require_parquet_size(path, limit)
        elif suffix in WORKBOOK_SUFFIXES:
            require_workbook_size(path, limit)
    # Also if the request is cancelled: an upload may be as large as the limit allows.
    except BaseException:
        shutil.rmtree(upload_folder, ignore_errors=True)
        raise
    return path


def upload_digest(file: UploadFile) -> str:
    """Return a hash of an uploaded file, which can be read from its start after it."""
    digest = hashlib.sha256()
    while chunk := file.file.read(_CHUNK):
        digest.update(chunk)
    file.file.seek(0)
    return digest.hexdigest()


def _require_parquet_size(path: Path, limit: int) -> None:
    try:
        require_parquet_size(path, limit)
    except MissingExtraError:
        return  # reading the file reports it
    except FileError as error:
        raise FileError(str(error).replace(str(path), path.name)) from None


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
            "Showing this image needs Pillow: pip install 'teeter[label]'."
        ) from None

    png = io.BytesIO()
    try:
        # Only TIFF: every other decoder of Pillow is one more that a hostile file could attack.
        with Image.open(path, formats=("TIFF",)) as image:
            image.convert("RGB").save(png, "PNG")
    except (UnidentifiedImageError, OSError, SyntaxError, Image.DecompressionBombError):
        raise FileError(f"{path.name} cannot be displayed as an image.") from None
    return png.getvalue()
