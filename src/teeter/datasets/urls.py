"""The addresses of the published datasets, with their published checksums."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MANUAL_DOWNLOADS", "OPENML_IDS", "REMOTES", "Remote"]


@dataclass(frozen=True)
class Remote:
    """A file to download."""

    url: str
    md5: str | None
    """Its published checksum, or None if none is published."""
    name: str = ""
    """The name to save it under. By default it is the last part of the URL."""

    @property
    def file(self) -> str:
        """The name that the file is saved under."""
        if self.name:
            return self.name
        return self.url.rsplit("/", 1)[-1]

    @property
    def is_archive(self) -> bool:
        """Whether the file is to be unpacked."""
        return self.file.endswith((".tar.gz", ".zip"))


OPENML_IDS = {"openml-6": 6, "openml-156": 156, "openml-44135": 44135}
"""The ids of datasets from OpenML, whose API tells their address and checksum."""

_MNIST_URL = "https://ossci-datasets.s3.amazonaws.com/mnist"
_FASHION_URL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"

REMOTES: dict[str, tuple[Remote, ...]] = {
    "mnist": (
        Remote(f"{_MNIST_URL}/train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        Remote(f"{_MNIST_URL}/train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
        Remote(f"{_MNIST_URL}/t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
        Remote(f"{_MNIST_URL}/t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"),
    ),
    "fashion-mnist": (
        Remote(f"{_FASHION_URL}/train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        Remote(f"{_FASHION_URL}/train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
        Remote(f"{_FASHION_URL}/t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
        Remote(f"{_FASHION_URL}/t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
    ),
    "cifar10": (
        Remote(
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            "c32a1d4ab5d03f1284b67883e8d87530",
        ),
    ),
    "cifar100": (
        Remote(
            "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
            "03b5dce01913d631647c71ecec9e9cb8",
        ),
    ),
    "svhn": (
        Remote(
            "http://ufldl.stanford.edu/housenumbers/train_32x32.mat",
            "e26dedcc434d2e4c54c9b2d4a06d8373",
        ),
        Remote(
            "http://ufldl.stanford.edu/housenumbers/test_32x32.mat",
            "eb5a983be6a315427106f1b164d9cef3",
        ),
    ),
    "tiny-imagenet": (
        Remote(
            "http://cs231n.stanford.edu/tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de"
        ),
    ),
    "food101": (
        Remote(
            "http://data.vision.ee.ethz.ch/cvl/food-101.tar.gz", "85eeb15f3717b99a5da872d97d918f87"
        ),
    ),
}
"""The files of each dataset."""

MANUAL_DOWNLOADS = {
    "imagenet": (
        "ImageNet needs an account at https://image-net.org: download ILSVRC2012_img_train.tar, "
        "ILSVRC2012_img_val.tar and ILSVRC2012_devkit_t12.tar.gz, and unpack them to train/CLASS/, "
        "val/ and ILSVRC2012_devkit_t12/ in {home}"
    ),
}
"""Instructions for datasets that cannot be downloaded automatically."""
