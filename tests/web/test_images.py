"""Images of items: shown as what they are, and only from inside the campaign's folder."""

from __future__ import annotations

from pathlib import Path

from teeter.web.api import redact_paths
from web.servers import begin_images, served


def test_images_are_shown_as_what_they_are(tmp_path: Path) -> None:
    file = begin_images(tmp_path / "digits.teeter", tmp_path / "digits", 12)
    with served(file) as client:
        told = client.get("/api/v1/campaigns/digits/image?id=003.png")
        assert told.headers["content-type"] == "image/png"
        assert told.headers["x-content-type-options"] == "nosniff"
        (tmp_path / "digits" / "004.png").write_text("<svg onload=alert(1)>")
        assert client.get("/api/v1/campaigns/digits/image?id=004.png").status_code == 422


def test_images_are_given_out_by_item_and_never_from_outside(tmp_path: Path) -> None:
    file = begin_images(tmp_path / "digits.teeter", tmp_path / "digits", 6)
    secret = tmp_path / "secret.png"
    secret.write_bytes((tmp_path / "digits" / "000.png").read_bytes())
    with served(file) as client:
        at = "/api/v1/campaigns/digits/image"
        for key in ("../secret.png", str(secret), "digits/000.png", "000.png/../../secret.png"):
            assert client.get(at, params={"id": key}).status_code == 404
        (tmp_path / "digits" / "001.png").unlink()
        (tmp_path / "digits" / "001.png").symlink_to(secret)
        assert client.get(at, params={"id": "001.png"}).status_code == 422, "a link that leads out"
        (tmp_path / "digits" / "002.png").unlink()
        assert client.get(at, params={"id": "002.png"}).status_code == 422
        assert client.get("/static/../app.py").status_code == 404
        assert client.get("/static/%2e%2e/app.py").status_code == 404


def test_where_images_are_is_not_told(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    with served(begin_images(own / "digits.teeter", tmp_path / "scans", 6)) as client:
        (tmp_path / "scans" / "003.png").unlink()
        told = client.get("/api/v1/campaigns/digits/image", params={"id": "003.png"}).json()[
            "detail"
        ]
        assert told == "There is no file 003.png."
        (tmp_path / "scans" / "003.png").symlink_to("/etc/hostname")
        told = client.get("/api/v1/campaigns/digits/image", params={"id": "003.png"}).json()[
            "detail"
        ]
        assert (
            told
            == "003.png leads out of the campaign's folder scans: only files inside it are read."
        )
        site = client.app.state.site  # type: ignore[attr-defined]
        site.folder = Path("/")
        assert redact_paths(site, "Spam and/or ham.") == "Spam and/or ham."
