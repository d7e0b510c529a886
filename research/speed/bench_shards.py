"""Select from a pool that does not fit in memory: time, reading and memory of each engine.

    python research/speed/bench_shards.py --rows 10000000 --folder FOLDER --out shards.json

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
from collections.abc import Callable, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import describe_setup, format_table, save_result
from torch import Tensor

ROWS_PER_FILE = 250_000
ROWS_PER_GROUP = 1 << 16
ROWS_READ = 4_000_000
"""Rows that one core reads to see how fast it does."""

MEMORY_INTERVAL = 0.5
"""Seconds between two measurements of memory."""


def write_pool(folder: Path, rows: int, width: int, classes: int, rows_per_file: int) -> None:
    """Write rows around the centres of their classes, the head whose weights are these centres, and
    a network.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from teeter.models.model_files import save_model
    from teeter.models.networks import mlp

    generator = np.random.default_rng(0)
    centres = generator.standard_normal((classes, width)).astype(np.float32)
    folder.mkdir(parents=True, exist_ok=True)

    for number, start in enumerate(range(0, rows, rows_per_file)):
        count = min(rows_per_file, rows - start)
        noise = generator.standard_normal((count, width), dtype=np.float32) * 4
        features = noise + centres[generator.integers(0, classes, count)]
        columns = pa.table(
            {
                "id": pa.array(np.arange(start, start + count)),
                "features": pa.FixedSizeListArray.from_arrays(pa.array(features.ravel()), width),
            }
        )
        pq.write_table(
            columns,
            folder / f"part-{number:04d}.parquet",
            row_group_size=ROWS_PER_GROUP,
            compression="none",
            use_dictionary=False,
        )

    np.savez(folder / "head.npz", weight=centres)
    save_model(
        folder / "model.safetensors", mlp(width, classes), "mlp", shape=(width,), classes=classes
    )


# Parts, each of which runs in a process of its own


@dataclass
class ProgressLog:
    """When each step of a selection reported progress, and how many rows it fetched."""

    times: dict[str, list[float]] = field(default_factory=dict)
    rows_fetched: int = 0
    fetches: int = 0

    def record(self, step: str, done: int, total: int) -> None:
        self.times.setdefault(step, []).append(time.perf_counter())
        if step == "Rows fetched":
            self.rows_fetched = done
            self.fetches += 1


def measure_selection(engine: str, form: str, folder: Path, n: int, workers: int) -> dict[str, Any]:
    """Select, and return the picks and the seconds of each step."""
    from teeter.selection import DEFAULT_REFERENCE, make_executor, select_from_shards

    work = folder / f"work-{engine}-{form}"
    shutil.rmtree(work, ignore_errors=True)
    progress = ProgressLog()

    started = time.perf_counter()
    executor = make_executor(engine, workers)
    ready = time.perf_counter()
    selection = select_from_shards(
        str(folder / "*.parquet"),
        n,
        head=folder / "head.npz" if form == "features" else None,
        model=folder / "model.safetensors" if form == "model" else None,
        executor=executor,
        work=work,
        on_progress=progress.record,
    )
    ended = time.perf_counter()

    reference_times = progress.times["Reference rows"]
    scoring_times = progress.times["Shards scored"]
    written = sum(path.stat().st_size for path in work.rglob("*") if path.is_file())
    return {
        "seconds": ended - started,
        "start (s)": ready - started,
        "reference (s)": reference_times[-1] - reference_times[0],
        "scoring (s)": scoring_times[-1] - scoring_times[0],
        "seeding (s)": ended - scoring_times[-1],
        "rows fetched": progress.rows_fetched,
        "fetches": progress.fetches,
        "reference rows": DEFAULT_REFERENCE,
        "written GB": written / 1e9,
        "picks": selection.rows.tolist(),
    }


def measure_reading(folder: Path) -> dict[str, Any]:
    """Return how many rows a second one core reads."""
    from teeter.data.shards import open_shards

    shards = open_shards(str(folder / "*.parquet")).shards
    next(shards[0].batches())  # a warm-up

    rows = 0
    started = time.perf_counter()
    for shard in shards:
        rows += sum(len(batch) for batch in shard.batches())
        if rows >= ROWS_READ:
            break
    return {"rows": rows, "rows a second": rows / (time.perf_counter() - started)}


def measure_drawing(rows: int, width: int, n: int) -> dict[str, Any]:
    """Return what LDM-Seeding takes on the machine that draws, from LDMs that are made up.

    Fetched rows are random numbers, so that reading files is left out.
    """
    from teeter.base.seeds import stream
    from teeter.kernels.seeding import ldm_log_weights
    from teeter.kernels.streaming_seeding import seed_streaming

    memory_before = read_own_memory("VmRSS")
    generator = np.random.default_rng(0)
    estimates = generator.random(rows, dtype=np.float32) ** 2

    def fetch(row_numbers: Sized) -> Tensor:
        features = generator.standard_normal((len(row_numbers), width), dtype=np.float32)
        return torch.from_numpy(features)

    started = time.perf_counter()
    seed_streaming(
        fetch,
        n,
        first=int(estimates.argmin()),
        log_weights=ldm_log_weights(torch.from_numpy(estimates), n).numpy(),
        preference=estimates,
        farthest=2.0,
        ahead=max(1024, 4 * n),
        generator=stream(0, "select"),
    )
    return {
        "rows": rows,
        "seconds": time.perf_counter() - started,
        "bytes a row": (read_own_memory("VmHWM") - memory_before) / rows,
    }


