"""Labels in tables of Hugging Face's datasets: classes by the model's numbers, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import library_models
from library_models import CLASSES, TEXTS
from teeter.errors import InputError
from teeter.models.inputs import take_rows

pytest.importorskip("transformers", reason="transformers is not installed: the extra hf")
pytest.importorskip("datasets.arrow_dataset", reason="datasets is not installed: the extra hf")

import datasets

from teeter.models.huggingface import labels_of

TABLE = library_models.table(text=TEXTS, label=CLASSES.tolist())


@pytest.mark.parametrize(
    ("feature", "values", "classes", "expected"),
    [
        (datasets.ClassLabel(names=["no", "yes"]), [0, 1, None, -1], None, [0, 1, -1, -1]),
        (
            datasets.ClassLabel(names=["no", "yes"]),
            [0, 1, None, -1],
            ["yes", "other", "no"],
            [2, 0, -1, -1],
        ),
        (datasets.Value("int32"), [2, 0, None, -1], None, [2, 0, -1, -1]),
        (datasets.Value("float64"), [2.0, 0.0, float("nan"), -1.0], None, [2, 0, -1, -1]),
        (datasets.Value("string"), ["yes", None, "no", "no"], ["no", "yes"], [1, -1, 0, 0]),
    ],
    ids=["class labels", "class labels in the model's order", "numbers", "numbers or NaN", "names"],
)
def test_known_labels_are_class_numbers(
    feature: Any, values: Any, classes: Any, expected: list[int]
) -> None:
    table = library_models.table(text=TEXTS[:4], label=values).cast_column("label", feature)
    assert labels_of(table, classes=classes).tolist() == expected


def test_rows_of_a_column_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    column = TABLE["text"]
    calls = []
    read = type(column).__getitem__
    monkeypatch.setattr(
        type(column), "__getitem__", lambda self, key: calls.append(key) or read(self, key)
    )
    assert take_rows(column, np.array([3, 1])) == [TEXTS[3], TEXTS[1]]
    assert calls == [[3, 1]]


@pytest.mark.parametrize("kind", ["torch", "numpy", "arrow", "pandas"])
def test_a_formatted_table_has_the_same_labels(kind: str) -> None:
    assert labels_of(TABLE.with_format(kind)).tolist() == CLASSES.tolist()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: labels_of(library_models.table(label=[1, 2]), classes=["a", "b"]),
            r"Row 1 .* holds 2: classes are whole numbers from 0 to 1, or -1",
        ),
        (lambda: labels_of(TEXTS), "This is a list: give a table of datasets"),
        (lambda: labels_of(TABLE, "lable"), "Did you mean 'label'"),
        (
            lambda: labels_of(TABLE, "text"),
            "Column 'text' holds names: give them in the order of the model's",
        ),
        (
            lambda: labels_of(TABLE, "text", classes=["red"]),
            r"Row 0 of column 'text' is .* Known: red\.",
        ),
        (
            lambda: labels_of(library_models.table(label=[0.5])),
            "holds 0.5: classes are whole numbers from 0, or -1",
        ),
        (
            lambda: labels_of(library_models.table(label=[float("inf")])),
            "holds inf: classes are whole numbers",
        ),
        (
            lambda: labels_of(library_models.table(label=[b"1"])),
            "holds b'1': classes are whole numbers",
        ),
        (
            lambda: labels_of(TABLE, "text", classes=["red", "red"]),
            "A name occurs twice in classes",
        ),
        (
            lambda: labels_of(library_models.table(label=[[1]])),
            "Column 'label' holds List: it must hold one label per row",
        ),
    ],
)
def test_mistakes_are_reported_at_once(make: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        make()
