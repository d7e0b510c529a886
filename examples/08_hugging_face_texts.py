"""Picks from a Hugging Face classifier and a table of datasets: pip install 'teeter[hf]'."""

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

import teeter
from teeter.models import Texts, labels_of

table = Dataset.from_dict(
    {
        "text": [
            "a warm day",
            "cold and loud",
            "a quiet warm night",
            "loud",
            "cold rain",
            "a warm loud day",
            "quiet",
        ],
        "label": [1, 0, 1, 0, None, None, None],
    }
)

# A small classifier that needs no download, and is not trained. Yours comes from a name or a folder
# instead:
# tokenizer, model = (cls.from_pretrained(NAME) for cls in (AutoTokenizer,
# AutoModelForSequenceClassification))
words = ["[PAD]", "[UNK]", *sorted({word for text in table["text"] for word in text.split()})]
by_word = Tokenizer(
    models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="[UNK]")
)
by_word.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=by_word, pad_token="[PAD]", unk_token="[UNK]")
sizes = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}
config = BertConfig(vocab_size=len(words), num_labels=2, **sizes)
model = BertForSequenceClassification(config)

pool = Texts(table, tokenizer)
outputs = teeter.observe(model, pool)
rows = teeter.select("ldm-s", outputs, 3)
print("From the model as it is:", table.select(rows)["text"][:])

labels = labels_of(table)  # -1 for missing labels
# For a pretrained model, use a learning rate of about 2e-5.
training = teeter.TrainingConfig(epochs=10, learning_rate=1e-3, batch_size=16)
learner = teeter.Learner(
    lambda seed: BertForSequenceClassification(config), pool, classes=2, training=training
)
learner.tell((labels >= 0).nonzero()[0], labels[labels >= 0])
learner.fit()
print("Trained on the labels:  ", table.select(learner.ask(2))["text"][:])
