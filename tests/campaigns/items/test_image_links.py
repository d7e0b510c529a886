"""Images by link: fetched once, checked, and never from the server's own network unasked."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from PIL import Image

from teeter.base import outbound_http
from teeter.campaigns import Campaign, Settings
from teeter.campaigns.items.image_links import ImageFetcher, replace_image_links
from teeter.campaigns.items.read_items import read_items
from teeter.campaigns.records import ItemColumns
from teeter.errors import FileError, InputError, PermissionDeniedError, ServerError


def make_png(shade: int) -> bytes:
    file = io.BytesIO()
    Image.new("L", (8, 8), shade).save(file, "PNG")
    return file.getvalue()


class ImageServer:
    """A server on loopback with images, a page, a redirect and something large."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.origin = ""

    def answer(self, path: str) -> tuple[int, bytes, str | None]:
        self.requests.append(path)

        if path.startswith("/image"):
            return 200, make_png(int(path.removeprefix("/image"))), None
        if path == "/page":
            return 200, b"<html><script>alert(1)</script>", None
        if path == "/large":
            return 200, make_png(1) + bytes(100_000), None
        if path == "/moved":
            return 302, b"", "/image7"
        if path == "/inside":
            return 302, b"", "http://10.0.0.1/secret.png"
        return 404, b"", None


@contextmanager
def running_images() -> Iterator[ImageServer]:
    images = ImageServer()

    class ImageHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body, location = images.answer(self.path)
            self.send_response(status)
            if location is not None:
                self.send_header("location", location)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), ImageHandler)
    images.origin = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield images
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def images() -> Iterator[ImageServer]:
    with running_images() as server:
        yield server


def test_a_table_of_links_and_paths_becomes_a_campaign_of_images(
    images: ImageServer, tmp_path: Path
) -> None:
    (tmp_path / "local.png").write_bytes(make_png(200))
    source = tmp_path / "photos.csv"
    lines = [f"p{k},{images.origin}/image{k},shop {k}" for k in range(6)]
    lines += ["here,local.png,shop", f"gone,{images.origin}/lost,shop"]
    source.write_text("\n".join(["id,photo,customer", *lines]) + "\n")
    fetcher = ImageFetcher(tmp_path, allow_private=True)

    items = read_items(source, ItemColumns(image="photo"), folder=tmp_path, fetcher=fetcher)

    settings = Settings(kind="image", folder=str(tmp_path), encoder="pixels", show=["customer"])
    campaign = Campaign.make(
        items, ["cat", "dog"], at=tmp_path / "photos.teeter", settings=settings
    )
    assert campaign.imported.new == 7
    assert list(fetcher.errors.values()) == [f"{images.origin}/lost answers with status 404."]
    assert campaign.items.row("p3")["photo"] == f"{images.origin}/image3"
    assert campaign.items.shown_columns(["p3"]) == {"p3": {"customer": "shop 3"}}

    asked = len(images.requests)
    again = ImageFetcher(tmp_path, allow_private=True)
    read_items(source, ItemColumns(image="photo"), folder=tmp_path, fetcher=again)
    assert images.requests[asked:] == ["/lost"], "the others are on disk already"


def test_links_can_be_added_with_their_ids(images: ImageServer, tmp_path: Path) -> None:
    fetcher = ImageFetcher(tmp_path, allow_private=True)
    link = f"{images.origin}/image1"

    entries = replace_image_links([link, ("a", link), {"image": link, "n": 1}, "b.png"], fetcher)

    path = fetcher.fetch(link)
    assert entries[:3] == [
        {"id": link, "link": link, "image": path},
        {"id": "a", "link": link, "image": path},
        {"id": link, "link": link, "image": path, "n": 1},
    ]
    assert entries[3] == "b.png"
    assert (tmp_path / path).read_bytes() == make_png(1)


