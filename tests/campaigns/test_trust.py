"""Files of strangers: they name folders and addresses, and a person decides about them."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from campaigns.fake_clock import FakeClock
from campaigns.stores import STORES, new_place
from campaigns.webhook_receiver import running_receiver
from server.servers import make_image_campaign, serve_campaigns
from teeter.base.outbound_http import HttpResponse
from teeter.campaigns import Campaign, Settings
from teeter.campaigns.integrations import webhooks
from teeter.campaigns.integrations.webhooks import (
    add_webhook,
    deliver_due,
    list_deliveries,
    list_webhooks,
)
from teeter.campaigns.items.image_links import describe_missing_images
from teeter.campaigns.store.copies import copy_to_location, restore_to_database
from teeter.campaigns.trust import find_untrusted, home
from teeter.errors import FileError, InputError, StoreError
from teeter.server.access import SecurityConfig
from teeter.server.workspace import Workspace

IMAGE = "/api/v1/campaigns/digits/image"


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TEETER_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def forget_trust() -> None:
    """Do as if all campaigns had been created by someone else."""
    (home() / "trusted.json").unlink(missing_ok=True)


def make_texts(path: Path) -> Path:
    Campaign.make(
        [("a", "one"), ("b", "two")], ["good", "poor"], at=path, settings=Settings(encoder="tfidf")
    ).database.close()
    return path


def test_a_crafted_webhook_sends_nothing_to_this_machine(tmp_path: Path) -> None:
    clock = FakeClock()
    file = make_texts(tmp_path / "texts.teeter")
    campaign = Campaign.open(file, clock=clock)
    with running_receiver() as receiver:
        add_webhook(campaign, receiver.url, ["labelled"])
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("UPDATE webhooks SET allow_private = 1")
            connection.commit()
        campaign.tell("a", "good")

        assert deliver_due(campaign) == 0
        assert receiver.requests == []
        (delivery,) = list_deliveries(campaign)
        assert delivery.error is not None
        assert f"give teeter serve the option --trust '{receiver.url}' once" in delivery.error
        assert find_untrusted(campaign) == [delivery.error]

        # The event waits for the word of the person.
        assert find_untrusted(campaign, [receiver.url]) == []
        clock.wait(3600)
        assert deliver_due(campaign) == 1
    assert find_untrusted(Campaign.open(file)) == []


def test_a_webhook_that_was_added_here_is_trusted_here_only(tmp_path: Path) -> None:
    campaign = Campaign.open(make_texts(tmp_path / "texts.teeter"))
    with running_receiver() as receiver:
        add_webhook(campaign, receiver.url, allow_private=True)
        campaign.tell("a", "good")
        assert deliver_due(campaign) == 1

        forget_trust()
        campaign.tell("b", "good")
        assert deliver_due(campaign) == 0
        assert len(receiver.requests) == 1


def test_a_webhook_of_a_stranger_gets_no_answer_at_a_public_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = []

    def receive(method: str, url: str, **options: Any) -> HttpResponse:
        sent.append(options["allow_private"])
        return HttpResponse(200, {}, b"")

    monkeypatch.setattr(webhooks, "send_request", receive)
    clock = FakeClock()
    url = "https://collector.example.net/answers"
    campaign = Campaign.open(make_texts(tmp_path / "texts.teeter"), clock=clock)
    add_webhook(campaign, url, ["labelled"])
    forget_trust()
    campaign.tell("a", "good")

    assert deliver_due(campaign) == 0
    assert sent == []
    sentence = (
        f"The webhook {url} was not added here, so it gets no event. If you trust the campaign, "
        f"give teeter serve the option --trust {url} once."
    )
    assert find_untrusted(campaign) == [sentence]
    assert list_deliveries(campaign)[0].error == sentence

    assert find_untrusted(campaign, [url]) == []
    clock.wait(3600)
    assert deliver_due(campaign) == 1
    assert sent == [False], "the word was given for a public address"


def test_a_webhook_that_cannot_be_trusted_is_not_added(tmp_path: Path) -> None:
    campaign = Campaign.open(make_texts(tmp_path / "texts.teeter"))
    home().mkdir(parents=True, exist_ok=True)
    (home() / "trusted.json").write_text("[")

    with pytest.raises(FileError, match=r"trusted\.json cannot be read"):
        add_webhook(campaign, "https://example.org/")
    assert list_webhooks(campaign) == []


def store_folder(file: Path, folder: object) -> None:
    """Write a folder of images into a campaign's file, as anyone can."""
    with closing(sqlite3.connect(file)) as connection:
        settings = json.loads(connection.execute("SELECT settings FROM campaigns").fetchone()[0])
        stored = json.dumps({**settings, "folder": folder})
        connection.execute("UPDATE campaigns SET settings = ?", [stored])
        connection.commit()


