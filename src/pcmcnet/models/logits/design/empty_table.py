"""A table of no rows, by which a design that was read shows what columns it gives before any table is asked of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData, Schema
from pcmcnet.data.column_arrays import Categorical, Column, Numeric
from pcmcnet.errors import ArtifactError
from pcmcnet.models.logits.design.factor_coding import Code, NumberCode


def empty_sets(schema: Schema, codes: Mapping[str, Code]) -> ChoiceData:
    """Return no choice sets at all, with columns of the kinds that the codes are for."""
    none, word = np.empty(0, np.int64), Categorical(np.empty(0, np.int32), ())

    def columns(names: Sequence[str]) -> dict[str, Column]:
        number = Numeric(np.empty(0, np.float32))
        return {name: number if isinstance(codes.get(name), NumberCode) else word for name in names}

    return ChoiceData(
        schema=schema,
        offsets=np.zeros(1, np.int64),
        set_ids=none,
        chosen=None,
        weights=np.empty(0),
        features=columns(schema.features),
        labels=None if schema.alternative is None else word,
        individual=columns(schema.individual),
        keep={},
        rows=none,
    )


def require_names(blocks: Iterable[tuple[Floats, list[str]]], names: Sequence[str]) -> None:
    """Refuse blocks of columns with other names, as soon as one differs: they may be more than any memory holds."""
    found = (name for _, some in blocks for name in some)
    if not all(ours == theirs for ours, theirs in zip_longest(found, names)):
        raise ArtifactError("the saved design does not fit its own names of coefficients: save the model again.")
