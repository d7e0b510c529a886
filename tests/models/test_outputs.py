"""Outputs: what fits is taken as it is, what does not is refused in a sentence."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from teeter import Outputs, select
from teeter.errors import InputError

RNG = np.random.default_rng(0)
FEATURES, WEIGHT, BIAS = RNG.normal(size=(20, 5)), RNG.normal(size=(3, 5)), RNG.normal(size=3)
LOGITS = FEATURES @ WEIGHT.T + BIAS
PROBABILITIES = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "a head alone has no rows"),
        ({"weight": WEIGHT}, "a head alone has no rows"),
        ({"logits": LOGITS[0]}, r"logits has shape \(3,\): it should be \(rows, classes\)"),
        ({"logits": LOGITS, "features": FEATURES[:7]}, "logits has 20 rows and features has 7"),
        ({"logits": LOGITS[:, :1]}, "logits has 1 class: at least 2 are needed"),
        ({"features": FEATURES, "weight": WEIGHT[:1]}, "weight has 1 class"),
        ({"features": FEATURES, "weight": WEIGHT.T}, "features has 5 columns and weight has 3"),
        (
            {"features": FEATURES, "weight": WEIGHT, "bias": BIAS[:2]},
            "weight has 3 classes and bias has 2",
        ),
        ({"features": FEATURES, "bias": BIAS}, "A bias without a weight"),
        ({"features": FEATURES, "weight": WEIGHT, "bias": BIAS[None]}, r"bias has shape \(1, 3\)"),
        ({"posterior_logits": LOGITS}, "posterior_logits has shape"),
        ({"posterior_logits": LOGITS[None][:0]}, "holds no sample"),
        ({"features": FEATURES[:, :0]}, "features has no columns"),
        ({"features": np.array([["a", "b"]])}, "pass numbers"),
        ({"features": [[1.0, 2.0], [1.0]]}, "rows differ in length"),
        ({"features": FEATURES.astype(complex)}, "pass real numbers"),
        ({"features": FEATURES > 0}, "pass real numbers"),
        (
            {"features": FEATURES, "weight": WEIGHT, "logits": LOGITS + 9},
            "logits differ from features @ weight.T",
        ),
        ({"logits": PROBABILITIES}, "as probabilities do: pass them as probabilities= instead"),
        ({"logits": np.eye(3)}, "as probabilities do"),
        ({"posterior_logits": PROBABILITIES[None]}, "pass their logarithms instead"),
        ({"probabilities": LOGITS}, "must be non-negative and sum to 1: .* as logits="),
        ({"probabilities": PROBABILITIES / 2}, "must be non-negative and sum to 1"),
        ({"probabilities": PROBABILITIES[0]}, r"probabilities has shape \(3,\): it should be"),
        ({"probabilities": PROBABILITIES, "logits": LOGITS}, "Both logits and probabilities"),
        ({"logits": PROBABILITIES, "several": True}, "All logits are between 0 and 1"),
        ({"probabilities": LOGITS, "several": True}, "of several labels must be from 0 to 1"),
        ({"logits": LOGITS[:, :0], "several": True}, "logits has no labels"),
    ],
)
def test_what_does_not_fit_is_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Outputs(**given)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_probabilities_pick_what_their_logits_pick(dtype: type) -> None:
    outputs = Outputs(probabilities=PROBABILITIES.astype(dtype))
    assert outputs.logits is not None
    np.testing.assert_allclose(outputs.logits.softmax(dim=1), PROBABILITIES, atol=2e-3)
    for strategy in ("entropy", "margin", "least-confidence"):
        expected = select(strategy, Outputs(LOGITS), 10)
        picks = select(strategy, Outputs(probabilities=PROBABILITIES), 10)
        assert picks.tolist() == expected.tolist()


def test_a_probability_of_zero_gives_a_finite_logit() -> None:
    outputs = Outputs(probabilities=np.eye(3))
    assert outputs.logits is not None
    assert outputs.logits.isfinite().all()
    assert outputs.logits.argmax(dim=1).tolist() == [0, 1, 2]


def test_logits_that_sum_to_one_in_some_rows_are_logits() -> None:
    mixed = np.concatenate([PROBABILITIES, LOGITS])
    assert len(Outputs(mixed)) == 40
    # Logits of features and head were computed from them, whatever they sum to.
    assert Outputs(np.eye(3), np.eye(3), np.eye(3)).has("head")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["logits", "features", "posterior_logits"])
def test_not_a_number_is_refused_with_its_row(name: str, bad: float) -> None:
    array = {"logits": LOGITS, "features": FEATURES, "posterior_logits": np.stack([LOGITS] * 13)}[
        name
    ].copy()
    array[11, 1] = bad
    with pytest.raises(
        InputError, match=f"{name} has NaN or infinity in 1 of {len(array)} rows, first in row 11"
    ):
        Outputs(**{name: array})


def test_numpy_is_shared_not_copied() -> None:
    features = FEATURES.astype(np.float32)
    held = Outputs(features=features).features
    assert held is not None
    assert held.data_ptr() == features.ctypes.data


@pytest.mark.parametrize(
    "dtype", [np.float16, np.float32, np.int8, np.uint8, np.uint16, np.int64, ">f4"]
)
def test_other_numbers_become_float32(dtype: object) -> None:
    array = np.arange(12).reshape(4, 3).astype(dtype)
    array.flags.writeable = False
    held = Outputs(logits=array).logits
    assert held is not None
    assert held.dtype == torch.float32
    assert held.tolist() == array.tolist()


def test_float64_stays_and_mixed_precision_meets_there() -> None:
    outputs = Outputs(features=FEATURES, weight=WEIGHT.astype(np.float32))
    converted = outputs.to(torch.device("cpu"))
    assert converted.features is not None
    assert converted.weight is not None
    assert converted.features.dtype == converted.weight.dtype == torch.float64


def test_tensors_that_want_gradients_are_let_go() -> None:
    held = Outputs(logits=torch.zeros(2, 3, requires_grad=True)).logits
    assert held is not None
    assert not held.requires_grad


def test_logits_follow_from_the_head() -> None:
    for bias in (BIAS, None):
        logits = Outputs(features=FEATURES, weight=WEIGHT, bias=bias).with_logits().logits
        np.testing.assert_allclose(logits, FEATURES @ WEIGHT.T + (0 if bias is None else bias))


def test_logits_of_half_precision_models_pass() -> None:
    rough = torch.from_numpy(LOGITS).to(torch.bfloat16)
    Outputs(
        logits=rough,
        features=torch.from_numpy(FEATURES),
        weight=torch.from_numpy(WEIGHT),
        bias=torch.from_numpy(BIAS),
    )


def test_take_keeps_the_head() -> None:
    outputs = Outputs(LOGITS, FEATURES, WEIGHT, BIAS, np.stack([LOGITS, LOGITS]))
    taken = outputs.take(np.array([4, 2]))
    assert (len(outputs), len(taken), taken.n_classes) == (20, 2, 3)
    np.testing.assert_array_equal(taken.logits, LOGITS[[4, 2]])
    np.testing.assert_array_equal(taken.features, FEATURES[[4, 2]])
    np.testing.assert_array_equal(taken.weight, WEIGHT)
    assert taken.posterior_logits is not None
    assert taken.posterior_logits.shape == (2, 2, 3)


@pytest.mark.parametrize("scale", [1e20, 1e-20])
def test_features_that_cannot_be_multiplied_are_refused(scale: float) -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(InputError, match=r"features has values up to .*scale them to about 1"):
        Outputs(features=(rng.normal(size=(6, 5)) * scale).astype(np.float32))


def test_independent_probabilities_become_log_odds() -> None:
    probabilities = np.array([[0.0, 0.5], [1.0, 0.9]])
    outputs = Outputs(probabilities=probabilities, several=True)
    assert outputs.logits is not None
    assert bool(outputs.logits.isfinite().all())
    np.testing.assert_allclose(outputs.logits.sigmoid(), probabilities, atol=1e-12)


def test_outputs_of_several_labels_stay_so() -> None:
    outputs = Outputs(features=FEATURES, weight=WEIGHT[:1], several=True)
    assert "several=True" in repr(outputs)
    for changed in (
        outputs.with_logits(),
        outputs.take(np.array([1, 2])),
        outputs.to(torch.device("cpu")),
        outputs.with_posterior(torch.zeros(2, 20, 1)),
    ):
        assert changed.several
