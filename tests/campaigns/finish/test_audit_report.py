from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from campaigns.finish.audits import answer_rightly, make_audit, make_rows
from teeter.campaigns import Campaign
from teeter.campaigns.finish.audit_report import at_least, at_most


def test_the_share_of_right_labels_is_that_of_the_answers(tmp_path: Path) -> None:
    campaign = make_audit(tmp_path, 300, require=0.9)
    answered = answer_rightly(campaign, 120)
    rows = {str(row["id"]): row for row in make_rows(300)}
    truths = {item: str(row["text"]).rsplit(" ", 1)[1] for item, row in rows.items()}

    report = campaign.judges.report()
    llm, rule = report.judges

    assert (report.items, report.draws, report.unclear) == (300, 120, 0)
    assert llm.accuracy.right == sum(rows[item]["llm"] == truths[item] for item in answered)
    assert rule.accuracy.right == sum(rows[item]["rule"] == truths[item] for item in answered)
    assert llm.accuracy.low <= llm.accuracy.share <= llm.accuracy.high
    assert [point.total for point in llm.curve][-1] == 120
    assert llm.curve[0].low == 0
    assert llm.curve[0].high == 1

    german = [item for item in answered if rows[item]["language"] == "de"]
    by_language = llm.by_column["language"]["de"]
    assert by_language.total == len(german)
    assert by_language.right == sum(rows[item]["llm"] == truths[item] for item in german)
    # Neither ids, texts, confidences nor the other judge.
    assert set(llm.by_column) == {"llm", "language"}

    confusion = {row.label: row.predicted for row in llm.confusion}
    taken = [rows[item]["llm"] for item in answered if truths[item] == "spam"]
    assert confusion["spam"] == {name: taken.count(name) for name in set(taken)}
    shares = {share.label: share for share in llm.class_shares}
    said = np.mean([row["llm"] == "spam" for row in rows.values()])
    assert shares["spam"].predicted == pytest.approx(said)
    true = np.mean([truth == "spam" for truth in truths.values()])
    assert shares["spam"].low <= true <= shares["spam"].high


def test_a_requirement_is_decided_by_the_interval(tmp_path: Path) -> None:
    campaign = make_audit(tmp_path, 600, right=0.7, require=0.9)
    answer_rightly(campaign, 3)
    undecided = campaign.judges.report().judges[0]
    assert undecided.holds is None
    assert undecided.more is not None
    assert undecided.sentences[0].startswith("llm: right on at least 90%? Not decided yet: about")

    answer_rightly(campaign, 147)
    decided = campaign.judges.report().judges[0]
    assert decided.holds is False
    assert decided.more is None
    assert decided.accuracy.high < 0.9
    assert decided.sentences[0] == (
        f"llm: right on at least 90%? No, at most {at_most(decided.accuracy.high)}."
    )


def test_a_requirement_of_all_labels_can_be_refuted_and_proved(tmp_path: Path) -> None:
    rows = make_rows(40, right=1.0)
    campaign = Campaign.audit(rows, "llm", require=1.0, at=tmp_path / "audit.teeter")
    answer_rightly(campaign, 30)
    assert campaign.judges.report().judges[0].holds is None
    answer_rightly(campaign, 10)
    assert campaign.judges.report().judges[0].holds is True

    rows[5]["llm"] = "ham" if rows[5]["llm"] == "spam" else "spam"
    campaign = Campaign.audit(rows, "llm", require=1.0, at=tmp_path / "wrong.teeter")
    answer_rightly(campaign, 40)
    assert campaign.judges.report().judges[0].holds is False


def test_judges_are_compared_on_the_same_items(tmp_path: Path) -> None:
    campaign = make_audit(tmp_path, 400, right=0.6)
    answer_rightly(campaign, 100)
    report = campaign.judges.report()
    (comparison,) = report.comparisons
    llm, rule = report.judges
    difference = (llm.accuracy.right - rule.accuracy.right) / 100
    assert comparison.difference.value == pytest.approx(difference)
    assert any("rule is better than llm by" in sentence for sentence in report.sentences)


def test_a_judge_that_guesses_gives_no_signal(tmp_path: Path) -> None:
    generator = np.random.default_rng(4)
    rows = make_rows(300)
    for row in rows:
        row["llm"] = "spam" if generator.random() < 0.5 else "ham"
        row["sure"] = round(float(generator.random()), 2)
    campaign = Campaign.audit(rows, {"llm": "sure"}, at=tmp_path / "audit.teeter")
    answer_rightly(campaign, 100)
    sentences = " ".join(campaign.judges.report().judges[0].sentences)
    assert "give no signal so far" in sentences
    assert "Its confidence gives no signal so far" in sentences


