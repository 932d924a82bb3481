"""Gain and cost of a learnt ridge in Bradley-Terry, on tables simulated from logits.

Strengths are normal, some items are offered more often than others, and every case has several tables. The score is the
Kullback-Leibler divergence of the model from the true probabilities in 500 new sets, offered in the same way.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from benchmarks.harness import Row, Table
from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.ragged import log_softmax_by_set
from pcmcnet.models import BradleyTerry

TABLES = 12
FRESH = 500
COLUMNS = {"case": "", "smoothing alone": ".4f", "learnt": ".4f", "worst loss": "+.4f", "tables with a ridge": ".0f"}


class Case(NamedTuple):
    """A simulated case: items, choice sets, set sizes, standard deviation of the strengths."""

    items: int
    sets: int
    sizes: tuple[int, int]
    spread: float

    def __str__(self) -> str:
        low, high = self.sizes
        size = f"{low}" if low == high else f"{low}-{high}"
        return f"{self.items} items, {self.sets:,} sets of {size}, spread {self.spread:g}"


CASES = [
    Case(6, 200, (2, 6), 1.0),
    Case(6, 3000, (2, 6), 1.0),
    Case(20, 200, (2, 6), 1.5),
    Case(20, 2000, (2, 6), 1.0),
    Case(30, 300, (5, 15), 1.0),
    Case(40, 200, (2, 2), 1.0),
    Case(100, 300, (2, 6), 1.0),
]


def offers(case: Case, often: Floats, sets: int, rng: np.random.Generator) -> list[Ints]:
    """Draw sets of items by their frequency; the first set has all items, so that all are known."""
    low, high = case.sizes
    sizes = rng.integers(low, high + 1, size=sets)
    drawn = [rng.choice(case.items, size=k, replace=False, p=often) for k in sizes]
    return [np.arange(case.items), *drawn]


def table(sets: list[Ints], strengths: Floats, rng: np.random.Generator) -> ChoiceData:
    """Draw choices from the logit."""
    items = np.concatenate(sets)
    best = [np.arange(len(s)) == np.argmax(strengths[s] + rng.gumbel(size=len(s))) for s in sets]
    rows = {
        "set": np.repeat(np.arange(len(sets)), [len(s) for s in sets]),
        "item": [f"{k:03d}" for k in items],
        "chosen": np.concatenate(best).astype(int),
    }
    return ChoiceData.from_long(rows, choice_set="set", chosen="chosen", alternative="item")


def divergences(case: Case, seed: int) -> tuple[float, float, bool]:
    """Return the divergences of smoothing alone and of a learnt ridge, and True if the ridge is used."""
    rng = np.random.default_rng(seed)
    strengths, often = case.spread * rng.standard_normal(case.items), rng.dirichlet(np.full(case.items, 2.0))
    train = table(offers(case, often, case.sets, rng), strengths, rng)
    fresh_sets = offers(case, often, FRESH, rng)[1:]
    fresh, items = table(fresh_sets, strengths, rng), np.concatenate(fresh_sets)
    truth = log_softmax_by_set(strengths[items], fresh.offsets)
    models = [BradleyTerry(ridge=0).fit(train), BradleyTerry().fit(train)]
    plain, learnt = (float(np.exp(truth) @ (truth - m.predict_log_proba(fresh))) / FRESH for m in models)
    return plain, learnt, models[1].record_.penalty.penalty > 0


def main() -> list[Row]:
    """Print a row for each case."""
    table = Table("divergence of Bradley-Terry from the true probabilities", COLUMNS, first=42)
    for case in CASES:
        plain, learnt, ridge = np.array([divergences(case, seed) for seed in range(TABLES)], float).T
        row = {"smoothing alone": plain.mean(), "learnt": learnt.mean(), "worst loss": (learnt - plain).max()}
        table.add({"case": str(case), **row, "tables with a ridge": ridge.sum()})
    return table.rows


if __name__ == "__main__":
    main()
