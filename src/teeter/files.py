"""Named tensors and a small header as one file, whole or not at all; no code is ever loaded from it."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from teeter.errors import FileError, InputError

__all__ = [
    "FORMAT",
    "atomic_open",
    "atomic_write",
    "load_weights",
    "merge_arrays",
    "read_state",
    "round_trip",
    "split_arrays",
    "write_errors",
    "write_state",
]

FORMAT = 1
"""Raised when older versions could no longer read what is written."""


def write_state(path: Path, header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write a header and tensors to one file, whole or not at all."""
    alone = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    content = save(
        alone, metadata={"teeter": json.dumps({"format": FORMAT, **header}, default=_plain)}
    )
    with write_errors(path):
        atomic_write(path, content)


@contextlib.contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Turn what the system refuses over a file that is written into one sentence."""
    try:
        yield
    except OSError as error:
        raise FileError(f"Cannot save to {path}: {error.strerror or error}.") from None


def atomic_write(path: Path, content: bytes) -> None:
    """Write to a temporary name, make sure it is on disk, and rename: a crash leaves the old file or the new one."""
    with atomic_open(path) as file:
        file.write(content)


@contextlib.contextmanager
def atomic_open(path: Path) -> Iterator[BinaryIO]:
    """Open a file that appears under its name when all of it is on disk, whoever else writes the same one meanwhile."""
    part = path.with_name(
        f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part"
    )  # machines share folders, not pids
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def read_state(
    path: Path, what: str = "a saved learner"
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the header and the tensors that ``write_state`` wrote; ``what`` they should be is for sentences alone."""
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
        newer = header["format"] > FORMAT
    except (ValueError, KeyError, TypeError, RecursionError):
        raise FileError(
            f"{path} is not {what}, or it is damaged: its header cannot be read."
        ) from None
    if newer:
        raise FileError(
            f"{path} was saved by a newer teeter (format {header['format']}): upgrade teeter to read it."
        )
    return header, tensors


def split_arrays(values: dict[str, Any], prefix: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return a dictionary as a part of the header and tensors whose names start with ``prefix``."""
    arrays = {
        name: value for name, value in values.items() if isinstance(value, Tensor | np.ndarray)
    }
    numpy = {name: value for name, value in arrays.items() if isinstance(value, np.ndarray)}
    for name, value in numpy.items():
        if value.dtype.kind not in "biufc":
            raise InputError(
                f"Cannot save {name!r}: it is an array of {value.dtype}, not of numbers."
            )
    plain = {name: value for name, value in values.items() if name not in arrays}
    return {"plain": plain, "numpy": list(numpy)}, {
        prefix + name: torch.as_tensor(value) for name, value in arrays.items()
    }


def merge_arrays(header: dict[str, Any], tensors: dict[str, Tensor], prefix: str) -> dict[str, Any]:
    """Return the dictionary that ``apart`` took apart."""
    kept = _under(prefix, tensors)
    arrays = {
        name: value.numpy() if name in header["numpy"] else value for name, value in kept.items()
    }
    return {**header["plain"], **arrays}


def round_trip(values: dict[str, Any]) -> dict[str, Any]:
    """Return a dictionary as it would come back from a file: tuples as lists, keys as words, tensors on the CPU."""
    header, tensors = split_arrays(values, "")
    read = json.loads(json.dumps(header, default=_plain))
    return merge_arrays(
        read, {name: value.detach().cpu().clone() for name, value in tensors.items()}, ""
    )


def load_weights(network: nn.Module, tensors: dict[str, Tensor], prefix: str) -> None:
    """Give a network the saved weights whose names start with ``prefix``."""
    try:
        network.load_state_dict(_under(prefix, tensors))
    except RuntimeError:
        raise InputError(
            f"The saved weights do not fit this {type(network).__name__}: give the make_model that was saved with them."
        ) from None
    network.eval()


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }


def _plain(value: object) -> Any:
    """Return NumPy's numbers as Python's, for JSON."""
    if isinstance(value, np.generic):
        return value.item()
    raise InputError(
        f"Cannot save a {type(value).__name__}: numbers, words, lists, dictionaries and arrays can be saved."
    )
