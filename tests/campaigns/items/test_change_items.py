"""Items that are changed, withdrawn and put back, and classes that get another name."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from teeter.campaigns import Campaign, Settings
from teeter.campaigns.items import change_items
from teeter.campaigns.items.read_items import read_items
from teeter.campaigns.records import ClassDescription
from teeter.errors import InputError, UnknownItemError, UnknownNameError

TEXTS = [
    {"id": f"t{n}", "text": f"{'win cash' if n % 2 else 'warm bread'} {n}", "n": n}
    for n in range(40)
]


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    campaign = Campaign.make(
        [], ("spam", "ham"), at=tmp_path / "c.teeter", settings=Settings(seed=1)
    )
    campaign.add(TEXTS)
    return campaign


def label(campaign: Campaign, count: int) -> None:
    for n in range(count):
        campaign.tell(f"t{n}", ("ham", "spam")[n % 2])


def read_vectors(campaign: Campaign) -> npt.NDArray[np.float32]:
    with campaign.reading() as view:
        return view.encodings.read().vectors


def read_content(campaign: Campaign, item_id: str) -> str | None:
    with campaign.reading() as view:
        return view.items.get(item_id).content


def run_before_writing(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Let another process do something once, after the next change was read and encoded."""
    compute_vector = change_items._encode
    pending = [action]

    def compute_and_interrupt(*args: Any, **options: Any) -> Any:
        vector = compute_vector(*args, **options)
        if pending:
            pending.pop()()
        return vector

    monkeypatch.setattr(change_items, "_encode", compute_and_interrupt)


def test_a_changed_text_is_encoded_and_keeps_its_answers(campaign: Campaign) -> None:
    label(campaign, 6)
    campaign.train()
    before = campaign.load_state()
    vectors = read_vectors(campaign)

    assert campaign.items.change("t1", text="warm bread and cheese", who="olga")

    after = campaign.load_state()
    assert after.keys == before.keys, "models know items by their rows"
    assert after.labels == before.labels
    changed = (read_vectors(campaign) != vectors).any(axis=1)
    assert np.flatnonzero(changed).tolist() == [1]
    line = campaign.history()[-1]
    assert (line["who"], line["what"], line["item"]) == ("olga", "item changed", "t1")
    assert (line["from"], line["to"]) == ("win cash 1", "warm bread and cheese")
    assert not campaign.items.change("t1", text="warm bread and cheese"), "nothing to do"
    # The old text is free again, and the new one is taken.
    assert campaign.add(["win cash 1"]).new == 1
    assert campaign.add(["warm bread and cheese"]).duplicate_items[0][1] == "t1"


def test_columns_are_changed_one_by_one(campaign: Campaign, tmp_path: Path) -> None:
    assert campaign.items.change("t3", columns={"n": 33, "customer": "ACME"})
    assert campaign.items.row("t3") == {"n": 33, "customer": "ACME"}
    assert campaign.items.row("t4") == {"n": 4}
    assert campaign.items.change("t3", columns={"n": "many"}), "a value of another type"
    assert campaign.items.row("t3") == {"n": "many", "customer": "ACME"}
    assert not campaign.items.change("t3", columns={"n": "many"})
    assert campaign.items.change("t3", columns={"customer": None})
    line = campaign.history()[-1]
    assert (line["what"], line["from"]) == ("columns changed", {"customer": "ACME"})

    campaign.export(tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(newline="") as file:
        cells = [row["n"] for row in csv.DictReader(file)]
    assert cells[:5] == ["0", "1", "2", "many", "4"]


def test_a_text_is_changed_in_every_row_of_its_file(tmp_path: Path) -> None:
    lines = [f"i{n},text {n},text {n},4" for n in range(6)]
    path = tmp_path / "in.csv"
    path.write_text("\n".join(["id,text,copy,stars", *lines, "j,text 3,text 3,5"]) + "\n")
    campaign = Campaign.make([], ("a", "b"), at=tmp_path / "d.teeter", settings=Settings())
    campaign.add(read_items(path))

    assert not campaign.items.change("i3", columns={"stars": 4}), "the file has the text 4"
    assert campaign.items.change("i3", text="brand new", columns={"stars": 3})

    campaign.export(tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = {row["id"]: row for row in csv.DictReader(file)}
    cells = [(rows[key]["text"], rows[key]["copy"], rows[key]["stars"]) for key in ("i3", "j")]
    assert cells == [("brand new", "text 3", "3"), ("brand new", "text 3", "5")]


def test_a_column_that_only_looks_like_the_text_stays(campaign: Campaign) -> None:
    campaign.add([{"id": "x", "text": "Wien", "city": "Wien"}])

    assert campaign.items.change("x", text="A new sentence")

    assert campaign.items.row("x") == {"city": "Wien"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"text": " "}, "blank"),
        ({"text": "win cash 3"}, "'t3' has this text already"),
        ({"text": "a\0"}, "NUL"),
        ({"text": "new", "features": [1.0]}, "computes the features"),
        ({"features": [1.0]}, "computes the features"),
        ({"columns": {"x": object()}}, "cannot be stored"),
    ],
)
def test_a_change_that_cannot_be_made_changes_nothing(
    campaign: Campaign, changes: dict[str, object], message: str
) -> None:
    lines = len(campaign.history())

    with pytest.raises(InputError, match=message):
        campaign.items.change("t1", **changes)  # type: ignore[arg-type]

    assert len(campaign.history()) == lines
    with pytest.raises(UnknownItemError):
        campaign.items.change("lost", text="x")


