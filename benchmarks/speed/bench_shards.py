"""Select from a pool that does not fit in memory: time, reading and memory of each engine.

    python benchmarks/speed/bench_shards.py --rows 10000000 --folder FOLDER --out shards.json

Creates the pool first, as Parquet files, if the folder (12 GB for 10 million rows) has none: rows
of C classes around their centres. Every engine selects in a process of its own, from the rows as
features under a head and, as ``model``, from the same rows as inputs of an MLP. Memory is what a
process holds alone plus its share of what it shares, measured twice a second. The system's file
cache is left as it is. All engines must pick the same rows.

Two more measurements: one core that only reads the files, and LDM-Seeding from made-up LDMs of
``--drawn`` rows, which shows what the machine that draws needs per row of a pool.
``shards_page.py`` estimates from all this what a billion rows take.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import describe_setup, format_table, save_result

PER_FILE, GROUP = 250_000, 1 << 16
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
LOOKED = 0.5
"""Seconds between two looks at memory."""
READ = 4_000_000
"""Rows that one core reads to see how fast it does."""


def make_pool(folder: Path, rows: int, width: int, classes: int, per_file: int) -> None:
    """Write rows around the centres of their classes, the head whose weights are these centres, and
    a network.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from teeter.model_files import save_model
    from teeter.models.networks import mlp

    rng = np.random.default_rng(0)
    centres = rng.standard_normal((classes, width)).astype(np.float32)
    folder.mkdir(parents=True, exist_ok=True)
    for number, start in enumerate(range(0, rows, per_file)):
        count = min(per_file, rows - start)
        features = (
            rng.standard_normal((count, width), dtype=np.float32) * 4
            + centres[rng.integers(0, classes, count)]
        )
        lists = pa.FixedSizeListArray.from_arrays(pa.array(features.ravel()), width)
        content = pa.table({"id": pa.array(np.arange(start, start + count)), "features": lists})
        options: dict[str, Any] = {
            "row_group_size": GROUP,
            "compression": "none",
            "use_dictionary": False,
        }
        pq.write_table(content, folder / f"part-{number:04d}.parquet", **options)
    np.savez(folder / "head.npz", weight=centres)
    save_model(
        folder / "model.safetensors", mlp(width, classes), "mlp", shape=(width,), classes=classes
    )


# ---- what runs in a process of its own


def select(engine: str, form: str, folder: Path, n: int, workers: int) -> dict[str, Any]:
    """Select, and return the picks and when each part of it began and ended."""
    from teeter.distributed import make_executor
    from teeter.selection import select_from_shards
    from teeter.selection.defaults import DEFAULT_REFERENCE

    work = folder / f"work-{engine}-{form}"
    shutil.rmtree(work, ignore_errors=True)
    times: dict[str, list[float]] = {}
    fetched = [0, 0]

    def told(what: str, done: int, whole: int) -> None:
        times.setdefault(what, []).append(time.perf_counter())
        if what == "Rows fetched":
            fetched[0], fetched[1] = done, fetched[1] + 1

    started = time.perf_counter()
    executor = make_executor(engine, workers)
    ready = time.perf_counter()
    chosen = select_from_shards(
        str(folder / "*.parquet"),
        n,
        head=folder / "head.npz" if form == "features" else None,
        model=folder / "model.safetensors" if form == "model" else None,
        executor=executor,
        work=work,
        on_progress=told,
    )
    ended = time.perf_counter()
    scored = times["Shards scored"]
    return {
        "seconds": ended - started,
        "start (s)": ready - started,
        "reference (s)": times["Reference rows"][-1] - times["Reference rows"][0],
        "scoring (s)": scored[-1] - scored[0],
        "seeding (s)": ended - scored[-1],
        "rows fetched": fetched[0],
        "fetches": fetched[1],
        "reference rows": DEFAULT_REFERENCE,
        "written GB": sum(path.stat().st_size for path in work.rglob("*") if path.is_file()) / 1e9,
        "picks": chosen.rows.tolist(),
    }


def read(folder: Path) -> dict[str, Any]:
    """Return how many rows a second one core reads."""
    from teeter.datasets.shards import open_shards

    shards = open_shards(str(folder / "*.parquet")).shards
    next(shards[0].batches())
    rows, started = 0, time.perf_counter()
    for shard in shards:
        rows += sum(len(batch) for batch in shard.batches())
        if rows >= READ:
            break
    return {"rows": rows, "rows a second": rows / (time.perf_counter() - started)}


