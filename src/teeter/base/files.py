"""Check files before they are read, write them atomically, and store named tensors in one file.

``parse_errors`` turns errors of parsers into messages for users.

State files are safetensors files whose metadata has a JSON header under the key ``teeter``. Reading
one never runs code from it.

Writing text files must not take the second that loading torch and NumPy takes: the functions for
state files load them themselves.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TextIO, overload

from safetensors import SafetensorError, safe_open

from teeter.errors import FileError, InputError, TeeterError

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = [
    "FORMAT",
    "LfCsvStream",
    "atomic_open",
    "atomic_write",
    "load_weights",
    "merge_arrays",
    "parse_errors",
    "read_state",
    "require_file",
    "require_unpacked_size",
    "resolve_inside",
    "round_trip",
    "split_arrays",
    "write_errors",
    "write_private",
    "write_state",
]


_SMALL_SIZE = 100_000_000
"""Bytes that any machine can unpack."""

# Error numbers that the contents of a damaged file can cause, for example by a seek before its
# first byte. Any other error number is a refusal of the operating system.
_ERRNOS_OF_DAMAGE = (None, errno.EINVAL, errno.EEXIST, errno.ENOTDIR)


def require_file(path: str | Path, suffixes: Sequence[str], what: str) -> Path:
    """Return ``path`` if it is a readable, non-empty file with one of the given suffixes.

    Args:
        path: the file to check.
        suffixes: accepted suffixes in lower case, with their dot.
        what: what the file should hold, with an article, for error messages: ``"a pool"``.

    Raises:
        FileError: if the path is missing, a folder, empty, unreadable or of another type.
    """
    path = Path(path)

    try:
        if path.is_dir():
            raise FileError(f"{path} is a folder: give a file.")
        size = path.stat().st_size
    except FileNotFoundError:
        raise FileError(f"There is no file {path}.") from None
    except OSError as error:
        raise FileError(f"Cannot read {path}: {error.strerror}.") from None

    if path.suffix.lower() not in suffixes:
        ending = "has no suffix"
        if path.suffix:
            ending = f"ends in {path.suffix!r}"
        accepted = ", ".join(suffixes)
        raise FileError(f"{path} {ending}: {what} must end in {accepted}.")

    if size == 0:
        raise FileError(f"{path} is empty: it has 0 bytes.")

    return path


def require_unpacked_size(path: str | Path, size: int, limit: int | None = None) -> None:
    """Refuse a compressed file that takes too much memory, before its rows are read.

    Args:
        path: the file.
        size: the bytes that it unpacks to.
        limit: the most bytes. By default half of the free memory, because what is read is also
            converted.

    Raises:
        FileError: if the file unpacks to more.
    """
    reason = ""
    if limit is None:
        if size <= _SMALL_SIZE:
            return
        # Imported here, because a server that reads small files needs no torch.
        import torch

        from teeter.base import arrays

        limit = arrays.available_memory(torch.device("cpu")) // 2
        reason = ", half of the free memory"

    if size > limit:
        raise FileError(
            f"{path} unpacks to {size / 1e6:,.0f} MB in memory, but the limit is "
            f"{limit / 1e6:,.0f} MB{reason}: split it into smaller files."
        )


@contextlib.contextmanager
def parse_errors(path: Path, expected: str) -> Iterator[None]:
    """Convert any exception that a parser raises in the block into a FileError about ``path``.

    Args:
        path: the file or folder that is parsed.
        expected: what it should be, without an article, for error messages: ``"Parquet file"``.

    Raises:
        FileError: if the file is missing, unreadable, too large for memory or damaged.
    """
    try:
        yield
    except TeeterError:
        raise
    except FileNotFoundError as error:
        raise FileError(f"There is no file {error.filename or path}.") from None
    except MemoryError:
        raise FileError(f"{path} does not fit in memory, or it is damaged.") from None
    except Exception as error:  # Parsers of broken files raise almost anything.
        if isinstance(error, OSError) and error.errno not in _ERRNOS_OF_DAMAGE:
            raise FileError(f"Cannot read {path}: {error.strerror}.") from None
        raise FileError(
            f"{path} is not a valid {expected}: it is damaged, incomplete or of another type."
        ) from error


FORMAT = 1
"""The version of the file format. It is increased when older versions of teeter cannot read it."""


def atomic_write(path: Path, content: bytes) -> None:
    """Write a file that a crash leaves either as it was or complete. See ``atomic_open``."""
    with atomic_open(path) as file:
        file.write(content)


@overload
def atomic_open(
    path: Path, mode: Literal["wb"] = "wb"
) -> contextlib.AbstractContextManager[BinaryIO]: ...


@overload
def atomic_open(path: Path, mode: Literal["w"]) -> contextlib.AbstractContextManager[TextIO]: ...


@contextlib.contextmanager
def atomic_open(path: Path, mode: Literal["wb", "w"] = "wb") -> Iterator[Any]:
    """Open a file for writing that appears under its name only when it is complete and on disk.

    The content goes to a temporary file in the same folder, which is synced and then renamed. If
    the block raises, the temporary file is removed and an existing file stays as it was. Several
    processes may write the same path: the last one to finish wins.

    Args:
        path: the file. A symbolic link is replaced; pass ``path.resolve()`` to write through it.
        mode: ``"wb"`` for bytes, or ``"w"`` for UTF-8 text with line ends as they are written.

    Raises:
        OSError: if the file cannot be written. ``write_errors`` turns it into a ``FileError``.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "picks.csv"
        ...     with atomic_open(path, "w") as file:
        ...         _ = file.write("row,label")
        ...         path.exists()
        ...     path.read_text()
        False
        'row,label'
    """
    # Machines that share a folder may have the same process ids, hence the random part.
    unique = f"{os.getpid()}-{secrets.token_hex(4)}"
    part = path.with_name(f".{path.name}.{unique}.part")

    # newline="": line ends are written as they are, on every system.
    text_options: dict[str, Any] = {}
    if mode == "w":
        text_options = {"encoding": "utf-8", "newline": ""}

    try:
        with part.open(mode, **text_options) as file:
            yield file
            # On disk before the rename: after a crash the name must not lead to an empty file.
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


@dataclass(frozen=True)
class LfCsvStream:
    r"""A stream for ``csv.writer`` that ends rows with ``\n`` instead of ``\r\n``.

    A writer with ``lineterminator="\n"`` would leave cells that contain ``\r`` unquoted, and
    readers would take it for the end of a row.

    Example:
        >>> import csv, io
        >>> text = io.StringIO()
        >>> _ = csv.writer(LfCsvStream(text)).writerow(["1\r2", "3"])
        >>> text.getvalue()
        '"1\r2",3\n'
    """

    stream: TextIO

    def write(self, row: str) -> int:
        """Write a row, which the writer passes as a whole."""
        return self.stream.write(row.removesuffix("\r\n") + "\n")


def write_private(path: Path, text: str) -> None:
    """Write a text atomically to a file that only its owner can read.

    Raises:
        FileError: if the file cannot be written.
    """
    with write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_open(path, "w") as file:
            # Before the content is written, so that it is never readable by others.
            Path(file.name).chmod(0o600)
            file.write(text)


@contextlib.contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Turn an ``OSError`` inside the block into a ``FileError`` that names the file."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise FileError(f"Cannot save to {path}: {reason}.") from None


def write_state(
    path: Path,
    header: dict[str, Any],
    tensors: dict[str, Tensor],
) -> None:
    """Write a header and tensors to one file, atomically.

    Args:
        path: the file.
        header: values that JSON can hold; NumPy numbers are allowed.
        tensors: tensors by name, on any device. They may share memory.

    Raises:
        FileError: if the file cannot be written.
        InputError: if the header contains something that JSON cannot hold.
    """
    from safetensors.torch import save

    # Copies, because safetensors refuses tensors that share memory.
    copies = {}
    for name, value in tensors.items():
        copies[name] = value.detach().cpu().contiguous().clone()

    full_header = {"format": FORMAT, **header}
    header_text = json.dumps(full_header, default=_to_json)
    content = save(copies, metadata={"teeter": header_text})
    with write_errors(path):
        atomic_write(path, content)


def read_state(
    path: Path,
    what: str = "a saved learner",
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the header and the tensors that ``write_state`` wrote.

    Args:
        path: the file.
        what: what it should contain, for error messages.

    Raises:
        FileError: if the file does not exist, is damaged, or was written by something else.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            names = list(file.keys())
            tensors = {name: file.get_tensor(name) for name in names}
    except FileNotFoundError:
        raise FileError(f"There is no file {path}.") from None
    except (SafetensorError, OSError) as error:
        raise FileError(f"{path} is not {what}, or it is damaged: {error}") from None

    if "teeter" not in metadata:
        raise FileError(f"{path} is not {what}: it has no teeter header.")
    try:
        header: dict[str, Any] = json.loads(metadata["teeter"])
        is_newer = header["format"] > FORMAT
    except (ValueError, KeyError, TypeError, RecursionError):  # whatever a damaged header may cause
        raise FileError(
            f"{path} is not {what}, or it is damaged: its header cannot be read."
        ) from None

    if is_newer:
        raise FileError(
            f"{path} was saved by a newer version of teeter (format {header['format']}): upgrade "
            f"teeter to "
            "read it."
        )
    return header, tensors


def split_arrays(
    values: dict[str, Any],
    prefix: str,
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Split a dictionary into a part for the header and tensors for ``write_state``.

    Args:
        values: tensors, NumPy arrays and values that JSON can hold.
        prefix: what the tensors' names start with, to keep several dictionaries apart.

    Returns:
        The part for the header, and the tensors. ``merge_arrays`` puts them together again.

    Raises:
        InputError: if a NumPy array does not contain numbers.
    """
    import numpy as np
    import torch
    from torch import Tensor

    plain_values: dict[str, Any] = {}
    numpy_names: list[str] = []
    tensors: dict[str, Tensor] = {}

    for name, value in values.items():
        if isinstance(value, np.ndarray):
            if value.dtype.kind not in "biufc":
                raise InputError(
                    f"Cannot save {name!r}: it is an array of {value.dtype}, not of numbers."
                )
            numpy_names.append(name)
            tensors[prefix + name] = torch.as_tensor(value)
        elif isinstance(value, Tensor):
            tensors[prefix + name] = value
        else:
            plain_values[name] = value

    header = {
        "plain": plain_values,
        "numpy": numpy_names,
    }
    return header, tensors


