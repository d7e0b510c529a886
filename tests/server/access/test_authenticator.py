"""Sessions end with the token that opened them."""

from __future__ import annotations

import pytest

from server.access.requests import TOKEN
from teeter.server.access import Authenticator, SecurityConfig, WrongTokenError
from teeter.server.access.tokens import Tokens

ADDRESS = "192.0.2.1"


def authenticator_for(**token_by_name: str) -> Authenticator:
    tokens = Tokens()
    for name, token in token_by_name.items():
        tokens.add(name, token)
    return Authenticator(SecurityConfig(b"secret", tokens))


def test_a_session_ends_when_its_token_is_gone() -> None:
    authenticator = authenticator_for(ann=TOKEN)
    session = authenticator.log_in(TOKEN, ADDRESS)
    assert session.annotator == "ann"
    assert authenticator.restore_session(session) == session

    assert authenticator_for(bob=TOKEN).restore_session(session) is None
    assert authenticator_for(ann=TOKEN + "-renewed").restore_session(session) is None
    assert authenticator_for().restore_session(session) is None, "no login is required there"


def test_a_session_without_a_token_is_no_login_where_one_is_required() -> None:
    free = authenticator_for()
    strict = authenticator_for(ann=TOKEN)
    assert strict.restore_session(free.session_for_name("ann")) is None
    assert strict.restore_session(free.new_session()) is None


def test_a_session_from_before_a_login_stays_without_an_annotator() -> None:
    strict = authenticator_for(ann=TOKEN)
    session = strict.new_session()
    assert session.annotator is None
    assert strict.restore_session(session) == session


def test_removing_the_last_token_does_not_open_the_server() -> None:
    class ForgetfulTokens(Tokens):
        count = 1

        def __len__(self) -> int:
            return self.count

    tokens = ForgetfulTokens()
    authenticator = Authenticator(SecurityConfig(b"secret", tokens))
    tokens.count = 0
    assert authenticator.requires_login()


def test_every_session_has_a_secret_of_its_own() -> None:
    authenticator = authenticator_for(ann=TOKEN)
    first = authenticator.log_in(TOKEN, ADDRESS)
    second = authenticator.log_in(TOKEN, ADDRESS)
    assert first.csrf_token != second.csrf_token
    with pytest.raises(WrongTokenError):
        authenticator.log_in("", ADDRESS)
