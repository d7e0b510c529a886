"""teeter select: the rows of a file to label next.

The command is a ``SelectionRequest`` on the command line. ``teeter.selection`` checks the request
and knows the defaults. This module adds only what a terminal needs: the progress, the output file
and the summary.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from teeter.cli.output import (
    DeviceOption,
    SeedOption,
    atomic_text_file,
    parse_option,
    progress,
    require_writable,
    spinner,
    split_pair,
)
from teeter.selection import DEFAULT_STRATEGY

if TYPE_CHECKING:
    from teeter.selection import Selection, SelectionRequest


PoolArgument = Annotated[
    Path,
    typer.Argument(
        metavar="POOL",
        help="Arrays (.npz, .npy, .safetensors) or a table (.csv, .parquet). With --engine, also "
        "a folder or a quoted glob pattern of Parquet or .npy files.",
    ),
]
CountOption = Annotated[int, typer.Option("-n", metavar="N", help="Number of rows to pick.")]
StrategyOption = Annotated[
    str, typer.Option(metavar="NAME", help="Strategy; see teeter strategies.")
]
HeadOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File with the weight and bias of the last layer, if POOL does not hold them.",
    ),
]
ModelOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Model file written by teeter.save_model. POOL then holds inputs from which the "
        "model computes features.",
    ),
]
LabelsOption = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Partly filled label column to train a head on."),
]
IdOption = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="COLUMN",
        help="Column or array of ids. Default: id or ids if present, otherwise row numbers.",
    ),
]
StrategyOptions = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="Strategy option, such as rays=512 or subspace=none. Separate multiple values with "
        "commas. May be repeated.",
    ),
]
EngineOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Read the pool in shards: local for processes on this machine, ray for a cluster.",
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Number of engine workers. Default: one per core."),
]
LabelledOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="With --engine, a file of labelled rows in the same format as POOL, for strategies "
        "that avoid similar rows.",
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write to this file, as JSON if its name ends in .json."),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Write JSON that includes everything the picks depend on.")
]


def select(
    pool: PoolArgument,
    *,
    n: CountOption,
    strategy: StrategyOption = DEFAULT_STRATEGY,
    head: HeadOption = None,
    model: ModelOption = None,
    labels: LabelsOption = None,
    id_column: IdOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = None,
    option: StrategyOptions = None,
    engine: EngineOption = None,
    workers: WorkersOption = None,
    labelled: LabelledOption = None,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Select the rows of a file to label next.

    POOL is one of three things: features, with the model's last layer in --head; a table with a
    partly filled label column, named by --labels, whose labelled rows train a head; or inputs of a
    model, from which --model computes features.

    Writes CSV with the columns rank, id, row, ldm, predicted, margin and, for strategies that rank
    by another score, score.

    If the pool does not fit in memory, read it in shards with --engine local, or on several
    machines with --engine ray. The picks are the same for any number of workers.

    \b
    Examples:
      teeter select pool.npz --head head.npz -n 100 --out picks.csv
      teeter select table.csv --labels label -n 20
      teeter select 'shards/*.parquet' --head head.npz -n 1000 --engine local
    """
    # A selection may take hours: find out first whether its result can be written.
    if out is not None:
        sources = [path for path in (pool, head, model) if path is not None]
        require_writable(out, *sources)
        as_json = as_json or out.suffix.lower() == ".json"

    options = _parse_options(option or [])
    # Includes the import of torch: it is what the user waits for.
    started = time.perf_counter()

    with spinner("Loading"):  # importing torch takes seconds
        from teeter.selection import SelectionRequest

    # Every strategy reports the LDM, so these are not only options of strategies.
    ray_options = {name: options.pop(name) for name in ("rays", "subspace") if name in options}
    request = SelectionRequest(
        pool=pool,
        n=n,
        head=head,
        model=model,
        labels=labels,
        id_column=id_column,
        strategy=strategy,
        seed=seed,
        device=device,
        options=options,
        engine=engine,
        workers=workers,
        labelled=labelled,
        **ray_options,
    )
    selection = _run(request)

    if out is None:
        _write(selection, sys.stdout, as_json=as_json)
    else:
        with atomic_text_file(out) as stream:
            _write(selection, stream, as_json=as_json)
    _print_summary(selection, time.perf_counter() - started)


def _parse_options(texts: list[str]) -> dict[str, Any]:
    """Return the options of a strategy from texts such as ``rays=64``."""
    options: dict[str, Any] = {}
    for text in texts:
        key, value = split_pair("--option", text, "key=value")
        options[key] = parse_option(value)
    return options


def _run(request: SelectionRequest) -> Selection:
    """Run the request and show its progress."""
    from teeter.selection import run_selection

    if request.engine is None:
        with spinner("Picking"):
            return run_selection(request)

    with progress("Picking") as update_bar:

        def on_progress(step: str, done: int, total: int) -> None:
            # Steps without a length, such as fetching rows, would reset the bar.
            if total > 1:
                update_bar(done, total)

        return run_selection(request, on_progress=on_progress)


def _write(selection: Selection, stream: TextIO, *, as_json: bool) -> None:
    """Write the picks as CSV, or with their provenance as JSON."""
    if as_json:
        stream.write(selection.to_json() + "\n")
    else:
        selection.to_csv(stream)

    # A full disk must be reported before the summary claims success.
    stream.flush()


def _print_summary(selection: Selection, seconds: float) -> None:
    """Print the notes and one sentence to stderr: stdout has the picks."""
    provenance = selection.provenance
    for note in provenance.notes:
        typer.echo(note, err=True)

    labelled = ""
    if provenance.labelled:
        labelled = f", {provenance.labelled} rows labelled"
    typer.echo(
        f"Picked {provenance.n} of {provenance.candidates} candidates by {provenance.strategy}"
        f"{labelled}, in {seconds:.1f} s.",
        err=True,
    )
