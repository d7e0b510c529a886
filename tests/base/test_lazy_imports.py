"""Packages that import their names when they are first used: all lists of names agree."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import teeter
from teeter.base.lazy_imports import import_lazily
from teeter.campaigns import Campaign, Settings
from teeter.errors import MissingExtraError

PACKAGES = (
    "teeter.selection",
    "teeter",
    "teeter.campaigns",
    "teeter.bench.datasets",
    "teeter.bench.experiments",
    "teeter.models",
    "teeter.data",
    "teeter.training",
)

LIBRARY = (
    *("base", "bench", "classifier", "data", "encoders"),
    *("kernels", "selection", "strategies", "training"),
)
"""Packages whose modules researchers import from: each module lists its public names."""

OPTIONAL_NAMES = {"Images", "LightningTraining", "SentenceEncoder", "Texts", "labels_of"}
"""What needs a library that may be missing: the tests of its module import it."""


def type_checked_names(package: str) -> set[str]:
    """Return the names that a package imports ``if TYPE_CHECKING``."""
    path = import_module(package).__file__
    assert path is not None
    names: set[str] = set()
    for statement in ast.parse(Path(path).read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            for imported in statement.body:
                assert isinstance(imported, ast.ImportFrom)
                names.update(alias.name for alias in imported.names)
    return names


@pytest.mark.parametrize("package", PACKAGES)
def test_type_checkers_and_dir_see_the_names_that_can_be_imported(package: str) -> None:
    module = import_module(package)
    lazy_names = type_checked_names(package)

    assert lazy_names
    assert lazy_names <= set(module.__all__)
    assert dir(module) == sorted(module.__all__)
    # What is not lazy is in the package from the start.
    assert set(module.__all__) - lazy_names <= set(vars(module))


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_can_be_imported(package: str) -> None:
    module = import_module(package)
    for name in type_checked_names(package):
        try:
            assert getattr(module, name) is not None
        except MissingExtraError:
            assert name in OPTIONAL_NAMES


def public_definitions(tree: ast.Module) -> set[str]:
    """Return what a module defines: public classes, functions and values (no type variables)."""
    names: set[str] = set()
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef):
            names.add(statement.name)
        elif isinstance(statement, ast.AnnAssign):
            names.add(ast.unparse(statement.target))
        elif isinstance(statement, ast.Assign):
            value = ast.unparse(statement.value)
            if not value.startswith(("TypeVar(", "logging.getLogger(")):
                names.update(ast.unparse(target) for target in statement.targets)
    return {name for name in names if name.isidentifier() and not name.startswith("_")}


@pytest.mark.parametrize("package", LIBRARY)
def test_each_module_of_the_library_lists_what_it_defines(package: str) -> None:
    for path in sorted((Path(teeter.__file__).parent / package).rglob("*.py")):
        if path.name == "__init__.py" or "fused" in str(path):
            continue  # nobody outside imports from the fused programs

        tree = ast.parse(path.read_text(encoding="utf-8"))
        (names,) = (
            ast.literal_eval(statement.value)
            for statement in tree.body
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__"
        )
        assert set(names) == public_definitions(tree), path


def test_an_unknown_name_is_refused_as_python_does() -> None:
    get_attribute, _ = import_lazily("teeter", {"errors": ["TeeterError"]})
    with pytest.raises(AttributeError, match=r"module 'teeter' has no attribute 'Learner'"):
        get_attribute("Learner")


def test_a_name_replaced_in_its_module_is_replaced_in_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import teeter.selection
    from teeter.selection import api

    assert teeter.selection.run_selection is api.run_selection
    monkeypatch.setattr(api, "run_selection", "replaced")
    assert teeter.selection.run_selection == "replaced"


def run_without_torch(*lines: str) -> None:
    """Run a program in a process of its own, and check that it did not load torch."""
    program = "\n".join(["import sys", *lines, "assert 'torch' not in sys.modules"])
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)


def test_importing_the_packages_does_not_load_torch() -> None:
    run_without_torch(f"import {', '.join(PACKAGES)}")


def test_importing_a_campaign_does_not_load_scikit_learn() -> None:
    """Commands that only read or store answers fit no model."""
    run_without_torch("import teeter.campaigns.campaign", "assert 'sklearn' not in sys.modules")


def test_records_and_settings_import_the_standard_library_only() -> None:
    """The client, the page, the command line and the worker have them without what is optional."""
    run_without_torch(
        "import teeter.campaigns.records, teeter.campaigns.settings",
        "loaded = {name.partition('.')[0] for name in sys.modules}",
        "assert not loaded & {'numpy', 'sqlalchemy', 'pydantic', 'fastapi', 'typer'}, loaded",
    )


def test_the_client_starts_without_what_computes_and_stores() -> None:
    """A program that only talks to a server waits for none of them."""
    pytest.importorskip("httpx2")
    program = (
        "import sys; sys.modules |= dict.fromkeys(['torch', 'numpy', 'sqlalchemy']); "
        "import teeter.client; from teeter import connect"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_importing_the_server_does_not_load_torch() -> None:
    """The server leaves training to a worker process, so it need not wait for torch."""
    pytest.importorskip("fastapi")
    run_without_torch("import teeter.server.app")


@pytest.mark.parametrize("command", ["serve", "campaign new", "bench"])
def test_help_does_not_load_torch(command: str) -> None:
    run_without_torch(
        "from teeter.cli import main",
        f"sys.argv = ['teeter', *{command.split()!r}, '--help']",
        "try:",
        "    main()",
        "except SystemExit as stopped:",
        "    assert not stopped.code",
    )


@pytest.mark.slow
def test_labelling_what_was_picked_does_not_load_torch(tmp_path: Path) -> None:
    """What a server does for each answer: open the campaign, list picks, store, count."""
    path = tmp_path / "points.teeter"
    settings = Settings(kind="features", overlap=0.5)
    Campaign.make(
        [(f"p{k}", [float(k), 1.0]) for k in range(12)],
        ["left", "right"],
        at=path,
        settings=settings,
    ).database.close()
    campaign = Campaign.open(path)
    campaign.ask(3)
    campaign.database.close()

    run_without_torch(
        "from teeter.campaigns import Campaign",
        f"campaign = Campaign.open({str(path)!r})",
        "first, *_ = campaign.ask(3)",
        "campaign.tell(first.item, 'left')",
        "assert campaign.status().labelled == 1",
        "assert list(campaign.labels()) == [first.item]",
    )


@pytest.mark.slow
def test_commands_that_read_a_list_or_a_database_do_not_load_torch(tmp_path: Path) -> None:
    path = tmp_path / "points.teeter"
    items = [(f"p{k}", [float(k), 1.0]) for k in range(12)]
    Campaign.make(
        items, ["left", "right"], at=path, settings=Settings(kind="features")
    ).database.close()
    commands = [
        ["--version"],
        ["strategies"],
        ["strategies", "--json"],
        ["bench", "datasets"],
        ["bench", "settings"],
        ["status", str(path)],
        ["campaign", "agreement", str(path)],
        ["campaign", "people", str(path)],
        ["campaign", "backup", str(path), str(tmp_path / "backup.teeter")],
    ]

    run_without_torch(
        "from teeter.cli import main",
        f"for command in {commands!r}:",
        "    sys.argv = ['teeter', *command]",
        "    try:",
        "        main()",
        "    except SystemExit as stopped:",
        "        assert not stopped.code, command",
        "    assert 'torch' not in sys.modules, command",
    )


def test_the_command_line_needs_the_core_dependencies_alone() -> None:
    """Packages of extras cannot be imported here; without extras they are not installed."""
    extras = [
        "fastapi",
        "httpx2",
        "jinja2",
        "matplotlib",
        "PIL",
        "pyarrow",
        "sqlalchemy",
    ]

    lines = [f"sys.modules[{name!r}] = None" for name in extras]
    lines += [
        "from typer.testing import CliRunner",
        "from teeter.cli import app",
        "for command in (['--help'], ['strategies'], ['doctor']):",
        "    result = CliRunner().invoke(app, command)",
        "    assert result.exit_code == 0, (command, result.output)",
    ]

    program = "\n".join(["import sys", *lines])
    subprocess.run([sys.executable, "-c", program], check=True)
