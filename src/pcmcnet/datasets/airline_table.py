"""The columns of simulated airline searches: who asks, and what the search returns.

The table has the columns and ranges of the paper's airline data (its table 4). A world that never changes holds 97
origin-destination pairs (24 domestic, 51 continental, 22 intercontinental), each with a distance, a time shift and 8
of the 63 airlines, each of which flies 6 times a day in either direction. A search draws from it:

- the individual: a pair by popularity; its home office in 7 of 10 cases; a trip for work or for leisure, which
  decides days to departure, weekday and nights away, and which no column tells; staySaturday follows from the days;
- 8 offers, each of one airline, with its connections either way and a price: distance, days to departure, airline,
  connections and a log-normal factor, so that prices have a long right tail;
- the itineraries: an offer, one of 6 departures, one of 6 returns. The search returns n different ones of these 288,
  cheapest first. Departures of an offer often share its price, others cost a step more: near copies and dominated
  itineraries abound, as in a real list of flights.

n is 50 for 30 % of searches, 1 for 1 %, uniform on 2..49 for the others: mean 32.6, mean log n 3.24.
Shapes: world (O, K, F) for pairs, airlines of a pair and flights of a day; searches (S,); itineraries (N,).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcmcnet.arrays import Floats, Ints

__all__ = ["AIRLINES", "OFFICES", "PAIRS", "RANGES", "ROLES", "Searches", "draw_searches"]


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
"""Least and greatest value of each numeric column, as in the paper."""

ROLES: dict[str, Any] = {
    "choice_set": "individual",
    "chosen": "choice",
    "alternative": None,  # a position in the list, not an itinerary that returns in other sets
    "individual": ["OD", "officeID", "depWeekDay", "staySaturday", "isContinental", "isDomestic", "dtd"],
    "features": [
        "airlines",
        "totalPrice",
        "stayDurationMinutes",
        "totalTripDurationMinutes",
        "nFlights",
        "nAirlines",
        "outDepTime",
        "outArrTime",
    ],
    "categorical": ["OD", "officeID", "airlines"],
}
"""Keyword arguments of ``ChoiceData.from_long`` for the table."""

CARRIERS, FLIGHTS, OFFERS = 8, 6, 8  # airlines of a pair, their flights a day, offers of a search
LARGEST, FULL, SINGLE = 50, 0.30, 0.01  # largest set; share of sets that large, and of one alternative
DAY = 1440  # minutes
LAST_LANDING = RANGES["outArrTime"][1] // 60  # 23:20: who would land later lands at midnight
CHUNK = 2048  # searches whose 288 itineraries are ranked at once


@dataclass(frozen=True, slots=True)
class World:
    """What every table has in common: pairs (O,), their airlines (O, K), flights and waits (O, K, F)."""

    domestic: NDArray[np.bool_]
    continental: NDArray[np.bool_]
    distance: Floats  # km
    shift: Ints  # minutes that clocks differ
    popularity: Floats
    airline: Ints
    departure: Ints  # minutes from midnight
    back: Ints
    wait: Ints  # minutes at a connection, on the way out
    wait_back: Ints


@dataclass(frozen=True, slots=True)
class Searches:
    """Individuals (S,) and itineraries (N,), set after set, by column; offsets (S + 1,)."""

    individuals: dict[str, NDArray[Any]]
    itineraries: dict[str, NDArray[Any]]
    offsets: Ints


@cache
def world() -> World:
    """Make the world, from a seed of its own."""
    rng = np.random.default_rng(33_951)
    n = len(PAIRS)
    kind = rng.permutation(np.repeat([0, 1, 2], [24, 51, 22]))  # domestic, continental, intercontinental
    low, high = np.array([250, 450, 3500])[kind], np.array([900, 3200, 11000])[kind]
    popularity = 1 / (8 + rng.permutation(n))  # the rarest pair has 1 search in 270
    fame = 1 / (3.0 + np.arange(len(AIRLINES)))
    airline = np.empty((n, CARRIERS), dtype=np.int64)
    for o in range(n):  # the last airline is o's by number: every airline serves some pair
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
    """Draw individuals and what their searches return, cheapest first."""
    pair, nights, who = _individuals(n_sets, rng)
    itineraries, offsets = _itineraries(pair, nights, who["dtd"], rng)
    return Searches(who, itineraries, offsets)


def _individuals(n: int, rng: np.random.Generator) -> tuple[Ints, Ints, dict[str, NDArray[Any]]]:
    """Draw pairs (n,), nights away (n,) and the columns of the individuals."""
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
    who = {
        "OD": pair,
        "officeID": office,
        "staySaturday": (nights > (5 - day) % 7).astype(np.int64),  # the night of day 5 is among them
        "isContinental": w.continental[pair].astype(np.int64),
        "isDomestic": w.domestic[pair].astype(np.int64),
        "depWeekDay": day,
        "dtd": np.minimum(dtd, RANGES["dtd"][1]),
    }
    return pair, nights, who


def _sizes(n: int, rng: np.random.Generator) -> Ints:
    """Draw how many itineraries each search returns."""
    u = rng.random(n)
    some = rng.integers(2, LARGEST, n)
    sizes: Ints = np.where(u < FULL, LARGEST, np.where(u < FULL + SINGLE, 1, some))
    return sizes


def _offers(pair: Ints, dtd: Ints, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Draw each search's offers, (S, OFFERS): the airline's position, connections, extra airlines and the price."""
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
    known = 0.12 * np.sin(w.airline[pair[:, None], carrier])  # dear and cheap airlines
    log_price = (
        np.log(40 + 0.35 * km**0.92)
        + np.log1p(1.1 * np.exp(-dtd / 12))[:, None]
        + known
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
    """Draw price factors of departures and returns, (S, OFFERS, FLIGHTS): most often 1, now and then a cabin dearer."""
    shape = (n, OFFERS, FLIGHTS)
    out = np.array([1.0, 1.06, 1.15, 1.35, 3.0])[(rng.random(shape)[..., None] >= [0.5, 0.7, 0.86, 0.97]).sum(-1)]
    out[out == 3.0] *= np.exp(0.4 * rng.standard_normal(int((out == 3.0).sum())))
    back = np.array([1.0, 1.04, 1.12])[(rng.random(shape)[..., None] >= [0.65, 0.85]).sum(-1)]
    return out, back


def _pick(sizes: Ints, rng: np.random.Generator) -> Ints:
    """Choose ``sizes`` different itineraries of each search by number, earlier offers more often: (S,) -> (N,)."""
    weight = np.repeat(0.6 * np.log(0.8) * np.arange(OFFERS), FLIGHTS * FLIGHTS)
    parts = []
    for start in range(0, len(sizes), CHUNK):
        n = sizes[start : start + CHUNK]
        key = -weight - rng.gumbel(size=(len(n), len(weight)))  # the n least keys: a draw without replacement
        parts.append(np.argsort(key, axis=1)[:, :LARGEST][np.arange(LARGEST) < n[:, None]])
    return np.concatenate(parts)


def _itineraries(pair: Ints, nights: Ints, dtd: Ints, rng: np.random.Generator) -> tuple[dict[str, NDArray[Any]], Ints]:
    """Draw the itineraries of each search, cheapest first, and the offsets of the searches."""
    w = world()
    sizes = _sizes(len(pair), rng)
    offers, fares = _offers(pair, dtd, rng), _fares(len(pair), rng)
    offer, out, back = np.unravel_index(_pick(sizes, rng), (OFFERS, FLIGHTS, FLIGHTS))
    s = np.repeat(np.arange(len(pair)), sizes)
    price = offers["price"][s, offer] * fares[0][s, offer, out] * fares[1][s, offer, back]
    price = np.clip(price.round(2), *RANGES["totalPrice"])
    order = np.lexsort((price, s))
    s, offer, out, back, price = s[order], offer[order], out[order], back[order], price[order]
    o, k, stops, stops_back = pair[s], *(offers[name][s, offer] for name in ("carrier", "out", "back"))
    arrival, minutes = _flight(w.departure[o, k, out], stops, w.wait[o, k, out], w.shift[o], w.distance[o])
    _, minutes_back = _flight(w.back[o, k, back], stops_back, w.wait_back[o, k, back], -w.shift[o], w.distance[o])
    stay = nights[s] * DAY + w.back[o, k, back] - arrival
    # Who would leave before two hours are over, or before landing, leaves a day or two later.
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
    """Compute arrival (minutes from midnight of the first day, local) and duration (minutes) of one direction."""
    minutes = np.rint((33 + km / 13.5 * (1 + 0.12 * stops)) / 5).astype(np.int64) * 5 + stops * (40 + wait)
    arrival = departure + minutes + shift
    curfew = np.where(arrival % DAY > LAST_LANDING, DAY - arrival % DAY, 0)
    return arrival + curfew, minutes + curfew
