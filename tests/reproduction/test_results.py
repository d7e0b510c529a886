"""Items are computed once each, whatever happens to others, and the page is made from their files alone."""

from __future__ import annotations

import json
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch

from paper_items import item, measured
from reproduction.catalogue import ITEMS, find_item
from reproduction.item import (
    HOLDS,
    IN_PART,
    NOT,
    Measurement,
    StudyConfig,
    decide_verdict,
    describe_failed_checks,
    make_table,
    to_json_value,
)
from reproduction.page import write_page
from reproduction.results import compute_items, read_result
from teeter.errors import FileError, InputError, UnknownNameError


def broken(config: StudyConfig) -> Measurement:
    raise ZeroDivisionError("division by zero")


def without_data(config: StudyConfig) -> Measurement:
    raise FileError("There is no mnist in /data: run teeter datasets get mnist.")


class Counting:
    def __init__(self) -> None:
        self.times = 0

    def __call__(self, config: StudyConfig) -> Measurement:
        self.times += 1
        return measured(config)


def test_an_item_is_computed_once_for_the_same_settings(tmp_path: Path) -> None:
    count, steps = Counting(), []
    items = [item("one", count), item("two")]
    for _ in range(2):
        compute_items(
            items, StudyConfig(), tmp_path, on_step=lambda done, whole: steps.append((done, whole))
        )
    assert count.times == 1
    assert steps == 2 * [(0, 2), (1, 2), (2, 2)]
    compute_items(items, StudyConfig(seed=1), tmp_path)
    compute_items(items, StudyConfig(quick=False, seed=1), tmp_path)
    assert count.times == 3
    compute_items(items, StudyConfig(quick=False, seed=1), tmp_path, fresh=True)
    assert count.times == 4


def test_an_item_that_reads_growing_runs_is_always_computed(tmp_path: Path) -> None:
    count = Counting()
    for _ in range(2):
        compute_items([item("one", count, always_recompute=True)], StudyConfig(), tmp_path)
    assert count.times == 2


def test_a_file_has_the_whole_result_and_what_it_depends_on(tmp_path: Path) -> None:
    (found,) = compute_items([item("one")], StudyConfig(seed=5), tmp_path / "new" / "folder")
    content = json.loads((tmp_path / "new" / "folder" / "one.json").read_text())
    assert content["numbers"] == {"values": [1.0, 2.0], "not there": None}
    assert (
        content["facts"].items()
        >= {"size": "quick", "seed": 5, "torch": str(torch.__version__)}.items()
    )
    assert {"teeter", "commit", "hardware", "seconds", "started"} <= set(content["facts"])
    assert found == read_result(item("one"), tmp_path / "new" / "folder")
    assert found.measurement is not None
    assert found.measurement.reason == "1 < 2 with the seed 5."
    assert found.measurement.tables[0].shown == [{"name": "<b>bold</b>", "value": "1"}]


def test_a_failure_is_told_and_tried_again_and_the_others_go_on(tmp_path: Path) -> None:
    items = [item("one", broken), item("two", without_data), item("three")]
    first, second, third = compute_items(items, StudyConfig(), tmp_path)
    assert first.error == "ZeroDivisionError: division by zero"
    assert second.error == "There is no mnist in /data: run teeter datasets get mnist."
    assert third.verdict == HOLDS
    text = write_page(items, tmp_path).read_text()
    assert "It could not be computed: ZeroDivisionError: division by zero" in text
    assert "run teeter datasets get mnist" in text
    (again,) = compute_items([item("one")], StudyConfig(), tmp_path)
    assert again.verdict == HOLDS


def test_a_failure_leaves_an_earlier_result_as_it_was(tmp_path: Path) -> None:
    compute_items([item("one", always_recompute=True)], StudyConfig(), tmp_path)
    before = (tmp_path / "one.json").read_bytes()
    (failed,) = compute_items(
        [item("one", without_data, always_recompute=True)], StudyConfig(), tmp_path
    )
    assert failed.error == "There is no mnist in /data: run teeter datasets get mnist."
    (failed,) = compute_items([item("one", broken)], StudyConfig(quick=False), tmp_path, fresh=True)
    assert failed.error == "ZeroDivisionError: division by zero"
    assert (tmp_path / "one.json").read_bytes() == before


