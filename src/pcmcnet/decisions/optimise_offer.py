"""Find the offer with the largest expected revenue, with an upper bound on the revenue of any offer.

Every optimisation starts with local searches from several offers. The method that proves optimality depends on the
model:

    chains and mixtures of chains    branch and bound
    chains with factored rates       local search in large catalogues, with a bound from attractions
    a logit                          Dinkelbach's method
    a mixture of logits              branch and bound, or an integer program
    a nested logit of one level      revenue-ordered selections in each nest
    any other model                  none: the offer is heuristic, and its bound is the largest revenue

The algorithms are in ``exact_offers.py`` and ``factored_offers.py``. The members of an ensemble express the uncertainty
of the estimates. By default, the mean revenue over the members is optimised, as for a mixture. With ``risk``, local
search optimises the conditional value at risk: the mean over the worst members for each offer. The bound on the mean
over all members is also a bound on the conditional value at risk.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.checks import require_number, suggests_arguments
from pcmcnet.data import Batch, ChoiceData
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
from pcmcnet.decisions.factored_offers import (
    Combination,
    MoveRevenue,
    best_factored_offer,
    factored_starts,
    search_from_starts,
)
from pcmcnet.decisions.offer_value import (
    CPU,
    BlackBoxModel,
    Chains,
    FactoredChains,
    Logits,
    OfferValue,
    expected_revenue,
)
from pcmcnet.errors import InputError
from pcmcnet.models import ChainModel, ChoiceModel, Ensemble, HierarchicalMNL, MixedMNL, NestedMNL, PCMCNet, Stacking
from pcmcnet.models.networks.chain_network import AveragedChains
from pcmcnet.models.networks.factored_network import FactoredMixture, FactoredNetwork
from pcmcnet.models.networks.neural_model import NeuralModel
from pcmcnet.reports.formats import ToDictMixin
from pcmcnet.reports.frames import data_frame
from pcmcnet.reports.tables import Cells, TableMixin, number, percent
from pcmcnet.training.device import device_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NO_OUTSIDE_OPTION = "without an outside option, everyone chooses one of the alternatives shown"

# -- Structure ---------------------------------------------------------------------------------------------------------
# How a model's choice probabilities depend on the offer: as chains, as logits, or without a known structure.
#
# A supposed chain or logit is compared with the model's own predictions on some offers. For example, a formula with
# terms relative to the set is never mistaken for a logit.

_COMPARED_OFFERS = 16  # random offers on which a structure is compared with the model
_MIN_LOG_P = -600.0  # smaller log-probabilities are raised to this: every attraction must be positive
_MAX_ATTRACTIONS = 2**26  # half a GiB; a mixed logit with more individuals times draws is treated as a black box
_MAX_RATES = 2**27  # rates of all pairs: 1 GiB
_PROBABILITY_TOLERANCE = 1e-5  # networks compute in float32


def structure_of(model: ChoiceModel, sets: ChoiceData, revenue: Floats) -> OfferValue:
    """Return the revenue as a function of the offer, given choice sets that each contain the whole catalogue."""
    black_box = BlackBoxModel(model, sets, revenue)
    for structure in (_factored_chains, _chains, _logits, _nested):
        value = structure(_members(model), sets, revenue)
        if value is not None and _agree(value, black_box, len(sets)):
            return value
    return black_box


def fixed_draws(model: ChoiceModel) -> int | None:
    """Return the number of draws of tastes in a mixed or hierarchical logit, or None for other models."""
    return sum(map(_number_of_draws, _members(model))) or None


def _number_of_draws(model: ChoiceModel) -> int:
    """Return the number of draws of a model with random coefficients, or 0 for other models."""
    if isinstance(model, MixedMNL):
        return model.config.draws
    return model.population_.number if isinstance(model, HierarchicalMNL) else 0


def _members(model: ChoiceModel) -> list[ChoiceModel]:
    return list(model.members_) if isinstance(model, Ensemble) else [model]


def _factored_chains(members: list[ChoiceModel], sets: ChoiceData, revenue: Floats) -> FactoredChains | Logits | None:
    """Return the members as chains with factored rates, or as logits if all have rank 1.

    None is returned if no member is such a chain, or if a member is neither a chain with factors nor a logit.
    """
    # 1. Logarithms of the factors of each member. A logit has one factor, which is left at rate 1.
    networks = [member for member, _ in _weighted_members(members) if isinstance(member, PCMCNet)]
    if not any(network.spec_.rank for network in networks):
        return None
    weights, factors = [], []
    for member, weight in _weighted_members(members):
        mixture = _log_factors(member, sets)
        if mixture is None:
            return None
        weights.append(weight * mixture[0])
        factors.append(mixture[1].reshape(len(sets), len(revenue), *mixture[1].shape[1:]))  # (P, n, K, 2 r)
    # 2. One array, with the largest rank.
    rank = max(each.shape[3] for each in factors) // 2
    both = np.concatenate([_with_rank(each, rank) for each in factors], axis=2).swapaxes(1, 2)  # (P, C, n, 2 r)
    (log_u, log_v), shares = np.split(both, 2, axis=3), np.concatenate(weights, axis=1)
    if rank == 1:
        attractions = (log_v - log_u)[..., 0]
        below = attractions - attractions.max(axis=2, keepdims=True)
        return Logits(shares, np.exp(np.maximum(below, _MIN_LOG_P)), revenue)
    return FactoredChains(shares, log_u.copy(), log_v.copy(), revenue, device_of(networks[0].network_))


def _weighted_members(members: list[ChoiceModel]) -> list[tuple[ChoiceModel, float]]:
    """Return the members whose probabilities are averaged, with their weights. The members of stacks are listed too."""
    weighted: list[tuple[ChoiceModel, float]] = []
    for member in members:
        parts = zip(member.members_, member.weights_, strict=True) if isinstance(member, Stacking) else [(member, 1.0)]
        weighted += [(part, float(weight) / len(members)) for part, weight in parts]
    return weighted


def _log_factors(model: ChoiceModel, sets: ChoiceData) -> tuple[Floats, Floats] | None:
    """Return the weights (P, K) of a model's chains, and their log u and log v side by side (N, K, 2 r)."""
    if not isinstance(model, PCMCNet):
        mixture = None if isinstance(model, MixedMNL | HierarchicalMNL) else model.as_logits(sets)
        return None if mixture is None else (mixture[0], np.stack([0.0 * mixture[1], mixture[1]], axis=2))
    if model.spec_.rank is None:
        return None
    network = model.network_

    def log_factors(batch: Batch) -> Tensor:  # -> (B, J, K, 2 r)
        parts = network.chain_inputs(batch) if isinstance(network, AveragedChains) else [(network, batch)]
        chains = []
        for part, inputs in parts:
            if isinstance(part, FactoredMixture):
                classes = torch.cat(part.class_factors(inputs)[:2], 2)  # (B K, J, 2 r)
                chains.append(classes.view(-1, part.classes, *classes.shape[1:]).movedim(1, 2))
            elif isinstance(part, FactoredNetwork):
                chains.append(torch.cat(part.log_factors(inputs), 2).unsqueeze(2))
        return torch.cat(chains, 2)

    n, K = int(sets.sizes[0]), max(model.spec_.members, model.n_classes_)
    factors = np.empty((len(sets), n, K, 2 * model.spec_.rank))
    for positions, values in model._predict_batches(sets, log_factors):
        factors[positions] = values.double().cpu().numpy()
    is_average = model.spec_.members > 1
    return np.full((len(sets), K), 1 / K) if is_average else model.class_shares(sets), factors.reshape(
        -1, *factors.shape[2:]
    )


