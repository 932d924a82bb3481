"""Willingness to pay (WTP): the value of one more unit of a feature, in units of price, for any model.

With utilities U, willingness to pay is -(dU / dx) / (dU / dprice). For models that only return probabilities, the
log-odds of an alternative replace its utility:

    WTP_i = -(d logit p_i / d x_i) / (d logit p_i / d price_i) = -(d log p_i / d x_i) / (d log p_i / d price_i).

The two ratios are equal because d logit p = d log p / (1 - p). In a multinomial logit, willingness to pay is the ratio
of the two coefficients, which is the same for every alternative, and ``MNL.willingness_to_pay`` returns it with a
standard error. In other models, willingness to pay varies between alternatives. In averages, alternative i of set S has
the weight w_S p_i, so the weights within S sum to w_S. Willingness to pay is positive for desirable features and
negative for travel time, for which the absolute value is called the value of time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pcmcnet.arrays import Floats
from pcmcnet.checks import suggests_arguments
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.names import DEFAULT_NAMES, ColumnNames, is_money
from pcmcnet.data.columns.ragged import spread
from pcmcnet.errors import InputError
from pcmcnet.evaluation.predictions import Predictor, gives_of, predicted_log_p, require_data, require_sets
from pcmcnet.insight.elasticity import Method, slopes
from pcmcnet.insight.queries import segments, sign_caveats, weighted_quantiles
from pcmcnet.models.ensemble import Ensemble, prediction_interval
from pcmcnet.models.interface.sign_check import is_price
from pcmcnet.models.logit.logit_effects import own_responses
from pcmcnet.reports.formats import ToDictMixin
from pcmcnet.reports.tables import TableMixin, number

# -- Trade-offs --------------------------------------------------------------------------------------------------------
# Trade-offs: marginal rates of substitution between numeric features, for any model.
#
# One more unit of x changes the log-probability of alternative i by d log p_i / d x_i. The change in another feature r
# that compensates for it is
#
#     trade_i = -(d log p_i / d x_i) / (d log p_i / d r_i)
#
# in units of r. With minutes for x and a price for r, a trade-off of -0.8 means that an alternative that takes a minute
# longer keeps its probability if it is 0.8 cheaper. In a multinomial logit the trade-off is the same everywhere; in
# other models it has a distribution, in which an alternative has the weight w_S p_i. For an ensemble the median of
# every member is computed; the interval contains the median of one more member with probability 0.9.

LEVEL = 0.9
MAX_TRADE_OFFS = 4  # features that a report expresses in units of the reference
TRADE_OFF_SETS = 60  # choice sets that a report predicts
_MIN_RELATIVE_SLOPE = 1e-9  # relative to the largest slope; a smaller one counts as no effect


@dataclass(frozen=True, slots=True)
class TradeOff:
    """The change in the reference feature that compensates for one more unit of a feature.

    Attributes
    ----------
    column
        The feature.
    median
        Weighted median over alternatives, in units of the reference feature.
    low, high
        Lower and upper quartile over alternatives.
    odd
        Weighted share of alternatives whose trade-off has the opposite sign to the median.
    ends
        Interval for the median if the model is an ensemble, otherwise None.
    """

    column: str
    median: float
    low: float
    high: float
    odd: float
    ends: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class TradeOffs(ToDictMixin, TableMixin):
    """Result of :func:`trade_offs`. ``print(result)`` shows a table.

    Attributes
    ----------
    reference
        Reference feature, in whose units the trade-offs are expressed.
    rows
        One row per feature.
    sets
        Number of choice sets.
    members
        Number of members of the ensemble, or 0 for other models.
    display
        Display names and units of the columns, for printed tables.
    """

    reference: str
    rows: tuple[TradeOff, ...]
    sets: int
    members: int = 0
    display: ColumnNames = DEFAULT_NAMES
    _hidden: ClassVar[tuple[str, ...]] = ("display",)

    def _frame_rows(self) -> list[dict[str, Any]]:
        rows = []
        for row in self.rows:
            values = {name: value for name, value in asdict(row).items() if name != "ends"}
            low, high = row.ends or (None, None)
            rows.append({"reference": self.reference, **values, "interval_low": low, "interval_high": high})
        return rows

    def _cells(self) -> list[list[str]]:
        names = self.display
        heads = [
            "one more unit of",
            f"is offset by {names.label(self.reference)}",
            "quartiles",
            f"{LEVEL:.0%} interval",
        ]
        rows = []
        for r in self.rows:
            ends = "-" if r.ends is None else f"{number(r.ends[0])} to {number(r.ends[1])}"
            rows.append([names.label(r.column), f"{r.median:+.4g}", f"{number(r.low)} to {number(r.high)}", ends])
        return [heads, *rows]


def trade_offs(model: Predictor, data: Any, columns: Sequence[str], reference: str) -> TradeOffs:
    """Compute the change in one feature that compensates for one more unit of each other feature.

    Parameters
    ----------
    model
        A fitted model, or an object with the method ``predict_log_proba``. With an
        :class:`~pcmcnet.models.ensemble.Ensemble`, intervals are also computed.
    data
        Choice data, or a table that matches the model's schema.
    columns
        Numeric features, each of which is increased by one unit.
    reference
        Numeric feature that compensates for the increase.

    Returns
    -------
    TradeOffs
        One row per feature, in units of the reference feature.

    Raises
    ------
    InputError
        If a column is not a numeric feature, no probability depends on the reference, or the model returns a ranking.

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
        raise InputError(f"{type(model).__name__} returns a ranking: its probabilities are 0 or 1 and have no slopes.")
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
    return TradeOffs(reference, tuple(rows), len(data), len(members), data.schema.names)


