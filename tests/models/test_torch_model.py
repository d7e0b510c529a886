"""The outputs of a torch module, which is left as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

import teeter
from teeter import Outputs
from teeter.base.seeds import seeded_global_rng
from teeter.errors import InputError, MissingOutputError
from teeter.models import find_head, torch_model

ROWS = np.random.default_rng(0).normal(size=(12, 5))


@pytest.fixture(autouse=True)
def _seed() -> Any:
    with seeded_global_rng(7, torch.device("cpu")):
        yield


class Net(nn.Module):
    """Two linear layers and an ending."""

    def __init__(
        self, ending: Callable[[Tensor], Any] = lambda logits: logits, classes: int = 3
    ) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.5))
        self.head = nn.Linear(4, classes)
        self.ending = ending

    def forward(self, x: Tensor) -> Any:
        return self.ending(self.head(self.body(x)))


def expected_outputs(model: Net, rows: Any = ROWS) -> tuple[Tensor, Tensor]:
    model.eval()
    with torch.no_grad():
        features = model.body(torch.as_tensor(rows, dtype=torch.float32))
        return features, model.head(features)


def features_and_logits(outputs: Outputs) -> tuple[Tensor, Tensor]:
    assert outputs.logits is not None
    assert outputs.features is not None
    return outputs.features, outputs.logits


def divided_in_place(logits: Tensor) -> Tensor:
    logits /= 4
    return logits


ENDINGS: dict[str, Callable[[Tensor], Any]] = {
    "nothing": lambda z: z,
    "softmax": lambda z: z.softmax(dim=1),
    "log-softmax": lambda z: z.log_softmax(dim=1),
    "sigmoid": torch.sigmoid,
    "a pair": lambda z: (z, z.mean()),
    "a dictionary": lambda z: {"loss": None, "logits": z.softmax(dim=1)},
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_last_linear_layer_is_found_whatever_follows_it(ending: str) -> None:
    model = Net(ENDINGS[ending])
    outputs = teeter.observe(model, ROWS)
    features, logits = expected_outputs(model)
    torch.testing.assert_close(features_and_logits(outputs), (features, logits))
    torch.testing.assert_close(outputs.weight, model.head.weight.detach())
    torch.testing.assert_close(outputs.bias, model.head.bias.detach())


PRIOR = torch.tensor([0.5, -1.0, 3.0])

# What a module may do to the output z of its last layer, with the scale and the shift in it.
SCALED_ENDINGS: dict[str, tuple[Callable[[Tensor], Any], float, Tensor | float]] = {
    "a temperature": (lambda z: z / 7, 1 / 7, 0.0),
    "work in place": (divided_in_place, 1 / 4, 0.0),
    "a scale of 30": (lambda z: 30 * z, 30, 0.0),
    "a scale of 100": (lambda z: 100 * z, 100, 0.0),
    "a negative scale": (lambda z: -2 * z, -2, 0.0),
    "a scale and a number": (lambda z: z / 7 + 1, 1 / 7, 1.0),
    "a scale and a number per class": (lambda z: 30 * z + PRIOR, 30, PRIOR),
    "a number per class": (lambda z: z + PRIOR, 1, PRIOR),
    "a scale and a softmax": (lambda z: (z / 0.3).softmax(dim=1), 1 / 0.3, 0.0),
    "a scale and a log-softmax": (lambda z: (z * 30).log_softmax(dim=1), 30, 0.0),
    "a scale and a sigmoid": (lambda z: (z * 3).sigmoid(), 3, 0.0),
    "scaled logits beside others": (lambda z: {"logits": 30 * z, "cosine": z}, 30, 0.0),
    "scaled logits before others": (lambda z: (30 * z, z), 30, 0.0),
}


@pytest.mark.parametrize("batch_size", [5, 1024])
@pytest.mark.parametrize("ending", SCALED_ENDINGS)
def test_a_constant_scale_and_shift_become_part_of_the_head(ending: str, batch_size: int) -> None:
    function, scale, shift = SCALED_ENDINGS[ending]
    model = Net(function)
    outputs = teeter.observe(model, ROWS, batch_size=batch_size)
    features, output = expected_outputs(model)
    logits = scale * output + shift
    torch.testing.assert_close(
        features_and_logits(outputs), (features, logits), rtol=1e-4, atol=1e-5
    )
    torch.testing.assert_close(
        outputs.weight, scale * model.head.weight.detach(), rtol=1e-4, atol=1e-5
    )
    torch.testing.assert_close(
        outputs.bias, scale * model.head.bias.detach() + shift, rtol=1e-4, atol=1e-5
    )


def test_a_scale_is_found_though_a_softmax_rounds_to_zero() -> None:
    model = Net(lambda z: (z * 900).softmax(dim=1))
    weight = teeter.observe(model, ROWS).weight
    torch.testing.assert_close(weight, 900 * model.head.weight.detach(), rtol=1e-4, atol=1e-5)


def test_a_shift_of_a_head_without_a_bias_becomes_its_bias() -> None:
    model = Net(lambda z: 30 * z + PRIOR)
    model.head = nn.Linear(4, 3, bias=False)
    torch.testing.assert_close(teeter.observe(model, ROWS).bias, PRIOR, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("ending", ["a scale of 100", "a scale and a softmax"])
def test_a_scale_is_found_in_any_precision(ending: str, dtype: torch.dtype) -> None:
    function, scale, _ = SCALED_ENDINGS[ending]
    model = nn.Sequential(nn.Linear(5, 3), Applied(function)).to(dtype)
    weight = teeter.observe(model, np.repeat(ROWS, 4, axis=0)).weight
    assert weight is not None
    expected = scale * model[0].weight.detach()
    torch.testing.assert_close(weight.double(), expected.double(), rtol=2e-2, atol=1e-3)


class Applied(nn.Module):
    """A function as the last module of a sequence."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


