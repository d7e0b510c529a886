"""The tutorial on campaigns: every command prints what the page shows, on real
messages and images.
"""

from __future__ import annotations

import lzma
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

import pytest

from cli.commands import CommandRunner
from teeter.campaigns import Campaign
from teeter.cli import app, label_prompt

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "first_campaign.md"
BLOCK = re.compile(
    r'^```(python title="[^"]+"|console)\n(.*?)^```$', flags=re.MULTILINE | re.DOTALL
)

TEXTS = "From a file of texts"
IMAGES = "From a folder of images"
AFTER_IMAGES = "Better features for texts"

# The number of the answer that is wrong, from 0: a plain message is called spam.
SLIP = 10

Block = tuple[str, str]


def read_blocks(first_title: str, next_title: str) -> list[Block]:
    """Return the kind and text of each block between two titles of the page."""
    page = PAGE.read_text(encoding="utf-8")
    part = page.split(f"\n## {first_title}\n")[1].split(f"\n## {next_title}\n")[0]
    return BLOCK.findall(part)


def mask(line: str, texts: Collection[str] = ()) -> str:
    """Replace what may differ between machines: numbers, and which message comes next.

    Training on another processor rounds differently, and after a hundred answers another message
    may be the most informative one.
    """
    if line in texts:
        return "A MESSAGE"

    line = re.sub(r"\b(ham|spam)\b", "CLASS", line)
    return re.sub(r"[-+]?\d[\d,.]*", "N", line)


def mask_all(lines: Sequence[str], texts: Collection[str]) -> str:
    """Mask lines and join them: where a sentence is wrapped depends on the length of
    its numbers.
    """
    return " ".join(" ".join(mask(line, texts) for line in lines).split())


def check_output(command: str, shown: Sequence[str], output: str, texts: Collection[str]) -> None:
    """Check that an output has the documented lines in order. A line "…" stands for any lines."""
    if not shown:
        assert output == ""
        return

    remaining = mask_all(output.splitlines(), texts)
    for passage in "\n".join(shown).split("…\n"):
        expected = mask_all(passage.splitlines(), texts)
        assert expected in remaining, f"{command} does not show {passage!r}: {output}"
        remaining = remaining.split(expected, 1)[1]


def run_blocks(
    blocks: Sequence[Block],
    keys_for: Callable[[list[str]], Iterator[str]],
    texts: Collection[str] = (),
) -> int:
    """Run the blocks of the page and check what their commands print.

    Args:
        blocks: Python code and console sessions.
        keys_for: returns the keys that are typed into a command.
        texts: the messages, any of which may be shown.

    Returns:
        The number of commands.
    """
    count = 0
    for kind, text in blocks:
        if kind != "console":
            exec(compile(text, str(PAGE), "exec"), {})
            continue

        for session in text.split("$ teeter ")[1:]:
            command, *shown = session.splitlines()
            words = shlex.split(command)
            keys = keys_for(words)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(label_prompt, "_read_key", lambda keys=keys: next(keys, "s"))
                result = CommandRunner().invoke(app, words)
            assert result.exit_code == 0, result.output
            check_output(command, shown, result.output, texts)
            count += 1
    return count


@pytest.mark.slow
def test_texts(real_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = lzma.decompress((real_data / "sms_spam.tsv.xz").read_bytes())
    Path("SMSSpamCollection").write_bytes(source)
    lines = [line.split("\t", 1) for line in source.decode().split("\n") if line]
    true_labels = {text: label for label, text in lines}

    def keys_for(words: list[str]) -> Iterator[str]:
        if "--suspects" in words:
            yield from "1="
        elif words[1] == "label":
            for number in range(100):
                campaign = Campaign.open("messages.teeter")
                is_spam = true_labels[campaign.ask(1)[0].content or ""] == "spam"
                campaign.database.close()
                if number == SLIP:
                    is_spam = not is_spam
                yield "2" if is_spam else "1"

    assert run_blocks(read_blocks(TEXTS, IMAGES), keys_for, true_labels) == 8

    campaign = Campaign.open("messages.teeter")
    suspects = campaign.suspects(50, again=True)
    campaign.database.close()
    wrong = [suspect for suspect in suspects if true_labels[suspect.content or ""] != suspect.label]
    assert wrong == [], "the slip was found and fixed"


@pytest.mark.slow
def test_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_blocks(read_blocks(IMAGES, AFTER_IMAGES), lambda words: iter(())) == 6
