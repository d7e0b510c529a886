"""Items are computed into result files, and the page is drawn from these files alone."""

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

from paper_items import make_item, measure_two_values
from research.paper.catalogue import ITEMS, find_item
from research.paper.item import (
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
from research.paper.page import write_page
from research.paper.results import compute_items, read_result, read_results
from teeter.errors import FileError, InputError, UnknownNameError

ROOT = Path(__file__).parents[3]
MISSING = "missing"
"""Removes a value from a result file."""


def divide_by_zero(config: StudyConfig) -> Measurement:
    raise ZeroDivisionError("division by zero")


def miss_a_dataset(config: StudyConfig) -> Measurement:
    raise FileError("There is no mnist in /data: run teeter bench datasets mnist.")


class CallCounter:
    """Measures two values, and counts how often."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, config: StudyConfig) -> Measurement:
        self.calls += 1
        return measure_two_values(config)


# Computing items


def test_an_item_is_computed_once_for_each_size_and_seed(tmp_path: Path) -> None:
    counter = CallCounter()
    items = [make_item("one", counter), make_item("two")]
    steps: list[tuple[int, int]] = []

    for _ in range(2):
        compute_items(
            items,
            StudyConfig(),
            tmp_path,
            on_step=lambda done, total: steps.append((done, total)),
        )
    assert counter.calls == 1
    assert steps == 2 * [(0, 2), (1, 2), (2, 2)]

    compute_items(items, StudyConfig(seed=1), tmp_path)
    compute_items(items, StudyConfig(quick=False, seed=1), tmp_path)
    assert counter.calls == 3

    compute_items(items, StudyConfig(quick=False, seed=1), tmp_path, fresh=True)
    assert counter.calls == 4


def test_an_item_that_reads_growing_runs_is_always_computed(tmp_path: Path) -> None:
    counter = CallCounter()
    item = make_item("one", counter, always_recompute=True)

    compute_items([item], StudyConfig(), tmp_path)
    compute_items([item], StudyConfig(), tmp_path)
    assert counter.calls == 2


def test_quick_items_use_one_thread(tmp_path: Path) -> None:
    threads = []

    def count_threads(config: StudyConfig) -> Measurement:
        threads.append(torch.get_num_threads())
        return measure_two_values(config)

    before = torch.get_num_threads()
    compute_items([make_item("one", count_threads)], StudyConfig(), tmp_path)
    assert threads == [1]
    assert torch.get_num_threads() == before


def test_a_file_has_the_result_and_what_it_depends_on(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    item = make_item("one")
    (result,) = compute_items([item], StudyConfig(seed=5), folder)

    content = json.loads((folder / "one.json").read_text())
    assert content["numbers"] == {"values": [1.0, 2.0], "not there": None}
    facts = content["facts"]
    assert facts["size"] == "quick"
    assert facts["seed"] == 5
    assert facts["torch"] == str(torch.__version__)
    assert {"teeter", "commit", "hardware", "seconds", "started"} <= set(facts)

    assert result == read_result(item, folder)
    assert result.measurement is not None
    assert result.measurement.reason == "1 < 2 with the seed 5."
    assert result.measurement.tables[0].shown == [{"name": "<b>bold</b>", "value": "1"}]


def test_a_failed_item_does_not_stop_the_others_and_is_tried_again(tmp_path: Path) -> None:
    items = [
        make_item("one", divide_by_zero),
        make_item("two", miss_a_dataset),
        make_item("three"),
    ]
    first, second, third = compute_items(items, StudyConfig(), tmp_path)
    assert first.error == "ZeroDivisionError: division by zero"
    assert second.error == "There is no mnist in /data: run teeter bench datasets mnist."
    assert third.verdict == HOLDS

    text = write_page(items, tmp_path).read_text()
    assert "It could not be computed: ZeroDivisionError: division by zero" in text
    assert "run teeter bench datasets mnist" in text

    (result,) = compute_items([make_item("one")], StudyConfig(), tmp_path)
    assert result.verdict == HOLDS


def test_a_failure_does_not_replace_an_earlier_measurement(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    compute_items([make_item("one")], StudyConfig(), tmp_path)
    before = path.read_bytes()

    reading_runs = make_item("one", miss_a_dataset, always_recompute=True)
    (failed,) = compute_items([reading_runs], StudyConfig(), tmp_path)
    assert failed.error == "There is no mnist in /data: run teeter bench datasets mnist."
    assert path.read_bytes() == before

    broken = make_item("one", divide_by_zero)
    (failed,) = compute_items([broken], StudyConfig(quick=False), tmp_path, fresh=True)
    assert failed.error == "ZeroDivisionError: division by zero"
    assert path.read_bytes() == before


@pytest.mark.slow
def test_computing_needs_no_matplotlib(tmp_path: Path) -> None:
    """Results are computed on machines that cannot draw."""
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from pathlib import Path\n"
        "from research.paper.item import StudyConfig\n"
        "from research.paper.catalogue import find_item\n"
        "from research.paper.results import compute_items\n"
        "items = [find_item('proposition-3')]\n"
        f"(result,) = compute_items(items, StudyConfig(), Path({str(tmp_path)!r}))\n"
        "assert result.error is None, result.error\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


# Reading result files


def change_result(folder: Path, **values: object) -> None:
    """Replace values in the result file of the item "one", or remove them if ``MISSING``."""
    path = folder / "one.json"
    content = {**json.loads(path.read_text()), **values}
    remaining = {name: value for name, value in content.items() if value != MISSING}
    path.write_text(json.dumps(remaining))


@pytest.mark.parametrize(
    "values",
    [
        {"numbers": MISSING},
        {"numbers": [1]},
        {"facts": []},
        {"facts": MISSING},
        {"verdict": "maybe"},
        {"tables": [{"name": "x", "caption": "y", "rows": []}]},
        {"tables": None},
        {"notes": None},
        {"item": "another"},
    ],
)
def test_a_file_of_another_version_is_refused(values: dict[str, object], tmp_path: Path) -> None:
    item = make_item("one")
    compute_items([item], StudyConfig(), tmp_path)
    change_result(tmp_path, **values)

    message = "is not a result of this version of the reproduction: remove it"
    with pytest.raises(FileError, match=message):
        read_result(item, tmp_path)

    (result,) = compute_items([item], StudyConfig(), tmp_path, fresh=True)
    assert result.verdict == HOLDS


def test_a_damaged_file_is_reported_before_anything_is_computed(tmp_path: Path) -> None:
    counter = CallCounter()
    (tmp_path / "two.json").write_text("{")

    with pytest.raises(FileError, match="damaged"):
        compute_items([make_item("one", counter), make_item("two")], StudyConfig(), tmp_path)
    assert counter.calls == 0


def test_foreign_and_damaged_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text("[]")
    with pytest.raises(FileError, match="is not a result of this version of the reproduction"):
        read_result(make_item("one"), tmp_path)

    (tmp_path / "one.json").write_text('{"item": "one", "fac')
    with pytest.raises(FileError, match="damaged"):
        read_result(make_item("one"), tmp_path)


# The page


class PageParser(HTMLParser):
    """Collects the tags, the ids and the links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value for name, value in attrs if name == "id" and value]
        self.links += [value for name, value in attrs if name == "href" and value]