def test_a_link_that_fails_leaves_out_its_own_item_only(
    images: ImageServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(kind="image", folder=str(tmp_path))
    campaign = Campaign.make([], ("a", "b"), at=tmp_path / "c.teeter", settings=settings)
    make_fetcher = partial(ImageFetcher, allow_private=True)
    monkeypatch.setattr("teeter.campaigns.campaign.ImageFetcher", make_fetcher)
    lost = f"{images.origin}/lost"

    links = [f"{images.origin}/image1", lost, ("x", f"{images.origin}/image2")]
    result = campaign.add(links, encode_now=False)

    assert result.new == 2
    ((link, reason),) = result.failed_items
    assert link == lost
    assert "answers with status 404" in reason
    assert campaign.add([lost], encode_now=False).new == 0


def test_what_is_fetched_must_be_an_image_of_a_size(images: ImageServer, tmp_path: Path) -> None:
    fetcher = ImageFetcher(tmp_path, allow_private=True, max_bytes=10_000)

    with pytest.raises(FileError, match="/page is not an image in a known format"):
        fetcher.fetch(f"{images.origin}/page")
    with pytest.raises(ServerError, match="more than 10,000 bytes"):
        fetcher.fetch(f"{images.origin}/large")
    assert fetcher.fetch(f"{images.origin}/moved").endswith(".png")
    assert len(list(tmp_path.rglob("*.*"))) == 1


def test_a_private_address_is_not_fetched(images: ImageServer, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"127\.0\.0\.1, which is not public"):
        ImageFetcher(tmp_path).fetch(f"{images.origin}/image1")
    assert images.requests == []


def test_a_redirect_to_a_private_address_is_not_followed(
    images: ImageServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The server of the test stands for a public one.
    monkeypatch.setattr(outbound_http, "_is_public", lambda address: str(address) == "127.0.0.1")

    with pytest.raises(InputError, match=r"10\.0\.0\.1, which is not public"):
        ImageFetcher(tmp_path).fetch(f"{images.origin}/inside")
    assert images.requests == ["/inside"]


def test_a_name_that_changes_its_address_between_check_and_use_gains_nothing(
    images: ImageServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([["127.0.0.1"], ["10.0.0.1"]])

    def resolve(_: str, __: int) -> Sequence[str]:
        return next(answers)

    # 127.0.0.1 stands for the public address that the first answer names.
    monkeypatch.setattr(outbound_http, "_is_public", lambda address: str(address) == "127.0.0.1")
    link = images.origin.replace("127.0.0.1", "rebind.test") + "/image5"

    path = ImageFetcher(tmp_path, resolve=resolve).fetch(link)

    assert (tmp_path / path).read_bytes() == make_png(5), "from the address that was checked"
    assert next(answers) == ["10.0.0.1"], "the name was resolved once"


def test_stores_are_read_with_credentials_and_so_only_for_their_owner(tmp_path: Path) -> None:
    with pytest.raises(PermissionDeniedError, match="with the server's credentials"):
        ImageFetcher(tmp_path).fetch("s3://bucket/cat.png")


@pytest.mark.slow
def test_images_in_an_s3_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = pytest.importorskip("moto.server")
    s3fs = pytest.importorskip("s3fs")
    running = server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    running.start()
    try:
        host, port = running.get_host_and_port()
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "test")
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        store = s3fs.S3FileSystem()
        store.mkdir("photos")
        for number in range(3):
            store.pipe(f"photos/deep/{number}.png", make_png(number))

        source = tmp_path / "photos.csv"
        rows = [f"s3://photos/deep/{number}.png" for number in range(4)]
        source.write_text("photo\n" + "\n".join(rows) + "\n")
        fetcher = ImageFetcher(tmp_path, allow_stores=True)
        items = read_items(source, ItemColumns(image="photo"), folder=tmp_path, fetcher=fetcher)
    finally:
        running.stop()

    assert [item.key for item in items] == rows[:3]
    assert list(fetcher.errors) == ["s3://photos/deep/3.png"]
    assert (tmp_path / str(items[2].content)).read_bytes() == make_png(2)


def test_all_links_together_have_a_limit_of_time(images: ImageServer, tmp_path: Path) -> None:
    fetcher = ImageFetcher(tmp_path, allow_private=True, max_seconds=0.0)

    assert fetcher.fetch_all([f"{images.origin}/image1"]) == {}

    (error,) = fetcher.errors.values()
    assert "all links together took more than 0 seconds" in error
    assert images.requests == []
