"""teeter select, as a user types it."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import Result

from teeter import observe, save_model
from teeter.cli.output import progress
from teeter.models.networks import mlp
from teeter.selection import Selection, api

Teeter = Callable[..., Result]

TABLE = """\
name,size,colour,kind
a,-2.0,red,no
b,2.0,red,yes
c,0.1,red,
d,-1.2,blue,
e,0.7,red,NA
f,1.9,blue,
g,-2.0,blue,no
h,2.0,blue,yes
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "pool.csv"
    path.write_text(TABLE, encoding="utf-8")
    return path


@pytest.fixture
def arrays(tmp_path: Path) -> Path:
    """Four rows on a line, under a head that says yes to the right of 0."""
    path = tmp_path / "pool.npz"
    features = np.array([[-3.0], [0.5], [2.0], [-0.25]], dtype=np.float32)
    ids = np.array(["w", "x", "y", "z"])

    np.savez(
        path,
        features=features,
        ids=ids,
        weight=np.ones((1, 1)),
        bias=np.zeros(1),
        classes=["no", "yes"],
    )
    return path


def read_rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def read_error(result: Result) -> str:
    """Return the one sentence on stderr; nothing else is written."""
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    return line.removeprefix("Error: ")


def test_a_pool_of_arrays(teeter: Teeter, arrays: Path) -> None:
    result = teeter("select", arrays, "--strategy", "margin", "-n", 3)
    assert result.stdout.splitlines()[0] == "rank,id,row,ldm,predicted,margin,score"

    picks = read_rows(result.stdout)
    assert [(p["rank"], p["id"], p["row"], p["predicted"]) for p in picks] == [
        ("1", "z", "3", "no"),
        ("2", "x", "1", "yes"),
        ("3", "y", "2", "yes"),
    ]

    expected = [np.tanh(size / 2) for size in (0.25, 0.5, 2.0)]
    assert [float(p["margin"]) for p in picks] == pytest.approx(expected, abs=1e-6)
    assert [p["margin"] for p in picks] == [p["score"] for p in picks]
    assert [float(p["ldm"]) for p in picks] == [0.25, 0.25, 0.5]  # y flips only after x

    assert re.fullmatch(r"Picked 3 of 4 candidates by margin, in \d+\.\d s\.\n", result.stderr)


def test_a_table_with_labels(teeter: Teeter, table: Path) -> None:
    """The labelled rows are mirror images, so the boundary is at 0 and the smallest size is the
    least sure.
    """
    result = teeter(
        "select", table, "--labels", "kind", "--id", "name", "--strategy", "margin", "-n", 4
    )
    picks = read_rows(result.stdout)
    assert [(p["id"], p["row"], p["predicted"]) for p in picks] == [
        ("c", "2", "yes"),
        ("e", "4", "yes"),
        ("d", "3", "no"),
        ("f", "5", "yes"),
    ]
    assert "Picked 4 of 4 candidates by margin, 4 rows labelled" in result.stderr


def test_ldm_s_is_the_default_and_its_score_is_the_ldm(teeter: Teeter, arrays: Path) -> None:
    result = teeter("select", arrays, "-n", 1)
    assert result.stdout.splitlines()[0] == "rank,id,row,ldm,predicted,margin"
    (pick,) = read_rows(result.stdout)
    assert (pick["id"], pick["ldm"]) == ("x", "0.25")  # as close as z, and before it
    assert "by ldm-s" in result.stderr


def test_json(teeter: Teeter, arrays: Path) -> None:
    options = ("--strategy", "ldm", "--option", "rays=32", "--json")
    result = json.loads(teeter("select", arrays, "-n", 2, *options).stdout)

    assert [(pick["id"], pick["ldm"]) for pick in result["picks"]] == [("x", 0.25), ("z", 0.25)]
    assert result["picks"][0]["score"] is None

    facts = result["facts"]
    assert (facts["strategy"], facts["options"], facts["seed"], facts["n"]) == (
        "ldm",
        {"rays": 32},
        0,
        2,
    )
    assert (facts["candidates"], facts["labelled"], facts["classes"]) == (4, 0, ["no", "yes"])


