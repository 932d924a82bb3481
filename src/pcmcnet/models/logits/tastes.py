"""What a mixed logit says of tastes: their distribution over people, and those of each person given the choices.

With w_r the share of draw r given the choices of a person (``estimation/mixed_likelihood.py``), the coefficient of that
person has mean sum_r w_r b_r, and the standard deviation of b_r under the same weights (Revelt & Train, 2000). It says
how much the choices tell: that of the whole population if nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pcmcnet.arrays import Floats
from pcmcnet.errors import InputError, did_you_mean
from pcmcnet.reports.data_frames import data_frame
from pcmcnet.reports.tables import Cells, PrintsAsTable

_TAILS = (0.05, 0.5, 0.95)


class Taste(NamedTuple):
    """The distribution of one coefficient over people."""

    name: str
    distribution: str
    mean: float
    deviation: float
    low: float  # quantiles of 5, 50 and 95 per cent
    median: float
    high: float
    below_0: float  # share of people


@dataclass(frozen=True, eq=False)
class Tastes(PrintsAsTable):
    """Distributions of random coefficients, and their correlations; prints as a table."""

    rows: tuple[Taste, ...]
    draws: Floats  # (D, R) coefficients of people
    correlations: Floats  # (D, D)

    @classmethod
    def of(cls, names: Sequence[str], distributions: Sequence[str], draws: Floats) -> Tastes:
        """Sum up draws (D, R) of coefficients."""
        rows = []
        for name, law, values in zip(names, distributions, draws, strict=True):
            low, median, high = np.quantile(values, _TAILS).tolist()
            share = float((values < 0).mean())
            rows.append(Taste(name, law, float(values.mean()), float(values.std()), low, median, high, share))
        spread = draws.std(axis=1)
        centred = (draws - draws.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1.0)[:, None]
        return cls(tuple(rows), draws, centred @ centred.T / draws.shape[1])

    def __getitem__(self, name: str) -> Taste:
        return self.rows[self.position(name)]

    def position(self, name: str) -> int:
        """Return where a coefficient stands."""
        names = [row.name for row in self.rows]
        if name not in names:
            raise InputError(f"no random coefficient is called {name!r}." + did_you_mean(name, names))
        return names.index(name)

    def to_arrow(self) -> pa.Table:
        """Return the table with a row per coefficient."""
        return pa.table({field: [getattr(row, field) for row in self.rows] for field in Taste._fields})

    def to_frame(self) -> Any:
        """Return :meth:`to_arrow` as a pandas data frame, indexed by name."""
        return data_frame(self.to_arrow(), index="name", instead="to_arrow()")

    def _cells(self) -> Cells:
        heads = ["coefficient", "distribution", "mean", "std dev", "5%", "median", "95%", "below 0"]
        return [
            heads,
            *([r.name, r.distribution, *(f"{v:.4g}" for v in r[2:7]), f"{r.below_0:.1%}"] for r in self.rows),
        ]


@dataclass(frozen=True, eq=False)
class Conditional:
    """Coefficients of each person given the choices: means and standard deviations."""

    persons: NDArray[Any]  # (N,) ids of persons, or of choice sets
    names: tuple[str, ...]  # (C,)
    means: Floats  # (N, C)
    deviations: Floats  # (N, C)

    def to_arrow(self) -> pa.Table:
        """Return a table with a row per person: a column ``name`` and a column ``sd[name]`` for each coefficient."""
        columns = {"person": pa.array(self.persons.tolist())}
        for k, name in enumerate(self.names):
            columns |= {name: pa.array(self.means[:, k]), f"sd[{name}]": pa.array(self.deviations[:, k])}
        return pa.table(columns)

    def to_frame(self) -> Any:
        """Return :meth:`to_arrow` as a pandas data frame, indexed by person."""
        return data_frame(self.to_arrow(), index="person", instead="to_arrow()")

    def __repr__(self) -> str:
        return f"Conditional({len(self.persons):,} persons; {', '.join(self.names)})"
