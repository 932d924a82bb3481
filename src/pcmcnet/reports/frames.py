"""Return results as pandas data frames. Pandas is an optional dependency, which is imported only here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib.util import find_spec
from typing import Any, ClassVar

import pyarrow as pa

from pcmcnet.errors import InputError


def data_frame(
    table: pa.Table,
    *,
    index: str | None = None,
    method: str = "to_frame",
    instead: str = "",
    integer_objects: bool = False,
) -> Any:
    """Return a table as a pandas data frame.

    Parameters
    ----------
    table
        The columns.
    index
        Name of the column that becomes the index. If None, the rows are numbered.
    method, instead
        Method that was called and its alternative, to be named in the error message if pandas is not installed.
    integer_objects
        Whether integers with missing values become objects instead of floating-point numbers. Default False.

    Raises
    ------
    InputError
        If pandas is not installed.
    """
    if find_spec("pandas") is None:
        other = f", or use {instead}" if instead else ""
        raise InputError(f"{method} needs pandas, which is not installed: pip install pandas{other}.")
    frame = table.to_pandas(integer_object_nulls=integer_objects)
    return frame if index is None else frame.set_index(index)


class FrameMixin:
    """Mixin that adds ``to_frame``. A subclass has a field ``rows`` of dataclasses, or defines ``_frame_rows``.

    ``_frame_index`` is the column that becomes the index, or None to number the rows.
    """

    __slots__ = ()
    _frame_index: ClassVar[str | None] = None

    def _frame_rows(self) -> Iterable[Mapping[str, Any]]:
        rows: Iterable[Any] = self.rows  # type: ignore[attr-defined]  # other subclasses override this method
        return map(asdict, rows)

    def to_frame(self) -> Any:
        """Return the result as a pandas data frame with unrounded numbers and NaN for missing numbers.

        Returns
        -------
        pandas.DataFrame
            A data frame whose columns are named like the attributes of the result.

        Raises
        ------
        InputError
            If pandas is not installed.
        """
        rows = list(self._frame_rows())
        names = dict.fromkeys(name for row in rows for name in row)
        table = pa.table({name: _column([row.get(name) for row in rows]) for name in names})
        return data_frame(table, index=self._frame_index, instead="to_dict()" if hasattr(self, "to_dict") else "")


def _column(values: list[Any]) -> pa.Array:
    """Return an array. If all values are missing, they are missing numbers."""
    array = pa.array(values)
    return array.cast(pa.float64()) if pa.types.is_null(array.type) else array
