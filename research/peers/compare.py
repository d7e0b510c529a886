"""Label the same texts with teeter, Potato and Label Studio, each in a browser, by the same truth.

python research/peers/compare.py times --data FOLDER --potato PROGRAM --label-studio PROGRAM
python research/peers/compare.py accuracy --data FOLDER --potato PROGRAM --label-studio PROGRAM
python research/peers/compare.py show

PROGRAM is the command of the tool in an environment of its own (``pip install
potato-annotation==2.12.1``, ``pip install label-studio==1.23.2``). Each tool gets 3,000 messages of
SMS Spam and two classes, and is asked for what it offers for picking: teeter's default, Potato's
active learning with its default query strategy, and Label Studio's random order, because its free
edition has no other that learns. A script reads the text on the page and presses the key of its
class.
"""

from __future__ import annotations

import argparse
import csv
import html
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Page, sync_playwright
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score

sys.path.append(str(Path(__file__).parents[2]))

from research.labelling import describe_setup, read_sms_spam, write_result
from teeter.encoders import make_encoder

RESULTS = Path(__file__).parent / "results"

CLASSES = ("ham", "spam")
TEXT_COUNT = 3_000
CHECKED = (100, 300)
"""Numbers of answers after which the accuracy on the other texts is measured."""

PATIENCE = 600_000
"""Milliseconds: Label Studio creates its database at the first start."""

PASSWORD = "only-on-loopback"
TOKEN = "0123456789abcdef0123456789abcdef01234567"


