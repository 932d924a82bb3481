"""Simulated airline itinerary choices with known probabilities, and the size, columns and ranges of the paper's table.

Each individual belongs to one of two segments, business or leisure, with probabilities that depend on the individual's
features. The segments have preferences for price, duration, connections, time of day and airline, and show context
effects (attraction and similarity). The simulator draws individuals, and the itineraries that each individual's search
returns::

    table = airline.simulate(5_000, seed=0)
    data = ChoiceData.from_long(table, **airline.ROLES)

Shapes: columns (N,) of all alternatives, sorted by set -> probabilities (N,).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pcmcnet.arrays import Floats, Ints
from pcmcnet.data.columns.ragged import log_softmax_by_set, spread
from pcmcnet.data.files.tabular import read_table
from pcmcnet.datasets.truth import BestNLL, best_nll, contiguous_offsets, require_seed, require_sets, sample
from pcmcnet.errors import InputError, such_rows

__all__ = ["RANGES", "ROLES", "SEGMENTS", "SIZE", "Segment"]
__all__ += ["best_possible_nll", "business_share", "probabilities", "simulate"]

# -- Choice probabilities ----------------------------------------------------------------------------------------------
# The probabilities are a mixture over the two segments:
#
#     p(i | S, I) = pi(I) p_business(i | S) + (1 - pi(I)) p_leisure(i | S),
#     pi(I) = logistic(1.2 - 3 staySaturday - 1.2 (log(1 + dtd) - 2.5) + 0.8 [Monday to Thursday] + 0.5 isDomestic
#                      + 0.5 isContinental + 0.8 sin(number of the office)).
#
# Within segment c, p_c(i | S) is proportional to exp(U_ci), where U_ci is utility and context,
#
#     U_ci = - b_c log price_i - d_c log duration_i - k_c (nFlights_i - 2) - m_c (nAirlines_i - 1)
#            + t_c cos(2 pi (hour_i - h_c) / 24) + q_c quality(airline_i)
#            + attraction_c log(1 + sum_{j != i} D_ij) - dominance_c log(1 + sum_{j != i} D_ji)
#            - similarity_c log(sum_j N_ij),
#
# with the coefficients of `SEGMENTS`, the hour_i of outbound departure, and quality = 3 frac(0.618034 k) - 1.5 of
# airline number k. With dx, dy and dz the differences of j from i in log price, log duration and hour, the two
# relations between alternatives are
#
#     D_ij = logistic(dx / 0.12) logistic(dy / 0.12) exp(-((dx^2 + dy^2) / 0.7^2 + dz^2 / 6^2) / 2),
#     N_ij = exp(-((dx^2 + dy^2) / 0.35^2 + dz^2 / 4^2) / 2).
#
# D_ij is close to 1 if i is both cheaper and shorter than a nearby j: such a j attracts choices to i (attraction) and
# is itself rarely chosen. N_ij is 1 for a copy and 0 for a very different itinerary: near duplicates take choices
# mainly from each other (similarity). Log prices make preferences relative: doubling all prices of a search changes
# nothing.

Arrays = Mapping[str, NDArray[Any]]  # columns by name; texts are codes from 0


@dataclass(frozen=True, slots=True)
class Segment:
    """Non-negative utility coefficients of one segment; ``hour`` is the preferred departure hour."""

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
    "business": Segment(2.0, 4.5, 0.8, 0.4, 1.5, 8.0, 0.9, 1.0, 1.2, 0.3),
    "leisure": Segment(7.0, 2.0, 0.4, 0.1, 0.6, 12.0, 0.4, 1.0, 1.2, 0.3),
}
"""Utility coefficients of each segment."""

CLEAR, VICINITY, VICINITY_HOURS = 0.12, 0.7, 6.0  # scales of D_ij
NEAR, NEAR_HOURS = 0.35, 4.0  # scales of N_ij
PAIRS_PER_CHUNK = 1 << 17  # pairs in one temporary array, small enough for the cache


def mixture(individuals: Arrays, itineraries: Arrays, offsets: Ints) -> Floats:
    """Return the choice probabilities (N,) of itineraries for individuals (S,), with text columns given as codes."""
    attracts, dominated, alike = _relations(itineraries, offsets)
    share = spread(segment_share(individuals), offsets)
    hour = itineraries["outDepTime"] / 3600
    quality = 3 * np.modf(0.618034 * (itineraries["airlines"] + 1))[0] - 1.5
    p = np.zeros(len(hour))
    for weight, c in ((share, SEGMENTS["business"]), (1 - share, SEGMENTS["leisure"])):
        utility = (
            -c.price * np.log(itineraries["totalPrice"])
            - c.duration * np.log(itineraries["totalTripDurationMinutes"])
            - c.connection * (itineraries["nFlights"] - 2)
            - c.airline_change * (itineraries["nAirlines"] - 1)
            + c.time * np.cos(2 * np.pi * (hour - c.hour) / 24)
            + c.quality * quality
        )
        context = c.attraction * attracts - c.dominance * dominated - c.similarity * alike
        p += weight * np.exp(log_softmax_by_set(utility + context, offsets))
    return p


def segment_share(individuals: Arrays) -> Floats:  # (S,)
    """Return pi(I), the probability that each individual belongs to the business segment."""
    score = (
        1.2
        - 3.0 * individuals["staySaturday"]
        - 1.2 * (np.log1p(individuals["dtd"]) - 2.5)
        + 0.8 * (individuals["depWeekDay"] <= 3)
        + 0.5 * individuals["isDomestic"]
        + 0.5 * individuals["isContinental"]
        + 0.8 * np.sin(individuals["officeID"] + 1)
    )
    share: Floats = 1 / (1 + np.exp(-score))
    return share


def _relations(itineraries: Arrays, offsets: Ints) -> tuple[Floats, Floats, Floats]:
    """Return log(1 + sum_j D_ij), log(1 + sum_j D_ji) and log(sum_j N_ij), each of shape (N,).

    Sets of equal size are computed in blocks without padding, so that the results for a set are bit-for-bit independent
    of the other sets.
    """
    position = np.stack(
        [
            np.log(itineraries["totalPrice"]),
            np.log(itineraries["totalTripDurationMinutes"]),
            itineraries["outDepTime"] / 3600,
        ]
    )
    sums = np.zeros((3, position.shape[1]))
    sizes = np.diff(offsets)
    for n in np.unique(sizes):
        first = offsets[:-1][sizes == n]
        step = max(1, PAIRS_PER_CHUNK // (n * n))
        for start in range(0, len(first), step):
            rows = first[start : start + step, None] + np.arange(n)
            sums[:, rows] = _sum_over_pairs(*position[:, rows])
    return np.log1p(sums[0]), np.log1p(sums[1]), np.log(sums[2])


def _sum_over_pairs(x: Floats, y: Floats, z: Floats) -> Floats:  # (S, n) each -> (3, S, n)
    """Return the sums of D_ij and D_ji over all j != i, and the sum of N_ij over all j."""
    dx, dy, dz = (v[:, None, :] - v[:, :, None] for v in (x, y, z))  # (S, i, j)
    squared, hours = dx * dx + dy * dy, dz * dz
    with np.errstate(over="ignore"):  # an infinite denominator gives D_ij = 0
        clear = (1 + np.exp(-dx / CLEAR)) * (1 + np.exp(-dy / CLEAR))
    dominates = np.exp(-0.5 * (squared / VICINITY**2 + hours / VICINITY_HOURS**2)) / clear
    near = np.exp(-0.5 * (squared / NEAR**2 + hours / NEAR_HOURS**2))
    i = np.arange(x.shape[1])
    dominates[:, i, i] = 0
    return np.stack([dominates.sum(axis=2), dominates.sum(axis=1), near.sum(axis=2)])


# -- Individuals and itineraries ---------------------------------------------------------------------------------------
# The table has the columns and ranges of the paper's airline data (its table 4). A fixed world has 97
# origin-destination pairs (24 domestic, 51 continental, 22 intercontinental), each with a distance, a time difference
# and 8 of the 63 airlines. Each of these airlines flies 6 times a day in both directions. A search draws from it:
#
# - the individual: a pair by popularity; the home office of the pair in 7 of 10 cases; a trip for work or for leisure,
#   which decides days to departure, weekday and nights away but is not a column; staySaturday follows from the days;
# - 8 offers, each of one airline, with connections on both ways and a price. The price depends on distance, days to
#   departure, airline, connections and a log-normal factor, so prices have a long right tail;
# - the itineraries: an offer, one of 6 departures and one of 6 returns. The search returns n of these 288, cheapest
#   first. Many departures of an offer have the same price, others a higher one: near copies and dominated itineraries
#   are frequent, as in a real list of flights.
#
# n is 50 for 30 % of searches, 1 for 1 %, and uniform on 2..49 for the others: mean 32.6, mean log n 3.24. Shapes:
# world (O, K, F) for pairs, airlines of a pair and flights of a day; searches (S,); itineraries (N,).

PAIRS = tuple(f"OD{i:02d}" for i in range(1, 98))
OFFICES = tuple(f"OF{i:02d}" for i in range(1, 12))
AIRLINES = tuple(f"AL{i:02d}" for i in range(1, 64))

RANGES = {
    "depWeekDay": (0, 6),
    "staySaturday": (0, 1),
    "isContinental": (0, 1),
    "isDomestic": (0, 1),
    "dtd": (0, 343),
    "totalPrice": (77.15, 16781.5),
    "stayDurationMinutes": (121, 434000),
    "totalTripDurationMinutes": (105, 4314),
    "nFlights": (2, 6),
    "nAirlines": (1, 4),
    "outDepTime": (0, 84000),
    "outArrTime": (0, 84000),
}
"""Minimum and maximum of each numeric column in the paper's table."""

