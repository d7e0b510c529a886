from __future__ import annotations

import csv
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from campaigns.finish.audits import SECRET, answer_rightly, make_audit, make_rows
from teeter.campaigns import Campaign, Settings
from teeter.campaigns.finish.certificate import certificate_page, make_certificate
from teeter.campaigns.records import ItemColumns, Purpose
from teeter.errors import InputError, UnknownNameError


def audit_rows(
    tmp_path: Path, rows: list[dict[str, Any]], *judges: str, **options: Any
) -> Campaign:
    return Campaign.audit(rows, judges, at=tmp_path / "audit.teeter", **options)


def test_people_are_asked_in_an_order_that_nothing_but_the_ids_decides(tmp_path: Path) -> None:
    campaign = make_audit(tmp_path)
    answered = answer_rightly(campaign, 120)

    assert len(set(answered)) == 120
    rows = make_rows(400, right=0.1)  # the same ids, other labels
    other = Campaign.audit(rows, "llm", at=tmp_path / "other.teeter")
    assert answer_rightly(other, 120) == answered


def test_the_draws_are_a_random_sample_of_a_sorted_file(tmp_path: Path) -> None:
    rows = sorted(make_rows(600), key=lambda row: str(row["llm"]))
    campaign = audit_rows(tmp_path, rows, "llm")
    answered = answer_rightly(campaign, 150)

    labels = {row["id"]: row["llm"] for row in rows}
    share = np.mean([labels[item] == "spam" for item in answered])
    expected = np.mean([row["llm"] == "spam" for row in rows])
    # Four standard deviations of 150 draws.
    assert abs(share - expected) < 4 * np.sqrt(expected * (1 - expected) / 150)


