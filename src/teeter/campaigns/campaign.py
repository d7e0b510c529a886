"""A campaign: items to label, people who label them, and a model that learns from the answers.

Methods that select or train import what they need themselves, because it loads torch. A server that
only stores answers starts without it, and leaves selection and training to its worker process.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from teeter.base.seeds import validate_seed
from teeter.base.wording import pluralize
from teeter.campaigns.asking.assignment import (
    ask_items,
    store_picks,
)
from teeter.campaigns.classes import (
    Classes,
    as_class_name,
    label_text,
    read_class_descriptions,
    read_class_file,
    require_known_classes,
    shortcuts_by_class,
    validate_classes,
)
from teeter.campaigns.export.formats import FORMATS, require_format, write_export
from teeter.campaigns.export.rows import ExportRows
from teeter.campaigns.finish.audit import (
    read_judged,
    require_blind_columns,
    start_audit,
)
from teeter.campaigns.finish.audit_report import Judges
from teeter.campaigns.finish.certificate import certified_labels
from teeter.campaigns.finish.finish import Finish
from teeter.campaigns.finish.frozen_model import foresee_model
from teeter.campaigns.finish.report import newest_certificate
from teeter.campaigns.integrations.notebooks import NotebookPage, open_notebook_page
from teeter.campaigns.items.arrow_columns import frame_of_export
from teeter.campaigns.items.change_items import require_kind, store_items
from teeter.campaigns.items.columns import (
    drop_infinite,
    replace_surrogates,
    require_columns,
    require_shown_columns,
)
from teeter.campaigns.items.image_archives import ARCHIVE_SUFFIX, unpack_images
from teeter.campaigns.items.image_links import ImageFetcher, replace_image_links
from teeter.campaigns.items.item import (
    Item,
    parse_items,
    require_printable,
    require_valid_unicode,
)
from teeter.campaigns.items.items import Items
from teeter.campaigns.items.near_copies import update_near_copies
from teeter.campaigns.items.read_items import detect_kind, read_items
from teeter.campaigns.learning.encoding import (
    PreparedEncoder,
    ProgressReport,
    encode_missing_items,
    load_encoder,
    prepare_encoder,
    store_encoding,
)
from teeter.campaigns.learning.rounds import RoundSettings, RoundState, RoundStateReader, with_model
from teeter.campaigns.learning.saved_models import has_same_features, load_arrays
from teeter.campaigns.people import People, require_name
from teeter.campaigns.records import (
    DEFAULT_ANNOTATOR,
    MOST_AT_ONCE,
    Answer,
    AnswerKind,
    AnswerOrigin,
    AnswerReceipt,
    CampaignProgress,
    ClassDescription,
    ConsensusLabel,
    EncodingResult,
    HistoryPage,
    ImportResult,
    ItemColumns,
    ItemKind,
    ModelRound,
    Question,
    ShownSuggestion,
    Status,
    UndoResult,
    split_labels,
)
from teeter.campaigns.review.review import Review
from teeter.campaigns.settings import Settings, changeable_settings, settings_from_json
from teeter.campaigns.status import campaign_status, describe_model
from teeter.campaigns.store import CampaignStore, Database, Pick, cached_by
from teeter.campaigns.store.backup import atomic_file, back_up, restore
from teeter.campaigns.store.copies import copy_to_location, restore_to_database
from teeter.campaigns.store.database import Clock, is_url, split_location, utc_now
from teeter.campaigns.store.queries.classes import require_no_sets
from teeter.campaigns.store.transaction import (
    campaign_names,
    find_campaign,
    new_campaign,
    validate_name,
)
from teeter.campaigns.suggestions.suggestions import Suggestions
from teeter.campaigns.trust import carry_trust, require_trusted_folder, trust_folder
from teeter.classifier import Classifier, Prediction
from teeter.data.table_files import arrow_table_of, is_missing
from teeter.encoders import EncoderFunction, trust_encoder
from teeter.encoders.images import count_left_out_files
from teeter.errors import FileError, InputError, MissingExtraError

_FETCH_SECONDS = 900.0
"""Seconds that all links of items may take together."""


@contextmanager
def _paused_collector() -> Iterator[None]:
    """Do not look for objects that refer to each other: looking at 100,000 items takes seconds."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Campaign(CampaignStore):
    """Items, answers and models in a database.

    Every method that writes returns when the data is on disk. Use ``Campaign.make`` or
    ``Campaign.open`` to get one.
    """

    def __init__(
        self,
        database: Database,
        campaign_id: int,
        name: str,
        settings: Settings,
        *,
        clock: Clock = utc_now,
    ) -> None:
        super().__init__(database, campaign_id, settings, clock)
        self.name = name
        self.location = ""
        """What ``open`` was given: a file, or a URL with the name after ``#``."""
        self.people = People(self)
        self.review = Review(self)
        self.classes = Classes(self)
        self.items = Items(self)
        self.suggestions = Suggestions(self)
        self.finish = Finish(self)
        self.judges = Judges(self)
        self.imported = ImportResult()
        """What ``make`` brought in."""
        self._state_reader = RoundStateReader(self)

    @property
    def image_folder(self) -> Path | None:
        """The folder of its images, to read them; None if it has none.

        Raises:
            InputError: only the campaign's file says that images may be read there.
        """
        return require_trusted_folder(self.database, self.settings.folder)

    # Opening and creating

    @classmethod
    def open(
        cls, location: str | Path, name: str | None = None, *, clock: Clock = utc_now
    ) -> Campaign:
        """Open a campaign.

        Args:
            location: a file, or the URL of a database. The name may follow after ``#``.
            name: the campaign's name. It may be left out if the database has only one campaign.
            clock: returns the current time.

        Raises:
            FileError: there is no such file.
            StoreError: it is not a campaign's, or the database cannot be used.
            UnknownNameError: it has no campaign of that name.
        """
        # A name that is given separately wins, since ``#`` may be part of a file name.
        place = location
        if name is None:
            place, name = split_location(location)

        database = Database(place)
        try:
            stored = find_campaign(database, name)
            settings = settings_from_json(
                stored.settings, file=database.path, location=database.display_url
            )
        except BaseException:
            database.close()
            raise

        campaign = cls(database, stored.row_id, stored.name, settings, clock=clock)
        campaign.location = str(location)
        return campaign

    @classmethod
    def make(
        cls,
        source: str | Path | Iterable[Any],
        classes: Sequence[Any] | Path | None,
        *,
        at: str | Path | None = None,
        name: str | None = None,
        settings: Settings | None = None,
        columns: ItemColumns | None = None,
        descriptions: Mapping[str, ClassDescription] | None = None,
        fetcher: ImageFetcher | None = None,
        clock: Clock = utc_now,
        encode_now: bool = True,
        progress: ProgressReport | None = None,
    ) -> Campaign:
        """Create a campaign with its items, atomically: complete or not at all.

        Mistakes are reported before the items are read, as far as they can be seen then. The items
        are encoded after the campaign is created. If encoding is interrupted, ``encode`` resumes
        it. ``imported`` says what came in.

        Args:
            source: the path of a table (CSV, Parquet, or a spreadsheet: ``book.xlsx#Sheet`` names
                one of several sheets), JSON, arrays, a folder of images or .txt files, or a .zip of
                images, which is unpacked beside the campaign; a data frame of pandas, polars,
                pyarrow, DuckDB or ``datasets``; or a list of items, as ``add`` takes them.
            classes: the names of two or more classes, or the path of a file of them. Numbers become
                texts: class 1 is called "1". None for the different labels of the items.
            at: a file that does not exist, or the URL of a database. ``URL#NAME`` names the
                campaign. By default it is a file beside the source, with the suffix .teeter.
            name: the campaign's name; by default that of the file or the database.
            settings: how the campaign works. The kind and the folder follow from a path.
            columns: what the columns of a table hold.
            descriptions: what classes mean, by class; by default what a file of classes says.
            fetcher: fetches links to images, and says in which folder images are. By default it is
                the folder of the table, and links may be read with the credentials of this machine.
            clock: returns the current time.
            encode_now: whether to encode the items. If not, ``encode`` must be called for them;
                labelling can begin soon after it has started.
            progress: called with the number of encoded items and the number of all items.

        Raises:
            FileError: the source cannot be read, or the file cannot be created.
            InputError: the file or the campaign exists, the classes or the settings cannot be used,
                or an item cannot be added.
            StoreError: the database cannot be used.
        """
        path = None
        if isinstance(source, str | Path):
            path = Path(source)
        table = path or arrow_table_of(source)
        columns = columns or ItemColumns()
        settings = settings or Settings()
        if at is None:
            at = default_location(path)
        location, name = _require_new(at, name)
        validate_name(name)
        if path is not None and path.suffix.lower() == ARCHIVE_SUFFIX:
            if not isinstance(location, Path):
                raise InputError(f"Unpack {path} first: a database has no place for its images.")
            with unpack_images(path, location) as (folder, left_out):
                campaign = cls.make(
                    folder,
                    classes,
                    at=location,
                    name=name,
                    settings=settings,
                    descriptions=descriptions,
                    clock=clock,
                    encode_now=encode_now,
                    progress=progress,
                )
            campaign.imported = replace(campaign.imported, left_out_files=left_out)
            return campaign

        settings.require_cost()
        settings.require_strategy()
        validate_seed(settings.seed)
        if settings.judges:
            encode_now = False
            require_blind_columns(settings, columns)
        if isinstance(classes, Path):
            file = classes
            classes = read_class_file(file)
            if descriptions is None:
                descriptions = read_class_descriptions(file)
        descriptions = descriptions or {}
        if classes is not None:
            classes = _validate_classes(classes, descriptions, settings)
        elif table is not None and columns.labels is None and not settings.judges:
            raise InputError(
                "The classes are missing: give their names (classes=), or the column that holds "
                "them (labels=)."
            )

        items: Any = source
        notes: list[str] = []
        if table is not None:
            if columns.image is not None and fetcher is None:
                folder = Path.cwd()
                if path is not None:
                    folder = path.resolve().parent
                fetcher = ImageFetcher(folder, allow_stores=True)
            items, settings = _read_source(table, columns, settings, fetcher, notes)
        judged = None
        if settings.judges:
            items = parse_items(items, settings.kind, rows=settings.has_rows)
            judged = read_judged(items, settings.judges, classes)
            notes += judged.notes
            if not classes and len(judged.classes()) == 1:
                raise InputError(
                    f"All labels to audit are {judged.classes()[0]!r}: give two or more different "
                    "names of classes (classes=)."
                )
            classes = classes or _validate_classes(judged.classes(), descriptions, settings)
        elif classes is None:
            items = list(items)
            labels = _known_labels(items, several=settings.several)
            classes = _validate_classes(labels, descriptions, settings)

        with _temporary_file(location) as temporary:
            campaign = cls._create(
                temporary, name, classes, settings, descriptions=descriptions, clock=clock
            )
            try:
                imported, prepared = campaign._store_items(items, encode_now=encode_now)
                if judged is not None:
                    with campaign.writing() as change:
                        start_audit(change, judged, DEFAULT_ANNOTATOR)
                if not isinstance(location, Path):
                    copy_to_location(campaign.database, name, location)
            finally:
                campaign.database.close()
        if isinstance(location, Path):
            carry_trust(temporary, location)

        campaign = cls.open(location, name, clock=clock)
        try:
            if prepared is not None and encode_now:
                encoding = encode_missing_items(
                    campaign, prepared, who=DEFAULT_ANNOTATOR, progress=progress
                )
                imported = replace(imported, encoding=encoding)
        except BaseException:
            campaign.database.close()
            raise
        imported = replace(imported, notes=tuple(notes))
        if path is not None and path.is_dir() and settings.kind == ItemKind.IMAGE:
            imported = replace(imported, left_out_files=count_left_out_files(path))
        if fetcher is not None:
            imported = imported.with_failed(fetcher.errors)
        campaign.imported = imported
        return campaign

    @classmethod
    def audit(
        cls,
        source: str | Path | Iterable[Any],
        judges: str | Sequence[str] | Mapping[str, str],
        *,
        require: float | None = None,
        people: int = 1,
        classes: Sequence[Any] | Path | None = None,
        settings: Settings | None = None,
        **options: Any,
    ) -> Campaign:
        """Create a campaign that finds out how good labels are that items already have.

        People are asked about items drawn at random, without seeing what judges said of them, and
        ``judges.report`` says what their answers show. Nothing is encoded before ``judges.end``.

        Args:
            source: the items with all their columns, as ``make`` takes them.
            judges: columns of labels, or each with the column of its confidences.
            require: the share of its labels that a judge must have right.
            people: with 2 or more, a fifth of the items is asked of so many people, to see how far
                they agree.
            classes: by default all labels of the judges.
            settings: further settings.
            **options: further arguments of ``make``.

        Raises:
            InputError: a column has no labels, or what ``make`` raises.
            UnknownNameError: there is no such column.
        """
        if isinstance(judges, str):
            judges = [judges]
        if not isinstance(judges, Mapping):
            judges = dict.fromkeys(judges, "")
        settings = (settings or Settings()).for_audit(judges, require, people)
        return cls.make(source, classes, settings=settings, **options)

    @classmethod
    def _create(
        cls,
        file: Path,
        name: str,
        classes: Sequence[str],
        settings: Settings,
        *,
        descriptions: Mapping[str, ClassDescription],
        clock: Clock,
    ) -> Campaign:
        """Create a campaign without items in a new file."""
        if settings.encoder is not None:
            trust_encoder(settings.encoder)

        database = Database(file, create=True)
        try:
            # In one transaction, so that a campaign never exists without its classes.
            with new_campaign(database, name, settings, clock) as change:
                stored_settings = json.loads(change.campaign().settings)
                change.history.append(DEFAULT_ANNOTATOR, "created", None, stored_settings)
                change.classes.add(classes, DEFAULT_ANNOTATOR)
                change.descriptions.write(descriptions, DEFAULT_ANNOTATOR)
                campaign_id = change.campaign_id
        except BaseException:
            database.close()
            raise

        trust_folder(database, settings.folder)
        return cls(database, campaign_id, name, settings, clock=clock)

    def back_up(self, path: str | Path) -> None:
        """Write a copy of the campaign to a new file. Others may write to the campaign meanwhile.

        The copy shows the campaign at one moment. It opens as a campaign, and ``restore`` puts it
        back. It is a file for a campaign on a server too.

        Raises:
            FileError: the file exists or cannot be written.
        """
        target = Path(path)
        if self.database.path is not None:
            back_up(self.database.path, target)
            return

        if target.exists():
            raise FileError(f"{target} already exists: choose another file.")
        copy_to_location(self.database, self.name, str(target))

    @staticmethod
    def restore(backup: str | Path, location: str | Path, *, overwrite: bool = False) -> None:
        """Replace a campaign by a backup, if the backup is complete.

        Args:
            backup: the backup.
            location: the campaign's file, or the URL of a database.
            overwrite: replace a campaign that exists.
        """
        if isinstance(location, str) and is_url(location):
            restore_to_database(Path(backup), location, overwrite=overwrite)
        else:
            restore(Path(backup), Path(location), overwrite=overwrite)

    # Classes and items

    def change_settings(self, *, who: str = DEFAULT_ANNOTATOR, **changes: Any) -> Settings:
        """Change settings, such as ``instructions`` or ``show``, all of them or none.

        Args:
            who: who changes them, for the history.
            **changes: new values of settings that can be changed.

        Returns:
            All settings.

        Raises:
            InputError: a setting cannot be changed, or its value cannot be used.
            UnknownNameError: it names a strategy, a method or a column that does not exist.
        """
        changeable = [declared.name for declared in changeable_settings()]
        fixed = sorted(set(changes) - set(changeable))
        if fixed:
            raise InputError(
                f"{fixed[0]!r} cannot be changed: choose from {', '.join(changeable)}."
            )

        changes_picks = bool({"strategy", "options", "head"} & set(changes))
        if changes_picks:
            # Loads strategies, which takes too long for a transaction.
            _replace_settings(self.settings, changes).require_strategy()

        if "goal" in changes and changes["goal"] != self.settings.goal:
            self.judges.require_ended("The goal of an audit is set before its first draw")
        with self.writing() as change:
            # Checked with what is stored: another process may have changed other settings.
            changed = _replace_settings(change.settings, changes)
            if changes_picks:
                changed.require_strategy()
            if "keys" in changes:
                shortcuts_by_class(change.classes.names(), changed.keys)
            if "show" in changes:
                require_columns(changed.show, [column.name for column in change.tables.columns()])
            if "show" in changes and changed.judges:
                require_blind_columns(changed, ItemColumns())
            changed.require_cost()

            stored = json.loads(change.campaign().settings)
            if stored != stored | changes:
                change.write_settings(stored | changes)
                change.history.append(who, "settings", None, changes)
            settings = change.settings
        if "copies" in changes:
            update_near_copies(self)
        return settings

    def add(
        self,
        items: Iterable[Any],
        *,
        encoder: EncoderFunction | None = None,
        encode_now: bool = True,
        who: str = DEFAULT_ANNOTATOR,
        progress: ProgressReport | None = None,
    ) -> ImportResult:
        """Add items, with their labels if they have any. Duplicates are skipped and reported.

        A label that comes with a duplicate becomes the stored item's label if that has none. Items
        without features are encoded after they are stored; if encoding is interrupted, ``encode``
        resumes it. New items never change the features of old ones.

        Args:
            items: a data frame whose texts and ids are in the columns that the first ones came
                from; or texts or paths, pairs of an id and a text or path, or dictionaries with
                ``text`` or ``image`` and optionally ``id``, ``label`` and ``features``. Other
                entries of a dictionary are columns, which stay with the item. An image may be a
                link to a public http or https address, which is fetched into the campaign's folder.
                In a campaign of table rows (``Settings.rows``), a dictionary is a row.
            encoder: a function that computes the features of all items together, old and new. It
                replaces the campaign's encoder.
            encode_now: whether to encode the items. If not, ``encode`` must be called for them.
            who: who adds them, for the history.
            progress: called with the number of encoded items and the number of all items.

        Raises:
            InputError: an item cannot be added. Then none is. Only items whose links cannot be
                fetched are left out alone, and stand in ``ImportResult.failed_items``.
        """
        imported, prepared = self._store_items(
            items, encoder=encoder, encode_now=encode_now, who=who
        )
        if prepared is None or not encode_now:
            return imported
        encoding = encode_missing_items(self, prepared, who=who, progress=progress)
        return replace(imported, encoding=encoding)

    def _read_frame(self, table: Any, notes: list[str]) -> Sequence[Item]:
        """Read an arrow table whose columns are those of the campaign's first table."""
        columns = self.items.source_columns()
        return read_items(table, columns, rows=self.settings.has_rows, notes=notes)

    @_paused_collector()
    def _store_items(
        self,
        items: Iterable[Any],
        *,
        encoder: EncoderFunction | None = None,
        encode_now: bool,
        who: str = DEFAULT_ANNOTATOR,
    ) -> tuple[ImportResult, PreparedEncoder | None]:
        self.judges.require_ended("Items that come later are no part of an audit that goes on")
        settings = self.settings
        folder = self.image_folder
        notes: list[str] = []
        table = arrow_table_of(items)
        if table is not None:
            items = self._read_frame(table, notes)
        failed: dict[str, str] = {}
        if settings.kind == ItemKind.IMAGE and folder is not None:
            fetcher = ImageFetcher(folder, max_seconds=_FETCH_SECONDS)
            items = replace_image_links(list(items), fetcher)
            failed = fetcher.errors

        new_items = parse_items(items, settings.kind, folder, rows=settings.has_rows)
        require_kind(new_items, settings.kind)
        if not self.items.columns():
            require_shown_columns(settings.show, new_items)
        imported, prepared = store_items(
            self, new_items, encoder=encoder, encode_now=encode_now, who=who
        )
        update_near_copies(self)
        return replace(imported.with_failed(failed), notes=tuple(notes)), prepared

    def encode(
        self,
        encoder: str | None = None,
        *,
        again: bool = False,
        who: str = DEFAULT_ANNOTATOR,
        progress: ProgressReport | None = None,
    ) -> EncodingResult:
        """Compute the features of all items that lack them, or switch to another encoder.

        All answers are kept. Each part is stored before the next one is encoded, so the next call
        resumes an interrupted one. After a switch, a model is trained on the new features if two
        classes have labels, and ``status`` compares the two encoders.

        Args:
            encoder: a name that ``teeter.encoders.make_encoder`` takes; None for the current one.
            again: fit the encoder again on all items, and encode all of them again.
            who: who encodes them, for the history.
            progress: called with the number of encoded items and the number of all items.

        Raises:
            InputError: there is no such encoder, or it does not read this kind of items.
            MissingExtraError: the encoder needs a package that is not installed.
        """
        if encoder is not None:
            trust_encoder(encoder)

        require_trusted_folder(self.database, self.settings.folder)
        # Not in the writing transaction: fitting takes time, and answers would wait for it.
        prepared = prepare_encoder(self, name=encoder, again=again)
        with self.writing() as change:
            store_encoding(change, prepared)
        result = encode_missing_items(self, prepared, who=who, progress=progress)

        if result.is_switch:
            state = self.load_state()
            # Not if items were added meanwhile: the next training will do it.
            if len(set(state.labels.values())) > 1 and not state.unencoded:
                self.train(who=who, state=state)
        return result

    # Answers

    def answer(
        self, answer: Answer, *, shown: ShownSuggestion | None = None, copies: bool = False
    ) -> AnswerReceipt:
        """Record an answer. It is on disk when this returns.

        The call is idempotent: an answer that is sent twice is recorded once. An annotator's
        earlier answer about the item stays in the history. An answer to an item that was reassigned
        meanwhile counts too, and the receipt says so.

        Args:
            answer: the answer.
            shown: the suggestion that the annotator saw, if any.
            copies: whether its near copies have the same class: those that nobody has looked at, up
                to 199. One ``undo`` takes all of it back. Such answers measure nothing, and give
                way to those of people who look at an item alone.

        Raises:
            InputError: the answer is incomplete, or has text that cannot be stored.
            UnknownNameError: there is no such item or class.
        """
        answer = _validate_answer(answer)
        with self.writing() as change:
            others = []
            if copies and answer.kind is AnswerKind.LABEL:
                items = self.items.unanswered_copies(change, [answer.item])[answer.item]
                others = [
                    replace(answer, item=item, comment=None, origin=AnswerOrigin.COPY)
                    for item in items
                ]
            return change.answers.record_all([answer, *others], shown=shown)

    def tell(
        self,
        item: str,
        label: str | Collection[str],
        annotator: str = DEFAULT_ANNOTATOR,
        *,
        comment: str | None = None,
        copies: bool = False,
    ) -> AnswerReceipt:
        """Record the class of an item, or all its labels if it may have several. See ``answer``.

        With ``copies``, it is recorded for the near copies of the item, too.
        """
        text = None
        if label is not None:
            text = label_text(label, several=self.settings.several)
        return self.answer(
            Answer(
                str(item),
                annotator,
                AnswerKind.LABEL,
                text,
                comment,
            ),
            copies=copies,
        )

    def tell_all(
        self,
        items: Sequence[str],
        label: str | Collection[str],
        annotator: str = DEFAULT_ANNOTATOR,
    ) -> AnswerReceipt:
        """Record one class for up to 200 items at once. One ``undo`` takes all of it back.

        What the annotator said of one of the items alone stays. Items that measure the model are
        asked again, blind, and so is one in twenty of the others: see ``Status.bulk_agreement``.

        Args:
            items: the ids of the items.
            label: their class, or all their labels if they may have several.
            annotator: who says so.

        Returns:
            The receipt: how many answers were recorded, and the number to undo them by.

        Raises:
            InputError: there are no items, too many, or the class cannot be stored.
            UnknownNameError: there is no such item or class. Then nothing is recorded.
        """
        item_ids = list(dict.fromkeys(str(item) for item in items))
        if not 0 < len(item_ids) <= MOST_AT_ONCE:
            raise InputError(
                f"{len(item_ids):,} items cannot be answered at once: give 1 to {MOST_AT_ONCE}."
            )

        text = label_text(label, several=self.settings.several)
        answers = []
        for item in item_ids:
            answer = Answer(item, annotator, AnswerKind.LABEL, text, origin=AnswerOrigin.BULK)
            answers.append(_validate_answer(answer))
        with self.writing() as change:
            return change.answers.record_all(answers)

    def skip(
        self, item: str, annotator: str = DEFAULT_ANNOTATOR, *, comment: str | None = None
    ) -> AnswerReceipt:
        """Skip an item: it may be asked about again after the next training. See ``answer``."""
        return self.answer(
            Answer(
                str(item),
                annotator,
                AnswerKind.SKIP,
                comment=comment,
            )
        )

    def mark_unsure(
        self, item: str, annotator: str = DEFAULT_ANNOTATOR, *, comment: str | None = None
    ) -> AnswerReceipt:
        """Say that an item's class cannot be told: it is not asked about again. See ``answer``."""
        return self.answer(
            Answer(
                str(item),
                annotator,
                AnswerKind.UNSURE,
                comment=comment,
            )
        )

    def flag(
        self, item: str, annotator: str = DEFAULT_ANNOTATOR, *, comment: str | None = None
    ) -> AnswerReceipt:
        """Say that an item does not belong in the campaign: it is left out. See ``answer``."""
        return self.answer(
            Answer(
                str(item),
                annotator,
                AnswerKind.FLAG,
                comment=comment,
            )
        )

    def confirm_label(
        self, item: str, annotator: str = DEFAULT_ANNOTATOR, *, comment: str | None = None
    ) -> AnswerReceipt:
        """Confirm an item's label after checking it. It is not suspected again while it stays.

        The call is idempotent: a label that the annotator has confirmed is not confirmed again.

        Raises:
            InputError: the item has no label.
            UnknownItemError: there is no such item.
        """
        require_name(annotator)
        item_id = str(item)

        with self.writing() as change:
            row_id = change.items.get(item_id).row_id
            snapshot = self.review.snapshot(change)
            label = snapshot.labels.get(item_id)
            if label is None:
                raise InputError(f"{item_id} has no label to confirm.")

            # A second answer, even if it says the same: taking it back takes back the confirmation.
            # Who checks a label sees what the model says of it.
            seen = AnswerOrigin.SEEN
            answer = Answer(item_id, annotator, AnswerKind.LABEL, label, comment, origin=seen)
            number = change.answers.find_repeat(answer, row_id)
            lines = change.history.lines("kept")
            if number is not None and number in [line["answer"] for line in lines]:
                return AnswerReceipt(number, recorded=False)

            receipt = change.answers.record(_validate_answer(answer), allow_repeat=True)
            detail = {"answer": receipt.number, "label": label}
            change.history.append(annotator, "kept", item_id, detail)
            return receipt

    def undo(
        self, annotator: str = DEFAULT_ANNOTATOR, *, number: int | None = None
    ) -> UndoResult | None:
        """Take back an annotator's last answer. Their earlier one about the item holds again.

        Args:
            annotator: the annotator.
            number: the answer to take back, as its receipt has it. It is taken back once, however
                often the call is repeated, and stays if the annotator has answered since.

        Returns:
            The answer; None if the annotator has none, or has answered since.

        Raises:
            UnknownResourceError: there is no answer of this number.
            PermissionDeniedError: another annotator gave it.
        """
        require_printable(annotator, "annotator's name")

        with self.writing() as change:
            return change.answers.undo(annotator, number)

    # Asking

    def ask(
        self, n: int, annotator: str = DEFAULT_ANNOTATOR, *, state: RoundState | None = None
    ) -> list[Question]:
        """Return n items for an annotator to label.

        They are the annotator's open items, then items that need further annotators, then items
        picked ahead, then new picks. Until they are answered or the lease expires, the same ones
        come back.

        Args:
            n: how many items to return.
            annotator: who asks.
            state: what new picks are based on, if it was loaded before.

        Returns:
            The items; fewer than n if fewer are left.
        """
        if n < 1:
            raise InputError(f"Cannot ask about {n} items: ask for 1 or more.")
        require_name(annotator)

        return ask_items(self, n, annotator, state=state)

    # Training

    def load_state(self) -> RoundState:
        """Read what picking and training are based on.

        It takes a while in a large campaign. Load it once, and pass it to ``train``, ``ask`` and
        ``pick_ahead``.

        Raises:
            InputError: the campaign has no items.
        """
        return self._state_reader.read()

    def train(
        self,
        *,
        who: str = DEFAULT_ANNOTATOR,
        state: RoundState | None = None,
        pick_ahead: int = 0,
    ) -> ModelRound:
        """Train a model on all labels and store it.

        Args:
            who: who trains it, for the history.
            state: what it is trained on, if it was loaded before.
            pick_ahead: how many items to pick with the new model. They become ready in the moment
                in which those of the old model are removed, so that annotators always find some.

        Raises:
            InputError: fewer than two classes have labels, items are not encoded yet, or the
                encoder was changed meanwhile.
        """
        from teeter.campaigns.asking.selection import choose_picks
        from teeter.campaigns.learning.training import measure_previous_encoder, train_model

        self.judges.require_ended("No model learns while an audit goes on")
        state = state or self.load_state()
        settings = self.settings
        weights, facts = train_model(state, RoundSettings.from_settings(settings))
        measure_previous_encoder(self, state, facts)

        picks: list[Pick] = []
        if pick_ahead:
            next_state = with_model(state, state.version + 1, weights)
            picks = choose_picks(next_state, RoundSettings.from_settings(settings), pick_ahead)

        random_items = facts.pop("random", [])
        with self.reading() as view:
            outlook = foresee_model(view, weights, random_items)
        if outlook is not None:
            facts["outlook"] = asdict(outlook)
            facts["outlook_goal"] = settings.goal

        # In one transaction: who asks meanwhile gets items of the old model or of the new one.
        with self.writing() as change:
            encoding, _ = change.encodings.revision()
            if encoding != state.revision[0]:
                raise InputError(
                    "The encoder was changed while the model was being trained: train again."
                )

            model = change.save_model(weights, facts, who)
            if picks:
                store_picks(
                    change, None, picks, settings=settings, missing=0, version=model.version
                )

        return describe_model(model)

    def prediction_note(self) -> str | None:
        """Return a sentence if predictions ignore new answers or features, or None."""
        with self.reading() as view:
            model = view.models.newest()
            newer_answers = view.answers.count_since_newest_model()
            features_changed = False
            if model is not None:
                scaler = self._state_reader.read_pool(view).scaler
                features_changed = not has_same_features(load_arrays(model.weights), scaler)

        if model is None or not (newer_answers or features_changed):
            return None

        note = f"The predictions come from model {model.version}"
        if newer_answers:
            are = pluralize(newer_answers, "answer is", "answers are")
            note += f"; {are} newer than it, so train and export again to use them"
        if features_changed:
            note += "; the features or classes have changed since, so it was trained again on the "
            note += "same labels"

        return f"{note}."

    def _classifier_revision(self) -> object:
        with self.reading() as view:
            version = view.models.newest_version()
            return version, view.encodings.revision(), view.classes.names()

    @cached_by(_classifier_revision)
    def classifier(self) -> Classifier:
        """Return the newest model with its encoder, which label new items without the campaign.

        ``teeter.classifier.save_classifier`` writes it to a folder.

        Raises:
            InputError: there is no model yet, or the items have the features of a user's function.
        """
        from teeter.campaigns.learning.saved_models import build_classifier

        while True:
            state = self.load_state()
            with self.reading() as view:
                settings = view.settings
                models = view.models.summaries()
                current = view.encodings.current()
            # Not if another process changed the encoder in between: both must fit together.
            if current is None or current.row_id == state.revision[0]:
                break

        return build_classifier(
            state,
            RoundSettings.from_settings(settings),
            load_encoder(settings, current),
            campaign=self.name,
            facts=next((model.facts for model in models if model.version == state.version), None),
        )

    def predict(
        self, contents: Sequence[Any], progress: ProgressReport | None = None
    ) -> list[Prediction]:
        """Predict the classes of new items with the newest model. They are not added.

        Args:
            contents: texts, paths of images, or rows of features, as the campaign has them; or a
                data frame with a text in each row.
            progress: called with the number of predicted items and the number of all.

        Returns:
            For each item its most probable class, with a calibrated probability.

        Raises:
            InputError: there is no model yet, or the items have the features of a user's function.
        """
        table = arrow_table_of(contents)
        if table is not None:
            notes: list[str] = []
            items = self._read_frame(table, notes)
            if notes:
                raise InputError(f"{notes[0]} Every row needs one to be predicted.")
            contents = [item.content for item in items]
        return self.classifier().label(contents, progress)

    # Reviewing

    def labels(self) -> dict[str, ConsensusLabel]:
        """Return the label of every labelled item by id: decided on, or by consensus.

        Withdrawn items are left out.
        """
        with self.reading() as view:
            snapshot = self.review.snapshot(view)
        return snapshot.without_withdrawn().consensus

    # Reporting

    def show(self, *, origin: str | None = None, height: int = 720) -> NotebookPage:
        """Show the labelling page in a cell of a notebook on this machine.

        Args:
            origin: the scheme, host and port of the notebook's page, the only one that may show
                it; by default that of the Jupyter server that runs this kernel.
            height: the height of the frame in pixels.

        Raises:
            InputError: the origin is not known, or on another machine.
        """
        if self.database.path is not None:
            location = str(self.database.path)
        else:
            url = self.database.url.render_as_string(hide_password=False)
            location = f"{url}#{self.name}"
        return open_notebook_page(location, origin=origin, height=height)

    def status(self) -> Status:
        """Return the numbers of the campaign, with advice on whether to continue."""
        with self.reading() as view:
            return campaign_status(view)

    def progress(self) -> CampaignProgress:
        """Return the progress of the campaign, model by model."""
        with self.reading() as view:
            status = campaign_status(view)
            return CampaignProgress(
                status=status,
                rounds=[describe_model(model) for model in view.models.summaries()],
                times=view.answers.label_times(),
                spent=status.spent,
                budget=view.settings.budget,
            )

    def newest_model(self) -> ModelRound | None:
        """Return what is known of the newest model; None before the first one."""
        with self.reading() as view:
            summary = view.models.newest_summary()
        if summary is None:
            return None
        return describe_model(summary)

    def history(self) -> list[dict[str, Any]]:
        """Return every change of the campaign, oldest first."""
        with self.reading() as view:
            return view.history.lines()

    def history_page(self, *, after: int = 0, count: int = 100) -> HistoryPage:
        """Return ``count`` changes that came after another one, oldest first."""
        with self.reading() as view:
            lines, last = view.history.page(after, count)
        # Columns may have numbers and characters that the JSON of HTTP has not.
        return HistoryPage(
            lines=[replace_surrogates(drop_infinite(line)) for line in lines], after=last
        )

    def export_obstacles(self) -> dict[str, str]:
        """Return why the campaign cannot be exported in some formats now, by format."""
        with self.reading() as view:
            n_classes = len(self.review.snapshot(view).labelled_classes())

        obstacles = {}
        for form in FORMATS:
            try:
                require_format(form, self.settings.kind, n_classes, several=self.settings.several)
            except (InputError, MissingExtraError) as error:
                obstacles[form] = str(error)
        return obstacles

    def export(self, path: str | Path, form: str | None = None, *, reveal: bool = False) -> int:
        """Write labels and predictions to a file.

        Args:
            path: the file. Its ending gives the format (.csv, .xlsx, .jsonl, .parquet); a folder
                gets a Hugging Face dataset.
            form: the format by name, also ``prodigy``, ``doccano``, ``label-studio``, ``spacy``,
                ``image-folder``, ``cleanlab`` or ``spreadsheet``. ``csv`` has every cell exactly
                as it is. Open ``spreadsheet`` in a spreadsheet program, where a
                text that begins with = + - or @ would otherwise run as a formula. ``xlsx`` has no
                formulas.
            reveal: whether to export although an audit goes on, whose judges the file shows.

        Raises:
            InputError: an audit goes on, or the format does not fit.

        Returns:
            How many items have a label, without withdrawn ones.
        """
        from teeter.campaigns.learning.training import predict_items, predict_out_of_fold

        if not reveal:
            self.judges.require_ended("The file would show what judges say of unanswered items")
        predicted: dict[str, tuple[str, float]] = {}
        out_of_fold: dict[str, dict[str, float]] = {}
        with self.reading() as view:
            # An audit needs none.
            has_features = view.encodings.has_vectors()
        if has_features:
            state = self.load_state()
            predicted_classes = predict_items(state, RoundSettings.from_settings(self.settings))
            if predicted_classes is not None:
                predicted = dict(zip(state.keys, predicted_classes, strict=True))
                for place in state.unreadable:
                    del predicted[state.keys[place]]
            if form == "cleanlab" and not state.several:
                out_of_fold = predict_out_of_fold(state, self.settings.head)

        # The rows are read while they are written: their cells may not fit in memory together.
        with self.reading() as view:
            snapshot = self.review.snapshot(view)
            if form is not None:
                several = view.settings.several
                n_classes = len(snapshot.labelled_classes())
                require_format(form, view.settings.kind, n_classes, several=several)
            certified, _ = certified_labels(view, snapshot)
            certificate = newest_certificate(view)
            certifier: tuple[str | None, str | None] = None, None
            if certificate is not None:
                version = certificate.content["model"]["version"]
                judge = certificate.content.get("judge")
                certifier = judge or f"model {version}", certificate.issued
            folder = None
            if form == "image-folder":
                # Other formats name the images, but do not read them.
                folder = self.image_folder
            rows = ExportRows(
                view,
                snapshot,
                predicted,
                certified,
                certifier=certifier,
                out_of_fold=out_of_fold,
                folder=folder,
            )
            content: str | None = view.settings.kind
            if view.settings.has_rows or content == ItemKind.FEATURES:
                content = None  # a card is made of columns
            labels: list[str] = []
            if view.settings.several:
                labels = view.classes.names()
            write_export(
                rows,
                Path(path),
                form,
                tables=list(view.tables.tables().values()),
                content=content,
                has_ids=view.items.have_own_ids(),
                labels=labels,
            )

        return len(snapshot.without_withdrawn().consensus)

    def to_frame(self, kind: str | None = None, *, reveal: bool = False) -> Any:
        """Return your table with the labels: what ``export`` writes to a .csv file, with types.

        Args:
            kind: pandas or polars. By default the kind of data frame that the items came from, or
                else pandas, or polars if only this is installed.
            reveal: as in ``export``.

        Raises:
            MissingExtraError: the library is not installed.
        """
        with TemporaryDirectory(prefix="teeter-") as folder:
            self.export(Path(folder) / "items.parquet", reveal=reveal)
            return frame_of_export(Path(folder) / "items.parquet", kind)


