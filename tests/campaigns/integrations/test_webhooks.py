"""Webhooks: signed, repeated until confirmed, and not lost when a process is killed."""

from __future__ import annotations

import base64
import threading
from pathlib import Path
from typing import Any

import pytest

from campaigns.fake_clock import FakeClock
from campaigns.killed_process import Report, kill_after, needs_fork
from campaigns.ports import ReservedPort
from campaigns.stores import POSTGRESQL_SLOW, new_place
from campaigns.webhook_receiver import running_receiver
from teeter.campaigns import Campaign, Settings
from teeter.campaigns.integrations import webhooks
from teeter.campaigns.integrations.webhooks import (
    WebhookEvent,
    add_webhook,
    deliver_due,
    list_deliveries,
    list_webhooks,
    remove_webhook,
    replace_secret,
)
from teeter.errors import InputError, UnknownResourceError


def make_campaign(path: Path, count: int = 4) -> Path:
    features = [{"id": f"i{k}", "features": [k, 1.0]} for k in range(count)]
    Campaign.make(
        features, ["good", "poor"], at=path, settings=Settings(kind="features")
    ).database.close()
    return path


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return Campaign.open(make_campaign(tmp_path / "c.teeter"))


def test_events_are_sent_once_in_their_order_and_signed(campaign: Campaign) -> None:
    with running_receiver() as receiver:
        campaign.tell("i0", "good", "ann")
        webhook = add_webhook(campaign, receiver.url, allow_private=True)
        campaign.tell("i1", "poor", "ann", comment="Ü")
        campaign.skip("i2", "ann")
        campaign.train()
        campaign.review.decide("i2", "good", "rey")

        assert deliver_due(campaign) == 3
        assert deliver_due(campaign) == 0

    events = [(fields["event"], fields["item"], fields["label"]) for fields in receiver.confirmed]
    assert events == [
        ("labelled", "i1", "poor"),
        ("trained", None, None),
        ("labelled", "i2", "good"),
    ], "what happened before it was added, and answers without a label, are left out"
    assert receiver.confirmed[0]["campaign"] == "c"
    assert receiver.confirmed[0]["by"] == "ann"
    headers, body = receiver.requests[0]
    assert verifies(webhook.secret, headers, body)
    assert not verifies(f"whsec_{'A' * 32}", headers, body)
    assert not verifies(webhook.secret, headers, body + b" ")
    assert not verifies(webhook.secret, {**headers, "webhook-timestamp": "1"}, body)
    assert not verifies(webhook.secret, {}, body)


def verifies(secret: str, headers: dict[str, str], body: bytes) -> bool:
    """Return whether the library that receivers use takes a request for one of ours."""
    library = pytest.importorskip("standardwebhooks")
    try:
        library.Webhook(secret).verify(body, headers)
    except library.WebhookVerificationError:
        return False
    return True


def test_a_receiver_that_fails_half_the_time_loses_nothing(tmp_path: Path) -> None:
    clock = FakeClock()
    campaign = Campaign.open(make_campaign(tmp_path / "c.teeter", 40), clock=clock)

    with running_receiver(lambda number: (200, 500)[number % 2]) as receiver:
        add_webhook(campaign, receiver.url, ["labelled"], allow_private=True)
        for number in range(40):
            campaign.tell(f"i{number}", "good")
        while campaign_is_waiting(campaign):
            deliver_due(campaign)
            clock.wait(0.5)

    items = [fields["item"] for fields in receiver.confirmed]
    assert sorted(items) == sorted(f"i{number}" for number in range(40))
    assert len(receiver.requests) > 70
    deliveries = list_deliveries(campaign, 100)
    assert all(delivery.delivered is not None for delivery in deliveries)
    assert {delivery.status for delivery in deliveries} == {200}


def campaign_is_waiting(campaign: Campaign) -> bool:
    with campaign.reading() as view:
        return view.webhooks.has_news() or view.webhooks.count_waiting() > 0


def test_pauses_grow_and_end_after_three_days(tmp_path: Path) -> None:
    clock = FakeClock()
    campaign = Campaign.open(make_campaign(tmp_path / "c.teeter"), clock=clock)
    unused = ReservedPort()
    url = f"http://127.0.0.1:{unused.number}/hook"
    add_webhook(campaign, url, ["labelled"], allow_private=True)
    campaign.tell("i0", "good")

    hours = 0
    while not (delivery := (list_deliveries(campaign) or [None])[0]) or not delivery.given_up:
        deliver_due(campaign)
        clock.wait(120)
        hours += 2

    assert 72 <= hours <= 80
    assert delivery.error is not None
    assert "127.0.0.1 does not answer: Connection refused" in delivery.error
    assert not campaign_is_waiting(campaign)


