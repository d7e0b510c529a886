"""The settings of a campaign: one declaration of each, and how a database stores them.

The command line, the page for a new campaign, the REST API and the reference read the declarations.
This module imports the standard library only, so that all of them can have it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import Field, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from teeter.base.registry import did_you_mean
from teeter.base.seeds import stream_seed
from teeter.campaigns.records import ClassifierKind, ConsensusMethod, ItemKind
from teeter.errors import InputError, StoreError, UnknownNameError

IMPORTED = "import"
"""The annotator of labels that came with the items. They cost nothing, and undo leaves them."""

RANDOM_STRATEGY = "random"
"""The strategy whose picks are a random sample."""

ROW_ENCODER = "table-rows"
"""The encoder that reads whole rows of a table column by column."""

_LINEAR_OUTPUTS = frozenset({"logits", "features", "head", "labelled"})

_HEAD_OUTPUTS = {
    ClassifierKind.POOL: _LINEAR_OUTPUTS,
    ClassifierKind.LINEAR: _LINEAR_OUTPUTS,
    ClassifierKind.MLP: _LINEAR_OUTPUTS | {"dropout_logits", "ensemble_logits"},
}
"""The outputs that a strategy can get from each head; see ``Strategy.needs``."""


TEXT_SIMILARITY = 0.95
"""From this cosine on, texts are near copies."""

_AUDIT_OVERLAP = 0.2
"""The share of the items that several people answer, where an audit asks for several."""

_AMOUNT = {"ge": 0}
_NAMES = {"max_length": 100}


def setting(default: Any, help_text: str, **declared: Any) -> Any:
    """Declare a setting: what everything that reads or sets it has to know.

    Args:
        default: its value if none is given.
        help_text: what it is, in one or two sentences.
        **declared: ``metavar`` names its value on the command line. ``choices`` are the values that
            it may have. ``limits`` are the bounds of a number (``ge``, ``le``, ``lt``), and
            ``must`` says them in an error. ``request`` are further limits of what a request may set
            (``le``, ``max_length``). With ``changeable=False`` it stays as it was when the campaign
            was created, and with ``offered=False`` neither the command line nor the page for a new
            campaign has it.
    """
    metadata = {"help": help_text, "changeable": True, "offered": True, **declared}
    if isinstance(default, list | dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Settings:
    """The settings of a campaign, apart from its items and classes."""

    # The kind, the folder and whether they are rows belong to the items, the seed and the holdout
    # to what was measured so far, and another encoder takes a new encoding of all items.
    kind: str = setting(
        "text",
        "What annotators see: text, image or features.",
        choices=ItemKind,
        changeable=False,
        offered=False,
    )
    several: bool = setting(
        False,
        "Items may have several labels, or none of them.",
        changeable=False,
    )
    strategy: str = setting(
        "ldm-s",
        "Strategy that picks items; see teeter strategies.",
        metavar="NAME",
        request={"max_length": 80},
    )
    options: dict[str, Any] = setting(
        {}, "Options of the strategy.", request={"max_length": 50}, offered=False
    )
    head: str = setting(
        "pool",
        "What is trained on the features: pool (which learns from unlabelled items too), linear or "
        "mlp.",
        choices=ClassifierKind,
        offered=False,
    )
    control: float = setting(
        0.1,
        "Share of each batch that is drawn at random to measure accuracy.",
        metavar="SHARE",
        limits={"ge": 0, "lt": 1},
        must="the random share of a batch must be at least 0 and less than 1",
    )
    holdout: int = setting(
        0,
        "Number of random items set aside to measure accuracy, never used for training.",
        metavar="N",
        limits=_AMOUNT,
        must="it must be 0 or more items",
        request={"le": 1_000_000},
        changeable=False,
    )
    seed: int = setting(
        0,
        "Random seed; the same seed gives the same picks.",
        limits={"ge": -(2**63), "lt": 2**63},
        must="it must be a 64-bit integer",
        changeable=False,
        offered=False,
    )
    cost: float | None = setting(
        None, "Cost of one label.", metavar="AMOUNT", limits=_AMOUNT, request={"le": 1e12}
    )
    budget: float | None = setting(
        None,
        "Budget for all labels. It needs the cost of one label.",
        metavar="AMOUNT",
        limits=_AMOUNT,
        request={"le": 1e15},
    )
    instructions: str = setting(
        "", "Instructions shown to annotators.", metavar="TEXT", request={"max_length": 20_000}
    )
    folder: str | None = setting(None, "Folder of the images.", changeable=False, offered=False)
    encoder: str | None = setting(
        "auto",
        "Encoder that computes the features: auto, a name from teeter encoders, or a model.",
        metavar="NAME",
        request={"max_length": 200},
        changeable=False,
    )
    keys: list[str] = setting(
        [],
        "Keyboard shortcuts for the classes on the page. Default: 1 to 9, then letters.",
        metavar="KEYS",
        request=_NAMES,
    )
    batch: int | None = setting(
        None,
        "Items picked together, and new labels after which a model is trained. Without it, the "
        "server decides.",
        metavar="N",
        limits={"ge": 2},
        must="a batch needs 2 or more items",
        request={"le": 1000},
        offered=False,
    )
    lease: float = setting(
        60,
        "Minutes before an unanswered item is reassigned; 0 means never.",
        metavar="MINUTES",
        limits=_AMOUNT,
        request={"le": 1e6},
    )
    overlap: float = setting(
        0,
        "Share of the items that several annotators answer.",
        metavar="SHARE",
        limits={"ge": 0, "le": 1},
        must="the share of items that several annotators answer must be from 0 to 1",
    )
    people: int = setting(
        2,
        "Number of annotators who answer a shared item; see overlap.",
        metavar="N",
        limits={"ge": 2},
        must="an overlap needs 2 or more annotators",
        request={"le": 1000},
    )
    show: list[str] = setting(
        [], "Columns that annotators see beside each item.", metavar="COLUMNS", request=_NAMES
    )
    consensus: str = setting(
        "majority",
        "How several answers become one label: majority, or dawid-skene, which weights annotators.",
        choices=ConsensusMethod,
        offered=False,
    )
    goal: str = setting(
        "",
        "What to reach with the fewest answers, such as 5% wrong, 95% labelled: at most so many of "
        "all labels are wrong, and so many items have one (90% if it is left out).",
        metavar="GOAL",
        request={"max_length": 100},
    )
    names: bool = setting(
        True, "Whether models learn from the names and descriptions of the classes.", offered=False
    )
    rows: bool = setting(
        False,
        "Label whole rows of a table. Each row is shown as a card, and encoded from its numbers, "
        "dates and categories.",
        changeable=False,
    )

    copies: float | None = setting(
        None,
        "Similarity of features from which items are near copies, of which one is asked and its "
        "answer offered for the others; 0 for none. Default: 0.95 for texts, 0 for other items.",
        metavar="COSINE",
        limits={"ge": 0, "le": 1},
        must="the similarity of near copies must be from 0 to 1",
        offered=False,
    )
    judges: dict[str, str] = setting(
        {},
        "Columns of labels to audit, each with the column of its confidences, if it has one. "
        "Nobody sees them before an item is answered.",
        changeable=False,
        offered=False,
    )
    require: float | None = setting(
        None,
        "Share of its labels that a judge must have right, set before the first answer.",
        limits={"ge": 0, "le": 1},
        must="the share of labels that must be right is from 0 to 1",
        changeable=False,
        offered=False,
    )

    def __post_init__(self) -> None:
        """Raise InputError or UnknownNameError if a value is invalid."""
        for declared in fields(self):
            _require_valid(declared, getattr(self, declared.name))
        parse_goal(self.goal)

        if self.rows and self.kind != ItemKind.TEXT:
            raise InputError(
                f"Rows of a table are shown as texts, but kind is {self.kind}: set kind to text, "
                "or rows to False."
            )

        if self.several and self.head == ClassifierKind.MLP:
            raise InputError(
                f"The head {self.head} predicts one label for each item: leave head out for items "
                "that may have several."
            )
        if self.several and self.goal:
            raise InputError(
                "A goal is for items that have one label: leave goal out for items that may have "
                "several."
            )
        if self.several and self.judges:
            raise InputError(
                "An audit is for items that have one label: leave several out, or audit each label "
                "by itself."
            )
        if self.several and self.consensus == ConsensusMethod.DAWID_SKENE:
            raise InputError(
                f"{self.consensus} is for items that have one label: set consensus to majority for "
                "items that may have several."
            )

    @property
    def has_rows(self) -> bool:
        """Whether items are whole rows of a table, which are shown as cards."""
        # No other items have the columns that this encoder reads, so naming it is enough.
        return self.rows or self.encoder == ROW_ENCODER

    @property
    def copy_similarity(self) -> float:
        """The cosine of features from which on items are near copies; 0 for no near copies."""
        if self.copies is not None:
            return self.copies
        # Features of images, rows and users are alike for other reasons: at 0.95, all but a few of
        # 1,797 handwritten digits are copies of one another, and chains join most of them.
        is_text = self.kind == ItemKind.TEXT and not self.has_rows
        return TEXT_SIMILARITY if is_text else 0.0

    def is_shared(self, item_id: str) -> bool:
        """Return whether several annotators are to answer an item.

        The item's id alone decides, so that the answer never changes.
        """
        # 53 bits fill a float exactly: a uniform number in [0, 1).
        bits = stream_seed(self.seed, "overlap", item_id) % 2**53
        return bits / 2**53 < self.overlap

    def is_answered_blind(self, item_id: str) -> bool:
        """Return whether a pick of the strategy must be answered without a prediction in view.

        Several annotators answer the item, or the strategy draws at random, so that each pick
        measures the model, or there is a goal, whose certificate takes the answers to be right.
        """
        return bool(self.goal) or self.strategy == RANDOM_STRATEGY or self.is_shared(item_id)

    def for_audit(
        self, judges: Mapping[str, str], require: float | None, people: int = 1
    ) -> Settings:
        """Return the settings of an audit.

        Args:
            judges: columns of labels, each with the column of its confidences, or "".
            require: the share of its labels that a judge must have right.
            people: with 2 or more, a fifth of the items is asked of so many people.
        """
        if not judges:
            raise InputError("An audit needs a column of labels (judges=).")
        audit = replace(self, judges=dict(judges), require=require)
        if people < 2:
            return audit
        return replace(audit, people=people, overlap=self.overlap or _AUDIT_OVERLAP)

    def require_cost(self) -> None:
        """Raise InputError if there is a budget, but no cost that could be counted against it."""
        if self.budget is not None and self.cost is None:
            raise InputError("A budget needs the cost of a label.")

    def require_strategy(self) -> None:
        """Check that the strategy and its options exist, and that the head serves it.

        Only new campaigns are checked. Existing ones can be opened and labelled where the plugin of
        their strategy is missing; picking and predicting then say what is missing.

        Raises:
            InputError: the strategy lacks an option, or needs outputs that the head does not have.
            UnknownNameError: no strategy has this name.
        """
        # Strategies load torch, and a server does without it as long as it can.
        default = Settings()
        chosen = (self.strategy, self.options, self.head)
        if chosen == (default.strategy, default.options, default.head):
            return
        from teeter.strategies.api import make_strategy

        strategy = make_strategy(self.strategy, self.options)
        if self.several and strategy.labels_per_row == "one":
            raise InputError(
                f"{self.strategy} picks items that have one label: choose another strategy for "
                "items that may have several."
            )
        if not self.several and strategy.labels_per_row == "several":
            raise InputError(
                f"{self.strategy} picks items that may have several labels: choose another "
                "strategy, or create the campaign with several=True."
            )
        missing = strategy.needs - _HEAD_OUTPUTS[ClassifierKind(self.head)]
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


def parse_goal(text: str) -> tuple[float, float] | None:
    """Return the share of wrong labels and that of labelled items in a goal; None if it is empty.

    Raises:
        InputError: it is no goal.

    Example:
        >>> parse_goal("5% wrong"), parse_goal("1 % wrong, 95% labelled")
        ((0.05, 0.9), (0.01, 0.95))
    """
    if not text.strip():
        return None

    shares = {"wrong": 0.0, "labelled": 0.9}
    for part in text.split(","):
        match = _GOAL_PART.fullmatch(part.strip())
        if match is None:
            raise InputError(
                f"goal is {text!r}: write it as '5% wrong' or '5% wrong, 95% labelled'."
            )
        shares[match[2]] = float(match[1]) / 100
    # The shares that can be promised.
    if not 0.0001 <= shares["wrong"] < 0.5 or not 0 < shares["labelled"] <= 1:
        raise InputError(
            f"goal is {text!r}: at least 0.01% and less than 50% may be wrong, and above 0% up to "
            "100% be labelled, as in '5% wrong, 95% labelled'."
        )
    return shares["wrong"], shares["labelled"]


_GOAL_PART = re.compile(r"(\d+(?:\.\d+)?) ?% ?(wrong|labelled)")


def changeable_settings() -> list[Field[Any]]:
    """Return the settings that can be changed at any time."""
    return [declared for declared in fields(Settings) if declared.metadata["changeable"]]


def offered_settings() -> list[Field[Any]]:
    """Return the settings that the command line and the page have for a new campaign."""
    return [declared for declared in fields(Settings) if declared.metadata["offered"]]


def _require_valid(declared: Field[Any], value: Any) -> None:
    """Check the value of a setting against its choices and limits."""
    choices = declared.metadata.get("choices")
    if choices is not None and value not in list(choices):
        hint = did_you_mean(value, [str(choice) for choice in choices])
        raise UnknownNameError(f"No {declared.name} is called {value!r}. {hint}")

    limits = declared.metadata.get("limits", {})
    if value is None or not limits:
        return
    is_valid = value >= limits["ge"]  # NaN is not
    if "le" in limits:
        is_valid = is_valid and value <= limits["le"]
    if "lt" in limits:
        is_valid = is_valid and value < limits["lt"]
    if not is_valid:
        must = declared.metadata.get("must", "it must be 0 or more")
        raise InputError(f"{declared.name} is {value}: {must}.")


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

    # Campaigns that were created before these settings existed go on as they began.
    values.setdefault("names", False)
    values.setdefault("copies", 0.0)
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
