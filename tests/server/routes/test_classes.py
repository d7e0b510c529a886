"""Classes over REST and on their page: added, renamed and described."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

from fastapi.testclient import TestClient

from server.labelled_campaigns import (
    AT,
)

PAGE = "/c/texts"


def test_a_class_is_renamed_and_described_together(client: TestClient) -> None:
    client.post(f"{AT}/answers", json={"item": "t1", "label": "spam"})
    body = {"name": "spam", "new_name": "ads", "description": "Offers."}

    classes = client.patch(f"{AT}/classes", json=body).json()

    assert [entry["name"] for entry in classes] == ["ads", "ham"]
    assert classes[0]["description"] == "Offers."
    examples = {"name": "ads", "examples": ["Win!"]}
    changed = client.patch(f"{AT}/classes", json=examples).json()[0]
    assert (changed["description"], changed["examples"]) == ("Offers.", ["Win!"])
    assert client.get(f"{AT}/item", params={"id": "t1"}).json()["label"] == "ads"
    late = client.post(f"{AT}/answers", json={"item": "t3", "label": "spam"})
    assert late.status_code == 200, "from a page that still has the old name"
    taken = {"name": "ads", "new_name": "ham", "description": "Not stored."}
    assert client.patch(f"{AT}/classes", json=taken).status_code == 422
    alike = {"name": "ads", "new_name": "HAM"}
    for refused in (
        client.patch(f"{AT}/classes", json=alike),
        client.post(f"{AT}/classes", json={"name": "HAM"}),
    ):
        assert refused.status_code == 422
        assert "'ham' and 'HAM' differ only in case, spaces or" in refused.json()["detail"]
    assert client.get(f"{AT}/classes").json()[0]["description"] == "Offers."


def test_classes_are_merged_and_unused_ones_removed(client: TestClient) -> None:
    client.post(f"{AT}/answers", json={"item": "t1", "label": "spam"})
    both = {"name": "spam", "into": "ham"}
    refused = client.post(f"{AT}/classes/merge", json=both)
    assert refused.status_code == 422
    assert "needs two classes" in refused.json()["detail"]
    client.post(f"{AT}/classes", json={"name": "maybe"})
    named = client.post(f"{AT}/classes/remove", json={"name": "spam"})
    assert (named.status_code, "named by 1 answer" in named.json()["detail"]) == (422, True)

    for _ in range(2):
        classes = client.post(f"{AT}/classes/merge", json=both).json()
        assert [entry["name"] for entry in classes] == ["ham", "maybe"]
    assert client.get(f"{AT}/item", params={"id": "t1"}).json()["label"] == "ham"
    client.post(f"{AT}/classes", json={"name": "unused"})
    for _ in range(2):
        classes = client.post(f"{AT}/classes/remove", json={"name": "unused"}).json()
        assert [entry["name"] for entry in classes] == ["ham", "maybe"]


def test_a_class_that_two_requests_add_at_once_is_there_once(client: TestClient) -> None:
    send = partial(client.post, f"{AT}/classes", json={"name": "maybe"})
    with ThreadPoolExecutor(4) as pool:
        responses = [pool.submit(send) for _ in range(8)]

    for response in responses:
        names = [entry["name"] for entry in response.result().json()]
        assert names == ["spam", "ham", "maybe"]


def test_descriptions_are_edited_and_shown_escaped(client: TestClient) -> None:
    body = {"classes": {"spam": {"description": "<b>Ads</b>", "examples": ["Win & win"]}}}
    classes = client.post(f"{AT}/classes/describe", json=body).json()
    descriptions = {entry["name"]: entry["description"] for entry in classes}
    assert descriptions == {"spam": "<b>Ads</b>", "ham": ""}

    page = client.get(PAGE).text
    assert "&lt;b&gt;Ads&lt;/b&gt;" in page
    assert "<b>Ads</b>" not in page
    assert "Win &amp; win" in client.get(f"{PAGE}/classes").text

    unknown = client.post(f"{AT}/classes/describe", json={"classes": {"eggs": {}}})
    assert unknown.status_code == 422
    assert "No class is called 'eggs'" in unknown.json()["detail"]


def test_each_class_is_a_row_with_its_forms(client: TestClient) -> None:
    """The browser sends the forms as JSON; its own test does so, too."""
    client.post(f"{AT}/answers", json={"item": "t1", "label": "spam"})
    client.post(f"{AT}/classes", json={"name": "maybe"})
    rows = client.get(f"{PAGE}/classes").text.split('<details class="class">')[1:]
    names = [entry["name"] for entry in client.get(f"{AT}/classes").json()]
    assert len(rows) == len(names) == 3
    for name, row in zip(names, rows, strict=True):
        assert f"<b>{name}</b>" in row
        assert f'data-api="{AT}/classes" data-method="PATCH"' in row
        assert f'data-api="{AT}/classes/merge"' in row
    assert "1 label<" in rows[0]
    assert "Delete spam" not in rows[0]
    assert "Delete maybe" in rows[2]

    # As the form sends it: the name stays, and the description changes.
    body = {"name": "spam", "new_name": "spam", "description": "First.", "examples": ["one", "two"]}
    changed = client.patch(f"{AT}/classes", json=body).json()[0]
    assert (changed["description"], changed["examples"]) == ("First.", ["one", "two"])
    assert ">First.</textarea>" in client.get(f"{PAGE}/classes").text

    body = {"classes": {"spam": {"description": "Again.", "examples": []}}}
    classes = client.post(f"{AT}/classes/describe", json=body).json()
    assert (classes[0]["description"], classes[0]["examples"]) == ("Again.", [])
    broken = client.post(f"{AT}/classes/describe", json={"classes": {"spam": "only a text"}})
    assert broken.status_code == 422


def test_names_can_be_switched_off_and_on(client: TestClient) -> None:
    assert "as long as this improves" in client.get(f"{PAGE}/classes").text
    client.post(f"{AT}/classes/names", json={"use": False})
    assert "as you asked with --no-names" in client.get(f"{PAGE}/classes").text
    page = client.get(f"{PAGE}/classes").text
    assert "The next model will take this into account." in page
    assert '<button name="use" value="true" data-type="boolean">' in page
    client.post(f"{AT}/classes/names", json={"use": True})
    assert "as long as this improves" in client.get(f"{PAGE}/classes").text
