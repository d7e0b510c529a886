"""The work of the background worker, done in this process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from server.labelled_campaigns import make_labelled_campaign, true_label
from server.servers import make_text_campaign, text
from teeter.campaigns.asking.assignment import ready_items_wanted
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.learning.rounds import RoundState
from teeter.campaigns.records import Activity, ItemColumns, QuestionsReady, StatusReport
from teeter.campaigns.settings import Settings
from teeter.classifier import Classifier
from teeter.errors import InputError
from teeter.server.worker.background import (
    ENSURE_QUESTIONS,
    EXPORT,
    PICK_AHEAD,
    PREDICT,
    TRAIN,
    WARM_UP,
    Request,
    WorkerTask,
)
from teeter.server.worker.tasks import NICENESS, TaskHandlers, create_campaign, make_task_handler


@pytest.fixture
def handlers() -> Iterator[TaskHandlers]:
    handlers = TaskHandlers()
    yield handlers
    handlers.close()


def ignore(report: StatusReport) -> None:
    """Do nothing with a report."""


def test_a_worker_has_a_lower_priority_than_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    increments: list[int] = []
    monkeypatch.setattr(os, "nice", increments.append)
    make_task_handler()(Request(WARM_UP, "", {}), ignore)
    assert increments == [NICENESS]
    assert 0 < NICENESS < 10


def test_a_task_that_is_not_on_the_list_is_refused(handlers: TaskHandlers) -> None:
    for name in ("unknown", "close"):
        with pytest.raises(TypeError, match=name):
            handlers.run(Request(WorkerTask[None](name), "", {}), ignore)


def test_nobody_is_told_that_all_is_done_while_items_wait_to_be_encoded(
    handlers: TaskHandlers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("teeter.campaigns.learning.encoding._FIRST_PART", {"text": 5})
    monkeypatch.setattr("teeter.campaigns.learning.encoding._fit", None)  # as if killed there
    path = tmp_path / "texts.teeter"
    settings = Settings(encoder="tfidf")
    texts = [text(k) for k in range(40)]
    campaign = Campaign.make(texts, ("a", "b"), at=path, settings=settings, encode_now=False)

    def ask(annotator: str) -> QuestionsReady:
        arguments = {"annotator": annotator, "batch": 10}
        result: QuestionsReady = handlers.run(
            Request(ENSURE_QUESTIONS, str(path), arguments), ignore
        )
        return result

    assert not ask("ann").is_finished, "nothing is encoded"
    assert handlers.run(Request(TRAIN, str(path), {}), ignore) is None
    handlers.run(Request(PICK_AHEAD, str(path), {"count": 10}), ignore)
    with pytest.raises(TypeError):
        campaign.encode()

    assert not ask("ann").is_finished
    assert len(campaign.ask(10, "ann")) == 5, "all that are encoded"
    assert not ask("bob").is_finished
    monkeypatch.undo()
    campaign.encode()
    assert not ask("bob").is_finished
    assert len(campaign.ask(10, "bob")) == 10
    campaign.database.close()


@pytest.mark.slow
def test_items_are_explained_once_per_model(handlers: TaskHandlers, tmp_path: Path) -> None:
    path = tmp_path / "texts.teeter"
    make_labelled_campaign(path, 40)
    request = Request(ENSURE_QUESTIONS, str(path), {"annotator": "me", "batch": 10})
    first = handlers.run(request, ignore)
    assert not first.is_finished

    item, explanation = next(iter(first.explanations.items()))
    classes = [name for name, _ in explanation.probabilities]
    probabilities = [probability for _, probability in explanation.probabilities]
    assert sorted(classes) == ["ham", "spam"]
    assert probabilities == sorted(probabilities, reverse=True)
    assert sum(probabilities) == pytest.approx(1, abs=1e-3)
    assert len(explanation.neighbours) == 3
    for neighbour in explanation.neighbours:
        assert neighbour.item != item
        assert neighbour.label == true_label(neighbour.item)

    assert handlers.run(request, ignore).explanations.keys().isdisjoint(first.explanations)
    handlers.run(Request(TRAIN, str(path), {}), ignore)
    assert item in handlers.run(request, ignore).explanations


@pytest.mark.slow
def test_items_are_explained_again_after_a_text_has_changed(
    handlers: TaskHandlers, tmp_path: Path
) -> None:
    path = tmp_path / "texts.teeter"
    make_labelled_campaign(path, 40)
    request = Request(ENSURE_QUESTIONS, str(path), {"annotator": "me", "batch": 10})
    item = next(iter(handlers.run(request, ignore).explanations))

    campaign = Campaign.open(path)
    campaign.items.change(item, text="Something else altogether")
    campaign.database.close()

    assert item in handlers.run(request, ignore).explanations


def test_training_reports_what_it_does(handlers: TaskHandlers, tmp_path: Path) -> None:
    path = str(make_text_campaign(tmp_path / "texts.teeter", 20))
    reports: list[StatusReport] = []
    assert handlers.run(Request(TRAIN, path, {}), reports.append) is None
    assert reports == []

    campaign = Campaign.open(path)
    for item in ("t1", "t2", "t3"):
        campaign.tell(item, true_label(item))
    campaign.database.close()

    trained = handlers.run(Request(TRAIN, path, {}), reports.append)
    assert (trained.version, trained.labels) == (1, 3)
    assert reports == [
        StatusReport(Activity.TRAINING, labels=3, version=1),
        StatusReport(None, version=1, is_trained=True),
    ]


@pytest.mark.slow
def test_texts_are_predicted_by_the_newest_model_which_is_loaded_once(
    handlers: TaskHandlers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "texts.teeter"
    make_labelled_campaign(path, 40)
    loaded: list[Classifier] = []
    load = Campaign.classifier

    def load_and_note(campaign: Campaign) -> Classifier:
        classifier = load(campaign)
        if classifier not in loaded:
            loaded.append(classifier)
        return classifier

    monkeypatch.setattr(Campaign, "classifier", load_and_note)
    request = Request(PREDICT, str(path), {"texts": [text(1000)]})
    model = handlers.run(request, ignore)[0]
    handlers.run(request, ignore)
    assert [classifier.info.model for classifier in loaded] == [model]

    handlers.run(Request(TRAIN, str(path), {}), ignore)
    assert handlers.run(request, ignore)[0] == model + 1
    assert [classifier.info.model for classifier in loaded] == [model, model + 1]


def test_a_job_loads_the_state_once_for_training_picking_and_explaining(
    handlers: TaskHandlers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_text_campaign(tmp_path / "texts.teeter", 40)
    campaign = Campaign.open(path)
    for number in range(1, 11):
        campaign.tell(f"t{number}", true_label(f"t{number}"))
    campaign.database.close()

    loads: list[Campaign] = []
    load_state = Campaign.load_state

    def count_load(campaign: Campaign) -> RoundState:
        loads.append(campaign)
        return load_state(campaign)

    monkeypatch.setattr(Campaign, "load_state", count_load)
    reports: list[StatusReport] = []
    ready = handlers.run(
        Request(ENSURE_QUESTIONS, str(path), {"annotator": "me", "batch": 10}), reports.append
    )

    assert [report.activity for report in reports] == [Activity.TRAINING, None, Activity.PICKING]
    assert len(ready.explanations) == 10
    assert len(loads) == 1


@pytest.mark.slow
def test_items_are_ready_for_the_next_of_several_annotators(
    handlers: TaskHandlers, tmp_path: Path
) -> None:
    path = tmp_path / "texts.teeter"
    make_labelled_campaign(path, 40)
    for annotator in ("ann", "bob"):
        handlers.run(
            Request(ENSURE_QUESTIONS, str(path), {"annotator": annotator, "batch": 5}), ignore
        )

    campaign = handlers.campaign(str(path))
    with campaign.reading() as view:
        count = view.picks.count_ready()
    assert count == ready_items_wanted(campaign, 5) >= 20


def test_picking_ahead_ends_when_nothing_is_left_until_the_next_model(
    handlers: TaskHandlers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "texts.teeter"
    make_labelled_campaign(path, 40)
    batches: list[int] = []

    def find_nothing(_: Campaign, batch: int, *, state: RoundState | None = None) -> bool:
        batches.append(batch)
        return False

    monkeypatch.setattr("teeter.campaigns.asking.preparing.keep_ready", find_nothing)
    request = Request(ENSURE_QUESTIONS, str(path), {"annotator": "me", "batch": 10})
    handlers.run(request, ignore)
    handlers.run(request, ignore)
    assert batches == [10]

    handlers.run(Request(TRAIN, str(path), {}), ignore)
    handlers.run(request, ignore)
    assert batches == [10, 10]


def test_a_campaign_whose_file_is_replaced_is_opened_again(
    handlers: TaskHandlers, tmp_path: Path
) -> None:
    path = make_text_campaign(tmp_path / "texts.teeter", 20)
    first = handlers.campaign(str(path))
    assert handlers.campaign(str(path)) is first

    other = make_text_campaign(tmp_path / "other.teeter", 5)
    other.replace(path)
    assert handlers.campaign(str(path)) is not first
    assert handlers.campaign(str(path)).status().items == 6


def test_a_campaign_with_new_items_is_opened_again(handlers: TaskHandlers, tmp_path: Path) -> None:
    path = make_text_campaign(tmp_path / "texts.teeter", 20)
    handlers.run(Request(PICK_AHEAD, str(path), {"count": 5}), ignore)
    campaign = Campaign.open(path)
    campaign.add([{"id": "new", "text": "a text that came later"}])
    campaign.database.close()
    assert "new" in handlers.campaign(str(path)).load_state().keys


@pytest.mark.parametrize(("form", "suffix"), [("csv", ".csv"), ("prodigy", ".jsonl")])
def test_labels_are_exported_into_a_folder_of_their_own(
    handlers: TaskHandlers, tmp_path: Path, form: str, suffix: str
) -> None:
    path = tmp_path / "texts.teeter"
    make_labelled_campaign(path, 40)
    folder = tmp_path / "exports"
    folder.mkdir()
    request = Request(EXPORT, str(path), {"form": form, "folder": str(folder)})
    files = {handlers.run(request, ignore) for _ in range(2)}
    assert len(files) == 2
    assert {Path(file).suffix for file in files} == {suffix}


def test_a_campaign_is_created_from_a_table(tmp_path: Path) -> None:
    table = tmp_path / "mail.csv"
    table.write_text("words,number,kind\none,a,ham\ntwo,b,\none,c,\n")
    path = tmp_path / "mail.teeter"
    arguments: dict[str, Any] = {
        "source": str(table),
        "classes": ("ham", "spam"),
        "settings": Settings(kind="image", instructions="Read."),
        "columns": ItemColumns(text="words", id="number", labels="kind"),
    }
    created = create_campaign(path, **arguments)
    assert (created.new, created.duplicates, created.labelled) == (2, 1, 1)

    campaign = Campaign.open(path)
    assert campaign.settings.kind == "text", "it follows from the source"
    assert campaign.settings.instructions == "Read."
    campaign.database.close()

    with pytest.raises(InputError, match="already a campaign called mail"):
        create_campaign(path, **arguments)
