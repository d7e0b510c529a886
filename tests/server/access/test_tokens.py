"""Tokens of the server: made, stored as hashes, and removed while it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.labelled_campaigns import AT
from server.servers import find_csrf_token, make_text_campaign, serve_campaigns
from teeter.errors import FileError, InputError, UnknownNameError
from teeter.server.access import SecurityConfig
from teeter.server.access.tokens import Tokens, make_token, remove_token, server_secret


def test_tokens_are_made_and_removed_while_the_server_runs(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    token = make_token(path, "ann")
    security = SecurityConfig(b"secret", Tokens.read(path), allowed_hosts=None)
    with serve_campaigns(
        make_text_campaign(tmp_path / "texts.teeter", 30), security=security
    ) as client:
        client.post(
            "/login", data={"csrf": find_csrf_token(client.get("/login").text), "token": token}
        )
        assert client.get(AT).status_code == 200

        bob = {"authorization": f"Bearer {make_token(path, 'bob')}"}
        assert client.get(AT, headers=bob).status_code == 200

        new_token = make_token(path, "ann")
        assert client.get(AT).status_code == 401, "the session of the token that was replaced"
        client.post(
            "/login", data={"csrf": find_csrf_token(client.get("/login").text), "token": new_token}
        )
        assert client.get(AT).status_code == 200

        remove_token(path, "ann")
        remove_token(path, "bob")
        assert client.get(AT).status_code == 401
        assert client.get(AT, headers=bob).status_code == 401

        path.write_text("broken")
        assert client.get(AT).status_code == 401


def test_removing_a_token_that_does_not_exist_names_those_that_do(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="no annotator"):
        remove_token(tmp_path / "none.json", "ann")
    make_token(tmp_path / "tokens.json", "bob")
    with pytest.raises(UnknownNameError, match=r"has no token for 'ann': it has tokens for bob"):
        remove_token(tmp_path / "tokens.json", "ann")


def test_tokens_are_stored_as_hashes(tmp_path: Path) -> None:
    path = tmp_path / "config" / "tokens.json"
    token = make_token(path, "ann")
    assert token not in path.read_text()
    assert path.stat().st_mode & 0o077 == 0
    assert list(path.parent.iterdir()) == [path]
    assert Tokens.read(path).find_annotator(token) == "ann"

    new_token = make_token(path, "ann")
    assert Tokens.read(path).find_annotator(token) is None
    assert Tokens.read(path).find_annotator(new_token) == "ann"

    path.write_text("[1]")
    with pytest.raises(FileError, match="not a token file"):
        Tokens.read(path)


def test_a_token_that_can_be_guessed_is_refused() -> None:
    with pytest.raises(InputError, match="characters"):
        Tokens().add("ann", "1234")


@pytest.mark.parametrize("name", ["a\0b", "ann\u202ebob", "a\nb", "\u200b", "", " "])
def test_a_name_that_cannot_be_printed_gets_no_token(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="name of an annotator"):
        make_token(tmp_path / "tokens.json", name)


def test_the_secret_outlives_a_restart(tmp_path: Path) -> None:
    assert server_secret(tmp_path / "key") == server_secret(tmp_path / "key")
    assert (tmp_path / "key").stat().st_mode & 0o077 == 0
    (tmp_path / "key").write_text("no secret")
    with pytest.raises(FileError, match="remove the file to create a new secret"):
        server_secret(tmp_path / "key")