def test_rays_may_be_isotropic_or_in_other_subspaces(teeter: Teeter, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    features = rng.standard_normal((60, 40)).astype(np.float32)
    weight = rng.standard_normal((3, 40)).astype(np.float32)
    np.savez(tmp_path / "pool.npz", features=features, weight=weight)

    values = []
    for subspace in ([], ["subspace=16"], ["subspace=4"], ["subspace=none"]):
        given = [word for option in subspace for word in ("--option", option)]
        command = ["select", tmp_path / "pool.npz", "-n", 60, "--strategy", "ldm", "--json"]
        result = json.loads(teeter(*command, "--option", "rays=32", *given).stdout)
        values.append({pick["id"]: pick["ldm"] for pick in result["picks"]})
    default, in_16, in_4, isotropic = values
    assert default == in_16
    assert default != in_4
    assert default != isotropic
    assert result["facts"]["subspace"] is None
    assert result["facts"]["options"] == {"rays": 32, "subspace": None}


def test_out_is_written_whole_and_stdout_stays_empty(
    teeter: Teeter, arrays: Path, tmp_path: Path
) -> None:
    shown = teeter("select", arrays, "-n", 2, "--strategy", "margin").stdout
    assert (
        teeter(
            "select", arrays, "-n", 2, "--strategy", "margin", "--out", tmp_path / "p.csv"
        ).stdout
        == ""
    )
    assert (tmp_path / "p.csv").read_text(encoding="utf-8") == shown
    teeter("select", arrays, "-n", 2, "--out", tmp_path / "p.json")
    assert len(json.loads((tmp_path / "p.json").read_text(encoding="utf-8"))["picks"]) == 2
    assert {path.name for path in tmp_path.iterdir()} == {"pool.npz", "p.csv", "p.json"}


def test_a_crash_leaves_the_old_file_and_no_half_file(
    teeter: Teeter, arrays: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_halfway(self: Selection, stream: io.StringIO) -> None:
        stream.write("rank,")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Selection, "to_csv", fail_halfway)
    out = tmp_path / "picks.csv"
    out.write_text("old", encoding="utf-8")
    error = read_error(teeter("select", arrays, "-n", 2, "--out", out, fails=2))
    assert error == f"Cannot write {out}: No space left on device."
    assert out.read_text(encoding="utf-8") == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"pool.npz", "picks.csv"}


def test_options_are_numbers_truths_lists_or_texts(teeter: Teeter, arrays: Path) -> None:
    given = [
        "--option",
        "method=gaussian",
        "--option",
        "sigmas=0.1, 1,10",
        "--option",
        "patience=3",
    ]

    result = json.loads(teeter("select", arrays, "-n", 1, *given, "--json").stdout)
    assert result["facts"]["options"] == {
        "method": "gaussian",
        "sigmas": [0.1, 1, 10],
        "patience": 3,
    }

    error = read_error(teeter("select", arrays, "-n", 1, "--option", "rays=True", fails=2))
    assert error == "rays is True: it must be a whole number of 1 or more."


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-n", "5"], "Cannot pick 5 of 4 candidates: ask for 1 to 4."),
        (["-n", "0"], "Cannot pick 0 of 4 candidates: ask for 1 to 4."),
        (
            ["-n", "1", "--strategy", "marginn"],
            "No strategy is called 'marginn'. Did you mean 'margin'?",
        ),
        (["-n", "1", "--option", "ray=3"], "ldm-s has no option 'ray'. Did you mean 'rays'?"),
        (["-n", "1", "--option", "ray"], "--option ray is not key=value."),
        (["-n", "1", "--option", "rays=0"], "rays is 0: it must be a whole number of 1 or more."),
        (
            ["-n", "1", "--strategy", "margin", "--option", "rays=0"],
            "rays is 0: it must be a whole number of 1 or more.",
        ),
        (
            ["-n", "1", "--device", "gpu"],
            "No device is called 'gpu': try 'cpu', 'cuda' or 'cuda:1'.",
        ),
        (
            ["-n", "1", "--id", "name"],
            "Nothing in POOL is called 'name'. Known: features, ids, weight, bias, classes.",
        ),
        (
            ["-n", "1", "--labels", "kind"],
            "--labels names a column of a table, but POOL holds arrays: pass --head instead.",
        ),
        (
            ["-n", "1", "--head", "POOL", "--labels", "y"],
            "Give only one of --head and --labels: each of them provides the head.",
        ),
        (["-n", "1", "--head", "none.npz"], "There is no file none.npz."),
        (
            ["-n", "1", "--out", "POOL"],
            "Cannot write POOL: it is an input file. Choose another file.",
        ),
        (["-n", "1", "--out", "/"], "Cannot write /: it is not a plain file."),
        (["-n", "1", "--out", "no/where.csv"], "Cannot write no/where.csv: there is no folder no."),
    ],
)
def test_a_mistake_is_one_sentence(
    teeter: Teeter, arrays: Path, arguments: list[str], message: str
) -> None:
    filled = [argument.replace("POOL", str(arrays)) for argument in arguments]
    assert read_error(teeter("select", arrays, *filled, fails=2)).startswith(
        message.replace("POOL", str(arrays))
    )


def test_the_time_left_is_shown_for_slow_steps_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    now = [0.0]
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("rich.console.monotonic", lambda: now[0])
    monkeypatch.setattr(sys, "stderr", Terminal())

    with progress("Picking") as report_progress:
        for done in range(4, 7):  # half an hour each; the first four are from before
            report_progress(done, 10)
            now[0] += 1800
        ends = time.monotonic() + 120
        while "2:00:00" not in sys.stderr.getvalue():  # type: ignore[attr-defined]
            assert time.monotonic() < ends, "the bar is drawn ten times a second"
            time.sleep(0.05)


