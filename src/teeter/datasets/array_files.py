"""A pool of arrays and a linear head, from .npz, .npy, .safetensors and tables. Nothing is ever unpickled."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from teeter.arrays import Array, as_tensor
from teeter.datasets.file_checks import parse_errors, require_file
from teeter.datasets.table_features import numbers_in
from teeter.datasets.table_files import TABLES, Table, read_table, require_ids
from teeter.errors import FileError, InputError, UnknownNameError
from teeter.registry import did_you_mean

__all__ = [
    "ARRAYS",
    "Arrays",
    "Head",
    "PoolFile",
    "has_vectors",
    "pool_of_table",
    "read_arrays",
    "read_head",
    "read_pool",
]

ARRAYS = (".npz", ".npy", ".safetensors")
"""The suffixes of files of arrays."""

_HEAD = ("weight", "bias", "classes")
_PLAIN = "save numbers as a floating array and texts as a unicode array (dtype=str)"
_MAGIC = {".npz": b"PK", ".npy": b"\x93NUMPY"}

Arrays: TypeAlias = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Head:
    """A linear head: weight (C, D), bias (C,) if it has one, and the names of its classes if they are known."""

    weight: Tensor
    bias: Tensor | None = None
    classes: tuple[str, ...] | None = None


@dataclass(frozen=True, eq=False)
class PoolFile:
    """What a file tells of N rows: features (N, D) or logits (N, C) or both, and perhaps ids, head and classes."""

    features: Array | None
    logits: Array | None = None
    ids: list[str] | None = None
    head: Head | None = None
    classes: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()


def read_pool(path: str | Path, *, id_column: str | None = None, raw: bool = False) -> PoolFile:
    """Return the pool in a file; ``id_column`` names the array or column of ids, else it is ``id`` or ``ids``.

    Where ``raw``, what stands for the features are a model's inputs, (N, ...), which may be called ``inputs``.
    """
    path = require_file(path, (*ARRAYS, *TABLES), "a pool")
    if path.suffix.lower() in TABLES:
        return pool_of_table(read_table(path), id_column=id_column, raw=raw)
    arrays = read_arrays(path, id_column, "inputs" if raw else None)
    if path.suffix.lower() == ".npy":
        arrays = {"features": arrays["array"]}
    if raw:
        arrays = _inputs_first(arrays)
    id_name = _id_name(arrays, id_column, path)
    ids = None if id_name is None else _texts(arrays[id_name], id_name, path)
    features = _features_in(arrays, path)
    logits = arrays.get("logits")
    _require_one_a_row(ids, features if features is not None else logits, path)
    head = _head(arrays, "weight", "bias", path) if "weight" in arrays else None
    checked = None if ids is None else require_ids(ids, str(path))
    return PoolFile(features, logits, checked, head, _class_names(arrays, path))


def read_head(path: str | Path) -> Head:
    """Return the linear head in a file: weight and bias, coef_ and intercept_, or the one layer of a state dict."""
    path = require_file(path, ARRAYS, "a head")
    arrays = read_arrays(path)
    if path.suffix.lower() == ".npy":
        arrays = {"weight": arrays["array"]}
    for weight, bias in (("weight", "bias"), ("coef_", "intercept_")):
        if weight in arrays:
            return _head(arrays, weight, bias, path)
    layers = [
        name for name, array in arrays.items() if name.endswith(".weight") and array.ndim == 2
    ]
    if len(layers) == 1:
        return _head(arrays, layers[0], layers[0].removesuffix("weight") + "bias", path)
    if layers:
        raise FileError(
            f"{path} holds {len(layers)} layers ({', '.join(layers)}): save the last one alone."
        )
    raise FileError(
        f"{path} holds no weight, only {_described(arrays)}: name the head's arrays weight and bias."
    )


def read_arrays(path: Path, *also: str | None) -> Arrays:
    """Return the arrays of a file by name, ``also`` some that pools do not have; that of a .npy is called ``array``."""
    suffix = path.suffix.lower()
    with parse_errors(path, suffix):
        if suffix == ".safetensors":
            return _read_safetensors(path, also)
        with path.open("rb") as stream:
            if not stream.read(6).startswith(_MAGIC[suffix]):
                raise FileError(
                    f"{path} is not a {suffix} file: it is pickled, damaged or something else."
                )
        return _read_npz(path, also) if suffix == ".npz" else {"array": _read_npy(path)}


def _read_npy(path: Path) -> Any:
    try:
        return np.load(
            path, mmap_mode="c", allow_pickle=False
        )  # private and writable, so torch need not copy it
    except ValueError as error:
        if "Python objects" in str(error):
            raise FileError(
                f"{path} holds pickled Python objects, which teeter never loads: {_PLAIN}."
            ) from None
        raise


def _read_npz(path: Path, also: Collection[str | None]) -> Arrays:
    arrays = {}
    with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
        for name in _wanted(file.files, also):
            try:
                array = file[name]
            except ValueError as error:
                if "allow_pickle" not in str(error):
                    raise
                raise FileError(
                    f"{name!r} in {path} is pickled Python objects, which teeter never loads: {_PLAIN}."
                ) from None
            if isinstance(array, np.ndarray):
                arrays[name] = array
    return arrays


def _read_safetensors(path: Path, also: Collection[str | None]) -> Arrays:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        names = list(file.keys())
        arrays: Arrays = {name: file.get_tensor(name) for name in _wanted(names, also)}
        metadata = file.metadata() or {}
    if "classes" in metadata:
        arrays["classes"] = np.array(_json_list(metadata["classes"], path))
    return arrays


def _json_list(text: str, path: Path) -> list[str]:
    try:
        names = json.loads(text)
    except ValueError:
        names = None
    if not isinstance(names, list):
        raise FileError(f"The classes in the metadata of {path} are not a JSON list of names.")
    return [str(name) for name in names]


def _wanted(names: Collection[str], also: Collection[str | None]) -> list[str]:
    """Return the names to load: all, unless it is plain where the features are."""
    known = {"features", "logits", "id", "ids", *_HEAD, *also}
    return [name for name in names if name in known or "features" not in names]


def _features_in(arrays: Arrays, path: Path) -> Array | None:
    """Return the array called features, or the only matrix of floating numbers."""
    if "features" in arrays:
        return arrays["features"]  # type: ignore[no-any-return]
    others = {name: array for name, array in arrays.items() if name not in ("logits", *_HEAD)}
    matrices = [array for array in others.values() if array.ndim == 2 and _is_floating(array)]
    if len(matrices) == 1:
        return matrices[0]  # type: ignore[no-any-return]
    if "logits" in arrays and not matrices:
        return None
    raise FileError(f"{path} holds {_described(arrays)}: name the array to pick from features.")


def _inputs_first(arrays: Arrays) -> Arrays:
    """Return arrays with a model's inputs as features: those called inputs, or else the only ones of several axes."""
    if "inputs" in arrays:
        return {
            **{name: array for name, array in arrays.items() if name != "inputs"},
            "features": arrays["inputs"],
        }
    some = [
        name for name, array in arrays.items() if array.ndim > 1 and name not in ("logits", *_HEAD)
    ]
    if "features" in arrays or len(some) != 1:
        return arrays
    return {name if name != some[0] else "features": array for name, array in arrays.items()}


