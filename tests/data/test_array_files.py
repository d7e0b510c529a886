"""Pools and heads in every format, and the sentence for each file that is neither."""

from __future__ import annotations

import json
import tracemalloc
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from teeter.base import arrays
from teeter.base.arrays import as_tensor
from teeter.data.array_files import PoolFile, read_head, read_pool
from teeter.errors import FileError, InputError, UnknownNameError

X = np.arange(12, dtype=np.float32).reshape(4, 3)
W = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.array([1, 2], dtype=np.float32)


def npz(folder: Path, **arrays: Any) -> Path:
    np.savez(folder / "file.npz", **arrays)
    return folder / "file.npz"


def safetensors(folder: Path, metadata: dict[str, str] | None = None, **arrays: Any) -> Path:
    tensors = {name.replace("__", "."): torch.as_tensor(array) for name, array in arrays.items()}
    save_file(tensors, folder / "file.safetensors", metadata=metadata)
    return folder / "file.safetensors"


def parquet(folder: Path, **columns: Any) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet as file

    file.write_table(pyarrow.table(columns), folder / "file.parquet")
    return folder / "file.parquet"


def features_of(pool: PoolFile) -> list[list[float]]:
    assert pool.features is not None
    return as_tensor(pool.features, "features").tolist()


def test_npz(tmp_path: Path) -> None:
    pool = read_pool(
        npz(
            tmp_path,
            features=X,
            ids=np.array(["a", "b", "ä,", "d"]),
            weight=W,
            bias=B,
            classes=[7, 9],
        )
    )

    assert features_of(pool) == X.tolist()
    assert pool.ids == ["a", "b", "ä,", "d"]
    assert pool.head is not None
    assert pool.head.bias is not None
    assert (pool.head.weight.tolist(), pool.head.bias.tolist()) == (W.tolist(), B.tolist())
    assert pool.classes == ("7", "9")


def test_npy_is_mapped_not_copied(tmp_path: Path) -> None:
    np.save(tmp_path / "pool.npy", X)
    pool = read_pool(tmp_path / "pool.npy")
    assert isinstance(pool.features, np.memmap)
    assert pool.features.flags.writeable
    assert features_of(pool) == X.tolist()
    assert pool.ids is None
    assert pool.head is None


def test_safetensors_in_half_precision(tmp_path: Path) -> None:
    pool = read_pool(safetensors(tmp_path, features=torch.as_tensor(X).bfloat16(), id=[5, 6, 7, 8]))
    assert features_of(pool) == X.tolist()
    assert pool.ids == ["5", "6", "7", "8"]


def test_parquet_with_a_column_of_lists(tmp_path: Path) -> None:
    pool = read_pool(
        parquet(tmp_path, features=X.tolist(), id=["a", "b", "c", "d"], other=[1, 2, 3, 4])
    )
    assert features_of(pool) == X.tolist()
    assert pool.ids == ["a", "b", "c", "d"]


def test_parquet_and_csv_with_columns_of_numbers(tmp_path: Path) -> None:
    (tmp_path / "file.csv").write_text("key,a,name,b\n7,0.5,x,1\n8,1.5,y,2\n", encoding="utf-8")
    same = parquet(tmp_path, key=[7, 8], a=[0.5, 1.5], name=["x", "y"], b=[1, 2])
    for path in (tmp_path / "file.csv", same):
        pool = read_pool(path, id_column="key")
        assert features_of(pool) == [[0.5, 1], [1.5, 2]]
        assert pool.ids == ["7", "8"]
        assert pool.notes == ("Left out because they are not numbers: name.",)


def test_the_only_floating_matrix_is_the_features(tmp_path: Path) -> None:
    pool = read_pool(
        npz(
            tmp_path,
            embeddings=X,
            logits=X[:, :2],
            y=np.arange(4),
            pixels=np.ones((4, 9), np.uint8),
        )
    )
    assert features_of(pool) == X.tolist()
    assert np.array_equal(np.asarray(pool.logits), X[:, :2])