class Tool(ABC):
    """A labelling tool that runs on this machine."""

    name: str
    text_selector: str
    """The element of the page that shows the text and nothing else."""

    def __init__(self, program: str, folder: Path, port: int) -> None:
        self.program = program
        self.folder = folder
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    @abstractmethod
    def command(self, texts: Sequence[str]) -> list[str]:
        """Write what the tool needs, and return the command that starts it."""

    @abstractmethod
    def open(self, page: Page, texts: Sequence[str]) -> None:
        """Go to the first question, as a person who has just started the tool."""

    @abstractmethod
    def answer(self, page: Page, number: int) -> None:
        """Press the keys that give class ``number`` and show the next text."""

    def environment(self) -> dict[str, str]:
        """Return the environment of the process."""
        return dict(os.environ)

    def wait(self) -> None:
        """Wait until the server accepts requests."""
        for _ in range(PATIENCE // 100):
            try:
                urllib.request.urlopen(f"{self.url}/", timeout=30).close()
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
            else:
                return
        raise SystemExit(f"{self.name} did not start: see {self.folder}/log.txt.")


class Teeter(Tool):
    """``teeter serve`` of a table, with its default settings."""

    name = "teeter"
    text_selector = "#stage .words"

    def command(self, texts: Sequence[str]) -> list[str]:
        table = self.folder / "messages.csv"
        with table.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([["text"], *([text] for text in texts)])
        run = [sys.executable, "-c", "from teeter.cli import main; main()"]
        classes = ",".join(CLASSES)
        return [*run, "serve", str(table), "--classes", classes, "--port", str(self.port)]

    def environment(self) -> dict[str, str]:
        return super().environment() | {"TEETER_HOME": str(self.folder / "home")}

    def open(self, page: Page, texts: Sequence[str]) -> None:
        page.goto(f"{self.url}/")

    def answer(self, page: Page, number: int) -> None:
        page.keyboard.press(str(number + 1))


class Potato(Tool):
    """Potato with its active learning, which reorders texts by scikit-learn's classifiers."""

    name = "Potato"
    text_selector = "#instance-text"

    def command(self, texts: Sequence[str]) -> list[str]:
        rows = [json.dumps({"id": f"m{i}", "text": text}) for i, text in enumerate(texts)]
        (self.folder / "messages.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
        config = {
            "annotation_task_name": "messages",
            "server_name": "messages",
            "task_dir": ".",
            "output_annotation_dir": "answers",
            "output_annotation_format": "jsonl",
            "data_files": ["messages.jsonl"],
            "item_properties": {"id_key": "id", "text_key": "text"},
            "user_config": {"allow_all_users": True, "users": []},
            "authentication": {"method": "in_memory"},
            "require_password": False,
            "site_dir": "default",
            "annotation_schemes": [
                {
                    "annotation_type": "radio",
                    "name": "label",
                    "description": "Which class?",
                    "labels": list(CLASSES),
                    "sequential_key_binding": True,
                }
            ],
            "assignment_strategy": "active_learning",
            "automatic_assignment": {
                "on": True,
                "sampling_strategy": "random",
                "labels_per_instance": 1,
                "instance_per_annotator": len(texts),
            },
            "active_learning": {
                "enabled": True,
                "schema_names": ["label"],
                "min_instances_for_training": 20,
                "update_frequency": 20,
                "classifier": {
                    "name": "sklearn.linear_model.LogisticRegression",
                    "hyperparameters": {},
                },
                "vectorizer": {
                    "name": "sklearn.feature_extraction.text.TfidfVectorizer",
                    "hyperparameters": {},
                },
            },
        }
        # JSON is YAML.
        path = self.folder / "config.yaml"
        path.write_text(json.dumps(config, indent=1))
        return [self.program, "start", str(path), "-p", str(self.port), "--host", "127.0.0.1"]

    def open(self, page: Page, texts: Sequence[str]) -> None:
        page.goto(f"{self.url}/")
        page.fill("#login-email", "ann")
        page.keyboard.press("Enter")

    def answer(self, page: Page, number: int) -> None:
        page.keyboard.press(str(number + 1))
        page.keyboard.press("ArrowRight")


class LabelStudio(Tool):
    """Label Studio's free edition, in random order."""

    name = "Label Studio"
    text_selector = ".lsf-richtext__container"

    def command(self, texts: Sequence[str]) -> list[str]:
        return [
            self.program,
            *("start", "--no-browser", "--port", str(self.port), "--internal-host", "127.0.0.1"),
            *("--username", "ann@example.com", "--password", PASSWORD, "--user-token", TOKEN),
        ]

    def environment(self) -> dict[str, str]:
        return super().environment() | {
            "LABEL_STUDIO_BASE_DATA_DIR": str(self.folder / "data"),
            "LABEL_STUDIO_ENABLE_LEGACY_API_TOKEN": "true",
            "COLLECT_ANALYTICS": "false",
            "LATEST_VERSION_CHECK": "false",
        }

    def open(self, page: Page, texts: Sequence[str]) -> None:
        choices = "".join(f'<Choice value="{name}"/>' for name in CLASSES)
        config = (
            '<View><Text name="text" value="$text"/><Choices name="label" toName="text" '
            f'choice="single">{choices}</Choices></View>'
        )
        project = self._send(
            "/api/projects",
            {"title": "messages", "label_config": config, "sampling": "Uniform sampling"},
        )
        self._send(f"/api/projects/{project['id']}/import", [{"text": text} for text in texts])
        page.goto(f"{self.url}/user/login")
        page.fill("input[name=email]", "ann@example.com")
        page.fill("input[name=password]", PASSWORD)
        page.click("button[type=submit]")
        page.wait_for_load_state()
        page.goto(f"{self.url}/projects/{project['id']}/data?labeling=1")

    def answer(self, page: Page, number: int) -> None:
        page.keyboard.press(str(number + 1))
        page.keyboard.press("Control+Enter")

    def _send(self, path: str, body: object) -> Any:
        request = urllib.request.Request(
            self.url + path,
            json.dumps(body).encode(),
            {"Authorization": f"Token {TOKEN}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=600) as response:
            return json.load(response)


# A session in a browser


@dataclass(frozen=True)
class Session:
    """What a script saw while it labelled with a tool."""

    tool: str
    seconds_to_first_question: float
    milliseconds: float
    """The median from the press of a key to the next text on the page."""
    slowest_milliseconds: float
    requests: float
    """Requests for an answer, on average, without pictures and scripts that are cached."""
    kilobytes: float
    """What the browser received for an answer."""
    answered: list[int]
    """The texts in the order in which the tool showed them."""


@contextmanager
def run_tool(tool: Tool, texts: Sequence[str]) -> Iterator[float]:
    """Run the server of a tool, and yield when its command was given."""
    command = tool.command(texts)
    started = time.perf_counter()
    with (tool.folder / "log.txt").open("w") as log:
        process = subprocess.Popen(
            command,
            cwd=tool.folder,
            env=tool.environment(),
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            tool.wait()
            yield started
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(60)


def label(
    tool: Tool, texts: Sequence[str], labels: Sequence[int], count: int, *, pause: float = 0.0
) -> Session:
    """Answer ``count`` questions of a tool by the truth, after ``pause`` seconds for each."""
    row_of_text = {normalize(text): row for row, text in enumerate(texts)}
    answered: list[int] = []
    times: list[float] = []
    received: list[int] = []

    with run_tool(tool, texts) as started, sync_playwright() as player:
        browser = player.chromium.launch(
            executable_path="/usr/bin/chromium",
            args=["--no-sandbox", "--disable-background-networking"],
        )
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        tool.open(page, texts)
        shown = read_text(page, tool, "")
        first_question = time.perf_counter() - started
        # What the page loads beside its first text does not belong to the first answer.
        page.wait_for_load_state("networkidle")
        client = page.context.new_cdp_session(page)
        client.send("Network.enable")
        client.on(
            "Network.loadingFinished", lambda event: received.append(event["encodedDataLength"])
        )

        for _ in range(count):
            row = row_of_text[normalize(shown)]
            answered.append(row)
            time.sleep(pause)
            pressed = time.perf_counter()
            tool.answer(page, labels[row])
            shown = read_text(page, tool, shown)
            times.append(1_000 * (time.perf_counter() - pressed))
        page.wait_for_load_state("networkidle")
        browser.close()

    return Session(
        tool.name,
        first_question,
        statistics.median(times),
        max(times),
        len(received) / count,
        sum(received) / count / 1_000,
        answered,
    )


def read_text(page: Page, tool: Tool, before: str) -> str:
    """Return the text on the page, once it is another than before."""
    handle = page.wait_for_function(
        """([selector, before]) => {
            const text = document.querySelector(selector)?.innerText.trim();
            return text && text !== before ? text : null;
        }""",
        arg=[tool.text_selector, before],
    )
    return str(handle.json_value())


def normalize(text: str) -> str:
    """Return a text without spaces and escapes: pages show them in other ways than files."""
    return "".join(html.unescape(text).split())


# The parts of the comparison


def read_messages(folder: Path, seed: int) -> tuple[list[str], list[int]]:
    """Return texts that differ in more than spaces, in a random order, and their classes."""
    dataset = read_sms_spam(folder)
    order = np.random.default_rng(seed).permutation(len(dataset.texts))
    rows: dict[str, int] = {}
    for row in order.tolist():
        rows.setdefault(normalize(dataset.texts[row]), row)
    chosen = list(rows.values())[:TEXT_COUNT]
    is_spam = dataset.classes.index("spam")
    return [dataset.texts[row] for row in chosen], [
        int(dataset.labels[row] == is_spam) for row in chosen
    ]


def make_tools(options: argparse.Namespace, folder: Path) -> Iterator[Tool]:
    """Yield each tool with an empty folder and a port of its own."""
    tools = (
        Teeter("", folder / "teeter", options.port),
        Potato(options.potato, folder / "potato", options.port + 1),
        LabelStudio(options.label_studio, folder / "label_studio", options.port + 2),
    )
    for tool in tools:
        if not options.tools or tool.name in options.tools:
            tool.folder.mkdir()
            yield tool


def measure_times(options: argparse.Namespace) -> None:
    """Measure how long each tool lets people wait, and how much room it takes."""
    texts, labels = read_messages(options.data, seed=0)
    rows = []
    for repeat in range(options.repeats):
        with tempfile.TemporaryDirectory() as folder:
            for tool in make_tools(options, Path(folder)):
                session = asdict(label(tool, texts, labels, options.answers)) | {"repeat": repeat}
                session.pop("answered")
                rows.append(session | {"load": os.getloadavg()[0]})
                print(rows[-1], flush=True)
    result = describe_setup() | {"answers": options.answers, "sessions": rows}
    write_result(result, RESULTS / "times.json")


def measure_accuracy(options: argparse.Namespace) -> None:
    """Measure how well one model labels the rest after the answers that each tool asked for.

    The model is the same for all: logistic regression on the features of MiniLM. Labels of teeter
    and Potato are picked, those of Label Studio random.
    """
    rows = []
    for seed in range(options.seeds):
        texts, labels = read_messages(options.data, seed)
        features = make_encoder("minilm", "text").encode(texts).vectors
        truth = np.array(labels)
        with tempfile.TemporaryDirectory() as folder:
            for tool in make_tools(options, Path(folder)):
                # As long as a quick person needs: both models learn meanwhile.
                session = label(tool, texts, labels, max(CHECKED), pause=options.pause)
                for count in CHECKED:
                    known = np.array(session.answered[:count])
                    rest = np.delete(np.arange(len(texts)), known)
                    model = LogisticRegression(C=10.0, max_iter=2_000, class_weight="balanced")
                    predicted = model.fit(features[known], truth[known]).predict(features[rest])
                    row = {
                        "tool": tool.name,
                        "seed": seed,
                        "answers": count,
                        "spam": int(truth[known].sum()),
                        "accuracy": float((predicted == truth[rest]).mean()),
                        "balanced": float(balanced_accuracy_score(truth[rest], predicted)),
                    }
                    rows.append(row)
                    print(row, flush=True)
    result = describe_setup() | {"pause": options.pause, "cells": rows}
    write_result(result, RESULTS / "accuracy.json")


def show(options: argparse.Namespace) -> None:
    """Print the table of the committed results."""
    times = json.loads((RESULTS / "times.json").read_text())["sessions"]
    cells = json.loads((RESULTS / "accuracy.json").read_text())["cells"]
    table = []
    for name in dict.fromkeys(row["tool"] for row in times):
        own = [row for row in times if row["tool"] == name]
        line: dict[str, Any] = {"tool": name}
        for field in (
            "seconds_to_first_question",
            "milliseconds",
            "slowest_milliseconds",
            "requests",
            "kilobytes",
        ):
            line[field.replace("_", " ")] = statistics.median(row[field] for row in own)
        for count in CHECKED:
            for measure in ("accuracy", "balanced"):
                values = [
                    100 * cell[measure]
                    for cell in cells
                    if cell["tool"] == name and cell["answers"] == count
                ]
                line[f"{measure} at {count}"] = round(statistics.mean(values), 1)
        table.append(line)
    print("| " + " | ".join(table[0]) + " |")
    print("|" + " --- |" * len(table[0]))
    for line in table:
        cells_of_line = [f"{v:.3g}" if isinstance(v, float) else str(v) for v in line.values()]
        print("| " + " | ".join(cells_of_line) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("times", "accuracy"):
        command = commands.add_parser(name)
        command.add_argument("--data", type=Path, required=True)
        command.add_argument("--potato", default="potato")
        command.add_argument("--label-studio", default="label-studio")
        command.add_argument("--port", type=int, default=9100)
        command.add_argument("--tools", nargs="*")
        command.add_argument("--answers", type=int, default=40)
        command.add_argument("--repeats", type=int, default=3)
        command.add_argument("--seeds", type=int, default=2)
        command.add_argument("--pause", type=float, default=2.0, help="Seconds for each answer.")
    commands.add_parser("show")
    options = parser.parse_args()
    {"times": measure_times, "accuracy": measure_accuracy, "show": show}[options.command](options)


if __name__ == "__main__":
    main()
