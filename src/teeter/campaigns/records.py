"""What a campaign's methods take and return: its states, kinds and roles, and plain records.

Databases store each state, kind and role as the text of its value. This module imports the standard
library only, so that the client, the page and the worker can have it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from itertools import islice
from typing import Any, Generic, TypeVar

ResultT = TypeVar("ResultT")

DEFAULT_ANNOTATOR = "me"
"""The annotator's name for people who label alone."""

MOST_AT_ONCE = 200
"""Items that one key press answers at most."""

ITEM_FIELDS = frozenset({"id", "text", "image", "features", "label"})
"""The fields of a dictionary that make an item. All others are columns beside it."""

ROW_FIELDS = frozenset({"id", "label"})
"""The same for an item that is a whole row."""


LABEL_SEPARATOR = ";"
"""Stands between the labels of an item that may have several."""

NO_LABELS = "(none)"
"""The label of an item that may have several and has none of them, which is an answer too."""


def join_labels(names: Iterable[str]) -> str:
    """Return a set of labels as the one text that answers, files and pages have for it.

    Example:
        >>> join_labels(["angry", "payment"]), join_labels([])
        ('angry;payment', '(none)')
    """
    return LABEL_SEPARATOR.join(names) or NO_LABELS


def split_labels(label: str) -> list[str]:
    """Return the names of the labels in the text of a set, as they are written.

    Example:
        >>> split_labels("angry; payment"), split_labels("(none)")
        (['angry', 'payment'], [])
    """
    if label.strip() == NO_LABELS:
        return []
    return [name.strip() for name in label.split(LABEL_SEPARATOR)]


class ItemKind(StrEnum):
    """What an annotator sees of an item."""

    TEXT = "text"
    IMAGE = "image"
    FEATURES = "features"


class AnswerKind(StrEnum):
    """What an annotator can say about an item."""

    LABEL = "label"
    SKIP = "skip"
    """Not now: the item may be asked about again after the next training."""
    UNSURE = "unsure"
    """The annotator cannot tell: the item is not asked about again."""
    FLAG = "flag"
    """The item does not belong in the campaign."""


class AnswerOrigin(StrEnum):
    """How an answer was given. Labels that measure something count only if they were given blind.

    Whoever sees what the model says tends to agree with it. An item that was drawn to measure is
    asked again, blind, if it was answered in any other way.
    """

    SINGLE = "single"
    """About one item, with no prediction in view."""
    SEEN = "seen"
    """About one item, with a prediction in view."""
    BULK = "bulk"
    """About many items at once."""
    COPY = "copy"
    """It was given about another item, of which this one is nearly a copy."""

    @property
    def is_blind(self) -> bool:
        """Whether no prediction was in view."""
        return self is AnswerOrigin.SINGLE

    @property
    def is_single(self) -> bool:
        """Whether a person looked at this item alone."""
        return self in (AnswerOrigin.SINGLE, AnswerOrigin.SEEN)


class ColumnType(StrEnum):
    """What the cells of a column stand for."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    DECIMAL = "decimal"
    BOOLEAN = "boolean"
    DATE = "date"
    TIMESTAMP = "timestamp"
    BINARY = "binary"
    JSON = "json"
    """Lists, objects, or values of several types."""


class ItemFilter(StrEnum):
    """What a list of items can be narrowed to.

    Withdrawn items are listed by ``all`` and ``withdrawn`` only.
    """

    ALL = "all"
    LABELLED = "labelled"
    UNLABELLED = "unlabelled"
    ASKED = "asked"
    """Open with an annotator."""
    SKIPPED = "skipped"
    UNSURE = "unsure"
    FLAGGED = "flagged"
    UNREADABLE = "unreadable"
    """Items that the current encoder could not read."""
    WITHDRAWN = "withdrawn"


class ItemSort(StrEnum):
    """What a list of items is sorted by. Items without the value come last, in either direction."""

    ADDED = "added"
    ITEM = "item"
    """The item's id."""
    TEXT = "text"
    LABEL = "label"
    WHO = "who"
    """Who answered, or decided on the label."""
    PREDICTED = "predicted"
    PROBABILITY = "probability"
    """How sure the model is of its prediction."""
    SIMILARITY = "similarity"
    """To the text or the item of the query."""


class PickArm(StrEnum):
    """How an item came to be picked."""

    PICKED = "picked"
    """By the strategy."""
    CONTROL = "control"
    """At random, to measure the model with; trained on as well."""
    HOLDOUT = "holdout"
    """At random and held out of training, to measure the model with."""
    FINISH = "finish"
    """At random from the items that no person had labelled when a model was frozen."""
    CHECK = "check"
    """One in twenty of the items that were answered in bulk, to see whether the answers hold."""

    @property
    def is_random(self) -> bool:
        """Whether the item measures the model, so that annotators must not see its prediction."""
        return self is not PickArm.PICKED


class LabelSource(StrEnum):
    """Where the label of an item comes from, or why it has none."""

    PERSON = "person"
    """An annotator, or the reviewer who decided."""
    CONSENSUS = "consensus"
    """Several annotators."""
    COPY = "copy"
    """Nobody looked at the item: an annotator answered another one, of which it is a near copy."""
    MODEL = "model"
    """A model, under a certificate."""
    LEFT_OUT = "left_out"
    """No one: the item was flagged or withdrawn."""
    UNREADABLE = "unreadable"
    """No one: the item could not be read, so no model predicts it either."""


