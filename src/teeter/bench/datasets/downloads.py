"""Download a dataset from where it is published: resumable, checked and unpacked.

Nothing is retried: a failure is reported, and the next call resumes a file that has a published
checksum and starts any other file again. The standard library sends the requests: the commands of
``teeter bench`` that need no extra download, too, and httpx2 would save no code.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from teeter.base.files import parse_errors
from teeter.bench.datasets.catalogue import find_spec, locate_dataset
from teeter.bench.datasets.locate import download_folder
from teeter.errors import FileError

__all__ = [
    "MANUAL_DOWNLOADS",
    "OPENML_IDS",
    "REMOTES",
    "Download",
    "Progress",
    "Remote",
    "fetch_dataset",
    "fetch_file",
    "unpack",
]

_OPENML_URL = "https://api.openml.org/api/v1/json/data/{}"
_TIMEOUT_SECONDS = 60.0
_CHUNK_BYTES = 1 << 18

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with a file's name, the bytes received and the bytes in all, or 0 if that is unknown."""


def _ignore_progress(_name: str, _received: int, _total: int) -> None:
    pass


@dataclass(frozen=True)
class Download:
    """A downloaded file."""

    path: Path
    md5: str
    """The checksum of the file."""
    checked: bool
    """Whether the checksum was compared with a published one."""


def fetch_dataset(
    name: str, *, folder: str | Path | None = None, progress: Progress = _ignore_progress
) -> tuple[Download, ...]:
    """Download the files of a dataset, unpack them and check that they can be read.

    Args:
        name: one of ``teeter.bench.datasets.names()``.
        folder: where to create the dataset's folder. By default it is the folder named by the
            environment variable TEETER_DATA, or the cache.
        progress: called as each file is received.

    Returns:
        The downloaded files. There are none if the dataset is already there.

    Raises:
        UnknownNameError: if there is no dataset of that name.
        FileError: if the dataset needs an account, a server cannot be reached, or a file is not
            the published one.
    """
    spec = find_spec(name)
    home = download_folder(name, folder)

    # A folder that does not exist yet is created below. Searching it would be an error.
    can_be_searched = folder is None or Path(folder).is_dir()
    if can_be_searched and locate_dataset(spec, folder) is not None:
        return ()

    if name in MANUAL_DOWNLOADS:
        instructions = MANUAL_DOWNLOADS[name].format(home=home)
        raise FileError(f"{instructions}.")

    home.mkdir(parents=True, exist_ok=True)
    if name in REMOTES:
        remotes = REMOTES[name]
    else:
        remotes = (_find_openml_file(name),)

    # All files before any is unpacked: an interrupted download leaves nothing that looks complete.
    downloads = [fetch_file(remote, home, progress) for remote in remotes]

    for remote, download in zip(remotes, downloads, strict=True):
        if remote.is_archive:
            unpack(download.path, home)
            download.path.unlink()

    # Imported here, because the list of datasets names the downloads, and needs no torch.
    from teeter.bench.datasets.loading import load_dataset

    # The last check: what was downloaded can be read.
    load_dataset(name, folder=home)
    return tuple(downloads)


def fetch_file(remote: Remote, home: Path, progress: Progress = _ignore_progress) -> Download:
    """Download one file into the folder ``home``, or do nothing if the right file is there.

    The file is received under a temporary name and renamed once its checksum is right. The next
    call resumes an interrupted download if the file has a published checksum, and starts it again
    otherwise.

    Raises:
        FileError: if the server cannot be reached, the connection breaks, or the checksum is wrong.
    """
    target = home / remote.file
    if remote.md5 is not None and target.exists() and _md5(target) == remote.md5:
        return Download(target, remote.md5, checked=True)

    part = home / f".{remote.file}.part"
    if remote.md5 is None:
        # Without a checksum, nothing would reveal that two versions were joined.
        part.unlink(missing_ok=True)

    _receive(remote, part, progress)

    md5 = _md5(part)
    if remote.md5 not in (None, md5):
        part.unlink()
        raise FileError(
            f"{remote.url} sent a file with the MD5 {md5}, but the published MD5 is "
            f"{remote.md5}, so the file was deleted. Try again. If it happens again, do not "
            f"trust the file."
        )

    part.replace(target)
    return Download(target, md5, checked=remote.md5 is not None)


