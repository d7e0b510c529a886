"""A model in one file: read back it answers the same, whatever rows come together; a file that
holds none is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import teeter
from teeter.base.files import read_state, write_state
from teeter.errors import FileError, InputError, UnknownNameError
from teeter.models.model_files import file_digest, read_model, save_model
from teeter.models.networks import build_network

NETWORKS = [
    ("linear", (5,), {}),
    ("mlp", (20,), {}),
    ("mlp", (2, 5, 3), {"hidden": 17, "dropout": 0.5}),
    ("s-cnn", (1, 12, 12), {}),
    ("k-cnn", (3, 16, 16), {}),
    pytest.param("resnet-18", (2, 16, 16), {}, marks=pytest.mark.slow),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A small network's file."""
    path = tmp_path / "model.safetensors"
    teeter.save_model(path, build_network("mlp", (20,), 4, seed=3), "mlp", shape=(20,), classes=4)
    return path


@pytest.mark.parametrize(("name", "shape", "options"), NETWORKS, ids=lambda value: str(value))
def test_what_is_read_is_what_was_written(
    name: str, shape: tuple[int, ...], options: dict[str, Any], tmp_path: Path
) -> None:
    network = build_network(name, shape, 4, seed=3, **options)
    network.train()
    save_model(
        tmp_path / "m.safetensors",
        network,
        name,
        shape=shape,
        classes=["a", "b", "c", "d"],
        **options,
    )

    assert network.training
    model = read_model(tmp_path / "m.safetensors")
    assert (model.name, model.shape, model.classes) == (name, shape, ("a", "b", "c", "d"))

    rows = torch.randn(10, *shape)
    outputs = teeter.observe(network, rows)
    # Convolutions round differently for other numbers of rows: by 3e-6 on some processors.
    assert torch.allclose(model.features(rows), outputs.features, rtol=1e-5, atol=1e-5)

    head = model.head()
    assert torch.equal(head.weight, outputs.weight)
    assert head.bias is not None
    assert torch.equal(head.bias, outputs.bias)


@pytest.mark.parametrize(("name", "shape", "options"), NETWORKS, ids=lambda value: str(value))
def test_features_of_a_row_do_not_depend_on_the_others(
    name: str, shape: tuple[int, ...], options: dict[str, Any], tmp_path: Path
) -> None:
    network = build_network(name, shape, 4, seed=3, **options)
    save_model(tmp_path / "m.safetensors", network, name, shape=shape, classes=4, **options)
    model = read_model(tmp_path / "m.safetensors")
    rows = torch.randn(model.chunk + 11, *shape)
    expected = model.features(rows)
    order = torch.randperm(len(rows))

    assert torch.equal(model.features(rows[order]), expected[order])
    assert torch.equal(model.features(rows[5:6].flatten(1)), expected[5:6])
    assert not model.network.training


def test_batch_statistics_are_written_too(tmp_path: Path) -> None:
    network = build_network("resnet-18", (2, 16, 16), 3)
    network(torch.randn(8, 2, 16, 16) * 3 + 1)  # in training: the running means move
    save_model(tmp_path / "m.safetensors", network, "resnet-18", shape=(2, 16, 16), classes=3)
    rows = torch.randn(4, 2, 16, 16)
    expected = teeter.observe(network, rows).features
    assert torch.allclose(
        read_model(tmp_path / "m.safetensors").features(rows), expected, rtol=1e-4, atol=1e-5
    )


