"""Texts, images and labels of Hugging Face tables, as the classifiers of transformers take them.

``Texts`` and ``Images`` are ``BatchedInputs``: nothing is encoded until a batch is needed, and a
batch is small enough for memory however long its texts are.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from teeter.base.registry import did_you_mean
from teeter.errors import InputError, MissingExtraError
from teeter.models.inputs import BatchedInputs, take_rows

try:
    import datasets
    from transformers import PreTrainedModel, PreTrainedTokenizerBase
    from transformers.image_processing_utils import BaseImageProcessor
except ModuleNotFoundError as error:
    # Anything else that is missing is a broken installation and not a missing extra.
    library, _, _ = (error.name or "").partition(".")
    if library not in ("datasets", "transformers"):
        raise
    raise MissingExtraError(
        "This needs transformers and datasets: pip install 'teeter[hf]'."
    ) from None

__all__ = ["Images", "Texts", "labels_of"]

Table: TypeAlias = datasets.Dataset
Subset = TypeVar("Subset", bound=BatchedInputs)
Integers: TypeAlias = npt.NDArray[np.int64]

_MAX_BATCH_TOKENS = 1 << 14
"""Tokens of a batch, padding included."""
_MAX_BATCH_IMAGES = 32
_UNLIMITED_LENGTH = 1_000_000
"""A tokenizer without a limit reports a number far above this."""


class _TableSubset(BatchedInputs):
    """All or some rows of a table."""

    _rows: Integers

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._rows)

    def take(self, rows: Integers) -> Self:
        """Return the rows at these positions, in this order."""
        return _copy_with(self, _rows=self._rows[rows])


class Texts(_TableSubset):
    """Texts, or pairs of them, as a classifier takes them: truncated, and padded batch by batch.

    Use them in ``teeter.observe(model, Texts(table, tokenizer))``, or as the pool of a
    ``teeter.Learner``.
    """

    def __init__(
        self,
        table: Table | Sequence[str],
        tokenizer: PreTrainedTokenizerBase,
        columns: str | tuple[str, str] | None = None,
        *,
        max_length: int | None = None,
    ) -> None:
        """Check the table and the tokenizer. Nothing is encoded yet.

        Args:
            table: a ``datasets.Dataset``, or a list of texts.
            tokenizer: the one that the classifier was trained with.
            columns: the column of texts, or two for pairs; the only one of texts, or ``text``, if
                left out.
            max_length: the number of tokens to truncate a text at; the limit of the tokenizer and
                the model if left out.
        """
        if not isinstance(tokenizer, PreTrainedTokenizerBase):
            raise InputError(
                f"The tokenizer is a {type(tokenizer).__name__}: give the model's tokenizer, "
                f"loaded with AutoTokenizer.from_pretrained."
            )
        if tokenizer.pad_token_id is None:
            raise InputError(
                f"This {type(tokenizer).__name__} has no padding token, so texts cannot be put "
                f"into batches: set tokenizer.pad_token = tokenizer.eos_token, and "
                "model.config.pad_token_id = tokenizer.pad_token_id."
            )

        self._tokenizer = tokenizer
        self._table, self._columns = _find_columns(table, columns, "string", "texts")
        self._rows = np.arange(len(self._table))
        self._max_length = self._require_length(max_length)

        # What the model decides: see adapt_to.
        self._input_names: frozenset[str] | None = None
        self._pad_left = False

    def adapt_to(self, model: nn.Module) -> Self:
        """Return the same texts with the inputs that ``model`` takes, truncated at its limit."""
        original = _original_module(model)
        if isinstance(original, PreTrainedModel):
            _require_classifier(original)
            # The tokens of another tokenizer would mean something else to the model.
            config = original.config.get_text_config()
            tokenizer_padding = self._tokenizer.pad_token_id
            model_padding = config.pad_token_id
            if tokenizer_padding != model_padding:
                difference = f"pads with token {model_padding}"
                if model_padding is None:
                    difference = "has no padding token"
                raise InputError(
                    f"The tokenizer pads with token {tokenizer_padding}, but this "
                    f"{type(original).__name__} {difference}: set model.config.pad_token_id = "
                    "tokenizer.pad_token_id."
                )

            if len(self._tokenizer) > config.vocab_size:
                raise InputError(
                    f"The tokenizer has {len(self._tokenizer):,} tokens, but the model knows "
                    f"{config.vocab_size:,}: load both from the same source."
                )

        max_length = self._max_length
        pad_left = False
        for part in original.modules():
            # A module of the user's own may have a pretrained one inside.
            if not isinstance(part, PreTrainedModel):
                continue

            limit = _max_tokens(part)
            if limit is not None and (max_length is None or limit < max_length):
                max_length = limit

            # XLNet classifies by the last position, padding or not.
            if getattr(part.config, "summary_type", None) == "last":
                pad_left = True

        return _copy_with(
            self,
            _input_names=_input_names(original),
            _max_length=max_length,
            _pad_left=pad_left,
        )

    def batches(self, size: int) -> Iterator[Mapping[str, Tensor]]:
        """Yield the texts in order, at most ``size`` at a time; fewer if they are long."""
        for start in range(0, len(self), size):
            rows = self._rows[start : start + size]
            encoded = self._encode(rows)
            lengths = [len(ids) for ids in encoded["input_ids"]]

            for part in _split_by_tokens(lengths, _MAX_BATCH_TOKENS):
                encoded_part = {name: values[part] for name, values in encoded.items()}
                yield self._pad(encoded_part)

    def as_one_batch(self) -> Mapping[str, Tensor]:
        """Return all texts as one batch."""
        return self._pad(self._encode(self._rows))

    def _require_length(self, max_length: int | None) -> int | None:
        """Return the number of tokens to truncate at, or None if there is no limit."""
        if max_length is None:
            tokenizer_limit: int = self._tokenizer.model_max_length
            if tokenizer_limit >= _UNLIMITED_LENGTH:
                return None
            return tokenizer_limit

        if not isinstance(max_length, int | np.integer):
            raise InputError(f"max_length is {max_length!r}: it must be a whole number.")

        # At least one token of text beside those that frame it, such as [CLS] and [SEP].
        is_pair = len(self._columns) == 2
        least = self._tokenizer.num_special_tokens_to_add(pair=is_pair) + 1
        if max_length < least:
            raise InputError(
                f"max_length is {max_length}: because of the tokenizer's special tokens it must "
                f"be {least} or more."
            )
        return max_length

    def _encode(self, rows: Integers) -> dict[str, list[list[int]]]:
        """Return the model's inputs of some rows, as lists of different lengths."""
        columns = _read_cells(self._table, self._columns, rows)
        texts = [_require_texts(column, rows) for column in columns]

        truncation: dict[str, Any] = {}
        if self._max_length is not None:
            truncation = {"truncation": True, "max_length": self._max_length}
        encoded = self._tokenizer(*texts, padding=False, **truncation)

        if self._input_names is None:
            return dict(encoded.items())
        return {name: encoded[name] for name in encoded if name in self._input_names}

    def _pad(self, encoded: dict[str, list[list[int]]]) -> dict[str, Tensor]:
        """Return the inputs as tensors (B, T).

        Padding stands on the right, so that a token's position does not depend on the batch.
        """
        padding = {
            "input_ids": self._tokenizer.pad_token_id,
            "token_type_ids": self._tokenizer.pad_token_type_id,
        }
        # A text of no token becomes one token of padding.
        lengths = [len(ids) for ids in encoded["input_ids"]]
        width = max(lengths, default=1)
        width = max(width, 1)

        padded: dict[str, Tensor] = {}
        for name, values in encoded.items():
            fill_value = padding.get(name, 0)  # 0 in an attention mask hides the token
            rows = []
            for ids in values:
                fill = [fill_value] * (width - len(ids))
                if self._pad_left:
                    rows.append([*fill, *ids])
                else:
                    rows.append([*ids, *fill])
            padded[name] = torch.tensor(rows)
        return padded


