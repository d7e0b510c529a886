"""The settings of a campaign, and how its database stores them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from teeter.base.registry import did_you_mean
from teeter.base.seeds import stream_seed
from teeter.campaigns.records import ClassifierKind, ConsensusMethod, ItemKind
from teeter.encoders import AUTO
from teeter.errors import InputError, StoreError, UnknownNameError

__all__ = [
    "CHANGEABLE_SETTINGS",
    "IMPORTED",
    "ROW_ENCODER",
    "Settings",
    "resolve_folder",
    "settings_from_json",
    "settings_to_dict",
]

IMPORTED = "import"
"""The annotator of labels that came with the items. They cost nothing, and undo leaves them."""

ROW_ENCODER = "table-rows"
"""The encoder that reads whole rows of a table column by column."""

_LINEAR_OUTPUTS = frozenset({"logits", "features", "head", "labelled"})

_HEAD_OUTPUTS = {
    ClassifierKind.LINEAR: _LINEAR_OUTPUTS,
    ClassifierKind.MLP: _LINEAR_OUTPUTS | {"dropout_logits", "ensemble_logits"},
}
"""The outputs that a strategy can get from each head; see ``Strategy.needs``."""


CHANGEABLE_SETTINGS = (
    "strategy",
    "options",
    "head",
    "control",
    "cost",
    "budget",
    "instructions",
    "keys",
    "lease",
    "overlap",
    "people",
    "show",
    "consensus",
    "names",
)
"""Settings that can be changed at any time.

