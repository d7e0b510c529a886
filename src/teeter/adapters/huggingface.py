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
from teeter.models.data import Rows

try:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase
    from transformers.image_processing_utils import BaseImageProcessor

    from teeter.adapters.hf_tables import Table, cells, columns_of, labels_of
except ModuleNotFoundError as error:
    if (error.name or "").split(".")[0] not in ("datasets", "transformers"):
        raise
    raise MissingExtraError("This needs transformers and datasets: pip install 'teeter[hf]'.") from None

__all__ = ["Images", "Texts", "labels_of"]

Kind = TypeVar("Kind", bound=Rows)
Numbers = npt.NDArray[np.int64]

_TOKENS_AT_ONCE = 1 << 14
_IMAGES_AT_ONCE = 32
_UNLIMITED = 1_000_000
"""Tokenizers that know no limit say a number far beyond this."""


class Texts(Rows):
    """Texts, or pairs of them, as a classifier takes them: cut at its limit, padded on the right batch by batch.

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
        least = tokenizer.num_special_tokens_to_add(pair=len(self._columns) == 2) + 1
        if max_length is not None and max_length < least:
            raise InputError(f"max_length is {max_length}: with the tokenizer's own tokens it must be {least} or more.")
        self._rows = np.arange(len(self._table))
        self._inputs: frozenset[str] | None = None
        known = tokenizer.model_max_length
        self._limit = max_length if max_length is not None else (known if known < _UNLIMITED else None)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._rows)

    def take(self, rows: Numbers) -> Self:
        """Return some of them."""
        return _with(self, _rows=self._rows[rows])

    def suited(self, model: nn.Module) -> Self:
        """Return the same texts with the inputs that ``model`` takes, cut at its limit."""
        if not isinstance(model, PreTrainedModel):
            return _with(self, _inputs=_accepted(model))
        _require_classifier(model)
        config = model.config.get_text_config()
        self._require_same_tokens(model, config)
        limits = [limit for limit in (self._limit, _longest(model, config)) if limit is not None]
        return _with(self, _inputs=_named_inputs(model), _limit=min(limits, default=None))

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
        texts = [[_text(value) for value in column] for column in cells(self._table, self._columns, rows)]
        options = {} if self._limit is None else {"truncation": True, "max_length": self._limit}
        found = self._tokenizer(*texts, padding=False, **options)
        return {name: values for name, values in found.items() if self._inputs is None or name in self._inputs}

    def _padded(self, encoded: dict[str, list[list[int]]]) -> dict[str, Tensor]:
        """Return lists of numbers as tensors, filled up on the right, so that a token's position is its own."""
        fill = {"input_ids": self._tokenizer.pad_token_id, "token_type_ids": self._tokenizer.pad_token_type_id}
        width = max((len(ids) for ids in encoded["input_ids"]), default=0)
        return {
            name: torch.tensor([[*row, *[fill.get(name, 0)] * (width - len(row))] for row in values])
            for name, values in encoded.items()
        }

    def _require_same_tokens(self, model: PreTrainedModel, config: Any) -> None:
        ours, theirs = self._tokenizer.pad_token_id, config.pad_token_id
        if ours != theirs:
            found = "knows no padding token" if theirs is None else f"takes token {theirs} for padding"
            raise InputError(
                f"The tokenizer pads with token {ours}, and this {type(model).__name__} {found}: "
                "set model.config.pad_token_id = tokenizer.pad_token_id."
            )
        if len(self._tokenizer) > config.vocab_size:
            raise InputError(
                f"The tokenizer has {len(self._tokenizer):,} tokens and the model knows {config.vocab_size:,}: load "
                "both from one place."
            )


class Images(Rows):
    """Images as a classifier takes them, in colour or not as it does, processed batch by batch.

    ``teeter.observe(model, Images(table, processor))``, or the pool of a ``teeter.Learner``.
    """

    def __init__(self, table: Table | Sequence[Any], processor: BaseImageProcessor, column: str | None = None) -> None:
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

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._rows)

    def take(self, rows: Numbers) -> Self:
        """Return some of them."""
        return _with(self, _rows=self._rows[rows])

    def suited(self, model: nn.Module) -> Self:
        """Return the same images in the colours that ``model`` takes."""
        if not isinstance(model, PreTrainedModel):
            return self
        _require_classifier(model)
        return _with(self, _mode="L" if getattr(model.config, "num_channels", 3) == 1 else "RGB")

    def batches(self, size: int) -> Iterator[Mapping[str, Tensor]]:
        """Yield them in order, ``size`` at a time, at most 32."""
        step = min(size, _IMAGES_AT_ONCE)
        for start in range(0, len(self), step):
            yield self._processed(self._rows[start : start + step])

    def together(self) -> Mapping[str, Tensor]:
        """Return all of them as one batch."""
        return self._processed(self._rows)

    def _processed(self, rows: Numbers) -> dict[str, Tensor]:
        images = [_picture(value).convert(self._mode) for value in cells(self._table, self._columns, rows)[0]]
        try:
            return dict(self._processor(images=images, return_tensors="pt"))
        except ValueError as error:
            raise InputError(f"The image processor cannot put these images in one batch: {error}") from None


def _with(rows: Kind, **changes: Any) -> Kind:
    """Return a copy with changes, over the same table."""
    changed = copy.copy(rows)
    vars(changed).update(changes)
    return changed


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise InputError(f"A text is {value!r}, a {type(value).__name__}: fill such rows in, or drop them.")
    return value


def _picture(value: Any) -> Any:
    from PIL import Image

    if isinstance(value, Image.Image):
        return value
    if isinstance(value, np.ndarray) and value.dtype == np.uint8:
        return Image.fromarray(value)
    raise InputError(f"An image is a {type(value).__name__}: give Pillow's images, or arrays of bytes (uint8).")


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


def _accepted(model: nn.Module) -> frozenset[str] | None:
    """Return the names of the inputs that a module takes; None where it takes any."""
    named = inspect.signature(model.forward).parameters.values()
    return None if any(one.kind is one.VAR_KEYWORD for one in named) else frozenset(one.name for one in named)


def _named_inputs(model: PreTrainedModel) -> frozenset[str]:
    """Return the names of the inputs that one of their models takes; what else it accepts goes elsewhere."""
    return frozenset(inspect.signature(model.forward).parameters)


def _require_classifier(model: PreTrainedModel) -> None:
    name, config = type(model).__name__, model.config
    if type(model).__module__.startswith("transformers.") and "Classification" not in name:
        raise InputError(
            f"{name} is no classifier: load it by AutoModelForSequenceClassification, or by "
            "AutoModelForImageClassification for images."
        )
    if config.num_labels < 2:
        raise InputError(f"This {name} has one output, a number and not a class: teeter picks rows to classify.")
    if config.problem_type == "multi_label_classification":
        raise InputError(f"This {name} gives several labels a row: teeter takes one class a row.")


def _longest(model: PreTrainedModel, config: Any) -> int | None:
    """Return how many tokens a model has positions for; None where it says nothing."""
    most: int | None = getattr(config, "max_position_embeddings", None)
    if most is None or most < 1:
        return None
    places = [
        module
        for name, module in model.named_modules()
        if isinstance(module, nn.Embedding) and name.endswith("position_embeddings")
    ]
    first = max((module.padding_idx + 1 for module in places if module.padding_idx is not None), default=0)
    return most - first  # RoBERTa's positions begin after the padding's number
