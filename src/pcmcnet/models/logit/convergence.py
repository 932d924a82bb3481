"""Convergence of a maximum-likelihood fit: gradient, curvature and correlations of the estimates at its end.

Let g be the gradient of the objective (the weighted log-likelihood, plus the log of the prior if there is one) and H
the Hessian of the log-likelihood, for the parameters that are not fixed, not at a bound and have a finite estimate, in
units that change a utility by about 1. At a maximum, |g| is near 0 and -H has positive eigenvalues. A step of length 1
along the eigenvector of the eigenvalue e reduces the log-likelihood by e / 2, so a likelihood ratio test does not
reject it if e < 3.84. If several parameters with large loadings on this eigenvector are not significant, and their
estimates are highly correlated, the data hardly identify them. A single parameter with a large standard error is merely
not significant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pcmcnet.arrays import Floats
from pcmcnet.models.logit.parameter_bounds import listed
from pcmcnet.reports.frames import data_frame
from pcmcnet.reports.tables import Cells, TableMixin, number

_QUANTILE = 1.96  # 97.5% quantile of the normal distribution
_SMALL_EIGENVALUE = _QUANTILE**2
_FLAT_EIGENVALUE = 1e-8  # eigenvalue, relative to the largest, that is rounding error
_ROUNDING_ERROR = 1e-6  # gradient norm below which digits differ between machines
_HIGH_CORRELATION = (
    0.8  # correlation of two estimates above which a change in one parameter can offset one in the other
)
_LOADING = 0.3  # loading on an eigenvector, relative to the largest, of the parameters that are named


@dataclass(frozen=True)
class ConvergenceRecord:
    """Measures of convergence of a fit."""

    gradient: float  # norm
    smallest_eigenvalue: float  # of minus the Hessian, for a mean weight of 1
    relative_eigenvalue: float  # the smallest eigenvalue, relative to the largest
    weakest: tuple[str, ...]  # parameters with large loadings on the eigenvector of the smallest eigenvalue
    hardly_identified: tuple[str, ...] = ()  # those that are not significant, if the data hardly identify them
    correlation: float = 0.0  # largest correlation of two estimates; 0 for a single estimate
    correlated: tuple[str, ...] = ()  # the two estimates

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any]) -> ConvergenceRecord:
        """Build the record from a dictionary read from JSON."""
        return cls(
            gradient=float(entries["gradient"]),
            smallest_eigenvalue=float(entries["smallest_eigenvalue"]),
            relative_eigenvalue=float(entries["relative_eigenvalue"]),
            weakest=tuple(map(str, entries["weakest"])),
            hardly_identified=tuple(map(str, entries["hardly_identified"])),
            correlation=float(entries["correlation"]),
            correlated=tuple(map(str, entries["correlated"])),
        )

    def __str__(self) -> str:
        gradient = f"< {_ROUNDING_ERROR:.0e}" if self.gradient < _ROUNDING_ERROR else f"{self.gradient:.1e}"
        text = f"gradient {gradient}, smallest eigenvalue {number(self.smallest_eigenvalue)}"
        if self.correlated:
            text += f", largest correlation {self.correlation:.2f} ({' and '.join(self.correlated)})"
        return text


def measure_convergence(
    names: Sequence[str],
    gradient: Floats,
    information: Floats,
    covariance: Floats,
    distance: Floats,
    scale: Floats,
) -> ConvergenceRecord | None:
    """Return the measures of convergence, or None if no parameter is free.

    Parameters
    ----------
    names
        Names of the P free parameters.
    gradient, information
        Gradient (P,) of the objective, and minus the Hessian (P, P) of the log-likelihood.
    covariance
        Classical covariance matrix (P, P) of the estimates.
    distance
        Estimates (P,) minus their values under the null hypothesis.
    scale
        Change (P,) of each parameter that changes a utility by about 1.
    """
    if not len(names):
        return None
    # 1. The smallest eigenvalue, and the parameters that it concerns.
    values, vectors = np.linalg.eigh(information * np.outer(scale, scale))
    largest = max(float(np.abs(values).max()), 1e-300)
    loadings = np.abs(vectors[:, 0])
    weakest = [k for k in np.argsort(-loadings, kind="stable") if loadings[k] > _LOADING * loadings.max()]
    # 2. The largest correlation of two estimates.
    deviations = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    correlations = np.clip(covariance / np.outer(deviations, deviations), -1, 1)
    i, j = divmod(int(np.abs(np.tril(correlations, -1)).argmax()), len(names))
    # 3. Parameters that are hardly identified: along the eigenvector, not significant, and highly correlated.
    is_small = values[0] < _SMALL_EIGENVALUE or values[0] < _FLAT_EIGENVALUE * largest
    uncertain = [k for k in weakest if np.abs(distance[k]) < _QUANTILE * deviations[k]]
    is_correlated = np.abs(np.tril(correlations[np.ix_(uncertain, uncertain)], -1)).max(initial=0.0) > _HIGH_CORRELATION
    return ConvergenceRecord(
        gradient=float(np.linalg.norm(gradient * scale)),
        smallest_eigenvalue=float(values[0]),
        relative_eigenvalue=float(values[0]) / largest,
        weakest=tuple(names[k] for k in weakest),
        hardly_identified=tuple(names[k] for k in uncertain) if is_small and is_correlated else (),
        correlation=float(correlations[i, j]) if len(names) > 1 else 0.0,
        correlated=(names[j], names[i]) if len(names) > 1 else (),
    )


@dataclass(frozen=True)
class ConvergenceReport(TableMixin):
    """Report on the convergence of a fit, which prints as a table."""

    record: ConvergenceRecord
    log_likelihood: float
    steps: int
    seconds: float | None
    starts: str | None

    def _rows(self) -> list[tuple[str, str]]:
        record = self.record
        rows = [
            ("log-likelihood", f"{self.log_likelihood:.3f}"),
            ("gradient norm", f"{record.gradient:.2e}"),
            ("smallest eigenvalue of the Hessian", f"{number(record.smallest_eigenvalue)}"),
            ("... relative to the largest", f"{record.relative_eigenvalue:.2e}"),
            ("parameters of this eigenvalue", ", ".join(record.weakest)),
        ]
        if record.correlated:
            pair = " and ".join(record.correlated)
            rows.append(("largest correlation of estimates", f"{record.correlation:.3f}: {pair}"))
        rows.append(("iterations", f"{self.steps:,}"))
        if self.seconds is not None:
            rows.append(("seconds", f"{self.seconds:.2f}"))
        if self.starts is not None:
            rows.append(("starts", self.starts))
        rows.append(("identification", weakness(record) or "no sign of a problem"))
        return rows

    def _cells(self) -> Cells:
        return [["measure", "value"], *map(list, self._rows())]

    def to_arrow(self) -> pa.Table:
        """Return a table with one row and a column for each measure."""
        record = self.record
        row = {
            "log_likelihood": self.log_likelihood,
            "gradient": record.gradient,
            "smallest_eigenvalue": record.smallest_eigenvalue,
            "relative_eigenvalue": record.relative_eigenvalue,
            "weakest": ", ".join(record.weakest),
            "correlation": record.correlation,
            "correlated": ", ".join(record.correlated),
            "steps": self.steps,
            "seconds": self.seconds,
            "starts": self.starts,
        }
        return pa.table({name: [value] for name, value in row.items()})

    def to_frame(self) -> Any:
        """Return :meth:`to_arrow` as a pandas data frame."""
        return data_frame(self.to_arrow(), instead="to_arrow()")


def weakness(record: ConvergenceRecord) -> str:
    """Return a sentence about parameters that are hardly identified, or an empty text."""
    if not record.hardly_identified:
        return ""
    return (
        f"the data hardly identify {listed(record.hardly_identified)}: the smallest eigenvalue of "
        f"the Hessian is {number(record.smallest_eigenvalue)}, and their estimates are highly correlated. "
        f"Fix one of them, leave one out, or use more data"
    )
