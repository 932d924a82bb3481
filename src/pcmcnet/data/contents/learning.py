"""The code of a column whose contents come in parts; :mod:`pcmcnet.data.kinds.streaming` says what is kept of them."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from pcmcnet.data.kinds import Kind
from pcmcnet.data.kinds.streaming import Learning
from pcmcnet.errors import SchemaError


class Learner:
    """Learns the code of one column from one part after the other; a single part is learnt from as it is."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.first: NDArray[Any] | None = None
        self.rest: Learning | None = None

    def add(self, table: NDArray[Any]) -> None:
        """Take in the distinct contents of one part."""
        if not len(table):
            return
        if self.first is None:
            self.first = table
            return
        if self.rest is None:
            self.rest = self.kind.learner()
            self.rest.add(self.first)
        self.rest.add(table)

    def code(self, name: str) -> Any:
        """Return the code of all parts."""
        if self.first is None:
            raise SchemaError(f"column {name!r} has no content at all in the training part: leave it out.")
        return self.kind.code.learn(name, self.first) if self.rest is None else self.rest.code(name)