def merge_arrays(
    header: dict[str, Any],
    tensors: dict[str, Tensor],
    prefix: str,
) -> dict[str, Any]:
    """Return the dictionary that ``split_arrays`` took apart."""
    values: dict[str, Any] = dict(header["plain"])
    for name, tensor in _with_prefix(prefix, tensors).items():
        values[name] = tensor
        if name in header["numpy"]:
            values[name] = tensor.numpy()
    return values


def round_trip(values: dict[str, Any]) -> dict[str, Any]:
    """Return a dictionary as it would be read back from a file.

    Tuples become lists, keys of inner dictionaries become texts, tensors move to the CPU.
    """
    header, tensors = split_arrays(values, "")
    header_text = json.dumps(header, default=_to_json)

    copies = {}
    for name, value in tensors.items():
        copies[name] = value.detach().cpu().clone()
    return merge_arrays(json.loads(header_text), copies, "")


def load_weights(
    network: nn.Module,
    tensors: dict[str, Tensor],
    prefix: str,
) -> None:
    """Load saved weights into a network and put it into evaluation mode.

    Args:
        network: the network, which changes in place.
        tensors: tensors of a file; those whose names start with ``prefix`` are the weights.
        prefix: it is removed from the names.

    Raises:
        InputError: if the weights are those of another architecture.
    """
    try:
        network.load_state_dict(_with_prefix(prefix, tensors))
    except RuntimeError:
        raise InputError(
            f"The saved weights do not fit this {type(network).__name__}: pass the model "
            f"that the learner was saved with."
        ) from None
    network.eval()


def _with_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names start with ``prefix``, named by the rest."""
    selected = {}
    for name, value in tensors.items():
        if name.startswith(prefix):
            selected[name.removeprefix(prefix)] = value
    return selected


def _to_json(value: object) -> Any:
    """Return a NumPy number as a Python one, for ``json.dumps``."""
    import numpy as np

    if isinstance(value, np.generic):
        return value.item()
    raise InputError(
        f"Cannot save a {type(value).__name__}: only numbers, strings, lists, dictionaries and "
        f"arrays can be saved."
    )


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