def _with_rank(factors: Floats, rank: int) -> Floats:  # (P, n, K, 2 r) -> (P, n, K, 2 rank)
    """Split the first factor into equal parts, so that there are ``rank`` factors and the rates are the same."""
    log_u, log_v = np.split(factors, 2, axis=3)
    parts = rank - log_u.shape[3] + 1
    first = [log_u[..., :1]] * parts, [log_v[..., :1] - math.log(parts)] * parts
    return np.concatenate([*first[0], log_u[..., 1:], *first[1], log_v[..., 1:]], axis=3)


def _chains(members: list[ChoiceModel], sets: ChoiceData, revenue: Floats) -> Chains | None:
    """Return the members as mixtures of chains, or None if a member is neither a chain nor a mixture of chains."""
    chains = [member for member in members if isinstance(member, ChainModel)]
    if len(chains) < len(members):
        return None
    if len(sets) * len(members) * len(revenue) ** 2 > _MAX_RATES:
        raise InputError(
            f"the catalogue has {len(revenue):,} alternatives, too many for rates of all pairs: fit "
            f"PCMCNet(rank=16), whose rates have factors, or offer fewer alternatives or individuals at a time."
        )
    class_chains = [member.fixed_chains(sets) for member in chains]
    weights = [shares / len(members) for shares, _ in class_chains]  # (P, K) of each member
    rates = [np.stack(class_rates) for _, class_rates in class_chains]  # (P, K, n, n)
    networks = (member.network_ for member in chains if isinstance(member, NeuralModel))
    device = next(map(device_of, networks), CPU)
    return Chains(np.concatenate(weights, axis=1), np.concatenate(rates, axis=1), revenue, device)


