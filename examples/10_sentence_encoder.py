"""A sentence-transformers encoder with a linear head, round by round: pip install 'teeter[hf]'."""

from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from tokenizers import Tokenizer, models, pre_tokenizers

import teeter
from teeter.models import SentenceEncoder

things, times = (
    ["cat", "dog", "owl", "fox", "tram", "bus", "ship", "bike"],
    ["now", "soon", "late", "again"],
)
texts = [f"the {thing} comes {when}" for thing in things for when in times]
table = Dataset.from_dict({"text": texts, "label": ["animal"] * 16 + ["vehicle"] * 16})

# A small encoder that needs no download, and is not trained. Yours is: encoder =
# SentenceTransformer(NAME)
words = ["[UNK]", *sorted({word for text in texts for word in text.split()})]
by_word = Tokenizer(
    models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="[UNK]")
)
by_word.pre_tokenizer = pre_tokenizers.Whitespace()
encoder = SentenceTransformer(modules=[StaticEmbedding(by_word, embedding_dim=32)], device="cpu")

model = make_pipeline(SentenceEncoder(encoder), LogisticRegression())
learner = teeter.Learner(model, table["text"], "ldm-s", classes=["animal", "vehicle"])
for _ in range(3):
    rows = learner.ask(4)
    learner.tell(rows, table.select(rows)["label"])  # here a person would answer
    learner.fit()
print("Label these next:", [table["text"][row] for row in learner.ask(3).tolist()])
