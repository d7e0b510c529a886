"""What people bring: data frames, spreadsheets, JSON lists, other encodings, folders of texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from teeter.base import arrays
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.records import ItemColumns
from teeter.campaigns.settings import Settings
from teeter.errors import InputError, TeeterError

CLASSES = ["a", "b"]

ROWS = [
    {"id": "007", "text": "first", "size": 3, "tags": ["x", "y"]},
    {"id": "008", "text": "second", "size": None, "tags": []},
]


def make(source: Any, folder: Path, **options: Any) -> Campaign:
    settings = Settings(encoder="tfidf")
    return Campaign.make(source, CLASSES, at=folder / "c.teeter", settings=settings, **options)


def pandas_frame() -> Any:
    return pytest.importorskip("pandas").DataFrame(ROWS)


def polars_frame() -> Any:
    return pytest.importorskip("polars").DataFrame(ROWS)


def duckdb_relation() -> Any:
    duckdb = pytest.importorskip("duckdb")
    table = pyarrow.Table.from_pylist(ROWS)
    return duckdb.from_arrow(table)


def hugging_face_dataset() -> Any:
    return pytest.importorskip("datasets").Dataset.from_list(ROWS)


FRAMES = {
    "pyarrow": lambda: pyarrow.Table.from_pylist(ROWS),
    "pandas": pandas_frame,
    "polars": polars_frame,
    "duckdb": duckdb_relation,
    "datasets": hugging_face_dataset,
}


@pytest.mark.parametrize("library", FRAMES)
def test_data_frames_are_read_with_all_their_columns(library: str, tmp_path: Path) -> None:
    campaign = make(FRAMES[library](), tmp_path)

    assert campaign.imported.new == 2
    assert campaign.items.content("007") == "first"
    row = campaign.items.row("007")
    assert row["size"] == 3
    assert list(row["tags"]) == ["x", "y"]
    campaign.database.close()


def test_frames_that_are_added_later_have_the_same_columns(tmp_path: Path) -> None:
    frame = pyarrow.table({"key": ["1", "2"], "body": ["one", "two"], "text": ["x", "y"]})
    columns = ItemColumns(text="body", id="key")
    campaign = make(frame, tmp_path, columns=columns)

    added = campaign.add(
        pyarrow.table({"key": ["3", "4"], "body": ["three", ""], "text": ["z", "z"]})
    )

    assert added.new == 1
    assert added.notes == ("1 row without a text was left out (row 2).",)
    assert campaign.items.content("3") == "three"
    campaign.database.close()


def test_labels_of_a_frame_that_are_not_imported_are_named(tmp_path: Path) -> None:
    frame = pyarrow.table({"text": ["one", "two"], "Label": ["a", "b"]})
    campaign = make(frame, tmp_path)
    (note,) = campaign.imported.notes
    assert note.startswith("Column 'Label' was not imported as labels")
    assert campaign.labels() == {}
    campaign.database.close()
    (tmp_path / "more").mkdir()
    campaign = make(frame, tmp_path / "more", columns=ItemColumns(labels="Label"))
    assert (campaign.imported.labelled, campaign.imported.notes) == (2, ())
    campaign.database.close()


def test_labels_of_a_dataset_are_their_names(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["b", "a"])}
    )
    dataset = datasets.Dataset.from_dict(
        {"text": ["one", "two", "three"], "label": [0, 1, 0]}, features=features
    ).select([2, 1])
    campaign = make(dataset, tmp_path, columns=ItemColumns(labels="label"))
    labels = {
        campaign.items.content(item): consensus.label
        for item, consensus in campaign.labels().items()
    }
    assert labels == {"three": "b", "two": "a"}
    campaign.database.close()


def test_frames_are_predicted(tmp_path: Path) -> None:
    frame = pyarrow.table(
        {"text": [f"apple {k}" for k in range(8)] + [f"saw {k}" for k in range(8)]}
    )
    campaign = make(frame, tmp_path)
    for question in campaign.ask(12):
        campaign.tell(question.item, "a" if "apple" in (question.content or "") else "b")
    campaign.train()

    predictions = campaign.predict(pyarrow.table({"text": ["an apple", "a saw"]}))
    assert [prediction.label for prediction in predictions] == ["a", "b"]
    with pytest.raises(InputError, match=r"row 2\)\. Every row needs one to be predicted"):
        campaign.predict(pyarrow.table({"text": ["an apple", " "]}))
    campaign.database.close()


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pyarrow.table({"size": [1], "weight": [2]}), "Which column of the data frame"),
        (pyarrow.table({"text": pyarrow.array([], "string")}), "The data frame has no rows"),
        (pyarrow.table({"text": ["", " "]}), "No row of the data frame has a text in 'text'"),
        (
            pyarrow.table({"id": ["1", "1"], "text": ["one", "two"]}),
            "The id '1' in column 'id' of the data frame is used in row 1 and row 2",
        ),
    ],
)
def test_a_frame_without_texts_is_refused(frame: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(TeeterError, match=message):
        make(frame, tmp_path)
    assert not (tmp_path / "c.teeter").exists()


def test_blank_rows_are_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "tickets.csv"
    path.write_text("id,text,size\n1,one,3\n,,\n2, ,4\n,\n3,three,5\n")
    campaign = make(path, tmp_path)
    assert campaign.imported.new == 2
    assert campaign.imported.notes == (
        "3 rows without a text were left out (line 5, line 3, line 4).",
    )
    assert campaign.items.row("3") == {"id": 3, "text": "three", "size": 5}
    campaign.database.close()


@pytest.mark.parametrize(
    ("encoding", "notes"),
    [
        ("utf-8", 0),
        ("utf-8-sig", 0),
        ("utf-16", "was read as UTF-16, not as UTF-8."),
        ("cp1252", "was read as Windows-1252, not as UTF-8."),
    ],
)
def test_other_encodings_are_read_and_named(
    encoding: str, notes: str | int, tmp_path: Path
) -> None:
    path = tmp_path / "tickets.csv"
    path.write_bytes("id,text\r\n1,“naïve” café – 5 €\r\n".encode(encoding))
    campaign = make(path, tmp_path)
    assert campaign.items.content("1") == "“naïve” café – 5 €"
    if notes:
        (note,) = campaign.imported.notes
        assert note == f"tickets.csv {notes}"
    else:
        assert not campaign.imported.notes
    campaign.database.close()


def test_a_json_file_may_be_a_list(tmp_path: Path) -> None:
    path = tmp_path / "tickets.json"
    path.write_text(json.dumps([*ROWS, {"id": "009", "text": None}]))
    campaign = make(path, tmp_path)
    assert campaign.imported.new == 2
    assert campaign.imported.notes == ("1 object without a text was left out (entry 3).",)
    assert campaign.items.row("007") == ROWS[0]
    campaign.database.close()


def test_a_json_file_may_have_an_object_on_each_line(tmp_path: Path) -> None:
    path = tmp_path / "tickets.json"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    campaign = make(path, tmp_path)
    assert campaign.imported.new == 2
    campaign.database.close()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"text": "one"}', "is not a list of objects"),
        ("[]", "is an empty list"),
        ('["one"]', "Entry 1 of .* is not a JSON object"),
        ('[{"text": "one"},', "Line 1 of .* is no JSON"),
        ('[{"text": 3}]', "Entry 1 of .* has no text in 'text'"),
        ('[{"text": ""}]', "No object of .* has a text"),
    ],
)
def test_a_json_file_of_another_form_is_refused(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "tickets.json"
    path.write_text(content)
    with pytest.raises(TeeterError, match=message):
        make(path, tmp_path)


def test_a_folder_of_texts_is_a_campaign_of_texts(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    (folder / "old").mkdir(parents=True)
    (folder / "new.txt").write_text("one\nmore")
    (folder / "old" / "a.txt").write_text("two")
    (folder / "old" / "blank.txt").write_text("\n")
    (folder / "OLD.TXT").write_bytes("schön".encode("cp1252"))
    (folder / "letter.docx").write_bytes(b"PK")
    (folder / "._new.txt").write_bytes(b"\x00\x05")
    campaign = make(folder, tmp_path)
    assert campaign.settings.kind == "text"
    assert campaign.settings.folder is None
    assert campaign.items.content("new.txt") == "one\nmore"
    assert campaign.items.content("old/a.txt") == "two"
    assert campaign.items.content("OLD.TXT") == "schön"
    assert campaign.imported.notes == (
        "1 file without a text was left out (old/blank.txt).",
        "1 file that is no .txt was left out (letter.docx).",
        "1 file was read as Windows-1252, not as UTF-8 (OLD.TXT).",
    )
    assert not campaign.imported.left_out_files
    campaign.database.close()


def test_numbers_of_hugging_face_labels_that_have_no_name_are_no_labels(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["a", "b"])}
    )
    rows = {"text": ["one", "two", "three"], "label": [0, -1, None]}
    frame = datasets.Dataset.from_dict(rows, features=features)
    campaign = make(frame, tmp_path, columns=ItemColumns(labels="label"))
    assert campaign.imported.labelled == 1
    assert [label.label for label in campaign.labels().values()] == ["a"]
    campaign.database.close()


def pandas_with_two_columns_of_one_name() -> Any:
    return pytest.importorskip("pandas").DataFrame([["one", "two"]], columns=["text", "text"])


def pandas_with_complex_numbers() -> Any:
    return pytest.importorskip("pandas").DataFrame({"text": ["one"], "z": [1j]})


def pandas_with_a_surrogate() -> Any:
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame({"text": pandas.Series(["a\ud800"], dtype=object)})


def streamed_dataset() -> Any:
    return hugging_face_dataset().to_iterable_dataset()


def dataset_of_splits() -> Any:
    return pytest.importorskip("datasets").DatasetDict(train=hugging_face_dataset())


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (pandas_with_two_columns_of_one_name, "cannot be read: Duplicate column names"),
        (pandas_with_complex_numbers, "cannot be read: .*complex"),
        (pandas_with_a_surrogate, "cannot be read: .*surrogates"),
        (streamed_dataset, "IterableDataset, whose rows come one by one"),
        (dataset_of_splits, r"DatasetDict: choose one of its splits \(train\)"),
        (lambda: polars_frame().lazy(), r"LazyFrame: collect\(\) its rows first"),
        (lambda: 7, "Cannot add a int: give a list of items"),
    ],
)
def test_frames_that_cannot_be_read_have_one_sentence(
    build: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message) as raised:
        make(build(), tmp_path)
    assert "\n" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_a_frame_that_is_too_large_for_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "available_memory", lambda device: 200_000_000)
    frame = pyarrow.table({"text": pyarrow.array(["x"]).take([0] * 110_000)})
    with pytest.raises(InputError, match=r"100 MB, half of .*: add a part of its rows"):
        make(frame, tmp_path)


def test_a_stream_of_record_batches_is_a_frame(tmp_path: Path) -> None:
    campaign = make(pyarrow.Table.from_pylist(ROWS).to_reader(), tmp_path)
    assert campaign.imported.new == 2
    campaign.database.close()
