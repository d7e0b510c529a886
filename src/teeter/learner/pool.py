"""Which rows of a pool are labelled, and which are candidates."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from teeter.errors import InputError

__all__ = ["Pool"]

RowArray = npt.NDArray[np.int64]

_UNLABELLED = -1


class Pool:
    """N rows, each of which has a class number or no label yet.

    Example:
        >>> import numpy as np
        >>> pool = Pool(5)
        >>> pool.label(np.array([3, 1]), np.array([0, 2]))
        >>> pool.labelled.tolist(), pool.labels.tolist()
        ([1, 3], [2, 0])
        >>> pool.candidates(exclude=[4]).tolist()
        [0, 2]
    """

    def __init__(self, size: int) -> None:
        # (N,) class number of each row.
        self._classes: RowArray = np.full(size, _UNLABELLED)

    def __len__(self) -> int:
        """Return the number of rows, N."""
        return len(self._classes)

    @property
    def labelled(self) -> RowArray:
        """(L,) the labelled rows in ascending order."""
        return np.flatnonzero(self._classes != _UNLABELLED)

    @property
    def labels(self) -> RowArray:
        """(L,) the class numbers of the labelled rows."""
        return self._classes[self.labelled]

    def label(self, rows: RowArray, classes: RowArray) -> None:
        """Set the classes of rows, replacing those they had.

        Raises:
            InputError: if the pool does not have one of the rows. None is labelled then.
        """
        # Checked before anything is written.
        valid_rows = self.require_rows(rows)
        self._classes[valid_rows] = classes

    def candidates(self, exclude: Iterable[int] = ()) -> RowArray:
        """Return the rows without a label, except those in ``exclude``, in ascending order.

        Raises:
            InputError: if the pool does not have one of the excluded rows.
        """
        excluded_rows = np.fromiter(exclude, dtype=np.int64)
        is_candidate = self._classes == _UNLABELLED
        is_candidate[self.require_rows(excluded_rows)] = False
        return np.flatnonzero(is_candidate)

    def require_rows(self, rows: RowArray) -> RowArray:
        """Return ``rows`` unchanged.

        Raises:
            InputError: if the pool does not have one of them.
        """
        # NumPy would take -1 for the last row.
        is_outside = (rows < 0) | (rows >= len(self))
        outside = rows[is_outside]
        if len(outside):
            last_row = len(self) - 1
            raise InputError(f"The pool has no row {outside[0]}: its rows are 0 to {last_row}.")
        return rows