def test_the_page_has_every_computed_item(tmp_path: Path) -> None:
    items = [
        make_item("one"),
        make_item("two", divide_by_zero),
        make_item("three"),
        make_item("four"),
    ]
    compute_items(items[:3], StudyConfig(), tmp_path)
    text = write_page(items, tmp_path).read_text()

    parser = PageParser()
    parser.feed(text)
    assert parser.ids == ["one", "two", "three"]
    assert parser.links == ["#one", "#two", "#three"]
    assert parser.tags.count("img") == 2
    assert "Not computed yet: four." in text
    assert "holds: 2, not computed: 1" in text

    assert (tmp_path / "figures" / "one-1.svg").exists()
    assert (tmp_path / "tables" / "one-values.csv").exists()


def test_the_page_escapes_text_and_loads_nothing(tmp_path: Path) -> None:
    items = [make_item("one")]
    compute_items(items, StudyConfig(), tmp_path)
    text = write_page(items, tmp_path).read_text()

    for escaped in ("Item &lt;one&gt;", "1 &lt; 2 &amp; so on.", "&lt;b&gt;bold", "Values &amp;"):
        assert escaped in text
    assert "<b>bold" not in text
    assert "http" not in text.replace("http-equiv", "")


def test_an_item_that_cannot_be_drawn_does_not_stop_the_page(tmp_path: Path) -> None:
    items = [make_item("one"), make_item("two")]
    compute_items(items, StudyConfig(seed=4), tmp_path)
    change_result(tmp_path, numbers={"other": 1})

    text = write_page(items, tmp_path).read_text()
    command = "python -m research.paper run one --quick --seed 4 --fresh"
    assert f"Its file cannot be drawn; {command} computes it again." in text
    assert text.count("<img") == 1


