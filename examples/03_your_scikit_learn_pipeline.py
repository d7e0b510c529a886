"""Your scikit-learn pipeline: from a pool of texts to the texts to label next."""

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import teeter

labelled = [
    "the cat purrs",
    "a dog barks",
    "my cat sleeps",
    "the dog runs",
    "cats like fish",
    "dogs like walks",
]
animals = ["cat", "dog", "cat", "dog", "cat", "dog"]
pool = [
    "the cat barks",
    "a cat and a dog",
    "the dog fetches a stick",
    "my cat sleeps all day",
    "it runs and sleeps",
    "fish and walks",
    "a quiet afternoon",
]

pipeline = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(labelled, animals)
outputs = teeter.observe(pipeline, pool)
for row in teeter.select("ldm-s", outputs, 3):
    print(pool[row])
