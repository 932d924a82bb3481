"""Best offers: time of a proof, accuracy of local search, and offers for many people.

    python -m benchmarks.decisions [SECTION ...]     chains, mixtures, people

Chains have log-normal rates exp(sigma z) among n products and an outside option without revenue; revenues are uniform
on [0, 1]. The tables also show the loss of an offer ordered by revenue, which is the best for a logit. Mixtures of
logits have attractions exp(2 z) and equal segments, or are draws of tastes for four features and a price. Proofs are
timed in CPU seconds on one thread, which hardly depend on the load of the machine.
"""

from __future__ import annotations

import os
import time

import numpy as np
import torch

from benchmarks.harness import RUNS, Row, Section, Table, run
from pcmcnet import ChoiceData, Constraints, PCMCNet, optimise_offers
from pcmcnet.arrays import Floats
from pcmcnet.datasets import airline
from pcmcnet.decisions.branch_and_bound import local_search, starting_offers
from pcmcnet.decisions.constraints import ConstraintRows
from pcmcnet.decisions.exact_offers import best_chain_offer, best_mixture_offer
from pcmcnet.decisions.offer_value import Chains, Logits, OfferValue, expected_revenue

SEEDS, LIMIT, BRIEF, STARTS, PEOPLE = 10, 60.0, 20.0, 8, 10_000
THREADS = os.cpu_count() or 1


def _local(value: OfferValue, rows: ConstraintRows) -> tuple[Floats, Floats]:
    """Return the best offer of several local searches, and its value."""
    starts = starting_offers(rows, value.revenue, STARTS, np.random.default_rng(0))
    offers, values = local_search(lambda there, _: expected_revenue(value, there), rows, starts)
    return offers[values.argmax()], values.max()


def chains() -> list[Row]:
    """Prove the best offers of random chains."""
    torch.set_num_threads(1)
    title = (
        f"Best offers of random chains, {SEEDS} of each kind, at most {LIMIT:.0f} s: CPU seconds with one thread, and "
        f"losses in per cent."
    )
    numbers = {"median, s": ".2f", "longest, s": ".2f", "proven": "", "largest gap": ".2f", "nodes": ",.0f"}
    table = Table(title, {"chains": "", **numbers, "local": ".2f", "ordered": ".1f"})
    for n in (20, 30, 50):
        for sigma in (1, 2):
            rows = [_chain(n, sigma, seed) for seed in range(SEEDS)]
            columns = {key: [row[key] for row in rows] for key in rows[0]}
            table.add(
                {
                    "chains": f"n = {n}, sigma = {sigma}",
                    "median, s": float(np.median(columns["seconds"])),
                    "longest, s": max(columns["seconds"]),
                    "proven": f"{sum(gap < 1e-6 for gap in columns['gap'])} of {SEEDS}",
                    "largest gap": 100 * max(columns["gap"]),
                    "nodes": float(np.median(columns["nodes"])),
                    "local": 100 * float(np.mean(columns["local"])),
                    "ordered": 100 * float(np.mean(columns["ordered"])),
                    "each": rows,
                }
            )
    return table.rows


def _chain(n: int, sigma: int, seed: int) -> dict[str, float]:
    rng = np.random.default_rng([n, sigma, seed])
    rates = np.exp(sigma * rng.standard_normal((1, 1, n + 1, n + 1)))
    value = Chains(np.ones((1, 1)), rates, np.append(0.0, rng.random(n)))
    rows = ConstraintRows.unconstrained(np.arange(n + 1) == 0)
    began = time.process_time()
    offer, near = _local(value, rows)
    proof = best_chain_offer(value, rows, offer, stop=lambda: time.process_time() - began > LIMIT)
    ended = time.process_time()
    ordered = np.tri(n, dtype=np.bool_)[:, np.argsort(np.argsort(-value.revenue[1:]))]
    by_revenue = expected_revenue(value, np.insert(ordered, 0, True, axis=1)).max()
    return {
        "seconds": ended - began,
        "gap": proof.gap,
        "nodes": proof.nodes,
        "local": max(1 - float(near) / proof.value, 0.0),
        "ordered": 1 - float(by_revenue) / proof.value,
    }


