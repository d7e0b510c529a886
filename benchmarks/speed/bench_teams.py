"""Many annotators at once on one campaign: answers a second, and whether anybody was asked what another has.

python benchmarks/speed/bench_teams.py --out benchmarks/speed/results/teams_cpu.json
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import sklearn.linear_model  # loaded once, not by each process  # noqa: F401
import torch
from measure import facts, save, table

from teeter.campaigns.campaign import Campaign, Settings
from teeter.errors import InputError

CLASSES = ("even", "odd")
BATCH = 20
TRAINED_EVERY = 10.0
"""Seconds between models, as if somebody looked on."""


def truth(item: str) -> str:
    """What an item is, by its number."""
    return CLASSES[int(item[1:]) % 2]


def begin(where: str, items: int) -> None:
    """Make a campaign of items whose class can be learnt, with a first model."""
    vectors = np.random.default_rng(0).normal(size=(items, 16)).astype(np.float32)
    vectors[::2, 0] += 2
    campaign = Campaign.create(where, "numbers", CLASSES, Settings(kind="features", strategy="margin"))
    known = {f"n{k}": truth(f"n{k}") for k in range(20)}
    campaign.add({"id": f"n{k}", "features": row, "label": known.get(f"n{k}")} for k, row in enumerate(vectors))
    campaign.train()
    campaign.store.close()


def annotate(where: str, name: str, until: float, out: str) -> None:
    """Ask and answer until a time; write down how long each took, and what was acknowledged."""
    told: dict[str, Any] = {"answered": [], "asks": [], "answers": [], "error": None}
    try:
        campaign = Campaign.open(where)
        while time.time() < until:
            start = time.perf_counter()
            questions = campaign.ask(BATCH, name)
            told["asks"].append(time.perf_counter() - start)
            if not questions:
                break
            for question in questions:
                if time.time() >= until:
                    break
                start = time.perf_counter()
                campaign.tell(question.item, truth(question.item), name)
                told["answers"].append(time.perf_counter() - start)
                told["answered"].append(question.item)
        campaign.store.close()
    except Exception as error:
        told["error"] = f"{type(error).__name__}: {error}"
    Path(out).write_text(json.dumps(told))


def load(where: str, people: int, seconds: float, items: int) -> dict[str, Any]:
    """Let people answer at once for some seconds, and tell what came of it."""
    begin(where, items)
    context: Any = multiprocessing.get_context("fork" if hasattr(os, "fork") else "spawn")
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{k}.json" for k in range(people)]
        started = time.time()
        until = started + seconds
        workers = [
            context.Process(target=annotate, args=(where, f"person {k}", until, str(file)))
            for k, file in enumerate(files)
        ]
        for worker in workers:
            worker.start()
        models = train_on(where, until)
        for worker in workers:
            worker.join()
        lasted = time.time() - started
        told = [json.loads(file.read_text()) for file in files]
    errors = [one["error"] for one in told if one["error"]]
    answers, asks = (np.array([value for one in told for value in one[kind]]) for kind in ("answers", "asks"))
    return {
        "people": people,
        "items": items,
        "seconds": round(lasted, 1),
        "answers": len(answers),
        "answers a second": round(len(answers) / lasted, 1),
        "answer, median ms": 1000 * float(np.median(answers)),
        "answer, 99 in 100 ms": 1000 * float(np.percentile(answers, 99)),
        "ask, median ms": 1000 * float(np.median(asks)),
        "ask, slowest ms": 1000 * float(asks.max()),
        "models": models,
        "errors": len(errors),
        **check(where, [item for one in told for item in one["answered"]]),
        "first error": errors[0] if errors else "",
    }


def train_on(where: str, until: float) -> int:
    """Train a model every few seconds until a time; return how many there were."""
    campaign, models = Campaign.open(where), 0
    while time.time() + TRAINED_EVERY < until:
        time.sleep(TRAINED_EVERY)
        try:
            campaign.train()
            models += 1
        except InputError:
            continue
    campaign.store.close()
    return models


def check(where: str, acknowledged: list[str]) -> dict[str, int]:
    """Count items that two people had at once, and acknowledged answers that are not there."""
    campaign = Campaign.open(where)
    holder: dict[str, str] = {}
    doubles = 0
    for line in campaign.history():
        if line["what"] == "asked":
            doubles += sum(item in holder for item in line["items"])
            holder |= dict.fromkeys(line["items"], line["who"])
        elif line["what"] == "returned":
            for item in line["items"]:
                holder.pop(item, None)
    with campaign.store.reading() as connection:
        answers = campaign.ledger.answers(connection)
    held = {one.item for one in answers if one.label == truth(one.item)}
    campaign.store.close()
    twice = sum(count - 1 for count in Counter(acknowledged).values())
    return {"asked twice": doubles, "answered twice": twice, "lost": len(set(acknowledged) - held)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--url", help="a PostgreSQL database to use; without it, a server is started")
    parser.add_argument("--only", choices=("sqlite", "postgresql"))
    parser.add_argument("--out", type=Path, help="where to write the result as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = []
    with ExitStack() as stack:
        for kind in (options.only,) if options.only else ("sqlite", "postgresql"):
            where = str(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "numbers.teeter")
            if kind == "postgresql":
                where = options.url or new_database(stack)
            lines.append({"store": kind, **load(where, options.people, options.seconds, options.items)})
            print(table([lines[-1]]), flush=True)
    save(options.out, {**facts(torch.device("cpu")), "teams": lines})


def new_database(stack: ExitStack) -> str:
    """Return a database of a server that the tests know how to start."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
    server = stack.enter_context(importlib.import_module("campaigns.postgres").running_server())
    return str(server.new_database())


if __name__ == "__main__":
    main()
