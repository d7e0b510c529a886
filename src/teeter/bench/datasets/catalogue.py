"""The named datasets: their sizes, their file layouts and how they are split.

To add a dataset:

1. Write a reader if ``formats`` and ``images`` do not read its format. A reader takes the files
   that match each pattern of a layout and returns a ``RawDataset``.
2. Add its class names below, unless its files name them.
3. Add a ``DatasetSpec`` below and list it in ``_SPECS``.
4. Add its download addresses with their MD5 checksums to ``downloads.py``.
5. Add a row to the table in ``docs/how_to/run_the_benchmark.md``.

Another package adds a dataset without touching this file: see ``dataset_from_function``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from teeter.base.registry import Plugins, require_known
from teeter.bench.datasets.formats import (
    CIFAR10_FILES,
    CIFAR100_FILES,
    IDX_FILES,
    ISOLET_DROPPED_COLUMNS,
    SVHN_FILES,
    cifar_reader,
    npz_reader,
    read_idx_files,
    read_isolet_files,
    read_letter_file,
    read_svhn,
    table_reader,
)
from teeter.bench.datasets.images import (
    FOOD101_FIT,
    FOOD101_LAYOUTS,
    IMAGENET_FIT,
    IMAGENET_LAYOUTS,
    TINY_IMAGENET_FIT,
    TINY_IMAGENET_LAYOUTS,
    Fit,
    image_table_layouts,
    resize,
)
from teeter.bench.datasets.locate import Layout, MatchedFiles, locate_files
from teeter.bench.datasets.splits import (
    LabelledRows,
    RawDataset,
    SplitFunction,
    class_indices_from_array,
    letter_split,
    published_split,
    shuffled_split,
    without_columns,
)
from teeter.errors import InputError, PluginError, TeeterError

__all__ = [
    "DatasetSpec",
    "dataset_from_function",
    "find_spec",
    "locate_dataset",
    "names",
    "plugins",
]


@dataclass(frozen=True)
class DatasetSpec:
    """What is known about a dataset before its files are read."""

    name: str
    about: str
    """A few words on its contents."""
    train: int
    """The published number of training rows, including any validation rows."""
    test: int
    """The published number of test rows."""
    shape: tuple[int, ...]
    """The shape of one row: (features,), or (channels, height, width)."""
    classes: tuple[str, ...] | int
    """The class names, or their number if the files name them."""
    layouts: tuple[Layout, ...]
    """The ways it may be stored on disk, in order of preference."""
    split: SplitFunction
    """Divides what was read into training and test rows."""
    folder_names: tuple[str, ...] = ()
    """Other names of its folder, such as the one inside the published archive."""
    unsupported_files: tuple[tuple[str, str], ...] = ()
    """Patterns of files that are not read, each with what they are and what to do instead."""
    keep_bytes: bool = False
    """Whether images in memory stay uint8 until a row is used. float32 takes four times as much."""
    package: str | None = None
    """The package that the dataset comes with, if it needs no files."""

    @property
    def class_count(self) -> int:
        """The number of classes."""
        if isinstance(self.classes, int):
            return self.classes
        return len(self.classes)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The class names, or the indices as texts if only the files name the classes."""
        if isinstance(self.classes, int):
            return tuple(str(index) for index in range(self.classes))
        return self.classes

    @property
    def needs_no_files(self) -> bool:
        """Whether a package brings the rows along."""
        return self.layouts[0].patterns == ()


def find_spec(name: str) -> DatasetSpec:
    """Return the dataset called ``name``. teeter's own datasets come before those of plugins.

    Raises:
        UnknownNameError: if no dataset has that name.
        PluginError: if the plugin that names it cannot be loaded.
    """
    if name in _SPECS:
        return _SPECS[name]

    require_known("dataset", name, names())
    # The entry point names the dataset, whatever its own package calls it.
    spec = plugins.get(name)
    return replace(spec, name=name, package=plugins.package(name))


def names() -> list[str]:
    """Return the names of all datasets: those of the paper in its order, then those of plugins.

    Example:
        >>> names()[:4]
        ['openml-6', 'openml-156', 'openml-44135', 'mnist']
    """
    # A plugin may have the name of one of our datasets. Each name is listed once.
    return list(dict.fromkeys([*_SPECS, *plugins.names()]))


def locate_dataset(
    spec: DatasetSpec, folder: str | Path | None = None
) -> tuple[Layout, MatchedFiles] | None:
    """Return the layout and the files of a dataset, or None if some of them are missing.

    A dataset that comes with a package has a layout without files.
    """
    if spec.needs_no_files:
        return spec.layouts[0], ()

    folder_names = (spec.name, *spec.folder_names)
    return locate_files(folder_names, spec.layouts, folder)


