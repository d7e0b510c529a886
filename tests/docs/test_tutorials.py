"""The pages on texts, images, a team and Label Studio: commands run as the pages show them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from campaigns.fake_label_studio import LEGACY_TOKEN, FakeLabelStudio, serve_on_loopback
from campaigns.label_studio_backends import result_with
from documented_sessions import read_blocks, run_blocks
from teeter.campaigns import Campaign
from teeter.samples import find_sample, read_items

uvicorn = pytest.importorskip("uvicorn")

DOCS = Path(__file__).parents[2] / "docs"
FIRST_BLOCK = 1

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in an empty folder, with servers that stop at once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TEETER_HOME", str(tmp_path / "home"))

    def stop_at_once(server: Any, sockets: Any) -> None:
        server.config.app.state.workspace.close()

    monkeypatch.setattr(uvicorn.Server, "run", stop_at_once)


def read_page(name: str) -> str:
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def write_questions() -> None:
    """Write the file that the tutorial on texts makes, and the others use."""
    run_blocks(read_blocks(read_page("tutorial/label"))[:FIRST_BLOCK])


def test_texts_and_images() -> None:
    assert run_blocks(read_blocks(read_page("tutorial/label"))) == 7
    for name, items in (("labels.csv", 480), ("clothes.csv", 360)):
        rows = Path(name).read_text(encoding="utf-8").splitlines()
        assert len(rows) > items, "every item has a prediction"


def test_labels_are_audited() -> None:
    labels = DOCS.parent / "research" / "audit" / "results" / "smollm2_sms_spam.csv"
    Path("messages.csv").write_bytes(labels.read_bytes())
    assert run_blocks(read_blocks(read_page("tutorial/audit"))) == 3


def test_a_team() -> None:
    write_questions()
    assert run_blocks(read_blocks(read_page("tutorial/team"))) == 7
    campaign = Campaign.open("questions.teeter")
    members = campaign.people.list()
    campaign.database.close()
    assert len(members) == 3


def answer_all_tasks(studio: FakeLabelStudio) -> Callable[[list[str]], None]:
    """Return a function that annotates every waiting task after the first sync."""
    teams = dict(read_items(find_sample("texts")))

    def answer(words: list[str]) -> None:
        if "--url" not in words:
            return
        with studio.client() as client:
            for number, task in list(studio.tasks.items()):
                result = result_with(teams[task["data"]["text"]])
                response = client.post(f"/api/tasks/{number}/annotations/", json={"result": result})
                assert response.is_success

    return answer


def test_label_studio(monkeypatch: pytest.MonkeyPatch) -> None:
    write_questions()
    monkeypatch.setenv("LABEL_STUDIO_API_KEY", LEGACY_TOKEN)
    studio = FakeLabelStudio()
    with serve_on_loopback(studio) as url:
        count = run_blocks(
            read_blocks(read_page("how_to/label_studio")),
            after_command=answer_all_tasks(studio),
            replace=lambda text: text.replace("http://localhost:8080", url),
        )
    assert count == 4
