"""Read pools and linear heads from .npz, .npy and .safetensors files, and pools from tables.

Nothing is ever unpickled.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import torch
from numpy.lib import format as npy_format
from torch import Tensor

from teeter.base.arrays import Array, as_tensor
from teeter.base.files import parse_errors, require_file, require_unpacked_size
from teeter.base.registry import did_you_mean
from teeter.data.table_columns import parse_numbers
from teeter.data.table_files import TABLE_SUFFIXES, Table, read_table, require_ids
from teeter.errors import FileError, InputError, UnknownNameError

__all__ = [
    "ARRAY_SUFFIXES",
    "Arrays",
    "Head",
    "PoolFile",
    "has_vectors",
    "pool_from_table",
    "read_arrays",
    "read_head",
    "read_pool",
]

ARRAY_SUFFIXES = (".npz", ".npy", ".safetensors")
"""The suffixes of files that ``read_arrays`` reads."""

_ID_NAMES = ("id", "ids")
_HEAD_NAMES = ("weight", "bias", "classes")

# A .npz file is a .zip file of .npy files.
_MAGIC_BYTES = {".npz": b"PK", ".npy": b"\x93NUMPY"}
_PICKLE_ADVICE = "save numbers as a floating-point array and texts as a Unicode array (dtype=str)"

Arrays: TypeAlias = dict[str, Any]
"""NumPy arrays or tensors by name."""


@dataclass(frozen=True, eq=False)
class Head:
    """The last, linear layer of a model."""

    weight: Tensor
    """(C, D)."""
    bias: Tensor | None = None
    """(C,), or None if the layer has none."""
    classes: tuple[str, ...] | None = None
    """The names of the C classes, or None if the file does not name them."""


@dataclass(frozen=True, eq=False)
class PoolFile:
    """The contents of a pool file about its N rows: features, logits or both, and perhaps more."""

    features: Array | None
    """(N, D) features, or (N, ...) inputs of a model if they were asked for."""
    logits: Array | None = None
    """(N, C)."""
    ids: list[str] | None = None
    head: Head | None = None
    classes: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    """Sentences about columns that were left out."""


def read_pool(path: str | Path, *, id_column: str | None = None, raw: bool = False) -> PoolFile:
    """Read a pool from a file of arrays or a table.

    The features are the array called ``features``, or else the only floating-point matrix. In a
    table they are the columns of lists called ``features`` and ``logits``, or else all columns of
    numbers.

    Args:
        path: a .npz, .npy, .safetensors, .csv, .tsv, .txt or .parquet file.
        id_column: the array or column of ids. By default it is ``id`` or ``ids``.
        raw: read the inputs of a model instead of features. They may have any number of axes and
            may be called ``inputs``.

    Raises:
        FileError: if the file cannot be read, or its contents do not fit together.
        UnknownNameError: if there is no ``id_column``.
        InputError: if ids are blank or repeated, or a table has no numbers.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "pool.npz"
        ...     np.savez(path, features=np.eye(2), ids=["a", "b"])
        ...     pool = read_pool(path)
        >>> pool.features.shape, pool.ids
        ((2, 2), ['a', 'b'])
    """
    path = require_file(path, (*ARRAY_SUFFIXES, *TABLE_SUFFIXES), "a pool")
    if path.suffix.lower() in TABLE_SUFFIXES:
        return pool_from_table(read_table(path), id_column=id_column, raw=raw)

    also = []
    if id_column is not None:
        also.append(id_column)
    if raw:
        also.append("inputs")

    arrays = read_arrays(path, also=also)
    if path.suffix.lower() == ".npy":
        arrays = {"features": arrays["array"]}
    if raw:
        arrays = _rename_inputs(arrays)

    ids = None
    id_name = _find_id_name(arrays, id_column, path)
    if id_name is not None:
        _require_list_of_texts(arrays[id_name], id_name, path)

    features = _find_features(arrays, path)
    logits = arrays.get("logits")
    if id_name is not None:
        _require_as_many_ids(arrays[id_name], features, logits, path)
        texts = _texts_from_array(arrays[id_name], path)
        ids = require_ids(texts, str(path))

    head = None
    if "weight" in arrays:
        head = _make_head(arrays, "weight", "bias", path)

    return PoolFile(
        features=features,
        logits=logits,
        ids=ids,
        head=head,
        classes=_read_class_names(arrays, path),
    )


def _require_as_many_ids(
    ids: Array, features: Array | None, logits: Array | None, path: Path
) -> None:
    # ``Outputs`` will compare features and logits with each other. It does not know the ids.
    rows = features
    if features is None:
        rows = logits

    # An array without axes is no pool. ``Outputs`` will refuse it with a better message.
    if rows is None or rows.ndim == 0:
        return
    if len(ids) != len(rows):
        raise FileError(f"{path} holds {len(rows)} rows and {len(ids)} ids: give one id per row.")


def read_head(path: str | Path) -> Head:
    """Read a linear head from a file of arrays.

    The arrays are called ``weight`` and ``bias``, ``coef_`` and ``intercept_`` as in scikit-learn,
    or they are the only linear layer of a PyTorch state dict. A head with a single row of weights
    is a binary one and gets a row of zeros for the first class.

    Raises:
        FileError: if the file cannot be read, or has no head or several layers.
    """
    path = require_file(path, ARRAY_SUFFIXES, "a head")
    arrays = read_arrays(path)
    if path.suffix.lower() == ".npy":
        arrays = {"weight": arrays["array"]}

    for weight_name, bias_name in (("weight", "bias"), ("coef_", "intercept_")):
        if weight_name in arrays:
            return _make_head(arrays, weight_name, bias_name, path)

    # The weight of a normalization layer has one axis, that of a convolution more than two.
    layers = []
    for name, array in arrays.items():
        if name.endswith(".weight") and array.ndim == 2:
            layers.append(name)

    if len(layers) == 1:
        bias_name = layers[0].removesuffix("weight") + "bias"
        return _make_head(arrays, layers[0], bias_name, path)
    if layers:
        raise FileError(
            f"{path} holds {len(layers)} layers ({', '.join(layers)}): save only the last one."
        )

    raise FileError(
        f"{path} holds no weight, only {_describe(arrays)}: name the head's arrays weight and bias."
    )


def read_arrays(path: Path, *, also: Collection[str] = ()) -> Arrays:
    """Read the arrays of a file by name. The array of a .npy file is called ``array``.

    If there is an array called ``features``, only the arrays of a pool are read, because others
    may be large.

    Args:
        path: a file with one of ``ARRAY_SUFFIXES``.
        also: the names of more arrays to read.

    Raises:
        FileError: if the file is damaged or holds pickled objects.
    """
    suffix = path.suffix.lower()
    with parse_errors(path, f"{suffix} file"):
        if suffix == ".safetensors":
            return _read_safetensors(path, also)

        # NumPy would take a file without the magic bytes for a pickle, and say so in its error.
        with path.open("rb") as stream:
            start = stream.read(6)
        if not start.startswith(_MAGIC_BYTES[suffix]):
            raise FileError(
                f"{path} is not a {suffix} file: it is pickled, damaged or of another type."
            )

        if suffix == ".npz":
            return _read_npz(path, also)
        return {"array": _read_npy(path)}


def _read_npy(path: Path) -> Any:
    try:
        # Copy-on-write: writable, so that torch takes it without a copy or a warning.
        return np.load(path, mmap_mode="c", allow_pickle=False)
    except ValueError:
        # NumPy raises it for pickled objects and for damaged files alike.
        with path.open("rb") as stream:
            if _has_object_dtype(stream):
                raise FileError(
                    f"{path} holds pickled Python objects, which teeter never loads: "
                    f"{_PICKLE_ADVICE}."
                ) from None
        raise


def _read_npz(path: Path, also: Collection[str]) -> Arrays:
    arrays = {}
    # A stream of our own, because np.load leaves a file open if it is damaged.
    with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
        names = _names_to_read(file.files, also)
        unpacked_size = 0
        for member in file.zip.infolist():
            # Arrays that are not compressed take no more than the file.
            is_compressed = member.compress_type != zipfile.ZIP_STORED
            if is_compressed and member.filename.removesuffix(".npy") in names:
                unpacked_size += member.file_size
        require_unpacked_size(path, unpacked_size)

        for name in names:
            try:
                array = file[name]
            except ValueError:
                with file.zip.open(f"{name}.npy") as member:
                    if _has_object_dtype(member):
                        raise FileError(
                            f"{name!r} in {path} holds pickled Python objects, which teeter never "
                            f"loads: {_PICKLE_ADVICE}."
                        ) from None
                raise

            # Members that are not in .npy format come as bytes.
            if isinstance(array, np.ndarray):
                arrays[name] = array

    return arrays


def _has_object_dtype(stream: IO[bytes]) -> bool:
    """Return whether the header of a .npy file announces Python objects."""
    version = npy_format.read_magic(stream)
    if version == (1, 0):
        _, _, dtype = npy_format.read_array_header_1_0(stream)
    else:
        _, _, dtype = npy_format.read_array_header_2_0(stream)

    return bool(dtype.hasobject)


def _read_safetensors(path: Path, also: Collection[str]) -> Arrays:
    from safetensors import safe_open

    arrays: Arrays = {}
    with safe_open(path, framework="pt") as file:
        for name in _names_to_read(list(file.keys()), also):
            arrays[name] = file.get_tensor(name)
        metadata = file.metadata() or {}

    # Tensors cannot hold texts, so class names are in the metadata, which holds only texts.
    if "classes" in metadata:
        try:
            names = json.loads(metadata["classes"])
        except ValueError:
            names = None
        if not isinstance(names, list):
            raise FileError(f"The classes in the metadata of {path} are not a JSON list of names.")
        arrays["classes"] = np.array([str(name) for name in names])
    return arrays


def _names_to_read(names: Collection[str], also: Collection[str]) -> list[str]:
    if "features" not in names:
        return list(names)

    wanted = {"features", "logits", *_ID_NAMES, *_HEAD_NAMES, *also}
    return [name for name in names if name in wanted]


def _find_features(arrays: Arrays, path: Path) -> Array | None:
    """Return the array called features, or else the only matrix of floating-point numbers.

    Returns None if there is no such matrix, and logits suffice.
    """
    if "features" in arrays:
        return arrays["features"]  # type: ignore[no-any-return]

    matrices = []
    for name, array in arrays.items():
        if name == "logits" or name in _HEAD_NAMES:
            continue
        # Matrices of whole numbers are more often labels or indices than features.
        if array.ndim == 2 and _is_floating(array):
            matrices.append(array)

    if len(matrices) == 1:
        return matrices[0]  # type: ignore[no-any-return]
    if not matrices and "logits" in arrays:
        return None

    contents = _describe(arrays)
    raise FileError(f"{path} holds {contents}: name the array of candidates 'features'.")


def _rename_inputs(arrays: Arrays) -> Arrays:
    """Return the arrays with the inputs of a model under the name features.

    The inputs are the array called inputs, or else the only array with more than one axis.
    """
    if "inputs" in arrays:
        renamed = dict(arrays)
        renamed["features"] = renamed.pop("inputs")
        return renamed

    if "features" in arrays:
        return arrays

    candidates = []
    for name, array in arrays.items():
        if name == "logits" or name in _HEAD_NAMES:
            continue
        if array.ndim > 1:
            candidates.append(name)

    # ``_find_features`` will say what is there instead.
    if len(candidates) != 1:
        return arrays
    renamed = dict(arrays)
    renamed["features"] = renamed.pop(candidates[0])
    return renamed


def _is_floating(array: Array) -> bool:
    if isinstance(array, Tensor):
        return array.is_floating_point()
    return array.dtype.kind == "f"


def _describe(arrays: Arrays) -> str:
    """List the names, shapes and types of arrays."""
    descriptions = []
    for name, array in arrays.items():
        shape = tuple(array.shape)
        dtype = str(array.dtype).removeprefix("torch.")
        descriptions.append(f"{name} {shape} {dtype}")

    return ", ".join(descriptions) or "no array"


def _find_id_name(names: Mapping[str, object], id_column: str | None, path: Path) -> str | None:
    if id_column is None:
        for name in _ID_NAMES:
            if name in names:
                return name
        return None

    if id_column not in names:
        hint = did_you_mean(id_column, names)
        raise UnknownNameError(f"Nothing in {path} is called {id_column!r}. {hint}")
    return id_column


def _require_list_of_texts(array: Any, name: str, path: Path) -> None:
    # The values of an array have one type, so the first stands for all.
    first = array[:1].tolist()
    is_readable = all(isinstance(value, str | bytes | int) for value in first)
    if array.ndim != 1 or not is_readable:
        raise FileError(
            f"{path} holds {_describe({name: array})}: "
            "it must be a list of strings or whole numbers."
        )


_BYTES_PER_TEXT = 60
"""What a text takes in memory beside its characters. An array of empty ones may take no byte."""


def _texts_from_array(array: Any, path: Path) -> list[str]:
    require_unpacked_size(path, len(array) * _BYTES_PER_TEXT)

    texts = []
    for value in array.tolist():
        if isinstance(value, bytes):
            texts.append(value.decode(errors="replace"))
        else:
            texts.append(str(value))
    return texts


def _make_head(arrays: Arrays, weight_name: str, bias_name: str, path: Path) -> Head:
    weight = as_tensor(arrays[weight_name], weight_name)
    bias = None
    if bias_name in arrays:
        bias = as_tensor(arrays[bias_name], bias_name)

    # A binary head: the single row w stands for the two rows [0; w], since the sigmoid of w.z is
    # the softmax of (0, w.z). A bias of another shape is left for ``Outputs`` to refuse.
    is_binary = weight.ndim == 2 and len(weight) == 1
    has_usual_bias = bias is None or bias.shape == (1,)
    if is_binary and has_usual_bias:
        weight = torch.cat([torch.zeros_like(weight), weight])
        if bias is not None:
            bias = torch.cat([torch.zeros_like(bias), bias])

    return Head(
        weight=weight,
        bias=bias,
        classes=_read_class_names(arrays, path),
    )


def _read_class_names(arrays: Arrays, path: Path) -> tuple[str, ...] | None:
    if "classes" not in arrays:
        return None
    _require_list_of_texts(arrays["classes"], "classes", path)
    return tuple(_texts_from_array(arrays["classes"], path))


def pool_from_table(table: Table, *, id_column: str | None = None, raw: bool = False) -> PoolFile:
    """Return the pool in a table.

    Args:
        table: the table.
        id_column: the column of ids. By default it is ``id`` or ``ids``.
        raw: use the column of lists called ``inputs``, or the only one, as the inputs of a model.

    Returns:
        The columns of lists called ``features`` and ``logits``, or else all columns of numbers
        except the ids as features.

    Raises:
        UnknownNameError: if there is no ``id_column``.
        InputError: if there is no column of numbers, or ids are blank or repeated.
    """
    ids = None
    id_name = _find_id_name(table.columns, id_column, table.path)
    if id_name is not None:
        ids = table.ids(id_name)

    # (N, K) columns, made from lists.
    vectors = {name: column for name, column in table.columns.items() if column.ndim == 2}

    if raw and "inputs" in vectors:
        return PoolFile(vectors["inputs"], ids=ids)
    if raw and len(vectors) == 1 and "features" not in vectors:
        (inputs,) = vectors.values()
        return PoolFile(inputs, ids=ids)

    if has_vectors(table):
        return PoolFile(
            features=vectors.get("features"),
            logits=vectors.get("logits"),
            ids=ids,
        )

    # Without vectors, each column of numbers is one feature.
    numbers = []
    left_out = []
    for name, column in table.columns.items():
        if name == id_name:
            continue

        parsed = parse_numbers(column)
        if parsed is not None and parsed.ndim == 1:
            numbers.append(parsed[:, None])
        else:
            left_out.append(name)

    if not numbers:
        raise InputError(f"{table.path} has no column of numbers to use as features.")

    notes = []
    left_out += table.nested
    if left_out:
        notes.append(f"Left out because they are not numbers: {', '.join(left_out)}.")

    features = np.hstack(numbers).astype(np.float32)  # (N, D)
    return PoolFile(features, ids=ids, notes=tuple(notes))


def has_vectors(table: Table) -> bool:
    """Return whether a table has a column of lists called features or logits."""
    for name in ("features", "logits"):
        column = table.columns.get(name)
        if column is not None and column.ndim == 2:
            return True
    return False
