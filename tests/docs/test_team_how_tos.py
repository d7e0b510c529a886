"""The how-tos on teams: every command is one that teeter accepts, and does what the page says."""

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
from server.servers import TeeterServeProcess, serve_campaigns
from teeter.campaigns import Campaign
from teeter.campaigns.people import ROLES
from teeter.cli import app
from teeter.errors import StoreError

HOW_TO = Path(__file__).parents[2] / "docs" / "how_to"
PAGES = {
    name: (HOW_TO / f"{name}.md").read_text(encoding="utf-8")
    for name in ("people_and_logins", "team_server", "postgresql")
}
POSTGRESQL_BINARIES = os.pathsep.join(
    [*map(str, Path("/usr/lib/postgresql").glob("*/bin")), os.environ.get("PATH", "")]
)


def find_blocks(page: str, language: str) -> list[str]:
    """Return the blocks of a page in a language."""
    pattern = re.compile(rf"^```{language}\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
    return pattern.findall(PAGES[page])


def shell_commands(page: str) -> list[str]:
    """Return the shell commands of a page, and the command of its service."""
    commands = []
    for block in find_blocks(page, "console"):
        lines = block.splitlines()
        commands += [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    for line in PAGES[page].splitlines():
        if line.startswith("ExecStart="):
            commands.append(line.split("/bin/")[1])
    return commands


def parse_command(words: list[str]) -> Any:
    """Let teeter's own parser read a command; it raises on what it does not know."""
    command: Any = build_command(app)
    while hasattr(command, "commands"):
        command = command.commands[words[0]]
        words = words[1:]
    return command.make_context(command.name, list(words))


@pytest.mark.parametrize("page", PAGES)
def test_every_command_is_accepted(page: str) -> None:
    commands = [line for line in shell_commands(page) if line.startswith("teeter ")]
    assert len(commands) >= 3
    for line in commands:
        parse_command(shlex.split(line)[1:])


def test_a_wrong_option_would_be_noticed() -> None:
    with pytest.raises(Exception, match="No such option"):
        parse_command(["campaign", "backup", "a.teeter", "b.teeter", "--ovrwrite"])


def test_the_page_lists_all_roles() -> None:
    rows = re.findall(
        r"^\| (annotator|reviewer|owner) \|", PAGES["people_and_logins"], flags=re.MULTILINE
    )
    assert rows == list(ROLES)


@contextmanager
def run_server(file: Path) -> Iterator[None]:
    """Serve a campaign in a process of its own."""
    server = TeeterServeProcess(file.parent / "home", file).start()
    try:
        yield
    finally:
        server.stop()


@pytest.fixture
def messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the campaign of ``messages.csv`` in the current folder will be."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TEETER_HOME", str(tmp_path / "home"))
    rows = [f"message number {number} {'abcdefgh'[number % 8]}\n" for number in range(40)]
    (tmp_path / "messages.csv").write_text(f"text\n{''.join(rows)}")
    return tmp_path / "messages.teeter"


def test_the_commands_for_a_server_do_what_the_page_says(messages: Path) -> None:
    for line in shell_commands("people_and_logins") + shell_commands("team_server"):
        if line.startswith("mkdir "):
            Path(line.removeprefix("mkdir ")).mkdir()
        if not line.startswith("teeter campaign"):
            continue
        if " restore " in line:
            campaign = Campaign.open(messages)
            campaign.classes.add("neither")
            campaign.database.close()
        run_teeter(*shlex.split(line)[1:])

    campaign = Campaign.open(messages)
    people = [(person.name, person.role) for person in campaign.people.list()]
    assert people == [("olga", "owner"), ("rey", "reviewer"), ("ann", "annotator")]
    assert campaign.classes.names() == ("ham", "spam"), "the backup replaced the campaign"
    assert campaign.settings.overlap == 0.2
    assert campaign.settings.people == 2
    assert campaign.settings.lease == 30
    campaign.database.close()


@pytest.mark.parametrize(
    "serve",
    [
        pytest.param(serve_campaigns, id="here"),
        pytest.param(run_server, id="process", marks=pytest.mark.slow),
    ],
)
def test_a_campaign_in_use_is_not_replaced(serve: Callable[[Path], Any], messages: Path) -> None:
    run_teeter("campaign", "new", "messages.csv", "--classes", "ham,spam")
    run_teeter("campaign", "backup", messages, "copy.teeter")
    with serve(messages):
        restore = ("campaign", "restore", "copy.teeter", messages, "--overwrite")
        assert "in use" in run_teeter(*restore, fails=2).stderr


@pytest.mark.slow
def test_the_commands_for_postgresql_do_what_the_page_says(messages: Path, tmp_path: Path) -> None:
    psycopg = pytest.importorskip("psycopg")
    server = shared_server()
    host = f"127.0.0.1:{server.port}"
    login = f"host=127.0.0.1 port={server.port} user=teeter"

    statements = [
        line.strip() for block in find_blocks("postgresql", "sql") for line in block.splitlines()
    ]
    create_database = statements[1]
    grants = statements[2:]
    commands = []
    for line in shell_commands("postgresql"):
        line = line.replace("db.example.org/", f"{host}/")
        line = line.replace("--host=db.example.org", f"--host=127.0.0.1 --port={server.port}")
        commands.append(line)
    new, _, copy_there, copy_back, _, *backups_and_tools = commands
    backups = backups_and_tools[:3]
    tools = backups_and_tools[3:]

    with psycopg.connect(f"{login} dbname=postgres", autocommit=True) as admin:
        admin.execute(create_database)
    try:
        run_teeter(*shlex.split(new)[1:])
        campaign = Campaign.open(f"postgresql://teeter@{host}/campaigns#texts")
        assert campaign.status().items == 40
        campaign.database.close()

        run_teeter("campaign", "new", "messages.csv", "--classes", "ham,spam")
        run_teeter(*shlex.split(copy_there)[1:])

        # The role of the page can label, and nothing more.
        with psycopg.connect(f"{login} dbname=campaigns", autocommit=True) as owner:
            for statement in grants:
                owner.execute(statement)
        campaign = Campaign.open(f"postgresql://labelling@{host}/campaigns#messages")
        campaign.tell(campaign.ask(1, "ann")[0].item, "ham", "ann")
        assert campaign.status().labelled == 1
        with pytest.raises(StoreError), campaign.writing() as change:
            change.connection.exec_driver_sql("DROP TABLE history")
        campaign.database.close()

        run_teeter(*shlex.split(copy_back)[1:])
        campaign = Campaign.open(tmp_path / "messages-again.teeter")
        assert campaign.status().labelled == 1
        campaign.database.close()

        # What happens after the backup is undone by restoring it.
        (tmp_path / "backups").mkdir()
        rotate, back_up, restore = backups
        run_teeter(*shlex.split(rotate)[1:])
        run_teeter(*shlex.split(back_up)[1:])
        campaign = Campaign.open(f"postgresql://teeter@{host}/campaigns#messages")
        campaign.tell(campaign.ask(1, "eve")[0].item, "ham", "eve")
        campaign.database.close()
        run_teeter(*shlex.split(restore)[1:])
        campaign = Campaign.open(f"postgresql://teeter@{host}/campaigns#messages")
        assert campaign.status().labelled == 1
        campaign.database.close()
        assert len(list((tmp_path / "backups").iterdir())) == 1

        for line in tools:
            program, *arguments = shlex.split(line)
            path = shutil.which(program, path=POSTGRESQL_BINARIES)
            subprocess.run([str(path), *arguments], check=True, cwd=tmp_path, capture_output=True)
        campaign = Campaign.open(f"postgresql://teeter@{host}/campaigns_again#messages")
        assert campaign.status().labelled == 1
        campaign.tell(campaign.ask(1, "bob")[0].item, "spam", "bob")
        campaign.database.close()
    finally:
        with psycopg.connect(f"{login} dbname=postgres", autocommit=True) as admin:
            for name in ("campaigns", "campaigns_again"):
                admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
            admin.execute("DROP ROLE IF EXISTS labelling")