def test_features_are_changed_with_their_item(tmp_path: Path) -> None:
    settings = Settings(kind="features")
    campaign = Campaign.make([], ("a", "b"), at=tmp_path / "f.teeter", settings=settings)
    campaign.add({"id": n, "features": [n, 1.0]} for n in range(4))

    assert campaign.items.change("2", features=[9.0, 9.0])
    with pytest.raises(InputError, match="differ in length"):
        campaign.items.change("2", features=[9.0])
    with pytest.raises(InputError, match="have no text"):
        campaign.items.change("2", text="x")

    assert read_vectors(campaign)[2].tolist() == [9.0, 9.0]


def test_own_features_are_changed_without_the_text(tmp_path: Path) -> None:
    campaign = Campaign.make([], ("a", "b"), at=tmp_path / "u.teeter", settings=Settings())
    campaign.add({"id": n, "text": f"x {n}", "features": [n, 1.0]} for n in range(4))

    assert campaign.items.change("1", text="x 1", features=[7.0, 7.0])
    assert campaign.items.change("2", features=[8.0, 8.0])
    assert not campaign.items.change("2", features=[8.0, 8.0])

    assert read_vectors(campaign)[1:3].tolist() == [[7.0, 7.0], [8.0, 8.0]]


def test_suggestions_about_the_old_text_are_removed(campaign: Campaign) -> None:
    rows = [{"id": "t1", "label": "spam"}, {"id": "t2", "label": "ham"}]
    campaign.suggestions.add(rows, "model")

    campaign.items.change("t1", text="warm bread and cheese")

    assert [source.items for source in campaign.suggestions.sources()] == [1]


def test_a_withdrawn_item_is_left_out_until_it_is_put_back(
    campaign: Campaign, tmp_path: Path
) -> None:
    label(campaign, 8)
    before = campaign.load_state()
    open_items = [question.item for question in campaign.ask(5)]
    withdrawn = ["t0", "t1", open_items[0]]

    assert campaign.items.withdraw(withdrawn, reason="private", who="olga") == 3
    assert campaign.items.withdraw(withdrawn) == 0

    state = campaign.load_state()
    assert len(state.labels) == 6
    rows = [state.keys.index(item) for item in withdrawn]
    assert set(rows) <= state.taken
    asked = [question.item for question in campaign.ask(32)]
    assert set(asked) == {f"t{n}" for n in range(8, 40)} - {open_items[0]}
    status = campaign.status()
    assert (status.withdrawn, status.labelled, status.items) == (3, 6, 37)
    assert status.by_class == {"spam": 3, "ham": 3}
    assert not {"t0", "t1"} & set(campaign.labels())
    assert campaign.export(tmp_path / "out.jsonl") == 6
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert sum('"left_out": true' in line for line in lines) == 3
    # The annotator had it open: the answer counts when the item is back.
    campaign.tell(open_items[0], "ham")

    assert campaign.items.put_back(withdrawn) == 3

    assert {*before.labels, rows[2]} == set(campaign.load_state().labels)
    lines_of_history = [line["what"] for line in campaign.history()]
    assert lines_of_history.count("withdrawn") == lines_of_history.count("put back") == 1
    with pytest.raises(UnknownItemError, match="no item 'lost': nothing was changed"):
        campaign.items.withdraw(["t5", "lost"])
    with pytest.raises(InputError, match="Give a list"):
        campaign.items.withdraw("t5")


