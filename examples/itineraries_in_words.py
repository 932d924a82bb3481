"""Itineraries described in words: a network that reads a line of text comes close to one that is given the attributes.

The choices are those of the simulated airline table, whose best possible NLL is known. One network sees an itinerary's
airline, price, duration, numbers of flights and airlines, and hour of departure as columns; the other reads them in a
line such as "AL44, 2 flights with 1 airlines, 1353 euros, 480 minutes, leaves 8.7". Both see the same columns of the
individual. Run it by ``python examples/itineraries_in_words.py``.
"""

from __future__ import annotations

import argparse
import time
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

import pcmcnet as pn
from pcmcnet.datasets import airline

ATTRIBUTES = ["airlines", "totalPrice", "totalTripDurationMinutes", "nFlights", "nAirlines", "outDepTime"]


class Result(NamedTuple):
    """One model on the test part."""

    nll: float
    seconds: float


def described(table: pa.Table) -> list[str]:
    """Put each itinerary into words."""
    rows = zip(*(table[name].to_pylist() for name in ATTRIBUTES), strict=True)
    return [
        f"{airlines}, {flights} flights with {carriers} airlines, {price:.0f} euros, {minutes} minutes, "
        f"leaves {seconds / 3600:.2g}"
        for airlines, price, minutes, flights, carriers, seconds in rows
    ]


def read(table: pa.Table, *, words: bool) -> pn.ChoiceData:
    """Read the table with the description of each itinerary, or with its attributes."""
    roles: dict[str, Any] = {"features": ATTRIBUTES, "categorical": ["OD", "officeID", "airlines"]}
    if words:
        roles = {"features": ["words"], "categorical": ["OD", "officeID"], "kinds": {"words": "text"}}
        table = table.append_column("words", [described(table)])
    return pn.ChoiceData.from_long(
        table, choice_set="individual", chosen="choice", individual=airline.ROLES["individual"], **roles
    )


def compare(sets: int = 5_000, test: int = 2_000, seed: int = 0, **options: Any) -> tuple[dict[str, Result], float]:
    """Fit both networks; also the NLL of the truth on the test part. No two seeds share a table."""
    train, held_out = airline.simulate(sets, seed=2 * seed), airline.simulate(test, seed=2 * seed + 1)
    found = {}
    for words in (False, True):
        began = time.perf_counter()
        model = pn.PCMCNet(**options).fit(read(train, words=words), seed=seed, progress=False)
        nll = -model.score(read(held_out, words=words))
        found["words" if words else "attributes"] = Result(nll, time.perf_counter() - began)
    return found, airline.best_possible_nll(held_out).realised


def main() -> None:
    """Fit both networks and print what they come to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=5_000, help="choice sets to train on")
    parser.add_argument("--test", type=int, default=2_000, help="choice sets to test on")
    parser.add_argument("--epochs", type=int, default=8, help="epochs of the networks")
    parser.add_argument("--seed", type=int, default=0, help="of the tables and of the networks")
    arguments = parser.parse_args()
    print(described(airline.simulate(1, seed=0))[0])
    found, best = compare(arguments.sets, arguments.test, arguments.seed, epochs=arguments.epochs)
    for name, (nll, seconds) in found.items():
        print(f"PCMC-Net on {name:12} NLL {nll:.4f} after {seconds:.0f} s")
    sizes = read(airline.simulate(arguments.test, seed=2 * arguments.seed + 1), words=False).sizes
    print(f"{'the truth':24} NLL {best:.4f}; by chance {np.log(sizes).mean():.4f}")


if __name__ == "__main__":
    main()