ROLES: dict[str, Any] = {
    "choice_set": "individual",
    "chosen": "choice",
    "alternative": None,  # the column is a position in the list, not a label
    "individual": ["OD", "officeID", "depWeekDay", "staySaturday", "isContinental", "isDomestic", "dtd"],
    "features": [
        *("airlines", "totalPrice", "stayDurationMinutes", "totalTripDurationMinutes"),
        *("nFlights", "nAirlines", "outDepTime", "outArrTime"),
    ],
    "categorical": ["OD", "officeID", "airlines"],
}
"""Keyword arguments of ``ChoiceData.from_long`` for the simulated table."""

CARRIERS, FLIGHTS, OFFERS = 8, 6, 8  # airlines of a pair, their flights a day, offers of a search
MAX_SIZE, FULL, SINGLE = 50, 0.30, 0.01  # largest set; share of sets of that size, and of sets of one alternative
DAY = 1440  # minutes
LAST_LANDING = RANGES["outArrTime"][1] // 60  # 23:20 in minutes: later arrivals are delayed to midnight
SEARCHES_PER_CHUNK = 2048  # searches whose 288 itineraries are ranked at a time


@dataclass(frozen=True, slots=True)
class World:
    """Inputs shared by all tables: origin-destination pairs (O,), airlines (O, K), flights and waits (O, K, F)."""

    domestic: NDArray[np.bool_]
    continental: NDArray[np.bool_]
    distance: Floats  # km
    shift: Ints  # time difference, minutes
    popularity: Floats
    airline: Ints
    departure: Ints  # outbound, minutes from midnight
    back: Ints  # return departure, minutes from midnight
    wait: Ints  # at an outbound connection, minutes
    wait_back: Ints  # at a return connection, minutes


