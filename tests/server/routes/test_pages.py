"""The pages: all of them open, and so do benchmark reports."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import pytest
from fastapi.testclient import TestClient

from server.labelled_campaigns import LabelledCampaign, label_items
from server.servers import serve_campaigns
from teeter.campaigns import Campaign
from teeter.campaigns.export import formats, parquet_rows
from teeter.campaigns.shortcuts import action_keys

PAGES = ("", "/review", "/progress", "/map", "/items", "/item?id=html", "/export", "/news")


@pytest.mark.parametrize("page", PAGES)
def test_every_page_opens(labelled: LabelledCampaign, page: str) -> None:
    response = labelled.client.get(f"/c/texts{page}")
    assert response.status_code == 200
    assert "<script>alert" not in response.text
    assert "Read <b>all" not in response.text


def test_an_item_is_withdrawn_and_a_class_renamed_on_their_pages(client: TestClient) -> None:
    csrf = {"csrf": client.headers["x-csrf-token"]}
    assert 'action="/c/texts/item/withdraw"' in client.get("/c/texts/item?id=t1").text

    page = client.post("/c/texts/item/withdraw", data={**csrf, "id": "t1"}).text
    assert "This item was withdrawn" in page
    assert 'action="/c/texts/item/put-back"' in page
    assert "t1" in client.get("/c/texts/items?state=withdrawn").text
    page = client.post("/c/texts/item/put-back", data={**csrf, "id": "t1"}).text
    assert "This item was withdrawn" not in page

    form = {**csrf, "name": "spam", "new_name": "<ads>"}
    page = client.post("/c/texts/classes/rename", data=form).text
    assert "spam is called &lt;ads&gt; now." in page
    taken = client.post("/c/texts/classes/rename", data={**form, "name": "ham"})
    assert taken.status_code == 422
    assert "Cannot rename" in taken.text


def find_action_keys(page: str) -> dict[str, str]:
    """Return the key of each action button of the labelling page."""
    return dict(re.findall(r'data-do="(\w+)" data-key="([^"]+)"', page))


def test_the_buttons_have_the_keys_of_the_terminal(client: TestClient) -> None:
    keys = {str(action): key for action, key in action_keys().items()}
    del keys["stop"]
    assert find_action_keys(client.get("/c/texts/review").text) == keys

    page = client.get("/c/texts").text
    assert find_action_keys(page) == {name: key for name, key in keys.items() if name != "keep"}
    assert "<kbd>Space</kbd> Skip" in page
    assert "data-always" not in page


def test_with_more_classes_than_keys_actions_have_capitals(tmp_path: Path) -> None:
    path = tmp_path / "many.teeter"
    Campaign.make(
        ["one", "two"], [f"class {number}" for number in range(34)], at=path
    ).database.close()
    with serve_campaigns(path) as client:
        page = client.get("/c/many").text
    keys = find_action_keys(page)
    assert (keys["unsure"], keys["flag"], keys["undo"]) == ("U", "F", "Backspace")
    assert "<kbd>Shift U</kbd> Unsure" in page
    assert "data-always" in page


def test_two_browsers_that_answer_as_me_are_told(client: TestClient) -> None:
    warning = "Another browser has opened this page as me in the last hour."
    assert warning not in client.get("/c/texts").text
    assert warning not in client.get("/c/texts").text

    first_cookies = dict(client.cookies)
    client.cookies.clear()
    second = client.get("/c/texts").text
    assert warning in second
    assert "choose your own name at the top right" in second

    client.cookies.clear()
    client.cookies.update(first_cookies)
    assert warning in client.get("/c/texts").text


def test_the_form_for_a_new_campaign_opens_and_an_unknown_campaign_does_not(
    client: TestClient,
) -> None:
    assert client.get("/new").status_code == 200
    assert client.get("/c/nothing").status_code == 404


def test_an_item_is_answered_on_its_page(client: TestClient) -> None:
    answered = client.post("/c/texts/item", data={"id": "t1", "label": "ham"})
    assert answered.status_code == 200
    assert "<b>ham</b>" in answered.text
    flagged = client.post("/c/texts/item", data={"id": "t1", "kind": "flag"})
    assert "<b>flag</b>" in flagged.text
    assert client.post("/c/texts/item", data={"id": "t1", "kind": "shout"}).status_code == 422
    assert client.post("/c/texts/item", data={"id": "lost", "label": "ham"}).status_code == 404


def find_link(page: str, direction: str) -> str | None:
    """Return the address of the next or previous page of a table."""
    match = re.search(rf'href="([^"]*)" rel="{direction}"', page)
    return None if match is None else match[1].replace("&amp;", "&")


def test_the_table_of_items_is_paged_forwards_and_backwards(client: TestClient) -> None:
    first = client.get("/c/texts/items?search=number&state=unlabelled").text
    assert find_link(first, "prev") is None
    second_link = find_link(first, "next")
    assert second_link is not None
    query = parse_qs(urlparse(second_link).query)
    assert (query["search"], query["state"]) == (["number"], ["unlabelled"])

    second = client.get(second_link).text
    third_link = find_link(second, "next")
    assert third_link is not None
    third = client.get(third_link).text
    assert find_link(third, "next") is None, "120 texts fill two pages and a part of the third"

    back = find_link(third, "prev")
    assert back is not None
    page = client.get(back).text
    assert re.findall(r'<span class="id">(\w+)', page) == re.findall(
        r'<span class="id">(\w+)', second
    )
    assert find_link(page, "next") is not None
    first_link = find_link(page, "prev")
    assert first_link is not None
    assert find_link(client.get(first_link).text, "next") is not None


def test_the_export_page_explains_every_format(client: TestClient) -> None:
    page = client.get("/c/texts/export").text
    assert "/c/texts/export/file?form=spreadsheet" in page
    assert "safe to open in a spreadsheet" in page
    assert "every value unchanged, for programs" in page


def test_the_export_page_offers_only_formats_that_work(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered = {"csv", "spreadsheet", "jsonl", "prodigy", "doccano", "label-studio"}
    monkeypatch.setattr(formats, "find_spec", lambda _: None)
    monkeypatch.setattr(parquet_rows, "find_spec", lambda _: None)

    page = client.get("/c/texts/export").text
    assert set(re.findall("export/file.form=([a-z-]+)", page)) == offered
    assert "Writing Parquet needs pyarrow: pip install" in page
    assert "The format image-folder is only for images" in page
    assert "cleanlab needs labels of two or more classes: label some items first." in page

    monkeypatch.undo()
    for item, label in (("t1", "ham"), ("t2", "spam")):
        client.post("/api/v1/campaigns/texts/answers", json={"item": item, "label": label})
    assert "export/file?form=cleanlab" in client.get("/c/texts/export").text


def test_a_download_that_fails_says_why_on_a_page(client: TestClient) -> None:
    works = client.get("/c/texts/export/file?form=csv")
    assert works.headers["content-disposition"] == 'attachment; filename="texts-csv.csv"'

    fails = client.get("/c/texts/export/file?form=cleanlab")
    assert fails.status_code == 422
    assert fails.headers["content-type"].startswith("text/html")
    assert "cleanlab needs labels of two or more classes: label some items first." in fails.text


def test_reports_open_and_nothing_outside_them(tmp_path: Path) -> None:
    report = tmp_path / "runs" / "digits" / "report"
    report.mkdir(parents=True)
    (report / "index.html").write_text("<h1>Found</h1><script>alert(1)</script>")
    (tmp_path / "secret.txt").write_text("secret")

    with serve_campaigns(folder=tmp_path) as client:
        assert "digits" in client.get("/").text
        response = client.get("/reports/runs-digits")
        assert "Found" in response.text
        assert "sandbox" in response.headers["content-security-policy"], "no script of it runs"

        for path in (
            "../../../secret.txt",
            "%2e%2e/%2e%2e/%2e%2e/secret.txt",
            "..%2f..%2f..%2fsecret.txt",
            "nul%00.txt",
        ):
            assert client.get(f"/reports/runs-digits/{path}").status_code == 404


def test_going_back_in_the_history_loads_the_whole_page(client: TestClient) -> None:
    restored = {"hx-request": "true", "hx-history-restore-request": "true"}
    for page in ("items?search=17", "progress"):
        assert "<html" in client.get(f"/c/texts/{page}", headers=restored).text
        part = client.get(f"/c/texts/{page}", headers={"hx-request": "true"}).text
        assert "<html" not in part
    assert "t17" in client.get("/c/texts/items?search=17", headers={"hx-request": "true"}).text


def test_training_on_demand_answers_with_a_sentence(client: TestClient) -> None:
    assert "two classes" in client.post("/c/texts/train").text
    label_items(client, 10)
    assert "is being trained" in client.post("/c/texts/train").text


def test_a_report_shows_its_images_and_runs_no_script(tmp_path: Path) -> None:
    report = tmp_path / "run" / "report"
    report.mkdir(parents=True)
    (report / "index.html").write_text("<script>alert(1)</script><img src='curve.svg'>")
    (report / "curve.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")

    with serve_campaigns(folder=tmp_path) as client:
        for file in ("index.html", "curve.svg"):
            headers = client.get(f"/reports/run/{file}").headers
            policy = {}
            for directive in headers["content-security-policy"].split(";"):
                name, _, value = directive.strip().partition(" ")
                policy[name] = value

            assert policy["sandbox"] == "allow-same-origin", (
                "or its images would be of another site"
            )
            assert policy["default-src"] == "'none'"
            assert not [name for name in policy if name.startswith("script-src")]
            assert "'self'" in policy["img-src"]
            assert headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.slow
def test_the_encoder_is_switched_on_the_page_of_progress(labelled: LabelledCampaign) -> None:
    page = labelled.client.get("/c/texts/progress").text
    assert "<option selected>tfidf</option>" in page
    assert "<option >pixels</option>" not in page, "these items are texts"

    response = labelled.client.post("/c/texts/encode", data={"encoder": "tfidf+tfidf"})
    assert "being encoded in the background" in response.text

    page = labelled.client.get("/c/texts/progress").text
    assert "With tfidf+tfidf, models correctly predict" in page
    assert "The encoder is <b>tfidf+tfidf</b>." in page


def test_a_server_encodes_the_items_that_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("teeter.campaigns.campaign.ENOUGH_TO_BEGIN", 5)
    monkeypatch.setattr("teeter.campaigns.learning.encoding._FIRST_PART", {"text": 10})
    path = tmp_path / "texts.teeter"
    texts = [f"text number {k}" for k in range(40)]
    Campaign.make(texts, ("a", "b"), at=path, encode_all=False).database.close()

    with serve_campaigns(path) as client:
        assert "30 items are not encoded yet." in client.get("/c/texts/progress").text
        assert "when all items are encoded" in client.post("/c/texts/train").text
        client.app.state.workspace.warm_up([path])  # type: ignore[attr-defined]
        assert "not encoded yet" not in client.get("/c/texts/progress").text


def test_the_form_for_a_new_campaign_says_what_auto_is(tmp_path: Path) -> None:
    with serve_campaigns(folder=tmp_path) as client:
        page = client.get("/new").text

    assert "<option selected>auto</option>" in page
    assert (
        "With auto: The encoder is tfidf, as set by TEETER_ENCODER. The encoder is pixels" in page
    )


def test_an_encoder_that_runs_code_is_refused_on_the_page(client: TestClient) -> None:
    for name in ("os:system", "http://127.0.0.1/v1#m"):
        assert client.post("/c/texts/encode", data={"encoder": name}).status_code == 422
        refused = client.post("/api/v1/campaigns/texts/encode", json={"encoder": name})
        assert refused.status_code == 422
        assert "The page does not offer the encoder" in refused.json()["detail"]


def test_an_encoding_is_a_job_with_a_result(client: TestClient) -> None:
    started = client.post("/api/v1/campaigns/texts/encode", json={"encoder": "tfidf+tfidf"})
    assert started.status_code == 202

    job = client.get(f"/api/v1/jobs/{started.json()['job']}").json()

    assert job["state"] == "done"
    result = job["result"]
    assert (result["encoder"], result["encoded"], result["unreadable"]) == ("tfidf+tfidf", 121, 0)
    assert (result["is_switch"], result["unencoded"]) == (True, 0)


def test_a_form_has_no_page(client: TestClient) -> None:
    form = client.get("/logout")

    assert form.status_code == 405
    assert "<h1>Not a page</h1>" in form.text
    assert "does not answer to GET" in form.text
