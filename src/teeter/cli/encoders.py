"""teeter encoders: list the encoders of texts and images."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

import typer

from teeter.cli.options import JsonOption
from teeter.cli.output import echo_json, print_table

__all__ = ["encoders"]


@dataclass(frozen=True)
class _EncoderRow:
    """An encoder in the list."""

    name: str
    reads: str
    is_installed: bool
    package: str | None
    """The package with its weights."""
    licence: str | None
    """The licence of its weights."""
    about: str


def encoders(as_json: JsonOption = False) -> None:
    """List the encoders, with what they read, their weights and their licences.

    auto stands for the best installed encoder. The option --encoder also accepts a
    sentence-transformers or transformers model, given by its folder, its package or its name on the
    hub; a Python function, written package.module:function; or a model behind an OpenAI-compatible
    embeddings endpoint, written http://HOST/v1#MODEL.
    """
    from teeter.encoders import ContentKind, choose_encoder, names

    rows = [_describe(name) for name in names()]
    if as_json:
        echo_json(rows)
        return

    table = []
    for row in rows:
        package = row.package or ""
        if not row.is_installed:
            package += " (not installed)"
        table.append([row.name, row.reads, package, row.licence or "", row.about])
    print_table(["name", "reads", "weights", "licence", "about"], table, has_sentences=True)

    for kind in ContentKind:
        typer.echo(f"auto for {kind}s: {choose_encoder(kind).sentence}")


def _describe(name: str) -> _EncoderRow:
    from teeter.encoders import encoders as registry
    from teeter.encoders import is_installed
    from teeter.errors import PluginError

    try:
        encoder_class = registry.get(name)
    except PluginError as error:
        # A broken plugin must not hide the others.
        return _EncoderRow(name, "", False, None, None, str(error))

    package = encoder_class.package
    docstring = inspect.getdoc(encoder_class) or ""
    return _EncoderRow(
        name=name,
        reads=f"{encoder_class.kind}s",
        is_installed=is_installed(name),
        package=None if package is None else package.distribution,
        licence=None if package is None else package.licence,
        # The first line is a summary. A table has no room for more.
        about=docstring.partition("\n")[0],
    )
