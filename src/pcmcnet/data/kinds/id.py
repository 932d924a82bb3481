"""Ids: whole numbers, such as node numbers of a graph, which are passed unchanged to a module supplied by the user."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pcmcnet.data.columns.arrays import Contents, content_codes
from pcmcnet.data.kinds.kind import (
    BadContentError,
    BadTypeError,
    Kind,
    PixelBudget,
    ReadContents,
    is_whole,
    register,
    require_no_bad_rows,
)
from pcmcnet.errors import ConfigError, describe_value, such_rows


@dataclass(frozen=True, slots=True)
class IdCode:
    """Code of an id column; it stores only the name of the column."""

    name: str
    kind: ClassVar[str] = "id"
    dtype: ClassVar[type[np.generic]] = np.int64

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one prepared id."""
        return ()

    @classmethod
    def learn(cls, name: str, table: NDArray[Any]) -> IdCode:
        """Return a code that holds only the column's name."""
        return cls(name)

    def prepare(self, table: NDArray[Any]) -> NDArray[np.int64]:
        """Return the ids (U,) as int64."""
        return table.astype(np.int64)

    def is_valid(self) -> bool:
        """Return True if the fields, as read from a saved model, are valid."""
        return True


class _IdLearner:
    """Learner for id columns, whose code holds only the column's name."""

    def add(self, table: NDArray[Any]) -> None:
        pass

    def code(self, name: str) -> IdCode:
        return IdCode(name)


class IdKind(Kind):
    """Whole numbers that are passed to a module supplied by the user."""

    name, code, dtype = "id", IdCode, np.int64
    is_whole_number, may_be_missing = True, False
    unknown = "unknown id: expected an id that the model's encoder module was built for."
    arrow_type, page_field = pa.int64(), "id"
    learner_class = _IdLearner
    fact_checks: ClassVar[Any] = {"min": is_whole, "max": is_whole}

    def read(self, values: pa.ChunkedArray, folder: Path | None = None) -> ReadContents:
        """Read whole numbers of at least 0 and return codes (n,) and distinct ids (U,). A missing id is an error."""
        if values.null_count:
            row = int(np.flatnonzero(values.is_null().to_numpy())[0])
            raise BadContentError(row, f"expected an id, got nothing; {such_rows(values.null_count)}.", "Drop them.")
        if not pa.types.is_integer(values.type) and len(values):
            raise BadTypeError("expected whole numbers")
        ids = values.cast(pa.int64(), safe=False).to_numpy()
        require_no_bad_rows(
            ids < 0, "expected a whole number of at least 0", "Number the ids from 0.", lambda row: ids[row]
        )
        codes, first = content_codes(ids)
        return codes, ids[first]

    def facts(self, column: Contents) -> dict[str, Any]:
        """Return the smallest and the largest id."""
        table = column.table
        return {"min": int(table.min()), "max": int(table.max())} if len(table) else {}

    def is_json(self, value: Any) -> bool:
        """Return True for a valid id in a description."""
        return is_whole(value)

    def encoder(self, code: Any) -> NoReturn:
        """Raise ConfigError, because ids need a module supplied by the user."""
        raise ConfigError(
            f"column {code.name!r} is of kind {code.kind}, which needs an encoder module: "
            f"PCMCNet(encoders={{{code.name!r}: MyModule()}})."
        )

    def worth(self, code: Any) -> None:
        """Return None, because an id is a name and has no part-worth in a linear utility."""

    def json_schema(self, size: int | None) -> dict[str, Any]:
        """Return the JSON schema of an id."""
        return {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}

    def parse_posted(self, value: Any, *, size: int | None, pixels: PixelBudget) -> int:
        """Check that a value is a whole number of at least 0."""
        whole = value if isinstance(value, int) and not isinstance(value, bool) else None
        if isinstance(value, float) and value.is_integer():
            whole = int(value)  # JSON may write 2.0
        if whole is None or not 0 <= whole < 2**63:
            raise ValueError(f"expected a whole number of at least 0, got {describe_value(value)}")
        return whole


register(IdKind())
