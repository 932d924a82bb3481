"""Results of the hierarchical logit: part-worths of persons, and the posterior of the parameters of the population.

Shapes: C chains with R draws each, N persons, K part-worths, G covariates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pcmcnet.arrays import Floats
from pcmcnet.errors import InputError, did_you_mean
from pcmcnet.models.logit.chain_diagnostics import bulk_effective_size, split_rhat
from pcmcnet.reports.frames import data_frame
from pcmcnet.reports.tables import Cells, TableMixin


@dataclass(frozen=True, eq=False)
class PartWorths:
    """Part-worths of each person: coefficients of the utility, as draws from their posterior distribution."""

    persons: NDArray[Any]  # (N,) ids of persons, or of choice sets
    names: tuple[str, ...]  # (K,)
    draws: NDArray[np.float32]  # (N, K, R)
    level: float = 0.9  # of the intervals

    @property
    def means(self) -> Floats:  # (N, K)
        """Posterior means."""
        means: Floats = self.draws.mean(axis=2, dtype=np.float64)
        return means

    @property
    def deviations(self) -> Floats:  # (N, K)
        """Posterior standard deviations."""
        deviations: Floats = self.draws.std(axis=2, dtype=np.float64)
        return deviations

    def intervals(self) -> tuple[Floats, Floats]:  # (N, K), (N, K)
        """Return lower and upper ends of the intervals with equal tails."""
        tail = (1 - self.level) / 2
        low, high = np.quantile(self.draws, [tail, 1 - tail], axis=2)
        return low, high

    def to_arrow(self) -> pa.Table:
        """Return a table with a row per person: ``NAME``, ``sd[NAME]``, ``low[NAME]`` and ``high[NAME]`` by name."""
        columns = {"person": pa.array(self.persons.tolist())}
        means, deviations, (low, high) = self.means, self.deviations, self.intervals()
        for k, name in enumerate(self.names):
            columns |= {name: pa.array(means[:, k]), f"sd[{name}]": pa.array(deviations[:, k])}
            columns |= {f"low[{name}]": pa.array(low[:, k]), f"high[{name}]": pa.array(high[:, k])}
        return pa.table(columns)

    def to_frame(self) -> Any:
        """Return :meth:`to_arrow` as a pandas data frame, indexed by person."""
        return data_frame(self.to_arrow(), index="person", instead="to_arrow()")

    def __repr__(self) -> str:
        return f"PartWorths({len(self.persons):,} persons, {self.draws.shape[2]:,} draws; {', '.join(self.names)})"


class ChainRow(NamedTuple):
    """Posterior distribution of one parameter of the population, and how well the chains agree."""

    parameter: str
    mean: float
    deviation: float
    low: float  # quantiles: 5% and 95%
    high: float
    rhat: float  # split R-hat
    effective_size: float  # bulk effective sample size


@dataclass(frozen=True, eq=False)
class ChainReport(TableMixin):
    """Posterior distributions of the parameters of the population, with R-hat and effective sample sizes."""

    rows: tuple[ChainRow, ...]

    @classmethod
    def of(cls, traces: Mapping[str, Floats]) -> ChainReport:
        """Summarise draws (C, R) by parameter."""
        rows = []
        for name, draws in traces.items():
            low, high = np.quantile(draws, [0.05, 0.95]).tolist()
            sizes = split_rhat(draws), bulk_effective_size(draws)
            rows.append(ChainRow(name, float(draws.mean()), float(draws.std()), low, high, *sizes))
        return cls(tuple(rows))

    def __getitem__(self, name: str) -> ChainRow:
        names = [row.parameter for row in self.rows]
        if name not in names:
            raise InputError(f"the model has no parameter {name!r}." + did_you_mean(name, names))
        return self.rows[names.index(name)]

    @property
    def worst(self) -> ChainRow:
        """The parameter with the largest R-hat."""
        return max(self.rows, key=lambda row: row.rhat if row.rhat == row.rhat else -1.0)

    @property
    def smallest_size(self) -> float:
        """The smallest effective sample size."""
        return min(row.effective_size for row in self.rows)

    def to_arrow(self) -> pa.Table:
        """Return a table with a row per parameter."""
        return pa.table({name: [getattr(row, name) for row in self.rows] for name in ChainRow._fields})

    def to_frame(self) -> Any:
        """Return :meth:`to_arrow` as a pandas data frame, indexed by parameter."""
        return data_frame(self.to_arrow(), index="parameter", instead="to_arrow()")

    def _cells(self) -> Cells:
        return [PARAMETER_HEADER, *map(parameter_cells, self.rows)]


PARAMETER_HEADER = ("parameter", "mean", "std dev", "5%", "95%", "R-hat", "ESS")


def parameter_cells(row: ChainRow) -> tuple[str, ...]:
    """Return the texts of a row, in the columns of ``PARAMETER_HEADER``."""
    numbers = (f"{value:.4g}" for value in row[1:5])
    return (row.parameter, *numbers, f"{row.rhat:.3f}", f"{row.effective_size:,.0f}")


def population_traces(
    names: Sequence[str], covariates: Sequence[str], means: Floats, covariances: Floats
) -> dict[str, Floats]:
    """Return the draws (C, R) of each parameter of the population, by name.

    ``means`` (R, C, K, G) and ``covariances`` (R, C, K, K) are draws of D and S.
    """
    traces = {name: means[:, :, k, 0].T for k, name in enumerate(names)}
    for g, covariate in enumerate(covariates[1:], start=1):
        traces |= {f"mean[{name}]:{covariate}": means[:, :, k, g].T for k, name in enumerate(names)}
    deviations = np.sqrt(np.diagonal(covariances, axis1=2, axis2=3))
    traces |= {f"sd[{name}]": deviations[:, :, k].T for k, name in enumerate(names)}
    for k, name in enumerate(names):
        for j in range(k):
            correlation = covariances[:, :, k, j] / (deviations[:, :, k] * deviations[:, :, j])
            traces[f"corr[{names[j]}, {name}]"] = correlation.T
    return traces
