"""skorch classifiers: observed by their network, and fitted by a learner to all labelled rows with
its seed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

import teeter
from library_models import CLASSES, ROWS, seeded_fit, skorch_classifier
from teeter.errors import InputError

skorch = pytest.importorskip("skorch", reason="skorch is not installed")

LABELLED = np.arange(16)


def make_fitted_learner(
    model: Any = None, rows: Any = LABELLED, data: Any = ROWS, **options: Any
) -> teeter.Learner:
    learner = teeter.Learner(
        skorch_classifier() if model is None else model, data, classes=4, **options
    )
    learner.tell(rows, CLASSES[rows])
    learner.fit()
    return learner


def test_the_network_inside_is_what_tells() -> None:
    net = seeded_fit(skorch_classifier(), ROWS)
    outputs = teeter.observe(net, ROWS)
    expected = teeter.observe(net.module_, ROWS)

    assert torch.equal(outputs.features, expected.features)
    probabilities = torch.from_numpy(net.predict_proba(ROWS))
    torch.testing.assert_close(outputs.logits.softmax(dim=1), probabilities)


def test_steps_before_it_change_what_comes_to_it() -> None:
    scale = StandardScaler().fit(5 * ROWS + 3)
    net = seeded_fit(skorch_classifier(), scale.transform(5 * ROWS + 3))
    outputs = teeter.observe(make_pipeline(scale, net), 5 * ROWS + 3)
    assert torch.equal(outputs.logits, teeter.observe(net, scale.transform(5 * ROWS + 3)).logits)


def test_dropout_passes_and_ensembles_work() -> None:
    net = seeded_fit(skorch_classifier(), ROWS)
    assert teeter.observe(net, ROWS, ("dropout_logits",), passes=3).posterior_logits.shape == (
        3,
        48,
        4,
    )
    assert teeter.observe([net, net], ROWS).posterior_logits.shape == (2, 48, 4)
    learner = make_fitted_learner(strategy="ensemble", members=2)
    assert len(learner.models) == 2
    assert len(learner.ask(3)) == 3


@pytest.mark.parametrize("scaled", [False, True], ids=["alone", "in a pipeline"])
def test_the_learner_s_seed_decides_all_and_a_saved_one_goes_on(
    scaled: bool, tmp_path: Path
) -> None:
    model = make_pipeline(StandardScaler(), skorch_classifier()) if scaled else skorch_classifier()
    learner = make_fitted_learner(model)
    torch.rand(9)
    before = torch.get_rng_state()
    assert (make_fitted_learner(model).ask(6) == learner.ask(6)).all()
    assert torch.equal(before, torch.get_rng_state())
    learner.save(tmp_path / "learner")
    again = teeter.Learner.load(tmp_path / "learner", model, ROWS)
    assert (again.predict() == learner.predict()).all()
    assert (again.ask(6) == learner.ask(6)).all()


def test_a_network_that_is_made_already_starts_every_round_from_its_weights() -> None:
    network = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
    before = nn.utils.parameters_to_vector(network.parameters()).detach().clone()
    net = skorch.NeuralNetClassifier(
        network, criterion=nn.CrossEntropyLoss, lr=0.0, verbose=0, train_split=None
    )
    learner = make_fitted_learner(net)
    learner.fit()
    assert torch.equal(
        nn.utils.parameters_to_vector(learner.models[0].module_.parameters()), before
    )
    assert torch.equal(nn.utils.parameters_to_vector(network.parameters()), before)


def test_classes_that_it_has_not_seen_keep_their_columns() -> None:
    seen = np.flatnonzero(CLASSES != 1)[:12]
    learner = make_fitted_learner(rows=seen)
    assert learner.predict().shape == (48,)
    assert learner.observe(ROWS, ("logits",)).n_classes == 4
    assert learner.evaluate(ROWS[seen], CLASSES[seen]).accuracy > 0.3


def test_a_binary_classifier_has_two_classes() -> None:
    class Single(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 1)

        def forward(self, X: Tensor) -> Tensor:
            return self.layer(X).squeeze(-1)

    net = skorch.NeuralNetBinaryClassifier(
        Single, max_epochs=30, lr=0.3, verbose=0, train_split=None
    )
    net.fit(ROWS, (CLASSES > 1).astype(np.float32))
    outputs = teeter.observe(net, ROWS)
    assert outputs.weight.shape == (2, 6)
    np.testing.assert_array_equal(outputs.logits.argmax(dim=1), net.predict(ROWS).astype(int))


def test_mistakes_are_reported_in_a_sentence() -> None:
    with pytest.raises(InputError, match="This NeuralNetClassifier is not fitted yet"):
        teeter.observe(skorch_classifier(), ROWS)

    regressor = skorch.NeuralNetRegressor(nn.Linear(6, 1), verbose=0).initialize()
    with pytest.raises(InputError, match="NeuralNetRegressor is not a classifier"):
        teeter.observe(regressor, ROWS)

    learner = teeter.Learner(skorch_classifier(), ROWS, classes=5)
    learner.tell(LABELLED, CLASSES[LABELLED])
    learner.fit()
    with pytest.raises(InputError, match="The network has 4 outputs, but there are 5 classes"):
        learner.ask(1)
