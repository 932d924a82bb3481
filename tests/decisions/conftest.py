"""Random catalogues and constraints, small enough to try every offer."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from pcmcnet.arrays import Bools
from pcmcnet.decisions.constraints import ConstraintRows, Constraints, constraint_rows


def random_rows(n: int, rng: np.random.Generator) -> ConstraintRows:
    """Draw constraints on n alternatives, usually after an outside option. At least one offer satisfies them."""
    columns = {"shelf": rng.integers(1, 5, n + 1).tolist(), "brand": rng.choice(["x", "y"], n + 1).tolist()}
    labels = [f"a{k}" for k in range(n + 1)]
    outside = 0 if rng.random() < 0.7 else None
    while True:
        sizes: list[Any] = [None, 2, (2, 3), (1, None)]
        constraints = Constraints(
            size=sizes[rng.integers(4)],
            capacity={"shelf": float(rng.integers(4, 12))} if rng.random() < 0.5 else {},
            at_most={"brand": {columns["brand"][1]: 1}} if rng.random() < 0.3 else {},
            apart=[("a1", "a2")] if rng.random() < 0.3 else [],
            together=[("a1", "a2")] if rng.random() < 0.2 else [],
            never=["a2"] if rng.random() < 0.2 else [],
        )
        rows = constraint_rows(constraints, labels, columns, outside)
        if rows.best(np.zeros(n + 1)) is not None:
            return rows


def every_offer(rows: ConstraintRows) -> Bools:
    """Return all offers that satisfy the constraints."""
    offers = np.array(list(product([False, True], repeat=len(rows.always))))
    return offers[rows.allow(offers) & offers.any(axis=1)]


@pytest.fixture(scope="session")
def rows_maker() -> Any:
    return random_rows


@pytest.fixture(scope="session")
def enumerate_offers() -> Any:
    return every_offer
