"""What taking one alternative out of a set does to the others: the cases that both search and audit look at.

For a set S, an alternative r taken out of it and every other i:

    shift_i = log P(i | S - r) - log P(i | S),        change of log P(i) / P(j) = shift_i - shift_j,

so that the pair whose log-ratio changes most is that of the largest and the smallest shift, and the mean over all m
(m - 1) / 2 pairs follows from the sorted shifts: 2 sum_k (2 k - m + 1) shift_(k) / (m (m - 1)), k from 0. A logit has
the same shift, -log(1 - P(r | S)), for all. An alternative with probability 0 in either set has no shift.
Shapes: C cases (set, r); M = sum over cases of the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.data.describe import has_varying_offers
from pcmcnet.errors import InputError
from pcmcnet.evaluation.predictions import Predictor, require_data
from pcmcnet.insight.queries import (
    alternative_name,
    place_of,
    places_in_set,
    plain_repr,
    position_of,
    predict_sets,
    set_id_of,
    set_of,
)
from pcmcnet.models.interface.choice_model import ChoiceModel
from pcmcnet.reports.formats import ToDictMixin
from pcmcnet.reports.tables import TableMixin

# -- Availability ------------------------------------------------------------------------------------------------------
# Whether a model has ever seen an alternative missing: else what it says of removals is extrapolation.
#
# In a table whose sets all offer the same alternatives, how people choose without one of them was never observed. What
# a model says of it follows from its form alone: proportional shares in a logit, whatever the rates say in a chain.

_CONSTANT_OFFER = {
    True: "offer the same alternatives",
    False: "have the same number of alternatives",
}  # with labels, and without


def extrapolation_warning(model: Any, data: ChoiceData) -> str | None:
    """Say that removals are extrapolation; None where the training table has sets without some alternative.

    Of a model that does not tell what it was trained on, the table at hand decides.
    """
    seen = model.table_.description.get("offers_differ") if isinstance(model, ChoiceModel) else None
    if has_varying_offers(data) if seen is None else seen:
        return None
    return (
        f"All choice sets of the training table {_CONSTANT_OFFER[data.labels is not None]}. How people choose when one is "
        f"missing was never observed: what is said of removals is extrapolation, by the form of the model."
    )


# -- Removals ----------------------------------------------------------------------------------------------------------

MIN_ALTERNATIVES = 3  # alternatives of a set, so that two are left to be compared


@dataclass(frozen=True, eq=False)
class Removals:
    """Cases and their answers."""

    position: Ints  # (C,) of the set
    removed: Ints  # (C,) place of the alternative taken out
    offsets: Ints  # (C + 1,) where each case begins in what follows
    places: Ints  # (M,) of the others
    log_with: Floats  # (M,) log P(i | S)
    log_without: Floats  # (M,) log P(i | S - r)
    questions: int  # choice sets that were asked about

    @property
    def case(self) -> Ints:
        """(M,) the case that each entry belongs to."""
        return np.repeat(np.arange(len(self.removed)), np.diff(self.offsets))

    @cached_property
    def shift(self) -> Floats:
        """(M,) change of log P by the removal; NaN where one of the two is 0."""
        there = np.isfinite(self.log_with) & np.isfinite(self.log_without)
        shift: Floats = np.full(len(there), np.nan)
        shift[there] = self.log_without[there] - self.log_with[there]
        return shift

    def log_ratios(self, least: float = 0.0) -> LogRatios:
        """Compare the others of each case in pairs, leaving out those less probable than ``least`` in the whole set."""
        kept = np.flatnonzero(~np.isnan(self.shift) & (self.log_with >= (np.log(least) if least > 0 else -np.inf)))
        case = self.case[kept]
        order = kept[np.lexsort((self.shift[kept], case))]  # case after case, each sorted by its shift
        m = np.bincount(case, minlength=len(self.removed))
        ends = np.cumsum(m)
        k = np.arange(len(order)) - np.repeat(ends - m, m)
        terms = (2 * k - np.repeat(m, m) + 1) * self.shift[order]
        sums: Floats = np.bincount(np.repeat(np.arange(len(m)), m), terms, minlength=len(m)).astype(np.float64)
        several = np.flatnonzero(m >= 2)
        down, up = order[(ends - m)[several]], order[ends[several] - 1]
        pairs, size = m * (m - 1) // 2, np.diff(self.offsets)
        return LogRatios(several, up, down, sums, pairs, int((size * (size - 1) // 2 - pairs).sum()))


class LogRatios(NamedTuple):
    """Changes of log-ratios by case; K cases have a pair."""

    cases: Ints  # (K,)
    up: Ints  # (K,) entry, among M, of the alternative whose log P rises most
    down: Ints  # (K,) entry of the one whose log P rises least, or falls most
    sums: Floats  # (C,) sum over pairs of |change|
    pairs: Ints  # (C,)
    left_out: int  # pairs with an alternative of probability 0, or one less probable than asked for


def sample_removals(data: ChoiceData, sets: Ints, *, limit: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Return cases: all removals of sets in the order given, until ``limit`` questions are used up; (C,) and (C,).

    A set costs one question for itself and one for each removal. The last one may have only some, drawn at random.
    """
    drawn = sets[data.sizes[sets] >= MIN_ALTERNATIVES]
    cost = np.cumsum(data.sizes[drawn] + 1)
    used = int(np.searchsorted(cost, limit, side="right"))  # sets that fit as a whole
    left = limit - (int(cost[used - 1]) if used else 0)
    parts = [places_in_set(data, s) for s in drawn[:used]]
    if used < len(drawn) and left >= 2:
        parts.append(np.sort(rng.permutation(places_in_set(data, drawn[used]))[: left - 1]))
    removed = np.concatenate(parts) if parts else np.empty(0, np.int64)
    return np.repeat(drawn[: len(parts)], [len(part) for part in parts]), removed


