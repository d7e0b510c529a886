"""The settings of experiments, a page of values: those of the paper, quick variants of them, and a few of our own."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from teeter.errors import FileError, InputError, UnknownNameError
from teeter.models.network_registry import network_names
from teeter.registry import did_you_mean
from teeter.strategies.api import make_strategy
from teeter.strategies.base import Strategy
from teeter.training.config import TrainingConfig

__all__ = [
    "PAPER_STRATEGIES",
    "Setting",
    "override",
    "read_setting",
    "setting_named",
    "setting_names",
]

_A_NAME = re.compile(r"\w[\w.=-]*")

PAPER_STRATEGIES = (
    "ldm-s",
    "random",
    "entropy",
    "margin",
    "coreset",
    "probcover",
    "dbal",
    "ensemble",
    "badge",
    "bait",
)
"""The ten of the paper's main comparison."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One experiment: a dataset, a network, how many labels, and how the network is trained."""

    name: str
    dataset: str
    network: str
    initial: int
    """Labels to begin with."""
    query: int
    """Labels a round."""
    final: int
    """Labels at the end."""
    pool: int | None
    """Candidates drawn at random each round; None for all."""
    validation: int = 0
    """Training rows set apart; the epoch that is right on most of them is kept."""
    train: int | None = None
    """Training rows that are used, drawn by the seed; None for all."""
    test: int | None = None
    """Test rows that are used, the first of a fixed order; None for all."""
    epochs: int = 100
    batch_size: int = 64
    optimizer: str = "adam"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    decay: float = 1.0
    milestones: tuple[int, ...] = ()
    class_weighted: bool = False
    """Whether every class counts alike in training, however many labels it has."""
    repetitions: int = 5
    seed: int = 0
    balanced: bool = False
    """Whether the initial labels are the same number of every class, instead of drawn like the training rows."""
    separate: bool = False
    """Whether repetitions train in stacks of their own, so that several workers can share a run; else all in one."""
    imbalance: float = 1.0
    """How many times as many training rows the first class keeps as the last."""
    embeddings: bool = False
    """Whether features from a file stand in for the inputs, so that only a head trains."""
    quick: bool = False
    """Whether this is a smaller variant, whose numbers are not the paper's."""
    paper: str | None = None
    """What the paper's tables call it; None where the numbers cannot be compared."""
    strategies: tuple[str, ...] = PAPER_STRATEGIES
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Options of strategies, by name; one that names a ``strategy`` is a variant of it, under a name of its own."""

    def __post_init__(self) -> None:
        """Refuse values that no run could follow."""
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, list):
                object.__setattr__(self, one.name, value := tuple(value))
            if not _is_of(str(one.type), value):
                raise InputError(f"{one.name} is {value!r}: it must be {_in_words(str(one.type))}.")
        if self.network not in network_names():
            raise UnknownNameError(
                f"No network is called {self.network!r}. {did_you_mean(self.network, network_names())}"
            )
        for name in (
            "initial",
            "query",
            "final",
            "pool",
            "train",
            "test",
            "epochs",
            "batch_size",
            "repetitions",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} is {value!r}: it must be a whole number of 1 or more.")
        if self.validation < 0:
            raise InputError(
                f"validation is {self.validation!r}: it must be a whole number of 0 or more."
            )
        if self.final < self.initial + self.query:
            raise InputError(
                f"A run from {self.initial} labels by {self.query} does not end at {self.final}: "
                f"final must be {self.initial + self.query} or more."
            )
        if not self.imbalance >= 1:
            raise InputError(f"imbalance is {self.imbalance!r}: it must be 1 or more.")
        for name in self.options:
            if not _A_NAME.fullmatch(name):
                raise InputError(
                    f"{name!r} cannot be a strategy's name: use letters, digits, '.', '=', '_' and '-'."
                )
        _ = self.training

    @property
    def training(self) -> TrainingConfig:
        """How networks are trained."""
        shared = {one.name for one in fields(TrainingConfig)}
        return TrainingConfig(**{name: getattr(self, name) for name in shared})

    def strategy(self, name: str) -> Strategy:
        """Return the strategy called so here, with its options."""
        options = dict(self.options.get(name, {}))
        return make_strategy(str(options.pop("strategy", name)), options)

    @property
    def rounds(self) -> int:
        """How often labels are asked for."""
        return (self.final - self.initial) // self.query


def override(setting: Setting, values: Mapping[str, Any]) -> Setting:
    """Return a setting with some values changed; numbers and lists may come as text, as from a command line."""
    changed = _read(values)
    different = {name for name, value in changed.items() if getattr(setting, name) != value}
    # Other seeds, repetitions and strategies are the same experiment; all else is another, which the paper did not run.
    same = different <= {"seed", "repetitions", "strategies", "options"}
    return replace(setting, **changed, paper=setting.paper if same else None)


def _read(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values that anyone may give, with text turned into what they are to be."""
    kinds = {
        one.name: str(one.type)
        for one in fields(Setting)
        if one.name not in ("name", "paper", "quick")
    }
    for name in values:
        if name not in kinds:
            raise UnknownNameError(
                f"A setting has no value called {name!r}. {did_you_mean(name, kinds)}"
            )
    return {
        name: _as_wanted(name, value, kinds[name]) if isinstance(value, str) else value
        for name, value in values.items()
    }


