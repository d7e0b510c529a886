"""Run the blocks of a tutorial in order, and compare what commands print with the page."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence

import pytest

from cli.commands import CommandRunner
from teeter.cli import app, label_prompt

__all__ = ["Block", "read_blocks", "run_blocks"]

BLOCK = re.compile(
    r'^```(python title="[^"]+"|console)\n(.*?)^```$', flags=re.MULTILINE | re.DOTALL
)

CLASS_COUNTS = "CLASS COUNTS"

Block = tuple[str, str]


def read_blocks(text: str) -> list[Block]:
    """Return the kind and text of each block."""
    return BLOCK.findall(text)


def mask(line: str, texts: Collection[str] = ()) -> str:
    """Replace what may differ between machines: numbers, and which message comes next.

    Training on another processor rounds differently, and after a hundred answers another message
    may be the most informative one.
    """
    if line in texts:
        return "A MESSAGE"
    if "\t" in line:
        return " ".join(mask(field, texts) for field in line.split("\t"))
    if re.fullmatch(r"[0-9a-f]{12}", line):
        return "AN ID"

    # Classes are listed by the number of their labels, so their order depends on it.
    if re.fullmatch(r"(?:[\w-]+ \d+,? ?)+", line):
        return CLASS_COUNTS

    line = re.sub(r"\b(ham|spam)\b", "CLASS", line)
    return re.sub(r"[-+]?\d[\d,.]*", "N", line)


def mask_all(lines: Sequence[str], texts: Collection[str]) -> str:
    """Mask lines and join them: where a sentence is wrapped depends on its numbers."""
    masked = " ".join(" ".join(mask(line, texts) for line in lines).split())
    # Whether the accuracy on few items rose or fell, or which of the two cannot be told, is chance.
    masked = re.sub(
        r"(There are too few random items to tell whether the accuracy changed"
        r"|The accuracy (rose|fell)) over the last three models",
        "CHANGE OF THE ACCURACY",
        masked,
    )
    return masked.replace(f"{CLASS_COUNTS} {CLASS_COUNTS}", CLASS_COUNTS)


def check_output(command: str, shown: Sequence[str], output: str, texts: Collection[str]) -> None:
    """Check that an output has the documented lines in order. A line "…" stands for any lines."""
    if not shown:
        assert output == ""
        return

    remaining = mask_all(output.splitlines(), texts)
    for passage in "\n".join([*shown, ""]).split("…\n"):
        expected = mask_all(passage.splitlines(), texts)
        assert expected in remaining, f"{command} does not show {passage!r}: {output}"
        remaining = remaining.split(expected, 1)[1] if expected else remaining


def run_blocks(
    blocks: Sequence[Block],
    keys_for: Callable[[list[str]], Iterator[str]] = lambda words: iter(()),
    texts: Collection[str] = (),
    *,
    after_command: Callable[[list[str]], None] = lambda words: None,
    replace: Callable[[str], str] = lambda text: text,
) -> int:
    """Run blocks and check what their commands print.

    Args:
        blocks: Python code and console sessions.
        keys_for: returns the keys that are typed into a command.
        texts: the messages, any of which may be shown.
        after_command: is called after each command, to do what a person would do next.
        replace: changes a session before it is run, such as the address of a server.

    Returns:
        The number of commands.
    """
    count = 0
    for kind, text in blocks:
        if kind != "console":
            exec(compile(text, "tutorial", "exec"), {})
            continue

        for session in replace(text).split("$ teeter ")[1:]:
            command, *shown = session.splitlines()
            words = shlex.split(command)
            keys = keys_for(words)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(label_prompt, "_read_key", lambda keys=keys: next(keys, "\x1b"))
                result = CommandRunner().invoke(app, words)
            assert result.exit_code == 0, result.output
            # A server prints its address, which the page leaves out.
            if words[0] != "serve":
                check_output(command, shown, result.output, texts)
            after_command(words)
            count += 1
    return count