def test_a_judge_whose_classes_are_mixed_up_is_found_out(tmp_path: Path) -> None:
    campaign = make_audit(tmp_path, 300, right=0.02)
    answer_rightly(campaign, 60)
    judge = campaign.judges.report().judges[0]
    assert any("less often than chance" in sentence for sentence in judge.sentences)


def test_nothing_is_said_about_signal_where_one_class_is_rare(tmp_path: Path) -> None:
    rows = make_rows(300)
    for number, row in enumerate(rows):
        row["text"] = f"message {number} {'spam' if number % 60 == 0 else 'ham'}"
        row["llm"] = "spam" if number % 40 == 1 else "ham"
    campaign = Campaign.audit(rows, "llm", at=tmp_path / "audit.teeter")
    answer_rightly(campaign, 60)
    sentences = " ".join(campaign.judges.report().judges[0].sentences)
    assert "signal" not in sentences


def test_a_judge_that_is_always_right_may_be_people_themselves(tmp_path: Path) -> None:
    campaign = make_audit(tmp_path, right=1.0)
    answer_rightly(campaign, 60)
    sentences = " ".join(campaign.judges.report().judges[0].sentences)
    assert "check that llm is not the labels of people themselves" in sentences


def test_what_nobody_can_label_counts_as_not_right(tmp_path: Path) -> None:
    campaign = make_audit(tmp_path, right=1.0)
    questions = campaign.ask(10)
    campaign.skip(questions[0].item)
    campaign.mark_unsure(questions[1].item)
    campaign.flag(questions[2].item)
    for question in questions[3:]:
        campaign.tell(question.item, str(question.content).rsplit(" ", 1)[1])

    report = campaign.judges.report()
    assert (report.draws, report.unclear) == (10, 3)
    assert report.judges[0].accuracy.right == 7
    assert report.sentences[0].startswith("3 random items were skipped, flagged or marked")


def test_answers_count_up_to_the_first_that_is_missing(tmp_path: Path) -> None:
    campaign = make_audit(tmp_path)
    questions = campaign.ask(10)
    for question in [*questions[:4], *questions[5:]]:
        campaign.tell(question.item, "ham")
    assert campaign.judges.report().draws == 4
    campaign.tell(questions[4].item, "ham")
    assert campaign.judges.report().draws == 10


def test_a_corrected_answer_counts_as_corrected(tmp_path: Path) -> None:
    campaign = make_audit(tmp_path, right=1.0)
    (item,) = answer_rightly(campaign, 1)
    assert campaign.judges.report().judges[0].accuracy.right == 1
    said = campaign.items.row(item)["llm"]
    campaign.tell(item, "ham" if said == "spam" else "spam")
    assert campaign.judges.report().judges[0].accuracy.right == 0


def test_nothing_is_known_before_the_first_answer(tmp_path: Path) -> None:
    campaign = make_audit(tmp_path, require=0.9)
    report = campaign.judges.report()
    assert report.draws == 0
    for judge in report.judges:
        assert (judge.accuracy.low, judge.accuracy.high) == (0, 1)
        assert judge.sentences == [f"Nothing is known of {judge.judge} yet: answer some items."]
    assert "<html" in campaign.judges.page()


def test_the_report_as_a_page_needs_nothing_else_and_escapes_names(tmp_path: Path) -> None:
    rows = make_rows(200)
    for row in rows:
        row["<b>llm"] = row.pop("llm")
    campaign = Campaign.audit(rows, {"<b>llm": "sure"}, require=0.9, at=tmp_path / "audit.teeter")
    answer_rightly(campaign, 60)
    page = campaign.judges.page()
    assert "&lt;b&gt;llm" in page
    for forbidden in ("<b>", "<script", "http", "src="):
        assert forbidden not in page
    for part in ("Shares of the classes", "Right labels by language", "Mistakes", "<polygon"):
        assert part in page


@pytest.mark.parametrize("share", [0.0, 0.1234, 0.8999, 0.9, 1.0])
def test_rounded_shares_never_look_better(share: float) -> None:
    assert float(at_least(share).rstrip("%")) <= 100 * share + 1e-6
    assert float(at_most(share).rstrip("%")) >= 100 * share - 1e-6
