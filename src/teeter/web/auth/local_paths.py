"""Addresses of this server that a visitor may be sent to after a login."""

from __future__ import annotations

from urllib.parse import urlsplit

__all__ = ["HOME", "local_path"]

HOME = "/"

_MAX_LENGTH = 500


def local_path(value: str | None) -> str:
    r"""Return an address if it is a page of this server, else the home page.

    Stops open redirects: a link to our login page must not end on a page of another site that asks
    for the token again. Browsers read ``//host``, ``/\host`` and addresses with tabs or line breaks
    in them as addresses of other sites.

    Example:
        >>> local_path("/c/texts?page=2"), local_path("//evil.example")
        ('/c/texts?page=2', '/')
    """
    if value is None or len(value) > _MAX_LENGTH:
        return HOME

    # Pages of ours have such addresses: browsers encode everything else before they send it.
    is_plain = value.isprintable() and value.isascii() and "\\" not in value
    if not is_plain or not value.startswith("/") or value.startswith("//"):
        return HOME

    parts = urlsplit(value)
    # The login page itself would be a loop.
    if parts.scheme or parts.netloc or parts.path == "/login" or parts.path.startswith("/login/"):
        return HOME
    return value
