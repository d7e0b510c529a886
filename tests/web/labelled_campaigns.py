"""A served campaign of texts for tests, and its labels: given over HTTP, or already in the file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fastapi.testclient import TestClient

from web.servers import begin, served

AT = "/api/v1/campaigns/texts"


@dataclass(frozen=True)
class LabelledCampaign:
    """A served campaign of which some items are labelled."""

    file: Path
    client: TestClient
    items: list[str]
    """The labelled ones, in the order of their answers."""


def true_label(item: str) -> str:
    return "ham" if item == "html" or int(item[1:]) % 2 else "spam"


def get_questions(client: TestClient, n: int = 20) -> list[dict[str, Any]]:
    """Return the questions that wait, after they have been picked."""
    client.get(f"{AT}/questions")  # nothing waits before the first request
    questions: list[dict[str, Any]] = client.get(f"{AT}/questions", params={"n": n}).json()[
        "questions"
    ]
    return questions


def label_items(client: TestClient, count: int) -> list[str]:
    """Answer this many questions correctly, and return their items."""
    items: list[str] = []
    while len(items) < count:
        for question in get_questions(client)[: count - len(items)]:
            item = str(question["item"])
            answer = client.post(f"{AT}/answers", json={"item": item, "label": true_label(item)})
            assert answer.status_code == 200
            assert answer.json()["stored"]
            items.append(item)
    return items


def begin_labelled(path: Path, count: int, **settings: Any) -> list[str]:
    """Make a campaign of 121 texts of which some are labelled, with the models trained on the way.

    It is labelled once in a process, and copied. Return the labelled items.
    """
    assert path.name == "texts.teeter"
    content, items = _labelled_campaign(count, tuple(sorted(settings.items())))
    path.write_bytes(content)
    return list(items)


@cache
def _labelled_campaign(
    count: int, settings: tuple[tuple[str, Any], ...]
) -> tuple[bytes, tuple[str, ...]]:
    """Return the file of a campaign that was labelled over HTTP, and its labelled items in their order."""
    with TemporaryDirectory() as folder:
        path = begin(Path(folder) / "texts.teeter", **dict(settings))
        with served(path) as client:
            items = label_items(client, count)
        return path.read_bytes(), tuple(items)
