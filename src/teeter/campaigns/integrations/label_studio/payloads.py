"""What teeter sends to Label Studio's REST API and reads from it, and the interface of a project.

Responses are pydantic models, so that a server which is not Label Studio is recognised at once.
Fields that teeter does not use are ignored.

The labelling interface is XML. It is created from a campaign's classes. Later syncs only add
classes to it, so whatever people change in Label Studio stays.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any
from xml.etree import ElementTree

from pydantic import AfterValidator, BaseModel, BeforeValidator

from teeter.campaigns.records import ShownSuggestion
from teeter.campaigns.settings import Settings
from teeter.errors import ServerError

ITEM_FIELD = "teeter_item"
"""Field of a task's data that holds the item id; teeter recognises its own tasks by it."""

SUGGESTION_FIELD = "teeter_suggestion"
"""Field of a task's data that holds the suggestion that is shown with it."""

CHOICES_TAG = "label"
"""Name of the tag of the labelling interface that holds the classes."""

OBJECT_TAG = "item"
"""Name of the tag that shows the item."""

MODEL_VERSION = "teeter"
"""Model version of teeter's predictions. Label Studio sorts tasks only by the scores of predictions
whose version equals that of the project; it silently ignores all other scores."""

MAX_INLINE_CLASSES = 30
"""With more classes than this, a searchable list replaces the buttons."""

# Label Studio rejects titles that are shorter or longer.
MIN_TITLE_LENGTH = 3

MAX_TITLE_LENGTH = 50


def _assume_utc(moment: datetime) -> datetime:
    """Read a time without a time zone as UTC, which is what Label Studio stores."""
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    return moment


def _user_id(completed_by: object) -> object:
    """Reduce a user, which some versions of Label Studio send in full, to the user's id."""
    if isinstance(completed_by, Mapping):
        return completed_by.get("id")
    return completed_by


Timestamp = Annotated[datetime, AfterValidator(_assume_utc)]


class User(BaseModel):
    """An account in Label Studio."""

    id: int
    email: str | None = None


class Project(BaseModel):
    """A project."""

    id: int
    description: Annotated[str, BeforeValidator(lambda text: "" if text is None else text)] = ""
    label_config: str = ""
    """The labelling interface as XML; empty in a list of projects."""
    model_version: str | None = None


class Annotation(BaseModel):
    """An annotation of a task."""

    id: int
    completed_by: Annotated[int | None, BeforeValidator(_user_id)]
    """The id of the user, or None if the account was deleted."""
    was_cancelled: bool
    """Whether the annotator skipped the task."""
    result: list[Any] | None
    """What the annotator chose, one entry per control tag of the labelling interface."""
    created_at: Timestamp
    updated_at: Timestamp | None = None

    @property
    def changed_at(self) -> datetime:
        """When the annotation was given or last changed."""
        return self.updated_at or self.created_at


class LabelStudioTask(BaseModel):
    """A task of a project, with its annotations."""

    id: int
    data: dict[str, Any]
    annotations: list[Annotation]
    is_labeled: bool
    """Whether it has as many annotations as its overlap asks for."""
    updated_at: Timestamp

    @property
    def suggestion(self) -> ShownSuggestion | None:
        """What annotators see chosen in advance, or None."""
        match self.data.get(SUGGESTION_FIELD):
            case {"source": str(source), "label": str(label)}:
                return ShownSuggestion(source, label)
        return None

    @property
    def item_id(self) -> str | None:
        """The id of the campaign's item, or None if teeter did not create the task."""
        item_id = self.data.get(ITEM_FIELD)
        if isinstance(item_id, str):
            return item_id
        return None


class ImportResponse(BaseModel):
    """The ids of imported tasks or uploaded files, in the order in which they were sent."""

    task_ids: list[int] = []
    file_upload_ids: list[int] = []


class FileUpload(BaseModel):
    """An uploaded file."""

    id: int
    file: str
    """Path below ``/data/``."""


PROJECT_SETTINGS: Mapping[str, Any] = {
    "model_version": MODEL_VERSION,
    # Serve the task with the lowest prediction score first. The score is the rank of the pick.
    "sampling": "Uncertainty sampling",
    # Hide predictions: a guess would influence the annotators.
    "show_collab_predictions": False,
    # Do not serve a skipped task again: the campaign decides when to ask about the item again.
    "skip_queue": "IGNORE_SKIPPED",
    "enable_empty_annotation": False,
    "maximum_annotations": 1,
}
"""The settings of a new project on which a sync relies."""


