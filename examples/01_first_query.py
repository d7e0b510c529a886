"""Your first query: 1,000 handwritten digits, 50 labels, and the 10 digits to label next."""

from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import teeter

digits, labels = load_digits(return_X_y=True)
labelled, pool = digits[:50] / 16, digits[50:1050] / 16

model = LogisticRegression().fit(labelled, labels[:50])
outputs = teeter.observe(model, pool)
rows = teeter.select("ldm-s", outputs, 10)

ldm = teeter.scores("ldm", outputs)
for rank, row in enumerate(rows, start=1):
    print(f"{rank:2}. row {row:3}: LDM {ldm[row]:.3f}, it is a {labels[50 + row]}")
