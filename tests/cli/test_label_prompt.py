"""Labelling in a terminal: one key a class, second looks, and texts that cannot steer it."""

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

from cli.commands import build_command, done, refused, run, truth
from teeter.campaigns.campaign import Campaign
from teeter.cli import app, label_prompt


def test_the_terminal_takes_one_key_a_class(made: Path) -> None:
    shown = done("label", made, "-n", 4, typed="12u2?f 1s")
    assert "[1] fruit  [2] tool" in shown
    assert len(re.findall(r"taken back: t\d+, tool", shown)) == 1
    assert "Everything is in" in shown
    status = json.loads(done("status", made, "--json"))
    assert (status["labelled"], status["skipped"], status["unsure"], status["flagged"]) == (
        3,
        1,
        1,
        1,
    )


def test_the_terminal_ends_where_the_input_ends(made: Path) -> None:
    done("label", made, "-n", 3, typed="11")
    assert json.loads(done("status", made, "--json"))["labelled"] == 2


@pytest.fixture
def doubtful(made: Path) -> Path:
    """A campaign whose items are labelled, three of them wrongly."""
    campaign = Campaign.open(made)
    for k in range(60):
        right = truth(f"t{k}")
        campaign.tell(
            f"t{k}", {"fruit": "tool", "tool": "fruit"}[right] if k in (10, 21, 34) else right
        )
    campaign.database.close()
    return made


def test_suspects_are_gone_through_one_by_one(doubtful: Path) -> None:
    listed = json.loads(done("suspects", doubtful, "--json"))
    assert {one["item"] for one in listed} == {"t10", "t21", "t34"}
    first, second, third = listed
    keys = {"fruit": "1", "tool": "2"}
    result = run(
        "label",
        doubtful,
        "--suspects",
        typed=f"x={keys[second['predicted']]}u{keys[second['predicted']]} s",
    )
    assert result.exit_code == 0
    assert f"labelled {first['label']}, looks like {first['predicted']}" in result.stderr
    assert f"{first['label']} kept" in result.stdout
    assert [one["item"] for one in json.loads(done("suspects", doubtful, "--json"))] == [
        third["item"]
    ]
    assert first["item"] in done("suspects", doubtful, "--again")
    done("label", doubtful, "--suspects", typed=keys[third["label"]])
    assert done("suspects", doubtful) == "No label is suspected.\n"
    assert "No label is suspected." in done("label", doubtful, "--suspects")
    assert "kept" in done("label", doubtful, "--suspects", "--again", typed="=s")
    assert "--again goes with --suspects" in refused("label", doubtful, "--again")


def test_undo_in_a_round_leaves_the_round_as_long_as_it_was(made: Path) -> None:
    shown = run("label", made, "-n", 3, typed="1u1u12s").stderr
    assert re.findall(r"(\d) left", shown) == ["3", "2", "3", "2", "3", "2", "1"]
    assert json.loads(done("status", made, "--json"))["open"] == 1


def test_texts_cannot_steer_the_terminal_nor_flood_it(tmp_path: Path) -> None:
    path = tmp_path / "odd.csv"
    path.write_text("text\nred \x1b[31m text\n" + "word " * 200_000 + "\nplain text\n")
    done("new", path, "--classes", "a,b")
    asked = done("ask", tmp_path / "odd.teeter")
    shown = done("label", tmp_path / "odd.teeter", typed="   ")
    for told in (asked, shown):
        assert "\x1b" not in told
        assert "red \ufffd[31m text" in told
        assert len(told) < 6000
    assert "… (1,000,000 characters)" in shown


def test_one_class_only_is_no_end(made: Path) -> None:
    shown = done("label", made, "-n", 3, typed="111111s")
    assert "Model" not in shown
    assert json.loads(done("status", made, "--json"))["by_class"] == {"fruit": 6, "tool": 0}
    assert "labels of 1 of 2 classes" in refused("train", made)
    assert done("suspects", made) == "No label is suspected.\n"


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Make a real terminal the input of this process, and yield its other end."""
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "r") as stdin, monkeypatch.context() as changed:
        changed.setattr(sys, "stdin", stdin)
        yield ours
    os.close(ours)


def type_keys(terminal_end: int, keys: Sequence[bytes], is_asked: threading.Semaphore) -> None:
    """Type keys into a terminal, each when it is waited for: what is typed before is forgotten."""
    for key in keys:
        is_asked.acquire()
        while is_reading_lines(terminal_end):
            time.sleep(0.001)
        os.write(terminal_end, key)


def is_reading_lines(terminal_end: int) -> bool:
    """Return whether a terminal waits for whole lines, as it does unless somebody reads it key by key."""
    termios = pytest.importorskip("termios")
    return bool(termios.tcgetattr(terminal_end)[3] & termios.ICANON)


def label_in_terminal(path: Path, *keys: bytes, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run ``teeter campaign label`` with these keys typed one by one, and return its exit code."""
    is_asked, read_key = threading.Semaphore(0), label_prompt._key

    def ask_and_read_key() -> str:
        is_asked.release()
        return read_key()

    monkeypatch.setattr(label_prompt, "_key", ask_and_read_key)
    with terminal(monkeypatch) as terminal_end:
        threading.Thread(target=type_keys, args=(terminal_end, keys, is_asked), daemon=True).start()
        try:
            return int(
                build_command(app).main(
                    ["campaign", "label", str(path), "-n", "3"], standalone_mode=False
                )
                or 0
            )
        except typer.Exit as ended:
            return ended.exit_code