@pytest.mark.parametrize("folder", ["a\0b", "circle", "\ud800"])
def test_a_folder_that_cannot_be_one_is_a_sentence(folder: str, tmp_path: Path) -> None:
    file = make_image_campaign(tmp_path / "digits.teeter", tmp_path / "digits", 3)
    (tmp_path / "circle").symlink_to("circle")
    store_folder(file, folder)

    campaign = Campaign.open(file)
    with suppress(InputError):
        _ = campaign.image_folder
    for places in ([], ["/"]):
        find_untrusted(campaign, places)
    assert describe_missing_images(campaign)
    with suppress(InputError):
        copy_to_location(campaign.database, campaign.name, str(tmp_path / "copy.teeter"))

    workspace = Workspace([file], security=SecurityConfig(b"secret"), folder=tmp_path)
    try:
        assert workspace.redact_paths(f"There is no file {tmp_path}/x.") == "There is no file x."
    finally:
        workspace.close()


def test_a_file_whose_folder_is_no_text_leaves_the_others_served(tmp_path: Path) -> None:
    bad = make_image_campaign(tmp_path / "bad.teeter", tmp_path / "digits", 3)
    store_folder(bad, 5)
    make_texts(tmp_path / "good.teeter")

    with pytest.raises(StoreError, match="damaged: its settings cannot be read"):
        Campaign.open(bad)
    workspace = Workspace([], security=SecurityConfig(b"secret"), folder=tmp_path)
    try:
        assert list(workspace.campaigns) == ["good"]
        assert "bad.teeter" in workspace.unreadable_files["bad.teeter"]
    finally:
        workspace.close()


def test_a_restored_link_is_no_folder_beside_the_backup(tmp_path: Path) -> None:
    file = make_image_campaign(tmp_path / "digits.teeter", tmp_path / "digits", 3)
    (tmp_path / "root").symlink_to("/")
    store_folder(file, "root")
    (tmp_path / "new").mkdir()
    location = f"sqlite:///{tmp_path / 'new' / 'restored.teeter'}"
    restore_to_database(file, location)

    restored = Campaign.open(location)
    with pytest.raises(InputError, match="so no image is read"):
        _ = restored.image_folder
    assert not (home() / "trusted.json").exists() or "/" not in json.loads(
        (home() / "trusted.json").read_text()
    ).get(str(tmp_path / "new" / "restored.teeter"), [])


def test_a_restored_campaign_may_use_images_beside_the_backup(tmp_path: Path) -> None:
    file = make_image_campaign(tmp_path / "digits.teeter", tmp_path / "digits", 3)
    (tmp_path / "new").mkdir()
    location = f"sqlite:///{tmp_path / 'new' / 'restored.teeter'}"
    restore_to_database(file, location)
    assert Campaign.open(location).image_folder == tmp_path / "digits"


def test_a_crafted_folder_serves_nothing(tmp_path: Path) -> None:
    """The file names the folder / for its images, which anyone can write into it."""
    file = make_image_campaign(tmp_path / "digits.teeter", tmp_path / "digits", 3)
    secret = tmp_path / "digits" / "000.png"
    with closing(sqlite3.connect(file)) as connection:
        settings = json.loads(connection.execute("SELECT settings FROM campaigns").fetchone()[0])
        stored = json.dumps({**settings, "folder": "/"})
        connection.execute("UPDATE campaigns SET settings = ?", [stored])
        connection.execute("UPDATE items SET content = ? WHERE key = '000.png'", [str(secret)[1:]])
        connection.commit()

    campaign = Campaign.open(file)
    campaign.tell("000.png", "even")
    sentence = "names / as the folder of its images. It was not created here"
    for read in (
        lambda: campaign.encode(again=True),
        lambda: campaign.export(tmp_path / "out", "image-folder"),
        lambda: campaign.add(["etc/other.png"]),
    ):
        with pytest.raises(InputError, match=sentence):
            read()
    assert sentence in str(describe_missing_images(campaign))
    assert campaign.export(tmp_path / "labels.csv") == 1, "other formats read no image"

    with serve_campaigns(file) as client:
        refused = client.get(f"{IMAGE}?id=000.png")
        assert refused.status_code == 422
        assert "give teeter serve the option --trust / once" in refused.json()["detail"]
        assert "The terminal of teeter serve says what to do" in client.get("/c/digits").text

        assert find_untrusted(campaign, ["/"]) == []
        assert client.get(f"{IMAGE}?id=000.png").content == secret.read_bytes()

    assert find_untrusted(Campaign.open(file)) == []