def mixtures() -> list[Row]:
    """Compare local search with the best offers of mixtures of logits."""
    torch.set_num_threads(1)
    title = (
        f"Best offers of mixtures of logits, 3 of each kind, at most {BRIEF:.0f} s: CPU seconds, losses in per cent."
    )
    numbers = {"median, s": ".2f", "longest, s": ".2f", "proven": "", "largest gap": ".2f", "nodes": ",.0f"}
    table = Table(title, {"mixtures": "", **numbers, "local": ".4f"}, first=26)
    sizes = ((50, 5), (100, 5), (50, 10), (200, 5), (100, 25), (200, 25))
    kinds = [(n, C, "segments") for n, C in sizes] + [(n, 1_000, "draws") for n in (20, 50)]
    for n, C, what in kinds:
        rows = [_mixture(n, C, what, seed) for seed in range(3)]
        columns = {key: [row[key] for row in rows] for key in rows[0]}
        table.add(
            {
                "mixtures": f"{n} products, {C:,} {what}",
                "median, s": float(np.median(columns["seconds"])),
                "longest, s": max(columns["seconds"]),
                "proven": f"{sum(gap < 1e-6 for gap in columns['gap'])} of 3",
                "largest gap": 100 * max(columns["gap"]),
                "nodes": float(np.median(columns["nodes"])),
                "local": 100 * float(np.mean(columns["local"])),
            }
        )
    return table.rows


def _mixture(n: int, C: int, what: str, seed: int) -> dict[str, float]:
    rng = np.random.default_rng([n, C, seed])
    revenue = np.append(0.0, rng.uniform(0.3, 1.0, n))
    if what == "segments":
        utility = 2 * rng.standard_normal((C, n + 1))
    else:
        features = np.vstack([np.zeros(4), rng.standard_normal((n, 4))])
        utility = rng.normal([1.0, -0.5, 0.3, 0.0], 0.5, (C, 4)) @ features.T
        utility -= rng.lognormal(np.log(2.0), 0.5, (C, 1)) * revenue
    value = Logits(np.full((1, C), 1 / C), np.exp(utility)[None], revenue)
    rows = ConstraintRows.unconstrained(np.arange(n + 1) == 0)
    began = time.process_time()
    offer, near = _local(value, rows)
    proof = best_mixture_offer(value, rows, offer, stop=lambda: time.process_time() - began > BRIEF)
    seconds = time.process_time() - began
    return {
        "seconds": seconds,
        "gap": proof.gap,
        "nodes": proof.nodes,
        "local": max(1 - float(near) / proof.value, 0.0),
    }


def people() -> list[Row]:
    """Search for an offer of up to 6 of 20 itineraries for each of many people."""
    torch.set_num_threads(THREADS)
    bookings = airline.simulate(400, seed=0).to_pandas()
    who, what = ["dtd", "staySaturday"], ["totalPrice", "totalTripDurationMinutes", "nFlights", "airlines"]
    data = ChoiceData.from_long(bookings, choice_set="individual", chosen="choice", individual=who, features=what)
    model = PCMCNet(epochs=5, weight_decay=0.5).fit(data, progress=False)  # on a GPU if available
    catalogue = bookings.groupby("individual").filter(lambda rows: len(rows) >= 20).head(20)[what]
    catalogue = catalogue.assign(margin=np.r_[0.0, np.random.default_rng(0).uniform(10, 50, 19)])
    people = bookings.drop_duplicates("individual")[who].sample(PEOPLE, replace=True, random_state=0)
    began, worked = time.perf_counter(), time.process_time()
    offers = optimise_offers(model, catalogue, people, "margin", outside="0", constraints=Constraints(size=6))
    table = Table(
        "Offers of up to 6 of 20 itineraries by local search, one for each person.",
        {"people": "", "seconds": ".1f", "CPU seconds": ".1f"},
    )
    taken = {"seconds": time.perf_counter() - began, "CPU seconds": time.process_time() - worked}
    table.add({"people": f"{len(offers):,}", **taken})
    return table.rows


SECTIONS: dict[str, Section] = {"chains": chains, "mixtures": mixtures, "people": people}

if __name__ == "__main__":
    run(
        "benchmarks.decisions",
        SECTIONS,
        description=__doc__ or "",
        json_file=RUNS / "bench-decisions.json",
        device="cpu",
    )
