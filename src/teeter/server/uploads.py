"""Uploaded files: of known formats, under safe names, and not too large when unpacked.

A file that a campaign is made of is uploaded once, looked at, and kept for a while: its columns are
chosen from, and only then it is read as a whole. The preview cannot be made by the browser, which
reads neither Parquet files nor spreadsheets, and the first part of such a file is no file.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import secrets
import shutil
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from fastapi import UploadFile
from fastapi.responses import FileResponse, Response

from teeter.campaigns.items.image_archives import ARCHIVE_SUFFIX
from teeter.campaigns.items.image_links import SIGNATURE_BYTES, image_suffix
from teeter.data.table_files import (
    JSON_SUFFIXES,
    TABLE_SUFFIXES,
    require_parquet_size,
)
from teeter.data.workbooks import WORKBOOK_SUFFIXES, require_workbook_size
from teeter.encoders.images import HEIF_HINT, enable_heif
from teeter.errors import FileError, InputError, MissingExtraError, UnknownResourceError

_SUFFIXES = (*TABLE_SUFFIXES, *JSON_SUFFIXES)

CAMPAIGN_SUFFIXES = (*_SUFFIXES, ARCHIVE_SUFFIX)
"""The suffixes of files that a campaign is made of."""

_MAX_NAME = 80
_CHUNK = 1024 * 1024


_KEPT_SECONDS = 3600.0
"""Seconds after its last use after which a kept upload is removed."""

_KEPT_PER_OWNER = 3
"""Uploads that are kept for one person. The newest replace the oldest."""


@dataclass(frozen=True)
class _KeptUpload:
    path: Path
    owner: str
    timer: threading.Timer


class KeptUploads:
    """Files that were uploaded to be looked at, until a campaign is made of them or an hour passes.

    Args:
        folder: has one folder per upload.
        limit: as in ``save_upload``.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self._limit = limit
        self._kept: dict[str, _KeptUpload] = {}
        """By ids that only those who uploaded them know, the oldest first."""
        self._lock = threading.Lock()

    def add(self, file: UploadFile, owner: str) -> str:
        """Keep an upload, and return its id.

        Raises:
            FileError: it is damaged, or unpacks to more than the limit.
            InputError: the format is unknown.
        """
        path = save_upload(file, self._folder, self._limit, CAMPAIGN_SUFFIXES)
        upload = secrets.token_urlsafe(12)
        self._keep(upload, path, owner)
        with self._lock:
            others = [key for key, kept in self._kept.items() if kept.owner == owner]
        for oldest in others[:-_KEPT_PER_OWNER]:
            self.remove(oldest)
        return upload

    def find(self, upload: str, owner: str) -> Path:
        """Return the file of an upload, which is kept for another hour.

        Raises:
            UnknownResourceError: it was removed, or somebody else uploaded it.
        """
        with self._lock:
            kept = self._kept.get(upload)
        if kept is None or kept.owner != owner:
            raise UnknownResourceError("The file is no longer on the server: choose it again.")
        self._keep(upload, kept.path, owner)
        return kept.path

    def copy(self, upload: str, owner: str) -> Path:
        """Return a copy of an upload, alone in its folder, which the caller removes.

        A campaign may wait for hours until it is created. Meanwhile, the upload may be removed.

        Raises:
            UnknownResourceError: as ``find``.
        """
        path = self.find(upload, owner)
        copy = Path(tempfile.mkdtemp(dir=self._folder)) / path.name
        try:
            os.link(path, copy)
        except OSError:  # a file system without links
            shutil.copyfile(path, copy)
        return copy

    def _keep(self, upload: str, path: Path, owner: str) -> None:
        timer = threading.Timer(_KEPT_SECONDS, self.remove, [upload])
        timer.daemon = True
        with self._lock:
            before = self._kept.get(upload)
            self._kept[upload] = _KeptUpload(path, owner, timer)
        if before is not None:
            before.timer.cancel()
        timer.start()

    def remove(self, upload: str) -> None:
        """Remove an upload, if it is still there."""
        with self._lock:
            kept = self._kept.pop(upload, None)
        if kept is not None:
            kept.timer.cancel()
            shutil.rmtree(kept.path.parent, ignore_errors=True)

    def close(self) -> None:
        """Remove all uploads."""
        for upload in list(self._kept):
            self.remove(upload)