@dataclass(frozen=True, slots=True)
class Searches:
    """Columns of individuals (S,), columns of itineraries (N,) sorted by choice set, and offsets (S + 1,)."""

    individuals: dict[str, NDArray[Any]]
    itineraries: dict[str, NDArray[Any]]
    offsets: Ints


@cache
def world() -> World:
    """Draw the inputs that all simulated tables share, from a fixed seed."""
    rng = np.random.default_rng(33_951)
    n = len(PAIRS)
    kind = rng.permutation(np.repeat([0, 1, 2], [24, 51, 22]))  # domestic, continental, intercontinental
    low, high = np.array([250, 450, 3500])[kind], np.array([900, 3200, 11000])[kind]
    popularity = 1 / (8 + rng.permutation(n))  # the rarest pair gets 1 search in 270
    fame = 1 / (3.0 + np.arange(len(AIRLINES)))
    airline = np.empty((n, CARRIERS), dtype=np.int64)
    for o in range(n):  # the last airline of pair o is number o: every airline serves some pair
        chance = np.where(np.arange(len(AIRLINES)) == o % len(AIRLINES), 0, fame)
        airline[o] = [*rng.choice(len(AIRLINES), CARRIERS - 1, False, chance / chance.sum()), o % len(AIRLINES)]
    shape = (n, CARRIERS, FLIGHTS)
    return World(
        domestic=kind == 0,
        continental=kind == 1,
        distance=np.exp(rng.uniform(np.log(low), np.log(high))),
        shift=np.where(kind == 2, rng.integers(-8, 9, n) * 60, 0),
        popularity=popularity / popularity.sum(),
        airline=airline,
        departure=np.sort(rng.integers(66, 264, shape) * 5),  # 05:30 to 21:55
        back=np.sort(rng.integers(66, 264, shape) * 5),
        wait=rng.integers(9, 60, shape) * 5,  # 45 to 295
        wait_back=rng.integers(9, 60, shape) * 5,
    )