def _receive(remote: Remote, part: Path, progress: Progress) -> None:
    """Append the rest of a remote file to ``part``, or all of it if the server cannot resume."""
    received = 0
    if part.exists():
        received = part.stat().st_size

    with _request(remote.url, received) as response:
        # The server sends the whole file if it does not know ranges.
        if response.status != HTTPStatus.PARTIAL_CONTENT:
            received = 0

        # The length of this response: for a resumed file, only what is still missing of it.
        total = 0
        length = response.headers.get("Content-Length")
        if length:
            total = received + int(length)

        with part.open("ab" if received else "wb") as stream:
            while True:
                try:
                    chunk = response.read(_CHUNK_BYTES)
                except (OSError, HTTPException) as error:
                    raise FileError(
                        f"The connection to {remote.url} was lost ({_reason(error)}): "
                        f"{_advise_rerun(remote)}."
                    ) from None
                if not chunk:
                    break
                stream.write(chunk)
                received += len(chunk)
                progress(remote.file, received, total)

    # http.client does not raise if a response is cut short.
    if total and received != total:
        raise FileError(
            f"The connection to {remote.url} was lost after {received} of {total} bytes: "
            f"{_advise_rerun(remote)}."
        )


def _advise_rerun(remote: Remote) -> str:
    # Without a checksum, fetch_file deletes the part and starts again.
    if remote.md5 is None:
        return "run the command again"
    return "run the command again to resume"


