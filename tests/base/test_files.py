"""Files of tensors and a header: what was written comes back, and what cannot be read is
reported in a sentence.
"""

from __future__ import annotations

import errno
import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor, nn

from teeter.base import files
from teeter.base.files import (
    atomic_open,
    load_weights,
    merge_arrays,
    read_state,
    split_arrays,
    write_state,
)
from teeter.errors import FileError, InputError

DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
]
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12).filter(
    lambda name: name != "__metadata__"
)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    numbers = torch.randint(
        0, 99, shape, generator=torch.Generator().manual_seed(draw(st.integers(0, 99)))
    )
    tensor = numbers.to(draw(st.sampled_from(DTYPES)))
    return tensor.T if tensor.ndim == 2 and draw(st.booleans()) else tensor


def are_alike(first: Any, second: Any) -> bool:
    if isinstance(first, Tensor):
        return (
            isinstance(second, Tensor)
            and first.dtype == second.dtype
            and torch.equal(first, second)
        )

    if isinstance(first, np.ndarray):
        return (
            isinstance(second, np.ndarray)
            and first.dtype == second.dtype
            and np.array_equal(first, second)
        )

    return type(first) is type(second) and first == second


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("states")


@given(
    header=st.dictionaries(NAMES, PLAIN, max_size=4),
    held=st.dictionaries(NAMES, tensors(), max_size=4),
)
def test_what_was_written_comes_back(
    folder: Path, header: dict[str, Any], held: dict[str, Tensor]
) -> None:
    header.pop("format", None)
    write_state(folder / "state", header, held)
    again, back = read_state(folder / "state")
    assert again == {"format": files.FORMAT, **header}
    assert back.keys() == held.keys()
    assert all(are_alike(value, back[name]) for name, value in held.items())


@given(
    st.dictionaries(
        NAMES,
        PLAIN | tensors() | tensors().filter(lambda t: t.dtype != torch.bfloat16).map(Tensor.numpy),
    )
)
def test_a_dictionary_of_plain_values_and_arrays_comes_back(
    folder: Path, memory: dict[str, Any]
) -> None:
    header, held = split_arrays(memory, "memory.")
    write_state(folder / "memory", {"memory": header}, {"other": torch.ones(1), **held})
    again, back = read_state(folder / "memory")
    merged = merge_arrays(again["memory"], back, "memory.")
    assert merged.keys() == memory.keys()
    assert all(are_alike(value, merged[name]) for name, value in memory.items())


def test_tensors_that_share_memory_are_written_apart(tmp_path: Path) -> None:
    numbers = torch.arange(6.0)
    write_state(tmp_path / "state", {}, {"whole": numbers, "part": numbers[2:4], "again": numbers})
    _, back = read_state(tmp_path / "state")
    assert back["part"].tolist() == [2, 3]
    assert torch.equal(back["whole"], back["again"])


def test_numbers_of_numpy_are_written_as_pythons_own(tmp_path: Path) -> None:
    write_state(
        tmp_path / "state",
        {"seed": np.int64(3), "share": np.float32(0.5), "on": np.bool_(True)},
        {},
    )
    header, _ = read_state(tmp_path / "state")
    assert (header["seed"], header["share"], header["on"]) == (3, 0.5, True)


@pytest.mark.parametrize("value", [object(), {1, 2}, nn.Linear(1, 1)])
def test_what_cannot_be_written_as_text_is_refused_and_the_old_file_stays(
    tmp_path: Path, value: object
) -> None:
    write_state(tmp_path / "state", {"version": 1}, {})
    with pytest.raises(
        InputError, match=f"Cannot save a {type(value).__name__}: only numbers, strings, lists"
    ):
        write_state(tmp_path / "state", {"memory": {"deep": [value]}}, {})
    assert read_state(tmp_path / "state")[0]["version"] == 1


def test_arrays_of_words_are_refused() -> None:
    with pytest.raises(
        InputError, match="Cannot save 'names': it is an array of <U1, not of numbers"
    ):
        split_arrays({"names": np.array(["a"])}, "")


def test_a_file_is_no_pickle(tmp_path: Path) -> None:
    write_state(tmp_path / "state", {"a": 1}, {"x": torch.ones(3)})
    content = (tmp_path / "state").read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    assert header["x"] == {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}
    assert content[8 + length :] == np.ones(3, dtype="<f4").tobytes()


def no_folder(tmp_path: Path) -> Path:
    return tmp_path / "missing" / "state"


