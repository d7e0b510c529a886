"""GALAXY: what it needs, and which class comes first."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from teeter import Outputs
from teeter.checks import example_context
from teeter.errors import MissingOutputError
from teeter.kernels.galaxy import bisect_lines
from teeter.strategies import get


def test_galaxy_needs_labels_and_logits_of_labelled_rows() -> None:
    context = example_context(9)
    with pytest.raises(MissingOutputError, match="pass labelled= with logits, and labels="):
        get("galaxy")().select(replace(context, labels=None), 2)
    featureless = replace(context, labelled=Outputs(features=context.labelled.features))
    with pytest.raises(MissingOutputError, match="pass labelled= with logits"):
        get("galaxy")().select(featureless, 2)


def test_galaxy_goes_on_with_the_next_class() -> None:
    """With 12 labels of 4 classes the first class is first, and each pick has the next."""
    context = example_context(40)
    probabilities = torch.cat([context.logits, context.labelled.logits]).double().softmax(dim=1)
    labels = torch.cat([torch.full((40,), -1), context.labels])
    expected = bisect_lines(probabilities.numpy(), labels.numpy(), 6, fallback=np.arange(40))
    assert get("galaxy")().select(context, 6).tolist() == expected.tolist()