def read_own_memory(field_name: str) -> int:
    """Return the bytes of this process: VmRSS is the memory in use, VmHWM its peak so far."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field_name}:"):
            return int(line.split()[1]) << 10
    raise KeyError(field_name)


PARTS: dict[str, Callable[..., dict[str, Any]]] = {
    "select": measure_selection,
    "read": measure_reading,
    "draw": measure_drawing,
}


# The process that starts the parts and watches their memory


def run_part(part: str, out: Path, **arguments: Any) -> dict[str, Any]:
    """Run a part in a new process with one thread.

    Returns:
        The result of the part, and the peak memory of all its processes together, of the process
        itself, and of its largest worker.
    """
    out.unlink(missing_ok=True)
    plain_arguments = {
        name: str(value) if isinstance(value, Path) else value for name, value in arguments.items()
    }
    job = json.dumps([part, plain_arguments, str(out)])
    process = subprocess.Popen(
        [sys.executable, __file__, "--part", job], env={**os.environ, "OMP_NUM_THREADS": "1"}
    )

    peak = 0
    driver_peak = 0
    worker_peak = 0
    while process.poll() is None:
        memory_by_pid = {pid: read_shared_memory(pid) for pid in list_process_tree(process.pid)}
        peak = max(peak, sum(memory_by_pid.values()))
        driver_peak = max(driver_peak, memory_by_pid.get(process.pid, 0))
        for pid, memory in memory_by_pid.items():
            if pid != process.pid and is_worker(pid):
                worker_peak = max(worker_peak, memory)
        time.sleep(MEMORY_INTERVAL)

    if process.returncode:
        raise SystemExit(f"{part} {plain_arguments} failed.")
    result: dict[str, Any] = json.loads(out.read_text())
    return {
        **result,
        "peak GB": peak / 1e9,
        "driver GB": driver_peak / 1e9,
        "worker GB": worker_peak / 1e9,
    }


def list_process_tree(root: int) -> list[int]:
    """Return the ids of a process and of all its descendants."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue  # it has ended
        children.setdefault(parent, []).append(int(path.parent.name))

    pids = []
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        pids.append(pid)
        waiting += children.get(pid, [])
    return pids


def read_shared_memory(pid: int) -> int:
    """Return the bytes of a process: its own, and its share of what it shares.

    Pages of files that it maps are included.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


def is_worker(pid: int) -> bool:
    """Return whether a process scores shards. Ray has processes of its own that do not."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    is_local_worker = b"multiprocessing.forkserver" in command or b"spawn_main" in command
    return is_local_worker or command.startswith(b"ray::")


def measure_all(options: argparse.Namespace) -> None:
    """Create the pool if the folder has no files, run all parts, and print and save the result."""
    folder = options.folder
    if not list(folder.glob("*.parquet")):
        # A small pool has several files for each worker, too.
        rows_per_file = max(1, min(ROWS_PER_FILE, options.rows // (4 * options.workers)))
        write_pool(folder, options.rows, options.width, options.classes, rows_per_file)

    part_result = folder / "part.json"
    reading = run_part("read", part_result, folder=folder)
    drawing = run_part("draw", part_result, rows=options.drawn, width=options.width, n=options.n)

    rows = []
    picks_by_form: dict[str, list[list[int]]] = {}
    for form in options.forms.split(","):
        for engine in options.engines.split(","):
            result = run_part(
                "select",
                part_result,
                engine=engine,
                form=form,
                folder=folder,
                n=options.n,
                workers=options.workers,
            )
            picks_by_form.setdefault(form, []).append(result.pop("picks"))
            speed = options.rows / result["scoring (s)"] / options.workers
            rows.append(
                {
                    "engine": engine,
                    "rows are": form,
                    "rows": options.rows,
                    **result,
                    "rows a second and core": speed,
                }
            )
    same_picks = all(
        picks == engine_picks[0]
        for engine_picks in picks_by_form.values()
        for picks in engine_picks
    )

    print(format_table(rows))
    print(f"The same picks by all engines: {'yes' if same_picks else 'NO'}.")
    stored_bytes = sum(path.stat().st_size for path in folder.glob("*.parquet"))
    save_result(
        options.out,
        {
            "facts": describe_setup(torch.device("cpu")),
            "rows": options.rows,
            "width": options.width,
            "classes": options.classes,
            "n": options.n,
            "workers": options.workers,
            "rows a group": ROWS_PER_GROUP,
            "bytes a row": stored_bytes / options.rows,
            "reading": reading,
            "drawing": drawing,
            "engines": rows,
            "same picks": same_picks,
        },
    )


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
    parser.add_argument("--out", type=Path, help="file for the result as JSON")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    options = parser.parse_args()

    if options.part:
        part, arguments, out = json.loads(options.part)
        if "folder" in arguments:
            arguments["folder"] = Path(arguments["folder"])
        Path(out).write_text(json.dumps(PARTS[part](**arguments)))
        return

    if options.folder is None:
        parser.error("--folder is needed")
    measure_all(options)


if __name__ == "__main__":
    main()
