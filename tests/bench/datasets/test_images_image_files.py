"""Datasets of picture files and of Parquet: decoded when asked for, at the right size, with the
right class.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from small_datasets import bytes_of, picture, write_picture, write_picture_table
from teeter import Learner
from teeter.bench.datasets import load_dataset
from teeter.bench.datasets.images import crop_centre, image_pixels, open_image, resize
from teeter.errors import FileError
from teeter.models.inputs import batches, materialize, take_rows
from teeter.models.networks import mlp

Image = pytest.importorskip("PIL.Image")


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


def fractions(pixels: Any) -> torch.Tensor:
    return torch.as_tensor(np.asarray(pixels).transpose(2, 0, 1).copy(), dtype=torch.float32) / 255


def write_tiny(home: Path) -> dict[str, Any]:
    written = {}
    for number, name in enumerate(["n02", "n01"]):
        for place in range(3):
            path = home / "train" / name / "images" / f"{name}_{place}.JPEG"
            written[path.name] = write_picture(path, 64, 64, 3, seed=10 * number + place)
    for place in range(2):
        name = f"val_{place}.JPEG"
        written[name] = write_picture(home / "val" / "images" / name, 64, 64, 3, seed=90 + place)
    annotations = "val_0.JPEG\tn02\t0\t32\t44\t62\nval_1.JPEG\tn01\t52\t55\t57\t59\n"
    (home / "val" / "val_annotations.txt").write_text(annotations)
    return written


@pytest.mark.parametrize(
    "subfolder", ["tiny-imagenet", "tiny-imagenet-200", "tiny-imagenet/tiny-imagenet-200"]
)
def test_tiny_imagenet(tmp_path: Path, subfolder: str) -> None:
    written = write_tiny(tmp_path / subfolder)
    split = load_dataset("tiny-imagenet", folder=tmp_path, validation=1)
    assert split.classes == ("n01", "n02")
    assert split.validation is not None
    assert sorted([*split.train.labels, *split.validation.labels]) == [0, 0, 0, 1, 1, 1]
    assert split.test.labels.tolist() == [1, 0]
    torch.testing.assert_close(split.test.inputs[0], fractions(written["val_0.JPEG"]))
    unsplit = load_dataset("tiny-imagenet", folder=tmp_path).train
    torch.testing.assert_close(unsplit.inputs[4], fractions(written["n02_1.JPEG"]))
    assert unsplit.labels[4] == 1


def test_rows_stream_through_everything_that_takes_data(tmp_path: Path) -> None:
    write_tiny(tmp_path / "tiny-imagenet")
    train = load_dataset("tiny-imagenet", folder=tmp_path).train
    assert [len(batch) for batch in batches(train.inputs, 4)] == [4, 2]
    taken_rows = materialize(take_rows(train.inputs, np.array([5, 0])))
    torch.testing.assert_close(taken_rows, torch.stack([train.inputs[5], train.inputs[0]]))
    assert taken_rows.dtype == torch.float32


@pytest.mark.slow
def test_a_learner_learns_from_pictures_on_disk(tmp_path: Path) -> None:
    write_tiny(tmp_path / "tiny-imagenet")
    split = load_dataset("tiny-imagenet", folder=tmp_path)

    learner = Learner(
        lambda seed: mlp(3 * 64 * 64, 2, seed=seed, hidden=8),
        split.train.inputs,
        "ldm-s",
        classes=2,
    )

    learner.tell([0, 5], split.train.labels[[0, 5]])
    learner.fit()

    assert set(learner.ask(3)) < {1, 2, 3, 4}
    assert 0 <= learner.evaluate(split.test.inputs, split.test.labels).accuracy <= 1


def test_tiny_imagenet_with_its_validation_set_sorted_into_folders(tmp_path: Path) -> None:
    for part in ("train", "val"):
        for name in ("a", "b"):
            write_picture(tmp_path / "tiny-imagenet" / part / name / "1.JPEG", 64, 64, 3)
    assert load_dataset("tiny-imagenet", folder=tmp_path).test.labels.tolist() == [0, 1]
    write_picture(tmp_path / "tiny-imagenet" / "val" / "c" / "1.JPEG", 64, 64, 3)
    with pytest.raises(FileError, match="has a class 'c' that the training folder does not have"):
        load_dataset("tiny-imagenet", folder=tmp_path)


def test_food101(tmp_path: Path) -> None:
    home = tmp_path / "food101" / "food-101"
    (home / "meta").mkdir(parents=True)
    (home / "meta" / "classes.txt").write_text("apple_pie\nwaffles\n")
    (home / "meta" / "train.txt").write_text("apple_pie/1\nwaffles/2\nwaffles/3\n")
    (home / "meta" / "test.txt").write_text("waffles/4\n")
    for name in ("apple_pie/1", "waffles/2", "waffles/3", "waffles/4"):
        write_picture(home / "images" / f"{name}.jpg", 40, 90, 3)

    split = load_dataset("food101", folder=tmp_path)
    assert split.train.labels.tolist() == [0, 1, 1]
    assert split.test.inputs[0].shape == (3, 75, 75)

    (home / "meta" / "test.txt").write_text("soup/4\n")
    with pytest.raises(FileError, match="has the unknown class 'soup'"):
        load_dataset("food101", folder=tmp_path)

    (home / "meta" / "test.txt").write_text("")
    with pytest.raises(FileError, match="is empty"):
        load_dataset("food101", folder=tmp_path)


def write_imagenet(train: Path, test: Path) -> None:
    for name in ("n01", "n02"):
        write_picture(train / name / f"{name}_1.JPEG", 300, 280, 3)
    for number in (1, 2, 3):
        write_picture(test / f"ILSVRC2012_val_0000000{number}.JPEG", 256, 256, 3, seed=number)


def test_imagenet_with_its_development_kit(tmp_path: Path) -> None:
    from scipy.io import savemat

    home = tmp_path / "imagenet"
    write_imagenet(home / "train", home / "val")
    kit = home / "ILSVRC2012_devkit_t12" / "data"
    kit.mkdir(parents=True)
    kinds = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O")]
    savemat(
        kit / "meta.mat", {"synsets": np.array([(1, "n02", "cat"), (2, "n01", "dog")], dtype=kinds)}
    )
    (kit / "ILSVRC2012_validation_ground_truth.txt").write_text("1\n2\n1\n")
    split = load_dataset("imagenet", folder=tmp_path)
    assert split.test.labels.tolist() == [1, 0, 1]
    assert split.train.inputs[0].shape == (3, 224, 224)
    middle = bytes_of(256, 256, 3, seed=2)[16:240, 16:240]
    torch.testing.assert_close(split.test.inputs[1], fractions(middle))
    (kit / "ILSVRC2012_validation_ground_truth.txt").write_text("1\ntwo\n")
    with pytest.raises(FileError, match="is not a valid list of numbers: it is damaged"):
        load_dataset("imagenet", folder=tmp_path)
    (kit / "ILSVRC2012_validation_ground_truth.txt").write_text("1\n2\n")
    with pytest.raises(FileError, match=r"has 3 images and .* has 2 classes"):
        load_dataset("imagenet", folder=tmp_path)


def test_imagenet_with_a_list_of_classes(tmp_path: Path) -> None:
    home = tmp_path / "imagenet"
    write_imagenet(home / "ILSVRC/Data/CLS-LOC/train", home / "ILSVRC/Data/CLS-LOC/val")
    rows = "".join(f"ILSVRC2012_val_0000000{k},n0{k % 2 + 1} 1 2 3 4 \n" for k in (3, 1, 2))
    (home / "LOC_val_solution.csv").write_text(f"ImageId,PredictionString\n{rows}")
    split = load_dataset("imagenet", folder=tmp_path)
    assert split.test.labels.tolist() == [1, 0, 1]
    assert split.test.inputs[2].shape == (3, 224, 224)


def test_a_list_of_classes_with_a_short_row_is_reported(tmp_path: Path) -> None:
    home = tmp_path / "imagenet"
    write_imagenet(home / "ILSVRC/Data/CLS-LOC/train", home / "ILSVRC/Data/CLS-LOC/val")
    rows = "n01 1 2 3 4,ILSVRC2012_val_00000001\nn02 1 2 3 4\n"
    (home / "LOC_val_solution.csv").write_text(f"PredictionString,ImageId\n{rows}")
    with pytest.raises(FileError, match=r"LOC_val_solution\.csv is not a valid CSV file"):
        load_dataset("imagenet", folder=tmp_path)


def test_imagenet_in_folders_of_classes(tmp_path: Path) -> None:
    for part in ("train", "val"):
        write_picture(tmp_path / "imagenet" / part / "n01" / "1.JPEG", 250, 260, 3)
    assert len(load_dataset("imagenet", folder=tmp_path).test) == 1


def test_folders_without_classes_or_pictures(tmp_path: Path) -> None:
    home = tmp_path / "imagenet"
    (home / "train").mkdir(parents=True)
    (home / "val" / "a").mkdir(parents=True)
    with pytest.raises(FileError, match="has no folders in it: one per class is needed"):
        load_dataset("imagenet", folder=tmp_path)
    (home / "train" / "a").mkdir()
    with pytest.raises(FileError, match="has 1 class folders and no image in"):
        load_dataset("imagenet", folder=tmp_path)


def test_a_broken_picture_is_one_sentence_when_it_is_asked_for(tmp_path: Path) -> None:
    write_tiny(tmp_path / "tiny-imagenet")
    path = tmp_path / "tiny-imagenet" / "val" / "images" / "val_0.JPEG"
    path.write_bytes(path.read_bytes()[:-200])
    test = load_dataset("tiny-imagenet", folder=tmp_path).test
    with pytest.raises(FileError, match=r"val_0\.JPEG is not a valid image file"):
        test.inputs[0]
    path.unlink()
    with pytest.raises(FileError, match=r"There is no file .*val_0\.JPEG"):
        test.inputs[0]


@pytest.mark.parametrize(
    ("width", "height"), [(256, 256), (500, 300), (300, 500), (224, 900), (100, 80), (256, 1)]
)
def test_the_middle_is_cut_from_every_proportion(width: int, height: int) -> None:
    cut = crop_centre(Image.new("RGB", (width, height)), 256, 224)
    assert cut.size == (224, 224)


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "CMYK", "1", "LA", "I;16"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_kind_of_picture_has_the_channels_asked_for(mode: str, channels: int) -> None:
    assert image_pixels(Image.new(mode, (9, 5)), partial(resize, side=8), channels).shape == (
        channels,
        8,
        8,
    )


def test_a_picture_too_large_to_be_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 40)
    write_picture(tmp_path / "a.png", 10, 10, 3)
    with pytest.raises(FileError, match="is not a valid image file"):
        open_image(tmp_path / "a.png")


@pytest.mark.parametrize("inside", ["", "data"])
def test_parquet_in_memory(tmp_path: Path, inside: str) -> None:
    pytest.importorskip("pyarrow")
    home = tmp_path / "cifar10" / inside
    pixels = [bytes_of(32, 32, 3, seed=k) for k in range(8)]
    encoded = [picture(image) for image in pixels]
    write_picture_table(home / "train-00000-of-00002.parquet", encoded[:3], [3, 1, 2], image="img")
    write_picture_table(home / "train-00001-of-00002.parquet", encoded[3:6], [9, 0, 1], image="img")
    write_picture_table(home / "test-00000-of-00001.parquet", encoded[6:], [5, 6], image="img")

    split = load_dataset("cifar10", folder=tmp_path)

    assert split.train.labels.tolist() == [3, 1, 2, 9, 0, 1]
    torch.testing.assert_close(
        split.train.inputs, torch.stack([fractions(image) for image in pixels[:6]])
    )
    assert split.classes[0] == "airplane"


def test_parquet_of_grey_pictures_and_of_fine_labels(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    grey = bytes_of(28, 28)
    for part in ("train", "test"):
        write_picture_table(tmp_path / "mnist" / f"{part}-0.parquet", [picture(grey)], [7])
        colour = [picture(bytes_of(32, 32, 3))]
        write_picture_table(
            tmp_path / "cifar100" / f"{part}-0.parquet",
            colour,
            [99],
            image="img",
            label="fine_label",
        )

    digits = load_dataset("mnist", folder=tmp_path)
    torch.testing.assert_close(
        digits.test.inputs, torch.as_tensor(grey, dtype=torch.float32)[None, None] / 255
    )
    assert load_dataset("cifar100", folder=tmp_path).test.labels.tolist() == [99]


def test_parquet_streams_large_datasets_and_tells_their_classes(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    pixels = [bytes_of(75, 75, 3, seed=k) for k in range(5)]
    home = tmp_path / "food101" / "data"
    names = ["pie", "soup"]
    encoded = [picture(image) for image in pixels]

    write_picture_table(
        home / "train-00000-of-00001.parquet", encoded, [0, 1, 1, 0, 1], names=names
    )
    write_picture_table(home / "validation-00000-of-00001.parquet", encoded[:1], [1], names=names)

    split = load_dataset("food101", folder=tmp_path)
    assert split.classes == ("pie", "soup")
    assert split.train.labels.tolist() == [0, 1, 1, 0, 1]
    for row in (4, 0, 3, -1):
        torch.testing.assert_close(split.train.inputs[row], fractions(pixels[row]))
    assert materialize(split.train.inputs).shape == (5, 3, 75, 75)


def test_parquet_of_another_kind(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    home = tmp_path / "mnist"
    write_picture_table(home / "test-0.parquet", [picture(bytes_of(28, 28))], [7])
    parquet.write_table(pyarrow.table({"pixels": [1], "label": [2]}), home / "train-0.parquet")
    with pytest.raises(FileError, match="has the columns pixels, label: a column of images"):
        load_dataset("mnist", folder=tmp_path)
    write_picture_table(home / "train-0.parquet", [b"no picture"], [7])
    with pytest.raises(FileError, match="is not a valid image file"):
        load_dataset("mnist", folder=tmp_path)
    write_picture_table(home / "train-0.parquet", [picture(bytes_of(28, 28))], [10])
    with pytest.raises(FileError, match="must hold class indices from 0 to 9"):
        load_dataset("mnist", folder=tmp_path)
    (home / "train-0.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(FileError, match="is not a valid Parquet file"):
        load_dataset("mnist", folder=tmp_path)