# What is not one scale for all rows.
OTHER_ENDINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "a layer norm": lambda z: nn.functional.layer_norm(z, z.shape[1:]),
    "a scale of its own for each row": lambda z: z * (10 + z.abs().amax(dim=1, keepdim=True)),
    "a scale for each class": lambda z: z * torch.tensor([1.0, 2.0, 3.0]),
    "a relu of scaled logits": lambda z: (30 * z).relu(),
    "a cube": lambda z: z**3,
}


@pytest.mark.parametrize("batch_size", [3, 1024])
@pytest.mark.parametrize("ending", OTHER_ENDINGS)
def test_another_ending_leaves_the_logits_of_the_module_alone(ending: str, batch_size: int) -> None:
    model = Net(OTHER_ENDINGS[ending])
    outputs = teeter.observe(model, ROWS, batch_size=batch_size)
    _, output = expected_outputs(model)
    torch.testing.assert_close(outputs.logits, OTHER_ENDINGS[ending](output))
    assert not outputs.has("features")
    assert not outputs.has("head")
    for strategy in ("ldm-s", "bait", "badge"):
        with pytest.raises(MissingOutputError, match=f"{strategy} needs "):
            teeter.select(strategy, outputs, 2)


def test_a_softmax_of_logits_with_a_scale_per_row_gives_its_own_probabilities() -> None:
    model = Net(lambda z: (z * (1 + z.norm(dim=1, keepdim=True))).softmax(dim=1))
    outputs = teeter.observe(model, ROWS)
    _, output = expected_outputs(model)
    assert outputs.logits is not None
    torch.testing.assert_close(outputs.logits.exp(), model.ending(output))
    assert not outputs.has("head")


@pytest.mark.parametrize("ending", ["relu", "tanh"])
def test_the_input_of_the_last_layer_is_exact_for_those_who_need_features_only(ending: str) -> None:
    model = Net(OTHER_ENDINGS[ending])
    outputs = teeter.observe(model, ROWS, needs=("features",))
    torch.testing.assert_close(outputs.features, expected_outputs(model)[0])
    assert not outputs.has("logits")


