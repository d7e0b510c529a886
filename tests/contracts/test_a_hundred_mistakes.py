"""A table of mistakes that users make, with the sentence that answers each.

Every row is a wrong call or a wrong command, and a part of its answer. All answers are one or two
sentences of ours: what was asked, what was found, what to do. None is a traceback or the message of
another library.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.naive_bayes import GaussianNB
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import teeter
from cli.commands import CommandRunner
from teeter import Learner, Outputs, TrainingConfig
from teeter.bench.datasets import load_dataset
from teeter.campaigns import Campaign, Settings
from teeter.checks import check_strategy
from teeter.cli import app
from teeter.data import read_head, read_pool, read_table
from teeter.errors import TeeterError

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(20, 4))
WEIGHT = RNG.normal(size=(3, 4))
LOGITS = ROWS @ WEIGHT.T
PROBABILITIES = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
CLASSES = LOGITS.argmax(axis=1)
OUTPUTS = Outputs(LOGITS, ROWS, WEIGHT)
LOGITS_ONLY = Outputs(LOGITS)

NETWORK = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Dropout(), nn.Linear(32, 3))
NO_LINEAR_END = nn.Sequential(
    nn.Linear(4, 32), nn.Unflatten(1, (32, 1)), nn.Conv1d(32, 3, 1), nn.Flatten()
)
NAIVE_BAYES = GaussianNB().fit(ROWS, CLASSES)

# What the messages of Python and of other libraries are recognised by.
FOREIGN_WORDS = re.compile(
    r"Traceback|0x[0-9a-f]{6}|KeyError|ValueError|TypeError|NoneType object|sqlite3\.|sqlalchemy"
    r"|codec can't|errno|array is too|mat1 and mat2|n_features_in_",
    re.IGNORECASE,
)

MOST_CHARACTERS = 420


def require_clear_sentence(message: str, part: str) -> None:
    """Check that a message has a part, and reads like a sentence of ours."""
    assert part in message
    assert "\n" not in message
    assert message[-1] in ".?"
    assert len(message) <= MOST_CHARACTERS
    assert not FOREIGN_WORDS.search(message)


# ---- Python


def learner(model: Any = LogisticRegression(), **options: Any) -> Learner:  # noqa: B008
    return Learner(
        model,
        options.pop("data", ROWS),
        options.pop("strategy", "entropy"),
        **{"classes": 3, "device": "cpu", **options},
    )


def fitted_learner(**options: Any) -> Learner:
    new = learner(**options)
    new.tell(range(12), CLASSES[:12])
    new.fit()
    return new


PYTHON_MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    # Outputs
    "outputs of nothing": (lambda: Outputs(), "a head alone has no rows"),
    "a head without rows": (lambda: Outputs(weight=WEIGHT), "a head alone has no rows"),
    "probabilities as logits": (
        lambda: Outputs(PROBABILITIES),
        "non-negative and sum to 1, as probabilities do: pass them as probabilities= instead",
    ),
    "one-hot rows as logits": (lambda: Outputs(np.eye(3)), "pass them as probabilities= instead"),
    "logits as probabilities": (
        lambda: Outputs(probabilities=LOGITS),
        "must be non-negative and sum to 1: pass scores of another kind as logits=",
    ),
    "logits and probabilities": (
        lambda: Outputs(LOGITS, probabilities=PROBABILITIES),
        "Both logits and probabilities are given: pass one of them",
    ),
    "a posterior of probabilities": (
        lambda: Outputs(posterior_logits=PROBABILITIES[None]),
        "pass their logarithms instead",
    ),
    "logits of one row": (lambda: Outputs(LOGITS[0]), "it should be (rows, classes)"),
    "logits of one class": (lambda: Outputs(LOGITS[:, :1]), "at least 2 are needed"),
    "rows that differ in number": (
        lambda: Outputs(LOGITS, ROWS[:7]),
        "logits has 20 rows and features has 7: they must be the same",
    ),
    "a weight turned over": (
        lambda: Outputs(features=ROWS, weight=WEIGHT.T),
        "must have the shape (classes, features)",
    ),
    "a bias alone": (
        lambda: Outputs(features=ROWS, bias=np.zeros(3)),
        "A bias without a weight is not a head",
    ),
    "features of another head": (
        lambda: Outputs(LOGITS + 9, ROWS, WEIGHT),
        "the features must be the inputs of the head",
    ),
    "a NaN": (
        lambda: Outputs(np.where(LOGITS > 1, np.nan, LOGITS)),
        "logits has NaN or infinity in",
    ),
    "texts as features": (
        lambda: Outputs(features=[["a", "b"]]),
        "features holds strings: pass numbers",
    ),
    "rows of different lengths": (
        lambda: Outputs(features=[[1.0, 2.0], [1.0]]),
        "rows differ in length",
    ),
    "numbers too large to multiply": (
        lambda: Outputs(features=(ROWS * 1e20).astype(np.float32), weight=WEIGHT),
        "too large to be multiplied: scale them to about 1",
    ),
    # select, scores and ldm
    "a strategy misspelt": (
        lambda: teeter.select("ldms", OUTPUTS, 3),
        "No strategy is called 'ldms'. Did you mean 'ldm-s'?",
    ),
    "no rows to pick": (lambda: teeter.select("margin", OUTPUTS, 0), "ask for 1 to 20"),
    "more rows than there are": (
        lambda: teeter.select("margin", OUTPUTS, 21),
        "Cannot pick 21 of 20 candidates: ask for 1 to 20",
    ),
    "half a row": (lambda: teeter.select("margin", OUTPUTS, 2.5), "ask for a whole number"),
    "an option of another strategy": (
        lambda: teeter.select("entropy", OUTPUTS, 3, options={"rays": 8}),
        "entropy has no option 'rays'",
    ),
    "an option out of range": (
        lambda: teeter.select("ldm-s", OUTPUTS, 3, options={"rays": 0}),
        "rays is 0: it must be a whole number of 1 or more",
    ),
    "a seed of words": (
        lambda: teeter.select("random", OUTPUTS, 3, seed="one"),
        "seed is 'one': it must be a whole number",
    ),
    "a device that does not exist": (
        lambda: teeter.select("margin", OUTPUTS, 3, device="gpu"),
        "No device is called 'gpu': try 'cpu', 'cuda' or 'cuda:1'",
    ),
    "an array instead of outputs": (
        lambda: teeter.select("margin", LOGITS, 3),
        "wrap the model outputs in teeter.Outputs",
    ),
    "a head that is missing": (
        lambda: teeter.select("ldm-s", LOGITS_ONLY, 3),
        "ldm-s needs features, the input of the last layer, but there are none. With the available "
        "outputs you can use entropy",
    ),
    "a posterior that is missing": (
        lambda: teeter.select("dbal", teeter.observe(NETWORK, ROWS), 3),
        'compute them with observe(model, data, needs=("dropout_logits",))',
    ),
    "labelled rows that are missing": (
        lambda: teeter.select("coreset", OUTPUTS, 3),
        "coreset needs the outputs of the labelled rows: pass labelled=",
    ),
    "scores of a strategy without any": (
        lambda: teeter.scores("badge", OUTPUTS),
        "badge picks rows jointly and has no score for a single row",
    ),
    "an unknown method": (
        lambda: teeter.ldm(ROWS, WEIGHT, method="ray"),
        "method is 'ray': choose 'rays' or 'gaussian'",
    ),
    "too little memory": (
        lambda: teeter.config.working_memory(0).__enter__(),
        "it must be positive",
    ),
    # observe
    "a class instead of a model": (
        lambda: teeter.observe(GaussianNB, ROWS),
        "The model is the class GaussianNB: give a fitted instance of it instead",
    ),
    "a model that was not fitted": (
        lambda: teeter.observe(LogisticRegression(), ROWS),
        "This LogisticRegression is not fitted yet",
    ),
    "a regression": (
        lambda: teeter.observe(LinearRegression().fit(ROWS, CLASSES), ROWS),
        "LinearRegression is not a classifier",
    ),
    "probabilities of a callable": (
        lambda: teeter.observe(NAIVE_BAYES.predict_proba, ROWS),
        'return {"probabilities": p} instead',
    ),
    "the name of a model": (
        lambda: teeter.observe("resnet18", ROWS),
        "Cannot observe an object of type str: give a torch module",
    ),
    "a pool without rows": (
        lambda: teeter.observe(NETWORK, ROWS[:0]),
        "Cannot observe an empty pool",
    ),
    "rows of another width": (
        lambda: teeter.observe(NETWORK, ROWS[:, :3]),
        "The linear layer '0' of Sequential takes 4 numbers per row, but gets 3",
    ),
    "another width for an estimator": (
        lambda: teeter.observe(NAIVE_BAYES, ROWS[:, :3]),
        "This GaussianNB was fitted to 4 features per row, but the data has 3",
    ),
    "texts for a network": (
        lambda: teeter.observe(NETWORK, ["a text", "another"]),
        "convert them with teeter.models.Texts",
    ),
    "ragged rows for a network": (
        lambda: teeter.observe(NETWORK, [[1.0, 2.0], [1.0]]),
        "differ in shape",
    ),
    "a head that is not there": (
        lambda: teeter.observe(NETWORK, ROWS, head="fc"),
        "has no linear layer called 'fc'. It has: 0, 3",
    ),
    "a hidden layer as head": (
        lambda: teeter.observe(NO_LINEAR_END, ROWS, head="0"),
        "does not return the output of its layer '0' (32 numbers per row)",
    ),
    "no linear layer for ldm": (
        lambda: teeter.select("ldm-s", teeter.observe(NO_LINEAR_END, ROWS), 3),
        "you can use entropy",
    ),
    "needs that do not exist": (
        lambda: teeter.observe(NETWORK, ROWS, needs=("gradients",)),
        "Unknown outputs requested",
    ),
    "a loader without rows": (
        lambda: teeter.observe(NETWORK, DataLoader(TensorDataset(torch.zeros(0, 4)))),
        "Cannot observe an empty pool",
    ),
    # Learner
    "a class as model": (
        lambda: learner(LogisticRegression),
        "model is the class LogisticRegression: give an instance, LogisticRegression(...)",
    ),
    "a network as model": (
        lambda: learner(NETWORK),
        "give a function that takes a seed and returns a new model",
    ),
    "classes in one text": (
        lambda: learner(classes="cat,dog"),
        "The classes are the string 'cat,dog': give a list of names",
    ),
    "a single class": (lambda: learner(classes=["cat"]), "give two or more different names"),
    "a data loader as pool": (
        lambda: learner(data=DataLoader(TensorDataset(torch.zeros(3, 4)))),
        "The pool is a data loader",
    ),
    "a number as pool": (lambda: learner(data=3), "Cannot count the rows of an object of type int"),
    "a fraction as seed": (
        lambda: learner(seed=1.5),
        "seed is 1.5: it must be a whole number of 0 or more",
    ),
    "an ensemble of one": (lambda: learner(members=1), "members is 1: it must be 2 or more"),
    "a cold start that needs a model": (lambda: learner(cold_start="margin").ask(3), "margin"),
    "a label of another type": (
        lambda: learner().tell([1], ["2"]),
        "No class is called '2', a text: the class is 2, a number",
    ),
    "a label misspelt": (
        lambda: learner(classes=["cat", "dog", "owl"]).tell([1], ["dgo"]),
        "No class is called 'dgo'. Did you mean 'dog'?",
    ),
    "a row that is not there": (
        lambda: learner().tell([20], [1]),
        "The pool has no row 20: its rows are 0 to 19",
    ),
    "a row that is told twice": (lambda: learner().tell([1, 1], [0, 1]), "occurs twice"),
    "rows as fractions": (lambda: learner().tell([1.5], [0]), "Rows must be whole numbers"),
    "one label too few": (lambda: learner().tell([1, 2], [0]), "give one label per row"),
    "a fit without labels": (lambda: learner().fit(), "call tell with some labels first"),
    "a prediction without a model": (
        lambda: learner().predict(),
        "There is no model yet: call tell with labels of at least two classes, then fit",
    ),
    "more questions than rows": (
        lambda: fitted_learner().ask(9),
        "Cannot pick 9 of 8 candidates: ask for 1 to 8",
    ),
    "a question before the fit": (
        lambda: (lambda new: (new.tell([1, 2], [0, 1]), new.ask(2)))(learner()),
        "call fit before ask",
    ),
    "predictions of another width": (
        lambda: fitted_learner().predict(ROWS[:, :2]),
        "was fitted to 4 features per row, but the data has 2",
    ),
    "predictions of no rows": (lambda: fitted_learner().predict(ROWS[:0]), "has no rows"),
    "labels of another number": (
        lambda: fitted_learner().evaluate(ROWS, CLASSES[:3]),
        "There are 20 rows and 3 labels: give one label per row",
    ),
    "a learner that is not there": (
        lambda: Learner.load("none.learner", LogisticRegression(), ROWS),
        "none",
    ),
    "an unknown optimizer": (
        lambda: TrainingConfig(optimizer="adamm"),
        "No optimizer is called 'adamm': choose adam",
    ),
    "a learning rate below zero": (
        lambda: TrainingConfig(learning_rate=-1),
        "learning_rate is -1: it must be positive",
    ),
    "no epochs": (lambda: TrainingConfig(epochs=0), "epochs is 0: it must be positive"),
    "a strategy that is no class": (
        lambda: check_strategy("margins"),
        "'margins' is not a strategy: give a class that derives from teeter.strategies.Strategy",
    ),
    # Datasets and files
    "a dataset misspelt": (
        lambda: load_dataset("mnits"),
        "No dataset is called 'mnits'. Did you mean 'mnist'?",
    ),
    "too many validation rows": (
        lambda: load_dataset("digits", validation=5000),
        "Cannot draw 5000 validation rows out of 1437 training rows of digits",
    ),
    "a folder of datasets that is not there": (
        lambda: load_dataset("mnist", folder="nowhere"),
        "There is no folder nowhere",
    ),
    "a pool that is not there": (lambda: read_pool("pool.npz"), "There is no file pool.npz"),
    "a pool of another type": (lambda: read_pool(__file__), "ends in '.py'"),
    "a head that is not in a file": (lambda: read_head("head.pt"), "There is no file head.pt"),
    "a table that is not there": (lambda: read_table("t.csv"), "There is no file t.csv"),
    # Settings of a campaign
    "an unknown kind": (lambda: Settings(kind="video"), "No kind is called 'video'"),
    "an unknown head": (lambda: Settings(head="tree"), "No head is called 'tree'"),
    "an unknown consensus": (lambda: Settings(consensus="vote"), "No consensus is called 'vote'"),
    "a share above one": (lambda: Settings(control=1.5), "control is 1.5"),
    "a holdout below zero": (lambda: Settings(holdout=-1), "it must be 0 or more items"),
    "a negative cost": (lambda: Settings(cost=-1), "cost is -1: it must be 0 or more"),
    "an overlap of two": (lambda: Settings(overlap=2), "must be from 0 to 1"),
    "an overlap of one person": (lambda: Settings(people=1), "needs 2 or more annotators"),
    "a seed of 70 bits": (lambda: Settings(seed=2**70), "it must be a 64-bit integer"),
}


@pytest.mark.parametrize("name", PYTHON_MISTAKES)
def test_a_mistake_in_python_is_answered(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    mistake, part = PYTHON_MISTAKES[name]
    with pytest.raises(TeeterError) as refusal:
        mistake()
    require_clear_sentence(str(refusal.value), part)


# ---- Campaigns in Python


@pytest.fixture(scope="module")
def campaign_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign of vectors, which no case changes."""
    path = tmp_path_factory.mktemp("mistakes") / "vectors.teeter"
    items = [{"id": f"v{k}", "features": row} for k, row in enumerate(ROWS)]
    Campaign.make(
        items, ["red", "green", "blue"], at=path, settings=Settings(kind="features")
    ).database.close()
    return path


