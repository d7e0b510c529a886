"""Exports that other tools read, each read back by the library that it is for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from teeter.campaigns import Campaign, Settings
from teeter.campaigns.integrations.label_studio.payloads import build_label_config, chosen_class
from teeter.campaigns.items.read_items import read_items
from teeter.campaigns.records import ItemColumns
from teeter.errors import InputError, MissingExtraError


def make_texts(path: Path) -> Campaign:
    """Return a campaign of 40 texts with a column, 24 of them labelled and one flagged."""
    words = ["warm bread", "cheap pills"]
    items = [
        {"id": f"t{k}", "text": f"{words[k % 2]} number {k}", "customer": f"shop {k % 3}"}
        for k in range(40)
    ]

    settings = Settings(encoder="tfidf")
    Campaign.make(items, ["ham", "spam", "a/b: rare"], at=path, settings=settings).database.close()
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


def test_a_format_of_other_items_is_refused(texts: Campaign, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="The format image-folder is only for images"):
        texts.export(tmp_path / "out", "image-folder")
    empty = Campaign.make(
        [], ["a", "b"], at=tmp_path / "e.teeter", settings=Settings(encoder="tfidf")
    )
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
    table = [json.loads(line) for line in arrays["table"].tobytes().decode().splitlines()]
    assert table[position] == {"id": "t2", "label": "spam", "customer": "shop 2"}

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
    assert documents[1].user_data["columns"] == {"customer": "shop 1"}


def test_columns_with_the_names_of_fields_are_renamed(tmp_path: Path) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("id,title,text,label\na,Broken,In parts,mine\nb,Fine,As new,\n")
    path = tmp_path / "rows.teeter"
    Campaign.make(
        read_items(source, ItemColumns("{title} {text}")), ["good", "poor"], at=path
    ).database.close()
    campaign = Campaign.open(path)
    campaign.tell("a", "poor")

    campaign.export(tmp_path / "tasks.json", "label-studio")
    campaign.export(tmp_path / "out.jsonl", "doccano")

    task, _ = json.loads((tmp_path / "tasks.json").read_text())
    assert task["data"] == {
        "id": "a",
        "title": "Broken",
        "text": "Broken In parts",
        "text_imported": "In parts",
        "label": "mine",
        "teeter_item": "a",
    }
    assert json.loads((tmp_path / "out.jsonl").read_text()) == {
        "id": "a",
        "title": "Broken",
        "text": "Broken In parts",
        "text_imported": "In parts",
        "label": ["poor"],
        "label_imported": "mine",
    }


_READ_BY_LABEL_STUDIO = """
import json, sys
from label_studio_sdk.converter import Converter
from label_studio_sdk.label_interface import LabelInterface

tasks_path, config, folder = sys.argv[1:]
interface = LabelInterface(config)
choice = {"from_name": "label", "to_name": "item", "type": "choices"}
wrong = {"result": [{**choice, "value": {"choices": ["no such class"]}}]}
if not interface.validate_prediction(wrong, return_errors=True):
    sys.exit("Label Studio would take anything")
for task in json.load(open(tasks_path)):
    interface.load_task(task["data"])
    results = [*task.get("annotations", []), *task.get("predictions", [])]
    for result in results:
        errors = interface.validate_prediction(result, return_errors=True)
        if errors:
            sys.exit(str(errors))
converter = Converter(config=config, project_dir=folder, download_resources=False)
rows = []
for item in converter.iter_from_json_file(tasks_path):
    rows.append([item["input"]["text"], item["output"]["label"][0]["choices"]])
print(json.dumps(rows))
"""


@pytest.mark.slow
def test_label_studio_reads_the_tasks_with_its_own_converter(
    texts: Campaign, tmp_path: Path
) -> None:
    python = find_label_studio_python()
    texts.train()
    path = tmp_path / "tasks.json"
    texts.export(path, "label-studio")
    tasks = json.loads(path.read_text())
    labelled = [task for task in tasks if "annotations" in task]
    # The server numbers tasks when it imports them, and the converter needs the numbers.
    numbered = [{"id": number, **task} for number, task in enumerate(tasks)]
    path.write_text(json.dumps(numbered))
    config = build_label_config(texts.settings, texts.classes.names())

    command = [python, "-c", _READ_BY_LABEL_STUDIO, str(path), config, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)

    assert result.returncode == 0, result.stderr
    rows = json.loads(result.stdout.splitlines()[-1])
    assert len(rows) == len(labelled) == 24
    assert rows[1] == ["cheap pills number 1", ["spam"]]


def find_label_studio_python() -> str:
    """Return an interpreter that has Label Studio's own package, or skip the test."""
    if find_spec("label_studio_sdk") is not None:
        return sys.executable
    program = os.environ.get("TEETER_LABEL_STUDIO") or shutil.which("label-studio")
    if program is None:
        pytest.skip("no label-studio on the PATH, and TEETER_LABEL_STUDIO is not set")
    return str(Path(program).with_name("python"))


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