def draw_searches(n_sets: int, rng: np.random.Generator) -> Searches:
    """Draw individuals, and the itineraries that each search returns, cheapest first."""
    pair, nights, individuals = _individuals(n_sets, rng)
    itineraries, offsets = _itineraries(pair, nights, individuals["dtd"], rng)
    return Searches(individuals, itineraries, offsets)


def _individuals(n: int, rng: np.random.Generator) -> tuple[Ints, Ints, dict[str, NDArray[Any]]]:
    """Draw origin-destination pairs (n,), nights away (n,) and the columns of the individuals."""
    w = world()
    pair = rng.choice(len(PAIRS), n, p=w.popularity)
    home = rng.random(n) < 0.7
    office = np.where(home, pair % len(OFFICES), rng.integers(len(OFFICES), size=n))
    far = ~(w.domestic | w.continental)[pair]
    work = rng.random(n) < np.where(far, 0.3, 0.5)
    dtd = np.exp(np.where(work, 1.8, 3.4) + 0.95 * rng.standard_normal(n)).astype(np.int64)
    week = np.array([[0.12, 0.10, 0.11, 0.15, 0.21, 0.19, 0.12], [0.26, 0.22, 0.20, 0.16, 0.06, 0.02, 0.08]])
    day = (rng.random((n, 1)) >= week[work.astype(int)].cumsum(axis=1)[:, :-1]).sum(axis=1)
    stay = np.where(work, rng.geometric(0.45, n) - 1, 2 + np.exp(1.4 + 0.85 * rng.standard_normal(n)))
    least = np.where(w.distance[pair] > 6000, 3, np.where(w.distance[pair] > 1500, 1, 0))
    nights = np.clip(stay * np.where(far, 1.8, 1.0), least, 298).astype(np.int64)
    columns = {
        "OD": pair,
        "officeID": office,
        "staySaturday": (nights > (5 - day) % 7).astype(np.int64),  # the stay includes the night of day 5, a Saturday
        "isContinental": w.continental[pair].astype(np.int64),
        "isDomestic": w.domestic[pair].astype(np.int64),
        "depWeekDay": day,
        "dtd": np.minimum(dtd, RANGES["dtd"][1]),
    }
    return pair, nights, columns