class Images(_TableSubset):
    """Images as a classifier takes them, in colour or grey as it does, processed batch by batch.

    Use them in ``teeter.observe(model, Images(table, processor))``, or as the pool of a
    ``teeter.Learner``.
    """

    def __init__(
        self,
        table: Table | Sequence[Any],
        processor: BaseImageProcessor,
        column: str | None = None,
    ) -> None:
        """Check the table and the processor. No image is read yet.

        Args:
            table: a ``datasets.Dataset``, or a list of Pillow's images or of arrays of bytes.
            processor: the image processor that the classifier was trained with.
            column: the column of images; the only one of them if left out.
        """
        if not isinstance(processor, BaseImageProcessor):
            raise InputError(
                f"The processor is a {type(processor).__name__}: give the model's image "
                f"processor, loaded with AutoImageProcessor.from_pretrained."
            )

        self._processor = processor
        self._table, self._columns = _find_columns(table, column, "image", "images")
        self._rows = np.arange(len(self._table))
        self._mode = "RGB"

    def adapt_to(self, model: nn.Module) -> Self:
        """Return the same images in the colours that ``model`` takes."""
        original = _original_module(model)
        if not isinstance(original, PreTrainedModel):
            return self

        _require_classifier(original)
        is_grey = getattr(original.config, "num_channels", 3) == 1
        return _copy_with(self, _mode="L" if is_grey else "RGB")

    def batches(self, size: int) -> Iterator[Mapping[str, Tensor]]:
        """Yield the images in order, ``size`` at a time, at most 32."""
        step = min(size, _MAX_BATCH_IMAGES)
        for start in range(0, len(self), step):
            rows = self._rows[start : start + step]
            yield self._process(rows)

    def as_one_batch(self) -> Mapping[str, Tensor]:
        """Return all images as one batch."""
        return self._process(self._rows)

    def _process(self, rows: Integers) -> dict[str, Tensor]:
        columns = _read_cells(self._table, self._columns, rows)
        values = columns[0]
        images = []
        for row, value in zip(rows, values, strict=True):
            image = _open_image(value, row)
            images.append(image.convert(self._mode))

        try:
            return dict(self._processor(images=images, return_tensors="pt"))
        except ValueError as error:
            raise InputError(
                f"The image processor cannot put these images in one batch: {error}"
            ) from None