def _logits(members: list[ChoiceModel], sets: ChoiceData, revenue: Floats) -> Logits | None:
    """Return the members as mixtures of logits, or None if a member is not such a mixture or has too many draws."""
    if sum(map(_number_of_draws, members)) * len(sets) * len(revenue) > _MAX_ATTRACTIONS:
        return None
    weights, attraction = [], []
    for member in members:
        if (mixture := member.as_logits(sets)) is None:
            return None
        shares, log_p = mixture
        weights.append(shares / len(members))
        attraction.append(np.exp(np.maximum(log_p, _MIN_LOG_P)).reshape(len(sets), -1, log_p.shape[1]).swapaxes(1, 2))
    return Logits(np.concatenate(weights, axis=1), np.concatenate(attraction, axis=1), revenue)


def _nested(members: list[ChoiceModel], sets: ChoiceData, revenue: Floats) -> NestedLogits | None:
    """Return the model as a nested logit, or None if it is not a nested logit with a single level of nests."""
    model = members[0]
    structure = model.as_nests(sets) if len(members) == 1 and isinstance(model, NestedMNL) else None
    if structure is None:
        return None
    v, nests, logsums = structure
    return NestedLogits(v.reshape(len(sets), -1), nests[: len(revenue)], logsums, revenue)


def _agree(value: OfferValue, black_box: BlackBoxModel, individuals: int) -> bool:
    """Return True if a structure predicts the same probabilities as the model for random offers."""
    rng = np.random.default_rng(0)
    offers = rng.random((_COMPARED_OFFERS, len(black_box.revenue))) < 0.5
    offers[np.arange(_COMPARED_OFFERS), rng.integers(0, offers.shape[1], _COMPARED_OFFERS)] = True
    to = rng.integers(0, individuals, _COMPARED_OFFERS)
    return bool(
        np.abs(value.probabilities(offers, to) - black_box.probabilities(offers, to)).max() < _PROBABILITY_TOLERANCE
    )


# -- Offer -------------------------------------------------------------------------------------------------------------
# The result for one individual.


