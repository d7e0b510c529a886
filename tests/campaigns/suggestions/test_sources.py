"""Suggestions are read, stored and measured blind, and they never become labels."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from teeter.campaigns.campaign import Campaign
from teeter.campaigns.learning.stopping import estimate_accuracy
from teeter.campaigns.records import (
    Answer,
    AnswerKind,
    ShownSuggestion,
    SourceKind,
    SourceReport,
)
from teeter.campaigns.settings import Settings
from teeter.campaigns.store import Suggestion
from teeter.campaigns.suggestions.sources import (
    BLIND_SHARE,
    is_answered_blind,
    parse_predictions,
    rank_sources,
    read_predictions,
)
from teeter.errors import InputError, TeeterError, UnknownNameError

CLASSES = ("spam", "ham")


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    """A campaign of 60 items, a third of which are control items once they are asked about."""
    campaign = Campaign.make(
        [], CLASSES, at=tmp_path / "a.teeter", settings=Settings(kind="features", control=0.3)
    )
    vectors = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    campaign.add([{"id": f"n{k}", "features": vectors[k]} for k in range(60)])
    return campaign


def true_label(item: str) -> str:
    return CLASSES[int(item[1:]) % 2]


EXPECTED = [Suggestion("1", "spam", 0.9), Suggestion("2", "ham", None)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "id,label,probability\n1,spam,0.9\n2,ham,\n3,,\n"),
        ("a.csv", "item;Prediction;Confidence\n1;spam;0.9\n2;ham;\n"),
        (
            "a.jsonl",
            '{"id": 1, "label": "spam", "probability": 0.9}\n{"id": "2", "class": "ham"}\n',
        ),
    ],
)
def test_predictions_are_read_from_tables_and_json_lines(
    tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    assert read_predictions(tmp_path / name, CLASSES) == EXPECTED


def test_predictions_are_read_from_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table({"id": [1, 2], "label": ["spam", "ham"], "probability": [0.9, None]})
    parquet.write_table(table, tmp_path / "a.parquet")
    assert read_predictions(tmp_path / "a.parquet", CLASSES) == EXPECTED


def test_the_most_probable_class_is_the_prediction(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,spam,ham\n1,0.9,0.1\n2,0.2,0.8\n")
    expected = [Suggestion("1", "spam", 0.9), Suggestion("2", "ham", 0.8)]
    assert read_predictions(tmp_path / "a.csv", CLASSES) == expected

    lines = [
        {"id": "1", "probabilities": {"spam": 0.9, "ham": 0.1}},
        {"id": "2", "probabilities": {"spam": 0.2, "ham": 0.8}},
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    assert read_predictions(tmp_path / "a.jsonl", CLASSES) == expected


def test_columns_match_classes_in_any_case_if_only_one_fits() -> None:
    (suggestion,) = parse_predictions([{"id": 1, "SPAM": 0.7, " Ham": 0.31}], CLASSES)
    assert suggestion == Suggestion("1", "spam", 0.7)

    (suggestion,) = parse_predictions([{"id": 1, "A": 0.4, "a": 0.6}], ["A", "a"])
    assert suggestion == Suggestion("1", "a", 0.6)
    with pytest.raises(InputError, match="no probability of 'spam'"):
        parse_predictions([{"id": 1, "SPAM": 0.4, "Spam": 0.4, "ham": 0.6}], CLASSES)


def test_nan_is_missing() -> None:
    nan = float("nan")
    rows: list[dict[str, object]] = [
        {"id": 1, "label": "spam", "probability": np.float32("nan")},
        {"id": 2, "label": nan, "spam": nan, "ham": nan},
        {"id": 3, "label": nan, "spam": 0.25, "ham": 0.75},
    ]
    expected = [Suggestion("1", "spam"), Suggestion("3", "ham", 0.75)]
    assert parse_predictions(rows, CLASSES) == expected


@pytest.mark.parametrize("row", ["spam", ("n1", "spam"), None])
def test_a_prediction_that_is_no_dictionary_is_refused(row: object) -> None:
    with pytest.raises(InputError, match="give a dictionary with id and label"):
        parse_predictions([row], CLASSES)  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("text,label\nhello,spam\n", "has no item id, which must be in a column called 'id'"),
        ("id,text\n1,hello\n", "Cannot find a prediction in line 2 of a.csv"),
        ("id,label,probability\n1,spam,90\n", "must be a number from 0 to 1"),
        ("id,label,probability\n1,spam,high\n", "must be a number from 0 to 1"),
        ("id,label\n1,spam\n1,ham\n", "two predictions for the item '1'"),
        ("id,label\n1,\n", "There are no predictions"),
        ("id,spam,ham\n1,0.9,0.1\n2,0.9,\n", "no probability of 'ham' in line 3"),
        ("id,spam\n1,0.9\n", "no probability of 'ham' in line 2"),
        ("id,spam,ham\n1,0.9,0.8\n", "in line 2 of a.csv add up to 1.7"),
    ],
)
def test_a_wrong_file_is_one_clear_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(TeeterError, match=sentence):
        read_predictions(tmp_path / "a.csv", CLASSES)


def test_predictions_are_stored_and_never_become_labels(campaign: Campaign) -> None:
    rows = [{"id": f"n{k}", "label": "spam"} for k in range(10)]
    rows += [{"id": "other", "label": "spam"}, {"id": "n11", "label": "eggs"}]
    result = campaign.suggestions.add(rows, " old model ")

    assert (result.source, result.stored, result.unknown_items) == ("old model", 10, 1)
    assert result.unknown_labels == {"eggs": 1}
    assert result.missing == 50
    assert campaign.labels() == {}
    assert campaign.status().labelled == 0


def test_predictions_may_name_a_class_as_it_was_called_before(campaign: Campaign) -> None:
    campaign.classes.rename("spam", "advertising")

    result = campaign.suggestions.add([{"id": "n1", "label": "spam"}], "old model")

    assert (result.stored, result.unknown_labels) == (1, {})


def test_predictions_of_the_same_name_replace_the_earlier_ones(campaign: Campaign) -> None:
    campaign.suggestions.add([{"id": "n1", "label": "spam"}, {"id": "n2", "label": "spam"}], "old")
    campaign.suggestions.add([{"id": "n2", "label": "ham"}], "old")
    (report,) = campaign.suggestions.sources()
    assert report.items == 1

    campaign.suggestions.remove("old")
    assert campaign.suggestions.sources() == []
    campaign.suggestions.remove("old")  # sent again
    with pytest.raises(UnknownNameError, match="No source is called 'lost'"):
        campaign.suggestions.remove("lost")


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"id": "x", "label": "spam"}, r"the campaign has no item 'x'; its ids look like 'n0'"),
        ({"id": "n1", "label": "Spam"}, r"there is no class 'Spam'.*spam"),
    ],
)
def test_predictions_about_something_else_are_refused(
    campaign: Campaign, row: dict[str, str], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        campaign.suggestions.add([row], "old")
    assert campaign.suggestions.sources() == []


@pytest.mark.parametrize("name", ["", "  ", "x" * 81, "class names", "a\nb"])
def test_a_name_that_cannot_be_shown_is_refused(campaign: Campaign, name: str) -> None:
    with pytest.raises(InputError, match="name of a source"):
        campaign.suggestions.add([{"id": "n1", "label": "spam"}], name)


def test_accuracy_is_measured_on_control_items_that_no_one_saw_it_on(campaign: Campaign) -> None:
    # Right on even items only: it always says spam.
    campaign.suggestions.add([{"id": f"n{k}", "label": "spam"} for k in range(60)], "lazy")
    questions = campaign.ask(40)
    for question in questions:
        campaign.tell(question.item, true_label(question.item))

    (report,) = campaign.suggestions.sources()
    control = [question.item for question in questions if question.arm == "control"]
    right = sum(true_label(item) == "spam" for item in control)
    assert report.accuracy == estimate_accuracy(right, len(control))
    picked = [question.item for question in questions if question.arm == "picked"]
    assert report.shown is None
    assert report.blind is not None
    assert report.blind.total == len(picked)


def test_what_was_shown_is_stored_with_the_answer(campaign: Campaign) -> None:
    campaign.suggestions.add([{"id": f"n{k}", "label": "spam"} for k in range(60)], "lazy")
    picked = [question.item for question in campaign.ask(30) if question.arm == "picked"]
    seen = ShownSuggestion("lazy", "spam")
    for item in picked[:4]:
        campaign.answer(Answer(item, "ann", AnswerKind.LABEL, "spam"), shown=seen)
    campaign.answer(Answer(picked[4], "ann", AnswerKind.LABEL, "ham"), shown=seen)
    campaign.answer(Answer(picked[5], "ann", AnswerKind.LABEL, "ham"))
    campaign.answer(Answer(picked[6], "ann", AnswerKind.SKIP), shown=seen)

    (report,) = campaign.suggestions.sources()
    assert report.shown == estimate_accuracy(4, 5)
    assert report.blind == estimate_accuracy(0, 1)

    # Later predictions change what the source says, not what annotators saw.
    campaign.suggestions.add([{"id": f"n{k}", "label": "ham"} for k in range(60)], "lazy")
    (report,) = campaign.suggestions.sources()
    assert report.shown == estimate_accuracy(4, 5)
    assert report.blind == estimate_accuracy(1, 1)

    campaign.undo("ann")  # the skip
    campaign.undo("ann")
    campaign.undo("ann")
    (report,) = campaign.suggestions.sources()
    assert report.shown == estimate_accuracy(4, 4), "an answer that was undone does not count"


def test_an_answer_outlives_the_source_of_its_suggestion(campaign: Campaign) -> None:
    """A page may still show a suggestion whose source an owner has removed."""
    seen = ShownSuggestion("removed", "spam")
    campaign.answer(Answer("n1", "ann", AnswerKind.LABEL, "spam"), shown=seen)
    assert campaign.labels()["n1"].label == "spam"


def test_labels_that_came_with_the_items_do_not_measure_a_source(tmp_path: Path) -> None:
    campaign = Campaign.make(
        [], CLASSES, at=tmp_path / "b.teeter", settings=Settings(kind="features", control=0.5)
    )
    vectors = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    campaign.add(
        [{"id": f"n{k}", "features": vectors[k], "label": true_label(f"n{k}")} for k in range(20)]
    )

    campaign.train()
    campaign.ask(4)
    campaign.suggestions.add([{"id": f"n{k}", "label": "spam"} for k in range(20)], "lazy")

    (report,) = campaign.suggestions.sources()
    assert report.accuracy is None


def test_one_in_ten_items_is_answered_blind() -> None:
    blind = [is_answered_blind(f"item {k}", seed=0) for k in range(5000)]
    assert abs(sum(blind) / 5000 - BLIND_SHARE) < 0.02
    assert is_answered_blind("item 7", 0) == is_answered_blind("item 7", 0)


def test_the_most_accurate_source_is_shown_first() -> None:

    def report(name: str, right: int, total: int) -> SourceReport:
        accuracy = estimate_accuracy(right, total)
        return SourceReport(name, SourceKind.PREDICTIONS, 9, accuracy, None, None)

    lucky = report("lucky", 2, 2)
    good = report("good", 90, 100)
    poor = report("poor", 30, 100)
    unknown = report("unknown", 0, 0)
    assert rank_sources([poor, lucky, unknown, good]) == ["good", "lucky", "unknown", "poor"]
    assert rank_sources([unknown, report("newer", 0, 0)]) == ["newer", "unknown"]
