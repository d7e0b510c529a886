"""Group the commands in a group's help by what they are for.

A command names its panel with ``rich_help_panel``, as in any Typer application.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from typer.core import TyperGroup

__all__ = ["Panel", "write_panels"]

# Typer's own panels draw boxes with Rich. Plain sections, as in `git --help`, also suit pipes,
# pagers and screen readers.
_OTHER_COMMANDS = "Commands"

# A short help is cut at this length, so that it is never cut: long ones are wrapped instead.
_NO_LIMIT = 10_000


class Panel(StrEnum):
    """What a command is for, in the order of the help. Pass it as ``rich_help_panel``."""

    START = "Start"
    LABEL = "Label"
    SUGGESTIONS = "Suggestions"
    TEAM = "Team"
    FILES = "Files"
    RESEARCH = "Research"


def write_panels(group: TyperGroup, context: Any, formatter: Any) -> None:
    """Write the commands of a group into its help, one section per panel.

    Args:
        group: the group whose help is shown.
        context: the Click context of the group.
        formatter: Click's help formatter, which is written to.
    """
    panels: dict[str, list[tuple[str, str]]] = {panel.value: [] for panel in Panel}
    panels[_OTHER_COMMANDS] = []

    commands = [(name, group.commands[name]) for name in group.list_commands(context)]
    # A group holds many commands, so it comes before single commands. Sorting keeps their order.
    commands.sort(key=lambda entry: not isinstance(entry[1], TyperGroup))
    width = max((len(name) for name, _ in commands), default=0)

    for name, command in commands:
        panel = getattr(command, "rich_help_panel", None) or _OTHER_COMMANDS
        # All names have one width, so that the columns of all sections are aligned.
        panels[panel].append((f"{name:{width}}", command.get_short_help_str(_NO_LIMIT)))

    for title, rows in panels.items():
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)
