"""teeter picks the samples a model teeters on: those whose label flips under the smallest change of the model."""

from __future__ import annotations

from teeter import strategies
from teeter.arrays import working_memory
from teeter.errors import TeeterError
from teeter.models.outputs import Outputs
from teeter.seeds import portable
from teeter.strategies.door import ldm, scores, select

__all__ = ["Outputs", "TeeterError", "ldm", "portable", "scores", "select", "strategies", "working_memory"]

__version__ = "0.1.0"
