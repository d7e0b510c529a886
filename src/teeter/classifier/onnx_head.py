"""Write the head of a classifier as an ONNX file, for other languages and runtimes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from teeter.base.files import atomic_write, write_errors
from teeter.classifier.classifier import Classifier
from teeter.errors import FileError, MissingExtraError

__all__ = ["write_onnx_head"]

OPSET = 17
"""The version of ONNX's operators. Those used here are the same in all later ones."""


def write_onnx_head(classifier: Classifier, path: str | Path) -> None:
    """Write the scaling, the layers and the softmax of a classifier as an ONNX model.

    Its input ``features`` (N, D) is what the encoder computes, its output ``probabilities`` (N, C)
    has the calibrated probability of each class. The classes are in the metadata.

    Args:
        classifier: the classifier.
        path: the file to write. It must not exist.

    Raises:
        FileError: the file exists or cannot be written.
        MissingExtraError: onnx is not installed.
    """
    path = Path(path)
    if path.exists():
        raise FileError(f"{path} already exists: choose another file.")

    model = _build_model(classifier)
    with write_errors(path):
        atomic_write(path, model.SerializeToString())


def _build_model(classifier: Classifier) -> Any:
    try:
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        raise MissingExtraError("Writing ONNX needs onnx: pip install 'teeter[onnx]'.") from None

    head = classifier.head
    # All float32, like the features: ONNX operators do not mix types.
    constants = {
        "centre": head.centre.astype(np.float32),
        "size": np.array([head.size], np.float32),
        "temperature": np.array([head.temperature], np.float32),
    }
    nodes = [
        helper.make_node("Sub", ["features", "centre"], ["centred"]),
        helper.make_node("Div", ["centred", "size"], ["layer_0"]),
    ]

    last_number = len(head.layers) - 1
    for number, layer in enumerate(head.layers):
        constants[f"weight_{number}"] = layer.weight.astype(np.float32)
        constants[f"bias_{number}"] = layer.bias.astype(np.float32)
        output = "logits" if number == last_number else f"linear_{number}"
        inputs = [f"layer_{number}", f"weight_{number}", f"bias_{number}"]
        # transB, because weights are stored as (outputs, inputs).
        nodes.append(helper.make_node("Gemm", inputs, [output], transB=1))
        if number < last_number:
            nodes.append(helper.make_node("Relu", [output], [f"layer_{number + 1}"]))

    nodes.append(helper.make_node("Div", ["logits", "temperature"], ["scaled_logits"]))
    nodes.append(helper.make_node("Softmax", ["scaled_logits"], ["probabilities"], axis=1))

    width = len(head.centre)
    n_classes = len(classifier.classes)
    graph = helper.make_graph(
        nodes,
        "teeter_head",
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["items", width])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["items", n_classes])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])

    metadata = {"classes": "\n".join(classifier.classes), "encoder": ""}
    if classifier.encoder is not None:
        metadata["encoder"] = classifier.encoder.name
    helper.set_model_props(model, metadata)
    return model
