"""Lightning modules: trained by Lightning's own trainer in a learner, quietly, by the learner's
seed.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import library_models
import teeter
from library_models import CLASSES, ROWS, lightning_module
from teeter.errors import InputError, TrainingError
from teeter.models.networks import mlp

lightning = pytest.importorskip(
    "lightning", reason="Lightning is not installed: the extra lightning"
)

from teeter.training.lightning import LightningTraining, _EpochSampler  # noqa: E402

QUICK = LightningTraining(max_epochs=12, batch_size=8)
LABELLED = np.arange(17)


def make_fitted_learner(
    make: Any = None, training: Any = QUICK, data: Any = ROWS, **options: Any
) -> teeter.Learner:
    build_network = make or (lambda seed: lightning_module())
    learner = teeter.Learner(
        build_network, data, classes=4, training=training, device="cpu", **options
    )
    learner.tell(LABELLED, CLASSES[LABELLED])
    learner.fit()
    return learner


def weights(learner: teeter.Learner) -> Tensor:
    return nn.utils.parameters_to_vector(learner.models[0].parameters()).detach()


def test_its_own_steps_train_it_and_nothing_is_printed_or_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    learner = make_fitted_learner()

    assert learner.models[0].steps == 12 * 2, (
        "17 rows are a batch of 8 and one of 9, since a row alone joins the last"
    )
    assert learner.evaluate(ROWS[:17], CLASSES[:17]).accuracy > 0.6
    assert len(set(learner.ask(5).tolist()) - set(LABELLED.tolist())) == 5
    assert not learner.models[0].training
    assert learner.models[0]._trainer is None

    printed = capfd.readouterr()
    assert printed.out + printed.err == ""
    assert list(tmp_path.iterdir()) == []


def test_the_learner_s_seed_decides_all() -> None:
    first = make_fitted_learner()
    torch.rand(7)
    before = torch.get_rng_state()
    assert torch.equal(weights(first), weights(make_fitted_learner()))
    assert torch.equal(before, torch.get_rng_state())
    assert not torch.equal(weights(first), weights(make_fitted_learner(seed=1)))


def test_the_order_of_rows_follows_the_seed_and_is_another_each_epoch() -> None:
    sampler, same, other = (_EpochSampler(17, 8, seed) for seed in (3, 3, 4))
    first = list(sampler)
    assert len(sampler) == len(first) == 2
    assert first == list(same)
    assert first != list(other)
    assert first != list(sampler)


@pytest.mark.parametrize(
    "data",
    [
        torch.from_numpy(ROWS),
        ROWS.astype(np.float64),
        TensorDataset(torch.from_numpy(ROWS), torch.zeros(48)),
    ],
    ids=["tensor", "float64", "dataset"],
)
def test_any_pool_trains_alike(data: Any) -> None:
    assert torch.equal(weights(make_fitted_learner(data=data)), weights(make_fitted_learner()))


def test_a_saved_learner_goes_on_when_given_its_training_again(tmp_path: Path) -> None:
    learner = make_fitted_learner()
    file = tmp_path / "learner"
    learner.save(file)
    make = lambda seed: lightning_module()  # noqa: E731
    again = teeter.Learner.load(file, make, ROWS, training=QUICK, device="cpu")
    assert torch.equal(weights(learner), weights(again))
    assert (learner.ask(4) == again.ask(4)).all()

    with pytest.raises(
        InputError, match=r"was saved with a custom trainer: pass that trainer again as training="
    ):
        teeter.Learner.load(file, make, ROWS)

    plain = teeter.Learner(lambda seed: mlp(6, 4, seed=seed), ROWS, classes=4)
    plain.save(file)
    with pytest.raises(
        InputError, match=r"was saved with the built-in training loop: leave out training="
    ):
        teeter.Learner.load(file, lambda seed: mlp(6, 4, seed=seed), ROWS, training=QUICK)


def test_validation_rows_come_to_its_validation_step_and_callbacks_are_its_own() -> None:
    seen: list[int] = []

    class LossLogger(type(lightning_module())):  # type: ignore[misc]
        def validation_step(self, batch: tuple[Tensor, Tensor], place: int) -> None:
            seen.append(len(batch[1]))
            self.log(
                "loss",
                nn.functional.cross_entropy(self(batch[0]), batch[1]),
                batch_size=len(batch[1]),
            )

    stop = lightning.pytorch.callbacks.EarlyStopping("loss", patience=1, min_delta=9.0)
    training = LightningTraining(max_epochs=50, callbacks=[stop], num_sanity_val_steps=0)
    learner = make_fitted_learner(
        lambda seed: LossLogger(), training, validation=(ROWS[30:], CLASSES[30:])
    )
    assert set(seen) == {18}
    assert len(seen) < 5, "it stopped early"
    assert not learner.models[0].training

    # Without such a step, validation rows are left alone.
    make_fitted_learner(validation=(ROWS[30:], CLASSES[30:]))


def test_callbacks_begin_again_each_round() -> None:
    class Judged(type(lightning_module())):  # type: ignore[misc]
        def validation_step(self, batch: tuple[Tensor, Tensor], place: int) -> None:
            # The first epoch is the best, so patience ends it.
            self.log("score", -float(self.current_epoch))

    stop = lightning.pytorch.callbacks.EarlyStopping("score", mode="max", patience=3)
    training = LightningTraining(
        max_epochs=30, callbacks=[stop], num_sanity_val_steps=0, batch_size=32
    )
    learner = make_fitted_learner(
        lambda seed: Judged(), training, validation=(ROWS[30:], CLASSES[30:])
    )
    assert learner.models[0].steps == 4
    learner.fit()
    assert learner.models[0].steps == 4
    assert stop.wait_count == 0


def test_a_callback_that_keeps_checkpoints_needs_no_other_word(tmp_path: Path) -> None:
    single, listed = (
        lightning.pytorch.callbacks.ModelCheckpoint(dirpath=tmp_path / name)
        for name in ("one", "other")
    )
    for callbacks in (single, [listed]):
        make_fitted_learner(training=LightningTraining(max_epochs=1, callbacks=callbacks))
    assert all(list((tmp_path / name).iterdir()) for name in ("one", "other"))


def test_validation_comes_in_batches_that_training_has_too() -> None:
    sizes: list[int] = []

    class SizeRecorder(type(lightning_module())):  # type: ignore[misc]
        def validation_step(self, batch: tuple[Tensor, Tensor], place: int) -> None:
            sizes.append(len(batch[1]))

    training = LightningTraining(max_epochs=1, batch_size=8, num_sanity_val_steps=0)
    make_fitted_learner(lambda seed: SizeRecorder(), training, validation=(ROWS[30:], CLASSES[30:]))
    assert sizes == [8, 8, 2]
    make_fitted_learner(
        lambda seed: SizeRecorder()
    )  # without validation rows Lightning asks for none
    assert len(sizes) == 3


def test_ctrl_c_ends_the_training_and_is_heard_again() -> None:
    class Interrupted(type(lightning_module())):  # type: ignore[misc]
        def training_step(self, batch: Any, place: int) -> Tensor:
            raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        make_fitted_learner(lambda seed: Interrupted())
    assert signal.getsignal(signal.SIGINT) == before


def test_an_error_of_the_module_itself_is_passed_on() -> None:
    class BrokenStep(type(lightning_module())):  # type: ignore[misc]
        def training_step(self, batch: Any, place: int) -> Tensor:
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        make_fitted_learner(lambda seed: BrokenStep())


def test_modules_of_the_twin_package_find_their_own_trainer() -> None:
    twin = pytest.importorskip("pytorch_lightning")
    ours = type(lightning_module())
    members = {
        name: vars(ours)[name] for name in ("forward", "training_step", "configure_optimizers")
    }

    def start(self: Any) -> None:
        twin.LightningModule.__init__(self)
        self.network = mlp(6, 4, seed=0)
        self.steps = 0

    module = type("Twin", (twin.LightningModule,), {**members, "__init__": start})
    assert make_fitted_learner(lambda seed: module()).models[0].steps > 0


def test_a_pool_of_texts_is_tokenized_batch_by_batch() -> None:
    body = library_models.text_classifier("BERT")

    class TextReader(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.body = body

        def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
            return self.body(input_ids, attention_mask).logits

        def training_step(self, batch: Any, place: int) -> Tensor:
            return nn.functional.cross_entropy(self(**batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=0.01)

    learner = make_fitted_learner(
        lambda seed: TextReader(), LightningTraining(max_epochs=2), library_models.texts()
    )
    assert len(learner.ask(3)) == 3


def test_mistakes_are_reported_in_a_sentence() -> None:
    with pytest.raises(InputError, match=r"has no option 'max_epoch'. Did you mean 'max_epochs'"):
        LightningTraining(max_epoch=3)

    for size in (0, 2.5):
        with pytest.raises(
            InputError, match=f"batch size is {size}: it must be a whole number, 1 or more"
        ):
            LightningTraining(batch_size=size)  # type: ignore[arg-type]

    with pytest.raises(
        InputError,
        match=r"Sequential is not a LightningModule: train it with teeter\.TrainingConfig",
    ):
        make_fitted_learner(lambda seed: mlp(6, 4, seed=seed))

    rows = ROWS.copy()
    rows[3] = np.inf
    with pytest.raises(TrainingError, match="weights became NaN or infinite"):
        make_fitted_learner(data=rows)
