"""teeter campaign: from a file to labels, in a terminal, with every mistake told in a sentence."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from campaigns.stores import shared_server
from cli.commands import done, refused, truth


def test_from_a_table_to_labels_in_a_file(made: Path, tmp_path: Path) -> None:
    for _ in range(2):
        for question in json.loads(done("ask", made, "-n", 12, "--json")):
            done("tell", made, question["item"], truth(question["item"]))
        assert "labels in 2 classes" in done("train", made)
    told = done("status", made)
    assert told.startswith("24 of 60 items labelled, 0 open, model 2.")
    assert "fruit" in told
    out = tmp_path / "labels.csv"
    assert (
        done("export", made, out, "--history", tmp_path / "history.jsonl") == f"{out}: 24 labels.\n"
    )
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 60
    assert all(row["label"] in ("", truth(row["id"])) for row in rows)
    right = [row["predicted"] == truth(row["id"]) for row in rows]
    assert sum(right) > 45
    history = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert sum(line["what"] == "answer" for line in history) == 24


def test_labels_that_are_known_come_along(things: Path) -> None:
    assert "60 items to label, 4 with a label" in done(
        "new", things, "--classes", "fruit,tool", "--labels", "known"
    )


def test_answers_besides_labels_and_undo(made: Path) -> None:
    done("tell", made, "t5", "fruit", "--as", "ann", "--comment", "clear")
    done("tell", made, "t6", "--other", "unsure")
    assert done("undo", made, "--as", "ann") == "t5: fruit taken back.\n"
    assert "no answer that could be taken back" in done("undo", made, "--as", "ann")


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", "datasets", "prodigy", "doccano"])
def test_every_form_of_export(form: str, made: Path, tmp_path: Path) -> None:
    done("tell", made, "t5", "fruit")
    done("tell", made, "t6", "--other", "flag")
    out = tmp_path / f"out-{form}"
    done("export", made, out, "--format", form)
    if form == "doccano":
        (told,) = map(json.loads, out.read_text().splitlines())
        assert (told["id"], told["label"]) == ("t5", ["fruit"])
    if form == "prodigy":
        assert [json.loads(line)["answer"] for line in out.read_text().splitlines()] == [
            "accept",
            "reject",
        ]
    if form == "datasets":
        from pyarrow import parquet

        assert parquet.read_table(out / "train.parquet")["label"].to_pylist() == ["fruit"]
        assert len(parquet.read_table(out / "unlabelled.parquet")) == 58


def test_more_can_be_added_and_duplicates_are_told(made: Path, tmp_path: Path) -> None:
    more = tmp_path / "more.jsonl"
    with (tmp_path / "things.csv").open() as file:
        same = next(csv.DictReader(file))["text"]
    lines = [{"id": "x", "text": "a new thing"}, {"id": "y", "text": same}]
    more.write_text("\n\n".join(map(json.dumps, lines)))
    told = done("add", made, more)
    assert "1 item added" in told
    assert "y was left out: it is the same as t0." in told


def test_images_from_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for k in range(12):
        Image.new("RGB", (16, 16), (250 - k, 5, 5) if k % 2 else (5, 5, 250 - k)).save(
            folder / f"{k:02}.png"
        )
    assert "12 items to label" in done("new", folder, "--classes", "red,blue")
    questions = json.loads(done("ask", tmp_path / "pictures.teeter", "-n", 3, "--json"))
    assert all(question["content"].endswith(".png") for question in questions)


def test_a_backup_is_a_campaign(made: Path, tmp_path: Path) -> None:
    done("tell", made, "t5", "fruit")
    done("backup", made, tmp_path / "copy.teeter")
    assert "1 of 60 items labelled" in done("status", tmp_path / "copy.teeter")


def test_a_backup_is_put_back(made: Path, tmp_path: Path) -> None:
    done("tell", made, "t5", "fruit")
    done("backup", made, tmp_path / "copy.teeter")
    done("tell", made, "t6", "tool")
    assert "exists already: name another file, or replace it with --overwrite" in refused(
        "restore", tmp_path / "copy.teeter", made
    )
    done("restore", tmp_path / "copy.teeter", made, "--overwrite")
    assert "1 of 60 items labelled" in done("status", made)
    (tmp_path / "copy.teeter").write_text("no database" * 100)
    assert "is damaged, or not a backup" in refused(
        "restore", tmp_path / "copy.teeter", tmp_path / "other.teeter"
    )
    assert not (tmp_path / "other.teeter").exists()


def test_an_export_replaces_nothing_unless_told(made: Path, things: Path, tmp_path: Path) -> None:
    before = things.read_bytes()
    assert "exists already: name another, or replace it with --overwrite" in refused(
        "export", made, things
    )
    assert "exists already" in refused("export", made, tmp_path)
    assert "exists already" in refused("export", made, tmp_path / "out.csv", "--history", things)
    assert "cannot both go to" in refused(
        "export", made, tmp_path / "o.csv", "--history", tmp_path / "o.csv"
    )
    assert things.read_bytes() == before
    for _ in range(2):
        done("export", made, tmp_path / "out.csv", "--overwrite")
    (tmp_path / "empty").mkdir()
    done("export", made, tmp_path / "empty")


def test_only_the_same_kind_is_added(made: Path, things: Path, tmp_path: Path) -> None:
    for folder in ("pictures", "pictures/new", "others"):
        (tmp_path / folder).mkdir()
        for k in range(3):
            Image.new("RGB", (8, 8), (len(folder), 40 * k, 5)).save(tmp_path / folder / f"{k}.png")
    done("new", tmp_path / "pictures", "--classes", "red,blue")
    pictures = tmp_path / "pictures.teeter"
    assert "This campaign is of text, and '0.png' is of image" in refused(
        "add", made, tmp_path / "others"
    )
    assert "This campaign is of image, and 't0' is of text" in refused("add", pictures, things)
    assert "put new images there" in refused("add", pictures, tmp_path / "others")
    Image.new("RGB", (8, 8), (1, 2, 3)).save(tmp_path / "pictures" / "new" / "4.png")
    told = done("add", pictures, tmp_path / "pictures" / "new")
    assert "1 item added" in told
    assert "new/0.png was left out: it is the same as new/0.png." in told


def test_mistakes_are_told_in_a_sentence(made: Path, things: Path, tmp_path: Path) -> None:
    assert "exists already" in refused("new", things, "--classes", "fruit,tool")
    assert "give two or more different names" in refused(
        "new", things, "--classes", "one", "--file", tmp_path / "x"
    )
    assert not (tmp_path / "x").exists()
    assert "There is no file" in refused("new", tmp_path / "none.csv", "--classes", "a,b")
    assert "There is no campaign" in refused("status", tmp_path / "none.teeter")
    assert "No class is called 'friut'. Did you mean 'fruit'?" in refused(
        "tell", made, "t5", "friut"
    )
    assert "No item is called 'q5'" in refused("tell", made, "q5", "fruit")
    assert "Give a class, or --other" in refused("tell", made, "t5")
    assert "is none of skip, unsure and flag" in refused("tell", made, "t5", "--other", "later")
    assert "label items of two or more, then train" in refused("train", made)
    assert "Cannot ask about 0 items" in refused("ask", made, "-n", 0)
    assert "Cannot list 0 labels" in refused("suspects", made, "-n", 0)
    assert "this one is blank" in refused("tell", made, "t5", "fruit", "--as", " ")
    assert "this one is blank" in refused("ask", made, "--as", "")
    assert "whole numbers of 64 bits" in refused(
        "new", things, "--classes", "a,b", "--seed", 10**30, "--file", tmp_path / "z"
    )
    assert "No class is called 'tool'" in refused(
        "new", things, "--classes", "fruit,bird", "--labels", "known", "--file", tmp_path / "z"
    )
    assert not (tmp_path / "z").exists()
    assert "is of no known form" in refused("export", made, tmp_path / "out.docx")
    assert "--budget goes with --cost" in refused(
        "new", things, "--classes", "a,b", "--budget", 5, "--file", tmp_path / "y"
    )
    assert "No strategy is called" in refused(
        "new", things, "--classes", "a,b", "--strategy", "x", "--file", tmp_path / "y"
    )


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("two.csv", b"first,second\nx,y\n", "Which column of .* has the texts"),
        ("blank.csv", b"text\nhello\n \nthere\n", "is blank in line 3"),
        ("latin.csv", "text\ncaf\xe9\n".encode("latin-1"), "is not UTF-8"),
        ("open.csv", b'text,other\n"unclosed,1\n', r"open\.csv"),
        (
            "ragged.csv",
            b"text,other\nhello,1,2\n",
            "Line 2 of .* has 3 fields and the header has 2",
        ),
        ("zeros.csv", b"\x00" * 200, r"zeros\.csv"),
        ("twice.csv", b"id,text\na,one\na,two\n", "is used in rows 0 and 1: ids must differ"),
        ("bad.jsonl", b"{not json}\n", "Line 1 of .* is not a JSON object"),
        ("list.jsonl", b"[1]\n", "Line 1 of .* is not a JSON object"),
        ("none.jsonl", b'{"other": 1}\n', "has no 'text' that is a text"),
        ("deep.jsonl", b"[" * 200_000, "Line 1 of .* is not a JSON object"),
        ("blank.jsonl", b"\n \n\n", "has no lines but blank ones"),
        ("half.jsonl", b'{"text": "bad \\ud800 one"}\n', "has half a character at place 4"),
        ("id.jsonl", b'{"id": "\\ud800", "text": "one"}\n', "The id .* has half a character"),
        ("empty.csv", b"", "is empty"),
    ],
)
def test_broken_files_are_told_and_leave_nothing(
    name: str, content: bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert re.search(message, refused("new", path, "--classes", "a,b"))
    assert list(tmp_path.glob("*.teeter*")) == []


def test_an_image_that_is_not_one_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    (folder / "a.png").write_text("no image")
    assert "is not an image that can be read" in refused("new", folder, "--classes", "a,b")
    assert list(tmp_path.glob("*.teeter*")) == []


def test_lines_are_read_as_teeter_writes_them(tmp_path: Path) -> None:
    texts = ["hello\u2028there", "second\x85one", "third"]
    path = tmp_path / "a.jsonl"
    lines = [
        json.dumps({"text": text, "y": label}, ensure_ascii=False)
        for text, label in zip(texts, "ab ", strict=True)
    ]
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    assert "3 items to label, 2 with a label" in done(
        "new", path, "--classes", "a,b", "--labels", "y"
    )
    done("export", tmp_path / "a.teeter", tmp_path / "b.jsonl")
    assert "3 items to label, 2 with" in done(
        "new", tmp_path / "b.jsonl", "--classes", "a,b", "--text", "content", "--labels", "label"
    )
    assert {one["content"] for one in json.loads(done("ask", tmp_path / "b.teeter", "--json"))} == {
        "third"
    }
    for option in ("--labels", "--id"):
        told = refused("new", path, "--classes", "a,b", option, "z", "--file", tmp_path / "c")
        assert "No line of" in told
        assert "has a field 'z'" in told


def test_labels_that_are_missing_are_none_unless_a_class_is_called_so(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("text,y\none x,a\ntwo x,NA\nthree x,nan\n")
    assert "1 with a label" in done("new", path, "--classes", "a,b", "--labels", "y")
    assert "2 with a label" in done(
        "new", path, "--classes", "a,NA", "--labels", "y", "--file", tmp_path / "y.teeter"
    )


def test_labels_for_what_is_there_are_taken_over_and_conflicts_told(
    made: Path, things: Path, tmp_path: Path
) -> None:
    done("tell", made, "t0", "fruit")
    told = done("add", made, things, "--labels", "known")
    assert "0 items added, 3 labels taken over" in told
    assert "t0 came with the label tool and keeps fruit." in told
    assert json.loads(done("status", made, "--json"))["labelled"] == 4
    assert done("undo", made) == "t0: fruit taken back.\n"
    assert "no answer that could be taken back" in done("undo", made)
    assert "answer under another name" in refused("tell", made, "t5", "fruit", "--as", "import")


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31mred", "b\udcff"])
def test_class_names_are_plain(name: str, made: Path, things: Path, tmp_path: Path) -> None:
    for words in (
        ("new", things, "--classes", f"a,{name}", "--file", tmp_path / "z"),
        ("add-class", made, name),
    ):
        assert re.search("control character|half a character", refused(*words))


def test_half_characters_are_told_wherever_they_come(made: Path) -> None:
    for words in (
        ("t1", "fruit", "--comment", "x\udcff"),
        ("t1\udcff", "fruit"),
        ("t1", "fruit", "--as", "\udcff"),
    ):
        assert "half a character" in refused("tell", made, *words)


def test_a_class_is_added(made: Path) -> None:
    assert done("add-class", made, "bird") == "The classes are fruit, tool, bird.\n"
    done("tell", made, "t5", "bird")
    assert "Cannot add a class 'bird'" in refused("add-class", made, "bird")


def test_a_folder_is_called_by_its_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pictures").mkdir()
    for k in range(3):
        Image.new("RGB", (8, 8), (40 * k, 5, 5)).save(tmp_path / "pictures" / f"{k}.png")
    monkeypatch.chdir(tmp_path / "pictures")
    assert "3 items to label" in done("new", ".", "--classes", "a,b")
    assert (tmp_path / "pictures.teeter").exists()
    assert "name its file with --file" in refused("new", "/", "--classes", "a,b")


def test_images_move_with_their_campaign_and_a_lost_one_can_be_given_up(tmp_path: Path) -> None:
    pictures = tmp_path / "here" / "pictures"
    pictures.mkdir(parents=True)
    for k in range(6):
        Image.new("RGB", (8, 8), (40 * k, 5, 5)).save(pictures / f"{k}.png")
    done("new", pictures, "--classes", "a,b")
    (tmp_path / "here").rename(tmp_path / "there")
    pictures, campaign = tmp_path / "there" / "pictures", tmp_path / "there" / "pictures.teeter"
    Image.new("RGB", (8, 8), (1, 200, 5)).save(pictures / "new.png")
    assert "1 item added" in done("add", campaign, pictures)
    (pictures / "0.png").unlink()
    Image.new("RGB", (8, 8), (1, 2, 200)).save(pictures / "newer.png")
    assert "flag it" in refused("add", campaign, pictures)
    done("tell", campaign, "0.png", "--other", "flag")
    assert "1 item added" in done("add", campaign, pictures)
    done("tell", campaign, "1.png", "a")
    for form in ("prodigy", "doccano"):
        done("export", campaign, tmp_path / form, "--format", form)
        assert json.loads((tmp_path / form).read_text().splitlines()[-1])["image"] in (
            "0.png",
            "1.png",
        )


def test_one_of_two_campaigns_in_a_file_is_named(made: Path) -> None:
    from teeter.campaigns.campaign import Campaign

    Campaign.create(made, "second", ["a", "b"]).database.close()
    assert "say which of second, things" in refused("status", made)
    assert "of 60 items" in done("status", f"{made}#things")
    assert "Did you mean 'second'?" in refused("status", f"{made}#secnd")


def test_an_audit_that_is_cut_is_told(things: Path) -> None:
    assert "30 of 1,000 items are kept for the audit" in done(
        "new", things, "--classes", "a,b", "--audit", 1000
    )


def test_arrays_added_later_go_on_counting(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(30.0).reshape(10, 3))
    np.save(tmp_path / "b.npy", np.arange(30.0).reshape(10, 3) + 100)
    done("new", tmp_path / "a.npy", "--classes", "a,b")
    assert "10 items added" in done("add", tmp_path / "a.teeter", tmp_path / "b.npy")
    assert {one["item"] for one in json.loads(done("ask", tmp_path / "a.teeter", "--json"))} == {
        str(k) for k in range(20)
    }
    np.savez(tmp_path / "n.npz", features=np.array([[1.0, 2.0], [3.0, np.nan]]))
    assert "The features of '1'" in refused("new", tmp_path / "n.npz", "--classes", "a,b")


def test_an_export_says_what_its_predictions_are_of(made: Path, tmp_path: Path) -> None:
    for k in range(4, 12):
        done("tell", made, f"t{k}", truth(f"t{k}"))
    done("train", made)
    assert "Predictions" not in done("export", made, tmp_path / "a.csv")
    done("tell", made, "t20", "tool")
    assert "Predictions are of model 1; 1 answer is newer" in done(
        "export", made, tmp_path / "b.csv"
    )
    assert "which is a folder" in refused("export", made, tmp_path / "c.csv", "--history", tmp_path)
    assert "outside of" in refused(
        "export", made, tmp_path / "d", "--history", tmp_path / "d" / "h.jsonl"
    )


def test_moving_to_a_server_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = shared_server().new_database()
    monkeypatch.chdir(tmp_path)
    Path("notes.csv").write_text(
        "text\n" + "".join(f"note {k}\n" for k in range(30)), encoding="utf-8"
    )
    done("new", "notes.csv", "--classes", "good,poor")
    told = done("move", "notes.teeter", url)
    assert "notes with 30 items, 0 answers" in told
    assert "notes.teeter is as it was: go on in one of them, not in both" in told
    assert len(done("ask", url, "-n", "3").splitlines()) >= 3
    assert "30" in done("status", f"{url}#notes")
    done("move", f"{url}#notes", "back.teeter")
    assert "30" in done("status", "back.teeter")
    assert "exists already" in refused("move", f"{url}#notes", "back.teeter")
    assert "Did you mean 'notes'?" in refused("status", f"{url}#note")
