"""Reports: what they say, what is in them, and that no run, however broken, is a traceback."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from fake_runs import NAMES, fake_accuracy, fake_run
from teeter.bench.analysis import report as render
from teeter.bench.analysis.plots import figure_png, plot_curves, save_figure
from teeter.bench.analysis.report import (
    Report,
    Section,
    picture,
    render_block,
    render_page,
    write_report,
)
from teeter.bench.analysis.run_comparison import compare_strategies
from teeter.errors import InputError

SOME = ("ldm-s", "random", "margin")


def small(**options: Any) -> dict[str, np.ndarray]:
    return fake_accuracy(SOME, **{"repetitions": 3, "rounds": 4, **options})


def text_of(report: Report) -> str:
    """Return the page's text; also check that it is whole and fetches nothing."""
    text = report.page.read_text()
    assert not re.search(r'(src|href)="(?!data:)', text)
    assert "nan" not in re.sub(r'"data:[^"]*"', "", text).replace("dominant", "")
    reader = Words()
    reader.feed(text)
    assert reader.open == []
    return " ".join(" ".join(reader.words).split())


class Words(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.words.append(data)


def rows(report: Report, name: str) -> list[dict[str, str]]:
    with (report.page.parent / "tables" / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module", autouse=True)
def _quick_figures(request: pytest.FixtureRequest) -> Iterator[None]:
    """In the fast tier write placeholders instead of drawing, which takes seconds a report."""

    def write_placeholders(figure: Figure, stem: Path) -> tuple[Path, Path]:
        svg, png = stem.with_name(f"{stem.name}.svg"), stem.with_name(f"{stem.name}.png")
        for path in (svg, png):
            path.write_text("not drawn")
        return svg, png

    with pytest.MonkeyPatch.context() as patch:
        if "not slow" in request.config.option.markexpr:
            patch.setattr(render, "save_figure", write_placeholders)
        yield


@pytest.fixture(scope="module")
def full_report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return write_report([fake_run()], tmp_path_factory.mktemp("report") / "new" / "folder")


def test_a_report_begins_with_what_was_found(full_report: Report) -> None:
    text = text_of(full_report)
    assert text.index(full_report.findings[0]) < text.index("Accuracy against labels")

    best, following, labels, paper = full_report.findings
    assert re.fullmatch(
        r"On openml-6, LDM-S was the most accurate of 10 strategies, with a mean accuracy of "
        r"83\.\d % over the rounds, \+3\.\d\d points "
        r"relative to Random \(± 0\.\d\d over 5 repetitions; significant, p < 0\.001\)\.",
        best,
    )

    assert "which is not significant (p = 0." in following
    assert "labels instead of 4,000" in labels
    assert (
        "The paper reports +4.76 ± 0.36 points over Random for LDM-S; this run measured +3.7"
        in paper
    )
    assert "rank correlation of 0.9" in paper
    assert full_report.notes == ()


def test_a_report_has_all_its_parts(full_report: Report) -> None:
    text = text_of(full_report)
    titles = (
        "Accuracy against labels",
        "Gains",
        "Accuracy compared with the paper's",
        "Labels needed",
        "Runtime",
    )

    places = [text.index(f" {title} ") for title in titles]
    assert places == sorted(places)
    assert "penalty" in text
    for words in ("batch_size 64", "teeter 0.1.0", "hardware a thread", "n.s."):
        assert words in text

    assert full_report.page.read_text().count("data:image/png;base64") == 6
    for name in ("curves", "gains", "labels", "runtime", "profile", "penalties"):
        assert {path.name for path in full_report.files} >= {f"{name}.svg", f"{name}.png"}
    assert {path.suffix for path in full_report.files} == {
        ".html",
        ".svg",
        ".png",
        ".csv",
        ".md",
        ".tex",
    }
    assert all(path.stat().st_size > 0 for path in full_report.files)


def test_the_paper_s_numbers_stand_beside_ours(full_report: Report) -> None:
    gains = {row["strategy"]: row for row in rows(full_report, "deltas")}
    for row in (gains["ldm-s"], gains["entropy"]):
        assert float(row["difference"]) == pytest.approx(
            float(row["gain"]) - float(row["paper_gain"])
        )
    assert float(gains["bait"]["paper_gain"]) == 2.57
    assert gains["random"]["gain"] == gains["random"]["difference"] == ""

    at_400 = next(
        row
        for row in rows(full_report, "accuracy")
        if (row["strategy"], row["labelled"]) == ("random", "400")
    )
    assert float(at_400["paper_accuracy_percent"]) == 60.64

    runtime = {row["strategy"]: row for row in rows(full_report, "runtime")}
    assert float(runtime["ensemble"]["paper_minutes"]) == 28.1
    assert float(runtime["ensemble"]["training_minutes"]) == pytest.approx(20 * 75 / 60)


def test_the_tables_are_the_arrays(full_report: Report) -> None:
    accuracy = fake_accuracy()
    gains = {row["strategy"]: row for row in rows(full_report, "deltas")}
    means = {name: 100 * runs[:, 1:].mean() for name, runs in accuracy.items()}
    for name in NAMES:
        assert float(gains[name]["accuracy_percent"]) == pytest.approx(means[name], abs=1e-4)
    assert list(gains) == sorted(NAMES, key=lambda name: -means[name]), "the most accurate first"
    assert (
        json.loads(json.dumps(full_report.tables, allow_nan=False))["deltas"][0]["strategy"]
        == "ldm-s"
    )
    assert len(rows(full_report, "rounds")) == 10 * 5 * 20


def test_the_figures_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "save_figure", save_figure)
    report = write_report(
        [fake_run(fake_accuracy(("ldm-s", "random"), repetitions=2, rounds=3))], tmp_path
    )
    pictures = [path for path in report.files if path.suffix == ".png"]
    assert len(pictures) == 6
    for path in pictures:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert "<svg" in path.with_suffix(".svg").read_text()


def test_several_runs_are_set_side_by_side(tmp_path: Path) -> None:
    runs = [
        fake_run(small()),
        fake_run(
            small(seed=1, rounds=5), name="mnist", dataset="mnist", network="s-cnn", paper="mnist"
        ),
        fake_run(
            small(seed=2) | fake_accuracy(("badge",), repetitions=3, rounds=4),
            name="digits",
            paper=None,
        ),
    ]

    report = write_report(runs, tmp_path)
    text = text_of(report)

    assert re.match(
        r"Over 3 runs, margin stays .* is 9\.64 of 10; next comes LDM-S with 9\.56\.$",
        report.findings[0],
    )
    assert re.match(
        r"Beaten least often: .* \(mean penalty .*\); next comes \S+ \(", report.findings[1]
    )
    assert any(
        sentence.startswith("LDM-S is more accurate than Random in 3 of 3 runs")
        for sentence in report.findings
    )
    assert any(
        re.search(r"In \d of 3 runs, LDM-S reached .* \(\d+ %", sentence)
        for sentence in report.findings
    )
    assert any(
        sentence.startswith("In 2 runs of the paper's settings, the gain of LDM-S")
        for sentence in report.findings
    )

    assert (
        "Left out of the comparison across runs, because some runs lack them: badge."
        in report.notes
    )
    assert "digits: The paper has no numbers for this setting." in report.notes
    assert "mnist: Runtime" in text
    assert {
        "openml-6-deltas",
        "mnist-deltas",
        "digits-deltas",
        "gains",
        "across",
        "penalties",
    } <= set(report.tables)

    gains = report.tables["gains"][0]
    assert gains["strategy"] == "ldm-s"
    assert gains["mnist difference"] == pytest.approx(gains["mnist"] - 3.33)
    assert {"openml-6", "openml-6 paper", "digits"} <= set(gains)
    assert "digits paper" not in gains


def test_two_runs_of_one_setting_keep_apart(tmp_path: Path) -> None:
    runs = [
        fake_run(small(seed=k), folder=Path(folder)) for k, folder in enumerate(("a", "b", "x/b"))
    ]
    report = write_report(runs, tmp_path)
    assert {"openml-6-a-deltas", "openml-6-b-deltas", "openml-6-b-2-deltas"} <= set(report.tables)


@pytest.mark.slow
def test_runs_whose_names_look_alike_keep_their_files_apart(tmp_path: Path) -> None:
    runs = [
        fake_run(small(seed=seed), name=name, paper=None)
        for seed, name in enumerate(("a b", "a/b", "a-b-2", "?"))
    ]

    report = write_report(runs, tmp_path)
    assert len(set(report.files)) == len(report.files)
    assert all(path.is_file() and tmp_path in path.parents for path in report.files)
    assert (
        len(
            {
                report.tables[f"{prefix}-deltas"][0]["accuracy_percent"]
                for prefix in ("a-b", "a-b-2", "run")
            }
        )
        == 3
    )


def test_a_run_of_fewer_rounds_is_not_timed_against_the_paper(tmp_path: Path) -> None:
    finished, unfinished = (
        write_report([fake_run(small(rounds=rounds))], tmp_path / str(rounds)) for rounds in (20, 5)
    )
    assert finished.tables["runtime"][0]["paper_minutes"] is not None
    assert unfinished.tables["runtime"][0]["paper_minutes"] is None
    assert "The paper's minutes" not in text_of(unfinished)


def test_one_repetition_has_no_spread_and_no_test(tmp_path: Path) -> None:
    report = write_report([fake_run(small(repetitions=1))], tmp_path)
    text = text_of(report)
    assert (
        "With a single repetition there is no spread and no test, so any difference may be due "
        "to chance." in report.notes
    )
    assert " ± 0.00" not in text
    assert not any("significant" in sentence or "p =" in sentence for sentence in report.findings)
    assert "penalties" not in report.tables
    assert rows(report, "deltas")[0]["p"] == rows(report, "deltas")[0]["deviation"] == ""


def test_one_strategy_is_only_described(tmp_path: Path) -> None:
    report = write_report([fake_run(fake_accuracy(("ldm-s",)))], tmp_path)
    assert report.findings[0].startswith("On openml-6, only LDM-S was run.")
    assert "Random was not run" in text_of(report)
    assert "across" not in report.tables


def test_without_random_there_are_no_gains(tmp_path: Path) -> None:
    report = write_report(
        [fake_run(fake_accuracy(("badge", "margin"), repetitions=3, rounds=4))], tmp_path
    )
    text = text_of(report)
    assert "margin was the most accurate of 2 strategies" in text
    assert "gain over random" not in text
    assert "labels" not in report.tables


def test_without_ldm_s_there_is_still_a_best(tmp_path: Path) -> None:
    report = write_report(
        [fake_run(fake_accuracy(("badge", "random"), repetitions=3, rounds=9))], tmp_path
    )
    assert len(report.findings) == 1
    assert "badge was the most accurate of 2 strategies" in report.findings[0]


def test_of_equal_strategies_none_is_called_the_best(tmp_path: Path) -> None:
    level = np.linspace(0.5, 0.7, 12).reshape(3, 4)
    report = write_report(
        [fake_run({"ldm-s": level, "random": level, "margin": level - 0.1})], tmp_path
    )
    assert report.findings[0] == (
        "On openml-6, LDM-S and Random tied as the most accurate of 3 strategies, with a mean "
        "accuracy of 60.9 % over the rounds."
    )
    assert not any(
        "was the most accurate" in sentence or "behind" in sentence for sentence in report.findings
    )


@pytest.mark.slow
def test_as_many_strategies_as_there_may_be_fit_into_the_figures(tmp_path: Path) -> None:
    accuracy = small()["random"]
    report = write_report(
        [fake_run({f"s{k}": accuracy + k / 1000 for k in range(40)} | small(), paper=None)],
        tmp_path,
    )
    assert f"the most accurate of {40 + len(SOME)} strategies" in report.findings[0]


@pytest.mark.slow
def test_the_report_says_when_ldm_s_is_behind(tmp_path: Path) -> None:
    accuracy = small()
    accuracy["ldm-s"], accuracy["margin"] = accuracy["random"] - 0.02, accuracy["ldm-s"]
    report = write_report([fake_run(accuracy)], tmp_path)
    assert "margin was the most accurate" in report.findings[0]
    assert re.match(
        r"LDM-S is \d\.\d\d points behind, .*; its gain over Random is −2\.00 points",
        report.findings[1],
    )
    assert "LDM-S did not reach Random's final accuracy" in report.findings[2]


def test_accuracies_that_are_not_numbers_are_left_out_and_named(tmp_path: Path) -> None:
    accuracy = small() | {"bait": np.full((3, 4), np.nan)}
    accuracy["margin"][1, 2] = np.nan
    report = write_report([fake_run(accuracy)], tmp_path)
    text_of(report)
    assert "bait is left out, because some of its accuracies are not numbers." in report.notes
    assert "Left out because some accuracies are not numbers: repetition 1." in report.notes
    assert compare_strategies(fake_run(accuracy)).repetitions == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "holes", [[(0, 0), (1, 1)], [(0, 0), (1, 1), (2, 1)], [(0, 0), (1, 0), (2, 0)]]
)
def test_holes_everywhere_leave_something_or_nothing_but_no_traceback(
    holes: list[tuple[int, int]], tmp_path: Path
) -> None:
    accuracy = small(repetitions=2)
    for name, repetition in holes:
        accuracy[SOME[name]][repetition, 1] = np.nan
    report = write_report([fake_run(accuracy)], tmp_path)
    assert any("not numbers" in note for note in report.notes)