The kind, the folder and whether they are rows belong to the items, the seed and the audit set to
what was measured so far, and another encoder takes a new encoding of all items.
"""


@dataclass(frozen=True)
class Settings:
    """The settings of a campaign, apart from its items and classes."""

    kind: str = "text"
    """What annotators see: text, image or features."""
    strategy: str = "ldm-s"
    options: dict[str, Any] = field(default_factory=dict)
    """Options of the strategy."""
    head: str = "linear"
    """What is trained on the features: linear or mlp."""
    control: float = 0.1
    """The share of each batch that is drawn at random, to measure with."""
    audit: int = 0
    """The number of random items to measure with and never to train on."""
    seed: int = 0
    cost: float | None = None
    """The cost of one answer."""
    budget: float | None = None
    """What all answers together may cost."""
    instructions: str = ""
    """Shown to annotators."""
    folder: str | None = None
    """The folder of the images."""
    encoder: str | None = AUTO
    """The encoder that computes the features: a name that ``make_encoder`` takes.

    ``auto`` and None stand for the best encoder that is installed when the first items are added.
    """
    keys: list[str] = field(default_factory=list)
    """Shortcuts of the first classes on the page. The rest get free ones."""
    lease: float = 60
    """Minutes until an unanswered item is reassigned; 0 for never."""
    overlap: float = 0.0
    """The share of the picks that several annotators answer."""
    people: int = 2
    """How many annotators answer those."""
    show: list[str] = field(default_factory=list)
    """The columns that annotators see beside an item, in their order."""
    consensus: str = "majority"
    """How several answers become one label: majority, or dawid-skene, which weights annotators."""
    names: bool = True
    """Whether models learn from the names and descriptions of the classes too."""
    rows: bool = False
    """Whether items are whole rows of a table. Then ``auto`` stands for the encoder table-rows."""

    def __post_init__(self) -> None:
        """Raise InputError or UnknownNameError if a value is invalid."""
        _require_choice("kind", self.kind, ItemKind)
        _require_choice("head", self.head, ClassifierKind)
        _require_choice("consensus", self.consensus, ConsensusMethod)

        if self.rows and self.kind != ItemKind.TEXT:
            raise InputError(
                f"Rows of a table are shown as texts, but kind is {self.kind}: set kind to text, "
                "or rows to False."
            )
        if not 0 <= self.control < 1:
            raise InputError(
                f"control is {self.control}: the random share of a batch must be at least 0 and "
                f"less than 1."
            )
        if self.audit < 0:
            raise InputError(f"audit is {self.audit}: it must be 0 or more items.")
        if not 0 <= self.overlap <= 1:
            raise InputError(
                f"overlap is {self.overlap}: the share of items that several annotators answer "
                f"must be from 0 to 1."
            )
        if self.people < 2:
            raise InputError(f"people is {self.people}: an overlap needs 2 or more annotators.")

        for name in ("cost", "budget", "lease"):
            value = getattr(self, name)
            # Written so that NaN is refused, too.
            if value is not None and not value >= 0:
                raise InputError(f"{name} is {value}: it must be 0 or more.")

        if not -(2**63) <= self.seed < 2**63:
            raise InputError(f"seed is {self.seed}: it must be a 64-bit integer.")

    @property
    def has_rows(self) -> bool:
        """Whether items are whole rows of a table, which are shown as cards."""
        # No other items have the columns that this encoder reads, so naming it is enough.
        return self.rows or self.encoder == ROW_ENCODER

    def is_shared(self, item_id: str) -> bool:
        """Return whether several annotators are to answer an item.

        The item's id alone decides, so that the answer never changes.
        """
        # 53 bits fill a float exactly: a uniform number in [0, 1).
        return stream_seed(self.seed, "overlap", item_id) % 2**53 / 2**53 < self.overlap

    def require_strategy(self) -> None:
        """Check that the strategy and its options exist, and that the head serves it.

        Only new campaigns are checked. Existing ones can be opened and labelled where the plugin of
        their strategy is missing; picking and predicting then say what is missing.

        Raises:
            InputError: the strategy lacks an option, or needs outputs that the head does not have.
            UnknownNameError: no strategy has this name.
        """
        # Strategies load torch, and a server that only opens campaigns does without it.
        from teeter.strategies.api import make_strategy

        needs = make_strategy(self.strategy, self.options).needs
        missing = needs - _HEAD_OUTPUTS[ClassifierKind(self.head)]
        if not missing:
            return

        hint = "choose another strategy"
        for head in ClassifierKind:
            if missing <= _HEAD_OUTPUTS[head]:
                hint = f"choose the head {head}, or another strategy"
                break
        raise InputError(
            f"{self.strategy} needs {' and '.join(sorted(missing))}, which the head {self.head} "
            f"does not provide: {hint}."
        )


def _require_choice(field_name: str, value: str, choices: Iterable[str]) -> None:
    names = [str(choice) for choice in choices]
    if value not in names:
        raise UnknownNameError(f"No {field_name} is called {value!r}. {did_you_mean(value, names)}")


def resolve_folder(folder: str) -> Path:
    """Return a folder of images without links, as it is on this machine.

    Raises:
        InputError: It is no path, or its links lead in a circle.
    """
    try:
        return Path(folder).resolve()
    # A null byte, or characters that no file name has; then a circle.
    except (ValueError, RuntimeError, OSError):
        raise InputError(
            f"The campaign names {folder!r} as the folder of its images, which cannot be the path "
            f"of a folder, so no image is read."
        ) from None


def settings_to_dict(settings: Settings, file: Path | None) -> dict[str, Any]:
    """Return settings as a database stores them.

    Args:
        settings: The settings.
        file: The campaign's file, or None on a server. A folder of images below the file's folder
            is stored relative to it, so that both can be moved together.
    """
    values = asdict(settings)
    if settings.folder is None:
        return values

    folder = resolve_folder(settings.folder)
    values["folder"] = str(folder)
    if file is not None:
        file_folder = file.resolve().parent
        if folder.is_relative_to(file_folder):
            values["folder"] = str(folder.relative_to(file_folder))
    return values


def settings_from_json(text: str, *, file: Path | None, location: str) -> Settings:
    """Return the settings that a database stores.

    Args:
        text: The JSON text that ``settings_to_dict`` was written as.
        file: The campaign's file, or None on a server.
        location: The database that stores it, as users may read it.

    Raises:
        StoreError: If the text is damaged, or was written by a newer version of teeter.
    """
    damaged = StoreError(f"{location} is damaged: its settings cannot be read. Restore a backup.")
    try:
        values = json.loads(text)
    except (ValueError, TypeError):
        raise damaged from None
    if not isinstance(values, dict):
        raise damaged

    # A setting that this version ignored could change what a campaign does.
    unknown = sorted(set(values) - {setting.name for setting in fields(Settings)})
    if unknown:
        raise StoreError(
            f"{location} has a setting from a newer version of teeter ({unknown[0]}): "
            f"update teeter to open it."
        )

    # Campaigns that were created before this setting existed go on as they began.
    values.setdefault("names", False)
    try:
        settings = Settings(**values)
    except TypeError:  # A value has the wrong type, which only damage can cause.
        raise damaged from None
    if not isinstance(settings.folder, str | None):
        raise damaged

    if settings.folder is None or file is None:
        return settings
    # Joining leaves an absolute folder as it is.
    folder = file.resolve().parent / settings.folder
    return replace(settings, folder=str(folder))