def save_upload(
    file: UploadFile, folder: Path, limit: int, suffixes: tuple[str, ...] = _SUFFIXES
) -> Path:
    """Write an uploaded file into a new folder inside ``folder``.

    Args:
        file: the upload. Of its name only letters, digits, dots and hyphens are used.
        folder: has one folder per upload.
        limit: the most bytes that a Parquet file or a spreadsheet may unpack to. A small file can
            hold a table that fills the memory.
        suffixes: those of the formats that may be uploaded.

    Returns:
        The path of the file. The caller removes its folder.

    Raises:
        InputError: the format is unknown.
        FileError: it is damaged, or unpacks to more than ``limit``.
    """
    name = Path(file.filename or "")
    suffix = name.suffix.lower()
    if suffix not in suffixes:
        formats = ", ".join(suffixes)
        kind = "a file without a suffix"
        if suffix:
            kind = f"{suffix} files"
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
        sentence = str(error).replace(str(path), path.name)
        raise FileError(sentence) from None


_TYPE_BY_SUFFIX = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".gif": "image/gif",
    ".bmp": "image/bmp",
    ".webp": "image/webp",
    ".avif": "image/avif",
}
"""Media types that browsers show, by the suffix of the format."""

_CONVERSIONS = {
    ".tif": ("TIFF", "PNG"),
    ".heic": ("HEIF", "JPEG"),
    ".webp": ("WEBP", "WEBP"),
}
"""The formats that browsers do not show as they are, for Pillow, and what they are converted to."""

_SHOWN_SIDE = 2048
"""Pixels along each side of a converted photograph."""

_ORIENTATION = 0x0112
"""The number in EXIF for how the camera was held."""

_WEBP_FLAGS = 20
_WEBP_EXIF = 8
"""The byte of a WebP file with its flags, and the flag for EXIF."""


def image_response(path: Path) -> Response:
    """Return an image as a response.

    The type follows from the content, never from the name, so that an HTML or SVG file called
    ``cat.png`` is not run in the browser. TIFF and HEIC images are converted, and so are WebP
    images that the camera says to turn, which browsers do not do.

    Raises:
        FileError: the file is not an image in a known format.
        MissingExtraError: it has to be converted, and Pillow is not installed.
    """
    with path.open("rb") as file:
        signature = file.read(SIGNATURE_BYTES)

    headers = {"cache-control": "private, max-age=3600"}
    suffix = image_suffix(signature) or ""
    is_extended = signature[12:16] == b"VP8X"
    has_exif = is_extended and signature[_WEBP_FLAGS] & _WEBP_EXIF
    if suffix in _TYPE_BY_SUFFIX and not (suffix == ".webp" and has_exif):
        return FileResponse(path, media_type=_TYPE_BY_SUFFIX[suffix], headers=headers)

    read_as, written_as = _CONVERSIONS.get(suffix, _CONVERSIONS[".tif"])
    content = _convert_image(path, read_as, written_as)
    return Response(content, media_type=f"image/{written_as.lower()}", headers=headers)


def _convert_image(path: Path, read_as: str, written_as: str) -> bytes:
    """Return an image upright in another format."""
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ImportError:
        raise MissingExtraError(
            "Showing this image needs Pillow: pip install 'teeter[label]'."
        ) from None
    if read_as == "HEIF" and not enable_heif():
        raise FileError(f"{path.name} cannot be displayed: {HEIF_HINT}.")

    converted = io.BytesIO()
    try:
        # One format only: every other decoder of Pillow is one more that a hostile file could
        # attack.
        with Image.open(path, formats=(read_as,)) as image:
            if read_as == "WEBP" and image.getexif().get(_ORIENTATION, 1) == 1:
                return path.read_bytes()
            upright = ImageOps.exif_transpose(image)
            if read_as != "TIFF":
                upright.thumbnail((_SHOWN_SIDE, _SHOWN_SIDE))
            if read_as != "WEBP":
                upright = upright.convert("RGB")
            upright.save(converted, written_as, quality=90)
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        raise FileError(f"{path.name} cannot be displayed as an image.") from None
    return converted.getvalue()
