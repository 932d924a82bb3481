"""Choice sets to look at: a typical one, a surprising one and a large one, with all that a model says of them.

    typical     the choice is about as probable as in the median set, and the set not larger than most
    surprising  the choice is the least probable of all, by its -log p; for a ranking, the one furthest down
    uncertain   where choices are unknown: the set nearest to evens, entropy / log n being the largest
    large       the set with the most alternatives, where sets differ in that

Sets of one alternative and of weight 0 are no examples. No set is shown twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.data.column_arrays import Columns
from pcmcnet.data.describe import json_values
from pcmcnet.data.ragged import sum_by_set
from pcmcnet.errors import InputError
from pcmcnet.evaluation import metrics
from pcmcnet.evaluation.predictions import gives_of, predicted_log_p, predicted_scores
from pcmcnet.insight.alternative_names import name_of
from pcmcnet.insight.attribution import Attribution, attribution
from pcmcnet.insight.chain import Chain, chain
from pcmcnet.insight.questions import members
from pcmcnet.models.interface.chain_model import ChainModel
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.reports.notebook import PartOfReport

Kind = Literal["typical", "surprising", "uncertain", "large"]

MOST = 5000  # choice sets among which examples are looked for


@dataclass(frozen=True, kw_only=True, eq=False)
class ExampleSet(PartOfReport):
    """One choice set of n alternatives, in the order of the table."""

    kind: Kind
    choice_set: Any  # its id
    individual: Mapping[str, Any]
    names: tuple[str, ...]  # (n,)
    columns: Mapping[str, tuple[Any, ...]]  # features, (n,) each
    p: Floats  # (n,)
    chosen: int | None  # which of the n
    attribution: Attribution | None = None  # of the choice, or of the most probable; None for a ranking
    chain: Chain | None = None  # of models that have one

    def _short(self) -> str:
        return f"{self.kind}, choice set {self.choice_set}, {len(self.names)} alternatives"

    @property
    def nll(self) -> float | None:
        """-log p of the choice; None where it is unknown or has probability 0."""
        if self.chosen is None or self.p[self.chosen] <= 0:
            return None
        return float(-np.log(self.p[self.chosen]))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that survive JSON."""
        return {
            "kind": self.kind,
            "choice_set": self.choice_set,
            "individual": dict(self.individual),
            "names": list(self.names),
            "columns": {name: list(values) for name, values in self.columns.items()},  # pictures as data URIs
            "p": self.p.tolist(),
            "chosen": self.chosen,
            "nll": self.nll,
            "attribution": None if self.attribution is None else self.attribution.to_dict(),
            "chain": None if self.chain is None else self.chain.to_dict(),
        }


def example_sets(model: ChoiceModel, data: ChoiceData, *, seed: int = 0) -> tuple[ExampleSet, ...]:
    """Choose the examples among up to 5,000 sets of a table, and say what the model makes of them."""
    fit = np.flatnonzero((data.sizes > 1) & (data.weights > 0))
    if not fit.size:
        raise InputError("no choice set has two alternatives and a weight above 0: there is no example to show.")
    some = np.sort(np.random.default_rng(seed).permutation(fit)[:MOST])
    part = data.subset(some)
    return tuple(_example(model, data, kind, int(some[k])) for kind, k in _picked(model, part).items())


def _picked(model: ChoiceModel, data: ChoiceData) -> dict[Kind, int]:
    """Return kind -> position."""
    log_p = predicted_log_p(model, data)
    second: Kind = "surprising"
    if data.chosen is None:
        second, surprise = "uncertain", _entropy(log_p, data)
    elif gives_of(model) == "ranking":
        better, _ = metrics.standing(predicted_scores(model, data), data.offsets, data.chosen, tie=0.0)
        surprise = better / data.sizes
    else:
        surprise = metrics.nll(log_p, data.offsets, data.chosen)
    usual = np.where(data.sizes <= np.median(data.sizes), np.abs(surprise - np.median(surprise)), np.inf)
    wanted: dict[Kind, Floats] = {"typical": -usual, second: surprise}
    if data.sizes.min() < data.sizes.max():
        wanted["large"] = data.sizes.astype(np.float64)
    found: dict[Kind, int] = {}
    for kind, score in wanted.items():
        free = np.array([k for k in range(len(data)) if k not in found.values()], np.int64)
        if free.size:
            found[kind] = int(free[np.argmax(score[free])])
    return found


def _entropy(log_p: Floats, data: ChoiceData) -> Floats:
    """(S,) entropy over its largest possible value."""
    terms = np.exp(log_p) * np.where(np.isneginf(log_p), 0.0, log_p)
    entropy: Floats = -sum_by_set(terms, data.offsets) / np.log(data.sizes)
    return entropy


def _example(model: ChoiceModel, data: ChoiceData, kind: Kind, position: int) -> ExampleSet:
    inside, identity = members(data, position), data.set_ids[position]
    p = np.exp(predicted_log_p(model, data.subset([position])))
    chosen = None if data.chosen is None else int(data.chosen[position])
    subject = int(inside[int(p.argmax()) if chosen is None else chosen])
    named = data.rows[subject] if data.labels is None else data.labels.take(inside).plain()[subject - inside[0]]
    return ExampleSet(
        kind=kind,
        choice_set=identity.item() if isinstance(identity, np.generic) else identity,
        individual={name: values[0] for name, values in plain_values(data.individual, np.array([position])).items()},
        names=tuple(name_of(data, int(place)) for place in inside),
        columns={name: tuple(values) for name, values in plain_values(data.features, inside).items()},
        p=p,
        chosen=chosen,
        attribution=None if gives_of(model) == "ranking" else attribution(model, data, identity, named),
        chain=chain(model, data, identity) if isinstance(model, ChainModel) else None,
    )


def plain_values(columns: Columns, places: Ints) -> dict[str, list[Any]]:
    """Return numbers, names and contents of some rows as JSON has them; None where one is missing."""
    return {name: json_values(column.take(places)) for name, column in columns.items()}
