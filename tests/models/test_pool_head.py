"""The pool head: the same as its slow twin, and what must hold whatever the rows are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import check_estimator

import teeter
from teeter.errors import InputError
from teeter.models import ExampleRegression, PoolHead
from teeter.models import pool_head as module
from tests.reference.pool_head import pool_head

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


def draw(seed: int, n_classes: int, n_pool: int, width: int = 4) -> tuple[Floats, Integers, Floats]:
    """Return labelled rows, two of each class, their classes, and unlabelled rows."""
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(n_classes, width))
    classes = np.repeat(np.arange(n_classes), 2)
    hidden = generator.choice(n_classes, n_pool, p=generator.dirichlet(np.full(n_classes, 2.0)))
    rows = centres[classes] + generator.normal(size=(len(classes), width))
    return rows, classes, centres[hidden] + 0.5 * generator.normal(size=(n_pool, width))


def logits(model: ExampleRegression, rows: Floats) -> Floats:
    decisions = model.decision_function(rows)
    if decisions.ndim == 1:
        return np.stack([np.zeros_like(decisions), decisions], axis=1)
    return decisions


def centred(values: Floats) -> Floats:
    """A constant per row changes no probability."""
    return values - values.mean(axis=1, keepdims=True)


@pytest.mark.parametrize("with_examples", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_the_head_is_that_of_the_slow_twin(
    n_classes: int, with_examples: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, classes, pool = draw(n_classes, n_classes, 60)
    examples = (rows[::2] + 0.3, classes[::2]) if with_examples else None
    monkeypatch.setattr(module, "_CHUNK_NUMBERS", 50)  # several chunks

    model = PoolHead(examples)
    model.tol = 1e-10
    model.fit(rows, classes, pool=pool)

    weight, bias = pool_head(rows, classes, pool, n_classes, examples=examples)
    expected = pool @ weight.T + bias
    np.testing.assert_allclose(centred(logits(model, pool)), centred(expected), atol=2e-4)


@pytest.mark.parametrize("pool", [None, np.zeros((0, 4))])
def test_without_a_pool_it_is_a_balanced_regression(pool: Floats | None) -> None:
    rows, classes, _ = draw(0, 3, 1)
    rows, classes = rows[:5], classes[:5]

    model = PoolHead().fit(rows, classes, pool=pool)

    plain = LogisticRegression(C=0.1, class_weight="balanced", max_iter=1000).fit(rows, classes)
    np.testing.assert_array_equal(model.coef_, plain.coef_)
    np.testing.assert_array_equal(model.intercept_, plain.intercept_)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), n_classes=st.integers(3, 5))
def test_the_numbers_of_classes_mean_nothing(seed: int, n_classes: int) -> None:
    rows, classes, pool = draw(seed, n_classes, 80)
    order = np.random.default_rng(seed).permutation(n_classes)

    model = PoolHead().fit(rows, classes, pool=pool)
    permuted = PoolHead().fit(rows, order[classes], pool=pool)

    np.testing.assert_allclose(
        centred(logits(permuted, pool))[:, order], centred(logits(model, pool)), atol=0.02
    )


def test_names_of_classes_may_be_strings() -> None:
    rows, classes, pool = draw(1, 3, 80)
    names = np.array(["zebra", "ant", "bee"])

    model = PoolHead().fit(rows, names[classes], pool=pool)

    assert model.classes_.tolist() == ["ant", "bee", "zebra"]
    numbers = PoolHead().fit(rows, classes, pool=pool).predict(pool)
    assert (model.predict(pool) == names[numbers]).mean() > 0.97


def test_copies_of_a_large_pool_change_nothing() -> None:
    """Both prior and caps grow with the pool once they are beyond their floors."""
    rows, classes, pool = draw(2, 3, 3_000)
    once = PoolHead().fit(rows, classes, pool=pool)
    # The labelled rows are a smaller share of the larger pool, which is all that differs.
    twice = PoolHead().fit(rows, classes, pool=np.concatenate([pool, pool]))
    np.testing.assert_allclose(logits(twice, pool), logits(once, pool), atol=0.05)


def test_unlabelled_rows_correct_a_few_bad_labels() -> None:
    generator = np.random.default_rng(4)
    centres = 2.0 * np.eye(4)
    truth = generator.integers(4, size=2_000)
    pool = centres[truth] + 0.7 * generator.normal(size=(2_000, 4))
    labelled = centres + 1.5 * generator.normal(size=(4, 4))

    plain = ExampleRegression().fit(labelled, np.arange(4)).score(pool, truth)
    with_pool = PoolHead().fit(labelled, np.arange(4), pool=pool).score(pool, truth)

    assert with_pool > plain + 0.1


def test_a_rare_class_does_not_grow_to_the_size_of_the_others() -> None:
    """Without the proportions, each class would take about the same share of the pool."""
    generator = np.random.default_rng(5)
    truth = (generator.random(4_000) < 0.05).astype(int)
    pool = generator.normal(size=(4_000, 20))
    pool[:, 0] += 3 * truth
    labelled = np.concatenate([pool[truth == 0][:5], pool[truth == 1][:5]])
    classes = np.repeat([0, 1], 5)

    plain = ExampleRegression().fit(labelled, classes)
    with_pool = PoolHead().fit(labelled, classes, pool=pool)

    assert plain.predict(pool).mean() > 0.2
    assert with_pool.predict(pool).mean() < 0.13
    assert with_pool.score(pool, truth) > plain.score(pool, truth) + 0.08


def test_a_class_without_labels_can_have_an_example() -> None:
    rows, classes, pool = draw(6, 3, 300)
    known = classes < 2
    examples = (rows[~known], np.array([2, 2]))
    model = PoolHead(examples).fit(rows[known], classes[known], pool=pool)
    assert model.classes_.tolist() == [0, 1, 2]
    assert PoolHead().fit(rows[known], classes[known], pool=pool).classes_.tolist() == [0, 1]


def test_examples_alone_are_enough() -> None:
    rows, classes, pool = draw(7, 3, 300)
    model = PoolHead((rows, classes)).fit(np.zeros((0, 4)), np.zeros(0, int), pool=pool)
    assert model.predict(pool).shape == (300,)


def test_of_a_very_large_pool_a_fixed_part_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_POOL_ROWS", 100)
    rows, classes, pool = draw(8, 3, 1_000)

    first = PoolHead(random_state=1).fit(rows, classes, pool=pool)
    again = PoolHead(random_state=1).fit(rows, classes, pool=pool)
    other = PoolHead(random_state=2).fit(rows, classes, pool=pool)

    np.testing.assert_array_equal(first.coef_, again.coef_)
    assert not np.array_equal(first.coef_, other.coef_)


def test_float32_and_float64_agree() -> None:
    rows, classes, pool = draw(9, 3, 500)
    double = PoolHead().fit(rows, classes, pool=pool)
    single = PoolHead().fit(rows.astype(np.float32), classes, pool=pool.astype(np.float32))
    assert single.coef_.dtype == np.float32
    np.testing.assert_allclose(logits(single, pool), logits(double, pool), atol=0.02)


@pytest.mark.parametrize("shape", [(10,), (10, 3)])
def test_a_pool_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    rows, classes, _ = draw(10, 3, 1)
    with pytest.raises(InputError, match="the labelled rows have 4 features"):
        PoolHead().fit(rows, classes, pool=np.zeros(shape))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_pool_that_is_not_finite_is_refused(value: float) -> None:
    rows, classes, pool = draw(12, 3, 50)
    pool[7, 1] = value
    with pytest.raises(ValueError, match="pool contains"):
        PoolHead().fit(rows, classes, pool=pool)

    learner = teeter.Learner(PoolHead(), np.concatenate([rows, pool]), classes=3)
    learner.tell(range(6), classes)
    with pytest.raises(InputError):
        learner.fit()


def test_sparse_rows_and_a_dense_pool_go_together() -> None:
    rows, classes, pool = draw(13, 3, 50)
    dense = PoolHead().fit(rows, classes, pool=pool)
    sparse = PoolHead().fit(csr_matrix(rows), classes, pool=pool)
    np.testing.assert_allclose(logits(sparse, pool), logits(dense, pool), atol=0.01)


def test_a_label_without_weight_counts_nowhere() -> None:
    rows, classes, pool = draw(14, 2, 300)
    far = np.concatenate([rows, np.repeat(rows[:1] + 20, 15, axis=0)])
    weights = np.concatenate([np.ones(4), np.zeros(15)])

    model = PoolHead().fit(far, np.concatenate([classes, np.zeros(15, int)]), weights, pool=pool)

    expected = PoolHead().fit(rows, classes, pool=pool)
    np.testing.assert_allclose(logits(model, pool), logits(expected, pool), atol=0.02)


@pytest.mark.parametrize("model", [PoolHead(), ExampleRegression()])
def test_it_is_an_estimator(model: ExampleRegression) -> None:
    check_estimator(model, on_skip=None)


def test_copies_keep_the_examples() -> None:
    examples = (np.eye(2), np.array([0, 1]))
    copy = clone(PoolHead(examples, iterations=2))
    assert copy.iterations == 2
    np.testing.assert_array_equal(copy.examples[0], examples[0])


def test_a_learner_gives_it_the_rows_without_a_label(tmp_path: Path) -> None:
    rows, classes, pool = draw(11, 3, 200)
    data = np.concatenate([rows, pool]).astype(np.float32)
    learner = teeter.Learner(PoolHead(), data, "margin", classes=3, seed=3)
    learner.tell(range(6), classes)
    learner.fit(exclude=range(150, 206))

    seed = learner.models[0].random_state
    expected = PoolHead(random_state=seed).fit(data[:6], classes, pool=data[6:150])
    np.testing.assert_array_equal(learner.models[0].coef_, expected.coef_)

    # A saved learner fits the head again, to the same rows, also if a later fit failed.
    learner.tell([6], [0])
    with pytest.raises(InputError):
        learner.fit(exclude=[1_000])
    learner.save(tmp_path / "learner")
    loaded = teeter.Learner.load(tmp_path / "learner", PoolHead(), data)
    np.testing.assert_array_equal(loaded.models[0].coef_, expected.coef_)
    np.testing.assert_array_equal(loaded.ask(3), learner.ask(3))

    observed = teeter.observe(learner.models[0], data, ("logits", "features", "head"))
    assert observed.weight is not None
    assert observed.weight.shape == (3, 4)
