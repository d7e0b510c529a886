"""The ask-tell loop: pick rows, learn their labels, train, evaluate, save and resume."""

from __future__ import annotations

from teeter.learner.learner import Learner
from teeter.learner.rounds import FitRecord

__all__ = ["FitRecord", "Learner"]
