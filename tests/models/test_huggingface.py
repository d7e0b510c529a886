"""Hugging Face's classifiers and tables: texts, pairs and images as the classifier takes them, and
known labels.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import library_models
import teeter
from library_models import (
    CLASSES,
    TEXT_MODELS,
    TEXTS,
    image_classifier,
    image_processor,
    pictures,
    text_classifier,
)
from teeter.errors import InputError

pytest.importorskip("transformers", reason="transformers is not installed: the extra hf")
pytest.importorskip("datasets.arrow_dataset", reason="datasets is not installed: the extra hf")

import datasets
import PIL.Image
from tokenizers.processors import TemplateProcessing
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2ForSequenceClassification,
    XLNetConfig,
    XLNetForSequenceClassification,
)

from teeter.models import huggingface
from teeter.models.huggingface import Images, Texts, labels_of

TOKENIZER = library_models.tokenizer()
TABLE = library_models.table(text=TEXTS, label=CLASSES.tolist())
LABELLED = np.arange(16)


def bert(**settings: Any) -> Any:
    return text_classifier("BERT", **settings)


def test_three_lines_give_picks() -> None:
    model = bert()
    table = TABLE
    tokenizer = TOKENIZER
    pool = Texts(table, tokenizer)
    outputs = teeter.observe(model, pool)
    rows = teeter.select("ldm-s", outputs, 5)
    assert len(set(rows.tolist())) == 5
    assert table.select(rows).num_rows == 5


@pytest.mark.parametrize("name", TEXT_MODELS)
def test_the_answers_are_those_of_their_own_batches(name: str) -> None:
    model = text_classifier(name).eval()
    outputs = teeter.observe(model, Texts(TABLE, TOKENIZER))

    batch = TOKENIZER(TEXTS, padding=True, return_tensors="pt")
    accepted_inputs = {
        name: part
        for name, part in batch.items()
        if name in inspect.signature(model.forward).parameters
    }
    with torch.no_grad():
        expected_logits = model(**accepted_inputs).logits

    torch.testing.assert_close(outputs.logits, expected_logits, rtol=1e-4, atol=1e-4)
    assert outputs.weight.shape[0] == 4
    assert (outputs.bias is None) == (name in ("GPT-2", "Llama"))


def test_padding_is_on_the_right_whatever_the_tokenizer_s_side() -> None:
    model = text_classifier("GPT-2")
    usual = teeter.observe(model, Texts(TABLE, TOKENIZER))
    try:
        TOKENIZER.padding_side = "left"
        torch.testing.assert_close(
            teeter.observe(model, Texts(TABLE, TOKENIZER)).features, usual.features
        )
    finally:
        TOKENIZER.padding_side = "right"


def test_padding_is_on_the_left_where_the_end_decides() -> None:
    torch.manual_seed(0)
    sizes = dict(
        vocab_size=24, d_model=16, n_layer=2, n_head=2, d_inner=24, num_labels=4, pad_token_id=0
    )
    model = XLNetForSequenceClassification(XLNetConfig(**sizes, initializer_range=0.5))
    alone, together = (
        teeter.observe(model, Texts(TABLE, TOKENIZER), batch_size=size) for size in (1, 48)
    )
    torch.testing.assert_close(alone.features, together.features, rtol=1e-4, atol=1e-4)


def test_the_column_called_text_is_the_one_to_look_at() -> None:
    table = library_models.table(title=TEXTS[::-1], text=TEXTS)
    outputs = teeter.observe(bert(), Texts(table, TOKENIZER))
    assert torch.equal(outputs.features, teeter.observe(bert(), Texts(TEXTS, TOKENIZER)).features)


def test_pairs_of_columns_tell_the_parts_apart() -> None:
    table = library_models.table(one=TEXTS, other=TEXTS[::-1], label=CLASSES.tolist())
    pool = Texts(table, TOKENIZER, ("one", "other"))
    batch = pool.take(np.array([3])).as_one_batch()
    assert set(batch["token_type_ids"][0].tolist()) == {0, 1}
    assert len(teeter.observe(bert(), pool)) == 48
    alone = teeter.observe(bert(), Texts(table, TOKENIZER, "one"))
    assert not torch.allclose(alone.features, teeter.observe(bert(), pool).features)


def test_lists_of_texts_serve_as_well() -> None:
    outputs = teeter.observe(bert(), Texts(TEXTS, TOKENIZER))
    assert torch.equal(outputs.features, teeter.observe(bert(), Texts(TABLE, TOKENIZER)).features)
    assert torch.equal(
        outputs.features, teeter.observe(bert(), Texts(TABLE["text"], TOKENIZER)).features
    )


def test_a_formatted_table_is_read_all_the_same() -> None:
    for table in (TABLE.with_format("torch"), TABLE.with_format("arrow")):
        outputs = teeter.observe(bert(), Texts(table, TOKENIZER))
        assert torch.equal(
            outputs.features, teeter.observe(bert(), Texts(TABLE, TOKENIZER)).features
        )


@pytest.mark.parametrize("name", ["BERT", "RoBERTa", "DistilBERT", "GPT-2"])
def test_texts_are_cut_at_the_model_s_limit(name: str) -> None:
    sizes = {"max_position_embeddings": 20} if name != "GPT-2" else {"n_positions": 20}
    model = text_classifier(name, **sizes)
    long = ["red " * 300, "green"]
    assert len(teeter.observe(model, Texts(long, TOKENIZER))) == 2

    width = Texts(long, TOKENIZER).adapt_to(model).as_one_batch()["input_ids"].shape[1]
    # RoBERTa's positions begin after the padding's, here 0.
    assert width == (19 if name == "RoBERTa" else 20)
    assert (
        Texts(long, TOKENIZER, max_length=7).adapt_to(model).as_one_batch()["input_ids"].shape[1]
        == 7
    )


def test_texts_are_cut_at_the_tokenizer_s_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TOKENIZER, "model_max_length", 9)
    assert Texts(["red " * 300, "green"], TOKENIZER).adapt_to(bert()).as_one_batch()[
        "input_ids"
    ].shape == (2, 9)


def test_a_wrapped_or_compiled_model_has_the_same_limit() -> None:
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wrapped_model = bert(max_position_embeddings=20)

        def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
            return self.wrapped_model(input_ids, attention_mask).logits

    long = Texts(["red " * 300, "green"], TOKENIZER)
    for model in (
        Wrapped(),
        *(
            torch.compile(module, backend="eager")
            for module in (Wrapped(), Wrapped().wrapped_model)
        ),
    ):
        assert long.adapt_to(model).as_one_batch()["input_ids"].shape == (2, 20)
    with pytest.raises(InputError, match="has one output"):
        long.adapt_to(torch.compile(bert(num_labels=1), backend="eager"))


def test_texts_of_no_token_are_padding() -> None:
    bare = tokenizer_without_padding()
    bare.pad_token = "[PAD]"
    bare.backend_tokenizer.post_processor = TemplateProcessing(single="$A", special_tokens=[])
    texts = ["", "red", ""]
    alone, together = (
        teeter.observe(bert(), Texts(texts, bare), batch_size=size) for size in (1, 3)
    )
    torch.testing.assert_close(alone.features, together.features)


def test_long_texts_come_in_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = teeter.observe(bert(), Texts(TABLE, TOKENIZER))
    monkeypatch.setattr(huggingface, "_MAX_BATCH_TOKENS", 40)
    pool = Texts(TABLE, TOKENIZER)
    shapes = [batch["input_ids"].shape for batch in pool.batches(1024)]
    assert sum(rows for rows, _ in shapes) == 48
    assert all(rows * width <= 40 or rows == 1 for rows, width in shapes)
    assert len(shapes) > 5
    torch.testing.assert_close(teeter.observe(bert(), pool).features, expected.features)
    assert max(rows for rows, _ in (batch["input_ids"].shape for batch in pool.batches(2))) <= 2


def test_a_long_text_does_not_make_the_next_batches_small() -> None:
    assert list(huggingface._split_by_tokens([9, 1, 1, 1, 6, 6], 10)) == [
        slice(0, 1),
        slice(1, 4),
        slice(4, 5),
        slice(5, 6),
    ]


@pytest.mark.parametrize(
    "pool",
    [Texts(TEXTS, TOKENIZER), Images(pictures(), image_processor())],
    ids=["texts", "images"],
)
def test_rows_of_rows_are_the_pool_s(pool: Any) -> None:
    twice, once = (
        pool.take(np.array([9, 5, 7])).take(np.array([2, 1])).as_one_batch(),
        pool.take(np.array([7, 5])).as_one_batch(),
    )
    assert all(torch.equal(twice[name], once[name]) for name in once)


def test_images_come_in_batches_of_32_at_most() -> None:
    pool = Images(pictures(), image_processor())
    assert [len(batch["pixel_values"]) for batch in pool.batches(1024)] == [32, 16]
    assert [len(batch["pixel_values"]) for batch in pool.batches(20)] == [20, 20, 8]


def test_columns_of_images_are_decoded() -> None:
    table = library_models.table(picture=pictures(), label=CLASSES.tolist()).cast_column(
        "picture", datasets.Image()
    )
    expected = teeter.observe(image_classifier(), Images(pictures(), image_processor()))

    for column in (datasets.Image(), datasets.Image(decode=False)):
        outputs = teeter.observe(
            image_classifier(), Images(table.cast_column("picture", column), image_processor())
        )
        torch.testing.assert_close(outputs.features, expected.features)

    arrays = [np.asarray(picture.convert("RGB")) for picture in pictures()]
    torch.testing.assert_close(
        teeter.observe(image_classifier(), Images(arrays, image_processor())).features,
        expected.features,
    )


def test_images_are_turned_as_the_camera_noted(tmp_path: Path) -> None:
    upright = PIL.Image.fromarray(
        np.random.default_rng(0).integers(0, 255, (16, 16, 3), dtype=np.uint8)
    )
    noted = PIL.Image.Exif()
    noted[0x0112] = 6  # a quarter turn
    upright.transpose(PIL.Image.Transpose.ROTATE_90).save(tmp_path / "turned.png", exif=noted)
    with PIL.Image.open(tmp_path / "turned.png") as turned:
        (shown,) = Images([turned], image_processor()).batches(1)
    (expected,) = Images([upright], image_processor()).batches(1)
    torch.testing.assert_close(shown["pixel_values"], expected["pixel_values"])


def test_grey_arrays_may_have_a_last_axis() -> None:
    grey = [np.asarray(picture.convert("L")) for picture in pictures()]
    flat, deep = (
        Images(arrays, image_processor()).as_one_batch()
        for arrays in (grey, [picture[:, :, None] for picture in grey])
    )
    assert torch.equal(flat["pixel_values"], deep["pixel_values"])


def test_an_image_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    pictures()[0].save(tmp_path / "good.png")
    (tmp_path / "bad.png").write_bytes(b"not a picture")
    for name in ("bad.png", "gone.png"):
        files = [str(tmp_path / file_name) for file_name in ("good.png", name)]
        table = library_models.table(image=files).cast_column("image", datasets.Image())
        with pytest.raises(
            InputError, match=r"Row 1 of the table cannot be read: .*(identify|No such file)"
        ):
            teeter.observe(image_classifier(), Images(table, image_processor()))


def test_a_classifier_of_grey_images_gets_grey_images() -> None:
    processor = image_processor()
    processor.image_mean = [0.5]
    processor.image_std = [0.5]
    assert (
        len(teeter.observe(image_classifier(num_channels=1), Images(pictures(), processor))) == 48
    )


@pytest.mark.parametrize("kind", ["texts", "images"])
def test_the_model_is_left_as_it_was(kind: str) -> None:
    model = bert() if kind == "texts" else image_classifier()
    data = Texts(TABLE, TOKENIZER) if kind == "texts" else Images(pictures(), image_processor())
    model.train()
    model.classifier.eval()

    teeter.observe(model, data, device="cpu")
    assert model.training
    assert not model.classifier.training
    assert not any(module._forward_hooks for module in model.modules())

    outputs = teeter.observe(model, data)
    assert not outputs.features.requires_grad
    assert not outputs.features.is_inference()


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["BERT", "GPT-2"])
def test_it_runs_on_a_gpu_and_goes_home(name: str) -> None:
    model = text_classifier(name)
    outputs = teeter.observe(model, Texts(TABLE, TOKENIZER), device="cuda")
    assert outputs.features.is_cuda
    assert next(model.parameters()).device.type == "cpu"
    cpu_outputs = teeter.observe(model, Texts(TABLE, TOKENIZER))
    torch.testing.assert_close(outputs.features.cpu(), cpu_outputs.features, rtol=1e-3, atol=1e-3)


def test_half_precision_works() -> None:
    outputs = teeter.observe(bert().to(torch.bfloat16), Texts(TABLE, TOKENIZER))
    assert outputs.features.dtype == torch.float32


def test_dropout_passes_repeat_and_differ() -> None:
    model = bert()
    pool = Texts(TABLE, TOKENIZER)
    first = teeter.observe(model, pool, ("dropout_logits",), passes=3).posterior_logits
    assert first.shape == (3, 48, 4)
    assert not torch.equal(first[0], first[1])
    assert torch.equal(
        first, teeter.observe(model, pool, ("dropout_logits",), passes=3).posterior_logits
    )


@pytest.mark.parametrize("name", ["BERT", "GPT-2", "ViT"])
def test_a_learner_trains_it_and_asks(name: str) -> None:
    pool = Images(pictures(), image_processor()) if name == "ViT" else Texts(TABLE, TOKENIZER)
    training = teeter.TrainingConfig(epochs=25, learning_rate=5e-3, batch_size=8)

    def make(seed: int) -> nn.Module:
        return image_classifier() if name == "ViT" else text_classifier(name)

    def make_fitted_learner() -> teeter.Learner:
        validation = (pool.take(np.arange(40, 48)), CLASSES[40:]) if name == "BERT" else None
        learner = teeter.Learner(
            make, pool, classes=4, training=training, validation=validation, device="cpu"
        )
        with pytest.raises(InputError, match="call tell with some labels first"):
            learner.fit()
        learner.tell(LABELLED, CLASSES[LABELLED])
        learner.fit()
        return learner

    learner = make_fitted_learner()
    if name == "BERT":
        # The weights of the epoch that is best on the validation data are kept.
        validated = learner.evaluate(pool.take(np.arange(40, 48)), CLASSES[40:])
        assert learner.history[-1].validation_accuracy == validated.accuracy
    else:
        assert learner.evaluate(pool.take(LABELLED), CLASSES[LABELLED]).accuracy > 0.7
        assert learner.history[-1].validation_accuracy is None
    picks = learner.ask(5)
    assert len(set(picks.tolist()) - set(LABELLED.tolist())) == 5
    torch.rand(3)
    assert (make_fitted_learner().ask(5) == picks).all(), "the seed decides"


def test_a_cold_start_by_features_says_that_texts_are_none() -> None:
    learner = teeter.Learner(
        lambda seed: bert(), Texts(TABLE, TOKENIZER), classes=4, cold_start="typiclust"
    )
    with pytest.raises(
        InputError,
        match=("not numbers, so the cold start cannot use them as features: choose the cold"),
    ):
        learner.ask(3)
    assert len(teeter.Learner(lambda seed: bert(), Texts(TABLE, TOKENIZER), classes=4).ask(3)) == 3


def test_modules_of_one_s_own_get_what_they_take() -> None:
    class Bag(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(20, 8)
            self.head = nn.Linear(8, 4)

        def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
            counted = attention_mask.unsqueeze(2)
            return self.head((self.words(input_ids) * counted).sum(dim=1) / counted.sum(dim=1))

    outputs = teeter.observe(Bag(), Texts(TABLE, TOKENIZER))
    assert outputs.features.shape == (48, 8)

    names: set[str] = set()
    teeter.observe(
        lambda batch: names.update(batch) or batch["input_ids"][:, :2].float(),
        Texts(TABLE, TOKENIZER),
    )
    assert names == {"input_ids", "token_type_ids", "attention_mask"}


def test_known_labels_serve_the_strategies_that_ask() -> None:
    table = library_models.table(text=TEXTS, label=[*CLASSES[:20].tolist(), *[None] * 28])
    labels = labels_of(table)
    pool = Texts(table, TOKENIZER)
    model = bert()
    labelled_rows = np.flatnonzero(labels >= 0)
    candidates = np.flatnonzero(labels < 0)

    outputs = teeter.observe(model, pool.take(candidates))
    labelled = teeter.observe(model, pool.take(labelled_rows))
    picks = teeter.select("bait", outputs, 3, labelled=labelled, labels=labels[labelled_rows])

    assert (candidates[picks] >= 20).all()


def tokenizer_without_padding() -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_object=TOKENIZER.backend_tokenizer, unk_token="[UNK]")


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: Texts(TABLE, None),
            "The tokenizer is a NoneType: give the model's tokenizer, loaded with AutoTokenizer",
        ),
        (lambda: Texts(TABLE, "bert-base"), "The tokenizer is a str"),
        (
            lambda: Texts(TABLE, tokenizer_without_padding()),
            "has no padding token, so texts cannot be put into batches: set tokenizer",
        ),
        (
            lambda: Texts(TABLE, TOKENIZER, "txet"),
            r"The table has no column 'txet'. Did you mean 'text'\?",
        ),
        (
            lambda: Texts(TABLE, TOKENIZER, "label"),
            "Column 'label' holds int64 values: texts are needed",
        ),
        (lambda: Texts(TABLE, TOKENIZER, 3), r"The table has no column 3\."),
        (
            lambda: Texts(TABLE, TOKENIZER, max_length=9.5),
            r"max_length is 9\.5: it must be a whole number",
        ),
        (
            lambda: Texts(TABLE, TOKENIZER, ("text",) * 3),
            "3 columns are named: give one, or two for pairs",
        ),
        (
            lambda: Texts(TABLE, TOKENIZER, max_length=2),
            "max_length is 2: because of the tokenizer's special .* be 3 or more",
        ),
        (lambda: Texts(TABLE.select([]), TOKENIZER), "The table is empty"),
        (lambda: Texts([], TOKENIZER), "The list is empty"),
        (
            lambda: Texts("red", TOKENIZER),
            "This is a str: give a table of datasets, or a list of texts",
        ),
        (
            lambda: Texts(TABLE.to_iterable_dataset(), TOKENIZER),
            "This is a IterableDataset: give a table",
        ),
        (
            lambda: Texts(datasets.DatasetDict(train=TABLE), TOKENIZER),
            r"several parts \(train\): give one of them",
        ),
        (lambda: Texts(TEXTS, TOKENIZER, "text"), "A list has no column 'text'"),
        (
            lambda: Texts(library_models.table(a=TEXTS, b=TEXTS), TOKENIZER),
            r"The table has several columns of texts \(a, b\): name the one to use",
        ),
        (
            lambda: Texts(library_models.table(a=[1, 2]), TOKENIZER),
            "The table has no column of texts: name the column to use. It has: a.",
        ),
        (lambda: Images(TABLE, image_processor()), "The table has no column of images"),
        (
            lambda: Images(TABLE, TOKENIZER),
            "The processor is a .*: give the model's image processor, loaded with Auto",
        ),
    ],
)
def test_mistakes_are_reported_at_once(make: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        make()


def gpt2_classifier(**settings: Any) -> Any:
    return GPT2ForSequenceClassification(
        GPT2Config(**{**TEXT_MODELS["GPT-2"][1], "vocab_size": 24, **settings})
    )


@pytest.mark.parametrize(
    ("model", "data", "sentence"),
    [
        (
            lambda: bert(num_labels=1),
            Texts(TABLE, TOKENIZER),
            "has one output, so it predicts a number and not a class",
        ),
        (
            lambda: bert(problem_type="multi_label_classification"),
            Texts(TABLE, TOKENIZER),
            "predicts several labels per row: teeter needs one class per row",
        ),
        (
            lambda: BertModel(BertConfig(**library_models.ENCODER, vocab_size=24)),
            Texts(TABLE, TOKENIZER),
            "BertModel is not a classifier: load the model with AutoModelForSequenceClassification",
        ),
        (
            lambda: gpt2_classifier(num_labels=4, bos_token_id=1, eos_token_id=1),
            Texts(TABLE, TOKENIZER),
            (
                "pads with token 0, but this GPT2ForSequenceClassification has no padding token: "
                "set model.config"
            ),
        ),
        (
            lambda: bert(pad_token_id=3),
            Texts(TABLE, TOKENIZER),
            "pads with token 3: set model.config",
        ),
        (
            lambda: bert(vocab_size=9),
            Texts(TABLE, TOKENIZER),
            r"The tokenizer has \d+ tokens, but the model knows 9",
        ),
        (
            bert,
            Texts(["red", None], TOKENIZER),
            "Text 1 is None, a NoneType: replace it with a string, or drop the row",
        ),
        (
            lambda: nn.Linear(3, 2),
            Texts(TABLE, TOKENIZER),
            "The forward of Linear takes input: to get Texts, it must take",
        ),
        (bert, Texts(TABLE, TOKENIZER).take(np.arange(0)), "Cannot observe an empty pool"),
        (
            image_classifier,
            Images(["a.png"], image_processor()),
            "Image 0 is a str: give Pillow's images",
        ),
        (
            image_classifier,
            Images([np.zeros((3, 16, 16), np.uint8)], image_processor()),
            r"Image 0 is of shape \(3, 16, 16\): give \(height, width\), or \(height, width, 3\)",
        ),
        (
            image_classifier,
            Images([PIL.Image.fromarray(np.zeros((16, 16), np.uint16))], image_processor()),
            (
                "Image 0 has mode I;16, more than 8 bits per pixel, and Pillow would clip all "
                "values above 255: scale the image"
            ),
        ),
    ],
)
def test_mistakes_are_reported_when_a_model_reads_the_data(
    model: Any, data: Any, sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        teeter.observe(model(), data)


def test_a_table_without_an_encoder_is_refused_and_an_encoded_one_works() -> None:
    with pytest.raises(
        InputError,
        match=r"texts, but a torch module takes numbers: convert them with teeter\.models\.Texts",
    ):
        teeter.observe(bert(), TABLE)

    encoded = TABLE.map(
        lambda row: TOKENIZER(row["text"], padding="max_length", max_length=15, truncation=True)
    )
    tensors = encoded.select_columns(["input_ids", "attention_mask"]).with_format("torch")

    outputs = teeter.observe(bert(), tensors, batch_size=10)
    torch.testing.assert_close(
        outputs.features, teeter.observe(bert(), Texts(TABLE, TOKENIZER)).features
    )


def test_estimators_are_told_apart_from_networks() -> None:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression().fit(np.eye(3), [0, 1, 2])
    with pytest.raises(
        InputError,
        match="Texts are inputs for a network: give the columns themselves to a LogisticRegression",
    ):
        teeter.observe(model, Texts(TABLE, TOKENIZER))
