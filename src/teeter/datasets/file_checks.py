"""Whether a file is there to be read, and a sentence for one that cannot be."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from teeter.errors import FileError, TeeterError

__all__ = ["parse_errors", "require_file"]

_DAMAGE = (None, errno.EINVAL, errno.EEXIST, errno.ENOTDIR)
"""What the contents of a file may lead to, such as a place before its beginning; the rest is the system's refusal."""


def require_file(path: str | Path, suffixes: Sequence[str], what: str) -> Path:
    """Return ``path`` if it is a file with one of these suffixes and something in it."""
    path = Path(path)
    try:
        if path.is_dir():
            raise FileError(f"{path} is a folder: give one file.")
        size = path.stat().st_size
    except FileNotFoundError:
        raise FileError(f"There is no file {path}.") from None
    except OSError as error:
        raise FileError(f"Cannot read {path}: {error.strerror}.") from None
    if path.suffix.lower() not in suffixes:
        ending = f"ends in {path.suffix!r}" if path.suffix else "has no suffix"
        raise FileError(f"{path} {ending}: {what} is a file in {', '.join(suffixes)}.")
    if size == 0:
        raise FileError(f"{path} is empty: it has 0 bytes.")
    return path


@contextmanager
def parse_errors(path: Path, kind: str) -> Iterator[None]:
    """Turn whatever a parser raises over a file into one sentence."""
    try:
        yield
    except TeeterError:
        raise
    except FileNotFoundError as error:
        raise FileError(f"There is no file {error.filename or path}.") from None
    except MemoryError:
        raise FileError(f"{path} does not fit in memory, or it is damaged.") from None
    except Exception as error:  # parsers of broken files raise almost anything
        if isinstance(error, OSError) and error.errno not in _DAMAGE:
            raise FileError(f"Cannot read {path}: {error.strerror}.") from None
        raise FileError(
            f"{path} is not a whole {kind} file: it is damaged, cut short or something else."
        ) from error
