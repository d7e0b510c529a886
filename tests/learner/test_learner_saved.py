"""A saved learner continues as if nothing had happened, and a file that holds none is refused."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import SGDClassifier
from torch import Tensor, nn

import teeter
from example_learners import (
    LOGISTIC,
    QUICK,
    ROWS,
    TRUTH,
    Remembering,
    answer_batch,
    make_fitted_learner,
    make_learner,
    network,
)
from teeter import Learner
from teeter.base.files import write_state
from teeter.errors import FileError, InputError, UnknownNameError
from teeter.learner.rounds import resume
from teeter.models.networks import mlp
from teeter.strategies import Context, Strategy
from teeter.strategies.base import registry


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strategies that a test registers are gone after it."""
    monkeypatch.setattr(registry, "_classes", registry.loaded_classes())


def assert_same_course(learner: Learner, other: Learner) -> None:
    """Check that both continue alike for two rounds."""
    for _ in range(2):
        assert learner.predict().tolist() == other.predict().tolist()
        assert answer_batch(learner) == answer_batch(other)
        learner.fit()
        other.fit()
    assert learner.rounds == other.rounds
    assert learner.evaluate(ROWS, TRUTH) == other.evaluate(ROWS, TRUTH)


class Disagreement(Strategy):
    """Rows on which the networks of an ensemble differ."""

    needs = frozenset({"ensemble_logits"})

    def choose(self, context: Context, n: int) -> Tensor:
        return context.posterior_logits.std(dim=0).sum(dim=1).argsort(descending=True)[:n]


SAVED: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "a network": (network, "ldm-s", {"seed": np.int64(4), "pool_size": 30}),
    "an ensemble": (network, "test-disagreement", {"members": 3}),
    "an estimator": (LOGISTIC, "margin", {}),
    "a forest": (RandomForestClassifier(5), "entropy", {"seed": 2}),
    "estimators": (SGDClassifier(loss="log_loss"), "test-disagreement", {"members": 3}),
    "a memory": (network, "test-remembering", {}),
}


@pytest.mark.parametrize("told_after_the_fit", [False, True])
@pytest.mark.parametrize("kind", SAVED)
def test_a_saved_learner_goes_on_as_if_nothing_had_happened(
    kind: str, told_after_the_fit: bool, tmp_path: Path
) -> None:
    teeter.strategies.register("test-disagreement")(Disagreement)
    teeter.strategies.register("test-remembering")(Remembering)
    model, strategy, options = SAVED[kind]

    learner = make_fitted_learner(model, strategy, **options)
    answer_batch(learner)
    learner.fit()
    if told_after_the_fit:
        answer_batch(learner)

    learner.save(tmp_path / "learner")
    loaded = Learner.load(tmp_path / "learner", model, ROWS, device="cpu")

    assert loaded.training == learner.training
    assert loaded.classes == learner.classes
    assert_same_course(learner, loaded)


def test_a_saved_memory_comes_back_in_kind(tmp_path: Path) -> None:
    teeter.strategies.register("test-remembering")(Remembering)
    learner = make_fitted_learner(strategy="test-remembering")
    answer_batch(learner)
    learner.fit()
    learner.save(tmp_path / "learner")
    memory = Learner.load(tmp_path / "learner", network, ROWS).state.memory
    assert memory.keys() == learner.state.memory.keys() == {"next", "starts", "mean", "size"}
    assert (memory["next"], memory["starts"]) == (5, [0])
    assert torch.equal(memory["mean"], learner.state.memory["mean"])
    assert isinstance(memory["size"], np.ndarray)
    assert memory["size"].tolist() == [48]


def test_what_is_remembered_of_a_round_under_way_comes_back(tmp_path: Path) -> None:
    teeter.strategies.register("test-remembering")(Remembering)
    learner = make_fitted_learner(strategy="test-remembering")
    answer_batch(learner)
    learner.save(tmp_path / "learner")
    loaded = Learner.load(tmp_path / "learner", network, ROWS, device="cpu")
    assert loaded.state.memory == learner.state.memory == {}
    learner.fit()
    loaded.fit()
    assert loaded.state.memory["next"] == learner.state.memory["next"] == 5
    assert torch.equal(loaded.state.memory["mean"], learner.state.memory["mean"])


def test_a_memory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    learner = make_learner()
    resume(learner, 0, {"model": nn.Linear(1, 1)})
    with pytest.raises(InputError, match="Cannot save a Linear"):
        learner.save(tmp_path / "learner")
    assert list(tmp_path.iterdir()) == []


def test_a_learner_is_saved_before_it_knows_anything(tmp_path: Path) -> None:
    learner = make_learner(
        cold_start="seeding-l2",
        strategy=teeter.strategies.get("ldm-s")(rays=64),
        passes=3,
        batch_size=7,
    )
    learner.save(tmp_path / "learner")
    loaded = Learner.load(tmp_path / "learner", network, ROWS)
    assert loaded.ask(5).tolist() == learner.ask(5).tolist()
    assert loaded.strategy == learner.strategy
    assert (loaded.passes, loaded.batch_size, loaded.training) == (3, 7, QUICK)


