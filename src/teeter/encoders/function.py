"""Encode contents with a function of the user, named as ``package.module:function``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from teeter.base.files import resolve_inside
from teeter.encoders.encoder import ContentKind, Encoder, EncoderFunction, Encoding, run_encoder
from teeter.errors import FileError, InputError, PluginError

__all__ = ["FunctionEncoder"]


class FunctionEncoder(Encoder):
    """A function of the user that turns texts, or paths of images, into features.

    The function is called with a list of contents and returns one row of numbers for each. It must
    encode each content by itself. If its module has a ``version``, the items of a campaign are
    encoded again when the version changes.

    Args:
        name: ``package.module:function``. The module is imported, also from the current folder.
        kind: What the function reads.
        folder: The folder that holds the images. The function gets absolute paths.
    """

    def __init__(self, name: str, kind: ContentKind, folder: Path | None = None) -> None:
        self.name = name
        self.kind = kind
        self.folder = folder
        self._function, self.version = _load_function(name)

    def encode(self, contents: Sequence[str]) -> Encoding:
        """Return what the function returns for the contents that can be read."""
        unreadable: dict[int, str] = {}
        readable: list[int] = []
        arguments: list[str] = []
        # The function of a user should not have to deal with missing files.
        for row, content in enumerate(contents):
            try:
                arguments.append(self._locate(content))
                readable.append(row)
            except FileError as error:
                unreadable[row] = str(error)

        features = run_encoder(self._function, arguments)
        vectors = np.zeros((len(contents), features.shape[1]), dtype=np.float32)
        vectors[readable] = features
        return Encoding(vectors, unreadable)

    def _locate(self, content: str) -> str:
        if self.kind is ContentKind.IMAGE and self.folder is not None:
            return str(resolve_inside(content, self.folder))
        return content


def _load_function(name: str) -> tuple[EncoderFunction, str]:
    """Import a function, and return it with the version of its module.

    Raises:
        PluginError: If importing the module fails.
        InputError: If the module has no such function.
    """
    module_name, _, function_name = name.partition(":")
    # Unlike python -m, the command teeter does not search the current folder.
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))

    try:
        module: Any = import_module(module_name)
    except Exception as error:  # a user's module may raise anything
        raise PluginError(f"Cannot import the encoder {name}: {error}.") from error

    function = getattr(module, function_name, None)
    if not callable(function):
        raise InputError(
            f"The module {module_name} has no function {function_name!r}: name an encoder as "
            "package.module:function."
        )
    return function, str(getattr(module, "version", "1"))
