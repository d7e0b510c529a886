"""Strategies, datasets and networks of other packages, found by their entry points."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.commands import run_teeter
from teeter import models, strategies
from teeter.bench.datasets import catalogue, load_dataset
from teeter.bench.experiments import read_run
from teeter.bench.experiments.settings import override, setting_named
from teeter.errors import PluginError, UnknownNameError
from teeter.models.model_files import save_model
from teeter.strategies.base import registry

PAGE = Path(__file__).parents[2] / "docs" / "how_to" / "write_a_strategy.md"

BROKEN = {
    "teeter.strategies": {
        "absent": "no_such_module:Mine",
        "leaves": "teeter_broken.leaves:Mine",
        "a-number": "math:pi",
    },
    "teeter.bench.datasets": {
        "lost": "no_such_module:LOST",
        "a-function": "math:sqrt",
        "short": "teeter_broken.short:SHORT",
    },
    "teeter.networks": {
        "gone": "no_such_module:gone",
        "a-word": "teeter_broken.short:WORD",
        "root": "math:sqrt",
    },
}

Install = Callable[[Path], None]


def look_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget which plugins there were."""
    monkeypatch.setattr(registry, "_classes", registry.loaded_classes())
    for owner, name in (
        (registry.plugins, "_entry_points"),
        (catalogue.plugins, "_entry_points"),
        (models.plugins, "_entry_points"),
    ):
        monkeypatch.delitem(owner.__dict__, name, raising=False)


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Put a folder of packages with their metadata on the path, for this test alone."""
    before = set(sys.modules)

    def install_folder(folder: Path) -> None:
        monkeypatch.syspath_prepend(folder)
        look_again(monkeypatch)

    yield install_folder
    for name in set(sys.modules) - before:
        if name.startswith("teeter_"):
            del sys.modules[name]
    for owner, name in (
        (registry.plugins, "_entry_points"),
        (catalogue.plugins, "_entry_points"),
        (models.plugins, "_entry_points"),
    ):
        owner.__dict__.pop(name, None)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of the how-to page, made of the page's own blocks, built as a wheel and unpacked
    as pip would.
    """
    folder = tmp_path_factory.mktemp("package")

    for name, text in re.findall(
        r"^```(?:python|toml)\n# (\S+)\n(.*?)^```", PAGE.read_text(), flags=re.M | re.S
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (folder / "teeter_even" / "__init__.py").touch()

    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--skip-dependency-check",
        str(folder),
    ]

    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (folder / "dist").glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "site")
    return folder / "site"


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    site = tmp_path / "site"
    (site / "teeter_broken").mkdir(parents=True)
    (site / "teeter_broken" / "__init__.py").touch()
    (site / "teeter_broken" / "leaves.py").write_text("import sys\nsys.exit('no licence found')\n")

    (site / "teeter_broken" / "short.py").write_text(
        "from teeter.bench.datasets import dataset_from_function\nWORD = 'tiny'\n"
        "def short():\n    return [[1.0]], [0, 1], [[2.0]], [0]\n"
        "SHORT = dataset_from_function(short, about='', train=1, test=1, shape=(1,), classes=2)\n"
    )

    info = site / "teeter_broken-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: teeter-broken\nVersion: 1\n")

    groups = [
        f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in points.items())
        for group, points in BROKEN.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(groups))
    return site


def by_name(text: str) -> dict[str, Any]:
    return {entry["name"]: entry for entry in json.loads(text)}


def test_a_package_s_strategy_dataset_and_network_are_found_and_run(
    install: Install, built: Path, tmp_path: Path
) -> None:
    assert "even-margin" not in run_teeter("strategies").stdout
    install(built)

    strategy = by_name(run_teeter("strategies", "--json").stdout)["even-margin"]
    assert strategy["about"] == "Rows of small margin, taken from the predicted classes in turn."
    assert strategy["needs"] == ["logits"]

    dataset = by_name(run_teeter("bench", "datasets", "--json").stdout)["rings"]
    assert (dataset["train"], dataset["test"], dataset["classes"], dataset["shape"]) == (
        400,
        200,
        3,
        [2],
    )
    assert dataset["found"] == "teeter-even"
    assert (
        "rings is already available: teeter-even."
        in run_teeter("bench", "datasets", "rings").stdout
    )

    assert run_teeter("bench", "settings").stdout.splitlines()[-1].count("|tiny ") == 1
    values = (
        "--set",
        "dataset=rings",
        "--set",
        "network=tiny",
        "--set",
        "epochs=2",
        "--set",
        "final=60",
    )
    wanted = (
        "--strategies",
        "even-margin,random",
        "--repetitions",
        2,
        "--out",
        tmp_path / "run",
        "--device",
        "cpu",
    )

    run_teeter("bench", "run", "digits", *values, *wanted)
    run = read_run(tmp_path / "run")
    assert run.finished
    assert run.curves().accuracy["even-margin"].shape == (2, 3)
    assert load_dataset("rings").classes == ("inner", "middle", "outer")


