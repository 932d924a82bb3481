"""The codes of all kinds, what they have in common, and their form in JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from pcmcnet.data.columns import GAP, Columns, ContentKind, Contents, Ints, concat_column
from pcmcnet.data.contents.bags import MultiCode
from pcmcnet.data.contents.ids import IdCode
from pcmcnet.data.contents.images import ImageCode
from pcmcnet.data.contents.instants import DatetimeCode
from pcmcnet.data.contents.texts import TextCode
from pcmcnet.data.contents.vectors import VectorCode
from pcmcnet.errors import SchemaError


class ContentCode(Protocol):
    """What a model keeps of the contents of one column of its training part."""

    kind: ClassVar[ContentKind]
    dtype: ClassVar[type[np.generic]]  # of what a network gets

    @property
    def name(self) -> str:
        """Name of the column."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of what a network gets for one content."""

    def prepare(self, table: NDArray[Any]) -> NDArray[Any]:
        """(U, ...) contents -> (U, *shape) numbers; all zeros stand for a missing content."""

    def sound(self) -> bool:
        """Tell whether the values are such as were saved."""


CODES: Mapping[str, Any] = {
    code.kind: code for code in (VectorCode, DatetimeCode, MultiCode, TextCode, ImageCode, IdCode)
}


def learn_codes(parts: Iterable[Columns]) -> tuple[ContentCode, ...]:
    """Learn the codes of the columns of contents, each from the distinct contents that all parts use."""
    found: dict[str, Contents] = {}
    for columns in parts:
        for name, column in columns.items():
            if isinstance(column, Contents):
                joined = concat_column(found[name], column.compact()) if name in found else column.compact()
                assert isinstance(joined, Contents)
                found[name] = joined
    for name, column in found.items():
        if not len(column.table):
            raise SchemaError(f"column {name!r} has no content at all in the training part: leave it out.")
    return tuple(CODES[column.kind].learn(name, column.table) for name, column in found.items())


def prepare(code: ContentCode, column: Contents) -> tuple[Ints, NDArray[Any]]:
    """Prepare each content in use once: (n,) codes, and (U, ...) what they stand for; a gap stands for zeros."""
    used = column.compact()
    table = code.prepare(used.table) if len(used.table) else np.zeros((0, *code.shape), code.dtype)
    if (used.codes == GAP).any():
        table = np.concatenate([table, np.zeros((1, *table.shape[1:]), table.dtype)])
    return np.where(used.codes == GAP, len(table) - 1, used.codes).astype(np.int64), table


def code_to_dict(code: ContentCode) -> dict[str, Any]:
    """Return plain values, for JSON."""
    return {"kind": code.kind, **asdict(code)}  # type: ignore[call-overload]  # every code is a dataclass


def code_from_dict(entries: Mapping[str, Any]) -> ContentCode:
    """Build from what :func:`code_to_dict` returned; KeyError or TypeError where it is amiss."""
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in entries.items() if k != "kind"}
    code: ContentCode = CODES[entries["kind"]](**values)
    if not (isinstance(code.name, str) and code.sound()):
        raise TypeError(str(code))
    return code
