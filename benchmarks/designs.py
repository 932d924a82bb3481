"""Designs of choice experiments: errors relative to the best known ones, and time.

    python -m benchmarks.designs [SECTION ...]     errors, times

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


SECTIONS: dict[str, Section] = {"errors": errors, "times": times}

if __name__ == "__main__":
    run("benchmarks.designs", SECTIONS, description=__doc__ or "", json_file=RUNS / "designs.json", device="cpu")
