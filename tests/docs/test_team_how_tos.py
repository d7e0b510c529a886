"""The how-tos on teams: every command in them is one that teeter takes, and does what they say."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from campaigns.stores import shared_server
from cli.commands import build_command, run_teeter
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.people import ROLES
from teeter.cli import app
from teeter.errors import StoreError
from web.servers import Server, served

HOW_TO = Path(__file__).parents[2] / "docs" / "how_to"
PAGES = {
    name: (HOW_TO / f"{name}.md").read_text(encoding="utf-8")
    for name in ("team_server", "postgresql")
}
BINARIES = os.pathsep.join(
    [*map(str, Path("/usr/lib/postgresql").glob("*/bin")), os.environ.get("PATH", "")]
)


def lines(page: str) -> list[str]:
    """Every shell line of a page, and what its service runs."""
    text = PAGES[page]
    typed = [
        line.removeprefix("$ ")
        for block in re.findall(r"^```console\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
        if line.startswith("$ ")
    ]
    return typed + [
        line.split("/bin/")[1] for line in text.splitlines() if line.startswith("ExecStart=")
    ]


def parsed(arguments: list[str]) -> Any:
    """Return what teeter's own parser makes of a command; what it does not know, it refuses."""
    command: Any = build_command(app)
    while hasattr(command, "commands"):
        command, arguments = command.commands[arguments[0]], arguments[1:]
    return command.make_context(command.name, list(arguments))


@pytest.mark.parametrize("page", PAGES)
def test_every_line_of_teeter_s_is_one_it_takes(page: str) -> None:
    ours = [line for line in lines(page) if line.startswith("teeter ")]
    assert len(ours) >= 3
    for line in ours:
        parsed(shlex.split(line)[1:])


def test_a_wrong_option_would_be_seen() -> None:
    with pytest.raises(Exception, match="No such option"):
        parsed(["campaign", "backup", "a.teeter", "b.teeter", "--ovrwrite"])


def test_the_roles_are_those_there_are() -> None:
    rows = re.findall(
        r"^\| (annotator|reviewer|owner) \|", PAGES["team_server"], flags=re.MULTILINE
    )
    assert rows == list(ROLES)


@contextmanager
def run_server(file: Path) -> Iterator[None]:
    """Serve a campaign in a process of its own."""
    server = Server(file.parent / "home", file).start()
    try:
        yield
    finally:
        server.stop()


@pytest.fixture
def messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TEETER_HOME", str(tmp_path / "home"))
    rows = "".join(f"message number {k} {'abcdefgh'[k % 8]}\n" for k in range(40))
    (tmp_path / "messages.csv").write_text(f"text\n{rows}")
    return tmp_path / "messages.teeter"


def test_the_lines_do_what_they_say(messages: Path) -> None:
    done = [line for line in lines("team_server") if line.startswith("teeter campaign")]
    for line in done:
        if " restore " in line:
            campaign = Campaign.open(messages)
            campaign.add_class("neither")
            campaign.database.close()
        run_teeter(*shlex.split(line)[1:])
    campaign = Campaign.open(messages)
    assert [(one.name, one.role) for one in campaign.people.list()] == [
        ("olga", "owner"),
        ("rey", "reviewer"),
        ("ann", "annotator"),
    ]
    assert campaign.classes == ("ham", "spam"), "the copy took its place"
    assert (campaign.settings.overlap, campaign.settings.people, campaign.settings.lease) == (
        0.2,
        2,
        30,
    )
    campaign.database.close()


@pytest.mark.parametrize(
    "serve",
    [
        pytest.param(served, id="here"),
        pytest.param(run_server, id="process", marks=pytest.mark.slow),
    ],
)
def test_what_is_served_is_not_replaced(serve: Callable[[Path], Any], messages: Path) -> None:
    run_teeter("campaign", "new", "messages.csv", "--classes", "ham,spam")
    run_teeter("campaign", "backup", messages, "copy.teeter")
    with serve(messages):
        assert (
            "in use"
            in run_teeter(
                "campaign", "restore", "copy.teeter", messages, "--overwrite", fails=2
            ).stderr
        )


def test_there_and_back_and_the_copies_of_a_database(messages: Path, tmp_path: Path) -> None:
    psycopg = pytest.importorskip("psycopg")
    database = shared_server()
    at, plain = f"127.0.0.1:{database.port}", f"host=127.0.0.1 port={database.port} user=teeter"
    statements = [
        line.strip()
        for block in re.findall(
            r"^```sql\n(.*?)^```", PAGES["postgresql"], flags=re.MULTILINE | re.DOTALL
        )
        for line in block.splitlines()
    ]
    made, granted = statements[1], statements[2:]
    with psycopg.connect(f"{plain} dbname=postgres", autocommit=True) as admin:
        admin.execute(made)
    try:
        run_teeter("campaign", "new", "messages.csv", "--classes", "ham,spam")
        first, _, back, *tools = (
            line.replace("db.example.org/", f"{at}/").replace(
                "--host=db.example.org", f"--host=127.0.0.1 --port={database.port}"
            )
            for line in lines("postgresql")
            if not line.startswith("chmod")
        )
        run_teeter(*shlex.split(first)[1:])
        with psycopg.connect(f"{plain} dbname=campaigns", autocommit=True) as owner:
            for statement in granted:
                owner.execute(statement)
        working = Campaign.open(f"postgresql://labelling@{at}/campaigns#messages")
        working.tell(working.ask(1, "ann")[0].item, "ham", "ann")
        assert working.status().labelled == 1
        with pytest.raises(StoreError), working.database.writing() as connection:
            connection.exec_driver_sql("DROP TABLE history")
        working.database.close()
        run_teeter(*shlex.split(back)[1:])
        again = Campaign.open(tmp_path / "messages-again.teeter")
        assert again.status().labelled == 1
        again.database.close()
        for line in tools:
            command = shlex.split(line)
            command[0] = str(shutil.which(command[0], path=BINARIES))
            subprocess.run(command, check=True, cwd=tmp_path, capture_output=True)
        restored = Campaign.open(f"postgresql://teeter@{at}/campaigns_again#messages")
        assert restored.status().labelled == 1
        restored.tell(restored.ask(1, "bob")[0].item, "spam", "bob")
        restored.database.close()
    finally:
        with psycopg.connect(f"{plain} dbname=postgres", autocommit=True) as admin:
            for name in ("campaigns", "campaigns_again"):
                admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
            admin.execute("DROP ROLE IF EXISTS labelling")
