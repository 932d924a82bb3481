"""Arrow's newer layouts -> the plain ones, which all of Arrow can read.

Text and bytes in views, as polars writes them, and columns that hold each run of equal values once.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return a type with plain text and bytes in place of views, and values in place of runs, at any depth of lists.

    Examples
    --------
    >>> plain_type(pa.dictionary(pa.int8(), pa.string_view()))
    DictionaryType(dictionary<values=large_string, indices=int8, ordered=0>)
    """
    types = pa.types
    if types.is_string_view(kind):
        return pa.large_string()  # one batch may hold more than the 2 GiB of the smaller layout
    if types.is_binary_view(kind):
        return pa.large_binary()
    if types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, plain_type(kind.value_type), kind.ordered)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        item = plain_field(kind.value_field)
        if types.is_fixed_size_list(kind):
            return pa.list_(item, kind.list_size)
        return pa.list_(item) if types.is_list(kind) else pa.large_list(item)
    if types.is_struct(kind):
        return pa.struct([plain_field(kind.field(k)) for k in range(kind.num_fields)])
    return kind


def plain_field(field: pa.Field) -> pa.Field:
    """Return a field of such a type."""
    kind = plain_type(field.type)
    return field if kind == field.type else field.with_type(kind)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema of such types."""
    return pa.schema([plain_field(field) for field in schema], schema.metadata)


def without_views(rows: Any) -> Any:
    """Return a table or a batch of rows without views; one that has none as it is."""
    schema = plain_schema(rows.schema)
    if schema == rows.schema:
        return rows
    columns = [_cast(column, kind) for column, kind in zip(rows.columns, schema.types, strict=True)]
    return type(rows).from_arrays(columns, schema=schema)


def _cast(column: Any, kind: pa.DataType) -> Any:
    if column.type == kind:
        return column
    try:
        return column.cast(kind)
    except pa.ArrowNotImplementedError:  # old releases of Arrow cannot cast views, and none can cast runs
        if isinstance(column, pa.ChunkedArray):
            return pa.chunked_array([_cast(chunk, kind) for chunk in column.chunks], kind)
        if pa.types.is_dictionary(column.type):
            values = _cast(column.dictionary, kind.value_type)
            return pa.DictionaryArray.from_arrays(column.indices, values, ordered=kind.ordered)
        return pa.array(column.to_pylist(), kind)
