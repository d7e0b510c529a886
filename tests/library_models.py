"""Small models of other libraries, made from settings since no hub is asked: a model, 48 rows and
what it predicts for them.

Libraries are imported when a model is made, so that where one is missing only its own tests are
left out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

WORDS = (
    "red",
    "green",
    "blue",
    "round",
    "long",
    "tiny",
    "heavy",
    "quick",
    "slow",
    "warm",
    "cold",
    "old",
    "new",
)
RNG = np.random.default_rng(5)
ROWS = RNG.normal(size=(48, 6)).astype(np.float32)
CLASSES = (ROWS @ RNG.normal(size=(6, 4))).argmax(axis=1)
TEXTS = [" ".join(RNG.choice(WORDS, size=RNG.integers(1, 12))) for _ in range(48)]
SMALL = dict(vocab_size=24, num_labels=4, pad_token_id=0, bos_token_id=1, eos_token_id=2)
ENCODER = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24)

TEXT_MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "BERT": ("Bert", ENCODER),
    "RoBERTa": ("Roberta", {**ENCODER, "max_position_embeddings": 20}),
    "DistilBERT": ("DistilBert", dict(dim=16, n_layers=2, n_heads=2, hidden_dim=24)),
    "ModernBERT": ("ModernBert", {**ENCODER, "cls_token_id": 1, "sep_token_id": 2}),
    "GPT-2": ("GPT2", dict(n_embd=16, n_layer=2, n_head=2)),
    "Llama": ("Llama", ENCODER),
}
"""The family, and what makes it small."""


@cache
def tokenizer() -> Any:
    """A tokenizer of whole words."""
    tokenizers = pytest.importorskip(
        "tokenizers", reason="transformers is not installed: the extra hf"
    )
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    vocabulary = {word: place for place, word in enumerate([*special, *WORDS])}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    names = dict(pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", unk_token="[UNK]")
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=words, model_input_names=inputs, **names)


def text_classifier(name: str, **settings: Any) -> Any:
    """A small classifier of texts, whose weights are far enough from 0 that it predicts different
    classes.
    """
    transformers = pytest.importorskip(
        "transformers", reason="transformers is not installed: the extra hf"
    )
    family, sizes = TEXT_MODELS[name]
    config = getattr(transformers, f"{family}Config")(**{**SMALL, **sizes, **settings})
    return _spread(lambda: getattr(transformers, f"{family}ForSequenceClassification")(config))


def image_classifier(**settings: Any) -> Any:
    transformers = pytest.importorskip(
        "transformers", reason="transformers is not installed: the extra hf"
    )
    sizes = {**ENCODER, "image_size": 16, "patch_size": 8, "num_labels": 4, **settings}
    return _spread(lambda: transformers.ViTForImageClassification(transformers.ViTConfig(**sizes)))


def image_processor() -> Any:
    pytest.importorskip("transformers", reason="transformers is not installed: the extra hf")
    from transformers import ViTImageProcessor

    return ViTImageProcessor(size={"height": 16, "width": 16})


def pictures() -> list[Any]:
    """Images of different sizes and kinds."""
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: the extra images")
    rng = np.random.default_rng(2)
    sizes = [(int(12 + row % 9), int(12 + row % 5)) for row in range(48)]
    rgb_images = [
        image.fromarray(rng.integers(0, 256, size=(*size, 3), dtype=np.uint8)) for size in sizes
    ]
    return [
        picture.convert(("RGB", "L", "RGBA")[row % 3]) for row, picture in enumerate(rgb_images)
    ]


def table(**columns: Any) -> Any:
    # A module of the package, since our folder of tests is called datasets, too.
    arrow_dataset = pytest.importorskip(
        "datasets.arrow_dataset", reason="datasets is not installed: the extra hf"
    )
    return arrow_dataset.Dataset.from_dict(columns)


def _spread(make: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = make()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def lightning_module() -> Any:
    lightning = pytest.importorskip(
        "lightning", reason="Lightning is not installed: the extra lightning"
    )

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.network = nn.Sequential(
                nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 4)
            )
            self.steps = 0

        def forward(self, rows: Tensor) -> Tensor:
            return self.network(rows)

        def training_step(self, batch: tuple[Tensor, Tensor], place: int) -> Tensor:
            rows, classes = batch
            self.steps += 1
            return nn.functional.cross_entropy(self(rows), classes)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=0.05)

    return Module()


def skorch_classifier(**settings: Any) -> Any:
    skorch = pytest.importorskip("skorch", reason="skorch is not installed")

    class Network(nn.Module):
        def __init__(self, ending: str = "none") -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.2))
            self.head = nn.Linear(8, 4)
            self.end: nn.Module = nn.Softmax(dim=1) if ending == "softmax" else nn.Identity()

        def forward(self, X: Tensor) -> Tensor:
            return self.end(self.head(self.body(X)))

    usual = dict(criterion=nn.CrossEntropyLoss, max_epochs=15, lr=0.1, verbose=0, train_split=None)
    return skorch.NeuralNetClassifier(Network, **{**usual, **settings})


@cache
def sentence_encoder() -> Any:
    pytest.importorskip(
        "sentence_transformers", reason="sentence-transformers is not installed: the extra hf"
    )
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    return SentenceTransformer(
        modules=[StaticEmbedding(tokenizer().backend_tokenizer, embedding_dim=12)], device="cpu"
    )


def seeded_fit(model: Any, data: Any) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return model.fit(data, CLASSES)


def texts() -> Any:
    given = table(text=TEXTS, label=CLASSES.tolist()), tokenizer()
    from teeter.models.huggingface import Texts

    return Texts(*given)


def images() -> Any:
    given = pictures(), image_processor()
    from teeter.models.huggingface import Images

    return Images(*given)


def sentences() -> Any:
    return table(text=TEXTS)["text"]


def pipeline_with_encoder() -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    encoder = sentence_encoder()
    from teeter.models.sentence_transformers import SentenceEncoder

    return make_pipeline(SentenceEncoder(encoder), LogisticRegression()).fit(sentences(), CLASSES)


def scaled_skorch() -> Any:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return seeded_fit(make_pipeline(StandardScaler(), skorch_classifier()), ROWS)


def predict_with_transformer(model: Any, data: Any) -> Tensor:
    """Each row alone, as a batch of one, which needs no padding."""
    model.eval()
    suited = data.adapt_to(model)
    with torch.no_grad():
        answers = [
            model(**suited.take(np.array([row])).as_one_batch()).logits[0]
            for row in range(len(data))
        ]
    return torch.stack(answers).argmax(dim=1)


def predict_with_module(model: Any, data: Any) -> Tensor:
    model.eval()
    with torch.no_grad():
        return model(torch.as_tensor(data)).argmax(dim=1)


def predict_with_estimator(model: Any, data: Any) -> Any:
    return model.predict(data)


MODELS: dict[str, tuple[Callable[[], Any], Callable[[], Any], Callable[[Any, Any], Any]]] = {
    **{
        name: (partial(text_classifier, name), texts, predict_with_transformer)
        for name in TEXT_MODELS
    },
    "ViT": (image_classifier, images, predict_with_transformer),
    "a Lightning module": (partial(_spread, lightning_module), lambda: ROWS, predict_with_module),
    "skorch": (lambda: seeded_fit(skorch_classifier(), ROWS), lambda: ROWS, predict_with_estimator),
    "skorch with a softmax": (
        lambda: seeded_fit(skorch_classifier(module__ending="softmax", criterion=nn.NLLLoss), ROWS),
        lambda: ROWS,
        predict_with_estimator,
    ),
    "a pipeline that ends in skorch": (scaled_skorch, lambda: ROWS, predict_with_estimator),
    "a sentence encoder and a head": (pipeline_with_encoder, sentences, predict_with_estimator),
}
"""How to make a model, its data, and its predictions for them."""
