"""Draw the sample data of ``teeter try`` from the published datasets.

    python docs/readme/make_samples.py BANKING77 FASHION_MNIST

BANKING77 is the JSON file of the published texts with the keys ``train`` and ``labels``, and may be
compressed with xz. FASHION_MNIST is a folder with the two published files of training rows. The
data it writes is committed, so this is only needed to change the selection.
"""

from __future__ import annotations

import csv
import gzip
import json
import lzma
import random
import sys
from pathlib import Path

import numpy as np
from PIL import Image

TARGET = Path(__file__).parents[2] / "src" / "teeter" / "samples" / "data"

INTENTS_BY_TEAM = {
    "cards": ("card_arrival", "lost_or_stolen_card"),
    "payments": ("declined_card_payment", "transaction_charged_twice"),
    "cash": ("declined_cash_withdrawal", "wrong_amount_of_cash_received"),
    "transfers": ("cancel_transfer", "transfer_not_received_by_recipient"),
    "top-ups": ("pending_top_up", "top_up_failed"),
    "identity": ("verify_my_identity", "why_verify_identity"),
}
TEXTS_PER_INTENT = 40
LONGEST_TEXT = 220

CLOTHES_BY_NUMBER = {
    0: "T-shirt",
    1: "trousers",
    2: "pullover",
    3: "dress",
    4: "coat",
    5: "sandal",
    # 6 is "shirt", which people cannot tell from the other tops at this size.
    7: "trainer",
    8: "bag",
    9: "boot",
}
IMAGES_PER_CLASS = 40
COLUMNS = 20
SIDE = 28


def write_messages(source: Path) -> None:
    """Write the texts and the team that answers each, in random order."""
    data = source.read_bytes()
    if source.suffix == ".xz":
        data = lzma.decompress(data)
    dataset = json.loads(data)

    texts_by_intent: dict[str, list[str]] = {}
    for text, number in dataset["train"]:
        # Some texts contain line breaks or repeated spaces.
        text = " ".join(text.split())
        if len(text) <= LONGEST_TEXT:
            texts_by_intent.setdefault(dataset["labels"][number], []).append(text)

    generator = random.Random(0)
    rows = []
    for team, intents in INTENTS_BY_TEAM.items():
        for intent in intents:
            texts = sorted(set(texts_by_intent[intent]))
            rows += [(text, team) for text in generator.sample(texts, TEXTS_PER_INTENT)]
    generator.shuffle(rows)

    with (TARGET / "messages.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["text", "team"])
        table.writerows(rows)


def write_clothes(folder: Path) -> None:
    """Write the images side by side into one file, and their classes into another."""
    with gzip.open(folder / "train-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, SIDE, SIDE)
    with gzip.open(folder / "train-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)

    rows = []
    for number, name in CLOTHES_BY_NUMBER.items():
        rows += [(int(row), name) for row in np.flatnonzero(labels == number)[:IMAGES_PER_CLASS]]
    random.Random(0).shuffle(rows)

    sheet = np.full((len(rows) // COLUMNS * SIDE, COLUMNS * SIDE), 255, np.uint8)
    for position, (row, _) in enumerate(rows):
        top = position // COLUMNS * SIDE
        left = position % COLUMNS * SIDE
        # Published white on black; a light background suits the page.
        sheet[top : top + SIDE, left : left + SIDE] = 255 - images[row]

    Image.fromarray(sheet).save(TARGET / "clothes.png", optimize=True)
    with (TARGET / "clothes.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["class"])
        table.writerows([name] for _, name in rows)


if __name__ == "__main__":
    TARGET.mkdir(parents=True, exist_ok=True)
    write_messages(Path(sys.argv[1]))
    write_clothes(Path(sys.argv[2]))
