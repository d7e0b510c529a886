"""Check files before they are read, and turn parser errors into messages for users."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from teeter.errors import FileError, TeeterError

__all__ = ["parse_errors", "require_file", "require_unpacked_size"]

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


@contextmanager
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
