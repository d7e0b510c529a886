"""Pages of HTML: every one opens, and reports of benchmarks beside them."""

from __future__ import annotations

from pathlib import Path

from fastapi.testclient import TestClient

from web.labelled_campaigns import LabelledCampaign, label_items
from web.servers import serve_campaigns


def test_every_page_opens(labelled: LabelledCampaign) -> None:
    client = labelled.client
    for page in (
        "",
        "/second-look",
        "/progress",
        "/map",
        "/items",
        "/item?id=html",
        "/export",
        "/news",
    ):
        told = client.get(f"/c/texts{page}")
        assert told.status_code == 200, page
        assert "<script>alert" not in told.text
        assert "Read <b>all" not in told.text
    assert client.get("/c/nothing").status_code == 404
    assert client.get("/new").status_code == 200
    assert "t17" in client.get("/c/texts/items?search=17", headers={"hx-request": "true"}).text
    corrected = client.post("/c/texts/item", data={"id": "t1", "label": "ham"})
    assert corrected.status_code == 200
    assert "<b>ham</b>" in corrected.text


def test_reports_open_in_the_same_place(tmp_path: Path) -> None:
    report = tmp_path / "runs" / "digits" / "report"
    report.mkdir(parents=True)
    (report / "index.html").write_text("<h1>Found</h1><script>alert(1)</script>")
    (tmp_path / "secret.txt").write_text("secret")
    with serve_campaigns(folder=tmp_path) as client:
        assert "digits" in client.get("/").text
        told = client.get("/reports/runs-digits")
        assert "Found" in told.text
        assert "sandbox" in told.headers["content-security-policy"], "no script of it runs"
        for path in (
            "../../../secret.txt",
            "%2e%2e/%2e%2e/%2e%2e/secret.txt",
            "..%2f..%2f..%2fsecret.txt",
        ):
            assert client.get(f"/reports/runs-digits/{path}").status_code == 404


def test_going_back_has_the_whole_page(client: TestClient) -> None:
    restored = {"hx-request": "true", "hx-history-restore-request": "true"}
    for page in ("items?search=17", "progress"):
        assert "<html" in client.get(f"/c/texts/{page}", headers=restored).text
        assert "<html" not in client.get(f"/c/texts/{page}", headers={"hx-request": "true"}).text


def test_a_model_that_is_asked_for_is_told_of_at_once(client: TestClient) -> None:
    assert "two classes" in client.post("/c/texts/train").text
    label_items(client, 10)
    assert "asked for" in client.post("/c/texts/train").text


def test_a_report_shows_its_images_and_runs_no_script(tmp_path: Path) -> None:
    (tmp_path / "run" / "report").mkdir(parents=True)
    (tmp_path / "run" / "report" / "index.html").write_text(
        "<script>alert(1)</script><img src='curve.svg'>"
    )
    (tmp_path / "run" / "report" / "curve.svg").write_text(
        "<svg xmlns='http://www.w3.org/2000/svg'/>"
    )
    with serve_campaigns(folder=tmp_path) as client:
        for file in ("index.html", "curve.svg"):
            headers = client.get(f"/reports/run/{file}").headers
            policy = dict(
                one.strip().partition(" ")[::2]
                for one in headers["content-security-policy"].split(";")
            )
            assert policy["sandbox"] == "allow-same-origin", (
                "or images beside it would be another site's"
            )
            assert policy["default-src"] == "'none'"
            assert not {one for one in policy if one.startswith("script-src")}
            assert "'self'" in policy["img-src"]
            assert headers["cross-origin-resource-policy"] == "same-origin"
