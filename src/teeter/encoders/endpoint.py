"""Encode texts by an OpenAI-compatible embeddings endpoint.

The texts are sent to the server that the user names, and nowhere else. Local servers such as those
of llama.cpp, vLLM and text-embeddings-inference offer the same interface.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from typing import Any
from urllib.parse import urldefrag

import numpy as np

from teeter.base.model_servers import make_opener, read_key
from teeter.encoders.encoder import ContentKind, Encoder, Encoding, normalize_rows, run_encoder
from teeter.errors import InputError, ServerError, ServerUnavailableError

__all__ = ["KEY_VARIABLE", "EndpointEncoder"]

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
            batch = [text[:_MAX_CHARACTERS] for text in contents[start : start + _BATCH]]
            # Servers refuse empty texts, so a space is sent instead.
            batch = [text or " " for text in batch]
            parts.append(run_encoder(self._request, batch))

        return Encoding(normalize_rows(np.concatenate(parts)))

    def _request(self, texts: Sequence[str]) -> list[list[float]]:
        body = json.dumps({"model": self.model, "input": list(texts)}).encode()
        headers = {"content-type": "application/json"}
        if self._key:
            headers["authorization"] = f"Bearer {self._key}"

        # The standard library is enough for one kind of request.
        request = urllib.request.Request(self.url, body, headers)
        response = self._send(request)
        return _read_embeddings(response, len(texts), self.url)

    def _send(self, request: urllib.request.Request) -> bytes:
        """Return the response to a request. Wait and try again while the server is busy."""
        pause = _FIRST_PAUSE

        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with self._opener.open(request, timeout=_TIMEOUT) as response:
                    content: bytes = response.read(_MAX_RESPONSE_BYTES)
                    return content
            except urllib.error.HTTPError as error:
                # A wrong key or model stays wrong; a busy or restarting server does not.
                is_busy = error.code == 429 or error.code >= 500
                if not is_busy:
                    raise ServerError(_describe_refusal(self.url, error)) from None
                reason = f"it responded with status {error.code}"
            except (OSError, HTTPException) as error:
                reason = str(getattr(error, "reason", error))

            if attempt < _ATTEMPTS:
                time.sleep(pause)
                pause *= 2

        raise ServerUnavailableError(
            f"The embeddings server {self.url} is not available ({reason}): resume later with "
            "teeter campaign encode."
        )


def _describe_refusal(url: str, error: urllib.error.HTTPError) -> str:
    if error.code in (401, 403):
        return f"The embeddings server {url} rejected the key: set {KEY_VARIABLE} to a valid key."
    return f"The embeddings server {url} rejected the request with status {error.code}."


def _read_embeddings(content: bytes, count: int, url: str) -> list[list[float]]:
    """Return the embeddings of a response, in the order of the texts."""
    unexpected = ServerError(
        f"The response from {url} is not a list of {count} embeddings: check that the server "
        "offers OpenAI's embeddings interface."
    )
    try:
        entries: list[dict[str, Any]] = json.loads(content)["data"]
        # A server may return embeddings in any order, with their indexes.
        by_index = {int(entry["index"]): entry["embedding"] for entry in entries}
        return [by_index[index] for index in range(count)]
    except (ValueError, KeyError, TypeError):
        raise unexpected from None