def test_a_later_batch_shows_that_a_layer_is_not_the_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_model, "_PROBE_VECTORS", 3)
    # Positive rows first: there, a ReLU changes nothing.
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU())
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(2))
    rows = np.array([[1.0, 2.0], [3.0, 1.0], [4.0, 2.0], [-1.0, -2.0]])
    assert teeter.observe(model, rows[:3]).has("head")
    outputs = teeter.observe(model, rows, batch_size=3)
    assert outputs.logits.tolist() == [[1, 2], [3, 1], [4, 2], [0, 0]]
    assert not outputs.has("head")
    with pytest.raises(InputError, match="'0' times one constant for all rows, so that layer is n"):
        teeter.observe(model, rows, batch_size=3, head="0")


class Cosine(nn.Module):
    """A classifier by the cosines of an embedding with one vector per class."""

    def __init__(self, returned: Callable[[Tensor, Tensor], Any], classes: int = 4) -> None:
        super().__init__()
        self.embedding = nn.Linear(5, 4)
        self.classes = nn.Parameter(torch.randn(classes, 4))
        self.returned = returned

    def forward(self, x: Tensor) -> Any:
        embedding = self.embedding(x)
        directions = nn.functional.normalize(self.classes, dim=1)
        logits = 30 * nn.functional.normalize(embedding, dim=1) @ directions.T
        return self.returned(logits, embedding)


@pytest.mark.parametrize("classes", [3, 4])
@pytest.mark.parametrize(
    "returned",
    [
        lambda logits, embedding: (logits, embedding),
        lambda logits, embedding: {"logits_per_image": logits, "embeds": embedding},
        lambda logits, embedding: [torch.zeros(()), logits, embedding],
    ],
)
def test_an_embedding_returned_beside_the_logits_is_no_head(
    returned: Callable[[Tensor, Tensor], Any], classes: int
) -> None:
    model = Cosine(returned, classes)
    message = r'Cosine returns several tensors .* not clear .* let it return \{"logits": \.\.\.\}'
    with pytest.raises(InputError, match=message):
        teeter.observe(model, ROWS)


def test_logits_with_their_name_may_stand_beside_anything() -> None:
    model = Cosine(lambda logits, embedding: {"embeds": embedding, "logits": logits})
    logits = model(torch.tensor(ROWS, dtype=torch.float32))["logits"].detach()
    outputs = teeter.observe(model, ROWS)
    torch.testing.assert_close(outputs.logits, logits)
    assert not outputs.has("head")


def test_features_may_be_returned_before_the_logits() -> None:
    model = Net()
    features, logits = expected_outputs(model)

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = model

        def forward(self, x: Tensor) -> Any:
            features = self.net.body(x)
            return features, 3 * self.net.head(features), x

    observed = teeter.observe(Both(), ROWS)
    torch.testing.assert_close(features_and_logits(observed), (features, 3 * logits))


@pytest.mark.parametrize(
    "ending",
    [lambda z: 0 * z + PRIOR, lambda z: 0 * z + 0.3, lambda z: (0 * z + PRIOR).log_softmax(dim=1)],
)
def test_an_output_that_counts_for_nothing_is_no_head(ending: Callable[[Tensor], Tensor]) -> None:
    model = Net(ending)
    outputs = teeter.observe(model, ROWS)
    torch.testing.assert_close(outputs.logits, ending(expected_outputs(model)[1]))
    assert not outputs.has("head")


def test_a_scale_does_not_overflow_in_half_precision() -> None:
    model = nn.Sequential(nn.Linear(5, 3), Applied(lambda z: 100 * z)).to(torch.float16)
    with torch.no_grad():
        model[0].weight.mul_(20_000)
    rows = ROWS * 1e-3
    outputs = teeter.observe(model, rows)

    logits = model(torch.tensor(rows, dtype=torch.float16)).detach()
    torch.testing.assert_close(outputs.logits, logits.float())
    assert outputs.weight is not None
    assert outputs.weight.dtype == outputs.features.dtype == torch.float32
    expected = 100 * model[0].weight.detach().float()
    torch.testing.assert_close(outputs.weight, expected, rtol=1e-2, atol=0)


