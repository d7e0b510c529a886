"""The outputs of a torch module, which is left as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import teeter
from teeter import Outputs
from teeter.errors import InputError
from teeter.seeds import seeded_global_rng

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
    "a temperature": lambda z: z / 7,
    "a temperature and a softmax": lambda z: (z / 0.3).softmax(dim=1),
    "a softmax that rounds to zero": lambda z: (z * 900).softmax(dim=1),
    "work in place": divided_in_place,
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