def _offers(pair: Ints, dtd: Ints, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Draw the offers of each search (S, OFFERS): airline, connections per direction, number of airlines, and price."""
    w = world()
    shape = (len(pair), OFFERS)
    share = np.array([0.22, 0.17, 0.15, 0.13, 0.11, 0.09, 0.08, 0.05]).cumsum()
    carrier = (rng.random(shape)[..., None] >= share[:-1]).sum(axis=-1)
    km = w.distance[pair][:, None]
    direct = rng.random(shape) < np.where(carrier < 4, 0.9, 0.4) * np.where(km > 3300, 0.6, 1.0)
    two = rng.random(shape) < np.where(km > 3300, 0.2, 0.06)
    out = np.where(direct, 0, np.where(two, 2, 1))
    turn = rng.random(shape)
    back = np.where(turn < 0.8, out, np.where(turn < 0.9, np.minimum(out + 1, 2), np.maximum(out - 1, 0)))
    airline_effect = 0.12 * np.sin(w.airline[pair[:, None], carrier])  # expensive and cheap airlines
    log_price = (
        np.log(40 + 0.35 * km**0.92)
        + np.log1p(1.1 * np.exp(-dtd / 12))[:, None]
        + airline_effect
        - 0.10 * (out + back)
        + 0.10 * rng.standard_normal((len(pair), 1))
        + 0.22 * rng.standard_normal(shape)
    )
    return {
        "carrier": carrier,
        "out": out,
        "back": back,
        "airlines": np.minimum(1 + rng.binomial(out + back, 0.25), RANGES["nAirlines"][1]),
        "price": np.exp(log_price),
    }


def _fares(n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Draw price factors of departures and returns (S, OFFERS, FLIGHTS): usually 1, or the factor of a higher cabin."""
    shape = (n, OFFERS, FLIGHTS)
    out = np.array([1.0, 1.06, 1.15, 1.35, 3.0])[(rng.random(shape)[..., None] >= [0.5, 0.7, 0.86, 0.97]).sum(-1)]
    out[out == 3.0] *= np.exp(0.4 * rng.standard_normal(int((out == 3.0).sum())))
    back = np.array([1.0, 1.04, 1.12])[(rng.random(shape)[..., None] >= [0.65, 0.85]).sum(-1)]
    return out, back


def _pick(sizes: Ints, rng: np.random.Generator) -> Ints:
    """Draw ``sizes`` distinct itinerary indices for each search, favouring earlier offers: (S,) -> (N,)."""
    weight = np.repeat(0.6 * np.log(0.8) * np.arange(OFFERS), FLIGHTS * FLIGHTS)
    drawn = []
    for start in range(0, len(sizes), SEARCHES_PER_CHUNK):
        n = sizes[start : start + SEARCHES_PER_CHUNK]
        key = -weight - rng.gumbel(size=(len(n), len(weight)))  # the n smallest: a draw without replacement
        drawn.append(np.argsort(key, axis=1)[:, :MAX_SIZE][np.arange(MAX_SIZE) < n[:, None]])
    return np.concatenate(drawn)


def _itineraries(pair: Ints, nights: Ints, dtd: Ints, rng: np.random.Generator) -> tuple[dict[str, NDArray[Any]], Ints]:
    """Draw the itineraries of each search, cheapest first, and the offsets of the searches."""
    w = world()
    # 1. Draw the number of itineraries of each search, its offers, and its itineraries.
    u, between = rng.random(len(pair)), rng.integers(2, MAX_SIZE, len(pair))
    sizes = np.where(u < FULL, MAX_SIZE, np.where(u < FULL + SINGLE, 1, between))
    offers, fares = _offers(pair, dtd, rng), _fares(len(pair), rng)
    offer, out, back = np.unravel_index(_pick(sizes, rng), (OFFERS, FLIGHTS, FLIGHTS))
    # 2. Compute prices, and sort the itineraries of each search by price.
    s = np.repeat(np.arange(len(pair)), sizes)
    price = offers["price"][s, offer] * fares[0][s, offer, out] * fares[1][s, offer, back]
    price = np.clip(price.round(2), *RANGES["totalPrice"])
    order = np.lexsort((price, s))
    s, offer, out, back, price = s[order], offer[order], out[order], back[order], price[order]
    # 3. Compute times and durations of both ways.
    o, k, stops, stops_back = pair[s], *(offers[name][s, offer] for name in ("carrier", "out", "back"))
    arrival, minutes = _flight(w.departure[o, k, out], stops, w.wait[o, k, out], w.shift[o], w.distance[o])
    _, minutes_back = _flight(w.back[o, k, back], stops_back, w.wait_back[o, k, back], -w.shift[o], w.distance[o])
    stay = nights[s] * DAY + w.back[o, k, back] - arrival
    # postpone returns that would start within two hours of landing, or before it, by one or two days
    late = np.maximum(0, -((stay - RANGES["stayDurationMinutes"][0]) // DAY))
    itineraries = {
        "stayDurationMinutes": np.minimum(stay + late * DAY, RANGES["stayDurationMinutes"][1]),
        "totalPrice": price,
        "totalTripDurationMinutes": np.clip(minutes + minutes_back, *RANGES["totalTripDurationMinutes"]),
        "nAirlines": offers["airlines"][s, offer],
        "nFlights": 2 + stops + stops_back,
        "outDepTime": w.departure[o, k, out] * 60,
        "outArrTime": arrival % DAY * 60,
        "airlines": w.airline[o, k],
    }
    return itineraries, np.concatenate([[0], sizes.cumsum()])


def _flight(departure: Ints, stops: Ints, wait: Ints, shift: Ints, km: Floats) -> tuple[Ints, Ints]:
    """Return the arrival (local time since midnight of the first day) and duration of a one-way trip, in minutes."""
    minutes = np.rint((33 + km / 13.5 * (1 + 0.12 * stops)) / 5).astype(np.int64) * 5 + stops * (40 + wait)
    arrival = departure + minutes + shift
    curfew = np.where(arrival % DAY > LAST_LANDING, DAY - arrival % DAY, 0)
    return arrival + curfew, minutes + curfew


# -- Public functions --------------------------------------------------------------------------------------------------

SIZE = 33_951
"""Number of choice sets in the paper's table."""

TEXT_VALUES = {"airlines": AIRLINES, "officeID": OFFICES}
INDIVIDUAL = ("officeID", "staySaturday", "isContinental", "isDomestic", "depWeekDay", "dtd")
ITINERARY = ("airlines", "totalPrice", "totalTripDurationMinutes", "nFlights", "nAirlines", "outDepTime")


def probabilities(table: Any) -> Floats:
    """Compute the simulator's true choice probabilities for a table of itineraries.

    Parameters
    ----------
    table : path, mapping of arrays, or data frame
        One row per itinerary; the rows of a search must be adjacent. The table has the columns individual, officeID,
        staySaturday, isContinental, isDomestic, depWeekDay, dtd, airlines, totalPrice, totalTripDurationMinutes,
        nFlights, nAirlines and outDepTime; other columns are ignored.

    Returns
    -------
    array of float, (rows,)
        Choice probabilities, which sum to 1 within each search.

    Raises
    ------
    InputError
        If a column is missing or has invalid values, if an airline or office is unknown, or if the rows of a search are
        not adjacent. Prices and durations must be positive, and other numbers must be finite.
    """
    columns = _read(table, ("individual", *INDIVIDUAL, *ITINERARY))
    offsets = contiguous_offsets(columns["individual"], column="individual")
    individuals = {name: columns[name][offsets[:-1]] for name in INDIVIDUAL}
    return mixture(individuals, columns, offsets)


def business_share(table: Any) -> Floats:
    """Compute the probability that each individual belongs to the business segment.

    Parameters
    ----------
    table : path, mapping of arrays, or data frame
        One row per individual, with columns officeID, staySaturday, isContinental, isDomestic, depWeekDay and dtd.

    Returns
    -------
    array of float, (rows,)

    Raises
    ------
    InputError
        If a column is missing or contains values that are not finite, or if an office is unknown.

    Examples
    --------
    >>> search = {"officeID": ["OF01"] * 2, "isContinental": [1, 1], "isDomestic": [0, 0], "depWeekDay": [0, 5]}
    >>> business_share({**search, "staySaturday": [0, 1], "dtd": [3, 60]}).round(3)
    array([0.989, 0.072])
    """
    return segment_share(_read(table, INDIVIDUAL))


def simulate(sets: int = SIZE, *, seed: int) -> pa.Table:
    """Simulate airline searches with one choice each, and the true probabilities as a column.

    Parameters
    ----------
    sets : int
        Number of choice sets, at least 1. Default 33,951, as in the paper's table.
    seed : int
        Seed of the random number generator, at least 0. The same seed gives the same table.

    Returns
    -------
    pyarrow.Table
        Long table with the columns of the paper's airline data and true_prob. ``ROLES`` lists the roles of the columns.

    Raises
    ------
    ConfigError
        If ``sets`` or ``seed`` is not an integer in the valid range.
    """
    n_sets, rng = require_sets(sets), np.random.default_rng(require_seed(seed))
    searches = draw_searches(n_sets, rng)
    p = mixture(searches.individuals, searches.itineraries, searches.offsets)
    choice = np.zeros(len(p), np.int8)
    choice[sample(p, searches.offsets, rng)] = 1
    return _table(searches, choice, p)


def best_possible_nll(table: pa.Table) -> BestNLL:
    """Compute the NLL of a simulated table's true probabilities, a bound that no model can beat on average.

    Parameters
    ----------
    table : pyarrow.Table
        A table returned by ``simulate``.

    Returns
    -------
    BestNLL
        The expected NLL (the mean entropy of the true probabilities), and the NLL of the choices in the table.
    """
    return best_nll(table, choice_set="individual", chosen="choice")


def _table(searches: Searches, choice: NDArray[np.int8], p: Floats) -> pa.Table:
    """Return the simulated table, with columns in the order of the paper's files."""
    offsets, individuals, itineraries = searches.offsets, searches.individuals, searches.itineraries
    sets = np.arange(len(offsets) - 1)

    def individual(name: str) -> NDArray[np.int32]:
        return spread(individuals[name].astype(np.int32), offsets)

    def text(codes: NDArray[Any], values: tuple[str, ...]) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int8)), list(values)).cast(pa.string())

    numbers = ("stayDurationMinutes", "totalPrice", "totalTripDurationMinutes", "nAirlines", "nFlights")
    return pa.table(
        {
            "individual": spread(sets.astype(np.int32), offsets),
            "alternative": (np.arange(len(p)) - spread(offsets[:-1], offsets)).astype(np.int32),
            "choice": choice,
            "OD": text(individual("OD"), PAIRS),
            "officeID": text(individual("officeID"), OFFICES),
            **{name: individual(name) for name in ("staySaturday", "isContinental", "isDomestic", "depWeekDay", "dtd")},
            **{
                name: itineraries[name] if name == "totalPrice" else itineraries[name].astype(np.int32)
                for name in (*numbers, "outDepTime", "outArrTime")
            },
            "airlines": text(itineraries["airlines"], AIRLINES),
            "true_prob": p,
        }
    )


