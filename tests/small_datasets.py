"""Small files in the formats that datasets are published in."""

from __future__ import annotations

import gzip
import io
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]


def bytes_of(*shape: int, seed: int = 0) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def write_idx(path: Path, array: Bytes) -> Path:
    content = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def write_mnist(folder: Path, *, packed: bool = True, dot: str = "-") -> tuple[Bytes, Bytes]:
    """Write 12 training and 5 test images; return the pixels of both."""
    suffix = ".gz" if packed else ""
    pixels = bytes_of(12, 28, 28), bytes_of(5, 28, 28, seed=1)
    for stem, images in zip(("train", "t10k"), pixels, strict=True):
        write_idx(folder / f"{stem}-images{dot}idx3-ubyte{suffix}", images)
        write_idx(
            folder / f"{stem}-labels{dot}idx1-ubyte{suffix}",
            (np.arange(len(images)) % 10).astype(np.uint8),
        )
    return pixels


def write_cifar10(folder: Path) -> tuple[Bytes, Bytes]:
    """Write five batches of 4 images and a test batch of 4; return their records."""
    folder.mkdir(parents=True, exist_ok=True)
    records = bytes_of(24, 1 + 3072)
    records[:, 0] %= 10
    for batch, name in enumerate(
        ["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"]
    ):
        (folder / f"{name}.bin").write_bytes(records[4 * batch : 4 * batch + 4].tobytes())
    (folder / "test_batch.bin").write_bytes(records[20:].tobytes())
    return records[:20], records[20:]


def write_cifar100(folder: Path) -> Bytes:
    folder.mkdir(parents=True, exist_ok=True)
    records = bytes_of(9, 2 + 3072)
    records[:, :2] %= np.array([20, 100], dtype=np.uint8)
    (folder / "train.bin").write_bytes(records[:6].tobytes())
    (folder / "test.bin").write_bytes(records[6:].tobytes())
    return records


def write_svhn(folder: Path) -> Bytes:
    from scipy.io import savemat

    folder.mkdir(parents=True, exist_ok=True)
    pixels = bytes_of(32, 32, 3, 7)
    labels = np.array([[1], [10], [9], [10], [2], [3], [4]], dtype=np.uint8)
    savemat(folder / "train_32x32.mat", {"X": pixels[..., :4], "y": labels[:4]})
    savemat(folder / "test_32x32.mat", {"X": pixels[..., 4:], "y": labels[4:]})
    return pixels


def picture(pixels: Bytes, kind: str = "PNG") -> bytes:
    """An encoded picture of (height, width, 3) or (height, width) bytes."""
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, kind)
    return stream.getvalue()


def write_picture(path: Path, *shape: int, seed: int = 0) -> Bytes:
    """Write a picture without loss, whatever its suffix says; return its pixels."""
    pixels = bytes_of(*shape, seed=seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(picture(pixels))
    return pixels


def write_picture_table(path: Path, pictures: list[Any], labels: list[int], **more: Any) -> None:
    """Write a Parquet file as Hugging Face does, in row groups of 2."""
    import pyarrow
    from pyarrow import parquet

    names = more.get("names")
    image = more.get("image", "image")
    label = more.get("label", "label")
    table = pyarrow.table(
        {image: [{"bytes": content, "path": None} for content in pictures], label: labels}
    )
    if names:
        metadata = {"info": {"features": {label: {"names": names, "_type": "ClassLabel"}}}}
        table = table.replace_schema_metadata({"huggingface": json.dumps(metadata)})
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, path, row_group_size=2)


def as_fractions(pixels: Any) -> Any:
    """Return bytes as a float32 tensor of fractions from 0 to 1."""
    import torch

    return torch.as_tensor(np.asarray(pixels), dtype=torch.float32) / 255
