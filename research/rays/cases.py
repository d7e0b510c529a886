"""Pools on which the estimates of subspace rays are compared with those of isotropic rays.

Features of trained networks, features that no network made, and shapes that are hard for estimates
in a subspace. Data comes from the folder that ``TEETER_DATA`` names; what takes long is kept as
``.npz`` files in a cache folder.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

import teeter
from teeter.encoders import encode_texts
from teeter.models.networks import k_cnn, mlp, s_cnn
from teeter.training import FitJob, TrainingConfig, fit_jobs

Features = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]

ROWS = 4_000

SENTENCES_FILE = "banking77_minilm.npz"
"""Embeddings of Banking77 in the cache folder, written by ``encode_sentences.py``."""


@dataclass(frozen=True, eq=False)
class Pool:
    """Features and the head that predicts from them."""

    features: Tensor
    """(N, D)."""
    weight: Tensor
    """(C, D)."""
    bias: Tensor | None
    """(C,) or None."""

    def to(self, device: torch.device) -> Pool:
        """Return the pool on another device."""
        bias = None
        if self.bias is not None:
            bias = self.bias.to(device)
        return Pool(self.features.to(device), self.weight.to(device), bias)


@dataclass(frozen=True)
class Folders:
    """Where datasets are, and where pools are kept."""

    data: Path
    cache: Path


@dataclass(frozen=True)
class CaseSpec:
    """A named pool."""

    name: str
    kind: str
    """``"network"``, ``"features"`` or ``"shape"``."""
    make: Callable[[Folders], Pool]


def load_pool(spec: CaseSpec, folders: Folders) -> Pool:
    """Return the pool of a case, from the cache if it is there."""
    file_name = spec.name.replace(" ", "_").replace(",", "")
    path = folders.cache / f"{file_name}.npz"
    if path.exists():
        with np.load(path) as arrays:
            tensors = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
        return Pool(tensors["features"], tensors["weight"], tensors.get("bias"))

    pool = spec.make(folders)
    arrays_by_name = {"features": pool.features.numpy(), "weight": pool.weight.numpy()}
    if pool.bias is not None:
        arrays_by_name["bias"] = pool.bias.numpy()
    folders.cache.mkdir(parents=True, exist_ok=True)
    np.savez(path, **arrays_by_name)  # type: ignore[arg-type]  # its stub takes them for flags
    return pool


# Networks of the paper


def _train(
    network: nn.Module, inputs: Features, labels: Labels, *, labelled: int, epochs: int = 100
) -> Pool:
    """Train on the first rows of a fixed shuffle, and return the next rows as a pool."""
    order = np.random.default_rng(0).permutation(len(inputs))
    train = order[:labelled]
    candidates = order[labelled : labelled + ROWS]

    config = TrainingConfig(epochs=epochs, batch_size=32)
    job = FitJob(network, torch.from_numpy(inputs[train]), torch.from_numpy(labels[train]), seed=0)
    (result,) = fit_jobs([job], config)
    if result.error is not None:
        raise result.error

    outputs = teeter.observe(result.model, inputs[candidates], needs=("features", "head"))
    return _pool_of(outputs)


def _pool_of(outputs: teeter.Outputs) -> Pool:
    if outputs.features is None or outputs.weight is None:
        raise TypeError("The outputs have no features or no head.")
    return Pool(outputs.features, outputs.weight, outputs.bias)


def _letter(folders: Folders) -> Pool:
    with np.load(folders.data / "letter.npz") as arrays:
        inputs = arrays["x"].astype(np.float32) / 15
        labels = arrays["y"].astype(np.int64)
    return _train(mlp(16, 26), inputs, labels, labelled=2_000)


def _isolet(folders: Folders) -> Pool:
    with np.load(folders.data / "isolet.npz") as arrays:
        columns = arrays["openml44135_columns"]
        inputs = arrays["x_e4"][:, columns].astype(np.float32) / 10_000
        labels = arrays["y"].astype(np.int64)
    return _train(mlp(inputs.shape[1], 26), inputs, labels, labelled=1_000)


def _random_rbf(folders: Folders) -> Pool:
    with np.load(folders.data / "randomrbf.npz") as arrays:
        inputs = arrays["x"]
        labels = arrays["y"].astype(np.int64)
    return _train(mlp(10, int(labels.max()) + 1), inputs, labels, labelled=1_000)


def _mnist_images(folders: Folders) -> tuple[Features, Labels]:
    with np.load(folders.data / "mnist.npz") as arrays:
        images = arrays["x_train"][:6_000].astype(np.float32) / 255
        labels = arrays["y_train"][:6_000].astype(np.int64)
    return images[:, None], labels


def _mnist_s_cnn(folders: Folders) -> Pool:
    images, labels = _mnist_images(folders)
    return _train(s_cnn(1, 28, 10), images, labels, labelled=500, epochs=50)


def _mnist_k_cnn(folders: Folders) -> Pool:
    images, labels = _mnist_images(folders)
    return _train(k_cnn(1, 28, 10), images, labels, labelled=500, epochs=30)


def _digits(folders: Folders) -> Pool:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    inputs = bunch.data.astype(np.float32) / 16
    return _train(mlp(64, 10), inputs, bunch.target.astype(np.int64), labelled=200)


def _banking77(folders: Folders) -> tuple[list[str], Labels]:
    with lzma.open(folders.data / "banking77.json.xz", "rt", encoding="utf-8") as file:
        rows = json.load(file)["train"]
    order = np.random.default_rng(0).permutation(len(rows))
    texts = [rows[k][0] for k in order]
    labels = np.array([rows[k][1] for k in order], dtype=np.int64)
    return texts, labels


def _banking77_mlp(folders: Folders) -> Pool:
    texts, labels = _banking77(folders)
    return _train(mlp(256, 77), encode_texts(texts), labels, labelled=2_000, epochs=40)


# Features that no network was trained for


def _fit_head(features: Features, labels: Labels, *, labelled: int) -> Pool:
    """Fit a logistic regression to the first rows, and return the next rows as a pool."""
    from sklearn.linear_model import LogisticRegression

    head = LogisticRegression(C=10.0, max_iter=1_000)
    head.fit(features[:labelled], labels[:labelled])
    outputs = teeter.observe(head, features[labelled : labelled + ROWS], needs=("features", "head"))
    pool = _pool_of(outputs)
    return Pool(pool.features.float(), pool.weight.float(), pool.bias)


def _tfidf(folders: Folders) -> Pool:
    texts, labels = _banking77(folders)
    return _fit_head(encode_texts(texts), labels, labelled=2_000)


def _whitened_tfidf(folders: Folders) -> Pool:
    texts, labels = _banking77(folders)
    features = encode_texts(texts)
    features = (features - features.mean(axis=0)) / features.std(axis=0)
    return _fit_head(features, labels, labelled=2_000)


def _sentences(folders: Folders) -> Pool:
    with np.load(folders.cache / SENTENCES_FILE) as arrays:
        features = arrays["features"]
    _, labels = _banking77(folders)
    return _fit_head(features, labels, labelled=2_000)


def _two_classes(folders: Folders) -> Pool:
    with lzma.open(folders.data / "sms_spam.tsv.xz", "rt", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t", 1) for line in file if line.strip()]
    labels = np.array([label == "spam" for label, _ in rows], dtype=np.int64)
    return _fit_head(encode_texts([text for _, text in rows]), labels, labelled=500)


def _white_noise(width: int, classes: int, rows: int = ROWS) -> Pool:
    """Return Gaussian features under a head of random weights: the flattest spectrum."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(rows, width, generator=generator)
    weight = torch.randn(classes, width, generator=generator)
    return Pool(features, weight, torch.randn(classes, generator=generator))


