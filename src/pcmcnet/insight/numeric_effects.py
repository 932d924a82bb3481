"""What numeric features do to the probabilities, side by side: responses of all, and demand curves of the first three.

Own and cross elasticities are those of ``elasticity``, averaged over all alternatives; a feature with values below 0
gets semi-elasticities, and one whose zero means nothing, such as a clock time, gets none. A demand curve scales the
feature for some alternatives and follows their share: for each of the labels with the largest shares or, in a table
without labels, for the most probable alternative of each set and for one drawn at random.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pcmcnet.arrays import Floats
from pcmcnet.data import ChoiceData
from pcmcnet.data.column_arrays import Numeric
from pcmcnet.data.ragged import spread
from pcmcnet.errors import InputError
from pcmcnet.evaluation.predictions import Predictor, gives_of, predicted_log_p
from pcmcnet.insight.demand import DemandCurve, demand
from pcmcnet.insight.elasticity import ElasticityTable, elasticity
from pcmcnet.insight.scales import no_elasticity
from pcmcnet.reports.notebook import PartOfReport

DRAWN = 3  # columns with demand curves
LABELS = 5  # with a demand curve of their own
_GRID = np.linspace(0.05, 0.95, 11)  # quantiles that a feature with values below 0 is set to


@dataclass(frozen=True, kw_only=True, eq=False)
class NumericEffects(PartOfReport):
    """Responses to each numeric feature, the most important first, and demand curves of the first of them."""

    tables: tuple[ElasticityTable, ...]
    demand: Mapping[str, Mapping[str, DemandCurve]]  # by column, and by whose share it is
    sets: int  # choice sets asked about
    others: tuple[str, ...] = ()  # features that are no numbers, and so have no response of this kind
    left_out: Mapping[str, str] = field(default_factory=dict)  # numbers without an elasticity, and why

    def _short(self) -> str:
        return f"{len(self.tables)} features, demand curves of {', '.join(self.demand) or 'none'}"

    @property
    def column(self) -> str:
        """The most important one."""
        return next(iter(self.demand))

    @property
    def curves(self) -> Mapping[str, DemandCurve]:
        """Demand curves of the most important column, by whose share it is."""
        return self.demand[self.column]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that survive JSON."""
        further = {
            column: {name: curve.to_dict() for name, curve in curves.items()}
            for column, curves in self.demand.items()
            if column != self.column
        }
        return {
            "sets": self.sets,
            "others": list(self.others),
            "left_out": dict(self.left_out),
            "responses": [table.to_dict() for table in self.tables],
            "demand": {name: curve.to_dict() for name, curve in self.curves.items()},
            "further_demand": further,
        }


def numeric_features(data: ChoiceData) -> list[str]:
    """Return the names of numeric features that vary."""
    numeric = {name: column.values for name, column in data.features.items() if isinstance(column, Numeric)}
    return [
        name
        for name, values in numeric.items()
        if np.nanmin(values, initial=np.inf) < np.nanmax(values, initial=-np.inf)
    ]


def numeric_effects(
    model: Predictor, data: ChoiceData, features: Sequence[str] | None, *, seed: int = 0
) -> NumericEffects:
    """Measure the responses to numeric features.

    Parameters
    ----------
    model, data
        A fitted model and the choice sets to ask it about.
    features
        Names, the most important first; None asks for all and sorts them by the size of the own response.
    seed
        Which alternative of each set is drawn, in a table without labels.
    """
    asked = numeric_features(data) if features is None else list(features)
    if not asked:
        raise InputError("the table has no numeric feature that varies.")
    left_out = {name: why for name in asked if (why := no_elasticity(data, name)) is not None}
    asked = [name for name in asked if name not in left_out]
    if not asked:
        raise InputError("; ".join(f"{name} {why}" for name, why in left_out.items()) + ".")
    if gives_of(model) == "ranking":
        raise InputError(f"{type(model).__name__} gives a ranking, whose probabilities are 0 and 1 and have no slope.")
    tables = [_responses(model, data, name) for name in asked]
    if features is None:
        tables.sort(key=lambda table: -abs(table.rows[0].own) * (table.kind == "elasticity"))
    p = np.exp(predicted_log_p(model, data))
    return NumericEffects(
        tables=tuple(tables),
        demand={table.column: _curves(model, data, table.column, p, seed) for table in tables[:DRAWN]},
        sets=len(data),
        others=tuple(name for name, column in data.features.items() if not isinstance(column, Numeric)),
        left_out=left_out,
    )


def _responses(model: Predictor, data: ChoiceData, name: str) -> ElasticityTable:
    column = data.features[name]
    assert isinstance(column, Numeric)
    below = bool((column.values < 0).any())
    return elasticity(model, data, name, kind="semi" if below else "elasticity").table()


def _curves(model: Predictor, data: ChoiceData, name: str, p: Floats, seed: int) -> dict[str, DemandCurve]:
    column = data.features[name]
    assert isinstance(column, Numeric)
    known = column.values[~np.isnan(column.values)].astype(np.float64)
    values = np.unique(np.quantile(known, _GRID)) if (known < 0).any() else None
    return {of: demand(model, data, name, alternative=which, values=values) for of, which in _subjects(data, p, seed)}


def _subjects(data: ChoiceData, p: Floats, seed: int) -> list[tuple[str, Any]]:
    """Return whose value is changed: names, and labels or flat places."""
    if data.labels is not None:
        share = np.bincount(data.labels.codes, p * spread(data.weights, data.offsets), len(data.labels.categories))
        most = np.argsort(-share, kind="stable")[:LABELS]
        return [(data.labels.categories[k], data.labels.categories[k]) for k in most if share[k] > 0]
    order = np.lexsort((-p, data.set_of_alternative))
    drawn = np.random.default_rng(seed).integers(data.offsets[:-1], data.offsets[1:])
    return [("the favourite of each set", order[data.offsets[:-1]]), ("one of each set, at random", drawn)]
