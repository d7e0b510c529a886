"""teeter serve: what it refuses, tokens, and one command from a table to a question."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from campaigns.ports import ReservedPort
from cli.conftest import Teeter
from teeter.campaigns.campaign import Campaign
from teeter.cli.serve import _guard, _options
from web.servers import PATIENCE, Server, begin, client_of, text

pytest.importorskip("fastapi")
uvicorn = pytest.importorskip("uvicorn")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TEETER_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_it_needs_something_to_serve(teeter: Teeter) -> None:
    assert "--folder" in teeter("serve", fails=2).stderr


@pytest.mark.parametrize("name", ["texts.csv", "features.npz", "images"])
def test_things_without_classes_are_not_called_damaged(
    teeter: Teeter, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).mkdir() if name == "images" else (tmp_path / name).write_text("text\none\n")
    told = teeter("serve", tmp_path / name, fails=2).stderr
    assert "is no campaign: say what its things can be with --classes" in told


def test_beyond_this_machine_it_needs_tokens(teeter: Teeter, tmp_path: Path) -> None:
    file = begin(tmp_path / "texts.teeter", 10)
    assert "--make-token" in teeter("serve", file, "--host", "0.0.0.0", fails=2).stderr
    assert (
        "16 or more"
        in teeter("serve", file, "--host", "0.0.0.0", "--token", "ann=short", fails=2).stderr
    )
    assert "NAME=TOKEN" in teeter("serve", file, "--token", "ann", fails=2).stderr


def test_a_token_is_shown_once(teeter: Teeter, home: Path) -> None:
    token = teeter("serve", "--make-token", "ann").stdout.strip()
    assert len(token) > 40
    assert token not in (home / "tokens.json").read_text()
    assert "no token of ann" in teeter("serve", "--remove-token", "ann").stdout
    assert "ann" not in (home / "tokens.json").read_text()
    assert "No token of 'ann'" in teeter("serve", "--remove-token", "ann", fails=2).stderr


def test_tokens_that_are_given_hold_on_this_machine_too(
    teeter: Teeter, tmp_path: Path, home: Path
) -> None:
    kept = tmp_path / "tokens.json"
    token = teeter("serve", "--tokens", kept, "--make-token", "ann").stdout.strip()
    assert not _guard("127.0.0.1", [], None, 1).needs_token
    by_file, by_option = (
        _guard("127.0.0.1", [], kept, 1),
        _guard("127.0.0.1", ["ann=" + "x" * 16], None, 1),
    )
    assert by_file.tokens.name_of(token) == "ann"
    for guard in (by_file, by_option):
        assert guard.needs_token
        assert guard.hosts is None, "a proxy in front has a name of its own"
    file = begin(tmp_path / "texts.teeter", 10)
    none = tmp_path / "none.json"
    assert (
        f"serve --tokens {none} --make-token NAME."
        in teeter("serve", file, "--tokens", none, fails=2).stderr
    )


@pytest.mark.parametrize(
    ("proxy", "asks"), [(None, "127.0.0.1"), ("127.0.0.1", "192.0.2.3"), ("192.0.2.9", "127.0.0.1")]
)
def test_who_asks_is_taken_from_a_named_proxy_alone(proxy: str | None, asks: str) -> None:
    found: list[str] = []

    async def app(scope: Any, _: Any, send: Any) -> None:
        found.append(scope["client"][0])

    config = uvicorn.Config(app, lifespan="off", **_options(proxy))
    config.load()
    headers = [(b"x-forwarded-for", b"192.0.2.3")]
    scope = {"type": "http", "client": ("127.0.0.1", 1), "headers": headers, "scheme": "http"}
    asyncio.run(config.loaded_app(scope, None, None))
    assert found == [asks]


def test_connections_are_numbered() -> None:
    assert 100 <= _options(None)["limit_concurrency"] < 1024


def test_a_proxy_is_an_address(teeter: Teeter, tmp_path: Path) -> None:
    file = begin(tmp_path / "texts.teeter", 10)
    assert "--proxy takes" in teeter("serve", file, "--proxy", "*", fails=2).stderr


def test_what_is_not_there_is_one_sentence(teeter: Teeter, tmp_path: Path) -> None:
    assert "no campaign" in teeter("serve", tmp_path / "none.teeter", "--no-open", fails=2).stderr
    assert (
        "not a folder"
        in teeter("serve", "--folder", tmp_path / "none", "--no-open", fails=2).stderr
    )


def test_a_taken_port_is_told(teeter: Teeter, tmp_path: Path) -> None:
    file = begin(tmp_path / "texts.teeter", 10)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        said = teeter("serve", file, "--port", taken.getsockname()[1], "--no-open", fails=2).stderr
    assert "Cannot listen" in said


def start_and_stop(*arguments: object, teeter: Teeter, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run ``teeter serve`` up to where the server would run, and return its site."""
    apps: list[Any] = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: apps.append(self.config.app))
    teeter("serve", *arguments, "--no-open")
    (app,) = apps
    app.state.site.close()
    return app.state.site