def write_other_database(path: str) -> None:
    """Write an SQLite file that is not a campaign."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table notes (text)")


CAMPAIGN_MISTAKES: dict[str, tuple[Callable[[Campaign], object], str]] = {
    "classes in one text": (
        lambda c: Campaign.make([], "a,b", at="x.teeter"),
        "The classes are the string 'a,b': give a list of names",
    ),
    "a single class": (
        lambda c: Campaign.make([], ["a"], at="x.teeter"),
        "give two or more different names",
    ),
    "two equal classes": (
        lambda c: Campaign.make([], ["a", "a "], at="x.teeter"),
        "give two or more different names",
    ),
    "a class of no name": (
        lambda c: Campaign.make([], ["a", None], at="x.teeter"),
        "None cannot be the name of a class: give a string or a number",
    ),
    "a class of control characters": (
        lambda c: Campaign.make([], ["a", "b\x1b"], at="x.teeter"),
        "control character",
    ),
    "a strategy misspelt": (
        lambda c: Campaign.make([], ["a", "b"], at="x.teeter", settings=Settings(strategy="ldms")),
        "No strategy is called 'ldms'. Did you mean 'ldm-s'?",
    ),
    "a strategy that needs another head": (
        lambda c: Campaign.make([], ["a", "b"], at="x.teeter", settings=Settings(strategy="dbal")),
        "dbal needs dropout_logits, which the head pool does not provide",
    ),
    "a folder that is not there": (
        lambda c: Campaign.make([], ["a", "b"], at="no/x.teeter"),
        "there is no folder",
    ),
    "a campaign that exists": (
        lambda c: Campaign.make(["one"], ["a", "b"], at=c.database.path),
        "already exists: open it, or choose another name",
    ),
    "no campaign": (lambda c: Campaign.open("none.teeter"), "There is no campaign"),
    "a folder instead of a campaign": (
        lambda c: Campaign.open("."),
        "is a folder: give a campaign file",
    ),
    "a table instead of a campaign": (
        lambda c: (Path("m.csv").write_text("text\none\n"), Campaign.open("m.csv")),
        "is a CSV file, not a campaign: create a campaign from it with teeter campaign new",
    ),
    "an empty file": (
        lambda c: (Path("e.teeter").touch(), Campaign.open("e.teeter")),
        "is empty, so it is not a campaign",
    ),
    "noise instead of a campaign": (
        lambda c: (Path("n.teeter").write_bytes(bytes(range(256)) * 20), Campaign.open("n.teeter")),
        "is damaged or is not a campaign",
    ),
    "a database of another program": (
        lambda c: (write_other_database("o.db"), Campaign.open("o.db")),
        "belongs to another program: give a campaign file",
    ),
    "a server of another kind": (
        lambda c: Campaign.open("mysql://host/db"),
        "Campaigns are stored in SQLite or PostgreSQL, not in mysql",
    ),
    "a campaign of another name": (
        lambda c: Campaign.open(c.database.path, "vector"),
        "No campaign is called 'vector'. Did you mean 'vectors'?",
    ),
    "one text instead of a list": (lambda c: c.add("a text"), "give a list of items"),
    "an item of another type": (lambda c: c.add([3]), "An item cannot be of type int"),
    "an item without features": (lambda c: c.add([{"id": "x"}]), "has no features"),
    "features that are not numbers": (
        lambda c: c.add([{"id": "x", "features": ["a", "b"]}]),
        "The features of 'x' are not numbers",
    ),
    "features with a NaN": (
        lambda c: c.add([{"id": "x", "features": [1, 2, np.nan, 4]}]),
        "the value at position 2 is nan",
    ),
    "features of another width": (
        lambda c: c.add([{"id": "x", "features": [1, 2]}]),
        "differ in length: [2, 4]",
    ),
    "an id that is taken": (
        lambda c: c.add([{"id": "x", "features": ROWS[0]}, {"id": "x", "features": ROWS[1]}]),
        "Two different items have the id 'x'",
    ),
    "a label that is no class": (
        lambda c: c.add([{"id": "x", "features": ROWS[0] + 1, "label": "rde"}]),
        "No class is called 'rde'. Did you mean 'red'?",
    ),
    "an item that is not there": (lambda c: c.tell("w1", "red"), "No item is called 'w1'"),
    "a class that is not there": (
        lambda c: c.tell("v1", "purple"),
        "No class is called 'purple'",
    ),
    "a list of labels": (lambda c: c.tell("v1", ["red"]), "cannot be the name of a class"),
    "a label of nothing": (lambda c: c.tell("v1", None), "A label needs a class"),
    "an annotator without a name": (lambda c: c.tell("v1", "red", " "), "give a name"),
    "an annotator called import": (lambda c: c.tell("v1", "red", "import"), "is reserved"),
    "no questions": (lambda c: c.ask(0), "ask for 1 or more"),
    "no suspects": (lambda c: c.review.suspects(0), "Cannot list 0 labels: ask for 1 or more"),
    "a model of no labels": (
        lambda c: c.train(),
        "No item has a label yet: label items of at least two classes, then train",
    ),
    "a decision for no class": (
        lambda c: c.review.decide("v1", "purple"),
        "No class is called 'purple'",
    ),
    "a class like another one": (lambda c: c.classes.add("RED"), "'red' and 'RED' differ only in"),
    "a label to confirm": (lambda c: c.confirm_label("v1"), "v1 has no label to confirm"),
    "an unknown format": (
        lambda c: c.export("out.docx"),
        "Cannot tell the format of out.docx: use the suffix .csv, .xlsx, .jsonl or .parquet",
    ),
    "a format misspelt": (
        lambda c: c.export("out.csv", "prodgy"),
        "No format is called 'prodgy'. Did you mean 'prodigy'?",
    ),
    "an unknown role": (
        lambda c: c.people.add("ann", "king"),
        "No role is called 'king'",
    ),
    "a backup over a file": (
        lambda c: (Path("b.teeter").touch(), c.back_up("b.teeter")),
        "b.teeter already exists: choose another file",
    ),
    "a backup that is none": (
        lambda c: (Path("b.txt").write_text("hello"), Campaign.restore("b.txt", "r.teeter")),
        "b.txt is damaged or is not a backup of a campaign",
    ),
}


@pytest.mark.parametrize("name", CAMPAIGN_MISTAKES)
def test_a_mistake_with_a_campaign_is_answered(
    name: str, campaign_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    mistake, part = CAMPAIGN_MISTAKES[name]
    campaign = Campaign.open(campaign_file)
    try:
        with pytest.raises(TeeterError) as refusal:
            mistake(campaign)
        assert campaign.status().labelled == 0
    finally:
        campaign.database.close()
    require_clear_sentence(str(refusal.value), part)


# ---- Commands


@pytest.fixture
def work_folder(tmp_path: Path, campaign_file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of a user, with files of several kinds."""
    (tmp_path / "m.csv").write_text("id,text,mark\n1,one,good\n2,two,godo\n3,three,\n")
    (tmp_path / "numbers.csv").write_text("a,b\n1,2\n3,4\n")
    (tmp_path / "header.csv").write_text("text\n")
    (tmp_path / "empty.csv").touch()
    (tmp_path / "latin.csv").write_bytes(b"text\nK\x81se\n")
    (tmp_path / "broken.jsonl").write_text('{"text": "one"}\n{"text": \n')
    (tmp_path / "notes.docx").write_text("text")
    (tmp_path / "wrong.toml").write_text('proxy = "here"')
    (tmp_path / "no_images").mkdir()

    (tmp_path / "c.teeter").write_bytes(campaign_file.read_bytes())
    np.savez(tmp_path / "pool.npz", features=ROWS)
    np.savez(tmp_path / "head.npz", weight=WEIGHT)
    np.savez(tmp_path / "wide.npz", weight=np.ones((3, 9)))

    monkeypatch.chdir(tmp_path)
    return tmp_path


