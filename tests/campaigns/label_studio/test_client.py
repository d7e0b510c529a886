"""Label Studio's REST interface when it does not do what it should: one sentence each, and tries with a limit."""

from __future__ import annotations

import httpx
import pytest

from campaigns.fake_label_studio import LEGACY, PERSONAL, FakeLabelStudio
from teeter.campaigns.label_studio.client import Server, address
from teeter.campaigns.label_studio.tasks import Project
from teeter.errors import InputError, ServerError, ServerUnavailableError

Answer = httpx.Response | Exception


class Told:
    """Answers one after the other, and counts."""

    def __init__(self, *answers: Answer) -> None:
        self.answers, self.asked, self.slept = list(answers), 0, list[float]()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def server(self, token: str = LEGACY) -> Server:
        transport = httpx.MockTransport(self)
        return Server("http://127.0.0.1:8080", token, transport=transport, sleep=self.slept.append)


GOOD = httpx.Response(200, json={"email": "ann@example.com"})


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_what_changes_nothing_is_asked_again(status: int) -> None:
    told = Told(httpx.Response(status), httpx.Response(status), GOOD)
    assert told.server().get("/api/x") == {"email": "ann@example.com"}
    assert told.slept == [0.5, 1.0]


@pytest.mark.parametrize("status", [429, 503])
def test_what_was_not_begun_is_sent_again(status: int) -> None:
    told = Told(httpx.Response(status), GOOD)
    told.server().post("/api/x", {})
    assert told.asked == 2


@pytest.mark.parametrize(
    "trouble", [httpx.Response(500), httpx.Response(504), httpx.ReadTimeout("slow")]
)
def test_what_may_have_arrived_is_not_sent_again(trouble: Answer) -> None:
    told = Told(trouble)
    with pytest.raises(ServerUnavailableError, match="nothing is lost, run it again later"):
        told.server().post("/api/x", {})
    assert told.asked == 1


def test_who_does_not_connect_has_sent_nothing() -> None:
    told = Told(httpx.ConnectError("Connection refused"), GOOD)
    told.server().post("/api/x", {})
    assert told.asked == 2


@pytest.mark.parametrize(
    ("trouble", "sentence"),
    [
        (
            httpx.ConnectError("[Errno 111] Connection refused"),
            "Nobody answers at http://127.0.0.1:8080 ([Errno 111]",
        ),
        (httpx.ConnectTimeout(""), "Nobody answers at http://127.0.0.1:8080 (ConnectTimeout)"),
        (httpx.ReadTimeout("timed out"), "http://127.0.0.1:8080 broke off (timed out)"),
        (httpx.Response(429), "http://127.0.0.1:8080 answers with 429"),
        (
            httpx.Response(502, html="<h1>Bad gateway</h1>"),
            "http://127.0.0.1:8080 answers with 502",
        ),
    ],
)
def test_tries_have_a_limit(trouble: Answer, sentence: str) -> None:
    told = Told(trouble)
    with pytest.raises(ServerUnavailableError) as raised:
        told.server().get("/api/x")
    assert str(raised.value).startswith(sentence)
    assert str(raised.value).endswith(": nothing is lost, run it again later.")
    assert (told.asked, told.slept) == (5, [0.5, 1.0, 2.0, 4.0])


