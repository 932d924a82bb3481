"""Compare a network that reads itineraries as text with one that reads them as columns.

The choices come from the simulated airline table, whose best possible NLL is known. One network gets six attributes of
an itinerary as columns: airline, price, duration, number of flights, number of airlines and hour of departure. The
other network reads them in a line such as "AL44, 2 flights with 1 airlines, 1353 euros, 480 minutes, leaves 8.7". Both
get the same columns of the individual. Run it with ``python examples/itineraries_in_words.py``.
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
    """Result of one model on the test part."""

    nll: float
    seconds: float


def descriptions(table: pa.Table) -> list[str]:
    """Return a description of each itinerary."""
    rows = zip(*(table[name].to_pylist() for name in ATTRIBUTES), strict=True)
    return [
        f"{airlines}, {flights} flights with {carriers} airlines, {price:.0f} euros, {minutes} minutes, "
        f"leaves {seconds / 3600:.2g}"
        for airlines, price, minutes, flights, carriers, seconds in rows
    ]


def read(table: pa.Table, *, words: bool) -> pn.ChoiceData:
    """Read the table with a description of each itinerary or with its attributes."""
    roles: dict[str, Any] = {"features": ATTRIBUTES, "categorical": ["OD", "officeID", "airlines"]}
    if words:
        roles = {"features": ["words"], "categorical": ["OD", "officeID"], "kinds": {"words": "text"}}
        table = table.append_column("words", [descriptions(table)])
    return pn.ChoiceData.from_long(
        table, choice_set="individual", chosen="choice", individual=airline.ROLES["individual"], **roles
    )


def compare(sets: int = 5_000, test: int = 2_000, seed: int = 0, **options: Any) -> tuple[dict[str, Result], float]:
    """Fit both networks; return their results and the best possible NLL. Different seeds use different tables."""
    train, held_out = airline.simulate(sets, seed=2 * seed), airline.simulate(test, seed=2 * seed + 1)
    results = {}
    for words in (False, True):
        began = time.perf_counter()
        model = pn.PCMCNet(**options).fit(read(train, words=words), seed=seed, progress=False)
        nll = -model.score(read(held_out, words=words))
        results["words" if words else "attributes"] = Result(nll, time.perf_counter() - began)
    return results, airline.best_possible_nll(held_out).realised


def main() -> None:
    """Fit both networks and print their results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=5_000, help="number of training choice sets")
    parser.add_argument("--test", type=int, default=2_000, help="number of test choice sets")
    parser.add_argument("--epochs", type=int, default=8, help="number of training epochs")
    parser.add_argument("--seed", type=int, default=0, help="seed of the tables and of the networks")
    arguments = parser.parse_args()
    print(descriptions(airline.simulate(1, seed=0))[0])
    results, best = compare(arguments.sets, arguments.test, arguments.seed, epochs=arguments.epochs)
    for name, (nll, seconds) in results.items():
        print(f"PCMC-Net on {name:12} NLL {nll:.4f} after {seconds:.0f} s")
    sizes = read(airline.simulate(arguments.test, seed=2 * arguments.seed + 1), words=False).sizes
    print(f"{'the truth':24} NLL {best:.4f}; by chance {np.log(sizes).mean():.4f}")


if __name__ == "__main__":
    main()
