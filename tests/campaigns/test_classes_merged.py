"""Classes that are merged or removed: a merged campaign is like one that never had the class."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from campaigns.fake_clock import FakeClock
from campaigns.finish.small_campaigns import KnownItems, answer_draws, label_batches, make_campaign
from campaigns.random_campaigns import draw_features
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.records import Answer, AnswerKind, ClassDescription, ShownSuggestion
from teeter.campaigns.settings import Settings
from teeter.errors import InputError, UnknownNameError

CLASSES = ["ant", "bee", "cat", "dog"]


def label_at_random(folder: Path, name: str, seed: int, merged: tuple[str, str] | None) -> Campaign:
    """Return a campaign with answers of three people, with one class in place of another."""
    kept = [label for label in CLASSES if merged is None or label != merged[0]]
    settings = Settings(
        kind="features", consensus=["majority", "dawid-skene"][seed % 2], keys=["x", "y", "z"]
    )
    if merged is not None and CLASSES.index(merged[0]) < 3:
        keys = ["x", "y", "z"]
        del keys[CLASSES.index(merged[0])]
        settings = Settings(kind="features", consensus=settings.consensus, keys=keys)
    campaign = Campaign.make(
        [], kept, at=folder / f"{name}.teeter", settings=settings, clock=FakeClock()
    )
    generator = np.random.default_rng(seed)
    campaign.add(
        {"id": f"i{k}", "features": row} for k, row in enumerate(draw_features(40, seed=seed))
    )

    def draw() -> str:
        label = CLASSES[generator.integers(4)]
        return merged[1] if merged is not None and label == merged[0] else label

    suggested = [{"id": f"i{k}", "label": draw()} for k in range(20)]
    campaign.suggestions.add(suggested, "rules")
    for annotator in ("ann", "bob", "eve"):
        for k in generator.permutation(40)[:25]:
            campaign.tell(f"i{k}", draw(), annotator)
        campaign.undo(annotator)
    campaign.tell_all([f"i{k}" for k in range(5)], draw(), "eve")
    for k in generator.permutation(40)[:4]:
        campaign.review.decide(f"i{k}", draw(), "olga")
    campaign.review.undo_decision("olga")
    return campaign


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))]
)
def test_a_merged_campaign_is_like_one_labelled_so_from_the_start(
    tmp_path: Path, seed: int
) -> None:
    name, into = np.random.default_rng(100 + seed).permutation(CLASSES)[:2].tolist()
    campaign = label_at_random(tmp_path, "merged", seed, None)
    twin = label_at_random(tmp_path, "twin", seed, (name, into))

    campaign.classes.merge(name, into)

    assert campaign.classes.all() == twin.classes.all()
    assert campaign.labels() == twin.labels()
    assert campaign.status() == twin.status()
    assert campaign.review.agreement() == twin.review.agreement()
    assert campaign.review.disagreements() == twin.review.disagreements()
    assert campaign.suggestions.sources() == twin.suggestions.sources()
    for both in (campaign, twin):
        both.train()
        both.export(tmp_path / f"{both.name}.csv")
    assert (tmp_path / "merged.csv").read_text() == (tmp_path / "twin.csv").read_text()
    for both in (campaign, twin):
        both.undo("ann")
    assert campaign.labels() == twin.labels(), "earlier answers were merged, too"


@pytest.mark.parametrize("head", ["pool", "linear", pytest.param("mlp", marks=pytest.mark.slow)])
def test_a_model_predicts_after_a_merge_and_picks_name_classes_that_are_there(
    tmp_path: Path, head: str
) -> None:
    settings = Settings(kind="features", head=head, control=0.0, strategy="margin")
    campaign = Campaign.make([], CLASSES, at=tmp_path / "c.teeter", settings=settings)
    features = draw_features(60)
    campaign.add({"id": f"i{k}", "features": row} for k, row in enumerate(features))
    for _ in range(2):
        for question in campaign.ask(12):
            k = int(question.item[1:])
            label = CLASSES[int(features[k, 0] > 0) + 2 * int(features[k, 1] > 0)]
            campaign.tell(question.item, label)
        campaign.train()
    campaign.ask(5)

    campaign.classes.merge("bee", "dog")

    assert {question.reason["predicted"] for question in campaign.ask(5)} <= {"ant", "cat", "dog"}
    predicted = {prediction.label for prediction in campaign.predict(list(features))}
    assert predicted <= {"ant", "cat", "dog"}
    assert "classes have changed since" in (campaign.prediction_note() or "")
    changed = campaign.items.changed_predictions()
    assert {item.before for item in changed} | {item.after for item in changed} <= set(predicted)
    campaign.ask(20)
    campaign.train()
    assert campaign.prediction_note() is None

    # What is left has labels of one class, from which nothing learns.
    campaign.classes.add("eel")
    campaign.classes.merge("ant", "cat")
    campaign.classes.merge("dog", "cat")
    assert len(campaign.ask(5)) == 5
    with pytest.raises(InputError, match="no model yet"):
        campaign.predict(list(features))


def test_names_descriptions_and_confirmations_follow(tmp_path: Path) -> None:
    campaign = Campaign.make(["a", "b", "c"], CLASSES, at=tmp_path / "c.teeter")
    campaign.classes.describe(
        {"ant": ClassDescription("Six legs.", ("black",)), "bee": ClassDescription("", ("yellow",))}
    )
    items = list(campaign.ask(3))
    campaign.tell(items[0].item, "ant")
    campaign.confirm_label(items[0].item)
    campaign.classes.rename("ant", "emmet")
    campaign.classes.merge("emmet", "bee", who="olga")
    history = campaign.history()

    campaign.classes.merge("emmet", "bee")

    assert campaign.history() == history, "sent again, it does nothing"
    line = history[-1]
    assert (line["who"], line["what"], line["from"], line["to"]) == (
        "olga",
        "classes merged",
        "emmet",
        "bee",
    )
    assert any(line["what"] == "answer" and line["label"] == "ant" for line in history)
    assert campaign.classes.descriptions() == {
        "bee": ClassDescription("Six legs.", ("yellow", "black"))
    }
    with campaign.reading() as view:
        assert view.answers.confirmed_labels() == {items[0].item: "bee"}
    # A page that was opened before still has the old names.
    for item, old in zip(items[1:], ("ant", "emmet"), strict=True):
        campaign.tell(item.item, old)
        assert campaign.labels()[item.item].label == "bee"
    campaign.classes.add("ant")
    campaign.tell(items[1].item, "ant")
    assert campaign.labels()[items[1].item].label == "ant", "another class has the name now"


def test_what_cannot_be_merged_or_removed_says_why(tmp_path: Path) -> None:
    campaign = Campaign.make(["a", "b"], CLASSES, at=tmp_path / "c.teeter")
    item = campaign.ask(1)[0].item
    campaign.suggestions.add([{"id": item, "label": "dog"}], "rules")
    campaign.tell(item, "bee")
    campaign.undo()
    with pytest.raises(InputError, match=r"'bee': it is named by 1 answer, now or earlier\. Merge"):
        campaign.classes.remove("bee")
    with pytest.raises(InputError, match="1 suggestion,"):
        campaign.classes.remove("dog")
    with pytest.raises(InputError, match="into itself"):
        campaign.classes.merge("bee", "bee")
    with pytest.raises(UnknownNameError, match="cat"):
        campaign.classes.merge("cta", "bee")
    with pytest.raises(UnknownNameError, match="cat"):
        campaign.classes.merge("bee", "cta")

    for _ in range(2):
        campaign.classes.remove("ant")
    campaign.classes.merge("bee", "dog")
    with pytest.raises(InputError, match="needs two classes"):
        campaign.classes.merge("cat", "dog")
    with pytest.raises(InputError, match="needs two classes"):
        campaign.classes.remove("cat")
    assert campaign.classes.names() == ("cat", "dog")
    campaign.classes.add("ant")
    assert campaign.classes.names() == ("cat", "dog", "ant"), "no gap in the positions"


def test_a_removed_class_leaves_models_and_shortcuts_of_the_others(tmp_path: Path) -> None:
    settings = Settings(kind="features", control=0.0, keys=["x", "y", "z"])
    campaign = Campaign.make([], CLASSES, at=tmp_path / "c.teeter", settings=settings)
    features = draw_features(40)
    campaign.add({"id": f"i{k}", "features": row} for k, row in enumerate(features))
    for k in range(16):
        campaign.tell(f"i{k}", "cat" if features[k, 0] > 0 else "ant")
    campaign.train()
    before = [prediction.label for prediction in campaign.predict(list(features))]

    campaign.classes.remove("bee")

    assert [prediction.label for prediction in campaign.predict(list(features))] == before
    shortcuts = {entry.name: entry.shortcut for entry in campaign.classes.all()}
    assert shortcuts == {"ant": "x", "cat": "z", "dog": "1"}


def test_a_shown_suggestion_follows(tmp_path: Path) -> None:
    campaign = Campaign.make(["a", "b"], CLASSES, at=tmp_path / "c.teeter")
    item = campaign.ask(1)[0].item
    campaign.suggestions.add([{"id": item, "label": "ant"}], "rules")
    with campaign.reading() as view:
        revision = view.suggestions.revision()
    with campaign.writing() as change:
        answer = Answer(item, "me", AnswerKind.LABEL, "ant")
        change.answers.record(answer, shown=ShownSuggestion("rules", "ant"))

    campaign.classes.merge("ant", "bee")

    with campaign.reading() as view:
        assert view.suggestions.revision() != revision
        shown = view.suggestions.shown_with_live_answers()
    assert shown == {(item, "me"): ShownSuggestion("rules", "bee")}


@pytest.mark.slow
def test_a_promise_ends_with_a_merge_and_stands_in_the_way_of_removing(tmp_path: Path) -> None:
    items = KnownItems()
    campaign = make_campaign(tmp_path, items)
    campaign.classes.add("wasp")
    label_batches(campaign, items, 1, size=40)
    campaign.finish.start()
    answer_draws(campaign, items)
    certificate = campaign.finish.certify()
    assert campaign.finish.note() is not None
    with pytest.raises(InputError, match="the promise that was started"):
        campaign.classes.remove("wasp")
    campaign.finish.draw(5)

    campaign.classes.merge("bee", "wasp")

    report = campaign.finish.look()
    assert not report.is_started
    assert "ended when classes were merged" in report.sentences[0]
    assert campaign.finish.note() is None, "its labels are not exported any more"
    assert campaign.finish.certificates() == [certificate], "but what was certified is on record"
    assert "finish" not in {question.arm for question in campaign.ask(5)}
    for refused in (lambda: campaign.finish.draw(5), campaign.finish.certify):
        with pytest.raises(InputError, match="No promise is started"):
            refused()
    campaign.database.close()

    copy = tmp_path / "copy.teeter"
    shutil.copy(str(campaign.database.path), copy)
    again = Campaign.open(copy).finish.start(draws=10)
    assert (again.attempt, again.is_started) == (2, True)
    assert again.draws == 0, "labels from before the merge say nothing about it"