def test_a_learner_of_one_class_is_saved_without_a_model(tmp_path: Path) -> None:
    learner = make_fitted_learner(LOGISTIC, rows=range(0, 12, 3))
    learner.save(tmp_path / "learner")
    loaded = Learner.load(tmp_path / "learner", LOGISTIC, ROWS)
    assert loaded.models == []
    assert answer_batch(loaded) == answer_batch(learner)
    learner.fit()
    loaded.fit()
    assert_same_course(learner, loaded)


def test_a_saved_learner_knows_its_labels_and_settings(tmp_path: Path) -> None:
    learner = make_learner(classes=(3, 1, 2), seed=9, head="7", pool_size=20)
    learner.tell([5, 1], [2, 3])
    learner.save(tmp_path / "learner")
    loaded = Learner.load(tmp_path / "learner", network, ROWS)
    assert loaded.classes == (3, 1, 2)
    assert (loaded.seed, loaded.head, loaded.pool_size) == (9, "7", 20)
    assert loaded.pool.labelled.tolist() == [1, 5]
    assert loaded.pool.labels.tolist() == [0, 2]


def test_a_strategy_that_has_no_name_is_refused_when_saved(tmp_path: Path) -> None:
    learner = make_learner(strategy=Remembering())
    with pytest.raises(
        InputError, match=r"Remembering has no registered name.*teeter.strategies.register"
    ):
        learner.save(tmp_path / "learner")


def test_a_strategy_that_is_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(registry, "_classes", registry.loaded_classes())
        teeter.strategies.register("test-remembering")(Remembering)
        make_learner(strategy="test-remembering").save(tmp_path / "learner")
    with pytest.raises(UnknownNameError, match="No strategy is called 'test-remembering'"):
        Learner.load(tmp_path / "learner", network, ROWS)


def save_learner(path: Path) -> Path:
    make_fitted_learner().save(path)
    return path


def save_and_cut(path: Path) -> None:
    save_learner(path)
    path.write_bytes(path.read_bytes()[:-100])


UNREADABLE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "missing": (lambda path: None, "There is no file"),
    "damaged": (save_and_cut, "is not a saved learner, or it is damaged"),
    "a table": (
        lambda path: path.write_text("id,label\n" * 20),
        "is not a saved learner, or it is damaged",
    ),
    "someone else's weights": (
        lambda path: save_file(network(0).state_dict(), path),
        "it has no teeter header",
    ),
    "another state": (
        lambda path: write_state(path, {"kind": "campaign"}, {}),
        "is not a saved learner",
    ),
    "newer": (
        lambda path: write_state(path, {"format": 99}, {}),
        "saved by a newer version of teeter",
    ),
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_a_file_that_is_no_learner_is_refused(kind: str, tmp_path: Path) -> None:
    spoil, message = UNREADABLE[kind]
    spoil(tmp_path / "learner")
    with pytest.raises(FileError, match=message) as error:
        Learner.load(tmp_path / "learner", network, ROWS)
    assert "learner" in str(error.value)


def test_other_data_than_were_saved_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="was saved with 60 rows, but the data have 59"):
        Learner.load(save_learner(tmp_path / "learner"), network, ROWS[:59])


def test_another_network_than_was_saved_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match="The saved weights do not fit this Sequential: pass the model"
    ):
        Learner.load(save_learner(tmp_path / "learner"), lambda seed: mlp(4, 3, hidden=9), ROWS)


def test_a_save_that_fails_leaves_the_old_file_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save_learner(tmp_path / "learner")
    before = path.read_bytes()
    learner = make_fitted_learner(rows=range(30))

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(FileError, match=r"Cannot save to .*: No space left on device"):
            learner.save(path)
    assert path.read_bytes() == before
    with pytest.raises(FileError, match=r"Cannot save to .*: No such file or directory"):
        learner.save(tmp_path / "nowhere" / "learner")
    assert [file.name for file in tmp_path.iterdir()] == ["learner"]
    learner.save(path)
    assert len(Learner.load(path, network, ROWS).pool.labelled) == 30


def test_saving_changes_nothing(tmp_path: Path) -> None:
    learner = make_fitted_learner()
    other = make_fitted_learner()
    learner.save(tmp_path / "learner")
    assert_same_course(learner, other)


@pytest.mark.gpu
def test_a_learner_lives_on_the_gpu_and_is_read_back_on_the_cpu(tmp_path: Path) -> None:
    learner = make_fitted_learner(device="cuda")
    assert next(learner.models[0].parameters()).is_cuda
    answer_batch(learner)
    learner.fit()
    learner.save(tmp_path / "learner")
    loaded = Learner.load(tmp_path / "learner", network, ROWS, device="cpu")
    assert loaded.predict().tolist() == learner.predict().tolist()
