"""Columns as features."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from teeter.data.table_columns import encode_table, parse_numbers
from teeter.data.table_files import Table

CELLS = st.one_of(
    st.text(max_size=3),
    st.floats().map(str),
    st.integers().map(str),
    st.sampled_from(["", "NA", "true", "2024-01-31", "inf", "-1e308", "1e308", "5e-324", "a", "b"]),
)


def texts(*values: str) -> npt.NDArray[np.object_]:
    return np.array(values, dtype=object)


def encode_columns(
    **columns: npt.NDArray[np.generic],
) -> tuple[npt.NDArray[np.float32], tuple[str, ...]]:
    return encode_table(Table(Path("pool.csv"), columns))


def features(*values: str) -> npt.NDArray[np.float32]:
    return encode_columns(column=texts(*values))[0]


def test_numbers_have_mean_0_and_standard_deviation_1() -> None:
    assert np.allclose(
        features("1", " 3", "5e0", "7"), np.array([[-3], [-1], [1], [3]]) / np.sqrt(5)
    )


def test_a_missing_number_is_the_median_and_has_a_column_that_says_so() -> None:
    block = features("0", "NA", "1", "10")
    assert block[:, 1].tolist() == [0, 1, 0, 0]
    assert block[1, 0] == block[2, 0]
    assert block[:, 0].mean() == pytest.approx(0, abs=1e-6)
    assert block[:, 0].std() == pytest.approx(1)


def test_infinity_counts_as_missing() -> None:
    assert np.array_equal(features("0", "inf", "1", "10"), features("0", "", "1", "10"))


def test_booleans_and_iso_dates_are_numbers() -> None:
    assert np.array_equal(features("true", "FALSE", "true"), features("1", "0", "1"))
    assert np.allclose(
        features("2024-01-01", "2024-01-02 12:00", "2024-01-04T00:00:00Z"),
        features("0", "1.5", "3"),
    )


def test_a_category_is_a_column_of_0_and_1_and_so_is_its_absence() -> None:
    block = features("red", "", "blue ", "red", "blue", "N/A", "red")
    assert block.T.tolist() == [[0, 1, 0, 0, 0, 1, 0], [1, 0, 0, 1, 0, 0, 1], [0, 0, 1, 0, 1, 0, 0]]


def test_rare_categories_are_folded_and_missing_stays_apart() -> None:
    common = [f"c{k}" for k in range(60) for _ in range(60 - k)]
    block = features("", *common)
    assert block.shape == (len(common) + 1, 50)
    assert (block.sum(axis=1) == 1).all()
    assert block[0].argmax() == 0
    assert block[0:, 0].sum() == 1
    assert block[:, -1].sum() == sum(60 - k for k in range(48, 60))


@pytest.mark.parametrize(
    "column", [["5"] * 4, ["x"] * 4, [""] * 4, ["true"] * 4, ["0.1"] * 4, ["2024-01-01"] * 4]
)
def test_a_column_that_never_varies_gives_nothing(column: list[str]) -> None:
    assert features(*column).shape == (4, 0)


def test_free_text_is_left_out_by_name() -> None:
    size = texts(*(str(k) for k in range(120)))
    comment = texts(*(f"comment {k % 70}" for k in range(120)))
    code = texts(*(f"k{k % 55}" for k in range(120)))
    features, notes = encode_columns(size=size, comment=comment, code=code)
    assert notes == ("Left out because they hold free text: comment.",)
    assert features.shape == (120, 51)


def test_texts_that_all_differ_are_free_text_however_few() -> None:
    assert encode_columns(size=texts("1", "2", "4"), title=texts("a", "b", "c"))[1] == (
        "Left out because they hold free text: title.",
    )


def test_columns_left_out_and_nested_columns() -> None:
    table = Table(Path("p"), {"a": texts("1", "2"), "b": texts("1", "2")}, nested=("tags", "label"))
    features, notes = encode_table(table, leave_out={"b", "label"})
    assert features.shape == (2, 1)
    assert notes == ("Left out because they hold nested values: tags.",)


def test_a_column_of_lists_gives_a_feature_for_each_place() -> None:
    vectors = np.array([[1, 5, 0], [3, 5, np.nan], [5, 5, 2]], dtype=np.float32)
    block = encode_columns(vectors=vectors)[0]
    assert block.dtype == np.float32
    assert np.allclose(block[:, 0], [-1.2247449, 0, 1.2247449])
    assert block.shape == (3, 3)
    assert block[:, 2].tolist() == [0, 1, 0]


@given(st.lists(st.tuples(CELLS, CELLS, st.floats()), min_size=1, max_size=80))
def test_features_are_always_finite_and_vary(rows: list[tuple[str, str, float]]) -> None:
    first, second, third = zip(*rows, strict=True)
    block, _ = encode_columns(first=texts(*first), second=texts(*second), third=np.array(third))
    assert block.dtype == np.float32
    assert np.isfinite(block).all()
    assert (block.max(axis=0) > block.min(axis=0)).all()


def test_numbers_as_they_stand() -> None:
    numbers = parse_numbers(texts("1", "NA", "-2.5"))
    assert numbers is not None
    assert np.array_equal(numbers, [1, np.nan, -2.5], equal_nan=True)
    assert parse_numbers(texts("1", "x")) is None
