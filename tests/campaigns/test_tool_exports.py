"""Exports that other tools read, each read back by the library that it is for."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from teeter.campaigns import Campaign, Settings
from teeter.campaigns.label_studio.config import chosen_class
from teeter.errors import InputError, MissingExtraError


def make_texts(path: Path) -> Campaign:
    """Return a campaign of 40 texts with a column, 24 of them labelled and one flagged."""
    words = ["warm bread", "cheap pills"]
    items = [
        {"id": f"t{k}", "text": f"{words[k % 2]} number {k}", "customer": f"shop {k % 3}"}
        for k in range(40)
    ]
    settings = Settings(encoder="tfidf")
    Campaign.make(path, ["ham", "spam", "a/b: rare"], items, settings)
    campaign = Campaign.open(path)
    for number in range(24):
        campaign.tell(f"t{number}", ("ham", "spam")[number % 2])
    campaign.tell("t24", "spam")
    campaign.flag("t24", "bob")
    return campaign


@pytest.fixture
def texts(tmp_path: Path) -> Campaign:
    return make_texts(tmp_path / "texts.teeter")


def test_label_studio_gets_tasks_with_annotations_and_predictions(
    texts: Campaign, tmp_path: Path
) -> None:
    texts.train()
    texts.export(tmp_path / "tasks.json", "label-studio")

    tasks = json.loads((tmp_path / "tasks.json").read_text())
    assert len(tasks) == 39, "a flagged item is left out"
    first = tasks[0]
    assert first["data"] == {
        "customer": "shop 0",
        "text": "warm bread number 0",
        "teeter_item": "t0",
    }
    # What our own sync reads from a project that was filled by an import.
    assert [chosen_class(entry["result"]) for entry in first["annotations"]] == ["ham"]
    (prediction,) = tasks[-1]["predictions"]
    assert chosen_class(prediction["result"]) in ("ham", "spam")
    assert 0 < prediction["score"] <= 1
    assert "annotations" not in tasks[-1]


def test_images_are_sorted_into_a_folder_per_class(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    (photos / "deep").mkdir(parents=True)
    for number in range(4):
        file = io.BytesIO()
        Image.new("RGB", (8, 8), (60 * number, 0, 0)).save(file, "PNG")
        (photos / f"{number}.png").write_bytes(file.getvalue())
        file = io.BytesIO()
        Image.new("RGB", (8, 8), (0, 60 * number + 5, 0)).save(file, "PNG")
        (photos / "deep" / f"{number}.png").write_bytes(file.getvalue())
    settings = Settings(kind="image", folder=str(photos), encoder="pixels")
    paths = [f"{folder}{number}.png" for folder in ("", "deep/") for number in range(4)]
    Campaign.make(tmp_path / "p.teeter", ["red", "../green"], paths, settings)
    campaign = Campaign.open(tmp_path / "p.teeter")
    for path in paths[:7]:
        campaign.tell(path, "../green" if path.startswith("deep") else "red")

    campaign.export(tmp_path / "out", "image-folder")

    files = sorted(path.relative_to(tmp_path / "out").as_posix() for path in out_files(tmp_path))
    assert files == [
        *(f"%2E.%2Fgreen/deep%2F{number}.png" for number in range(3)),
        *(f"red/{number}.png" for number in range(4)),
    ]
    copied = tmp_path / "out" / "%2E.%2Fgreen" / "deep%2F1.png"
    assert copied.read_bytes() == (photos / "deep" / "1.png").read_bytes()


def out_files(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "out").rglob("*") if path.is_file()]


def test_a_format_of_other_items_is_refused(texts: Campaign, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="The format image-folder is only for images"):
        texts.export(tmp_path / "out", "image-folder")
    empty = Campaign.create(tmp_path / "e.teeter", "e", ["a", "b"], Settings(encoder="tfidf"))
    empty.add(["one", "two"])
    with pytest.raises(InputError, match="cleanlab needs labels of two or more classes"):
        empty.export(tmp_path / "out.npz", "cleanlab")


def test_cleanlab_gets_probabilities_of_models_that_did_not_see_the_item(
    texts: Campaign, tmp_path: Path
) -> None:
    texts.tell("t2", "spam")  # wrong
    texts.export(tmp_path / "issues.npz", "cleanlab")

    with np.load(tmp_path / "issues.npz", allow_pickle=False) as file:
        arrays = dict(file)
    assert arrays["classes"].tolist() == ["ham", "spam"]
    assert arrays["pred_probs"].shape == (24, 2)
    np.testing.assert_allclose(arrays["pred_probs"].sum(axis=1), 1, atol=1e-6)
    position = arrays["ids"].tolist().index("t2")
    assert arrays["labels"][position] == 1
    assert arrays["pred_probs"][position, 1] < 0.5

    cleanlab = pytest.importorskip("cleanlab.filter")
    issues = cleanlab.find_label_issues(
        labels=arrays["labels"],
        pred_probs=arrays["pred_probs"],
        return_indices_ranked_by="self_confidence",
        n_jobs=1,
    )
    assert arrays["ids"][issues[0]] == "t2"


def test_spacy_reads_the_classes_of_texts(texts: Campaign, tmp_path: Path) -> None:
    try:
        import spacy
        from spacy.tokens import DocBin
    except ImportError:
        with pytest.raises(MissingExtraError, match="pip install spacy"):
            texts.export(tmp_path / "train.spacy", "spacy")
        return

    texts.export(tmp_path / "train.spacy", "spacy")

    documents = list(DocBin().from_disk(tmp_path / "train.spacy").get_docs(spacy.blank("xx").vocab))
    assert len(documents) == 24
    assert documents[1].text == "cheap pills number 1"
    assert documents[1].cats == {"ham": 0.0, "spam": 1.0}
    assert documents[1].user_data["id"] == "t1"


@pytest.mark.slow
def test_spacy_trains_a_textcat_on_the_file(texts: Campaign, tmp_path: Path) -> None:
    spacy = pytest.importorskip("spacy")
    from spacy.tokens import DocBin
    from spacy.training import Example

    texts.export(tmp_path / "train.spacy", "spacy")
    pipeline = spacy.blank("xx")
    pipeline.add_pipe("textcat")
    documents = list(DocBin().from_disk(tmp_path / "train.spacy").get_docs(pipeline.vocab))
    examples = [Example(pipeline.make_doc(document.text), document) for document in documents]
    pipeline.initialize(lambda: examples)
    for _ in range(15):
        pipeline.update(examples)
    cats: dict[str, Any] = pipeline("cheap pills today").cats
    assert cats["spam"] > cats["ham"]


@pytest.mark.slow
def test_hugging_face_datasets_reads_the_folder_with_all_columns(
    texts: Campaign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    texts.export(tmp_path / "folder", "datasets")

    splits = datasets.load_dataset(str(tmp_path / "folder"), cache_dir=str(tmp_path / "cache"))

    assert splits["train"].num_rows == 24
    assert splits["unlabelled"].num_rows == 15
    assert splits["train"][3]["customer"] == "shop 0"
    assert splits["train"][3]["label"] == "spam"
