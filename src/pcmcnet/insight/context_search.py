"""Where in a table does context matter: the sets in which one alternative changes the preference between two others.

A case is a set, an alternative taken out of it, and the two others whose log P(i) / P(j) changes most by that; adding
it back changes it by as much the other way. See ``removals`` for how all pairs are looked at in one batch.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pcmcnet.checks import require_number
from pcmcnet.data import ChoiceData
from pcmcnet.errors import InputError
from pcmcnet.evaluation.predictions import Predictor, require_data
from pcmcnet.insight.alternative_names import name_of
from pcmcnet.insight.questions import id_of, require_sampling, some_sets
from pcmcnet.insight.removals import SMALLEST, LogRatios, Removals, ask_removals, sample_removals, share
from pcmcnet.reports.tables import markdown_table, text_table


@dataclass(frozen=True, slots=True)
class Case:
    """A set in which one alternative changes the log-ratio of two others."""

    choice_set: Any  # its id
    removed: str  # alternatives by their names, as name_of makes them
    i: str
    j: str
    places: tuple[int, int, int]  # of removed, i and j
    log_ratio_with: float  # log P(i) / P(j) in the whole set
    log_ratio_without: float
    share_with: float  # P(i) / (P(i) + P(j))
    share_without: float

    @property
    def by_removing(self) -> float:
        """Change of the log-ratio when the alternative leaves."""
        return self.log_ratio_without - self.log_ratio_with

    @property
    def by_adding(self) -> float:
        """Change of the log-ratio when it comes back."""
        return self.log_ratio_with - self.log_ratio_without

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        plain = {**asdict(self), "places": list(self.places)}
        return {**plain, "by_removing": self.by_removing, "by_adding": self.by_adding}


@dataclass(frozen=True, slots=True)
class Search:
    """The strongest cases, the strongest first, and what they were found among. Prints as a table."""

    model: str
    cases: tuple[Case, ...]
    removals: int  # (set, removed) looked at
    pairs: int  # (set, removed, i, j)
    questions: int  # choice sets that the model was asked about
    mean: float  # of |change of the log-ratio| over all pairs
    least: float = 0.01  # probability below which alternatives were left out

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that survive JSON."""
        facts = {name: getattr(self, name) for name in ("model", "removals", "pairs", "questions", "mean", "least")}
        return {**facts, "cases": [case.to_dict() for case in self.cases]}

    def to_markdown(self) -> str:
        """Return table and facts in Markdown."""
        return f"{markdown_table(self._cells())}\n\n{self._facts()}\n"

    def __str__(self) -> str:
        return f"{text_table(self._cells())}\n\n{self._facts()}"

    def _facts(self) -> str:
        return (
            f"{self.pairs:,} pairs, each alternative with a probability of at least {self.least:g}, in "
            f"{self.removals:,} sets with one alternative removed; mean |change of log P(i)/P(j)|: {self.mean:.3g}."
        )

    def _cells(self) -> list[list[str]]:
        heads = ["choice set", "removed", "i", "j", "log P(i)/P(j) with", "without", "by adding", "share of i with"]
        rows = []
        for c in self.cases:
            ratios = (c.log_ratio_with, c.log_ratio_without, c.by_adding)
            words = [str(c.choice_set), c.removed, c.i, c.j]
            rows.append([*words, *(f"{r:+.3f}" for r in ratios), f"{c.share_with:.3f}", f"{c.share_without:.3f}"])
        return [[*heads, "without"], *rows]


def search(
    model: Predictor, data: Any, *, limit: int = 2000, seed: int = 0, top: int = 10, least: float = 0.01
) -> Search:
    """Look for sets in which one alternative changes the preference between two others most.

    Of each set and alternative removed, the pair whose log-ratio changes most is a case; i is the one that gains by
    the removal, and so loses by the alternative's presence.

    Parameters
    ----------
    model, data
        Any fitted model, and choice data or a table that its schema reads.
    limit
        Choice sets to ask about, at most: one for each set drawn, and one for each alternative removed from it. A
        table that needs no more is looked at as a whole.
    seed
        Which sets are drawn where the limit does not allow for all.
    top
        Cases to return.
    least
        Probability in the whole set below which an alternative is left out: the log-ratio of two that nobody chooses
        may change much and mean nothing.

    Returns
    -------
    Search

    Raises
    ------
    InputError
        When no set has three alternatives, or none has two that are probable enough.
    ConfigError
        When a number is out of its range.
    """
    require_sampling(limit=limit, top=top, seed=seed)
    require_number("least", least, low=0, high=1, open_high=True)
    data = require_data(model, data)
    rng = np.random.default_rng(seed)
    drawn = some_sets(data, least=SMALLEST, most=None, rng=rng)
    if not drawn.size:
        raise InputError("no choice set has three alternatives and a weight above 0: there is no third to take out.")
    found = ask_removals(model, data, *sample_removals(data, drawn, limit=limit, rng=rng))
    ratios = found.log_ratios(least)
    if not ratios.cases.size:
        raise InputError(
            f"no case among {found.questions} questions: a set of three alternatives, two of them with probabilities "
            f"of at least {least:g} beside the one removed, is needed, and a limit of at least 4."
        )
    size = found.shift[ratios.up] - found.shift[ratios.down]
    first = np.argsort(-size, kind="stable")[:top]
    return Search(
        model=type(model).__name__,
        cases=tuple(_case(data, found, ratios, k) for k in first.tolist()),
        removals=len(found.removed),
        pairs=int(ratios.pairs.sum()),
        questions=found.questions,
        mean=float(ratios.sums.sum() / ratios.pairs.sum()),
        least=least,
    )


def _case(data: ChoiceData, found: Removals, ratios: LogRatios, k: int) -> Case:
    """Describe the k-th case."""
    i, j = int(ratios.up[k]), int(ratios.down[k])
    places = int(found.removed[ratios.cases[k]]), int(found.places[i]), int(found.places[j])
    removed, first, second = (name_of(data, place) for place in places)
    return Case(
        choice_set=id_of(data, places[0]),
        removed=removed,
        i=first,
        j=second,
        places=places,
        log_ratio_with=float(found.log_with[i] - found.log_with[j]),
        log_ratio_without=float(found.log_without[i] - found.log_without[j]),
        share_with=float(share(found.log_with[i], found.log_with[j])),
        share_without=float(share(found.log_without[i], found.log_without[j])),
    )
