"""Which rows of a pool are labelled, and which are candidates."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from teeter.errors import InputError

__all__ = ["Pool"]

Rows = npt.NDArray[np.int64]


class Pool:
    """N rows, each with its class or none."""

    def __init__(self, size: int) -> None:
        self._classes: Rows = np.full(size, -1)

    def __len__(self) -> int:
        """Return N."""
        return len(self._classes)

    @property
    def labelled(self) -> Rows:
        """(L,) the labelled rows, in rising order."""
        return np.flatnonzero(self._classes >= 0)

    @property
    def labels(self) -> Rows:
        """(L,) the labelled rows' classes."""
        return self._classes[self.labelled]

    def label(self, rows: Rows, classes: Rows) -> None:
        """Give rows their classes; a row that has one gets the new one."""
        self._classes[self.checked(rows)] = classes

    def candidates(self, exclude: Iterable[int] = ()) -> Rows:
        """Return the rows that have no label and are not excluded, in rising order."""
        free = self._classes < 0
        free[self.checked(np.fromiter(exclude, dtype=np.int64))] = False
        return np.flatnonzero(free)

    def checked(self, rows: Rows) -> Rows:
        """Return ``rows``, refusing any that the pool does not have."""
        outside = rows[(rows < 0) | (rows >= len(self))]
        if len(outside):
            raise InputError(
                f"The pool has no row {outside[0]}: its rows are 0 to {len(self) - 1}."
            )
        return rows