def test_servers_of_one_machine_have_cookies_of_their_own(
    teeter: Teeter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A browser sends the cookies of all ports of a machine to each."""
    file = begin(tmp_path / "texts.teeter", 10)
    for port in (ReservedPort(), ReservedPort()):
        site = start_and_stop(file, "--port", port.number, teeter=teeter, monkeypatch=monkeypatch)
        assert site.guard.cookie_name == f"teeter_session_{port.number}"


def test_a_campaign_is_made_of_things_with_classes(
    teeter: Teeter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mail.csv").write_text("text\n" + "".join(f'"{text(k)}"\n' for k in range(12)))
    port = ReservedPort()
    for _ in range(2):  # the second time it is there
        site = start_and_stop(
            tmp_path / "mail.csv",
            "--classes",
            "spam,ham",
            "--port",
            port.number,
            teeter=teeter,
            monkeypatch=monkeypatch,
        )
        assert site.desks["mail"].campaign.classes == ("spam", "ham")


@pytest.mark.xdist_group("servers")
def test_an_answer_to_a_process_is_in_one_file_when_it_ends(tmp_path: Path, home: Path) -> None:
    file = begin(tmp_path / "texts.teeter", 40)
    campaign = Campaign.open(file)
    campaign.pick_ahead(20)  # or the first question would wait for the trainer's process
    campaign.database.close()
    answer_and_interrupt(Server(home, file), "texts")
    assert [path.name for path in tmp_path.glob("texts.teeter*")] == ["texts.teeter"], (
        "nothing is left beside it"
    )
    campaign = Campaign.open(file)
    assert campaign.status().labelled == 1
    campaign.database.close()


@pytest.mark.slow
@pytest.mark.xdist_group("servers")
def test_one_command_from_a_table_to_a_question_and_back(tmp_path: Path, home: Path) -> None:
    (tmp_path / "mail.csv").write_text("text\n" + "".join(f'"{text(k)}"\n' for k in range(40)))
    answer_and_interrupt(Server(home, tmp_path / "mail.csv", "--classes", "spam,ham"), "mail")
    assert [path.name for path in tmp_path.glob("mail.teeter*")] == ["mail.teeter"], (
        "nothing is left beside it"
    )


def answer_and_interrupt(server: Server, slug: str) -> None:
    """Start a server, answer its first question, and press Ctrl+C."""
    server.start()
    try:
        with closing(client_of(server.address)) as client:
            assert {cookie.name for cookie in client.cookies.jar} == {
                f"teeter_session_{server.port}"
            }
            ends = time.monotonic() + PATIENCE
            while not (
                found := client.get(f"/api/v1/campaigns/{slug}/questions").json()["questions"]
            ):
                assert time.monotonic() < ends
                time.sleep(0.5)
            told = client.post(
                f"/api/v1/campaigns/{slug}/answers", json={"item": found[0]["item"], "label": "ham"}
            )
            assert told.json()["stored"]
        assert server.process is not None
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(PATIENCE) in (0, 130)
    finally:
        server.stop()


@pytest.mark.slow
@pytest.mark.xdist_group("servers")
def test_two_servers_on_one_machine_do_not_log_each_other_out(tmp_path: Path, home: Path) -> None:
    file = begin(tmp_path / "texts.teeter", 30)
    servers = [Server(home, file).start() for _ in range(2)]
    try:
        clients = [client_of(one.address) for one in servers]
        names = [{cookie.name for cookie in client.cookies.jar} for client in clients]
        assert names == [{f"teeter_session_{one.port}"} for one in servers]
        for client in clients:
            client.close()
    finally:
        for one in servers:
            one.stop()
