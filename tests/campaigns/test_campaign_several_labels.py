"""Campaigns whose items may have several labels: answers, models, picks, statistics, exports."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from teeter.campaigns.campaign import Campaign
from teeter.campaigns.records import ItemColumns, ItemQuery, join_labels, split_labels
from teeter.campaigns.settings import Settings
from teeter.errors import InputError, TeeterError, UnknownNameError

LABELS = ("red", "green", "blue")
SEVERAL = Settings(several=True, kind="features", strategy="mmc", control=0.2)


def make_items(count: int = 120) -> tuple[list[dict[str, object]], dict[str, list[str]]]:
    """Return items of features, and their labels: one for each of three features that is large."""
    generator = np.random.default_rng(0)
    features = generator.normal(size=(count, 6))
    items = [{"id": f"i{k}", "features": row.tolist()} for k, row in enumerate(features)]
    truth = {
        f"i{k}": [name for name, value in zip(LABELS, row, strict=False) if value > 0.5]
        for k, row in enumerate(features)
    }
    return items, truth


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    items, _ = make_items()
    return Campaign.make(items, LABELS, at=tmp_path / "colours.teeter", settings=SEVERAL)


def make_with(
    items: list[dict[str, object]], classes: list[str], changes: dict[str, object], at: Path
) -> Campaign:
    return Campaign.make(items, classes, at=at, settings=replace(SEVERAL, **changes))


@pytest.fixture
def trained(campaign: Campaign) -> Campaign:
    _, truth = make_items()
    for _ in range(3):
        for question in campaign.ask(20):
            campaign.tell(question.item, truth[question.item])
        campaign.train()
    return campaign


def test_an_answer_is_a_set_in_any_form(campaign: Campaign) -> None:
    campaign.tell("i1", ["blue", "red"])
    campaign.tell("i2", "blue; red")
    campaign.tell("i3", [])
    campaign.tell("i4", "green")
    labels = {item: consensus.label for item, consensus in campaign.labels().items()}
    assert labels == {"i1": "red;blue", "i2": "red;blue", "i3": "(none)", "i4": "green"}
    assert campaign.status().by_class == {"red": 2, "green": 1, "blue": 2}


def test_the_same_set_in_another_order_is_a_repeat(campaign: Campaign) -> None:
    receipt = campaign.tell("i1", ["blue", "red"])
    again = campaign.tell("i1", ["red", "blue"])
    assert (again.number, again.recorded) == (receipt.number, False)

    changed = campaign.tell("i1", ["red"])
    assert changed.recorded
    undone = campaign.undo()
    assert undone is not None
    assert undone.before is not None
    assert undone.before.label == "red;blue"


@pytest.mark.parametrize(
    ("label", "error", "message"),
    [
        (["red", "pink"], UnknownNameError, "No class is called 'pink'"),
        (["red", "red"], InputError, "The label 'red' is given twice"),
        ("red;;blue", UnknownNameError, "No class is called ''"),
        (["red;blue"], InputError, "cannot be told from a set of labels"),
        (["red", None], InputError, "None cannot be the name of a class"),
    ],
)
def test_sets_that_cannot_be_are_refused_and_lose_nothing(
    campaign: Campaign, label: list[str], error: type[TeeterError], message: str
) -> None:
    campaign.tell("i1", ["red"])
    with pytest.raises(error, match=message):
        campaign.tell("i1", label)
    assert campaign.labels()["i1"].label == "red"


def test_a_campaign_of_one_label_refuses_a_list(tmp_path: Path) -> None:
    items, _ = make_items(5)
    settings = Settings(kind="features")
    campaign = Campaign.make(items, LABELS, at=tmp_path / "a.teeter", settings=settings)
    with pytest.raises(InputError, match="items of this campaign have one label, so give its name"):
        campaign.tell("i1", ["red"])
    with pytest.raises(UnknownNameError):
        campaign.tell("i1", "red;blue")


@pytest.mark.parametrize(
    ("classes", "changes", "message"),
    [
        (["a;b", "c"], {}, "The label 'a;b' cannot be told from a set"),
        (["(none)", "c"], {}, r"The label '\(none\)' cannot be told from a set"),
        (["a", "b"], {"strategy": "bait"}, "bait picks items that have one label"),
        (
            ["a", "b"],
            {"strategy": "mmc", "several": False},
            "mmc picks items that may have several",
        ),
        (["a", "b"], {"head": "mlp"}, "The head mlp predicts one label"),
        (["a", "b"], {"goal": "5% wrong"}, "A goal is for items that have one label"),
        (["a", "b"], {"judges": {"gpt": ""}}, "An audit is for items that have one label"),
        (["a", "b"], {"consensus": "dawid-skene"}, "dawid-skene is for items that have one label"),
    ],
)
def test_what_does_not_go_together_is_refused(
    classes: list[str], changes: dict[str, object], message: str, tmp_path: Path
) -> None:
    items, _ = make_items(5)
    with pytest.raises(InputError, match=message):
        make_with(items, classes, changes, tmp_path / "a.teeter")
    assert not list(tmp_path.iterdir())


def test_renaming_a_label_renames_it_in_all_sets(campaign: Campaign) -> None:
    campaign.tell("i1", ["blue", "red"])
    campaign.tell("i2", ["red"])
    campaign.classes.rename("red", "crimson")
    labels = {item: consensus.label for item, consensus in campaign.labels().items()}
    assert labels == {"i1": "crimson;blue", "i2": "crimson"}
    # A page that was opened before sends the old name.
    campaign.tell("i3", "red;green")
    assert campaign.labels()["i3"].label == "crimson;green"
    with pytest.raises(InputError, match="cannot be told from a set"):
        campaign.classes.rename("blue", "a;b")
    with pytest.raises(InputError, match="Labels cannot be merged"):
        campaign.classes.merge("crimson", "blue")


def test_each_label_is_agreed_on_by_itself(campaign: Campaign) -> None:
    campaign.tell("i1", ["red", "green"], "ann")
    campaign.tell("i1", ["red", "blue"], "bob")
    campaign.tell("i1", ["green", "red"], "cid")
    campaign.tell("i2", ["red"], "ann")
    campaign.tell("i2", [], "bob")
    labels = campaign.labels()
    assert labels["i1"].label == "red;green"
    assert labels["i1"].confidence == pytest.approx(2 / 3)
    # A tie: the last one says.
    assert labels["i2"].label == "(none)"
    assert len(campaign.review.disagreements().disagreements) == 2

    agreement = campaign.review.agreement()
    assert agreement.items == 2
    assert list(agreement.by_class) == list(LABELS)
    campaign.review.decide("i2", ["blue", "red"], "eve")
    assert campaign.labels()["i2"].label == "red;blue"
    assert not campaign.review.decide("i2", "blue;red", "eve").recorded


def test_a_model_learns_and_says_how_good_it_is(trained: Campaign) -> None:
    _, truth = make_items()
    status = trained.status()
    assert status.version == 3
    assert status.accuracy is not None
    assert status.accuracy.total >= 8
    scores = {score.label: score for score in status.by_label}
    assert sum(score.actual for score in scores.values()) > 5
    assert all(score.hits <= min(score.predicted, score.actual) for score in scores.values())

    rows = trained.items.page(ItemQuery(count=200)).items
    right = [row.predicted == join_labels(truth[row.item]) for row in rows if row.label is None]
    assert np.mean(right) > 0.6
    assert all(0 <= row.probability <= 1 for row in rows if row.probability is not None)


def test_items_are_found_by_one_of_their_labels(trained: Campaign) -> None:
    labels = {item: consensus.label for item, consensus in trained.labels().items()}
    found = {row.item for row in trained.items.find(label="red")}
    assert found == {item for item, label in labels.items() if "red" in split_labels(label)}
    predicted = list(trained.items.find(predicted="red"))
    assert predicted
    assert all("red" in split_labels(row.predicted or "") for row in predicted)
    assert all(row.label != row.predicted for row in trained.items.find(differs=True))
    assert set(trained.items.labels_on_map().classes) >= {*LABELS, *labels.values()}


def test_suspects_are_items_with_an_unlikely_label(trained: Campaign) -> None:
    _, truth = make_items()
    item = next(item for item in trained.labels() if truth[item] == ["red"])
    trained.tell(item, ["green", "blue"])
    suspects = trained.review.suspects(3)
    assert item in [suspect.item for suspect in suspects]
    trained.confirm_label(item)
    assert item not in [suspect.item for suspect in trained.review.suspects(50)]


def test_models_survive_new_items_and_new_labels(trained: Campaign) -> None:
    items, _ = make_items(140)
    trained.add(items[120:])
    trained.classes.add("yellow")
    assert len(trained.ask(5)) == 5
    trained.tell("i130", ["yellow", "red"])
    assert trained.train().version == 4
    assert trained.status().by_class["yellow"] == 1


def test_labels_that_are_all_the_same_train_no_model(campaign: Campaign) -> None:
    for k in range(8):
        campaign.tell(f"i{k}", [])
    with pytest.raises(InputError, match="All labelled items have the same labels"):
        campaign.train()


def test_a_label_that_always_or_never_occurs_is_no_obstacle(campaign: Campaign) -> None:
    for k in range(20):
        campaign.tell(f"i{k}", ["red", "green"] if k % 2 else ["red"])
    assert campaign.train().classes == ["red", "green"]
    rows = campaign.items.page(ItemQuery(count=120)).items
    predicted = [split_labels(row.predicted or "") for row in rows]
    assert np.mean(["red" in names for names in predicted]) > 0.9
    assert not any("blue" in names for names in predicted)


def test_what_is_for_one_label_is_refused_in_a_sentence(trained: Campaign, tmp_path: Path) -> None:
    for refused in (
        trained.finish.look,
        trained.finish.start,
        lambda: trained.suggestions.add([{"id": "i1", "label": "red"}], "other"),
        trained.classifier,
        lambda: trained.export(tmp_path / "a.npz", "cleanlab"),
    ):
        with pytest.raises(InputError, match=r"one label|several"):
            refused()
    assert {"cleanlab", "image-folder"} <= trained.export_obstacles().keys()
    assert trained.review.confusion() == []


def make_texts(tmp_path: Path, settings: Settings | None = None) -> tuple[Campaign, dict[str, str]]:
    """Return a campaign of texts of which some have labels, and these labels."""
    items = [{"id": f"t{k}", "text": f"text number {k}"} for k in range(12)]
    settings = settings or Settings(several=True, encoder="tfidf")
    campaign = Campaign.make(items, LABELS, at=tmp_path / "texts.teeter", settings=settings)
    sets = [["red"], [], ["blue", "green"], ["red", "green", "blue"], ["green"]]
    for k, names in enumerate(sets):
        campaign.tell(f"t{k}", names)
    return campaign, {item: label.label for item, label in campaign.labels().items()}


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_what_is_exported_can_be_imported(suffix: str, tmp_path: Path) -> None:
    campaign, labels = make_texts(tmp_path)
    file = tmp_path / f"labels{suffix}"
    campaign.export(file)
    again = Campaign.make(
        file,
        LABELS,
        settings=campaign.settings,
        columns=ItemColumns(text="text", id="id", labels="label"),
        at=tmp_path / "again.teeter",
    )
    assert {item: label.label for item, label in again.labels().items()} == labels


def test_a_column_for_each_label_can_be_imported(tmp_path: Path) -> None:
    campaign, labels = make_texts(tmp_path)
    campaign.export(tmp_path / "labels.csv")
    with (tmp_path / "labels.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    marks = {row["id"]: [row[name] for name in LABELS] for row in rows}
    assert marks["t2"] == ["0", "1", "1"]
    assert marks["t1"] == ["0", "0", "0"]
    assert marks["t9"] == ["", "", ""]

    columns = ItemColumns(text="text", id="id", labels="red,green,blue")
    again = Campaign.make(
        tmp_path / "labels.csv",
        LABELS,
        settings=campaign.settings,
        columns=columns,
        at=tmp_path / "again.teeter",
    )
    assert {item: label.label for item, label in again.labels().items()} == labels

    (tmp_path / "bad.csv").write_text("text,red,green\nhello,1,maybe\n")
    with pytest.raises(InputError, match=r"Row 1 of .* has 'maybe' in the column of the label"):
        Campaign.make(
            tmp_path / "bad.csv",
            LABELS,
            settings=campaign.settings,
            columns=ItemColumns(labels="red,green"),
            at=tmp_path / "bad.teeter",
        )


def test_labels_of_items_come_as_lists_or_texts(tmp_path: Path) -> None:
    items = [
        {"text": "one", "id": "1", "label": ["red", "blue"]},
        {"text": "two", "id": "2", "label": "green; red"},
        {"text": "three", "id": "3", "label": []},
        {"text": "four", "id": "4"},
    ]
    settings = Settings(several=True, encoder="tfidf")
    campaign = Campaign.make(items, None, at=tmp_path / "a.teeter", settings=settings)
    assert campaign.classes.names() == ("red", "blue", "green")
    labels = {item: label.label for item, label in campaign.labels().items()}
    assert labels == {"1": "red;blue", "2": "red;green", "3": "(none)"}


def test_other_tools_get_all_labels(tmp_path: Path) -> None:
    campaign, _ = make_texts(tmp_path)

    def read_lines(form: str) -> dict[str, dict[str, object]]:
        file = tmp_path / form
        campaign.export(file, form)
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        return {line.get("id") or line["meta"]["id"]: line for line in lines}

    assert read_lines("jsonl")["t2"]["label"] == ["green", "blue"]
    assert read_lines("jsonl")["t2"]["answers"] == {"me": ["green", "blue"]}
    assert read_lines("jsonl")["t9"]["label"] is None
    assert read_lines("doccano")["t3"]["label"] == ["red", "green", "blue"]
    prodigy = read_lines("prodigy")
    assert prodigy["t1"]["accept"] == []
    assert prodigy["t2"]["accept"] == ["green", "blue"]
    assert [option["id"] for option in prodigy["t2"]["options"]] == list(LABELS)

    campaign.export(tmp_path / "tasks.json", "label-studio")
    tasks = json.loads((tmp_path / "tasks.json").read_text())
    choices = {
        task["data"]["teeter_item"]: task["annotations"][0]["result"][0]["value"]["choices"]
        for task in tasks
        if "annotations" in task
    }
    assert choices["t2"] == ["green", "blue"]
    assert choices["t1"] == []


def test_many_items_get_a_set_at_once(campaign: Campaign) -> None:
    receipt = campaign.tell_all(["i1", "i2"], ["blue", "red"])
    assert receipt.count == 2
    assert campaign.labels()["i2"].label == "red;blue"
    campaign.undo()
    assert not campaign.labels()


def test_five_hundred_labels(tmp_path: Path) -> None:
    items, _ = make_items(60)
    names = [f"label {k}" for k in range(500)]
    settings = replace(SEVERAL, strategy="rare-labels")
    campaign = Campaign.make(items, names, at=tmp_path / "many.teeter", settings=settings)
    for k, question in enumerate(campaign.ask(12)):
        campaign.tell(question.item, [names[k], names[k // 2], "label 499"][: 1 + 2 * (k > 0)])
    assert campaign.train().version == 1
    assert len(campaign.ask(5)) == 5


def test_a_copy_of_the_campaign_has_the_same_sets(trained: Campaign, tmp_path: Path) -> None:
    trained.classes.rename("red", "crimson")
    labels = {item: label.label for item, label in trained.labels().items()}
    trained.back_up(tmp_path / "copy.teeter")
    copy = Campaign.open(tmp_path / "copy.teeter")
    assert {item: label.label for item, label in copy.labels().items()} == labels
    copy.classes.rename("crimson", "scarlet")
    assert any("scarlet" in label.label for label in copy.labels().values())