def _copy_with(inputs: Subset, **changes: Any) -> Subset:
    """Return a shallow copy with other attributes, over the same table."""
    changed = copy.copy(inputs)
    vars(changed).update(changes)
    return changed


def _require_texts(values: Sequence[Any], rows: Integers) -> list[str]:
    for row, value in zip(rows, values, strict=True):
        if not isinstance(value, str):
            raise InputError(
                f"Text {row} is {value!r}, a {type(value).__name__}: replace it with a string, or "
                f"drop the row."
            )
    return list(values)


def _open_image(value: Any, row: int) -> Any:
    """Return a Pillow image, turned upright if the camera noted that it was not."""
    from PIL import Image, ImageOps

    if isinstance(value, np.ndarray) and value.dtype == np.uint8:
        is_grey = value.ndim == 2
        has_channels = value.ndim == 3 and value.shape[2] in (1, 3, 4)
        if not is_grey and not has_channels:
            raise InputError(
                f"Image {row} is of shape {value.shape}: give (height, width), or (height, width, "
                "3)."
            )

        # Pillow knows grey images only without the axis of channels.
        pixels = value
        if has_channels and value.shape[2] == 1:
            pixels = value[:, :, 0]
        value = Image.fromarray(pixels)

    if not isinstance(value, Image.Image):
        raise InputError(
            f"Image {row} is a {type(value).__name__}: give Pillow's images, or arrays of bytes "
            "(uint8)."
        )
    # Modes I, I;16 and F have 16 or 32 bits.
    if value.mode[0] in "IF":
        raise InputError(
            f"Image {row} has mode {value.mode}, more than 8 bits per pixel, and Pillow would "
            f"clip all values above 255: scale the image to bytes first."
        )
    return ImageOps.exif_transpose(value)