def changed(folder: Path, **values: object) -> None:
    path = folder / "one.json"
    content = {**json.loads(path.read_text()), **values}
    path.write_text(json.dumps({name: value for name, value in content.items() if value != "gone"}))


@pytest.mark.parametrize(
    "values",
    [
        {"numbers": "gone"},
        {"numbers": [1]},
        {"facts": []},
        {"facts": "gone"},
        {"verdict": "maybe"},
        {"tables": [{"name": "x", "caption": "y", "rows": []}]},
        {"tables": None},
        {"notes": None},
        {"item": "another"},
    ],
)
def test_a_file_of_another_version_is_refused_by_a_sentence(
    values: dict[str, object], tmp_path: Path
) -> None:
    compute_items([item("one")], StudyConfig(), tmp_path)
    changed(tmp_path, **values)
    with pytest.raises(
        FileError, match="is not a result of this version of the reproduction: remove it"
    ):
        read_result(item("one"), tmp_path)
    (again,) = compute_items([item("one")], StudyConfig(), tmp_path, fresh=True)
    assert again.verdict == HOLDS


def test_a_damaged_file_is_told_of_before_anything_is_computed(tmp_path: Path) -> None:
    count = Counting()
    (tmp_path / "two.json").write_text("{")
    with pytest.raises(FileError, match="damaged"):
        compute_items([item("one", count), item("two")], StudyConfig(), tmp_path)
    assert count.times == 0


def test_what_cannot_be_drawn_does_not_stop_the_page(tmp_path: Path) -> None:
    items = [item("one"), item("two")]
    compute_items(items, StudyConfig(seed=4), tmp_path)
    changed(tmp_path, numbers={"other": 1})
    text = write_page(items, tmp_path).read_text()
    assert (
        "Its file cannot be drawn; python -m reproduction run one --quick --seed 4 --fresh computes it again."
        in text
    )
    assert text.count("<img") == 1


def test_the_command_of_an_item_has_its_size_and_seed(tmp_path: Path) -> None:
    for quick, seed, words in (
        (True, 0, "one --quick"),
        (False, 7, "one --seed 7"),
        (False, 0, "one"),
    ):
        compute_items([item("one")], StudyConfig(quick=quick, seed=seed), tmp_path)
        assert (
            f"<code>python -m reproduction run {words}</code>"
            in write_page([item("one")], tmp_path).read_text()
        )


def test_a_claim_that_is_ours_is_not_said_to_be_the_paper_s(tmp_path: Path) -> None:
    items = [item("one"), item("two", location="ours, beside figure 1")]
    compute_items(items, StudyConfig(), tmp_path)
    text = write_page(items, tmp_path).read_text()
    assert "The paper: 1 &lt; 2" in text
    assert "Ours, not the paper&#39;s: 1 &lt; 2" in text


class Ids(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value for name, value in attrs if name == "id" and value]
        self.links += [value for name, value in attrs if name == "href" and value]


def test_the_page_has_every_item_and_escapes_text(tmp_path: Path) -> None:
    items = [item("one"), item("two", broken), item("three"), item("four")]
    compute_items(items[:3], StudyConfig(), tmp_path)
    text = write_page(items, tmp_path).read_text()
    seen = Ids()
    seen.feed(text)
    assert seen.ids == ["one", "two", "three"]
    assert seen.links == ["#one", "#two", "#three"]
    assert seen.tags.count("img") == 2
    assert "Not computed yet: four." in text
    for part in (
        "Item &lt;one&gt;",
        "1 &lt; 2 &amp; so on.",
        "&lt;b&gt;bold",
        "python -m reproduction run one --quick",
        "Values &amp;",
    ):
        assert part in text
    assert "holds: 2, not computed: 1" in text
    assert "<b>bold" not in text
    assert "http" not in text.replace("http-equiv", "")
    assert (tmp_path / "figures" / "one-1.svg").exists()
    assert (tmp_path / "tables" / "one-values.csv").exists()


