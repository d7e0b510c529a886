"""The types of the REST API: what requests hold and what responses return.

``...In`` is the body of a request. It refuses fields that it does not know, so that a misspelt one
is noticed. All other classes are returned by the services and sent as they are.
"""

from __future__ import annotations

from abc import ABC
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from teeter.campaigns.agreement import AgreementScore
from teeter.campaigns.consensus import ConsensusMethod
from teeter.campaigns.db import Answer
from teeter.campaigns.enums import AnswerKind, ItemKind, Permission, PickArm, Role
from teeter.campaigns.results import ModelInfo, Status, SuspectLabel
from teeter.campaigns.snapshot import PairAgreement
from teeter.campaigns.stopping import AccuracyEstimate
from teeter.web.background_requests import Explanation

__all__ = [
    "AgreementOut",
    "AnswerIn",
    "AnswerOut",
    "CampaignOut",
    "ChangedPrediction",
    "ClassOut",
    "ConfirmationIn",
    "ConsensusIn",
    "CreatedCampaign",
    "DecisionIn",
    "DisagreementOut",
    "DisagreementsOut",
    "EncodeIn",
    "EncodedItems",
    "GivenAnswer",
    "ItemContent",
    "ItemOut",
    "ItemRow",
    "ItemsOut",
    "JobOut",
    "JobStarted",
    "JobState",
    "LabelMode",
    "LabelPageStart",
    "LabelsOut",
    "MemberChanged",
    "MemberOut",
    "ModelRound",
    "NameIn",
    "PersonIn",
    "PickOut",
    "ProgressOut",
    "QuestionOut",
    "QuestionsOut",
    "RecentAnswer",
    "SessionIn",
    "SessionOut",
    "ShareOut",
    "SuspectsOut",
    "TokenOut",
    "TrainedModel",
    "UndoIn",
    "UndoOut",
    "UndoneAnswer",
]


class _RequestBody(BaseModel, ABC):
    """What clients send. A field that is not expected is an error, because it may be a typo."""

    model_config = ConfigDict(extra="forbid")


def _require_printable(name: str) -> str:
    if not name.isprintable():
        raise ValueError("a name may only have characters that can be displayed")
    return name


Name = Annotated[
    str,
    # No space at either end.
    Field(min_length=1, max_length=80, pattern=r"^\S(.*\S)?$"),
    AfterValidator(_require_printable),
]

ItemId = Annotated[str, Field(min_length=1, max_length=4096)]
Label = Annotated[str, Field(max_length=1000)]
Comment = Annotated[str, Field(max_length=10_000)]


# Sessions


class SessionIn(_RequestBody):
    """The name to answer under, where no token is required."""

    annotator: Name


class SessionOut(BaseModel):
    """Who answers, and the CSRF token that every change must send in the header X-CSRF-Token."""

    annotator: str
    csrf: str
    needs_token: bool


# Campaigns


class ClassOut(BaseModel):
    """A class and its shortcut on the page."""

    name: str
    shortcut: str | None
    """None if there are more classes than shortcuts."""


class CampaignOut(BaseModel):
    """A campaign and its progress."""

    slug: str
    """Its name in addresses."""
    name: str
    kind: ItemKind
    strategy: str
    instructions: str
    classes: list[ClassOut]
    items: int
    labelled: int
    skipped: int
    unsure: int
    flagged: int
    model: int
    """The version of the newest model; 0 before there is one."""
    news: str
    """What is being done in the background, in one sentence; empty if there is nothing to say."""
    permissions: list[Permission]
    """What you may do in the campaign."""
    is_team: bool
    """Whether several people work on it."""


class CreatedCampaign(BaseModel):
    """A campaign that was created from a file or a folder."""

    slug: str
    file: str
    new: int
    """Items in the campaign."""
    duplicates: int
    """Items that were left out because another one has the same content."""
    labelled: int
    """Items that came with a label."""
    encoder: str | None = None
    """Which encoder computed the features and why, in one sentence."""
    unreadable: int = 0
    """Items that could not be read, and are not asked about."""


class EncodedItems(BaseModel):
    """What an encoding resulted in."""

    encoder: str
    encoded: int
    """Items that were encoded."""
    unreadable: int
    """Items that could not be read, and are not asked about."""


class EncodeIn(_RequestBody):
    """A switch to another encoder."""

    encoder: str | None = Field(default=None, max_length=200)
    """One of teeter's own encoders; None to continue with the current one."""


class TrainedModel(BaseModel):
    """What a training resulted in."""

    trained: ModelInfo | None
    """None if fewer than two classes have labels."""


class JobStarted(BaseModel):
    """Work that was started in the background."""

    job: str
    """Its id, for ``GET /jobs/{job}``. Everyone who knows it can see the result."""


class JobState(StrEnum):
    """How far background work is."""

    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"