def predict_removals(model: Predictor, data: ChoiceData, position: Ints, removed: Ints) -> Removals:
    """Ask about every set once, and about it without each of the alternatives to be taken out, in one batch."""
    whole, at = np.unique(position, return_inverse=True)
    inside = [places_in_set(data, s) for s in whole]
    others = [inside[k][inside[k] != r] for k, r in zip(at, removed, strict=True)]
    log_p = predict_sets(model, data, [*inside, *others], np.concatenate([whole, position]))
    places = np.concatenate(others) if others else np.empty(0, np.int64)
    sizes = np.array([len(part) for part in others], np.int64)
    begins = np.cumsum(data.sizes[whole]) - data.sizes[whole]  # of each whole set among the answers
    with_r = np.repeat(begins[at] - data.offsets[position], sizes) + places
    log_without = log_p[len(log_p) - len(places) :]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return Removals(position, removed, offsets, places, log_p[with_r], log_without, len(whole) + len(removed))


def share(log_i: NDArray[np.float64], log_j: NDArray[np.float64]) -> Floats:
    """P(i) / (P(i) + P(j)) from log-probabilities, exact where both are tiny."""
    with np.errstate(over="ignore"):
        found: Floats = 1 / (1 + np.exp(log_j - log_i))
    return found


# -- Attribution -------------------------------------------------------------------------------------------------------
# Attribution of one choice to its rivals: what each does to the probability of the alternative chosen.
#
# Each rival r is left out of the set in turn:
#
#     push_r   = log p_i(S) - log p_i(S - r)     below 0: r takes from i; above 0: i is chosen more often beside r
#     share_r  = log(1 - p_r(S))                 the push of a rival that takes from all in proportion, as in a logit
#     beyond_r = push_r - share_r                what the model sees in the company of r: 0 in every logit
#
# and the same in probabilities. All sets go to the model in one batch. Probabilities below 1e-12 count as that, so that
# logs are finite.

MIN_PROBABILITY = 1e-12


