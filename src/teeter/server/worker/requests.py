"""What the server asks its background worker to do, what it gets back, and what it hears meanwhile.

These travel between two processes, so they hold plain data only. Two equal requests mean the same
work: the worker's queue holds each once.
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from teeter.campaigns.records import (
    EncodingResult,
    ImportResult,
    ItemColumns,
    ModelRound,
    QuestionsReady,
    SuspectLabel,
)
from teeter.classifier import Prediction

if TYPE_CHECKING:
    from teeter.campaigns.settings import Settings


ResultT_co = TypeVar("ResultT_co", covariant=True)


class TaskRequest(ABC, Generic[ResultT_co]):
    """Something to do for a campaign, with the type of its result."""

    campaign: str
    """File or database URL of the campaign."""

    is_urgent: ClassVar[bool] = False
    """Whether annotators wait for it, so that it goes before other work."""


@dataclass(frozen=True)
class WarmUp(TaskRequest[None]):
    """Load the libraries that the first selection needs."""

    campaign: str = ""


@dataclass(frozen=True)
class EnsureQuestions(TaskRequest[QuestionsReady]):
    """Train if enough labels are new, and pick items if the annotator has few."""

    campaign: str
    annotator: str
    batch: int

    is_urgent: ClassVar[bool] = True


@dataclass(frozen=True)
class PickAhead(TaskRequest[None]):
    """Pick items for annotators who are expected to come."""

    campaign: str
    count: int


@dataclass(frozen=True)
class TrainModel(TaskRequest[ModelRound | None]):
    """Train a model on all labels; None if fewer than two classes have labels."""

    campaign: str

    is_urgent: ClassVar[bool] = True


@dataclass(frozen=True)
class EncodeItems(TaskRequest[EncodingResult]):
    """Compute the features of all items that lack them, or switch to another encoder."""

    campaign: str
    encoder: str | None = None
    """The encoder to switch to, or None to resume with the current one."""


@dataclass(frozen=True)
class FindSuspects(TaskRequest[list[SuspectLabel]]):
    """Find labels that may be wrong, the least likely first."""

    campaign: str
    count: int


@dataclass(frozen=True)
class ExportLabels(TaskRequest[str]):
    """Write labels and predictions into a new folder inside ``folder``; the result is the file."""

    campaign: str
    format: str
    folder: str


@dataclass(frozen=True)
class PredictTexts(TaskRequest[tuple[int, list[Prediction]]]):
    """Predict the classes of new texts; the result begins with the number of the model."""

    campaign: str
    texts: tuple[str, ...]


class MapKind(StrEnum):
    """What a map shows."""

    PCA = "pca"
    TSNE = "tsne"
    LDM = "ldm"


@dataclass(frozen=True)
class MapFile:
    """A map on disk, and the version of the model whose predictions it shows."""

    file: str
    version: int
    change: int
    """The newest change of the items that it shows, from ``ItemQueries.newest_change``."""


@dataclass(frozen=True)
class DrawMap(TaskRequest[MapFile]):
    """Project the pool to two dimensions, or compute its LDM, into a file inside ``folder``."""

    campaign: str
    kind: MapKind
    folder: str


@dataclass(frozen=True)
class AddItems(TaskRequest[ImportResult]):
    """Store items, which are encoded by a later request."""

    campaign: str
    source: str
    """A JSON file with a list of items, or a table."""
    who: str
    columns: ItemColumns | None = None
    """The columns of a table; None for a list of items."""

    is_urgent: ClassVar[bool] = True


@dataclass(frozen=True)
class ChangeItem(TaskRequest[bool]):
    """Change an item, and return whether something has changed. A new text is encoded."""

    campaign: str
    item: str
    changes: str
    """JSON with the keyword arguments of ``Campaign.change_item``."""
    who: str

    is_urgent: ClassVar[bool] = True


@dataclass(frozen=True)
class CreateCampaign(TaskRequest[ImportResult]):
    """Create a campaign from a file of items or a folder of images."""

    source: str
    campaign: str
    """The file to create."""
    classes: tuple[str, ...]
    settings: Settings
    """All but ``kind`` and ``folder``, which follow from the source."""
    columns: ItemColumns = field(default_factory=ItemColumns)