def _is_floating(array: Array) -> bool:
    return array.is_floating_point() if isinstance(array, Tensor) else array.dtype.kind == "f"


def _described(arrays: Arrays) -> str:
    each = [
        f"{name} {tuple(array.shape)} {str(array.dtype).removeprefix('torch.')}"
        for name, array in arrays.items()
    ]
    return ", ".join(each) or "no array"


def _id_name(names: Mapping[str, object], id_column: str | None, path: Path) -> str | None:
    if id_column is None:
        return next((name for name in ("id", "ids") if name in names), None)
    if id_column not in names:
        raise UnknownNameError(
            f"Nothing in {path} is called {id_column!r}. {did_you_mean(id_column, names)}"
        )
    return id_column


def _texts(array: Any, name: str, path: Path) -> list[str]:
    values = array.tolist()
    if array.ndim != 1 or not all(isinstance(value, str | bytes | int) for value in values[:1]):
        raise FileError(
            f"{path} holds {_described({name: array})}: a list of texts or whole numbers is needed there."
        )
    return [
        value.decode(errors="replace") if isinstance(value, bytes) else str(value)
        for value in values
    ]


def _require_one_a_row(ids: list[str] | None, rows: Array | None, path: Path) -> None:
    if ids is not None and rows is not None and rows.ndim and len(ids) != len(rows):
        raise FileError(f"{path} holds {len(rows)} rows and {len(ids)} ids: one a row is needed.")


def _head(arrays: Arrays, weight_name: str, bias_name: str, path: Path) -> Head:
    weight = as_tensor(arrays[weight_name], weight_name)
    bias = as_tensor(arrays[bias_name], bias_name) if bias_name in arrays else None
    if (
        weight.ndim == 2 and len(weight) == 1 and (bias is None or bias.shape == (1,))
    ):  # binary: w stands for [0; w]
        weight = torch.cat([torch.zeros_like(weight), weight])
        bias = None if bias is None else torch.cat([torch.zeros_like(bias), bias])
    return Head(weight, bias, _class_names(arrays, path))


def _class_names(arrays: Arrays, path: Path) -> tuple[str, ...] | None:
    return tuple(_texts(arrays["classes"], "classes", path)) if "classes" in arrays else None


def pool_of_table(table: Table, *, id_column: str | None = None, raw: bool = False) -> PoolFile:
    """Return the columns of lists called features and logits, or else all columns of numbers but the ids.

    Where ``raw``, the only column of lists or the one called inputs stands for the features.
    """
    id_name = _id_name(table.columns, id_column, table.path)
    ids = None if id_name is None else table.ids(id_name)
    lists = [name for name, column in table.columns.items() if column.ndim == 2]
    if raw and ("inputs" in lists or (lists and "features" not in lists and len(lists) == 1)):
        return PoolFile(table.columns["inputs" if "inputs" in lists else lists[0]], ids=ids)
    if has_vectors(table):
        vectors = {name: column for name, column in table.columns.items() if column.ndim == 2}
        return PoolFile(vectors.get("features"), vectors.get("logits"), ids)
    read = {name: numbers_in(column) for name, column in table.columns.items() if name != id_name}
    numbers = [
        column[:, None] for column in read.values() if column is not None and column.ndim == 1
    ]
    if not numbers:
        raise InputError(f"{table.path} has no column of numbers to serve as features.")
    others = [
        *(name for name, column in read.items() if column is None or column.ndim > 1),
        *table.nested,
    ]
    notes = (f"Left out, not being numbers: {', '.join(others)}.",) if others else ()
    return PoolFile(np.hstack(numbers).astype(np.float32), ids=ids, notes=notes)


def has_vectors(table: Table) -> bool:
    """Tell whether a table holds a column of lists called features or logits."""
    return any(
        name in table.columns and table.columns[name].ndim == 2 for name in ("features", "logits")
    )
