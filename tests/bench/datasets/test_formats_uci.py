"""Letter, RandomRBF and ISOLET in the formats of OpenML and UCI, and how they are divided."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import torch

from teeter.bench.datasets import load_dataset
from teeter.errors import FileError

RNG = np.random.default_rng(0)
MEASURES = RNG.integers(0, 16, (25, 16))
CAPITALS = ["ABCDEFGHIJKLMNOPQRSTUVWXYZ"[k] for k in RNG.integers(0, 26, 25)]
SPOKEN = RNG.integers(-10_000, 10_001, (30, 617)) / 10_000
SAID = RNG.integers(1, 27, 30)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)  # small files are not of the published size, and that is logged


def letter_arff(path: Path) -> None:
    names = "".join(f"@ATTRIBUTE x{k} integer\n" for k in range(16))
    rows = "".join(
        ",".join(map(str, row)) + f",{c}\n" for row, c in zip(MEASURES, CAPITALS, strict=True)
    )
    path.write_text(f"@RELATION letter\n{names}@ATTRIBUTE class {{A,B,C,Z}}\n@DATA\n{rows}")


def letter_data(path: Path) -> None:
    path.write_text(
        "".join(
            f"{c}," + ",".join(map(str, row)) + "\n"
            for row, c in zip(MEASURES, CAPITALS, strict=True)
        )
    )


def letter_csv(path: Path) -> None:
    head = ",".join([f"x{k}" for k in range(16)] + ["class"])
    rows = "".join(
        ",".join(map(str, row)) + f",{c}\n" for row, c in zip(MEASURES, CAPITALS, strict=True)
    )
    path.write_text(f"{head}\n{rows}")


def letter_parquet(path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {f"x{k}": MEASURES[:, k] for k in range(16)} | {"class": CAPITALS}
    parquet.write_table(pyarrow.table(columns), path)


def letter_npz(path: Path) -> None:
    np.savez(
        path,
        x=MEASURES.astype(np.uint8),
        y=np.array([ord(c) - 65 for c in CAPITALS], dtype=np.uint8),
    )


WAYS = {
    "letter.npz": letter_npz,
    "openml-6.npz": letter_npz,
    "openml-6.arff": letter_arff,
    "dataset_6_letter.arff": letter_arff,
    "openml-6.csv": letter_csv,
    "dataset_6.parquet": letter_parquet,
    "letter-recognition.data": letter_data,
}


@pytest.mark.parametrize("subfolder", ["", "openml-6", "letter"])
@pytest.mark.parametrize("name", WAYS)
def test_letter_is_the_same_from_every_format(tmp_path: Path, name: str, subfolder: str) -> None:
    (tmp_path / subfolder).mkdir(exist_ok=True)
    WAYS[name](tmp_path / subfolder / name)

    split = load_dataset("openml-6", folder=tmp_path)
    assert (len(split.train), len(split.test), split.validation) == (20, 5, None)
    assert split.train.labels.tolist() == [ord(c) - 65 for c in CAPITALS[:20]], (
        "the published order"
    )

    low, high = MEASURES[:20].min(0), MEASURES[:20].max(0)
    scaled = torch.as_tensor((MEASURES - low) / (high - low), dtype=torch.float32)
    torch.testing.assert_close(torch.cat([split.train.inputs, split.test.inputs]), scaled)
    assert split.train.inputs.amin() == 0
    assert split.train.inputs.amax() == 1


def test_a_column_that_never_varies_is_no_division_by_zero(tmp_path: Path) -> None:
    still = MEASURES.copy()
    still[:, 3] = 7
    np.savez(tmp_path / "letter.npz", x=still, y=np.zeros(25, dtype=int))
    split = load_dataset("openml-6", folder=tmp_path)
    assert (split.train.inputs[:, 3] == 0).all()


def isolet_data(folder: Path) -> None:
    lines = [
        ", ".join(f"{v:.4f}" for v in row) + f", {label}.\n"
        for row, label in zip(SPOKEN, SAID, strict=True)
    ]
    (folder / "isolet1+2+3+4.data").write_text("".join(lines[:24]))
    (folder / "isolet5.data").write_text("".join(lines[24:]))


def isolet_arff(folder: Path) -> None:
    features = np.delete(SPOKEN, [577, 578, 579, 584], axis=1)
    names = "".join(f"@ATTRIBUTE f{k} REAL\n" for k in range(613))
    rows = "".join(
        ",".join(map(repr, map(float, row))) + f",'{c}'\n"
        for row, c in zip(features, SAID, strict=True)
    )
    classes = ",".join(f"'{k}'" for k in range(1, 27))
    (folder / "openml-44135.arff").write_text(
        f"@RELATION i\n{names}@ATTRIBUTE class {{{classes}}}\n@DATA\n{rows}"
    )


def isolet_npz(folder: Path) -> None:
    ten_thousandths = np.round(SPOKEN * 10_000).astype(np.int16)
    np.savez(
        folder / "isolet.npz",
        x_e4=ten_thousandths,
        y=(SAID - 1).astype(np.uint8),
        part=np.ones(30, dtype=np.uint8),
    )


@pytest.mark.parametrize("write", [isolet_data, isolet_arff, isolet_npz])
def test_isolet_is_the_same_from_every_format(tmp_path: Path, write: object) -> None:
    write(tmp_path)  # type: ignore[operator]
    split = load_dataset("openml-44135", folder=tmp_path)

    assert split.train.inputs.shape == (24, 613)
    assert split.test.inputs.shape == (6, 613)

    features = np.delete(SPOKEN, [577, 578, 579, 584], axis=1).astype(np.float32)
    order = [
        int(np.abs(features - row.numpy()).sum(1).argmin())
        for row in (*split.train.inputs, *split.test.inputs)
    ]

    assert sorted(order) == list(range(30))
    assert order != list(range(30)), "shuffled"
    assert [*split.train.labels, *split.test.labels] == [SAID[row] - 1 for row in order]


def test_isolet_is_the_same_in_every_order(tmp_path: Path) -> None:
    parts = []
    for order in (np.arange(30), np.argsort(SAID), RNG.permutation(30)):
        np.savez(tmp_path / "isolet.npz", x=SPOKEN[order].astype(np.float32), y=SAID[order] - 1)
        parts.append(load_dataset("openml-44135", folder=tmp_path))
    for other in parts[1:]:
        assert torch.equal(other.train.inputs, parts[0].train.inputs)
        assert (other.test.labels == parts[0].test.labels).all()


def test_numbers_of_classes_count_from_one_unless_there_is_a_nought(tmp_path: Path) -> None:
    rows = "".join(f"{','.join(['0.5'] * 613)},{{}}\n" for _ in range(3))
    head = ",".join([*(f"f{k}" for k in range(613)), "target"])
    seen = {}
    for labels in ((1, 2, 26), (0, 1, 25), ("1.0", "2.0", "26.0"), ("A", "B", "Z")):
        (tmp_path / "openml-44135.csv").write_text(f"{head}\n{rows.format(*labels)}")
        split = load_dataset("openml-44135", folder=tmp_path)
        seen[labels] = sorted([*split.train.labels, *split.test.labels])
    assert all(codes == [0, 1, 25] for codes in seen.values())


def test_random_rbf_takes_the_first_rows_whether_the_file_goes_on_or_not(tmp_path: Path) -> None:
    rows = RNG.normal(size=(100_020, 10)).astype(np.float32)
    labels = RNG.integers(0, 5, 100_020)
    (tmp_path / "long").mkdir()
    (tmp_path / "short").mkdir()
    np.savez(tmp_path / "long" / "openml-156.npz", x=rows, y=labels)
    np.savez(tmp_path / "short" / "randomrbf.npz", x=rows[:100_000], y=labels[:100_000])

    long, short = (
        load_dataset("openml-156", folder=tmp_path / which) for which in ("long", "short")
    )

    assert (len(long.train), len(long.test)) == (40_000, 10_000)
    assert torch.equal(long.train.inputs, short.train.inputs)
    assert torch.equal(long.test.inputs, short.test.inputs)
    assert (long.test.labels == short.test.labels).all()
    assert long.classes == ("class1", "class2", "class3", "class4", "class5")


def test_random_rbf_from_arff(tmp_path: Path) -> None:
    names = "".join(f"@attribute att{k} numeric\n" for k in range(1, 11))
    rows = "".join(f"{','.join([str(k)] * 10)},class{k % 5 + 1}\n" for k in range(10))
    names += "@attribute class {class1,class2,class3,class4,class5}\n"
    (tmp_path / "openml-156.arff").write_text(
        f"@relation 'generators.RandomRBF'\n{names}@data\n{rows}"
    )
    split = load_dataset("openml-156", folder=tmp_path)
    assert (len(split.train), len(split.test)) == (8, 2)
    assert [int(row[0]) % 5 for row in split.train.inputs] == split.train.labels.tolist()


def test_a_split_in_the_file_is_kept(tmp_path: Path) -> None:
    rows = np.zeros((6, 617), dtype=np.float32)
    np.savez(
        tmp_path / "isolet.npz",
        x_train=rows,
        y_train=np.arange(6),
        x_test=rows[:2],
        y_test=[24, 25],
    )
    split = load_dataset("openml-44135", folder=tmp_path)
    assert (split.train.inputs.shape, split.test.inputs.shape) == ((6, 613), (2, 613))
    assert split.test.labels.tolist() == [24, 25]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("letter-recognition.data", "", "has no rows"),
        (
            "letter-recognition.data",
            "A,1,2\nB,1\n",
            "rows of 2 to 3 fields: it is incomplete or damaged",
        ),
        (
            "letter-recognition.data",
            "A,1\n?,1\n",
            r"Row 2 of .* has the unknown class '\?': the classes are A, B to Z",
        ),
        ("letter-recognition.data", "A,one\n", "is not a valid UCI data file"),
        ("letter-recognition.data", "A,1\nB,2\n", r"has rows of shape \(1,\): \(16,\) is needed"),
        ("openml-6.csv", "class\nA\nB\n", "has no column besides the class 'class'"),
        (
            "openml-6.csv",
            "x,class\n1,A\n,B\n",
            "Column 'x' of .* has missing values or values that are not numbers",
        ),
        (
            "openml-6.csv",
            "x,class\n1,A\ntwo,B\n",
            "Column 'x' of .* has missing values or values that are not numbers",
        ),
        ("openml-6.csv", "x,class\n1,A\n2,27\n", "has the unknown class '27'"),
        ("openml-6.csv", "x,class\n1,A\n", "is too small"),
    ],
)
def test_what_is_not_letter_is_one_sentence(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(FileError, match=message):
        load_dataset("openml-6", folder=tmp_path)


def test_packed_files_of_isolet_say_how_to_unpack(tmp_path: Path) -> None:
    (tmp_path / "openml-44135").mkdir()
    (tmp_path / "openml-44135" / "isolet5.data.Z").write_bytes(b"\x1f\x9d")
    with pytest.raises(FileError, match=r"isolet5\.data\.Z is .*uncompress"):
        load_dataset("openml-44135", folder=tmp_path)
