"""Part-worths of levels over people: zero-centred values, importances, and willingness to pay of each person.

The coefficients of a categorical attribute are differences from its reference level. Part-worth tables show the levels
with a mean of 0 instead, as with effects coding: w_l - mean_l w_l, where the reference has w = 0. The importance of an
attribute for a person is the range of its part-worths, relative to the sum of the ranges of all attributes. The range
of a numeric attribute is that of the training table times the size of its coefficient.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pcmcnet.arrays import Floats
from pcmcnet.checks import require_number, suggests_arguments
from pcmcnet.errors import InputError, did_you_mean
from pcmcnet.models import HierarchicalMNL
from pcmcnet.models.logit.design import empty_sets, require_unit
from pcmcnet.models.logit.factor_coding import LevelCode
from pcmcnet.reports.frames import data_frame
from pcmcnet.reports.tables import Cells, TableMixin, percent

log = logging.getLogger("pcmcnet")

UNIT = "per unit"  # in place of a level, for a numeric attribute
_QUANTILES = (0.05, 0.95)  # over people
_TOTAL = 100.0  # mean range of an attribute after rescaling


class LevelWorth(NamedTuple):
    """The part-worths of a level over people, or of one unit of a numeric attribute."""

    attribute: str
    level: str
    mean: float
    deviation: float
    low: float  # quantiles over people: 5% and 95%
    high: float
    importance: float  # mean importance of the attribute


@dataclass(frozen=True, eq=False)
class PartWorthTable(TableMixin):
    """Part-worths of the levels of all attributes, for each person and over people. The object prints as a table.

    Parameters
    ----------
    rows
        Mean, standard deviation and quantiles over people of each level.
    persons
        Ids (N,) of the persons.
    values
        Posterior means (N, rows) of each person.
    attributes
        Names of the A attributes.
    importances
        Importances (N, A) of the attributes for each person, which sum to 1.
    left_out
        Terms of the formula that are no main effects of an attribute.
    """

    rows: tuple[LevelWorth, ...]
    persons: NDArray[Any]
    values: Floats
    attributes: tuple[str, ...]
    importances: Floats
    left_out: tuple[str, ...]

    def by_person(self) -> pa.Table:
        """Return a table with a row per person: a column ``ATTRIBUTE: LEVEL`` for each level."""
        columns = {"person": pa.array(self.persons.tolist())}
        names = [f"{row.attribute}: {row.level}" for row in self.rows]
        return pa.table(columns | {name: pa.array(self.values[:, k]) for k, name in enumerate(names)})

    def importances_by_person(self) -> pa.Table:
        """Return a table with a row per person, and the importance of each attribute."""
        columns = {"person": pa.array(self.persons.tolist())}
        return pa.table(columns | {name: pa.array(self.importances[:, k]) for k, name in enumerate(self.attributes)})

    def to_arrow(self) -> pa.Table:
        """Return a table with a row per level."""
        return pa.table({name: [getattr(row, name) for row in self.rows] for name in LevelWorth._fields})

    def to_frame(self) -> Any:
        """Return :meth:`to_arrow` as a pandas data frame."""
        return data_frame(self.to_arrow(), instead="to_arrow()")

    def _cells(self) -> Cells:
        heads = ["attribute", "level", "mean", "std dev", "5%", "95%", "importance"]
        return [heads, *([*r[:2], *(f"{v:.4g}" for v in r[2:6]), percent(r.importance)] for r in self.rows)]


@suggests_arguments()
def part_worth_table(model: HierarchicalMNL, *, rescaled: bool = False) -> PartWorthTable:
    """Return zero-centred part-worths of all levels, and importances of the attributes, over people.

    Parameters
    ----------
    model
        A fitted hierarchical logit.
    rescaled
        Whether to rescale the part-worths of each person so that the mean range of an attribute is 100, which makes
        people with different scales of utility comparable. Default False.

    Returns
    -------
    PartWorthTable
        Mean, standard deviation and quantiles over people by level, with ``by_person()`` and
        ``importances_by_person()``. Interactions and transformed columns are left out.

    Raises
    ------
    InputError
        If the model is not a hierarchical logit, or has no main effects.
    """
    worths = _require_hierarchical(model).part_worths()
    means, index = worths.means, {name: k for k, name in enumerate(worths.names)}
    design, ranges = model.design_, model.table_.description.get("columns", {})
    # 1. The terms of the formula that are one column without a transformation, and the columns of the design.
    no_rows = empty_sets(model.schema, design.codes)
    columns: dict[Any, list[str]] = {}
    for name, term in zip(design.columns, design.column_terms(no_rows), strict=True):
        columns.setdefault(term, []).append(name)
    blocks: list[tuple[str, list[str], Floats, Floats]] = []  # attribute, levels, values (N, L), ranges (N,)
    left_out = []
    for term, names in columns.items():
        values = np.column_stack([means[:, index[n]] if n in index else np.zeros(len(means)) for n in names])
        if term is None and design.labels is not None:
            blocks.append(_levels("alternative", list(design.labels.names), values))
            continue
        factor = term.factors[0] if term is not None and len(term.factors) == 1 else None
        simple = factor is not None and factor.function is None and not term.labels and term in design.terms.generic
        if factor is None or not simple:
            left_out.append(str(term))
            continue
        code = design.codes[factor.column]
        if isinstance(code, LevelCode) and len(code.names) == values.shape[1] + 1:
            blocks.append(_levels(factor.column, list(code.names), values))
        elif not isinstance(code, LevelCode) and values.shape[1] == 1:
            per_unit = values / factor.divisor
            column = ranges.get(factor.column, {})
            width = float(column.get("max", 1.0)) - float(column.get("min", 0.0))
            blocks.append((factor.column, [UNIT], per_unit, np.abs(per_unit[:, 0]) * width))
        else:
            left_out.append(str(term))
    if not blocks:
        raise InputError("the formula has no main effects of attributes: add an attribute as a term of its own.")
    # 2. Importances, and the summary over people.
    widths = np.column_stack([width for *_, width in blocks])
    totals = widths.sum(axis=1, keepdims=True)
    importances = widths / np.where(totals > 0, totals, 1.0)
    factors = _TOTAL * len(blocks) / np.where(totals > 0, totals, 1.0) if rescaled else np.ones_like(totals)
    values = np.column_stack([v for _, _, v, _ in blocks]) * factors
    places = [(a, attribute, level) for a, (attribute, levels, _, _) in enumerate(blocks) for level in levels]
    rows = []
    for k, (a, attribute, level) in enumerate(places):
        low, high = np.quantile(values[:, k], _QUANTILES).tolist()
        summary = float(values[:, k].mean()), float(values[:, k].std()), low, high
        rows.append(LevelWorth(attribute, level, *summary, float(importances[:, a].mean())))
    attributes = tuple(attribute for attribute, *_ in blocks)
    return PartWorthTable(tuple(rows), worths.persons, values, attributes, importances, tuple(left_out))


def _levels(attribute: str, levels: list[str], values: Floats) -> tuple[str, list[str], Floats, Floats]:
    """Return zero-centred part-worths, where the first level is the reference, and their ranges."""
    worths = np.column_stack([np.zeros(len(values)), values])
    return attribute, levels, worths - worths.mean(axis=1, keepdims=True), np.ptp(worths, axis=1)


@dataclass(frozen=True, eq=False)
class PersonWillingness:
    """Willingness to pay of each person: medians and intervals of the posterior distribution."""

    persons: NDArray[Any]  # (N,)
    names: tuple[str, ...]
    medians: Floats  # (N, names)
    low: Floats  # (N, names)
    high: Floats  # (N, names)

    def to_arrow(self) -> pa.Table:
        """Return a table with a row per person: ``wtp[NAME]``, ``low[NAME]`` and ``high[NAME]`` by name."""
        columns = {"person": pa.array(self.persons.tolist())}
        for k, name in enumerate(self.names):
            columns |= {f"wtp[{name}]": pa.array(self.medians[:, k])}
            columns |= {f"low[{name}]": pa.array(self.low[:, k]), f"high[{name}]": pa.array(self.high[:, k])}
        return pa.table(columns)

    def to_frame(self) -> Any:
        """Return :meth:`to_arrow` as a pandas data frame, indexed by person."""
        return data_frame(self.to_arrow(), index="person", instead="to_arrow()")

    def __repr__(self) -> str:
        return f"PersonWillingness({len(self.persons):,} persons; {', '.join(self.names)})"


@suggests_arguments(call="willingness_to_pay_by_person(model, 'price')")
def willingness_to_pay_by_person(model: HierarchicalMNL, cost: str, level: float = 0.9) -> PersonWillingness:
    """Return the willingness to pay of each person, minus the ratio of a coefficient to the cost coefficient.

    Parameters
    ----------
    model
        A fitted hierarchical logit.
    cost
        Coefficient of the cost, which is a numeric column. Constrain its sign, as in ``signs={"price": "-"}``:
        otherwise, some draws may have a cost coefficient near 0 or above.
    level
        Level of the intervals. Default 0.9.

    Returns
    -------
    PersonWillingness
        Medians and intervals, in the units of the table.

    Raises
    ------
    InputError
        If the model is not a hierarchical logit, or ``cost`` is not a marginal utility of money.
    """
    require_number("level", level, low=0, high=1, open_low=True, open_high=True)
    worths = _require_hierarchical(model).part_worths()
    if cost not in worths.names:
        raise InputError(f"the model has no coefficient {cost!r}." + did_you_mean(cost, worths.names))
    no_rows = empty_sets(model.schema, model.design_.codes)
    unit = require_unit(model.design_, no_rows, cost)
    price = worths.draws[:, worths.names.index(cost)].astype(np.float64) / unit  # (N, R)
    if (share := float((price >= 0).mean())) > 0:
        log.warning(
            "the coefficient of %r is not negative in %s of the draws: fit with signs={%r: '-'}",
            *(cost, percent(share), cost),
        )
    tail = (1 - level) / 2
    names, results = [], []
    for k, name in enumerate(worths.names):
        if name == cost:
            continue
        try:
            own = require_unit(model.design_, no_rows, name, money=False)
        except InputError:  # not the marginal utility of a column, such as a coefficient of log(x)
            continue
        with np.errstate(divide="ignore"):
            ratios = -worths.draws[:, k].astype(np.float64) / own / price
        names.append(name)
        results.append(np.quantile(ratios, [0.5, tail, 1 - tail], axis=1))
    if not names:
        raise InputError(f"the model has no other coefficient than {cost!r} that is a marginal utility.")
    medians, low, high = np.stack(results, axis=2)
    return PersonWillingness(worths.persons, tuple(names), medians, low, high)


def _require_hierarchical(model: Any) -> HierarchicalMNL:
    if not isinstance(model, HierarchicalMNL):
        raise InputError(f"part-worths of each person need a hierarchical logit (hb-mnl), got {type(model).__name__}.")
    model.require_fitted()
    return model
