"""The items of a campaign: found, shown, changed and taken out."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load

from teeter.base.files import resolve_inside
from teeter.campaigns.items.change_items import change_item, require_items
from teeter.campaigns.items.columns import (
    ImportedTable,
    drop_infinite,
    parse_column_filter,
    read_shown_columns,
    replace_surrogates,
    typed_value,
)
from teeter.campaigns.items.find_items import (
    NONE,
    Floats,
    Integers,
    ItemLabels,
    ItemPredictions,
    ItemTable,
    SimilarItems,
    Similarities,
    rank_texts,
    read_labels,
    read_predictions,
    reads_texts,
)
from teeter.campaigns.items.image_archives import (
    ARCHIVE_SUFFIX,
    extract_images,
    list_archived_images,
)
from teeter.campaigns.items.image_links import ImageFetcher
from teeter.campaigns.items.item import HASH_DIGITS, Item, require_valid_unicode
from teeter.campaigns.items.read_items import column_names, read_items
from teeter.campaigns.learning.saved_models import predicted_names
from teeter.campaigns.records import (
    DEFAULT_ANNOTATOR,
    Answer,
    AnswerKind,
    ChangedPrediction,
    ConsensusLabel,
    ConsensusMethod,
    ItemColumns,
    ItemContent,
    ItemCounts,
    ItemDetails,
    ItemFilter,
    ItemKind,
    ItemPage,
    ItemQuery,
    ItemRow,
    ItemSort,
    MapLabels,
    ShownColumn,
    TableColumn,
)
from teeter.campaigns.review.consensus import CampaignSnapshot
from teeter.campaigns.store import Part, Reading, StoredItem, cached_by
from teeter.campaigns.store.database import format_time
from teeter.campaigns.trust import require_trusted_folder
from teeter.data.workbooks import split_sheet
from teeter.encoders.images import find_images
from teeter.errors import FileError, InputError, UnknownItemError

_MAX_TEXT = 20_000
"""Characters of a text that are sent to the page."""

_MAX_FEATURES = 256
"""Features of an item that are sent to the page."""

_MAX_EXCERPT = 160
"""Characters of a text in a table."""

_PAGE = 500
"""Items that are read at a time."""


class Items(Part):
    """The items of a campaign: ``campaign.items``."""

    _similar: SimilarItems | None = None

    def columns(self) -> list[TableColumn]:
        """Return the columns that the items came with, in the order of their files."""
        with self._campaign.reading() as view:
            return view.tables.columns()

    def source_columns(self) -> ItemColumns:
        """Return the columns that the texts and ids of the first items came from."""
        with self._campaign.reading() as view:
            return source_columns(list(view.tables.tables().values()))

    def row(self, item: str) -> dict[str, Any]:
        """Return the columns that an item came with; empty if it came without any.

        Raises:
            UnknownItemError: there is no such item.
        """
        with self._campaign.reading() as view:
            stored = view.items.get(item)
            rows = view.tables.for_items([stored.row_id])
            row_ids, _ = self._all_items(view)
            is_hidden = stored.row_id in row_ids[self._hidden(view)]
            shown = view.settings.show

        if stored.row_id not in rows:
            return {}
        row = rows[stored.row_id]
        types = {column.name: column.type for column in row.table.columns}
        columns = {}
        for name, cell in row.values().items():
            if name in shown or not is_hidden:
                value = typed_value(cell, types[name])
                columns[name] = drop_infinite(value)
        return columns

    def shown_columns(self, items: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return, by item id, the cells that annotators see beside items: ``settings.show``."""
        with self._campaign.reading() as view:
            stored = view.items.by_id(items)
            row_ids = [item.row_id for item in stored.values()]
            shown = read_shown_columns(view, view.settings.show, row_ids)

        return {item_id: shown.get(item.row_id, {}) for item_id, item in stored.items()}

    def change(
        self,
        item: str,
        *,
        text: str | None = None,
        features: Sequence[float] | None = None,
        columns: Mapping[str, Any] | None = None,
        who: str = DEFAULT_ANNOTATOR,
    ) -> bool:
        """Change the text, the features or columns of an item. Its answers stay.

        The history has the old text beside the new one, so it shows what each annotator saw. If
        the new text may have another label, withdraw the item and add the text as a new one.

        Args:
            item: the item's id.
            text: the new text, which is encoded at once. If the texts came from one column of a
                file, it replaces that column too, in every row that had the old text. In a
                campaign of table rows it follows from the columns.
            features: its features, if you supplied those of the other items.
            columns: new values by column, None for a missing one. Other columns stay. If several
                rows of a file had the text, the first is changed; in a campaign of table rows all.
            who: who changes it, for the history.

        Returns:
            Whether something has changed.

        Raises:
            UnknownItemError: there is no such item.
            InputError: the new content cannot be used, another item has it, or a promise rests on
                the old one.
        """
        return change_item(
            self._campaign,
            str(item),
            text=text,
            features=features,
            columns=columns or {},
            who=who,
        )

    def withdraw(
        self, items: Iterable[str], *, reason: str | None = None, who: str = DEFAULT_ANNOTATOR
    ) -> int:
        """Take items out of the campaign. Nothing is deleted, and ``put_back`` takes it back.

        A withdrawn item is not asked about and not trained on, and counts in no statistic of the
        campaign. If a promise drew it, it counts there as a wrong label. Exports have it as
        ``left_out``. It keeps its answers, and an annotator who has it open may still answer.

        Args:
            items: the ids of the items.
            reason: a remark for the history.
            who: who withdraws them, for the history.

        Returns:
            How many were in the campaign until now.

        Raises:
            UnknownItemError: one of the items does not exist. Then none is withdrawn.
        """
        item_ids = _item_ids(items)
        require_valid_unicode(reason or "", "reason")

        with self._campaign.writing() as change:
            stored = require_items(change, item_ids)
            inside = [item.item_id for item in stored if item.withdrawn is None]
            change.items.withdraw(inside, who, reason)
        return len(inside)

    def put_back(self, items: Iterable[str], *, who: str = DEFAULT_ANNOTATOR) -> int:
        """Put withdrawn items back, with everything they had, and return how many were withdrawn.

        Raises:
            UnknownItemError: one of the items does not exist. Then none is put back.
        """
        item_ids = _item_ids(items)
        with self._campaign.writing() as change:
            stored = require_items(change, item_ids)
            outside = [item.item_id for item in stored if item.withdrawn is not None]
            change.items.put_back(outside, who)
        return len(outside)

    def next_number(self) -> int:
        """Return the number after all item ids that are numbers, for items without ids."""
        with self._campaign.reading() as view:
            items = view.items.all()

        numbers = [int(item.item_id) for item in items if item.item_id.isdecimal()]
        return max(numbers, default=-1) + 1

    def count(self) -> ItemCounts:
        """Return how many items there are, and how many have answers of each kind."""
        with self._campaign.reading() as view:
            by_kind = view.answers.count_items_by_kind()
            n_withdrawn = view.items.count_withdrawn()
            return ItemCounts(
                items=self._count_all(view) - n_withdrawn,
                labelled=by_kind[AnswerKind.LABEL],
                skipped=by_kind[AnswerKind.SKIP],
                unsure=by_kind[AnswerKind.UNSURE],
                flagged=by_kind[AnswerKind.FLAG],
            )

    def newest_change(self) -> int:
        """Return a number that grows when a text changes, or items are withdrawn or put back."""
        with self._campaign.reading() as view:
            return view.items.newest_change()

    @cached_by(lambda _, view: view.items.newest_row_id())
    def _count_all(self, view: Reading) -> int:
        return view.items.count()

    def find(
        self,
        *,
        search: str = "",
        meaning: str = "",
        like: str | None = None,
        label: str | None = None,
        predicted: str | None = None,
        differs: bool = False,
        state: ItemFilter | str = ItemFilter.ALL,
        column: str | Sequence[str] = (),
        sort: ItemSort | str | None = None,
        descending: bool = False,
    ) -> Iterator[ItemRow]:
        """Yield the items that fit all of what is asked for.

        Args:
            search: part of the text, of the item id or of a column, in upper or lower case.
            meaning: a text: the items come by how close their features are to it.
            like: an item's id: the items come by how close their features are to those of this one.
            label: a class, which is the items' label.
            predicted: a class, which the newest model predicts.
            differs: only items whose label is not what the newest model predicts.
            state: one of ``ItemFilter``, such as ``labelled`` or ``flagged``.
            column: ``COLUMN=VALUE``, or several of them: only items with these values.
            sort: one of ``ItemSort``, such as ``probability``; by default in the order in which
                they were added, or by similarity if that is asked for.
            descending: the other way round. Items without the value come last all the same.
        """
        filters = column
        if isinstance(column, str):
            filters = [column]
        if sort is not None:
            sort = ItemSort(sort)
        query = ItemQuery(
            search=search.strip(),
            meaning=meaning.strip(),
            like=like,
            label=label,
            predicted=predicted,
            differs=differs,
            state=ItemFilter(state),
            columns=tuple(parse_column_filter(text) for text in filters),
            sort=sort,
            descending=descending,
        )
        similarities = self._compare(query)
        with self._campaign.reading() as view:
            table, hits, cosines = self._find(view, query, similarities)

        for start in range(0, len(hits), _PAGE):
            part = hits[start : start + _PAGE]
            with self._campaign.reading() as view:
                yield from self._describe_hits(view, table, part, cosines)

    def page(self, query: ItemQuery, similarities: Similarities | None = None) -> ItemPage:
        """Return a page of the items that a query finds.

        Args:
            query: which items, and in which order.
            similarities: what ``SimilarItems`` says of the query's ``meaning`` or ``like``, if it
                was computed elsewhere.
        """
        similarities = similarities or self._compare(query)
        with self._campaign.reading() as view:
            table, hits, cosines = self._find(view, query, similarities)
            rest = hits
            if query.after is not None:
                row_ids = table.row_ids[hits]
                rest = hits[row_ids > query.after]
            end = query.offset + query.count
            part = rest[query.offset : end]
            items = self._describe_hits(view, table, part, cosines)

        after = None
        is_in_order = query.order is ItemSort.ADDED and not query.descending
        if is_in_order and len(rest) > end:
            after = items[-1].row_id
        return ItemPage(items=items, after=after, hits=len(hits))

    def _compare(self, query: ItemQuery) -> Similarities | None:
        """Return the similarities that a query asks for, if it asks for any."""
        if not query.meaning and query.like is None:
            return None
        if self._similar is None:
            self._similar = SimilarItems(self._campaign)
        return self._similar.compare(text=query.meaning, item=query.like)

    def _find(
        self, view: Reading, query: ItemQuery, similarities: Similarities | None
    ) -> tuple[ItemTable, Integers, Floats | None]:
        """Return all items, the positions of those that a query finds, and all similarities."""
        table = self._table(view)
        cosines = None
        if similarities is not None:
            cosines = np.full(len(table.row_ids), np.nan, dtype=np.float32)
            positions = np.searchsorted(table.row_ids, similarities.row_ids)
            # Items may have been added or encoded since.
            is_known = positions < len(cosines)
            cosines[positions[is_known]] = similarities.cosines[is_known]

        text_ranks = None
        if query.order is ItemSort.TEXT:
            text_ranks = self._text_ranks(view)
        return table, table.find(query, cosines, text_ranks), cosines

    def _table(self, view: Reading) -> ItemTable:
        row_ids, positions = self._all_items(view)
        return ItemTable(
            view=view,
            snapshot=self._campaign.review.snapshot(view),
            classes=self._label_names(view),
            several=view.settings.several,
            row_ids=row_ids,
            positions=positions,
            labels=self._labels(view),
            predictions=self._predictions(view),
            hidden=self._hidden(view),
        )

    @cached_by(lambda _, view: view.items.newest_row_id())
    def _all_items(self, view: Reading) -> tuple[Integers, dict[str, int]]:
        """Return the row ids of all items, and their positions by item id."""
        items = view.items.row_ids()
        positions = {item: position for position, item in enumerate(items)}
        return np.array(list(items.values()), dtype=np.int64), positions

    @cached_by(lambda _, view: (view.items.newest_row_id(), view.items.newest_change()))
    def _text_ranks(self, view: Reading) -> Integers:
        return rank_texts(view.items.beginnings(_MAX_EXCERPT))

    @cached_by(lambda _, view: (view.history.newest_row_id(), view.items.newest_row_id()))
    def _labels(self, view: Reading) -> ItemLabels:
        _, positions = self._all_items(view)
        snapshot = self._campaign.review.snapshot(view)
        return read_labels(snapshot, positions, self._label_names(view))

    @cached_by(lambda _, view: view.history.newest_row_id())
    def _label_names(self, view: Reading) -> list[str]:
        """Return the classes, and the sets of labels that items are predicted to have or have.

        Those of predictions come first, so that their numbers do not change with the labels.
        """
        classes = view.classes.names()
        if not view.settings.several:
            return classes
        labels = self._campaign.review.snapshot(view).labels.values()
        return list(dict.fromkeys([*classes, *self._predicted_names(view), *labels]))

    def _predicted_names(self, view: Reading) -> list[str]:
        """Return what the numbers of the newest model stand for."""
        arrays = {}
        weights = view.models.newest_weights(1)
        if weights:
            arrays = load(weights[0])
        return predicted_names(arrays, view.classes.names())

    @cached_by(
        lambda _, view: (
            view.models.newest_version(),
            view.encodings.revision(),
            view.items.newest_row_id(),
            view.settings.several and view.history.newest_row_id(),
        )
    )
    def _all_predictions(self, view: Reading) -> ItemPredictions:
        row_ids, _ = self._all_items(view)
        weights = view.models.newest_weights(1)
        arrays: dict[str, Any] = {"predicted": np.zeros(0, dtype=np.int64)}
        if weights:
            arrays = load(weights[0])
        if "sets" in arrays:
            # In the numbers of all names: a model has numbers of its own for its sets.
            names = self._label_names(view)
            numbers = np.array([names.index(name) for name in self._predicted_names(view)])
            arrays["predicted"] = numbers[arrays["predicted"]]
            arrays["unseen"] = numbers[arrays["unseen"]]
        return read_predictions(view, row_ids, arrays)

    def _predictions(self, view: Reading) -> ItemPredictions:
        """Return the predictions but those of items that are still to be answered blind."""
        predictions = self._all_predictions(view)
        blind = self._waiting_blind(view)
        if not len(blind):
            return predictions

        predicted = predictions.predicted.copy()
        probability = predictions.probability.copy()
        predicted[blind] = NONE
        probability[blind] = np.nan
        return ItemPredictions(predicted, probability)

    @cached_by(
        lambda _, view: (
            view.history.newest_row_id(),
            view.picks.newest_row_id(),
            view.items.newest_row_id(),
        )
    )
    def _waiting_blind(self, view: Reading) -> Integers:
        """Return the positions of the items whose predictions nobody should see before they answer.

        Draws of a promise count from the start, before it is their turn.
        """
        row_ids, positions = self._all_items(view)
        waiting_row_ids = sorted(view.picks.waiting_to_be_answered_blind())
        waiting = np.searchsorted(row_ids, waiting_row_ids)
        in_view = self._campaign.review.snapshot(view).in_view
        labelled = self._labels(view).labels != NONE
        draws = []
        for item in view.finishes.drawn_items():
            position = positions[item]
            if item in in_view or not labelled[position]:
                draws.append(position)
        blind = np.union1d(waiting, np.array(draws, dtype=np.int64))
        return blind.astype(np.int64)

    def _hidden(self, view: Reading) -> Integers:
        """Return the positions of the items of which nobody sees more than annotators do.

        In an audit, the other columns have what judges say, or may give it away.
        """
        if not view.settings.judges:
            return np.zeros(0, dtype=np.int64)
        return self._waiting_blind(view)

    def _describe_hits(
        self, view: Reading, table: ItemTable, positions: Integers, cosines: Floats | None
    ) -> list[ItemRow]:
        """Return items as rows of a table, in the order of their positions."""
        row_ids = table.row_ids[positions].tolist()
        rows = view.items.by_row_id(row_ids)
        answers = view.answers.for_items(row_ids)
        unreadable = view.encodings.unreadable(row_ids)

        described = []
        for position, row_id in zip(positions.tolist(), row_ids, strict=True):
            item = _describe(rows[row_id], answers[row_id], table.snapshot, unreadable)
            item = self._with_prediction(table, item, position)
            if cosines is not None:
                item = replace(item, similarity=float(cosines[position]))
            described.append(item)
        return described

    def _with_prediction(self, table: ItemTable, item: ItemRow, position: int) -> ItemRow:
        predicted = int(table.predictions.predicted[position])
        if predicted == NONE:
            return item

        item = replace(item, predicted=table.classes[predicted])
        probability = float(table.predictions.probability[position])
        if np.isnan(probability):
            return item
        return replace(item, probability=probability)

    def have_own_ids(self) -> bool:
        """Return whether an item has another id than the hash of its content."""
        with self._campaign.reading() as view:
            return self._have_own_ids(view)

    @cached_by(lambda _, view: view.items.newest_row_id())
    def _have_own_ids(self, view: Reading) -> bool:
        return view.items.have_own_ids()

    @cached_by(lambda _, view: (view.encodings.revision(), view.encodings.near_copies_found()))
    def _near_copies(self, view: Reading) -> dict[str, list[str]]:
        """Return the ids of each item's group; nothing for an item without near copies."""
        copies = view.encodings.near_copies()
        if copies is None:
            return {}
        return copies.group_of

    def unanswered_copies(self, view: Reading, items: Sequence[str]) -> dict[str, list[str]]:
        """Return by item the near copies that nobody has looked at alone."""
        groups = self._near_copies(view)
        all_copies = dict.fromkeys(chain.from_iterable(groups.get(item, ()) for item in items))
        rows = view.items.by_id(list(all_copies))
        if not rows:
            return {item: [] for item in items}
        answers = view.answers.for_items([row.row_id for row in rows.values()])
        decided = view.decisions.live()

        unanswered = set()
        for item, row in rows.items():
            is_settled = row.withdrawn is not None or item in decided
            for answer in answers[row.row_id]:
                if answer.origin.is_single and answer.kind is not AnswerKind.SKIP:
                    is_settled = True
            if not is_settled:
                unanswered.add(item)

        copies = {}
        for item in items:
            group = groups.get(item, ())
            copies[item] = [copy for copy in group if copy in unanswered and copy != item]
        return copies

    def can_search_by_meaning(self) -> bool:
        """Return whether texts can be compared with the items: an encoder of texts reads them."""
        with self._campaign.reading() as view:
            return reads_texts(view)

    def get(self, item: str, *, only_by: str | None = None) -> ItemDetails:
        """Return an item with its answers.

        Args:
            only_by: an annotator; the answers of all others are hidden, and so is the label that
                follows from them.

        Raises:
            UnknownItemError: there is no such item.
        """
        with self._campaign.reading() as view:
            row = view.items.get(item)
            answers = view.answers.for_item(row.row_id)
            content = read_content(view, row)
            snapshot = self._campaign.review.snapshot(view)
            unreadable = view.encodings.unreadable([row.row_id])
            table = None
            if only_by is None:
                table = self._table(view)
            group = self._near_copies(view).get(row.item_id, ())

        columns: dict[str, Any] = {}
        if table is not None:
            columns = replace_surrogates(self.row(item))
            summary = _describe(row, answers, snapshot, unreadable)
            summary = self._with_prediction(table, summary, table.positions[row.item_id])
        else:
            answers = [answer for answer in answers if answer.annotator == only_by]
            # As if only the answers of this annotator existed.
            consensus = {}
            for answer in answers:
                if answer.label is not None:
                    label = ConsensusLabel(answer.label, 1.0, ConsensusMethod.MAJORITY)
                    consensus[row.item_id] = label
            snapshot = CampaignSnapshot(answers, {}, consensus, frozenset())
            summary = _describe(row, answers, snapshot, unreadable)
        return ItemDetails(
            **vars(summary),
            content=content,
            holdout=row.holdout,
            withdrawn=row.withdrawn is not None,
            answers=answers,
            row=columns,
            copies=[copy for copy in group if copy != row.item_id],
        )

    def content(self, item: str) -> str | None:
        """Return the text of an item, or the path of its image; None if it has features only.

        Raises:
            UnknownItemError: there is no such item.
        """
        with self._campaign.reading() as view:
            return view.items.get(item).content

    def read_again(
        self, path: Path, columns: ItemColumns, notes: list[str]
    ) -> tuple[list[Item], list[str]]:
        """Read the file or folder that the campaign was made from once more, for ``add``.

        A file is not read if it is older than the campaign, nor a folder without new images.

        Args:
            path: the file or folder.
            columns: what its columns hold; by default what they held before.
            notes: gets sentences on what was left out, and on how the file was read.

        Returns:
            The items, and the ids of those whose text differs from that of the item with the same
            id. They are left out, because the answers are about the old text.

        Raises:
            InputError: the file lacks the column that texts or ids came from, or it is not known.
            FileError: the file cannot be read.
        """
        with self._campaign.reading() as view:
            settings = view.settings
            # When the file was written, or moved to its place.
            file, _ = split_sheet(path)
            status = file.stat()
            timestamp = max(status.st_mtime, status.st_ctime)
            changed_at = datetime.fromtimestamp(timestamp, UTC)
            if not path.is_dir() and format_time(changed_at) < view.campaign().created:
                return [], []
            stored = view.items.all()
            known_ids = {item.item_id for item in stored}
            known_ids.update(view.items.aliases())
            tables = list(view.tables.tables().values())

        folder = self._campaign.image_folder
        if path.suffix.lower() == ARCHIVE_SUFFIX and folder is not None:
            images, _ = list_archived_images(path)
            for name in known_ids & images.keys():
                del images[name]
            extract_images(path, images, folder)
            path = folder
        if path.is_dir() and settings.kind == ItemKind.IMAGE:
            root = Path(folder or path).resolve()
            images_now = find_images(path.resolve())
            names = {image.relative_to(root).as_posix() for image in images_now}
            if names <= known_ids:
                return [], []

        items = self._read_with_same_columns(path, columns, tables, notes)
        digests = {item.digest for item in stored}
        unchanged = []
        changed = []
        for item in items:
            if item.digest in digests or item.key not in known_ids:
                unchanged.append(item)
            elif item.key != item.digest[:HASH_DIGITS]:
                changed.append(item.key)
        return unchanged, changed

    def _read_with_same_columns(
        self, path: Path, columns: ItemColumns, tables: Sequence[ImportedTable], notes: list[str]
    ) -> Sequence[Item]:
        """Read a file whose texts and ids are in the columns of before, unless others are named."""
        settings = self._campaign.settings
        before = source_columns(tables)
        text = columns.text or before.text
        id_column = columns.id or before.id
        if text is None and tables and not settings.has_rows:
            raise InputError(
                f"It is not known from which columns the texts of {self._campaign.name} came: name "
                "the text column, or the template of several (text=)."
            )

        read_columns = ItemColumns(text, id_column, columns.labels)
        fetcher = None
        folder = self._campaign.image_folder
        if settings.kind == ItemKind.IMAGE and folder is not None and not path.is_dir():
            fetcher = ImageFetcher(folder, allow_stores=True)
            read_columns = ItemColumns(None, id_column, columns.labels, text)
        try:
            items = read_items(
                path,
                read_columns,
                folder=folder,
                fetcher=fetcher,
                rows=settings.has_rows,
                notes=notes,
            )
        except InputError:
            names = column_names(path)
            columns_before = {}
            if columns.text is None:
                columns_before["texts", "text"] = text
            if columns.id is None:
                columns_before["ids", "id_column"] = id_column
            for (what, option), column in columns_before.items():
                if names and column is not None and column not in names:
                    raise InputError(
                        f"{path} has no column {column!r}, from which the {what} of "
                        f"{self._campaign.name} came: name the column that has them now "
                        f"({option}=)."
                    ) from None
            raise
        if fetcher is not None:
            notes += fetcher.errors.values()
        return items

    def image(self, item: str) -> Path:
        """Return the file of an item's image, which is inside the campaign's folder.

        Raises:
            UnknownItemError: there is no such item.
            FileError: it is not an image, its file is missing or outside the folder.
            InputError: only the campaign's file says that images may be read there.
        """
        with self._campaign.reading() as view:
            row = view.items.get(item)

        folder = require_trusted_folder(self._campaign.database, self._campaign.settings.folder)
        if row.kind is not ItemKind.IMAGE or folder is None:
            raise FileError(f"{item} is not an image.")
        return resolve_inside(row.content or "", folder)

    @cached_by(lambda _, view: view.encodings.revision())
    def _mapped_row_ids(self, view: Reading) -> list[int]:
        """Return row ids by index on the map, which is the row in a model's input."""
        return view.encodings.encoded_row_ids()

    def at(self, index: int) -> str:
        """Return the id of an item by its index on the map.

        Raises:
            UnknownItemError: the map has fewer items.
        """
        with self._campaign.reading() as view:
            row_ids = self._mapped_row_ids(view)
            if index >= len(row_ids):
                raise UnknownItemError(
                    f"No item has the index {index}: the campaign has {len(row_ids)} items."
                )

            row = view.items.get_by_row_id(row_ids[index])
        return row.item_id

    def labels_on_map(self) -> MapLabels:
        """Return which items on the map are labelled or withdrawn, by their indices."""
        with self._campaign.reading() as view:
            classes = self._label_names(view)
            snapshot = self._campaign.review.snapshot(view)
            labels = snapshot.without_withdrawn().labels
            shown_items = [*labels, *snapshot.withdrawn]
            rows = view.items.by_id(shown_items)
            row_ids = self._mapped_row_ids(view)
            all_row_ids, _ = self._all_items(view)
            blind = all_row_ids[self._waiting_blind(view)].tolist()

        index_of_row = {row_id: index for index, row_id in enumerate(row_ids)}
        index_of_class = {name: index for index, name in enumerate(classes)}

        points = []
        for item, label in labels.items():
            # Items without features are not on the map.
            index = index_of_row.get(rows[item].row_id)
            if index is not None:
                points.append((index, index_of_class[label]))

        withdrawn_rows = [rows[item].row_id for item in snapshot.withdrawn]
        withdrawn = [index_of_row[row_id] for row_id in withdrawn_rows if row_id in index_of_row]
        return MapLabels(
            classes=classes,
            labels=points,
            withdrawn=sorted(withdrawn),
            blind=[index_of_row[row_id] for row_id in blind if row_id in index_of_row],
        )

    def changed_predictions(self, count: int = 20) -> list[ChangedPrediction]:
        """Return items whose predicted class changed with the newest model, in their order."""
        with self._campaign.reading() as view:
            classes = view.classes.names()
            weights = view.models.newest_weights(2)
            if len(weights) < 2:
                return []

            predictions = []
            for stored in weights:
                arrays = load(stored)
                names = np.array(predicted_names(arrays, classes), dtype=object)
                predictions.append(names[arrays["predicted"]])
            after, before = predictions
            row_ids = self._mapped_row_ids(view)
            # Items that were added between the two models have only one prediction.
            size = min(len(after), len(before), len(row_ids))
            is_changed = after[:size] != before[:size]
            snapshot = self._campaign.review.snapshot(view)
            # What a model predicts for items that could not be read means nothing.
            hidden = snapshot.withdrawn | view.encodings.unreadable().keys()
            hidden_items = view.items.by_id(list(hidden))
            hidden_row_ids = [row.row_id for row in hidden_items.values()]
            is_changed &= ~np.isin(row_ids[:size], hidden_row_ids)
            indices = np.flatnonzero(is_changed)[:count].tolist()

            rows = view.items.by_row_id([row_ids[index] for index in indices])
            answers = view.answers.for_items(list(rows))

        changed = []
        for index in indices:
            row_id = row_ids[index]
            summary = _describe(rows[row_id], answers[row_id], snapshot, unreadable=())
            prediction = ChangedPrediction(
                item=summary.item,
                excerpt=summary.excerpt,
                label=summary.label,
                before=before[index],
                after=after[index],
            )
            changed.append(prediction)
        return changed


