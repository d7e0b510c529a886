"""The settings of experiments: those of the LDM paper, quick variants of them, and some more.

A setting is a page of values, and a ``.toml`` file can hold one. ``setting_named`` finds one by its
name, ``override`` changes values of it, ``read_setting`` reads a file.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from teeter.base.registry import did_you_mean, import_object, require_known
from teeter.base.seeds import validate_seed
from teeter.errors import FileError, InputError, UnknownNameError
from teeter.models import network_names
from teeter.training.config import TrainingConfig
from teeter.training.metrics import find_metrics

if TYPE_CHECKING:
    from teeter.strategies.base import Strategy

__all__ = [
    "OWN_MODEL",
    "PAPER_STRATEGIES",
    "Setting",
    "override",
    "read_setting",
    "setting_named",
    "setting_names",
]


OWN_MODEL = "own: "
"""What the network of a setting begins with if it describes a model of your own."""

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
"""The ten strategies of the paper's main comparison."""

# Names of strategies are parts of file names.
_STRATEGY_NAME = re.compile(r"\w[\w.=-]*")

_COUNTS = (
    "initial",
    "query",
    "final",
    "pool",
    "train",
    "test",
    "epochs",
    "batch_size",
    "repetitions",
)
"""Values that must be 1 or more, unless they are None."""

_FIXED_VALUES = ("name", "paper", "quick")
"""Values that say which experiment a setting is, so that ``override`` must not change them."""

_SAME_EXPERIMENT = frozenset({"seed", "repetitions", "strategies", "options", "metrics"})
"""Values that may change while the results are still comparable to the paper's."""

_TYPE_DESCRIPTIONS: dict[Any, str] = {
    str: "a name",
    str | None: "a name, or none",
    int: "a whole number",
    int | None: "a whole number, or all",
    float: "a number",
    bool: "yes or no",
    tuple[int, ...]: "whole numbers separated by commas",
    tuple[str, ...]: "names separated by commas",
    dict[str, dict[str, Any]]: "a table for each strategy, as [options.ldm-s] in a .toml file",
}