plugins: Plugins[DatasetSpec] = Plugins(
    "dataset",
    "teeter.bench.datasets",
    is_valid=lambda loaded: isinstance(loaded, DatasetSpec),
    expected="what teeter.bench.datasets.dataset_from_function(...) returns",
)
"""Datasets of other packages, from the entry-point group ``teeter.bench.datasets``."""


def _npz_layouts(class_names: Sequence[str] | int, *stems: str) -> tuple[Layout, ...]:
    """Return a layout for each file stem: one .npz file."""
    read = npz_reader(class_names)
    return tuple(Layout((f"{stem}.npz",), read) for stem in stems)


def _openml_layouts(
    openml_id: int,
    openml_name: str,
    class_names: Sequence[str],
    *,
    first_class: int = 0,
    rows: int | None = None,
) -> list[Layout]:
    """Return a layout for each name that a table from OpenML is commonly saved under."""
    read = table_reader(class_names, first_class=first_class, rows=rows)
    stems = (
        f"openml-{openml_id}",
        f"dataset_{openml_id}",
        f"dataset_{openml_id}_{openml_name}",
        openml_name,
    )

    layouts = []
    for stem in stems:
        for suffix in ("arff", "csv", "parquet"):
            pattern = f"{stem}.{suffix}"
            layouts.append(Layout((pattern,), read))
    return layouts


def _image_folder_layouts(
    name: str, class_count: int, folders: Sequence[Layout], fit: Fit
) -> tuple[Layout, ...]:
    """Return the layouts of a dataset that is published as folders of image files."""
    return (
        *_npz_layouts(class_count, name),
        *folders,
        *image_table_layouts("val", class_count, 3, fit, stream=True),
    )


def _read_digits(_: MatchedFiles) -> RawDataset:
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    # The pixels are whole numbers from 0 to 16.
    rows = LabelledRows(pixels / 16, labels.astype("int64"))
    return RawDataset(rows)


# Each tuple is in the order of the class indices.
_DIGIT_CLASSES = tuple("0123456789")
_LETTER_CLASSES = tuple(ascii_uppercase)
_RBF_CLASSES = ("class1", "class2", "class3", "class4", "class5")
_FASHION_CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
_CIFAR10_CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
_CIFAR100_NAMES = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly
    camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile
    cup dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp
    lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom
    oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
    possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake
    spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor
    train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""
_CIFAR100_CLASSES = tuple(_CIFAR100_NAMES.split())

_LETTER = DatasetSpec(
    name="openml-6",
    about="letter recognition: 16 measurements of printed capital letters",
    train=16_000,
    test=4_000,
    shape=(16,),
    classes=_LETTER_CLASSES,
    layouts=(
        *_npz_layouts(_LETTER_CLASSES, "openml-6", "letter"),
        *_openml_layouts(6, "letter", _LETTER_CLASSES),
        Layout(("letter-recognition.data",), read_letter_file),
    ),
    split=letter_split,
    folder_names=("letter",),
)

_RANDOM_RBF = DatasetSpec(
    name="openml-156",
    about="RandomRBF_0_0: synthetic rows around 50 centres; 50,000 of the first 100,000",
    train=40_000,
    test=10_000,
    shape=(10,),
    classes=_RBF_CLASSES,
    layouts=(
        *_npz_layouts(_RBF_CLASSES, "openml-156", "randomrbf"),
        *_openml_layouts(156, "RandomRBF_0_0", _RBF_CLASSES, rows=100_000),
    ),
    # Only the first 100,000 of the 1,000,000 rows, so that a file that stops there gives the same
    # split.
    split=shuffled_split("openml-156", first=100_000, limit=50_000),
    folder_names=("randomrbf",),
)

_ISOLET = DatasetSpec(
    name="openml-44135",
    about="ISOLET: 613 measurements of spoken letters",
    train=6_237,
    test=1_560,
    shape=(613,),
    classes=_LETTER_CLASSES,
    layouts=(
        *_npz_layouts(_LETTER_CLASSES, "openml-44135", "isolet"),
        *_openml_layouts(44135, "isolet", _LETTER_CLASSES, first_class=1),
        Layout(("isolet1+2+3+4.data", "isolet5.data"), read_isolet_files),
    ),
    # The paper has 6,237 training and 1,560 test rows: four fifths of a shuffle. UCI's own split
    # by groups of speakers has 6,238 and 1,559.
    split=without_columns(ISOLET_DROPPED_COLUMNS, 617, shuffled_split("openml-44135", sort=True)),
    folder_names=("isolet",),
    unsupported_files=(
        (
            "isolet*.data.Z",
            "compressed in a format that Python cannot read: decompress it with uncompress",
        ),
    ),
)

