"""Write the reference from the docstrings and from the help of the commands.

It also writes the list that ``teeter strategies`` prints.

``python docs/reference/generate.py`` replaces the text between ``<!-- NAME -->`` and ``<!-- end
-->``. The rest of a page is written by hand. NAME is a Python name or a command. A test fails if a
page is out of date.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

from teeter.cli.installation import write_strategy_list

HERE = Path(__file__).parent
PAGES = (HERE / "python.md", HERE / "command_line.md")
WIDTH = 100
ADAPTERS = (
    "teeter.models.huggingface",
    "teeter.models.sentence_transformers",
    "teeter.training.lightning",
)
"""These modules are parsed, not imported, because their libraries may not be installed."""
BLOCK = re.compile(r"<!-- (teeter[^>]*?) -->\n.*?<!-- end -->", flags=re.DOTALL)

Function = ast.FunctionDef | ast.AsyncFunctionDef


def fill_entries(text: str) -> str:
    """Return a page with every block up to date."""
    return BLOCK.sub(
        lambda match: f"<!-- {match[1]} -->\n\n{entry(match[1])}\n\n<!-- end -->", text
    )


def entry(name: str) -> str:
    """Return the entry of a Python name, of a command, or of a package (``teeter.data.*``)."""
    if name.endswith(".*"):
        return package_entry(name.removesuffix(".*"))
    return command_entry(name.split()[1:]) if " " in name else python_entry(name)


# ---- Python


def python_entry(name: str) -> str:
    """Return the signature and the docstring, for a class also its values and members; or the tree
    of errors.
    """
    if name == "teeter.errors":
        return (
            f"```text\n{(import_module(name).__doc__ or '').partition(chr(10) * 2)[2].strip()}\n```"
        )
    node, home = node_of(name)
    short = name if name.count(".") == 1 else name.rpartition(".")[2]
    if isinstance(node, ast.ClassDef):
        text = "\n\n".join(class_parts(node, short))
    else:
        text = "\n\n".join([fenced(signature(node, short)), *prose(ast.get_docstring(node) or "")])
    return replace_constants(text, home)


def package_entry(package: str) -> str:
    """Return a table of the names that a package offers."""
    rows = [(f"`{name}`", describe_name(package, name)) for name in import_module(package).__all__]
    return table("name", rows)


def describe_name(package: str, name: str) -> str:
    """Return the first line of the docstring of a name in a package."""
    defined = definitions(package, name)
    if defined:
        return first_line(ast.get_docstring(defined[-1]) or "")

    imports = (node for node in ast.walk(parse_module(package)) if isinstance(node, ast.ImportFrom))
    home = next((node.module for node in imports if name in {item.name for item in node.names}), "")
    if home and find_module(f"{home}.{name}"):
        return first_line(ast.get_docstring(parse_module(f"{home}.{name}")) or "")
    if home:
        return describe_name(home, name)
    return constant_docstring(parse_module(package), name)


def constant_docstring(module: ast.Module, name: str) -> str:
    """Return the docstring below a constant, or an empty text."""
    for statement, after in pairwise(module.body):
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        is_named = any(ast.unparse(target) == name for target in targets)
        if is_named and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            return first_line(str(after.value.value))
    return ""


def find_module(name: str) -> Path | None:
    """Return the path of a module, or None if it is no module."""
    path = HERE.parents[1].joinpath("src", *name.split("."))
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    return next((candidate for candidate in candidates if candidate.exists()), None)


def parse_module(name: str) -> ast.Module:
    """Return the syntax tree of a module, which is not imported."""
    path = find_module(name)
    assert path is not None
    return ast.parse(path.read_text(encoding="utf-8"))


def replace_constants(text: str, home: str) -> str:
    """Return signatures with the values of constants instead of their names."""
    if home.startswith(ADAPTERS):
        return text
    module = import_module(home)

    def replace_constant(match: re.Match[str]) -> str:
        value = getattr(module, match[2], None)
        if value is None:
            return match[0]
        if isinstance(value, str):
            return f'{match[1]}"{value}"'
        return f"{match[1]}{value}"

    return re.sub(r"(= ?)([A-Z][A-Z_]+)\b", replace_constant, text)


def class_parts(node: ast.ClassDef, name: str) -> Iterator[str]:
    constructor = next((method for method in functions(node) if method.name == "__init__"), None)
    if constructor is not None and (ast.get_docstring(constructor) or "").startswith("Use "):
        constructor = None  # not for users to call

    values = list(attributes(node))
    if constructor is not None:
        yield fenced(signature(constructor, name))
    elif is_dataclass(node) and values:
        fields = [f"{field}{default}" for field, default, _ in values]
        yield fenced(format_call(name, fields))

    yield from prose(ast.get_docstring(node) or "")
    if constructor is not None:
        paragraphs = prose(ast.get_docstring(constructor) or "")
        yield from (part for part in paragraphs if part.startswith("|"))

    documented = [(field, docstring) for field, _, docstring in values if docstring]
    if documented:
        rows = [(f"`{field.split(':')[0]}`", docstring) for field, docstring in documented]
        yield table("value", rows)

    members = []
    for method in functions(node):
        docstring = ast.get_docstring(method)
        if docstring and not method.name.startswith("_"):
            members.append((f"`{method_name(method)}`", first_line(docstring)))
    if members:
        yield table("member", members)


def method_name(node: Function) -> str:
    """Return the name of a method with its arguments, without types. Properties have none."""
    decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
    if "property" in decorators:
        return node.name
    return f"{node.name}({', '.join(arguments(node, typed=False))})"


@cache
def node_of(name: str) -> tuple[ast.ClassDef | Function, str]:
    """Return the definition of a name and its module.

    Of overloads, the last one is the implementation.
    """
    module, _, attribute = name.rpartition(".")
    if module.startswith(ADAPTERS):
        return definitions(module, attribute)[-1], module
    home = getattr(getattr(import_module(module), attribute), "__module__", module)
    return definitions(home, attribute)[-1], home


def definitions(module: str, name: str) -> list[ast.ClassDef | Function]:
    return [
        statement
        for statement in parse_module(module).body
        if isinstance(statement, ast.ClassDef | Function) and statement.name == name
    ]


def functions(node: ast.ClassDef) -> list[Function]:
    return [statement for statement in node.body if isinstance(statement, Function)]


def is_dataclass(node: ast.ClassDef) -> bool:
    return any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)


def attributes(node: ast.ClassDef) -> Iterator[tuple[str, str, str]]:
    """Yield the name and type of each public value, its default, and the docstring below it."""
    for field, after in zip(node.body, [*node.body[1:], None], strict=True):
        if not isinstance(field, ast.AnnAssign) or ast.unparse(field.target).startswith("_"):
            continue

        default = ""
        docstring = ""
        value = field.value
        if isinstance(value, ast.Call) and ast.unparse(value.func) == "setting":
            # A setting of a campaign says in its declaration what it is.
            value, help_text, *_ = value.args
            docstring = str(ast.literal_eval(help_text))
        if value is not None:
            default = f" = {format_code(value)}"
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            docstring = str(after.value.value)
        yield (
            f"{ast.unparse(field.target)}: {format_code(field.annotation)}",
            default,
            plain(docstring),
        )


def signature(node: Function, name: str) -> str:
    """Return a signature, with one line per argument if one line is too short."""
    returns = ""
    if node.returns and node.name != "__init__":
        returns = f" -> {format_code(node.returns)}"
    return format_call(name, arguments(node)) + returns


def format_call(name: str, parameters: list[str]) -> str:
    line = f"{name}({', '.join(parameters)})"
    if len(line) <= WIDTH:
        return line
    return f"{name}(\n" + "".join(f"    {parameter},\n" for parameter in parameters) + ")"


def arguments(node: Function, *, typed: bool = True) -> list[str]:
    """Return arguments with their defaults, and if ``typed`` with their types."""
    declared = node.args
    positional = [*declared.posonlyargs, *declared.args]
    defaults = [None] * (len(positional) - len(declared.defaults)) + list(declared.defaults)
    parameters = [
        format_parameter(parameter, default, typed)
        for parameter, default in zip(positional, defaults, strict=True)
        if parameter.arg not in ("self", "cls")
    ]

    if declared.vararg:
        parameters.append(f"*{format_parameter(declared.vararg, None, typed)}")
    elif declared.kwonlyargs:
        parameters.append("*")
    parameters += [
        format_parameter(parameter, default, typed)
        for parameter, default in zip(declared.kwonlyargs, declared.kw_defaults, strict=True)
    ]

    if declared.kwarg:
        parameters.append(f"**{format_parameter(declared.kwarg, None, typed)}")
    return parameters


def format_parameter(parameter: ast.arg, default: ast.expr | None, typed: bool) -> str:
    text = parameter.arg
    equals = "="
    if typed and parameter.annotation:
        text += f": {format_code(parameter.annotation)}"
        equals = " = "
    if default is not None:
        text += f"{equals}{format_code(default)}"
    return text


def format_code(node: ast.expr) -> str:
    """Return code with double quotes, and empty containers instead of default factories."""
    code = ast.unparse(node)
    code = code.replace("field(default_factory=dict)", "{}")
    code = code.replace("field(default_factory=list)", "[]")
    return re.sub(r"'([^'\"]*)'", r'"\1"', code)


def prose(docstring: str) -> Iterator[str]:
    """Yield the paragraphs of a docstring. Arguments and errors become tables."""
    for part in re.split(r"\n\n+", docstring):
        if part.startswith("Args:\n"):
            documented = re.findall(
                r"^(\*{0,2}\w+): (.*?)(?=^\S|\Z)",
                textwrap.dedent(part[6:]),
                re.MULTILINE | re.DOTALL,
            )
            yield table("argument", [(f"`{name}`", plain(text)) for name, text in documented])

        elif part.startswith("Returns:\n"):
            yield f"Returns: {plain(part[9:])}"
        elif part.startswith("Raises:\n"):
            errors = re.findall(
                r"^(\w+): (.*?)(?=^\S|\Z)", textwrap.dedent(part[8:]), re.MULTILINE | re.DOTALL
            )
            yield table("error", [(f"`{name}`", plain(text)) for name, text in errors])

        elif part.startswith("Example:\n"):
            yield fenced(textwrap.dedent(part[9:]).rstrip())
        elif part.strip():
            yield plain(part)


def first_line(docstring: str) -> str:
    return plain(docstring.split("\n\n")[0])


def plain(text: str) -> str:
    """Return a text as one line of Markdown."""
    return " ".join(text.split()).replace("``", "`")


# ---- the command line


@cache
def find_command(words: tuple[str, ...]) -> Any:
    from typer.main import get_command

    from teeter.cli import app

    command: Any = get_command(app)
    for word in words:
        command = command.commands[word]
    return command


def command_entry(words: list[str]) -> str:
    """Return the ``--help`` text of a command as Markdown."""
    command = find_command(tuple(words))
    parts = [as_markdown(paragraph) for paragraph in (command.help or "").split("\n\n")]
    positionals = [part for part in command.params if part.param_type_name == "argument"]
    options = [part for part in command.params if part.param_type_name == "option"]

    usage = ["teeter", *words, *(format_argument(argument) for argument in positionals)]
    usage += [f"{option.opts[0]} {option.metavar}" for option in options if option.required]
    if any(not option.required for option in options):
        usage.append("[OPTIONS]")
    parts.append(f"```text\n{' '.join(usage)}\n```")

    rows = [(f"`{argument.metavar.strip('[].')}`", argument.help) for argument in positionals]
    for option in options:
        names = ", ".join(f"`{name}`" for name in option_names(option))
        rows.append((names, option_help(option)))
    if rows:
        parts.append(table("argument or option" if positionals else "option", rows))
    return "\n\n".join(parts)


def as_markdown(paragraph: str) -> str:
    """Return a paragraph of a help text. Examples, which Click does not wrap, become code."""
    lines = textwrap.dedent(paragraph).strip("\n").splitlines()
    if lines and lines[0].strip() == "\b":
        title, *commands = lines[1:]
        code = textwrap.dedent("\n".join(commands))
        return f"{title.strip()}\n\n```bash\n{code}\n```"
    return "\n".join(lines).strip()


def format_argument(argument: Any) -> str:
    """Return an argument as the usage line shows it."""
    name = argument.metavar
    if not argument.required:
        name = f"[{name}]"
    if argument.nargs != 1 and not name.endswith("..."):
        name += "..."
    return str(name)


def option_names(option: Any) -> list[str]:
    """Return the names of an option, the last one with the name of its value."""
    names = [*option.opts, *option.secondary_opts]
    if option.metavar and not option.is_flag:
        names[-1] = f"{names[-1]} {option.metavar}"
    return names


def option_help(option: Any) -> str:
    """Return the help of an option, with its default unless the text gives it."""
    text = option.help.rstrip(".")
    default = option.default
    if option.is_flag or default in (None, "") or "Default:" in text:
        return f"{text}."
    return f"{text}. Default: {default}."


# ---- Markdown


def table(head: str, rows: list[tuple[str, str]]) -> str:
    lines = [f"| {name} | {text.replace('|', chr(92) + '|')} |" for name, text in rows]
    return "\n".join([f"| {head} | meaning |", "| --- | --- |", *lines])


def fenced(code: str) -> str:
    return f"```py\n{code}\n```"


if __name__ == "__main__":
    write_strategy_list()
    for page in PAGES:
        page.write_text(fill_entries(page.read_text(encoding="utf-8")), encoding="utf-8")