@dataclass(frozen=True, eq=False)
class Attribution(ToDictMixin, TableMixin):
    """What R rivals do to one alternative, the strongest push beyond a logit's first. Prints as a table."""

    choice_set: Any  # its id
    alternative: str
    p: float  # in the whole set
    rivals: tuple[str, ...]
    places: NDArray[np.int64]  # (R,) of the rivals, in the flat columns of the table
    rival_p: Floats  # (R,) in the whole set
    without: Floats  # (R,) probability of the alternative without the rival
    push: Floats  # (R,)
    beyond: Floats  # (R,)
    _derived = ("change", "change_beyond")

    @property
    def change(self) -> Floats:
        """(R,) what the rival's presence adds to the probability, mostly below 0."""
        return self.p - self.without

    @property
    def change_beyond(self) -> Floats:
        """(R,) the same, beyond what a rival takes from all in proportion."""
        return self.p / np.maximum(1 - self.rival_p, MIN_PROBABILITY) - self.without

    def _cells(self) -> list[list[str]]:
        heads = [f"{self.alternative}: {self.p:.4f}", "p of rival", "p without it", "push", "beyond a logit's"]
        figures = zip(self.rivals, self.rival_p, self.without, self.push, self.beyond, strict=True)
        return [heads, *([n, f"{r:.4f}", f"{w:.4f}", f"{push:+.4f}", f"{b:+.4f}"] for n, r, w, push, b in figures)]


def attribution(model: Predictor, data: Any, choice_set: Any, alternative: Any = None) -> Attribution:
    """Leave each rival out of a set in turn, and see what becomes of one alternative.

    Parameters
    ----------
    model, data
        A fitted model, or another with ``predict_log_proba``; choice data, or a table that the model's schema reads.
    choice_set
        The id of the set.
    alternative
        Label of the alternative; in a table without labels its row, or its number in the set as in "#2". The one chosen
        if None.

    Raises
    ------
    InputError
        When there is no such set or alternative, the choice is unknown, or there is no rival.

    Examples
    --------
    >>> from pcmcnet.models import MNL
    >>> table = {"trip": [1, 1, 1, 2, 2, 2], "took": [1, 0, 0, 0, 1, 0], "cost": [2, 4, 3, 5, 3, 2]}
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["cost"])
    >>> found = attribution(MNL().fit(data), data, 1)
    >>> found.alternative, found.rivals
    ('#1 (cost 2)', ('#2 (cost 4)', '#3 (cost 3)'))
    >>> bool(np.abs(found.beyond).max() < 1e-12)
    True
    """
    data = require_data(model, data)
    i = place_of(data, choice_set, alternative) if alternative is not None else _chosen(data, choice_set)
    position = int(set_of(data, i))
    inside = places_in_set(data, position)
    rivals = inside[inside != i]
    if not rivals.size:
        raise InputError(
            f"choice set {plain_repr(choice_set)} has a single alternative: there is no rival to leave out."
        )
    sets = [inside, *(inside[inside != r] for r in rivals)]
    p = np.maximum(np.exp(predict_sets(model, data, sets, np.full(len(sets), position))), MIN_PROBABILITY)
    whole, n = p[: len(inside)], len(inside)
    # In the set without r, alternatives behind r have moved up by one.
    without = p[n + (n - 1) * np.arange(n - 1) + (i - inside[0]) - (rivals < i)]
    rival_p, at = whole[rivals - inside[0]], float(whole[i - inside[0]])
    push = np.log(at) - np.log(without)
    beyond = push - np.log(np.maximum(1 - rival_p, MIN_PROBABILITY))
    order = np.argsort(-np.abs(beyond).round(9), kind="stable")  # equal ones, as in a logit, in the order of the set
    names = tuple(alternative_name(data, int(r)) for r in rivals[order])
    return Attribution(
        choice_set=set_id_of(data, i),
        alternative=alternative_name(data, i),
        p=at,
        rivals=names,
        places=rivals[order],
        rival_p=rival_p[order],
        without=without[order],
        push=push[order],
        beyond=beyond[order],
    )


def _chosen(data: ChoiceData, choice_set: Any) -> int:
    """Return the place of the alternative chosen in a set."""
    position = position_of(data, choice_set)
    return int(data.offsets[position] + data.require_chosen("attribution of the choice")[position])
