"""Encode texts by an embeddings endpoint that is compatible with OpenAI's.

The texts are sent to the server whose address the user gives, and nowhere else. Local servers such
as those of llama.cpp, vLLM or text-embeddings-inference offer the same interface.
"""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any
from urllib.parse import urldefrag

import numpy as np

from teeter.encoders.encoder import ContentKind, Encoder, Encoding, normalize_rows, run_encoder
from teeter.errors import InputError, ServerError, ServerUnavailableError

__all__ = ["KEY_VARIABLE", "EndpointEncoder"]

KEY_VARIABLE = "TEETER_EMBEDDINGS_KEY"
"""The environment variable with the key of the server. It is never stored."""

_BATCH = 64
"""Texts in one request."""

_MAX_CHARACTERS = 20_000
"""Characters of a text that are sent. Most models read a few thousand at most."""

_TIMEOUT = 120.0
"""Seconds to wait for a response."""

_ATTEMPTS = 4
"""How often a request is sent if the server is busy."""

_FIRST_PAUSE = 1.0
"""Seconds before the second attempt; each later pause is twice as long."""


class EndpointEncoder(Encoder):
    """A server that turns texts into embeddings.

    Args:
        name: The address of the interface and the model: ``http://127.0.0.1:8080/v1#model``. The
            path ``/embeddings`` is appended.
    """

    kind = ContentKind.TEXT

    def __init__(self, name: str) -> None:
        address, model = urldefrag(name)
        if not model:
            raise InputError(
                f"The address {name} names no model: put it after #, such as {address}#MODEL."
            )

        self.name = name
        self.version = model
        self.model = model
        self.url = f"{address.rstrip('/')}/embeddings"

    def encode(self, contents: Sequence[str]) -> Encoding:
        """Return the embeddings of texts, of length 1.

        Raises:
            ServerUnavailableError: If the server cannot be reached or is busy.
            ServerError: If it refuses the request, or its response is not as expected.
        """
        parts = []
        for start in range(0, len(contents), _BATCH):
            batch = [text[:_MAX_CHARACTERS] for text in contents[start : start + _BATCH]]
            # Servers refuse an empty text, which a space stands for.
            parts.append(run_encoder(self._request, [text or " " for text in batch]))

        return Encoding(normalize_rows(np.concatenate(parts)))

    def _request(self, texts: Sequence[str]) -> list[list[float]]:
        body = json.dumps({"model": self.model, "input": list(texts)}).encode()
        headers = {"content-type": "application/json"}
        key = os.environ.get(KEY_VARIABLE)
        if key:
            headers["authorization"] = f"Bearer {key}"

        # The standard library is enough for one kind of request, and adds no dependency.
        request = urllib.request.Request(self.url, body, headers)
        return _read_embeddings(self._send(request), len(texts), self.url)

    def _send(self, request: urllib.request.Request) -> bytes:
        """Return the response to a request; wait and try again while the server is busy."""
        pause = _FIRST_PAUSE
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
                    content: bytes = response.read()
                    return content
            except urllib.error.HTTPError as error:
                # A wrong key or model stays wrong; a busy or restarting server does not.
                is_busy = error.code == 429 or error.code >= 500
                if not is_busy:
                    raise ServerError(_describe_refusal(self.url, error)) from None
                reason = f"it answered with status {error.code}"
            except OSError as error:
                reason = str(getattr(error, "reason", error))

            if attempt < _ATTEMPTS:
                time.sleep(pause)
                pause *= 2

        raise ServerUnavailableError(
            f"The embeddings server {self.url} is not available ({reason}): run the same command "
            "again later to continue."
        )


def _describe_refusal(url: str, error: urllib.error.HTTPError) -> str:
    if error.code in (401, 403):
        return (
            f"The embeddings server {url} refuses the key: set {KEY_VARIABLE} to one that it "
            "accepts."
        )
    return f"The embeddings server {url} refuses the request with status {error.code}."


def _read_embeddings(content: bytes, count: int, url: str) -> list[list[float]]:
    """Return the embeddings of a response, in the order of the texts."""
    unexpected = ServerError(
        f"The response of {url} is not a list of {count} embeddings: is it compatible with "
        "OpenAI's interface?"
    )
    try:
        entries: list[dict[str, Any]] = json.loads(content)["data"]
        by_index = {int(entry["index"]): entry["embedding"] for entry in entries}
        return [by_index[index] for index in range(count)]
    except (ValueError, KeyError, TypeError):
        raise unexpected from None
