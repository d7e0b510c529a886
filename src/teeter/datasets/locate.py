"""Where datasets lie: the folders to look in, and which files there make up a dataset."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from teeter.datasets.splits import RawDataset
from teeter.errors import FileError

__all__ = [
    "Layout",
    "LocatedFiles",
    "cache_folder",
    "candidate_folders",
    "download_folder",
    "locate_files",
    "search_folders",
]


@dataclass(frozen=True)
class Layout:
    """One way in which a dataset lies on disk: patterns of file names that must all be met, and who reads them."""

    patterns: tuple[str, ...]
    read: Callable[[Sequence[Sequence[Path]]], RawDataset]
    tells_name: bool = True
    """Whether the file names alone tell the dataset; if not, they count in a folder called after it only."""
    may_be_packed: bool = False
    """Whether each file may have .gz behind its name."""


@dataclass(frozen=True)
class LocatedFiles:
    """The files of a dataset, those of each pattern together, and how they are laid out."""

    layout: Layout
    files: tuple[tuple[Path, ...], ...]

    @property
    def first(self) -> Path:
        """The first of the files."""
        return self.files[0][0]


def cache_folder() -> Path:
    """Return where this system keeps what can be had again."""
    if told := os.environ.get("XDG_CACHE_HOME"):
        base = Path(told)
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    else:
        base = Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    return base / "teeter" / "datasets"


def search_folders(folder: str | Path | None = None) -> list[Path]:
    """Return the folders to look in: the one given, or else that of TEETER_DATA and the cache."""
    if folder is not None:
        path = Path(folder).expanduser()
        if not path.is_dir():
            raise FileError(f"There is no folder {path} to look for datasets in.")
        return [path]
    told = os.environ.get("TEETER_DATA")
    return [*([Path(told).expanduser()] if told else []), cache_folder()]


def download_folder(name: str, folder: str | Path | None = None) -> Path:
    """Return the folder that a download of ``name`` goes to."""
    root = Path(folder).expanduser() if folder is not None else search_folders()[0]
    return root if root.resolve().name == name else root / name


def candidate_folders(root: Path, names: Sequence[str]) -> list[Path]:
    """Return the folders below ``root``, or it itself, that are called after a dataset: its name comes first."""
    name, *others = names
    inside = [place / other for place in (root / name, root) for other in others]
    return [*([root] if root.resolve().name in names else []), root / name, *inside]


def locate_files(
    names: Sequence[str], layouts: Sequence[Layout], folder: str | Path | None = None
) -> LocatedFiles | None:
    """Return the first layout whose files are all there, in a folder called by one of ``names`` or beside it."""
    for root in search_folders(folder):
        own = candidate_folders(root, names)
        for place in (*own, root):
            for layout in layouts:
                files = _met(layout, place) if place in own or layout.tells_name else None
                if files is not None:
                    return LocatedFiles(layout, files)
    return None


def _met(layout: Layout, place: Path) -> tuple[tuple[Path, ...], ...] | None:
    files = []
    for pattern in layout.patterns:
        met = sorted(place.glob(pattern)) or (
            sorted(place.glob(f"{pattern}.gz")) if layout.may_be_packed else []
        )
        if not met:
            return None
        files.append(tuple(met))
    return tuple(files)
