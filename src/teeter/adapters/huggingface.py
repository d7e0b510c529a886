"""Hugging Face's classifiers and tables: texts and images as a classifier takes them, and the labels that are known."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from teeter.errors import InputError, MissingExtraError
from teeter.models.inputs import BatchedInputs

try:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase
    from transformers.image_processing_utils import BaseImageProcessor

    from teeter.adapters.hf_columns import Table, cells, columns_of, labels_of
except ModuleNotFoundError as error:
    if (error.name or "").split(".")[0] not in ("datasets", "transformers"):
        raise
    raise MissingExtraError(
        "This needs transformers and datasets: pip install 'teeter[hf]'."
    ) from None

__all__ = ["Images", "Texts", "labels_of"]

Kind = TypeVar("Kind", bound=BatchedInputs)
Numbers = npt.NDArray[np.int64]

_TOKENS_AT_ONCE = 1 << 14
_IMAGES_AT_ONCE = 32
_UNLIMITED = 1_000_000
"""Tokenizers that know no limit say a number far beyond this."""


class _Some(BatchedInputs):
    """Rows of a table, all or some."""

    _rows: Numbers

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._rows)

    def take(self, rows: Numbers) -> Self:
        """Return some of them."""
        return _with(self, _rows=self._rows[rows])


class Texts(_Some):
    """Texts, or pairs of them, as a classifier takes them: cut at its limit, padded batch by batch.

    ``teeter.observe(model, Texts(table, tokenizer))``, or the pool of a ``teeter.Learner``.
    """

    def __init__(
        self,
        table: Table | Sequence[str],
        tokenizer: PreTrainedTokenizerBase,
        columns: str | tuple[str, str] | None = None,
        *,
        max_length: int | None = None,
    ) -> None:
        """Look at a table's texts; nothing is encoded yet.

        Args:
            table: of ``datasets``, or a list of texts.
            tokenizer: the one that the classifier was trained with.
            columns: the column of texts, or two for pairs; the only one of texts, or ``text``, if left out.
            max_length: tokens to cut a text at; what the tokenizer and the model can take if left out.
        """
        if not isinstance(tokenizer, PreTrainedTokenizerBase):
            raise InputError(
                f"The tokenizer is a {type(tokenizer).__name__}: give the model's, by AutoTokenizer.from_pretrained."
            )
        if tokenizer.pad_token_id is None:
            raise InputError(
                f"This {type(tokenizer).__name__} has no padding token, so texts cannot be put in batches: set "
                "tokenizer.pad_token = tokenizer.eos_token, and model.config.pad_token_id = tokenizer.pad_token_id."
            )
        self._tokenizer = tokenizer
        self._table, self._columns = columns_of(table, columns, "string", "texts")
        if max_length is not None and not isinstance(max_length, int | np.integer):
            raise InputError(f"max_length is {max_length!r}: it must be a whole number.")
        least = tokenizer.num_special_tokens_to_add(pair=len(self._columns) == 2) + 1
        if max_length is not None and max_length < least:
            raise InputError(
                f"max_length is {max_length}: with the tokenizer's own tokens it must be {least} or more."
            )
        self._rows = np.arange(len(self._table))
        self._inputs: frozenset[str] | None = None
        self._at_the_end = False
        known = tokenizer.model_max_length
        self._limit = (
            max_length if max_length is not None else (known if known < _UNLIMITED else None)
        )

    def suited(self, model: nn.Module) -> Self:
        """Return the same texts with the inputs that ``model`` takes, cut at its limit."""
        whole = _uncompiled(model)
        if isinstance(whole, PreTrainedModel):
            _require_classifier(whole)
            self._require_same_tokens(whole, whole.config.get_text_config())
        theirs = [
            part for part in whole.modules() if isinstance(part, PreTrainedModel)
        ]  # a module may wrap one
        limits = [limit for limit in (self._limit, *map(_longest, theirs)) if limit is not None]
        at_the_end = any(getattr(part.config, "summary_type", None) == "last" for part in theirs)
        return _with(
            self,
            _inputs=_inputs_of(whole),
            _limit=min(limits, default=None),
            _at_the_end=at_the_end,
        )

    def batches(self, size: int) -> Iterator[Mapping[str, Tensor]]:
        """Yield them in order, ``size`` at a time, or fewer where they are long."""
        for start in range(0, len(self), size):
            encoded = self._encoded(self._rows[start : start + size])
            lengths = [len(ids) for ids in encoded["input_ids"]]
            for run in _runs(lengths, _TOKENS_AT_ONCE):
                yield self._padded({name: values[run] for name, values in encoded.items()})

    def together(self) -> Mapping[str, Tensor]:
        """Return all of them as one batch."""
        return self._padded(self._encoded(self._rows))

    def _encoded(self, rows: Numbers) -> dict[str, list[list[int]]]:
        texts = [_texts(column, rows) for column in cells(self._table, self._columns, rows)]
        options = {} if self._limit is None else {"truncation": True, "max_length": self._limit}
        found = self._tokenizer(*texts, padding=False, **options)
        return {
            name: values
            for name, values in found.items()
            if self._inputs is None or name in self._inputs
        }

    def _padded(self, encoded: dict[str, list[list[int]]]) -> dict[str, Tensor]:
        """Return lists of numbers as tensors, filled up on the right, so that a token's position is its own.

        On the left for a model that classifies by what stands at the end, padding or not, as XLNet does.
        """
        fill = {
            "input_ids": self._tokenizer.pad_token_id,
            "token_type_ids": self._tokenizer.pad_token_type_id,
        }
        width = max(
            (1, *map(len, encoded["input_ids"]))
        )  # a text of no token is a token of padding
        filled: dict[str, Tensor] = {}
        for name, values in encoded.items():
            spare = [[fill.get(name, 0)] * (width - len(row)) for row in values]
            pairs = (
                zip(spare, values, strict=True)
                if self._at_the_end
                else zip(values, spare, strict=True)
            )
            filled[name] = torch.tensor([[*first, *second] for first, second in pairs])
        return filled

    def _require_same_tokens(self, model: PreTrainedModel, config: Any) -> None:
        ours, theirs = self._tokenizer.pad_token_id, config.pad_token_id
        if ours != theirs:
            found = (
                "knows no padding token" if theirs is None else f"takes token {theirs} for padding"
            )
            raise InputError(
                f"The tokenizer pads with token {ours}, and this {type(model).__name__} {found}: "
                "set model.config.pad_token_id = tokenizer.pad_token_id."
            )
        if len(self._tokenizer) > config.vocab_size:
            raise InputError(
                f"The tokenizer has {len(self._tokenizer):,} tokens and the model knows {config.vocab_size:,}: load "
                "both from one place."
            )


class Images(_Some):
    """Images as a classifier takes them, in colour or not as it does, processed batch by batch.

    ``teeter.observe(model, Images(table, processor))``, or the pool of a ``teeter.Learner``.
    """

    def __init__(
        self, table: Table | Sequence[Any], processor: BaseImageProcessor, column: str | None = None
    ) -> None:
        """Look at a table's images; nothing is processed yet.

        Args:
            table: of ``datasets``, or a list of Pillow's images or of arrays of bytes.
            processor: the image processor that the classifier was trained with.
            column: the column of images; the only one of them if left out.
        """
        if not isinstance(processor, BaseImageProcessor):
            raise InputError(
                f"The processor is a {type(processor).__name__}: give the model's, by "
                "AutoImageProcessor.from_pretrained."
            )
        self._processor = processor
        self._table, self._columns = columns_of(table, column, "image", "images")
        self._rows = np.arange(len(self._table))
        self._mode = "RGB"

    def suited(self, model: nn.Module) -> Self:
        """Return the same images in the colours that ``model`` takes."""
        whole = _uncompiled(model)
        if not isinstance(whole, PreTrainedModel):
            return self
        _require_classifier(whole)
        return _with(self, _mode="L" if getattr(whole.config, "num_channels", 3) == 1 else "RGB")

    def batches(self, size: int) -> Iterator[Mapping[str, Tensor]]:
        """Yield them in order, ``size`` at a time, at most 32."""
        step = min(size, _IMAGES_AT_ONCE)
        for start in range(0, len(self), step):
            yield self._processed(self._rows[start : start + step])

    def together(self) -> Mapping[str, Tensor]:
        """Return all of them as one batch."""
        return self._processed(self._rows)

    def _processed(self, rows: Numbers) -> dict[str, Tensor]:
        found = cells(self._table, self._columns, rows)[0]
        images = [
            _picture(value, row).convert(self._mode) for row, value in zip(rows, found, strict=True)
        ]
        try:
            return dict(self._processor(images=images, return_tensors="pt"))
        except ValueError as error:
            raise InputError(
                f"The image processor cannot put these images in one batch: {error}"
            ) from None


def _with(rows: Kind, **changes: Any) -> Kind:
    """Return a copy with changes, over the same table."""
    changed = copy.copy(rows)
    vars(changed).update(changes)
    return changed


def _texts(values: Sequence[Any], rows: Numbers) -> list[str]:
    for row, value in zip(rows, values, strict=True):
        if not isinstance(value, str):
            raise InputError(
                f"Text {row} is {value!r}, a {type(value).__name__}: fill such rows in, or drop them."
            )
    return list(values)


def _picture(value: Any, row: int) -> Any:
    """Return an image the right way up, as a camera may have noted."""
    from PIL import Image, ImageOps

    if isinstance(value, np.ndarray) and value.dtype == np.uint8:
        if value.ndim not in (2, 3) or (value.ndim == 3 and value.shape[2] not in (1, 3, 4)):
            raise InputError(
                f"Image {row} is of shape {value.shape}: give (height, width), or (height, width, 3)."
            )
        value = Image.fromarray(value[:, :, 0] if value.shape[2:] == (1,) else value)
    if not isinstance(value, Image.Image):
        raise InputError(
            f"Image {row} is a {type(value).__name__}: give Pillow's images, or arrays of bytes (uint8)."
        )
    if value.mode[0] in "IF":
        raise InputError(
            f"Image {row} has mode {value.mode}, more than 8 bits a pixel, and Pillow would cut all above 255: "
            "scale it to bytes first."
        )
    return ImageOps.exif_transpose(value)


def _runs(lengths: Sequence[int], most: int) -> Iterator[slice]:
    """Yield slices that cover texts of these lengths; rows times the longest stay within ``most`` where they can."""
    start, longest = 0, 0
    for row, length in enumerate(lengths):
        longest = max(longest, length)
        if row > start and (row + 1 - start) * longest > most:
            yield slice(start, row)
            start, longest = row, length
    if lengths:
        yield slice(start, len(lengths))


def _uncompiled(model: nn.Module) -> nn.Module:
    """Return the module that torch.compile was given; any other as it is."""
    whole: nn.Module = getattr(model, "_orig_mod", model)
    return whole


def _inputs_of(model: nn.Module) -> frozenset[str] | None:
    """Return the names of the inputs that a module takes; None where it takes any."""
    named = inspect.signature(model.forward).parameters.values()
    open_ended = any(one.kind is one.VAR_KEYWORD for one in named)
    if open_ended and not isinstance(
        model, PreTrainedModel
    ):  # theirs pass on what they do not name
        return None
    names = frozenset(one.name for one in named)
    if "input_ids" not in names:
        raise InputError(
            f"The forward of {type(model).__name__} takes {', '.join(sorted(names))}: to get Texts, it must take "
            "input_ids (and may take attention_mask)."
        )
    return names


def _require_classifier(model: PreTrainedModel) -> None:
    name, config = type(model).__name__, model.config
    if type(model).__module__.startswith("transformers.") and "Classification" not in name:
        raise InputError(
            f"{name} is no classifier: load it by AutoModelForSequenceClassification, or by "
            "AutoModelForImageClassification for images."
        )
    if config.num_labels < 2:
        raise InputError(
            f"This {name} has one output, a number and not a class: teeter picks rows to classify."
        )
    if config.problem_type == "multi_label_classification":
        raise InputError(f"This {name} gives several labels a row: teeter takes one class a row.")


def _longest(model: PreTrainedModel) -> int | None:
    """Return how many tokens a model has positions for; None where it says nothing."""
    most: int | None = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if most is None or most < 1:
        return None
    places = [
        module
        for name, module in model.named_modules()
        if isinstance(module, nn.Embedding) and name.endswith("position_embeddings")
    ]
    first = max(
        (module.padding_idx + 1 for module in places if module.padding_idx is not None), default=0
    )
    return most - first  # RoBERTa's positions begin after the padding's number
