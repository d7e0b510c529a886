"""Every exception that teeter raises deliberately.

TeeterError
├── InputError               an argument or a file is invalid (also a ValueError)
│   ├── UnknownNameError     no strategy, dataset, network or class has that name
│   │   ├── UnknownItemError      no item of a campaign has that id
│   │   ├── UnknownAnnotatorError no annotator of a campaign has that name
│   │   └── UnknownResourceError  no campaign, job or report of a server has that address
│   ├── MissingOutputError   a strategy needs an output that the model does not have
│   └── FileError            a file cannot be read, or its contents are not as expected
├── PluginError              a plugin of another package cannot be used (also a RuntimeError)
├── StrategyError            a strategy broke its contract (also a RuntimeError)
├── TrainingError            a model cannot be trained (also a RuntimeError)
├── StoreError               the database of a campaign refuses an operation (also a RuntimeError)
├── ServerError              another server refuses a request (also a RuntimeError)
│   └── ServerUnavailableError  it does not answer now; try again later
├── PermissionDeniedError    the user lacks the permission (also a PermissionError)
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
    "UnknownAnnotatorError",
    "UnknownItemError",
    "UnknownNameError",
    "UnknownResourceError",
]


class TeeterError(Exception):
    """Base class. The message is one or two sentences that say what is wrong and what to do."""


class InputError(TeeterError, ValueError):
    """An argument or a file is invalid."""


class UnknownNameError(InputError):
    """No strategy, dataset, network or class has that name."""


class UnknownItemError(UnknownNameError):
    """No item of the campaign has that id."""


class UnknownAnnotatorError(UnknownNameError):
    """No annotator of the campaign has that name."""


class UnknownResourceError(UnknownNameError):
    """No campaign, job or report of the server has that address."""


class MissingOutputError(InputError):
    """A strategy needs an output that the model does not have."""


class FileError(InputError):
    """A file cannot be read, or its contents are not as expected."""


class PluginError(TeeterError, RuntimeError):
    """A strategy, dataset or network of another package cannot be used."""


class StrategyError(TeeterError, RuntimeError):
    """A strategy broke its contract, so its picks or scores cannot be used."""


class TrainingError(TeeterError, RuntimeError):
    """A model cannot be trained."""


class StoreError(TeeterError, RuntimeError):
    """The database of a campaign refuses an operation."""


class ServerError(TeeterError, RuntimeError):
    """Another server refuses a request, or is not the server it should be."""


class ServerUnavailableError(ServerError):
    """Another server does not answer now. The same request may succeed later."""


class PermissionDeniedError(TeeterError, PermissionError):
    """The user lacks the permission for what they asked."""


class MissingExtraError(TeeterError, ImportError):
    """An optional library is not installed."""