def _request(url: str, start: int = 0) -> Any:
    """Return the HTTP response with the contents of ``url`` from byte ``start``."""
    # urlopen would open local files as well.
    if urlsplit(url).scheme not in ("http", "https"):
        raise FileError(f"{url} is not an HTTP address, so nothing was downloaded.")

    # Content that is compressed on the way could not be resumed at a byte of the file.
    headers = {"User-Agent": "teeter", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"

    try:
        return urlopen(Request(url, headers=headers), timeout=_TIMEOUT_SECONDS)
    except HTTPError as error:
        error.close()
        # The part received before is as long as the file, or longer: start again.
        if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return _request(url)
        raise FileError(
            f"{url} answered {error.code} {error.reason}: run teeter bench datasets to see other "
            f"ways to get the dataset."
        ) from None
    except (URLError, OSError, HTTPException) as error:
        raise FileError(
            f"Cannot reach {urlsplit(url).hostname} ({_reason(error)}): check the network, or "
            f"put the files in place by hand (run teeter bench datasets to see how)."
        ) from None


def _find_openml_file(name: str) -> Remote:
    """Ask OpenML's API for the address and the checksum of a dataset."""
    url = _OPENML_URL.format(OPENML_IDS[name])

    with _request(url) as response:
        try:
            description = json.load(response)["data_set_description"]
            return Remote(
                url=description["url"],
                md5=description.get("md5_checksum"),
                name=f"{name}.arff",
            )
        except (ValueError, KeyError, TypeError):
            raise FileError(f"{url} did not return the description of a dataset.") from None
        except (OSError, HTTPException) as error:
            raise FileError(
                f"The connection to {url} was lost ({_reason(error)}): run the command again."
            ) from None


def _reason(error: Exception) -> str:
    """Return why a connection failed, in the words of the operating system if it has any."""
    # A URLError wraps the error of the socket as its reason.
    reason = getattr(error, "reason", None) or error
    text = str(getattr(reason, "strerror", None) or reason)

    # Some errors, such as a plain TimeoutError, have no text at all.
    return text or type(reason).__name__


def _md5(path: Path) -> str:
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False))
    return digest.hexdigest()


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a .zip or .tar.gz file into ``folder``, all of it or nothing.

    Files and folders of the same name in ``folder`` are replaced. The standard library keeps paths
    inside: zipfile removes ``..`` and writes links as plain files, and tarfile's data filter
    refuses paths that lead outside, devices and pipes.

    Raises:
        FileError: if the archive is damaged or unsafe, or does not fit on the disk.
    """
    with (
        TemporaryDirectory(dir=folder, prefix=".unpacking-") as name,
        parse_errors(archive, "archive file"),
    ):
        staging = Path(name)
        if archive.suffix == ".zip":
            with zipfile.ZipFile(archive) as file:
                # The directory at the end tells all sizes before anything is written.
                size = sum(entry.file_size for entry in file.infolist())
                _require_space(archive, size, staging)
                file.extractall(staging)
        else:
            _extract_tar(archive, staging)

        # Reached only if everything was unpacked. The staging folder is on the same disk, so this
        # renames and copies nothing.
        for path in sorted(staging.iterdir()):
            _replace(folder / path.name, path)


def _extract_tar(archive: Path, folder: Path) -> None:
    def filter_member(member: tarfile.TarInfo, destination: str) -> tarfile.TarInfo | None:
        # No published dataset has links, and they are how past data filters were outwitted.
        if member.issym() or member.islnk():
            raise FileError(f"{archive} is not safe to unpack: {member.name!r} is a link.")

        # The sizes in a compressed tar file are known only as it is read.
        _require_space(archive, member.size, folder)
        return tarfile.data_filter(member, destination)

    try:
        with tarfile.open(archive) as file:
            file.extractall(folder, filter=filter_member)
    except tarfile.FilterError as error:
        raise FileError(f"{archive} is not safe to unpack: {error}.") from None


def _require_space(archive: Path, size: int, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if size > free:
        raise FileError(
            f"Cannot unpack {archive}: it needs {size / 1e9:,.1f} GB, "
            f"but only {free / 1e9:,.1f} GB are free."
        )


def _replace(target: Path, source: Path) -> None:
    """Move ``source`` to ``target``. A link in the way is removed, not followed."""
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    else:
        target.unlink(missing_ok=True)

    source.replace(target)


@dataclass(frozen=True)
class Remote:
    """A file to download."""

    url: str
    md5: str | None
    """Its published checksum, or None if none is published."""
    name: str = ""
    """The name to save it under. By default it is the last part of the URL."""

    @property
    def file(self) -> str:
        """The name that the file is saved under."""
        if self.name:
            return self.name
        return self.url.rsplit("/", 1)[-1]

    @property
    def is_archive(self) -> bool:
        """Whether the file is to be unpacked."""
        return self.file.endswith((".tar.gz", ".zip"))


OPENML_IDS = {"openml-6": 6, "openml-156": 156, "openml-44135": 44135}
"""The ids of datasets from OpenML, whose API tells their address and checksum."""

_MNIST_URL = "https://ossci-datasets.s3.amazonaws.com/mnist"
_FASHION_URL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"

REMOTES: dict[str, tuple[Remote, ...]] = {
    "mnist": (
        Remote(f"{_MNIST_URL}/train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        Remote(f"{_MNIST_URL}/train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
        Remote(f"{_MNIST_URL}/t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
        Remote(f"{_MNIST_URL}/t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"),
    ),
    "fashion-mnist": (
        Remote(f"{_FASHION_URL}/train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        Remote(f"{_FASHION_URL}/train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
        Remote(f"{_FASHION_URL}/t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
        Remote(f"{_FASHION_URL}/t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
    ),
    "cifar10": (
        Remote(
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            "c32a1d4ab5d03f1284b67883e8d87530",
        ),
    ),
    "cifar100": (
        Remote(
            "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
            "03b5dce01913d631647c71ecec9e9cb8",
        ),
    ),
    "svhn": (
        Remote(
            "http://ufldl.stanford.edu/housenumbers/train_32x32.mat",
            "e26dedcc434d2e4c54c9b2d4a06d8373",
        ),
        Remote(
            "http://ufldl.stanford.edu/housenumbers/test_32x32.mat",
            "eb5a983be6a315427106f1b164d9cef3",
        ),
    ),
    "tiny-imagenet": (
        Remote(
            "http://cs231n.stanford.edu/tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de"
        ),
    ),
    "food101": (
        Remote(
            "http://data.vision.ee.ethz.ch/cvl/food-101.tar.gz", "85eeb15f3717b99a5da872d97d918f87"
        ),
    ),
}
"""The files of each dataset."""

MANUAL_DOWNLOADS = {
    "imagenet": (
        "ImageNet needs an account at https://image-net.org: download ILSVRC2012_img_train.tar, "
        "ILSVRC2012_img_val.tar and ILSVRC2012_devkit_t12.tar.gz, and unpack them to train/CLASS/, "
        "val/ and ILSVRC2012_devkit_t12/ in {home}"
    ),
}
"""Instructions for datasets that cannot be downloaded automatically."""