def test_statistics_of_annotators_and_sources_leave_withdrawn_items_out(tmp_path: Path) -> None:
    settings = Settings(seed=1, cost=2.0)
    campaign = Campaign.make([], ("spam", "ham"), at=tmp_path / "c.teeter", settings=settings)
    campaign.add(TEXTS)
    for n in range(6):
        campaign.tell(f"t{n}", "spam", "ann")
        campaign.tell(f"t{n}", "ham" if n < 2 else "spam", "bob")
        campaign.review.decide(f"t{n}", "spam", "rea")
    rows = [{"id": f"t{n}", "label": "ham" if n < 2 else "spam"} for n in range(6)]
    campaign.suggestions.add(rows, "model")

    campaign.items.withdraw(["t0", "t1"])

    assert campaign.review.agreement().items == 4
    bob = campaign.people.stats()[1]
    assert (bob.name, bob.answers) == ("bob", 6), "what an annotator did stays"
    assert bob.matches_decisions.total == 4
    assert bob.matches_consensus.share == 1.0
    source = campaign.suggestions.sources()[0]
    assert (source.items, source.blind.right, source.blind.total) == (4, 8, 8)
    assert campaign.status().spent == 24.0, "what was paid stays paid"

    campaign.items.put_back(["t0", "t1"])
    assert campaign.review.agreement().items == 6


def test_answers_about_withdrawn_items_do_not_weight_annotators(tmp_path: Path) -> None:
    settings = Settings(kind="features", consensus="dawid-skene")
    campaign = Campaign.make([], ["x", "y"], at=tmp_path / "a.teeter", settings=settings)
    campaign.add([{"id": f"i{k}", "features": [k]} for k in range(12)])
    for k in range(12):
        truth = "xy"[k % 2]
        for annotator in ("ann", "bob"):
            campaign.tell(f"i{k}", truth, annotator)
        # Careful on the first items, and wrong about all later ones.
        campaign.tell(f"i{k}", truth if k < 4 else "yx"[k % 2], "cat")

    with_all = campaign.labels()
    campaign.items.withdraw([f"i{k}" for k in range(4, 12)])
    after = campaign.labels()

    assert set(after) == {f"i{k}" for k in range(4)}
    only_kept = Campaign.make([], ["x", "y"], at=tmp_path / "b.teeter", settings=settings)
    only_kept.add([{"id": f"i{k}", "features": [k]} for k in range(4)])
    for k in range(4):
        for annotator in ("ann", "bob", "cat"):
            only_kept.tell(f"i{k}", "xy"[k % 2], annotator)
    assert after == only_kept.labels()
    assert after["i0"] != with_all["i0"], "they did count while the items were in the campaign"

    campaign.items.put_back([f"i{k}" for k in range(4, 12)])
    assert campaign.labels() == with_all


def test_models_do_not_learn_from_suggestions_about_withdrawn_items(campaign: Campaign) -> None:
    rows = [{"id": f"t{n}", "label": ("ham", "spam")[n % 2]} for n in range(8)]
    campaign.suggestions.add(rows, "model")
    before = campaign.load_state().prior

    campaign.items.withdraw(["t1"])

    after = campaign.load_state().prior
    assert before.predicted["model"][1] == 0
    assert after.predicted["model"][1] == -1
    is_source = [origin == "model" for origin in after.origins]
    assert not np.array_equal(before.features[is_source], after.features[is_source])