@dataclass(frozen=True)
class NewTask:
    """A task to create for one pick of a campaign."""

    item_id: str
    content: Mapping[str, str]
    """What annotators see: ``{"text": TEXT}`` or ``{"image": URL}``."""
    rank: int
    """Rank of the item in its batch, from 1."""
    score: float
    """Prediction score, from 0 to 1. Label Studio serves the lowest first."""
    overlap: int
    """How many annotations the task needs."""
    suggestion: ShownSuggestion | None = None
    """What annotators see chosen in advance, if anything."""

    def to_json(self) -> dict[str, Any]:
        """Return the task as the import request takes it.

        The overlap is not part of it: Label Studio takes it only as a later change of the task.
        """
        # A prediction without a result shows nothing to annotators; it only carries the score.
        prediction: dict[str, Any] = {
            "model_version": MODEL_VERSION,
            "score": self.score,
            "result": [],
        }
        data: dict[str, Any] = {**self.content, ITEM_FIELD: self.item_id}

        if self.suggestion is not None:
            choice = {
                "from_name": CHOICES_TAG,
                "to_name": OBJECT_TAG,
                "type": "choices",
                "value": {"choices": [self.suggestion.label]},
            }
            prediction["result"] = [choice]
            # Read back with the answer, which is stored with what the annotator saw.
            data[SUGGESTION_FIELD] = {
                "source": self.suggestion.source,
                "label": self.suggestion.label,
            }

        return {
            "data": data,
            "meta": {
                "teeter": {
                    "item": self.item_id,
                    "rank": self.rank,
                }
            },
            "predictions": [prediction],
        }


def build_label_config(settings: Settings, classes: Sequence[str]) -> str:
    """Return the labelling interface of a new project: the item, and its classes to choose from.

    Args:
        settings: Settings of the campaign, for the kind of items and the shortcuts.

    Returns:
        XML in the syntax of Label Studio.
    """
    view = ElementTree.Element("View")

    if settings.kind == "image":
        ElementTree.SubElement(view, "Image", name=OBJECT_TAG, value="$image")
    else:
        ElementTree.SubElement(view, "Text", name=OBJECT_TAG, value="$text", valueType="text")

    choices = ElementTree.SubElement(
        view, "Choices", name=CHOICES_TAG, toName=OBJECT_TAG, choice="single", required="true"
    )
    if len(classes) > MAX_INLINE_CLASSES:
        choices.set("layout", "select")
    else:
        choices.set("showInline", "true")

    for number, name in enumerate(classes):
        choice = _add_choice(choices, name)
        if number < len(settings.keys):
            choice.set("hotkey", settings.keys[number])

    return ElementTree.tostring(view, encoding="unicode")


def add_missing_classes(label_config: str, classes: Sequence[str]) -> str | None:
    """Add classes to the labelling interface of a project.

    Args:
        classes: All classes of the campaign.

    Returns:
        The new XML, or None if no class is missing.

    Raises:
        ServerError: the XML is invalid or lacks the tag for the classes.
    """
    try:
        view = ElementTree.fromstring(label_config)
    except ElementTree.ParseError:
        raise ServerError(
            "The project's labelling interface is not valid XML. Fix it in Label Studio."
        ) from None

    # By name: people may have added other <Choices> tags to the interface.
    named = [tag for tag in view.iter("Choices") if tag.get("name") == CHOICES_TAG]
    if not named:
        raise ServerError(
            f'The project\'s labelling interface has no <Choices name="{CHOICES_TAG}">. '
            "Restore it in Label Studio, or create another project with new_project=."
        )

    choices = named[0]
    # Annotations contain the alias of a choice if it has one, otherwise its value.
    present = set()
    for choice in choices.iter("Choice"):
        present.add(choice.get("alias") or choice.get("value"))
    missing = [name for name in classes if name not in present]
    if not missing:
        return None

    for name in missing:
        _add_choice(choices, name)
    return ElementTree.tostring(view, encoding="unicode")


def _add_choice(choices: ElementTree.Element, name: str) -> ElementTree.Element:
    # Label Studio replaces $word by a field of the task. An invisible character after the dollar
    # sign prevents that, and the alias makes annotations contain the name as it is.
    choice = ElementTree.SubElement(
        choices,
        "Choice",
        value=name.replace("$", "$\N{WORD JOINER}"),
    )
    if "$" in name:
        choice.set("alias", name)
    return choice


def chosen_class(result: Sequence[Any]) -> str | None:
    """Return the class that an annotation chose, or None if it is not exactly one.

    Args:
        result: The ``result`` of an annotation. People may have added tags of their own to the
            interface, so it can contain anything.

    Example:
        >>> chosen_class([{"from_name": "label", "value": {"choices": ["spam"]}}])
        'spam'
    """
    values = [
        entry.get("value")
        for entry in result
        if isinstance(entry, Mapping) and entry.get("from_name") == CHOICES_TAG
    ]

    match values:
        case [{"choices": [str(name)]}]:
            return name
        case _:
            return None


def format_title(name: str) -> str:
    """Return a campaign's name as a project title of a length that Label Studio accepts.

    Example:
        >>> format_title("ab")
        'teeter ab'
    """
    title = name.strip()
    if len(title) < MIN_TITLE_LENGTH:
        return f"teeter {title}"
    if len(title) > MAX_TITLE_LENGTH:
        return f"{title[: MAX_TITLE_LENGTH - 1]}…"
    return title


def format_instructions(instructions: str) -> str:
    """Return instructions as HTML, which is how Label Studio shows them.

    Example:
        >>> format_instructions("Choose a < b.\\nOr skip.")
        'Choose a &lt; b.<br>Or skip.'
    """
    return html.escape(instructions, quote=False).replace("\n", "<br>")
