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

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.ragged import spread
from pcmcnet.errors import InputError
from pcmcnet.evaluation.predictions import Predictor, gives_of, predicted_log_p, require_data, require_sets
from pcmcnet.insight.elasticity import Method, slopes
from pcmcnet.insight.queries import segments, weighted_quantiles
from pcmcnet.models.ensemble import Ensemble, prediction_interval
from pcmcnet.models.logit.logit_effects import own_responses
from pcmcnet.reports.formats import ToDictMixin
from pcmcnet.reports.tables import TableMixin, number

# -- Trade offs --------------------------------------------------------------------------------------------------------
# What makes up for what: marginal rates of substitution between numeric features, for any model.
#
# One unit more of x changes the log-probability of alternative i by d log p_i / d x_i. The change of another feature r
# that makes up for it is
#
#     trade_i = -(d log p_i / d x_i) / (d log p_i / d r_i)
#
# in units of r: with minutes for x and a price for r, -0.8 says that an alternative that takes a minute longer keeps
# its probability if it is 0.8 cheaper. In a multinomial logit it is the same everywhere; elsewhere it has a
# distribution, in which an alternative counts w_S p_i. Of an ensemble the median of every member is asked for, and the
# interval is where the median of one more member would lie with probability 0.9.

LEVEL = 0.9
MAX_TRADE_OFFS = 4  # features that are expressed in the reference
TRADE_OFF_SETS = 60  # choice sets that a report asks about
_FLAT = 1e-9  # of the largest: a reference that changes the probability less makes up for nothing
_MONEY = ("EUR", "USD", "GBP", "CHF", "JPY", "CNY", "CAD", "AUD", "SEK", "NOK", "DKK", "PLN", "INR", "€", "$", "£", "¥")


@dataclass(frozen=True, slots=True)
class TradeOff:
    """What one unit more of a feature is made up for by, in units of the reference."""

    column: str
    median: float
    low: float  # quartiles over alternatives
    high: float
    odd: float  # share of the weight where the two features make up for each other in the other direction
    ends: tuple[float, float] | None  # interval of the median, of an ensemble


@dataclass(frozen=True, slots=True)
class TradeOffs(ToDictMixin, TableMixin):
    """Features in units of one of them. Prints as a table."""

    reference: str
    rows: tuple[TradeOff, ...]
    sets: int
    members: int = 0  # of an ensemble

    def _cells(self) -> list[list[str]]:
        heads = ["one more of", f"is made up for by {self.reference}", "quartiles", f"{LEVEL:.0%} interval"]
        rows = []
        for r in self.rows:
            ends = "-" if r.ends is None else f"{number(r.ends[0])} to {number(r.ends[1])}"
            rows.append([r.column, f"{r.median:+.4g}", f"{number(r.low)} to {number(r.high)}", ends])
        return [heads, *rows]


def trade_offs(model: Predictor, data: Any, columns: Sequence[str], reference: str) -> TradeOffs:
    """Return what makes up for one unit more of each feature, in units of another.

    Parameters
    ----------
    model, data
        A fitted model, or an object with the method ``predict_log_proba``; choice data, or a table that the model's
        schema reads. An :class:`~pcmcnet.models.ensemble.Ensemble` gives intervals.
    columns, reference
        Numeric features: what there is more of, and what makes up for it.

    Raises
    ------
    InputError
        When a column is no numeric feature, or no probability depends on the reference.

    Examples
    --------
    >>> from pcmcnet.models import MNL
    >>> rng = np.random.default_rng(0)
    >>> table = {"trip": np.repeat(np.arange(50), 2), "cost": rng.random(100), "time": rng.random(100)}
    >>> table["took"] = (table["cost"] + 2 * table["time"]).reshape(50, 2).argmin(1)[:, None] == np.arange(2)
    >>> table["took"] = (table["took"] ^ (rng.random((50, 1)) < 0.2)).ravel().astype(int)
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["cost", "time"])
    >>> model = MNL().fit(data)
    >>> time, cost = (float(model.summary().rows[k][1]) for k in (1, 0))
    >>> bool(np.isclose(trade_offs(model, data, ["time"], "cost").rows[0].median, -time / cost, rtol=1e-3))
    True
    """
    data = require_data(model, data)
    require_sets(data)
    if gives_of(model) == "ranking":
        raise InputError(f"{type(model).__name__} gives a ranking, whose probabilities are 0 and 1 and have no slope.")
    _require_features(data, *columns, reference)
    whole = _quantiles(model, data, columns, reference)  # (C, 4)
    ends: list[tuple[float, float] | None] = [None] * len(columns)
    members = model.members_ if isinstance(model, Ensemble) else []
    if len(members) > 1:
        medians = np.stack([_quantiles(member, data, columns, reference)[:, 1] for member in members])
        low, high = prediction_interval(medians, LEVEL)
        ends = [(float(a), float(b)) for a, b in zip(low, high, strict=True)]
    rows = [
        TradeOff(name, median, low, high, odd, pair)
        for name, (low, median, high, odd), pair in zip(columns, whole.tolist(), ends, strict=True)
    ]
    return TradeOffs(reference, tuple(rows), len(data), len(members))