def test_a_class_is_renamed_with_all_that_hangs_on_it(campaign: Campaign) -> None:
    campaign.classes.describe({"spam": ClassDescription("Advertisements.", ("win",))})
    label(campaign, 6)
    campaign.train()
    asked = {question.item for question in campaign.ask(3)}
    predicted = campaign.predict(["win cash"])[0].label

    campaign.classes.rename("spam", "ads", who="olga")

    assert campaign.classes.names() == ("ads", "ham")
    assert campaign.classes.descriptions()["ads"].examples == ("win",)
    assert campaign.labels()["t1"].label == "ads"
    assert campaign.status().by_class == {"ads": 3, "ham": 3}
    assert predicted == "spam"
    assert campaign.predict(["win cash"])[0].label == "ads"
    questions = campaign.ask(3)
    assert {question.item for question in questions} == asked
    assert all(question.reason.get("predicted") in (None, "ads", "ham") for question in questions)
    line = campaign.history()[-1]
    assert (line["who"], line["what"], line["from"], line["to"]) == (
        "olga",
        "class renamed",
        "spam",
        "ads",
    )
    # A page that was opened before still has the old name.
    campaign.tell("t7", "spam")
    assert campaign.labels()["t7"].label == "ads"
    campaign.classes.rename("ads", "offers", description="All offers.")
    campaign.tell("t9", "spam")
    assert campaign.labels()["t9"].label == "offers"
    assert campaign.classes.descriptions()["offers"].description == "All offers."
    campaign.classes.add("spam")
    campaign.tell("t11", "spam")
    assert campaign.labels()["t11"].label == "spam", "another class has the name now"


@pytest.mark.parametrize("new_name", ["ham", " ", "a\nb"])
def test_a_name_that_cannot_be_given(campaign: Campaign, new_name: str) -> None:
    with pytest.raises(InputError):
        campaign.classes.rename("spam", new_name)
    with pytest.raises(UnknownNameError):
        campaign.classes.rename("spma", "x")
    assert campaign.classes.names() == ("spam", "ham")


def test_a_text_that_another_process_adds_meanwhile_is_taken(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_before_writing(monkeypatch, lambda: campaign.add(["same text"], encode_now=False))

    with pytest.raises(InputError, match="has this text already"):
        campaign.items.change("t1", text="same text")

    assert read_content(campaign, "t1") == "win cash 1"


def test_a_change_does_not_wait_until_other_items_are_encoded(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = []

    def encode_another_item() -> None:
        vector = read_vectors(campaign)[0]
        with campaign.writing() as change:
            current = change.encodings.current()
            assert current is not None
            change.encodings.write(current.row_id, {"t2": vector})

    compute_vector = change_items._encode

    def compute_and_count(*args: Any, **options: Any) -> Any:
        vectors.append(compute_vector(*args, **options))
        return vectors[-1]

    monkeypatch.setattr(change_items, "_encode", compute_and_count)
    run_before_writing(monkeypatch, encode_another_item)

    assert campaign.items.change("t1", text="warm bread and cheese")
    assert len(vectors) == 1


@pytest.fixture(params=[{"encoder": "table-rows"}, {"rows": True, "encoder": "tfidf"}])
def table_campaign(tmp_path: Path, request: pytest.FixtureRequest) -> Campaign:
    settings = Settings(**request.param)
    campaign = Campaign.make([], ("low", "high"), at=tmp_path / "r.teeter", settings=settings)
    campaign.add({"id": n, "age": n, "city": "Wien", "text": "note"} for n in range(20))
    return campaign


def test_rows_of_a_table_are_added_and_changed_by_their_columns(table_campaign: Campaign) -> None:
    assert table_campaign.items.change("3", columns={"age": 77, "city": None})

    assert read_content(table_campaign, "3") == "age: 77\ncity:\ntext: note"
    assert table_campaign.items.row("3") == {"age": 77, "city": None, "text": "note"}
    with pytest.raises(InputError, match="dictionary of columns"):
        table_campaign.add([{"id": "x"}])
    with pytest.raises(InputError, match="change their columns instead"):
        table_campaign.items.change("3", text="free text")
    assert read_content(table_campaign, "3") == "age: 77\ncity:\ntext: note"


def test_a_row_gets_a_column_that_only_others_had(table_campaign: Campaign) -> None:
    table_campaign.add([{"id": "a", "age": 100}, {"id": "b", "age": 101, "city": "Linz"}])

    assert table_campaign.items.change("a", columns={"city": "Wels"})

    assert read_content(table_campaign, "a") == "age: 100\ncity: Wels"
    assert table_campaign.items.row("a") == {"age": 100, "city": "Wels"}


def test_two_processes_change_columns_of_one_row(
    table_campaign: Campaign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Campaign.open(tmp_path / "r.teeter")
    run_before_writing(monkeypatch, lambda: other.items.change("5", columns={"city": "Paris"}))

    assert table_campaign.items.change("5", columns={"age": 55})

    other.database.close()
    assert read_content(table_campaign, "5") == "age: 55\ncity: Paris\ntext: note"
    assert table_campaign.items.row("5") == {"age": 55, "city": "Paris", "text": "note"}
