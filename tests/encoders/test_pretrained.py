"""Models of sentence-transformers and transformers, from a folder or a package."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from teeter.campaigns.campaign import Campaign
from teeter.campaigns.settings import Settings
from teeter.encoders import make_encoder, pretrained
from teeter.errors import InputError, MissingExtraError

LOST_CARDS = ["I lost my card", "my card is gone", "somebody stole my bank card"]
EXCHANGE_RATES = ["what is the exchange rate", "how many euros for a dollar"]


class FakeSentenceTransformer:
    """A stand-in for a sentence-transformers model, with two features per text."""

    last_call: Sequence[str] = ()
    """The name of the model and the texts of the latest call of any instance."""

    def __init__(self, name: str, device: str) -> None:
        if name == "nowhere":
            raise OSError("We could not connect.\nCheck your cables.")
        self.name = name

    def encode(self, texts: list[str], **_: Any) -> Any:
        FakeSentenceTransformer.last_call = [self.name, *texts]
        return np.array([[len(text), text.count("a")] for text in texts], dtype=np.float32)


@pytest.fixture
def fake_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    module = ModuleType("sentence_transformers")
    module.SentenceTransformer = FakeSentenceTransformer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)
    monkeypatch.setattr(pretrained, "_quiet_loading", nullcontext)
    yield
    FakeSentenceTransformer.last_call = ()


@pytest.mark.usefixtures("fake_library")
def test_a_campaign_remembers_its_encoder_and_encodes_only_new_items(tmp_path: Path) -> None:
    campaign = Campaign.make(
        [], ("a", "b"), at=tmp_path / "t.teeter", settings=Settings(encoder="small")
    )
    campaign.add(LOST_CARDS)
    assert sorted(FakeSentenceTransformer.last_call) == sorted(["small", *LOST_CARDS])

    reopened = Campaign.open(tmp_path / "t.teeter")
    reopened.add([*LOST_CARDS, *EXCHANGE_RATES])
    assert sorted(FakeSentenceTransformer.last_call) == sorted(["small", *EXCHANGE_RATES])

    last_line = reopened.history()[-1]
    assert last_line == last_line | {"by": "small", "items": 2}
    assert len(reopened.ask(10)) == 5


@pytest.mark.usefixtures("fake_library")
def test_a_model_is_found_in_a_folder_or_in_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model_folder = tmp_path / "my_model" / "model"
    model_folder.mkdir(parents=True)
    (tmp_path / "my_model" / "__init__.py").write_text("raise RuntimeError('never imported')")
    (model_folder / "modules.json").write_text("[]")
    (model_folder / "model.safetensors").write_bytes(b"weights")
    monkeypatch.syspath_prepend(tmp_path)

    checksums = set()
    for name in ("my-model", str(model_folder)):
        encoder = make_encoder(name, "text")
        encoder.encode(["x"])
        checksums.add(encoder.checksum)
        assert FakeSentenceTransformer.last_call == [str(model_folder), "x"]
    assert len(checksums) == 1

    (model_folder / "model.safetensors").write_bytes(b"other weights")
    assert make_encoder("my-model", "text").checksum not in checksums

    make_encoder("json", "text").encode(["x"])
    assert FakeSentenceTransformer.last_call[0] == "json", "a package without a model is a hub name"


@pytest.mark.usefixtures("fake_library")
def test_a_model_that_cannot_be_loaded_is_refused_with_the_reason() -> None:
    with pytest.raises(
        InputError,
        match=r"Cannot load the encoder 'nowhere' \(We could not connect.\): name one of",
    ):
        make_encoder("nowhere", "text")


def test_without_the_library_nothing_is_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    campaign = Campaign.make(
        [], ("a", "b"), at=tmp_path / "t.teeter", settings=Settings(encoder="small")
    )

    with pytest.raises(MissingExtraError, match=r"pip install 'teeter\[hf\]'"):
        campaign.add(LOST_CARDS)

    assert campaign.status().items == 0


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("model", ["vit", "clip", "dino"])
def test_transformers_models_of_images_are_built_from_a_config(model: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "image_size": 32,
        "patch_size": 16,
    }
    if model == "vit":
        network = transformers.ViTModel(transformers.ViTConfig(**sizes))
    elif model == "dino":
        network = transformers.Dinov2Model(transformers.Dinov2Config(**sizes))
    else:
        config = transformers.CLIPConfig(
            vision_config=sizes, text_config={**sizes, "vocab_size": 99}, projection_dim=16
        )
        network = transformers.CLIPModel(config)
    network.save_pretrained(tmp_path / "model")
    for k in range(4):
        Image.new("RGB", (40, 20), (60 * k, 9, 200)).save(tmp_path / f"{k}.png")

    encoder = make_encoder(str(tmp_path / "model"), "image", folder=tmp_path)
    vectors = encoder.encode([f"{k}.png" for k in range(4)]).vectors

    assert vectors.shape == (4, 16 if model == "clip" else 32)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)
    assert encoder.checksum


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_transformers_model_of_texts_is_pooled_by_the_mean(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "lost", "card", "rate"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    config = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
    )
    transformers.BertModel(config).save_pretrained(tmp_path)
    tokenizer = transformers.BertTokenizerFast(vocab={word: k for k, word in enumerate(words)})
    tokenizer.save_pretrained(tmp_path)

    encoder = make_encoder(str(tmp_path), "text")
    vectors = encoder.encode(["lost card", "rate", "lost lost lost card", ""]).vectors

    assert vectors.shape == (4, 32)
    single = encoder.encode(["rate"]).vectors
    np.testing.assert_allclose(single[0], vectors[1], atol=1e-5)
