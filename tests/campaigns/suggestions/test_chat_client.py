"""One request per text, sent as data; every trouble with the server is one clear error."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

from campaigns.fake_language_model import FakeLanguageModel, fake_language_model
from teeter.base.outbound_http import LONGEST_PAUSE
from teeter.campaigns.records import ClassDescription
from teeter.campaigns.suggestions import chat_client
from teeter.campaigns.suggestions.chat_client import (
    ChatClient,
    TextRefusedError,
    build_prompt,
    normalize_endpoint,
    parse_label,
)
from teeter.errors import InputError, ServerError, ServerUnavailableError

CLASSES = ("spam", "ham")
PROMPT = build_prompt(
    CLASSES, {"spam": ClassDescription("Advertising.", ("Win now!",))}, "Judge the sender."
)


@pytest.fixture
def server() -> Iterator[FakeLanguageModel]:
    with fake_language_model() as running:
        yield running


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def client(server: FakeLanguageModel, pauses: list[float]) -> ChatClient:
    return ChatClient(server.url, "tiny", sleep=pauses.append)


def test_a_request_has_the_classes_the_instructions_and_the_text_as_data(
    server: FakeLanguageModel, client: ChatClient
) -> None:
    text = 'A "quoted"\ntext'
    reply = client.ask(PROMPT, text)
    assert reply == chat_client.ModelReply("ham", 100, 10)

    (request,) = server.requests
    system, user = request["body"]["messages"]
    assert request["path"] == "/v1/chat/completions"
    assert user["content"] == json.dumps({"text": text})
    for part in ("Advertising.", "Win now!", "Judge the sender.", '"ham"', "data"):
        assert part in system["content"]
    schema = request["body"]["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["label"]["enum"] == ["spam", "ham"]


def test_the_key_comes_from_the_environment(
    server: FakeLanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEETER_SUGGEST_KEY", "secret")
    ChatClient(server.url, "tiny").ask(PROMPT, "hello")
    assert server.requests[0]["headers"]["authorization"] == "Bearer secret"

    monkeypatch.delenv("TEETER_SUGGEST_KEY")
    ChatClient(server.url, "tiny").ask(PROMPT, "hello")
    assert "authorization" not in server.requests[1]["headers"]


def test_a_key_is_never_sent_unencrypted_to_another_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TEETER_SUGGEST_KEY", "secret")
    with pytest.raises(InputError, match="unencrypted"):
        ChatClient("http://llm.example.org/v1", "tiny")
    ChatClient("https://llm.example.org/v1", "tiny")


@pytest.mark.parametrize("key", ["schlüssel", "secret\nx-other: 1", "secret\x00"])
def test_a_key_that_cannot_be_sent_is_refused_and_not_repeated(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.environ", {"TEETER_SUGGEST_KEY": key})
    with pytest.raises(InputError, match="cannot be sent") as caught:
        ChatClient("https://llm.example.org/v1", "tiny")
    assert key[:6] not in str(caught.value)


def test_a_proxy_never_reads_a_request(
    server: FakeLanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_language_model() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.removesuffix("/v1"))
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.setenv("TEETER_SUGGEST_KEY", "secret")
        ChatClient(server.url, "tiny").ask(PROMPT, "hello")
        assert (len(server.requests), proxy.requests) == (1, [])


def test_a_busy_server_is_asked_again_after_the_time_it_names(
    server: FakeLanguageModel, client: ChatClient, pauses: list[float]
) -> None:
    server.statuses = [429, 503]
    server.headers = {"retry-after": "7"}
    assert client.ask(PROMPT, "win").label == "spam"
    assert pauses == [7.0, 7.0]


def test_pauses_grow_and_have_a_limit(
    server: FakeLanguageModel, client: ChatClient, pauses: list[float]
) -> None:
    server.statuses = [500, 500, 429]
    client.ask(PROMPT, "win")
    assert pauses == [1.0, 2.0, 4.0]

    server.statuses = [429]
    server.headers = {"retry-after": "86400"}
    client.ask(PROMPT, "win")
    assert pauses[-1] == LONGEST_PAUSE


@pytest.mark.parametrize("value", ["nan", "inf", "soon", "Mon, 01 Jan 99999 00:00:00 GMT"])
def test_a_time_to_wait_that_is_none_is_ignored(
    server: FakeLanguageModel, client: ChatClient, pauses: list[float], value: str
) -> None:
    server.statuses = [429]
    server.headers = {"retry-after": value}
    assert client.ask(PROMPT, "win").label == "spam"
    assert pauses == [1.0]


def test_a_server_that_stays_busy_is_not_available(
    server: FakeLanguageModel, client: ChatClient
) -> None:
    server.statuses = [429] * chat_client.MAX_ATTEMPTS
    with pytest.raises(ServerUnavailableError, match=r"status 429.*Run the same command"):
        client.ask(PROMPT, "win")


def test_a_response_that_takes_too_long_is_given_up(
    server: FakeLanguageModel, client: ChatClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.hold = threading.Event()
    monkeypatch.setattr(chat_client, "TIMEOUT", 0.05)
    monkeypatch.setattr(chat_client, "MAX_ATTEMPTS", 2)
    with pytest.raises(ServerUnavailableError, match="timed out"):
        client.ask(PROMPT, "win")
    for _ in range(2):
        assert server.arrivals.acquire(timeout=300), "both attempts arrive, perhaps late"
    server.hold.set()
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b"[]",
        b"{}",
        b'{"choices": []}',
        b'{"choices": [{"message": null}]}',
        b"\xff",
        b"[" * 400_000,
    ],
    ids=lambda body: repr(body[:20]),
)
def test_a_response_that_is_no_completion_is_an_error(
    server: FakeLanguageModel, client: ChatClient, body: bytes
) -> None:
    server.body = body
    with pytest.raises(ServerUnavailableError, match="not a chat completion"):
        client.ask(PROMPT, "win")


def test_a_huge_response_is_not_read(
    server: FakeLanguageModel, client: ChatClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_client, "MAX_REPLY_BYTES", 100)
    server.body = b" " * 5000
    with pytest.raises(ServerError, match="longer than 100 bytes"):
        client.ask(PROMPT, "win")


def test_redirects_are_refused_with_the_key_and_the_text(
    server: FakeLanguageModel, client: ChatClient
) -> None:
    with fake_language_model() as elsewhere:
        server.statuses = [307]
        server.headers = {"location": f"{elsewhere.url}/chat/completions"}
        with pytest.raises(ServerError, match="redirects to another address"):
            client.ask(PROMPT, "win")
        assert elsewhere.requests == []


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (401, "rejected the key"),
        (404, "no model 'tiny'"),
        (402, "rejected the request with status"),
    ],
)
def test_a_refusal_is_final(
    server: FakeLanguageModel, client: ChatClient, status: int, sentence: str
) -> None:
    server.statuses = [status]
    with pytest.raises(ServerError, match=sentence):
        client.ask(PROMPT, "win")
    assert len(server.requests) == 1


def test_fields_that_a_server_does_not_know_are_left_out(
    server: FakeLanguageModel, client: ChatClient
) -> None:
    server.refused_fields = {"response_format", *chat_client._TOKEN_LIMITS}
    assert client.ask(PROMPT, "win").label == "spam"
    assert set(server.requests[-1]["body"]) == {"model", "messages"}

    n_requests = len(server.requests)
    client.ask(PROMPT, "win")
    assert len(server.requests) == n_requests + 1, "the next request leaves them out at once"


def test_the_other_name_of_the_limit_is_tried_before_there_is_none(
    server: FakeLanguageModel, client: ChatClient
) -> None:
    server.refused_fields = {"max_tokens"}
    client.ask(PROMPT, "win")
    body = server.requests[-1]["body"]
    assert body["max_completion_tokens"] == chat_client.MAX_REPLY_TOKENS
    assert "response_format" in body


def test_a_client_that_needs_a_limit_sends_no_request_without_it(
    server: FakeLanguageModel,
) -> None:
    server.refused_fields = set(chat_client._TOKEN_LIMITS)
    client = ChatClient(server.url, "tiny", needs_limit=True)
    with pytest.raises(ServerError, match="no request is sent without a limit"):
        client.ask(PROMPT, "win")
    for request in server.requests:
        assert chat_client._TOKEN_LIMITS & set(request["body"])


def test_a_server_that_refuses_every_form_of_a_request_is_reported(
    server: FakeLanguageModel, client: ChatClient
) -> None:
    server.refused_fields = {"model"}
    with pytest.raises(TextRefusedError, match="status 400"):
        client.ask(PROMPT, "win")

    server.refused_fields = set()
    client.ask(PROMPT, "win")
    assert "response_format" in server.requests[-1]["body"], "the fields are sent again"


def test_no_further_attempt_is_made_after_the_stop(
    server: FakeLanguageModel, client: ChatClient
) -> None:
    stop = threading.Event()
    stop.set()
    server.statuses = [503] * 10
    with pytest.raises(ServerUnavailableError):
        client.ask(PROMPT, "win", stop)
    assert len(server.requests) == 1


def test_tokens_are_estimated_where_a_server_does_not_count_them(
    server: FakeLanguageModel, client: ChatClient
) -> None:
    server.body = b'{"choices": [{"message": {"content": "spam"}}], "usage": null}'
    reply = client.ask(PROMPT, "win")
    assert reply.label == "spam"
    assert reply.input_tokens == chat_client.estimate_input_tokens(PROMPT, "win")
    assert reply.output_tokens >= 1


def test_a_count_of_tokens_that_cannot_be_true_is_capped(
    server: FakeLanguageModel, client: ChatClient
) -> None:
    usage = {"prompt_tokens": 10**30, "completion_tokens": 5}
    response = {"choices": [{"message": {"content": "spam"}}], "usage": usage}
    server.body = json.dumps(response).encode()
    reply = client.ask(PROMPT, "win")
    assert (reply.input_tokens, reply.output_tokens) == (chat_client.MAX_COUNTED_TOKENS, 5)


@pytest.mark.parametrize(
    ("content", "label"),
    [
        ('{"label": "spam"}', "spam"),
        ('```json\n{"label": "Ham"}\n```', "ham"),
        ('It is not {"label": "ham"} but {"label": "spam"}', "spam"),
        (" spam. ", "spam"),
        ("'ham'", "ham"),
        ("not spam", None),
        ("spam or ham", None),
        ('{"label": "eggs"}', None),
        ('{"label": ["spam"]}', None),
        ('{"label": null}', None),
        ("", None),
    ],
)
def test_only_the_exact_name_of_a_class_is_a_label(content: str, label: str | None) -> None:
    assert parse_label(content, CLASSES) == label


def test_names_that_differ_only_in_case_are_told_apart() -> None:
    assert parse_label("A", ["A", "a"]) == "A"
    assert parse_label("É", ["x", "é"]) == "é"
    assert parse_label("B", ["bb", "A", "a"]) is None


@pytest.mark.parametrize(
    "url",
    [
        *("", "llm", "ftp://host/v1", "http://", "http://host:port/v1", "file:///etc/passwd"),
        *("http://a..b/v1", "http://hôte/v1", "http://host/é", f"http://{'a' * 64}/v1"),
        "http://host/a b",
    ],
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="is not the address of a language model"):
        normalize_endpoint(url)


@pytest.mark.parametrize("url", ["http://me:secret@host/v1", "https://host/v1?key=secret"])
def test_a_key_in_the_address_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(InputError, match="TEETER_SUGGEST_KEY") as caught:
        normalize_endpoint(url)
    assert "secret" not in str(caught.value)


def test_the_digest_covers_the_model_the_prompt_and_the_text() -> None:
    other_prompt = build_prompt(CLASSES, {}, "")
    digests = {
        PROMPT.digest("tiny", "a"),
        PROMPT.digest("tiny", "b"),
        PROMPT.digest("large", "a"),
        other_prompt.digest("tiny", "a"),
    }
    assert len(digests) == 4
