"""The sample data is complete, readable and free."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from teeter.errors import UnknownNameError
from teeter.samples import SAMPLES, Sample, find_sample, read_items

PACKAGE = Path(__file__).parents[1] / "src" / "teeter" / "samples"


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_every_class_has_items_and_every_item_is_different(sample: Sample, tmp_path: Path) -> None:
    items = read_items(sample, tmp_path / "images")
    assert 300 <= len(items) <= 600
    assert len({content for content, _ in items}) == len(items)

    counts = Counter(label for _, label in items)
    assert set(counts) == set(sample.classes)
    assert min(counts.values()) == max(counts.values())


def test_images_are_files_whose_names_do_not_tell_their_class(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    sample = find_sample("images")
    items = read_items(sample, tmp_path / "images")
    for content, label in items[:20]:
        with image.open(tmp_path / "images" / content) as picture:
            assert picture.size == (224, 224)
            darkest, lightest = picture.getextrema()
            assert lightest - darkest > 100, "something is drawn"
        assert label not in content


def test_an_unknown_sample_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="No sample is called"):
        find_sample("imagse")


def test_the_licences_come_with_the_data() -> None:
    text = (PACKAGE / "README.md").read_text(encoding="utf-8")
    for words in ("CC BY 4.0", "Casanueva", "Copyright © 2017 Zalando SE", "permission notice"):
        assert words in text
    data_files = sorted(path.name for path in (PACKAGE / "data").iterdir())
    assert [name for name in data_files if f"data/{name}" not in text] == []
