"""An Arrow column -> :class:`Contents`; trouble is told with column, row and choice set."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pcmcnet.data.column_arrays import GAP, Contents
from pcmcnet.data.kinds import KINDS
from pcmcnet.data.kinds.errors import BadContentError, BadTypeError
from pcmcnet.errors import SchemaError

if TYPE_CHECKING:
    from pcmcnet.data.column_reader import Reader
    from pcmcnet.data.schema import Missing


def read_contents(reader: Reader, column: str, kind: str, *, missing: Missing) -> Contents:
    """Read a column at the reader's rows; refuse gaps unless they may be blank contents."""
    values = reader.columns[column]
    if not reader.in_order:
        values = values.take(pa.array(reader.rows))
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    try:
        codes, table = KINDS[kind].read(values, reader.folder)
    except BadContentError as bad:
        raise reader.fail(column, int(reader.rows[bad.row]), bad.problem, bad.remedy) from None
    except BadTypeError as bad:
        raise SchemaError(f"column {column!r} is declared as {kind} and has the type {values.type}: {bad}.") from None
    gaps = np.flatnonzero(codes == GAP)
    if gaps.size and missing == "error":
        first = int(reader.rows[gaps].min())
        problem = f"expected a content of kind {kind}, got nothing; {gaps.size} such rows."
        raise reader.fail(column, first, problem, "Drop them or declare missing='indicator'.")
    return Contents(codes, table, kind)
