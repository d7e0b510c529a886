"""Campaigns: asking, answering and training, by annotators who skip, err and change their minds."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

from teeter.campaigns.campaign import Campaign
from teeter.campaigns.learning.saved_models import scale_features
from teeter.campaigns.settings import Settings
from teeter.campaigns.store.transaction import validate_name
from teeter.errors import InputError, StoreError, UnknownNameError
from teeter.strategies.base import registry

CLASSES = ("red", "green", "blue")
VECTORS = np.random.default_rng(0).normal(size=(120, 4)).astype(np.float32)
TRUTH = {f"v{k}": CLASSES[int(VECTORS[k, :3].argmax())] for k in range(120)}
PLAIN = Settings(kind="features", control=0.2)


def make_campaign(path: Path, settings: Settings = PLAIN) -> Campaign:
    campaign = Campaign.make([], CLASSES, at=path / "colours.teeter", settings=settings)
    campaign.add({"id": f"v{k}", "features": VECTORS[k]} for k in range(120))
    return campaign


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return make_campaign(tmp_path)


def answer_all(campaign: Campaign, n: int = 20, annotator: str = "me") -> list[str]:
    asked = [question.item for question in campaign.ask(n, annotator)]
    for item in asked:
        campaign.tell(item, TRUTH[item], annotator)
    return asked


def test_a_campaign_learns_by_asking(campaign: Campaign) -> None:
    asked: list[str] = []

    for number in range(1, 5):
        asked += answer_all(campaign, 20)
        trained = campaign.train()
        assert (trained.version, trained.labels) == (number, len(set(asked)))

    # An item that was answered with a prediction in view, and then drawn to measure, came twice.
    labelled = len(set(asked))
    assert 76 <= labelled <= 80

    status = campaign.status()
    assert (status.items, status.labelled, status.version, status.open) == (120, labelled, 4, 0)
    assert sum(status.by_class.values()) == labelled
    assert status.accuracy is not None
    assert status.accuracy.share > 0.7

    left = {question.item for question in campaign.ask(100)}
    assert left >= TRUTH.keys() - set(asked), "what is left"

    for item in [question.item for question in campaign.ask(100)]:
        campaign.tell(item, TRUTH[item])
    assert campaign.ask(5) == []


def test_open_items_come_back_also_in_a_new_process(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path)
    answer_all(campaign)
    campaign.train()

    first = campaign.ask(10)
    assert campaign.ask(10) == first
    assert campaign.ask(4) == first[:4]
    campaign.database.close()

    reopened = Campaign.open(tmp_path / "colours.teeter")
    assert reopened.ask(10) == first
    reopened.tell(first[0].item, "red")
    assert reopened.ask(9) == first[1:]

    more = reopened.ask(12)
    assert more[:9] == first[1:]
    assert len(more) == 12


def test_two_campaigns_of_one_seed_ask_about_the_same_items(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    rounds = []
    for path in (tmp_path, tmp_path / "other"):
        campaign = make_campaign(path)
        asked = answer_all(campaign)
        campaign.train()
        rounds.append((asked, [question.item for question in campaign.ask(15)]))
    assert rounds[0] == rounds[1]


def test_questions_say_why_they_were_picked(campaign: Campaign) -> None:
    answer_all(campaign)
    campaign.train()
    questions = campaign.ask(20)
    arms = [question.arm for question in questions]
    assert arms.count("control") == 4
    assert arms.count("picked") == 16
    for question in questions:
        assert question.reason["predicted"] in CLASSES
        assert 1 / 3 <= question.reason["probability"] <= 1
        assert ("ldm" in question.reason) == (question.arm == "picked")
    assert [question.rank for question in questions] == list(range(1, 21))


@pytest.mark.slow
def test_control_items_are_drawn_uniformly(tmp_path: Path) -> None:
    counts = np.zeros(120)
    for seed in range(60):
        (tmp_path / str(seed)).mkdir()
        campaign = make_campaign(tmp_path / str(seed), replace(PLAIN, seed=seed, control=0.5))
        for question in campaign.ask(20):
            counts[int(question.item[1:])] += question.arm == "control"
        campaign.database.close()
    assert counts.sum() == pytest.approx(600, abs=1)
    expected = counts.sum() / 120
    chi = float(((counts - expected) ** 2 / expected).sum())
    assert chi < 170, "the 99.9 % point of 119 degrees of freedom is 173"


def test_without_control_items_accuracy_is_unknown(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path, replace(PLAIN, control=0.0))
    assert {question.arm for question in campaign.ask(30)} == {"picked"}
    for question in campaign.ask(30):
        campaign.tell(question.item, TRUTH[question.item])
    campaign.train()
    assert campaign.status().accuracy is None
    assert "The accuracy cannot be measured" in " ".join(campaign.status().advice)


def test_the_holdout_is_asked_about_and_never_trained_on(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path, replace(PLAIN, holdout=10, control=0.0))

    arms: dict[str, str] = {}
    for _ in range(3):
        arms |= {question.item: question.arm for question in campaign.ask(20)}
        answer_all(campaign)
        trained = campaign.train()

    holdout = [item for item, arm in arms.items() if arm == "holdout"]
    assert len(holdout) == 10
    assert trained.labels == 50

    status = campaign.status()
    assert status.accuracy is not None
    assert status.accuracy.total == 10
    assert status.labelled == 60


def test_the_holdout_leaves_half_of_the_items_for_training(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path, replace(PLAIN, holdout=5000))
    with campaign.reading() as view:
        assert sum(row.holdout for row in view.items.all()) == 60
    answer_all(campaign)
    assert campaign.train().labels == 15


def test_skipped_unsure_and_flagged_items_are_not_asked_about(campaign: Campaign) -> None:
    first, second, third, *rest = (question.item for question in campaign.ask(10))
    campaign.skip(first)
    campaign.mark_unsure(second, comment="too dark")
    campaign.flag(third)
    for item in rest:
        campaign.tell(item, TRUTH[item])

    open_items = {question.item for question in campaign.ask(110)}
    assert not open_items & {first, second, third}

    status = campaign.status()
    assert (status.skipped, status.unsure, status.flagged, status.labelled) == (1, 1, 1, 7)

    for item in sorted(open_items)[:20]:
        campaign.tell(item, TRUTH[item])
    campaign.train()

    later = {question.item for question in campaign.ask(200)}
    assert first in later, "what was skipped comes back after the next training"
    assert not later & {second, third}


def test_a_changed_answer_replaces_the_first_and_the_history_keeps_both(campaign: Campaign) -> None:
    campaign.tell("v1", "red")
    campaign.tell("v1", "blue", comment="on second thought")
    assert campaign.status().by_class == {"red": 0, "green": 0, "blue": 1}

    undone = campaign.undo()
    assert undone is not None
    assert undone.before is not None
    assert (undone.answer.label, undone.before.label) == ("blue", "red")
    assert campaign.status().by_class["red"] == 1

    campaign.undo()
    assert campaign.undo() is None
    assert campaign.status().labelled == 0

    with campaign.reading() as view:
        events = [line["what"] for line in view.history.lines()]
    assert events.count("answer") == 2
    assert events.count("undo") == 2


def test_a_class_can_be_added_later(campaign: Campaign) -> None:
    answer_all(campaign)
    campaign.train()
    campaign.classes.add("yellow")
    assert campaign.classes.names() == (*CLASSES, "yellow")
    for item in (question.item for question in campaign.ask(10)):
        campaign.tell(item, "yellow")
    assert campaign.train().classes == [*CLASSES, "yellow"]
    assert len(campaign.ask(5)) == 5


def test_a_new_name_differs_from_others_in_more_than_case_and_spaces(campaign: Campaign) -> None:
    for name in ("Red", "RED "):
        with pytest.raises(InputError, match=f"'red' and '{name.strip()}' differ only in case"):
            campaign.classes.add(name)
        with pytest.raises(InputError, match=f"'red' and '{name.strip()}' differ only in case"):
            campaign.classes.rename("blue", name)

    campaign.classes.rename("red", "Red")
    assert campaign.classes.names() == ("Red", "green", "blue"), "a class may change its own case"


def test_older_campaigns_with_names_that_are_alike_work(campaign: Campaign) -> None:
    assert campaign.database.path is not None
    with closing(sqlite3.connect(campaign.database.path)) as connection:
        connection.execute("UPDATE classes SET name = 'Red' WHERE name = 'blue'")
        connection.commit()

    campaign = Campaign.open(campaign.database.path)
    assert campaign.classes.names() == ("red", "green", "Red")
    campaign.tell("v0", "Red")
    campaign.tell("v1", "red")
    assert campaign.labels()["v0"].label == "Red"
    campaign.classes.add("yellow")
    campaign.classes.rename("Red", "crimson")
    assert campaign.classes.names() == ("red", "green", "crimson", "yellow")


def test_the_majority_of_annotators_gives_the_label(campaign: Campaign) -> None:
    ann, bob = ({question.item for question in campaign.ask(15, who)} for who in ("ann", "bob"))
    assert not ann & bob
    for who, label in (("ann", "red"), ("bob", "green"), ("cem", "green")):
        campaign.tell("v3", label, who)
    assert campaign.status().by_class == {"red": 0, "green": 1, "blue": 0}


def test_two_processes_see_each_other_s_answers(campaign: Campaign, tmp_path: Path) -> None:
    other = Campaign.open(tmp_path / "colours.teeter")
    for _ in range(2):
        anns_items = [question.item for question in campaign.ask(10, "ann")]
        bobs_items = [question.item for question in other.ask(10, "bob")]
        assert not set(anns_items) & set(bobs_items)

        for item in anns_items:
            campaign.tell(item, TRUTH[item], "ann")
        for item in bobs_items:
            other.tell(item, TRUTH[item], "bob")
        other.train()
    assert campaign.status() == other.status()
    assert campaign.status().labelled == 40


def test_labels_that_come_with_the_items_are_used(tmp_path: Path) -> None:
    campaign = Campaign.make([], CLASSES, at=tmp_path / "c.teeter", settings=PLAIN)
    given = [
        {"id": f"v{k}", "features": VECTORS[k], "label": TRUTH[f"v{k}"] if k < 30 else ""}
        for k in range(120)
    ]
    added = campaign.add(given)
    assert (added.new, added.labelled) == (120, 30)
    assert campaign.train().labels == 30


def test_a_wrong_label_is_a_suspect(campaign: Campaign) -> None:
    item, wrong = label_one_item_wrongly(campaign)
    (first, *_) = campaign.review.suspects(3)
    assert (first.item, first.label, first.predicted) == (item, wrong, TRUTH[item])
    assert first.chance < 0.3


def label_one_item_wrongly(campaign: Campaign) -> tuple[str, str]:
    """Label most items, one that is clear wrongly; return it and what it was called."""
    for k in range(100):
        campaign.tell(f"v{k}", TRUTH[f"v{k}"])
    clear = max(range(100), key=lambda k: np.sort(VECTORS[k, :3])[-1] - np.sort(VECTORS[k, :3])[-2])
    wrong = next(name for name in CLASSES if name != TRUTH[f"v{clear}"])
    campaign.tell(f"v{clear}", wrong)
    return f"v{clear}", wrong


def suspect_items(campaign: Campaign, *, again: bool = False) -> list[str]:
    return [suspect.item for suspect in campaign.review.suspects(50, again=again)]


def test_a_confirmed_label_is_no_suspect_unless_asked_for(
    campaign: Campaign, tmp_path: Path
) -> None:
    item, wrong = label_one_item_wrongly(campaign)
    answers = len(campaign.history())
    campaign.confirm_label(item, comment="I looked twice")
    assert item not in suspect_items(campaign)
    assert suspect_items(campaign, again=True)[0] == item
    assert item not in suspect_items(Campaign.open(tmp_path / "colours.teeter"))
    assert [line["what"] for line in campaign.history()[answers:]] == ["answer", "kept"]
    assert campaign.history()[-1]["label"] == wrong
    assert campaign.status().labelled == 100


def test_a_confirmation_can_be_undone_and_ends_with_another_label(campaign: Campaign) -> None:
    item, wrong = label_one_item_wrongly(campaign)
    other = next(name for name in CLASSES if name not in (wrong, TRUTH[item]))
    campaign.confirm_label(item)
    campaign.undo()
    assert suspect_items(campaign)[0] == item
    campaign.confirm_label(item)
    campaign.tell(item, other)
    assert suspect_items(campaign)[0] == item
    campaign.tell(item, TRUTH[item])
    assert item not in suspect_items(campaign)


def test_another_annotator_can_confirm_or_correct_a_label(campaign: Campaign) -> None:
    item, _ = label_one_item_wrongly(campaign)
    campaign.confirm_label(item, "bob")
    assert item not in suspect_items(campaign)
    campaign.undo("bob")
    campaign.tell(item, TRUTH[item], "bob")
    assert item not in suspect_items(campaign)
    with pytest.raises(InputError, match="v110 has no label to confirm"):
        campaign.confirm_label("v110")
    with pytest.raises(UnknownNameError, match="No item is called 'v999'"):
        campaign.confirm_label("v999")


@pytest.fixture(scope="module")
def trained_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign with thirty answers and a model, to be copied."""
    folder = tmp_path_factory.mktemp("trained")
    campaign = make_campaign(folder)
    answer_all(campaign, 30)
    campaign.train()
    campaign.database.close()
    return folder / "colours.teeter"