def source_columns(tables: Sequence[ImportedTable]) -> ItemColumns:
    """Return the columns of the texts and ids of the first table that items came from."""
    if not tables:
        return ItemColumns()
    return ItemColumns(tables[0].text_column, tables[0].id_column)


def read_content(view: Reading, row: StoredItem) -> ItemContent:
    """Return what annotators see of an item."""
    text = None
    characters = None
    if row.kind is ItemKind.TEXT and row.content:
        # A text of megabytes would stall the browser. The page says that it is cut.
        text = row.content[:_MAX_TEXT]
        if len(row.content) > _MAX_TEXT:
            characters = len(row.content)

    features = None
    if row.kind is ItemKind.FEATURES:
        features = []
        vector = view.encodings.vector_of(row.row_id)
        if vector is not None:
            features = [round(value, 5) for value in vector[:_MAX_FEATURES].tolist()]

    shown_by_item = read_shown_columns(view, view.settings.show, [row.row_id])
    shown = shown_by_item.get(row.row_id, {})
    columns = [ShownColumn(name, value) for name, value in shown.items()]
    return ItemContent(
        kind=row.kind, text=text, characters=characters, features=features, columns=columns
    )


def _describe(
    row: StoredItem,
    answers: Sequence[Answer],
    snapshot: CampaignSnapshot,
    unreadable: Container[str],
) -> ItemRow:
    """Return an item as a row of a table."""
    label = None
    by = None
    confidence = None
    consensus = snapshot.consensus.get(row.item_id)
    if consensus is not None:
        label = consensus.label
        by = consensus.by
        confidence = consensus.confidence

    annotators = {answer.annotator for answer in answers}
    who = sorted(annotators)
    if row.item_id in snapshot.decisions:
        who = [snapshot.decisions[row.item_id].reviewer]

    other_kinds = {answer.kind for answer in answers if answer.kind is not AnswerKind.LABEL}
    if row.item_id in snapshot.left_out and row.withdrawn is None:
        other_kinds.add(AnswerKind.FLAG)

    state: list[str] = sorted(other_kinds)
    if label is not None:
        # Beside a label, skips and doubts are of no interest. A flag is: the item is left out.
        flags = [kind for kind in state if kind == AnswerKind.FLAG]
        state = [label, *flags]
    if row.item_id in unreadable:
        state.append(ItemFilter.UNREADABLE)
    if row.withdrawn is not None:
        state.append(ItemFilter.WITHDRAWN)

    excerpt = ""
    if row.kind is ItemKind.TEXT and row.content:
        excerpt = row.content[:_MAX_EXCERPT]
        if len(row.content) > _MAX_EXCERPT:
            excerpt += "…"

    return ItemRow(
        row_id=row.row_id,
        item=row.item_id,
        kind=row.kind,
        excerpt=excerpt,
        label=label,
        state=", ".join(state),
        by=by,
        annotators=len(annotators),
        confidence=confidence,
        who=who,
    )


def _item_ids(items: Iterable[str]) -> list[str]:
    """Return the ids that a user passed. A text would be taken for the ids of its characters."""
    if isinstance(items, str):
        raise InputError("Give a list of item ids, even for a single item.")
    return [str(item) for item in items]
