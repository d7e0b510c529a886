"""Keep file paths that users or files name inside the folder they belong to."""

from __future__ import annotations

from pathlib import Path

from teeter.errors import FileError, InputError

__all__ = ["resolve_inside"]


def resolve_inside(path: str, folder: Path | None) -> Path:
    """Return the absolute path of a file inside a folder.

    Args:
        path: A path relative to the folder. Links are followed before it is checked.
        folder: The folder that the file must be in, or None if there is no such folder.

    Raises:
        InputError: If there is no folder.
        FileError: If the path leads out of the folder, or if there is no such file.
    """
    if folder is None:
        raise InputError(f"Cannot read {path} without the folder that the images are in.")

    root = folder.resolve()
    file = (root / path).resolve()

    if root != file and root not in file.parents:
        raise FileError(
            f"{path} is outside the campaign's folder {folder}: only files inside that folder "
            f"are read."
        )

    if not file.is_file():
        raise FileError(f"There is no file {file}.")

    return file
