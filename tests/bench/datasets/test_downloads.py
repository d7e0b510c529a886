"""Fetching from a server of our own: whole or not at all, checked, resumed,
unpacked safely.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
import shutil
import socket
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest

from small_datasets import write_cifar10, write_mnist
from teeter.bench.datasets import downloads
from teeter.bench.datasets import downloads as urls
from teeter.bench.datasets.downloads import Remote, fetch_dataset, fetch_file, unpack
from teeter.errors import FileError, UnknownNameError

CONTENT = bytes(range(256)) * 4096


@dataclass
class Site:
    """A server on this machine: what it holds, and how it behaves."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    breaks_after: int | None = None
    knows_ranges: bool = True
    asked: list[str | None] = field(default_factory=list)


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()

    class SiteHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = site.files.get(self.path)
            wanted = self.headers.get("Range")
            site.asked.append(wanted)

            if content is None:
                self.send_error(404)
                return

            start = (
                int(wanted.removeprefix("bytes=").rstrip("-"))
                if wanted and site.knows_ranges
                else 0
            )

            if start >= len(content) > 0 and start:
                self.send_error(416)
                return

            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            self.wfile.write(content[start : site.breaks_after])

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), SiteHandler) as server:
        site.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield site
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _away_from_mine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("TEETER_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    caplog.set_level(logging.ERROR)


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def list_files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_arrives_whole_and_checked(site: Site, tmp_path: Path) -> None:
    site.files["/a.bin"] = CONTENT
    progress: list[tuple[str, int, int]] = []
    fetched = fetch_file(
        Remote(f"{site.url}/a.bin", md5(CONTENT)), tmp_path, lambda *args: progress.append(args)
    )
    assert fetched.path.read_bytes() == CONTENT
    assert (fetched.md5, fetched.checked) == (md5(CONTENT), True)
    assert progress[-1] == ("a.bin", len(CONTENT), len(CONTENT))
    assert list_files(tmp_path) == ["a.bin"]
    fetch_file(Remote(f"{site.url}/a.bin", md5(CONTENT)), tmp_path)
    assert len(site.asked) == 1, "what is there and right is not fetched again"


def test_without_a_published_checksum_the_one_seen_is_reported(site: Site, tmp_path: Path) -> None:
    site.files["/a.bin"] = CONTENT
    fetched = fetch_file(Remote(f"{site.url}/a.bin", None), tmp_path)
    assert (fetched.md5, fetched.checked) == (md5(CONTENT), False)


def test_another_file_than_published_is_thrown_away(site: Site, tmp_path: Path) -> None:
    site.files["/a.bin"] = b"something else"
    with pytest.raises(
        FileError, match=rf"MD5 {md5(b'something else')}, but the published MD5 is {md5(CONTENT)}"
    ):
        fetch_file(Remote(f"{site.url}/a.bin", md5(CONTENT)), tmp_path)
    assert list_files(tmp_path) == []


@pytest.mark.parametrize("knows_ranges", [True, False])
def test_it_goes_on_where_it_broke_off(site: Site, tmp_path: Path, knows_ranges: bool) -> None:
    site.files["/a.bin"] = CONTENT
    site.breaks_after = 500_000
    remote = Remote(f"{site.url}/a.bin", md5(CONTENT))

    with pytest.raises(
        FileError,
        match=f"was lost after 500000 of {len(CONTENT)} bytes: run the command again to resume",
    ):
        fetch_file(remote, tmp_path)
    assert list_files(tmp_path) == [".a.bin.part"]

    site.breaks_after = None
    site.knows_ranges = knows_ranges
    assert fetch_file(remote, tmp_path).path.read_bytes() == CONTENT
    assert site.asked[-1] == f"bytes={500_000}-"
    assert list_files(tmp_path) == ["a.bin"]


def test_without_a_checksum_it_starts_again(site: Site, tmp_path: Path) -> None:
    site.files["/a.bin"] = CONTENT
    (tmp_path / ".a.bin.part").write_bytes(b"of another version")
    site.breaks_after = 500_000
    with pytest.raises(FileError, match=r"500000 of \d+ bytes: run the command again\."):
        fetch_file(Remote(f"{site.url}/a.bin", None), tmp_path)

    site.breaks_after = None
    assert fetch_file(Remote(f"{site.url}/a.bin", None), tmp_path).path.read_bytes() == CONTENT
    assert site.asked == [None, None]


def test_too_much_that_is_there_is_started_again(site: Site, tmp_path: Path) -> None:
    site.files["/a.bin"] = CONTENT
    (tmp_path / ".a.bin.part").write_bytes(CONTENT + b"more")
    assert (
        fetch_file(Remote(f"{site.url}/a.bin", md5(CONTENT)), tmp_path).path.read_bytes() == CONTENT
    )


def test_what_cannot_be_reached_is_one_sentence(site: Site, tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"/none\.bin answered 404 Not Found: run teeter bench"):
        fetch_file(Remote(f"{site.url}/none.bin", None), tmp_path)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # the port is ours, and nothing listens
        port = silent.getsockname()[1]
        with pytest.raises(
            FileError, match=r"Cannot reach 127\.0\.0\.1 \(Connection refused\): check the network"
        ):
            fetch_file(Remote(f"http://127.0.0.1:{port}/a.bin", None), tmp_path)
    with pytest.raises(FileError, match="is not an HTTP address"):
        fetch_file(Remote("file:///etc/hostname", None), tmp_path)


def test_mnist_is_fetched_and_read_and_then_there(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_mnist(tmp_path / "made")
    for path in (tmp_path / "made").iterdir():
        site.files[f"/{path.name}"] = path.read_bytes()
    files = tuple(Remote(f"{site.url}{path}", md5(content)) for path, content in site.files.items())
    monkeypatch.setitem(urls.REMOTES, "mnist", files)
    assert len(fetch_dataset("mnist")) == 4
    assert len(list_files(tmp_path / "cache" / "teeter" / "datasets" / "mnist")) == 4
    assert fetch_dataset("mnist") == ()
    assert len(fetch_dataset("mnist", folder=tmp_path / "other")) == 4
    assert list_files(tmp_path / "other") == ["mnist"]


def test_cifar_is_unpacked(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cifar10(tmp_path / "made" / "cifar-10-batches-bin")
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        archive.add(tmp_path / "made" / "cifar-10-batches-bin", "cifar-10-batches-bin")
    site.files["/cifar.tar.gz"] = stream.getvalue()
    monkeypatch.setitem(
        urls.REMOTES, "cifar10", (Remote(f"{site.url}/cifar.tar.gz", md5(stream.getvalue())),)
    )
    fetch_dataset("cifar10", folder=tmp_path)
    assert list_files(tmp_path / "cifar10") == ["cifar-10-batches-bin"]


ARFF = b"@relation r\n" + b"".join(b"@attribute a%d real\n" % k for k in range(16))
ARFF += b"@attribute class {A,B}\n@data\n" + b"0,1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,B\n" * 5


def test_openml_tells_address_and_checksum(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "_OPENML_URL", f"{site.url}/json/{{}}")
    description = {"url": f"{site.url}/letter.arff", "md5_checksum": md5(ARFF)}
    site.files["/json/6"] = json.dumps({"data_set_description": description}).encode()
    site.files["/letter.arff"] = ARFF
    (fetched,) = fetch_dataset("openml-6", folder=tmp_path)
    assert fetched.checked
    assert list_files(tmp_path / "openml-6") == ["openml-6.arff"]
    site.files["/json/156"] = b"<html>"
    with pytest.raises(FileError, match="did not return the description of a dataset"):
        fetch_dataset("openml-156", folder=tmp_path)


def test_a_description_that_openml_cuts_short_is_reported(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "_OPENML_URL", f"{site.url}/json/{{}}")
    site.files["/json/6"] = b'{"data_set_description": {}}'
    site.breaks_after = 10
    with pytest.raises(FileError, match=r"/json/6 was lost \(.+\): run the command again\."):
        fetch_dataset("openml-6", folder=tmp_path)


def test_what_needs_an_account_or_no_file_or_has_no_name(tmp_path: Path) -> None:
    with pytest.raises(
        FileError,
        match=r"ImageNet needs an account at https://image-net\.org: download .*imagenet\.",
    ):
        fetch_dataset("imagenet", folder=tmp_path)
    assert fetch_dataset("digits") == ()
    with pytest.raises(UnknownNameError, match="Did you mean 'svhn'"):
        fetch_dataset("shvn")


def test_every_dataset_can_be_fetched_or_says_why_not() -> None:
    from teeter.bench.datasets import names

    assert {*urls.REMOTES, *urls.OPENML_IDS, *urls.MANUAL_DOWNLOADS, "digits"} == set(names())
    for files in urls.REMOTES.values():
        assert all(remote.md5 is not None and len(remote.md5) == 32 for remote in files)


def tar(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(bytes(member.size)))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, **more: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.size = 3 if kind == tarfile.REGTYPE else 0
    for key, value in more.items():
        setattr(info, key, value)
    return info


@pytest.mark.parametrize("name", ["../out", "/out", "a/../../out", "c:\\out", "..\\out"])
def test_nothing_is_unpacked_outside_the_folder(tmp_path: Path, name: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("first", "x")
        archive.writestr(name, "x")
    for path in (tar(tmp_path / "a.tar.gz", member("first"), member(name)), tmp_path / "a.zip"):
        with contextlib.suppress(FileError):
            unpack(path, home)
    assert list_files(tmp_path) == ["a.tar.gz", "a.zip", "home"]
    assert all(path.resolve().is_relative_to(home.resolve()) for path in home.rglob("*"))


@pytest.mark.parametrize("name", ["../out", "a/../../out"])
def test_a_path_that_leads_outside_leaves_nothing(tmp_path: Path, name: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with pytest.raises(FileError, match=r"is not safe to unpack: .*outside the destination"):
        unpack(tar(tmp_path / "a.tar.gz", member("first"), member(name)), home)
    assert list_files(home) == []


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE]
)
def test_links_and_devices_are_not_unpacked(tmp_path: Path, kind: bytes) -> None:
    path = tar(tmp_path / "a.tar.gz", member("first"), member("link", kind, linkname="/etc/passwd"))
    with pytest.raises(FileError, match=r"is not safe to unpack: 'link' is a (link|special file)"):
        unpack(path, tmp_path)
    assert list_files(tmp_path) == ["a.tar.gz"]


def test_a_link_in_a_zip_becomes_a_plain_file(tmp_path: Path) -> None:
    info = zipfile.ZipInfo("link")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(info, "/etc/passwd")
    unpack(tmp_path / "a.zip", tmp_path)
    assert not (tmp_path / "link").is_symlink()
    assert (tmp_path / "link").read_text() == "/etc/passwd"


def test_what_would_fill_the_disk_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()

    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("first", "x")
        archive.writestr("bomb", bytes(1 << 20))
    large = member("bomb")
    large.size = 1 << 20

    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=1 << 19))
    for path in (tmp_path / "a.zip", tar(tmp_path / "a.tar.gz", member("first"), large)):
        with pytest.raises(
            FileError, match=r"Cannot unpack .*: it needs 0\.0 GB, but only 0\.0 GB are free"
        ):
            unpack(path, home)
        assert list_files(home) == []


def test_links_and_files_in_the_way_are_replaced_and_what_they_lead_to_stays(
    tmp_path: Path,
) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    for folder in (home, elsewhere):
        folder.mkdir()
    (elsewhere / "mine").write_text("x")
    (home / "linked").symlink_to(elsewhere)
    (home / "plain").write_text("a file where a folder should be")
    unpack(tar(tmp_path / "a.tar.gz", member("linked/file"), member("plain/file")), home)
    assert [path.is_symlink() for path in sorted(home.iterdir())] == [False, False]
    assert (home / "linked" / "file").is_file()
    assert (home / "plain" / "file").is_file()
    assert list_files(elsewhere) == ["mine"]


def test_a_damaged_archive_leaves_nothing(tmp_path: Path) -> None:
    path = tar(tmp_path / "a.tar.gz", member("folder/file"), member("folder/other"))
    unpack(path, tmp_path)
    assert list_files(tmp_path) == ["a.tar.gz", "folder"]
    unpack(path, tmp_path)  # over what is there
    for damaged in (path.read_bytes()[:-30], b"no archive"):
        home = tmp_path / f"home{len(damaged)}"
        home.mkdir()
        path.write_bytes(damaged)
        with pytest.raises(FileError, match="is not a valid archive file"):
            unpack(path, home)
        assert list_files(home) == []