def test_the_server_says_how_long_to_wait_and_is_not_believed_without_end() -> None:
    waits = [
        httpx.Response(429, headers={"Retry-After": told})
        for told in ("3", "86400", "Sun, 06 Nov 1994")
    ]
    told = Told(*waits, GOOD)
    told.server().get("/api/x")
    assert told.slept == [3.0, 60.0, 2.0]


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (
            httpx.Response(200, html="<html>Welcome</html>"),
            "answers with a page instead of data: check that it is",
        ),
        (
            httpx.Response(404, html="<html>nothing</html>"),
            "There is no Label Studio at http://127.0.0.1:8080: check",
        ),
        (
            httpx.Response(302, headers={"Location": "https://b.example/login"}),
            "leads on to https://b.example/login:",
        ),
        (
            httpx.Response(401, json={"detail": "Invalid token."}),
            r"refuses the token \(Invalid token.\): it is wrong",
        ),
        (
            httpx.Response(401, json={}),
            "or legacy tokens are switched off there; make one under Account",
        ),
        (
            httpx.Response(403, json={"detail": "No."}),
            r"refuses the token \(No.\).*ask for the rights to the project",
        ),
        (
            httpx.Response(400, json={"validation_errors": {"a": ["b\x1b[31m\nc"]}}),
            r"refuses with 400 \(\{'a': \['b",
        ),
        (httpx.Response(400, text="oh"), "answers with a page"),
        (httpx.Response(404, json={"detail": "No Project."}), r"has no /api/x \(No Project.\)"),
    ],
)
def test_every_refusal_is_one_sentence(answer: httpx.Response, sentence: str) -> None:
    with pytest.raises(ServerError, match=sentence) as raised:
        Told(answer).server().get("/api/x")
    assert str(raised.value).isprintable()
    assert LEGACY not in str(raised.value)
    assert not isinstance(raised.value, ServerUnavailableError)


def test_what_lists_no_rows_is_no_label_studio() -> None:
    for answer in ({"hello": 1}, [1], "hello", None):
        with pytest.raises(ServerError, match="in a way that teeter does not know"):
            list(Told(httpx.Response(200, json=answer)).server().pages("/api/x", "rows", "count"))
    rows = {"total": 1, "tasks": [{"id": 1}]}
    with pytest.raises(ServerError, match="in a way that teeter does not know"):
        Project(Told(httpx.Response(200, json=rows)).server(), 1).read()


def test_a_personal_token_is_refreshed_when_it_ends_and_no_more_than_once() -> None:
    studio = FakeLabelStudio()
    server = Server("http://127.0.0.1:8080", PERSONAL, transport=studio.transport)
    assert server.get("/api/current-user/whoami")["email"] == "ann@example.com"
    server.get("/api/current-user/whoami")
    assert studio.access == 1
    studio.access += 1  # what was given is no longer good
    server.post("/api/projects/", {"title": "numbers"})
    assert (studio.access, len(studio.projects)) == (3, 1)
    studio.before = lambda request: (
        None if "refresh" in request.url.path else httpx.Response(401, json={})
    )
    studio.asked.clear()
    with pytest.raises(ServerError, match="refuses the token"):
        server.get("/api/current-user/whoami")
    assert len(studio.asked) == 3


@pytest.mark.parametrize(
    "answer",
    [httpx.Response(200, json={}), httpx.Response(200, json=[]), httpx.Response(200, html="<p>")],
)
def test_a_refresh_that_gives_nothing_is_told(answer: httpx.Response) -> None:
    with pytest.raises(ServerError, match="check that it is a Label Studio"):
        Told(answer).server(PERSONAL).get("/api/x")


def test_a_refresh_while_the_server_is_away() -> None:
    with pytest.raises(ServerUnavailableError, match="answers with 502"):
        Told(httpx.Response(502)).server(PERSONAL).get("/api/x")
    told = Told(httpx.ConnectError("refused"))
    with pytest.raises(ServerUnavailableError, match="Nobody answers"):
        told.server(PERSONAL).get("/api/x")
    assert told.asked == 5


@pytest.mark.parametrize(
    ("given", "kept"),
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
def test_an_address_may_be_copied_from_a_browser(given: str, kept: str) -> None:
    assert address(given) == kept


@pytest.mark.parametrize(
    "given",
    ["", "localhost:8080", "ftp://a", "http://", "http://a:99999", "http://[::1", "http://a\nb"],
)
def test_what_is_no_address_is_refused(given: str) -> None:
    with pytest.raises(InputError, match="is not an address: give one such as"):
        address(given)


def test_an_address_with_a_password_is_refused_without_telling_it() -> None:
    with pytest.raises(InputError, match="Leave name and password out") as raised:
        address("http://ann:secret@studio.example")
    assert "secret" not in str(raised.value)