def test_logits_alone_are_a_pool(tmp_path: Path) -> None:
    assert read_pool(npz(tmp_path, logits=X, y=np.arange(4))).features is None


def test_arrays_that_are_not_asked_for_are_not_loaded(tmp_path: Path) -> None:
    assert (
        features_of(read_pool(npz(tmp_path, features=X, extra=np.array([{}], dtype=object))))
        == X.tolist()
    )


def test_ids_under_another_name(tmp_path: Path) -> None:
    path = npz(tmp_path, features=X, names=np.array([b"p", b"q", b"r", b"s"]))
    assert read_pool(path, id_column="names").ids == ["p", "q", "r", "s"]
    with pytest.raises(UnknownNameError, match=r"Nothing in .* is called 'nmes'\."):
        read_pool(path, id_column="nmes")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"a": X, "b": X},
            r"holds a \(4, 3\) float32, b \(4, 3\) float32: name the array of candidates",
        ),
        ({"x": X.astype(np.uint8)}, r"holds x \(4, 3\) uint8: name the array"),
        ({}, "holds no array: name the array"),
        (
            {"features": X, "ids": np.array(list("abcd"), dtype=object)},
            "'ids' in .* holds pickled .* a Unicode array",
        ),
        (
            {"features": X, "ids": np.array([1.0, 2, 3, 4])},
            r"holds ids \(4,\) float64: it must be a list of strings or whole numbers",
        ),
        (
            {"features": X, "ids": np.ones((4, 1), int)},
            r"holds ids \(4, 1\) int64: it must be a list of strings",
        ),
        ({"features": X, "ids": np.array(["a", "b"])}, "holds 4 rows and 2 ids"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    tmp_path: Path, arrays: dict[str, Any], message: str
) -> None:
    with pytest.raises(FileError, match=message):
        read_pool(npz(tmp_path, **arrays))


@pytest.mark.parametrize("name", ["ids", "classes"])
def test_texts_that_take_no_byte_in_the_file_do_not_fill_the_memory(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.npz"
    monkeypatch.setattr(arrays, "available_memory", lambda device: 200_000_000)
    empty_texts = BytesIO()
    header = {"descr": "<U0", "fortran_order": False, "shape": (30_000_000,)}
    np.lib.format.write_array_header_1_0(empty_texts, header)
    np.savez(path, features=X)
    with ZipFile(path, "a") as archive:
        archive.writestr(f"{name}.npy", empty_texts.getvalue())

    tracemalloc.start()
    try:
        with pytest.raises(FileError, match=r"4 rows and 30000000 ids|unpacks to 1,800 MB"):
            read_pool(path)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_ids_that_repeat_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"The id '2' in .* is used in row 1 and row 3"):
        read_pool(npz(tmp_path, features=X, ids=[1, 2, 3, 2]))


def test_a_table_without_numbers_is_no_pool(tmp_path: Path) -> None:
    (tmp_path / "file.csv").write_text("a\nx\n", encoding="utf-8")
    with pytest.raises(InputError, match="has no column of numbers"):
        read_pool(tmp_path / "file.csv")


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".safetensors"])
def test_a_damaged_file_is_refused_wherever_it_is_cut(tmp_path: Path, suffix: str) -> None:
    np.save(tmp_path / "file.npy", X)
    npz(tmp_path, features=X)
    safetensors(tmp_path, features=X)
    path = tmp_path / f"file{suffix}"
    content = path.read_bytes()

    for length in [*range(1, len(content), 7), len(content) - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(FileError, match=rf"is not a (valid )?\{suffix} file"):
            read_pool(path)

    path.write_bytes(b"")
    with pytest.raises(FileError, match="is empty: it has 0 bytes"):
        read_pool(path)


@pytest.mark.parametrize("suffix", [".npz", ".npy"])
def test_a_pickle_under_another_name_is_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"file{suffix}"
    path.write_bytes(b"\x80\x04]\x94(K\x01K\x02e.")  # the list [1, 2]
    with pytest.raises(
        FileError, match=f"is not a {suffix} file: it is pickled, damaged or of another type"
    ):
        read_pool(path)


def test_an_array_of_objects_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "file.npy", np.array([1, "a"], dtype=object))
    with pytest.raises(FileError, match="holds pickled Python objects, which teeter never loads"):
        read_pool(tmp_path / "file.npy")