@pytest.mark.parametrize(
    ("quick", "seed", "words"),
    [(True, 0, "one --quick"), (False, 7, "one --seed 7"), (False, 0, "one")],
)
def test_the_command_of_an_item_has_its_size_and_seed(
    quick: bool, seed: int, words: str, tmp_path: Path
) -> None:
    items = [make_item("one")]
    compute_items(items, StudyConfig(quick=quick, seed=seed), tmp_path)

    text = write_page(items, tmp_path).read_text()
    assert f"<code>python -m research.paper run {words}</code>" in text


def test_our_own_claims_are_not_attributed_to_the_paper(tmp_path: Path) -> None:
    items = [make_item("one"), make_item("two", location="ours, beside figure 1")]
    compute_items(items, StudyConfig(), tmp_path)

    text = write_page(items, tmp_path).read_text()
    assert "The paper: 1 &lt; 2" in text
    assert "Ours, not the paper&#39;s: 1 &lt; 2" in text


def test_a_page_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There is no result in"):
        write_page([make_item("one")], tmp_path)


def test_the_committed_page_agrees_with_the_committed_results() -> None:
    """The page has every claim, test and verdict as the code and the result files have them."""
    folder = ROOT / "research" / "paper" / "results"
    text = unescape((folder / "index.html").read_text(encoding="utf-8"))
    results = read_results(ITEMS, folder)

    assert len(results) > 25
    assert f"The {len(results)} items here" in text
    for result in results:
        item = result.item
        assert result.measurement is not None, item.name
        assert result.facts["size"] == "full"
        for part in (
            item.title,
            item.claim,
            item.test,
            result.verdict,
            result.measurement.reason,
        ):
            assert part in text, f"{item.name}: {part}"


# Items, verdicts and tables


def test_item_names_are_unique_and_a_wrong_one_is_corrected() -> None:
    names = [item.name for item in ITEMS]
    assert len(set(names)) == len(names)
    assert not {"all", "page"} & set(names)

    for item in ITEMS:
        assert find_item(item.name) is item
        assert item.claim.endswith("."), item.name
        assert item.test.endswith("."), item.name

    with pytest.raises(UnknownNameError, match="Did you mean 'figure-1'"):
        find_item("figur-1")


def test_a_verdict_follows_from_its_checks() -> None:
    assert decide_verdict({"a": True, "b": True}) == HOLDS
    assert decide_verdict({"a": True, "b": False}) == IN_PART
    assert decide_verdict({"a": False}) == NOT

    with pytest.raises(ValueError, match="needs a check"):
        decide_verdict({})


def test_failed_checks_are_named_in_a_sentence() -> None:
    assert describe_failed_checks({"a": True}) == ""
    checks = {"a": True, "b": False, "c": False}
    assert describe_failed_checks(checks) == " Failed checks: b, c."


def test_to_json_value_converts_arrays_and_infinite_numbers() -> None:
    value = {
        1: np.arange(2),
        "t": torch.ones(1),
        "n": (np.float64(0.5), float("inf"), None, "x", np.int64(3)),
    }
    assert to_json_value(value) == {"1": [0, 1], "t": [1.0], "n": [0.5, None, None, "x", 3]}


def test_tables_format_numbers_and_p_values() -> None:
    data = [
        {"name": "a", "count": 1200, "share": -0.25, "p": 1e-9},
        {"name": "b", "count": 3, "share": None, "p": 0.04},
    ]
    table = make_table("x", "A caption.", data, {"count": ",d"}, ".1f")

    assert [list(row.values()) for row in table.shown] == [
        ["a", "1,200", "−0.2", "< 0.001"],
        ["b", "3", "–", "0.040"],
    ]
    assert table.data is data
