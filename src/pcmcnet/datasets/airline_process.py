"""How simulated airline customers choose: two segments, utilities and context, in closed form.

There are two segments, business and leisure, whose shares depend on the individual:

    p(i | S, I) = pi(I) p_business(i | S) + (1 - pi(I)) p_leisure(i | S),
    pi(I) = logistic(1.2 - 3 staySaturday - 1.2 (log(1 + dtd) - 2.5) + 0.8 [Monday to Thursday] + 0.5 isDomestic
                     + 0.5 isContinental + 0.8 sin(number of the office)).

Within segment c, p_c(i | S) is proportional to exp(U_ci), where U_ci is utility and context,

    U_ci = - b_c log price_i - d_c log duration_i - k_c (nFlights_i - 2) - m_c (nAirlines_i - 1)
           + t_c cos(2 pi (hour_i - h_c) / 24) + q_c quality(airline_i)
           + attraction_c log(1 + sum_{j != i} D_ij) - dominance_c log(1 + sum_{j != i} D_ji)
           - similarity_c log(sum_j N_ij),

with the coefficients of ``SEGMENTS``, hour_i of outbound departure, and for airline number k quality =
3 frac(0.618034 k) - 1.5. With dx, dy and dz what j exceeds i by in log price, log duration and hour, the two
relations between alternatives are

    D_ij = logistic(dx / 0.12) logistic(dy / 0.12) exp(-((dx^2 + dy^2) / 0.7^2 + dz^2 / 6^2) / 2),
    N_ij = exp(-((dx^2 + dy^2) / 0.35^2 + dz^2 / 4^2) / 2).

D_ij is close to 1 where i is both cheaper and shorter than a j in its vicinity: such a j draws choices to i
(attraction) and is itself passed over. N_ij is 1 for a copy and 0 for anything unlike: near duplicates take from each
other more than from others (similarity). Log price makes preferences relative: a search in which all prices double
is the same.

Shapes: columns (N,) of all alternatives, set after set -> probabilities (N,).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data.ragged import log_softmax_by_set, spread

__all__ = ["SEGMENTS", "Segment", "business_share", "mixture"]

Arrays = Mapping[str, NDArray[Any]]  # columns by name, words as codes from 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """Coefficients of one segment, all of them 0 or above; the module's formulas say what each is of."""

    price: float
    duration: float
    connection: float
    airline_change: float
    time: float
    hour: float
    quality: float
    attraction: float
    dominance: float
    similarity: float


SEGMENTS = {
    "business": Segment(
        price=2.0,
        duration=4.5,
        connection=0.8,
        airline_change=0.4,
        time=1.5,
        hour=8.0,
        quality=0.9,
        attraction=1.0,
        dominance=1.2,
        similarity=0.3,
    ),
    "leisure": Segment(
        price=7.0,
        duration=2.0,
        connection=0.4,
        airline_change=0.1,
        time=0.6,
        hour=12.0,
        quality=0.4,
        attraction=1.0,
        dominance=1.2,
        similarity=0.3,
    ),
}
"""Who chooses how."""

CLEAR, VICINITY, VICINITY_HOURS = 0.12, 0.7, 6.0
NEAR, NEAR_HOURS = 0.35, 4.0
CHUNK = 1 << 17  # pairs in one temporary array, small enough for the cache


def mixture(who: Arrays, what: Arrays, offsets: Ints) -> Floats:
    """Mix the segments' laws: individuals (S,), itineraries (N,), codes for words -> (N,)."""
    attracts, dominated, alike = _relations(what, offsets)
    share = spread(business_share(who), offsets)
    hour = what["outDepTime"] / 3600
    quality = 3 * np.modf(0.618034 * (what["airlines"] + 1))[0] - 1.5
    p = np.zeros(len(hour))
    for weight, c in ((share, SEGMENTS["business"]), (1 - share, SEGMENTS["leisure"])):
        utility = (
            -c.price * np.log(what["totalPrice"])
            - c.duration * np.log(what["totalTripDurationMinutes"])
            - c.connection * (what["nFlights"] - 2)
            - c.airline_change * (what["nAirlines"] - 1)
            + c.time * np.cos(2 * np.pi * (hour - c.hour) / 24)
            + c.quality * quality
        )
        context = c.attraction * attracts - c.dominance * dominated - c.similarity * alike
        p += weight * np.exp(log_softmax_by_set(utility + context, offsets))
    return p


def business_share(who: Arrays) -> Floats:  # (S,)
    """Evaluate pi(I)."""
    score = (
        1.2
        - 3.0 * who["staySaturday"]
        - 1.2 * (np.log1p(who["dtd"]) - 2.5)
        + 0.8 * (who["depWeekDay"] <= 3)
        + 0.5 * who["isDomestic"]
        + 0.5 * who["isContinental"]
        + 0.8 * np.sin(who["officeID"] + 1)
    )
    share: Floats = 1 / (1 + np.exp(-score))
    return share


def _relations(what: Arrays, offsets: Ints) -> tuple[Floats, Floats, Floats]:
    """Sum the relations over a set's pairs: log(1 + sum D_ij), log(1 + sum D_ji), log(sum N_ij), each (N,).

    Sets of one size are a block without padding, so that a set's company does not change its last bit.
    """
    place = np.stack([np.log(what["totalPrice"]), np.log(what["totalTripDurationMinutes"]), what["outDepTime"] / 3600])
    sums = np.zeros((3, place.shape[1]))
    sizes = np.diff(offsets)
    for n in np.unique(sizes):
        first = offsets[:-1][sizes == n]
        step = max(1, CHUNK // (n * n))
        for start in range(0, len(first), step):
            rows = first[start : start + step, None] + np.arange(n)
            sums[:, rows] = _pairs(*place[:, rows])
    return np.log1p(sums[0]), np.log1p(sums[1]), np.log(sums[2])


def _pairs(x: Floats, y: Floats, z: Floats) -> Floats:  # (S, n) each -> (3, S, n)
    """Sum D_ij, D_ji and N_ij over j; D over the others, N over all."""
    dx, dy, dz = (v[:, None, :] - v[:, :, None] for v in (x, y, z))  # (S, i, j)
    squared, hours = dx * dx + dy * dy, dz * dz
    with np.errstate(over="ignore"):  # an infinite denominator is a relation of 0
        clear = (1 + np.exp(-dx / CLEAR)) * (1 + np.exp(-dy / CLEAR))
    dominates = np.exp(-0.5 * (squared / VICINITY**2 + hours / VICINITY_HOURS**2)) / clear
    near = np.exp(-0.5 * (squared / NEAR**2 + hours / NEAR_HOURS**2))
    own = np.arange(x.shape[1])
    dominates[:, own, own] = 0
    return np.stack([dominates.sum(axis=2), dominates.sum(axis=1), near.sum(axis=2)])
