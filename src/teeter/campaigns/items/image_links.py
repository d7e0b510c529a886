"""Images of a campaign: links that are fetched once, formats, and files that are missing."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from teeter.base.files import atomic_write
from teeter.base.outbound_http import Resolver, send_request
from teeter.campaigns.records import ItemKind
from teeter.encoders.images import HEIF_HINT, is_image_name
from teeter.errors import (
    FileError,
    InputError,
    MissingExtraError,
    PermissionDeniedError,
    ServerError,
    TeeterError,
)

if TYPE_CHECKING:
    from teeter.campaigns.campaign import Campaign


SIGNATURE_BYTES = 32
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
    # Formats of the ISO: a length, "ftyp", and the brands of the file.
    if content[4:8] == b"ftyp":
        brands = content[8:SIGNATURE_BYTES]
        if b"avif" in brands or b"avis" in brands:
            return ".avif"
        if b"hei" in brands or b"mif1" in brands:
            return ".heic"
    return None


MAX_IMAGE_BYTES = 20_000_000
"""The largest image that is fetched."""

CACHE_FOLDER = "linked_images"
"""The folder inside the campaign's folder that fetched images are stored in."""

_WORKERS = 8
_TIMEOUT_SECONDS = 30.0
_MAX_REDIRECTS = 5
_HASH_LENGTH = 40

_LINK = re.compile(r"(https?|s3|gs)://", re.IGNORECASE)
_WEB_LINK = re.compile(r"https?://", re.IGNORECASE)


def is_link(text: str) -> bool:
    """Return whether a text is a link to an image rather than a path.

    Example:
        >>> is_link("https://example.org/cat.png"), is_link("photos/cat.png")
        (True, False)
    """
    return _LINK.match(text) is not None


class ImageFetcher:
    """Fetches images into the campaign's folder.

    Args:
        folder: The campaign's folder of images.
        allow_private: Whether links may lead into the server's own network.
        allow_stores: Whether ``s3://`` and ``gs://`` links are read, with the credentials of this
            machine. Never for links of people who do not own these.
        max_bytes: The largest image.
        resolve: Returns the addresses of a host; by default the system's resolver.
        max_seconds: Seconds after which ``fetch_all`` gives up the links that are left; None for
            no limit.
    """

    def __init__(
        self,
        folder: Path,
        *,
        allow_private: bool = False,
        allow_stores: bool = False,
        max_bytes: int = MAX_IMAGE_BYTES,
        resolve: Resolver | None = None,
        max_seconds: float | None = None,
    ) -> None:
        self.folder = folder
        self.allow_private = allow_private
        self.allow_stores = allow_stores
        self.max_bytes = max_bytes
        self.errors: dict[str, str] = {}
        """Why links could not be fetched, in one sentence each."""
        self._resolve = resolve
        self._max_seconds = max_seconds
        self._deadline: float | None = None

    def fetch_all(self, links: Iterable[str]) -> dict[str, str]:
        """Fetch images, several at a time, and note those that fail in ``errors``.

        Returns:
            By link, the path of its file inside the folder.
        """
        if self._max_seconds is not None:
            self._deadline = time.monotonic() + self._max_seconds
        wanted = list(dict.fromkeys(links))
        with ThreadPoolExecutor(_WORKERS, thread_name_prefix="fetch") as pool:
            results = pool.map(self._try_to_fetch, wanted)
            fetched = zip(wanted, results, strict=True)
            return {link: path for link, path in fetched if path is not None}

    def _try_to_fetch(self, link: str) -> str | None:
        try:
            return self.fetch(link)
        except (TeeterError, OSError) as error:
            self.errors[link] = str(error)
            return None

    def fetch(self, link: str) -> str:
        """Fetch an image, unless it is there already, and return its path inside the folder.

        Raises:
            InputError: If the link is not valid, or its address is not public.
            ServerError: If there is no image to be had.
            FileError: If what was fetched is not an image.
        """
        digest = hashlib.sha256(link.encode("utf-8", "surrogatepass"))
        name = digest.hexdigest()[:_HASH_LENGTH]
        # Two levels, because a folder with a million files is slow to list.
        cache = self.folder / CACHE_FOLDER / name[:2]
        stored = next(cache.glob(f"{name}.*"), None)
        if stored is None:
            content = self._download(link)
            suffix = image_suffix(content)
            if suffix is None:
                raise FileError(f"{link[:200]} is not an image in a known format.")
            if not is_image_name(f"{name}{suffix}"):
                raise FileError(f"{link[:200]} is not read: {HEIF_HINT}.")
            stored = cache / f"{name}{suffix}"
            cache.mkdir(parents=True, exist_ok=True)
            atomic_write(stored, content)

        return stored.relative_to(self.folder).as_posix()

    def _download(self, link: str) -> bytes:
        timeout = _TIMEOUT_SECONDS
        if self._deadline is not None:
            timeout = min(timeout, self._deadline - time.monotonic())
        if timeout <= 0:
            raise ServerError(
                f"{link[:200]} was not fetched, because all links together took more than "
                f"{self._max_seconds:g} seconds: import the table again to fetch the rest."
            )

        if not _WEB_LINK.match(link):
            return self._read_from_store(link)

        response = send_request(
            "GET",
            link,
            timeout=timeout,
            max_bytes=self.max_bytes,
            max_redirects=_MAX_REDIRECTS,
            allow_private=self.allow_private,
            resolve=self._resolve,
        )
        if response.status != 200:
            raise ServerError(f"{link[:200]} answers with status {response.status}.")
        return response.body

    def _read_from_store(self, link: str) -> bytes:
        if not self.allow_stores:
            raise PermissionDeniedError(
                f"{link[:200]} would be read with the server's credentials: ask the person who "
                f"runs the server to add such images with teeter campaign new or add."
            )
        try:
            import fsspec
        except ImportError:
            raise MissingExtraError(
                "Reading s3:// and gs:// links needs fsspec: pip install 'teeter[team]'."
            ) from None

        try:
            with fsspec.open(link, "rb") as file:
                content: bytes = file.read(self.max_bytes + 1)
        except ImportError as error:
            # fsspec says which package reads this kind of store.
            raise MissingExtraError(f"Cannot read {link[:200]}: {error}.") from None
        except Exception as error:  # Every store has errors of its own.
            raise ServerError(f"Cannot read {link[:200]}: {type(error).__name__}.") from None

        if len(content) > self.max_bytes:
            raise ServerError(f"{link[:200]} is larger than {self.max_bytes:,} bytes.")
        return content


