"""Settings: the paper's, number by number, and what may be changed."""

from __future__ import annotations

import csv
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from teeter.bench.datasets import names as dataset_names
from teeter.bench.experiments.settings import (
    PAPER_STRATEGIES,
    override,
    read_setting,
    setting_named,
    setting_names,
)
from teeter.errors import FileError, InputError, UnknownNameError
from teeter.strategies.base import registry

PAPER = Path(__file__).parents[4] / "shared" / "paper" / "settings.csv"
TEN = setting_names()[:10]


def test_the_ten_of_the_paper_come_first() -> None:
    assert TEN == [
        "openml-6",
        "openml-156",
        "openml-44135",
        "mnist",
        "cifar10",
        "svhn",
        "cifar100",
        "tiny-imagenet",
        "food101",
        "imagenet",
    ]

    assert [setting_named(name).paper for name in TEN] == TEN


@pytest.mark.skipif(not PAPER.exists(), reason="the paper's table is not here")
@pytest.mark.parametrize("name", TEN)
def test_values_are_the_paper_s(name: str) -> None:
    with PAPER.open() as file:
        (row,) = [row for row in csv.DictReader(file) if row["dataset"] == name]

    setting = setting_named(name)

    for theirs, ours in [
        ("network", setting.network),
        ("validation", setting.validation),
        ("initial", setting.initial),
        ("query", setting.query),
        ("pool", setting.pool),
        ("final", setting.final),
        ("epochs", setting.epochs),
        ("batch_size", setting.batch_size),
        ("optimizer", setting.optimizer),
    ]:
        assert row[theirs] == str(ours)

    assert float(row["learning_rate"]) == setting.learning_rate
    assert [int(epoch) for epoch in row["lr_milestones"].split()] == list(setting.milestones)
    assert float(row["lr_decay"] or 1) == setting.decay


def test_strategies_are_those_of_the_paper_s_table() -> None:
    """BAIT is left out above 10 classes or so, and DBAL for a network without dropout."""
    left_out = {name: set(PAPER_STRATEGIES) - set(setting_named(name).strategies) for name in TEN}
    assert {name: names for name, names in left_out.items() if names} == {
        "cifar100": {"bait"},
        "tiny-imagenet": {"bait"},
        "food101": {"bait"},
        "imagenet": {"bait", "dbal"},
    }


@pytest.mark.parametrize("name", setting_names())
def test_each_is_whole(name: str) -> None:
    setting = setting_named(name)
    assert setting.name == name
    assert setting.dataset in dataset_names()
    assert set(setting.strategies) <= set(registry.names())
    assert setting.rounds >= 2
    assert setting.training.epochs == setting.epochs
    assert setting.quick == name.endswith("-quick")
    assert (setting.paper is None) == (name not in TEN)


def test_quick_ones_are_smaller() -> None:
    for name in TEN:
        full = setting_named(name)
        quick = setting_named(f"{name}-quick")

        assert quick.rounds * quick.epochs < full.rounds * full.epochs / 3
        assert quick.repetitions <= 3


def test_values_change_by_text_or_as_they_are() -> None:
    base = setting_named("mnist")

    changed = override(
        base,
        {
            "epochs": "5",
            "pool": "all",
            "balanced": "yes",
            "milestones": "3, 4",
            "learning_rate": "0.1",
            "seed": 7,
        },
    )

    assert (changed.epochs, changed.pool, changed.balanced, changed.milestones) == (
        5,
        None,
        True,
        (3, 4),
    )
    assert (changed.learning_rate, changed.seed) == (0.1, 7)

    assert changed.strategies == base.strategies


