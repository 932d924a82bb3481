"""Designs of choice experiments: errors relative to the best known ones, and time.

    python -m benchmarks.designs [SECTION ...]     errors, times, context

The best known D-errors are those of utility-neutral designs, which follow from theory, and of all possible designs
of small sizes: see tests/support/small_designs.py. Times are CPU seconds on one thread, which hardly depend on the load
of the machine.
"""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import pcmcnet as pn
from benchmarks.harness import RUNS, Row, Section, Table, run
from pcmcnet.designs.context_terms import chain_probabilities, context_terms

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from small_designs import EXHAUSTIVE, TEXTBOOK, exhaustive_optimum

FLIGHT = {
    "price": [100, 150, 200, 250],
    "hours": [2, 3, 4],
    "meal": ["no", "snack", "hot"],
    "seat": ["narrow", "wide"],
}
MEANS = {"price": -0.01, "hours": -0.3, "meal[snack]": 0.2, "meal[hot]": 0.4, "seat[wide]": 0.5}
DEVIATIONS = {"price": 0.002, "hours": 0.1, "meal[snack]": 0.2, "meal[hot]": 0.2, "seat[wide]": 0.3}
UNCERTAIN = {name: (mean, DEVIATIONS[name]) for name, mean in MEANS.items()}


def errors() -> list[Row]:
    """Compare D-errors with the best known ones."""
    title = "D-errors of designs from 10 starts, and the lowest possible ones."
    table = Table(title, {"design": "", "D-error": ".5f", "lowest": ".5f", "ratio": ".4f"}, first=46)
    for known in TEXTBOOK:
        plan = pn.design(known.space, alternatives=known.alternatives, tasks=known.tasks, coding="effects")
        row = {"D-error": plan.error, "lowest": known.lowest, "ratio": plan.error / known.lowest}
        table.add({"design": f"{known.name}, no prior (theory)", **row})
    for small in EXHAUSTIVE:
        sizes: dict[str, Any] = {"alternatives": small.alternatives, "tasks": small.tasks}
        plan = pn.design(small.attributes, prior=small.prior, balance=False, **sizes)
        lowest = exhaustive_optimum(small)
        row = {"D-error": plan.error, "lowest": lowest, "ratio": plan.error / lowest}
        table.add({"design": f"{small.name}, prior (all)", **row})
    return table.rows


def times() -> list[Row]:
    """Time designs of 4 attributes and 12 tasks of 3 alternatives, from 10 starts."""
    title = "Designs of 4 attributes (4, 3, 3 and 2 levels), 12 tasks of 3 alternatives, 10 starts."
    table = Table(title, {"criterion": "", "CPU seconds": ".1f", "seconds": ".1f", "error": ".4g"}, first=34)
    pn.design({"x": [1, 2], "y": [1, 2, 3]}, tasks=3, starts=1)  # loads the libraries
    options: dict[str, dict[str, Any]] = {
        "D": {"prior": MEANS},
        "D, none, 3 versions": {"prior": MEANS, "none": True, "versions": 3},
        "Db, 64 draws": {"prior": UNCERTAIN, "criterion": "Db"},
        "C, 64 draws": {"prior": UNCERTAIN, "criterion": "C", "cost": "price"},
    }
    for name, arguments in options.items():
        began, worked = time.perf_counter(), time.process_time()
        plan = pn.design(FLIGHT, tasks=12, alternatives=3, **arguments)
        taken = {"CPU seconds": time.process_time() - worked, "seconds": time.perf_counter() - began}
        table.add({"criterion": name, **taken, "error": plan.error})
    return table.rows


