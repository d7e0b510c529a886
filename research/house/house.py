"""Print how much there is to hold in mind in the package, and fail if it grew beyond the budget.

    python research/house/house.py          # figures, sizes of packages, and the check
    python research/house/house.py FOLDER   # the figures of another package, to compare

Lines are no measure: joining them changes nothing that a reader must know. What counts is the
number of files, of things that happen (syntax nodes) and of kinds of records, and how much a line
asks of its reader (expression nodes per line of code). ``budget.toml`` has the limits. A feature
may raise one in a commit of its own that says why, but not the density: it names its steps.

Names are matched as text, so "used once" and "imported by one module" are close, not exact.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

HERE = Path(__file__).parent
PACKAGE = HERE.parents[1] / "src" / "teeter"
BUDGET = HERE / "budget.toml"

RECORD_BASES = {"BaseModel", "NamedTuple", "TypedDict"}
RECORD_DECORATORS = {"dataclass", "define", "frozen", "mutable", "attrs", "s"}
RECORD_CALLS = {"namedtuple", "NamedTuple", "TypedDict", "make_dataclass", "make_class"}
"""Functions that return a record type: ``Pair = namedtuple("Pair", "x y")``."""

LIGHT = ast.expr_context | ast.operator | ast.cmpop | ast.boolop | ast.unaryop
"""Nodes that say nothing of their own."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """A parsed file."""

    path: Path
    text: str
    nodes: list[ast.AST]

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())


@dataclass(frozen=True)
class House:
    """The figures of a package. Those with a limit in ``budget.toml`` have its name there."""

    files: int
    lines: int
    syntax_nodes: int
    record_types: int
    fullest_folder: int
    connection_functions: int
    imported_by_one: int
    below_100_lines: int
    used_once_percent: float
    density: float
    docstring_percent: float
    comment_percent: float


def read_modules(root: Path) -> list[Module]:
    """Return the parsed files of a package."""
    modules = []
    for path in sorted(root.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        modules.append(Module(path, text, list(ast.walk(ast.parse(text)))))
    return modules


def measure(root: Path, modules: list[Module]) -> House:
    """Return the figures of a package."""
    plain = [module for module in modules if module.path.name != "__init__.py"]
    lines = sum(module.lines for module in modules)
    docstring_lines = sum(len(find_docstring_lines(module)) for module in modules)
    comment_lines = sum(len(find_comment_lines(module)) for module in modules)
    nodes = sum(isinstance(node, ast.expr) for module in modules for node in module.nodes)
    single = sum(count == 1 for count in count_importers(root, modules).values())
    return House(
        files=len(modules),
        lines=lines,
        syntax_nodes=sum(count_nodes(module) for module in modules),
        record_types=count_records(modules),
        fullest_folder=max(Counter(module.path.parent for module in modules).values()),
        connection_functions=count_connection_functions(modules),
        imported_by_one=single,
        below_100_lines=sum(module.lines < 100 for module in plain),
        used_once_percent=used_once_percent(modules),
        density=nodes / max(1, sum(count_code_lines(module) for module in modules)),
        docstring_percent=100 * docstring_lines / max(1, lines),
        comment_percent=100 * comment_lines / max(1, lines),
    )


def count_nodes(module: Module) -> int:
    """Return the number of syntax nodes, without those of docstrings."""
    nodes = sum(not isinstance(node, LIGHT) for node in module.nodes)
    return nodes - 2 * sum(is_docstring(node) for node in module.nodes)


def is_docstring(node: ast.AST) -> bool:
    """Return whether a node is a text that stands alone."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def find_docstring_lines(module: Module) -> set[int]:
    """Return the numbers of the lines of docstrings."""
    lines: set[int] = set()
    for node in module.nodes:
        if isinstance(node, ast.Expr) and is_docstring(node):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def find_comment_lines(module: Module) -> set[int]:
    """Return the numbers of the lines with a comment."""
    tokens = tokenize.generate_tokens(io.StringIO(module.text).readline)
    return {token.start[0] for token in tokens if token.type == tokenize.COMMENT}


def count_code_lines(module: Module) -> int:
    """Return the number of lines that are neither blank, docstring nor comment."""
    docstrings = find_docstring_lines(module)
    return sum(
        bool(line.strip()) and number not in docstrings and not line.strip().startswith("#")
        for number, line in enumerate(module.text.splitlines(), 1)
    )


def count_records(modules: list[Module]) -> int:
    """Return the number of dataclasses, attrs classes, pydantic models, named tuples and typed
    dictionaries, with all that inherit from them, whether written as classes or as calls.
    """
    classes = [
        node for module in modules for node in module.nodes if isinstance(node, ast.ClassDef)
    ]
    bases = set(RECORD_BASES)
    while True:
        heirs = {
            node.name
            for node in classes
            if node.name not in bases and any(last_name(base) in bases for base in node.bases)
        }
        if not heirs:
            break
        bases |= heirs

    records = 0
    for node in classes:
        decorators = {
            last_name(decorator.func if isinstance(decorator, ast.Call) else decorator)
            for decorator in node.decorator_list
        }
        records += bool(decorators & RECORD_DECORATORS) or node.name in bases

    calls = [node for module in modules for node in module.nodes if isinstance(node, ast.Call)]
    return records + sum(last_name(call.func) in RECORD_CALLS for call in calls)


