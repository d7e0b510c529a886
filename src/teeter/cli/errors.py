"""Turn errors of the library into one sentence on stderr and an exit code.

The library names its arguments (``head=``, ``engine='local'``). Here they become the options of the
command that was invoked (``--head``, ``--engine local``).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from teeter.cli.output import write_panels
from teeter.errors import TeeterError, UnknownNameError

__all__ = ["EXIT_INTERRUPTED", "Commands", "use_option_names"]

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130

# An argument as error messages mention it: `head=` before a space, punctuation or the end, or
# `engine='local'`. Paths such as `runs/seed=3/pool.npz` are not mentions.
_ARGUMENT_MENTION = re.compile(
    r"""
    (?<![\w/.=-])
    (?P<name>[a-z]\w*)=
    (?: '(?P<value>[^']*)' | (?=[\s,.;:)] | $) )
    """,
    re.VERBOSE,
)


class Commands(TyperGroup):
    """A command group that reports a user's mistake in one sentence, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the requested command.

        Raises:
            typer.Exit: with code 2 for bad input, 130 after Ctrl-C, 1 if the reader of stdout left.
        """
        # Click forgets the arguments while it invokes the command.
        arguments = [*ctx._protected_args, *ctx.args]

        try:
            result = super().invoke(ctx)
            sys.stdout.flush()  # here, where a full disk or a closed pipe is caught
        except TeeterError as error:
            options = _option_names(self, arguments)
            _exit_with_message(use_option_names(str(error), options))
        except KeyboardInterrupt:
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except BrokenPipeError:
            _discard_output()
            raise typer.Exit(1) from None
        except OSError as error:
            _discard_output()
            path = error.filename or "the output"
            reason = error.strerror or error
            _exit_with_message(f"Cannot read or write {path}: {reason}.")

        return result

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a command. Name the group that has it if it was typed without its group.

        Raises:
            UnknownNameError: the command belongs to a group.
        """
        name = args[0]
        groups = [
            group.name
            for group in self.commands.values()
            if name not in self.commands and name in getattr(group, "commands", {})
        ]
        if groups:
            full_name = f"{ctx.command_path} {groups[0]} {name}"
            further = ""
            if name == "label":
                further = (
                    f" to label in the terminal, or {ctx.command_path} serve to label on a page"
                )
            raise UnknownNameError(
                f"There is no command {ctx.command_path} {name}: run {full_name}{further}."
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands into the help, grouped by panel."""
        write_panels(self, ctx, formatter)


def use_option_names(message: str, options: Mapping[str, str]) -> str:
    """Replace arguments of the library in a message by options of the command line.

    Args:
        message: an error message.
        options: maps names of arguments to options; other arguments are left as they are.

    Example:
        >>> use_option_names("Pass id_column= or engine='local'.", {"id_column": "--id"})
        "Pass --id or engine='local'."
    """

    def replace_mention(mention: re.Match[str]) -> str:
        option = options.get(mention["name"])
        if option is None:
            return mention[0]
        if mention["value"] is None:
            return option
        return f"{option} {mention['value']}"

    return _ARGUMENT_MENTION.sub(replace_mention, message)


def _option_names(group: Any, arguments: Sequence[str]) -> dict[str, str]:
    """Return the options of a command by the names of its parameters.

    Args:
        group: the group that was invoked.
        arguments: what was typed after it. Its first words may name commands and subcommands.
    """
    command = group
    for argument in arguments:
        subcommands = getattr(command, "commands", {})
        if argument not in subcommands:
            break
        command = subcommands[argument]

    options = {}
    for parameter in command.params:
        if parameter.param_type_name == "option":
            options[parameter.name] = parameter.opts[0]
    return options


def _exit_with_message(message: str) -> NoReturn:
    """Print an error and leave with the exit code for bad input."""
    # Paths may contain bytes that are no valid UTF-8; stderr must not fail on them.
    printable = message.encode(errors="backslashreplace").decode()
    typer.echo(f"Error: {printable}", err=True)
    raise typer.Exit(EXIT_BAD_INPUT)


def _discard_output() -> None:
    """Redirect stdout to nowhere: Python flushes it at exit, which would fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
