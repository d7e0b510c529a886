"""Encoders of the user: an OpenAI-compatible embeddings endpoint, or a Python function.

An endpoint gets texts, which are sent to the server that the user names, and nowhere else. Local
servers such as those of llama.cpp, vLLM and text-embeddings-inference offer the same interface. A
function is named as ``package.module:function``.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag

import numpy as np

from teeter.base.files import resolve_inside
from teeter.base.outbound_http import AttemptFailedError, make_opener, read_key, retry
from teeter.base.registry import import_object
from teeter.encoders.encoder import (
    ContentKind,
    Encoder,
    Encoding,
    normalize_rows,
    run_encoder,
)
from teeter.errors import FileError, InputError, ServerError, ServerUnavailableError

__all__ = [
    "KEY_VARIABLE",
    "EndpointEncoder",
    "FunctionEncoder",
]

KEY_VARIABLE = "TEETER_EMBEDDINGS_KEY"
"""The environment variable with the key of the server. The key is never stored."""

_BATCH = 64
"""Texts in one request."""

_MAX_CHARACTERS = 20_000
"""The number of characters of a text that are sent. Most models read a few thousand at most."""

_MAX_RESPONSE_BYTES = 1 << 28
"""A response of 64 embeddings is far smaller."""

_TIMEOUT = 120.0
"""Seconds to wait for a response."""

_ATTEMPTS = 4
"""How often a request is sent if the server stays busy."""

_FIRST_PAUSE = 1.0
"""Seconds before the second attempt; each later pause is twice as long."""


class EndpointEncoder(Encoder):
    """A server that turns texts into embeddings.

    Args:
        name: The address of the interface, then the model: ``http://127.0.0.1:8080/v1#model``.
            ``/embeddings`` is appended to the address.

    Raises:
        InputError: If the name has no model, or the key would be sent unencrypted.
    """

    kind = ContentKind.TEXT

    def __init__(self, name: str) -> None:
        address, model = urldefrag(name)
        if not model:
            raise InputError(
                f"The address {name} does not name a model: append #MODEL, as in {address}#MODEL."
            )

        self.name = name
        self.version = model
        self.model = model
        self.url = f"{address.rstrip('/')}/embeddings"
        self._key = read_key(KEY_VARIABLE)
        self._opener = make_opener(self.url, self._key, KEY_VARIABLE)

    def encode(self, contents: Sequence[str]) -> Encoding:
        """Return the embeddings of texts, of length 1.

        Raises:
            ServerUnavailableError: If the server cannot be reached or is busy.
            ServerError: If it refuses the request, or its response is not as expected.
        """
        parts = []
        for start in range(0, len(contents), _BATCH):
            texts = contents[start : start + _BATCH]
            # Servers refuse empty texts, so a space is sent instead.
            batch = [text[:_MAX_CHARACTERS] or " " for text in texts]
            parts.append(run_encoder(self._request, batch))

        vectors = np.concatenate(parts)
        return Encoding(normalize_rows(vectors))

    def _request(self, texts: Sequence[str]) -> list[list[float]]:
        fields = {"model": self.model, "input": list(texts)}
        body = json.dumps(fields).encode()
        headers = {"content-type": "application/json"}
        if self._key:
            headers["authorization"] = f"Bearer {self._key}"

        request = urllib.request.Request(self.url, body, headers)
        response = self._send(request)
        count = len(texts)
        unexpected = ServerError(
            f"The response from {self.url} is not a list of {count} embeddings: check that the "
            "server offers OpenAI's embeddings interface."
        )
        try:
            entries: list[dict[str, Any]] = json.loads(response)["data"]
            # A server may return embeddings in any order, with their indexes.
            by_index = {}
            for entry in entries:
                by_index[int(entry["index"])] = entry["embedding"]
            return [by_index[index] for index in range(count)]
        except (ValueError, KeyError, TypeError):
            raise unexpected from None

    def _send(self, request: urllib.request.Request) -> bytes:
        """Return the response to a request. Wait and try again while the server is busy."""

        def send_once() -> bytes:
            try:
                with self._opener.open(request, timeout=_TIMEOUT) as response:
                    content: bytes = response.read(_MAX_RESPONSE_BYTES)
                    return content
            except urllib.error.HTTPError as error:
                # A wrong key or model stays wrong; a busy or restarting server does not.
                is_busy = error.code == 429 or error.code >= 500
                if not is_busy:
                    raise ServerError(_describe_refusal(self.url, error)) from None
                raise AttemptFailedError(
                    f"it responded with status {error.code}", error.headers
                ) from None
            except (OSError, HTTPException) as error:
                raise AttemptFailedError(str(getattr(error, "reason", error))) from None

        try:
            return retry(
                send_once,
                attempts=_ATTEMPTS,
                first_pause=_FIRST_PAUSE,
            )
        except AttemptFailedError as error:
            raise ServerUnavailableError(
                f"The embeddings server {self.url} is not available ({error}): resume later with "
                "teeter campaign encode."
            ) from None


def _describe_refusal(url: str, error: urllib.error.HTTPError) -> str:
    if error.code in (401, 403):
        return f"The embeddings server {url} rejected the key: set {KEY_VARIABLE} to a valid key."
    return f"The embeddings server {url} rejected the request with status {error.code}."


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
        self._function = import_object("encoder", name)
        module_name, _, _ = name.partition(":")
        self.version = str(getattr(sys.modules[module_name], "version", "1"))

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
        return Encoding.of_readable(features, readable, unreadable)

    def _locate(self, content: str) -> str:
        if self.kind is ContentKind.IMAGE and self.folder is not None:
            return str(resolve_inside(content, self.folder))
        return content