@pytest.mark.parametrize(
    ("dtype", "temperature"), [(torch.bfloat16, 1.010), (torch.float16, 1.0014)]
)
def test_a_scale_near_1_is_not_lost_in_half_precision(
    dtype: torch.dtype, temperature: float
) -> None:
    model = nn.Sequential(nn.Linear(5, 3), Applied(lambda z: temperature * z)).to(dtype)
    with torch.no_grad():
        model[0].weight.mul_(100)
    outputs = teeter.observe(model, ROWS)

    logits = model(torch.tensor(ROWS, dtype=dtype)).detach()
    assert outputs.logits is not None
    assert torch.equal(outputs.logits.to(dtype), logits)
    assert outputs.weight is not None
    ratio = (outputs.weight / model[0].weight.detach()).mean()
    assert float(ratio) == pytest.approx(temperature, rel=2e-3)


def test_a_softmax_in_half_precision_has_no_scale() -> None:
    model = nn.Sequential(nn.Linear(5, 3), nn.Softmax(dim=1)).to(torch.bfloat16)
    head = find_head(model, torch.tensor(ROWS), torch.device("cpu"))
    assert head is not None
    assert head.is_plain


@pytest.mark.parametrize("ending", [lambda z: 7 * z, lambda z: 7 * z + 2])
def test_the_size_of_the_batches_does_not_change_the_outputs(
    ending: Callable[[Tensor], Tensor],
) -> None:
    model = Net(ending, classes=1)
    outputs = [teeter.observe(model, ROWS, batch_size=size) for size in (1, 2, 1024)]
    for other in outputs:
        assert other.has("head")
        torch.testing.assert_close(other.weight, outputs[0].weight)
        torch.testing.assert_close(other.logits, outputs[0].logits)


def test_a_stream_of_rows_is_not_read_a_second_time() -> None:
    class Stream(IterableDataset[Tensor]):
        def __iter__(self) -> Any:
            return iter(torch.tensor([[1.0, 2.0], [-3.0, 1.0]]))

    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU())
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(2))
    with pytest.raises(InputError, match="rows that can be read twice"):
        teeter.observe(model, DataLoader(Stream(), batch_size=1))


def test_one_row_that_cannot_tell_a_scale_keeps_its_probabilities() -> None:
    model = nn.Sequential(nn.Linear(5, 2), Applied(lambda z: (30 * z).softmax(dim=1)))
    outputs = teeter.observe(model, ROWS[:1])
    probabilities = model(torch.from_numpy(ROWS[:1]).float()).detach()
    torch.testing.assert_close(outputs.logits.softmax(dim=1), probabilities)
    assert not outputs.has("head")


def test_one_number_from_0_to_1_that_may_be_a_probability_is_refused() -> None:
    model = Net(lambda z: (z * z.abs()).sigmoid(), classes=1)
    with pytest.raises(InputError, match=r"one number per row, all from 0 to 1.*column for each"):
        teeter.observe(model, ROWS)


@pytest.mark.parametrize("scale", [30, 100])
@pytest.mark.parametrize("strategy", ["entropy", "least-confidence", "bait", "badge", "ldm"])
def test_strategies_see_the_scaled_head(strategy: str, scale: int) -> None:
    cosine = nn.Linear(16, 10)
    rows = torch.randn(200, 16, generator=torch.Generator().manual_seed(0))
    rows /= rows.norm(dim=1, keepdim=True)
    observed = teeter.observe(nn.Sequential(cosine, Applied(lambda z: scale * z)), rows)
    expected = Outputs(
        features=rows, weight=scale * cosine.weight.detach(), bias=scale * cosine.bias.detach()
    )
    options: dict[str, Any] = {}
    if strategy == "bait":
        options = {"labelled": observed, "labels": np.arange(200) % 10}
    picks = teeter.select(strategy, observed, 30, **options)
    if strategy == "bait":
        options["labelled"] = expected
    assert picks.tolist() == teeter.select(strategy, expected, 30, **options).tolist()


def test_a_head_without_a_bias_has_none() -> None:
    outputs = teeter.observe(nn.Linear(5, 3, bias=False), ROWS)
    assert outputs.weight is not None
    assert outputs.bias is None


