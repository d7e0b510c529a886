"""Label in a terminal: one key per class, reviews, and texts that cannot change the terminal."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import typer

from cli.commands import (
    ask,
    build_command,
    invoke_campaign,
    refuse_campaign,
    run_campaign,
    run_teeter,
    tell,
    true_label,
)
from teeter.campaigns import Campaign
from teeter.cli import app, label_prompt

SECONDS_TO_WAIT = 240

# What a terminal sends for Backspace and for Esc.
UNDO = "\x7f"
STOP = "\x1b"


def read_status(campaign: Path) -> dict[str, object]:
    """Return the status of a campaign as JSON has it."""
    return dict(json.loads(run_teeter("status", campaign, "--json").stdout))


def test_each_class_has_a_key(campaign_file: Path) -> None:
    printed = run_campaign("label", campaign_file, "-n", 4, typed=f"12{UNDO}2uf 1{STOP}")
    assert "[1] fruit  [2] tool" in printed
    assert len(re.findall(r"undone: t\d+, tool", printed)) == 1
    assert f"All answers are saved in {campaign_file}. Run the same command to continue." in printed
    status = read_status(campaign_file)
    assert (status["labelled"], status["skipped"], status["unsure"], status["flagged"]) == (
        3,
        1,
        1,
        1,
    )


def test_the_prompt_ends_with_its_input(campaign_file: Path) -> None:
    run_campaign("label", campaign_file, "-n", 3, typed="11")
    assert read_status(campaign_file)["labelled"] == 2


def test_an_undo_keeps_the_length_of_the_round(campaign_file: Path) -> None:
    prompts = invoke_campaign(
        "label", campaign_file, "-n", 3, typed=f"1{UNDO}1{UNDO}12{STOP}"
    ).stderr
    assert re.findall(r"(\d) left", prompts) == ["3", "2", "3", "2", "3", "2", "1"]
    assert read_status(campaign_file)["open"] == 1


def test_labels_of_one_class_train_no_model(campaign_file: Path) -> None:
    printed = run_campaign("label", campaign_file, "-n", 3, typed=f"111111{STOP}")
    assert "Model" not in printed
    assert read_status(campaign_file)["by_class"] == {"fruit": 6, "tool": 0}
    assert "only 1 of 2 classes" in refuse_campaign("train", campaign_file)
    assert "No suspect labels.\n" in run_campaign("review", campaign_file, "suspects")


def test_an_empty_queue_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("id,text\na,one x\nb,two x\nc,three x\n")
    run_campaign("new", path, "--classes", "a,b")
    campaign = tmp_path / "x.teeter"

    printed = run_campaign("label", campaign, "-n", 3, typed=f"a  {STOP}")
    assert printed.count("skipped") == 2
    assert "Nothing is left" not in printed
    assert len(ask(campaign)) == 2, "skipped items come back when nothing else is left"

    opened = Campaign.open(campaign)
    opened.mark_unsure("a")
    opened.database.close()
    for item in ("b", "c"):
        tell(campaign, item, "a")
    assert "Nothing is left to label: 2 of 3 items are labelled, 1 unsure.\n" in run_campaign(
        "label", campaign
    )


def test_the_keys_of_a_campaign_are_those_of_the_page(items_file: Path) -> None:
    run_campaign("new", items_file, "--classes", "fruit,tool,s", "--keys", "t")
    campaign = items_file.with_suffix(".teeter")
    result = invoke_campaign("label", campaign, "-n", 3, typed=f"T1s{STOP}")
    assert "[t] fruit  [1] tool  [s] s\n" in result.stdout
    assert read_status(campaign)["by_class"] == {"fruit": 1, "tool": 1, "s": 1}


def test_a_question_mark_shows_the_keys_again(campaign_file: Path) -> None:
    result = invoke_campaign("label", campaign_file, typed=f"?1{STOP}")
    assert result.stdout.count("[1] fruit  [2] tool") == 2
    legend = "[Space] skip  [u] unsure  [f] flag  [Backspace] undo  [?] help  [Esc] stop"
    assert result.stderr.count(legend) == 2
    assert read_status(campaign_file)["labelled"] == 1


@pytest.fixture
def campaign_of_fifty_classes(items_file: Path) -> Path:
    classes = [*(f"card {number}" for number in range(48)), "café", "Cafeteria"]
    run_campaign("new", items_file, "--classes", ",".join(classes))
    return items_file.with_suffix(".teeter")


def test_with_more_classes_than_keys_the_beginning_of_a_name_is_typed(
    campaign_of_fifty_classes: Path,
) -> None:
    typed = f"cafet\ncafe\ncard 47\nU F\n{UNDO}{UNDO}card 4\n{STOP}"
    result = invoke_campaign("label", campaign_of_fifty_classes, "-n", 9, typed=typed)
    assert result.exit_code == 0
    assert "There are 50 classes: type the beginning of a name" in result.stdout
    assert "[Shift U] unsure  [Shift F] flag" in result.stderr

    status = read_status(campaign_of_fifty_classes)
    labelled = {name for name, count in dict(status["by_class"]).items() if count}
    assert labelled == {"Cafeteria", "café", "card 47", "card 4"}
    # The flag and the skip were undone.
    assert (status["unsure"], status["flagged"], status["skipped"]) == (1, 0, 0)


def test_a_beginning_that_several_classes_share_is_not_an_answer(
    campaign_of_fifty_classes: Path,
) -> None:
    typed = f"caf\ne{UNDO}{UNDO}x\n{STOP}zebra\n{STOP}{STOP}"
    result = invoke_campaign("label", campaign_of_fifty_classes, typed=typed)
    assert "Several classes match 'caf': café, Cafeteria." in result.stderr
    assert "No class begins with 'cax'." in result.stderr
    assert "No class begins with 'zebra'." in result.stderr
    assert "stopped" in result.stdout
    assert read_status(campaign_of_fifty_classes)["labelled"] == 0


def test_the_legend_fits_the_terminal(items_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    classes = [f"class number {number}" for number in range(30)]
    run_campaign("new", items_file, "--classes", ",".join(classes))
    lines = run_campaign("label", items_file.with_suffix(".teeter"), typed=STOP).splitlines()
    legend = [line for line in lines if line.startswith("[")]
    assert len(legend) > 1
    assert max(len(line) for line in legend) <= 80
    assert all(re.search(rf"\[.\] {name}(  |$)", "  ".join(legend)) for name in classes)


# ---- reviews


@pytest.fixture
def campaign_with_slips(campaign_file: Path) -> Path:
    """A campaign whose items are all labelled, three of them wrongly."""
    opposite = {"fruit": "tool", "tool": "fruit"}
    campaign = Campaign.open(campaign_file)
    for number in range(60):
        label = true_label(f"t{number}")
        if number in (10, 21, 34):
            label = opposite[label]
        campaign.tell(f"t{number}", label)
    campaign.database.close()
    return campaign_file


@pytest.mark.slow
def test_suspect_labels_are_reviewed_one_by_one(campaign_with_slips: Path) -> None:
    campaign = campaign_with_slips
    suspects = json.loads(run_campaign("review", campaign, "suspects", "--json"))
    assert {suspect["item"] for suspect in suspects} == {"t10", "t21", "t34"}
    first, second, third = suspects
    keys = {"fruit": "1", "tool": "2"}

    # An unknown key, the first label kept, the second changed, undone and changed again, the third
    # left for later.
    right = keys[second["predicted"]]
    result = invoke_campaign("review", campaign, "suspects", typed=f"x={right}{UNDO}{right} {STOP}")
    assert result.exit_code == 0
    assert f"labelled {first['label']}, predicted {first['predicted']}" in result.stderr
    assert f"{first['label']} kept" in result.stdout

    remaining = json.loads(run_campaign("review", campaign, "suspects", "--json"))
    assert [suspect["item"] for suspect in remaining] == [third["item"]]

    printed = run_campaign("review", campaign, "suspects", typed=keys[third["label"]])
    assert f"\n{third['content']}\n" in printed, "the text is shown"
    assert run_campaign("review", campaign, "suspects", "--json") == "[]\n"
    assert "No suspect labels." in run_campaign("review", campaign, "suspects")


# ---- texts and ids that try to change the terminal


@pytest.mark.slow
def test_texts_cannot_change_or_flood_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "odd.csv"
    path.write_text("text\nred \x1b[31m text\n" + "word " * 200_000 + "\nplain text\n")
    run_campaign("new", path, "--classes", "a,b")
    printed = run_campaign("label", tmp_path / "odd.teeter", typed="   ")

    assert "\x1b" not in printed
    assert "red \ufffd[31m text" in printed
    assert len(printed) < 6000
    assert "… (1,000,000 characters)" in printed


def test_ids_cannot_change_or_flood_the_terminal(tmp_path: Path) -> None:
    ids = ["\x1b[31mred", "n\nl", "tab\tx", "long" * 100_000]
    rows = [{"id": item, "text": f"text {number}"} for number, item in enumerate(ids)]
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run_campaign("new", path, "--classes", "a,b")
    campaign = tmp_path / "x.teeter"

    printed = run_campaign("label", campaign, typed=f"a{UNDO}b a")
    assert "undone: " in printed
    assert "\x1b" not in printed
    assert len(printed) < 900

    # The same items again: their ids are in the sentences on duplicates.
    more = tmp_path / "more.jsonl"
    more.write_text("".join(json.dumps({**row, "id": "new" + row["id"]}) + "\n" for row in rows))
    printed = run_campaign("add", campaign, more)
    assert "Skipped " in printed
    assert "\x1b" not in printed
    assert all("\t" not in line for line in printed.splitlines())
    assert len(printed) < 1200


# ---- a real terminal


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Make a real terminal the input of this process, and yield its other end."""
    pty = pytest.importorskip("pty")
    our_end, their_end = pty.openpty()
    with os.fdopen(their_end, "r") as stdin, monkeypatch.context() as patches:
        patches.setattr(sys, "stdin", stdin)
        yield our_end
    os.close(our_end)