class Activity(StrEnum):
    """What is being done for a campaign in the background."""

    PICKING = "picking"
    TRAINING = "training"
    FINDING_SUSPECTS = "finding suspects"
    EXPORTING = "exporting"
    DRAWING_MAP = "drawing map"
    CREATING = "creating"
    PREDICTING = "predicting"
    ENCODING = "encoding"


# Requests and results cross a process boundary, so they hold plain values and no connections.


class PickState(StrEnum):
    """Where a pick is on its way.

    A pick made ahead is READY until an annotator gets it. It is then OPEN until it is ANSWERED or
    SKIPPED, or RETURNED because its lease expired or it was released.
    """

    READY = "ready"
    OPEN = "open"
    ANSWERED = "answered"
    SKIPPED = "skipped"
    RETURNED = "returned"
    KNOWN = "known"
    """A control item that needs no answer: it counts as drawn at random."""


class JobState(StrEnum):
    """The states of background work."""

    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True)
class Job(Generic[ResultT]):
    """Work in the background of a server."""

    state: JobState
    job: str | None = None
    """Its id, for ``GET /jobs/{job}``. Anyone who knows the id can see the result."""
    detail: str | None = None
    """Why the work failed."""
    result: ResultT | None = None
    """The result, once it is done."""
    done: int | None = None
    """Number of items encoded so far, while an encoding runs."""
    total: int | None = None
    """Number of items to encode, including those already encoded."""
    seconds_left: float | None = None
    """Estimated seconds until the encoding is complete, if known."""


class Role(StrEnum):
    """What a person is in a campaign."""

    ANNOTATOR = "annotator"
    REVIEWER = "reviewer"
    OWNER = "owner"


class Permission(StrEnum):
    """What a person may be allowed to do in a campaign."""

    ANSWER = "answer"
    REVIEW = "review"
    """See the answers of others, and check suspect labels."""
    DECIDE = "decide"
    """Settle disagreements."""
    EXPORT = "export"
    MANAGE = "manage"
    """Add and remove people, and change the campaign's settings."""


@dataclass(frozen=True)
class Person:
    """A person of a campaign."""

    name: str
    role: Role
    added: str = ""
    """When they were added."""
    token_hash: str | None = field(default=None, repr=False)
    """None: there is no token to log in with, or it was revoked."""
    removed: str | None = None
    """When they were removed from the campaign; None for a member."""
    row_id: int = 0

    @property
    def has_token(self) -> bool:
        """Whether they can log in with a token."""
        return self.token_hash is not None


class ConsensusMethod(StrEnum):
    """How several answers to an item become one label."""

    MAJORITY = "majority"
    DAWID_SKENE = "dawid-skene"


class ClassifierKind(StrEnum):
    """What learns from the features of a campaign."""

    POOL = "pool"
    """Logistic regression that learns from the unlabelled items too."""
    LINEAR = "linear"
    """Logistic regression."""
    MLP = "mlp"
    """A network with one hidden layer."""


@dataclass(frozen=True)
class ClassDescription:
    """What a class means, for annotators and for models."""

    description: str = ""
    examples: tuple[str, ...] = ()
    """Texts that belong to the class. They need not be items."""


@dataclass(frozen=True)
class ClassInfo:
    """A class, what it means, and its shortcut on the page."""

    name: str
    shortcut: str | None
    """The keyboard shortcut; None if there are more classes than shortcuts."""
    description: str = ""
    examples: tuple[str, ...] = ()
    """Texts that belong to the class."""


@dataclass(frozen=True)
class TableColumn:
    """A column of a table."""

    name: str
    type: ColumnType = ColumnType.TEXT


@dataclass(frozen=True)
class ItemQuery:
    """Which items to list. The fields narrow the list together."""

    search: str = ""
    """Part of the text, of the item id or of a column, in upper or lower case."""
    meaning: str = ""
    """A text: the items are sorted by how close their features are to it."""
    like: str | None = None
    """An item's id: the items are sorted by how close their features are to those of this one."""
    label: str | None = None
    """A class that is the items' label."""
    predicted: str | None = None
    """A class that the newest model predicts."""
    differs: bool = False
    """Only items whose label is not what the newest model predicts."""
    state: ItemFilter = ItemFilter.ALL
    columns: tuple[tuple[str, str], ...] = ()
    """Columns, each with the text that its cell must be equal to."""
    indices: tuple[int, ...] = ()
    """Only these items, by their indices on the map."""
    sort: ItemSort | None = None
    """By default by similarity to ``meaning`` or ``like``, or else as they were added."""
    descending: bool = False
    """The other way round. Similar items begin with the most similar one either way."""
    after: int | None = None
    """The row id that the page begins after, for items that are sorted as they were added."""
    offset: int = 0
    """How many of the items the page leaves out before it begins."""
    count: int = 50

    @property
    def order(self) -> ItemSort:
        """What the items are sorted by."""
        if self.sort:
            return self.sort
        if self.meaning or self.like:
            return ItemSort.SIMILARITY
        return ItemSort.ADDED


