"""Images of items: shown as what they are, and only from inside the campaign's folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.servers import make_image_campaign, serve_campaigns
from teeter.campaigns import Campaign

IMAGE = "/api/v1/campaigns/digits/image"


def test_an_image_that_cannot_be_read_says_so_and_has_no_prediction(tmp_path: Path) -> None:
    file = make_image_campaign(tmp_path / "digits.teeter", tmp_path / "digits", 12)
    (tmp_path / "digits" / "broken.png").write_text("not an image")
    campaign = Campaign.open(file)
    campaign.add([{"image": "broken.png"}])
    for question in campaign.ask(12):
        campaign.tell(question.item, "even" if int(question.item[:3]) % 2 == 0 else "odd")
    campaign.train()
    campaign.database.close()

    with serve_campaigns(file) as client:
        at = "/api/v1/campaigns/digits"
        listed = client.get(f"{at}/items", params={"state": "unreadable"}).json()["items"]
        assert [(row["item"], row["state"]) for row in listed] == [("broken.png", "unreadable")]
        assert client.get(f"{at}/item", params={"id": "broken.png"}).json()["state"] == "unreadable"
        assert client.get(f"{at}/progress").json()["status"]["unreadable"] == 1
        assert "unreadable" in client.get("/c/digits/find").text


def test_images_are_shown_as_what_they_are(tmp_path: Path) -> None:
    file = make_image_campaign(tmp_path / "digits.teeter", tmp_path / "digits", 12)
    with serve_campaigns(file) as client:
        response = client.get(f"{IMAGE}?id=003.png")
        assert response.headers["content-type"] == "image/png"
        assert response.headers["x-content-type-options"] == "nosniff"

        (tmp_path / "digits" / "004.png").write_text("<svg onload=alert(1)>")
        assert client.get(f"{IMAGE}?id=004.png").status_code == 422


@pytest.mark.parametrize(
    ("form", "media_type"),
    [
        ("PNG", "image/png"),
        ("JPEG", "image/jpeg"),
        ("GIF", "image/gif"),
        ("BMP", "image/bmp"),
        ("WEBP", "image/webp"),
        ("TIFF", "image/png"),
        ("PPM", None),
    ],
)
def test_the_type_follows_from_the_content(
    tmp_path: Path, form: str, media_type: str | None
) -> None:
    image_module = pytest.importorskip("PIL.Image")
    file = make_image_campaign(tmp_path / "digits.teeter", tmp_path / "digits", 6)
    with serve_campaigns(file) as client:
        image = image_module.new("RGB", (4, 4), "red")
        image.save(tmp_path / "digits" / "000.png", form)
        response = client.get(f"{IMAGE}?id=000.png")
        if media_type is None:
            assert response.status_code == 422
        else:
            assert response.headers["content-type"] == media_type


def test_no_file_outside_the_folder_is_shown(tmp_path: Path) -> None:
    file = make_image_campaign(tmp_path / "digits.teeter", tmp_path / "digits", 6)
    secret = tmp_path / "secret.png"
    secret.write_bytes((tmp_path / "digits" / "000.png").read_bytes())
    with serve_campaigns(file) as client:
        for item in ("../secret.png", str(secret), "digits/000.png", "000.png/../../secret.png"):
            assert client.get(IMAGE, params={"id": item}).status_code == 404

        (tmp_path / "digits" / "001.png").unlink()
        (tmp_path / "digits" / "001.png").symlink_to(secret)
        linked = client.get(IMAGE, params={"id": "001.png"})
        assert linked.status_code == 422, "a link that leads out"

        (tmp_path / "digits" / "002.png").unlink()
        assert client.get(IMAGE, params={"id": "002.png"}).status_code == 422
        assert client.get("/static/../app.py").status_code == 404
        assert client.get("/static/%2e%2e/app.py").status_code == 404


def test_the_paths_of_images_are_not_disclosed(tmp_path: Path) -> None:
    folder = tmp_path / "campaigns"
    folder.mkdir()
    scans = tmp_path / "scans"
    with serve_campaigns(make_image_campaign(folder / "digits.teeter", scans, 6)) as client:
        (scans / "003.png").unlink()
        missing = client.get(IMAGE, params={"id": "003.png"}).json()
        assert missing["detail"] == "There is no file 003.png."

        (scans / "003.png").symlink_to("/etc/hostname")
        linked = client.get(IMAGE, params={"id": "003.png"}).json()
        assert linked["detail"] == (
            "003.png is outside the campaign's folder scans: "
            "only files inside that folder are read."
        )

        workspace = client.app.state.workspace  # type: ignore[attr-defined]
        workspace.folder = Path("/")
        assert workspace.redact_paths("Spam and/or ham.") == "Spam and/or ham."
