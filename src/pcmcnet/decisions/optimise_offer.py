"""Which alternatives to offer: the offer with the largest expected revenue, with a bound on what any offer could earn.

Every search begins with local search from several offers. What proves the best one depends on the model:

    chains and mixtures of them    branch and bound
    a logit                        Dinkelbach's method
    a mixture of logits            branch and bound, or an integer program
    a nested logit of one level    revenue by revenue in each nest
    any other model                nothing: the offer is called heuristic, and its bound is the largest revenue

as in ``exact_offers.py``.
The members of an ensemble say what is not known from the data. Its mean is optimised as a mixture. With ``risk`` it is
the mean over the worst members for each offer (conditional value at risk) by local search; the bound of the mean holds
for it, too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.checks import require_number
from pcmcnet.data import ChoiceData
from pcmcnet.decisions.branch_and_bound import PROVEN_GAP, SearchResult, local_search, starting_offers
from pcmcnet.decisions.catalogue import Catalogue
from pcmcnet.decisions.constraints import ConstraintRows, Constraints, constraint_rows
from pcmcnet.decisions.exact_offers import (
    NestedLogits,
    best_chain_offer,
    best_logit_mixture_offer,
    best_logit_offer,
    best_mixture_offer,
    best_nested_offer,
)
from pcmcnet.decisions.offer_value import CPU, BlackBoxModel, Chains, Logits, OfferValue, expected_revenue
from pcmcnet.errors import InputError
from pcmcnet.models import ChainModel, ChoiceModel, Ensemble, MixedMNL, NestedMNL
from pcmcnet.models.networks.neural_model import NeuralModel
from pcmcnet.reports.formats import ToDictMixin, data_frame
from pcmcnet.reports.tables import Cells, TableMixin, number, percent
from pcmcnet.training.device import device_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# -- Structure ---------------------------------------------------------------------------------------------------------
# How a model's choice probabilities depend on the offer: as chains, as logits, or in a way of its own.
#
# What is taken for a chain or a logit is compared with the model's own answers on some offers, so that a formula with
# terms relative to the set, for example, is never taken for a logit.

_COMPARED_OFFERS = 16  # that the model is compared on
_MIN_LOG_P = (
    -600.0
)  # log-probability that stands for smaller ones: no attraction is 0, so that every offer has a choice
_MAX_ATTRACTIONS = (
    2**26
)  # attractions of all individuals in all draws, half a GiB; a mixed logit with more is asked itself
_PROBABILITY_TOLERANCE = 1e-5  # in probability: networks compute in 32 bits


def structure_of(model: ChoiceModel, sets: ChoiceData, revenue: Floats) -> OfferValue:
    """Return what offers of a catalogue earn; ``sets`` holds all of it for each individual."""
    asked = BlackBoxModel(model, sets, revenue)
    for structure in (_chains, _logits, _nested):
        value = structure(_members(model), sets, revenue)
        if value is not None and _agree(value, asked, len(sets)):
            return value
    return asked


def fixed_draws(model: ChoiceModel) -> int | None:
    """Return how many draws stand for the distribution of tastes that the model has; None where it has none."""
    return sum(m.config.draws for m in _members(model) if isinstance(m, MixedMNL)) or None


def _members(model: ChoiceModel) -> list[ChoiceModel]:
    return list(model.members_) if isinstance(model, Ensemble) else [model]


def _chains(members: list[ChoiceModel], sets: ChoiceData, revenue: Floats) -> Chains | None:
    """Return chains, where all members are such, or mixtures of such."""
    chains = [member for member in members if isinstance(member, ChainModel)]
    if len(chains) < len(members):
        return None
    found = [member.fixed_chains(sets) for member in chains]
    weights = [shares / len(members) for shares, _ in found]  # (P, K) of each member
    rates = [np.stack(theirs) for _, theirs in found]  # (P, K, n, n)
    networks = (member.network_ for member in chains if isinstance(member, NeuralModel))
    device = next(map(device_of, networks), CPU)
    return Chains(np.concatenate(weights, axis=1), np.concatenate(rates, axis=1), revenue, device)


def _logits(members: list[ChoiceModel], sets: ChoiceData, revenue: Floats) -> Logits | None:
    """Return logits, where all members are mixtures of such, and their draws fit into memory."""
    if sum(m.config.draws for m in members if isinstance(m, MixedMNL)) * len(sets) * len(revenue) > _MAX_ATTRACTIONS:
        return None
    weights, attraction = [], []
    for member in members:
        if (part := member.as_logits(sets)) is None:
            return None
        shares, log_p = part
        weights.append(shares / len(members))
        attraction.append(np.exp(np.maximum(log_p, _MIN_LOG_P)).reshape(len(sets), -1, log_p.shape[1]).swapaxes(1, 2))
    return Logits(np.concatenate(weights, axis=1), np.concatenate(attraction, axis=1), revenue)


def _nested(members: list[ChoiceModel], sets: ChoiceData, revenue: Floats) -> NestedLogits | None:
    """Return nested logits, where the model is one with a single level of nests."""
    model = members[0]
    found = model.as_nests(sets) if len(members) == 1 and isinstance(model, NestedMNL) else None
    if found is None:
        return None
    v, nests, logsums = found
    return NestedLogits(v.reshape(len(sets), -1), nests[: len(revenue)], logsums, revenue)


def _agree(value: OfferValue, asked: BlackBoxModel, individuals: int) -> bool:
    """Compare a structure with the model itself on random offers."""
    rng = np.random.default_rng(0)
    offers = rng.random((_COMPARED_OFFERS, len(asked.revenue))) < 0.5
    offers[np.arange(_COMPARED_OFFERS), rng.integers(0, offers.shape[1], _COMPARED_OFFERS)] = True
    who = rng.integers(0, individuals, _COMPARED_OFFERS)
    return bool(
        np.abs(value.probabilities(offers, who) - asked.probabilities(offers, who)).max() < _PROBABILITY_TOLERANCE
    )


# -- Offer -------------------------------------------------------------------------------------------------------------
# The offer to show to one individual, as a result that prints as a table.


@dataclass(frozen=True, kw_only=True, eq=False)
class Offer(ToDictMixin, TableMixin):
    """The alternatives to show to one individual.

    Attributes
    ----------
    labels
        What to show, the most probable first; the outside option is not among them.
    probabilities, revenue
        For each label, the probability of being chosen and what a choice earns.
    outside, outside_revenue
        Probability of the outside option, None where there is none, and what a choice of it earns.
    value
        Expected revenue of one choice.
    bound
        What no offer can exceed.
    exact
        Whether the offer is proven to be the best, to a millionth of its value.
    nodes, seconds
        Size and time of the search.
    best_for
        Of an ensemble, the share of members for whom no offer was found to be better than this one.
    added, dropped
        Changes relative to the current offer, and ``current_value`` what that earns, where it was given.
    draws
        Of a mixed logit, how many draws of tastes the offer is the best for; None for other models.
    """

    labels: tuple[str, ...]
    probabilities: tuple[float, ...]
    revenue: tuple[float, ...]
    outside: float | None
    outside_revenue: float
    value: float
    bound: float
    exact: bool
    nodes: int
    seconds: float
    best_for: float | None = None
    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    current_value: float | None = None
    draws: int | None = None
    _derived = ("gap",)

    @property
    def gap(self) -> float:
        """How far the bound lies above the value, relative to it."""
        return max(self.bound - self.value, 0.0) / max(abs(self.value), 1e-300)

    @property
    def verdict(self) -> str:
        """Say in words what is known of the offer."""
        if self.exact:
            return "proven to be the best offer" + ("" if self.draws is None else f" for {self.draws:,} fixed draws")
        if self.nodes:
            return f"heuristic: at most {percent(self.gap)} below the best offer"
        return "heuristic: no bound is known but the largest revenue"

    def to_frame(self) -> Any:
        """Return a pandas data frame with a row for each alternative shown."""
        columns = {"alternative": self.labels, "probability": self.probabilities, "revenue": self.revenue}
        return data_frame(pa.table(columns), instead="to_dict()")

    def _cells(self) -> Cells:
        shown = zip(self.labels, self.probabilities, self.revenue, strict=True)
        rows = [[label, percent(p), number(r), number(p * r)] for label, p, r in shown]
        if self.outside is not None:
            earns = self.outside_revenue
            rows.append(["outside option", percent(self.outside), number(earns), number(self.outside * earns)])
        rows.append(["expected revenue", "", "", number(self.value)])
        if self.current_value is not None:
            rows.append(["of the current offer", "", "", number(self.current_value)])
            rows += [[word, ", ".join(names)] for word, names in (("add", self.added), ("drop", self.dropped)) if names]
        if self.outside is None:
            rows.append(["note", "without an outside option everybody takes something of what is shown"])
        if self.best_for is not None:
            rows.append(["best for", f"{percent(self.best_for)} of the members"])
        return [["alternative", "probability", "revenue", "contribution"], *rows, ["verdict", self.verdict]]


# -- Optimise offer ----------------------------------------------------------------------------------------------------

_LOCAL_SEARCHES = 8  # local searches
_MAX_INTEGER_PROGRAM = 1_000  # logits times alternatives up to which constraints are left to an integer program
Revenue = str | Sequence[float] | Mapping[Any, float]
Goal = Callable[[Bools, Ints], Floats]


def optimise_offer(
    model: ChoiceModel,
    catalogue: Any,
    revenue: Revenue = "revenue",
    *,
    outside: Any = None,
    individual: Any = None,
    constraints: Constraints | None = None,
    current: Sequence[Any] | None = None,
    risk: float | None = None,
    time_limit: float = 60.0,
    seed: int = 0,
) -> Offer:
    """Find the offer with the largest expected revenue.

    Parameters
    ----------
    model
        A fitted model of any kind.
    catalogue
        The alternatives that could be offered, one row each, with the model's features.
    revenue
        What a choice of each alternative earns: a column of the catalogue, a list, or a mapping of labels. It may be
        negative. The outside option earns 0 if nothing else is said.
    outside
        Label of the alternative that is always there, such as to buy nothing.
    individual
        The individual's columns, by name.
    constraints
        What the offer must fulfil.
    current
        Labels of what is shown now, to be compared with.
    risk
        Of an ensemble: optimise the mean over this share of its members, the worst for each offer, instead of all.
    time_limit
        Seconds after which the best offer so far is returned, with its bound.
    seed
        Where the starts of local search come from.

    Examples
    --------
    >>> from pcmcnet import MNL, ChoiceData
    >>> table = {"trip": [1, 1, 2, 2, 3, 3], "bag": [1, 0, 1, 0, 0, 1], "took": [1, 0, 0, 1, 0, 1]}
    >>> data = ChoiceData.from_long(table, choice_set="trip", chosen="took", features=["bag"])
    >>> offer = optimise_offer(MNL().fit(data), {"bag": [0, 1, 1], "margin": [5.0, 3.0, 4.0]}, "margin")
    >>> offer.labels, round(offer.value, 6), offer.exact
    (('0',), 5.0, True)
    """
    require_number("time_limit", time_limit, low=0)
    require_number("seed", seed, whole=True, low=0, high=2**63 - 1)
    started = time.monotonic()
    # 1. Read the catalogue and the constraints, and how the revenue depends on the offer.
    offered = Catalogue.read(model.schema, catalogue, individual, outside)
    if len(offered.sets) != 1:
        raise InputError(f"individual: expected one, got {len(offered.sets)}; optimise_offers takes many.")
    rows = constraint_rows(constraints or Constraints(), offered.labels, offered.columns, offered.outside)
    rows.require_possible()
    value = structure_of(model, offered.sets, offered.numbers(revenue, "revenue"))
    now = None if current is None else offered.offer(current)
    members = [structure_of(m, offered.sets, value.revenue) for m in getattr(model, "members_", [])]
    goal = (lambda offers, _: expected_revenue(value, offers)) if risk is None else _tail(members, risk)
    # 2. Search locally, then improve on what was found and bound it.
    local = _climbed(goal, rows, value.revenue, now, np.random.default_rng(seed))
    deadline = started + time_limit
    found = improve_and_bound(value, rows, local.offer, deadline=deadline)
    if risk is not None:  # the bound of the mean holds for the worst members, too
        found = local._replace(bound=found.bound, nodes=found.nodes)
    # 3. Say what it is in the words of the catalogue, beside the members and the current offer.
    offer = replace(_offer(value, found, offered, time.monotonic() - started), draws=fixed_draws(model))
    if members:
        offer = replace(offer, best_for=_best_for(members, rows, found.offer, deadline))
    return offer if now is None else _compared(offer, offered, goal, now, found.offer)


def _climbed(
    goal: Goal, rows: ConstraintRows, revenue: Floats, now: Bools | None, rng: np.random.Generator
) -> SearchResult:
    """Return the best offer of several local searches, one of which begins with the current offer."""
    starts = starting_offers(rows, revenue, _LOCAL_SEARCHES, rng)
    if now is not None and rows.allow(now[None])[0]:
        starts = np.concatenate([starts, now[None]])
    offers, values = local_search(goal, rows, starts)
    return SearchResult(offers[values.argmax()], float(values.max()), np.inf, 0)


def _tail(members: list[OfferValue], risk: float) -> Goal:
    """Return the mean revenue over the worst members."""
    require_number("risk", risk, low=0, high=1, open_low=True)
    if not members:
        raise InputError("risk is about the members of an ensemble: fit Ensemble(model, n), or leave it out.")
    worst = math.ceil(risk * len(members))

    def goal(offers: Bools, _: Ints) -> Floats:
        mean: Floats = np.sort([expected_revenue(member, offers) for member in members], axis=0)[:worst].mean(axis=0)
        return mean

    return goal


def _best_for(members: list[OfferValue], rows: ConstraintRows, offer: Bools, deadline: float) -> float:
    """Return the share of members for whom the search finds no better offer."""
    own = [improve_and_bound(member, rows, offer, deadline=deadline) for member in members]
    values = [float(expected_revenue(member, offer[None])[0]) for member in members]
    return float(np.mean([value >= best.value * (1 - PROVEN_GAP) for value, best in zip(values, own, strict=True)]))


def _compared(offer: Offer, offered: Catalogue, goal: Goal, now: Bools, then: Bools) -> Offer:
    """Say what changes relative to the current offer."""
    names = np.array(offered.labels)
    added, dropped = (tuple(names[mask].tolist()) for mask in (then & ~now, now & ~then))
    value = float(goal(now[None], np.zeros(1, np.int64))[0])
    return replace(offer, added=added, dropped=dropped, current_value=value)


def improve_and_bound(value: OfferValue, rows: ConstraintRows, start: Bools, *, deadline: float) -> SearchResult:
    """Improve on an offer, and bound what any offer can earn."""
    if isinstance(value, Chains):
        return best_chain_offer(value, rows, start, stop=lambda: time.monotonic() > deadline)
    if isinstance(value, Logits) and value.weights.shape[1] == 1:
        return best_logit_offer(value, rows, start)
    if isinstance(value, Logits):
        if value.attraction[0].size <= _MAX_INTEGER_PROGRAM and len(rows.sizes()[2].upper):
            return best_logit_mixture_offer(value, rows, start, seconds=max(deadline - time.monotonic(), 0.1))
        return best_mixture_offer(value, rows, start, stop=lambda: time.monotonic() > deadline)
    if isinstance(value, NestedLogits):
        return best_nested_offer(value, rows, start)
    best = float(expected_revenue(value, start[None])[0])
    return SearchResult(start, best, max(best, float(value.revenue[~rows.never].max())), 0)


def _offer(value: OfferValue, found: SearchResult, offered: Catalogue, seconds: float) -> Offer:
    """Put a result into the words of the catalogue."""
    p = value.probabilities(found.offer[None], np.zeros(1, np.int64))[0]
    shown = [k for k in np.argsort(-p, kind="stable") if found.offer[k] and k != offered.outside]
    return Offer(
        labels=tuple(offered.labels[k] for k in shown),
        probabilities=tuple(p[shown].tolist()),
        revenue=tuple(value.revenue[shown].tolist()),
        outside=None if offered.outside is None else float(p[offered.outside]),
        outside_revenue=0.0 if offered.outside is None else float(value.revenue[offered.outside]),
        value=found.value,
        bound=found.bound,
        exact=found.gap < PROVEN_GAP,
        nodes=found.nodes,
        seconds=seconds,
    )


# -- Offer frontier ----------------------------------------------------------------------------------------------------
# What each further alternative is worth: the best offer of every size, the efficient frontier of revenue and size.


@dataclass(frozen=True, kw_only=True, eq=False)
class Frontier(TableMixin):
    """The best offers: of at most ``sizes[k]`` alternatives, ``offers[k]`` is the best one."""

    sizes: tuple[int, ...]
    offers: tuple[Offer, ...]

    def to_frame(self) -> Any:
        """Return a pandas data frame with a row for each size."""
        both = zip(self.sizes, self.offers, strict=True)
        rows = [{"size": k, "value": o.value, "bound": o.bound, "offer": list(o.labels)} for k, o in both]
        return data_frame(pa.Table.from_pylist(rows))

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Draw revenue against size; returns matplotlib's Axes."""
        from pcmcnet.plots.search import draw_offer_frontier

        return draw_offer_frontier(self, ax)

    def _cells(self) -> Cells:
        most = max(offer.value for offer in self.offers)
        rows = [
            [str(size), number(offer.value), percent(offer.value / most), ", ".join(offer.labels)]
            for size, offer in zip(self.sizes, self.offers, strict=True)
        ]
        return [["size", "expected revenue", "of the most", "offer"], *rows]


def offer_frontier(
    model: ChoiceModel,
    catalogue: Any,
    revenue: Revenue = "revenue",
    *,
    sizes: Sequence[int] = (1, 2, 3, 4, 5, 6),
    constraints: Constraints | None = None,
    **same: Any,
) -> Frontier:
    """Find the best offer of at most so many alternatives, for several sizes.

    Parameters
    ----------
    sizes
        How many alternatives may be shown.
    constraints
        Others than the size.
    model, catalogue, revenue, same
        As for :func:`optimise_offer`, for every size.
    """
    limits = constraints or Constraints()
    if limits.size is not None:
        raise InputError("the frontier is about sizes: give sizes=[...], and no size among the constraints.")
    if not sizes:
        raise InputError("sizes: expected at least one.")
    every = [replace(limits, size=size) for size in sizes]
    offers = [optimise_offer(model, catalogue, revenue, constraints=limited, **same) for limited in every]
    return Frontier(sizes=tuple(sizes), offers=tuple(offers))
