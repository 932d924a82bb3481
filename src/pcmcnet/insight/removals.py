"""Effects of removing one alternative on the others in its set, as used by the context search and the audit.

The shift of alternative i when r is removed from the choice set S, and the change in a log-ratio, are

    shift_i = log P(i | S - r) - log P(i | S),        change in log P(i) / P(j) = shift_i - shift_j.

The pair whose log-ratio changes most consists of the alternatives with the largest and the smallest shift. The mean
absolute change over all m (m - 1) / 2 pairs follows from the sorted shifts:

    2 sum_k (2 k - m + 1) shift_(k) / (m (m - 1)),        k = 0, ..., m - 1.

In a logit, all alternatives have the same shift, -log(1 - P(r | S)). An alternative with probability 0 in S or in S - r
has no shift. Shapes: C is the number of cases (set, r), and M is the total number of other alternatives over all cases.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data import ChoiceData
from pcmcnet.data.columns.ragged import require_few_pairs
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
# Whether the training sets differ in the alternatives on offer; if not, effects of removals are extrapolated.
#
# If all sets of a table offer the same alternatives, choices without one of them were never observed. A prediction then
# follows only from the form of the model: proportional shares in a logit, the estimated rates in a chain.

_CONSTANT_OFFER = {
    True: "offer the same alternatives",
    False: "have the same number of alternatives",
}  # with labels, and without


def extrapolation_warning(model: Any, data: ChoiceData) -> str | None:
    """Return a warning that removals are extrapolated, or None if the training sets offer different alternatives.

    If the model does not record its training table, ``data`` is examined instead.
    """
    varying = model.table_.description.get("offers_differ") if isinstance(model, ChoiceModel) else None
    if has_varying_offers(data) if varying is None else varying:
        return None
    return (
        f"All choice sets of the training table {_CONSTANT_OFFER[data.labels is not None]}. Choices from "
        f"smaller sets were never observed, so effects of removals are extrapolated from the model's functional form."
    )


# -- Removals ----------------------------------------------------------------------------------------------------------

MIN_ALTERNATIVES = 3  # in a set, so that two remain after a removal


@dataclass(frozen=True, eq=False)
class Removals:
    """Removals of single alternatives, with predicted log-probabilities before and after each removal."""

    position: Ints  # (C,) position of the set
    removed: Ints  # (C,) place of the removed alternative
    offsets: Ints  # (C + 1,) start of each case in the arrays below
    places: Ints  # (M,) places of the others
    log_with: Floats  # (M,) log P(i | S)
    log_without: Floats  # (M,) log P(i | S - r)
    questions: int  # number of choice sets predicted

    @property
    def case(self) -> Ints:
        """Index of the case to which each entry belongs, (M,)."""
        return np.repeat(np.arange(len(self.removed)), np.diff(self.offsets))

    @cached_property
    def shift(self) -> Floats:
        """Change (M,) in log P due to the removal, or NaN if a probability is 0."""
        finite = np.isfinite(self.log_with) & np.isfinite(self.log_without)
        shift: Floats = np.full(len(finite), np.nan)
        shift[finite] = self.log_without[finite] - self.log_with[finite]
        return shift

    def log_ratios(self, least: float = 0.0) -> LogRatios:
        """Return the changes in log-ratios, without alternatives that have a probability below ``least``."""
        # 1. Sort the entries of each case by their shift.
        entries = np.flatnonzero(~np.isnan(self.shift) & (self.log_with >= (np.log(least) if least > 0 else -np.inf)))
        case = self.case[entries]
        order = entries[np.lexsort((self.shift[entries], case))]
        m = np.bincount(case, minlength=len(self.removed))
        ends = np.cumsum(m)
        # 2. Sum |change| over the pairs of each case, by the formula for sorted shifts.
        k = np.arange(len(order)) - np.repeat(ends - m, m)
        terms = (2 * k - np.repeat(m, m) + 1) * self.shift[order]
        sums: Floats = np.bincount(np.repeat(np.arange(len(m)), m), terms, minlength=len(m)).astype(np.float64)
        # 3. The pair that changes most has the smallest and the largest shift.
        several = np.flatnonzero(m >= 2)
        down, up = order[(ends - m)[several]], order[ends[several] - 1]
        pairs, size = m * (m - 1) // 2, np.diff(self.offsets)
        return LogRatios(several, up, down, sums, pairs, int((size * (size - 1) // 2 - pairs).sum()))


class LogRatios(NamedTuple):
    """Changes in log-ratios by case, where K of the C cases have at least one pair."""

    cases: Ints  # (K,)
    up: Ints  # (K,) entry, among M, of the alternative whose log P rises most
    down: Ints  # (K,) entry of the alternative whose log P rises least, or falls most
    sums: Floats  # (C,) sum over pairs of |change|
    pairs: Ints  # (C,) number of pairs
    left_out: int  # pairs with an alternative of probability 0, or below the required probability


def sample_removals(data: ChoiceData, sets: Ints, *, limit: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Return the set positions (C,) and removed flat indices (C,) of cases that need at most ``limit`` predictions.

    A set needs one prediction for itself and one for each removal. If the limit is reached within a set, its removals
    are drawn at random.
    """
    drawn = sets[data.sizes[sets] >= MIN_ALTERNATIVES]
    cost = np.cumsum(data.sizes[drawn] + 1)
    used = int(np.searchsorted(cost, limit, side="right"))  # number of sets with all their removals
    left = limit - (int(cost[used - 1]) if used else 0)
    parts = [places_in_set(data, s) for s in drawn[:used]]
    if used < len(drawn) and left >= 2:
        parts.append(np.sort(rng.permutation(places_in_set(data, drawn[used]))[: left - 1]))
    removed = np.concatenate(parts) if parts else np.empty(0, np.int64)
    return np.repeat(drawn[: len(parts)], [len(part) for part in parts]), removed