@dataclass(frozen=True, kw_only=True, eq=False)
class Offer(ToDictMixin, TableMixin):
    """Result of :func:`optimise_offer`: the alternatives to show to one individual.

    Attributes
    ----------
    labels
        Alternatives to show in descending order of probability, without the outside option.
    probabilities, revenue
        Choice probability of each label, and its revenue if it is chosen.
    outside, outside_revenue
        Probability of the outside option, or None if there is no outside option, and its revenue if it is chosen.
    value
        Expected revenue per choice.
    bound
        Upper bound on the expected revenue of any offer.
    exact
        True if the offer is proven to be the best, up to a relative gap of one millionth.
    nodes
        Number of nodes in the search.
    seconds
        Run time of the search, in seconds.
    best_for
        For an ensemble, the share of members for which no better offer was found.
    added, dropped
        Labels added to and dropped from the current offer, if a current offer was passed.
    current_value
        Expected revenue of the current offer, or None if no current offer was passed.
    draws
        For a mixed logit, the number of fixed taste draws over which the offer is optimised (None for other models).
    notes
        A sentence for each column whose effect in the model is against its expected sign (none for most models).
    is_local_optimum
        For a model with factored rates, whether every offer that differs from this one by one alternative was evaluated
        and earns no more. False if the time limit came first, and None for other models.
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
    notes: tuple[str, ...] = ()
    is_local_optimum: bool | None = None
    _derived = ("gap",)

    @property
    def gap(self) -> float:
        """Relative difference between the bound and the value."""
        return max(self.bound - self.value, 0.0) / max(abs(self.value), 1e-300)

    @property
    def verdict(self) -> str:
        """Statement of whether the offer is proven to be the best."""
        if self.exact:
            return "proven to be the best offer" + ("" if self.draws is None else f" for {self.draws:,} fixed draws")
        if self.nodes:
            text = f"heuristic: at most {percent(self.gap)} below the best offer"
        else:
            text = "heuristic: the only known upper bound is the largest revenue"
        return text + ("; no addition, removal or exchange of one alternative helps" if self.is_local_optimum else "")

    def _frame_rows(self) -> list[dict[str, Any]]:
        rows = [*zip(self.labels, self.probabilities, self.revenue, strict=True)]
        if self.outside is not None:
            rows.append(("outside option", self.outside, self.outside_revenue))
        return [{"alternative": a, "probability": p, "revenue": r, "contribution": p * r} for a, p, r in rows]

    def _cells(self) -> Cells:
        shown = zip(self.labels, self.probabilities, self.revenue, strict=True)
        rows = [[label, percent(p), number(r), number(p * r)] for label, p, r in shown]
        if self.outside is not None:
            earns = self.outside_revenue
            rows.append(["outside option", percent(self.outside), number(earns), number(self.outside * earns)])
        rows.append(["expected revenue", "", "", number(self.value)])
        if self.current_value is not None:
            rows.append(["current offer", "", "", number(self.current_value)])
            rows += [[word, ", ".join(names)] for word, names in (("add", self.added), ("drop", self.dropped)) if names]
        if self.outside is None:
            rows.append(["note", NO_OUTSIDE_OPTION])
        rows += [["note", note] for note in self.notes]
        if self.best_for is not None:
            rows.append(["best for", f"{percent(self.best_for)} of the members"])
        return [["alternative", "probability", "revenue", "contribution"], *rows, ["verdict", self.verdict]]


# -- Optimise offer ----------------------------------------------------------------------------------------------------

_LOCAL_SEARCHES = 8
MAX_SEARCHED = 1_000  # alternatives; the exchanges of larger offers take gigabytes
_MAX_INTEGER_PROGRAM = 1_000  # logits times alternatives; larger constrained problems use branch and bound
Revenue = str | Sequence[float] | Mapping[Any, float]
Goal = Callable[[Bools, Ints], Floats]


@suggests_arguments()
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
        Table with one row for each alternative that could be offered, with the model's features.
    revenue
        Revenue of each alternative if it is chosen: a column of the catalogue ("revenue" by default), a list, or a
        mapping from labels to revenues. Revenues can be negative. The revenue of the outside option is 0 unless it is
        specified.
    outside
        Label of the outside option, which is always available, such as buying nothing. If None (the default), there is
        no outside option.
    individual
        Mapping from individual-level columns to values, or None (the default) if the model has no such columns.
    constraints
        Constraints on the offer (none by default).
    current
        Labels of the current offer, to be compared with the best offer (None by default).
    risk
        For an ensemble, a share of the members, above 0 and at most 1. The mean revenue over this share of the members,
        the worst ones for each offer, is optimised. If None (the default), the mean over all members is optimised.
    time_limit
        Time limit in seconds (60 by default), after which the best offer found so far is returned with its bound.
    seed
        Seed for the starting offers of local search (0 by default).

    Returns
    -------
    Offer
        The best offer found, with an upper bound and a verdict.

    Raises
    ------
    InputError
        If the catalogue, the individual or the revenue is invalid, if no offer satisfies the constraints, or if
        ``risk`` is set for a model that is not an ensemble.
    ConfigError
        If a number is out of range.

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
    # 1. Read the catalogue and the constraints, and find the structure of the revenue function.
    offered = Catalogue.read(model.schema, catalogue, individual, outside)
    if len(offered.sets) != 1:
        raise InputError(
            f"individual: expected one individual, got {len(offered.sets)}: use optimise_offers for several."
        )
    rows = constraint_rows(constraints or Constraints(), offered.labels, offered.columns, offered.outside)
    rows.require_possible()
    value = structure_of(model, offered.sets, offered.numbers(revenue, "revenue"))
    now = None if current is None else offered.offer(current)
    members = [structure_of(m, offered.sets, value.revenue) for m in getattr(model, "members_", [])]
    goal = (lambda offers, _: expected_revenue(value, offers)) if risk is None else _tail(members, risk)
    # 2. Search locally, then improve the result and bound it.
    deadline, rng = started + time_limit, np.random.default_rng(seed)
    if has_factored_search(value) and (risk is None or all(isinstance(m, (FactoredChains, Logits)) for m in members)):
        chains = with_factors(value)
        revenues = MoveRevenue(chains, None if risk is None else _tail_of_chains(members, risk))
        starts = factored_starts(revenues, rows, now, rng)
        local = search_from_starts(revenues, rows, starts, lambda: time.monotonic() > deadline)
    else:
        local = _local_optimum(goal, rows, value.revenue, now, rng)
    is_optimum = risk is None and local.is_local_optimum is True
    best = improve_and_bound(value, rows, local.offer, deadline=deadline, is_local_optimum=is_optimum)
    if risk is not None:  # the bound of the mean also holds for the worst members
        best = local._replace(bound=max(best.bound, local.value), nodes=best.nodes)
    # 3. Report the result with labels, and compare it with the members and the current offer.
    offer = _offer(value, best, offered, time.monotonic() - started)
    offer = replace(offer, draws=fixed_draws(model), notes=tuple(model.sign_caveats.values()))
    if members:
        offer = replace(offer, best_for=_best_for(members, rows, best.offer, deadline))
    return offer if now is None else _compared(offer, offered, goal, now, best.offer)


def has_factored_search(value: OfferValue) -> bool:
    """Return True if the search for chains with factored rates applies: to such chains, and to many alternatives.

    A mixture of logits is a mixture of chains of rank 1. Raise InputError if there are too many alternatives for any
    search.
    """
    if isinstance(value, FactoredChains):
        return True
    if len(value.revenue) <= MAX_SEARCHED:
        return False
    if isinstance(value, Logits):
        return True
    raise InputError(
        f"the catalogue has {len(value.revenue):,} alternatives: the search for this model supports at most "
        f"{MAX_SEARCHED:,}. Use a logit or PCMCNet(rank=16), whose rates have factors, or offer fewer alternatives."
    )


def with_factors(value: OfferValue) -> FactoredChains:
    """Return chains with factored rates, or logits, as chains with factored rates."""
    if isinstance(value, FactoredChains):
        return value
    assert isinstance(value, Logits)
    log_v = np.log(value.attraction)[..., None]
    return FactoredChains(value.weights, np.zeros_like(log_v), log_v, value.revenue)


def _local_optimum(
    goal: Goal, rows: ConstraintRows, revenue: Floats, now: Bools | None, rng: np.random.Generator
) -> SearchResult:
    """Return the best offer of several local searches, one of which starts from the current offer."""
    starts = starting_offers(rows, revenue, _LOCAL_SEARCHES, rng)
    if now is not None and rows.allow(now[None])[0]:
        starts = np.concatenate([starts, now[None]])
    offers, values = local_search(goal, rows, starts)
    return SearchResult(offers[values.argmax()], float(values.max()), np.inf, 0)


def _tail(members: list[OfferValue], risk: float) -> Goal:
    """Return the mean revenue over the worst members as a function of the offer."""
    require_number("risk", risk, low=0, high=1, open_low=True)
    if not members:
        raise InputError("risk needs the members of an ensemble: fit Ensemble(model, n), or omit risk.")
    worst = math.ceil(risk * len(members))

    def goal(offers: Bools, _: Ints) -> Floats:
        mean: Floats = np.sort([expected_revenue(member, offers) for member in members], axis=0)[:worst].mean(axis=0)
        return mean

    return goal


def _tail_of_chains(members: list[OfferValue], risk: float) -> Combination:
    """Return the mean over the worst members as a function of the revenue (C, m) in the chains of all members."""
    weights = [with_factors(member).weights[0] for member in members]
    ends, worst = np.cumsum([len(each) for each in weights])[:-1], math.ceil(risk * len(members))

    def combine(revenue: Floats) -> Floats:
        parts = zip(weights, np.split(revenue, ends), strict=True)
        mean: Floats = np.sort([each @ part for each, part in parts], axis=0)[:worst].mean(axis=0)
        return mean

    return combine


def _best_for(members: list[OfferValue], rows: ConstraintRows, offer: Bools, deadline: float) -> float:
    """Return the share of members for which the search finds no better offer."""
    optima = [improve_and_bound(member, rows, offer, deadline=deadline) for member in members]
    values = [float(expected_revenue(member, offer[None])[0]) for member in members]
    return float(np.mean([value >= best.value * (1 - PROVEN_GAP) for value, best in zip(values, optima, strict=True)]))


def _compared(offer: Offer, offered: Catalogue, goal: Goal, now: Bools, then: Bools) -> Offer:
    """Return the offer with its differences from the current offer."""
    names = np.array(offered.labels)
    added, dropped = (tuple(names[mask].tolist()) for mask in (then & ~now, now & ~then))
    value = float(goal(now[None], np.zeros(1, np.int64))[0])
    return replace(offer, added=added, dropped=dropped, current_value=value)


def improve_and_bound(
    value: OfferValue, rows: ConstraintRows, start: Bools, *, deadline: float, is_local_optimum: bool = False
) -> SearchResult:
    """Improve an offer by the exact method for the model, and compute an upper bound on the revenue of any offer."""
    if isinstance(value, FactoredChains):
        return best_factored_offer(
            value, rows, start, stop=lambda: time.monotonic() > deadline, is_local_optimum=is_local_optimum
        )
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


def _offer(value: OfferValue, result: SearchResult, offered: Catalogue, seconds: float) -> Offer:
    """Convert a search result to an offer with the labels of the catalogue."""
    p = value.probabilities(result.offer[None], np.zeros(1, np.int64))[0]
    shown = [k for k in np.argsort(-p, kind="stable") if result.offer[k] and k != offered.outside]
    return Offer(
        labels=tuple(offered.labels[k] for k in shown),
        probabilities=tuple(p[shown].tolist()),
        revenue=tuple(value.revenue[shown].tolist()),
        outside=None if offered.outside is None else float(p[offered.outside]),
        outside_revenue=0.0 if offered.outside is None else float(value.revenue[offered.outside]),
        value=result.value,
        bound=result.bound,
        exact=result.gap < PROVEN_GAP,
        nodes=result.nodes,
        seconds=seconds,
        is_local_optimum=result.is_local_optimum,
    )


# -- Offer frontier ----------------------------------------------------------------------------------------------------
# The efficient frontier of revenue and size: the best offer of every size, and so the value of showing one more.


@dataclass(frozen=True, kw_only=True, eq=False)
class Frontier(TableMixin):
    """Result of :func:`offer_frontier`: the best offer for each size.

    Attributes
    ----------
    sizes
        Maximum numbers of alternatives shown, one for each offer.
    offers
        ``offers[k]`` is the best offer of at most ``sizes[k]`` alternatives.
    """

    sizes: tuple[int, ...]
    offers: tuple[Offer, ...]

    def to_frame(self) -> Any:
        """Return a pandas data frame with a row for each size."""
        both = zip(self.sizes, self.offers, strict=True)
        rows = [{"size": k, "value": o.value, "bound": o.bound, "offer": list(o.labels)} for k, o in both]
        return data_frame(pa.Table.from_pylist(rows))

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Draw the expected revenue against the maximum size of the offer.

        Parameters
        ----------
        ax
            Matplotlib Axes to draw on, or None (the default) to create a new figure.

        Returns
        -------
        Axes
            The matplotlib Axes.
        """
        from pcmcnet.plots.search import draw_offer_frontier

        return draw_offer_frontier(self, ax)

    def _cells(self) -> Cells:
        most = max(offer.value for offer in self.offers)
        rows = [
            [str(size), number(offer.value), percent(offer.value / most), ", ".join(offer.labels)]
            for size, offer in zip(self.sizes, self.offers, strict=True)
        ]
        notes = dict.fromkeys(note for offer in self.offers for note in offer.notes)
        return [["size", "expected revenue", "% of maximum", "offer"], *rows, *(["note", note] for note in notes)]