def _as_wanted(name: str, text: str, kind: str) -> Any:
    try:
        if kind.startswith("tuple"):
            parts = [part.strip() for part in text.split(",") if part.strip()]
            return tuple(map(int, parts)) if "int" in kind else tuple(parts)
        if "None" in kind and text.lower() in ("none", "all"):
            return None
        if kind == "bool":
            return {"true": True, "yes": True, "false": False, "no": False}[text.lower()]
        if kind.startswith("int"):
            return int(text)
        return float(text) if kind == "float" else text
    except (ValueError, KeyError):
        raise InputError(f"{name} is {text!r}: it must be {_in_words(kind)}.") from None


def _is_of(kind: str, value: Any) -> bool:
    if kind.endswith(" | None"):
        return value is None or _is_of(kind.removesuffix(" | None"), value)
    if kind.startswith("tuple"):
        inner = kind.removeprefix("tuple[").removesuffix(", ...]")
        return isinstance(value, tuple) and all(_is_of(inner, one) for one in value)
    if kind.startswith("dict"):
        return isinstance(value, dict) and all(isinstance(one, dict) for one in value.values())
    if isinstance(value, bool) or kind == "bool":
        return isinstance(value, bool) and kind == "bool"
    return isinstance(value, {"int": int, "float": int | float, "str": str}[kind]) and value != ""


def _in_words(kind: str) -> str:
    return {
        "str": "a name",
        "int": "a whole number",
        "int | None": "a whole number, or all",
        "float": "a number",
        "bool": "yes or no",
        "tuple[int, ...]": "whole numbers with commas between them",
        "tuple[str, ...]": "names with commas between them",
    }.get(kind, "a table for each strategy, as [options.ldm-s] in a .toml file")


