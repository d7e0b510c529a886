"""How long a campaign keeps people waiting: for the first items, and for the next batch.

python research/speed/bench_campaign.py --out research/speed/results/campaign_cpu.json
python research/speed/bench_campaign.py --part table --before OLD_CHECKOUT/src \\
    --out research/speed/results/campaign_table_cpu.json
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from campaign_data import create_feature_campaign, write_table, write_texts
from measure import describe_setup, format_table, save_result

from teeter.campaigns.campaign import Campaign

TABLE_REPEATS = 2

NEW_CAMPAIGN = [sys.executable, "-c", "from teeter.cli import main; main()", "campaign", "new"]
ASK = "import sys; from teeter.campaigns import Campaign; Campaign.open(sys.argv[1]).ask(20)"

TRAIN = "import sys; from teeter.campaigns import Campaign; Campaign.open(sys.argv[1]).train()"

# What both versions of a comparison can do. Each runs in a process of its own.
TABLE_TASKS = {
    "opening, with the start of Python": "pass",
    "20 items and an answer to each": "for q in campaign.ask(20): campaign.tell(q.item, 'a')",
    "first look at Progress": "campaign.status(); campaign.finish.look()",
    "second look at Progress": "campaign.status(); campaign.finish.look()",
    "export as CSV": "campaign.export(sys.argv[1] + '.csv')",
    "export as Parquet": "campaign.export(sys.argv[1] + '.parquet')",
}
BEFORE_TASK = {"second look at Progress": TABLE_TASKS["first look at Progress"]}
TIMED = """
import json, sys, time
started, processor = time.perf_counter(), time.process_time()
from teeter.campaigns import Campaign
campaign = Campaign.open(sys.argv[1])
if {before!r} is not None:
    exec({before!r})
    started, processor = time.perf_counter(), time.process_time()
exec({task!r})
print(json.dumps([time.perf_counter() - started, time.process_time() - processor]))
"""


def measure_first_items(folder: Path, text_count: int) -> dict[str, Any]:
    """Time the commands from a table to the first 20 items, including the start of Python."""
    path = folder / "texts.csv"
    write_texts(path, text_count)

    started = time.perf_counter()
    subprocess.run(
        [*NEW_CAMPAIGN, str(path), "--classes", "a,b,c"], check=True, capture_output=True
    )
    created = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", ASK, str(path.with_suffix(".teeter"))],
        check=True,
        capture_output=True,
    )
    asked = time.perf_counter()

    return {
        "what": f"{text_count:,} texts: campaign new, then the first 20 items",
        "s": asked - started,
        "campaign new (s)": created - started,
    }


def measure_next_batch(
    folder: Path, *, items: int, width: int, class_count: int, labels: int
) -> dict[str, Any]:
    """Time training, the next 20 items and an answer in a large campaign of random features."""
    path = folder / "large.teeter"
    add_started = time.perf_counter()
    create_feature_campaign(
        path, items=items, width=width, class_count=class_count, labels=labels
    ).database.close()
    added = time.perf_counter()

    # Opened again, so that nothing is cached from adding.
    campaign = Campaign.open(path)
    started = time.perf_counter()
    campaign.train()
    trained = time.perf_counter()
    campaign.ask(20)
    asked = time.perf_counter()

    answer_started = time.perf_counter()
    for question in campaign.ask(20):
        campaign.tell(question.item, "class 0")
    answered = time.perf_counter()

    return {
        "what": f"{items:,} items x {width}, {labels:,} labels: train, then the next 20 items",
        "s": asked - started,
        "training (s)": trained - started,
        "adding the items (s)": added - add_started,
        "one answer (s)": (answered - answer_started) / 20,
    }


def measure_table(folder: Path, sources: dict[str, Path], *, rows: int, labels: int) -> list[Any]:
    """Time what people wait for in a campaign of a table with eight columns.

    The versions take turns, so that other work on the machine delays both.

    Args:
        folder: an empty folder.
        sources: the source folder of each version by its name, the oldest first.
        rows: how many rows the table has.
        labels: how many of them have a label.
    """
    write_table(folder / "table.csv", rows, labels)
    campaigns = {version: folder / f"{version}.teeter" for version in sources}
    oldest = next(iter(sources))
    options = ["--classes", "a,b,c", "--labels", "label", "--encoder", "tfidf"]
    table = [str(folder / "table.csv"), *options, "--file", str(campaigns[oldest])]
    run_with([*NEW_CAMPAIGN, *table], sources[oldest])

    # The newer version migrates its copy when it trains the model.
    for version, path in campaigns.items():
        if version != oldest:
            shutil.copyfile(campaigns[oldest], path)
    for version, source in sources.items():
        run_with([sys.executable, "-c", TRAIN, str(campaigns[version])], source)

    results = []
    for task, code in TABLE_TASKS.items():
        timed = TIMED.format(task=code, before=BEFORE_TASK.get(task))
        seconds: dict[str, list[tuple[float, float]]] = {version: [] for version in sources}
        for _ in range(TABLE_REPEATS):
            for version, source in sources.items():
                # A copy, because answers change a campaign.
                copy = folder / "copy.teeter"
                shutil.copyfile(campaigns[version], copy)
                output = run_with([sys.executable, "-c", timed, str(copy)], source)
                seconds[version].append(json.loads(output))

        for version, times in seconds.items():
            wall, processor = (min(values) for values in zip(*times, strict=True))
            row = {"what": task, "version": version, "s": wall, "processor (s)": processor}
            results.append(row)
            print(row, flush=True)
    return results


def run_with(command: list[str], source: Path) -> str:
    """Run a command with the teeter of a source folder, and return what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(source)}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="file for the result as JSON")
    parser.add_argument("--part", choices=["batches", "table"], default="batches")
    parser.add_argument("--before", type=Path, help="src of another checkout to compare with")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.part == "table":
            sources = {"now": Path(__file__).parents[2] / "src"}
            if options.before is not None:
                sources = {"before": options.before, **sources}
            rows = measure_table(folder, sources, rows=100_000, labels=1_000)
        else:
            rows = [
                measure_first_items(folder, 10_000),
                measure_next_batch(folder, items=100_000, width=256, class_count=10, labels=1_000),
            ]

    for row in rows:
        print(format_table([row]))
    result = {**describe_setup(torch.device("cpu")), "campaign": rows}
    if options.part == "table" and options.before is not None:
        result["before"] = read_commit(options.before)
    save_result(options.out, result)


def read_commit(folder: Path) -> str:
    """Return the commit that a folder of a checkout is at."""
    command = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