class JobOut(BaseModel):
    """The state of background work."""

    state: JobState
    detail: str | None = None
    """Why it failed."""
    result: CreatedCampaign | EncodedItems | TrainedModel | None = None
    done: int | None = None
    """Items that are encoded, while items are being encoded."""
    total: int | None = None
    """Items to encode, with those that are done."""
    seconds_left: float | None = None
    """How long the encoding will take from now, if that is known."""


# Items


class ItemContent(BaseModel):
    """What annotators see of an item."""

    kind: ItemKind
    text: str | None = None
    """The text, or the beginning of a very long one."""
    characters: int | None = None
    """The length of the whole text, if ``text`` is only its beginning."""
    features: list[float] | None = None
    """The first features of an item that consists of features."""


class PickOut(BaseModel):
    """Why an item was picked.

    The prediction is hidden for items drawn at random, because the model is measured on them, and
    for items that several annotators answer, because it would lead them to agree.
    """

    arm: PickArm
    rank: int
    """The position in its batch, from 1."""
    is_shared: bool = False
    """Whether several annotators answer the item."""
    scores: dict[str, float] = Field(default_factory=dict)
    """What the strategy computed for the item, such as ``ldm``."""
    predicted: str | None = None
    probability: float | None = None
    """The probability of the predicted class."""

    @property
    def is_blind(self) -> bool:
        """Whether annotators must not see the prediction."""
        return self.arm.is_random or self.is_shared


class QuestionOut(BaseModel):
    """An item to label."""

    item: str
    content: ItemContent
    pick: PickOut
    explanation: Explanation | None = None
    """None if it is not computed yet, or must not be seen."""


class QuestionsOut(BaseModel):
    """Items to label, and what is going on."""

    questions: list[QuestionOut]
    finished: bool
    """Whether no item is left for you."""
    news: str
    busy: bool
    """Whether work is being done in the background."""
    labelled: int
    items: int


class ItemRow(BaseModel):
    """An item as a row of a table."""

    row_id: int
    """Its position in the order of all items, for ``after`` and ``before``."""
    item: str
    kind: ItemKind
    excerpt: str
    """The start of a text; empty for other kinds."""
    label: str | None
    state: str
    """The label and flags, or other answers if there is no label."""
    by: str | None
    """The consensus method of the label, or the reviewer who decided on it."""
    annotators: int
    """How many annotators have answered."""


class ItemsOut(BaseModel):
    """A page of items."""

    items: list[ItemRow]
    after: int | None
    """Pass this as ``after`` to get the next page; None on the last page."""
    before: int | None
    """Pass this as ``before`` to get the previous page; None if the page is empty."""


class ItemOut(BaseModel):
    """An item with its answers. Annotators see only their own answer."""

    row_id: int
    item: str
    content: ItemContent
    label: str | None
    state: str
    by: str | None
    annotators: int
    audit: bool
    """Whether it is in the audit set: used to measure, never to train."""
    answers: list[Answer]


class LabelsOut(BaseModel):
    """The labelled items on the map."""

    classes: list[str]
    labels: list[tuple[int, int]]
    """The index of each labelled item on the map, and the index of its class."""


# Answers


# What clients send ends in In, what they get in Out. Limits here are the first line of defence:
# a request that breaks one is refused with 422 before any code of ours sees it.
class AnswerIn(_RequestBody):
    """An answer about an item."""

    item: ItemId
    kind: AnswerKind = AnswerKind.LABEL
    label: Label | None = None
    """The class, if the kind is ``label``."""
    comment: Comment | None = None


class AnswerOut(BaseModel):
    """An answer or decision that is on disk."""

    stored: bool = True
    new: bool
    """False if it was stored before, as when it is sent twice."""
    labelled: int
    """Labelled items of the campaign."""


class RecentAnswer(BaseModel):
    """An answer or decision that you gave."""

    item: str
    content: ItemContent
    pick: PickOut | None = None
    """None for a decision, and for an item that was not picked for you."""
    answer: str
    """The class, or the kind of an answer that is not a label."""
    comment: str | None


class ConfirmationIn(_RequestBody):
    """An item whose label was reviewed and is right."""

    item: ItemId
    comment: Comment | None = None


class UndoIn(_RequestBody):
    """The item whose answer to undo, if that is your newest answer. Without it, the newest is."""

    item: str | None = Field(default=None, max_length=4096)


class UndoneAnswer(BaseModel):
    """An answer or decision that was undone."""

    item: str
    content: ItemContent
    pick: PickOut | None = None
    answer: str
    """The class, or the kind of an answer that is not a label."""
    previous: str | None = None
    """Your answer before it, which is valid again."""


class UndoOut(BaseModel):
    """What was undone; None if there was nothing to undo."""

    undone: UndoneAnswer | None


# Progress