COMMAND_MISTAKES: list[tuple[str, str]] = [
    # campaign new
    ("campaign new none.csv --classes a,b", "There is no file none.csv"),
    ("campaign new notes.docx --classes a,b", "ends in '.docx'"),
    ("campaign new empty.csv --classes a,b", "is empty: it has 0 bytes"),
    ("campaign new header.csv --classes a,b", "header.csv has a header (text) and no rows"),
    ("campaign new latin.csv --classes a,b", "latin.csv is not UTF-8, UTF-16 or Windows-1252 text"),
    (
        "campaign new numbers.csv --classes a,b",
        "has the texts: a, b? Name it as the text column (--text)",
    ),
    ("campaign new broken.jsonl --classes a,b", "Line 2 of broken.jsonl is not a JSON object"),
    ("campaign new no_images --classes a,b", "has no images"),
    ("campaign new m.csv --classes a", "give two or more different names"),
    ("campaign new m.csv --classes a,a", "give two or more different names"),
    ("campaign new m.csv --classes a,,b", "give two or more different names"),
    (
        "campaign new m.csv --classes names.txt",
        "There is no file names.txt to read the class names",
    ),
    ("campaign new m.csv --classes m.csv", "rename the column of class names to 'name'"),
    ("campaign new m.csv --classes a,b --text body", "No column of m.csv is called 'body'"),
    ("campaign new m.csv --classes a,b --id key", "No column of m.csv is called 'key'"),
    ("campaign new m.csv --classes good,bad --labels mark", "No class is called 'godo'"),
    (
        "campaign new m.csv --classes a,b --labels marks",
        "No column of m.csv is called 'marks'. Did",
    ),
    ("campaign new m.csv --classes a,b --strategy ldms", "Did you mean 'ldm-s'?"),
    ("campaign new m.csv --classes a,b --control 2", "control is 2"),
    ("campaign new m.csv --classes a,b --budget 9", "--budget needs --cost"),
    ("campaign new m.csv --classes a,b --keys u", "it means unsure"),
    ("campaign new m.csv --classes a,b --keys x,x", "already the shortcut for a"),
    ("campaign new m.csv --classes a,b --keys ab", "give one letter or digit"),
    ("campaign new m.csv --classes a,b --file c.teeter", "c.teeter already exists"),
    ("campaign new m.csv --classes a,b --file no/c.teeter", "there is no folder"),
    # Campaigns that are no campaigns
    ("status none.teeter", "The campaigns in this folder are c.teeter"),
    ("status no/c.teeter", "If the campaign was moved, give its new path"),
    ("status m.csv", "is a CSV file, not a campaign"),
    ("status no_images", "is a folder: give a campaign file"),
    ("status c.teeter#d", "No campaign is called 'd'"),
    ("status mysql://host/db", "not in mysql"),
    # Labels and classes
    ("campaign train c.teeter", "No item has a label yet"),
    ("campaign review c.teeter suspects -n 0", "ask for 1 or more"),
    ("campaign classes c.teeter --add RED", "'red' and 'RED' differ only in case"),
    (
        "campaign classes c.teeter --rename rde=dark",
        "No class is called 'rde'. Did you mean 'red'?",
    ),
    ("campaign classes c.teeter --rename red", "--rename red is not OLD=NEW"),
    ("campaign suggest c.teeter http://127.0.0.1:1/v1", "add --model NAME"),
    ("campaign suggest c.teeter none.csv", "There is no file none.csv"),
    ("campaign add c.teeter m.csv", "are of kind features, but '1' is of kind text"),
    # Files and people
    ("export c.teeter m.csv", "m.csv already exists"),
    ("export c.teeter c.teeter --overwrite", "it is an input file"),
    ("export c.teeter out.csv --format xml", "No format is called 'xml'"),
    ("export c.teeter out.csv --history out.csv", "choose two different files"),
    ("campaign backup c.teeter m.csv", "m.csv already exists"),
    ("campaign restore m.csv r.teeter", "m.csv is damaged or is not a backup of a campaign"),
    ("campaign restore c.teeter c.teeter", "c.teeter already exists"),
    ("campaign backup c.teeter postgresql://host/db --keep 3", "--keep needs a folder of backups"),
    ("campaign people c.teeter --add ann --role king", "No role is called 'king'"),
    ("campaign people c.teeter --role owner", "--role needs --add NAME"),
    ("campaign people c.teeter --remove ann", "No member is called 'ann'. There are none."),
    # predict
    ("predict none.teeter m.csv out.csv", "There is no campaign"),
    ("predict no_images m.csv out.csv", "no_images is not a model"),
    ("predict c.teeter m.csv out.csv", "no model yet"),
    # select
    ("select none.npz -n 3", "There is no file none.npz"),
    ("select pool.npz -n 3", "ldm-s needs a head, but pool.npz holds none: pass --head"),
    ("select pool.npz -n 30 --head head.npz", "Cannot pick 30 of 20 candidates"),
    ("select pool.npz -n 3 --head wide.npz", "features has 4 columns and weight has 9"),
    ("select pool.npz -n 3 --head none.npz", "There is no file none.npz"),
    ("select pool.npz -n 3 --head head.npz --strategy ldms", "Did you mean 'ldm-s'?"),
    ("select notes.docx -n 3", "ends in '.docx'"),
    # Others
    ("bench datasets mnits", "Did you mean 'mnist'?"),
    ("bench run digit --out run", "No setting is called 'digit'. Did you mean 'digits'?"),
    ("bench report nowhere", "There is no run in nowhere"),
    ("serve m.csv", "list the classes with --classes"),
    ("serve none.teeter", "There is no campaign"),
    ("serve c.teeter --settings none.toml", "Cannot read none.toml: No such file or directory."),
    ("serve c.teeter --settings wrong.toml", "wrong.toml: proxy: it must be an IP address"),
    ("try texs", "No sample is called 'texs'. Did you mean 'texts'?"),
]


@pytest.mark.usefixtures("work_folder")
@pytest.mark.parametrize(
    ("command", "part"), COMMAND_MISTAKES, ids=[row[0] for row in COMMAND_MISTAKES]
)
def test_a_mistake_on_the_command_line_is_answered(command: str, part: str) -> None:
    result = CommandRunner().invoke(app, command.split())
    assert result.exit_code == 2, result.output
    *notes, message = result.stderr.strip().splitlines()
    assert notes == []
    assert message.startswith("Error: ")
    require_clear_sentence(message, part)


def test_there_are_a_hundred_mistakes() -> None:
    assert len(PYTHON_MISTAKES) + len(CAMPAIGN_MISTAKES) + len(COMMAND_MISTAKES) >= 100