_MNIST = DatasetSpec(
    name="mnist",
    about="handwritten digits",
    train=60_000,
    test=10_000,
    shape=(1, 28, 28),
    classes=_DIGIT_CLASSES,
    layouts=(
        *_npz_layouts(_DIGIT_CLASSES, "mnist"),
        Layout(IDX_FILES, read_idx_files, identifies_dataset=False, may_be_gzipped=True),
        *image_table_layouts("test", _DIGIT_CLASSES, 1, partial(resize, side=28), stream=False),
    ),
    split=published_split,
    # torchvision downloads to MNIST/raw.
    folder_names=("MNIST", "MNIST/raw"),
)

_FASHION_MNIST = DatasetSpec(
    name="fashion-mnist",
    about="photographs of clothes",
    train=60_000,
    test=10_000,
    shape=(1, 28, 28),
    classes=_FASHION_CLASSES,
    layouts=(
        *_npz_layouts(_FASHION_CLASSES, "fashion-mnist"),
        Layout(IDX_FILES, read_idx_files, identifies_dataset=False, may_be_gzipped=True),
        *image_table_layouts("test", _FASHION_CLASSES, 1, partial(resize, side=28), stream=False),
    ),
    split=published_split,
    folder_names=("FashionMNIST", "FashionMNIST/raw"),
)

_PICKLE_ADVICE = (
    "a pickle, which teeter never loads: get the binary version of CIFAR, {archive}, or run "
    "teeter bench datasets {name}"
)

_CIFAR10 = DatasetSpec(
    name="cifar10",
    about="small photographs of 10 kinds of animals and vehicles",
    train=50_000,
    test=10_000,
    shape=(3, 32, 32),
    classes=_CIFAR10_CLASSES,
    layouts=(
        *_npz_layouts(_CIFAR10_CLASSES, "cifar10"),
        Layout(CIFAR10_FILES, cifar_reader(label_bytes=1, class_count=10)),
        *image_table_layouts("test", _CIFAR10_CLASSES, 3, partial(resize, side=32), stream=False),
    ),
    split=published_split,
    folder_names=("cifar-10-batches-bin", "cifar-10-batches-py"),
    unsupported_files=(
        ("data_batch_1", _PICKLE_ADVICE.format(archive="cifar-10-binary.tar.gz", name="cifar10")),
    ),
)

_SVHN = DatasetSpec(
    name="svhn",
    about="digits cropped from photographs of house numbers",
    train=73_257,
    test=26_032,
    shape=(3, 32, 32),
    classes=_DIGIT_CLASSES,
    layouts=(
        *_npz_layouts(_DIGIT_CLASSES, "svhn"),
        Layout(SVHN_FILES, read_svhn),
        *image_table_layouts("test", _DIGIT_CLASSES, 3, partial(resize, side=32), stream=False),
    ),
    split=published_split,
)

_CIFAR100 = DatasetSpec(
    name="cifar100",
    about="small photographs of 100 kinds of objects",
    train=50_000,
    test=10_000,
    shape=(3, 32, 32),
    classes=_CIFAR100_CLASSES,
    layouts=(
        *_npz_layouts(_CIFAR100_CLASSES, "cifar100"),
        # Any dataset may have a train.bin.
        Layout(
            CIFAR100_FILES,
            cifar_reader(label_bytes=2, class_count=100),
            identifies_dataset=False,
        ),
        *image_table_layouts("test", _CIFAR100_CLASSES, 3, partial(resize, side=32), stream=False),
    ),
    split=published_split,
    folder_names=("cifar-100-binary", "cifar-100-python"),
    unsupported_files=(
        ("train", _PICKLE_ADVICE.format(archive="cifar-100-binary.tar.gz", name="cifar100")),
    ),
)

_TINY_IMAGENET = DatasetSpec(
    name="tiny-imagenet",
    about="photographs of 200 kinds of objects; the published validation set is the test set",
    train=100_000,
    test=10_000,
    shape=(3, 64, 64),
    classes=200,
    layouts=_image_folder_layouts("tiny-imagenet", 200, TINY_IMAGENET_LAYOUTS, TINY_IMAGENET_FIT),
    # The paper's table lists 90,000 training, 10,000 validation and 10,000 test rows: the published
    # training and validation sets together. Its text takes the test rows from the training set.
    # We follow the table and test on the published validation set, as for ImageNet.
    split=published_split,
    folder_names=("tiny-imagenet-200",),
    keep_bytes=True,
)

