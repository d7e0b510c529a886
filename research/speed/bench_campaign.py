"""How long a campaign keeps people waiting: for the first items, and for the next batch.

python research/speed/bench_campaign.py --out research/speed/results/campaign_cpu.json
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from campaign_data import create_feature_campaign, write_texts
from measure import describe_setup, format_table, save_result

from teeter.campaigns.campaign import Campaign

NEW_CAMPAIGN = [sys.executable, "-c", "from teeter.cli import main; main()", "campaign", "new"]
ASK = "import sys; from teeter.campaigns import Campaign; Campaign.open(sys.argv[1]).ask(20)"


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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="file for the result as JSON")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = [
            measure_first_items(folder, 10_000),
            measure_next_batch(folder, items=100_000, width=256, class_count=10, labels=1_000),
        ]

    for row in rows:
        print(format_table([row]))
    save_result(options.out, {**describe_setup(torch.device("cpu")), "campaign": rows})


if __name__ == "__main__":
    main()
