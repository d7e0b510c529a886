"""Files are labelled with all their columns kept."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from classifier.trained import TEXTS, network_classifier, text_classifier
from teeter.classifier import label_file
from teeter.data.table_files import read_table
from teeter.errors import FileError, InputError, UnknownNameError

EXPECTED = text_classifier().predict(TEXTS)


def test_a_csv_file_keeps_its_cells(tmp_path: Path) -> None:
    source = tmp_path / "new.csv"
    rows = [[str(k), text, f"1,{k}", " x\n"] for k, text in enumerate(TEXTS)]
    with source.open("w", newline="") as file:
        csv.writer(file, delimiter=";").writerows([["id", "text", "price", "note"], *rows])

    predictions = label_file(text_classifier(), source, tmp_path / "out.csv")

    assert [prediction.label for prediction in predictions] == EXPECTED
    assert {prediction.problem for prediction in predictions} == {None}
    with (tmp_path / "out.csv").open(newline="") as file:
        written = list(csv.reader(file))
    assert written[0] == ["id", "text", "price", "note", "predicted", "confidence", "model"]
    assert [row[:4] for row in written[1:]] == rows
    assert [row[4] for row in written[1:]] == EXPECTED
    assert all(0 < float(row[5]) <= 1 for row in written[1:])
    assert {row[6] for row in written[1:]} == {"3"}


def test_a_csv_file_for_spreadsheets_runs_no_formulas(tmp_path: Path) -> None:
    source = tmp_path / "new.csv"
    rows = [["=1+1", text, "-5"] for text in TEXTS]
    with source.open("w", newline="") as file:
        csv.writer(file).writerows([["@id", "text", "n"], *rows])

    label_file(text_classifier(), source, tmp_path / "out.csv", spreadsheet=True)

    with (tmp_path / "out.csv").open(newline="") as file:
        written = list(csv.reader(file))
    assert written[0][:3] == ["'@id", "text", "n"]
    assert [row[:3] for row in written[1:]] == [["'=1+1", text, "-5"] for text in TEXTS]
    assert [row[3] for row in written[1:]] == EXPECTED
    with pytest.raises(InputError, match=r"Only a .csv file"):
        label_file(text_classifier(), source, tmp_path / "out.jsonl", spreadsheet=True)


def test_json_lines_keep_their_values(tmp_path: Path) -> None:
    source = tmp_path / "new.jsonl"
    objects = [{"n": k, "message": text, "tags": ["ä", None]} for k, text in enumerate(TEXTS)]
    source.write_text("\n".join(json.dumps(fields) for fields in objects))

    label_file(text_classifier(), source, tmp_path / "out.jsonl")

    written = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [fields.pop("predicted") for fields in written] == EXPECTED
    for fields in written:
        del fields["confidence"], fields["model"]
    assert written == objects


def test_a_parquet_file_keeps_its_types(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table(
        {
            "text": TEXTS,
            "when": pyarrow.array([0, 1, 2, None], pyarrow.timestamp("ms")),
            "nested": [{"a": 1}] * 4,
        }
    )
    parquet.write_table(table, tmp_path / "new.parquet")

    label_file(text_classifier(), tmp_path / "new.parquet", tmp_path / "out.parquet")

    written = parquet.read_table(tmp_path / "out.parquet")
    assert written.select(table.column_names).equals(table)
    assert written.column("predicted").to_pylist() == EXPECTED


def test_the_formats_can_be_mixed(tmp_path: Path) -> None:
    source = tmp_path / "new.jsonl"
    objects = [{"text": text, "tags": {"k": 1}} for text in TEXTS]
    source.write_text("\n".join(json.dumps(fields) for fields in objects))

    label_file(text_classifier(), source, tmp_path / "out.csv")

    with (tmp_path / "out.csv").open(newline="") as file:
        assert next(csv.DictReader(file))["tags"] == '{"k": 1}'


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_columns_with_the_names_of_ours_stay(suffix: str, tmp_path: Path) -> None:
    source = tmp_path / "new.csv"
    source.write_text("text,predicted,model\ngood,mine,m\n")

    label_file(text_classifier(), source, tmp_path / f"out.{suffix}")

    out = tmp_path / f"out.{suffix}"
    if suffix == "jsonl":
        written = json.loads(out.read_text())
    else:
        written = read_table(out).columns
    assert list(written)[:3] == ["text", "predicted", "model"]
    assert list(written)[3:] == ["teeter_predicted", "confidence", "teeter_model"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("new.csv", "a,b\n1,2\n", "Which column of .* has the texts: a, b"),
        ("new.jsonl", '{"text": 3}\n', "Object 1 of .* has no text in 'text'"),
        ("new.xlsx", "x", "xlsx"),
    ],
)
def test_what_cannot_be_labelled_is_refused(
    name: str, content: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        label_file(text_classifier(), tmp_path / name, tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()


def test_a_column_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("text\nx\n")
    with pytest.raises(UnknownNameError, match="Did you mean 'text'"):
        label_file(text_classifier(), tmp_path / "new.csv", tmp_path / "out.csv", text="txt")


def test_the_output_is_checked_before_anything_is_read(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    out.write_text("labels of yesterday")
    with pytest.raises(FileError, match="already exists"):
        label_file(text_classifier(), tmp_path / "missing.csv", out)
    with pytest.raises(InputError, match=r"use the suffix \.csv, \.jsonl or \.parquet"):
        label_file(text_classifier(), tmp_path / "missing.csv", tmp_path / "out.xlsx")
    assert out.read_text() == "labels of yesterday"


def test_texts_images_and_features_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("text\nx\n")
    with pytest.raises(InputError, match="trained on features"):
        label_file(network_classifier(), tmp_path / "new.csv", tmp_path / "out.csv")

    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.png").write_bytes(b"")
    with pytest.raises(InputError, match="reads texts: give a file of texts"):
        label_file(text_classifier(), tmp_path / "images", tmp_path / "out.csv")


def test_one_column_may_have_no_name_and_two_are_refused(tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text(",text\n1,win cash now\n")
    label_file(text_classifier(), tmp_path / "new.csv", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text().splitlines()[1].startswith("1,win cash now,")

    (tmp_path / "two.csv").write_text(",,text\n1,2,win cash now\n")
    with pytest.raises(FileError, match=r"2 columns of .*two\.csv with values have no name"):
        label_file(text_classifier(), tmp_path / "two.csv", tmp_path / "out2.csv")


def test_fields_of_later_objects_come_into_a_parquet_file(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "new.jsonl").write_text('{"text": "a"}\n{"text": "b", "extra": 5}\n')
    label_file(text_classifier(), tmp_path / "new.jsonl", tmp_path / "out.parquet")
    assert parquet.read_table(tmp_path / "out.parquet").column("extra").to_pylist() == [None, 5]

    (tmp_path / "mixed.jsonl").write_text('{"text": "a", "x": 1}\n{"text": "b", "x": "y"}\n')
    with pytest.raises(InputError, match=r"'x' .* has values of different types"):
        label_file(text_classifier(), tmp_path / "mixed.jsonl", tmp_path / "mixed.parquet")


def test_a_missing_folder_is_noticed_before_anything_is_labelled(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="there is no folder"):
        label_file(text_classifier(), tmp_path / "missing.csv", tmp_path / "none" / "out.csv")
