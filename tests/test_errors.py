"""Every error is a TeeterError, and the tree in the module's docstring is complete."""

from __future__ import annotations

from teeter import errors


def test_everything_raised_is_a_teeter_error() -> None:
    for name in errors.__all__:
        assert issubclass(getattr(errors, name), errors.TeeterError)
        assert name in (errors.__doc__ or ""), "the tree at the top of the file shows it"