def test_different_lengths_are_compared_as_far_as_all_go(tmp_path: Path) -> None:
    accuracy = small() | fake_accuracy(("badge",), repetitions=2, rounds=3)
    report = write_report(
        [fake_run(accuracy, finished=False, failures={("badge", 2): "no <room>"})], tmp_path
    )

    assert report.notes == (
        "The run is not finished, so the results may change.",
        "Failed before the end: badge, repetition 2.",
        (
            "Some strategies have reached 800 labels. Only the rounds that all strategies have "
            "finished are compared, up to 600 labels."
        ),
        "The paper's runs go to 4,000 labels and its gains are means over all rounds. Our runs "
        "end at 600 labels, so our gains and the paper's are not quite comparable.",
        "Only 2 of 3 repetitions are compared: those that every strategy has started.",
    )

    assert "no <room>" in text_of(report)
    assert "<room>" not in report.page.read_text()


def test_nothing_but_the_initial_round(tmp_path: Path) -> None:
    report = write_report([fake_run(small(rounds=1), finished=False)], tmp_path)
    assert report.findings == ()
    assert any("Nothing has been picked yet" in note for note in report.notes)
    assert "batch_size" in text_of(report)


def test_a_run_that_has_only_begun(tmp_path: Path) -> None:
    report = write_report([fake_run({}, finished=False)], tmp_path)
    assert "There is no round to compare." in report.notes
    text_of(report)


