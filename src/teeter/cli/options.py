"""Arguments and options that several commands share.

An option is an ``Annotated`` alias, so that it has the same name, metavar and help everywhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "DEFAULT_ANNOTATOR",
    "AnnotatorOption",
    "CampaignArgument",
    "DescribeOption",
    "DeviceOption",
    "JsonOption",
    "SeedOption",
    "TextOption",
    "split_names",
]

# The library has the same default, but importing it takes seconds.
DEFAULT_ANNOTATOR = "me"

# Each alias is used by two or more commands. Options of one command are in its file.
CampaignArgument = Annotated[
    str,
    typer.Argument(
        metavar="CAMPAIGN",
        help="Campaign file, FILE#NAME if the file holds several campaigns, or "
        "postgresql://…#NAME.",
    ),
]
DescribeOption = Annotated[
    Path | None,
    typer.Option(
        "--describe",
        metavar="FILE",
        help="TOML or CSV file that says what the classes mean, for annotators and models.",
    ),
]
AnnotatorOption = Annotated[str, typer.Option("--as", metavar="NAME", help="Annotator name.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
SeedOption = Annotated[
    int, typer.Option(metavar="NUMBER", help="Random seed; the same seed gives the same picks.")
]
TextOption = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Column of texts, several columns separated by commas, or a template such as "
        "'{title}: {body}'. Default: text, or a similar common name.",
    ),
]
DeviceOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="cpu or cuda. Default: a GPU if there is one."),
]


def split_names(text: str) -> list[str]:
    """Split a comma-separated list. Blank names stay, so that the check of the names reports them.

    Example:
        >>> split_names("ham, spam")
        ['ham', 'spam']
    """
    return [name.strip() for name in text.split(",")]