def _require_features(data: ChoiceData, *names: str) -> None:
    for name in names:
        if name in data.individual:
            raise InputError(f"{name!r} belongs to the individual: expected a feature, which alternatives differ in.")


def _quantiles(model: Predictor, data: ChoiceData, columns: Sequence[str], reference: str) -> Floats:
    """Return first quartile, median and third quartile of each column's trade-off, and the share of the other sign."""
    below = own_responses(slopes(model, data, reference), data.offsets)
    weights: Floats = spread(data.weights, data.offsets) * np.exp(predicted_log_p(model, data))
    there = (np.abs(below) > _FLAT * np.abs(below).max(initial=0)) & (weights > 0)
    if not there.any():
        raise InputError(f"no probability depends on {reference!r}, so that it makes up for nothing.")
    found = []
    for name in columns:
        above = own_responses(slopes(model, data, name), data.offsets)
        trade, mass = -above[there] / below[there], weights[there]
        low, median, high = weighted_quantiles(trade, mass, [0.25, 0.5, 0.75]).tolist()
        odd = float(mass[np.sign(trade) == -np.sign(median)].sum() / mass.sum())
        found.append([low, median, high, odd])
    return np.array(found)


def choose_reference(data: ChoiceData, features: Sequence[str]) -> str | None:
    """Choose what others are expressed in: the first feature in units of money, or else the first of all."""
    money = [name for name in features if data.schema.names.unit(name) in _MONEY]
    return next(iter([*money, *features]), None)


def main_trade_offs(model: Predictor, data: ChoiceData, features: Sequence[str], *, seed: int = 0) -> TradeOffs:
    """Express up to four features, given the most important first, in units of one of them."""
    reference = choose_reference(data, features)
    others = [name for name in features if name != reference][:MAX_TRADE_OFFS]
    if reference is None or not others:
        raise InputError("the table has fewer than two numeric features that can make up for each other.")
    some = np.sort(np.random.default_rng(seed).permutation(len(data))[:TRADE_OFF_SETS])
    return trade_offs(model, data.subset(some), others, reference)


# -- Willingness to pay ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WillingnessToPayRow:
    """The distribution over the alternatives of one segment."""

    segment: str
    median: float
    low: float  # quartiles
    high: float
    odd: float  # share of the weight where a higher price makes the alternative more probable
    left_out: float  # share of the weight without a ratio, for the price has no effect; such as sets of one


@dataclass(frozen=True, eq=False)
class WillingnessToPay(TableMixin):
    """Ratios of all alternatives, and their distribution by segment. Prints as a table."""

    column: str
    price: str
    ratios: Floats  # (N,) 0 where there is none
    weights: Floats  # (N,) 0 where there is no ratio
    rows: tuple[WillingnessToPayRow, ...]

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
        A fitted model, or another with ``predict_log_proba``; choice data, or a table that the model's schema reads.
    column, price
        Numeric features: what is paid for, and in what.
    by
        Segments of alternatives or of sets: see :meth:`pcmcnet.insight.elasticity.Responses.table`.
    method, step
        How derivatives are found: see :func:`pcmcnet.insight.elasticity.slopes`.

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
    _require_features(data, column, price)
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


def _row(
    name: str, ratios: Floats, weights: Floats, there: NDArray[np.bool_], attracts: NDArray[np.bool_]
) -> WillingnessToPayRow:
    low, median, high = weighted_quantiles(ratios[there], weights[there], [0.25, 0.5, 0.75]).tolist()
    counted = weights[there].sum()
    odd = float(weights[there & attracts].sum() / counted)
    return WillingnessToPayRow(name, median, low, high, odd, float(1 - counted / weights.sum()))
