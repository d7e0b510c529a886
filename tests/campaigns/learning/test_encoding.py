"""The features of a campaign: kept with their encoder, continued, switched and compared."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from teeter.campaigns.campaign import Campaign
from teeter.campaigns.learning.encoding import (
    encode_missing_items,
    load_encoder,
    prepare_encoder,
    store_encoding,
)
from teeter.campaigns.records import PickArm
from teeter.campaigns.settings import Settings
from teeter.encoders import ContentKind, Encoder, EncoderState, Encoding, encoders
from teeter.errors import InputError, MissingExtraError, StoreError

CARDS = [f"I lost card number {k}" for k in range(12)]
RATES = [f"the exchange rate of currency {k}" for k in range(12)]


class RecordingEncoder(Encoder):
    """Two features per text. It notes what it encodes, and may be interrupted."""

    kind = ContentKind.TEXT
    fit_size = 10
    calls: list[list[str]] = []  # noqa: RUF012 - of all instances, and emptied by a fixture
    interrupt_after: int | None = None

    def __init__(self) -> None:
        self.name = "recording"
        self._offset = 0.0

    def fit(self, contents: Sequence[str]) -> None:
        self._offset = float(len(contents))

    def state(self) -> EncoderState:
        return EncoderState({"offset": self._offset})

    def restore(self, state: EncoderState) -> None:
        self._offset = state.config["offset"]

    def encode(self, contents: Sequence[str]) -> Encoding:
        cls = RecordingEncoder
        if cls.interrupt_after is not None and len(cls.calls) >= cls.interrupt_after:
            raise KeyboardInterrupt
        cls.calls.append(list(contents))

        unreadable = {row: f"{text} is broken." for row, text in enumerate(contents) if "?" in text}
        rows = [[len(text) + self._offset, "card" in text] for text in contents]
        vectors = np.asarray(rows, dtype=np.float32)
        vectors[list(unreadable)] = 0
        return Encoding(vectors, unreadable)


@pytest.fixture(autouse=True)
def _recording(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(encoders._classes, "recording", RecordingEncoder)
    monkeypatch.setattr(RecordingEncoder, "calls", [])
    monkeypatch.setattr("teeter.campaigns.learning.encoding._FIRST_PART", {"text": 5, "image": 2})
    monkeypatch.setattr("teeter.campaigns.learning.encoding._PART_SECONDS", 0.0)


def create(folder: Path, encoder: str = "recording") -> Campaign:
    settings = Settings(encoder=encoder, control=0.0)
    return Campaign.make([], ("lost", "rates"), at=folder / "c.teeter", settings=settings)


def answer_all(campaign: Campaign, texts: Sequence[str]) -> None:
    for question in campaign.ask(len(texts)):
        label = "lost" if "card" in (question.content or "") else "rates"
        campaign.tell(question.item, label)


def features(campaign: Campaign) -> np.ndarray:
    with campaign.reading() as view:
        return view.encodings.read().vectors


def test_only_new_items_are_encoded_and_old_features_stay(tmp_path: Path) -> None:
    campaign = create(tmp_path)
    campaign.add(CARDS[:4])
    before = features(campaign)

    reopened = Campaign.open(tmp_path / "c.teeter")
    result = reopened.add([*CARDS[:4], *RATES])

    first, *later = RecordingEncoder.calls
    assert sorted(first) == CARDS[:4]
    assert sorted(chain.from_iterable(later)) == sorted(RATES), "in parts of any order"
    assert [len(part) for part in later] == [5, 5, 2]
    np.testing.assert_array_equal(features(reopened)[:4], before)
    assert features(reopened)[4, 0] == len(RATES[0]) + 4, "with the state of the first items"
    assert result.encoding is not None
    assert (result.encoding.encoded, result.encoding.fitted_on) == (12, 4)
    with reopened.reading() as view:
        stored = view.encodings.current()
    assert stored is not None
    assert (stored.encoder, stored.version, stored.checksum) == ("recording", "1", "")


def test_an_interrupted_encoding_is_continued(tmp_path: Path) -> None:
    RecordingEncoder.interrupt_after = 2
    path = tmp_path / "c.teeter"
    settings = Settings(encoder="recording", control=0.0, names=False)
    try:
        with pytest.raises(KeyboardInterrupt):
            Campaign.make(CARDS, ("lost", "rates"), at=path, settings=settings)
    finally:
        RecordingEncoder.interrupt_after = None

    campaign = Campaign.open(path)
    assert campaign.status().unencoded == 2
    assert len(campaign.ask(20)) == 10, "those that are encoded can be labelled"

    steps: list[tuple[int, int]] = []
    result = campaign.encode(progress=lambda done, total: steps.append((done, total)))

    assert result.encoded == 2
    assert sorted(chain.from_iterable(RecordingEncoder.calls)) == sorted(CARDS), "each once"
    assert steps == [(10, 12), (12, 12)]
    assert campaign.status().unencoded == 0
    assert len(campaign.ask(20)) == 12


def encode_first_part(campaign: Campaign) -> None:
    """Encode until the second part, and stop there as a process that is killed."""
    RecordingEncoder.calls.clear()
    RecordingEncoder.interrupt_after = 1
    try:
        with pytest.raises(KeyboardInterrupt):
            campaign.encode()
    finally:
        RecordingEncoder.interrupt_after = None


@pytest.mark.slow
def test_control_items_of_a_sorted_file_are_a_random_sample_of_all_its_items(
    tmp_path: Path,
) -> None:
    n_items, n_campaigns = 12, 40
    texts = [f"{'card' if k < 8 else 'rate'} {k:02}" for k in range(n_items)]
    times_drawn = np.zeros(n_items)
    n_rates = 0

    for seed in range(n_campaigns):
        settings = Settings(encoder="recording", control=0.999, seed=seed)
        path = tmp_path / f"{seed}.teeter"
        campaign = Campaign.make(texts, ("a", "b"), at=path, settings=settings, encode_now=False)
        encode_first_part(campaign)
        (part,) = RecordingEncoder.calls
        assert len(part) == 5, "picked while most items are not encoded"
        questions = campaign.ask(3)
        assert {question.arm for question in questions} == {PickArm.CONTROL}
        drawn = [int(str(question.content)[-2:]) for question in questions]
        times_drawn[drawn] += 1
        n_rates += sum(k >= 8 for k in drawn)
        campaign.database.close()

    # Each item is equally likely: chi-square with 11 degrees of freedom, level 0.1 %.
    expected = times_drawn.sum() / n_items
    variance = expected * (1 - 3 / n_items) * n_items / (n_items - 1)
    assert float(((times_drawn - expected) ** 2).sum() / variance) < 31.3
    # The last third of the file: 40 of 120 are expected, with the deviation of random samples.
    assert abs(n_rates - times_drawn.sum() / 3) < 3.3 * 4.67


def test_labelling_begins_with_what_the_first_part_tells_an_encoder(tmp_path: Path) -> None:
    path = tmp_path / "c.teeter"
    settings = Settings(encoder="recording", control=0.0)
    texts = [*CARDS, *RATES]
    campaign = Campaign.make(texts, ("lost", "rates"), at=path, settings=settings, encode_now=False)
    assert campaign.imported.new == 24
    assert campaign.imported.encoding is None
    assert RecordingEncoder.calls == []
    with pytest.raises(InputError, match="No item has been encoded yet: wait"):
        campaign.ask(2)

    # Killed while it encodes what it learned from ten items: five are there, as these five tell.
    encode_first_part(campaign)
    lengths = {len(text) for text in RecordingEncoder.calls[0]}
    assert {number - 5 for number in features(campaign)[:, 0]} == lengths
    assert len(campaign.ask(10)) == 5
    answer_all(campaign, CARDS[:10])
    with pytest.raises(InputError, match="19 items have not been encoded yet"):
        campaign.train()

    # All are encoded alike: none as the first part told.
    assert campaign.encode().encoded == 24
    assert {number - 10 for number in features(campaign)[:, 0]} == {len(text) for text in texts}
    assert campaign.status().unencoded == 0
    with campaign.reading() as view:
        assert len(view.encodings.all()) == 1


def test_the_best_encoder_is_not_loaded_before_it_encodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("teeter.campaigns.learning.encoding.make_encoder", None)
    path = tmp_path / "c.teeter"
    campaign = Campaign.make(CARDS, ("a", "b"), at=path, encode_now=False)
    assert campaign.add(["another card"], encode_now=False).new == 1

    with pytest.raises(InputError, match="new items cannot bring features"):
        campaign.add([{"text": "with features", "features": [1.0, 2.0]}])
    assert campaign.status().items == 13
    monkeypatch.undo()
    with pytest.raises(InputError, match="reads images"):
        Campaign.make(
            CARDS,
            ("a", "b"),
            at=tmp_path / "other.teeter",
            settings=Settings(encoder="pixels"),
            encode_now=False,
        )


def test_a_switch_keeps_answers_and_compares_both_encoders(tmp_path: Path) -> None:
    campaign = create(tmp_path, "tfidf")
    campaign.add([*CARDS, *RATES])
    answer_all(campaign, CARDS)
    campaign.train()
    labels = campaign.labels()

    result = campaign.encode("recording")

    assert (result.is_switch, result.encoded) == (True, 24)
    assert campaign.labels() == labels
    status = campaign.status()
    assert (status.encoder, status.version) == ("recording", 2), "a model of the new features"
    assert status.comparison is not None
    assert (status.comparison.encoder, status.comparison.previous) == ("recording", "tfidf")
    assert status.comparison.labels == 12
    assert any("With recording, models correctly predict" in line for line in status.advice)

    # Back again: the features are still there, and only what was added since is encoded.
    campaign.add(["a new card"])
    before = len(RecordingEncoder.calls)
    assert campaign.encode("tfidf").encoded == 1
    assert campaign.encode("recording").encoded == 0
    assert len(RecordingEncoder.calls) == before


def test_until_a_switch_is_complete_models_see_the_current_features(tmp_path: Path) -> None:
    campaign = create(tmp_path, "tfidf")
    campaign.add([*CARDS, *RATES])
    before = features(campaign)
    RecordingEncoder.interrupt_after = 2
    try:
        with pytest.raises(KeyboardInterrupt):
            campaign.encode("recording")
    finally:
        RecordingEncoder.interrupt_after = None

    np.testing.assert_array_equal(features(campaign), before)
    assert campaign.status().encoder == "tfidf"

    assert campaign.encode("recording").encoded == 14
    assert campaign.status().encoder == "recording"


def test_a_model_of_features_that_were_replaced_meanwhile_is_not_stored(tmp_path: Path) -> None:
    campaign = create(tmp_path, "tfidf")
    campaign.add([*CARDS, *RATES])
    answer_all(campaign, CARDS)
    state = campaign.load_state()
    campaign.encode("recording")
    version = campaign.status().version

    with pytest.raises(InputError, match="encoder was changed while the model was being trained"):
        campaign.train(state=state)
    assert campaign.status().version == version


def test_an_outgrown_encoder_learns_again_when_asked(tmp_path: Path) -> None:
    campaign = create(tmp_path)
    first = campaign.add(CARDS[:2]).encoding
    second = campaign.add([*CARDS, *RATES]).encoding
    assert first is not None
    assert second is not None
    assert (first.is_outgrown, second.is_outgrown) == (False, True)

    result = campaign.encode(again=True)

    assert (result.encoded, result.fitted_on, result.is_outgrown) == (24, 10, False)
    assert features(campaign)[0, 0] == len(CARDS[0]) + 10
    with campaign.reading() as view:
        assert len(view.encodings.all()) == 1, "the old one is removed"


def test_items_that_cannot_be_read_are_reported_and_never_asked(tmp_path: Path) -> None:
    campaign = create(tmp_path)

    result = campaign.add([*CARDS[:3], "broken?", *RATES[:3]])

    assert result.encoding is not None
    assert list(result.encoding.unreadable_items.values()) == ["broken? is broken."]
    assert campaign.status().unreadable == 1
    questions = campaign.ask(20)
    assert len(questions) == 6
    assert all("?" not in (question.content or "") for question in questions)

    (broken,) = result.encoding.unreadable_items
    for question in questions:
        campaign.tell(question.item, campaign.classes.names()[(question.content or "") in RATES])
    campaign.train()
    campaign.export(tmp_path / "out.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    (exported,) = [row for row in rows if row["item"] == broken]
    state = (exported["predicted"], exported["confidence"], exported["source"])
    assert state == (None, None, "unreadable")
    assert all(row["predicted"] for row in rows if row is not exported)

    campaign.tell(broken, campaign.classes.names()[0])
    campaign.export(tmp_path / "out.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    (exported,) = [row for row in rows if row["item"] == broken]
    assert (exported["label"], exported["predicted"]) == (campaign.classes.names()[0], None)
    assert exported["source"] == "person"

    campaign.items.withdraw([broken])
    status = campaign.status()
    assert (status.items, status.withdrawn, status.unreadable) == (6, 1, 0)


@pytest.mark.parametrize("settings", [Settings(rows=True), Settings(encoder="table-rows")])
def test_auto_stands_for_the_encoder_of_rows_after_a_switch(
    tmp_path: Path, settings: Settings
) -> None:
    campaign = Campaign.make([], ("low", "high"), at=tmp_path / "c.teeter", settings=settings)
    campaign.add([{"age": age, "city": ("Graz", "Wien")[age % 2]} for age in range(12)])
    assert campaign.encode("tfidf").encoder == "tfidf"

    assert campaign.encode("auto").encoder == "table-rows"


def test_changed_weights_encode_all_items_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = create(tmp_path)
    campaign.add(CARDS[:3])
    monkeypatch.setattr(RecordingEncoder, "version", "2")

    campaign.add(RATES[:2])

    (again,) = RecordingEncoder.calls[1:]
    assert sorted(again) == sorted([*CARDS[:3], *RATES[:2]])
    assert features(campaign)[0, 0] == len(CARDS[0]) + 5


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("pixels", InputError, "reads images, but these items are texts"),
        ("encoders.own_function:nothing", InputError, "has no function"),
    ],
)
def test_an_encoder_that_does_not_fit_changes_nothing(
    name: str, error: type[Exception], message: str, tmp_path: Path
) -> None:
    campaign = create(tmp_path)
    campaign.add(CARDS)
    with pytest.raises(error, match=message):
        campaign.encode(name)

    other = Campaign.make([], ("a", "b"), at=tmp_path / "d.teeter", settings=Settings(encoder=name))
    with pytest.raises(error, match=message):
        other.add(CARDS)
    assert other.status().items == 0


def test_features_of_your_own_are_not_encoded(tmp_path: Path) -> None:
    settings = Settings(kind="features")
    campaign = Campaign.make([], ("a", "b"), at=tmp_path / "f.teeter", settings=settings)
    campaign.add([{"id": "1", "features": [1.0]}, {"id": "2", "features": [2.0]}])

    with pytest.raises(InputError, match="there is nothing to encode"):
        campaign.encode("tfidf")
    assert campaign.status().encoder == "you"


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("teeter.encoders.encoder.find_spec", lambda name: None)
    campaign = create(tmp_path, "minilm")

    with pytest.raises(MissingExtraError, match=r"pip install 'teeter\[label\]'"):
        campaign.add(CARDS)


def test_a_damaged_state_is_reported(tmp_path: Path) -> None:
    campaign = create(tmp_path)
    campaign.add(CARDS)
    campaign.database.close()
    connection = sqlite3.connect(tmp_path / "c.teeter")
    connection.execute("update encodings set state = x'0102'")
    connection.commit()
    connection.close()

    with pytest.raises(StoreError, match="the state of its encoder cannot be read"):
        Campaign.open(tmp_path / "c.teeter").add(RATES)


def test_broken_images_are_left_out_and_the_rest_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    for k in range(6):
        Image.new("RGB", (20, 20), (40 * k, 9, 9)).save(folder / f"{k}.png")
    (folder / "3.png").write_bytes(b"not an image")
    settings = Settings(kind="image", folder=str(folder), control=0.0)

    campaign = Campaign.make(
        [f"{k}.png" for k in range(6)], ("a", "b"), at=tmp_path / "i.teeter", settings=settings
    )
    result = campaign.imported

    assert result.new == 6
    assert result.encoding is not None
    assert list(result.encoding.unreadable_items) == ["3.png"]
    questions = campaign.ask(10)
    assert sorted(question.item for question in questions) == [f"{k}.png" for k in (0, 1, 2, 4, 5)]


def test_a_campaign_file_cannot_name_an_encoder_that_runs_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TEETER_TRUST_ENCODER", raising=False)
    path = tmp_path / "mail.teeter"
    campaign = Campaign.make(
        [], ["spam", "ham"], at=path, name="mail", settings=Settings(encoder="tfidf")
    )
    campaign.add(["win cash", "a walk"])
    campaign.database.close()

    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("update encodings set encoder = 'subprocess:getoutput'")
    stranger = Campaign.open(path)
    with pytest.raises(InputError, match="may run code or contact a server"):
        stranger.encode()
    with pytest.raises(InputError, match="may run code or contact a server"):
        stranger.add(["touch a-file"])
    with pytest.raises(InputError, match="may run code or contact a server"):
        stranger.encode(again=True)
    stranger.database.close()


def test_two_processes_that_fit_the_same_encoder_store_features_of_one_state(
    tmp_path: Path,
) -> None:
    path = tmp_path / "mail.teeter"
    campaign = Campaign.make(
        [], ["spam", "ham"], at=path, name="mail", settings=Settings(encoder="tfidf")
    )
    campaign.add([f"a text about {word}" for word in ("cash", "rivers", "bread", "pills")])
    prepared = prepare_encoder(campaign, again=True)

    other = Campaign.open(path)
    other.add([f"another word {word}" for word in "abcdefghij"])
    with campaign.writing() as change:
        store_encoding(change, prepared)
    other.encode(again=True)
    encode_missing_items(campaign, prepared, who="me")

    with campaign.reading() as view:
        stored = view.encodings.read()
        current = view.encodings.current()
        items = view.items.by_id(stored.keys)
    encoder = load_encoder(campaign.settings, current)
    assert encoder is not None
    contents = [items[key].content or "" for key in stored.keys]
    np.testing.assert_allclose(encoder.encode(contents).vectors, stored.vectors, atol=1e-5)
    for opened in (campaign, other):
        opened.database.close()
