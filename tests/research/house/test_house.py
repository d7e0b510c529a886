"""The figures that ``make check`` compares with the budget."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click
import pytest

from research.house import house as script
from research.house.house import (
    House,
    count_importers,
    find_excess,
    measure,
    read_modules,
    walk_commands,
)

RECORDS = '''
"""Kinds of records."""
from dataclasses import dataclass
from typing import NamedTuple, TypedDict
import attr, attrs
from collections import namedtuple
from pydantic import BaseModel

class Plain: pass
@dataclass(frozen=True)
class Point: x: int
class Pair(NamedTuple): x: int
class Options(TypedDict): x: int
@attrs.define
class Box: x: int
@attr.s(auto_attribs=True)
class Crate: x: int
Triple = namedtuple("Triple", "x y z")
class Request(BaseModel): x: int
class Longer(Request): y: int
'''

READERS = '''
from package.records import Point

def read(connection, path):
    """Read."""
    # A reason.
    return helper(path)

def helper(path):
    return Point(path)
'''


@pytest.fixture
def package(tmp_path: Path) -> Path:
    root = tmp_path / "package"
    (root / "inner").mkdir(parents=True)
    (root / "__init__.py").write_text("from package.records import Point\n")
    (root / "records.py").write_text(RECORDS)
    (root / "readers.py").write_text(READERS)
    (root / "inner" / "__init__.py").write_text("")
    return root


def test_the_figures_of_a_package(package: Path) -> None:
    modules = read_modules(package)
    house = measure(package, modules)

    assert house.files == 4
    assert house.fullest_folder == 3
    assert house.record_types == 8, "all but the plain class"
    assert house.connection_functions == 1
    assert house.below_100_lines == 2
    assert house.used_once_percent == 50, "read is not used, helper once"
    assert count_importers(package, modules) == {"package.records": 1, "package.readers": 0}


def test_docstrings_comments_and_blank_lines_weigh_nothing(package: Path) -> None:
    before = measure(package, read_modules(package))

    path = package / "readers.py"
    path.write_text(path.read_text().replace('"""Read."""', '"""Read it\n\n    all."""\n\n'))

    after = measure(package, read_modules(package))
    assert after.lines > before.lines
    assert after.syntax_nodes == before.syntax_nodes
    assert after.density == before.density


def test_named_steps_lower_the_density(tmp_path: Path) -> None:
    path = tmp_path / "steps.py"
    path.write_text("print(sum(sorted(range(3))))\n")
    nested = measure(tmp_path, read_modules(tmp_path))
    path.write_text("numbers = range(3)\nprint(sum(sorted(numbers)))\n")
    named = measure(tmp_path, read_modules(tmp_path))

    assert nested.density == 9, "four calls of a name, and a constant"
    assert named.density == 11 / 2, "the name of the step twice"
    (sentence,) = find_excess(asdict(nested), {"density": 5.5})
    assert sentence.startswith("density: 9, but the budget is 5.5.")
    assert find_excess(asdict(named), {"density": 5.5}) == []


def test_what_is_beyond_the_budget_is_named(package: Path) -> None:
    figures = asdict(measure(package, read_modules(package)))
    assert find_excess(figures, {"files": 4, "record_types": 8}) == []

    (sentence,) = find_excess(figures, {"files": 3, "record_types": 8})
    assert sentence.startswith("files: 4, but the budget is 3.")


def test_the_check_fails_beyond_the_budget(
    package: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(script, "PACKAGE", package)
    monkeypatch.setattr(script, "BUDGET", tmp_path / "budget.toml")
    (tmp_path / "budget.toml").write_text("files = 4\n")
    assert script.main() == 0
    assert "inner          1 files" in capsys.readouterr().out

    (tmp_path / "budget.toml").write_text("files = 3\n")
    assert script.main() == 1
    assert "files: " in capsys.readouterr().out


def test_the_budget_names_figures() -> None:
    budget = script.tomllib.loads(script.BUDGET.read_text(encoding="utf-8"))
    assert {"files", "syntax_nodes", "record_types", "fullest_folder", "density"} <= set(budget)
    assert set(budget) <= set(House.__dataclass_fields__) | {"commands", "options"}
    assert {"commands", "options"} <= set(budget)


def test_commands_and_options_are_counted() -> None:
    group = click.Group("group", params=[click.Option(["--of-group"])])
    group.add_command(click.Command("first", params=[click.Option(["--on/--off"])]))
    group.add_command(click.Command("second", params=[click.Argument(["file"])]))
    assert [command.name for command in walk_commands(group)] == ["first", "second"]

    group.invoke_without_command = True
    assert [command.name for command in walk_commands(group)] == ["group", "first", "second"]
    counts = script.count_commands()
    assert counts["options"] > counts["commands"] > 10
