"""Rows of a table as texts that people read, and as features that models learn from."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from teeter.encoders import EncoderState, TableRowEncoder, format_card
from teeter.encoders.table_rows import parse_card
from teeter.errors import InputError


@given(st.dictionaries(st.text(min_size=1), st.text(), max_size=5))
def test_a_card_shows_the_values_of_the_row(cells: dict[str, str]) -> None:
    assert parse_card(format_card(cells)) == cells


def encode(rows: list[dict[str, str]], new: list[dict[str, str]] | None = None) -> np.ndarray:
    encoder = TableRowEncoder()
    encoder.fit([format_card(row) for row in rows])
    return encoder.encode([format_card(row) for row in new or rows]).vectors


def test_numbers_and_dates_are_scaled_and_missing_ones_marked() -> None:
    rows = [{"n": "1", "day": "2026-01-01"}, {"n": "3", "day": "2026-01-03"}, {"n": "NA"}]

    vectors = encode(rows)

    np.testing.assert_allclose(vectors[:, 0], [-1, 1, 0])
    np.testing.assert_allclose(vectors[:, 1], [0, 0, 1])
    np.testing.assert_allclose(vectors[:, 2], [-1, 1, 0])
    np.testing.assert_allclose(vectors[:, 3], [0, 0, 1])


def test_categories_have_a_feature_each_and_later_ones_share_one() -> None:
    rows = [{"city": city} for city in ("Graz", "Wien", "Wien", "", "Graz", "Wien")]

    vectors = encode(rows, [{"city": "Wien"}, {"city": "Graz"}, {}, {"city": "Linz"}])

    assert vectors.tolist() == np.eye(4).tolist()


def test_numbers_that_come_later_are_cut_off_and_never_overflow() -> None:
    rows = [{"n": "1e300"}, {"n": "-1e300"}, {"n": "0"}]

    vectors = encode(rows, [{"n": "1e308"}, {"n": "-inf"}, {"n": "text"}])

    assert np.isfinite(vectors).all()
    assert vectors[1:, 1].tolist() == [1, 1]


def test_free_text_and_constant_columns_give_no_features() -> None:
    rows = [{"name": f"person {k}", "same": "x", "n": str(k)} for k in range(9)]
    assert encode(rows).shape == (9, 2)

    with pytest.raises(InputError, match="No column of the table tells its rows apart"):
        encode([{"same": "x"}, {"same": "x"}])


@pytest.mark.parametrize("scale", [(10**400, 1), (0, 0), (0, "wide"), (float("nan"), 1)])
def test_a_saved_scale_that_is_no_number_is_refused(scale: tuple[object, object]) -> None:
    mean, deviation = scale
    columns = [{"name": "age", "mean": mean, "deviation": deviation}]

    with pytest.raises(InputError, match="saved scale of the column 'age' is not a finite number"):
        TableRowEncoder().restore(EncoderState({"columns": columns}))
