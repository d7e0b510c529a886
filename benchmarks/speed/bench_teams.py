"""Let many annotators label one campaign at once, in the database and through the server.

Measures answers per second, and checks that no two annotators got the same item.

    python benchmarks/speed/bench_teams.py --out benchmarks/speed/results/teams_cpu.json
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import sklearn.linear_model  # loaded once, not by each process  # noqa: F401
import torch
from measure import describe_setup, format_table, save_result

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
    campaign = Campaign.create(
        where, "numbers", CLASSES, Settings(kind="features", strategy="margin")
    )
    known = {f"n{k}": truth(f"n{k}") for k in range(20)}
    campaign.add(
        {"id": f"n{k}", "features": row, "label": known.get(f"n{k}")}
        for k, row in enumerate(vectors)
    )
    campaign.train()
    campaign.database.close()


def annotate(where: str, name: str, until: float, answers: int | None, out: str) -> None:
    """Ask and answer until a time or a number of answers; write how long each took, and what was
    acknowledged.
    """
    told: dict[str, Any] = {"answered": [], "asks": [], "answers": [], "errors": []}
    try:
        campaign = Campaign.open(where)
        while time.time() < until and not has_answered(told, answers):
            start = time.perf_counter()
            questions = campaign.ask(BATCH, name)
            told["asks"].append(time.perf_counter() - start)
            if not questions:
                break
            for question in questions:
                if time.time() >= until or has_answered(told, answers):
                    break
                start = time.perf_counter()
                campaign.tell(question.item, truth(question.item), name)
                told["answers"].append(time.perf_counter() - start)
                told["answered"].append(question.item)
        campaign.database.close()
    except Exception as error:
        told["errors"].append(f"{type(error).__name__}: {error}")
    Path(out).write_text(json.dumps(told))


def has_answered(told: dict[str, Any], answers: int | None) -> bool:
    """Return whether somebody has given as many answers as they were to give; None is no limit."""
    return answers is not None and len(told["answered"]) >= answers


def annotate_on_page(address: str, token: str, until: float, answers: int | None, out: str) -> None:
    """Do the same through a server; a wait for questions that are still being picked counts as part
    of the ask.
    """
    told: dict[str, Any] = {"answered": [], "asks": [], "answers": [], "errors": []}
    at, headers = "/api/v1/campaigns/numbers", {"authorization": f"Bearer {token}"}
    with httpx.Client(base_url=address, headers=headers, timeout=60) as client:
        asked = time.perf_counter()
        while time.time() < until and not has_answered(told, answers):
            try:
                found = client.get(f"{at}/questions", params={"n": BATCH})
                found.raise_for_status()
                questions = found.json()["questions"]
                if not questions:
                    time.sleep(0.05)
                    continue
                told["asks"].append(time.perf_counter() - asked)
                for question in questions:
                    if time.time() >= until or has_answered(told, answers):
                        break
                    start = time.perf_counter()
                    body = {"item": question["item"], "label": truth(question["item"])}
                    client.post(f"{at}/answers", json=body).raise_for_status()
                    told["answers"].append(time.perf_counter() - start)
                    told["answered"].append(question["item"])
            except httpx.HTTPError as error:
                told["errors"].append(f"{type(error).__name__}: {error}")
            asked = time.perf_counter()
    Path(out).write_text(json.dumps(told))


@contextmanager
def serving(where: str) -> Iterator[str]:
    """Yield the address of a server of a campaign, in a process of its own."""
    command = [
        sys.executable,
        "-c",
        "from teeter.cli import main; main()",
        "serve",
        where,
        "--no-open",
    ]
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "TEETER_HOME": home}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        try:
            found = next(
                filter(None, (re.search(r"http://[^/]+", line) for line in process.stdout or []))
            )
            yield found[0]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)
            if process.stdout is not None:
                process.stdout.close()


def load(
    where: str,
    people: int,
    seconds: float,
    items: int,
    *,
    through: str,
    answers_each: int | None = None,
) -> dict[str, Any]:
    """Let people answer at once for some seconds, or until each has given some answers; tell what
    came of it.
    """
    begin(where, items)
    context: Any = multiprocessing.get_context("fork" if hasattr(os, "fork") else "spawn")
    names, models, picked = [f"person {k}" for k in range(people)], 0, 0.0
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        files = [Path(folder) / f"{k}.json" for k in range(people)]
        act, place = (annotate, where) if through == "store" else (annotate_on_page, "")
        if through == "web":
            names = tokens_for(where, names)
            place = stack.enter_context(serving(where))
            picked = wait_for_picks(where)
        started = time.time()
        until = started + seconds
        workers = [
            context.Process(target=act, args=(place, name, until, answers_each, str(file)))
            for name, file in zip(names, files, strict=True)
        ]
        for worker in workers:
            worker.start()
        if through == "store":
            models = train_while_alive(where, workers)
        for worker in workers:
            worker.join()
        lasted = time.time() - started
        told = [json.loads(file.read_text()) for file in files]
    errors = [error for one in told for error in one["errors"]]
    answers, asks = (
        np.array([value for one in told for value in one[kind]]) for kind in ("answers", "asks")
    )
    first = [one["asks"][0] for one in told if one["asks"]]
    return {
        "through": through,
        "first picks after s": round(picked, 1),
        "people": people,
        "items": items,
        "seconds": round(lasted, 1),
        "answers": len(answers),
        "answers a second": round(len(answers) / lasted, 1),
        "answer, median ms": 1000 * float(np.median(answers)),
        "answer, 99 in 100 ms": 1000 * float(np.percentile(answers, 99)),
        "ask, median ms": 1000 * float(np.median(asks)),
        "ask, slowest ms": 1000 * float(asks.max()),
        "first ask, slowest ms": 1000 * max(first),
        "models": models if through == "store" else count_models(where) - 1,
        "errors": len(errors),
        **check(where, [item for one in told for item in one["answered"]]),
        "first error": errors[0] if errors else "",
    }


def wait_for_picks(where: str) -> float:
    """Wait until a server that has just been started has questions for those who come, and return
    how long it took.
    """
    campaign, began = Campaign.open(where), time.perf_counter()
    while True:
        with campaign.database.reading() as connection:
            if campaign.repository.picks.count_ready(connection):
                campaign.database.close()
                return time.perf_counter() - began
        time.sleep(0.1)


def tokens_for(where: str, names: list[str]) -> list[str]:
    """Name people, and return their tokens."""
    campaign = Campaign.open(where)
    tokens = [
        campaign.people.add(name, "owner" if k == 0 else "annotator")
        for k, name in enumerate(names)
    ]
    campaign.database.close()
    return tokens


def count_models(where: str) -> int:
    """Return how many models were trained."""
    campaign = Campaign.open(where)
    count = campaign.status().version
    campaign.database.close()
    return count


def train_while_alive(where: str, workers: list[Any]) -> int:
    """Train a model every few seconds while somebody answers; return how many there were."""
    campaign, models = Campaign.open(where), 0
    while True:
        next_model = time.monotonic() + TRAINED_EVERY
        for worker in workers:
            worker.join(max(0.0, next_model - time.monotonic()))
        if not any(worker.is_alive() for worker in workers):
            break
        try:
            campaign.train()
            models += 1
        except InputError:
            continue
    campaign.database.close()
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
    with campaign.database.reading() as connection:
        answers = campaign.repository.answers.live(connection)
    held = {one.item for one in answers if one.label == truth(one.item)}
    campaign.database.close()
    twice = sum(count - 1 for count in Counter(acknowledged).values())
    return {"asked twice": doubles, "answered twice": twice, "lost": len(set(acknowledged) - held)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--people", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument(
        "--answers-each", type=int, help="end sooner, when everybody has given so many answers"
    )
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument(
        "--url", help="a PostgreSQL database to use; without it, a server is started"
    )
    parser.add_argument("--only", choices=("sqlite", "postgresql"))
    parser.add_argument("--through", choices=("store", "web"), help="both without it")
    parser.add_argument("--out", type=Path, help="where to write the result as JSON")
    options = parser.parse_args()
    if options.url and not options.through:
        parser.error("--url goes with --through: a database takes one campaign of a name")
    torch.set_num_threads(1)
    lines = []
    with ExitStack() as stack:
        for kind in (options.only,) if options.only else ("sqlite", "postgresql"):
            for through in (options.through,) if options.through else ("store", "web"):
                where = str(
                    Path(stack.enter_context(tempfile.TemporaryDirectory())) / "numbers.teeter"
                )
                if kind == "postgresql":
                    where = options.url or new_database(stack)
                told = load(
                    where,
                    options.people,
                    options.seconds,
                    options.items,
                    through=through,
                    answers_each=options.answers_each,
                )
                lines.append({"store": kind, **told})
                print(format_table([lines[-1]]), flush=True)
    save_result(options.out, {**describe_setup(torch.device("cpu")), "teams": lines})


def new_database(stack: ExitStack) -> str:
    """Return a database of a server that the tests know how to start."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
    server = stack.enter_context(
        importlib.import_module("campaigns.postgres_server").running_server()
    )
    return str(server.new_database())


if __name__ == "__main__":
    main()
