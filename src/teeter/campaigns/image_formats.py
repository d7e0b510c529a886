"""The formats of images, by the first bytes of a file. Its name may end in anything."""

from __future__ import annotations

__all__ = ["SIGNATURE_BYTES", "image_suffix"]

SIGNATURE_BYTES = 16
"""Bytes that tell the format."""

_SUFFIX_BY_SIGNATURE = {
    b"\x89PNG\r\n\x1a\n": ".png",
    b"\xff\xd8\xff": ".jpg",
    b"GIF8": ".gif",
    b"BM": ".bmp",
    b"II*\x00": ".tif",
    b"MM\x00*": ".tif",
}


def image_suffix(content: bytes) -> str | None:
    """Return the suffix of an image's format, or None if it is not a known one.

    Example:
        >>> image_suffix(b"GIF89a"), image_suffix(b"<svg>")
        ('.gif', None)
    """
    for signature, suffix in _SUFFIX_BY_SIGNATURE.items():
        if content.startswith(signature):
            return suffix
    # "RIFF", four bytes of length, "WEBP".
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return ".webp"
    return None
