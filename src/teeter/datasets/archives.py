"""Archives, unpacked file by file: nothing is written outside the folder, and links are refused."""

from __future__ import annotations

import shutil
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import IO

from teeter.datasets.file_checks import parse_errors
from teeter.errors import FileError

__all__ = ["unpack"]


def unpack(archive: Path, folder: Path) -> None:
    """Put what a .zip or a .tar.gz holds into ``folder``; all of it, or nothing where the archive is damaged."""
    with (
        TemporaryDirectory(dir=folder, prefix=".unpacking-") as name,
        parse_errors(archive, "archive"),
    ):
        inside = Path(name)
        for member, size, stream in _members(archive):
            path = inside / _safe(member, archive)
            _require_room(archive, size, inside)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as copy:
                shutil.copyfileobj(stream, copy, 1 << 20)
        for path in sorted(inside.iterdir()):
            _move(path, folder / path.name)


def _members(archive: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Yield the files in an archive with their sizes, refusing all that is neither a file nor a folder."""
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as packed:
            for entry in packed.infolist():
                kind = (
                    entry.external_attr >> 28
                )  # of a Unix mode: 0o10 is a file, 0o04 a folder, 0 was not written
                if kind not in (0, 0o10, 0o04):
                    raise FileError(
                        f"{archive} holds a link, {entry.filename!r}: it is not unpacked."
                    )
                if not entry.is_dir():
                    with packed.open(entry) as stream:
                        yield entry.filename, entry.file_size, stream
        return
    with tarfile.open(archive) as packed_tar:
        for member in packed_tar:
            stream_or_none = packed_tar.extractfile(member) if member.isreg() else None
            if stream_or_none is not None:
                with stream_or_none as stream:
                    yield member.name, member.size, stream
            elif not member.isdir():
                raise FileError(
                    f"{archive} holds a link or a device, {member.name!r}: it is not unpacked."
                )


def _safe(name: str, archive: Path) -> PurePosixPath:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in name or not path.parts:
        raise FileError(
            f"{archive} holds {name!r}, which leads out of its folder: it is not unpacked."
        )
    return path


def _require_room(archive: Path, size: int, folder: Path) -> None:
    """Refuse a file that would fill the disk; no more is read of a member than its entry says."""
    free = shutil.disk_usage(folder).free
    if size > free:
        raise FileError(
            f"{archive} holds a file of {size / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB are free: it is not unpacked."
        )


def _move(path: Path, target: Path) -> None:
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    else:
        target.unlink(missing_ok=True)
    path.replace(target)