def test_an_own_campaign_with_images_elsewhere_asks_nothing(tmp_path: Path) -> None:
    (tmp_path / "campaigns").mkdir()
    file = make_image_campaign(tmp_path / "campaigns" / "digits.teeter", tmp_path / "digits", 3)
    campaign = Campaign.open(file)
    assert find_untrusted(campaign) == []
    campaign.encode(again=True)

    made = tmp_path / "campaigns" / "made.teeter"
    settings = Settings(kind="image", folder=str(tmp_path / "digits"))
    Campaign.make(["001.png"], ["even", "odd"], at=made, settings=settings).database.close()
    assert find_untrusted(Campaign.open(made)) == []

    # The same file in another place is another campaign.
    shutil.copy(file, tmp_path / "campaigns" / "received.teeter")
    (sentence,) = find_untrusted(Campaign.open(tmp_path / "campaigns" / "received.teeter"))
    assert f"--trust {tmp_path / 'digits'}" in sentence


def test_images_beside_the_file_need_no_word(tmp_path: Path) -> None:
    file = make_image_campaign(tmp_path / "digits.teeter", tmp_path / "digits", 3)
    forget_trust()

    assert Campaign.open(file).image_folder == tmp_path / "digits"
    assert not (home() / "trusted.json").exists()


def test_a_folder_stands_for_those_inside_it_and_a_link_for_its_target(tmp_path: Path) -> None:
    (tmp_path / "campaigns").mkdir()
    file = make_image_campaign(tmp_path / "campaigns" / "digits.teeter", tmp_path / "digits", 3)
    forget_trust()
    campaign = Campaign.open(file)
    (tmp_path / "elsewhere").mkdir()

    assert len(find_untrusted(campaign, [str(tmp_path / "elsewhere")])) == 1
    assert find_untrusted(campaign, [str(tmp_path)]) == []

    # What the word was given for is no longer what the name leads to.
    shutil.move(tmp_path / "digits", tmp_path / "moved")
    (tmp_path / "digits").symlink_to(tmp_path / "elsewhere")
    assert len(find_untrusted(campaign)) == 1


@pytest.mark.parametrize("kind", STORES)
def test_a_copy_may_use_what_its_source_may(kind: str, tmp_path: Path) -> None:
    source = Campaign.open(make_image_campaign(tmp_path / "digits.teeter", tmp_path / "digits", 3))
    (tmp_path / "copies").mkdir()
    target = new_place(kind, tmp_path / "copies")

    copy_to_location(source.database, source.name, target)

    copy = Campaign.open(target, source.name)
    assert find_untrusted(copy) == []
    assert copy.image_folder == tmp_path / "digits"
    forget_trust()
    assert len(find_untrusted(copy)) == 1
    copy.database.close()


def test_a_file_in_the_place_of_a_removed_one_is_not_trusted(tmp_path: Path) -> None:
    first, second = (make_texts(tmp_path / name) for name in ("first.teeter", "second.teeter"))
    add_webhook(Campaign.open(first), "http://127.0.0.1:9/", allow_private=True)
    first.unlink()
    add_webhook(Campaign.open(second), "http://127.0.0.1:9/", allow_private=True)

    trusted = json.loads((home() / "trusted.json").read_text())
    assert trusted == {str(second): ["http://127.0.0.1:9/"]}
    assert (home() / "trusted.json").stat().st_mode & 0o077 == 0


def test_a_damaged_file_trusts_nothing(tmp_path: Path) -> None:
    (tmp_path / "campaigns").mkdir()
    file = make_image_campaign(tmp_path / "campaigns" / "digits.teeter", tmp_path / "digits", 3)
    (home() / "trusted.json").write_text("[")

    with pytest.raises(FileError, match=r"trusted\.json cannot be read, so no campaign is trusted"):
        _ = Campaign.open(file).image_folder
