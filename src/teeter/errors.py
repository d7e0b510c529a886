"""Every exception that teeter raises on purpose.

TeeterError
├── InputError               something handed to teeter does not fit (also a ValueError)
│   ├── UnknownNameError     no strategy, dataset, ... of that name
│   ├── MissingOutputError   a strategy needs what the model did not give
│   └── FileError            a file cannot be read, or does not hold what is needed
├── PluginError              another package's strategy, dataset or network cannot be used (also a RuntimeError)
├── StrategyError            a strategy broke its contract (also a RuntimeError)
├── TrainingError            a model cannot be trained so (also a RuntimeError)
├── StoreError               a campaign's database cannot be used so (also a RuntimeError)
├── ServerError              another program's server refuses, or is not what it should be (also a RuntimeError)
│   └── ServerAwayError      it does not answer for now: the same may work later
├── NotAllowedError          somebody may not do what they asked for (also a PermissionError)
└── MissingExtraError        an optional library is not installed (also an ImportError)
"""

from __future__ import annotations

__all__ = [
    "FileError",
    "InputError",
    "MissingExtraError",
    "MissingOutputError",
    "PermissionDeniedError",
    "PluginError",
    "ServerError",
    "ServerUnavailableError",
    "StoreError",
    "StrategyError",
    "TeeterError",
    "TrainingError",
    "UnknownNameError",
]


class TeeterError(Exception):
    """Anything that teeter refuses, in one sentence that says what to do."""


class InputError(TeeterError, ValueError):
    """Something handed to teeter does not fit."""


class UnknownNameError(InputError):
    """No strategy, dataset or the like has that name."""


class MissingOutputError(InputError):
    """A strategy needs something that the model's outputs do not hold."""


class FileError(InputError):
    """A file cannot be read, or does not hold what is needed."""


class PluginError(TeeterError, RuntimeError):
    """A strategy, dataset or network that another package brings along cannot be used."""


class StrategyError(TeeterError, RuntimeError):
    """A strategy broke its contract: its picks or scores cannot be used."""


class TrainingError(TeeterError, RuntimeError):
    """A model cannot be trained so."""


class StoreError(TeeterError, RuntimeError):
    """A campaign's database cannot be used so."""


class ServerError(TeeterError, RuntimeError):
    """Another program's server refuses, or is not what it should be."""


class ServerUnavailableError(ServerError):
    """Another program's server does not answer for now: the same may work later."""


class PermissionDeniedError(TeeterError, PermissionError):
    """Somebody may not do what they asked for."""


class MissingExtraError(TeeterError, ImportError):
    """An optional library is not installed."""
