"""The front door: NumPy for NumPy, tensors for tensors, and a sentence for everything that does not
fit.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

import teeter
from teeter import Outputs
from teeter.errors import InputError, UnknownNameError
from teeter.strategies import get, names
from teeter.strategies.api import strategy_options

RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(30, 4)).astype(np.float32)
WEIGHT = RNG.normal(size=(3, 4)).astype(np.float32)
BIAS = RNG.normal(size=3).astype(np.float32)


def test_numpy_in_numpy_out() -> None:
    values = teeter.ldm(FEATURES, WEIGHT, BIAS)
    assert isinstance(values, np.ndarray)
    assert values.dtype == np.float32
    assert values.shape == (30,)
    assert ((values > 0) & (values <= 1)).all()


def test_tensor_in_tensor_out() -> None:
    values = teeter.ldm(
        torch.from_numpy(FEATURES), torch.from_numpy(WEIGHT), torch.from_numpy(BIAS)
    )
    assert isinstance(values, torch.Tensor)
    np.testing.assert_array_equal(values, teeter.ldm(FEATURES, WEIGHT, BIAS, device="cpu"))


def test_the_seed_decides() -> None:
    first, second = (
        teeter.ldm(FEATURES, WEIGHT, rays=4),
        teeter.ldm(FEATURES, WEIGHT, rays=4, seed=1),
    )
    np.testing.assert_array_equal(first, teeter.ldm(FEATURES, WEIGHT, rays=4, seed=np.int64(0)))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((FEATURES[:0], WEIGHT), {}, "empty pool"),
        ((FEATURES, WEIGHT[:1]), {}, "at least 2"),
        ((FEATURES, WEIGHT[:, :3]), {}, "features has 4 columns and weight has 3"),
        ((FEATURES, WEIGHT, BIAS[:2]), {}, "weight has 3 classes and bias has 2"),
        ((FEATURES * np.nan, WEIGHT), {}, "NaN or infinity in 30 of 30 rows"),
        ((FEATURES, WEIGHT * np.inf), {}, "weight has NaN or infinity"),
        (
            (FEATURES, WEIGHT),
            {"reference": FEATURES[:, :2]},
            "reference has 2 columns and features has 4",
        ),
        ((FEATURES, WEIGHT), {"reference": FEATURES[:0]}, "reference has no rows"),
        ((FEATURES, WEIGHT), {"reference": FEATURES * np.nan}, "reference has NaN or infinity"),
        ((FEATURES, WEIGHT), {"reference": FEATURES[0]}, "reference has shape"),
        ((FEATURES, WEIGHT), {"seed": 1.5}, "seed is 1.5"),
        ((FEATURES, WEIGHT), {"method": "exact"}, "method is 'exact'"),
        ((FEATURES, WEIGHT), {"device": "abacus"}, "No device is called 'abacus'"),
        ((FEATURES, WEIGHT), {"rays": -1}, "rays is -1"),
    ],
)
def test_what_does_not_fit_is_refused(
    arguments: tuple[object, ...], options: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        teeter.ldm(*arguments, **options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_named() -> None:
    with pytest.raises(InputError, match="finds no GPU here"):
        teeter.ldm(FEATURES, WEIGHT, device="cuda")


def test_select_answers_rows() -> None:
    rows = teeter.select("ldm-s", Outputs(features=FEATURES, weight=WEIGHT, bias=BIAS), 5)
    assert rows.dtype == np.int64
    assert rows.shape == (5,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": [0, 1]}, "30 labelled rows and 2 labels"),
        ({"labels": np.full(30, 3)}, "labels range from 3 to 3: classes are 0 to 2"),
        ({"labels": np.full(30, -1)}, "labels range from -1"),
        ({"labels": np.full(30, 0.5)}, "pass whole numbers"),
        ({"labels": np.zeros((30, 2), int)}, r"labels has shape \(30, 2\)"),
        ({"options": {"colour": "red"}}, "random has no option 'colour'. It has none."),
        ({"seed": "x", "labels": np.zeros(30, int)}, "seed is 'x'"),
    ],
)
def test_select_refuses(options: dict[str, object], message: str) -> None:
    outputs = Outputs(features=FEATURES, weight=WEIGHT, bias=BIAS)
    with pytest.raises(InputError, match=message):
        teeter.select("random", outputs, 3, labelled=outputs, **options)


def test_an_unknown_strategy_gets_a_hint() -> None:
    with pytest.raises(
        UnknownNameError, match=r"No strategy is called 'lmd-s'. Did you mean 'ldm-s'\?"
    ):
        teeter.select("lmd-s", Outputs(features=FEATURES), 3)


def test_the_error_for_a_plain_array_names_outputs() -> None:
    with pytest.raises(InputError, match=r"wrap the model outputs in teeter.Outputs"):
        teeter.select("random", FEATURES, 3)


def test_what_is_public_is_listed() -> None:
    assert dir(teeter.strategies) == sorted(teeter.strategies.__all__)


def test_scores_refuse_strategies_without_scores() -> None:
    with pytest.raises(InputError, match="seeding-l2 picks rows jointly"):
        teeter.scores("seeding-l2", Outputs(features=FEATURES))


def test_an_instance_of_a_strategy_takes_no_options() -> None:
    strategy = teeter.strategies.get("ldm")()
    outputs = Outputs(features=FEATURES, weight=WEIGHT)
    assert len(teeter.select(strategy, outputs, 3)) == 3
    with pytest.raises(InputError, match="ldm is already an instance"):
        teeter.select(strategy, outputs, 3, options={"rays": 4})


@pytest.mark.gpu
def test_numpy_goes_to_the_gpu_and_comes_back() -> None:
    values = teeter.ldm(FEATURES, WEIGHT, BIAS)
    assert isinstance(values, np.ndarray)
    on_gpu = teeter.ldm(
        torch.from_numpy(FEATURES), torch.from_numpy(WEIGHT), torch.from_numpy(BIAS), device="cuda"
    )
    assert isinstance(on_gpu, torch.Tensor)
    assert not on_gpu.is_cuda
    np.testing.assert_array_equal(values, on_gpu)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labelled": np.ones((2, 4))}, "labelled is a ndarray"),
        (
            {"labelled": Outputs(features=np.ones((2, 3))), "labels": [0, 1]},
            "have 4 columns, but those of the labelled rows have 3",
        ),
    ],
)
def test_labelled_rows_must_be_of_the_same_model(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        teeter.select("random", Outputs(features=np.ones((9, 4))), 3, **options)


def test_labelled_rows_need_no_labels() -> None:
    outputs = Outputs(features=FEATURES)
    labelled = Outputs(features=FEATURES[:3])
    without = teeter.select("coreset", outputs, 3, labelled=labelled)
    np.testing.assert_array_equal(
        without, teeter.select("coreset", outputs, 3, labelled=labelled, labels=[0, 1, 0])
    )


def test_a_hint_does_not_mind_capitals() -> None:
    with pytest.raises(InputError, match=r"Did you mean 'ldm-s'\?"):
        teeter.select("LDM-S", Outputs(features=np.ones((3, 2))), 1)


ESTIMATOR = {
    "method": "rays",
    "rays": None,
    "subspace": 16,
    "sigmas": None,
    "patience": 10,
    "sigma_max": None,
    "reference_rows": None,
}
CLUSTERING = {"cluster_size": 10, "sample": 5000, "candidates_per_pick": 10}
DEFAULTS: dict[str, dict[str, object]] = {
    "bait": {"form": "exact", "top": 2, "regularisation": 1.0},
    "batchbald": {"configurations": 100_000},
    "cluster-margin": CLUSTERING,
    "dropquery": {"passes": 3, "rate": 0.75},
    "fass": {"candidates_per_pick": 5},
    "herding-ldm-s": {"sample": 20_000, "class_weights": True, "labels_per_class": 8},
    "ldm": ESTIMATOR,
    "ldm-cluster-margin": {**ESTIMATOR, **CLUSTERING},
    "ldm-fass": {**ESTIMATOR, "candidates_per_pick": 5},
    "ldm-s": ESTIMATOR,
    "maxherding": {"sample": 20_000},
    "probcover": {"radius": None, "purity": 0.95},
    "typiclust": {"neighbours": 20, "max_clusters": 500},
    "uherding": {"sample": 20_000, "class_weights": True},
}


@pytest.mark.parametrize("name", names())
def test_defaults_are_those_of_the_papers(name: str) -> None:
    assert strategy_options(get(name)()) == DEFAULTS.get(name, {})


MARKS = np.eye(3, dtype=np.int64)[[0, 1, 2, 0]]


@pytest.mark.parametrize(
    ("labels", "several", "message"),
    [
        (MARKS[:, 0], True, r"labels has shape \(4,\): for several labels per row, pass a matrix"),
        (MARKS[:, :2], True, r"labels has shape \(4, 2\): .* each of the 3 labels"),
        (MARKS[:3], True, "There are 4 labelled rows and 3 rows of labels"),
        (MARKS * 2, True, "labels must be 0 or 1"),
        (MARKS, False, "must both be Outputs"),
    ],
)
def test_labels_of_several_per_row_must_fit(
    labels: np.ndarray, several: bool, message: str
) -> None:
    pool = Outputs(features=FEATURES, weight=WEIGHT, several=True)
    labelled = Outputs(features=FEATURES[:4], weight=WEIGHT, several=several)
    with pytest.raises(InputError, match=message):
        teeter.select("mmc", pool, 3, labelled=labelled, labels=labels)


def test_rare_labels_come_first() -> None:
    """Two rows are as uncertain of one label each; the label of the second was never seen."""
    logits = np.array([[0.0, -9.0, -9.0], [-9.0, -9.0, 0.0], [-9.0, -9.0, -9.0]])
    pool = Outputs(logits=logits, several=True)
    known = Outputs(logits=logits[:2] - 1, several=True)
    labels = np.array([[1, 0, 0], [1, 1, 0]])
    picks = teeter.select("rare-labels", pool, 2, labelled=known, labels=labels)
    assert picks.tolist() == [1, 0]
