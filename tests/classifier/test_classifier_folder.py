"""Classifiers are saved to a folder and loaded again, and damage is reported."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from classifier.trained import INFO, TEXTS, network_classifier, text_classifier
from teeter.classifier import load_classifier, save_classifier
from teeter.encoders import EncoderState
from teeter.errors import FileError, InputError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    save_classifier(text_classifier(2.5), path)
    return path


def test_a_loaded_classifier_predicts_the_same(folder: Path) -> None:
    loaded = load_classifier(folder)

    assert loaded.classes == ("ham", "spam", "other")
    assert loaded.info == INFO
    np.testing.assert_array_equal(
        loaded.predict_proba(TEXTS), text_classifier(2.5).predict_proba(TEXTS)
    )


def test_a_network_without_an_encoder(tmp_path: Path) -> None:
    save_classifier(network_classifier(), tmp_path / "model")
    rows = np.random.default_rng(0).normal(size=(6, 4))

    loaded = load_classifier(tmp_path / "model")

    np.testing.assert_array_equal(
        loaded.predict_proba(rows), network_classifier().predict_proba(rows)
    )
    assert not (tmp_path / "model" / "encoder.safetensors").exists()


def test_a_folder_with_files_is_not_overwritten(folder: Path) -> None:
    with pytest.raises(FileError, match="already exists"):
        save_classifier(text_classifier(), folder)


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(FileError, match=r"is not a model: it has no file model\.json"):
            load_classifier(path)


def _write(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(content) and None


def _change(name: str, value: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "model.json"
        description = json.loads(path.read_text())
        description[name] = value
        path.write_text(json.dumps(description))

    return change


@pytest.mark.parametrize(
    "damage",
    [
        _write("model.json", b"{"),
        _write("model.json", b"[]"),
        _write("model.json", b"\xff"),
        _write("head.safetensors", b"short"),
        _write("encoder.safetensors", b""),
        _change("classes", ["one", "two"]),
        _change("classes", 3),
        _change("layers", 0),
        _change("layers", 2),
        _change("temperature", None),
        _change("info", {}),
        _change("info", "x"),
        _change("encoder", "x"),
        _change("encoder", {"name": "tfidf", "kind": "sound", "version": "1", "checksum": ""}),
        _change("temperature", -1),
        _change("temperature", float("nan")),
        _change("temperature", 10**400),
        _change("layers", float("inf")),
        _change("info", {**asdict(INFO), "accuracy": [10**400, 0.5, 1]}),
        _change("info", {**asdict(INFO), "accuracy": [float("nan"), 0.5, 1]}),
        _change("info", {**asdict(INFO), "labels": float("inf")}),
        _change("classes", ["a", "a", "b"]),
        _change("classes", ["a", "b", "\x1b[31mc"]),
    ],
)
def test_damage_is_reported(damage: Callable[[Path], None], folder: Path) -> None:
    damage(folder)
    with pytest.raises(FileError, match="is damaged: export the model again"):
        load_classifier(folder)


def test_numbers_of_the_head_and_of_the_encoder_are_checked(tmp_path: Path, folder: Path) -> None:
    no_size = tmp_path / "no_size"
    save_classifier(network_classifier(), no_size)
    arrays = load_file(no_size / "head.safetensors")
    save_file({**arrays, "size": np.zeros(0)}, no_size / "head.safetensors")

    state = EncoderState.from_bytes((folder / "encoder.safetensors").read_bytes())
    endless = {name: array * np.inf for name, array in state.arrays.items()}
    content = EncoderState(state.config, endless).to_bytes()
    (folder / "encoder.safetensors").write_bytes(content)

    for damaged in (no_size, folder):
        with pytest.raises(FileError, match="is damaged: export the model again"):
            load_classifier(damaged)


def test_a_later_format_is_refused(folder: Path) -> None:
    _change("format", 99)(folder)
    with pytest.raises(FileError, match="written by another version of teeter"):
        load_classifier(folder)


def test_another_version_of_the_encoder_is_refused(folder: Path) -> None:
    encoder = json.loads((folder / "model.json").read_text())["encoder"]
    _change("encoder", {**encoder, "version": "another"})(folder)
    with pytest.raises(InputError, match="encoder tfidf that is installed differs"):
        load_classifier(folder)


@pytest.mark.parametrize("name", ["os:system", "https://evil.example/v1#model", "some/model"])
def test_an_encoder_that_may_run_code_or_send_texts_must_be_allowed(
    name: str, folder: Path
) -> None:
    encoder = json.loads((folder / "model.json").read_text())["encoder"]
    _change("encoder", {**encoder, "name": name})(folder)
    with pytest.raises(InputError, match="may run code or contact a server"):
        load_classifier(folder)
