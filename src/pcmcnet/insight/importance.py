"""Permutation importance: the increase in loss when a column is shuffled.

A shuffled column keeps its values but loses its relation to the other columns and to the choices. The scheme determines
which values are permuted:

    individual-level column   the values of the choice sets
    feature or label          "within"  the values within each set (the default)
                              "sets"    the values of whole sets, in order, between sets of the same size
                              "rows"    the values of all alternatives, over all sets

The scheme "within" keeps the values of every set, so all shuffled sets are plausible. The scheme "within" permutes
values only among the alternatives of a set, and thus measures how the column affects the choice within the set. A
feature that is constant within sets therefore has importance 0 under "within". The scheme "sets" also measures
differences between sets, but leaves a set unchanged if no other set has the same size. The scheme "rows" mixes the
values of very different sets, such as short and long trips, and thus makes predictions for sets that never occur.

    importance = loss with the column shuffled - loss with the original column

The loss is the weighted mean negative log-likelihood (NLL) or, for models that only return a ranking, the share of
misses, 1 - p(chosen).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.checks import require_number, require_word
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.names import DEFAULT_NAMES, ColumnNames
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
    """Importance of one column or group of columns.

    Attributes
    ----------
    name
        Name of the column or group.
    columns
        The columns that are shuffled.
    value
        Mean increase in loss.
    spread
        Standard deviation of the increase over the permutations.
    low, high
        Limits of the 95% interval from a bootstrap over choice sets (infinite for a single set).
    """

    name: str
    columns: tuple[str, ...]
    value: float
    spread: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Importance(ToDictMixin, TableMixin):
    """Result of :func:`importance`. For example, ``importance["price"]`` is the row of the column "price".

    Attributes
    ----------
    model
        Name of the model class.
    loss
        Loss that was used: "nll" or "misses".
    scheme
        How columns were shuffled: "within", "sets" or "rows".
    base
        Loss with the original columns.
    repeats
        Number of permutations of each column.
    rows
        One row per column or group, in descending order of importance.
    display
        Display names and units of the columns, for printed tables.
    """

    model: str
    loss: Loss
    scheme: Scheme
    base: float
    repeats: int
    rows: tuple[ImportanceRow, ...]
    display: ColumnNames = DEFAULT_NAMES
    _hidden: ClassVar[tuple[str, ...]] = ("display",)

    def __getitem__(self, name: str) -> ImportanceRow:
        """Return the row of a column or group."""
        for row in self.rows:
            if row.name == name:
                return row
        raise InputError(f"unknown column or group {name!r}." + did_you_mean(name, [row.name for row in self.rows]))

    def _frame_rows(self) -> list[dict[str, Any]]:
        names = ("name", "value", "spread", "low", "high")
        return [{name: getattr(row, name) for name in names} for row in self.rows]

    def _cells(self) -> list[list[str]]:
        heads = ["shuffled", f"increase in {'NLL' if self.loss == 'nll' else 'misses'}", "spread", "95% interval"]
        names = self.display
        rows = [
            [names[r.name], f"{r.value:+.4f}", f"{r.spread:.4f}", f"{r.low:+.4f} to {r.high:+.4f}"] for r in self.rows
        ]
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
    """Measure the importance of columns by the increase in loss when they are shuffled.

    Parameters
    ----------
    model
        A fitted model, or an object with the method ``predict_log_proba``.
    data
        Choice data with choices, preferably held out, or a table that matches the model's schema.
    columns
        Columns to shuffle, one at a time: features, individual-level columns or the label column. By default, all
        columns are shuffled unless ``groups`` is passed.
    groups
        Mapping from names to groups of columns that are shuffled together by the same permutation.
    scheme
        How features and labels are shuffled: "within" sets (the default), between "sets" of equal size, or over all
        "rows".
    loss
        "nll", "misses" or "auto" (the default), which means "misses" if the model returns a ranking and "nll"
        otherwise.
    repeats
        Number of permutations of each column (5 by default).
    seed
        Seed for the permutations (0 by default).

    Returns
    -------
    Importance
        Importance of each column or group, in descending order.

    Raises
    ------
    InputError
        If the choices are unknown, a column does not exist, or the loss is "nll" and a choice has probability 0.
    ConfigError
        If an option is invalid.
    """
    require_word("scheme", scheme, get_args(Scheme))
    require_word("loss", loss, get_args(Loss))
    require_number("repeats", repeats, whole=True, low=1)
    require_number("seed", seed, whole=True, low=0, high=2**63 - 1)
    data = require_data(model, data)
    require_sets(data)
    data = data.subset(data.weights > 0)
    resolved_loss: Loss = ("misses" if gives_of(model) == "ranking" else "nll") if loss == "auto" else loss
    columns_by_name = _columns_by_name(data, columns, groups)
    base = _losses(model, data, resolved_loss)
    rows = []
    for index, (name, group) in enumerate(columns_by_name.items()):
        rng = np.random.default_rng([seed, index])
        shuffled = [_losses(model, _shuffled(data, group, scheme, rng), resolved_loss) for _ in range(repeats)]
        rows.append(_row(name, group, np.stack(shuffled) - base, data.weights, rng))
    rows.sort(key=lambda row: -row.value)
    mean = float(np.average(base, weights=data.weights))
    return Importance(type(model).__name__, resolved_loss, scheme, mean, repeats, tuple(rows), data.schema.names)


def _row(
    name: str, columns: tuple[str, ...], increase: Floats, weights: Floats, rng: np.random.Generator
) -> ImportanceRow:
    """Summarise the increases in loss (repeats, S) when one column or group is shuffled."""
    by_repeat = increase @ weights / weights.sum()
    low, high = bootstrap_interval(increase.mean(axis=0), weights, rng=rng).tolist()
    spread = float(by_repeat.std(ddof=1)) if len(by_repeat) > 1 else 0.0
    return ImportanceRow(name, columns, float(by_repeat.mean()), spread, low, high)


def _losses(model: Predictor, data: ChoiceData, loss: Loss) -> Floats:
    """Return the loss of each choice (S,)."""
    log_p: Floats = predicted_log_p(model, data)[data.offsets[:-1] + data.require_chosen("importance")]
    if loss == "misses":
        misses: Floats = 1 - np.exp(log_p)
        return misses
    if np.isneginf(log_p).any():
        raise InputError(
            f"{type(model).__name__} gives probability 0 to {int(np.isneginf(log_p).sum())} choices, so the NLL is "
            f"infinite: use loss='misses'."
        )
    return -log_p


def _columns_by_name(
    data: ChoiceData, columns: Sequence[str] | None, groups: Mapping[str, Sequence[str]] | None
) -> dict[str, tuple[str, ...]]:
    """Return a mapping from names to the columns that are shuffled together."""
    label = [] if data.labels is None or data.schema.alternative is None else [data.schema.alternative]
    names = list(dict.fromkeys([*data.features, *data.individual, *label]))
    if isinstance(columns, str) or any(isinstance(group, str) for group in (groups or {}).values()):
        raise InputError("columns and groups: expected lists of names, such as columns=['price'].")
    if columns is None:
        columns = names if groups is None else []
    selected = {**{name: (name,) for name in columns}, **{name: tuple(group) for name, group in (groups or {}).items()}}
    for name in (name for group in selected.values() for name in group):
        if name not in names:
            raise InputError(f"there is no column {name!r} to shuffle." + did_you_mean(name, names))
    if not selected or not all(selected.values()):
        raise InputError("expected at least one column to shuffle in every group.")
    return selected


def _shuffled(data: ChoiceData, columns: Sequence[str], scheme: Scheme, rng: np.random.Generator) -> ChoiceData:
    """Shuffle features and labels by one permutation, and individual-level columns by another."""
    sets, flat = rng.permutation(len(data)), _permutation(data, scheme, rng)
    changed: dict[str, Any] = {
        "individual": {n: c.take(sets) if n in columns else c for n, c in data.individual.items()},
        "features": {n: c.take(flat) if n in columns else c for n, c in data.features.items()},
    }
    if data.labels is not None and data.schema.alternative in columns:
        changed["labels"] = data.labels.take(flat)
    return replace(data, **changed)


def _permutation(data: ChoiceData, scheme: Scheme, rng: np.random.Generator) -> Ints:  # -> (N,)
    """Return a permutation (N,) of the alternatives."""
    n = len(data.rows)
    if scheme == "rows":
        return rng.permutation(n)
    if scheme == "within":
        return np.lexsort((rng.random(n), data.set_of_alternative))
    partner = np.arange(len(data))
    for size in np.unique(data.sizes):
        same_size = np.flatnonzero(data.sizes == size)
        partner[same_size] = rng.permutation(same_size)
    return consecutive_indices(data.offsets[partner], data.sizes)