_BOOLEANS = {"true": True, "yes": True, "false": False, "no": False}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One experiment: a dataset, a network, how many labels, and how the network is trained.

    Raises:
        InputError: if a value has a wrong type or is out of range.
        UnknownNameError: if there is no such network or optimizer.

    Example:
        >>> labels = {"initial": 20, "query": 10, "final": 50, "pool": None}
        >>> Setting(name="mine", dataset="digits", network="mlp", **labels).rounds
        3
    """

    name: str
    dataset: str
    """The name of a dataset, or of a .npz or .safetensors file of arrays: see ``load_dataset``."""
    network: str
    """The name of a network; or ``own: ...``, a model of your own that ``run_setting`` is given."""
    initial: int
    """Number of labels at the start."""
    query: int
    """Number of labels added in each round."""
    final: int
    """Number of labels at the end."""
    pool: int | None
    """Number of candidates drawn at random in each round; None for all."""
    validation: int = 0
    """Number of training rows set apart to choose the best epoch."""
    train: int | None = None
    """Number of training rows to use, drawn by the seed; None for all."""
    test: int | None = None
    """Number of test rows to use, the same for every seed; None for all."""
    epochs: int = 100
    batch_size: int = 64
    optimizer: str = "adam"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    schedule: str = "steps"
    """How the learning rate falls: at the ``milestones``, or along a ``cosine``."""
    decay: float = 1.0
    """The learning rate is multiplied by this at each of the ``milestones``."""
    milestones: tuple[int, ...] = ()
    """Epochs."""
    warm_start: bool = False
    """Whether networks continue from the weights of the last round, instead of new ones."""
    class_weighted: bool = False
    """Whether every class has the same weight in training, however many labels it has."""
    alpha: float = 0.99
    """How much of its running mean of squared gradients RMSprop keeps in a step."""
    epsilon: float = 1e-8
    """What Adam, AdamW and RMSprop add to the root of the mean square."""
    momentum: float = 0.9
    """The momentum of ``nesterov``."""
    repetitions: int = 5
    seed: int = 0
    balanced: bool = False
    """Whether the initial labels are equally many of every class, instead of drawn at random."""
    separate: bool = False
    """Whether repetitions are trained apart, so that several workers can share a run."""
    imbalance: float = 1.0
    """How many times as many training rows the first class keeps as the last."""
    embeddings: bool = False
    """Whether features from a file replace the inputs, so that only a head is trained."""
    quick: bool = False
    """Whether this is a smaller variant, whose numbers are not the paper's."""
    paper: str | None = None
    """The name in the paper's tables; None if the numbers cannot be compared."""
    strategies: tuple[str, ...] = PAPER_STRATEGIES
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Options by strategy. An entry with a ``strategy`` is a variant of it under a new name. That
    may also be a class of your own, as ``package.module:Class``."""
    metrics: tuple[str, ...] = ()
    """What is measured beside accuracy and loss: see ``teeter.Learner.evaluate``. A function of
    your own is named as ``package.module:function``."""

    def __post_init__(self) -> None:
        # Lists, as JSON and TOML have them, become tuples. Values of other types are refused.
        for name, hint in _type_hints().items():
            value = getattr(self, name)
            if isinstance(value, list):
                value = tuple(value)
                object.__setattr__(self, name, value)  # the way around a frozen dataclass
            if not _has_type(value, hint):
                raise _wrong_value(name, value, hint)

        self._require_ranges()

        if not self.has_own_model:
            require_known("network", self.network, network_names())
        for name in self.metrics:
            if ":" not in name:  # the code of others is imported when a run begins
                find_metrics([name])

        for name in self.options:
            if not _STRATEGY_NAME.fullmatch(name):
                raise InputError(
                    f"{name!r} cannot be a strategy's name: use letters, digits, '.', '=', '_' "
                    "and '-'."
                )

        # Building the configuration checks the values of training.
        _ = self.training

    def _require_ranges(self) -> None:
        validate_seed(self.seed)
        for name in _COUNTS:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} is {value!r}: it must be a whole number of 1 or more.")

        if self.validation < 0:
            raise InputError(
                f"validation is {self.validation!r}: it must be a whole number of 0 or more."
            )
        # At least one round, or there is nothing to compare.
        if self.final < self.initial + self.query:
            raise InputError(
                f"A run that starts with {self.initial} labels and adds {self.query} per round "
                f"cannot end with {self.final}: final must be {self.initial + self.query} or more."
            )
        # Written this way round, it also refuses NaN.
        if not self.imbalance >= 1:
            raise InputError(f"imbalance is {self.imbalance!r}: it must be 1 or more.")

    @property
    def training(self) -> TrainingConfig:
        """How networks are trained."""
        # A setting has all values of a TrainingConfig under the same names, among its own.
        names = [item.name for item in fields(TrainingConfig)]
        values = {name: getattr(self, name) for name in names}
        return TrainingConfig(**values)

    @property
    def has_own_model(self) -> bool:
        """Whether the model is not one of teeter's networks."""
        return self.network.startswith(OWN_MODEL)

    @property
    def rounds(self) -> int:
        """How many times labels are asked for."""
        return (self.final - self.initial) // self.query

    def strategy(self, name: str) -> Strategy:
        """Return a new strategy with its options in this setting.

        Args:
            name: a strategy, or a variant that ``options`` defines.

        Raises:
            UnknownNameError: if there is no such strategy.
            InputError: if it does not take one of the options.
        """
        from teeter.strategies.api import make_strategy  # loads torch

        options = dict(self.options.get(name, {}))
        strategy_name = str(options.pop("strategy", name))
        if ":" in strategy_name:
            return make_strategy(import_object("strategy", strategy_name), options)
        return make_strategy(strategy_name, options)


def override(setting: Setting, values: Mapping[str, Any]) -> Setting:
    """Return a setting with some values changed.

    Args:
        setting: what to start from.
        values: new values by name. They may be text, as from a command line.

    Raises:
        UnknownNameError: if a setting has no value of that name.
        InputError: if a value has a wrong type or is out of range.

    Example:
        >>> short = override(setting_named("digits"), {"epochs": "5", "pool": "all"})
        >>> short.epochs, short.pool
        (5, None)
    """
    parsed = _parse_values(values)
    changed = {name for name in parsed if parsed[name] != getattr(setting, name)}

    # With other epochs or rows, a report must not set the paper's numbers beside ours.
    paper = setting.paper
    if not changed <= _SAME_EXPERIMENT:
        paper = None
    return replace(setting, **parsed, paper=paper)


