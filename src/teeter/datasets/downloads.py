"""Fetching a dataset from where it is published: checked, unpacked, and there whole or not at all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from teeter.datasets.archives import unpack
from teeter.datasets.catalogue import find_spec
from teeter.datasets.loading import load_dataset, locate_dataset
from teeter.datasets.locate import download_folder
from teeter.datasets.urls import ACCOUNTS, OPENML, REMOTES, Remote
from teeter.errors import FileError

__all__ = ["Download", "fetch_dataset", "fetch_file"]

_OPENML_URL = "https://api.openml.org/api/v1/json/data/{}"
_TIMEOUT = 60.0
_CHUNK = 1 << 18

Progress = Callable[[str, int, int], None]
"""Told a file's name, the bytes that are there, and the bytes in all, 0 if unknown."""


@dataclass(frozen=True)
class Download:
    """A file that was fetched, its checksum, and whether one is published to hold it against."""

    path: Path
    md5: str
    checked: bool


def fetch_dataset(
    name: str, *, folder: str | Path | None = None, progress: Progress = lambda *_: None
) -> tuple[Download, ...]:
    """Fetch the files of a dataset into its folder, unpack and read them; nothing is done if they are there."""
    entry = find_spec(name)
    home = download_folder(name, folder)
    if (folder is None or Path(folder).is_dir()) and locate_dataset(entry, folder) is not None:
        return ()
    if name in ACCOUNTS:
        raise FileError(f"{ACCOUNTS[name].format(home=home)}.")
    home.mkdir(parents=True, exist_ok=True)
    remotes = REMOTES[name] if name in REMOTES else (_openml_remote(name),)
    fetched = tuple(fetch_file(remote, home, progress) for remote in remotes)
    for remote, one in zip(remotes, fetched, strict=True):
        if remote.is_archive:
            unpack(one.path, home)
            one.path.unlink()
    load_dataset(name, folder=home)  # the last check: what was fetched can be read
    return fetched


def fetch_file(remote: Remote, home: Path, progress: Progress = lambda *_: None) -> Download:
    """Fetch one file under a temporary name, going on where it broke off before, and rename it when it is right."""
    target = home / remote.file
    if target.exists() and remote.md5 is not None and _md5(target) == remote.md5:
        return Download(target, remote.md5, checked=True)
    part = home / f".{remote.file}.part"
    if remote.md5 is None:
        part.unlink(
            missing_ok=True
        )  # without a checksum, nobody would notice two versions sewn together
    _receive(remote, part, progress)
    found = _md5(part)
    if remote.md5 not in (None, found):
        part.unlink()
        raise FileError(
            f"{remote.url} gave a file with the MD5 {found}, and {remote.md5} is published: it was thrown away. Try "
            "again, and if it stays so do not trust it."
        )
    part.replace(target)
    return Download(target, found, checked=remote.md5 is not None)


def _receive(remote: Remote, part: Path, progress: Progress) -> None:
    start = part.stat().st_size if part.exists() else 0
    with _opened(remote.url, start) as answer:
        if answer.status != 206:
            start = 0
        length = answer.headers.get("Content-Length")
        whole = start + int(length) if length else 0
        done = start
        with part.open("ab" if start else "wb") as stream:
            while chunk := _chunk(answer, remote.url):
                stream.write(chunk)
                done += len(chunk)
                progress(remote.file, done, whole)
    if whole and done != whole:
        raise FileError(
            f"{remote.url} broke off after {done} of {whole} bytes: run it again to go on from there."
        )


def _chunk(answer: Any, url: str) -> bytes:
    try:
        chunk: bytes = answer.read(_CHUNK)
    except (OSError, HTTPException) as error:
        raise FileError(
            f"{url} broke off ({_reason(error)}): run it again to go on from there."
        ) from None
    return chunk


def _opened(url: str, start: int = 0) -> Any:
    """Return the answer to a request for a file, from byte ``start`` on if there is one."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise FileError(f"{url} is no address of the web: nothing is fetched from there.")
    headers = {"User-Agent": "teeter", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        return urlopen(Request(url, headers=headers), timeout=_TIMEOUT)
    except HTTPError as error:
        error.close()
        if error.code == 416:  # what is there is as long as the file, or longer
            return _opened(url)
        raise FileError(
            f"{url} answered {error.code} {error.reason}: see teeter datasets for other ways."
        ) from None
    except (URLError, OSError, HTTPException) as error:
        raise FileError(
            f"Cannot reach {urlsplit(url).hostname} ({_reason(error)}): is there a network? Files got elsewhere may be "
            "put in place by hand, see teeter datasets."
        ) from None


def _openml_remote(name: str) -> Remote:
    """Return the address and the checksum that OpenML's description of a dataset tells."""
    url = _OPENML_URL.format(OPENML[name])
    with _opened(url) as answer:
        try:
            told = json.load(answer)["data_set_description"]
            return Remote(told["url"], told.get("md5_checksum"), f"{name}.arff")
        except (ValueError, KeyError, TypeError):
            raise FileError(
                f"{url} answered something else than the description of a dataset."
            ) from None


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None) or error
    return str(getattr(reason, "strerror", None) or reason) or type(reason).__name__


def _md5(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