def default_location(source: Path | None) -> Path:
    """Return the file of a campaign that is made from a file or folder: beside it, with its name.

    Raises:
        InputError: there is no path, or it has no name.

    Example:
        >>> default_location(Path("reviews.csv")).name
        'reviews.teeter'
    """
    if source is None:
        raise InputError("Say where to create the campaign (at=): a file or a database.")

    path = source
    if not path.name or path.name == "..":
        # ``.`` and ``..`` have no name of their own. What they point to has.
        path = path.resolve()
    if not path.name:
        raise InputError(f"Cannot derive a campaign name from {source}: give one with at=.")
    return path.with_name(f"{path.name.removesuffix(path.suffix)}.teeter")


def _require_new(at: str | Path, name: str | None) -> tuple[str | Path, str]:
    """Return where a new campaign goes, as a file's path or a database's URL, and its name.

    Raises:
        FileError: there is no folder for the file.
        InputError: the file or the campaign exists.
    """
    if not is_url(at):
        path = Path(at)
        if path.exists():
            raise InputError(f"{path} already exists: open it, or choose another name.")
        if not path.parent.is_dir():
            raise FileError(f"Cannot create {path}: there is no folder {path.parent}.")
        if name is None:
            name = path.stem
        return path, name

    url, given_name = split_location(str(at))
    database = Database(url, create=True)
    try:
        name = name or given_name
        if name is None and database.path is not None:
            name = database.path.stem
        name = name or database.url.database or "campaign"
        # Checked before the items are read, which takes long. The copy checks it again.
        if name in campaign_names(database):
            raise InputError(
                f"{database.display_url} already has a campaign called {name!r}: open it, or "
                f"choose another name."
            )
    finally:
        database.close()
    return url, name


