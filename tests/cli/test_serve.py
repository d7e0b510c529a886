"""teeter serve: tokens, ports, what it refuses, and one command from a table to a question."""

from __future__ import annotations

import json
import signal
import socket
import time
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from campaigns.ports import ReservedPort
from cli.conftest import Teeter
from server.servers import (
    PATIENCE,
    TeeterServeProcess,
    connect_client,
    make_image_campaign,
    make_text_campaign,
    text,
)
from teeter.campaigns import Campaign
from teeter.campaigns.asking.assignment import pick_ahead
from teeter.cli.serve import _security_config, _uvicorn_options
from teeter.server.access import Authenticator, ServerSettings

pytest.importorskip("fastapi")
uvicorn = pytest.importorskip("uvicorn")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the server's secrets, in place of the one of the user."""
    monkeypatch.setenv("TEETER_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def write_messages(path: Path, count: int) -> None:
    """Write a table of texts."""
    rows = "".join(f'"{text(number)}"\n' for number in range(count))
    path.write_text(f"text\n{rows}")


# ---- what is refused


def test_a_campaign_or_a_folder_is_needed(teeter: Teeter) -> None:
    assert "--folder" in teeter("serve", fails=2).stderr


@pytest.mark.parametrize("name", ["texts.csv", "features.npz", "images"])
def test_items_need_classes(teeter: Teeter, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "images":
        path.mkdir()
    else:
        path.write_text("text\none\n")
    message = teeter("serve", path, fails=2).stderr
    assert "list the classes with --classes" in message


def test_a_missing_campaign_or_folder_is_one_sentence(teeter: Teeter, tmp_path: Path) -> None:
    message = teeter("serve", tmp_path / "none.teeter", "--no-open", fails=2).stderr
    assert "no campaign" in message
    message = teeter("serve", "--folder", tmp_path / "none", "--no-open", fails=2).stderr
    assert "not a folder" in message


def test_a_taken_port_is_reported(teeter: Teeter, tmp_path: Path) -> None:
    file = make_text_campaign(tmp_path / "texts.teeter", 10)
    with socket.socket() as other_server:
        other_server.bind(("127.0.0.1", 0))
        other_server.listen()
        port = other_server.getsockname()[1]
        message = teeter("serve", file, "--port", port, "--no-open", fails=2).stderr
    assert f"Cannot listen on 127.0.0.1, port {port}" in message


def test_a_broken_file_of_items_leaves_nothing(teeter: Teeter, tmp_path: Path) -> None:
    (tmp_path / "two.csv").write_text("first,second\nx,y\n")
    message = teeter("serve", tmp_path / "two.csv", "--classes", "a,b", fails=2).stderr
    assert "has the texts" in message
    assert list(tmp_path.glob("*.teeter*")) == []


# ---- tokens


def test_tokens_are_needed_beyond_this_machine(
    teeter: Teeter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = make_text_campaign(tmp_path / "texts.teeter", 10)
    public = ("serve", file, "--host", "0.0.0.0")
    assert "--make-token" in teeter(*public, fails=2).stderr

    monkeypatch.setenv("TEETER_TOKEN", "ann=short")
    assert "16 or more" in teeter(*public, fails=2).stderr
    monkeypatch.setenv("TEETER_TOKEN", "a-secret-without-a-name")
    message = teeter("serve", file, fails=2).stderr
    assert "NAME=TOKEN" in message
    assert "a-secret" not in message


def test_a_token_is_printed_once_and_stored_as_a_hash(teeter: Teeter, home: Path) -> None:
    token = teeter("serve", "--make-token", "ann").stdout.strip()
    assert len(token) > 40
    assert token not in (home / "tokens.json").read_text()

    assert "Removed the token of ann" in teeter("serve", "--remove-token", "ann").stdout
    assert "ann" not in (home / "tokens.json").read_text()
    assert "has no token for 'ann'" in teeter("serve", "--remove-token", "ann", fails=2).stderr


def test_tokens_are_checked_on_this_machine_too_if_there_are_any(
    teeter: Teeter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = write_settings(tmp_path, 'tokens = "tokens.json"')
    token = teeter("serve", "--settings", settings, "--make-token", "ann").stdout.strip()
    tokens = tmp_path / "tokens.json"
    assert tokens.exists(), "paths are relative to the settings"

    open_to_all = _security_config("127.0.0.1", 8765, ServerSettings())
    assert not Authenticator(open_to_all).requires_login()
    by_file = _security_config("127.0.0.1", 8765, ServerSettings(tokens=tokens))
    monkeypatch.setenv("TEETER_TOKEN", "ann=" + "x" * 16)
    by_environment = _security_config("127.0.0.1", 8765, ServerSettings())
    assert by_file.tokens.find_annotator(token) == "ann"
    for config in (by_file, by_environment):
        assert Authenticator(config).requires_login()
        assert config.allowed_hosts is None, "a proxy has a host name of its own"

    monkeypatch.delenv("TEETER_TOKEN")
    file = make_text_campaign(tmp_path / "texts.teeter", 10)
    write_settings(tmp_path, 'tokens = "none.json"')
    message = teeter("serve", file, "--settings", settings, fails=2).stderr
    assert f"serve --settings {settings} --make-token NAME." in message


# ---- settings in a file


def write_settings(folder: Path, content: str) -> Path:
    path = folder / "server.toml"
    path.write_text(content)
    return path


def test_the_settings_reach_the_server(
    teeter: Teeter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = make_text_campaign(tmp_path / "texts.teeter", 10)
    settings = write_settings(
        tmp_path,
        """
        proxy = "192.0.2.0/24"
        upload_megabytes = 5
        batch = 7
        [language_model]
        url = "http://127.0.0.1:1/v1"
        model = "tiny"
        input_price = 0.5
        output_price = 1
        budget = 2
        """,
    )
    arguments = (file, "--settings", settings)
    workspace = start_and_stop(*arguments, teeter=teeter, monkeypatch=monkeypatch)
    assert workspace.auth.config.proxy == "192.0.2.0/24"
    assert workspace.auth.config.upload_limit == 5_000_000
    assert workspace.batch == 7
    assert workspace.suggester.model.url == "http://127.0.0.1:1/v1"
    assert workspace.suggester.model.budget == 2


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ('prxy = "127.0.0.1"', "prxy: there is no such setting."),
        ('[proxy]\nhost = "a-secret"', "proxy: it must be a valid string."),
        ('proxy = "ann:a-secret@*"', "proxy: it must be an IP address or network, such as"),
        ('batch = "a-secret"', "batch: it must be a valid integer."),
        ("batch = 1", "batch: it must be greater than or equal to 2."),
        ("upload_megabytes = 0.5", "upload_megabytes: it must be a valid integer."),
        ('login = ["a-secret"]', "login: it must be a path"),
        ("language_model = 1", "language_model: it must be"),
        ('[language_model]\nurl = "a-secret"', "language_model.model: it is missing."),
        ('key = "a-secret', "is not a TOML file: "),
        ('login = "none.toml"', "none.toml: No such file or directory."),
        (
            '[language_model]\nurl = "http://me:a-secret@127.0.0.1/v1"\nmodel = "m"',
            "may contain only a host and a path",
        ),
        (
            '[language_model]\nurl = "http://127.0.0.1/v1"\nmodel = "m"\nbudget = 1',
            "A budget needs the input and output prices",
        ),
    ],
)
def test_a_wrong_setting_is_one_sentence_without_its_value(
    teeter: Teeter, tmp_path: Path, content: str, sentence: str
) -> None:
    file = make_text_campaign(tmp_path / "texts.teeter", 10)
    settings = write_settings(tmp_path, content)
    message = teeter("serve", file, "--settings", settings, "--no-open", fails=2).stderr
    assert sentence in message
    assert "a-secret" not in message
    assert len(message.splitlines()) == 1


def test_settings_that_are_not_there_are_reported(teeter: Teeter, tmp_path: Path) -> None:
    message = teeter("serve", "--settings", tmp_path / "none.toml", fails=2).stderr
    assert "none.toml: No such file or directory." in message


# ---- the proxy


@pytest.mark.parametrize(
    ("host", "server", "says_so"),
    [
        ("127.0.0.1", "", False),
        ("0.0.0.0", "", True),
        ("0.0.0.0", 'proxy = "127.0.0.1"', False),
    ],
)
def test_beyond_this_machine_a_proxy_must_close_slow_connections(
    host: str,
    server: str,
    says_so: bool,
    *,
    teeter: Teeter,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stop_at_once(server: Any, sockets: Any) -> None:
        server.config.app.state.workspace.close()

    monkeypatch.setattr(uvicorn.Server, "run", stop_at_once)
    monkeypatch.setenv("TEETER_TOKEN", "ann=" + 20 * "a")
    file = make_text_campaign(tmp_path / "texts.teeter", 10)
    settings = tmp_path / "server.toml"
    settings.write_text(server)

    printed = teeter("serve", file, "--host", host, "--settings", settings, "--no-open").stderr

    assert ("put a reverse proxy in front of it that closes slow connections" in printed) == says_so


def test_the_application_alone_believes_forwarded_addresses() -> None:
    """uvicorn would forget the address of the proxy, which may send other trusted headers."""
    assert _uvicorn_options()["proxy_headers"] is False
    security = _security_config("127.0.0.1", 8765, ServerSettings(proxy="192.0.2.9"))
    assert security.proxy == "192.0.2.9"


# ---- logins by accounts


def test_a_file_of_logins_takes_the_place_of_tokens(
    teeter: Teeter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = make_text_campaign(tmp_path / "texts.teeter", 10)
    login = tmp_path / "login.toml"
    login.write_text(
        '[header]\nname = "X-User"\nfrom = ["10.0.0.2"]\n[access]\ndomains = ["example.org"]\n'
    )
    settings = write_settings(tmp_path, 'login = "login.toml"')
    public = (file, "--host", "0.0.0.0", "--settings", settings)
    workspace = start_and_stop(*public, teeter=teeter, monkeypatch=monkeypatch)
    assert workspace.auth.config.login.header.name == "X-User"
    assert workspace.auth.requires_login()

    login.write_text("")
    assert "login.toml: it has neither" in teeter("serve", *public, fails=2).stderr


def test_a_token_can_come_from_the_environment(
    teeter: Teeter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = make_text_campaign(tmp_path / "texts.teeter", 10)
    monkeypatch.setenv("TEETER_TOKEN", "ann=correct-horse-battery")
    workspace = start_and_stop(file, "--host", "0.0.0.0", teeter=teeter, monkeypatch=monkeypatch)
    assert workspace.auth.config.tokens.find_annotator("correct-horse-battery") == "ann"


# ---- serving


def start_and_stop(*arguments: object, teeter: Teeter, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run ``teeter serve`` until the server would run, and return its workspace."""
    apps: list[Any] = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: apps.append(self.config.app))
    teeter("serve", *arguments, "--no-open")
    (app,) = apps
    app.state.workspace.close()
    return app.state.workspace


def test_two_servers_on_one_machine_have_different_cookies(
    teeter: Teeter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A browser sends the cookies of a host to all its ports."""
    file = make_text_campaign(tmp_path / "texts.teeter", 10)
    for port in (ReservedPort(), ReservedPort()):
        arguments = (file, "--port", port.number)
        workspace = start_and_stop(*arguments, teeter=teeter, monkeypatch=monkeypatch)
        assert workspace.auth.config.cookie_name == f"teeter_session_{port.number}"


def test_a_campaign_is_created_from_items_with_classes(
    teeter: Teeter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = tmp_path / "mail.csv"
    write_messages(items, 12)
    port = ReservedPort()
    arguments = (items, "--classes", "spam,ham", "--port", port.number)
    for _ in range(2):  # the second time, the campaign exists
        workspace = start_and_stop(*arguments, teeter=teeter, monkeypatch=monkeypatch)
        assert workspace.campaigns["mail"].classes.names() == ("spam", "ham")


def test_a_folder_outside_the_files_own_is_trusted_once(
    teeter: Teeter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    (tmp_path / "campaigns").mkdir()
    images = tmp_path / "digits"
    file = make_image_campaign(tmp_path / "campaigns" / "digits.teeter", images, 3)
    (home / "trusted.json").unlink()
    monkeypatch.setattr(uvicorn.Server, "run", lambda *_, **__: None)

    assert f"--trust {images} once" in teeter("serve", file, "--no-open").stderr
    assert teeter("serve", file, "--no-open", "--trust", images).stderr == ""
    assert teeter("serve", file, "--no-open").stderr == ""


@pytest.fixture
def serve_again(
    teeter: Teeter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """Run ``teeter serve mail.csv`` for a campaign that exists, and return what it says first."""
    write_messages(tmp_path / "mail.csv", 12)
    teeter("campaign", "new", tmp_path / "mail.csv", "--classes", "spam,ham")
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: None)

    def serve(*options: object, fails: int = 0, items: str = "mail.csv") -> str:
        arguments = (tmp_path / items, *options, "--no-open")
        result = teeter("serve", *arguments, fails=fails)
        said, _, _ = result.stdout.partition("http://")
        return " ".join(f"{said} {result.stderr}".split())

    return serve


def test_an_existing_campaign_with_other_classes_is_not_served(
    serve_again: Callable[..., str], tmp_path: Path
) -> None:
    message = serve_again("--classes", "urgent,spam", fails=2)
    assert "mail.teeter already exists and has the classes spam, ham, but not urgent" in message
    assert "open it with teeter serve" in message
    assert f"teeter campaign classes {tmp_path / 'mail.teeter'} --add urgent (or" in message
    assert "(or --rename OLD=NEW)" in message
    assert "--file FILE" in message

    alike = serve_again("--classes", "Spam,ham", fails=2)
    assert "mail.teeter already exists and has the class 'spam', not 'Spam': give" in alike
    assert "classes --add" not in alike

    campaign = Campaign.open(tmp_path / "mail.teeter")
    campaign.classes.rename("spam", "ads")
    campaign.classes.add("other")
    campaign.database.close()
    assert "mail.teeter also has the classes other." in serve_again("--classes", "spam,ham")


def count_items(file: Path) -> int:
    campaign = Campaign.open(file)
    with closing(campaign.database):
        return campaign.items.count().items


def test_items_that_were_added_to_the_file_are_added_to_the_campaign(
    serve_again: Callable[..., str], tmp_path: Path
) -> None:
    items = tmp_path / "mail.csv"
    classes = ("--classes", "spam,ham")
    assert serve_again(*classes) == f"Nothing is new in {items}."

    write_messages(items, 15)
    assert serve_again(*classes) == "Added 3 items; 12 were there already."
    assert serve_again(*classes) == f"Nothing is new in {items}."
    write_messages(items, 4)
    assert serve_again(*classes) == f"Nothing is new in {items}."
    assert serve_again() == f"Nothing is new in {items}.", "its classes are known"

    items.unlink()
    assert serve_again(*classes) == "", "the campaign does not need its file"
    assert count_items(tmp_path / "mail.teeter") == 15


def test_labels_of_added_items_must_be_classes(
    serve_again: Callable[..., str], tmp_path: Path
) -> None:
    lines = ["text,topic", "one more,ham", "and one,urgent", "a third,"]
    (tmp_path / "mail.csv").write_text("\n".join(lines))
    message = serve_again("--labels", "topic", fails=2)
    assert "has the classes spam, ham, but not urgent: add or rename a class with" in message
    assert count_items(tmp_path / "mail.teeter") == 12, "nothing was added"

    (tmp_path / "mail.csv").write_text("\n".join(lines).replace("urgent", "spam"))
    message = serve_again("--labels", "topic")
    assert message == "Added 3 items; 0 were there already. Added 2 labels."


def write_tickets(path: Path, count: int, *, text: str = "body", key: str = "key") -> None:
    """Write a table whose columns have no usual names, in the format of its suffix."""
    rows = [
        {key: f"k{number}", "title": f"title {number}", text: f"body {number}", "who": "ACME"}
        for number in range(count)
    ]
    if path.suffix == ".parquet":
        from pyarrow import Table, parquet

        parquet.write_table(Table.from_pylist(rows), path)
    elif path.suffix == ".xlsx":
        from data.test_table_files_workbooks import write_workbook

        write_workbook(path, {"May": [list(rows[0]), *(list(row.values()) for row in rows)]})
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(json.dumps(row) for row in rows))
    elif path.suffix == "":
        path.mkdir(exist_ok=True)
        for row in rows:
            (path / f"{row[key]}.txt").write_text(row[text])
    else:
        path.write_text("\n".join([",".join(rows[0]), *(",".join(row.values()) for row in rows)]))


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet", ".xlsx", ""])
def test_every_kind_of_file_is_made_a_campaign_and_grows(
    serve_again: Callable[..., str], tmp_path: Path, suffix: str
) -> None:
    items = f"tickets{suffix}"
    columns = ("--text", "body", "--id", "key", "--show", "who", "--instructions", "Read it.")
    options = ("--classes", "a,b", *(columns if suffix else ()))
    write_tickets(tmp_path / items, 8)
    assert "tickets.teeter: 8 items, 0 of them labelled." in serve_again(*options, items=items)

    write_tickets(tmp_path / items, 11)
    said = serve_again("--classes", "a,b", items=items)
    assert said == "Added 3 items; 8 were there already."

    campaign = Campaign.open(tmp_path / "tickets.teeter")
    with closing(campaign.database):
        content = campaign.items.get("k9" if suffix else "k9.txt").content
        assert content.text == "body 9"
        if suffix:
            assert campaign.settings.show == ["who"]
            assert campaign.settings.instructions == "Read it."
            assert [(column.name, column.value) for column in content.columns] == [("who", "ACME")]


def test_options_for_items_are_refused_for_a_campaign(serve_again: Callable[..., str]) -> None:
    for option in ("--text", "--id", "--labels", "--show", "--instructions"):
        message = serve_again(option, "x", items="mail.teeter", fails=2)
        assert "mail.teeter is a campaign: give --text, --id, --labels, --show and" in message


def test_instructions_and_shown_columns_of_a_campaign_are_changed(
    serve_again: Callable[..., str], tmp_path: Path
) -> None:
    serve_again("--instructions", "Read twice.", "--show", "text")

    campaign = Campaign.open(tmp_path / "mail.teeter")
    assert (campaign.settings.instructions, campaign.settings.show) == ("Read twice.", ["text"])
    campaign.database.close()


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize(
    ("columns", "options", "expected"),
    [
        ({"text": "message"}, (), "has no column 'body', from which the texts of tickets came: na"),
        ({"key": "number"}, (), "has no column 'key', from which the ids of tickets came: name th"),
        ({"text": "message"}, ("--text", "message"), "Added 3 items; 8 were there already."),
        ({"key": "number"}, ("--id", "number"), "Added 3 items; 8 were there already."),
        ({}, ("--text", "boddy"), "'boddy'"),
    ],
)
def test_a_file_without_the_columns_of_before_is_refused_and_nothing_is_added(
    serve_again: Callable[..., str],
    tmp_path: Path,
    *,
    suffix: str,
    columns: dict[str, str],
    options: tuple[str, ...],
    expected: str,
) -> None:
    items = f"tickets{suffix}"
    write_tickets(tmp_path / items, 8)
    serve_again("--classes", "a,b", "--text", "body", "--id", "key", items=items)

    write_tickets(tmp_path / items, 11, **columns)
    is_added = expected.startswith("Added")
    said = serve_again("--classes", "a,b", *options, items=items, fails=0 if is_added else 2)

    assert expected in said
    if not is_added:
        assert said.count(". ") == 0 or "Did you mean" in said or "Known" in said
    if "from which" in expected:
        assert said.endswith("(--text)." if "texts" in expected else "(--id).")
    assert count_items(tmp_path / "tickets.teeter") == (11 if is_added else 8)


def test_a_template_is_asked_for_again(serve_again: Callable[..., str], tmp_path: Path) -> None:
    items = "tickets.csv"
    template = ("--classes", "a,b", "--text", "title,body")
    write_tickets(tmp_path / items, 8)
    serve_again(*template, items=items)
    write_tickets(tmp_path / items, 10)

    said = serve_again("--classes", "a,b", items=items, fails=2)
    assert "not known from which columns the texts of tickets came: name" in said
    assert serve_again(*template, items=items) == "Added 2 items; 8 were there already."


def test_texts_that_changed_under_their_id_stay_as_they_are(
    serve_again: Callable[..., str], tmp_path: Path
) -> None:
    items = tmp_path / "tickets.csv"
    write_tickets(items, 8)
    options = ("--classes", "a,b", "--text", "body", "--id", "key")
    serve_again(*options, items="tickets.csv")
    write_tickets(items, 9)
    items.write_text(items.read_text().replace("body 3", "another body"))

    said = serve_again(*options, items="tickets.csv")

    assert said.startswith("Added 1 item; 8 were there already. 1 item differs from the one with")
    assert "which stays as it is (k3): correct texts on the page, under Items." in said
    campaign = Campaign.open(tmp_path / "tickets.teeter")
    assert campaign.items.get("k3").content.text == "body 3"
    campaign.database.close()


def test_a_file_that_is_older_than_the_campaign_is_not_read(
    serve_again: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("The file was read.")

    monkeypatch.setattr("teeter.campaigns.items.items.read_items", refuse)
    assert serve_again("--classes", "spam,ham").startswith("Nothing is new in")


def test_another_encoder_of_an_existing_campaign_is_reported(
    serve_again: Callable[..., str],
) -> None:
    message = serve_again("--classes", "spam,ham", "--encoder", "minilm")
    assert "features of the encoder" in message
    assert "encode " in message
    assert "--encoder minilm" in message


def test_rows_that_were_added_to_the_file_are_added(
    serve_again: Callable[..., str], teeter: Teeter, tmp_path: Path
) -> None:
    items = tmp_path / "tickets.csv"
    rows = [f"{number},{number % 3}" for number in range(10)]
    items.write_text("\n".join(["size,doors", *rows[:8]]))
    teeter("campaign", "new", items, "--classes", "a,b", "--rows")
    items.write_text("\n".join(["size,doors", *rows]))

    assert serve_again(items="tickets.csv") == "Added 2 items; 8 were there already."


def test_images_that_were_added_to_the_folder_are_added(
    serve_again: Callable[..., str], teeter: Teeter, tmp_path: Path
) -> None:
    make_image_campaign(tmp_path / "other.teeter", tmp_path / "photos", 6)
    teeter("campaign", "new", tmp_path / "photos", "--classes", "a,b", "--encoder", "pixels")
    photos = tmp_path / "photos"
    assert serve_again("--classes", "a,b", items="photos") == f"Nothing is new in {photos}."
    Image.new("RGB", (8, 8)).save(tmp_path / "photos" / "new.png")
    assert "Added 1 item; 6 were" in serve_again("--classes", "a,b", items="photos")


def test_images_that_were_added_to_an_archive_are_added(
    serve_again: Callable[..., str], tmp_path: Path
) -> None:
    options = ("--classes", "a,b", "--encoder", "pixels")

    def write_archive(count: int) -> None:
        with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
            for number in range(count):
                image = tmp_path / f"{number}.png"
                Image.new("RGB", (8, 8), (20 * number, 0, 0)).save(image)
                archive.write(image, f"may/{number}.png")

    write_archive(4)
    assert "photos.teeter: 4 items" in serve_again(*options, items="photos.zip")
    write_archive(6)
    assert "Added 2 items; 4 were there already." in serve_again(*options, items="photos.zip")
    assert "Nothing is new in" in serve_again(*options, items="photos.zip")


def answer_and_interrupt(server: TeeterServeProcess, slug: str) -> None:
    """Start a server, answer its first question, and press Ctrl+C."""
    server.start()
    try:
        with closing(connect_client(server.address)) as client:
            cookies = {cookie.name for cookie in client.cookies.jar}
            assert cookies == {f"teeter_session_{server.port}"}

            deadline = time.monotonic() + PATIENCE
            questions: list[Any] = []
            while not questions:
                assert time.monotonic() < deadline
                page = client.get(f"/api/v1/campaigns/{slug}/questions").json()
                questions = page["questions"]
                time.sleep(0.5)

            answer = {"item": questions[0]["item"], "label": "ham"}
            response = client.post(f"/api/v1/campaigns/{slug}/answers", json=answer)
            assert response.json()["recorded"]

        assert server.process is not None
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(PATIENCE) in (0, 130)
    finally:
        server.stop()


@pytest.mark.slow
@pytest.mark.xdist_group("servers")
def test_an_answer_to_a_process_is_in_one_file_when_it_ends(tmp_path: Path, home: Path) -> None:
    file = make_text_campaign(tmp_path / "texts.teeter", 40)
    campaign = Campaign.open(file)
    pick_ahead(campaign, 20)  # or the first question would wait for the background process
    campaign.database.close()

    answer_and_interrupt(TeeterServeProcess(home, file), "texts")
    assert [path.name for path in tmp_path.glob("texts.teeter*")] == ["texts.teeter"], (
        "nothing is left beside it"
    )
    campaign = Campaign.open(file)
    assert campaign.status().labelled == 1
    campaign.database.close()


@pytest.mark.slow
@pytest.mark.xdist_group("servers")
def test_one_command_leads_from_a_table_to_an_answer(tmp_path: Path, home: Path) -> None:
    write_messages(tmp_path / "mail.csv", 40)
    answer_and_interrupt(
        TeeterServeProcess(home, tmp_path / "mail.csv", "--classes", "spam,ham"), "mail"
    )
    assert [path.name for path in tmp_path.glob("mail.teeter*")] == ["mail.teeter"], (
        "nothing is left beside it"
    )


@pytest.mark.slow
@pytest.mark.xdist_group("servers")
def test_two_servers_on_one_machine_do_not_log_each_other_out(tmp_path: Path, home: Path) -> None:
    file = make_text_campaign(tmp_path / "texts.teeter", 30)
    servers = [TeeterServeProcess(home, file).start() for _ in range(2)]
    try:
        for server in servers:
            with closing(connect_client(server.address)) as client:
                cookies = {cookie.name for cookie in client.cookies.jar}
                assert cookies == {f"teeter_session_{server.port}"}
    finally:
        for server in servers:
            server.stop()