def _split_by_tokens(lengths: Sequence[int], max_tokens: int) -> Iterator[slice]:
    """Yield slices of consecutive texts, each padded to its longest within ``max_tokens``.

    A single text that is longer makes a slice of its own.
    """
    start = 0
    longest = 0
    for row, length in enumerate(lengths):
        longest = max(longest, length)
        rows = row + 1 - start
        if row > start and rows * longest > max_tokens:
            yield slice(start, row)
            start = row
            longest = length

    if lengths:
        yield slice(start, len(lengths))


def _original_module(model: nn.Module) -> nn.Module:
    """Return the module that torch.compile was given, and any other unchanged."""
    # torch.compile returns a module of another class, whose forward takes anything.
    original: nn.Module = getattr(model, "_orig_mod", model)
    return original


def _input_names(model: nn.Module) -> frozenset[str] | None:
    """Return the names of the inputs that a module takes, or None if it takes any.

    Raises:
        InputError: if it does not take ``input_ids``.
    """
    parameters = inspect.signature(model.forward).parameters.values()
    kinds = {parameter.kind for parameter in parameters}
    takes_any = inspect.Parameter.VAR_KEYWORD in kinds  # **kwargs

    # The models of transformers have **kwargs too, but pass them on to what may refuse them.
    if takes_any and not isinstance(model, PreTrainedModel):
        return None

    names = frozenset(parameter.name for parameter in parameters)
    if "input_ids" not in names:
        listed = ", ".join(sorted(names))
        raise InputError(
            f"The forward of {type(model).__name__} takes {listed}: to get "
            "Texts, it must take input_ids (and may take attention_mask)."
        )
    return names


def _require_classifier(model: PreTrainedModel) -> None:
    name = type(model).__name__
    # The classes of transformers share no base for classifiers. Their names are a convention.
    is_of_transformers = type(model).__module__.startswith("transformers.")
    if is_of_transformers and "Classification" not in name:
        raise InputError(
            f"{name} is not a classifier: load the model with "
            f"AutoModelForSequenceClassification, or with AutoModelForImageClassification for "
            f"images."
        )

    if model.config.num_labels < 2:
        raise InputError(
            f"This {name} has one output, so it predicts a number and not a class, but teeter "
            f"needs a classifier."
        )
    if model.config.problem_type == "multi_label_classification":
        raise InputError(
            f"This {name} predicts several labels per row: teeter needs one class per row."
        )


def _max_tokens(model: PreTrainedModel) -> int | None:
    """Return the number of tokens that a model has positions for, or None if it has no limit."""
    config = model.config.get_text_config()
    positions: int | None = getattr(config, "max_position_embeddings", None)
    if positions is None or positions < 1:
        return None

    # RoBERTa counts positions from padding_idx + 1.
    first_position = 0
    for name, module in model.named_modules():
        if not isinstance(module, nn.Embedding) or not name.endswith("position_embeddings"):
            continue
        if module.padding_idx is not None:
            first_position = max(first_position, module.padding_idx + 1)
    return positions - first_position