def draw(rows: int, width: int, n: int) -> dict[str, Any]:
    """Return what LDM-Seeding from made-up LDMs of so many rows takes where it is drawn, fetching
    left out.
    """
    from teeter.kernels.seeding import ldm_log_weights
    from teeter.kernels.streaming_seeding import seed_streaming
    from teeter.seeds import stream

    before = own_memory("VmRSS")
    rng = np.random.default_rng(0)
    values = rng.random(rows, dtype=np.float32) ** 2
    started = time.perf_counter()
    seed_streaming(
        lambda some: torch.from_numpy(rng.standard_normal((len(some), width), dtype=np.float32)),
        n,
        first=int(values.argmin()),
        log_weights=ldm_log_weights(torch.from_numpy(values), n).numpy(),
        preference=values,
        farthest=2.0,
        ahead=max(1024, 4 * n),
        generator=stream(0, "select"),
    )
    return {
        "rows": rows,
        "seconds": time.perf_counter() - started,
        "bytes a row": (own_memory("VmHWM") - before) / rows,
    }


def own_memory(kind: str) -> int:
    """Return this process's bytes: VmRSS now, or VmHWM at most so far."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{kind}:"))


PARTS: dict[str, Callable[..., dict[str, Any]]] = {"select": select, "read": read, "draw": draw}


# ---- what watches it


def watched(part: str, out: Path, **arguments: Any) -> dict[str, Any]:
    """Run a part in a process of its own, and return what it found and the most memory that was
    held meanwhile.
    """
    out.unlink(missing_ok=True)
    plain = {
        name: str(value) if isinstance(value, Path) else value for name, value in arguments.items()
    }
    command = [sys.executable, __file__, "--part", json.dumps([part, plain, str(out)])]
    process = subprocess.Popen(command, env={**os.environ, **ONE_THREAD})
    whole = driver = worker = 0
    while process.poll() is None:
        sizes = {pid: held(pid) for pid in family(process.pid)}
        whole, driver = max(whole, sum(sizes.values())), max(driver, sizes.get(process.pid, 0))
        worker = max(
            [
                worker,
                *(size for pid, size in sizes.items() if pid != process.pid and is_worker(pid)),
            ]
        )
        time.sleep(LOOKED)
    if process.returncode:
        raise SystemExit(f"{part} {plain} failed.")
    found: dict[str, Any] = json.loads(out.read_text())
    return {**found, "peak GB": whole / 1e9, "driver GB": driver / 1e9, "worker GB": worker / 1e9}


def family(pid: int) -> list[int]:
    """Return a process and all that come from it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(entry.read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(entry.parent.name))
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        found.append(one)
        waiting += children.get(one, [])
    return found


def held(pid: int) -> int:
    """Return a process's bytes: its own, and its share of what it shares; pages of files that it
    maps included.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


def is_worker(pid: int) -> bool:
    """Tell whether a process scores shards, rather than being one of Ray's own."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return command.startswith(b"ray::") or b"spawn_main" in command


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("-n", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--engines", default="local,ray")
    parser.add_argument("--forms", default="features,model")
    parser.add_argument(
        "--drawn", type=int, default=50_000_000, help="made-up rows that are drawn from"
    )
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--out", type=Path, help="where to write the result as JSON")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        part, given, out = json.loads(arguments.part)
        given = {name: Path(value) if name == "folder" else value for name, value in given.items()}
        Path(out).write_text(json.dumps(PARTS[part](**given)))
        return
    if arguments.folder is None:
        parser.error("--folder is needed")
    measure_all(arguments)


def measure_all(arguments: argparse.Namespace) -> None:
    folder, note = arguments.folder, arguments.folder / "part.json"
    if not list(folder.glob("*.parquet")):
        per_file = max(
            1, min(PER_FILE, arguments.rows // (4 * arguments.workers))
        )  # a shard each, some a worker
        make_pool(folder, arguments.rows, arguments.width, arguments.classes, per_file)
    reading = watched("read", note, folder=folder)
    drawing = watched("draw", note, rows=arguments.drawn, width=arguments.width, n=arguments.n)
    found = []
    for form in arguments.forms.split(","):
        for engine in arguments.engines.split(","):
            given = {
                "engine": engine,
                "form": form,
                "folder": folder,
                "n": arguments.n,
                "workers": arguments.workers,
            }
            one = watched("select", note, **given)
            one["rows a second and core"] = arguments.rows / one["scoring (s)"] / arguments.workers
            found.append({"engine": engine, "rows are": form, "rows": arguments.rows, **one})
    picks = {
        form: {str(one["picks"]) for one in found if one["rows are"] == form}
        for form in arguments.forms.split(",")
    }
    same = all(len(some) == 1 for some in picks.values())
    for one in found:
        del one["picks"]
    print(format_table(found))
    print(f"The same picks by all engines: {'yes' if same else 'NO'}.")
    sizes = {
        name: getattr(arguments, name) for name in ("rows", "width", "classes", "n", "workers")
    }
    stored = sum(path.stat().st_size for path in folder.glob("*.parquet"))
    save_result(
        arguments.out,
        {
            "facts": describe_setup(torch.device("cpu")),
            **sizes,
            "rows a group": GROUP,
            "bytes a row": stored / arguments.rows,
            "reading": reading,
            "drawing": drawing,
            "engines": found,
            "same picks": same,
        },
    )


if __name__ == "__main__":
    main()