@contextmanager
def _temporary_file(location: str | Path) -> Iterator[Path]:
    """Yield a temporary file: for a new file, it becomes this file after the block."""
    if isinstance(location, Path):
        with atomic_file(location) as temporary:
            yield temporary
    else:
        with TemporaryDirectory(prefix="teeter-") as folder:
            yield Path(folder) / "new.teeter"


def _validate_classes(
    classes: Sequence[Any], descriptions: Mapping[str, ClassDescription], settings: Settings
) -> list[str]:
    """Return the names of the classes, if they go with their descriptions and shortcuts."""
    names = validate_classes(classes)
    if settings.several:
        require_no_sets(names)
    require_known_classes(descriptions, names)
    shortcuts_by_class(names, settings.keys)  # raises if two classes would share a shortcut
    return names


def _known_labels(items: Iterable[Any], *, several: bool) -> list[str]:
    """Return the different labels that items came with, in the order in which they first occur."""
    labels: dict[str, None] = {}
    for item in items:
        if isinstance(item, Mapping):
            label = item.get("label")
        else:
            label = getattr(item, "label", None)
        if isinstance(label, list | tuple | set | frozenset):
            labels |= dict.fromkeys(as_class_name(name) for name in label)
        elif label is not None and not is_missing(str(label)):
            names = [as_class_name(label)]
            if several:
                names = split_labels(names[0])
            labels |= dict.fromkeys(names)
    return list(labels)