def _require_features(data: ChoiceData, *names: str) -> None:
    """Raise InputError if one of the columns is an individual-level column."""
    for name in names:
        if name in data.individual:
            raise InputError(f"{name!r} is an individual-level column: expected a feature of the alternatives.")


def _quantiles(model: Predictor, data: ChoiceData, columns: Sequence[str], reference: str) -> Floats:
    """Return the quartiles of each trade-off and the share with the opposite sign to the median, as (columns, 4)."""
    reference_slope = own_responses(slopes(model, data, reference), data.offsets)
    weights: Floats = spread(data.weights, data.offsets) * np.exp(predicted_log_p(model, data))
    valid = (np.abs(reference_slope) > _MIN_RELATIVE_SLOPE * np.abs(reference_slope).max(initial=0)) & (weights > 0)
    if not valid.any():
        raise InputError(f"no probability depends on {reference!r}, so it cannot be the reference of a trade-off.")
    quantiles = []
    for name in columns:
        slope = own_responses(slopes(model, data, name), data.offsets)
        trade, mass = -slope[valid] / reference_slope[valid], weights[valid]
        low, median, high = weighted_quantiles(trade, mass, [0.25, 0.5, 0.75]).tolist()
        odd = float(mass[np.sign(trade) == -np.sign(median)].sum() / mass.sum())
        quantiles.append([low, median, high, odd])
    return np.array(quantiles)


def choose_reference(data: ChoiceData, features: Sequence[str]) -> str | None:
    """Return the reference feature: the first feature that looks like a price or, if there is none, the first one."""
    return next(iter([*prices(data, features), *features]), None)


def prices(data: ChoiceData, features: Sequence[str]) -> list[str]:
    """Return the features in units of money, followed by other features with the name of a price."""
    money = [name for name in features if is_money(data.schema.names.unit(name))]
    return money + [name for name in features if name not in money and is_price(data.schema, name)]


def main_trade_offs(model: Predictor, data: ChoiceData, features: Sequence[str], *, seed: int = 0) -> TradeOffs:
    """Compute the trade-offs of up to four features, given in descending order of importance."""
    reference = choose_reference(data, features)
    columns = [name for name in features if name != reference][:MAX_TRADE_OFFS]
    if reference is None or not columns:
        raise InputError("a trade-off needs at least two numeric features.")
    sample = np.sort(np.random.default_rng(seed).permutation(len(data))[:TRADE_OFF_SETS])
    return trade_offs(model, data.subset(sample), columns, reference)


# -- Willingness to pay ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WillingnessToPayRow:
    """Willingness to pay over the alternatives of one segment.

    Attributes
    ----------
    segment
        Name of the segment.
    median
        Weighted median of willingness to pay, in units of price.
    low, high
        Lower and upper quartile of willingness to pay.
    odd
        Weighted share of alternatives whose probability rises with the price.
    left_out
        Weighted share of alternatives left out because the price has no effect, for example in sets with one
        alternative.
    """

    segment: str
    median: float
    low: float
    high: float
    odd: float
    left_out: float


