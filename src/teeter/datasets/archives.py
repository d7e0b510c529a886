"""Unpack downloaded archives safely: nothing is written outside the folder."""

from __future__ import annotations

import shutil
import tarfile
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

from teeter.data.file_checks import parse_errors
from teeter.errors import FileError

__all__ = ["unpack"]


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a .zip or .tar.gz file into ``folder``, all of it or nothing.

    Files and folders of the same name in ``folder`` are replaced. The standard library keeps paths
    inside: zipfile removes ``..`` and writes links as plain files, and tarfile's data filter
    refuses paths that lead outside, devices and pipes.

    Raises:
        FileError: if the archive is damaged or unsafe, or does not fit on the disk.
    """
    with (
        TemporaryDirectory(dir=folder, prefix=".unpacking-") as name,
        parse_errors(archive, "archive file"),
    ):
        staging = Path(name)
        if archive.suffix == ".zip":
            _extract_zip(archive, staging)
        else:
            _extract_tar(archive, staging)

        # Reached only if everything was unpacked. The staging folder is on the same disk, so this
        # renames and copies nothing.
        for path in sorted(staging.iterdir()):
            _replace(folder / path.name, path)


def _extract_zip(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as file:
        # The directory at the end of a .zip file tells all sizes before anything is written.
        size = sum(entry.file_size for entry in file.infolist())
        _require_space(archive, size, folder)
        file.extractall(folder)


def _extract_tar(archive: Path, folder: Path) -> None:
    def filter_member(member: tarfile.TarInfo, destination: str) -> tarfile.TarInfo | None:
        # No published dataset has links, and they are how past data filters were outwitted.
        if member.issym() or member.islnk():
            raise FileError(f"{archive} is not safe to unpack: {member.name!r} is a link.")

        # The sizes in a compressed tar file are known only as it is read.
        _require_space(archive, member.size, folder)
        return tarfile.data_filter(member, destination)

    try:
        with tarfile.open(archive) as file:
            file.extractall(folder, filter=filter_member)
    except tarfile.FilterError as error:
        raise FileError(f"{archive} is not safe to unpack: {error}.") from None


def _require_space(archive: Path, size: int, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if size > free:
        raise FileError(
            f"Cannot unpack {archive}: it needs {size / 1e9:,.1f} GB, "
            f"but only {free / 1e9:,.1f} GB are free."
        )


def _replace(target: Path, source: Path) -> None:
    """Move ``source`` to ``target``. A link in the way is removed, not followed."""
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    else:
        target.unlink(missing_ok=True)

    source.replace(target)
