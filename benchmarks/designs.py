"""Designs of choice experiments: errors relative to the best known ones, and time.

    python -m benchmarks.designs [SECTION ...]     errors, times, context

The best known D-errors are those of utility-neutral designs, which follow from theory (tests/designs derives them), and
those of all possible designs of small sizes. Times are CPU seconds on one thread, which hardly depend on the load of
the machine.
"""

from __future__ import annotations

import itertools
import math
import time
from typing import Any

import numpy as np

import pcmcnet as pn
from benchmarks.harness import RUNS, Row, Section, Table, run
from pcmcnet.designs.attributes import profile_space
from pcmcnet.designs.context_terms import chain_probabilities, context_terms

LETTERS = ["a", "b", "c", "d"]
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
    for levels, attributes, alternatives, tasks, lowest in (
        (2, 4, 2, 8, 1 / 8),
        (3, 3, 3, 9, math.sqrt(3) / 9),
        (4, 2, 4, 8, 1 / (2 * 4 ** (1 / 3))),
        (4, 4, 4, 16, 1 / (4 * 4 ** (1 / 3))),
    ):
        space = dict.fromkeys("wxyz"[:attributes], LETTERS[:levels])
        plan = pn.design(space, alternatives=alternatives, tasks=tasks, coding="effects")
        name = f"{levels}^{attributes}, {tasks} tasks of {alternatives}, no prior (theory)"
        table.add({"design": name, "D-error": plan.error, "lowest": lowest, "ratio": plan.error / lowest})
    for attributes, alternatives, tasks, beta in (
        ({"x": [1, 2, 3], "y": [1, 2]}, 2, 3, [-0.8, 0.7]),
        ({"x": ["a", "b", "c"], "y": [0, 1]}, 2, 4, [0.5, 1.0, -0.7]),
        ({"x": ["a", "b", "c"], "y": [0, 1]}, 3, 3, [0.5, 1.0, -0.7]),
        ({"x": [0, 1], "y": [0, 1], "z": [0, 1]}, 2, 4, [1.0, -0.5, 0.5]),
    ):
        prior = dict(zip(profile_space(attributes).names, beta, strict=True))
        plan = pn.design(attributes, alternatives=alternatives, tasks=tasks, prior=prior, balance=False)
        lowest = _exhaustive_optimum(attributes, alternatives, tasks, beta)
        name = f"{'x'.join(str(len(v)) for v in attributes.values())}, {tasks} tasks of {alternatives}, prior (all)"
        table.add({"design": name, "D-error": plan.error, "lowest": lowest, "ratio": plan.error / lowest})
    return table.rows


def _exhaustive_optimum(attributes: dict[str, list[Any]], alternatives: int, tasks: int, beta: list[float]) -> float:
    """Return the lowest D-error of all designs without repeated tasks."""
    space, b = profile_space(attributes), np.array(beta)
    profiles = np.array(list(itertools.product(*(range(len(levels)) for levels in attributes.values()))))
    sets = profiles[np.array(list(itertools.combinations(range(len(profiles)), alternatives)))]
    x = space.encode(sets)
    p = np.exp(x @ b)
    p /= p.sum(axis=1, keepdims=True)
    centred = x - (p[..., None] * x).sum(axis=1, keepdims=True)
    information = np.einsum("sj,sjp,sjq->spq", p, centred, centred)
    designs = itertools.combinations(range(len(sets)), tasks)
    return float(max(np.linalg.det(information[list(tasks)].sum(axis=0)) for tasks in designs) ** (-1 / len(b)))


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
            f"those of a chain with dominance 1. Simulated: power in {SURVEYS} surveys of this size. By shares:\n"
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
            needed = pn.design_power(plan, "dominance", respondents=[1], surveys=1, **truth).respondents_for_power(0.8)
            power = pn.design_power(plan, "dominance", respondents=[needed], surveys=SURVEYS, **truth)
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


SURVEYS = 400
SECTIONS: dict[str, Section] = {"errors": errors, "times": times, "context": context}

if __name__ == "__main__":
    run("benchmarks.designs", SECTIONS, description=__doc__ or "", json_file=RUNS / "designs.json", device="cpu")
