"""Write the reference from the docstrings and from the help of the commands.

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
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGES = (HERE / "python.md", HERE / "command_line.md")
WIDTH = 100
ADAPTERS = "teeter.adapters."
"""These modules are parsed, not imported, because their libraries may not be installed."""
BLOCK = re.compile(r"<!-- (teeter[^>]*?) -->\n.*?<!-- end -->", flags=re.DOTALL)

Function = ast.FunctionDef | ast.AsyncFunctionDef


def fill_entries(text: str) -> str:
    """Return a page with every block up to date."""
    return BLOCK.sub(
        lambda found: f"<!-- {found[1]} -->\n\n{entry(found[1])}\n\n<!-- end -->", text
    )


def entry(name: str) -> str:
    """Return the entry of a Python name or a command."""
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
    return with_constants(text, home)


def with_constants(text: str, home: str) -> str:
    """Return signatures with the values of constants instead of their names."""
    if home.startswith(ADAPTERS):
        return text
    module = import_module(home)

    def value(found: re.Match[str]) -> str:
        held = getattr(module, found[2], None)
        return (
            f'{found[1]}"{held}"'
            if isinstance(held, str)
            else f"{found[1]}{held}"
            if held is not None
            else found[0]
        )

    return re.sub(r"(= ?)([A-Z][A-Z_]+)\b", value, text)


def class_parts(node: ast.ClassDef, name: str) -> Iterator[str]:
    start = next((one for one in functions(node) if one.name == "__init__"), None)
    if start is not None and (ast.get_docstring(start) or "").startswith("Use "):
        start = None  # not for users to call
    values = list(attributes(node))
    if start is not None:
        yield fenced(signature(start, name))
    elif is_dataclass(node) and values:
        yield fenced(called(name, [f"{one}{default}" for one, default, _ in values]))
    yield from prose(ast.get_docstring(node) or "")
    if start is not None:
        yield from (part for part in prose(ast.get_docstring(start) or "") if part.startswith("|"))
    told = [(one, doc) for one, _, doc in values if doc]
    if told:
        yield table("value", [(f"`{one.split(':')[0]}`", doc) for one, doc in told])
    methods = [
        one for one in functions(node) if not one.name.startswith("_") and ast.get_docstring(one)
    ]
    if methods:
        yield table(
            "member",
            [
                (f"`{method_name(one)}`", first_line(ast.get_docstring(one) or ""))
                for one in methods
            ],
        )


def method_name(node: Function) -> str:
    """Return the name of a method with its arguments, without types. Properties have none."""
    marks = {ast.unparse(one) for one in node.decorator_list}
    if "property" in marks:
        return node.name
    return f"{node.name}({', '.join(arguments(node, typed=False))})"


@cache
def node_of(name: str) -> tuple[ast.ClassDef | Function, str]:
    """Return the definition of a name and its module.

    Of overloads, the last one is the implementation.
    """
    module, _, called = name.rpartition(".")
    if module.startswith(ADAPTERS):
        return definitions(module, called)[-1], module
    home = getattr(getattr(import_module(module), called), "__module__", module)
    return definitions(home, called)[-1], home


def definitions(module: str, name: str) -> list[ast.ClassDef | Function]:
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    body = ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body
    return [one for one in body if isinstance(one, ast.ClassDef | Function) and one.name == name]


def functions(node: ast.ClassDef) -> list[Function]:
    return [one for one in node.body if isinstance(one, Function)]


def is_dataclass(node: ast.ClassDef) -> bool:
    return any("dataclass" in ast.unparse(one) for one in node.decorator_list)


def attributes(node: ast.ClassDef) -> Iterator[tuple[str, str, str]]:
    """Yield the name and type of each public value, its default, and the docstring below it."""
    for one, after in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(one, ast.AnnAssign) and not ast.unparse(one.target).startswith("_"):
            default = "" if one.value is None else f" = {quoted(ast.unparse(one.value))}"
            text = (
                after.value.value
                if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                else ""
            )
            yield (
                f"{ast.unparse(one.target)}: {quoted(ast.unparse(one.annotation))}",
                default,
                plain(str(text)),
            )


def signature(node: Function, name: str) -> str:
    """Return a signature, with one line per argument if one line is too short."""
    returns = (
        f" -> {quoted(ast.unparse(node.returns))}"
        if node.returns and node.name != "__init__"
        else ""
    )
    return called(name, arguments(node)) + returns


def called(name: str, given: list[str]) -> str:
    line = f"{name}({', '.join(given)})"
    if len(line) <= WIDTH:
        return line
    return f"{name}(\n" + "".join(f"    {one},\n" for one in given) + ")"


def arguments(node: Function, *, typed: bool = True) -> list[str]:
    """Return arguments with their defaults, and if ``typed`` with their types."""
    known = node.args
    positional = [*known.posonlyargs, *known.args]
    defaults = [None] * (len(positional) - len(known.defaults)) + list(known.defaults)
    found = [
        written(one, default, typed) for one, default in zip(positional, defaults, strict=True)
    ]
    found = [one for one in found if one.split(":")[0] not in ("self", "cls")]
    if known.vararg:
        found.append(f"*{written(known.vararg, None, typed)}")
    elif known.kwonlyargs:
        found.append("*")
    found += [
        written(one, default, typed)
        for one, default in zip(known.kwonlyargs, known.kw_defaults, strict=True)
    ]
    return found + ([f"**{written(known.kwarg, None, typed)}"] if known.kwarg else [])


def written(one: ast.arg, default: ast.expr | None, typed: bool) -> str:
    kind = f": {quoted(ast.unparse(one.annotation))}" if typed and one.annotation else ""
    sign = " = " if kind else "="
    return f"{one.arg}{kind}" + ("" if default is None else f"{sign}{quoted(ast.unparse(default))}")


def quoted(code: str) -> str:
    """Return code with double quotes, and empty containers instead of default factories."""
    code = code.replace("field(default_factory=dict)", "{}").replace(
        "field(default_factory=list)", "[]"
    )
    return re.sub(r"'([^'\"]*)'", r'"\1"', code)


def prose(docstring: str) -> Iterator[str]:
    """Yield the paragraphs of a docstring. Arguments and errors become tables."""
    for part in re.split(r"\n\n+", docstring):
        if part.startswith("Args:\n"):
            told = re.findall(
                r"^(\*{0,2}\w+): (.*?)(?=^\S|\Z)",
                textwrap.dedent(part[6:]),
                re.MULTILINE | re.DOTALL,
            )
            yield table("argument", [(f"`{name}`", plain(text)) for name, text in told])
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
def command(words: tuple[str, ...]) -> Any:
    from typer.main import get_command

    from teeter.cli import app

    found: Any = get_command(app)
    for word in words:
        found = found.commands[word]
    return found


def command_entry(words: list[str]) -> str:
    """Return the ``--help`` text of a command as Markdown."""
    found = command(tuple(words))
    parts = [as_markdown(paragraph) for paragraph in (found.help or "").split("\n\n")]
    places = [one for one in found.params if one.param_type_name == "argument"]
    options = [one for one in found.params if one.param_type_name == "option"]
    usage = ["teeter", *words, *(sign(one) for one in places)]
    usage += [f"{one.opts[0]} {one.metavar}" for one in options if one.required]
    usage += ["[OPTIONS]"] if any(not one.required for one in options) else []
    parts.append(f"```text\n{' '.join(usage)}\n```")
    rows = [(f"`{one.metavar.strip('[].')}`", one.help) for one in places]
    rows += [(", ".join(f"`{name}`" for name in names(one)), meaning(one)) for one in options]
    if rows:
        parts.append(table("option" if not places else "argument or option", rows))
    return "\n\n".join(parts)


def as_markdown(paragraph: str) -> str:
    """Return a paragraph of a help text. Examples, which Click does not wrap, become code."""
    lines = textwrap.dedent(paragraph).strip("\n").splitlines()
    if lines and lines[0].strip() == "\b":
        title, *commands = lines[1:]
        code = textwrap.dedent("\n".join(commands))
        return f"{title.strip()}\n\n```bash\n{code}\n```"
    return "\n".join(lines).strip()


def sign(argument: Any) -> str:
    """Return an argument as the usage line shows it."""
    name = argument.metavar
    if not argument.required:
        name = f"[{name}]"
    if argument.nargs != 1 and not name.endswith("..."):
        name += "..."
    return str(name)


def names(option: Any) -> list[str]:
    found = [*option.opts, *option.secondary_opts]
    return (
        found
        if option.is_flag or not option.metavar
        else [*found[:-1], f"{found[-1]} {option.metavar}"]
    )


def meaning(option: Any) -> str:
    """Return an option's help, with its default where that is not said."""
    text, default = option.help.rstrip("."), option.default
    silent = option.is_flag or default in (None, "") or "Default:" in text
    return f"{text}." if silent else f"{text}. Default: {default}."


# ---- Markdown


def table(head: str, rows: list[tuple[str, str]]) -> str:
    lines = [f"| {name} | {text.replace('|', chr(92) + '|')} |" for name, text in rows]
    return "\n".join([f"| {head} | meaning |", "| --- | --- |", *lines])


def fenced(code: str) -> str:
    return f"```py\n{code}\n```"


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(fill_entries(page.read_text(encoding="utf-8")), encoding="utf-8")
