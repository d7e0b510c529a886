"""Records of the REST API: what is sent, and what responses may look like."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from teeter.campaigns.integrations.label_studio.payloads import (
    Annotation,
    LabelStudioTask,
    NewTask,
    Project,
)
from teeter.campaigns.records import ShownSuggestion


def annotation_with(**fields: Any) -> Annotation:
    return Annotation.model_validate(
        {
            "id": 7,
            "completed_by": 1,
            "was_cancelled": False,
            "result": [],
            "created_at": "2030-01-01T00:00:00Z",
            **fields,
        }
    )


@pytest.mark.parametrize(
    ("completed_by", "user_id"), [(3, 3), ({"id": 3, "email": "a@example.com"}, 3), (None, None)]
)
def test_a_user_may_be_an_id_or_a_record(completed_by: object, user_id: int | None) -> None:
    assert annotation_with(completed_by=completed_by).completed_by == user_id


def test_an_annotation_changes_when_it_is_updated() -> None:
    assert annotation_with().changed_at == datetime(2030, 1, 1, tzinfo=UTC)
    updated = annotation_with(updated_at="2030-01-02T00:00:00Z")
    assert updated.changed_at == datetime(2030, 1, 2, tzinfo=UTC)


def test_a_time_without_a_time_zone_is_utc() -> None:
    annotation = annotation_with(created_at="2030-01-01T00:00:00.500")
    assert annotation.changed_at == datetime(2030, 1, 1, microsecond=500_000, tzinfo=UTC)


@pytest.mark.parametrize(("data", "item_id"), [({"teeter_item": "a"}, "a"), ({}, None)])
def test_a_task_is_recognised_by_its_item_id(data: dict[str, str], item_id: str | None) -> None:
    task = LabelStudioTask(
        id=1, data=data, annotations=[], is_labeled=False, updated_at=datetime(2030, 1, 1)
    )
    assert task.item_id == item_id


def test_an_item_id_of_another_type_is_not_ours() -> None:
    task = LabelStudioTask(
        id=1,
        data={"teeter_item": 5},
        annotations=[],
        is_labeled=False,
        updated_at=datetime(2030, 1, 1),
    )
    assert task.item_id is None


def test_a_project_may_have_no_description() -> None:
    assert Project.model_validate({"id": 1, "description": None}).description == ""


def test_a_new_task_carries_its_item_and_its_score() -> None:
    task = NewTask("n1", {"text": "hello"}, rank=2, score=0.5, overlap=2)
    assert task.to_json() == {
        "data": {"text": "hello", "teeter_item": "n1"},
        "meta": {"teeter": {"item": "n1", "rank": 2}},
        "predictions": [{"model_version": "teeter", "score": 0.5, "result": []}],
    }


def test_a_suggestion_is_a_prediction_that_annotators_see() -> None:
    suggestion = ShownSuggestion("old model", "even")
    task = NewTask("n1", {"text": "hello"}, rank=2, score=0.5, overlap=2, suggestion=suggestion)
    body = task.to_json()
    (prediction,) = body["predictions"]
    assert prediction["result"] == [
        {
            "from_name": "label",
            "to_name": "item",
            "type": "choices",
            "value": {"choices": ["even"]},
        }
    ]

    read = {"id": 1, "annotations": [], "is_labeled": False, "updated_at": "2026-01-01T00:00:00Z"}
    assert LabelStudioTask.model_validate({**read, "data": body["data"]}).suggestion == suggestion
    foreign = {**read, "data": {"teeter_suggestion": "even"}}
    assert LabelStudioTask.model_validate(foreign).suggestion is None