def read_setting(path: str | Path) -> Setting:
    """Read a setting from a TOML file.

    The file has all values of a setting, or the name of another setting as its ``base`` and the
    values that differ.

    Raises:
        FileError: if the file cannot be read.
        UnknownNameError: if there is no such base or value.
        InputError: if a value is missing, has a wrong type, or is out of range.
    """
    path = Path(path)
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileError(f"There is no file {path}.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise FileError(f"{path} cannot be read as a TOML file: {error}.") from None

    base = values.pop("base", None)
    if base is not None:
        # A name of its own, since a run folder is known by it.
        name = values.pop("name", f"{base}-{path.stem}")
        changed = override(setting_named(str(base)), values)
        return replace(changed, name=name)

    name = values.pop("name", path.stem)
    parsed = _parse_values(values)
    required = set()
    for setting_field in fields(Setting):
        has_default = setting_field.default is not dataclasses.MISSING
        has_factory = setting_field.default_factory is not dataclasses.MISSING
        if not has_default and not has_factory:
            required.add(setting_field.name)

    missing = sorted(required - set(parsed) - {"name"})
    if missing:
        raise InputError(
            f"{path} does not set {', '.join(missing)}: add the missing values, or name a setting "
            f"as base."
        )
    return Setting(name=name, **parsed)


def setting_named(name: str) -> Setting:
    """Return the setting called ``name``.

    Raises:
        UnknownNameError: if no setting has this name.

    Example:
        >>> setting_named("digits").network
        'mlp'
    """
    require_known("setting", name, _SETTINGS)
    return _SETTINGS[name]


def setting_names() -> list[str]:
    """Return the names of all settings, those of the paper first."""
    return list(_SETTINGS)


@cache
def _type_hints() -> dict[str, Any]:
    return typing.get_type_hints(Setting)


def _parse_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by name, with text turned into the types of their fields."""
    hints = dict(_type_hints())
    for name in _FIXED_VALUES:
        del hints[name]

    parsed = {}
    for name, value in values.items():
        if name not in hints:
            hint = did_you_mean(name, hints)
            raise UnknownNameError(f"A setting has no value called {name!r}. {hint}")

        # Values of a TOML file have their types. Those of a command line are texts.
        parsed[name] = value
        if isinstance(value, str):
            parsed[name] = _parse_text(name, value, hints[name])
    return parsed


def _parse_text(name: str, text: str, hint: Any) -> Any:
    """Return what a text stands for in a field of type ``hint``."""
    value_type = hint
    if _is_optional(hint):
        if text.lower() in ("none", "all"):
            return None
        value_type = typing.get_args(hint)[0]

    try:
        if typing.get_origin(value_type) is tuple:
            element_type = typing.get_args(value_type)[0]
            parts = [part.strip() for part in text.split(",")]
            return tuple(element_type(part) for part in parts if part)
        if value_type is bool:
            return _BOOLEANS[text.lower()]
        if value_type in (int, float):
            return value_type(text)
    except (ValueError, KeyError):
        raise _wrong_value(name, text, hint) from None
    return text


def _has_type(value: Any, hint: Any) -> bool:
    """Return whether a value has the type of a field. An empty text is not a name."""
    if _is_optional(hint):
        inner_type = typing.get_args(hint)[0]
        return value is None or _has_type(value, inner_type)

    # tuple[T, ...] and dict[str, dict]: the container, then each of its elements.
    origin = typing.get_origin(hint)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        element_type, *_ = typing.get_args(hint)
        return all(_has_type(part, element_type) for part in value)
    if origin is dict:
        if not isinstance(value, dict):
            return False
        return all(isinstance(part, dict) for part in value.values())

    # In Python a bool is an int, and a whole number is not a float.
    if hint is bool or isinstance(value, bool):
        return hint is bool and isinstance(value, bool)
    if hint is float:
        return isinstance(value, int | float)
    return isinstance(value, hint) and value != ""


def _is_optional(hint: Any) -> bool:
    """Return whether a hint is ``T | None``, the only unions that a setting has."""
    return typing.get_origin(hint) in (types.UnionType, typing.Union)


def _wrong_value(name: str, value: Any, hint: Any) -> InputError:
    return InputError(f"{name} is {value!r}: it must be {_TYPE_DESCRIPTIONS[hint]}.")


def _paper_setting(name: str, network: str, **values: Any) -> Setting:
    return Setting(name=name, dataset=name, network=network, paper=name, **values)


_NESTEROV: dict[str, Any] = {
    "optimizer": "nesterov",
    "batch_size": 128,
    "weight_decay": 5e-4,
    "decay": 0.2,
}
"""The paper does not state the weight decay; the momentum is 0.9."""

# The time of BAIT grows with the square of classes times features, and the paper leaves it out
# where there are 100 classes or more.
_WITHOUT_BAIT = tuple(name for name in PAPER_STRATEGIES if name != "bait")

_KERAS_RMSPROP: dict[str, Any] = {
    "optimizer": "rmsprop",
    "alpha": 0.9,
    "epsilon": 1e-7,
}
"""The paper names the optimizer alone. Its authors used Keras, whose constants these are; torch's
are 0.99 and 1e-8, with which networks learn CIFAR-10 less well."""

# Sizes from the paper's table of datasets, training from its table of networks. The defaults of
# ``Setting`` are the values of the OpenML datasets: 100 epochs, batches of 64, Adam, 0.001.
_PAPER = (
    _paper_setting("openml-6", "mlp", initial=200, query=200, final=4000, pool=2000),
    _paper_setting("openml-156", "mlp", initial=100, query=100, final=2000, pool=2000),
    _paper_setting("openml-44135", "mlp", initial=100, query=100, final=2000, pool=2000),
    _paper_setting(
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
    # One setting for two datasets: the paper gives them the same network and budget.
    *(
        _paper_setting(
            name,
            "k-cnn",
            initial=200,
            query=400,
            final=9800,
            pool=4000,
            validation=5000,
            epochs=150,
            learning_rate=1e-4,
            **_KERAS_RMSPROP,
        )
        for name in ("cifar10", "svhn")
    ),
    _paper_setting(
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
    _paper_setting(
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
    _paper_setting(
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
    _paper_setting(
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
        # A ResNet has no dropout, which DBAL samples its networks by.
        strategies=tuple(name for name in _WITHOUT_BAIT if name != "dbal"),
        **_NESTEROV,
    ),
)

_FEW_LARGE_ROWS: dict[str, Any] = {
    "initial": 500,
    "query": 200,
    "final": 900,
    "epochs": 4,
    "validation": 500,
    "train": 2000,
}

_FEW_SMALL_ROWS: dict[str, Any] = {
    "final": 1000,
    "epochs": 10,
    "validation": 500,
    "train": 5000,
    "test": 1000,
    "pool": 1000,
}

_QUICK_VALUES: dict[str, dict[str, Any]] = {
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
    "cifar10": _FEW_SMALL_ROWS,
    "svhn": _FEW_SMALL_ROWS,
    "cifar100": _FEW_LARGE_ROWS,
    "tiny-imagenet": _FEW_LARGE_ROWS,
    "food101": _FEW_LARGE_ROWS,
    "imagenet": _FEW_LARGE_ROWS,
}
"""What quick variants cut: rounds, epochs and rows. On two cores, most of them take minutes."""

_QUICK_STRATEGIES = ("ldm-s", "random", "entropy", "margin", "coreset", "badge")


def _quick_setting(setting: Setting) -> Setting:
    values = _QUICK_VALUES[setting.name]

    # A few epochs never reach the milestones of the large networks.
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

# Not in the paper: the images of clothes that take the place of MNIST where digits are too easy.
_FASHION = replace(_PAPER[3], name="fashion-mnist", dataset="fashion-mnist", paper=None)

# Not in the paper: openml-6, mnist, cifar10 and digits with 20 times as many rows of the first
# class as of the last.
_LONG_TAILED = tuple(
    replace(setting, name=f"{setting.name}-imbalanced", imbalance=20.0, paper=None)
    for setting in (*_PAPER[:1], *_PAPER[3:5], _DIGITS)
)

_QUICK = tuple(_quick_setting(setting) for setting in _PAPER)

# In the order in which they are listed.
_ALL_SETTINGS = (*_PAPER, _DIGITS, _FASHION, *_QUICK, *_LONG_TAILED)
_SETTINGS = {setting.name: setting for setting in _ALL_SETTINGS}