@dataclass(frozen=True)
class Answer:
    """What an annotator says about an item."""

    item: str
    annotator: str
    kind: AnswerKind
    label: str | None = None
    """The class, if the kind is a label. Several labels are one text; see ``join_labels``."""
    comment: str | None = None
    number: int | None = field(default=None, compare=False)
    """Its row id; None before it is stored."""
    at: str | None = field(default=None, compare=False)
    """When it was given, in UTC; None before it is stored."""
    origin: AnswerOrigin = field(default=AnswerOrigin.SINGLE, compare=False)
    """How it was given. An answer to a pick of the strategy becomes ``seen`` once there is a model.
    """


@dataclass(frozen=True)
class AnswerReceipt:
    """An answer or decision that is on disk."""

    number: int
    """Its row id, by which it can be undone."""
    late: bool = False
    """Whether the item had been returned to the pool. The answer counts all the same."""
    recorded: bool = True
    """False if the same was there already, so that nothing was stored."""
    labelled: int | None = None
    """Number of labelled items in the campaign now, where it was counted."""
    count: int = 1
    """How many answers were recorded, if there were several at once."""


@dataclass(frozen=True)
class UndoResult:
    """An answer that was taken back."""

    answer: Answer
    before: Answer | None
    """The annotator's earlier answer about the item, which holds again."""
    count: int = 1
    """How many answers were taken back: all of the same key press."""


@dataclass(frozen=True)
class Decision:
    """What a reviewer decides that an item is."""

    item: str
    label: str | None
    """None: the item does not belong in the campaign."""
    reviewer: str
    comment: str | None = None
    number: int | None = field(default=None, compare=False)
    """Its row id; None before it is stored."""
    at: str | None = field(default=None, compare=False)
    """When it was made, in UTC; None before it is stored."""


@dataclass(frozen=True, kw_only=True)
class ItemContent:
    """The content of an item as annotators see it."""

    kind: ItemKind
    text: str | None = None
    """The text, or the beginning of a very long one."""
    characters: int | None = None
    """The length of the whole text, if ``text`` is only its beginning."""
    features: list[float] | None = None
    """The first features of an item that consists of features."""
    columns: list[ShownColumn] = field(default_factory=list)
    """The columns that the campaign's settings show."""


@dataclass(frozen=True)
class ShownColumn:
    """A cell that is shown beside an item. It may hold Markdown, never HTML."""

    name: str
    value: str


@dataclass(frozen=True)
class ConsensusLabel:
    """The label of an item, from all answers to it."""

    label: str
    confidence: float
    """The share of annotators who gave the label, or its probability; 1 for a decision."""
    by: str
    """The consensus method, the name of the reviewer who decided, or the id of a certificate."""


@dataclass(frozen=True, kw_only=True)
class Disagreement:
    """An item that annotators disagree about."""

    item: str
    content: ItemContent
    answers: dict[str, str]
    """By annotator, the class that they gave, or that they flagged the item."""
    label: str | None
    """The label until a reviewer decides; None if the item is left out until then."""
    confidence: float
    """How sure the label is, from 0 to 1."""


@dataclass(frozen=True)
class DisagreementPage:
    """Items that need a decision, the least certain first."""

    disagreements: list[Disagreement]
    waiting: int
    """How many there are in all."""


@dataclass(frozen=True, kw_only=True)
class ItemRow:
    """An item as a row of a table."""

    row_id: int
    """The item's position in the order of all items, for ``after``."""
    item: str
    """The item's id."""
    kind: ItemKind
    excerpt: str
    """The start of a text; empty for other kinds."""
    label: str | None
    state: str
    """The label and flags, or other answers if there is no label; and whether it is unreadable or
    withdrawn.
    """
    by: str | None
    """The consensus method of the label, or the reviewer who decided on it."""
    annotators: int
    """How many annotators have answered."""
    confidence: float | None = None
    """How sure the label is, from 0 to 1."""
    who: list[str] = field(default_factory=list)
    """Who answered, by name, or the reviewer who decided."""
    predicted: str | None = None
    """What the newest model predicts. Not said of an item that is still to be answered blind."""
    probability: float | None = None
    """How sure the model is of it, from 0 to 1."""
    similarity: float | None = None
    """The cosine with the text or the item of the query, if there is one."""

    @property
    def consensus(self) -> ConsensusLabel | None:
        """The label with its confidence and origin; None without a label."""
        if self.label is None or self.confidence is None or self.by is None:
            return None
        return ConsensusLabel(self.label, self.confidence, self.by)


@dataclass(frozen=True, kw_only=True)
class ItemPage:
    """A page of items."""

    items: list[ItemRow]
    after: int | None = None
    """Pass this as ``after`` to get the next page of items that are sorted as they were added; None
    on the last page.
    """
    hits: int = 0
    """How many items the query finds in all."""