@suggests_arguments()
def offer_frontier(
    model: ChoiceModel,
    catalogue: Any,
    revenue: Revenue = "revenue",
    *,
    sizes: Sequence[int] = (1, 2, 3, 4, 5, 6),
    constraints: Constraints | None = None,
    **options: Any,
) -> Frontier:
    """Find the best offer for each of several maximum sizes.

    Parameters
    ----------
    model, catalogue, revenue
        Model, catalogue and revenue, as in :func:`optimise_offer`.
    sizes
        Maximum numbers of alternatives shown (1 to 6 by default).
    constraints
        Constraints other than the size (none by default).
    **options
        Further options, passed to :func:`optimise_offer`.

    Returns
    -------
    Frontier
        The best offer for each size.

    Raises
    ------
    InputError
        If the constraints limit the size, ``sizes`` is empty, or :func:`optimise_offer` raises InputError.
    """
    limits = constraints or Constraints()
    if limits.size is not None:
        raise InputError(
            "constraints: expected no size, because the frontier varies the size: pass sizes=[...] instead."
        )
    if not sizes:
        raise InputError("sizes: expected at least one size.")
    every = [replace(limits, size=size) for size in sizes]
    offers = [optimise_offer(model, catalogue, revenue, constraints=limited, **options) for limited in every]
    return Frontier(sizes=tuple(sizes), offers=tuple(offers))