def context() -> list[Row]:
    """Compare the respondents that designs need to detect an attraction effect with 80% power."""
    rows: list[Row] = []
    for names, attributes, prior in (
        ("2 attributes of 4 levels", {"price": [1, 2, 3, 4], "quality": [1, 2, 3, 4]}, {"price": -0.7, "quality": 0.7}),
        ("flights", FLIGHT, MEANS),
    ):
        print(
            f"Respondents for 80% power to detect attraction, {names}, 12 tasks of 3 alternatives. Choices are\n"
            f"those of a chain with dominance 1. Simulated: power in {CHECKS:,} surveys of this size. By shares:\n"
            "respondents if a logit of the alternatives that are not dominated has to show the effect."
        )
        numbers = {"respondents": ",.0f", "ratio": ".2f", "simulated": ".1%", "by shares": ",.0f"}
        numbers |= {"ratio by shares": ".2f"}
        table = Table("", {"design": "", **numbers}, first=30)
        signs = _orders(prior)
        plans = {
            "context": pn.design(attributes, prior=prior, criterion="context"),
            "context, small effect": pn.design(attributes, prior=prior, criterion="context", effects=["dominance"]),
            "D-efficient": pn.design(attributes, prior=prior),
            "D-efficient, without prior": pn.design(attributes, signs=signs),
        }
        for name, plan in plans.items():
            truth: dict[str, Any] = {"effects": {"dominance": 1.0}, "coefficients": prior}
            expected = pn.design_power(plan, "dominance", respondents=[1], surveys=1, **truth).respondents_for_power()
            trial = pn.design_power(plan, "dominance", respondents=[expected], surveys=SURVEYS, **truth)
            trial = pn.design_power(
                plan, "dominance", respondents=[trial.respondents_for_power()], surveys=SURVEYS, **truth
            )
            needed = trial.respondents_for_power()
            power = pn.design_power(plan, "dominance", respondents=[needed], surveys=CHECKS, seed=1, **truth)
            shares = _respondents_by_shares(plan, prior, 1.0)
            first = table.rows[0] if table.rows else {"respondents": needed, "by shares": shares}
            table.add(
                {
                    "design": name,
                    "respondents": needed,
                    "ratio": needed / first["respondents"],
                    "simulated": power.rows[0].power,
                    "by shares": shares,
                    "ratio by shares": shares / first["by shares"],
                }
            )
        print()
        rows += [{"attributes": names, **row} for row in table.rows]
    return rows


def _orders(prior: dict[str, float]) -> dict[str, str]:
    """Return the expected signs of the attributes in a prior whose coefficients rise with the level."""
    return {name.partition("[")[0]: "+" if value > 0 else "-" for name, value in prior.items()}


def _respondents_by_shares(plan: pn.ChoiceDesign, prior: dict[str, float], effect: float) -> float:
    """Return the respondents at which a logit of the alternatives that are not dominated shows attraction.

    Its columns are those of the utility, and a dummy variable for an alternative that dominates another one of its
    task. Choices of dominated alternatives are left out: under IIA, the others still follow the logit, without the
    dummy. The expected estimate and its error follow from the expected choices.
    """
    terms = context_terms(plan.space, plan.directions, {"dominance": effect})
    x, h = plan.space.encode(plan.levels), terms(plan.levels)
    beta = np.array([[prior.get(name, 0.0) for name in plan.space.names]])
    p = chain_probabilities(x, h, beta, terms.values[None])[0][0]
    dominates = h[..., -1].swapaxes(1, 2)  # i, j: i dominates j
    kept = ~dominates.any(axis=1)
    columns = np.concatenate([x, dominates.any(axis=2)[..., None]], axis=-1)
    counts, b = p * kept, np.append(beta, 0.0)
    for _ in range(50):
        fitted = np.exp(columns @ b) * kept
        fitted /= fitted.sum(axis=1, keepdims=True)
        centred = columns - (fitted[..., None] * columns).sum(axis=1, keepdims=True)
        weights = counts.sum(axis=1, keepdims=True) * fitted
        information = np.einsum("tj,tjp,tjq->pq", weights, centred, centred)
        if np.linalg.cond(information) > 1e10:
            return math.inf
        b = b + np.linalg.solve(information, np.einsum("tj,tjp->p", counts, centred))
    error = math.sqrt(np.linalg.inv(information)[-1, -1])
    return math.ceil(((1.959964 + 0.841621) * error / b[-1]) ** 2)


SURVEYS, CHECKS = 2000, 2000  # simulated surveys that set the number of respondents, and that check its power
SECTIONS: dict[str, Section] = {"errors": errors, "times": times, "context": context}

if __name__ == "__main__":
    run("benchmarks.designs", SECTIONS, description=__doc__ or "", json_file=RUNS / "designs.json", device="cpu")