@dataclass(frozen=True, eq=False)
class WillingnessToPay(TableMixin):
    """Result of :func:`willingness_to_pay`: ratios of all alternatives, and their quartiles by segment.

    Attributes
    ----------
    column
        The feature whose value is measured.
    price
        The feature that serves as the price.
    ratios
        Willingness to pay (N,) for each alternative, or 0 if the price has no effect.
    weights
        Weight (N,) of each ratio, or 0 if the price has no effect.
    rows
        One row per segment.
    display
        Display names and units of the columns, for printed tables.
    caveats
        A sentence for each of the two columns that has an effect against its expected sign, or none because of it.
    """

    column: str
    price: str
    ratios: Floats
    weights: Floats
    rows: tuple[WillingnessToPayRow, ...]
    display: ColumnNames = DEFAULT_NAMES
    caveats: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the table as JSON-compatible values."""
        rows = [asdict(row) for row in self.rows]
        return {"column": self.column, "price": self.price, "rows": rows, "caveats": list(self.caveats)}

    def _frame_rows(self) -> list[dict[str, Any]]:
        return [{"column": self.column, "price": self.price, **asdict(row)} for row in self.rows]

    def _caveats(self) -> tuple[str, ...]:
        return self.caveats

    def _cells(self) -> list[list[str]]:
        value = f"{self.display.label(self.column)} in {self.display.label(self.price)}"
        heads = [value, "quartile", "median", "quartile", "price attracts", "left out"]
        rows = [
            [r.segment, *(f"{v:.4g}" for v in (r.low, r.median, r.high)), f"{r.odd:.1%}", f"{r.left_out:.1%}"]
            for r in self.rows
        ]
        return [heads, *rows]


@suggests_arguments(call="willingness_to_pay(model, data, 'time', 'price')")
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
    """Compute the value of one more unit of a numeric feature, in units of price, for every alternative.

    Willingness to pay is positive for desirable features and negative for travel time, for which the absolute value is
    called the value of time.

    Parameters
    ----------
    model
        A fitted model, or an object with the method ``predict_log_proba``.
    data
        Choice data, or a table that matches the model's schema.
    column
        Numeric feature whose value is measured.
    price
        Numeric feature that serves as the price.
    by
        Definition of the segments: a column, or a value for each set or alternative, as in
        :meth:`pcmcnet.insight.elasticity.Responses.table`. By default, all alternatives form one segment.
    method
        "derivatives" for the model's own derivatives, "differences" for central differences, or "auto" (the default)
        for derivatives if the model has them and does not use bins of the columns, and differences otherwise.
    step
        Relative step for the differences. The default is 0.001, or 0.1 for models that return scores or rankings.

    Returns
    -------
    WillingnessToPay
        Median and quartiles by segment, and the ratio of every alternative.

    Raises
    ------
    InputError
        If a column is not a numeric feature, or no probability depends on the price.
    ConfigError
        If ``method`` or ``step`` is invalid.

    Examples
    --------
    >>> from pcmcnet.data import ChoiceData
    >>> from pcmcnet.models import MNL
    >>> rng = np.random.default_rng(0)
    >>> table = {"trip": np.repeat(np.arange(50), 2), "cost": rng.random(100), "time": rng.random(100)}
    >>> table["took"] = np.tile([1, 0], 50)
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["cost", "time"])
    >>> model = MNL().fit(data)
    >>> median = willingness_to_pay(model, data, "time", "cost").rows[0].median
    >>> bool(np.isclose(median, model.willingness_to_pay("time", "cost").value))
    True
    """
    data = require_data(model, data)
    require_sets(data)
    _require_features(data, column, price)
    top, bottom = (
        own_responses(slopes(model, data, name, method=method, step=step), data.offsets) for name in (column, price)
    )
    weights: Floats = spread(data.weights, data.offsets) * np.exp(predicted_log_p(model, data))
    valid = np.abs(bottom) > _MIN_RELATIVE_SLOPE * np.abs(bottom).max(initial=0)
    if not (weights * valid).any():
        raise InputError(f"no probability depends on {price!r}, so willingness to pay is not defined.")
    ratios = np.divide(-top, bottom, out=np.zeros_like(top), where=valid)
    groups = segments(data, by)
    rows = []
    for k, name in enumerate(groups.names):
        inside = groups.codes == k
        if (weights * valid)[inside].any():
            rows.append(_row(name, ratios[inside], weights[inside], valid[inside], bottom[inside] > 0))
    names, caveats = data.schema.names, sign_caveats(model, column, price)
    return WillingnessToPay(column, price, ratios, weights * valid, tuple(rows), names, caveats)


def _row(
    name: str, ratios: Floats, weights: Floats, valid: NDArray[np.bool_], attracts: NDArray[np.bool_]
) -> WillingnessToPayRow:
    """Return the quartiles of willingness to pay in one segment."""
    low, median, high = weighted_quantiles(ratios[valid], weights[valid], [0.25, 0.5, 0.75]).tolist()
    counted = weights[valid].sum()
    odd = float(weights[valid & attracts].sum() / counted)
    return WillingnessToPayRow(name, median, low, high, odd, float(1 - counted / weights.sum()))