def test_finished_is_sent_when_nothing_is_left_and_again_after_an_addition(
    campaign: Campaign,
) -> None:
    with running_receiver() as receiver:
        add_webhook(campaign, receiver.url, ["finished"], allow_private=True)
        for number in range(3):
            campaign.tell(f"i{number}", "good")
        deliver_due(campaign)
        assert receiver.confirmed == []

        campaign.flag("i3")
        deliver_due(campaign)
        campaign.tell("i0", "poor")
        deliver_due(campaign)
        assert [fields["event"] for fields in receiver.confirmed] == ["finished"]

        campaign.add([{"id": "new", "features": [9.0, 1.0]}])
        campaign.tell("new", "good")
        deliver_due(campaign)
        assert len(receiver.confirmed) == 2


def test_finished_is_sent_when_all_that_is_left_is_withdrawn(campaign: Campaign) -> None:
    with running_receiver() as receiver:
        add_webhook(campaign, receiver.url, ["finished"], allow_private=True)
        for number in range(3):
            campaign.tell(f"i{number}", "good")
        campaign.items.withdraw(["i3"])
        deliver_due(campaign)
        assert [fields["event"] for fields in receiver.confirmed] == ["finished"]

        campaign.items.put_back(["i3"])
        deliver_due(campaign)
        assert len(receiver.confirmed) == 1
        campaign.tell("i3", "poor")
        deliver_due(campaign)
        assert len(receiver.confirmed) == 2