@dataclass(frozen=True, kw_only=True)
class ItemDetails(ItemRow):
    """An item with its answers. Annotators see only their own answer."""

    content: ItemContent
    holdout: bool
    """Whether the item is in the holdout, which measures accuracy and is never trained on."""
    withdrawn: bool
    """Whether the item was taken out of the campaign."""
    answers: list[Answer]
    row: dict[str, Any] = field(default_factory=dict)
    """All columns that the item came with. Annotators see only those that the settings show."""
    copies: list[str] = field(default_factory=list)
    """The ids of its near copies: see ``Settings.copies``."""


@dataclass(frozen=True, kw_only=True)
class ItemCounts:
    """How many items a campaign has, and how many have answers of each kind.

    Withdrawn items do not count.
    """

    items: int
    labelled: int
    skipped: int
    unsure: int
    flagged: int


@dataclass(frozen=True, kw_only=True)
class MapLabels:
    """The labelled items on the map."""

    classes: list[str]
    labels: list[tuple[int, int]]
    """The index of each labelled item on the map, and the index of its class."""
    withdrawn: list[int]
    """The indices of withdrawn items, which a map shows if it was drawn before."""
    blind: list[int] = field(default_factory=list)
    """The indices of items that are still to be answered blind, so that no prediction is shown."""


@dataclass(frozen=True, kw_only=True)
class ChangedPrediction:
    """An item whose predicted class changed with the newest model."""

    item: str
    excerpt: str
    label: str | None
    before: str
    after: str


@dataclass(frozen=True)
class AccuracyEstimate:
    """The share of correct answers, with its 95 % confidence interval.

    It comes from models that were trained on nearly all labels, but not on the items they judge.
    """

    share: float
    """The share of correct answers."""
    low: float
    high: float
    total: int
    """Number of items that the share was measured on."""
    right: int
    """How many of them are correct."""


@dataclass(frozen=True)
class ItemColumns:
    """Columns of a table of items; None to find them by their usual names."""

    text: str | None = None
    """The column of the texts, several separated by commas, or a template such as
    ``"{title}: {body}"``."""
    id: str | None = None
    """The column of the ids; ``id`` by default, if there is one."""
    labels: str | None = None
    """The column of labels that are known already."""
    image: str | None = None
    """The column of images instead of texts: paths, or links, which are fetched."""


@dataclass(frozen=True)
class SourcePreview:
    """What is in a file of items before a campaign is made of it."""

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    """The first rows, with the beginnings of their first cells."""
    proposed: ItemColumns = field(default_factory=ItemColumns)
    """What the columns seem to hold."""
    classes: tuple[tuple[str, int], ...] = ()
    """The values of the column of labels and their numbers, the most frequent first."""
    sheets: tuple[str, ...] = ()
    """The sheets of a spreadsheet that have cells, first the one that was read."""
    links: tuple[str, ...] = ()
    """The columns of links."""
    notes: tuple[str, ...] = ()
    """Sentences on how the file was read."""
    upload: str = ""
    """The id of the file on a server, which keeps it for an hour after its last use."""


MAX_LISTED = 1000
"""Entries of a list in a result that leaves the process. The result still has their number."""


@dataclass(frozen=True)
class EncodingResult:
    """The result of encoding items."""

    encoder: str
    """The name of the encoder."""
    encoded: int
    """Number of items that were encoded."""
    unreadable: int = 0
    """Number of items that could not be read. Annotators never see them."""
    sentence: str = ""
    """Which encoder it is and why, in one sentence."""
    unencoded: int = 0
    """Number of items that are left to encode."""
    is_switch: bool = False
    """Whether models used the features of another encoder before this one."""
    fitted_on: int = 0
    """Number of items that the encoder learned from; 0 if it has nothing to learn."""
    is_outgrown: bool = False
    """Whether the encoder learned from so few of the items that it should be fitted again."""
    unreadable_items: dict[str, str] = field(default_factory=dict)
    """Why items could not be read, by their ids."""

    def shortened(self) -> EncodingResult:
        """Return it with the first thousand items that could not be read."""
        listed = dict(islice(self.unreadable_items.items(), MAX_LISTED))
        return replace(self, unreadable_items=listed)


@dataclass(frozen=True)
class ImportResult:
    """What happened to items that were added."""

    new: int = 0
    duplicates: int = 0
    """Number of items whose content the campaign already had."""
    labelled: int = 0
    """Items that got the label that came with them. They may have been in the campaign before."""
    conflicts: int = 0
    """Number of items that keep another label than the one that they came with."""
    failed: int = 0
    """Number of links whose images could not be fetched, so that their items were not added."""
    duplicate_items: tuple[tuple[str, str], ...] = ()
    """Duplicates: the id, and the id of the item with the same content."""
    conflicting_items: tuple[tuple[str, str, str], ...] = ()
    """Conflicts: the id, the label that came, and the one that stays."""
    failed_items: tuple[tuple[str, str], ...] = ()
    """Links whose images could not be fetched, each with the reason."""
    holdout: int = 0
    """The size of the holdout now, without withdrawn items."""
    encoding: EncodingResult | None = None
    """How the items were encoded; None if all of them came with features."""
    left_out_files: dict[str, int] = field(default_factory=dict)
    """Number of files in the folder that are no images, by their endings."""
    notes: tuple[str, ...] = ()
    """Sentences on rows that were left out, and on how the file was read."""

    def plus(self, other: ImportResult) -> ImportResult:
        """Return what happened to these items, and to others that were added after them."""
        values = {declared.name: getattr(self, declared.name) for declared in fields(self)}
        sums = {
            name: value + getattr(other, name)
            for name, value in values.items()
            if isinstance(value, int | tuple)
        }
        return replace(other, **{**sums, "holdout": other.holdout})

    def with_failed(self, errors: Mapping[str, str]) -> ImportResult:
        """Return it with the links that could not be fetched, and why."""
        return replace(self, failed=len(errors), failed_items=tuple(errors.items()))

    def shortened(self) -> ImportResult:
        """Return it with the first thousand entries of each list."""
        encoding = self.encoding
        if encoding is not None:
            encoding = encoding.shortened()
        return replace(
            self,
            duplicate_items=self.duplicate_items[:MAX_LISTED],
            conflicting_items=self.conflicting_items[:MAX_LISTED],
            failed_items=self.failed_items[:MAX_LISTED],
            encoding=encoding,
        )


