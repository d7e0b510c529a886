"""Find the files of a dataset: which folders to search, and which files belong together."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from teeter.bench.datasets.splits import RawDataset
from teeter.errors import FileError

__all__ = [
    "Layout",
    "MatchedFiles",
    "Reader",
    "cache_folder",
    "candidate_folders",
    "download_folder",
    "locate_files",
    "search_folders",
]

MatchedFiles: TypeAlias = Sequence[Sequence[Path]]
"""The files that match each pattern of a layout, in the order of the patterns."""

Reader: TypeAlias = Callable[[MatchedFiles], RawDataset]


@dataclass(frozen=True)
class Layout:
    """One way a dataset is stored on disk: its file names and the function that reads them."""

    patterns: tuple[str, ...]
    """Glob patterns relative to the dataset's folder. Each must match at least one file."""
    read: Reader
    identifies_dataset: bool = True
    """Whether the file names belong to this dataset only. If not, the files must be in a folder
    named after the dataset: MNIST and Fashion-MNIST use the same names."""
    may_be_gzipped: bool = False
    """Whether each file may have ``.gz`` after its name."""


def cache_folder() -> Path:
    """Return the folder for downloads in the user's cache folder of this operating system."""
    xdg_cache_home = os.environ.get("XDG_CACHE_HOME")

    if xdg_cache_home:
        base = Path(xdg_cache_home)
    elif sys.platform == "win32":
        local_app_data = Path.home() / "AppData" / "Local"
        base = Path(os.environ.get("LOCALAPPDATA", local_app_data))
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path.home() / ".cache"

    return base / "teeter" / "datasets"


def search_folders(folder: str | Path | None = None) -> list[Path]:
    """Return the folders to search for datasets, in order.

    Args:
        folder: the only folder to search. By default these are the folder named by the environment
            variable TEETER_DATA, if it is set, and the cache.

    Raises:
        FileError: if ``folder`` does not exist. A missing default folder is no error.
    """
    if folder is not None:
        path = Path(folder).expanduser()
        if not path.is_dir():
            raise FileError(f"There is no folder {path} to look for datasets in.")
        return [path]

    folders = [cache_folder()]
    data_folder = os.environ.get("TEETER_DATA")
    if data_folder:
        folders.insert(0, Path(data_folder).expanduser())
    return folders


def download_folder(name: str, folder: str | Path | None = None) -> Path:
    """Return the folder that a download of the dataset ``name`` goes to."""
    # Unlike a folder to search, the target need not exist yet.
    if folder is None:
        root = search_folders()[0]
    else:
        root = Path(folder).expanduser()

    # The user may have given the dataset's own folder, as for searching.
    if root.resolve().name == name:
        return root
    return root / name


def candidate_folders(root: Path, names: Sequence[str]) -> list[Path]:
    """Return the folders at or below ``root`` that may be named after a dataset, in search order.

    Args:
        root: the folder to search.
        names: the dataset's name, then other names of its folder.
    """
    name, *other_names = names

    folders = [root / name]
    # An archive may be unpacked in the dataset's folder or beside it.
    for parent in (root / name, root):
        folders += [parent / other for other in other_names]

    # The user may also have given the dataset's own folder. Resolved, because "." has no name.
    if root.resolve().name in names:
        folders.insert(0, root)
    return folders


def locate_files(
    names: Sequence[str], layouts: Sequence[Layout], folder: str | Path | None = None
) -> tuple[Layout, MatchedFiles] | None:
    """Return the first layout whose files all exist, and the files; None if none is complete.

    Args:
        names: the dataset's name, then other names of its folder.
        layouts: the layouts to try, in order of preference.
        folder: where to search, as for ``search_folders``.
    """
    for root in search_folders(folder):
        named_folders = candidate_folders(root, names)

        # The root last: files of several datasets may lie there side by side.
        for candidate in (*named_folders, root):
            is_named = candidate in named_folders
            for layout in layouts:
                if not is_named and not layout.identifies_dataset:
                    continue

                files = _match_files(layout, candidate)
                if files is not None:
                    return layout, files

    return None


def _match_files(layout: Layout, folder: Path) -> MatchedFiles | None:
    """Return the files that match each pattern, or None if a pattern matches none."""
    files = []
    for pattern in layout.patterns:
        matches = sorted(folder.glob(pattern))
        if not matches and layout.may_be_gzipped:
            matches = sorted(folder.glob(f"{pattern}.gz"))
        if not matches:
            return None
        files.append(tuple(matches))

    return tuple(files)
