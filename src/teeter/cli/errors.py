"""The one place where a refusal becomes a sentence on stderr and an exit code."""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from teeter.errors import TeeterError

__all__ = ["Commands"]


class Commands(TyperGroup):
    """Commands that answer a user's mistake by one sentence and exit code 2, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            answer = super().invoke(ctx)
            sys.stdout.flush()
        except TeeterError as error:
            _refuse(str(error))
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        except BrokenPipeError:
            _discard_output()
            raise typer.Exit(1) from None
        except OSError as error:
            _discard_output()
            _refuse(
                f"Cannot read or write {error.filename or 'the output'}: {error.strerror or error}."
            )
        return answer


def _refuse(sentence: str) -> NoReturn:
    typer.echo(f"Error: {sentence}".encode(errors="backslashreplace").decode(), err=True)
    raise typer.Exit(2)


def _discard_output() -> None:
    """Point stdout nowhere, so that Python does not stumble over what is left in it on its way out."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
