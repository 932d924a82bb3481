"""Demand from market shares with instruments: the inversion of Berry (1994) for the logit.

Let s_jt be the share of product j in market t, and s_0t the share of the outside option. In a logit with utility

    u_jt = c_j + x_jt'b + a p_jt + xi_jt + e,

where xi_jt is an unobserved quality, the shares can be inverted into mean utilities:

    log s_jt - log s_0t = c_j + x_jt'b + a p_jt + xi_jt.

The equation is linear, and xi_jt is its error. Prices follow the quality, so they are correlated with the error. With
instruments z_jt, the estimates by two-stage least squares are

    b = (X' P X)^-1 X' P y,     P = Z (Z'Z)^-1 Z',

where X = (constants, x, p) and Z = (constants, x, z). The covariance matrix is a sandwich with scores summed by market.

Shapes: n products in all markets, K coefficients, L instruments in Z.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import suggests_arguments
from pcmcnet.data.choice_data import ChoiceData
from pcmcnet.data.columns.arrays import Categorical
from pcmcnet.data.columns.ragged import spread, sum_by_set
from pcmcnet.data.control_function import WEAK_F, require_instruments
from pcmcnet.data.counts import markets
from pcmcnet.errors import InputError, SchemaError, did_you_mean
from pcmcnet.models.logit.standard_errors import FEW_CLUSTERS, z_test
from pcmcnet.reports.formats import Summary, SummaryMixin
from pcmcnet.reports.frames import data_frame
from pcmcnet.reports.tables import number

log = logging.getLogger("pcmcnet")

_MIN_PIVOT = 1e-8  # relative size of the smallest singular value of scaled columns


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BerryEstimates(SummaryMixin):
    """Result of :func:`berry_inversion`, printed as a table.

    Attributes
    ----------
    names
        Names of the K coefficients: constants of the products, features, and the price.
    values
        Estimates by two-stage least squares, (K,).
    covariance
        Covariance matrix of the estimates, clustered by market, (K, K).
    least_squares
        Estimates by ordinary least squares, which treats the price as exogenous, (K,).
    f_statistic
        F statistic of the instruments in the first stage, clustered by market.
    price
        Name of the price.
    products
        Label of each product, (n,).
    market_ids
        Id of the market of each product, (n,).
    shares
        Share of each product in its market, (n,).
    mean_utilities
        log s_jt - log s_0t, (n,).
    residuals
        Unobserved quality xi_jt, (n,).
    own_elasticities
        Own-price elasticity a p_jt (1 - s_jt) of each product, (n,).
    """

    names: tuple[str, ...]
    values: Floats
    covariance: Floats
    least_squares: Floats
    f_statistic: float
    price: str
    products: tuple[str, ...]
    market_ids: tuple[str, ...]
    shares: Floats
    mean_utilities: Floats
    residuals: Floats
    own_elasticities: Floats

    @property
    def coefficients(self) -> dict[str, float]:
        """The estimates by name."""
        return dict(zip(self.names, self.values.tolist(), strict=True))

    @property
    def standard_errors(self) -> dict[str, float]:
        """Standard errors by name."""
        return dict(zip(self.names, np.sqrt(np.diag(self.covariance)).tolist(), strict=True))

    @property
    def n_markets(self) -> int:
        """Number of markets."""
        return len(set(self.market_ids))

    @property
    def caveats(self) -> tuple[str, ...]:
        """Caveats of the estimates."""
        caveats = []
        if self.f_statistic < WEAK_F:
            caveats.append(
                f"the instruments are weak: their F statistic of {self.f_statistic:.1f} is below {WEAK_F:g}, so the "
                f"estimates are biased towards least squares"
            )
        if self.n_markets < FEW_CLUSTERS:
            caveats.append(
                f"clustered standard errors tend to be too small with fewer than about {FEW_CLUSTERS} markets; this "
                f"table has {self.n_markets}"
            )
        if self.coefficients[self.price] > 0:
            caveats.append(f"the coefficient of {self.price} is positive")
        return tuple(caveats)

    def summary(self) -> Summary:
        """Return the table of estimates, next to those of ordinary least squares."""
        rows = []
        for name, value, ols in zip(self.names, self.values.tolist(), self.least_squares.tolist(), strict=True):
            error = self.standard_errors[name]
            z, p = z_test(value, error)
            rows.append((name, number(value), f"{error:.3g}", f"{z:.2f}", f"{p:.3f}", number(ols)))
        facts = {
            "markets": f"{self.n_markets:,}",
            "products": f"{len(self.products):,}",
            "F of the instruments": f"{self.f_statistic:,.1f}",
            "mean own-price elasticity": f"{self.own_elasticities.mean():.3f}",
            "standard errors": "clustered by market",
        }
        header = ("coefficient", "estimate", "std err", "z", "p", "least squares")
        return Summary("Berry inversion", facts, header, tuple(rows), self.caveats)

    def to_frame(self) -> Any:
        """Return a pandas data frame indexed by coefficient, with columns estimate, std_error and least_squares."""
        columns = {
            "coefficient": self.names,
            "estimate": self.values,
            "std_error": self.standard_errors.values(),
            "least_squares": self.least_squares,
        }
        table = pa.table({name: list(values) for name, values in columns.items()})
        return data_frame(table, index="coefficient", instead="coefficients and standard_errors")


@suggests_arguments()
def berry_inversion(
    data: ChoiceData, price: str = "price", *, instruments: Sequence[str], outside: str = "none"
) -> BerryEstimates:
    """Estimate a logit from market shares, with instruments for the price.

    The utility has a constant for each product, all numeric features except the instruments, and the price.

    Parameters
    ----------
    data
        Choice sets of markets, read with ``counts`` and ``alternative``.
    price
        Name of the endogenous feature. Default "price".
    instruments
        Names of numeric features that change the price but not the utility, such as costs.
    outside
        Label of the outside option, such as buying nothing, which is in every market. Default "none".

    Returns
    -------
    BerryEstimates
        Estimates by two-stage least squares with standard errors clustered by market, and elasticities.

    Raises
    ------
    SchemaError
        If the table has no counts or no labels, or if a feature is missing or not numeric.
    InputError
        If there is no instrument, only one market, a market without the outside option, or a share of 0; or if
        coefficients are not identified.

    Examples
    --------
    >>> from pcmcnet.datasets import market
    >>> roles = {"choice_set": "market", "counts": "sales", "alternative": "product"}
    >>> features = ["price", "advertising", "cost"]
    >>> data = ChoiceData.from_long(market.simulate_shares(200, seed=0), **roles, features=features)
    >>> estimates = berry_inversion(data, instruments=["cost"])
    >>> abs(estimates.coefficients["price"] - market.PRICE) < 3 * estimates.standard_errors["price"]
    True
    """
    # 1. Shares, mean utilities and columns of all products.
    instruments = _require_arguments(data, price, instruments, outside)
    firsts, counts = markets(data)
    assert firsts.labels is not None
    if len(firsts) < 2:
        raise InputError("a Berry inversion needs at least two markets, got one: add markets or periods.")
    shares = counts / spread(sum_by_set(counts, firsts.offsets), firsts.offsets)
    labels, market = firsts.labels.plain(), firsts.set_of_alternative
    rows = np.flatnonzero(labels != outside)
    log_outside = _log_outside_shares(firsts, shares, labels == outside, outside)
    if (zero := rows[shares[rows] == 0]).size:
        raise InputError(
            f"market {firsts.set_ids[market[zero[0]]]}: expected a count above 0 for {labels[zero[0]]!r}, got 0, whose "
            f"logarithm is not finite; {zero.size} in all. Drop these rows, or use longer periods."
        )
    y = np.log(shares[rows]) - log_outside[market[rows]]
    names, x, z = _columns(firsts, rows, labels[rows], price, instruments)
    if len(rows) <= len(names):
        raise InputError(
            f"{len(rows)} products in {len(firsts)} markets have at most as many shares as there are coefficients "
            f"({len(names)}), so residuals and standard errors are not defined: add markets, or leave out features."
        )
    _require_rank(x, names, "coefficients are not identified")
    _require_rank(z, [*names[:-1], *instruments], "the other columns determine an instrument")
    # 2. Two-stage least squares, and least squares.
    projected: Floats = z @ np.linalg.lstsq(z, x, rcond=None)[0]
    bread = np.asarray(np.linalg.inv(projected.T @ projected), np.float64)
    values = bread @ (projected.T @ y)
    residuals = y - x @ values
    covariance = _sandwich(bread, projected * residuals[:, None], market[rows])
    estimates = BerryEstimates(
        names=tuple(names),
        values=values,
        covariance=covariance,
        least_squares=np.linalg.lstsq(x, y, rcond=None)[0],
        f_statistic=_first_stage_f(z, x[:, -1], len(instruments), market[rows]),
        price=price,
        products=tuple(labels[rows].tolist()),
        market_ids=tuple(str(firsts.set_ids[t]) for t in market[rows]),
        shares=shares[rows],
        mean_utilities=y,
        residuals=residuals,
        own_elasticities=values[-1] * x[:, -1] * (1 - shares[rows]),
    )
    for caveat in estimates.caveats:
        log.warning("%s", caveat)
    return estimates


def _require_arguments(data: ChoiceData, price: str, instruments: Sequence[str], outside: str) -> tuple[str, ...]:
    """Return the instruments, or raise an error if the arguments do not fit the table."""
    if not isinstance(data, ChoiceData):
        raise InputError(f"data: expected ChoiceData, got {type(data).__name__}: see ChoiceData.from_long.")
    if data.schema.counts is None or data.labels is None:
        raise SchemaError("expected markets with labels: read the table with counts=<column> and alternative=<column>.")
    without = "; if prices are exogenous, fit pn.MNL to the counts"
    names = require_instruments(data, price, instruments, without=without)
    if outside not in data.labels.categories:
        raise InputError(f"outside: {outside!r} is not a label." + did_you_mean(outside, data.labels.categories))
    return names


def _log_outside_shares(data: ChoiceData, shares: Floats, is_outside: Any, outside: str) -> Floats:  # -> (S,)
    """Return the logarithm of the share of the outside option in each market."""
    total = sum_by_set(np.where(is_outside, shares, 0.0), data.offsets)
    without = np.flatnonzero(total == 0)
    if without.size:
        raise InputError(
            f"market {data.set_ids[without[0]]}: expected a count above 0 for the outside option {outside!r}; "
            f"{without.size} in all. Add a row with the number of customers who bought nothing."
        )
    log_shares: Floats = np.log(total)
    return log_shares


def _columns(
    data: ChoiceData, rows: Ints, labels: Any, price: str, instruments: Sequence[str]
) -> tuple[list[str], Floats, Floats]:
    """Return the names of the coefficients, the columns X (n, K) with the price last, and the instruments Z (n, L)."""
    products = sorted(set(labels.tolist()))
    names, columns = [f"constant[{product}]" for product in products], [labels == product for product in products]
    values: dict[str, Floats] = {}
    for name, column in data.features.items():
        if isinstance(column, Categorical):
            raise SchemaError(f"column {name!r} is categorical: a Berry inversion needs numbers. Leave it out.")
        values[name] = np.asarray(column.plain(), np.float64)[rows]
        if not np.isfinite(values[name]).all():
            raise SchemaError(f"column {name!r}: expected complete columns: fill in the missing values.")
    exogenous = [name for name in values if name != price and name not in instruments]
    shared = [*(column.astype(np.float64) for column in columns), *(values[name] for name in exogenous)]
    x = np.column_stack([*shared, values[price]])
    z = np.column_stack([*shared, *(values[name] for name in instruments)])
    return [*names, *exogenous, price], x, z


def _require_rank(columns: Floats, names: Sequence[str], problem: str) -> None:
    """Raise InputError if a column is a combination of the columns before it."""
    scaled = columns / np.maximum(np.linalg.norm(columns, axis=0), np.finfo(float).tiny)
    for k in range(1, len(names) + 1):
        if np.linalg.svd(scaled[:, :k], compute_uv=False)[-1] < _MIN_PIVOT:
            raise InputError(f"{problem}: the columns before it determine {names[k - 1]!r}. Leave it out.")


def _sandwich(bread: Floats, scores: Floats, market: Ints) -> Floats:
    """Return the covariance matrix with scores (n, K) summed by market."""
    sums = np.zeros((int(market.max()) + 1, scores.shape[1]))
    np.add.at(sums, market, scores)
    covariance: Floats = bread @ (sums.T @ sums) @ bread
    return covariance


def _first_stage_f(z: Floats, price: Floats, n_instruments: int, market: Ints) -> float:
    """Return the clustered F statistic of the instruments, the last columns of Z, in a regression of the price."""
    bread = np.asarray(np.linalg.inv(z.T @ z), np.float64)
    coefficients: Floats = bread @ (z.T @ price)
    covariance = _sandwich(bread, z * (price - z @ coefficients)[:, None], market)
    last = slice(len(coefficients) - n_instruments, None)
    excluded = coefficients[last]
    try:
        return float(excluded @ np.linalg.solve(covariance[last, last], excluded)) / n_instruments
    except np.linalg.LinAlgError:
        return np.inf