@dataclass(frozen=True)
class EncoderComparison:
    """How many labels models predict correctly, out of fold, from the features of two encoders."""

    encoder: str
    right: int
    previous: str
    previous_right: int
    labels: int


@dataclass(frozen=True)
class Question:
    """An item to label, and why it was picked."""

    item: str
    """Its id."""
    content: str | None
    """The text, or the path of the image."""
    arm: str
    """``picked`` by the strategy, drawn at random as a ``control`` item or to ``finish``, or of the
    ``holdout``.
    """
    rank: int
    """Its position in the batch, from 1."""
    reason: dict[str, Any]
    """What was known when it was picked: its LDM or score, the predicted class, its probability."""


@dataclass(frozen=True, kw_only=True)
class ShownPick:
    """Why an item was picked, as its annotator may know it.

    The prediction is hidden for items drawn at random, because the model is measured on them, for
    items that several annotators answer, because it would lead them to agree, and for all items of
    a campaign with a goal, whose certificate takes the answers to be right.
    """

    arm: PickArm
    rank: int
    """The position of the item in its batch, from 1."""
    is_shared: bool = False
    """Whether several annotators answer the item."""
    is_sample: bool = False
    """Whether the strategy draws all items at random, so that each of them measures the model."""
    is_counted: bool = False
    """Whether the answer counts for the goal of the campaign, as each does that is given blind."""
    scores: dict[str, float] = field(default_factory=dict)
    """What the strategy computed for the item, such as ``ldm``."""
    predicted: str | None = None
    probability: float | None = None
    """The probability of the predicted class."""

    @property
    def is_blind(self) -> bool:
        """Whether annotators must not see the prediction."""
        is_drawn = self.arm.is_random or self.is_sample
        return is_drawn or self.is_shared or self.is_counted


@dataclass(frozen=True)
class Neighbour:
    """A labelled item that is similar to an item."""

    item: str
    label: str
    content: str
    """The start of its text."""


@dataclass(frozen=True)
class Explanation:
    """What the model makes of an item."""

    probabilities: list[tuple[str, float]]
    """Classes and their probabilities, the most probable first; empty without a linear model."""
    neighbours: list[Neighbour]
    """The most similar labelled items, the nearest first."""


@dataclass(frozen=True)
class ShownSuggestion:
    """A suggestion that stands on the page, or stood there when an annotator answered."""

    source: str
    label: str
    probability: float | None = None
    """The probability that the source gives the class, if it gives one."""
    accuracy: AccuracyEstimate | None = None
    """The measured accuracy of the source; None before it is measured."""


@dataclass(frozen=True, kw_only=True)
class ShownQuestion:
    """An item to label, as the page shows it."""

    item: str
    content: ItemContent
    pick: ShownPick
    suggestion: ShownSuggestion | None = None
    """A suggestion to accept or not; None for items that are answered blind."""
    explanation: Explanation | None = None
    """The explanation of the prediction; None if it is not computed yet or must not be shown."""
    copies: dict[str, str] = field(default_factory=dict)
    """Near copies that the answer may be given to, too: by item id, the start of the text."""

    def as_question(self) -> Question:
        """Return it as ``Campaign.ask`` does."""
        reason: dict[str, Any] = dict(self.pick.scores)
        if self.pick.predicted is not None:
            reason["predicted"] = self.pick.predicted
            reason["probability"] = self.pick.probability
        return Question(self.item, self.content.text, self.pick.arm, self.pick.rank, reason)


@dataclass(frozen=True, kw_only=True)
class RecentAnswer:
    """An answer or decision that you gave."""

    number: int | None
    """By which it can be undone."""
    item: str
    content: ItemContent
    pick: ShownPick | None = None
    """Why the item was picked; None for a decision, and for an item that was not picked for you."""
    answer: str
    """The class, or the kind of an answer that is not a label."""
    comment: str | None


@dataclass(frozen=True)
class StatusReport:
    """What background work says while it goes on."""

    activity: Activity | None
    labels: int | None = None
    """Number of labels that a model is trained on."""
    version: int | None = None
    """Version of the model that is being trained, or was."""
    is_trained: bool = False
    """Whether that model is complete."""
    done: int | None = None
    """Number of items encoded so far."""
    total: int | None = None
    """Number of items to encode, including those already encoded."""