# Shapes


def _duplicated(folders: Folders) -> Pool:
    pool = _letter(folders)
    half = pool.features[: ROWS // 2]
    return Pool(torch.cat([half, half]), pool.weight, pool.bias)


def _few_rows(folders: Folders) -> Pool:
    pool = _letter(folders)
    return Pool(pool.features[:12], pool.weight, pool.bias)


def _double_precision(folders: Folders) -> Pool:
    pool = _letter(folders)
    if pool.bias is None:
        raise TypeError("The network has a bias.")
    return Pool(pool.features.double(), pool.weight.double(), pool.bias.double())


CASES = (
    CaseSpec("letter, MLP", "network", _letter),
    CaseSpec("ISOLET, MLP", "network", _isolet),
    CaseSpec("RandomRBF, MLP", "network", _random_rbf),
    CaseSpec("digits, MLP", "network", _digits),
    CaseSpec("Banking77, MLP", "network", _banking77_mlp),
    CaseSpec("MNIST, S-CNN", "network", _mnist_s_cnn),
    CaseSpec("MNIST, K-CNN", "network", _mnist_k_cnn),
    CaseSpec("Banking77, TF-IDF and SVD", "features", _tfidf),
    CaseSpec("Banking77, whitened", "features", _whitened_tfidf),
    CaseSpec("Banking77, sentence embeddings", "features", _sentences),
    CaseSpec("SMS spam, two classes", "features", _two_classes),
    CaseSpec("Gaussian, 10 classes", "features", lambda folders: _white_noise(512, 10)),
    CaseSpec("Gaussian, 1000 classes", "features", lambda folders: _white_noise(256, 1_000, 2_000)),
    CaseSpec("fewer features than dimensions", "shape", lambda folders: _white_noise(8, 10)),
    CaseSpec("twelve rows", "shape", _few_rows),
    CaseSpec("every row twice", "shape", _duplicated),
    CaseSpec("float64", "shape", _double_precision),
)