def test_one_format_under_the_name_of_another_is_refused(tmp_path: Path) -> None:
    npz(tmp_path, features=X).rename(tmp_path / "file.npy")
    with pytest.raises(FileError, match=r"is not a \.npy file"):
        read_pool(tmp_path / "file.npy")


@pytest.mark.parametrize(
    "names", [("weight", "bias"), ("coef_", "intercept_"), ("fc.weight", "fc.bias")]
)
def test_a_head_under_its_names(tmp_path: Path, names: tuple[str, str]) -> None:
    head = read_head(
        npz(tmp_path, **{names[0]: W, names[1]: B, "norm.weight": B, "classes": ["no", "yes"]})
    )
    assert head.bias is not None
    assert (head.weight.tolist(), head.bias.tolist(), head.classes) == (
        W.tolist(),
        B.tolist(),
        ("no", "yes"),
    )


def test_a_state_dict_with_class_names_in_the_metadata(tmp_path: Path) -> None:
    head = read_head(
        safetensors(tmp_path, {"classes": json.dumps(["no", "yes"])}, model__fc__weight=W)
    )
    assert (head.weight.tolist(), head.bias, head.classes) == (W.tolist(), None, ("no", "yes"))


def test_a_weight_alone(tmp_path: Path) -> None:
    np.save(tmp_path / "head.npy", W)
    head = read_head(tmp_path / "head.npy")
    assert (head.weight.tolist(), head.bias, head.classes) == (W.tolist(), None, None)


def test_one_row_is_a_binary_head(tmp_path: Path) -> None:
    head = read_head(npz(tmp_path, coef_=W[1:], intercept_=B[1:]))
    assert head.bias is not None
    assert (head.weight.tolist(), head.bias.tolist()) == ([[0, 0, 0], [3, 4, 5]], [0, 2])
    np.save(tmp_path / "head.npy", W[1:])
    assert read_head(tmp_path / "head.npy").weight.tolist() == [[0, 0, 0], [3, 4, 5]]


def test_two_layers_and_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        FileError, match=r"holds 2 layers \(a.weight, b.weight\): save only the last one"
    ):
        read_head(safetensors(tmp_path, a__weight=W, b__weight=W + 1))
    with pytest.raises(FileError, match=r"holds no weight, only w \(2, 3\) float32"):
        read_head(npz(tmp_path, w=W))


def test_class_names_that_are_no_list_are_refused(tmp_path: Path) -> None:
    for classes in ("no, yes", "3", '"no"', '{"no": 1}'):
        with pytest.raises(FileError, match=r"classes in the metadata of .* are not a JSON list"):
            read_head(safetensors(tmp_path, {"classes": classes}, weight=W))


def test_a_head_in_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "head.pt").write_bytes(b"x")
    with pytest.raises(
        FileError, match=r"ends in '.pt': a head must end in .npz, .npy, .safetensors\."
    ):
        read_head(tmp_path / "head.pt")


def test_a_compressed_file_that_fills_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.npz"
    large = np.zeros(110_000_000, dtype=np.uint8)
    np.savez_compressed(path, weight=W, bias=B, large=large)
    np.savez_compressed(tmp_path / "pool.npz", features=X, large=large)
    monkeypatch.setattr(arrays, "available_memory", lambda device: 200_000_000)

    message = "file.npz unpacks to 110 MB in memory, but the limit is 100 MB, half of the free"
    with pytest.raises(FileError, match=message):
        read_head(path)
    # Only what is read counts.
    assert read_pool(tmp_path / "pool.npz").features.shape == (4, 3)