@pytest.mark.slow
@pytest.mark.parametrize(
    "strategy",
    sorted(
        name
        for name in set(registry.names()) - {"dbal", "batchbald", "ensemble"}
        if registry.get(name).labels_per_row != "several"
    ),
)
def test_every_strategy_can_be_used_by_name(
    strategy: str, trained_file: Path, tmp_path: Path
) -> None:
    path = shutil.copy(trained_file, tmp_path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "UPDATE campaigns SET settings = json_set(settings, '$.strategy', ?)", (strategy,)
        )
    campaign = Campaign.open(path)
    assert campaign.settings.strategy == strategy
    assert len({question.item for question in campaign.ask(10)}) == 10


@pytest.mark.slow
def test_a_network_can_be_the_head(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path, replace(PLAIN, head="mlp"))
    answer_all(campaign, 12)
    campaign.train()
    assert len(campaign.ask(5)) == 5


def test_the_stored_head_predicts_what_the_model_predicts(campaign: Campaign) -> None:
    answer_all(campaign, 60)
    campaign.train()
    with campaign.reading() as view:
        model = view.models.newest()
    assert model is not None
    arrays = load(model.weights)
    scaled, _ = scale_features(VECTORS)
    logits = scaled @ arrays["weight"].T + arrays["bias"]
    assert arrays["predicted"].tolist() == arrays["seen"][logits.argmax(axis=1)].tolist()


