"""The ONNX file of a head computes what the head computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from classifier.trained import network_classifier, text_classifier
from teeter.classifier.classifier import write_onnx_head
from teeter.errors import FileError

onnx = pytest.importorskip("onnx")


@pytest.mark.parametrize("make", [text_classifier, network_classifier])
def test_it_computes_the_same_probabilities(make: type, tmp_path: Path) -> None:
    from onnx.reference import ReferenceEvaluator

    classifier = make()
    path = tmp_path / "head.onnx"
    write_onnx_head(classifier, path)
    features = np.random.default_rng(0).normal(size=(7, len(classifier.head.centre)))

    model = onnx.load(path)
    onnx.checker.check_model(model)
    (probabilities,) = ReferenceEvaluator(model).run(
        None, {"features": features.astype(np.float32)}
    )

    np.testing.assert_allclose(probabilities, classifier.head.probabilities(features), atol=1e-5)
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    assert metadata["classes"].split("\n") == list(classifier.classes)


def test_a_file_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "head.onnx"
    path.write_bytes(b"")
    with pytest.raises(FileError, match="already exists"):
        write_onnx_head(network_classifier(), path)