def test_a_quick_run_says_so(tmp_path: Path) -> None:
    report = write_report(
        [fake_run(small(), name="openml-6-quick", quick=True, paper=None)], tmp_path
    )
    assert report.notes[0].startswith("This is a quick setting")
    assert "paper's gain" not in text_of(report)


def test_short_runs_are_shown_in_seconds(tmp_path: Path) -> None:
    report = write_report([fake_run(small(), paper=None)], tmp_path)
    assert "Seconds per repetition" in text_of(report)
    assert (
        "| random | 60.0 | 2.40 | 0.04 | 1.60 | 64.0 ± 0.00 |"
        in (tmp_path / "tables" / "runtime.md").read_text()
    )
    assert float(report.tables["runtime"][0]["training_minutes"]) == 1


def test_names_are_never_markup(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    accuracy = small() | {evil: small()["margin"]}
    report = write_report(
        [fake_run(accuracy, name=evil, dataset=evil, paper=None, folder=Path("<i>"))], tmp_path
    )
    assert "<script>" not in report.page.read_text()
    two = write_report(
        [fake_run(small(), name=evil, paper=None), fake_run(small())], tmp_path / "two"
    )
    assert all(path.is_relative_to(tmp_path / "two") for path in two.files)


def test_no_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least one run"):
        write_report([], tmp_path)


def test_a_page_is_whole_and_fetches_nothing() -> None:
    figure = plot_curves(np.array([10.0, 20.0]), {"ldm-s": np.array([[0.1, 0.5], [0.2, 0.6]])})
    png = figure_png(figure)

    blocks = [
        picture(png, "curves"),
        picture(png, "chart", inches=8),
        render_block("table", [{"a": "1"}]),
        render_block("table", []),
    ]
    text = render_page("T", "lead", [Section("S", "text", blocks)], {"teeter": "1"})

    checker = Words()
    checker.feed(text)
    assert checker.open == []
    assert not re.search(r'(src|href)="(?!data:)', text)
    assert "http" not in text.replace("http://www.w3.org", "")


def test_every_block_escapes_text() -> None:
    evil = "<script>alert(1)</script>"

    blocks = [
        render_block("table", [{evil: evil}]),
        render_block("paragraph", evil),
        render_block("code", evil),
        render_block("notes", [evil]),
        render_block("details", evil, {evil: evil}),
    ]
    text = render_page(
        evil, evil, [Section(evil, evil, blocks)], {evil: evil}, findings=[evil], notes=[evil]
    )

    assert "<script>" not in text
    assert text.count("&lt;script&gt;") == 17