def test_a_learner_s_network_can_be_written(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    data = rng.standard_normal((40, 6)).astype(np.float32)
    labels = rng.integers(0, 2, 40)

    learner = teeter.Learner(
        lambda seed: build_network("mlp", (6,), 2, seed=seed),
        data,
        classes=2,
        training=teeter.TrainingConfig(epochs=1),
    )
    learner.tell(range(40), labels)
    learner.fit()

    save_model(
        tmp_path / "m.safetensors", learner.models[0], "mlp", shape=(6,), classes=learner.classes
    )
    assert read_model(tmp_path / "m.safetensors").classes == ("0", "1")

    learner.save(tmp_path / "learner.safetensors")
    with pytest.raises(
        FileError, match=r"it is not a model file: write one with teeter\.save_model"
    ):
        read_model(tmp_path / "learner.safetensors")


def test_what_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    network = build_network("mlp", (20,), 4)
    path = tmp_path / "m.safetensors"

    with pytest.raises(
        InputError, match=r"not those of mlp for rows of shape \(21,\) and 4 classes"
    ):
        save_model(path, network, "mlp", shape=(21,), classes=4)

    with pytest.raises(InputError, match="not those of mlp"):
        save_model(path, network, "mlp", shape=(20,), classes=4, hidden=64)

    with pytest.raises(InputError, match=r"mlp has no option 'hiden'. Did you mean 'hidden'\?"):
        save_model(path, network, "mlp", shape=(20,), classes=4, hiden=64)

    with pytest.raises(InputError, match=r"linear has no option 'hidden'\. It has none\."):
        save_model(path, network, "linear", shape=(20,), classes=4, hidden=64)

    with pytest.raises(UnknownNameError, match=r"No network is called 'mpl'\. Did you mean 'mlp'"):
        save_model(path, network, "mpl", shape=(20,), classes=4)

    with pytest.raises(InputError, match=r"must end in \.safetensors, but this is"):
        save_model(tmp_path / "m.pt", network, "mlp", shape=(20,), classes=4)

    with pytest.raises(InputError, match="has no values"):
        save_model(path, network, "mlp", shape=(), classes=4)

    other = nn.Sequential(
        *[nn.Tanh() if isinstance(layer, nn.ReLU) else layer for layer in network]
    )
    with pytest.raises(InputError, match="This model is not mlp"):
        save_model(path, other, "mlp", shape=(20,), classes=4)

    scaled = build_network("mlp", (20,), 4)
    scaled.register_forward_hook(lambda module, rows, logits: 30 * logits)
    with pytest.raises(InputError, match="This model is not mlp"):
        save_model(path, scaled, "mlp", shape=(20,), classes=4)

    assert not path.exists()


def test_a_network_that_scales_its_last_layer_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build_scaled(name: str, shape: tuple[int, ...], classes: int) -> nn.Module:
        network = build_network(name, shape, classes)
        network.register_forward_hook(lambda module, rows, logits: 30 * logits)
        return network

    monkeypatch.setattr("teeter.models.model_files.build_network", build_scaled)
    path = tmp_path / "m.safetensors"
    with pytest.raises(InputError, match="mlp scales or shifts the output of its last layer '7'"):
        save_model(path, build_scaled("mlp", (20,), 4), "mlp", shape=(20,), classes=4)


def rewrite_model(path: Path, **changes: Any) -> None:
    header, tensors = read_state(path)
    header.pop("format")
    write_state(path, {"model": {**header["model"], **changes}}, tensors)


DAMAGE = {
    "another package's": (
        lambda path: rewrite_model(path, network="mlpp"),
        "No network is called 'mlpp'. Did you mean",
    ),
    "another shape": (
        lambda path: rewrite_model(path, shape=[30]),
        "are not those of mlp for rows of shape (30,)",
    ),
    "another layer": (
        lambda path: rewrite_model(path, head="1"),
        "has no last layer '1' for 4 classes",
    ),
    "a word for a shape": (lambda path: rewrite_model(path, shape="wide"), "is damaged"),
    "a shape without end": (lambda path: rewrite_model(path, shape=[float("inf")]), "is damaged"),
    "a shape of terabytes": (
        lambda path: rewrite_model(path, shape=[10**13]),
        "are not those of mlp for rows of shape",
    ),
    "a width of terabytes": (
        lambda path: rewrite_model(path, options={"hidden": 10**9}),
        "are not those of mlp",
    ),
    "a word for a width": (
        lambda path: rewrite_model(path, options={"hidden": "x"}),
        "are not those of mlp",
    ),
    "less than nothing": (
        lambda path: rewrite_model(path, options={"hidden": -3}),
        "are not those of mlp",
    ),
    "an odd option": (
        lambda path: rewrite_model(path, options={"dropout": 7}),
        "are not those of mlp",
    ),
    "weights alone": (
        lambda path: save_file({"weight": torch.ones(2, 2)}, path),
        "is not a model that teeter.save_model wrote: it has no teeter header",
    ),
    "a table": (
        lambda path: path.write_text("id,label\n" * 20),
        "is not a model that teeter.save_model wrote",
    ),
    "empty": (lambda path: path.write_bytes(b""), "is not a model that teeter.save_model wrote"),
    "torch.save": (
        lambda path: torch.save({"weight": torch.ones(2)}, path),
        "is a pickle, which teeter never loads",
    ),
    "a pickle": (
        lambda path: path.write_bytes(b"\x80\x04N."),
        "save the network with teeter.save_model",
    ),
    "away": (lambda path: path.unlink(), "There is no file"),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "Cannot read"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_no_model_is_refused(damage: str, path: Path) -> None:
    harm, sentence = DAMAGE[damage]
    harm(path)
    with pytest.raises(InputError) as caught:
        read_model(path)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_layer_that_is_not_the_last_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    network = build_network("mlp", (20,), 8, hidden=8)
    save_model(path, network, "mlp", shape=(20,), classes=8, hidden=8)
    assert read_model(path).layer == "7"
    for middle in ("1", "4"):
        rewrite_model(path, head=middle)
        with pytest.raises(FileError, match=f"has no last layer '{middle}' for 8 classes"):
            read_model(path)


def test_weights_of_few_bits_are_read(path: Path) -> None:
    header, tensors = read_state(path)
    header.pop("format")
    tensors["network.1.weight"] = tensors["network.1.weight"].to(torch.float8_e4m3fn)
    write_state(path, header, tensors)
    assert read_model(path).features(torch.randn(3, 20)).shape == (3, 128)


def test_weights_that_are_not_numbers_are_refused(path: Path) -> None:
    header, tensors = read_state(path)
    header.pop("format")
    tensors["network.1.weight"][0, 0] = float("nan")
    write_state(path, header, tensors)
    with pytest.raises(FileError, match="contain NaN or infinity"):
        read_model(path)


def test_a_header_as_long_as_a_pickle_s_mark_is_no_pickle(tmp_path: Path) -> None:
    network = build_network("linear", (5,), 2)
    lengths = set()
    for length in range(300, 420, 8):
        path = tmp_path / "m.safetensors"
        save_model(path, network, "linear", shape=(5,), classes=["no", "y" * length])
        lengths.add(int.from_bytes(path.read_bytes()[:2], "little"))
        read_model(path)
    assert 0x0280 in lengths  # written as a pickle of the second protocol begins
    assert file_digest(path) != file_digest(__file__)
