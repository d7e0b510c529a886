"""Labels that are filled in part, and targets that are no labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from teeter.data.table_columns import Labels, read_labels
from teeter.data.table_files import Table
from teeter.errors import InputError, UnknownNameError


def table_of(*labels: str | float) -> Table:
    dtype = object if any(isinstance(label, str) for label in labels) else float
    return Table(
        Path("pool.csv"), {"y": np.array(labels, dtype=dtype), "x": np.arange(len(labels))}
    )


def labels_of(*labels: str | float) -> Labels:
    return read_labels(table_of(*labels), "y")


def test_labels_are_stripped_and_missing_ones_are_candidates() -> None:
    labels = labels_of(" b", "", "a", "NA", "b ", "null")
    assert labels.classes == ("a", "b")
    assert labels.codes.tolist() == [1, -1, 0, -1, 1, -1]
    assert labels.labelled.tolist() == [0, 2, 4]
    assert labels.candidates.tolist() == [1, 3, 5]


def test_numbers_are_classes_in_their_order() -> None:
    assert labels_of("10", "2", "", "2").classes == ("2", "10")
    assert labels_of(1.0, float("nan"), 0.0).classes == ("0", "1")


def test_no_label_and_one_class_are_for_the_caller_to_judge() -> None:
    assert labels_of("", "NA").classes == ()
    assert labels_of("", "a", "a").classes == ("a",)


@pytest.mark.parametrize(
    "labels",
    [
        ["a;b", "a", "c"],
        ["a|b", "b|c", "d"],
        ["a; b", "b", "a"],
        ["a,b", "b", "a"],
        ['["a", "b"]', "c"],
        ["['a']", "c"],
        ["[]", "c"],
    ],
)
def test_several_labels_in_a_cell_are_refused(labels: list[str]) -> None:
    with pytest.raises(
        InputError,
        match=r"The cell .* in column 'y' of pool.csv seems to hold several labels: .*keep one",
    ):
        labels_of(*labels)


@pytest.mark.parametrize(
    "labels",
    [
        ["red; dark", "blue"],
        ["a|", "b"],
        ["Smith, John", "Smith, Jane"],
        ["[a]", "[b"],
        ["x;x", "y"],
    ],
)
def test_names_with_marks_in_them_are_classes(labels: list[str]) -> None:
    assert set(labels_of(*labels).classes) == set(labels)


@pytest.mark.parametrize("labels", [["1.5", "2", "3"], [0.25, 1.0], ["1e-3", "2"]])
def test_fractions_are_refused(labels: list[str]) -> None:
    with pytest.raises(
        InputError,
        match=r"column 'y' of pool.csv holds fractions such as .*: teeter needs classes",
    ):
        labels_of(*labels)


def test_many_different_numbers_are_refused() -> None:
    with pytest.raises(InputError, match="holds 21 different numbers in 22 labelled rows"):
        labels_of(*map(str, range(21)), "3", "", "")


@pytest.mark.parametrize(
    "labels", [[str(k) for k in range(20)], [str(k % 30) for k in range(60)], ["1.0", "2.0", "inf"]]
)
def test_few_different_numbers_are_classes(labels: list[str]) -> None:
    assert len(labels_of(*labels).classes) == len(set(labels))


def test_columns_of_lists_are_refused() -> None:
    nested = Table(Path("pool.parquet"), {"v": np.ones((2, 3))}, nested=("tags",))
    for column in ("tags", "v"):
        with pytest.raises(
            InputError,
            match=r"The cells of column .* are lists: teeter needs one class per row",
        ):
            read_labels(nested, column)


def test_two_columns_are_refused_and_a_wrong_name_gets_a_hint() -> None:
    with pytest.raises(
        InputError, match=r"labels= names 2 columns \(y, x\): teeter needs one class per row"
    ):
        read_labels(table_of("a", "b"), "y, x")
    with pytest.raises(UnknownNameError, match=r"No column of pool.csv is called 'labels'"):
        read_labels(table_of("a", "b"), "labels")
