"""A served campaign of texts with labels, which were given over HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fastapi.testclient import TestClient

from server.servers import make_text_campaign, serve_campaigns

AT = "/api/v1/campaigns/texts"


@dataclass(frozen=True)
class LabelledCampaign:
    """A served campaign with some labels."""

    file: Path
    client: TestClient
    items: list[str]
    """The ids of the labelled items, in the order of their answers."""


def true_label(item: str) -> str:
    if item == "html" or int(item[1:]) % 2:
        return "ham"
    return "spam"


def other_label(label: str) -> str:
    return "ham" if label == "spam" else "spam"


def get_questions(client: TestClient, n: int = 20) -> list[dict[str, Any]]:
    """Return the items that wait, after they have been picked."""
    client.get(f"{AT}/questions")  # has them picked
    response = client.get(f"{AT}/questions", params={"n": n})
    questions: list[dict[str, Any]] = response.json()["questions"]
    return questions


def label_items(client: TestClient, count: int) -> list[str]:
    """Label this many items correctly, and return their ids."""
    items: list[str] = []
    while len(items) < count:
        for question in get_questions(client)[: count - len(items)]:
            item = str(question["item"])
            response = client.post(f"{AT}/answers", json={"item": item, "label": true_label(item)})
            assert response.status_code == 200
            assert response.json()["recorded"]
            items.append(item)
    return items


def make_labelled_campaign(path: Path, count: int, **settings: Any) -> list[str]:
    """Make a campaign of 121 texts with labels, and the models that were trained meanwhile.

    It is labelled once per process, and copied.

    Returns:
        The ids of the labelled items.
    """
    assert path.name == "texts.teeter"
    content, items = _label_campaign(count, tuple(sorted(settings.items())))
    path.write_bytes(content)
    return list(items)


@cache
def _label_campaign(
    count: int, settings: tuple[tuple[str, Any], ...]
) -> tuple[bytes, tuple[str, ...]]:
    """Return the file of a campaign that was labelled over HTTP, and the ids of its
    labelled items.
    """
    with TemporaryDirectory() as folder:
        path = make_text_campaign(Path(folder) / "texts.teeter", **dict(settings))
        with serve_campaigns(path) as client:
            items = label_items(client, count)
        return path.read_bytes(), tuple(items)