@dataclass(frozen=True)
class QuestionsReady:
    """The annotator has items to label, unless the campaign has none left."""

    is_finished: bool
    """Whether no item is left for the annotator."""
    explanations: dict[str, Explanation]
    """By item id, for items that were not explained before by the same model."""


@dataclass(frozen=True)
class Status:
    """The progress of a campaign."""

    items: int
    """Items of the campaign.

    Withdrawn ones count in no number but ``withdrawn``, ``spent`` and ``unencoded``.
    """
    labelled: int
    by_class: dict[str, int]
    skipped: int
    unsure: int
    flagged: int
    open: int
    """Items that are assigned and wait for an answer."""
    version: int
    """The number of the newest model; 0 before the first."""
    accuracy: AccuracyEstimate | None
    advice: tuple[str, ...]
    """Sentences for and against stopping."""
    disagreements: int = 0
    """Items that wait for a reviewer's decision."""
    spent: float | None = None
    """The cost of all answers; None if the cost of a label is not set."""
    encoder: str | None = None
    """Name of the current encoder; None before the first items are added."""
    unencoded: int = 0
    """Items without features, withdrawn or not. They are not picked until they are encoded."""
    unreadable: int = 0
    """Items that could not be read. They are never picked."""
    comparison: EncoderComparison | None = None
    """The current encoder compared with the previous one, on the labels of the newest model."""
    learned: str | None = None
    """What the newest model learned from, in a sentence."""
    withdrawn: int = 0
    """Items that were taken out of the campaign."""
    unlearned: int = 0
    """Answers that the newest model does not know."""
    bulk_agreement: AccuracyEstimate | None = None
    """How many answers in bulk agree with the blind ones that were asked for to check them."""
    by_label: tuple[LabelScore, ...] = ()
    """How well the newest model predicts each label on random items, where items may have several.
    ``accuracy`` is then the share of items whose labels are all right."""
    macro_f1: float | None = None
    """The mean F1 of the labels that occur, where items may have several."""
    micro_f1: float | None = None
    """The F1 of all marks together, in which frequent labels count most."""


@dataclass(frozen=True)
class LabelScore:
    """How well models that were not trained on them predict a label of random items."""

    label: str
    hits: int
    """Items that have the label and are predicted to."""
    predicted: int
    """Items that are predicted to have it."""
    actual: int
    """Items that have it."""
    f1: float | None
    """The harmonic mean of precision and recall; None for a label that never occurs."""


@dataclass(frozen=True)
class ClassAccuracy:
    """What models that were not trained on them take the random items of a class for."""

    label: str
    predicted: dict[str, int]
    """How many of its items are predicted as which class, the most frequent first."""
    accuracy: AccuracyEstimate | None
    """The share that is predicted correctly; None without an item of the class."""


@dataclass(frozen=True, kw_only=True)
class ModelRound:
    """A trained model."""

    version: int
    trained: str
    """When the model was trained."""
    labels: int
    """Number of labels that the model was trained on."""
    classes: list[str]
    """The classes among those labels."""
    control: tuple[int, int]
    """Labelled control items: the number predicted correctly, and the total."""
    holdout: tuple[int, int]
    """Labelled items of the holdout: the number predicted correctly, and the total."""
    kappa: float | None
    """Cohen's kappa with the predictions of the previous model; None for the first model."""
    changed: float | None
    """The share of predictions that differ from those of the previous model."""
    accuracy: AccuracyEstimate | None
    """The accuracy on randomly drawn items; None if none of them has been labelled."""
    accuracy_on_new_groups: AccuracyEstimate | None = None
    """The same by models that know no near copy of the item; None if no random item has one with a
    label.
    """


@dataclass(frozen=True, kw_only=True)
class CampaignProgress:
    """The progress of a campaign, model by model."""

    status: Status
    rounds: list[ModelRound]
    """Oldest first."""
    times: list[str]
    """When each label was given, oldest first."""
    spent: float | None
    budget: float | None


@dataclass(frozen=True, kw_only=True)
class HistoryPage:
    """A part of the history, oldest first."""

    lines: list[dict[str, Any]]
    """Each has ``at``, ``who``, ``what``, ``item``, and what else is known about the change."""
    after: int | None
    """Pass this as ``after`` to get the next part; None on the last one."""


@dataclass(frozen=True)
class SuspectLabel:
    """A label that a model which was not trained on it finds unlikely."""

    item: str
    label: str
    predicted: str
    chance: float
    """The probability that the model gives the label."""
    content: str | None = None
    """The text, or the path of the image."""
    columns: dict[str, str] = field(default_factory=dict)
    """The columns that the campaign's settings show, where a server fills them in."""


@dataclass(frozen=True)
class AnnotatorStats:
    """A person who works on a campaign, and how. None stands for what is not known yet."""

    name: str
    role: Role | None = None
    """None for someone who has answered but is not a member."""
    has_token: bool = False
    answers: int = 0
    """Live answers."""
    seconds: float | None = None
    """The median time from one answer to the next, without breaks."""
    per_hour: int | None = None
    """Answers in an hour of work."""
    matches_consensus: AccuracyEstimate | None = None
    """Share of their labels that equal the consensus, on items that several people labelled."""
    matches_decisions: AccuracyEstimate | None = None
    """Share of their labels that equal the decision of a reviewer."""
    matches_at_random: AccuracyEstimate | None = None
    """The same for the decision or else the consensus, on items drawn at random only."""
    open: int = 0
    """Items that are assigned to them but not answered yet."""