def labels_of(
    table: Table, column: str = "label", *, classes: Sequence[str] | None = None
) -> Integers:
    """Return the class number of each row of a table, and -1 for rows without a label: (N,).

    Args:
        table: a ``datasets.Dataset``.
        column: the column of labels: class numbers, or names. None, NaN and -1 mean no label.
        classes: the names in the order of the model's outputs; those of the column, if it has them,
            if left out.

    Raises:
        InputError: if there is no such column, or a value in it is not a class.
    """
    _require_table(table)
    _require_column(table, column)
    feature = table.features[column]
    if not isinstance(feature, datasets.ClassLabel | datasets.Value):
        raise InputError(
            f"Column {column!r} holds {_type_name(feature)}: it must hold one label per row."
        )

    # Without a format, which might turn values into tensors. [:] reads all rows at once.
    unformatted = table.with_format(None)
    values = unformatted[column][:]
    if _type_name(feature) == "string":
        return _encode_names(values, classes, column)

    # Numbers. A ClassLabel column names its classes; of other numbers only ``classes`` may.
    column_names: list[str] | None = None
    if isinstance(feature, datasets.ClassLabel):
        column_names = feature.names

    class_count = None
    if column_names is not None:
        class_count = len(column_names)
    elif classes is not None:
        class_count = len(classes)

    labels = _require_class_numbers(values, column, class_count)
    if column_names is None or classes is None:
        return labels

    # The column and the model may number the same names differently.
    label_names: list[str | None] = []
    for label in labels.tolist():
        if label < 0:
            label_names.append(None)
        else:
            label_names.append(column_names[label])
    return _encode_names(label_names, classes, column)


def _find_columns(table: Any, named: Any, kind: str, plural: str) -> tuple[Any, list[str]]:
    """Return the rows to read, and the columns to read of them.

    Args:
        table: a ``datasets.Dataset``, or a list of texts or images.
        named: the column, or two for pairs of texts. If None, the only column of this kind is used,
            or the one called ``text``.
        kind: what the columns must hold: ``"string"`` or ``"image"``.
        plural: the kind in words, for error messages.

    Returns:
        A table of these columns and their names, or the list unchanged and no names.

    Raises:
        InputError: if a column is missing or of another kind, or there is no row.
    """
    if not isinstance(table, datasets.Dataset):
        _require_list(table, named, plural)
        return table, []

    _require_table(table)
    types = {name: _type_name(feature) for name, feature in table.features.items()}
    candidates = [name for name in types if types[name] == kind]

    if named is None:
        columns = [_choose_column(table, candidates, kind, plural)]
    elif isinstance(named, tuple | list):
        columns = list(named)
    else:
        columns = [named]

    if not 1 <= len(columns) <= 2:
        raise InputError(f"{len(columns)} columns are named: give one, or two for pairs of texts.")
    for name in columns:
        _require_column(table, name)
        if name not in candidates:
            raise InputError(f"Column {name!r} holds {types[name]} values: {plural} are needed.")

    selected = table.select_columns(columns).with_format(None)

    # A column that is not decoded gives bytes and paths instead of images.
    if kind == "image":
        column = columns[0]
        if not table.features[column].decode:
            selected = selected.cast_column(column, datasets.Image())
    return selected, columns


def _read_cells(table: Any, columns: list[str], rows: Integers) -> list[list[Any]]:
    """Return the values of some rows, one list per column.

    Args:
        table: a table or a list, as ``_find_columns`` returned it.
        columns: the columns to read; empty for a list, which counts as one column.
        rows: (K,) positions.

    Raises:
        InputError: if the file of an image cannot be read. The message has its row.
    """
    if not columns:
        return [take_rows(table, rows)]

    try:
        values = table[rows.tolist()]
    except OSError as error:  # an image is read from its file only now
        row = _first_unreadable_row(table, rows)
        raise InputError(f"Row {row} of the table cannot be read: {error}.") from None
    return [values[name] for name in columns]


def _choose_column(table: Table, candidates: list[str], kind: str, plural: str) -> str:
    """Return the column to read if the caller names none."""
    if kind == "string" and "text" in candidates:
        return "text"
    if len(candidates) == 1:
        return candidates[0]

    if candidates:
        raise InputError(
            f"The table has several columns of {plural} ({', '.join(candidates)}): name the one "
            f"to use."
        )
    raise InputError(
        f"The table has no column of {plural}: name the column to use. It has: "
        f"{', '.join(table.column_names)}."
    )


