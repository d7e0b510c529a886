"""Export labelled images into one folder per class, as most trainers of image models read them.

Beside the folders are two files:

* ``metadata.jsonl`` has a line per image with its id, label and columns. Hugging Face datasets
  reads it as the columns of an image folder.
* ``.teeter_export`` lists the images that were written, one path per line. The next export into
  the same folder removes those that no longer belong there, and nothing else.
"""

from __future__ import annotations

import contextlib
import filecmp
import hashlib
import json
import re
import shutil
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from teeter.base.files import atomic_open, atomic_write
from teeter.campaigns.export.rows import ExportColumns, ExportRow, rename_imported
from teeter.campaigns.items.columns import format_cell, replace_surrogates
from teeter.campaigns.records import ColumnType
from teeter.errors import FileError

_METADATA = "metadata.jsonl"

_MANIFEST = ".teeter_export"
"""Hidden, so that no trainer takes it for an image or a class."""

_MAX_NAME_BYTES = 200
"""Bytes of a name in UTF-8. Most file systems take 255, some of them less."""

_MAX_ENDING_BYTES = 10
_DIGEST_BYTES = 6

_RESERVED_CHARACTERS = frozenset('<>:"/\\|?*%')
"""Separators, what Windows reserves, and the sign that quotes them."""

_CONTROL_CATEGORIES = ("Cc", "Cs", "Zl", "Zp")
"""Unicode's control characters, lone surrogates, and separators of lines and paragraphs."""

_FILE_NAME_ENDINGS = ("file_name", "file_names")
"""Hugging Face datasets opens the files that such a column names."""

_RESERVED_NAMES = frozenset(
    {
        *("con", "prn", "aux", "nul"),
        *(f"com{number}" for number in range(10)),
        *(f"lpt{number}" for number in range(10)),
    }
)
"""Names of devices, which Windows reserves with any ending."""


def write_image_folder(rows: Iterable[ExportRow], columns: ExportColumns, path: Path) -> None:
    """Copy labelled images into one folder per class, with their columns in ``metadata.jsonl``.

    Separators, control characters and names that a file system reserves are written as in
    addresses: ``a/b`` becomes ``a%2Fb``. Other characters stay as they are.

    Raises:
        FileError: If the folder has another file under the name of an image.
    """
    if (path / _METADATA).exists() and not (path / _MANIFEST).exists():
        raise FileError(
            f"{path / _METADATA} exists, and no earlier export has written it: export into a new "
            "folder."
        )

    path.mkdir(parents=True, exist_ok=True)
    folder = _ImageFolder(path)
    with (
        atomic_open(path / _METADATA, "w") as metadata,
        (path / _MANIFEST).open("a", encoding="utf-8") as manifest,
    ):
        for row in rows:
            source = row.file
            if row.label is None or row.left_out or source is None:
                continue
            target = folder.choose_target(row.label, row.content or source.name)
            # Two rows of a table may have the same image.
            if target in folder.written:
                continue
            if not folder.has_copy(source, target):
                # Noted before it is written: after a crash, the next export still knows it.
                manifest.write(f"{target}\n")
                manifest.flush()
                folder.copy(source, target)
            folder.written.add(target)
            line = json.dumps(_metadata_line(row, columns, target))
            metadata.write(f"{line}\n")

    folder.remove_outdated()