@dataclass(frozen=True)
class MemberChange:
    """A change to a member that was made."""

    name: str
    released: int = 0
    """How many of their open items were released to others."""


@dataclass(frozen=True)
class AgreementScore:
    """A measure of agreement, with its 95 % confidence interval."""

    value: float
    low: float
    high: float
    items: int
    """Items with two or more answers."""


@dataclass(frozen=True)
class PairAgreement:
    """How far two annotators agree."""

    first: str
    second: str
    items: int
    """Items that both labelled."""
    kappa: AgreementScore | None
    """Cohen's kappa; None if there are too few items."""


@dataclass(frozen=True)
class Agreement:
    """How far the annotators agree. None stands for what too few items can tell."""

    items: int
    """Items that two or more annotators labelled."""
    observed: AgreementScore | None
    alpha: AgreementScore | None
    by_class: dict[str, AgreementScore | None]
    pairs: tuple[PairAgreement, ...]


class SourceKind(StrEnum):
    """Where suggestions come from."""

    PREDICTIONS = "predictions"
    """The predictions of a model, from a file or a program."""
    LANGUAGE_MODEL = "language model"


@dataclass(frozen=True)
class ModelReply:
    """What a language model replied about a text."""

    label: str | None
    """The class; None if the reply names no class."""
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True)
class ModelUsage:
    """What a language model has used so far."""

    replies: int
    invalid: int
    """Replies that named no class."""
    input_tokens: int
    output_tokens: int
    cost: float


@dataclass(frozen=True)
class SourceReport:
    """A source of suggestions, and how often annotators agree with it. None: not known yet."""

    name: str
    kind: SourceKind
    items: int
    """Items that it has said something about, without withdrawn ones."""
    accuracy: AccuracyEstimate | None
    """Share of its suggestions on control and holdout items that equal the label.

    Annotators did not see them there.
    """
    shown: AccuracyEstimate | None
    """Share of labels on picked items that equal the suggestion, where it stood on the page."""
    blind: AccuracyEstimate | None
    """The same where it did not."""
    sent_to: str | None = None
    """The host that texts are sent to, for a language model."""
    remaining_budget: float | None = None
    """What a language model may still cost; None without a budget."""
    usage: ModelUsage | None = None
    """What a language model has used."""


@dataclass(frozen=True)
class PredictionImport:
    """What became of a set of predictions."""

    source: str
    stored: int
    unknown_items: int
    """Predictions for items that the campaign does not have."""
    unknown_labels: dict[str, int] = field(default_factory=dict)
    """Predicted classes that the campaign does not have, and how often they occur."""
    missing: int = 0
    """Items of the campaign without a prediction of this source."""
    sentences: list[str] = field(default_factory=list)
    """What became of them, for people."""


@dataclass(frozen=True)
class PlannedStep:
    """What so many more random labels are likely to be worth."""

    labels: int
    """Further items to draw at random from the whole set and to label."""
    items: int
    """Items that the model could then label."""
    coverage: float
    """Their share of the items that no person has labelled."""
    expected_error: float
    """The share of wrong labels that is expected among them."""


@dataclass(frozen=True)
class ReliabilityBin:
    """Items with similar confidence, and the share of them that the model labels right."""

    confidence: float
    """The mean confidence."""
    right: float
    low: float
    """The 95 % confidence interval of the share, Wilson's."""
    high: float
    items: int


@dataclass(frozen=True)
class ClassShare:
    """The share of a class in the pool, with its 95 % confidence interval."""

    label: str
    share: float
    low: float
    high: float
    predicted: float
    """The share without the correction: what people and the model say together."""


@dataclass(frozen=True)
class GroupPromise:
    """What is promised about all items, or about those of one predicted class."""

    label: str | None
    """The predicted class; None for all items."""
    items: int
    """How many items the model may label now; 0 without a promise, or if none is left."""
    threshold: float | None
    """The promise is about items of at least this confidence; None without a promise."""
    counted: int
    """How many items the promise counts: more than ``items`` if people labelled some of them since,
    or if it is about all labels in the file.
    """
    limit: int
    """At most so many of the counted items are labelled wrong by the model."""
    drawn: int
    """Items of the chosen step, or of the group without a promise, that were drawn and answered."""
    wrong: int
    """How many of those the model labels wrong."""
    left: int
    """How many items of the group no person has labelled."""


@dataclass(frozen=True)
class CoveragePoint:
    """How much the model could label after so many draws."""

    draws: int
    coverage: float