def test_a_page_of_nothing_and_a_foreign_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There is no result in"):
        write_page([item("one")], tmp_path)
    (tmp_path / "one.json").write_text("[]")
    with pytest.raises(FileError, match="is not a result of this version of the reproduction"):
        read_result(item("one"), tmp_path)
    (tmp_path / "one.json").write_text('{"item": "one", "fac')
    with pytest.raises(FileError, match="damaged"):
        read_result(item("one"), tmp_path)


def test_names_are_different_and_a_wrong_one_is_corrected() -> None:
    names = [one.name for one in ITEMS]
    assert len(set(names)) == len(names)
    assert not {"all", "page"} & set(names)
    for one in ITEMS:
        assert find_item(one.name) is one
        assert all(text.endswith(".") for text in (one.claim, one.test)), one.name
    with pytest.raises(UnknownNameError, match="Did you mean 'figure-1'"):
        find_item("figur-1")


def test_a_verdict_is_that_of_its_checks() -> None:
    assert decide_verdict({"a": True, "b": True}) == HOLDS
    assert decide_verdict({"a": True, "b": False}) == IN_PART
    assert decide_verdict({"a": False}) == NOT
    with pytest.raises(ValueError, match="needs a check"):
        decide_verdict({})


def test_plain_is_what_json_has() -> None:
    value = {
        1: np.arange(2),
        "t": torch.ones(1),
        "n": (np.float64(0.5), float("inf"), None, "x", np.int64(3)),
    }
    assert to_json_value(value) == {"1": [0, 1], "t": [1.0], "n": [0.5, None, None, "x", 3]}


def test_tables_show_numbers_in_their_form_and_small_chances_as_such() -> None:
    data = [
        {"name": "a", "count": 1200, "share": -0.25, "p": 1e-9},
        {"name": "b", "count": 3, "share": None, "p": 0.04},
    ]
    made = make_table("x", "A caption.", data, {"count": ",d"}, ".1f")
    assert [list(row.values()) for row in made.shown] == [
        ["a", "1,200", "−0.2", "< 0.001"],
        ["b", "3", "–", "0.040"],
    ]
    assert made.data is data


def test_a_sentence_names_the_checks_that_failed() -> None:
    assert describe_failed_checks({"a": True}) == ""
    assert describe_failed_checks({"a": True, "b": False, "c": False}) == " Not found: b, c."


@pytest.mark.slow
def test_computing_needs_no_matplotlib(tmp_path: Path) -> None:
    """Results are computed on machines that cannot draw."""
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from pathlib import Path\n"
        "from reproduction.item import StudyConfig\n"
        "from reproduction.catalogue import find_item\n"
        "from reproduction.results import compute_items\n"
        f"found = compute_items([find_item('proposition-3')], StudyConfig(), Path({str(tmp_path)!r}))\n"
        "assert found[0].error is None, found[0].error\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


def test_the_committed_page_is_that_of_the_committed_results() -> None:
    """The page that the README points to has every claim, test and verdict as the code and the files have them."""
    folder = Path(__file__).parents[2] / "reproduction" / "results"
    text = unescape((folder / "index.html").read_text(encoding="utf-8"))
    found = [one for name in ITEMS if (one := read_result(name, folder)) is not None]
    assert len(found) > 25
    for one in found:
        said = one.error if one.measurement is None else one.measurement.reason
        for part in (one.item.title, one.item.claim, one.item.test, said, one.verdict):
            assert part is not None
            assert part in text, f"{one.item.name}: {part}"
        assert one.facts["size"] == "full"
    assert f"The {len(found)} items here" in text
