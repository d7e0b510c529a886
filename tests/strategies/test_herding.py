"""Herding: what each strategy counts, and what rows that are labelled or wait for it change."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import teeter
from reference import facility_location as literal
from teeter import Outputs
from teeter.checks import example_context
from teeter.errors import InputError
from teeter.kernels.uncertainty import class_weights
from teeter.strategies import Context, get

NAMES = ["maxherding", "uherding", "herding-ldm-s"]


def expected_picks(name: str, context: Context, n: int, *, weighted: bool = True) -> list[int]:
    """Return the picks by the definitions, in float64."""
    probabilities = context.logits.double().softmax(dim=1).numpy()
    two_largest = np.sort(probabilities, axis=1)[:, -2:]
    weights = 1 - (two_largest[:, 1] - two_largest[:, 0])
    if weighted:
        weights = weights * literal.class_weights(probabilities)
    if name == "maxherding":
        weights = np.ones(len(context))
    centres = context.labelled_features.double().numpy()
    return literal.herding(context.features.double().numpy(), n, weights, centres)


@pytest.mark.checks(
    "maxherding", "uherding", "herding-ldm-s", against="the formula of its weights, in float64"
)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_picks_what_the_formula_says(name: str, weighted: bool) -> None:
    context = example_context(40, dtype=torch.float64)
    options = {} if name == "maxherding" else {"class_weights": weighted}
    rows = get(name)(**options).select(context, 9)
    assert rows.tolist() == expected_picks(name, context, 9, weighted=weighted)


@given(rows=st.integers(1, 8), classes=st.integers(2, 5), seed=st.integers(0, 10**6))
def test_class_weights_by_their_formula(rows: int, classes: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    expected = literal.class_weights(logits.softmax(dim=1).numpy())
    np.testing.assert_allclose(class_weights(logits).numpy(), expected, rtol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_rows_that_wait_count_like_labelled_ones(name: str) -> None:
    context = example_context(40)
    labelled = context.labelled.features
    waiting = replace(context, labelled=None, labels=None, waiting=labelled)
    alone = replace(context, labelled=None, labels=None)
    picks = get(name)().select(context, 9).tolist()
    assert get(name)().select(waiting, 9).tolist() == picks
    assert get(name)().select(alone, 9).tolist() != picks


def test_ldm_s_picks_from_eight_labels_per_class_on() -> None:
    """The example has 12 labelled rows of 4 classes."""
    switched = get("herding-ldm-s")(labels_per_class=3).select(example_context(), 9)
    assert switched.tolist() == get("ldm-s")().select(example_context(), 9).tolist()
    early = get("herding-ldm-s")(labels_per_class=4).select(example_context(), 9)
    assert early.tolist() == get("uherding")().select(example_context(), 9).tolist()
    assert get("herding-ldm-s")().labels_per_class == 8


@pytest.mark.parametrize("name", ["maxherding", "uherding"])
def test_larger_pools_are_sampled(name: str) -> None:
    few = get(name)(sample=20)
    outcomes = [few.select(example_context(60, seed=0), 9).tolist() for _ in range(2)]
    assert outcomes[0] == outcomes[1]
    assert outcomes[0] != get(name)().select(example_context(60), 9).tolist()
    assert len(set(few.select(example_context(60), 50).tolist())) == 50, "more picks than samples"


def test_notes_say_how_many_uncertain_rows_a_pick_covers() -> None:
    context = example_context(50)
    rows = get("maxherding")().select(context, 5)
    covers = context.notes["covers"]
    assert 0 < int(covers[rows].sum()) <= 50
    assert int(covers.sum()) == int(covers[rows].sum())

    outputs = Outputs(features=context.features, logits=100 * context.logits)
    sure = replace(context, outputs=outputs)
    picks = get("uherding")().select(sure, 5)
    assert int(sure.notes["covers"][picks].sum()) < int(covers[rows].sum())


def test_a_learner_covers_what_waits_before_and_after_its_first_model() -> None:
    from sklearn.datasets import load_iris
    from sklearn.linear_model import LogisticRegression

    data, classes = load_iris(return_X_y=True)
    learner = teeter.Learner(
        LogisticRegression(max_iter=1000), data, "uherding", classes=3, cold_start="maxherding"
    )
    for _ in range(2):
        first = learner.ask(3)
        again = learner.ask(3, exclude=first.tolist())
        waiting = learner.ask(3, waiting=first.tolist())
        assert not set(waiting) & set(first)
        assert waiting.tolist() != again.tolist()
        together = learner.ask(6)
        assert together[3:].tolist() == waiting.tolist(), "as if they had been asked for at once"
        learner.tell(first, classes[first])
        learner.fit()


def test_a_learner_with_labels_of_one_class_covers_them() -> None:
    from sklearn.linear_model import LogisticRegression

    data = np.array([[1.0, 0], [1, 0.1], [1, -0.1], [0, 1], [0.1, 1], [-1, 0]])
    learner = teeter.Learner(
        LogisticRegression(), data, "uherding", classes=2, cold_start="maxherding"
    )
    first = learner.ask(1)
    learner.tell(first, [0])
    learner.fit()
    assert first.tolist() == [1]
    assert set(learner.ask(2)) in ({3, 5}, {4, 5}), "not the two rows beside the labelled one"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("maxherding", {"sample": 0}, "sample is 0: it must be a whole number of 1 or more"),
        ("uherding", {"class_weights": 1}, "class_weights is 1: it must be True or False"),
        ("herding-ldm-s", {"labels_per_class": 0.5}, "labels_per_class is 0.5"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    name: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        get(name)(**options)


def test_labels_are_balanced_by_class_weights() -> None:
    """One class in fifty rows is rare: with weights, more of its rows are picked."""
    generator = torch.Generator().manual_seed(0)
    common = torch.tensor([1.0, 0.0]) + 0.3 * torch.randn(196, 2, generator=generator)
    rare = torch.tensor([0.0, 1.0]) + 0.3 * torch.randn(4, 2, generator=generator)
    outputs = Outputs(features=torch.cat([common, rare]), weight=torch.eye(2))
    plain = teeter.select("uherding", outputs, 5, options={"class_weights": False})
    weighted = teeter.select("uherding", outputs, 5)
    assert (weighted >= 196).sum() >= (plain >= 196).sum()
