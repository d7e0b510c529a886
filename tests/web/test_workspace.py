"""What a server has: campaigns of a folder that come, go or cannot be read, and jobs in the background."""

from __future__ import annotations

from pathlib import Path

import pytest

from web.labelled_campaigns import AT
from web.servers import make_image_campaign, make_text_campaign, serve_campaigns


def test_a_file_that_is_no_campaign_does_not_stop_the_others(tmp_path: Path) -> None:
    make_text_campaign(tmp_path / "texts.teeter")
    (tmp_path / "broken.teeter").write_bytes(
        b"not a database at all, and long enough to look at " * 20
    )
    with serve_campaigns(folder=tmp_path) as client:
        assert [one["slug"] for one in client.get("/api/v1/campaigns").json()] == ["texts"]
        assert "broken.teeter" in client.get("/").text


def test_a_campaign_of_the_folder_that_is_gone_is_not_listed(tmp_path: Path) -> None:
    make_text_campaign(tmp_path / "one.teeter", 5)
    make_text_campaign(tmp_path / "two.teeter", 5)
    with serve_campaigns(folder=tmp_path) as client:
        assert len(client.get("/api/v1/campaigns").json()) == 2
        for path in tmp_path.glob("two.teeter*"):
            path.unlink()
        assert [one["slug"] for one in client.get("/api/v1/campaigns").json()] == ["one"]
        make_text_campaign(tmp_path / "two.teeter", 7)
        assert "8 items labelled" in client.get("/").text
        assert client.get("/c/two").status_code == 200


def test_where_files_are_is_not_told(tmp_path: Path) -> None:
    make_text_campaign(tmp_path / "texts.teeter", 5)
    (tmp_path / "broken.teeter").write_bytes(
        b"not a database at all, and long enough to look at " * 20
    )
    with serve_campaigns(folder=tmp_path) as client:
        assert str(tmp_path) not in client.get("/").text
        (tmp_path / "texts.teeter").rename(tmp_path / "away")
        assert str(tmp_path) not in client.get(AT).text


def test_maps_and_suspects_are_no_jobs_for_whoever_guesses_their_names(tmp_path: Path) -> None:
    with serve_campaigns(make_text_campaign(tmp_path / "texts.teeter", 30)) as client:
        assert client.get(f"{AT}/suspects").json()["state"] == "done"
        for _ in range(2):
            client.get(f"{AT}/map")
        for name in ("suspects texts", "map pca texts", "map pca texts next"):
            assert client.get(f"/api/v1/jobs/{name}").status_code == 404


def test_a_campaign_that_is_damaged_while_it_is_served_holds_up_no_other(tmp_path: Path) -> None:
    make_text_campaign(tmp_path / "texts.teeter", 30)
    damaged = make_text_campaign(tmp_path / "worse.teeter", 30)
    with serve_campaigns(folder=tmp_path) as client:
        site = client.app.state.workspace  # type: ignore[attr-defined]
        assert [one["name"] for one in client.get("/api/v1/campaigns").json()] == ["texts", "worse"]
        whole = damaged.read_bytes()
        damaged.write_bytes(whole[:100] + b"\xff" * (len(whole) - 100))
        site.services["worse"].close()
        site.campaign_tokens.refresh()
        assert client.get("/api/v1/campaigns/worse").status_code == 503
        assert [one["name"] for one in client.get("/api/v1/campaigns").json()] == ["texts"]
        page = client.get("/").text
        assert "worse could not be opened. worse.teeter is damaged" in page
        assert str(tmp_path) not in page
        assert client.post(f"{AT}/answers", json={"item": "t1", "label": "ham"}).status_code == 200


@pytest.mark.parametrize("name", ["../up", "a/b", "/etc/x", "..", "", "a\0b", "x" * 81, ".hidden"])
def test_a_campaign_s_name_leads_nowhere_else(tmp_path: Path, name: str) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    with serve_campaigns(folder=inside) as client:
        told = client.post(
            "/api/v1/campaigns",
            data={"name": name, "classes": "a,b"},
            files={"file": ("a.csv", "text\none\ntwo\n")},
        )
        assert told.status_code == 422
    assert [path for path in tmp_path.rglob("*") if path != inside] == []


@pytest.mark.parametrize("folder", ["..", "../other", "/etc", ".", "link", "nothing", "a\0"])
def test_images_come_from_inside_the_folder_alone(tmp_path: Path, folder: str) -> None:
    inside, other = tmp_path / "inside", tmp_path / "other"
    inside.mkdir()
    make_image_campaign(tmp_path / "x.teeter", other, 4)
    (inside / "link").symlink_to(other)
    with serve_campaigns(folder=inside) as client:
        told = client.post(
            "/api/v1/campaigns", data={"name": "a", "classes": "a,b", "folder": folder}
        )
        assert told.status_code == 422
