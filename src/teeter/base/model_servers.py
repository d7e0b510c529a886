"""Connect to servers of models, such as those with OpenAI's interface, without leaking a key.

The texts and the key of a user go to the server that the user names, and nowhere else.
"""

from __future__ import annotations

import os
import urllib.request
from http.client import HTTPMessage
from typing import IO
from urllib.parse import urlsplit

from teeter.errors import InputError

__all__ = ["RefusedRedirects", "make_opener", "read_key"]

_LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})


def read_key(variable: str) -> str:
    """Return the key in an environment variable; empty if it is not set.

    Raises:
        InputError: the key has characters that cannot be sent. It is not repeated.
    """
    key = os.environ.get(variable, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise InputError(
            f"The key in {variable} has characters that cannot be sent: set it again, without "
            "spaces and line breaks around it."
        )
    return key


def make_opener(url: str, key: str, variable: str) -> urllib.request.OpenerDirector:
    """Return what sends requests to a server. It follows no redirect.

    Args:
        url: the address of the server.
        key: the key that is sent with each request; empty for none.
        variable: the environment variable of the key.

    Raises:
        InputError: the key would be sent to another machine unencrypted.
    """
    parts = urlsplit(url)
    is_loopback = parts.hostname in _LOOPBACK_HOSTS
    if key and parts.scheme == "http" and not is_loopback:
        raise InputError(
            f"Will not send the key in {variable} to {url} unencrypted: use https://, or unset "
            f"{variable}."
        )

    handlers: list[urllib.request.BaseHandler] = [RefusedRedirects()]
    # A proxy only forwards what is encrypted. Everything else it would read.
    if is_loopback or parts.scheme == "http":
        handlers.append(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener(*handlers)


class RefusedRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: it would send the text and the key to another server."""

    def redirect_request(  # noqa: PLR0917 - the signature of the standard library
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> None:
        """Return no request, so that the redirect is reported as an error."""