def read_setting(path: Path) -> Setting:
    """Return the setting of a TOML file: a base and what differs, or all values of its own."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileError(f"There is no file {path}.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise FileError(f"{path} is not a TOML file that can be read: {error}.") from None
    base = values.pop("base", None)
    if base is not None:
        name = values.pop("name", f"{base}-{path.stem}")
        return replace(override(setting_named(str(base)), values), name=name)
    name = values.pop("name", path.stem)
    values = _read(values)
    required = {one.name for one in fields(Setting) if _is_required(one)}
    missing = sorted(required - set(values) - {"name"})
    if missing:
        raise InputError(
            f"{path} does not say {', '.join(missing)}: add them, or name a setting as its base."
        )
    return Setting(name=name, **values)


def _is_required(one: dataclasses.Field[Any]) -> bool:
    return one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING


def setting_named(name: str) -> Setting:
    """Return the setting called ``name``."""
    try:
        return _SETTINGS[name]
    except KeyError:
        raise UnknownNameError(
            f"No setting is called {name!r}. {did_you_mean(name, setting_names())}"
        ) from None


def setting_names() -> list[str]:
    """Return the names of all settings, those of the paper first."""
    return list(_SETTINGS)


def _of_the_paper(name: str, network: str, **values: Any) -> Setting:
    return Setting(name=name, dataset=name, network=network, paper=name, **values)


_NESTEROV: dict[str, Any] = {
    "optimizer": "nesterov",
    "batch_size": 128,
    "weight_decay": 5e-4,
    "decay": 0.2,
}
"""The paper does not tell the weight decay; the momentum is 0.9."""

_WITHOUT_BAIT = tuple(name for name in PAPER_STRATEGIES if name != "bait")

_PAPER = (
    _of_the_paper("openml-6", "mlp", initial=200, query=200, final=4000, pool=2000),
    _of_the_paper("openml-156", "mlp", initial=100, query=100, final=2000, pool=2000),
    _of_the_paper("openml-44135", "mlp", initial=100, query=100, final=2000, pool=2000),
    _of_the_paper(
        "mnist",
        "s-cnn",
        initial=20,
        query=20,
        final=1020,
        pool=2000,
        validation=5000,
        epochs=50,
        batch_size=32,
    ),
    *(
        _of_the_paper(
            name,
            "k-cnn",
            initial=200,
            query=400,
            final=9800,
            pool=4000,
            validation=5000,
            epochs=150,
            optimizer="rmsprop",
            learning_rate=1e-4,
        )
        for name in ("cifar10", "svhn")
    ),
    _of_the_paper(
        "cifar100",
        "wrn-16-8",
        initial=5000,
        query=2000,
        final=25_000,
        pool=10_000,
        validation=5000,
        learning_rate=0.05,
        milestones=(60, 80),
        strategies=_WITHOUT_BAIT,
        **_NESTEROV,
    ),
    _of_the_paper(
        "tiny-imagenet",
        "wrn-16-8",
        initial=10_000,
        query=5000,
        final=50_000,
        pool=20_000,
        validation=10_000,
        epochs=200,
        learning_rate=0.1,
        milestones=(60, 120, 160),
        strategies=_WITHOUT_BAIT,
        **_NESTEROV,
    ),
    _of_the_paper(
        "food101",
        "wrn-16-8",
        initial=6000,
        query=3000,
        final=30_000,
        pool=15_000,
        validation=15_150,
        epochs=200,
        learning_rate=0.1,
        milestones=(60, 120, 160),
        strategies=_WITHOUT_BAIT,
        **_NESTEROV,
    ),
    _of_the_paper(
        "imagenet",
        "resnet-18",
        initial=128_120,
        query=64_060,
        final=384_360,
        pool=256_240,
        validation=128_120,
        learning_rate=0.001,
        milestones=(60, 80),
        repetitions=3,
        strategies=tuple(name for name in _WITHOUT_BAIT if name != "ensemble"),
        **_NESTEROV,
    ),
)

_SMALLER: dict[str, dict[str, Any]] = {
    "openml-6": {"final": 1400},
    "openml-156": {"final": 700},
    "openml-44135": {"final": 700},
    "mnist": {
        "final": 140,
        "epochs": 15,
        "validation": 1000,
        "train": 6000,
        "test": 2000,
        "pool": 1000,
    },
    "cifar10": {
        "final": 1000,
        "epochs": 10,
        "validation": 500,
        "train": 5000,
        "test": 1000,
        "pool": 1000,
    },
    "svhn": {
        "final": 1000,
        "epochs": 10,
        "validation": 500,
        "train": 5000,
        "test": 1000,
        "pool": 1000,
    },
    "cifar100": {
        "initial": 500,
        "query": 200,
        "final": 900,
        "epochs": 4,
        "validation": 500,
        "train": 2000,
        "test": 500,
    },
    "tiny-imagenet": {
        "initial": 500,
        "query": 200,
        "final": 900,
        "epochs": 4,
        "validation": 500,
        "train": 2000,
    },
    "food101": {
        "initial": 500,
        "query": 200,
        "final": 900,
        "epochs": 4,
        "validation": 500,
        "train": 2000,
    },
    "imagenet": {
        "initial": 500,
        "query": 200,
        "final": 900,
        "epochs": 4,
        "validation": 500,
        "train": 2000,
    },
}
"""What quick variants cut: rounds, epochs and rows, so that a run on two cores takes minutes where it can."""

_QUICK_STRATEGIES = ("ldm-s", "random", "entropy", "margin", "coreset", "badge")


def _quick(setting: Setting) -> Setting:
    values = _SMALLER[setting.name]
    if setting.network in ("wrn-16-8", "resnet-18"):
        values = {"test": 500, "pool": 1000, "milestones": (), **values}
    return replace(
        setting,
        name=f"{setting.name}-quick",
        quick=True,
        paper=None,
        repetitions=3,
        strategies=_QUICK_STRATEGIES,
        **values,
    )


_DIGITS = Setting(
    name="digits",
    dataset="digits",
    network="mlp",
    initial=20,
    query=20,
    final=220,
    pool=None,
    strategies=("ldm-s", "random", "entropy", "margin", "coreset", "badge"),
)

_IMBALANCED = tuple(
    replace(one, name=f"{one.name}-imbalanced", imbalance=20.0, paper=None)
    for one in (*_PAPER[:1], *_PAPER[3:5], _DIGITS)
)

_SETTINGS = {one.name: one for one in (*_PAPER, _DIGITS, *map(_quick, _PAPER), *_IMBALANCED)}