class _ImageFolder:
    """The images in a folder: those of an earlier export, and those of this one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._earlier = set(_read_manifest(path / _MANIFEST))
        self._text_of_name: dict[str, str] = {}
        self.written: set[str] = set()
        """The images of this export, by their paths inside the folder."""
        self._copied: set[str] = set()

    def choose_target(self, label: str, content: str) -> str:
        """Return the path inside the folder for an image of a class."""
        class_folder = self._choose_name("", label)
        name = self._choose_name(class_folder, content)
        return f"{class_folder}/{name}"

    def _choose_name(self, parent: str, text: str) -> str:
        """Return a name for a class or image that differs from that of every other one."""
        name = file_system_name(text)
        # Some file systems ignore the case of names, and how accents are encoded.
        plain_name = unicodedata.normalize("NFC", name).casefold()
        same_file = f"{parent}/{plain_name}"
        if self._text_of_name.setdefault(same_file, text) != text:
            name = _shorten(name, text)
        return name

    def has_copy(self, source: Path, target: str) -> bool:
        """Return whether the same image is there already, without being ours.

        Raises:
            FileError: If another file has its name, which no export has written.
        """
        file = self._path / target
        if target in self._earlier or not file.exists():
            return False

        if not filecmp.cmp(source, file, shallow=False):
            raise FileError(
                f"{file} exists, and no earlier export has written it: export into a new folder."
            )
        return True

    def copy(self, source: Path, target: str) -> None:
        """Copy an image."""
        file = self._path / target
        file.parent.mkdir(exist_ok=True)
        shutil.copyfile(source, file)
        self._copied.add(target)

    def remove_outdated(self) -> None:
        """Remove the images of earlier exports that this one has not written."""
        for target in self._earlier - self.written:
            file = self._path / target
            file.unlink(missing_ok=True)
            # A folder with other files stays.
            with contextlib.suppress(OSError):
                file.parent.rmdir()

        lines = [f"{target}\n" for target in sorted(self._copied)]
        atomic_write(self._path / _MANIFEST, "".join(lines).encode())


def _read_manifest(path: Path) -> Iterator[str]:
    """Yield the images that earlier exports have written, by their paths inside the folder."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        return

    for line in lines:
        parts = line.split("/")
        # The file may have been edited. Only an image in the folder of a class is removed.
        are_names = all(part and not part.startswith(".") for part in parts)
        if len(parts) == 2 and are_names:
            yield line


def _metadata_line(row: ExportRow, columns: ExportColumns, target: str) -> dict[str, Any]:
    """Return what Hugging Face datasets reads about an image."""
    fields = {"file_name": target, "id": row.id, "label": row.label}
    cells = columns.json_cells(row)
    names = {column.name for column in columns.imported}
    # A column of datasets has one type, which lists and objects of many kinds do not have.
    mixed = {column.name for column in columns.imported if column.type is ColumnType.JSON}

    line: dict[str, Any] = dict(fields)
    for name, cell in cells.items():
        if name in fields and format_cell(cell) == fields[name]:
            continue

        written_name = name
        if name == "image" or name in fields or name.endswith(_FILE_NAME_ENDINGS):
            written_name = rename_imported(name, {*names, *fields})
        line[written_name] = cell
        if name in mixed:
            line[written_name] = format_cell(cell)
    return dict(replace_surrogates(line))


def file_system_name(text: str) -> str:
    """Return a text as the name of a file or folder that every file system takes.

    Example:
        >>> file_system_name("猫/dog"), file_system_name(".."), file_system_name("con")
        ('猫%2Fdog', '%2E%2E', '%63on')
    """
    name = ""
    for letter in text:
        is_control = unicodedata.category(letter) in _CONTROL_CATEGORIES
        if letter in _RESERVED_CHARACTERS or is_control:
            letter = _quote(letter)
        name += letter

    # Windows drops dots and spaces at the end.
    if name.endswith((".", " ")):
        name = name[:-1] + _quote(name[-1])
    # A dot hides a file, and Hugging Face datasets leaves out what begins with two underscores.
    is_hidden = name.startswith((".", "__"))
    stem, _, _ = name.partition(".")
    is_device = stem.strip().lower() in _RESERVED_NAMES
    if is_hidden or is_device:
        name = _quote(name[0]) + name[1:]

    if len(name.encode()) > _MAX_NAME_BYTES:
        name = _shorten(name, text)
    return name


def _quote(letter: str) -> str:
    """Return a character as it is written in addresses, also if it could stay as it is."""
    encoded = letter.encode("utf-8", "surrogatepass")
    return "".join(f"%{byte:02X}" for byte in encoded)


def _shorten(name: str, text: str) -> str:
    """Return the beginning of a name, a hash of the whole text and the ending of the name."""
    ending = PurePosixPath(name).suffix
    if len(ending.encode()) > _MAX_ENDING_BYTES:
        ending = ""

    data = text.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()
    rest = f"~{digest}{ending}"
    room = _MAX_NAME_BYTES - len(rest.encode())
    beginning = name.removesuffix(ending).encode()[:room]
    # Neither half a character nor half of a quoted one stays behind.
    return re.sub("%[0-9A-F]?$", "", beginning.decode(errors="ignore")) + rest