class ShareOut(BaseModel):
    """A share, with its 95 % confidence interval."""

    share: float
    low: float
    high: float
    total: int
    """Number of items that it was measured on."""

    @classmethod
    def from_estimate(cls, estimate: AccuracyEstimate | None) -> ShareOut | None:
        """Return an estimate as it is sent; None if there is no estimate."""
        if estimate is None:
            return None
        return cls(share=estimate.share, low=estimate.low, high=estimate.high, total=estimate.total)


class ModelRound(BaseModel):
    """A trained model."""

    version: int
    trained: str
    """When it was trained."""
    labels: int
    """Labels that it was trained on."""
    classes: list[str]
    """Classes among those labels."""
    control: tuple[int, int]
    """Labelled control items that it predicts correctly, and all of them."""
    audit: tuple[int, int]
    """Labelled items of the audit set that it predicts correctly, and all of them."""
    kappa: float | None
    """Cohen's kappa with the predictions of the previous model; None for the first model."""
    changed: float | None
    """The share of predictions that differ from those of the previous model."""
    accuracy: ShareOut | None
    """Measured on randomly drawn items; None if none of them was labelled."""


class ProgressOut(BaseModel):
    """The progress of a campaign, model by model."""

    status: Status
    rounds: list[ModelRound]
    """Oldest first."""
    times: list[str]
    """When each label was given, oldest first."""
    spent: float | None
    budget: float | None


class ChangedPrediction(BaseModel):
    """An item whose predicted class changed with the newest model."""

    item: str
    excerpt: str
    label: str | None
    before: str
    after: str


class SuspectsOut(BaseModel):
    """Labels that may be wrong, the least likely first."""

    state: JobState
    detail: str | None = None
    """Why the search failed."""
    suspects: list[SuspectLabel] = Field(default_factory=list)


# Teams


class GivenAnswer(BaseModel):
    """What one annotator says about an item."""

    annotator: str
    answer: str
    """The class, or ``flag``."""


class DisagreementOut(BaseModel):
    """An item that annotators disagree about."""

    item: str
    content: ItemContent
    answers: list[GivenAnswer]
    label: str | None
    """The label until a reviewer decides; None if the item is left out until then."""
    confidence: float
    """How sure the label is, from 0 to 1."""


class DisagreementsOut(BaseModel):
    """Items that need a decision, the least clear first."""

    disagreements: list[DisagreementOut]
    waiting: int
    """How many there are in total."""


class DecisionIn(_RequestBody):
    """A decision on the label of an item, which overrides all answers."""

    item: ItemId
    label: Label | None = None
    """None: the item does not belong in the campaign."""
    comment: Comment | None = None


class MemberOut(BaseModel):
    """A person who works on a campaign. None stands for what is not known yet."""

    name: str
    role: Role | None
    """None if they have answered and are not a member."""
    has_token: bool
    answers: int
    per_hour: int | None
    """Answers in an hour of work, without breaks."""
    matches_consensus: ShareOut | None
    """Their labels that equal the label of the item, where two or more people labelled it."""
    matches_decisions: ShareOut | None
    """Their labels that equal the decision of a reviewer."""
    open: int
    """Items that are assigned to them and not answered yet."""


class AgreementOut(BaseModel):
    """How far annotators agree, with 95 % confidence intervals. None: not known yet."""

    items: int
    """Items that two or more annotators labelled."""
    observed: AgreementScore | None
    """The share of answers that agree."""
    alpha: AgreementScore | None
    """Krippendorff's alpha."""
    by_class: dict[str, AgreementScore | None]
    """Krippendorff's alpha of each class."""
    pairs: list[PairAgreement]
    consensus: str
    """How several answers become one label."""
    methods: list[ConsensusMethod]
    """What can be chosen for ``consensus``."""


class ConsensusIn(_RequestBody):
    """How several answers become one label."""

    method: ConsensusMethod


class NameIn(_RequestBody):
    """A member of the campaign."""

    name: str = Field(min_length=1, max_length=80)


class PersonIn(_RequestBody):
    """A member and their role."""

    name: Name
    role: Role = Role.ANNOTATOR


class TokenOut(BaseModel):
    """A new token. It is shown only once."""

    name: str
    token: str


class MemberChanged(BaseModel):
    """A change that is done."""

    name: str
    released: int = 0
    """Open items of the member that others can get now."""


# Pages


class LabelMode(StrEnum):
    """What the labelling page is used for."""

    LABEL = "label"
    SUSPECTS = "suspects"
    DECIDE = "decide"


class LabelPageStart(BaseModel):
    """What the labelling page knows when it is loaded."""

    slug: str
    campaign: str
    """Identifies the campaign, so that unsent answers never go to another one of the same name."""
    annotator: str
    mode: LabelMode
    kind: ItemKind
    classes: list[ClassOut]
    strategy: str
    labelled: int
    items: int
    news: str
    questions: list[QuestionOut] | list[DisagreementOut]
    recent: list[RecentAnswer]
    """Newest first."""
    waiting: int = 0
    """Disagreements that need a decision."""