def test_one_delivery_that_breaks_does_not_stop_the_others(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = webhooks.send_request

    def break_first(method: str, url: str, **options: Any) -> Any:
        if url == "https://broken.test":
            raise RuntimeError("a defect of ours")
        return send(method, url, **options)

    monkeypatch.setattr(webhooks, "send_request", break_first)
    with running_receiver() as receiver:
        add_webhook(campaign, "https://broken.test", ["labelled"])
        add_webhook(campaign, receiver.url, ["labelled"], allow_private=True)
        campaign.tell("i0", "good")

        assert deliver_due(campaign) == 1

    assert [fields["item"] for fields in receiver.confirmed] == ["i0"]
    broken = list_deliveries(campaign)[-1]
    assert broken.attempts == 1
    assert broken.error == "The event cannot be sent: RuntimeError."


@pytest.mark.parametrize("kind", POSTGRESQL_SLOW)
def test_a_dead_receiver_does_not_keep_the_others_waiting(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "_MOST_AT_ONCE", 4)
    place = new_place(kind, tmp_path)
    campaign = Campaign.make(
        [], ["good", "poor"], at=place, name="c", settings=Settings(kind="features")
    )
    campaign.add([{"id": f"i{k}", "features": [k, 1.0]} for k in range(12)])
    unused = ReservedPort()
    url = f"http://127.0.0.1:{unused.number}/hook"
    add_webhook(campaign, url, ["labelled"], allow_private=True)
    for number in range(8):
        campaign.tell(f"i{number}", "good")
    deliver_due(campaign)

    with running_receiver() as receiver:
        add_webhook(campaign, receiver.url, ["labelled"], allow_private=True)
        for number in range(8, 12):
            campaign.tell(f"i{number}", "good")
        assert deliver_due(campaign) == 2
        assert deliver_due(campaign) == 2

    items = [fields["item"] for fields in receiver.confirmed]
    assert items == ["i8", "i9", "i10", "i11"]
    campaign.database.close()


def test_a_private_receiver_is_refused_unless_it_is_allowed(campaign: Campaign) -> None:
    with running_receiver() as receiver:
        add_webhook(campaign, receiver.url)
        campaign.tell("i0", "good")
        deliver_due(campaign)

    assert receiver.requests == []
    (delivery,) = list_deliveries(campaign)
    assert delivery.given_up is not None
    assert "127.0.0.1, which is not public" in str(delivery.error)


def test_a_webhook_can_be_removed_and_its_secret_goes(campaign: Campaign) -> None:
    webhook = add_webhook(campaign, "https://example.org/x", ["labelled"])
    campaign.tell("i0", "good")

    remove_webhook(campaign, webhook.row_id)

    assert list_webhooks(campaign) == []
    assert not campaign_is_waiting(campaign)
    assert webhook.secret.encode() not in campaign_bytes(campaign)
    remove_webhook(campaign, webhook.row_id)  # sent again
    with pytest.raises(UnknownResourceError, match="There is no webhook 99"):
        remove_webhook(campaign, 99)
    with pytest.raises(InputError, match="There is no event 'lost': choose from labelled, trained"):
        add_webhook(campaign, "https://example.org", ["lost"])
    with pytest.raises(InputError, match="not an http or https address"):
        add_webhook(campaign, "ftp://example.org")


def campaign_bytes(campaign: Campaign) -> bytes:
    with campaign.reading() as view:
        rows = view.connection.exec_driver_sql("select secret from webhooks").all()
    return repr(rows).encode()


def test_a_replaced_secret_signs_for_a_day(tmp_path: Path) -> None:
    clock = FakeClock()
    campaign = Campaign.open(make_campaign(tmp_path / "c.teeter"), clock=clock)
    with running_receiver() as receiver:
        webhook = add_webhook(campaign, receiver.url, ["labelled"], allow_private=True)
        replaced = replace_secret(campaign, webhook.row_id)
        campaign.tell("i0", "good")
        deliver_due(campaign)
        clock.wait(24 * 60 + 1)
        campaign.tell("i1", "good")
        deliver_due(campaign)

    (headers, body), (later_headers, later_body) = receiver.requests
    assert verifies(webhook.secret, headers, body)
    assert verifies(replaced.secret, headers, body)
    assert not verifies(webhook.secret, later_headers, later_body)
    assert verifies(replaced.secret, later_headers, later_body)
    assert headers["webhook-id"] != later_headers["webhook-id"]


def test_secrets_can_be_replaced_a_few_times_a_day(campaign: Campaign) -> None:
    webhook = add_webhook(campaign, "https://example.org/x")
    for _ in range(4):
        replace_secret(campaign, webhook.row_id)
    with pytest.raises(InputError, match="Webhook 1 has 5 secrets already"):
        replace_secret(campaign, webhook.row_id)
    assert webhook.secret == list_webhooks(campaign)[0].secrets[-1]
    with pytest.raises(UnknownResourceError, match="There is no webhook 9"):
        replace_secret(campaign, 9)


@pytest.mark.parametrize("secret", ["plain", "whsec_c2hvcnQ=", "whsec_" + "ä" * 40])
def test_a_secret_that_receivers_cannot_use_is_refused(campaign: Campaign, secret: str) -> None:
    with pytest.raises(InputError, match="give whsec_ and 24 to 64 bytes in base64"):
        add_webhook(campaign, "https://example.org/x", secret=secret)
    assert list_webhooks(campaign) == []


def test_a_secret_from_before_standard_webhooks_still_signs(campaign: Campaign) -> None:
    with running_receiver() as receiver:
        add_webhook(campaign, receiver.url, allow_private=True)
        with campaign.writing() as change:
            change.connection.exec_driver_sql("UPDATE webhooks SET secret = 'Zo-9_x'")
        campaign.tell("i0", "good")
        deliver_due(campaign)
        replace_secret(campaign, 1)

    secret = "whsec_" + base64.b64encode(b"Zo-9_x").decode()
    assert verifies(secret, *receiver.requests[0])
    assert list_webhooks(campaign)[0].secrets[1] == secret


@pytest.mark.parametrize("kind", POSTGRESQL_SLOW)
def test_every_database_keeps_deliveries(kind: str, tmp_path: Path) -> None:
    place = new_place(kind, tmp_path)
    campaign = Campaign.make(
        [], ["good", "poor"], at=place, name="c", settings=Settings(kind="features")
    )
    campaign.add([{"id": "i0", "features": [1.0]}])
    with running_receiver() as receiver:
        add_webhook(campaign, receiver.url, [WebhookEvent.LABELLED], allow_private=True)
        campaign.tell("i0", "good")
        assert deliver_due(campaign) == 1
    campaign.database.close()


@needs_fork
def test_a_killed_sender_repeats_what_it_had_not_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_campaign(tmp_path / "c.teeter")

    def send_and_be_killed(report: Report) -> None:
        campaign = Campaign.open(path)
        for number in range(4):
            campaign.tell(f"i{number}", "good")

        send = webhooks.send_request

        def send_and_wait(*arguments: Any, **options: Any) -> None:
            send(*arguments, **options)
            # The receiver has confirmed, and the kill comes before it is noted.
            report("sent")
            threading.Event().wait()

        monkeypatch.setattr(webhooks, "send_request", send_and_wait)
        deliver_due(campaign)

    with running_receiver() as receiver:
        campaign = Campaign.open(path)
        add_webhook(campaign, receiver.url, ["labelled"], allow_private=True)
        campaign.database.close()  # before the fork

        assert kill_after(send_and_be_killed, reports=1) == ["sent"]
        assert len(receiver.requests) == 1

        # The lock of the killed process expires.
        clock = FakeClock()
        clock.wait(24 * 60)
        later = Campaign.open(path, clock=clock)
        deliver_due(later)

    items = [fields["item"] for fields in receiver.confirmed]
    assert items == ["i0", "i0", "i1", "i2", "i3"], "at least once, and none is lost"
    ids = [fields["id"] for fields in receiver.confirmed]
    assert ids[0] == ids[1]
