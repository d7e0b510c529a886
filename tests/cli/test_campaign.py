"""teeter campaign: from a file to labels in a terminal, with one sentence for every mistake."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from campaigns.stores import shared_server
from cli.commands import (
    ask,
    invoke_campaign,
    refuse_campaign,
    refuse_teeter,
    run_campaign,
    run_teeter,
    tell,
    true_label,
)
from teeter.campaigns import Campaign
from teeter.campaigns.store.queries.answers import AnswerQueries
from teeter.errors import TeeterError


def save_image(path: Path, color: tuple[int, int, int]) -> None:
    Image.new("RGB", (8, 8), color).save(path)


def count_labels(campaign: Path) -> int:
    return int(json.loads(run_teeter("status", campaign, "--json").stdout)["labelled"])


# ---- from a file to labels


def test_a_table_becomes_labels_in_a_file(campaign_file: Path, tmp_path: Path) -> None:
    for _ in range(2):
        for question in ask(campaign_file, 12):
            tell(campaign_file, question.item, true_label(question.item))
        assert "labels of 2 classes" in run_campaign("train", campaign_file)

    status = run_teeter("status", campaign_file).stdout
    assert status.startswith("24 of 60 items labelled, 0 open, model 2.")
    assert "fruit" in status

    out = tmp_path / "labels.csv"
    history_file = tmp_path / "history.jsonl"
    printed = run_teeter("export", campaign_file, out, "--history", history_file).stdout
    assert printed == f"Wrote {out}: 24 of 60 items have a label.\n"

    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 60
    assert all(row["label"] in ("", true_label(row["id"])) for row in rows)
    right = [row["predicted"] == true_label(row["id"]) for row in rows]
    assert sum(right) > 45

    history = [json.loads(line) for line in history_file.read_text().splitlines()]
    assert sum(event["what"] == "answer" for event in history) == 24


def test_known_labels_are_imported(items_file: Path) -> None:
    printed = run_campaign("new", items_file, "--classes", "fruit,tool", "--labels", "known")
    assert printed.endswith(f"Next: teeter serve {items_file.with_suffix('.teeter')}\n")
    assert "60 items, 4 of them labelled" in printed
    assert printed.endswith(f"Next: teeter serve {items_file.with_suffix('.teeter')}\n")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("classes.txt", "fruit\n\n  tool  \n"),
        ("classes.csv", "name,description\nfruit,grows\ntool,\n"),
        ("classes.csv", "fruit\ntool\n"),
        ("classes.tsv", "id\tLabel\n1\tfruit\n2\ttool\n"),
    ],
)
def test_classes_are_read_from_a_file(name: str, text: str, items_file: Path) -> None:
    path = items_file.with_name(name)
    path.write_text(text)
    run_campaign("new", items_file, "--classes", path)
    campaign = Campaign.open(items_file.with_suffix(".teeter"))
    assert campaign.classes.names() == ("fruit", "tool")
    campaign.database.close()


def test_classes_that_differ_only_in_case_are_refused(items_file: Path) -> None:
    path = items_file.with_name("classes.txt")
    path.write_text("fruit\nFruit\n", encoding="utf-8")
    for classes in ("fruit,Fruit", path):
        message = refuse_campaign("new", items_file, "--classes", classes)
        assert "'fruit' and 'Fruit' differ only in case, spaces or" in message
    assert not items_file.with_suffix(".teeter").exists()


def test_with_many_classes_the_next_step_is_the_page(items_file: Path) -> None:
    path = items_file.with_name("intents.txt")
    path.write_text("\n".join(f"intent {number}" for number in range(150)))
    printed = run_campaign("new", items_file, "--classes", path)
    assert printed.endswith(f"Next: teeter serve {items_file.with_suffix('.teeter')}\n")


@pytest.mark.parametrize("name", ["csv", "jsonl", "parquet", "datasets", "prodigy", "doccano"])
def test_every_export_format(name: str, campaign_file: Path, tmp_path: Path) -> None:
    tell(campaign_file, "t5", "fruit")
    campaign = Campaign.open(campaign_file)
    campaign.flag("t6")
    campaign.database.close()
    out = tmp_path / f"out-{name}"
    run_teeter("export", campaign_file, out, "--format", name)

    if name == "doccano":
        (row,) = map(json.loads, out.read_text().splitlines())
        assert (row["id"], row["label"]) == ("t5", ["fruit"])
    if name == "prodigy":
        answers = [json.loads(line)["answer"] for line in out.read_text().splitlines()]
        assert answers == ["accept", "reject"]
    if name == "datasets":
        from pyarrow import parquet

        assert parquet.read_table(out / "train.parquet")["label"].to_pylist() == ["fruit"]
        assert len(parquet.read_table(out / "unlabelled.parquet")) == 58


def test_a_line_separator_inside_a_text_does_not_end_a_line(tmp_path: Path) -> None:
    texts = ["hello\u2028there", "second\x85one", "third"]
    path = tmp_path / "a.jsonl"
    lines = [
        json.dumps({"text": text, "y": label}, ensure_ascii=False)
        for text, label in zip(texts, "ab ", strict=True)
    ]
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    printed = run_campaign("new", path, "--classes", "a,b", "--labels", "y")
    assert "3 items, 2 of them labelled" in printed

    exported = tmp_path / "b.jsonl"
    run_teeter("export", tmp_path / "a.teeter", exported)
    columns = ("--text", "text", "--labels", "label")
    printed = run_campaign("new", exported, "--classes", "a,b", *columns)
    assert "3 items, 2 of them labelled" in printed
    assert {question.content for question in ask(tmp_path / "b.teeter")} == {"third"}

    for option in ("--labels", "--id"):
        message = refuse_campaign(
            "new", path, "--classes", "a,b", option, "z", "--file", tmp_path / "c"
        )
        assert "No object of" in message
        assert "has a field 'z'" in message


def test_missing_values_are_no_labels_unless_a_class_has_that_name(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("text,y\none x,a\ntwo x,NA\nthree x,nan\n")
    printed = run_campaign("new", path, "--classes", "a,b", "--labels", "y")
    assert "1 of them labelled" in printed

    other = tmp_path / "y.teeter"
    printed = run_campaign("new", path, "--classes", "a,NA", "--labels", "y", "--file", other)
    assert "2 of them labelled" in printed


def test_a_campaign_of_images_from_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(12):
        color = (250 - number, 5, 5) if number % 2 else (5, 5, 250 - number)
        save_image(folder / f"{number:02}.png", color)

    (folder / "inside").mkdir()
    for name in ("a.svg", "inside/b.SVG", "notes", ".DS_Store"):
        (folder / name).write_bytes(b"")

    printed = run_campaign("new", folder, "--classes", "red,blue")
    assert "12 items" in printed
    assert printed.endswith(f"Next: teeter serve {folder.with_suffix('.teeter')}\n")
    left_out = (
        "3 files were left out, which are no images that teeter reads: 2 .svg, 1 without an ending"
    )
    assert left_out in " ".join(printed.split())
    added = run_campaign("add", tmp_path / "pictures.teeter", folder)
    assert left_out in " ".join(added.split())
    questions = ask(tmp_path / "pictures.teeter", 3)
    assert all(str(question.content).endswith(".png") for question in questions)


def test_a_folder_named_by_a_dot_gives_the_campaign_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pictures").mkdir()
    for number in range(3):
        save_image(tmp_path / "pictures" / f"{number}.png", (40 * number, 5, 5))
    monkeypatch.chdir(tmp_path / "pictures")

    assert "3 items" in run_campaign("new", ".", "--classes", "a,b")
    assert (tmp_path / "pictures.teeter").exists()
    assert "give one with --file" in refuse_campaign("new", "/", "--classes", "a,b")


def test_images_move_with_their_campaign_and_a_missing_image_can_be_flagged(
    tmp_path: Path,
) -> None:
    pictures = tmp_path / "here" / "pictures"
    pictures.mkdir(parents=True)
    for number in range(6):
        save_image(pictures / f"{number}.png", (40 * number, 5, 5))
    run_campaign("new", pictures, "--classes", "a,b")

    (tmp_path / "here").rename(tmp_path / "there")
    pictures = tmp_path / "there" / "pictures"
    campaign = tmp_path / "there" / "pictures.teeter"
    save_image(pictures / "new.png", (1, 200, 5))
    assert "Added 1 item" in run_campaign("add", campaign, pictures)

    # Only new images are encoded, so a missing one does not matter until all are encoded again.
    (pictures / "0.png").unlink()
    save_image(pictures / "newer.png", (1, 2, 200))
    assert "Added 1 item" in run_campaign("add", campaign, pictures)
    result = invoke_campaign("encode", campaign, "--again")
    assert "Encoded 8 items" in result.stdout
    assert "0.png: fix or remove the file, or flag the item" in result.stderr
    opened = Campaign.open(campaign)
    opened.flag("0.png")
    opened.database.close()

    tell(campaign, "1.png", "a")
    for name in ("prodigy", "doccano"):
        run_teeter("export", campaign, tmp_path / name, "--format", name)
        last_row = json.loads((tmp_path / name).read_text().splitlines()[-1])
        assert last_row["image"] in ("0.png", "1.png")


@pytest.mark.parametrize(
    ("options", "encoder"), [((), "table-rows"), (("--encoder", "tfidf"), "tfidf")]
)
def test_rows_of_a_table_are_rows_with_any_encoder(
    tmp_path: Path, options: tuple[str, ...], encoder: str
) -> None:
    table = tmp_path / "people.csv"
    table.write_text("id,age,city\n" + "".join(f"r{n},{n},Wien\n" for n in range(12)))
    run_campaign("new", table, "--rows", "--classes", "low,high", *options)

    campaign = Campaign.open(tmp_path / "people.teeter")
    assert campaign.settings.has_rows
    assert campaign.status().encoder == encoder
    campaign.items.change("r3", columns={"age": 77})
    assert campaign.items.row("r3") == {"id": "r3", "age": 77, "city": "Wien"}
    (question,) = [asked for asked in campaign.ask(12) if asked.item == "r3"]
    assert question.content == "age: 77\ncity: Wien"
    campaign.database.close()


def test_rows_of_arrays_are_numbered_on(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(30.0).reshape(10, 3))
    np.save(tmp_path / "b.npy", np.arange(30.0).reshape(10, 3) + 100)
    run_campaign("new", tmp_path / "a.npy", "--classes", "a,b")
    campaign = tmp_path / "a.teeter"
    assert "Added 10 items" in run_campaign("add", campaign, tmp_path / "b.npy")

    assert {question.item for question in ask(campaign)} == {str(row) for row in range(20)}

    np.savez(tmp_path / "n.npz", features=np.array([[1.0, 2.0], [3.0, np.nan]]))
    message = refuse_campaign("new", tmp_path / "n.npz", "--classes", "a,b")
    assert "The features of '1'" in message


# ---- adding items and classes


def test_duplicates_are_skipped_and_reported(campaign_file: Path, tmp_path: Path) -> None:
    with (tmp_path / "things.csv").open() as file:
        same_text = next(csv.DictReader(file))["text"]
    rows = [{"id": "x", "text": "a new thing"}, {"id": "y", "text": same_text}]
    more = tmp_path / "more.jsonl"
    more.write_text("\n\n".join(map(json.dumps, rows)))

    printed = run_campaign("add", campaign_file, more)
    assert "Added 1 item and 0 labels." in printed
    assert "Skipped y: same content as t0." in printed


def test_only_the_first_duplicates_are_named(
    campaign_file: Path, items_file: Path, tmp_path: Path
) -> None:
    copies = tmp_path / "copies.csv"
    copies.write_text(items_file.read_text().replace("\nt", "\ncopy"))
    lines = run_campaign("add", campaign_file, copies).splitlines()
    assert lines[0] == "Added 0 items and 0 labels."
    assert lines[1] == "Skipped copy0: same content as t0."
    assert lines[6:] == ["Skipped 55 more duplicates."]


def test_a_duplicate_without_an_id_is_shown_by_its_text(tmp_path: Path) -> None:
    """Its id is a hash of the text, which says nothing."""
    items = tmp_path / "m.csv"
    items.write_text("text\nI will call later\nsomething else\nI will call later\n")
    printed = run_campaign("new", items, "--classes", "a,b")
    assert "Skipped 1 duplicate, such as another copy of “I will call later”." in printed

    printed = run_campaign("add", tmp_path / "m.teeter", items)
    assert "Skipped another copy of “something else”." in printed


def test_only_items_of_the_same_kind_are_added(
    campaign_file: Path, items_file: Path, tmp_path: Path
) -> None:
    for folder in ("pictures", "pictures/new", "others"):
        (tmp_path / folder).mkdir()
        for number in range(3):
            save_image(tmp_path / folder / f"{number}.png", (len(folder), 40 * number, 5))
    run_campaign("new", tmp_path / "pictures", "--classes", "red,blue")
    pictures = tmp_path / "pictures.teeter"

    message = refuse_campaign("add", campaign_file, tmp_path / "others")
    assert "The items of this campaign are of kind text, but '0.png' is of kind image" in message
    message = refuse_campaign("add", pictures, items_file)
    assert "The items of this campaign are of kind image, but 't0' is of kind text" in message
    assert "put the new images into the campaign's folder" in refuse_campaign(
        "add", pictures, tmp_path / "others"
    )

    save_image(tmp_path / "pictures" / "new" / "4.png", (1, 2, 3))
    printed = run_campaign("add", pictures, tmp_path / "pictures" / "new")
    assert "Added 1 item" in printed
    assert "Skipped new/0.png, which the campaign already has." in printed


def test_labels_of_known_items_are_added_and_conflicts_reported(
    campaign_file: Path, items_file: Path
) -> None:
    tell(campaign_file, "t0", "fruit")
    printed = run_campaign("add", campaign_file, items_file, "--labels", "known")
    assert "Added 0 items and 3 labels." in printed
    assert "t0 keeps its label fruit; the file says tool." in printed
    assert count_labels(campaign_file) == 4


def test_a_short_holdout_is_reported(items_file: Path) -> None:
    printed = run_campaign("new", items_file, "--classes", "a,b", "--holdout", 1000)
    assert "The holdout has 30 instead of 1,000 items, because it holds at most half" in printed


# ---- status


def test_status_says_how_far_answers_in_bulk_were_confirmed(
    items_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_campaign("new", items_file, "--classes", "a,b")
    campaign = items_file.with_suffix(".teeter")
    assert "in bulk" not in run_teeter("status", campaign).stdout

    monkeypatch.setattr(AnswerQueries, "bulk_checks", lambda _: [("a", "a")] * 19 + [("a", "b")])

    text = " ".join(run_teeter("status", campaign).stdout.split())
    assert "19 of 20 answers in bulk were confirmed when asked again blind: 76% to 99% are" in text


def test_status_with_150_classes_fits_the_terminal(
    items_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    classes = [f"kind of item {number}" for number in range(150)]
    run_campaign("new", items_file, "--classes", ",".join(classes))
    campaign = items_file.with_suffix(".teeter")
    opened = Campaign.open(campaign)
    for number in range(60):
        # 7 labels for each of the first eight classes, and one for each of the next four.
        opened.tell(f"t{number}", classes[number // 7 if number < 56 else number - 48])
    opened.database.close()

    lines = run_teeter("status", campaign).stdout.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert len(lines) < 25
    text = " ".join(lines)
    assert "7 kind of item 0 " in text
    assert "130 more classes: list them with --all." in text
    assert "No labels (130): kind of item 20, kind of item 21," in text

    lines = run_teeter("status", campaign, "--all").stdout.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert "more classes" not in "\n".join(lines)
    for name in classes:
        assert any(re.search(rf"\d {name}( |$)", line) for line in lines), name

    by_class = json.loads(run_teeter("status", campaign, "--json").stdout)["by_class"]
    assert list(by_class) == classes


# ---- files


def test_a_backup_is_a_campaign(campaign_file: Path, tmp_path: Path) -> None:
    tell(campaign_file, "t5", "fruit")
    run_campaign("backup", campaign_file, tmp_path / "copy.teeter")
    assert "1 of 60 items labelled" in run_teeter("status", tmp_path / "copy.teeter").stdout


def test_a_backup_is_restored(campaign_file: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.teeter"
    tell(campaign_file, "t5", "fruit")
    run_campaign("backup", campaign_file, copy)
    tell(campaign_file, "t6", "tool")

    message = refuse_campaign("restore", copy, campaign_file)
    assert "already exists: choose another file, or replace it with --overwrite" in message
    run_campaign("restore", copy, campaign_file, "--overwrite")
    assert "1 of 60 items labelled" in run_teeter("status", campaign_file).stdout

    copy.write_text("no database" * 100)
    message = refuse_campaign("restore", copy, tmp_path / "other.teeter")
    assert "is damaged or is not a backup" in message
    assert not (tmp_path / "other.teeter").exists()


def test_an_export_replaces_nothing_without_overwrite(
    campaign_file: Path, items_file: Path, tmp_path: Path
) -> None:
    before = items_file.read_bytes()
    out = tmp_path / "out.csv"

    message = refuse_teeter("export", campaign_file, items_file)
    assert "already exists: choose another path, or replace it with --overwrite" in message
    assert "already exists" in refuse_teeter("export", campaign_file, tmp_path)
    message = refuse_teeter("export", campaign_file, out, "--history", items_file)
    assert "already exists" in message
    message = refuse_teeter("export", campaign_file, out, "--history", out)
    assert "Cannot write both the labels and the history to" in message
    assert items_file.read_bytes() == before

    for _ in range(2):
        run_teeter("export", campaign_file, out, "--overwrite")
    (tmp_path / "empty").mkdir()
    run_teeter("export", campaign_file, tmp_path / "empty")


def test_an_export_says_which_model_its_predictions_are_from(
    campaign_file: Path, tmp_path: Path
) -> None:
    for number in range(4, 12):
        tell(campaign_file, f"t{number}", true_label(f"t{number}"))
    run_campaign("train", campaign_file)
    assert (
        "predictions come from"
        not in run_teeter("export", campaign_file, tmp_path / "a.csv").stdout
    )

    tell(campaign_file, "t20", "tool")
    printed = run_teeter("export", campaign_file, tmp_path / "b.csv").stdout
    assert "The predictions come from model 1; 1 answer is newer" in printed

    out = tmp_path / "c.csv"
    message = refuse_teeter("export", campaign_file, out, "--history", tmp_path)
    assert "which is a folder" in message
    message = refuse_teeter(
        "export", campaign_file, tmp_path / "d", "--history", tmp_path / "d" / "h.jsonl"
    )
    assert "choose a file outside" in message


# ---- PostgreSQL, and several campaigns in one place


def test_a_campaign_is_named_if_a_file_holds_two(campaign_file: Path) -> None:
    Campaign.make([], ["a", "b"], at=f"sqlite:///{campaign_file}#second").database.close()
    assert "name one of second, things" in refuse_teeter("status", campaign_file)
    assert "of 60 items" in run_teeter("status", f"{campaign_file}#things").stdout
    assert "Did you mean 'second'?" in refuse_teeter("status", f"{campaign_file}#secnd")


def test_a_campaign_is_copied_to_a_server_and_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = shared_server().new_database()
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"note {number}\n" for number in range(30))
    Path("notes.csv").write_text(f"text\n{rows}", encoding="utf-8")
    run_campaign("new", "notes.csv", "--classes", "good,poor")

    printed = run_campaign("backup", "notes.teeter", url)
    assert printed.startswith("Copied notes to postgresql://")
    assert ": 30 items, 0 answers." in printed
    assert "notes.teeter is unchanged. Continue with only one of the two campaigns." in printed

    assert len(ask(url, 3)) == 3
    assert "30" in run_teeter("status", f"{url}#notes").stdout
    run_campaign("backup", f"{url}#notes", "back.teeter")
    assert "30" in run_teeter("status", "back.teeter").stdout
    assert "exists" in refuse_campaign("backup", f"{url}#notes", "back.teeter")
    assert "Did you mean 'notes'?" in refuse_teeter("status", f"{url}#note")


@pytest.mark.slow
def test_a_campaign_is_created_on_a_server(items_file: Path) -> None:
    url = shared_server().new_database()
    printed = run_campaign("new", items_file, "--classes", "fruit,tool", "--file", url)
    assert "#things: 60 items, 0 of them labelled." in printed
    assert not items_file.with_suffix(".teeter").exists()

    tell(f"{url}#things", "t5", "fruit")
    run_campaign("new", items_file, "--classes", "a,b", "--file", f"{url}#second")
    assert "1 of 60 items labelled" in run_teeter("status", f"{url}#things").stdout
    assert "0 of 60 items labelled" in run_teeter("status", f"{url}#second").stdout

    message = refuse_campaign("new", items_file, "--classes", "a,b", "--file", f"{url}#second")
    assert "second" in message


def test_a_campaign_that_fails_on_a_server_leaves_nothing(tmp_path: Path) -> None:
    url = shared_server().new_database()
    (tmp_path / "x.csv").write_text("text,y\none x,a\ntwo x,c\n")
    words = ("new", tmp_path / "x.csv", "--labels", "y", "--file", url, "--classes")
    assert "No class is called 'c'" in refuse_campaign(*words, "a,b")
    assert "2 items, 2 of them labelled" in run_campaign(*words, "a,c")


def test_the_password_of_a_server_is_not_printed(items_file: Path) -> None:
    url = shared_server().new_database().replace("teeter@", "teeter:a-secret@")
    printed = run_campaign("new", items_file, "--classes", "fruit,tool", "--file", url)
    assert "a-secret" not in printed
    assert "teeter:***@" in printed

    printed = run_campaign("label", url, typed="\x1b")
    assert "a-secret" not in printed
    assert "All answers are saved in postgresql+psycopg://teeter:***@" in printed


# ---- mistakes


def test_a_mistake_is_one_sentence(campaign_file: Path, items_file: Path, tmp_path: Path) -> None:
    assert "already exists: continue with it, or choose another file" in refuse_campaign(
        "new", items_file, "--classes", "fruit,tool"
    )
    assert "give two or more different names" in refuse_campaign(
        "new", items_file, "--classes", "one", "--file", tmp_path / "x"
    )
    assert not (tmp_path / "x").exists()

    assert "There is no file" in refuse_campaign("new", tmp_path / "none.csv", "--classes", "a,b")
    assert "There is no campaign" in refuse_teeter("status", tmp_path / "none.teeter")

    assert "label items of at least two classes, then train" in refuse_campaign(
        "train", campaign_file
    )
    assert "Cannot list 0 labels" in refuse_campaign("review", campaign_file, "suspects", "-n", 0)
    assert "No class is called 'tool'" in refuse_campaign(
        "new", items_file, "--classes", "fruit,bird", "--labels", "known", "--file", tmp_path / "z"
    )
    assert not (tmp_path / "z").exists()

    assert "Cannot tell the format" in refuse_teeter("export", campaign_file, tmp_path / "out.docx")
    assert "--budget needs --cost" in refuse_campaign(
        "new", items_file, "--classes", "a,b", "--budget", 5, "--file", tmp_path / "y"
    )
    assert "No strategy is called" in refuse_campaign(
        "new", items_file, "--classes", "a,b", "--strategy", "x", "--file", tmp_path / "y"
    )


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("two.csv", b"first,second\nx,y\n", "Which column of .* has the texts"),
        ("blank.csv", b"text,other\n ,1\n,2\n", "No row of .* has a text in 'text'"),
        ("bytes.csv", b"text\ncaf\x81\n", "is not UTF-8"),
        ("open.csv", b'text,other\n"unclosed,1\n', r"open\.csv"),
        (
            "ragged.csv",
            b"text,other\nhello,1,2\n",
            "Line 2 of .* has 3 fields and the header has 2",
        ),
        ("zeros.csv", b"\x00" * 200, r"zeros\.csv"),
        (
            "twice.csv",
            b"id,text\na,one\na,two\n",
            "is used in line 2 and line 3: ids must be unique",
        ),
        ("bad.jsonl", b"{not json}\n", "Line 1 of .* is not a JSON object"),
        ("list.jsonl", b"[1]\n", "Line 1 of .* is not a JSON object"),
        (
            "none.jsonl",
            b'{"other": 1}\n',
            r"in 'text': choose another text column \(--text\)",
        ),
        ("deep.jsonl", b"[" * 200_000, "Line 1 of .* is not a JSON object"),
        ("blank.jsonl", b"\n \n\n", "has only blank lines"),
        ("half.jsonl", b'{"text": "bad \\ud800 one"}\n', "has a lone surrogate at position 4"),
        ("id.jsonl", b'{"id": "\\ud800", "text": "one"}\n', "The id .* has a lone surrogate"),
        ("empty.csv", b"", "is empty"),
    ],
)
def test_a_broken_file_is_reported_and_leaves_nothing(
    name: str, content: bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert re.search(message, refuse_campaign("new", path, "--classes", "a,b"))
    assert list(tmp_path.glob("*.teeter*")) == []


def test_a_broken_image_is_reported_and_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    (folder / "a.png").write_text("no image")
    message = refuse_campaign("new", folder, "--classes", "a,b")
    assert "cannot be read as an image" in message
    assert list(tmp_path.glob("*.teeter*")) == []


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31mred", "b\udcff"])
def test_a_class_name_cannot_hold_control_characters_or_lone_surrogates(
    name: str, campaign_file: Path, items_file: Path, tmp_path: Path
) -> None:
    for words in (
        ("new", items_file, "--classes", f"a,{name}", "--file", tmp_path / "z"),
        ("classes", campaign_file, "--add", name),
    ):
        assert re.search("control character|lone surrogate", refuse_campaign(*words))


@pytest.mark.parametrize(
    "answer",
    [
        {"item": "t1", "label": "fruit", "comment": "x\udcff"},
        {"item": "t1\udcff", "label": "fruit"},
        {"item": "t1", "label": "fruit", "annotator": "\udcff"},
    ],
)
def test_a_lone_surrogate_is_refused_in_every_part_of_an_answer(
    campaign_file: Path, answer: dict[str, str]
) -> None:
    campaign = Campaign.open(campaign_file)
    with pytest.raises(TeeterError, match="lone surrogate"):
        campaign.tell(**answer)
    campaign.database.close()


# ---- encoders


def test_a_campaign_says_which_encoder_it_uses_and_switches_to_another(items_file: Path) -> None:
    printed = run_campaign("new", items_file, "--classes", "fruit,tool", "--labels", "known")
    assert "The encoder is tfidf, as set by TEETER_ENCODER." in printed
    campaign = items_file.with_suffix(".teeter")

    printed = run_campaign("encode", campaign, "--encoder", "encoders.own_function:encode")

    assert printed.startswith("Encoded 60 items with encoders.own_function:encode.\n")
    assert "Trained model 1 on the new features." in printed
    status = json.loads(run_teeter("status", campaign, "--json").stdout)
    assert status["encoder"] == "encoders.own_function:encode"
    assert status["comparison"]["previous"] == "tfidf"
    assert run_campaign("encode", campaign).startswith("Encoded 0 items")
    assert "reads images" in refuse_campaign("encode", campaign, "--encoder", "pixels")


def test_broken_images_are_named_and_the_rest_is_labelled(tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(9):
        save_image(folder / f"{number}.png", (20 * number, 9, 9))
    for number in range(9, 16):
        (folder / f"{number}.png").write_text(f"not an image {number}")

    result = invoke_campaign("new", folder, "--classes", "a,b")

    assert result.exit_code == 0, result.output
    assert "Created" in result.stdout
    assert result.stderr.count("cannot be read as an image") == 5
    assert "2 more items cannot be read." in result.stderr
    campaign = folder.with_suffix(".teeter")
    assert "7 unreadable items left out." in run_teeter("status", campaign).stdout
    assert len(ask(campaign)) == 9


# ---- labels that came with the items


def test_a_column_of_labels_that_was_not_asked_for_is_mentioned(tmp_path: Path) -> None:
    items = tmp_path / "mail.csv"
    items.write_text("text,Category\nwin cash,spam\nlunch?,ham\nhello,eggs\nsee you,\n")
    printed = run_campaign("new", items, "--classes", "spam,ham").replace("\n", " ")

    assert "0 of them labelled" in printed
    assert "The column 'Category' holds 3 values that were not imported" in printed
    assert "--labels Category" in printed
    assert "Some are not among the classes: 'eggs'." in printed


def test_classes_are_read_from_the_labels(tmp_path: Path) -> None:
    items = tmp_path / "mail.jsonl"
    rows = [("win cash", "spam"), ("lunch?", "ham"), ("hello", None), ("see you", "ham")]
    items.write_text("\n".join(json.dumps({"text": a, "label": b}) for a, b in rows))
    printed = run_campaign("new", items, "--labels", "label")

    assert "4 items, 3 of them labelled" in printed
    campaign = Campaign.open(items.with_suffix(".teeter"))
    assert campaign.classes.names() == ("spam", "ham")
    campaign.database.close()


def test_without_classes_and_labels_it_asks_for_them(tmp_path: Path) -> None:
    items = tmp_path / "mail.csv"
    items.write_text("text\nwin cash\nlunch?\n")
    assert "The classes are missing" in refuse_campaign("new", items)
