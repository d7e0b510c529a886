"""Let many annotators label one campaign at once, in the database and through the server.

Measures answers per second, and checks that no two annotators got the same item.

    python research/speed/bench_teams.py --out research/speed/results/teams_cpu.json
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import sklearn.linear_model  # loaded once, not by each process  # noqa: F401
import torch
from measure import describe_setup, format_table, save_result

from teeter.campaigns.campaign import Campaign
from teeter.campaigns.settings import Settings
from teeter.errors import InputError

TEETER = [sys.executable, "-c", "from teeter.cli import main; main()"]

CLASSES = ("even", "odd")
BATCH = 20
FIRST_LABELS = 20
"""Labels that the first model is trained on."""

TRAINING_INTERVAL = 10.0
"""Seconds between models, as if an annotator watched the progress."""

CAMPAIGN_URL = "/api/v1/campaigns/numbers"


@dataclass
class AnnotatorLog:
    """What an annotator did, written to a file when their process ends."""

    answered: list[str] = field(default_factory=list)
    """Items whose answers were acknowledged."""
    ask_seconds: list[float] = field(default_factory=list)
    answer_seconds: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> AnnotatorLog:
        return cls(**json.loads(path.read_text()))


@dataclass(frozen=True)
class Limit:
    """When an annotator stops."""

    until: float
    """Seconds since the epoch."""
    answers: int | None
    """Answers of each annotator. None: no limit."""

    def is_reached(self, log: AnnotatorLog) -> bool:
        has_all_answers = self.answers is not None and len(log.answered) >= self.answers
        return has_all_answers or time.time() >= self.until


def true_class(item: str) -> str:
    """Return the class of an item, which follows from its number."""
    return CLASSES[int(item[1:]) % 2]


def create_campaign(location: str, item_count: int) -> None:
    """Create a campaign of items whose class can be learnt, with a first model."""
    features = np.random.default_rng(0).normal(size=(item_count, 16)).astype(np.float32)
    features[::2, 0] += 2

    campaign = Campaign.make(
        [],
        CLASSES,
        at=location,
        name="numbers",
        settings=Settings(kind="features", strategy="margin"),
    )
    campaign.add(
        {
            "id": f"n{k}",
            "features": row,
            "label": true_class(f"n{k}") if k < FIRST_LABELS else None,
        }
        for k, row in enumerate(features)
    )
    campaign.train()
    campaign.database.close()


# Annotators, each in a process of its own


def annotate(location: str, name: str, limit: Limit, log_path: Path) -> None:
    """Ask and answer through the database until the limit, and write the log."""
    log = AnnotatorLog()
    try:
        campaign = Campaign.open(location)
        while not limit.is_reached(log):
            started = time.perf_counter()
            questions = campaign.ask(BATCH, name)
            log.ask_seconds.append(time.perf_counter() - started)
            if not questions:
                break

            for question in questions:
                if limit.is_reached(log):
                    break
                started = time.perf_counter()
                campaign.tell(question.item, true_class(question.item), name)
                log.answer_seconds.append(time.perf_counter() - started)
                log.answered.append(question.item)
        campaign.database.close()
    except Exception as error:
        log.errors.append(f"{type(error).__name__}: {error}")
    log.write(log_path)


def annotate_on_page(url: str, token: str, limit: Limit, log_path: Path) -> None:
    """Ask and answer through a server until the limit, and write the log.

    A wait for items that are still being picked counts as part of the ask.
    """
    log = AnnotatorLog()
    headers = {"authorization": f"Bearer {token}"}
    with httpx2.Client(base_url=url, headers=headers, timeout=600) as client:
        ask_started = time.perf_counter()
        while not limit.is_reached(log):
            try:
                response = client.get(f"{CAMPAIGN_URL}/questions", params={"n": BATCH})
                response.raise_for_status()
                questions = response.json()["questions"]
                if not questions:
                    time.sleep(0.05)
                    continue
                log.ask_seconds.append(time.perf_counter() - ask_started)

                for question in questions:
                    if limit.is_reached(log):
                        break
                    started = time.perf_counter()
                    answer = {"item": question["item"], "label": true_class(question["item"])}
                    client.post(f"{CAMPAIGN_URL}/answers", json=answer).raise_for_status()
                    log.answer_seconds.append(time.perf_counter() - started)
                    log.answered.append(question["item"])
            except httpx2.HTTPError as error:
                log.errors.append(f"{type(error).__name__}: {error}")
            ask_started = time.perf_counter()
    log.write(log_path)


# The process that starts them


@contextmanager
def run_server(location: str) -> Iterator[str]:
    """Run ``teeter serve`` in a process of its own, and yield its URL."""
    command = [*TEETER, "serve", location, "--no-open"]
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "TEETER_HOME": home}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        try:
            yield read_url(process)
        finally:
            process.terminate()
            try:
                process.wait(300)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()


def read_url(process: subprocess.Popen[str]) -> str:
    """Return the URL that a server prints when it is ready."""
    for line in process.stdout or []:
        if match := re.search(r"http://[^/]+", line):
            return match[0]
    raise RuntimeError("The server ended without printing its URL.")


def measure_load(
    location: str,
    annotator_count: int,
    seconds: float,
    item_count: int,
    *,
    through: str,
    answers_each: int | None = None,
) -> dict[str, Any]:
    """Let annotators answer at once, and return how fast it was and whether it was correct.

    Args:
        location: file or database of the campaign, which is created.
        annotator_count: number of annotators.
        seconds: time after which they stop.
        item_count: number of items of the campaign.
        through: ``"store"`` for the database, ``"web"`` for the server.
        answers_each: answers after which an annotator stops earlier.
    """
    create_campaign(location, item_count)
    context: Any = multiprocessing.get_context("fork" if hasattr(os, "fork") else "spawn")
    names = [f"person {k}" for k in range(annotator_count)]
    first_picks_seconds = 0.0

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        log_paths = [folder / f"{k}.json" for k in range(annotator_count)]

        # Annotators who use the server sign in with a token instead of a name.
        target: Callable[[str, str, Limit, Path], None] = annotate
        address = location
        credentials = names
        if through == "web":
            target = annotate_on_page
            credentials = add_annotators(location, names)
            address = stack.enter_context(run_server(location))
            first_picks_seconds = wait_for_picks(location)

        started = time.time()
        limit = Limit(started + seconds, answers_each)
        workers = [
            context.Process(target=target, args=(address, credential, limit, log_path))
            for credential, log_path in zip(credentials, log_paths, strict=True)
        ]
        for worker in workers:
            worker.start()
        model_count = 0
        if through == "store":
            model_count = train_while_alive(location, workers)
        for worker in workers:
            worker.join()
        duration = time.time() - started
        logs = [AnnotatorLog.read(log_path) for log_path in log_paths]

    if through == "web":
        model_count = count_models(location) - 1

    errors = [error for log in logs for error in log.errors]
    answer_seconds = np.array([value for log in logs for value in log.answer_seconds])
    ask_seconds = np.array([value for log in logs for value in log.ask_seconds])
    first_ask_seconds = [log.ask_seconds[0] for log in logs if log.ask_seconds]
    answered = [item for log in logs for item in log.answered]
    return {
        "through": through,
        "first picks after s": round(first_picks_seconds, 1),
        "people": annotator_count,
        "items": item_count,
        "seconds": round(duration, 1),
        "answers": len(answer_seconds),
        "answers a second": round(len(answer_seconds) / duration, 1),
        "answer, median ms": 1000 * float(np.median(answer_seconds)),
        "answer, 99 in 100 ms": 1000 * float(np.percentile(answer_seconds, 99)),
        "ask, median ms": 1000 * float(np.median(ask_seconds)),
        "ask, slowest ms": 1000 * float(ask_seconds.max()),
        "first ask, slowest ms": 1000 * max(first_ask_seconds),
        "models": model_count,
        "errors": len(errors),
        **count_mistakes(location, answered),
        "first error": errors[0] if errors else "",
    }


def wait_for_picks(location: str) -> float:
    """Wait until a server that has just started has picks, and return the seconds it took."""
    campaign = Campaign.open(location)
    started = time.perf_counter()
    while True:
        with campaign.reading() as view:
            if view.picks.count_ready():
                campaign.database.close()
                return time.perf_counter() - started
        time.sleep(0.1)


def add_annotators(location: str, names: list[str]) -> list[str]:
    """Add annotators to a campaign, the first as its owner, and return their tokens."""
    campaign = Campaign.open(location)
    tokens = []
    for k, name in enumerate(names):
        role = "owner" if k == 0 else "annotator"
        tokens.append(campaign.people.add(name, role))
    campaign.database.close()
    return tokens


def count_models(location: str) -> int:
    """Return how many models were trained."""
    campaign = Campaign.open(location)
    count = campaign.status().version
    campaign.database.close()
    return count


def train_while_alive(location: str, workers: list[Any]) -> int:
    """Train a model every few seconds while anybody answers, and return the number of models."""
    campaign = Campaign.open(location)
    model_count = 0
    while True:
        next_training = time.monotonic() + TRAINING_INTERVAL
        for worker in workers:
            worker.join(max(0.0, next_training - time.monotonic()))
        if not any(worker.is_alive() for worker in workers):
            break

        try:
            campaign.train()
            model_count += 1
        except InputError:
            continue
    campaign.database.close()
    return model_count


def count_mistakes(location: str, acknowledged: list[str]) -> dict[str, int]:
    """Count items that two annotators had at once, and acknowledged answers that are missing."""
    campaign = Campaign.open(location)
    assigned_items: set[str] = set()
    asked_twice = 0
    for event in campaign.history():
        if event["what"] == "asked":
            asked_twice += sum(item in assigned_items for item in event["items"])
            assigned_items.update(event["items"])
        elif event["what"] == "returned":
            assigned_items.difference_update(event["items"])

    with campaign.reading() as view:
        answers = view.answers.live()
    stored_items = {answer.item for answer in answers if answer.label == true_class(answer.item)}
    campaign.database.close()

    acknowledged_items = set(acknowledged)
    return {
        "asked twice": asked_twice,
        "answered twice": len(acknowledged) - len(acknowledged_items),
        "lost": len(acknowledged_items - stored_items),
    }


def start_postgresql(stack: ExitStack) -> str:
    """Start a PostgreSQL server as the tests do, and return the URL of a new database."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
    postgres_server = importlib.import_module("campaigns.postgres_server")
    server = stack.enter_context(postgres_server.running_server())
    return str(server.new_database())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--people", type=int, default=16, help="number of annotators")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument(
        "--answers-each", type=int, help="end earlier, when everybody has given so many answers"
    )
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument(
        "--url", help="a PostgreSQL database to use; without it, a server is started"
    )
    parser.add_argument("--only", choices=("sqlite", "postgresql"))
    parser.add_argument("--through", choices=("store", "web"), help="both without it")
    parser.add_argument("--out", type=Path, help="file for the result as JSON")
    options = parser.parse_args()
    if options.url and not options.through:
        parser.error("--url goes with --through: a database takes one campaign of a name")

    torch.set_num_threads(1)
    stores = [options.only] if options.only else ["sqlite", "postgresql"]
    ways = [options.through] if options.through else ["store", "web"]
    rows = []
    with ExitStack() as stack:
        for store in stores:
            for through in ways:
                if store == "postgresql":
                    location = options.url or start_postgresql(stack)
                else:
                    folder = stack.enter_context(tempfile.TemporaryDirectory())
                    location = str(Path(folder) / "numbers.teeter")
                load = measure_load(
                    location,
                    options.people,
                    options.seconds,
                    options.items,
                    through=through,
                    answers_each=options.answers_each,
                )
                rows.append({"store": store, **load})
                print(format_table([rows[-1]]), flush=True)
    save_result(options.out, {**describe_setup(torch.device("cpu")), "teams": rows})


if __name__ == "__main__":
    main()
