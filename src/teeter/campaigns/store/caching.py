"""Values that are kept until their campaign changes."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
OwnerT = TypeVar("OwnerT")
ValueT = TypeVar("ValueT")


def cached_by(
    version: Callable[Concatenate[OwnerT, P], Hashable],
) -> Callable[[Callable[Concatenate[OwnerT, P], ValueT]], Callable[Concatenate[OwnerT, P], ValueT]]:
    """Cache the result of a method until its version changes.

    Each object remembers one result. Two threads may compute the same one at the same time, which
    costs time and does no harm.

    Args:
        version: called with the arguments of the method. It must be much cheaper than the method,
            and its result must change whenever that of the method may change.

    Example:
        >>> class Shelf:
        ...     def __init__(self):
        ...         self.books = ["Emma"]
        ...
        ...     @cached_by(lambda shelf: len(shelf.books))
        ...     def describe(self):
        ...         print("Looking.")
        ...         return ", ".join(self.books)
        >>> shelf = Shelf()
        >>> shelf.describe(), shelf.describe()
        Looking.
        ('Emma', 'Emma')
    """

    def decorate(
        method: Callable[Concatenate[OwnerT, P], ValueT],
    ) -> Callable[Concatenate[OwnerT, P], ValueT]:
        attribute = f"_cached_{method.__name__}"

        @wraps(method)
        def get_cached(owner: OwnerT, /, *args: P.args, **kwargs: P.kwargs) -> ValueT:
            # Read before the value: a change in between makes the next call compute it again.
            current = version(owner, *args, **kwargs)

            # One tuple, read and replaced at once: threads may come here together.
            entry: tuple[Hashable, ValueT] | None = getattr(owner, attribute, None)
            if entry is None or entry[0] != current:
                entry = current, method(owner, *args, **kwargs)
                setattr(owner, attribute, entry)
            return entry[1]

        return get_cached

    return decorate