def test_what_is_for_an_engine_is_not_overlooked(teeter: Teeter, tmp_path: Path) -> None:
    np.save(tmp_path / "pool.npy", np.eye(4, dtype=np.float32))
    for given in (["--labelled", tmp_path / "pool.npy"], ["--workers", 2]):
        result = teeter(
            "select", tmp_path / "pool.npy", "-n", 1, "--strategy", "random", *given, fails=2
        )
        assert "leave it out, or pass --engine local." in result.stderr
        assert f"{given[0]} can be used only with --engine:" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("engine", [[], ["--engine", "local", "--workers", 1]])
def test_a_model_makes_the_features(
    teeter: Teeter, tmp_path: Path, engine: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the engine stores its scores here
    network = mlp(9, 3, seed=1, hidden=8)
    save_model(
        tmp_path / "model.safetensors",
        network,
        "mlp",
        shape=(9,),
        classes=["a", "b", "c"],
        hidden=8,
    )

    inputs = np.random.default_rng(0).standard_normal((60, 9)).astype(np.float32)
    np.save(tmp_path / "raw.npy", inputs)

    observed = observe(network, inputs)
    np.save(tmp_path / "features.npy", observed.features)
    np.savez(
        tmp_path / "head.npz", weight=observed.weight, bias=observed.bias, classes=["a", "b", "c"]
    )

    model = tmp_path / "model.safetensors"
    head = tmp_path / "head.npz"

    def select_rows(pool: str, *options: object) -> list[tuple[str, str]]:
        command = ["select", tmp_path / pool, "-n", 5, "--option", "rays=16", *options, *engine]
        return [(row["row"], row["predicted"]) for row in read_rows(teeter(*command).stdout)]

    picked_with_model = select_rows("raw.npy", "--model", model)
    picked_with_head = select_rows("features.npy", "--head", head)
    assert picked_with_model == picked_with_head

    both = teeter(
        "select",
        tmp_path / "raw.npy",
        "-n",
        1,
        "--model",
        model,
        "--head",
        head,
        *engine,
        fails=2,
    )
    assert (
        read_error(both) == "Give only one of --head and --model: each of them provides the head."
    )

    written = teeter(
        "select", tmp_path / "raw.npy", "-n", 1, "--model", model, "--out", model, *engine, fails=2
    )
    assert read_error(written).endswith("it is an input file. Choose another file.")

    torch.save(network.state_dict(), tmp_path / "model.pt")
    pickled = teeter(
        "select", tmp_path / "raw.npy", "-n", 1, "--model", tmp_path / "model.pt", *engine, fails=2
    )
    assert (
        "is a pickle, which teeter never loads because it can run code: load it yourself"
        in read_error(pickled)
    )


def test_a_model_and_labels_exclude_each_other(teeter: Teeter, table: Path) -> None:
    result = teeter(
        "select", table, "-n", 1, "--labels", "kind", "--model", "m.safetensors", fails=2
    )
    assert (
        read_error(result)
        == "Give only one of --model and --labels: each of them provides the head."
    )


def test_options_of_the_wrong_kind_are_one_sentence(teeter: Teeter, arrays: Path) -> None:
    assert "sigma_max" in read_error(
        teeter("select", arrays, "-n", 1, "--option", "sigma_max=much", fails=2)
    )


@pytest.mark.parametrize(
    "arguments", [[], ["-n", "many"], ["-n", "1.5"], ["-n", "1", "--seed", "x"]]
)
def test_a_missing_or_wrong_number_says_how_to_use_it(
    teeter: Teeter, arrays: Path, arguments: list[str]
) -> None:
    assert "Usage: " in teeter("select", arrays, *arguments, fails=2).stderr


def test_columns_left_out_are_named(teeter: Teeter, tmp_path: Path) -> None:
    path = tmp_path / "pool.csv"
    path.write_text(
        "x,remark,y\n" + "".join(f"{k},remark {k},{'' if k > 3 else k % 2}\n" for k in range(60))
    )
    result = teeter("select", path, "--labels", "y", "-n", 2, "--option", "rays=16")
    assert result.stderr.splitlines()[0] == "Left out because they hold free text: remark."


def test_an_interrupt_exits_with_130(
    teeter: Teeter, arrays: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> Selection:
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "run_selection", interrupt)
    assert teeter("select", arrays, "-n", 1, fails=130).stdout == ""


def test_a_fault_of_ours_keeps_its_traceback(
    arrays: Path, teeter: Teeter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> Selection:
        raise ZeroDivisionError

    monkeypatch.setattr(api, "run_selection", fail)
    assert isinstance(teeter("select", arrays, "-n", 1, fails=1).exception, ZeroDivisionError)
