"""Picks from a Hugging Face image classifier and a table of images: pip install 'teeter[hf]'."""

import numpy as np
from datasets import Dataset, Image
from PIL import Image as Pictures
from sklearn.datasets import load_digits
from transformers import ViTConfig, ViTForImageClassification
from transformers.models.vit import ViTImageProcessorPil

import teeter
from teeter.models import Images, labels_of

digits = load_digits()
pictures = [Pictures.fromarray(np.uint8(255 - 15 * image)) for image in digits.images[:300]]
given_labels = [int(label) if row < 60 else -1 for row, label in enumerate(digits.target[:300])]
table = Dataset.from_dict({"image": pictures, "label": given_labels}).cast_column("image", Image())

# A small classifier that needs no download. Yours comes from a name or a folder instead:
# processor, model = (cls.from_pretrained(NAME) for cls in (AutoImageProcessor,
# AutoModelForImageClassification))
processor = ViTImageProcessorPil(size={"height": 16, "width": 16})
sizes = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}
config = ViTConfig(image_size=16, patch_size=4, num_labels=10, **sizes)

pool = Images(table, processor)
labels = labels_of(table)
training = teeter.TrainingConfig(epochs=10, learning_rate=2e-3, batch_size=20)
learner = teeter.Learner(
    lambda seed: ViTForImageClassification(config), pool, classes=10, training=training
)
learner.tell((labels >= 0).nonzero()[0], labels[labels >= 0])
learner.fit()
rows = learner.ask(10)
print("Label these images next:", rows)
print("They look like:         ", learner.predict(rows=rows))
