"""One number for what models see of some choice sets, whatever file or library they came from."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pcmcnet.data.column_arrays import Categorical, Column, Contents
from pcmcnet.data.distinct import first_rows

if TYPE_CHECKING:
    from pcmcnet.data.choice_data import ChoiceData


def fingerprint(data: ChoiceData) -> str:
    """Return a SHA-256 of roles, sizes, choices, weights, features, labels, individual columns and persons."""
    digest = hashlib.sha256(repr(sorted(data.schema.unnamed.to_dict().items())).encode())
    arrays = {"offsets": data.offsets, "chosen": data.chosen, "weights": data.weights}
    columns: dict[str, Column] = {f"features/{name}": column for name, column in data.features.items()}
    columns |= {f"individual/{name}": column for name, column in data.individual.items()}
    if data.labels is not None:
        columns["labels"] = data.labels
    if data.schema.together is not None:
        columns["person"] = data.keep[data.schema.together]
    for name, array in arrays.items():
        _add(digest, name, array)
    for name, column in columns.items():
        if isinstance(column, Categorical):
            codes, categories = _canonical(column)
            digest.update(repr(categories).encode())
            _add(digest, name, codes)
        elif isinstance(column, Contents):
            used = column.compact()
            _add(digest, name, used.codes)
            _add_contents(digest, used.table)
        else:
            _add(digest, name, column.values)
    return digest.hexdigest()


def _add(digest: Any, name: str, array: NDArray[Any] | None) -> None:
    digest.update(f"{name}:{None if array is None else (array.dtype.str, array.shape)}".encode())
    if array is not None:
        digest.update(np.ascontiguousarray(array).data)


def _add_contents(digest: Any, table: NDArray[Any]) -> None:
    """Add distinct contents: numbers by their bytes, objects by what they are written as."""
    if table.dtype.kind in "fiM":
        _add(digest, "contents", table.view(np.int64) if table.dtype.kind == "M" else table)
        return
    for content in table:
        digest.update(hashlib.sha256(content if isinstance(content, bytes) else repr(content).encode()).digest())


def _canonical(column: Categorical) -> tuple[NDArray[np.int32], list[str]]:
    """Number the categories in use by their first rows: a part of a table counts as a table."""
    first = first_rows(column.codes, len(column.categories))
    order = np.argsort(first, kind="stable")[: int((first < len(column.codes)).sum())]
    new = np.zeros(len(column.categories), np.int32)
    new[order] = np.arange(len(order), dtype=np.int32)
    return new[column.codes], [column.categories[k] for k in order]
