"""A selection from a pool that does not fit in memory: seconds, rows a second and memory, by each engine.

    python benchmarks/speed/bench_shards.py --rows 10000000 --folder /somewhere/with/10/GB

Makes the pool first, as Parquet files, where the folder has none: rows of C classes around their centres. Every engine
runs as ``teeter select`` in a process of its own; memory is the sum over its processes of what they hold alone and
their shares of what they hold together, looked at every second. Files are read as the system has them in its
cache or not. Picks must be the same by all engines.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import facts, save, table

PER_FILE = 500_000


def make_pool(folder: Path, rows: int, width: int, classes: int) -> None:
    """Write rows around the centres of their classes, and the head whose weights are these centres."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    centres = rng.standard_normal((classes, width)).astype(np.float32)
    folder.mkdir(parents=True, exist_ok=True)
    for number, start in enumerate(range(0, rows, PER_FILE)):
        count = min(PER_FILE, rows - start)
        features = rng.standard_normal((count, width), dtype=np.float32) * 4 + centres[rng.integers(0, classes, count)]
        lists = pa.FixedSizeListArray.from_arrays(pa.array(features.ravel()), width)
        content = pa.table({"id": pa.array(np.arange(start, start + count)), "features": lists})
        options: dict[str, Any] = {"row_group_size": 1 << 16, "compression": "none", "use_dictionary": False}
        pq.write_table(content, folder / f"part-{number:04d}.parquet", **options)
    np.savez(folder / "head.npz", weight=centres)


def run(engine: str, folder: Path, n: int, workers: int) -> dict[str, Any]:
    """Run one selection and return its time and the most memory that its processes held."""
    work, out = folder / f"work-{engine}", folder / f"picks-{engine}.csv"
    shutil.rmtree(work, ignore_errors=True)
    command = [
        sys.executable,
        "-c",
        "from teeter.cli import main; main()",
        "select",
        str(folder / "*.parquet"),
        "-n",
        str(n),
    ]
    command += ["--head", str(folder / "head.npz"), "--engine", engine, "--workers", str(workers)]
    started = time.perf_counter()
    process = subprocess.Popen([*command, "--work", str(work), "--out", str(out)], env={**os.environ, **ONE_THREAD})
    most = 0
    while process.poll() is None:
        most = max(most, sum(map(held, family(process.pid))))
        time.sleep(1)
    if process.returncode:
        raise SystemExit(f"teeter select --engine {engine} failed.")
    return {"engine": engine, "seconds": time.perf_counter() - started, "peak GB": most / 1e9, "picks": out.read_text()}


ONE_THREAD = {"OMP_NUM_THREADS": "1"}


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
    """Return a process's bytes: its own, and its share of what it shares; pages of files that it maps included."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("-n", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--engines", default="local,ray")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path, help="where to write the result as JSON")
    arguments = parser.parse_args()
    if not list(arguments.folder.glob("*.parquet")):
        make_pool(arguments.folder, arguments.rows, arguments.width, arguments.classes)
    found = [run(engine, arguments.folder, arguments.n, arguments.workers) for engine in arguments.engines.split(",")]
    same = len({one.pop("picks") for one in found}) == 1
    for one in found:
        one["rows a second"] = arguments.rows / one["seconds"]
    print(table(found))
    print(f"The same picks by all: {'yes' if same else 'NO'}.")
    sizes = {name: getattr(arguments, name) for name in ("rows", "width", "classes", "n", "workers")}
    save(arguments.out, {"facts": facts(torch.device("cpu")), **sizes, "engines": found, "same picks": same})


if __name__ == "__main__":
    main()
