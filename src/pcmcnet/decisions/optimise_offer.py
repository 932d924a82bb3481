"""Which alternatives to offer: the offer with the largest expected revenue, with a bound on what any offer could earn.

Every search begins with local search from several offers. What proves the best one depends on the model:

    chains and mixtures of them    branch and bound, chain_offers.py
    a logit                        Dinkelbach's method, logit_offers.py
    a mixture of logits            branch and bound, logit_mixture_offers.py, or an integer program, logit_offers.py
    a nested logit of one level    revenue by revenue in each nest, nested_offers.py
    any other model                nothing: the offer is called heuristic, and its bound is the largest revenue

The members of an ensemble say what is not known from the data. Its mean is optimised as a mixture. With ``risk`` it is
the mean over the worst members for each offer (conditional value at risk) by local search; the bound of the mean holds
for it, too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pcmcnet.arrays import Bools, Floats, Ints
from pcmcnet.checks import require_number
from pcmcnet.decisions.catalogue import Catalogue
from pcmcnet.decisions.chain_offers import best_chain_offer
from pcmcnet.decisions.constraints import Constraints, Rows, rows_of
from pcmcnet.decisions.local_search import climb, starting_offers
from pcmcnet.decisions.logit_mixture_offers import best_mixture_offer
from pcmcnet.decisions.logit_offers import best_logit_mixture_offer, best_logit_offer
from pcmcnet.decisions.nested_offers import NestedLogits, best_nested_offer
from pcmcnet.decisions.offer import Offer
from pcmcnet.decisions.offer_value import Chains, Logits, OfferValue, earned
from pcmcnet.decisions.search import PROVEN, Search
from pcmcnet.decisions.structure import fixed_draws, structure_of
from pcmcnet.errors import InputError
from pcmcnet.models import ChoiceModel

_STARTS = 8  # local searches
_SMALL = 1_000  # logits times alternatives up to which constraints are left to an integer program
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

    Returns
    -------
    Offer

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
    offered = Catalogue.read(model.schema, catalogue, individual, outside)
    if len(offered.sets) != 1:
        raise InputError(f"individual: expected one, got {len(offered.sets)}; optimise_offers takes many.")
    rows = rows_of(constraints or Constraints(), offered.labels, offered.columns, offered.outside)
    rows.require_possible()
    value = structure_of(model, offered.sets, offered.numbers(revenue, "revenue"))
    now = None if current is None else offered.offer(current)
    members = [structure_of(m, offered.sets, value.revenue) for m in getattr(model, "members_", [])]
    goal = _mean(value) if risk is None else _tail(members, risk)
    local = _climbed(goal, rows, value.revenue, now, np.random.default_rng(seed))
    deadline = started + time_limit
    found = prove(value, rows, local.offer, deadline=deadline)
    if risk is not None:  # the bound of the mean holds for the worst members, too
        found = local._replace(bound=found.bound, nodes=found.nodes)
    offer = replace(_offer(value, found, offered, time.monotonic() - started), draws=fixed_draws(model))
    if members:
        offer = replace(offer, best_for=_best_for(members, rows, found.offer, deadline))
    return offer if now is None else _compared(offer, offered, goal, now, found.offer)


def _climbed(goal: Goal, rows: Rows, revenue: Floats, now: Bools | None, rng: np.random.Generator) -> Search:
    """Return the best offer of several local searches, one of which begins with the current offer."""
    starts = starting_offers(rows, revenue, _STARTS, rng)
    if now is not None and rows.allow(now[None])[0]:
        starts = np.concatenate([starts, now[None]])
    offers, values = climb(goal, rows, starts)
    return Search(offers[values.argmax()], float(values.max()), np.inf, 0)


def _mean(value: OfferValue) -> Goal:
    """Return the expected revenue, for the one individual that there is."""
    return lambda offers, _: earned(value, offers)


def _tail(members: list[OfferValue], risk: float) -> Goal:
    """Return the mean revenue over the worst members."""
    require_number("risk", risk, low=0, high=1, open_low=True)
    if not members:
        raise InputError("risk is about the members of an ensemble: fit Ensemble(model, n), or leave it out.")
    worst = math.ceil(risk * len(members))

    def goal(offers: Bools, _: Ints) -> Floats:
        mean: Floats = np.sort([earned(member, offers) for member in members], axis=0)[:worst].mean(axis=0)
        return mean

    return goal


def _best_for(members: list[OfferValue], rows: Rows, offer: Bools, deadline: float) -> float:
    """Return the share of members for whom the search finds no better offer."""
    own = [prove(member, rows, offer, deadline=deadline) for member in members]
    values = [float(earned(member, offer[None])[0]) for member in members]
    return float(np.mean([value >= best.value * (1 - PROVEN) for value, best in zip(values, own, strict=True)]))


def _compared(offer: Offer, offered: Catalogue, goal: Goal, now: Bools, then: Bools) -> Offer:
    """Say what changes relative to the current offer."""
    names = np.array(offered.labels)
    value = float(goal(now[None], np.zeros(1, np.int64))[0])
    return replace(
        offer, added=tuple(names[then & ~now].tolist()), dropped=tuple(names[now & ~then].tolist()), current_value=value
    )


def prove(value: OfferValue, rows: Rows, start: Bools, *, deadline: float) -> Search:
    """Improve on an offer, and bound what any offer can earn."""
    if isinstance(value, Chains):
        return best_chain_offer(value, rows, start, stop=lambda: time.monotonic() > deadline)
    if isinstance(value, Logits) and value.weights.shape[1] == 1:
        return best_logit_offer(value, rows, start)
    if isinstance(value, Logits):
        if value.attraction[0].size <= _SMALL and len(rows.sizes()[2].upper):
            return best_logit_mixture_offer(value, rows, start, seconds=max(deadline - time.monotonic(), 0.1))
        return best_mixture_offer(value, rows, start, stop=lambda: time.monotonic() > deadline)
    if isinstance(value, NestedLogits):
        return best_nested_offer(value, rows, start)
    best = float(earned(value, start[None])[0])
    return Search(start, best, max(best, float(value.revenue[~rows.never].max())), 0)


def _offer(value: OfferValue, found: Search, offered: Catalogue, seconds: float) -> Offer:
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
        exact=found.gap < PROVEN,
        nodes=found.nodes,
        seconds=seconds,
    )