def type_keys(terminal_end: int, keys: Sequence[bytes], is_asked: threading.Semaphore) -> None:
    """Type each key when it is waited for: keys that are typed earlier are lost."""
    for key in keys:
        is_asked.acquire()
        while is_reading_lines(terminal_end):
            time.sleep(0.001)
        os.write(terminal_end, key)


def is_reading_lines(terminal_end: int) -> bool:
    """Return whether a terminal waits for whole lines, as it does unless it is read by key."""
    termios = pytest.importorskip("termios")
    return bool(termios.tcgetattr(terminal_end)[3] & termios.ICANON)


def label_in_terminal(path: Path, *keys: bytes, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run ``teeter campaign label`` with these keys typed one by one, and return its exit code."""
    is_asked = threading.Semaphore(0)
    read_key = label_prompt._read_key

    def ask_and_read_key() -> str:
        is_asked.release()
        return read_key()

    monkeypatch.setattr(label_prompt, "_read_key", ask_and_read_key)
    command = ["campaign", "label", str(path), "-n", "3"]
    with terminal(monkeypatch) as terminal_end:
        threading.Thread(target=type_keys, args=(terminal_end, keys, is_asked), daemon=True).start()
        try:
            return int(build_command(app).main(command, standalone_mode=False) or 0)
        except typer.Exit as exited:
            return exited.exit_code


def test_a_terminal_is_read_key_by_key(
    campaign_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Through a real terminal, where keys come one by one and without Enter."""
    assert label_in_terminal(campaign_file, b"1", b"2", b"\x1b", monkeypatch=monkeypatch) == 0
    assert "All answers are saved" in capsys.readouterr().out
    assert read_status(campaign_file)["labelled"] == 2
    assert not campaign_file.with_name(f"{campaign_file.name}-wal").exists(), (
        "nothing is left beside the file"
    )


@pytest.mark.parametrize(("key", "exit_code"), [(b"\x03", 130), (b"\x04", 0)])
def test_ctrl_c_and_ctrl_d_leave_the_prompt(
    key: bytes,
    exit_code: int,
    campaign_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert label_in_terminal(campaign_file, key, monkeypatch=monkeypatch) == exit_code
    assert "All answers are saved" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "exit_code", "labelled"), [(b"12\x1b", 0, 2), (b"\x03", 130, 0), (b"\x04", 0, 0)]
)
def test_a_process_reads_its_terminal_key_by_key(
    keys: bytes, exit_code: int, labelled: int, campaign_file: Path
) -> None:
    pty = pytest.importorskip("pty")
    our_end, their_end = pty.openpty()
    program = [sys.executable, "-c", "from teeter.cli import main; main()"]
    command = [*program, "campaign", "label", str(campaign_file), "-n", "3"]
    waiting = [keys[k : k + 1] for k in range(len(keys))]
    printed = b""
    answered_until = 0

    with subprocess.Popen(
        command, stdin=their_end, stdout=their_end, stderr=their_end, start_new_session=True
    ) as process:
        os.close(their_end)
        with contextlib.suppress(OSError):  # a terminal whose other end is closed
            deadline = time.monotonic() + SECONDS_TO_WAIT
            while time.monotonic() < deadline:
                is_asking = b"left;" in printed[answered_until:]
                if select.select([our_end], [], [], 0.3)[0]:
                    printed += os.read(our_end, 4096)
                elif is_asking and waiting and not is_reading_lines(our_end):
                    answered_until = len(printed)
                    os.write(our_end, waiting.pop(0))
            process.kill()
        assert process.wait() == exit_code
    os.close(our_end)

    assert b"All answers are saved" in printed
    assert b"Traceback" not in printed
    assert read_status(campaign_file)["labelled"] == labelled
    assert not campaign_file.with_name(f"{campaign_file.name}-wal").exists(), (
        "nothing is left beside the file"
    )