def test_the_first_question_needs_neither_torch_nor_features(tmp_path: Path) -> None:
    import subprocess

    code = f"""
import csv
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from pathlib import Path
from campaigns.finish.audits import answer_rightly, make_audit
campaign = make_audit(Path({str(tmp_path)!r}))
assert len(answer_rightly(campaign, 100)) == 100
assert campaign.judges.report().draws == 100
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    with Campaign.open(tmp_path / "audit.teeter").reading() as view:
        assert not view.encodings.has_vectors()


def test_all_items_can_be_answered(tmp_path: Path) -> None:
    campaign = make_audit(tmp_path, 90)
    assert len(answer_rightly(campaign, 200)) == 90
    report = campaign.judges.report()
    accuracy = report.judges[0].accuracy
    assert report.draws == 90
    assert accuracy.low == accuracy.share == accuracy.high


def test_an_item_that_waits_shows_its_text_and_shown_columns_alone(tmp_path: Path) -> None:
    campaign = make_audit(tmp_path, settings=Settings(show=["language"]))
    answered = set(answer_rightly(campaign, 30))
    item = next(iter(answered))
    waiting = next(f"m{k}" for k in range(400) if f"m{k}" not in answered)

    assert set(campaign.items.row(waiting)) == {"language"}
    assert campaign.items.row(item)["reason"].startswith(SECRET)
    assert {row.item for row in campaign.items.find(search=SECRET)} == answered
    rows = {row["id"]: row for row in make_rows(400)}
    found = {row.item for row in campaign.items.find(column="llm=spam")}
    assert found == {item for item in answered if rows[item]["llm"] == "spam"}
    # What annotators see of all items may be looked for.
    found = {row.item for row in campaign.items.find(column="language=de")}
    assert found == {item for item, row in rows.items() if row["language"] == "de"}
    found = {row.item for row in campaign.items.find(search="m17")}
    assert found == {item for item in rows if item.startswith("m17")}

    campaign.judges.end()
    assert campaign.items.row(waiting)["reason"].startswith(SECRET)
    assert len(list(campaign.items.find(search=SECRET))) == 400


def test_only_blind_answers_count(tmp_path: Path) -> None:
    campaign = make_audit(tmp_path)
    first = campaign.ask(1)[0].item
    campaign.tell_all([first], "ham")
    assert campaign.judges.report().draws == 0

    # It is asked again.
    assert campaign.ask(1)[0].item == first
    campaign.tell(first, "ham")
    assert campaign.judges.report().draws == 1


def test_what_would_give_the_labels_away_waits_for_the_end(tmp_path: Path) -> None:
    campaign = make_audit(tmp_path)
    answer_rightly(campaign, 40)
    waits = [
        lambda: campaign.export(tmp_path / "out.csv"),
        campaign.to_frame,
        campaign.train,
        lambda: campaign.add(["one more"]),
    ]
    for call in waits:
        with pytest.raises(InputError, match="end the audit first"):
            call()
    with pytest.raises(InputError, match="column of a judge"):
        campaign.change_settings(show=["llm"])
    with pytest.raises(InputError, match="is a judge of the audit"):
        campaign.suggestions.add([{"id": "m1", "label": "ham"}], "llm")
    with pytest.raises(InputError, match="is a judge of the audit"):
        campaign.suggestions.remove("rule")

    assert campaign.export(tmp_path / "early.csv", reveal=True) == 40
    assert SECRET in (tmp_path / "early.csv").read_text()


def test_an_audit_that_is_ended_goes_on_as_a_campaign(tmp_path: Path) -> None:
    campaign = make_audit(tmp_path, settings=Settings(encoder="tfidf"))
    answered = answer_rightly(campaign, 60)
    campaign.ask(20)
    before = campaign.judges.report()

    after = campaign.judges.end()
    assert not after.is_running
    assert after.judges == before.judges
    assert campaign.judges.end() == after

    campaign.encode()
    campaign.train()
    picked = [question for question in campaign.ask(40) if question.arm == "picked"]
    assert picked
    assert set(campaign.labels()) == set(answered)
    sources = {source.name: source for source in campaign.suggestions.sources()}
    assert sources["llm"].accuracy is not None
    assert sources["llm"].accuracy.total == 60
    assert campaign.judges.report().judges[0].accuracy == before.judges[0].accuracy


def test_several_people_answer_a_fifth_of_the_items(tmp_path: Path) -> None:
    campaign = make_audit(tmp_path, people=2)
    first = answer_rightly(campaign, 180, "ada")
    second = answer_rightly(campaign, 180, "bob")

    shared = set(first) & set(second)
    assert shared == {item for item in first if campaign.settings.is_shared(item)}
    people = campaign.judges.report().people
    assert people is not None
    assert people.value == 1
    assert people.items == len(shared)

    campaign.judges.end()
    agreement = campaign.review.agreement().observed
    report = replace(campaign.finish.look(), covered=1)
    content = make_certificate(
        report, campaign="audit", issued="", classes=["ham", "spam"], agreement=agreement
    )
    assert content["not_promised"][-1] == (
        "People's labels are taken as right. Two people agree on 100% "
        f"({people.low:.0%} to 100%) of the {len(shared)} items that both labelled."
    )


# Columns as they are


def test_blank_labels_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = make_rows(60)
    for row in rows[:7]:
        row["llm"] = ""
    campaign = audit_rows(tmp_path, rows, "llm", "rule")
    assert any("7 items have no label of llm" in note for note in campaign.imported.notes)
    answered = answer_rightly(campaign, 100)
    assert set(answered) == {f"m{k}" for k in range(7, 60)}


def test_two_spellings_of_a_class_become_one(tmp_path: Path) -> None:
    rows = make_rows(60)
    for row in rows[:9]:
        row["llm"] = f" {row['llm'].upper()} "
    campaign = audit_rows(tmp_path, rows, "llm")
    assert sorted(campaign.classes.names()) == ["ham", "spam"]
    assert any("two spellings" in note for note in campaign.imported.notes)
    answer_rightly(campaign, 60)
    right = sum(str(row["text"]).endswith(str(row["llm"]).strip().lower()) for row in rows)
    assert campaign.judges.report().judges[0].accuracy.right == right


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (["high", "low"], "so no confidence is used: 'high', 'low'"),
        ([85, 1.2], "so no confidence is used: '85', '1.2'"),
        ([0.5, "0.7", -1], "20 values are no confidence from 0 to 1"),
        (["", 0.9], None),
    ],
)
def test_confidences_that_are_none_are_left_out(
    tmp_path: Path, values: list[Any], sentence: str | None
) -> None:
    rows = make_rows(60)
    for number, row in enumerate(rows):
        row["sure"] = values[number % len(values)]
    campaign = Campaign.audit(rows, {"llm": "sure"}, at=tmp_path / "audit.teeter")
    notes = " ".join(campaign.imported.notes)
    assert (sentence or "") in notes
    if sentence is None:
        assert "confidence" not in notes
    answer_rightly(campaign, 40)
    assert campaign.judges.report().judges[0].estimate is not None


def test_a_constant_judge_is_told_of(tmp_path: Path) -> None:
    rows = make_rows(60)
    for row in rows:
        row["llm"] = "ham"
    campaign = audit_rows(tmp_path, rows, "llm", "rule")
    assert any("llm says 'ham' of all items" in note for note in campaign.imported.notes)
    answer_rightly(campaign, 60)
    assert campaign.judges.report().judges[0].accuracy.total == 60

    with pytest.raises(InputError, match="two or more different names"):
        Campaign.audit(rows, "llm", at=tmp_path / "alone.teeter")


def test_rows_with_the_same_text_are_asked_about_once(tmp_path: Path) -> None:
    rows = make_rows(40)
    rows.append({**rows[0], "id": "again", "llm": "ham" if rows[0]["llm"] == "spam" else "spam"})
    campaign = audit_rows(tmp_path, rows, "llm")
    assert campaign.imported.duplicates == 1
    assert any("1 row repeats the text" in note for note in campaign.imported.notes)
    assert len(answer_rightly(campaign, 100)) == 40


def test_labels_beyond_the_given_classes_are_left_out(tmp_path: Path) -> None:
    rows = make_rows(40)
    rows[3]["llm"] = "I cannot tell"
    campaign = audit_rows(tmp_path, rows, "llm", classes=["ham", "spam", "other"])
    assert any("'I cannot tell'" in note for note in campaign.imported.notes)
    assert list(campaign.classes.names()) == ["ham", "spam", "other"]
    assert len(answer_rightly(campaign, 100)) == 39


def test_fewer_rows_than_strata_are_enough(tmp_path: Path) -> None:
    campaign = make_audit(tmp_path, 3, classes=["ham", "spam"])
    answer_rightly(campaign, 2)
    assert campaign.judges.report().judges[0].accuracy.total == 2


@pytest.mark.parametrize(
    ("judges", "options", "error", "message"),
    [
        ("nope", {}, UnknownNameError, "nope"),
        ("text", {"columns": ItemColumns(text="text")}, InputError, "column"),
        ("reason", {}, InputError, "different values"),
        ([], {}, InputError, "needs a column of labels"),
        ("llm", {"settings": Settings(show=["llm"])}, InputError, "column of a judge"),
        ("llm", {"columns": ItemColumns(text="{text} {llm}")}, InputError, "column of a judge"),
        ("llm", {"columns": ItemColumns(labels="rule")}, InputError, "takes no labels"),
        ("llm", {"require": 1.5}, InputError, "from 0 to 1"),
    ],
)
def test_what_cannot_be_audited_is_refused(
    tmp_path: Path, judges: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Campaign.audit(make_rows(600), judges, at=tmp_path / "audit.teeter", **options)
    assert not (tmp_path / "audit.teeter").exists()


def test_an_ordinary_campaign_is_no_audit(tmp_path: Path) -> None:
    campaign = Campaign.make(["a", "b"], ["x", "y"], at=tmp_path / "c.teeter", encode_now=False)
    with pytest.raises(InputError, match="no audit"):
        campaign.judges.report()
    assert not campaign.judges.is_running()


def test_labels_of_a_judge_are_kept_under_a_promise(tmp_path: Path) -> None:
    campaign = make_audit(tmp_path, 900, right=0.99, require=0.9)
    answer_rightly(campaign, 200)
    campaign.judges.end()

    report = campaign.finish.look()
    assert report.judge == "llm"
    assert report.error == 0.05, "what is required is a verdict, and no promise"
    assert report.covered > 0
    assert "llm may label" in report.sentences[0]
    certificate = campaign.finish.certify()
    page = certificate_page(certificate.content)
    assert "Certified labels of llm" in page
    assert "model" not in page.partition("<h2>What the certificate")[0].lower()

    campaign.export(tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    kept = [row for row in rows if row["who"] == "llm"]
    assert len(kept) == report.covered
    assert all(row["label"] == row["llm"] for row in kept)
    assert sum(row["who"] == "me" for row in rows) == 200


def test_a_goal_is_a_promise_about_all_labels_in_the_file(tmp_path: Path) -> None:
    settings = Settings(goal="5% wrong, 95% labelled")
    campaign = make_audit(tmp_path, 900, right=0.99, settings=settings)
    goal = campaign.finish.goal()
    assert goal is not None
    assert goal.purpose is Purpose.CERTIFY
    assert "certify the labels of llm" in goal.sentences[1]
    assert goal.to_go is not None
    with pytest.raises(InputError, match="before its first draw: end the audit first"):
        campaign.change_settings(goal="10% wrong")

    answered = 0
    while goal.purpose is not Purpose.DONE:
        answered += len(answer_rightly(campaign, 20))
        goal = campaign.finish.goal()
        assert goal is not None
    assert answered < 300
    promise = campaign.finish.look()
    assert promise.labelled == 0.95
    # People are taken to be right, so that more of the judge's labels may be wrong.
    assert promise.promises[0].limit >= 0.05 * 0.99 * 0.95 * 900 - 1
    campaign.judges.end()
    content = campaign.finish.certify().content
    assert f"labels in the file are wrong: {promise.covered} labels of llm" in content["promise"]
    assert sum(count for count in campaign.status().by_class.values()) == answered

    campaign.change_settings(goal="10% wrong")


def test_a_judge_that_errs_too_often_is_said_not_to_reach_the_goal(tmp_path: Path) -> None:
    settings = Settings(goal="5% wrong")
    campaign = make_audit(tmp_path, 900, right=0.7, settings=settings)
    answer_rightly(campaign, 60)
    goal = campaign.finish.goal()
    assert goal is not None
    assert not goal.in_reach
    assert goal.sentences[0].startswith("The labels of llm are not likely to reach the goal")
    assert goal.to_go is not None
    assert goal.to_go <= 900 - 60
    campaign.judges.end()
    goal = campaign.finish.goal()
    assert goal is not None
    assert goal.purpose is Purpose.TEACH
    assert "known after a training" in goal.sentences[0]
    assert not campaign.finish.pursue_goal(), "nothing is drawn for a judge that errs too often"


@pytest.mark.parametrize("goal", ["", "5% wrong"])
def test_a_judge_without_confidences_is_judged_by_draws_alone(tmp_path: Path, goal: str) -> None:
    campaign = make_audit(
        tmp_path, 900, right=1.0, judges={"llm": ""}, settings=Settings(goal=goal)
    )
    for count in (0, 10, 30):
        answer_rightly(campaign, count)
        sentences = campaign.finish.look().sentences
        assert not any("too many mistakes" in sentence for sentence in sentences)
        report = campaign.finish.goal()
        assert report is None or report.in_reach

    assert campaign.finish.look().plan[0].labels < 200
    if report is not None:
        assert report.to_go is not None
        assert report.low is not None
        assert report.low < report.to_go < 200
    answer_rightly(campaign, 110)
    assert campaign.finish.look().covered


def test_a_goal_beyond_the_labels_of_a_judge_is_refused(tmp_path: Path) -> None:
    rows = make_rows(200)
    for row in rows[::5]:
        row["llm"] = ""
    with pytest.raises(InputError, match=r"180 items, and 160 have one .* at most 80% labelled"):
        audit_rows(tmp_path, rows, "llm", settings=Settings(goal="5% wrong"))
    assert not list(tmp_path.iterdir())
    audit_rows(tmp_path, rows, "llm", settings=Settings(goal="5% wrong, 80% labelled"))


def test_only_its_end_ends_an_audit_and_for_good(tmp_path: Path) -> None:
    campaign = make_audit(tmp_path, 60)
    answer_rightly(campaign, 30)
    with pytest.raises(InputError, match="end the audit first"):
        campaign.finish.draw(0)
    assert campaign.judges.report().is_running

    campaign.judges.end()
    campaign.finish.draw(60)
    assert not campaign.judges.is_running()


def test_an_audit_of_which_all_items_are_answered_can_be_ended(tmp_path: Path) -> None:
    campaign = make_audit(tmp_path, 60)
    answer_rightly(campaign, 60)
    assert campaign.judges.is_running()
    report = campaign.judges.end()
    assert not report.is_running
    assert report.draws == 60
    assert not campaign.judges.is_running()


def test_merging_classes_keeps_the_report(tmp_path: Path) -> None:
    rows = make_rows(200)
    for row in rows[::4]:
        row["llm"] = "junk"
    campaign = audit_rows(tmp_path, rows, "llm")
    answer_rightly(campaign, 60)
    with pytest.raises(InputError, match="end the audit first"):
        campaign.classes.merge("junk", "spam")
    assert campaign.judges.is_running()
    campaign.judges.end()
    before = campaign.judges.report().judges[0].accuracy.right
    campaign.classes.merge("junk", "spam")
    report = campaign.judges.report()
    assert report.draws == 60
    answered = set(campaign.labels())
    junk = [row for row in rows[::4] if row["id"] in answered]
    gained = sum(str(row["text"]).endswith("spam") for row in junk)
    assert report.judges[0].accuracy.right == before + gained