_FOOD101 = DatasetSpec(
    name="food101",
    about="photographs of 101 dishes",
    train=75_750,
    test=25_250,
    shape=(3, 75, 75),
    classes=101,
    layouts=_image_folder_layouts("food101", 101, FOOD101_LAYOUTS, FOOD101_FIT),
    split=published_split,
    folder_names=("food-101",),
    keep_bytes=True,
)

_IMAGENET = DatasetSpec(
    name="imagenet",
    about="ILSVRC 2012: photographs of 1,000 kinds of objects; the validation set is the test set",
    train=1_281_167,
    test=50_000,
    shape=(3, 224, 224),
    classes=1_000,
    layouts=_image_folder_layouts("imagenet", 1_000, IMAGENET_LAYOUTS, IMAGENET_FIT),
    split=published_split,
    folder_names=("ILSVRC2012", "imagenet-1k"),
    keep_bytes=True,
)

_DIGITS = DatasetSpec(
    name="digits",
    about="handwritten digits that come with scikit-learn; needs no file",
    train=1_437,
    test=360,
    shape=(64,),
    classes=_DIGIT_CLASSES,
    layouts=(Layout((), _read_digits),),
    split=shuffled_split("digits"),
    package="scikit-learn",
)

_SPECS = {
    spec.name: spec
    for spec in (
        _LETTER,
        _RANDOM_RBF,
        _ISOLET,
        _MNIST,
        _FASHION_MNIST,
        _CIFAR10,
        _SVHN,
        _CIFAR100,
        _TINY_IMAGENET,
        _FOOD101,
        _IMAGENET,
        _DIGITS,
    )
}
"""The datasets by name, in the order in which they are listed."""


def dataset_from_function(
    load: Callable[[], Sequence[Any]],
    *,
    about: str,
    train: int,
    test: int,
    shape: Sequence[int],
    classes: Sequence[str] | int,
) -> DatasetSpec:
    """Return a dataset that a function loads, to be named by an entry point.

    The name of the entry point, in the group ``teeter.bench.datasets``, becomes the dataset's name.

    Args:
        load: returns x_train, y_train, x_test and y_test: arrays of rows, and of class indices
            from 0 or class names.
        about: a few words on its contents.
        train: the number of training rows.
        test: the number of test rows.
        shape: the shape of one row: (features,), or (channels, height, width).
        classes: the class names, or their number.

    Raises:
        InputError: if ``shape`` has neither one nor three axes.

    Example:
        >>> def load():
        ...     return [[0.0], [1.0]], [0, 1], [[2.0]], [1]
        >>> spec = dataset_from_function(
        ...     load, about="two points", train=2, test=1, shape=(1,), classes=["low", "high"]
        ... )
        >>> spec.class_count
        2
    """
    if len(shape) not in (1, 3):
        raise InputError(f"shape is {tuple(shape)}: give (features,) or (channels, height, width).")

    if not isinstance(classes, int):
        classes = tuple(classes)

    def read(_: object) -> RawDataset:
        source = _qualified_name(load)

        try:
            x_train, y_train, x_test, y_test = load()
        except TeeterError:
            raise
        except Exception as error:  # Another package's code may raise anything.
            raise PluginError(
                f"{source} did not return x_train, y_train, x_test and y_test: {error}."
            ) from error

        train = _labelled_rows(x_train, y_train, "y_train", classes, source)
        test = _labelled_rows(x_test, y_test, "y_test", classes, source)
        return RawDataset(train, test)

    return DatasetSpec(
        name=_qualified_name(load),
        about=about,
        train=train,
        test=test,
        shape=tuple(shape),
        classes=classes,
        layouts=(Layout((), read),),
        split=published_split,
    )


def _qualified_name(load: Callable[[], Any]) -> str:
    # A functools.partial or another callable object has no name: use that of its class.
    named = load if inspect.isroutine(load) else type(load)
    return f"{named.__module__}.{named.__qualname__}"


def _labelled_rows(
    rows: Any, labels: Any, labels_name: str, classes: Sequence[str] | int, source: str
) -> LabelledRows:
    # The function stands where messages about files name the path.
    class_indices = class_indices_from_array(labels, labels_name, classes, Path(source))
    if len(rows) != len(class_indices):
        raise PluginError(
            f"{source} returns {len(rows)} rows and {len(class_indices)} labels in {labels_name}: "
            "they must have the same number."
        )

    return LabelledRows(rows, class_indices)