def test_outputs_do_not_change_with_the_model() -> None:
    model = Net()
    outputs = teeter.observe(model, ROWS)
    before = model.head.weight.detach().clone()
    with torch.no_grad():
        model.head.weight.zero_()
    assert torch.equal(outputs.weight, before)


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.colour = nn.Linear(5, 3)
        self.shape = nn.Linear(5, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.colour(x), self.shape(x)


@pytest.mark.parametrize("end", [nn.Identity(), nn.Softmax(dim=1)], ids=["logits", "softmax"])
def test_a_head_is_found_though_a_row_is_no_number(end: nn.Module) -> None:
    rows = np.ones((20, 6), dtype=np.float32)
    rows[7, 2] = np.nan
    with pytest.raises(InputError, match="NaN or infinity in 1 of 20 rows, first in row 7"):
        teeter.observe(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3), end), rows)


def test_two_heads_are_named_and_one_can_be_chosen() -> None:
    model = TwoHeads()
    with pytest.raises(
        InputError,
        match=r"TwoHeads computes its output with several linear layers \(colour, shape\).*head=",
    ):
        teeter.observe(model, ROWS)
    outputs = teeter.observe(model, ROWS, head="shape")
    assert outputs.n_classes == 4
    torch.testing.assert_close(outputs.weight, model.shape.weight.detach())


def test_a_head_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(InputError, match=r"no linear layer called 'size'. It has: colour, shape"):
        teeter.observe(TwoHeads(), ROWS, head="size")
    with pytest.raises(InputError, match=r"no linear layer called 'body.1'. It has: body.0, head"):
        teeter.observe(Net(), ROWS, head="body.1")


def test_a_head_that_is_not_used_is_refused() -> None:
    model = Net()
    model.spare = nn.Linear(4, 3)
    with pytest.raises(InputError, match="The layer 'spare' of Net was not used"):
        teeter.observe(model, ROWS, head="spare")


def without_linear_end(*layers: nn.Module) -> nn.Sequential:
    """A module that ends in a convolution after two linear layers of 32 and 3 outputs."""
    return nn.Sequential(
        nn.Linear(5, 32),
        nn.ReLU(),
        nn.Linear(32, 3),
        nn.Unflatten(1, (3, 1)),
        nn.Conv1d(3, 4, 1),
        nn.Flatten(),
        *layers,
    )


def test_a_module_that_does_not_end_in_a_linear_layer_gives_logits_alone() -> None:
    model = without_linear_end()
    outputs = teeter.observe(model, ROWS)
    expected = model(torch.from_numpy(ROWS).float())
    torch.testing.assert_close(outputs.logits, expected.detach())
    assert not outputs.has("features")
    assert len(teeter.select("entropy", outputs, 3)) == 3


def test_probabilities_of_a_module_without_a_linear_end_become_logits() -> None:
    model = without_linear_end(nn.Softmax(dim=1))
    logits = teeter.observe(model, ROWS).logits
    assert logits is not None
    expected = model(torch.from_numpy(ROWS).float())
    torch.testing.assert_close(logits.softmax(dim=1), expected.detach())


@pytest.mark.parametrize("name", ["0", "2"])
def test_a_named_layer_whose_output_is_not_returned_is_refused(name: str) -> None:
    width = {"0": 32, "2": 3}[name]
    with pytest.raises(
        InputError,
        match=rf"does not return the output of its layer '{name}' \({width} numbers per row\), but "
        r"a tensor of shape \(\d+, 4\): that layer is not its head",
    ):
        teeter.observe(without_linear_end(), ROWS, head=name)


def test_a_named_layer_may_be_followed_by_a_temperature() -> None:
    class Cooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = nn.Linear(5, 3)
            self.head = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.hidden(x).relu()) / 7 + 1

    outputs = teeter.observe(Cooled(), ROWS, head="head")
    assert outputs.weight is not None
    assert outputs.weight.shape == (3, 3)


def test_the_error_for_another_return_value_says_what_to_return() -> None:
    model = nn.Sequential(nn.Linear(5, 6), nn.Unflatten(1, (2, 3)), nn.Tanh())
    with pytest.raises(InputError, match=r"does not end in a linear layer and returns .* logits"):
        teeter.observe(model, ROWS)


