"""Rows of a clean long table -> encoded choice sets on a device, in few long steps.

The usual way checks each column on the host (:mod:`pcmcnet.data.long`). Here columns are only copied, and the device
checks them: numbers are finite, columns of the individual are constant within each set. A table that is not clean is
refused without a reason: whoever reads it in the usual way finds the reason, or that all is well.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from pcmcnet.arrays import Ints
from pcmcnet.data.batches import EncodedSets
from pcmcnet.data.column_arrays import Categorical
from pcmcnet.data.device_columns import indices, sent, sent_table, standardise
from pcmcnet.data.distinct import UNREADABLE, distinct, names
from pcmcnet.data.encoding import Encoder, SideEncoder
from pcmcnet.data.float32_resolution import Span
from pcmcnet.data.kinds.category import Unseen
from pcmcnet.data.schema import Schema
from pcmcnet.data.views import without_views
from pcmcnet.errors import SchemaError

_EXACT = 2.0**53  # up to which float64 has all whole numbers
_NUMBERS = {getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)}
_NUMBERS |= {pa.float32(), pa.float64()}


def may_be_clean(schema: Schema) -> bool:
    """Tell whether rows with such roles can be encoded here: inputs of the network, and nothing else to check."""
    others = (schema.available, schema.outside, schema.rank, schema.weight, schema.chosen)
    return not (schema.contents or schema.wide or any(role is not None for role in others))


class CleanRows:
    """Encodes some rows, all of the sets that they belong to; ``spans`` are those of columns wider than float32."""

    def __init__(self, rows: Any, sizes: Ints, encoder: Encoder, device: torch.device) -> None:
        self.rows, self.sizes, self.encoder, self.device = rows, sizes, encoder, device
        self.length, self.starts = int(sizes.sum()), np.cumsum(sizes) - sizes
        self.strict = encoder.schema.conflict == "error"
        self.unseen, self.spans = Unseen(), dict[str, Span]()
        self.first, self.counts = sent([[self.starts], [sizes]], len(sizes), torch.int64, device)
        self.begins = torch.zeros(self.length, dtype=torch.bool, device=device)
        self.begins[self.first] = True
        self.sound: list[Tensor] = []  # what has to be true, on the device

    def encode(self) -> EncodedSets:
        """Encode the rows, or raise ``SchemaError``."""
        what, who, n_sets = self.encoder.features, self.encoder.individual, len(self.sizes)
        label = self.encoder.schema.alternative
        if label is not None:
            self._require_unique(label)
        found = EncodedSets(
            sizes=self.sizes,
            starts=self.first,
            counts=self.counts,
            numeric=self._numbers(what, of_sets=False),
            categorical=self._indices(what, of_sets=False),
            individual_numeric=self._numbers(who, of_sets=True),
            individual_categorical=self._indices(who, of_sets=True),
            chosen=torch.zeros(n_sets, dtype=torch.int64, device=self.device),
            weight=torch.ones(n_sets, device=self.device),
        )
        if self.sound and not bool(torch.stack(self.sound).all()):
            raise _unclean("some column")
        return found

    def _numbers(self, side: SideEncoder, *, of_sets: bool) -> Tensor:
        """(n, K), or (S, K) standardised numbers."""
        if not side.numeric:
            return torch.empty((len(self.sizes) if of_sets else self.length, 0), device=self.device)
        table = self._table([code.name for code in side.numeric])
        narrow = set(table.schema.types) == {pa.float32()}
        if not narrow:
            table = table.cast(pa.schema([(name, pa.float64()) for name in table.column_names]), safe=False)
        raw = sent_table(table, self.device)
        if of_sets:
            raw = self._of_sets(raw)
        if not narrow:
            low, high = torch.aminmax(raw, dim=1)
            self.sound.append((torch.maximum(-low, high) < _EXACT).all())
            for code, a, b in zip(side.numeric, low.tolist(), high.tolist(), strict=True):
                self.spans[code.name] = Span(a, b, raw.shape[1], True, True)
        found = standardise(side.numeric, raw.float())
        self.sound += [raw.float().isfinite().all(), found.isfinite().all()]
        return found

    def _indices(self, side: SideEncoder, *, of_sets: bool) -> Tensor:
        """(n, C), or (S, C) positions in the vocabularies."""
        found = []
        for code in side.categorical:
            codes, categories = self._categories(code.name)
            if of_sets:
                if self.strict and (codes != np.repeat(codes[self.starts], self.sizes)).any():
                    raise _unclean(code.name)
                codes = codes[self.starts]
            found.append(code.indices(categories)[codes])
            self.unseen.count(code, Categorical(codes, categories), found[-1])
        return indices(found, len(self.sizes) if of_sets else self.length, self.device)

    def _of_sets(self, raw: Tensor) -> Tensor:
        """(K, n) -> (K, S), with a note whether all rows of a set are alike."""
        if self.strict:
            self.sound.append(((raw[:, 1:] == raw[:, :-1]) | self.begins[1:]).all())
        return raw[:, self.first]

    def _require_unique(self, label: str) -> None:
        """Refuse a label that stands twice in a set."""
        codes, categories = self._categories(label)
        pairs = np.repeat(np.arange(len(self.sizes)), self.sizes) * len(categories) + codes
        if len(pa.array(pairs).unique()) < len(pairs):
            raise _unclean(label)

    def _table(self, names: list[str]) -> pa.Table:
        """Return some columns of numbers; nothing is copied."""
        table = self.rows
        if not isinstance(table, pa.Table):
            columns = {name: table[name] for name in names}
            try:
                table = pa.table({k: v if isinstance(v, np.ndarray) else v.to_numpy() for k, v in columns.items()})
            except UNREADABLE as error:
                raise _unclean("some column") from error
        table = table.select(names)
        for field, column in zip(table.schema, table.columns, strict=True):
            if field.type not in _NUMBERS or column.null_count:
                raise _unclean(field.name)
        return table

    def _categories(self, name: str) -> tuple[NDArray[np.int32], tuple[str, ...]]:
        """Return a column of categories as codes, and their names."""
        column = self.rows[name]
        try:
            if not isinstance(column, pa.ChunkedArray):
                values = pa.array(column, from_pandas=True) if isinstance(column, np.ndarray) else column.to_arrow()
                column = without_views(pa.table({name: values}))[name]
            codes, values = distinct(column)
            found = names(values)
        except UNREADABLE as error:
            raise _unclean(name) from error
        if any(label is None for label in found) or (codes < 0).any():
            raise _unclean(name)
        return codes, tuple(label for label in found if label is not None)


def _unclean(name: str) -> SchemaError:
    return SchemaError(f"{name} is to be read in the usual way.")
