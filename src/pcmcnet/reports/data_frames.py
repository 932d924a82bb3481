"""Columns -> a pandas data frame, where pandas is installed: it is not among what pcmcnet needs."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pyarrow as pa

from pcmcnet.errors import InputError


def data_frame(table: pa.Table, *, index: str | None = None, asked: str = "to_frame", instead: str = "") -> Any:
    """Return a table as a pandas data frame.

    Parameters
    ----------
    table
        The columns.
    index
        Name of the one that becomes the index.
    asked, instead
        For the message where pandas is missing: the method that was called, and what to use without it.
    """
    if find_spec("pandas") is None:
        other = f", or use {instead}" if instead else ""
        raise InputError(f"{asked} needs pandas, which is not installed: pip install pandas{other}.")
    frame = table.to_pandas()
    return frame if index is None else frame.set_index(index)
