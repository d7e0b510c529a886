"""A server's campaigns, which may come, go or be damaged, its folder and its background jobs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient

from server.labelled_campaigns import (
    AT,
)
from server.servers import (
    make_image_campaign,
    make_text_campaign,
    serve_campaigns,
)
from teeter.campaigns.records import (
    EncodingResult,
    ImportResult,
)
from teeter.server.worker.background import DRAW_MAP, FIND_SUSPECTS, MapKind
from teeter.server.workspace import Workspace, _MapDrawings, make_slug

DAMAGED = b"not a database at all, and long enough to look at " * 20


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("ünï", "uni"),
        ("Straße 1", "strasse-1"),
        ("ﬁne", "fine"),
        ("标注", "campaign"),
    ],
)
def test_slugs_consist_of_letters_digits_and_hyphens(name: str, slug: str) -> None:
    assert make_slug(name, taken=[]) == slug


def test_a_slug_that_is_taken_gets_a_number() -> None:
    assert make_slug("uni", taken=["uni"]) == "uni-2"
    assert make_slug("uni", taken=["uni", "uni-2"]) == "uni-3"


def list_campaigns(client: TestClient) -> list[str]:
    return [campaign["name"] for campaign in client.get("/api/v1/campaigns").json()]


def test_a_file_that_is_not_a_campaign_does_not_stop_the_others(tmp_path: Path) -> None:
    make_text_campaign(tmp_path / "texts.teeter")
    (tmp_path / "broken.teeter").write_bytes(DAMAGED)
    with serve_campaigns(folder=tmp_path) as client:
        assert list_campaigns(client) == ["texts"]
        assert "broken.teeter" in client.get("/").text


def test_a_campaign_whose_file_is_gone_is_not_listed(tmp_path: Path) -> None:
    make_text_campaign(tmp_path / "one.teeter", 5)
    make_text_campaign(tmp_path / "two.teeter", 5)
    with serve_campaigns(folder=tmp_path) as client:
        assert list_campaigns(client) == ["one", "two"]

        for path in tmp_path.glob("two.teeter*"):
            path.unlink()
        assert list_campaigns(client) == ["one"]

        make_text_campaign(tmp_path / "two.teeter", 7)
        assert "8 items labelled" in client.get("/").text
        assert client.get("/c/two").status_code == 200


def test_paths_of_campaigns_are_not_disclosed(tmp_path: Path) -> None:
    make_text_campaign(tmp_path / "texts.teeter", 5)
    (tmp_path / "broken.teeter").write_bytes(DAMAGED)
    with serve_campaigns(folder=tmp_path) as client:
        assert str(tmp_path) not in client.get("/").text
        (tmp_path / "texts.teeter").rename(tmp_path / "away")
        assert str(tmp_path) not in client.get(AT).text


@pytest.mark.parametrize("path", [f"{AT}/suspects", f"{AT}/map"])
def test_failed_background_work_does_not_disclose_paths(tmp_path: Path, path: str) -> None:
    file = make_text_campaign(tmp_path / "texts.teeter", 30)
    with serve_campaigns(file) as client:
        workspace: Workspace = client.app.state.workspace  # type: ignore[attr-defined]
        missing = str(tmp_path / "gone.teeter")
        drawing = workspace.trainer.submit(
            DRAW_MAP, missing, kind=MapKind.PCA, folder=str(tmp_path)
        )
        search = workspace.trainer.submit(FIND_SUSPECTS, missing, count=3)
        assert str(tmp_path) in str(drawing.exception())
        workspace._drawings[str(file), MapKind.PCA] = _MapDrawings(current=drawing)
        workspace._searches[str(file)] = search

        status = client.get(path).json()
        assert status["state"] == "failed"
        assert "gone.teeter" in status["detail"]
        assert str(tmp_path) not in status["detail"]


def test_maps_and_suspects_are_not_found_by_guessing_job_ids(tmp_path: Path) -> None:
    with serve_campaigns(make_text_campaign(tmp_path / "texts.teeter", 30)) as client:
        assert client.get(f"{AT}/suspects").json()["state"] == "done"
        for _ in range(2):
            client.get(f"{AT}/map")
        for job_id in ("suspects texts", "map pca texts", "map pca texts next", "texts"):
            assert client.get(f"/api/v1/jobs/{job_id}").status_code == 404


def test_a_map_is_drawn_again_after_items_are_withdrawn(tmp_path: Path) -> None:
    with serve_campaigns(make_text_campaign(tmp_path / "texts.teeter", 30)) as client:
        client.get(f"{AT}/map")
        client.get(f"{AT}/map")
        client.post(f"{AT}/items/withdraw", json={"items": ["t3"]})

        client.get(f"{AT}/map")  # has it drawn
        content = client.get(f"{AT}/map").content
        (count,) = np.frombuffer(content[:4], "<i4")
        x = np.frombuffer(content, "<f4", count, 4)
        assert np.flatnonzero(np.isnan(x)).tolist() == [3]


def test_a_campaign_that_is_damaged_while_it_is_served_does_not_stop_others(
    tmp_path: Path,
) -> None:
    make_text_campaign(tmp_path / "texts.teeter", 30)
    damaged = make_text_campaign(tmp_path / "worse.teeter", 30)
    with serve_campaigns(folder=tmp_path) as client:
        workspace = client.app.state.workspace  # type: ignore[attr-defined]
        assert list_campaigns(client) == ["texts", "worse"]

        content = damaged.read_bytes()
        damaged.write_bytes(content[:100] + b"\xff" * (len(content) - 100))
        workspace.campaigns["worse"].database.close()
        workspace.campaign_tokens.refresh()

        assert client.get("/api/v1/campaigns/worse").status_code == 503
        assert list_campaigns(client) == ["texts"]
        page = client.get("/").text
        assert "worse could not be opened. worse.teeter is damaged" in page
        assert str(tmp_path) not in page
        assert client.post(f"{AT}/answers", json={"item": "t1", "label": "ham"}).status_code == 200


@pytest.mark.parametrize("name", ["../up", "a/b", "/etc/x", "..", "", "a\0b", "x" * 81, ".hidden"])
def test_the_name_of_a_campaign_does_not_lead_out_of_the_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "inside"
    folder.mkdir()
    with serve_campaigns(folder=folder) as client:
        response = client.post(
            "/api/v1/campaigns",
            data={"name": name, "classes": "a,b"},
            files={"file": ("a.csv", "text\none\ntwo\n")},
        )
        assert response.status_code == 422
    assert [path for path in tmp_path.rglob("*") if path != folder] == []


@pytest.mark.parametrize("name", ["..", "../other", "/etc", ".", "link", "nothing", "a\0"])
def test_images_are_taken_from_inside_the_folder_only(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "inside"
    folder.mkdir()
    other = tmp_path / "other"
    make_image_campaign(tmp_path / "x.teeter", other, 4)
    (folder / "link").symlink_to(other)

    with serve_campaigns(folder=folder) as client:
        data = {"name": "a", "classes": "a,b", "folder": name}
        assert client.post("/api/v1/campaigns", data=data).status_code == 422


def test_an_import_leaves_the_server_without_the_places_of_files(tmp_path: Path) -> None:
    make_text_campaign(tmp_path / "texts.teeter", 30)
    reason = f"There is no file {tmp_path}/a.png."
    encoding = EncodingResult("pixels", encoded=1, unreadable=1, unreadable_items={"a": reason})
    link = "https://example.org/b.png"
    result = ImportResult(failed=1, failed_items=((link, reason),), encoding=encoding)

    with serve_campaigns(folder=tmp_path) as client:
        workspace = client.app.state.workspace  # type: ignore[attr-defined]
        redacted = workspace.redact_import(result)

    assert redacted.failed_items == ((link, "There is no file a.png."),)
    assert redacted.encoding.unreadable_items == {"a": "There is no file a.png."}


def test_lists_of_a_large_import_are_cut_and_their_number_stays() -> None:
    duplicates = tuple((f"n{k}", "t1") for k in range(1500))
    errors = {f"https://example.org/{k}": "lost" for k in range(1200)}
    result = ImportResult(duplicates=1500, duplicate_items=duplicates).with_failed(errors)

    shortened = result.shortened()

    assert (shortened.duplicates, len(shortened.duplicate_items)) == (1500, 1000)
    assert (shortened.failed, len(shortened.failed_items)) == (1200, 1000)