def count_connection_functions(modules: list[Module]) -> int:
    """Return the number of functions that take a ``connection``."""
    return sum(
        "connection" in {argument.arg for argument in all_arguments(node)}
        for module in modules
        for node in module.nodes
        if isinstance(node, Definition)
    )


def all_arguments(node: Definition) -> list[ast.arg]:
    """Return the named arguments of a function."""
    return [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]


def count_importers(root: Path, modules: list[Module]) -> dict[str, int]:
    """Return, by module, the number of other modules that import it, packages aside."""
    top = root
    while (top.parent / "__init__.py").exists():
        top = top.parent

    importers: dict[str, set[Path]] = defaultdict(set)
    for module in modules:
        if module.path.name == "__init__.py":
            continue
        for node in module.nodes:
            if isinstance(node, ast.ImportFrom) and node.module:
                importers[node.module].add(module.path)
                for alias in node.names:
                    importers[f"{node.module}.{alias.name}"].add(module.path)

    names = (
        ".".join(module.path.relative_to(top.parent).with_suffix("").parts)
        for module in modules
        if module.path.name != "__init__.py"
    )
    return {name: len(importers[name]) for name in names}


def used_once_percent(modules: list[Module]) -> float:
    """Return the share of functions whose name is used in one place."""
    functions = []
    uses: Counter[str] = Counter()
    for module in modules:
        for node in module.nodes:
            if isinstance(node, Definition):
                if not node.decorator_list and not node.name.startswith("__"):
                    functions.append(node.name)
            elif isinstance(node, ast.Name | ast.Attribute):
                uses[last_name(node)] += 1
    return 100 * sum(uses[name] == 1 for name in functions) / max(1, len(functions))


def last_name(node: ast.expr) -> str:
    """Return the last part of a dotted name."""
    if isinstance(node, ast.Subscript):
        return last_name(node.value)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def describe(house: House) -> list[str]:
    """Return the figures as lines."""
    return [
        f"files {house.files}, lines {house.lines:,}, syntax nodes {house.syntax_nodes:,}",
        f"record types {house.record_types}, functions that take a connection "
        f"{house.connection_functions}",
        f"modules in the fullest folder {house.fullest_folder}, imported by one other "
        f"{house.imported_by_one}, below 100 lines {house.below_100_lines}",
        f"functions used once {house.used_once_percent:.0f}%, expression nodes per line of code "
        f"{house.density:.3f}",
        f"docstrings {house.docstring_percent:.1f}% and comments {house.comment_percent:.1f}% "
        "of lines",
    ]


def describe_packages(root: Path, modules: list[Module]) -> list[str]:
    """Return a line with the size of each package."""
    lines = []
    for folder in sorted(path.parent for path in root.glob("*/__init__.py")):
        inside = [module for module in modules if folder in module.path.parents]
        nodes = sum(count_nodes(module) for module in inside)
        lines.append(f"{folder.name:<12} {len(inside):>3} files {nodes:>7,} nodes")
    return lines


def count_commands() -> dict[str, int]:
    """Return the number of commands of ``teeter``, and that of their options.

    A key of the file of ``teeter serve --settings`` is an option, too: a choice that moves into a
    file is still one.
    """
    from typer.main import get_command

    from teeter.cli import app
    from teeter.server.access import ServerSettings

    commands = list(walk_commands(get_command(app)))
    kinds = [parameter.param_type_name for command in commands for parameter in command.params]
    options = kinds.count("option") + count_keys(ServerSettings)
    return {"commands": len(commands), "options": options}


def count_keys(kind: Any) -> int:
    """Return the number of keys of a settings file, with those of its tables."""
    keys = 0
    for field in kind.model_fields.values():
        tables = [part for part in get_args(field.annotation) if hasattr(part, "model_fields")]
        keys += sum(count_keys(table) for table in tables) or 1
    return keys


def walk_commands(command: Any) -> Iterator[Any]:
    """Yield every command below a group. A group that does something by itself is one, too."""
    subcommands = getattr(command, "commands", {})
    if not subcommands or command.invoke_without_command:
        yield command
    for subcommand in subcommands.values():
        yield from walk_commands(subcommand)


def find_excess(figures: dict[str, float], budget: dict[str, float]) -> list[str]:
    """Return a sentence for each figure beyond its limit."""
    return [
        f"{name.replace('_', ' ')}: {figures[name]:,.6g}, but the budget is {limit:,}. "
        f"Simplify, or raise {name} in {BUDGET.name} in a commit of its own that says why."
        for name, limit in budget.items()
        if figures[name] > limit
    ]


def main(folder: str | None = None) -> int:
    """Print the figures; for the package itself return 1 if one is beyond its limit."""
    root = Path(folder) if folder else PACKAGE
    modules = read_modules(root)
    house = measure(root, modules)
    print(*describe(house), sep="\n")
    if folder:
        return 0

    print(*describe_packages(root, modules), sep="\n")
    surface = count_commands()
    print(f"commands {surface['commands']}, options {surface['options']}")
    excess = find_excess(asdict(house) | surface, tomllib.loads(BUDGET.read_text(encoding="utf-8")))
    print(*excess, sep="\n")
    return bool(excess)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
