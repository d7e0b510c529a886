"""The REST interface: questions, answers, corrections, tables, maps, exports and new campaigns."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient

from teeter.campaigns.campaign import Campaign, Settings
from teeter.web import api
from teeter.web.worker import Trainer
from web.servers import HARMFUL, begin, begin_images, served, text

AT = "/api/v1/campaigns/texts"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return begin(tmp_path / "texts.teeter", instructions="Read <b>all</b> of it.")


@pytest.fixture
def client(file: Path) -> Iterator[TestClient]:
    with served(file) as made:
        yield made


def truth(item: str) -> str:
    return "ham" if item == "html" or int(item[1:]) % 2 else "spam"


def asked(client: TestClient, n: int = 20) -> list[dict[str, object]]:
    client.get(f"{AT}/questions")  # nothing waits before the first look
    found: list[dict[str, object]] = client.get(f"{AT}/questions", params={"n": n}).json()["questions"]
    return found


def label(client: TestClient, count: int) -> list[str]:
    items: list[str] = []
    while len(items) < count:
        for one in asked(client)[: count - len(items)]:
            item = str(one["item"])
            told = client.post(f"{AT}/answers", json={"item": item, "label": truth(item)})
            assert told.status_code == 200
            assert told.json()["stored"]
            items.append(item)
    return items


def test_questions_wait_and_answers_stay(client: TestClient, file: Path) -> None:
    items = label(client, 45)
    assert len(set(items)) == 45
    campaign = Campaign.open(file)
    assert campaign.status().labelled == 45
    assert campaign.status().version >= 2, "a model was trained on the way"
    campaign.store.close()
    told = client.get(AT).json()
    assert (told["labelled"], told["items"]) == (45, 121)
    assert [one["key"] for one in told["classes"]] == ["1", "2"]


def test_a_question_says_why(client: TestClient) -> None:
    label(client, 40)
    by_arm = {}
    for one in asked(client, 30):
        by_arm.setdefault(one["arm"], one)
    one = by_arm["picked"]
    assert {"ldm", "rank", "predicted", "probability"} <= set(one)
    assert abs(sum(share for _, share in one["probabilities"]) - 1) < 0.01
    assert {near["label"] for near in one["neighbours"]} <= {"spam", "ham"}
    assert len(one["neighbours"]) == 3


def test_the_last_answers_can_be_corrected_and_taken_back(client: TestClient) -> None:
    items = label(client, 3)
    client.post(f"{AT}/answers", json={"item": items[0], "kind": "unsure", "comment": "who knows"})
    last = client.get(f"{AT}/answers").json()
    assert [(one["item"], one["said"]) for one in last][:2] == [(items[0], "unsure"), (items[2], truth(items[2]))]
    assert last[0]["comment"] == "who knows"
    undone = client.post(f"{AT}/undo", json={}).json()["undone"]
    assert (undone["item"], undone["said"], undone["before"]) == (items[0], "unsure", truth(items[0]))
    assert client.post(f"{AT}/undo", json={"item": "t77"}).json()["undone"] is None, "only if it is the newest"


def test_the_same_answer_sent_twice_is_one(client: TestClient, file: Path) -> None:
    (item,) = label(client, 1)
    again = client.post(f"{AT}/answers", json={"item": item, "label": truth(item)})
    assert again.json() == {"stored": True, "new": False, "labelled": 1}
    campaign = Campaign.open(file)
    assert len([line for line in campaign.history() if line["what"] == "answer"]) == 1
    campaign.store.close()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"item": "t1", "label": "eggs"}, 422),
        ({"item": "t1", "label": "Spam"}, 422),
        ({"item": "nobody", "label": "spam"}, 404),
        ({"item": "t1"}, 422),
        ({"item": "t1", "kind": "skip", "label": "spam"}, 422),
        ({"item": "t1", "kind": "shout"}, 422),
        ({"item": "t1", "label": "spam", "more": 1}, 422),
        ({"item": "\ud800", "label": "spam"}, 422),
        ({"item": "t1", "label": "spam", "comment": "x" * 20_000}, 422),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_written(
    client: TestClient, body: dict[str, object], status: int
) -> None:
    told = client.post(f"{AT}/answers", content=json.dumps(body), headers={"content-type": "application/json"})
    assert told.status_code == status
    assert isinstance(told.json()["detail"], str)
    assert client.get(AT).json()["labelled"] == 0


def test_pages_of_items_have_all_once(client: TestClient) -> None:
    seen: list[str] = []
    after = None
    while True:
        told = client.get(f"{AT}/items", params={"count": 25, **({} if after is None else {"after": after})}).json()
        seen += [one["item"] for one in told["items"]]
        after = told["after"]
        if after is None:
            break
    assert len(seen) == len(set(seen)) == 121


def test_items_are_found(client: TestClient) -> None:
    items = label(client, 6)

    def found(**wanted: str) -> set[str]:
        return {one["item"] for one in client.get(f"{AT}/items", params={"count": 200, **wanted}).json()["items"]}

    assert found(search="NUMBER 17") == {"t17"}
    assert found(search="100%") == set()
    assert found(label="spam") == {item for item in items if truth(item) == "spam"}
    assert found(state="labelled") == set(items)
    assert len(found(state="unlabelled")) == 115
    assert found(state="asked").isdisjoint(items)
    assert client.get(f"{AT}/items", params={"state": "lost"}).status_code == 422


def test_an_item_tells_what_people_say(client: TestClient) -> None:
    (item,) = label(client, 1)
    told = client.get(f"{AT}/item", params={"id": item}).json()
    assert told["text"] == (text(int(item[1:])) if item != "html" else HARMFUL)
    assert [(one["annotator"], one["label"]) for one in told["answers"]] == [("me", truth(item))]
    assert client.get(f"{AT}/item", params={"place": 3}).json()["item"] == "t3"
    assert client.get(f"{AT}/item", params={"place": 300}).status_code == 404


def test_the_map_has_every_item(client: TestClient) -> None:
    label(client, 30)
    client.get(f"{AT}/map")
    told = client.get(f"{AT}/map")
    assert told.status_code == 200
    (count,) = np.frombuffer(told.content[:4], "<i4")
    assert count == 121
    x, y = (np.frombuffer(told.content, "<f4", count, 4 + 4 * count * k) for k in range(2))
    predicted = np.frombuffer(told.content, "<i4", count, 4 + 8 * count)
    assert np.isfinite([x, y]).all()
    client.get(f"{AT}/map?how=ldm")
    ldm = np.frombuffer(client.get(f"{AT}/map?how=ldm").content, "<f4", count, 4)
    assert ((ldm >= 0) & (ldm <= 1)).all()
    assert set(predicted) <= {0, 1}
    places = client.get(f"{AT}/labels").json()["labels"]
    assert len(places) == 30


def test_a_map_by_neighbourhoods(client: TestClient) -> None:
    pytest.importorskip("openTSNE")
    client.get(f"{AT}/map?how=tsne")
    assert client.get(f"{AT}/map?how=tsne").status_code == 200


@pytest.mark.parametrize("form", ["csv", "jsonl", "prodigy", "doccano"])
def test_exports(client: TestClient, form: str) -> None:
    label(client, 25)
    told = client.get(f"{AT}/export", params={"form": form})
    assert told.status_code == 200
    assert "attachment" in told.headers["content-disposition"]
    if form == "csv":
        rows = list(csv.DictReader(io.StringIO(told.text)))
        assert len(rows) == 121
        assert sum(bool(row["label"]) for row in rows) == 25
    else:
        assert all(json.loads(line) for line in told.text.splitlines())


def test_an_export_of_a_folder_is_packed(client: TestClient) -> None:
    pytest.importorskip("pyarrow")
    label(client, 25)
    told = client.get(f"{AT}/export?form=datasets")
    assert "train.parquet" in zipfile.ZipFile(io.BytesIO(told.content)).namelist()


def test_suspects_are_found_and_kept(client: TestClient) -> None:
    items = label(client, 40)
    wrong = items[5]
    client.post(f"{AT}/answers", json={"item": wrong, "label": "ham" if truth(wrong) == "spam" else "spam"})
    found = client.get(f"{AT}/suspects?anew=true").json()
    assert found["state"] == "done"
    assert wrong in {one["item"] for one in found["suspects"]}
    assert client.post(f"{AT}/keep", json={"item": wrong}).status_code == 200
    assert wrong not in {one["item"] for one in client.get(f"{AT}/suspects?anew=true").json()["suspects"]}


def test_progress_tells_each_round(client: TestClient) -> None:
    label(client, 60)
    told = client.get(f"{AT}/progress").json()
    assert [one["version"] for one in told["rounds"]] == list(range(1, len(told["rounds"]) + 1))
    assert len(told["times"]) == 60
    assert told["status"]["advice"]
    assert client.get(f"{AT}/flipped").status_code == 200


def test_what_is_spent_is_every_answer_of_people(tmp_path: Path) -> None:
    file = begin(tmp_path / "texts.teeter", 20, cost=0.5, budget=10.0)
    campaign = Campaign.open(file)
    campaign.add([{"text": "Known already", "label": "ham"}])
    for name in ("ann", "bob"):
        campaign.tell("t1", "ham", name)
        campaign.skip("t2", name)
    campaign.store.close()
    with served(file) as client:
        told = client.get(f"{AT}/progress").json()
        assert (told["spent"], told["status"]["labelled"]) == (2.0, 2)
        assert "8 of the budget is left: 2 of 10." in told["status"]["advice"]


def test_the_last_round_is_as_right_as_the_campaign(client: TestClient, file: Path) -> None:
    label(client, 60)
    with closing(sqlite3.connect(file)) as database:  # an audit sample that has only begun
        (facts,) = database.execute("select facts from models order by version desc limit 1").fetchone()
        told = json.dumps({**json.loads(facts), "audit": [0, 1], "control": [9, 12]})
        database.execute("update models set facts = ?", [told])
        database.commit()
    found = client.get(f"{AT}/progress").json()
    assert found["rounds"][-1]["accuracy"]["share"] == 9 / 12
    assert found["status"]["accuracy"]["right"] == 9


def test_images_are_shown_as_what_they_are(tmp_path: Path) -> None:
    file = begin_images(tmp_path / "digits.teeter", tmp_path / "digits", 12)
    with served(file) as client:
        told = client.get("/api/v1/campaigns/digits/image?id=003.png")
        assert told.headers["content-type"] == "image/png"
        assert told.headers["x-content-type-options"] == "nosniff"
        (tmp_path / "digits" / "004.png").write_text("<svg onload=alert(1)>")
        assert client.get("/api/v1/campaigns/digits/image?id=004.png").status_code == 422


def test_features_are_shown_as_numbers(tmp_path: Path) -> None:
    campaign = Campaign.create(tmp_path / "numbers.teeter", "numbers", ("a", "b"), Settings(kind="features"))
    vectors = np.random.default_rng(0).normal(size=(40, 5))
    campaign.add({"id": f"n{k}", "features": vectors[k]} for k in range(40))
    campaign.store.close()
    with served(tmp_path / "numbers.teeter") as client:
        client.get("/api/v1/campaigns/numbers/questions")
        one = client.get("/api/v1/campaigns/numbers/questions").json()["questions"][0]
        assert len(one["features"]) == 5


def made(client: TestClient, **told: object) -> dict[str, object]:
    file = told.pop("file", None)
    answer = client.post("/api/v1/campaigns", data=told, files=None if file is None else {"file": file})
    if answer.status_code != 202:
        return {"state": answer.status_code, **answer.json()}
    found: dict[str, object] = client.get(f"/api/v1/jobs/{answer.json()['job']}").json()
    return found


def test_a_campaign_from_an_upload(tmp_path: Path) -> None:
    with served(folder=tmp_path) as client:
        table = "text,kind\n" + "".join(f'"{text(k)}",\n' for k in range(30))
        done = made(client, name="mail", classes="spam, ham", keys="s,h", file=("mail.csv", table))
        assert done["state"] == "done", done
        told = client.get("/api/v1/campaigns/mail").json()
        assert told["items"] == 30
        assert [one["key"] for one in told["classes"]] == ["s", "h"]
        again = made(client, name="mail", classes="a,b", file=("mail.csv", table))
        assert again["state"] == 422
        assert (tmp_path / "mail.teeter").exists()
        bad = made(client, name="other", classes="a,b", file=("other.csv", "x,y\n1,2\n"))
        assert bad["state"] == "failed"
        assert str(tmp_path.anchor) not in str(bad["detail"]), "where files are is nobody's business"
        assert not (tmp_path / "other.teeter").exists()


def test_a_campaign_from_a_folder_of_images(tmp_path: Path) -> None:
    begin_images(tmp_path / "first.teeter", tmp_path / "digits", 12)
    with served(folder=tmp_path) as client:
        assert made(client, name="second", classes="a,b", folder="digits")["state"] == "done"
        assert {one["slug"] for one in client.get("/api/v1/campaigns").json()} == {"first", "second"}


def test_a_file_that_is_no_campaign_does_not_stop_the_others(tmp_path: Path) -> None:
    begin(tmp_path / "texts.teeter")
    (tmp_path / "broken.teeter").write_bytes(b"not a database at all, and long enough to look at " * 20)
    with served(folder=tmp_path) as client:
        assert [one["slug"] for one in client.get("/api/v1/campaigns").json()] == ["texts"]
        assert "broken.teeter" in client.get("/").text


def test_every_page_opens(client: TestClient) -> None:
    label(client, 45)
    for page in ("", "/second-look", "/progress", "/map", "/items", "/item?id=html", "/export", "/news"):
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
    with served(folder=tmp_path) as client:
        assert "digits" in client.get("/").text
        told = client.get("/reports/runs-digits")
        assert "Found" in told.text
        assert "sandbox" in told.headers["content-security-policy"], "no script of it runs"
        for path in ("../../../secret.txt", "%2e%2e/%2e%2e/%2e%2e/secret.txt", "..%2f..%2f..%2fsecret.txt"):
            assert client.get(f"/reports/runs-digits/{path}").status_code == 404


def test_nothing_is_called_stored_in_a_file_that_is_gone(client: TestClient, file: Path) -> None:
    items = [str(one["item"]) for one in asked(client)]
    answer = {"item": items[0], "label": "spam"}
    assert client.post(f"{AT}/answers", json=answer).status_code == 200
    file.rename(file.with_name("gone.teeter"))
    for what, body in (("answers", {"item": items[1], "label": "spam"}), ("undo", {}), ("keep", {"item": items[0]})):
        told = client.post(f"{AT}/{what}", json=body)
        assert told.status_code == 503, what
        assert told.json()["detail"].startswith("texts.teeter was moved or removed while it is served")
    for page in ("", "/progress", "/items"):
        assert client.get(f"/c/texts{page}").status_code == 503
    assert not file.exists(), "no empty file takes its place"
    file.with_name("gone.teeter").rename(file)
    assert client.post(f"{AT}/answers", json=answer).json()["new"] is False


def test_an_export_that_takes_too_long_does_not_stop_other_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = begin(tmp_path / "texts.teeter")
    monkeypatch.setattr(api, "_EXPORT_SECONDS", 0.2)
    with served(file) as client:
        site = client.app.state.site
        site.trainer = Trainer(5)
        told = client.get(f"{AT}/export")
        assert told.status_code == 503
        assert "try again" in told.json()["detail"]
        assert not site.trainer.do("look", str(file), annotator="me", batch=5).result(60)["finished"]
        assert not list(site.temp.iterdir()), "what nobody takes is removed"


def test_what_was_answered_says_why_it_was_asked(client: TestClient) -> None:
    label(client, 3)
    client.post(f"{AT}/answers", json={"item": "t119", "label": "ham"})
    last = client.get(f"{AT}/answers").json()
    assert "rank" not in last[0], "nobody asked"
    assert all({"arm", "rank"} <= set(one) for one in last[1:])
    client.post(f"{AT}/undo", json={})
    assert {"arm", "rank"} <= set(client.post(f"{AT}/undo", json={}).json()["undone"])


def test_what_the_model_thinks_of_random_controls_is_not_told(client: TestClient) -> None:
    label(client, 40)
    controls = [one for one in asked(client, 100) if one["arm"] == "control"]
    assert controls
    for one in controls:
        assert set(one) <= {"item", "kind", "text", "arm", "rank", "characters"}


def test_labels_are_as_decided_and_flags_show(client: TestClient, file: Path) -> None:
    campaign = Campaign.open(file)
    for name in ("ann", "bob"):
        campaign.tell("t1", "spam", name)
        campaign.tell("t2", "spam", name)
    campaign.bad("t2", "eve")
    assert client.get(f"{AT}/item?id=t1").json()["label"] == "spam"
    campaign.decide("t1", "ham", "ruth")
    campaign.store.close()
    lines = {one["item"]: one for one in client.get(f"{AT}/items?count=5").json()["items"]}
    assert (lines["t1"]["label"], lines["t2"]["state"], lines["t3"]["state"]) == ("ham", "spam, bad", "")
    assert client.get(f"{AT}/labels").json()["labels"][0] == [1, 1]
    assert "decided by ruth" in client.get("/c/texts/item?id=t1").text


def test_a_campaign_of_the_folder_that_is_gone_is_not_listed(tmp_path: Path) -> None:
    begin(tmp_path / "one.teeter", 5)
    begin(tmp_path / "two.teeter", 5)
    with served(folder=tmp_path) as client:
        assert len(client.get("/api/v1/campaigns").json()) == 2
        for path in tmp_path.glob("two.teeter*"):
            path.unlink()
        assert [one["slug"] for one in client.get("/api/v1/campaigns").json()] == ["one"]
        begin(tmp_path / "two.teeter", 7)
        assert "8 items labelled" in client.get("/").text
        assert client.get("/c/two").status_code == 200


def test_going_back_has_the_whole_page(client: TestClient) -> None:
    restored = {"hx-request": "true", "hx-history-restore-request": "true"}
    for page in ("items?search=17", "progress"):
        assert "<html" in client.get(f"/c/texts/{page}", headers=restored).text
        assert "<html" not in client.get(f"/c/texts/{page}", headers={"hx-request": "true"}).text


def test_a_model_that_is_asked_for_is_told_of_at_once(client: TestClient) -> None:
    assert "two classes" in client.post("/c/texts/train").text
    label(client, 10)
    assert "asked for" in client.post("/c/texts/train").text


def test_where_files_are_is_not_told(tmp_path: Path) -> None:
    begin(tmp_path / "texts.teeter", 5)
    (tmp_path / "broken.teeter").write_bytes(b"not a database at all, and long enough to look at " * 20)
    with served(folder=tmp_path) as client:
        assert str(tmp_path) not in client.get("/").text
        (tmp_path / "texts.teeter").rename(tmp_path / "away")
        assert str(tmp_path) not in client.get(AT).text
