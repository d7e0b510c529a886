"""The client of Label Studio's REST API, above all when the server fails."""

from __future__ import annotations

import httpx2
import pytest

from campaigns.fake_label_studio import (
    FAKE_URL,
    LEGACY_TOKEN,
    PERSONAL_TOKEN,
    FakeLabelStudio,
)
from teeter.campaigns.integrations.label_studio.client import LabelStudioClient, normalize_url
from teeter.campaigns.integrations.label_studio.payloads import PROJECT_SETTINGS
from teeter.errors import InputError, ServerError, ServerUnavailableError

Outcome = httpx2.Response | Exception

SUCCESS = httpx2.Response(200, json={"id": 1, "email": "ann@example.com"})

NEW_PROJECT = {
    "title": "numbers",
    "description": "",
    "label_config": "<View/>",
    "expert_instruction": "",
    "show_instruction": False,
    **PROJECT_SETTINGS,
}


class ScriptedServer:
    """Gives prepared responses or errors one after the other, the last one forever."""

    def __init__(self, *outcomes: Outcome) -> None:
        self.outcomes = list(outcomes)
        self.request_count = 0
        self.pauses: list[float] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.request_count += 1
        outcome = self.outcomes[0]
        if len(self.outcomes) > 1:
            del self.outcomes[0]

        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def client(self, token: str = LEGACY_TOKEN) -> LabelStudioClient:
        return LabelStudioClient(
            FAKE_URL, token, transport=httpx2.MockTransport(self), sleep=self.pauses.append
        )


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_request_that_changes_nothing_is_retried(status: int) -> None:
    server = ScriptedServer(httpx2.Response(status), httpx2.Response(status), SUCCESS)
    assert server.client().get_current_user().email == "ann@example.com"
    assert server.pauses == [0.5, 1.0]


@pytest.mark.parametrize("status", [429, 503])
def test_a_change_that_was_not_processed_is_retried(status: int) -> None:
    server = ScriptedServer(httpx2.Response(status), SUCCESS)
    server.client().create_project(NEW_PROJECT)
    assert server.request_count == 2


@pytest.mark.parametrize(
    "outcome", [httpx2.Response(500), httpx2.Response(504), httpx2.ReadTimeout("slow")]
)
def test_a_change_that_may_have_been_processed_is_not_retried(outcome: Outcome) -> None:
    server = ScriptedServer(outcome)
    with pytest.raises(ServerUnavailableError, match="Nothing is lost; run the sync again later"):
        server.client().create_project(NEW_PROJECT)
    assert server.request_count == 1


def test_a_change_is_retried_if_there_was_no_connection() -> None:
    server = ScriptedServer(httpx2.ConnectError("Connection refused"), SUCCESS)
    server.client().create_project(NEW_PROJECT)
    assert server.request_count == 2


@pytest.mark.parametrize(
    ("outcome", "sentence"),
    [
        (
            httpx2.ConnectError("[Errno 111] Connection refused"),
            "Cannot connect to http://127.0.0.1:8080 ([Errno 111]",
        ),
        (httpx2.ConnectTimeout(""), "Cannot connect to http://127.0.0.1:8080 (ConnectTimeout)"),
        (
            httpx2.ReadTimeout("timed out"),
            "The connection to http://127.0.0.1:8080 was lost (timed out)",
        ),
        (httpx2.Response(429), "http://127.0.0.1:8080 responded with status 429."),
        (
            httpx2.Response(502, html="<h1>Bad gateway</h1>"),
            "http://127.0.0.1:8080 responded with status 502.",
        ),
    ],
)
def test_the_number_of_attempts_is_limited(outcome: Outcome, sentence: str) -> None:
    server = ScriptedServer(outcome)
    with pytest.raises(ServerUnavailableError) as raised:
        server.client().get_current_user()

    assert str(raised.value).startswith(sentence)
    assert str(raised.value).endswith(". Nothing is lost; run the sync again later.")
    assert server.request_count == 5
    assert server.pauses == [0.5, 1.0, 2.0, 4.0]


def test_the_server_chooses_the_pause_up_to_a_minute() -> None:
    refusals = [
        httpx2.Response(429, headers={"Retry-After": value})
        for value in ("3", "86400", "Sun, 06 Nov 1994")
    ]
    server = ScriptedServer(*refusals, SUCCESS)
    server.client().get_current_user()
    assert server.pauses == [3.0, 60.0, 2.0]


