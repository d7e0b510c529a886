"""The tutorial on the terminal: every command prints what the page shows, on real messages."""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from pathlib import Path

import pytest

from documented_sessions import read_blocks, run_blocks
from teeter.campaigns import Campaign

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "terminal.md"

# From this number on, from 0, the answer to the first plain message is wrong: it is called spam.
SLIP = 12


@pytest.mark.slow
def test_the_session(real_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = lzma.decompress((real_data / "sms_spam.tsv.xz").read_bytes())
    Path("SMSSpamCollection").write_bytes(source)
    lines = [line.split("\t", 1) for line in source.decode().split("\n") if line]
    true_labels = {text: label for label, text in lines}

    def keys_for(words: list[str]) -> Iterator[str]:
        if words[1] == "review":
            yield from "1="
        elif words[1] == "label":
            has_slipped = False
            for number in range(100):
                campaign = Campaign.open("messages.teeter")
                is_spam = true_labels[campaign.ask(1)[0].content or ""] == "spam"
                campaign.database.close()
                if number >= SLIP and not is_spam and not has_slipped:
                    is_spam = has_slipped = True
                yield "2" if is_spam else "1"

    assert run_blocks(read_blocks(PAGE.read_text(encoding="utf-8")), keys_for, true_labels) == 6

    campaign = Campaign.open("messages.teeter")
    suspects = campaign.review.suspects(50, again=True)
    campaign.database.close()
    wrong = [suspect for suspect in suspects if true_labels[suspect.content or ""] != suspect.label]
    assert wrong == [], "the slip was found and fixed"