@_paused_collector()
def _read_source(
    source: Any,
    columns: ItemColumns,
    settings: Settings,
    fetcher: ImageFetcher | None,
    notes: list[str],
) -> tuple[Sequence[Item], Settings]:
    """Return the items of a path or an arrow table, and settings with their kind and folder."""
    kind = ItemKind.TEXT
    folder = None
    if isinstance(source, Path):
        kind = detect_kind(source)
        if kind == ItemKind.IMAGE:
            folder = source.resolve()
    if columns.image is not None and fetcher is not None:
        kind = ItemKind.IMAGE
        folder = fetcher.folder

    folder_name = None
    if folder is not None:
        folder_name = str(folder)
    settings = replace(settings, kind=kind, folder=folder_name)
    items = read_items(
        source, columns, folder=folder, fetcher=fetcher, rows=settings.has_rows, notes=notes
    )
    return items, settings


def _replace_settings(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """Return settings with some changed, or say which value has the wrong type."""
    for name, value in changes.items():
        try:
            replace(settings, **{name: value})
        except TypeError:
            raise InputError(f"{name} has a value of the wrong type: {value!r:.100}.") from None
    return replace(settings, **changes)


def _validate_answer(answer: Answer) -> Answer:
    """Return an answer as it is stored.

    Raises:
        InputError: it is incomplete, or has text that cannot be stored.
    """
    require_name(answer.annotator)
    require_valid_unicode(answer.item, "item id")
    require_valid_unicode(answer.comment or "", "comment")

    if answer.kind not in list(AnswerKind):
        kinds = ", ".join(AnswerKind)
        raise InputError(f"{str(answer.kind)!r} is not a kind of answer: choose from {kinds}.")

    kind = AnswerKind(answer.kind)
    if (kind is AnswerKind.LABEL) != (answer.label is not None):
        raise InputError("A label needs a class, but skip, unsure and flag must not have one.")

    label = None
    if answer.label is not None:
        label = as_class_name(answer.label)
    return replace(answer, kind=kind, label=label, comment=answer.comment or None)