def _read(table: Any, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """Return the columns as arrays, with text values encoded as integers, or raise InputError for invalid values."""
    arrow = read_table(table, names)
    columns = {}
    for name in names:
        values = arrow[name].combine_chunks()
        read = _codes if name in TEXT_VALUES else _numbers
        columns[name] = values.to_numpy(zero_copy_only=False) if name == "individual" else read(values, name)
    return columns


def _codes(values: pa.Array, name: str) -> NDArray[Any]:
    """Return the integer code of each text value, or raise InputError if a value is unknown."""
    texts = TEXT_VALUES[name]
    codes = pc.index_in(values.cast(pa.string()), value_set=pa.array(texts))
    if codes.null_count:
        row = int(np.flatnonzero(codes.is_null().to_numpy(zero_copy_only=False))[0])
        raise InputError(
            f"column {name!r}, row {row}: expected one of {texts[0]} to {texts[-1]}, got {values[row].as_py()!r}; "
            f"{such_rows(codes.null_count)}."
        )
    return np.asarray(codes.to_numpy(), dtype=np.int64)


def _numbers(values: pa.Array, name: str) -> Floats:
    """Return a column as float64. Raise InputError unless all values are finite, and positive if their log is used."""
    positive = name in ("totalPrice", "totalTripDurationMinutes")
    expected = "a finite number" + (" above 0" if positive else "")
    try:
        numbers: Floats = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"column {name!r}: expected numbers, got {values.type}. Convert or drop it.") from error
    bad = np.flatnonzero(~np.isfinite(numbers) | (positive & (numbers <= 0)))
    if bad.size:
        raise InputError(
            f"column {name!r}, row {bad[0]}: expected {expected}, got {numbers[bad[0]]}; {such_rows(bad.size)}. "
            "Drop these searches."
        )
    return numbers
