"""How long copying a campaign takes, to a file and to PostgreSQL, by the number of its items.

python research/speed/bench_copies.py --database postgresql://USER@127.0.0.1/EMPTY_DATABASE \
    --out research/speed/results/copies_cpu.json

The seconds per 10,000 items should hardly grow: a copy reads and writes each row once.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from campaign_data import create_feature_campaign
from measure import describe_setup, format_table, save_result

from teeter.campaigns.store import Database
from teeter.campaigns.store.copies import copy_campaign

ITEM_COUNTS = (10_000, 100_000)
PER = 10_000


def measure_copy(source: Database, target: Database, name: str, items: int) -> float:
    """Return the seconds that copying takes, per 10,000 items."""
    started = time.perf_counter()
    copy_campaign(source, target, name)
    seconds = time.perf_counter() - started

    target.close()
    return seconds * PER / items


def measure_size(folder: Path, items: int, database: str | None) -> dict[str, Any]:
    """Copy a campaign of 64 features per item, of which one in a hundred is labelled."""
    path = folder / f"items_{items}.teeter"
    campaign = create_feature_campaign(
        path, items=items, width=64, class_count=10, labels=items // 100
    )
    source = campaign.database

    row: dict[str, Any] = {"items": items}
    target = Database(folder / f"copy_{items}.teeter", create=True)
    row["to a file (s per 10,000)"] = measure_copy(source, target, campaign.name, items)
    if database is not None:
        target = Database(database, create=True)
        row["to PostgreSQL (s per 10,000)"] = measure_copy(source, target, campaign.name, items)
    source.close()
    return row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--database", help="the URL of an empty PostgreSQL database")
    parser.add_argument("--out", type=Path, help="file for the result as JSON")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as name:
        rows = [measure_size(Path(name), items, options.database) for items in ITEM_COUNTS]

    print(format_table(rows))
    save_result(options.out, {**describe_setup(torch.device("cpu")), "copies": rows})


if __name__ == "__main__":
    main()