def predict_removals(model: Predictor, data: ChoiceData, position: Ints, removed: Ints) -> Removals:
    """Predict probabilities for every whole set and every set with one alternative removed, in one batch."""
    whole, at = np.unique(position, return_inverse=True)
    inside = [places_in_set(data, s) for s in whole]
    others = [inside[k][inside[k] != r] for k, r in zip(at, removed, strict=True)]
    log_p = predict_sets(model, data, [*inside, *others], np.concatenate([whole, position]))
    places = np.concatenate(others) if others else np.empty(0, np.int64)
    sizes = np.array([len(part) for part in others], np.int64)
    begins = np.cumsum(data.sizes[whole]) - data.sizes[whole]  # start of each whole set in log_p
    with_r = np.repeat(begins[at] - data.offsets[position], sizes) + places
    log_without = log_p[len(log_p) - len(places) :]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return Removals(position, removed, offsets, places, log_p[with_r], log_without, len(whole) + len(removed))


def pair_share(log_i: NDArray[np.float64], log_j: NDArray[np.float64]) -> Floats:
    """Return P(i) / (P(i) + P(j)) from log-probabilities, accurately even if both probabilities are tiny."""
    with np.errstate(over="ignore"):
        share: Floats = 1 / (1 + np.exp(log_j - log_i))
    return share


# -- Attribution -------------------------------------------------------------------------------------------------------
# Attribution of one choice to its rivals: the effect of each rival on the probability of the chosen alternative.
#
# Each rival r is removed from the set in turn:
#
#     push_r   = log p_i(S) - log p_i(S - r)     negative: r takes share from i; positive: i is chosen more often with r
#     share_r  = log(1 - p_r(S))                 the push of a rival that takes from all in proportion, as in a logit
#     beyond_r = push_r - share_r                the context effect of r: 0 in every logit
#
# and the same in probabilities. All sets are predicted in one batch. Probabilities are floored at 1e-12, so that logs
# are finite.

MIN_PROBABILITY = 1e-12