def a_file_for_a_folder(tmp_path: Path) -> Path:
    (tmp_path / "file").write_text("text", encoding="utf-8")
    return tmp_path / "file" / "state"


def a_folder(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder"


@pytest.mark.parametrize("place", [no_folder, a_file_for_a_folder, a_folder])
def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, place: Any) -> None:
    path = place(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(
        FileError, match=r"Cannot save to .*: (No such file|Not a directory|Is a directory)"
    ):
        write_state(path, {}, {"x": torch.ones(1)})
    assert sorted(tmp_path.rglob("*")) == before


def test_a_file_is_replaced_at_once_and_leaves_no_other_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_state(tmp_path / "state", {"version": 1}, {})
    write_state(tmp_path / "state", {"version": 2}, {})
    assert [path.name for path in tmp_path.iterdir()] == ["state"]

    def refuse(part: Path, path: Path) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(FileError, match=r"Cannot save to .*: Permission denied"):
        write_state(tmp_path / "state", {"version": 3}, {})
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
    assert read_state(tmp_path / "state")[0]["version"] == 2


def test_a_full_disk_leaves_the_old_file_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_state(tmp_path / "state", {"version": 1}, {"x": torch.ones(1)})

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileError, match=r"Cannot save to .*: No space left on device"):
        write_state(tmp_path / "state", {"version": 2}, {"x": torch.zeros(1)})
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
    assert read_state(tmp_path / "state")[0]["version"] == 1


def with_header(path: Path, text: str) -> None:
    save_file({"x": torch.ones(2)}, path, metadata={"teeter": text})


def cut_short(path: Path) -> None:
    write_state(path, {"a": 1}, {"x": torch.ones(100)})
    path.write_bytes(path.read_bytes()[:-30])


DAMAGES: dict[str, tuple[Any, str]] = {
    "missing": (lambda path: None, "There is no file"),
    "empty": (lambda path: path.write_bytes(b""), "is not a saved learner, or it is damaged"),
    "text": (
        lambda path: path.write_text("id,label\n1,cat\n" * 9),
        "is not a saved learner, or it is damaged",
    ),
    "cut short": (cut_short, "is not a saved learner, or it is damaged"),
    "a folder": (lambda path: path.mkdir(), "is not a saved learner, or it is damaged"),
    "someone else's": (
        lambda path: save_file({"x": torch.ones(2)}, path),
        "it has no teeter header",
    ),
    "no JSON": (lambda path: with_header(path, "{"), "its header cannot be read"),
    "no dictionary": (lambda path: with_header(path, "[1]"), "its header cannot be read"),
    "no format": (lambda path: with_header(path, "{}"), "its header cannot be read"),
    "an odd format": (
        lambda path: with_header(path, '{"format": "x"}'),
        "its header cannot be read",
    ),
    "newer": (
        lambda path: with_header(path, '{"format": 99}'),
        r"saved by a newer version of teeter \(format 99\): upgrade teeter",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, damage: str) -> None:
    make, message = DAMAGES[damage]
    make(tmp_path / "state")
    with pytest.raises(FileError, match=message) as error:
        read_state(tmp_path / "state")
    assert str(tmp_path / "state") in str(error.value)


def test_weights_go_to_the_network_they_came_from() -> None:
    network = nn.Linear(3, 2)
    other = nn.Linear(3, 2)
    held = {f"model.1.{name}": value for name, value in network.state_dict().items()}
    load_weights(other, {"model.0.weight": torch.zeros(9, 9), **held}, "model.1.")
    assert torch.equal(other.weight, network.weight)
    assert not other.training
    with pytest.raises(
        InputError, match=r"The saved weights do not fit this Linear: pass the model"
    ):
        load_weights(nn.Linear(3, 4), held, "model.1.")


def test_text_is_written_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "text.csv"
    with atomic_open(path, "w") as file:
        file.write("é\n1\r\n")
        assert not path.exists()
    assert path.read_bytes() == b"\xc3\xa9\n1\r\n"


def test_two_writers_of_the_same_file_do_not_meet(tmp_path: Path) -> None:
    path = tmp_path / "shared"
    with atomic_open(path) as first, atomic_open(path) as second:
        first.write(b"one" * 1000)
        second.write(b"two" * 10)
        assert not path.exists()
    assert path.read_bytes() == b"one" * 1000  # the last to end, and whole
    with pytest.raises(TypeError), atomic_open(path) as file:
        file.write("half")  # type: ignore[call-overload]
    assert [path_left.name for path_left in tmp_path.iterdir()] == ["shared"]
    assert path.read_bytes() == b"one" * 1000