def test_a_head_in_a_hidden_place_is_found_by_its_full_name() -> None:
    inner = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
    model = nn.ModuleDict({"deep": inner})
    model.forward = lambda x: inner(x)
    assert torch.equal(teeter.observe(model, ROWS).weight, inner[2].weight)
    assert torch.equal(teeter.observe(model, ROWS, head="deep.2").weight, inner[2].weight)


class ByKeyword(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(input=x)


def test_a_layer_may_be_called_by_keyword() -> None:
    torch.testing.assert_close(
        teeter.observe(ByKeyword(), ROWS).features, torch.from_numpy(ROWS).float()
    )


class Pooled(nn.Module):
    """No linear layer anywhere."""

    def __init__(self, ending: nn.Module) -> None:
        super().__init__()
        self.filter = nn.Conv1d(1, 3, 2)
        self.ending = ending

    def forward(self, x: Tensor) -> Tensor:
        return self.ending(self.filter(x[:, None]).mean(dim=2))


def test_a_model_without_a_linear_layer_gives_logits_alone() -> None:
    model = Pooled(nn.Identity())
    outputs = teeter.observe(model, ROWS)
    assert outputs.features is None
    assert outputs.weight is None
    torch.testing.assert_close(outputs.logits, model(torch.from_numpy(ROWS).float()).detach())


def test_probabilities_of_a_model_without_a_linear_layer_become_logits() -> None:
    model = Pooled(nn.Softmax(dim=1))
    logits = teeter.observe(model, ROWS).logits
    assert logits is not None
    torch.testing.assert_close(logits.exp(), model(torch.from_numpy(ROWS).float()).detach())
    assert (logits < 0).all()


def test_answers_that_are_no_logits_are_refused_with_their_shapes() -> None:
    with pytest.raises(
        InputError,
        match=r"Flatten does not end in a linear layer and returns \[\(60,\)\]: it must return",
    ):
        teeter.observe(nn.Flatten(0), ROWS)


@pytest.mark.parametrize(
    "ending",
    [lambda z: z, torch.sigmoid, lambda z: z.squeeze(1), lambda z: torch.sigmoid(z).squeeze()],
    ids=["a column", "probabilities", "flat", "flat probabilities"],
)
@pytest.mark.parametrize("rows", [12, 1])
def test_a_single_logit_becomes_two_classes(ending: Callable[[Tensor], Tensor], rows: int) -> None:
    model = Net(ending, classes=1)
    outputs = teeter.observe(model, ROWS[:rows])
    features, logits = expected_outputs(model, ROWS[:rows])
    torch.testing.assert_close(
        features_and_logits(outputs), (features, torch.cat([torch.zeros(rows, 1), logits], dim=1))
    )
    assert outputs.weight is not None
    assert outputs.weight[0].tolist() == [0.0] * 4
    torch.testing.assert_close(outputs.weight[1:], model.head.weight.detach())
    torch.testing.assert_close(outputs.bias, torch.cat([torch.zeros(1), model.head.bias.detach()]))


def test_a_vector_for_every_step_of_a_sequence_is_refused() -> None:
    model = nn.Linear(5, 3)
    with pytest.raises(
        InputError, match=r"gets features of shape \(2, 6, 5\): it must get one vector per row"
    ):
        teeter.observe(model, ROWS.reshape(2, 6, 5))


def test_more_vectors_than_rows_are_refused() -> None:
    model = nn.Sequential(nn.Flatten(0, 1), nn.Linear(5, 3))
    with pytest.raises(InputError, match="returned 12 rows, but the data has 2"):
        teeter.observe(model, ROWS.reshape(2, 6, 5))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (ROWS[:0], "Cannot observe an empty pool"),
        ([], "Cannot observe an empty pool"),
        (["one", "two"], "The data hold texts, but a torch module takes numbers: convert them"),
        ([[1.0, 2.0], [1.0]], "rows of the data differ in shape"),
    ],
)
def test_data_that_a_module_cannot_take_are_refused(data: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        teeter.observe(Net(), data)


@pytest.mark.parametrize(
    "data", [ROWS, ROWS.astype(np.float32), ROWS.astype(np.float16), ROWS.tolist()]
)
def test_numbers_of_any_precision_reach_the_model_in_its_own(data: Any) -> None:
    model = Net()
    torch.testing.assert_close(
        features_and_logits(teeter.observe(model, data)),
        expected_outputs(model),
        rtol=1e-2,
        atol=1e-2,
    )
    assert teeter.observe(model.double(), data).logits.dtype == torch.float64


def test_whole_numbers_stay_whole() -> None:
    model = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(8, 3))
    tokens = np.array([[1, 8], [0, 3]])
    torch.testing.assert_close(
        teeter.observe(model, tokens).logits, model(torch.from_numpy(tokens)).detach()
    )