@dataclass(frozen=True, eq=False)
class Attribution(ToDictMixin, TableMixin):
    """Result of :func:`attribution`: the effects of R rivals on one alternative. ``print(result)`` shows a table.

    Attributes
    ----------
    choice_set
        Id of the choice set.
    alternative
        Name of the alternative.
    p
        Probability of the alternative in the whole set.
    rivals
        Names of the rivals, in descending order of the size of their effect beyond a logit.
    places
        Indices of the rivals in the flat columns of the table, (R,).
    rival_p
        Probabilities of the rivals in the whole set, (R,).
    without
        Probability of the alternative after the rival is removed, (R,).
    push
        Change in log p of the alternative due to the rival, (R,).
    beyond
        Part of the change in log p that a logit cannot explain, (R,).
    """

    choice_set: Any
    alternative: str
    p: float
    rivals: tuple[str, ...]
    places: NDArray[np.int64]
    rival_p: Floats
    without: Floats
    push: Floats
    beyond: Floats
    _derived = ("change", "change_beyond")

    @property
    def change(self) -> Floats:
        """Change (R,) in the probability due to the rival, usually negative."""
        return self.p - self.without

    @property
    def change_beyond(self) -> Floats:
        """Change in the probability beyond the proportional loss of a logit, (R,)."""
        return self.p / np.maximum(1 - self.rival_p, MIN_PROBABILITY) - self.without

    def _frame_rows(self) -> list[dict[str, Any]]:
        names = ("rivals", "rival_p", "without", "push", "beyond", "change", "change_beyond")
        columns = zip(*(getattr(self, name) for name in names), strict=True)
        return [dict(zip(("rival", *names[1:]), row, strict=True)) for row in columns]

    def _cells(self) -> list[list[str]]:
        heads = [f"{self.alternative}: {self.p:.4f}", "p of rival", "p without it", "push", "beyond a logit"]
        figures = zip(self.rivals, self.rival_p, self.without, self.push, self.beyond, strict=True)
        return [heads, *([n, f"{r:.4f}", f"{w:.4f}", f"{push:+.4f}", f"{b:+.4f}"] for n, r, w, push, b in figures)]


def attribution(model: Predictor, data: Any, choice_set: Any, alternative: Any = None) -> Attribution:
    """Measure the effect of each rival in a set on the probability of one alternative.

    Parameters
    ----------
    model
        A fitted model, or an object with the method ``predict_log_proba``.
    data
        Choice data, or a table that matches the model's schema.
    choice_set
        The id of the set.
    alternative
        Label of the alternative, or, in a table without labels, its row or its number in the set, such as "#2". By
        default, the chosen alternative is used.

    Returns
    -------
    Attribution
        The effect of each rival on the alternative.

    Raises
    ------
    InputError
        If the set or the alternative does not exist, the choice is unknown, or the set has only one alternative.

    Examples
    --------
    >>> from pcmcnet.models import MNL
    >>> table = {"trip": [1, 1, 1, 2, 2, 2], "took": [1, 0, 0, 0, 1, 0], "cost": [2, 4, 3, 5, 3, 2]}
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["cost"])
    >>> effects = attribution(MNL().fit(data), data, 1)
    >>> effects.alternative, effects.rivals
    ('#1 (cost 2)', ('#2 (cost 4)', '#3 (cost 3)'))
    >>> bool(np.abs(effects.beyond).max() < 1e-12)
    True
    """
    data = require_data(model, data)
    i = place_of(data, choice_set, alternative) if alternative is not None else _chosen(data, choice_set)
    position = int(set_of(data, i))
    inside = places_in_set(data, position)
    rivals = inside[inside != i]
    if not rivals.size:
        raise InputError(f"choice set {plain_repr(choice_set)} has a single alternative, which has no rivals.")
    require_few_pairs("probabilities without each rival", np.array([len(inside)]), "")
    sets = [inside, *(inside[inside != r] for r in rivals)]
    p = np.maximum(np.exp(predict_sets(model, data, sets, np.full(len(sets), position))), MIN_PROBABILITY)
    whole, n = p[: len(inside)], len(inside)
    # In the set without r, the alternatives after r have moved up by one.
    without = p[n + (n - 1) * np.arange(n - 1) + (i - inside[0]) - (rivals < i)]
    rival_p, at = whole[rivals - inside[0]], float(whole[i - inside[0]])
    push = np.log(at) - np.log(without)
    beyond = push - np.log(np.maximum(1 - rival_p, MIN_PROBABILITY))
    order = np.argsort(-np.abs(beyond).round(9), kind="stable")  # ties, as in a logit, keep the order of the set
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
    """Return the flat index of the chosen alternative of a set."""
    position = position_of(data, choice_set)
    return int(data.offsets[position] + data.require_chosen("attribution of the choice")[position])
