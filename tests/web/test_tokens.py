"""Tokens of a server: made, kept as hashes, and removed while it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from teeter.errors import FileError, InputError, UnknownNameError
from teeter.web.security import SecurityConfig
from teeter.web.tokens import Tokens, make_token, remove_token, server_secret
from web.labelled_campaigns import AT
from web.servers import begin, csrf_of, served


def test_tokens_are_made_and_removed_while_the_server_runs(tmp_path: Path) -> None:
    kept = tmp_path / "tokens.json"
    token = make_token(kept, "ann")
    guard = SecurityConfig(b"secret", Tokens.read(kept), None)
    with served(begin(tmp_path / "texts.teeter", 30), guard=guard) as client:
        client.post("/login", data={"csrf": csrf_of(client.get("/login").text), "token": token})
        assert client.get(AT).status_code == 200
        bob = {"authorization": f"Bearer {make_token(kept, 'bob')}"}
        assert client.get(AT, headers=bob).status_code == 200
        renewed = make_token(kept, "ann")
        assert client.get(AT).status_code == 401, "the session of the token that was replaced"
        client.post("/login", data={"csrf": csrf_of(client.get("/login").text), "token": renewed})
        assert client.get(AT).status_code == 200
        remove_token(kept, "ann")
        remove_token(kept, "bob")
        assert client.get(AT).status_code == 401
        assert client.get(AT, headers=bob).status_code == 401
        kept.write_text("broken")
        assert client.get(AT).status_code == 401
    with pytest.raises(UnknownNameError, match="nobody"):
        remove_token(tmp_path / "none.json", "ann")


def test_tokens_are_kept_as_hashes(tmp_path: Path) -> None:
    path = tmp_path / "kept" / "tokens.json"
    token = make_token(path, "ann")
    assert token not in path.read_text()
    assert path.stat().st_mode & 0o077 == 0
    assert Tokens.read(path).name_of(token) == "ann"
    renewed = make_token(path, "ann")
    assert Tokens.read(path).name_of(token) is None
    assert Tokens.read(path).name_of(renewed) == "ann"
    path.write_text("[1]")
    with pytest.raises(FileError, match="not a file of tokens"):
        Tokens.read(path)


def test_a_token_that_can_be_guessed_is_refused() -> None:
    with pytest.raises(InputError, match="characters"):
        Tokens().add("ann", "1234")


def test_the_secret_outlives_a_restart(tmp_path: Path) -> None:
    assert server_secret(tmp_path / "key") == server_secret(tmp_path / "key")
    assert (tmp_path / "key").stat().st_mode & 0o077 == 0