@pytest.mark.parametrize(
    ("response", "sentence"),
    [
        (
            httpx2.Response(200, html="<html>Welcome</html>"),
            "returned a page instead of JSON. Check that this is the address of Label Studio",
        ),
        (
            httpx2.Response(404, html="<html>nothing</html>"),
            "There is no Label Studio at http://127.0.0.1:8080. Check the URL",
        ),
        (
            httpx2.Response(302, headers={"Location": "https://b.example/login"}),
            "redirects to https://b.example/login. Use that URL",
        ),
        (
            httpx2.Response(401, json={"detail": "Invalid token."}),
            r"rejects the token \(Invalid token.\). The token is wrong or has expired",
        ),
        (
            httpx2.Response(401, json={}),
            "or legacy tokens are disabled. Create a token under Account",
        ),
        (
            httpx2.Response(403, json={"detail": "No."}),
            r"denies access to the owner of this token \(No.\). Ask for access to the project",
        ),
        (
            httpx2.Response(400, json={"validation_errors": {"a": ["b\x1b[31m\nc"]}}),
            r"rejected the request with status 400 \(\{'a': \['b",
        ),
        (httpx2.Response(400, text="oh"), "returned a page instead of JSON"),
        (
            httpx2.Response(404, json={"detail": "No Project."}),
            r"has no /api/current-user/whoami \(No Project.\)",
        ),
    ],
)
def test_every_refusal_is_one_sentence_without_the_token(
    response: httpx2.Response, sentence: str
) -> None:
    with pytest.raises(ServerError, match=sentence) as raised:
        ScriptedServer(response).client().get_current_user()

    assert str(raised.value).isprintable()
    assert LEGACY_TOKEN not in str(raised.value)
    assert not isinstance(raised.value, ServerUnavailableError)


@pytest.mark.parametrize(
    "content",
    [
        {"hello": 1},
        [1],
        "hello",
        None,
        {"total": 1, "tasks": "none"},
        {"total": 1, "tasks": [{"id": 1}]},
        {"total": "one", "tasks": []},
    ],
)
def test_json_that_is_no_list_of_tasks_is_rejected(content: object) -> None:
    client = ScriptedServer(httpx2.Response(200, json=content)).client()
    with pytest.raises(ServerError, match="returned unexpected JSON"):
        client.list_tasks(1)


@pytest.mark.parametrize("content", [{"id": 1}, [{"email": "ann@example.com"}], ["ann"]])
def test_json_that_is_no_list_of_users_is_rejected(content: object) -> None:
    client = ScriptedServer(httpx2.Response(200, json=content)).client()
    with pytest.raises(ServerError, match="returned unexpected JSON"):
        client.list_users()


def test_an_expired_access_token_is_exchanged_once() -> None:
    studio = FakeLabelStudio()
    client = LabelStudioClient(FAKE_URL, PERSONAL_TOKEN, transport=studio.transport)

    assert client.get_current_user().email == "ann@example.com"
    client.get_current_user()
    assert studio.refresh_count == 1, "one access token serves several requests"

    studio.refresh_count += 1  # The access token of the client is no longer valid.
    client.create_project(NEW_PROJECT)
    assert studio.refresh_count == 3
    assert len(studio.projects) == 1

    studio.before_request = lambda request: (
        None if "refresh" in request.url.path else httpx2.Response(401, json={})
    )
    studio.requests.clear()
    with pytest.raises(ServerError, match="rejects the token"):
        client.get_current_user()
    assert len(studio.requests) == 3, "a request, an exchange, and the request again"


@pytest.mark.parametrize(
    "response",
    [
        httpx2.Response(200, json={}),
        httpx2.Response(200, json=[]),
        httpx2.Response(200, html="<p>"),
    ],
)
def test_an_exchange_without_an_access_token_is_rejected(response: httpx2.Response) -> None:
    with pytest.raises(ServerError, match="Check that this is the address of Label Studio"):
        ScriptedServer(response).client(PERSONAL_TOKEN).get_current_user()


def test_an_exchange_fails_if_the_server_is_unavailable() -> None:
    with pytest.raises(ServerUnavailableError, match="responded with status 502"):
        ScriptedServer(httpx2.Response(502)).client(PERSONAL_TOKEN).get_current_user()

    server = ScriptedServer(httpx2.ConnectError("refused"))
    with pytest.raises(ServerUnavailableError, match="Cannot connect"):
        server.client(PERSONAL_TOKEN).get_current_user()
    assert server.request_count == 5


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://localhost:8080", "http://localhost:8080"),
        (" https://studio.example/ ", "https://studio.example"),
        ("https://studio.example/label/projects/3/data?tab=1", "https://studio.example/label"),
        ("https://studio.example/user/account", "https://studio.example"),
        ("https://studio.example/projects", "https://studio.example"),
        ("https://studio.example/userland", "https://studio.example/userland"),
        ("http://[::1]:8080/", "http://[::1]:8080"),
    ],
)
def test_a_url_can_be_copied_from_a_browser(url: str, expected: str) -> None:
    assert normalize_url(url) == expected


@pytest.mark.parametrize(
    "url",
    ["", "localhost:8080", "ftp://a", "http://", "http://a:99999", "http://[::1", "http://a\nb"],
)
def test_what_is_no_url_is_rejected(url: str) -> None:
    with pytest.raises(InputError, match=r"is not a URL\. Use one such as"):
        normalize_url(url)


def test_a_url_with_a_password_is_rejected_without_printing_it() -> None:
    with pytest.raises(InputError, match="Remove the user name and password") as raised:
        normalize_url("http://ann:secret@studio.example")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("token", ["", " ", "a b", "a\nb", "ä"])
def test_a_token_that_cannot_be_sent_is_rejected(token: str) -> None:
    with pytest.raises(InputError, match="The token is empty or contains"):
        LabelStudioClient(FAKE_URL, token)