def test_answers_are_charged_to_the_budget(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path, replace(PLAIN, cost=0.5, budget=20.0))
    answer_all(campaign, 20)
    assert "10 of the budget of 20 is left." in campaign.status().advice


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "sound"}, "No kind is called 'sound'"),
        ({"head": "liner"}, "No head is called 'liner'. Did you mean 'linear'"),
        ({"control": 1.0}, "control is 1.0"),
        ({"holdout": -1}, "holdout is -1"),
        ({"cost": -1.0}, "cost is -1.0"),
        ({"strategy": "ldms"}, "No strategy is called 'ldms'"),
        ({"options": {"rais": 3}}, "rais"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises((InputError, UnknownNameError), match=message.replace("?", r"\?")):
        Settings(**values).require_strategy()


@pytest.mark.parametrize("classes", [(), ("one",), ("one", "one"), ("one", " ")])
def test_classes_that_do_not_differ_are_refused(classes: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give two or more different names"):
        Campaign.make([], classes, at=tmp_path / "c.teeter")


def test_classes_may_be_numbers_or_booleans(tmp_path: Path) -> None:
    settings = Settings(kind="features")
    campaign = Campaign.make(
        [], [0, np.int64(1), True], at=tmp_path / "n.teeter", settings=settings
    )
    items = [{"id": k, "features": [k, 1.0], "label": k % 2} for k in range(4)]
    assert campaign.add(items).labelled == 4
    assert campaign.classes.names() == ("0", "1", "True")

    campaign.tell("2", 1)
    campaign.tell("3", True)
    campaign.classes.add(7)
    campaign.review.decide("0", 7)
    labels = {item: label.label for item, label in campaign.labels().items()}
    assert labels["2"] == "1"
    assert labels["3"] == "True"
    assert labels["0"] == "7"


@pytest.mark.parametrize("label", [None, ["0"], {"0": 1}])
def test_other_types_are_no_classes(label: Any, campaign: Campaign, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot be the name of a class|A label needs a class"):
        campaign.tell("v1", label)
    with pytest.raises(InputError, match="be the name of a class: give a string or a number"):
        Campaign.make([], ["red", label], at=tmp_path / "x.teeter")


def test_mistakes_are_refused_and_change_nothing(campaign: Campaign, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Cannot ask about 0 items"):
        campaign.ask(0)
    with pytest.raises(
        InputError, match="No item has a label yet: label items of at least two classes, then train"
    ):
        campaign.train()

    campaign.tell("v0", "red")
    with pytest.raises(InputError, match="only 1 of 3 classes"):
        campaign.train()
    with pytest.raises(UnknownNameError, match=r"No class is called 'rde'. Did you mean 'red'\?"):
        campaign.tell("v0", "rde")
    with pytest.raises(UnknownNameError, match="No item is called 'v999'"):
        campaign.tell("v999", "red")

    with pytest.raises(InputError, match="already has a campaign called 'colours'"):
        Campaign.make([], CLASSES, at=f"sqlite:///{tmp_path}/colours.teeter#colours")
    with pytest.raises(InputError, match="A campaign needs a name"):
        Campaign.make([], CLASSES, at=tmp_path / "x.teeter", name=" ")
    with pytest.raises(
        UnknownNameError, match=r"No campaign is called 'colour'. Did you mean 'colours'"
    ):
        Campaign.open(tmp_path / "colours.teeter", "colour")

    Campaign.make([], CLASSES, at=f"sqlite:///{tmp_path}/colours.teeter#second")
    with pytest.raises(InputError, match="has several campaigns: name one of colours, second"):
        Campaign.open(tmp_path / "colours.teeter")
    with pytest.raises(InputError, match="The campaign has no items: add some first"):
        Campaign.open(tmp_path / "colours.teeter", "second").ask(3)

    assert campaign.status().labelled == 1


def test_a_backup_opens_as_a_campaign(campaign: Campaign, tmp_path: Path) -> None:
    answer_all(campaign)
    campaign.back_up(tmp_path / "copy.teeter")
    assert Campaign.open(tmp_path / "copy.teeter").status().labelled == 20
    (tmp_path / "none.teeter").touch()
    with pytest.raises((StoreError, InputError)):
        Campaign.open(tmp_path / "none.teeter")


def test_texts_are_encoded_and_more_can_be_added(tmp_path: Path) -> None:
    campaign = Campaign.make([], ("fruit", "tool"), at=tmp_path / "t.teeter")
    fruit = ("apple pear plum cherry", "pear and cherry", "sweet plum")
    tools = ("saw hammer", "hammer and nail", "a saw")

    added = campaign.add([*fruit, *tools, "apple pear plum cherry"])
    assert (added.new, added.duplicates) == (6, 1)

    for text in (*fruit, *tools):
        (item,) = [question.item for question in campaign.ask(10) if question.content == text]
        campaign.tell(item, "fruit" if text in fruit else "tool")
    campaign.train()

    campaign.add([("new", "cherry pie"), ("dull", "…")])
    assert {question.item for question in campaign.ask(5)} == {"new", "dull"}


@pytest.mark.slow
def test_a_text_of_ten_million_characters_is_asked_about_and_trained_on(tmp_path: Path) -> None:
    campaign = Campaign.make([], ("fruit", "tool"), at=tmp_path / "t.teeter")
    long = "word " * 2_000_000
    campaign.add([("long", long), ("a", "sweet plum"), ("b", "a saw"), ("c", "ripe plum")])
    assert {question.item: question.content for question in campaign.ask(4)}["long"] == long
    for item, label in (("long", "tool"), ("a", "fruit"), ("b", "tool")):
        campaign.tell(item, label)
    campaign.train()
    campaign.export(tmp_path / "out.jsonl")
    assert len((tmp_path / "out.jsonl").read_text()) > len(long)


def test_a_custom_encoder_computes_the_features(tmp_path: Path) -> None:
    campaign = Campaign.make([], ("short", "long"), at=tmp_path / "t.teeter")
    campaign.add(
        ["a" * k for k in range(1, 30)], encoder=lambda texts: [[len(text), 1.0] for text in texts]
    )

    assert len(campaign.ask(5)) == 5

    for wrong in (lambda texts: [[1.0]], lambda texts: [[np.nan]] * len(texts)):
        with pytest.raises(InputError, match="The encoder returned an array"):
            campaign.add(["more"], encoder=wrong)
    assert campaign.status().items == 29
    with pytest.raises(
        InputError, match="1 item has no features, but you gave features for the others"
    ):
        campaign.add(["more"])

    campaign.add(["more"], encoder=lambda texts: [[len(text), 2.0] for text in texts])
    assert campaign.status().items == 30


def test_given_and_computed_features_are_never_mixed(tmp_path: Path) -> None:
    campaign = Campaign.make([], ("short", "long"), at=tmp_path / "t.teeter")
    with pytest.raises(InputError, match="1 item has no features"):
        campaign.add([{"text": "one", "features": [1.0, 2.0]}, {"text": "two"}])
    campaign.add([{"text": "one", "features": [1.0, 2.0]}])
    with pytest.raises(InputError, match="1 item has no features"):
        campaign.add(["two"])
    with pytest.raises(InputError, match="features differ in length"):
        campaign.add([{"text": "two", "features": [1.0]}])
    assert campaign.status().items == 1


def test_a_setting_of_a_newer_version_is_refused(campaign: Campaign, tmp_path: Path) -> None:
    campaign.database.close()
    connection = sqlite3.connect(tmp_path / "colours.teeter")
    connection.execute("update campaigns set settings = json_insert(settings, '$.colour', 'red')")
    connection.commit()
    connection.close()
    with pytest.raises(
        StoreError, match=r"has a setting from a newer version of teeter \(colour\): update teeter"
    ):
        Campaign.open(tmp_path / "colours.teeter")


def test_a_campaign_needs_a_name() -> None:
    with pytest.raises(InputError, match="A campaign needs a name"):
        validate_name("  ")
