"""Everything the README and the docs show runs, and every figure in them comes from a committed
result.
"""

from __future__ import annotations

import json
import re
import runpy
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import strategy_check_table
import teeter
from teeter import strategies
from teeter.checks import kinds_of_rows
from teeter.strategies.base import registry

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
RESULTS = ROOT / "research" / "speed" / "results"


LIBRARIES = {
    "lightning": ["lightning", "LightningTraining"],
    "skorch": ["skorch"],
    "transformers": ["transformers", "labels_of", "ForSequenceClassification"],
    "sentence_transformers": ["SentenceEncoder"],
}
OPTIONAL = [
    word for library, words in LIBRARIES.items() if find_spec(library) is None for word in words
]
"""A snippet with one of these words needs a library that is not installed, and is left out."""


def read_snippets(page: Path) -> str:
    """Return the page's Python, in order, as one script."""
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return "\n".join(block for block in blocks if not any(name in block for name in OPTIONAL))


def pages_with_snippets() -> list[Any]:
    """Return a case for each page; those that take seconds are slow."""
    expensive = {
        "notebook.md",
        "python.md",
        "run_the_benchmark.md",
        "when_to_stop.md",
    }

    cases = []
    for page in PAGES:
        if read_snippets(page):
            marks = [pytest.mark.slow] if page.name in expensive else []
            cases.append(pytest.param(page, marks=marks, id=page.name))
    return cases


@pytest.mark.parametrize("page", pages_with_snippets())
def test_snippets_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_classes", dict(registry._classes))
    # A module, so that what it defines can be found by name.
    module = ModuleType("snippet")
    monkeypatch.setitem(sys.modules, "snippet", module)
    exec(compile(read_snippets(page), str(page), "exec"), module.__dict__)


