"""teeter select: the rows of a file to label next."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from teeter.cli.output import atomic_text_file, progress, require_writable, spinner
from teeter.errors import InputError

if TYPE_CHECKING:
    from teeter.selection.from_file import Selection

__all__ = ["select"]


def select(
    pool: Annotated[
        Path,
        typer.Argument(
            metavar="POOL",
            help="Arrays (.npz, .npy, .safetensors) or a table (.csv, .parquet); with --engine also a folder, or a "
            "pattern in quotes, of Parquet or .npy files.",
        ),
    ],
    *,
    n: Annotated[int, typer.Option("-n", metavar="N", help="How many rows to pick.")],
    strategy: Annotated[
        str, typer.Option(metavar="NAME", help="How to pick; see teeter strategies.")
    ] = "ldm-s",
    head: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The model's last layer, weight and bias, where POOL does not hold it.",
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A model that teeter.save_model wrote: POOL then holds raw rows, and the model makes their features.",
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="The table's column of labels, filled in part: the rows that have one train a head.",
        ),
    ] = None,
    id_column: Annotated[
        str | None,
        typer.Option(
            "--id",
            metavar="COLUMN",
            help="The column or array of ids; id or ids if left out, and the row's number if there is none.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="NUMBER", help="Same seed, same picks.")] = 0,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="cpu or cuda; a GPU if there is one and this is left out."
        ),
    ] = None,
    rays: Annotated[
        int | None,
        typer.Option(
            metavar="R",
            help="Rays that the LDM is estimated with; 512, or 1,024 for a large head, if left out.",
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="An option of the strategy; commas make a list. May be repeated.",
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="local or ray: read the pool in shards, by processes of this machine or a cluster.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Workers of the engine; as many as there are cores if left out.",
        ),
    ] = None,
    work: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER",
            help="Where the engine keeps scores; the same command goes on from there.",
        ),
    ] = Path("teeter-work"),
    reference: Annotated[
        int, typer.Option(min=1, metavar="M", help="Rows on which the engine counts flips.")
    ] = 50_000,
    candidates: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="M",
            help="Rows that an engine's strategy picks from if it needs all at once.",
        ),
    ] = 100_000,
    labelled: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The labelled rows, as POOL has its own, for an engine's strategy that avoids them.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write to this file, whole or not at all; as JSON if it ends in .json.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write JSON, with all that the picks depend on.")
    ] = False,
) -> None:
    """Pick the rows of a file to label next.

    POOL holds features, and --head the model's last layer. Or POOL is a table with a column of labels that is filled
    in part: give its name with --labels, and the labelled rows train a head. Writes CSV: rank, id, row, ldm,
    predicted, margin and, for strategies that have another, score.

    With --model, POOL holds rows as the model takes them, and the model makes the features.

    A pool that does not fit in memory is read in shards with --engine local, or by many machines with --engine ray;
    the picks are the same whatever the number of workers.
    """
    options = dict(_option(text) for text in option or [])
    if out is not None:
        require_writable(out, pool, *(path for path in (head, model) if path is not None))
    started = time.perf_counter()
    if engine is not None:
        if labels is not None or device is not None:
            raise InputError(
                "--labels and --device are for a pool in memory: leave them or --engine out."
            )
        from teeter.selection.from_file import pick_from_shards

        with progress("Picking") as on_progress:
            picks = pick_from_shards(
                pool,
                n=n,
                head=head,
                model=model,
                engine=engine,
                workers=workers,
                work=work,
                strategy=strategy,
                rays=rays,
                reference=reference,
                candidates=candidates,
                labelled=labelled,
                seed=seed,
                id_column=id_column,
                options=options,
                on_progress=lambda what, done, whole: (
                    on_progress(done, whole) if whole > 1 else None
                ),
            )
        _write(picks, out, as_json)
        _summarise(picks, time.perf_counter() - started)
        return
    if labelled is not None or workers is not None:
        raise InputError(
            "--labelled and --workers are for --engine: leave them out, or add --engine local."
        )
    with spinner("Picking"):
        from teeter.selection.from_file import pick_from_file

        picks = pick_from_file(
            pool,
            n=n,
            head=head,
            model=model,
            labels=labels,
            id_column=id_column,
            strategy=strategy,
            rays=rays,
            seed=seed,
            device=device,
            options=options,
        )
    _write(picks, out, as_json)
    _summarise(picks, time.perf_counter() - started)


def _option(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InputError(f"--option {text} is not key=value.")
    values = [_value(part.strip()) for part in value.split(",")]
    return key.strip(), values if len(values) > 1 else values[0]


def _value(text: str) -> bool | float | str:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def _write(picks: Selection, out: Path | None, as_json: bool) -> None:
    if out is None:
        _write_to(sys.stdout, picks, as_json)
        sys.stdout.flush()  # a full disk should be heard of before the summary
        return
    with atomic_text_file(out) as stream:
        _write_to(stream, picks, as_json or out.suffix.lower() == ".json")


def _write_to(stream: Any, picks: Selection, as_json: bool) -> None:
    if as_json:
        stream.write(picks.to_json() + "\n")
    else:
        picks.to_csv(stream)


def _summarise(picks: Selection, seconds: float) -> None:
    facts = picks.facts
    for note in facts.notes:
        typer.echo(note, err=True)
    labelled = f", {facts.labelled} rows labelled" if facts.labelled else ""
    typer.echo(
        f"Picked {facts.n} of {facts.candidates} candidates by {facts.strategy}{labelled}, in {seconds:.1f} s.",
        err=True,
    )
