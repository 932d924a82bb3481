"""Tastes of a mixed logit: distributions of coefficients over people, their covariances, and tastes given choices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pcmcnet.arrays import Floats
from pcmcnet.errors import InputError, did_you_mean
from pcmcnet.models.logit.standard_errors import Errors
from pcmcnet.reports.frames import data_frame
from pcmcnet.reports.tables import Cells, TableMixin

# -- Tastes ------------------------------------------------------------------------------------------------------------
# The distribution of tastes over people, and the conditional tastes of each person given the choices.
#
# With w_r the weight of draw r given the choices of a person (`models/logit/mixed_likelihood.py`), the conditional mean
# of the person's coefficient is sum_r w_r b_r, and the conditional standard deviation is that of b_r with the same
# weights (Revelt & Train, 2000). The standard deviation is that of the population if the choices are uninformative.

_QUANTILES = (0.05, 0.5, 0.95)


class Taste(NamedTuple):
    """The distribution of one coefficient over people."""

    name: str
    distribution: str
    mean: float
    deviation: float
    low: float  # quantiles: 5%, 50% and 95%
    median: float
    high: float
    below_0: float  # share of people with a negative coefficient


@dataclass(frozen=True, eq=False)
class Tastes(TableMixin):
    """Distributions of random coefficients over people, with their correlations. The object prints as a table."""

    rows: tuple[Taste, ...]
    draws: Floats  # (D, R) coefficients
    correlations: Floats  # (D, D)

    @classmethod
    def of(cls, names: Sequence[str], distributions: Sequence[str], draws: Floats) -> Tastes:
        """Summarise draws (D, R) of coefficients."""
        rows = []
        for name, distribution, values in zip(names, distributions, draws, strict=True):
            low, median, high = np.quantile(values, _QUANTILES).tolist()
            mean, deviation, share = float(values.mean()), float(values.std()), float((values < 0).mean())
            rows.append(Taste(name, distribution, mean, deviation, low, median, high, share))
        spread = draws.std(axis=1)
        centred = (draws - draws.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1.0)[:, None]
        return cls(tuple(rows), draws, centred @ centred.T / draws.shape[1])

    def __getitem__(self, name: str) -> Taste:
        return self.rows[self.position(name)]

    def position(self, name: str) -> int:
        """Return the index of a coefficient. Raise InputError if it is not random."""
        names = [row.name for row in self.rows]
        if name not in names:
            raise InputError(f"the model has no random coefficient {name!r}." + did_you_mean(name, names))
        return names.index(name)

    def to_arrow(self) -> pa.Table:
        """Return a table with a row per coefficient."""
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
class ConditionalCoefficients:
    """Conditional means and standard deviations of each person's coefficients, given the person's choices."""

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
        return f"ConditionalCoefficients({len(self.persons):,} persons; {', '.join(self.names)})"


# -- Covariances -------------------------------------------------------------------------------------------------------
# The covariances of the coefficients over people, and the correlations cov_ij / sqrt(cov_ii cov_jj), are functions of
# the parameters of the mixing distribution. Their standard errors follow from the delta method. A correlation with a
# coefficient that does not vary is not defined (nan), and the correlation of a coefficient with itself has no error.


@dataclass(frozen=True, eq=False)
class TasteCovariance(TableMixin):
    """Covariances and correlations of random coefficients over people, with standard errors."""

    names: tuple[str, ...]  # (D,)
    values: Floats  # (2, D, D) covariances and correlations
    std_errors: Floats  # (2, D, D)
    errors: Errors  # kind of standard errors

    @property
    def covariances(self) -> Floats:
        """Covariance matrix (D, D) of the coefficients over people."""
        return np.asarray(self.values[0])

    @property
    def correlations(self) -> Floats:
        """Correlation matrix (D, D) of the coefficients over people."""
        return np.asarray(self.values[1])

    def _rows(self) -> list[dict[str, Any]]:
        rows = []
        for i, j in combinations_with_replacement(range(len(self.names)), 2):
            rows.append(
                {
                    "coefficient": self.names[j],
                    "other": self.names[i],
                    "covariance": float(self.values[0, i, j]),
                    "covariance_error": float(self.std_errors[0, i, j]),
                    "correlation": float(self.values[1, i, j]),
                    "correlation_error": float("nan") if i == j else float(self.std_errors[1, i, j]),
                }
            )
        return rows

    def to_arrow(self) -> pa.Table:
        """Return a table with a row for each pair of coefficients; a variance is the pair of a coefficient itself."""
        return pa.Table.from_pylist(self._rows())

    def to_frame(self) -> Any:
        """Return :meth:`to_arrow` as a pandas data frame."""
        return data_frame(self.to_arrow(), instead="to_arrow()")

    def _cells(self) -> Cells:
        heads = ["coefficient", "with", "covariance", "std err", "correlation", "std err"]

        def text(value: float) -> str:
            return "" if value != value else f"{value:.4g}"

        keys = ("covariance", "covariance_error", "correlation", "correlation_error")
        return [heads, *([r["coefficient"], r["other"], *(text(r[key]) for key in keys)] for r in self._rows())]


def covariance_and_correlation(covariance: Floats) -> Floats:  # (D, D) -> (2, D, D)
    """Return a covariance matrix and its correlation matrix, which is nan for coefficients that do not vary."""
    deviations = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    scale = np.where(deviations > 0, deviations, np.nan)
    return np.stack([covariance, covariance / np.outer(scale, scale)])
