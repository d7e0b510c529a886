"""The settings of a campaign, how its database stores them, and changing them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from teeter.base.registry import did_you_mean
from teeter.campaigns.enums import ClassifierKind, ConsensusMethod, ItemKind
from teeter.campaigns.items.columns import require_columns
from teeter.campaigns.shortcuts import shortcuts_by_class
from teeter.campaigns.store import CampaignRepository, Database
from teeter.campaigns.trust import resolve_folder
from teeter.encoders import AUTO
from teeter.errors import InputError, StoreError, UnknownNameError

if TYPE_CHECKING:
    from teeter.campaigns.campaign import Campaign

__all__ = [
    "CHANGEABLE_SETTINGS",
    "IMPORTED",
    "ROW_ENCODER",
    "Settings",
    "change_consensus",
    "change_names",
    "change_settings",
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


def settings_from_json(text: str, database: Database) -> Settings:
    """Return the settings that a database stores.

    Args:
        text: The JSON text that ``settings_to_dict`` was written as.
        database: The database that stores it.

    Raises:
        StoreError: If the text is damaged, or was written by a newer version of teeter.
    """
    damaged = StoreError(
        f"{database.display_url} is damaged: its settings cannot be read. Restore a backup."
    )
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
            f"{database.display_url} has a setting from a newer version of teeter ({unknown[0]}): "
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

    if settings.folder is None or database.path is None:
        return settings
    # Joining leaves an absolute folder as it is.
    folder = database.path.resolve().parent / settings.folder
    return replace(settings, folder=str(folder))


def change_consensus(
    database: Database,
    repository: CampaignRepository,
    settings: Settings,
    method: str,
    *,
    who: str,
) -> Settings:
    """Change how several answers become one label.

    Args:
        database: The campaign's database.
        repository: The campaign's rows in it.
        settings: The campaign's settings now.
        method: One of ``ConsensusMethod``.
        who: The name for the history.

    Returns:
        The new settings.

    Raises:
        UnknownNameError: If there is no such method.
    """
    changed = replace(settings, consensus=method)
    line = ("consensus", {"way": method})
    _store_settings(database, repository, {"consensus": method}, who=who, line=line)
    return changed


def change_names(
    database: Database, repository: CampaignRepository, settings: Settings, use: bool, *, who: str
) -> Settings:
    """Change whether models learn from the names and descriptions of classes.

    Args:
        database: The campaign's database.
        repository: The campaign's rows in it.
        settings: The campaign's settings now.
        use: Whether they do.
        who: The name for the history.

    Returns:
        The new settings.
    """
    line = ("names", {"used": use})
    _store_settings(database, repository, {"names": use}, who=who, line=line)
    return replace(settings, names=use)


def _store_settings(
    database: Database,
    repository: CampaignRepository,
    changes: Mapping[str, Any],
    *,
    who: str,
    line: tuple[str, Mapping[str, Any]],
) -> None:
    """Replace some settings, and append a line to the history."""
    with database.writing() as connection:
        # Another process may have changed other settings, so only these are replaced.
        stored = json.loads(repository.campaign(connection).settings)
        if stored == stored | changes:
            return

        repository.write_settings(connection, json.dumps(stored | changes))
        repository.history.append(connection, who, line[0], None, line[1])


def change_settings(campaign: Campaign, changes: Mapping[str, Any], *, who: str = "me") -> Settings:
    """Change settings of a campaign, all of them or none.

    Args:
        campaign: The campaign, whose ``settings`` are replaced.
        changes: New values of some of ``CHANGEABLE_SETTINGS``.
        who: The name for the history.

    Returns:
        The new settings.

    Raises:
        InputError: If a setting cannot be changed, or its value cannot be used.
        UnknownNameError: If it names a strategy or a column that does not exist.
    """
    fixed = sorted(set(changes) - set(CHANGEABLE_SETTINGS))
    if fixed:
        raise InputError(
            f"{fixed[0]!r} cannot be changed: choose from {', '.join(CHANGEABLE_SETTINGS)}."
        )

    for name, value in changes.items():
        try:
            replace(campaign.settings, **{name: value})
        except TypeError:
            raise InputError(f"{name} has a value of the wrong type: {value!r:.100}.") from None
    changed = replace(campaign.settings, **changes)
    if {"strategy", "options", "head"} & set(changes):
        changed.require_strategy()
    if "keys" in changes:
        shortcuts_by_class(campaign.classes, changed.keys)
    if "show" in changes:
        require_columns(changed.show, [column.name for column in campaign.columns])
    if changed.budget is not None and changed.cost is None:
        raise InputError("A budget needs the cost of a label.")

    values = asdict(changed)
    new_values = {name: values[name] for name in changes}
    line = ("settings", new_values)
    _store_settings(campaign.database, campaign.repository, new_values, who=who, line=line)

    campaign.settings = changed
    campaign.repository.scope.lease = timedelta(minutes=changed.lease)
    return changed
