"""Unpack an archive of images, such as people send a folder in, into a folder.

An archive may come from anyone. A small one may unpack to more than the disk has, and its names may
lead out of the folder: such an archive is refused as a whole, before anything of it is written.
"""

from __future__ import annotations

import shutil
import stat
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from teeter.base.files import parse_errors, require_file, write_errors
from teeter.encoders.images import describe_left_out_files, is_image_name
from teeter.errors import FileError, InputError

ARCHIVE_SUFFIX = ".zip"

_MAX_ENTRIES = 100_000
"""Files of an archive."""

_MAX_EXPANSION = 20
"""How many times its size an archive may unpack to. Photographs are compressed already."""

_SMALL_SIZE = 100_000_000
"""Bytes that any archive may unpack to."""

_ENTRY_MARK = b"PK\x01\x02"
"""Begins an entry in the directory of an archive."""

_CHUNK = 1_000_000
_ENCRYPTED = 1
_HIDDEN_FOLDER = "__MACOSX"


def list_archived_images(path: Path) -> tuple[dict[str, zipfile.ZipInfo], dict[str, int]]:
    """Return the images of an archive by their paths, and the number of other files by ending.

    Raises:
        FileError: If it is damaged or has no images, or if unpacking it would not be safe.
    """
    require_file(path, (ARCHIVE_SUFFIX,), "an archive of images")
    with parse_errors(path, "zip archive"):
        _require_few_entries(path)
        with zipfile.ZipFile(path) as archive:
            files = [entry for entry in archive.infolist() if not entry.is_dir()]

    images: dict[str, zipfile.ZipInfo] = {}
    left_out: Counter[str] = Counter()
    for entry in files:
        # Some programs of Windows write backslashes.
        name = PurePosixPath(entry.filename.replace("\\", "/"))
        if not name.parts:
            continue  # "." is a folder
        _require_safe(entry, name, path)
        is_hidden = any(part.startswith(".") for part in name.parts)
        if is_hidden or _HIDDEN_FOLDER in name.parts:
            continue
        if not is_image_name(name.name):
            left_out[name.suffix.lower()] += 1
        elif str(name) in images:
            raise FileError(f"{path} has two files called {name}: rename one.")
        else:
            images[str(name)] = entry

    counts = dict(left_out.most_common())
    if not images:
        raise FileError(
            f"{path} has no images. {describe_left_out_files(counts) or 'It is empty.'}"
        )
    size = sum(entry.file_size for entry in images.values())
    limit = max(_SMALL_SIZE, _MAX_EXPANSION * path.stat().st_size)
    if size > limit:
        raise FileError(
            f"{path} would unpack to {size / 1e6:,.0f} MB, but the limit is {limit / 1e6:,.0f} MB "
            "for an archive of its size: unpack it yourself and give the folder."
        )
    return images, counts


def _require_few_entries(path: Path) -> None:
    """Refuse an archive with too many files before its directory is read into memory."""
    count = 0
    before = b""
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            count += (before + chunk).count(_ENTRY_MARK)
            before = chunk[1 - len(_ENTRY_MARK) :]
    if count > _MAX_ENTRIES:
        raise FileError(
            f"{path} has {count:,} files, but the limit is {_MAX_ENTRIES:,}: unpack it yourself "
            "and give the folder."
        )


def _require_safe(entry: zipfile.ZipInfo, name: PurePosixPath, path: Path) -> None:
    problem = None
    if name.is_absolute() or ".." in name.parts or ":" in name.parts[0]:
        problem = "leads out of the folder"
    elif stat.S_ISLNK(entry.external_attr >> 16):
        problem = "is a link"
    elif entry.flag_bits & _ENCRYPTED:
        problem = "is protected by a password"
    if problem is not None:
        raise FileError(f"{path} cannot be unpacked: {str(name)[:100]!r} {problem}.")


@contextmanager
def unpack_images(path: Path, location: Path) -> Iterator[tuple[Path, dict[str, int]]]:
    """Unpack the images of an archive into a new folder beside a campaign that is to be created.

    Yields:
        The folder, and how many files were left out, by their endings. The folder is removed again
        if the block fails and the campaign does not exist.

    Raises:
        FileError: If the archive cannot be unpacked.
        InputError: If the folder exists.
    """
    images, left_out = list_archived_images(path)
    folder = location.with_suffix(".images")
    with write_errors(folder):
        try:
            folder.mkdir()
        except FileExistsError:
            raise InputError(
                f"The images of {path.name} would be unpacked to {folder.name}, which exists: "
                "choose another name for the campaign."
            ) from None

    try:
        extract_images(path, images, folder)
        yield folder, left_out
    except BaseException:
        if not location.exists():
            shutil.rmtree(folder, ignore_errors=True)
        raise


def extract_images(path: Path, images: Mapping[str, zipfile.ZipInfo], folder: Path) -> None:
    """Unpack images of an archive, as ``list_archived_images`` returns them, into a folder.

    Raises:
        FileError: If they cannot be unpacked, or the folder has another file of their names.
    """
    size = sum(entry.file_size for entry in images.values())
    if size > shutil.disk_usage(folder).free // 2:
        raise FileError(
            f"{path} would unpack to {size / 1e6:,.0f} MB, more than half of the free disk."
        )

    with parse_errors(path, "zip archive"), zipfile.ZipFile(path) as archive:
        for name, entry in images.items():
            target = folder / name
            with write_errors(target), archive.open(entry) as source:
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open("xb") as file:
                    shutil.copyfileobj(source, file)