@dataclass(frozen=True)
class FinishReport:
    """What a frozen model may label, and what is known of it."""

    is_started: bool
    """False if the model is only looked at as if it were frozen now."""
    attempt: int
    started: str
    model_version: int
    checksum: str
    error: float
    confidence: float
    per_class: bool
    attempt_confidence: float
    """What this attempt may spend of the confidence: later attempts have less."""
    items: int
    """Items of the set: without a label when the model was trained."""
    draws: int
    """Random items that were answered, one after the other."""
    wrong: int
    """How many of them the model labels wrong."""
    asked_draws: int
    """Draws that are asked before the strategy picks again."""
    left: int
    """Items of the set that no person has labelled."""
    covered: int
    """How many of them the model may label."""
    promises: tuple[GroupPromise, ...]
    plan: tuple[PlannedStep, ...]
    curve: tuple[CoveragePoint, ...]
    reliability: tuple[ReliabilityBin, ...]
    class_shares: tuple[ClassShare, ...]
    share_items: int
    """Items that the shares of the classes are about: those of the set, and labelled ones."""
    share_left_out: int
    """Other items of the campaign: added later, set aside, or unreadable."""
    coverage: float = 0.0
    """The share of the items left that the model may label."""
    waiting_draws: int = 0
    """How many draws are still to be answered."""
    certificate: str | None = None
    """The id of the newest certificate of this promise."""
    sentences: list[str] = field(default_factory=list)
    """What the report says, for people. The first says what is promised, or what to do for it."""
    shares_note: str = ""
    """What the shares of the classes are about, as a sentence."""
    labelled: float | None = None
    """For a promise about all labels in the file: the share of the items that is to have one."""
    judge: str = ""
    """The judge of an audit, if its labels are promised rather than those of a model."""

    @property
    def labeller(self) -> str:
        """Whose labels are promised, within a sentence."""
        return self.judge or "the model"


@dataclass(frozen=True, kw_only=True)
class JudgeReport:
    """How good the labels of a judge are, by the answers of people to items drawn at random."""

    judge: str
    """The column of its labels."""
    confidence: str
    """The column of its confidences; empty without one."""
    accuracy: AccuracyEstimate
    """The share of its labels that is right. The interval holds whenever you look."""
    estimate: AccuracyEstimate | None
    """The same by strata of label and confidence. The interval is for one look; None without draws.
    """
    curve: list[AccuracyEstimate]
    """What ``accuracy`` was after fewer draws, from none."""
    holds: bool | None
    """Whether as much is right as the audit requires; None if that is open, or nothing is required.
    """
    more: int | None
    """Further answers that would probably decide it; None if it is decided or nearly impossible."""
    kappa: AgreementScore | None
    """Cohen's kappa of the judge and people; None for too few draws."""
    class_shares: list[ClassShare]
    """The shares of the classes; ``predicted`` is what the judge says alone."""
    by_column: dict[str, dict[str, AccuracyEstimate]]
    """By column and value, the share of right labels; by the judge's own column first. All
    intervals of a column hold together, for one look.
    """
    confusion: list[ClassAccuracy]
    """What the judge takes the items of each class for."""
    reliability: list[ReliabilityBin]
    sentences: list[str]
    """What it says, for people. The first is the verdict."""


@dataclass(frozen=True)
class JudgeComparison:
    """By how much more of the first judge's labels are right, on the same items."""

    first: str
    second: str
    difference: AgreementScore
    """The interval is for one look."""


@dataclass(frozen=True, kw_only=True)
class AuditReport:
    """What an audit has found out so far."""

    items: int
    """Items that every judge has labelled, from which the draws are."""
    draws: int
    """Random items that were answered, one after the other."""
    unclear: int
    """Those of them that people could not label. They count as not right."""
    require: float | None
    """The share that must be right; None if nothing is required."""
    is_running: bool
    """Whether items are still drawn. Until then, what judges say of the others is hidden."""
    judges: list[JudgeReport]
    comparisons: list[JudgeComparison]
    people: AgreementScore | None
    """The share of pairs of answers to the same item that agree; None for too few."""
    sentences: list[str]
    """What concerns all judges, for people."""


class Purpose(StrEnum):
    """What the next questions of a campaign with a goal are for."""

    TEACH = "teach"
    """To make the model better: the strategy picks."""
    START = "start"
    """To certify the newest model in a new attempt, which begins with the next questions."""
    CERTIFY = "certify"
    """To certify the model of the running attempt: items are drawn at random."""
    DONE = "done"
    """The goal is reached."""


@dataclass(frozen=True)
class GoalReport:
    """How far a campaign is from its goal."""

    goal: str
    purpose: Purpose
    answers: int
    """Labels that people gave one by one."""
    to_go: int | None
    """Answers that are expected until the goal is reached; None before the first model."""
    low: int | None
    """With a probability of one in ten, it takes fewer answers than this."""
    high: int | None
    """With a probability of one in ten, it takes more."""
    items: int
    labelled: int
    """Items that are expected to have a label then."""
    in_reach: bool
    """Whether the model is expected to save people half of the answers or more."""
    certificate: str | None
    """The id of the newest certificate, if the goal is reached."""
    sentences: list[str]
    """The same for people. The first is for a line."""


@dataclass(frozen=True)
class Certificate:
    """A promise at the moment in which it was written down."""

    id: str
    issued: str
    content: dict[str, Any]
    """Everything that it says."""
    attempt: int
    """The number of the attempt that it belongs to."""
