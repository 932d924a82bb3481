"""Estimates -> one row per coefficient: estimate, standard error, z, p and the ends of an interval.

The interval of level q is estimate -+ Phi^-1((1 + q) / 2) standard errors. A coefficient that is fixed or has come to a
bound has no error, so that all else is nan for it; nor has a constant that was moved to known shares after the fit. One
that the data push to infinity has an infinite error.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import pyarrow as pa

from pcmcnet.checks import require_number
from pcmcnet.models.logits.estimation.standard_errors import Errors, Estimates, z_test
from pcmcnet.reports.data_frames import data_frame

NAN = float("nan")


class EstimateRow(NamedTuple):
    """One coefficient; z and p test it against its null value, which is 1 for a log-sum and 0 otherwise."""

    name: str
    estimate: float
    std_error: float
    z: float
    p: float
    lower: float
    upper: float
    state: str  # "", "fixed", "at its bound", "calibrated" or "no finite estimate"


def estimate_rows(
    estimates: Estimates, errors: Errors, level: float = 0.95, calibrated: Collection[str] = ()
) -> list[EstimateRow]:
    """Return the rows, in the order of the coefficients; ``calibrated`` ones are no estimates, and have no errors."""
    from scipy.special import ndtri

    require_number("level", level, low=0, high=1, open_low=True, open_high=True)
    wide, spread = float(ndtri((1 + level) / 2)), estimates.standard_errors(errors)
    states = dict.fromkeys(estimates.unbounded, "no finite estimate")
    states |= dict.fromkeys(estimates.fixed, "fixed") | dict.fromkeys(estimates.at_bound, "at its bound")
    states |= dict.fromkeys(calibrated, "calibrated")
    spread |= dict.fromkeys(calibrated, NAN)
    rows = []
    for name, value, null in zip(estimates.names, estimates.values.tolist(), estimates.null.tolist(), strict=True):
        error, state = spread[name], states.get(name, "")
        known = error == error
        z, p = z_test(value - null, error) if known else (NAN, NAN)
        rows.append(EstimateRow(name, value, error, z, p, value - wide * error, value + wide * error, state))
    return rows


def interval_ends(lower: float, upper: float) -> tuple[str, str]:
    """Write the ends of an interval; nothing where there is none."""
    return ("", "") if lower != lower else (f"{lower:.4g}", f"{upper:.4g}")


def estimate_frame(estimates: Estimates, errors: Errors, level: float = 0.95, calibrated: Collection[str] = ()) -> Any:
    """Return the rows as a pandas data frame, indexed by name."""
    rows = estimate_rows(estimates, errors, level, calibrated)
    columns = {field: [getattr(row, field) for row in rows] for field in EstimateRow._fields}
    return data_frame(pa.table(columns), index="name", asked="estimates", instead="coefficients and standard_errors()")