@pytest.mark.parametrize(
    ("library", "page"),
    [("modAL", "from_modal.md"), ("scikit-activeml", "from_scikit_activeml.md")],
)
def test_what_you_write_here_runs_in_the_order_of_the_table(
    library: str, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ROOT / "docs" / "how_to" / page).read_text()
    monkeypatch.chdir(tmp_path)

    setup = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)[0]
    table = text.split(f"| {library} | teeter |\n")[1].split("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[1:]]
    assert len(rows) > 10
    assert all(len(row) == 2 for row in rows)

    namespace: dict[str, object] = {}
    exec(setup, namespace)
    for code in [code for row in rows for code in re.findall(r"`([^`]+)`", row[1])]:
        if code in ("needs", "choose"):
            continue
        if re.fullmatch(r'"[a-z-]+"', code):
            assert code.strip('"') in strategies.names()
        exec(code, namespace)


def read_anchors(page: Path) -> set[str]:
    """Return the anchors of a page's titles, as the site and GitHub make them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", title.lower())) for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_inside_the_repository_lead_somewhere(page: Path) -> None:
    for link, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", page.read_text()):
        if "://" in link:
            continue

        target = page.parent / link if link else page
        assert target.exists(), f"{page.name} links to {link}"
        if anchor:
            assert anchor in read_anchors(target), f"{page.name} links to {link}#{anchor}"


def test_the_readme_has_its_parts() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    first_part, rest = text.split("\n## ", 1)
    for words in ("annotation", "active learning", "Data labeling", "human in the loop"):
        assert words in first_part, "what people search for"
    assert first_part.index("labelling.gif") < first_part.index("teeter try")

    example = re.search(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert example
    assert len(example[1].strip().splitlines()) <= 12
    for words in (
        "make demo",
        "make test",
        "| not for | use instead |",
        "| you have | start here |",
    ):
        assert words in rest
    assert f"[{len(strategies.names())} strategies]" in rest


def test_the_animation_is_small_and_moves() -> None:
    image = pytest.importorskip("PIL.Image")
    path = ROOT / "docs" / "readme" / "labelling.gif"
    assert path.stat().st_size < 2_000_000
    with image.open(path) as animation:
        assert animation.n_frames > 20
        assert animation.info["loop"] == 0


@pytest.mark.parametrize("name", ["README.md", "docs/index.md", "docs/how_to/choose.md"])
def test_figures_come_from_committed_results(name: str) -> None:
    script = runpy.run_path(str(ROOT / "docs" / "readme" / "figures.py"))
    page = ROOT / name
    assert page in script["PAGES"]
    text = page.read_text(encoding="utf-8")
    assert "<!-- figures: " in text
    assert text == script["fill_figures"](text), f"{name}: run python docs/readme/figures.py"


def test_measurements_of_rays_are_the_committed_results() -> None:
    speed = runpy.run_path(str(ROOT / "research" / "speed" / "pages.py"))
    rays = runpy.run_path(str(ROOT / "research" / "rays" / "page.py"))
    assert speed["RAYS_PAGE"] == rays["PAGE"]
    text = rays["PAGE"].read_text(encoding="utf-8")
    assert text == speed["fill_rays_page"](text), "run python research/speed/pages.py"
    assert text == rays["fill_page"](text), "run python research/rays/page.py"


@pytest.mark.parametrize("name", ["all_cpu", "all_h200"])
def test_floors_are_those_that_the_benchmark_estimates(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(RESULTS.parent))
    script = runpy.run_path(str(RESULTS.parent / "bench_all.py"))
    result = json.loads((RESULTS / f"{name}.json").read_text())

    for row in result["table"]:
        case = script["SelectionCase"](*(row[size] for size in ("strategy", "N", "D", "C", "n")))

        estimated = script["build_row"](
            case,
            script["Cost"](seconds=row["teeter (s)"], peak_mb=0.0),
            {},
            result["rates"],
            subspace=result.get("subspace"),  # results from before there were any have none
        )

        assert (row["floor (s)"], row["times the floor"]) == (
            estimated["floor (s)"],
            estimated["times the floor"],
        )
        assert row["floor (s)"] is None or row["times the floor"] >= 1, (
            "nothing is faster than the floor"
        )


def test_figures_are_made_by_their_scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for script in sorted((ROOT / "docs" / "figures").glob("*.py")):
        out = tmp_path / f"{script.stem}.svg"
        monkeypatch.setattr(sys, "argv", [str(script), str(out)])
        runpy.run_path(str(script), run_name="__main__")
        assert (
            out.read_text(encoding="utf-8").count("<path")
            + out.read_text(encoding="utf-8").count("<rect")
            > 15
        )


def test_the_table_of_checks_is_made_from_the_tests() -> None:
    text = strategy_check_table.PAGE.read_text(encoding="utf-8")
    assert text == strategy_check_table.fill_page(text), "run python tests/strategy_check_table.py"
    assert set(strategy_check_table.marks()) == set(strategies.names()), (
        "every strategy is checked against something"
    )


@pytest.mark.slow
def test_the_tables_of_the_paper_s_runs_are_made_from_the_runs() -> None:
    script = runpy.run_path(str(ROOT / "research" / "paper" / "pages.py"))
    text = script["PAGE"].read_text(encoding="utf-8")
    assert text == script["fill_page"](text), "run python research/paper/pages.py"


def test_the_page_of_speed_is_made_from_the_results() -> None:
    script = runpy.run_path(str(ROOT / "research" / "speed" / "pages.py"))
    assert script["PAGE"].read_text() == script["build_page"](), (
        "run python research/speed/pages.py"
    )
    assert "e+0" not in script["build_page"](), "large numbers are written in full"
    measured = {
        row["strategy"] for row in json.loads((RESULTS / "growth_cpu.json").read_text())["growth"]
    }
    assert measured == set(strategies.names()), "every strategy has a row"


def test_the_measurements_of_campaigns_are_made_from_the_results() -> None:
    script = runpy.run_path(str(ROOT / "research" / "campaigns" / "simulate.py"))
    text = script["PAGE"].read_text(encoding="utf-8")
    assert text == script["fill_page"](text), "run python research/campaigns/simulate.py page"
    for name in script["SECTIONS"]:
        assert set(script["read_result"](name)["curves"]) == set(script["ARMS"])


def test_the_measurements_of_encoders_are_the_committed_results() -> None:
    script = runpy.run_path(str(ROOT / "research" / "encoders" / "measure.py"))
    text = script["PAGE"].read_text(encoding="utf-8")
    assert text == script["fill_page"](text), "run python research/encoders/measure.py page"
    for name in script["measured_datasets"]():
        kind = script["DATASETS"][name].kind
        assert set(script["read_result"](name)["curves"]) == set(script["ENCODERS"][kind])


def test_the_measurements_of_priors_are_made_from_the_results() -> None:
    script = runpy.run_path(str(ROOT / "research" / "priors" / "simulate.py"))
    text = script["PAGE"].read_text(encoding="utf-8")
    assert text == script["fill_page"](text), "run python research/priors/simulate.py page"
    for name in script["SECTIONS"]:
        result = script["read_result"](name)
        assert set(result["curves"]) == set(script["ARMS"])
        for arm in script["BAD_ARMS"]:
            gains = script["gains_at"](result, arm, script["JUDGED_LABELS"])
            assert gains.mean() > -1, f"{arm} may cost at most 1 point"


def test_the_measurements_of_estimates_are_made_from_the_results() -> None:
    script = runpy.run_path(str(ROOT / "research" / "campaigns" / "estimates.py"))
    text = script["PAGE"].read_text(encoding="utf-8")
    assert text == script["fill_page"](text), "run python research/campaigns/estimates.py page"


def test_the_measurements_of_the_pool_head_are_made_from_the_results() -> None:
    script = runpy.run_path(str(ROOT / "research" / "pool_head" / "measure.py"))
    text = script["PAGE"].read_text(encoding="utf-8")
    assert text == script["fill_page"](text), "run python research/pool_head/measure.py page"

    result = json.loads(script["RESULT"].read_text())
    assert not script["worst_cells"](result), "the page says what is worse with a pool head"
    for name in script["CASES"]:
        for column in range(3):  # 1 to 5 labels per class
            gain = script["gains"](result, f"{name}/random", column, "accuracy")[1]
            assert gain.mean() > 2 * script["standard_error"](gain), name


def test_the_page_of_promises_is_made_from_the_results() -> None:
    script = runpy.run_path(str(ROOT / "research" / "promise" / "page.py"))
    assert script["PAGE"].read_text() == script["build_page"](), (
        "run python research/promise/page.py"
    )
    for summary in script["read_result"]()["datasets"].values():
        # What the page and the README claim.
        assert summary["campaigns"] >= 950
        for mode in ("random", "mixed"):
            assert summary[mode]["broken_ever"] <= 0.05
    assert (script["PAGE"].parent / "promise.svg").is_file()


@pytest.mark.slow
def test_the_figures_of_campaigns_are_drawn_from_the_results(tmp_path: Path) -> None:
    script = runpy.run_path(str(ROOT / "research" / "campaigns" / "simulate.py"))
    for name in script["SECTIONS"]:
        drawn = script["draw_figure"](name, tmp_path)
        committed_numbers, drawn_numbers = (
            [float(number) for number in re.findall(r"-?\d+\.\d+", path.read_text())]
            for path in (script["PAGE"].parent / drawn.name, drawn)
        )
        assert committed_numbers == pytest.approx(drawn_numbers, abs=0.1), (
            f"{drawn.name} is of other results"
        )


def test_the_reference_is_made_from_the_docstrings_and_the_help() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "reference" / "generate.py"))

    for page in script["PAGES"]:
        text = page.read_text(encoding="utf-8")
        assert text == script["fill_entries"](text), (
            f"{page.name} is out of date: run python docs/reference/generate.py"
        )

    names = re.findall(
        r"^<!-- (teeter[^>]*) -->$",
        "".join(page.read_text() for page in script["PAGES"]),
        re.MULTILINE,
    )
    assert len(set(names)) == len(names)

    public_names = {f"teeter.{name}" for name in teeter.__all__} - {
        "teeter.TeeterError",
        "teeter.__version__",
        "teeter.bench",
        "teeter.config",
        "teeter.strategies",
    }
    assert public_names <= set(names), "every public name has its entry"

    for module in ("huggingface", "sentence_transformers"):
        file = ROOT / "src/teeter/models" / f"{module}.py"
        (exports,) = re.findall(
            r"^__all__ = \[(.*)\]$", file.read_text(encoding="utf-8"), re.MULTILINE
        )

        ends = {name.rpartition(".")[2] for name in names if f".{module}." in name}
        assert set(re.findall(r'"(\w+)"', exports)) <= ends, (
            f"every public name of {file.name} has its entry"
        )


def test_the_how_tos_tables_are_made_from_what_was_measured() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "how_to" / "measure.py"))
    for page in script["PAGES"]:
        text = page.read_text(encoding="utf-8")
        assert text == script["fill_tables"](text), (
            f"{page.name} is out of date: run python docs/how_to/measure.py"
        )


INTERNAL = {"base", "kernels", "learner", "samples", "cli", "server"}
"""Packages without a list of names for users; ``Learner`` is offered by teeter itself."""


def test_the_reference_lists_what_each_package_offers() -> None:
    """The test above compares each list with ``__all__``."""
    source = ROOT / "src"
    files = [
        *source.glob("teeter/*/__init__.py"),
        *source.glob("teeter/bench/*/__init__.py"),
        *source.glob("teeter/models/*/__init__.py"),
    ]
    packages = {".".join(path.relative_to(source).parts[:-1]) for path in files}
    public = {name for name in packages if name.split(".")[1] not in INTERNAL}
    public -= {name for name in public if not hasattr(import_module(name), "__all__")}
    page = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    assert set(re.findall(r"<!-- (\S+)\.\* -->", page)) == {"teeter", *public}


def test_the_architecture_page_shows_the_layers_of_the_import_contract() -> None:
    packages = runpy.run_path(str(ROOT / "docs" / "figures" / "packages.py"))
    layers = packages["read_layers"]()
    text = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    table = text[: text.index("## Six decisions")]
    rows = [
        re.findall(r"`(\w+)`", row)
        for row in re.findall(r"^\| (`.+?) \|", table, flags=re.MULTILINE)
    ]
    assert rows == layers
    picture = packages["PICTURE"].read_text(encoding="utf-8")
    assert picture == packages["draw"](layers), "run python docs/figures/packages.py"


def test_the_architecture_page_names_files_and_functions_that_exist() -> None:
    text = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    for path, name in re.findall(r"`((?:\w+/)*\w+\.(?:py|html\.jinja))(?:: (\w+))?`", text):
        if path.startswith("tests/"):
            assert (ROOT / path).exists()
            continue

        files = [
            file
            for file in (ROOT / "src" / "teeter").rglob(Path(path).name)
            if str(file).endswith(path)
        ]
        assert len(files) == 1, path
        (file,) = files

        if name:
            assert re.search(rf"(def|class) {name}\b", file.read_text(encoding="utf-8")), (
                f"{path} has no {name}"
            )


SUBPACKAGES = sorted(path.parent.name for path in (ROOT / "src" / "teeter").glob("*/__init__.py"))
IMPORTS = re.compile(r"^\s*(?:from|import) (teeter(?:\.\w+)+)", flags=re.MULTILINE)
DEEP_BY_DESIGN = {"teeter.kernels"}
"""Four kernels share the name of their file: import kernels from their modules."""


@pytest.mark.parametrize(
    "page", [*PAGES, *sorted((ROOT / "examples").glob("*.py"))], ids=lambda page: page.name
)
def test_documented_imports_come_from_the_packages(page: Path) -> None:
    """Files may be renamed, so pages import from ``teeter.bench.datasets``, not from
    ``teeter.bench.datasets.loading``.
    """
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".md":
        text = "\n".join(re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL))
    too_deep = []
    for module in IMPORTS.findall(text):
        parts = module.split(".")
        is_package = (ROOT / "src").joinpath(*parts).is_dir()
        if (
            len(parts) > 2
            and ".".join(parts[:2]) not in DEEP_BY_DESIGN
            and parts[1] in SUBPACKAGES
            and not is_package
        ):
            too_deep.append(module)
    assert too_deep == []


def test_the_comparison_s_figures_are_the_committed_results() -> None:
    rows = [
        row
        for name in ("peers_cpu", "peers_large_cpu")
        for row in json.loads((RESULTS / f"{name}.json").read_text())["peers"]
    ]
    ratios = [row["times faster"] for row in rows if row["times faster"]]
    text = (ROOT / "docs" / "explanation" / "other_libraries.md").read_text()
    assert f"{min(ratios):.1f} to {max(ratios):.1f} times faster in teeter" in text
    several = [name for name in strategies.names() if True in kinds_of_rows(strategies.get(name)())]
    assert (
        f"[{len(strategies.names())}](strategies.md), for one class per row; {len(several)} take "
        "rows of several labels" in text
    )


def test_every_page_is_in_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text()
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if f": {page}\n" not in menu] == []


def test_every_strategy_is_explained() -> None:
    text = (ROOT / "docs" / "explanation" / "strategies.md").read_text()
    for name in strategies.names():
        assert f"`{name}`" in text, f"docs/explanation/strategies.md explains {name}"


def test_readme_and_tutorial_begin_with_the_same_example() -> None:
    pages = [ROOT / "README.md", ROOT / "docs" / "tutorial" / "your_own_model.md"]
    first_blocks = {
        re.search(r"```python\n(.*?)```", page.read_text(), re.DOTALL)[1] for page in pages
    }
    assert len(first_blocks) == 1
