"""Named tensors and a small header as one file, whole or not at all; no code is ever loaded from it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from teeter.errors import FileError

__all__ = ["FORMAT", "read_state", "write_state"]

FORMAT = 1
"""Raised when older versions could no longer read what is written."""


def write_state(path: Path, header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write to a temporary name, make sure it is on disk, and rename: a crash leaves the old file or the new one."""
    apart = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    content = save(apart, metadata={"teeter": json.dumps({"format": FORMAT, **header})})
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise FileError(f"Cannot save to {path}: {error.strerror or error}.") from None


def read_state(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the header and the tensors that ``write_state`` wrote."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            names = list(file.keys())
            tensors = {name: file.get_tensor(name) for name in names}
    except FileNotFoundError:
        raise FileError(f"There is no file {path}.") from None
    except (SafetensorError, OSError) as error:
        raise FileError(f"{path} is not a saved learner, or it is damaged: {error}") from None
    if "teeter" not in metadata:
        raise FileError(f"{path} is not a saved learner: it has no teeter header.")
    header: dict[str, Any] = json.loads(metadata["teeter"])
    if header["format"] > FORMAT:
        raise FileError(f"{path} was saved by a newer teeter (format {header['format']}): upgrade teeter to read it.")
    return header, tensors