def replace_image_links(entries: Sequence[Any], fetcher: ImageFetcher) -> list[Any]:
    """Return items whose images are files: links are fetched, and stay as their ids.

    Items whose images cannot be fetched are left out, and stand in the ``errors`` of the fetcher.

    Args:
        entries: Items as ``Campaign.add`` takes them.
        fetcher: Fetches the images.
    """
    links = [_link_of(entry) for entry in entries]
    paths = fetcher.fetch_all(link for link in links if link is not None)

    replaced: list[Any] = []
    for entry, link in zip(entries, links, strict=True):
        if link is None:
            replaced.append(entry)
        elif link not in paths:
            continue
        elif isinstance(entry, Mapping):
            replaced.append({"id": link, "link": link, **entry, "image": paths[link]})
        else:
            item_id = link
            if isinstance(entry, tuple):
                item_id, _ = entry
            replaced.append({"id": item_id, "link": link, "image": paths[link]})
    return replaced


def _link_of(entry: Any) -> str | None:
    """Return the link of an item that has one instead of a path."""
    content = entry
    if isinstance(entry, Mapping):
        content = entry.get("image")
    elif isinstance(entry, tuple) and len(entry) == 2:
        content = entry[1]

    if not isinstance(content, str) or not is_link(content):
        return None
    return content


def describe_missing_images(campaign: Campaign) -> str | None:
    """Return a sentence about the images of a campaign that are not where they were.

    Returns:
        How many are missing and where they are expected, or why they are not read; None if none
        is missing.
    """
    try:
        folder = campaign.image_folder
    except InputError as error:
        return str(error)
    if campaign.settings.kind != ItemKind.IMAGE or folder is None:
        return None

    with campaign.reading() as view:
        paths = [item.content or "" for item in view.items.all()]

    # A folder that was moved needs other advice, and no look at each of its files.
    if not folder.is_dir():
        return (
            f"The folder of the images is missing: {len(paths):,} image files are expected in "
            f"{folder}. If the folder was moved or renamed, move it back."
        )

    missing = [path for path in paths if not (folder / path).is_file()]
    if not missing:
        return None
    return (
        f"{len(missing):,} of {len(paths):,} image files are missing, such as {missing[0]}: they "
        f"are expected in {folder}."
    )
