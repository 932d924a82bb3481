"""What one more unit of a feature is worth in units of price, at every alternative, for any model.

Where utilities are known this is -(dU / dx) / (dU / dprice). From probabilities alone, the log-odds of an alternative
take the place of its utility:

    WTP_i = -(d logit p_i / d x_i) / (d logit p_i / d price_i) = -(d log p_i / d x_i) / (d log p_i / d price_i),

as d logit p = d log p / (1 - p). In a multinomial logit it is the ratio of the coefficients, the same at every
alternative, and ``MNL.willingness_to_pay`` gives it with its standard error; elsewhere it has a distribution. An
alternative of set S counts w_S p_i, so that each set counts w_S. What attracts is worth more than 0, as a price repels;
a minute, which repels, is worth less, and minus this is the value of time.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pcmcnet.arrays import Floats
from pcmcnet.data.ragged import spread
from pcmcnet.errors import InputError
from pcmcnet.evaluation.predictions import Predictor, predicted_log_p, require_data, require_sets
from pcmcnet.insight.segments import segments, weighted_quantiles
from pcmcnet.insight.slopes import Method, slopes
from pcmcnet.models.interface.responses import own_responses
from pcmcnet.reports.tables import PrintsAsTable

_FLAT = 1e-9  # of the largest: a price that changes the probability less has no ratio that means anything


@dataclass(frozen=True, slots=True)
class WorthRow:
    """The distribution over the alternatives of one segment."""

    segment: str
    median: float
    low: float  # quartiles
    high: float
    odd: float  # share of the weight where a higher price makes the alternative more probable
    left_out: float  # share of the weight without a ratio, for the price has no effect; such as sets of one


@dataclass(frozen=True, eq=False)
class WillingnessToPay(PrintsAsTable):
    """Ratios of all alternatives, and their distribution by segment. Prints as a table."""

    column: str
    price: str
    ratios: Floats  # (N,) 0 where there is none
    weights: Floats  # (N,) 0 where there is no ratio
    rows: tuple[WorthRow, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the table as plain values that survive JSON."""
        return {"column": self.column, "price": self.price, "rows": [asdict(row) for row in self.rows]}

    def _cells(self) -> list[list[str]]:
        heads = [f"{self.column} in {self.price}", "quartile", "median", "quartile", "price attracts", "left out"]
        rows = [
            [r.segment, *(f"{v:.4g}" for v in (r.low, r.median, r.high)), f"{r.odd:.1%}", f"{r.left_out:.1%}"]
            for r in self.rows
        ]
        return [heads, *rows]


def willingness_to_pay(
    model: Predictor,
    data: Any,
    column: str,
    price: str,
    *,
    by: str | ArrayLike | None = None,
    method: Method = "auto",
    step: float | None = None,
) -> WillingnessToPay:
    """Return what one more unit of a numeric feature is worth in units of another, locally, and its quartiles.

    It is more than 0 for what attracts, where the price repels. To be spared a unit is worth minus this.

    Parameters
    ----------
    model, data
        A fitted model, or an object with the method ``predict_log_proba``; choice data, or a table that the model's
        schema reads.
    column, price
        Numeric features: what is paid for, and in what.
    by
        Segments of alternatives or of sets: see :meth:`pcmcnet.insight.elasticity.Responses.table`.
    method, step
        How derivatives are found: see :func:`pcmcnet.insight.slopes.slopes`.

    Returns
    -------
    WillingnessToPay

    Raises
    ------
    InputError
        When a column is no numeric feature, or no probability depends on the price.

    Examples
    --------
    >>> from pcmcnet.data import ChoiceData
    >>> from pcmcnet.models import MNL
    >>> rng = np.random.default_rng(0)
    >>> table = {"trip": np.repeat(np.arange(50), 2), "cost": rng.random(100), "time": rng.random(100)}
    >>> table["took"] = np.tile([1, 0], 50)
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["cost", "time"])
    >>> model = MNL().fit(data)
    >>> worth = willingness_to_pay(model, data, "time", "cost").rows[0].median
    >>> bool(np.isclose(worth, model.willingness_to_pay("time", "cost").value))
    True
    """
    data = require_data(model, data)
    require_sets(data)
    for name in (column, price):
        if name in data.individual:
            raise InputError(f"{name!r} belongs to the individual: expected a feature, which alternatives differ in.")
    top, bottom = (
        own_responses(slopes(model, data, name, method=method, step=step), data.offsets) for name in (column, price)
    )
    weights: Floats = spread(data.weights, data.offsets) * np.exp(predicted_log_p(model, data))
    there = np.abs(bottom) > _FLAT * np.abs(bottom).max(initial=0)
    if not (weights * there).any():
        raise InputError(f"no probability depends on {price!r}, so that nothing can be expressed in its units.")
    ratios = np.divide(-top, bottom, out=np.zeros_like(top), where=there)
    groups = segments(data, by)
    rows = []
    for k, name in enumerate(groups.names):
        inside = groups.codes == k
        if (weights * there)[inside].any():
            rows.append(_row(name, ratios[inside], weights[inside], there[inside], bottom[inside] > 0))
    return WillingnessToPay(column, price, ratios, weights * there, tuple(rows))


def _row(name: str, ratios: Floats, weights: Floats, there: NDArray[np.bool_], attracts: NDArray[np.bool_]) -> WorthRow:
    low, median, high = weighted_quantiles(ratios[there], weights[there], [0.25, 0.5, 0.75]).tolist()
    counted = weights[there].sum()
    odd = float(weights[there & attracts].sum() / counted)
    return WorthRow(name, median, low, high, odd, float(1 - counted / weights.sum()))
