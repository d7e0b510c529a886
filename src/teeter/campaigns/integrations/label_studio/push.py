"""Send picks to Label Studio as tasks: an item's text, its image or its features.

Images are uploaded to Label Studio, unless they are served somewhere else already.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TypeVar
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from teeter.base.files import resolve_inside
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.integrations.label_studio.client import LabelStudioClient, ProjectTasks
from teeter.campaigns.integrations.label_studio.payloads import MODEL_VERSION, NewTask
from teeter.campaigns.integrations.label_studio.pull import LABEL_STUDIO_ANNOTATOR
from teeter.campaigns.records import AnswerKind, ItemKind, ShownSuggestion
from teeter.campaigns.store import Pick, ProjectLink
from teeter.campaigns.suggestions.sources import measure_sources, visible_suggestions
from teeter.encoders.images import enable_heif
from teeter.errors import FileError, MissingExtraError, ServerError

T = TypeVar("T")

MAX_SHOWN_FEATURES = 40

MAX_REQUEST_ENTRIES = 100
"""Tasks or files in one request."""

MAX_REQUEST_BYTES = 8_000_000
"""Bytes in one request, unless a single task or file is larger."""

ACCEPTED_IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp")
"""Images that Label Studio accepts. Others are converted to PNG."""

_PNG_MODES = ("1", "L", "P", "RGB", "RGBA")
"""Pixel formats of Pillow that can be saved as PNG and that every browser shows."""


def format_features(item_id: str, features: npt.NDArray[np.float32]) -> str:
    """Return the id and the first features of an item as text.

    Example:
        >>> format_features("a1", np.array([0.5, 2.0], dtype=np.float32))
        'a1\\n0.5, 2'
    """
    first = features[:MAX_SHOWN_FEATURES]
    shown = ", ".join(f"{value:.4g}" for value in first)
    if len(features) > MAX_SHOWN_FEATURES:
        shown += f", … ({len(features)} features)"
    return f"{item_id}\n{shown}"


def image_urls(prefix: str, paths: Mapping[str, str]) -> dict[str, str]:
    """Return the URLs of images that are served already.

    Args:
        prefix: What comes before the path of each image.
        paths: Path of each image in the campaign's folder, by item id.
    """
    return {item_id: f"{prefix}{quote(path)}" for item_id, path in paths.items()}


def upload_images(
    client: LabelStudioClient, project_id: int, folder: Path | None, paths: Mapping[str, str]
) -> dict[str, str]:
    """Upload images to a project.

    Args:
        paths: Path of each image in the folder, by item id.

    Returns:
        The URL of each image in Label Studio, by item id.

    Raises:
        FileError: an image cannot be read.
        ServerError: Label Studio did not store every image.
    """
    files = {item_id: _read_image(path, folder) for item_id, path in paths.items()}
    sizes = [len(content) for _, content in files.values()]

    urls: dict[str, str] = {}
    for item_ids in split_by_size(list(files), sizes):
        part = [files[item_id] for item_id in item_ids]
        upload_ids = client.import_files(project_id, part)
        # The upload returns ids; where the files are takes a second request.
        uploads = client.list_file_uploads(project_id, upload_ids)
        url_by_upload = {upload.id: f"/data/{upload.file}" for upload in uploads}

        is_complete = url_by_upload.keys() >= set(upload_ids)
        if len(upload_ids) != len(item_ids) or not is_complete:
            raise ServerError(
                f"{client.url} stored only {len(url_by_upload)} of {len(item_ids)} images. "
                "Run the sync again."
            )

        for item_id, upload_id in zip(item_ids, upload_ids, strict=True):
            urls[item_id] = url_by_upload[upload_id]

    return urls


def _read_image(path: str, folder: Path | None) -> tuple[str, bytes]:
    """Return the name and the content of an image, in a format that Label Studio accepts."""
    file = resolve_inside(path, folder)
    content = file.read_bytes()

    # Paths in a campaign have forward slashes on every operating system.
    posix_path = PurePosixPath(path)
    if file.suffix.lower() in ACCEPTED_IMAGE_SUFFIXES:
        return posix_path.name, content
    return f"{posix_path.stem}.png", _convert_to_png(content, path)


def _convert_to_png(content: bytes, path: str) -> bytes:
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise MissingExtraError("Images need pillow: pip install 'teeter[label]'.") from None

    png = io.BytesIO()
    enable_heif()
    try:
        with Image.open(io.BytesIO(content)) as opened:
            image = ImageOps.exif_transpose(opened)
            if image.mode in _PNG_MODES:
                image.save(png, "PNG")
            else:
                image.convert("RGB").save(png, "PNG")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        raise FileError(f"Cannot read {path} as an image.") from None

    return png.getvalue()


def split_by_size(entries: Sequence[T], sizes: Sequence[int]) -> Iterator[list[T]]:
    """Split tasks or files into parts that each fit into one request, in order.

    Args:
        sizes: The size of each entry in bytes.
    """
    part: list[T] = []
    part_size = 0

    for entry, size in zip(entries, sizes, strict=True):
        # An entry that exceeds the limit by itself is sent alone: the server may accept it.
        is_full = len(part) == MAX_REQUEST_ENTRIES or part_size + size > MAX_REQUEST_BYTES
        if part and is_full:
            yield part
            part = []
            part_size = 0

        part.append(entry)
        part_size += size

    if part:
        yield part


class TaskPusher:
    """Creates the tasks of a campaign in Label Studio."""

    def __init__(
        self,
        campaign: Campaign,
        client: LabelStudioClient,
        image_prefix: str | None,
        *,
        suggestions: bool,
    ) -> None:
        """Prepare to create tasks.

        Args:
            image_prefix: URL below which the images are served already. Without it they are
                uploaded to Label Studio.
            suggestions: Send suggestions as predictions, which annotators see.
        """
        self.campaign = campaign
        self.client = client
        self.image_prefix = image_prefix
        self.suggestions = suggestions

    def unsent_picks(self, link: ProjectLink, tasks: ProjectTasks) -> list[tuple[Pick, float]]:
        """Return the open picks that have no task to answer, best first, with their scores.

        Label Studio serves the task with the lowest score first.
        """
        with self.campaign.reading() as view:
            picks = view.picks.open_picks(LABEL_STUDIO_ANNOTATOR)
            imported = view.label_studio.imported_annotations(link)

        waiting_items = set()
        for task in tasks.by_id.values():
            # An annotation with an unknown label, for example, can still be corrected in its task.
            has_new = any(annotation.id not in imported for annotation in task.annotations)
            if not task.is_labeled or has_new:
                waiting_items.add(task.item_id)

        # Scores count all open picks, so that new tasks come after those that already wait.
        unsent = []
        for position, pick in enumerate(picks, start=1):
            if pick.item not in waiting_items:
                unsent.append((pick, position / len(picks)))
        return unsent

    def push(self, link: ProjectLink, tasks: ProjectTasks) -> int:
        """Create a task for each unsent pick.

        Args:
            tasks: The tasks of the project, just read: an item in it is not sent again.

        Returns:
            The number of new tasks.
        """
        project_id = tasks.project_id
        scored_picks = self.unsent_picks(link, tasks)
        picks = [pick for pick, _ in scored_picks]
        item_ids = [pick.item for pick in picks]
        contents = self._task_contents(project_id, item_ids)
        missing_answers = self._count_missing_answers(item_ids)
        suggestions = self._find_suggestions(picks)
        new_tasks = []
        for pick, score in scored_picks:
            item = pick.item
            task = NewTask(
                item_id=item,
                content=contents[item],
                rank=pick.rank,
                score=score,
                overlap=missing_answers[item],
                suggestion=suggestions.get(item),
            )
            new_tasks.append(task)
        # The size of the request, apart from a few separators.
        sizes = [len(json.dumps(task.to_json())) for task in new_tasks]

        for part in split_by_size(new_tasks, sizes):
            task_ids = self.client.import_tasks(project_id, part)

            # Not strict: an old Label Studio may not return the ids, and 1 is the default overlap.
            for task_id, task in zip(task_ids, part, strict=False):
                if task.overlap > 1:
                    self.client.update_task(task_id, overlap=task.overlap)

        # Label Studio sorts by the scores of this version, which people may have changed there.
        if new_tasks and self.client.get_project(project_id).model_version != MODEL_VERSION:
            self.client.update_project(project_id, model_version=MODEL_VERSION)
        if any(task.suggestion is not None for task in new_tasks):
            # A project hides predictions unless suggestions were asked for.
            self.client.update_project(project_id, show_collab_predictions=True)
        return len(new_tasks)

    def _find_suggestions(self, picks: Sequence[Pick]) -> dict[str, ShownSuggestion]:
        """Return what to suggest about items by item id, except for those answered blind."""
        if not self.suggestions:
            return {}

        # Random and shared items measure the model and the annotators.
        settings = self.campaign.settings
        picked = [pick.item for pick in picks if not pick.arm.is_random]
        item_ids = [item for item in picked if not settings.is_answered_blind(item)]

        with self.campaign.reading() as view:
            items = view.items.by_id(item_ids)
            row_ids = [item.row_id for item in items.values()]
            reports = measure_sources(view)
            visible = visible_suggestions(view, reports, row_ids)

        suggestions = {}
        for item, suggestion in visible.items():
            suggestions[item] = ShownSuggestion(suggestion.source, suggestion.label)
        return suggestions

    def _count_missing_answers(self, item_ids: Sequence[str]) -> dict[str, int]:
        """Return how many annotators still have to answer each item, at least 1."""
        with self.campaign.reading() as view:
            items = view.items.by_id(item_ids)
            row_ids = [item.row_id for item in items.values()]
            answers_by_row = view.answers.for_items(row_ids)

        missing_answers = {}
        for item_id, item in items.items():
            # A skip is stored as an answer, but the item still needs a real one.
            answers = answers_by_row[item.row_id]
            answer_count = sum(answer.kind is not AnswerKind.SKIP for answer in answers)

            # At least one: the pick is open, so its item is asked about in any case.
            missing_answers[item_id] = max(1, item.annotators_needed - answer_count)

        return missing_answers

    def _task_contents(self, project_id: int, item_ids: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return what annotators see of each item, by item id."""
        if not item_ids:
            return {}
        if self.campaign.settings.kind == ItemKind.FEATURES:
            with self.campaign.reading() as view:
                encoded = view.encodings.read(items=item_ids)
            features = dict(zip(encoded.keys, encoded.vectors, strict=True))
            contents = {}
            for item in item_ids:
                text = format_features(item, features[item])
                contents[item] = {"text": text}
            return contents

        with self.campaign.reading() as view:
            items = view.items.by_id(item_ids)
        stored = {item_id: str(item.content) for item_id, item in items.items()}

        if self.campaign.settings.kind == ItemKind.IMAGE:
            if self.image_prefix is not None:
                urls = image_urls(self.image_prefix, stored)
            else:
                folder = self.campaign.image_folder
                urls = upload_images(self.client, project_id, folder, stored)
            return {item_id: {"image": url} for item_id, url in urls.items()}

        # Old campaigns may hold a NUL, which campaigns refuse today. PostgreSQL, which Label Studio
        # may use, cannot store it.
        contents = {}
        for item_id, text in stored.items():
            sendable = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
            contents[item_id] = {"text": sendable}
        return contents