class Fragile(Net):
    """Breaks at the second batch."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == 3:
            raise ZeroDivisionError
        return super().forward(x)


def mixed_modes(model: nn.Module) -> list[bool]:
    for place, module in enumerate(model.modules()):
        module.training = place % 2 == 0
    return [module.training for module in model.modules()]


def test_each_module_keeps_its_mode_and_no_hook_stays() -> None:
    model = Net()
    before = mixed_modes(model)
    teeter.observe(model, ROWS)
    assert [module.training for module in model.modules()] == before
    assert not any(module._forward_hooks for module in model.modules())


def test_an_error_in_the_model_leaves_it_as_it_was() -> None:
    model = Fragile()
    before = mixed_modes(model)
    with pytest.raises(ZeroDivisionError):
        teeter.observe(model, ROWS, batch_size=4)
    assert [module.training for module in model.modules()] == before
    assert not any(module._forward_hooks for module in model.modules())
    assert torch.is_grad_enabled()


def test_running_statistics_and_gradients_stay() -> None:
    model = Net()
    model(torch.from_numpy(ROWS).float()).sum().backward()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    outputs = teeter.observe(model, ROWS)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), gradients, strict=True))
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert not any(value.requires_grad for value in features_and_logits(outputs))


def test_no_gradient_is_tracked_inside() -> None:
    tracked: list[bool] = []
    model = Net()
    model.head.register_forward_hook(lambda *_: tracked.append(torch.is_grad_enabled()))
    teeter.observe(model, ROWS)
    assert set(tracked) == {False}


def test_outputs_can_be_trained_on_later() -> None:
    features = teeter.observe(Net(), ROWS).features
    assert features is not None
    nn.Linear(4, 2)(features).sum().backward()


def test_a_module_that_works_in_place_does_not_reach_the_callers_tensor() -> None:
    rows = torch.from_numpy(ROWS).float()
    before = rows.clone()
    model = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(5, 3))
    torch.testing.assert_close(teeter.observe(model, rows).features, before.relu())
    assert torch.equal(rows, before)


def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="No device is called 'abacus'"):
        teeter.observe(Net(), ROWS, device="abacus")


def test_drawing_leaves_the_global_stream_alone() -> None:
    before = torch.get_rng_state()
    with seeded_global_rng(1, torch.device("cpu")):
        first = torch.rand(2)
    with seeded_global_rng(1, torch.device("cpu")):
        assert torch.equal(torch.rand(2), first)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.gpu
def test_a_model_goes_to_the_gpu_and_back() -> None:
    model = Net()
    outputs = teeter.observe(model, ROWS, device="cuda")
    assert outputs.device.type == "cuda"
    assert {parameter.device.type for parameter in model.parameters()} == {"cpu"}
    torch.testing.assert_close(
        outputs.logits.cpu(), expected_outputs(model)[1], rtol=1e-4, atol=1e-4
    )
    with pytest.raises(ZeroDivisionError):
        teeter.observe(broken := Fragile(), ROWS, batch_size=4, device="cuda")
    assert {parameter.device.type for parameter in broken.parameters()} == {"cpu"}


@pytest.mark.gpu
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_drawing_leaves_the_gpu_alone(device: str) -> None:
    before = torch.cuda.get_rng_state()
    with seeded_global_rng(1, torch.device(device)):
        first = torch.rand(2, device=device)
    with seeded_global_rng(1, torch.device(device)):
        assert torch.equal(torch.rand(2, device=device), first)
    assert torch.equal(torch.cuda.get_rng_state(), before)
