"""Check files before they are read, and turn parser errors into messages for users."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from teeter.errors import FileError, TeeterError

__all__ = ["parse_errors", "require_file"]

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
