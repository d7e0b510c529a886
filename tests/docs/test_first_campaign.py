"""What the tutorial on campaigns shows is what comes out: every command, on real messages and real images."""

from __future__ import annotations

import lzma
import re
import shlex
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

from cli.commands import CommandRunner
from teeter.campaigns.campaign import Campaign
from teeter.cli import app, label_prompt

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "first_campaign.md"
BLOCK = re.compile(
    r'^```(python title="[^"]+"|console)\n(.*?)^```$', flags=re.MULTILINE | re.DOTALL
)
SLIP = 10
"""The answer, counted from 0, that is given wrongly: a plain message called spam."""


def part(title: str) -> list[tuple[str, str]]:
    """The blocks of the sections from one title to the next of those that begin another dataset."""
    text = PAGE.read_text(encoding="utf-8").split(f"\n## {title}\n")[1]
    ends = ("\n## From a folder of images\n", "\n## Better features for texts\n")
    for end in ends:
        text = text.split(end)[0]
    return BLOCK.findall(text)


def mask(line: str, texts: Collection[str] = ()) -> str:
    """Replace what may differ between machines: numbers, and which message comes next.

    Training on another processor rounds differently, and after a hundred answers another message
    may be the most informative one.
    """
    if line in texts:
        return "A MESSAGE"

    line = re.sub(r"\b(ham|spam)\b", "CLASS", line)
    return re.sub(r"[-+]?\d[\d,.]*", "N", line)


def run_all(
    blocks: list[tuple[str, str]],
    keys: Callable[[list[str]], Iterator[str]],
    texts: Collection[str] = (),
) -> int:
    """Run every command of the blocks and check that its output shows the documented lines in order.

    A line "…" stands for any number of lines.
    """
    ran = 0
    for kind, text in blocks:
        if kind != "console":
            exec(compile(text, str(PAGE), "exec"), {})
            continue
        for command, *shown in (part.splitlines() for part in text.split("$ teeter ")[1:]):
            words = shlex.split(command)
            typed = keys(words)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(label_prompt, "_key", lambda typed=typed: next(typed, "s"))
                result = CommandRunner().invoke(app, words)
            assert result.exit_code == 0, result.output
            written = iter([mask(line, texts) for line in result.output.splitlines()])
            for line in shown:
                is_there = line == "…" or mask(line, texts) in written
                assert is_there, f"{command} does not show {line!r}: {result.output}"
            assert shown or result.output == ""
            ran += 1
    return ran


@pytest.mark.slow
def test_texts(real_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = lzma.decompress((real_data / "sms_spam.tsv.xz").read_bytes())
    Path("SMSSpamCollection").write_bytes(source)
    lines = [line.split("\t", 1) for line in source.decode().split("\n") if line]
    truth = {text: label for label, text in lines}

    def keys(words: list[str]) -> Iterator[str]:
        if "--suspects" in words:
            yield from "1="
        elif words[1] == "label":
            for number in range(100):
                campaign = Campaign.open("messages.teeter")
                spam = truth[campaign.ask(1)[0].content or ""] == "spam"
                campaign.database.close()
                yield "2" if spam != (number == SLIP) else "1"

    assert run_all(part("From a file of texts"), keys, truth) == 8
    campaign = Campaign.open("messages.teeter")
    suspects = campaign.suspects(50, again=True)
    wrong = [suspect for suspect in suspects if truth[suspect.content or ""] != suspect.label]
    assert wrong == [], "the slip was found and fixed"


@pytest.mark.slow
def test_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_all(part("From a folder of images"), lambda words: iter(())) == 6