@pytest.mark.slow
def test_a_package_s_network_can_be_a_model_file(
    install: Install, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(built)
    path = tmp_path / "model.safetensors"
    save_model(path, models.build_network("tiny", (6,), 3), "tiny", shape=(6,), classes=3)
    np.save(
        tmp_path / "pool.npy", np.random.default_rng(0).standard_normal((50, 6)).astype(np.float32)
    )

    arguments = ("select", tmp_path / "pool.npy", "-n", 3, "--model", path)
    monkeypatch.chdir(tmp_path)  # the engine stores its scores here
    in_shards = run_teeter(*arguments, "--engine", "local", "--workers", 1)
    assert (
        len(in_shards.stdout.splitlines()) == len(run_teeter(*arguments).stdout.splitlines()) == 4
    )

    monkeypatch.undo()  # where the package is not installed
    look_again(monkeypatch)
    error = run_teeter(*arguments, fails=2).stderr
    assert "not installed, or its name is misspelt: No network is called 'tiny'." in error
    assert len(error.strip().splitlines()) == 1


def test_nothing_is_imported_before_it_is_asked_for(install: Install, built: Path) -> None:
    install(built)
    assert "even-margin" in strategies.names()
    assert "rings" in catalogue.names()
    assert "tiny" in models.network_names()
    assert not any(name.startswith("teeter_even") for name in sys.modules)


def test_broken_ones_are_listed_with_the_reason_and_all_else_works(
    install: Install, broken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # wide enough for a sentence in one line
    install(broken)

    listed_strategies = by_name(run_teeter("strategies", "--json").stdout)
    assert listed_strategies["absent"]["about"] == (
        "The strategy 'absent' of teeter-broken cannot be loaded: No module named 'no_such_module'."
    )
    assert (
        listed_strategies["leaves"]["about"]
        == "The strategy 'leaves' of teeter-broken cannot be loaded: no licence found."
    )
    assert listed_strategies["a-number"]["about"].endswith(
        "is float math:pi: it must be a class of Strategy."
    )
    assert "margin" in listed_strategies

    listed_datasets = by_name(run_teeter("bench", "datasets", "--json").stdout)
    assert listed_datasets["lost"]["get"].startswith(
        "The dataset 'lost' of teeter-broken cannot be loaded"
    )
    assert (
        "it must be what teeter.bench.datasets.dataset_from_function(...) returns"
        in listed_datasets["a-function"]["get"]
    )
    assert listed_datasets["digits"]["found"] == "scikit-learn"

    assert "cannot be loaded" in run_teeter("bench", "datasets").stdout
    assert "gone|root" in run_teeter("bench", "settings").stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--strategies", "absent"), "The strategy 'absent' of teeter-broken cannot be loaded"),
        (("--set", "dataset=lost"), "The dataset 'lost' of teeter-broken cannot be loaded"),
        (
            ("--set", "dataset=short"),
            (
                "teeter_broken.short.short returns 1 rows and 2 labels in y_train: they must have "
                "the same number."
            ),
        ),
        (("--set", "network=gone"), "The network 'gone' of teeter-broken cannot be loaded"),
        (("--set", "network=a-word"), "it must be a function make(shape, classes, *, seed)"),
        (
            ("--set", "network=root"),
            "'root' of teeter-broken cannot be created for rows of shape (64,) and 10 classes",
        ),
    ],
)
def test_asking_for_a_broken_one_gives_a_sentence(
    install: Install, broken: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    install(broken)
    error = run_teeter(
        "bench", "run", "digits", "--out", broken.parent / "run", *arguments, fails=2
    ).stderr
    assert sentence in error
    assert len(error.strip().splitlines()) == 1


def test_a_name_of_ours_cannot_be_taken_over(install: Install, tmp_path: Path) -> None:
    info = tmp_path / "teeter_greedy-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: teeter-greedy\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[teeter.strategies]\nldm-s = math:pi\n[teeter.bench.datasets]\ndigits = "
        "math:pi\n[teeter.networks]\nmlp = math:pi\n"
    )

    install(tmp_path)
    assert strategies.get("ldm-s").__module__ == "teeter.strategies.ldm"
    assert catalogue.find_spec("digits").package == "scikit-learn"
    assert catalogue.names().count("digits") == models.network_names().count("mlp") == 1

    with pytest.raises(PluginError):
        models.plugins.get("mlp")


def test_an_unknown_network_gets_a_hint(install: Install, built: Path) -> None:
    with pytest.raises(UnknownNameError, match="No network is called 'tinny'"):
        override(setting_named("digits"), {"network": "tinny"})
    install(built)
    with pytest.raises(UnknownNameError, match="Did you mean 'tiny'"):
        override(setting_named("digits"), {"network": "tinny"})