def test_a_terminal_is_read_key_by_key(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Through a real terminal, where keys come one by one and without Enter."""
    assert label_in_terminal(made, b"1", b"2", b"s", monkeypatch=monkeypatch) == 0
    assert "Everything is in" in capsys.readouterr().out
    assert json.loads(done("status", made, "--json"))["labelled"] == 2
    assert not made.with_name(f"{made.name}-wal").exists(), "nothing is left beside the file"


@pytest.mark.parametrize(("key", "code"), [(b"\x03", 130), (b"\x04", 0)])
def test_a_terminal_is_left_by_ctrl_c_and_ctrl_d(
    key: bytes,
    code: int,
    made: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert label_in_terminal(made, key, monkeypatch=monkeypatch) == code
    assert "Everything is in" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "code", "labelled"), [(b"12s", 0, 2), (b"\x03", 130, 0), (b"\x04", 0, 0)]
)
def test_a_process_reads_its_terminal_key_by_key(
    keys: bytes, code: int, labelled: int, made: Path
) -> None:
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    command = [
        sys.executable,
        "-c",
        "from teeter.cli import main; main()",
        "campaign",
        "label",
        str(made),
        "-n",
        "3",
    ]
    said, waiting, since = b"", [keys[k : k + 1] for k in range(len(keys))], 0
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ) as process:
        os.close(theirs)
        with contextlib.suppress(OSError):  # a terminal whose other end is closed
            ends = time.monotonic() + 240
            while time.monotonic() < ends:
                if select.select([ours], [], [], 0.3)[0]:
                    said += os.read(ours, 4096)
                elif b"left;" in said[since:] and waiting and not is_reading_lines(ours):
                    since = len(said)
                    os.write(ours, waiting.pop(0))
            process.kill()
        assert process.wait() == code
    os.close(ours)
    assert b"Everything is in" in said
    assert b"Traceback" not in said
    assert json.loads(done("status", made, "--json"))["labelled"] == labelled
    assert not made.with_name(f"{made.name}-wal").exists(), "nothing is left beside the file"


def test_ids_cannot_steer_the_terminal_nor_flood_it(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    ids = ["\x1b[31mred", "n\nl", "tab\tx", "long" * 100_000]
    path.write_text(
        "".join(json.dumps({"id": one, "text": f"text {k}"}) + "\n" for k, one in enumerate(ids))
    )
    done("new", path, "--classes", "a,b")
    campaign = tmp_path / "x.teeter"
    told = done("ask", campaign)
    assert len(told.splitlines()) == 4
    assert all(line.count("\t") == 2 for line in told.splitlines())
    assert "\x1b" not in told
    assert len(told) < 400
    done("tell", campaign, ids[0], "a")
    assert "\x1b" not in done("undo", campaign)
    assert len(refused("tell", campaign, "long" * 1000, "a")) < 400


def test_nothing_left_is_told_with_what_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("id,text\na,one x\nb,two x\nc,three x\n")
    done("new", path, "--classes", "a,b")
    campaign = tmp_path / "x.teeter"
    shown = done("label", campaign, "-n", 3, typed="1  s")
    assert shown.count("skipped") == 2
    assert "Nothing is left" not in shown
    assert len(done("ask", campaign).splitlines()) == 2, (
        "what was skipped comes back when nothing else is left"
    )
    done("tell", campaign, "a", "--other", "unsure")
    for item in ("b", "c"):
        done("tell", campaign, item, "a")
    assert (
        done("ask", campaign) == "Nothing is left to label: 2 of 3 items are labelled, 1 unsure.\n"
    )


def test_too_many_classes_for_the_keyboard_are_told(things: Path) -> None:
    done("new", things, "--classes", ",".join(f"class {k}" for k in range(40)))
    assert "There are 40 classes and" in refused("label", things.with_suffix(".teeter"))
