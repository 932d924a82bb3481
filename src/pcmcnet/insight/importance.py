"""Permutation importance: how much worse the known choices are predicted when a column is shuffled.

A shuffled column keeps its values and loses its link with all others and with the choices. What is exchanged:

    of the individual   the values of different choice sets, whole for whole
    of alternatives     "within"  the values of the alternatives of a set among each other (the default)
                        "sets"    the values of whole sets, in their order, with those of another set of equal size
                        "rows"    any alternative's value with any other's, over all sets

"within" leaves every set with the very values it had, so no set appears that could not have been; what it breaks is
which alternative has which value, and that is what a choice is about. It cannot see what a column says about a set as a
whole: a feature that is constant within sets has importance 0. "sets" can, but sets of a size that occurs once stay
as they are. "rows" mixes sets of different levels, short trips with long ones, and so asks about sets that never occur.

    importance = loss with the column shuffled - loss as it is

The loss is the weighted mean negative log-likelihood or, for models that rank alone, the share of misses 1 - p(chosen).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number, require_word
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.ragged import consecutive_indices
from pcmcnet.errors import InputError, did_you_mean
from pcmcnet.evaluation.bootstrap import bootstrap_interval
from pcmcnet.evaluation.predictions import Predictor, gives_of, predicted_log_p, require_data, require_sets
from pcmcnet.reports.formats import ToDictMixin
from pcmcnet.reports.tables import TableMixin

Scheme = Literal["within", "sets", "rows"]
Loss = Literal["auto", "nll", "misses"]


@dataclass(frozen=True, slots=True)
class ImportanceRow:
    """One column, or group of columns."""

    name: str
    columns: tuple[str, ...]
    value: float  # mean increase of the loss
    spread: float  # standard deviation over the repeats
    low: float  # 95 % interval by the bootstrap over choice sets; infinite for a single set
    high: float


@dataclass(frozen=True, slots=True)
class Importance(ToDictMixin, TableMixin):
    """Columns, the most important first. Prints as a table."""

    model: str
    loss: Loss
    scheme: Scheme
    base: float  # the loss as it is
    repeats: int
    rows: tuple[ImportanceRow, ...]

    def __getitem__(self, name: str) -> ImportanceRow:
        for row in self.rows:
            if row.name == name:
                return row
        raise InputError(f"no importance of {name!r}." + did_you_mean(name, [row.name for row in self.rows]))

    def _cells(self) -> list[list[str]]:
        heads = ["shuffled", f"increase of {'NLL' if self.loss == 'nll' else 'misses'}", "spread", "95 % interval"]
        rows = [[r.name, f"{r.value:+.4f}", f"{r.spread:.4f}", f"{r.low:+.4f} to {r.high:+.4f}"] for r in self.rows]
        return [heads, *rows]


def importance(
    model: Predictor,
    data: Any,
    columns: Sequence[str] | None = None,
    *,
    groups: Mapping[str, Sequence[str]] | None = None,
    scheme: Scheme = "within",
    loss: Loss = "auto",
    repeats: int = 5,
    seed: int = 0,
) -> Importance:
    """Measure how much worse a model predicts known choices without the information of a column.

    Parameters
    ----------
    model, data
        A fitted model, or an object with the method ``predict_log_proba``; choice data with choices, best of a part
        that the model was not fitted to.
    columns
        Features, columns of the individual, and the column of labels; all of them where neither these nor groups
        are given.
    groups
        Name -> columns that are shuffled together, by the same permutation.
    scheme
        What is exchanged for a column of alternatives: "within" sets, between "sets" of equal size, or any "rows".
    loss
        "nll", "misses", or "auto" for the first where the model gives more than a ranking.
    repeats
        Permutations of each column.
    seed
        Where they come from.

    Raises
    ------
    InputError
        When choices are unknown, there is no such column, or a choice has probability 0 and so no likelihood.
    """
    require_word("scheme", scheme, get_args(Scheme))
    require_word("loss", loss, get_args(Loss))
    require_number("repeats", repeats, whole=True, low=1)
    require_number("seed", seed, whole=True, low=0, high=2**63 - 1)
    data = require_data(model, data)
    require_sets(data)
    data = data.subset(data.weights > 0)
    which: Loss = ("misses" if gives_of(model) == "ranking" else "nll") if loss == "auto" else loss
    asked = _columns_by_name(data, columns, groups)
    base = _losses(model, data, which)
    rows = []
    for at, (name, members) in enumerate(asked.items()):
        rng = np.random.default_rng([seed, at])
        shuffled = [_losses(model, _shuffled(data, members, scheme, rng), which) for _ in range(repeats)]
        rows.append(_row(name, members, np.stack(shuffled) - base, data.weights, rng))
    rows.sort(key=lambda row: -row.value)
    return Importance(
        type(model).__name__, which, scheme, float(np.average(base, weights=data.weights)), repeats, tuple(rows)
    )


def _row(
    name: str, members: tuple[str, ...], worse: Floats, weights: Floats, rng: np.random.Generator
) -> ImportanceRow:
    """Sum up increases of the loss (repeats, S)."""
    by_repeat = worse @ weights / weights.sum()
    low, high = bootstrap_interval(worse.mean(axis=0), weights, rng=rng).tolist()
    spread = float(by_repeat.std(ddof=1)) if len(by_repeat) > 1 else 0.0
    return ImportanceRow(name, members, float(by_repeat.mean()), spread, low, high)


def _losses(model: Predictor, data: ChoiceData, loss: Loss) -> Floats:
    """(S,) loss of each choice."""
    log_p: Floats = predicted_log_p(model, data)[data.offsets[:-1] + data.require_chosen("importance")]
    if loss == "misses":
        misses: Floats = 1 - np.exp(log_p)
        return misses
    if np.isneginf(log_p).any():
        raise InputError(
            f"{type(model).__name__} gives probability 0 to {int(np.isneginf(log_p).sum())} choices, whose likelihood "
            f"cannot be compared: ask with loss='misses'."
        )
    return -log_p


def _columns_by_name(
    data: ChoiceData, columns: Sequence[str] | None, groups: Mapping[str, Sequence[str]] | None
) -> dict[str, tuple[str, ...]]:
    """Name -> columns to shuffle together."""
    label = [] if data.labels is None or data.schema.alternative is None else [data.schema.alternative]
    known = list(dict.fromkeys([*data.features, *data.individual, *label]))
    if isinstance(columns, str) or any(isinstance(group, str) for group in (groups or {}).values()):
        raise InputError("columns and groups: expected lists of names, such as columns=['price'].")
    if columns is None:
        columns = known if groups is None else []
    asked = {**{name: (name,) for name in columns}, **{name: tuple(group) for name, group in (groups or {}).items()}}
    for name in (name for group in asked.values() for name in group):
        if name not in known:
            raise InputError(f"no column {name!r} to shuffle." + did_you_mean(name, known))
    if not asked or not all(asked.values()):
        raise InputError("expected at least one column to shuffle, in every group.")
    return asked


def _shuffled(data: ChoiceData, members: Sequence[str], scheme: Scheme, rng: np.random.Generator) -> ChoiceData:
    """Shuffle columns together: those of alternatives by one permutation, those of individuals by another."""
    sets, flat = rng.permutation(len(data)), _permutation(data, scheme, rng)
    new: dict[str, Any] = {
        "individual": {n: c.take(sets) if n in members else c for n, c in data.individual.items()},
        "features": {n: c.take(flat) if n in members else c for n, c in data.features.items()},
    }
    if data.labels is not None and data.schema.alternative in members:
        new["labels"] = data.labels.take(flat)
    return replace(data, **new)


def _permutation(data: ChoiceData, scheme: Scheme, rng: np.random.Generator) -> Ints:  # -> (N,)
    n = len(data.rows)
    if scheme == "rows":
        return rng.permutation(n)
    if scheme == "within":
        return np.lexsort((rng.random(n), data.set_of_alternative))
    partner = np.arange(len(data))
    for size in np.unique(data.sizes):
        alike = np.flatnonzero(data.sizes == size)
        partner[alike] = rng.permutation(alike)
    return consecutive_indices(data.offsets[partner], data.sizes)