def _require_class_numbers(values: Sequence[Any], column: str, classes: int | None) -> Integers:
    """Return class numbers as an array, with -1 for None and NaN."""
    labels = np.full(len(values), -1, dtype=np.int64)
    for row, value in enumerate(values):
        is_missing = value is None or value != value  # NaN differs from itself
        if is_missing:
            continue

        # A column with missing values holds floats, of which 3.0 is the class 3.
        is_whole_float = isinstance(value, float) and value.is_integer()
        is_integer = isinstance(value, int) or is_whole_float
        is_too_large = is_integer and classes is not None and value >= classes

        if not is_integer or value < -1 or is_too_large:
            last = ""
            if classes is not None:
                last = f" to {classes - 1}"
            raise InputError(
                f"Row {row} of column {column!r} holds {value!r}: classes are whole numbers from "
                f"0{last}, or -1 if unknown."
            )
        labels[row] = value
    return labels


def _encode_names(
    values: Sequence[str | None], names: Sequence[str] | None, column: str
) -> Integers:
    """Return the position of each value among the names, and -1 for None."""
    if names is None:
        raise InputError(
            f"Column {column!r} holds names: give them in the order of the model's outputs as "
            f"classes= (for a classifier, list(model.config.id2label.values()))."
        )
    if len(set(names)) < len(names):
        raise InputError(f"A name occurs twice in classes, {list(names)}: give each once.")

    number_of: dict[str | None, int] = {name: number for number, name in enumerate(names)}
    number_of[None] = -1

    labels = np.empty(len(values), dtype=np.int64)
    for row, value in enumerate(values):
        if value not in number_of:
            hint = did_you_mean(str(value), list(names))
            raise InputError(f"Row {row} of column {column!r} is {value!r}. {hint}")
        labels[row] = number_of[value]
    return labels


def _require_list(values: Any, named: Any, plural: str) -> None:
    if isinstance(values, Mapping):  # such as a DatasetDict
        parts = ", ".join(map(str, values))
        raise InputError(
            f"This is a {type(values).__name__} of several parts ({parts}): give one of them."
        )

    # A text is a sequence of letters, and no list of texts.
    is_list = isinstance(values, Sequence | np.ndarray) and not isinstance(values, str)
    if not is_list:
        raise InputError(
            f"This is a {type(values).__name__}: give a table of datasets, or a list of {plural}."
        )
    if named is not None:
        raise InputError(
            f"A list has no column {named!r}: give a table of datasets, or leave columns out."
        )
    if not len(values):
        raise InputError("The list is empty: it has no rows.")


def _require_table(table: Any) -> None:
    if not isinstance(table, datasets.Dataset):
        raise InputError(f"This is a {type(table).__name__}: give a table of datasets.")
    if not len(table):
        raise InputError("The table is empty: it has no rows.")


def _require_column(table: Table, name: str) -> None:
    if name not in table.column_names:
        hint = did_you_mean(str(name), table.column_names)
        raise InputError(f"The table has no column {name!r}. {hint}")


def _type_name(feature: Any) -> str:
    """Return what a column holds: string, image, or the name of another type."""
    if isinstance(feature, datasets.Image):
        return "image"
    if isinstance(feature, datasets.Value):
        if feature.dtype in ("string", "large_string"):
            return "string"
        return str(feature.dtype)
    return type(feature).__name__


def _first_unreadable_row(table: Any, rows: Integers) -> int | None:
    """Return the first row that raises when it is read alone, for an error message."""
    # Reading many rows at once does not tell which of them failed.
    for row in rows.tolist():
        try:
            table[row]
        except OSError:
            return int(row)
    return None