def test_a_changed_experiment_is_not_the_paper_s() -> None:
    base = setting_named("openml-6")
    assert override(base, {"epochs": 20}).paper is None
    assert (
        override(base, {"seed": 4, "repetitions": 2, "strategies": ("random",)}).paper == "openml-6"
    )
    assert override(base, {"epochs": 100}).paper == "openml-6"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epoch": "5"}, "A setting has no value called 'epoch'. Did you mean 'epochs'"),
        ({"name": "x"}, "A setting has no value called 'name'"),
        ({"epochs": "many"}, "epochs is 'many': it must be a whole number"),
        ({"epochs": 0}, "epochs is 0: it must be a whole number of 1 or more"),
        ({"query": 2.5}, "query is 2.5: it must be a whole number"),
        ({"balanced": "perhaps"}, "balanced is 'perhaps': it must be yes or no"),
        ({"learning_rate": "fast"}, "learning_rate is 'fast': it must be a number"),
        (
            {"milestones": "1,x"},
            "milestones is '1,x': it must be whole numbers separated by commas",
        ),
        (
            {"final": 100},
            "adds 200 per round cannot end with 100: final must be 400 or more",
        ),
        ({"network": "mpl"}, "No network is called 'mpl'. Did you mean 'mlp'"),
        ({"imbalance": "0.5"}, "imbalance is 0.5: it must be 1 or more"),
        ({"optimizer": "adma"}, "No optimizer is called 'adma'"),
        ({"validation": -1}, "validation is -1"),
        ({"options": {"../ldm-s": {}}}, r"'../ldm-s' cannot be a strategy's name"),
        ({"options": "x"}, r"options is 'x': it must be a table for each strategy"),
        (
            {"options": {"ldm-s": 3}},
            r"options is {'ldm-s': 3}: it must be a table for each strategy",
        ),
        ({"milestones": 3}, "milestones is 3: it must be whole numbers separated by commas"),
        ({"milestones": ["a"]}, "milestones is .*: it must be whole numbers separated by commas"),
        ({"strategies": [3]}, "strategies is .*: it must be names"),
        ({"weight_decay": [1]}, "weight_decay is .*: it must be a number"),
        ({"seed": 1.5}, "seed is 1.5: it must be a whole number"),
        ({"epochs": True}, "epochs is True: it must be a whole number"),
        ({"balanced": 3}, "balanced is 3: it must be yes or no"),
        ({"dataset": 3}, "dataset is 3: it must be a name"),
        ({"paper": "x"}, "A setting has no value called 'paper'. Known: dataset"),
    ],
)
def test_wrong_values_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises((InputError, UnknownNameError), match=message.replace("?", r"\?")):
        override(setting_named("openml-6"), values)


def test_an_unknown_setting_has_a_hint() -> None:
    with pytest.raises(
        UnknownNameError, match=r"No setting is called 'openml6'. Did you mean 'openml-6'"
    ):
        setting_named("openml6")


def test_a_file_changes_a_setting(tmp_path: Path) -> None:
    path = tmp_path / "short.toml"
    path.write_text(
        'base = "digits"\nepochs = 3\nstrategies = ["random", "margin"]\n'
        "[options.ldm-s]\nrays = 64\n"
    )

    setting = read_setting(path)
    assert (setting.name, setting.epochs, setting.strategies) == (
        "digits-short",
        3,
        ("random", "margin"),
    )
    assert setting.options == {"ldm-s": {"rays": 64}}


def test_a_file_can_be_a_setting_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'dataset = "digits"\nnetwork = "linear"\ninitial = 10\nquery = 10\nfinal = 40\npool = 200\n'
    )

    setting = read_setting(path)
    assert (setting.name, setting.rounds, setting.strategies, setting.paper) == (
        "mine",
        3,
        PAPER_STRATEGIES,
        None,
    )
    assert asdict(setting)["network"] == "linear"


def test_text_in_a_file_of_its_own_means_what_it_means_with_a_base(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'dataset = "digits"\nnetwork = "linear"\ninitial = 10\n'
        'query = 10\nfinal = 40\npool = "all"\n'
        'strategies = "random, margin"\nbalanced = "no"\nlearning_rate = "0.1"\n'
    )

    setting = read_setting(path)
    assert (setting.pool, setting.strategies, setting.balanced) == (
        None,
        ("random", "margin"),
        False,
    )
    assert setting.learning_rate == 0.1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epochs = ", "cannot be read as a TOML file"),
        ('base = "digit"', "No setting is called 'digit'"),
        ("epochs = 3", "does not set dataset, final, initial, network, pool, query"),
        ('base = "digits"\nepochz = 3', "no value called 'epochz'"),
        ("epochz = 3", "no value called 'epochz'"),
        ("base = 3", "No setting is called '3'"),
        ('base = ["digits"]', "No setting is called"),
        ('base = "digits"\nname = ""', "name is '': it must be a name"),
        ('base = "digits"\nname = 3', "name is 3: it must be a name"),
    ],
)
def test_a_wrong_file_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises((FileError, InputError, UnknownNameError), match=message):
        read_setting(path)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="There is no file"):
        read_setting(tmp_path / "none.toml")
