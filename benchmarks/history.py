"""What the history of a person adds to models: the NLL of held-out choices with and without its features.

    python -m benchmarks.history [--json FILE] [simulated] [swissmetro]

    simulated     a scanner panel of 300 households with 15 purchases each among four brands. Households differ in their
                  tastes, and buy the brand of their last purchase with a higher utility. The floor is the NLL of the
                  true probabilities, which know the tastes.
    swissmetro    the stated choices of 752 persons in the development table, in the order of the table

Two parts are held out: the choices of 20% of the persons, and the last 20% of the choices of every person. In both, the
history of a held-out choice contains the person's earlier choices. Differences have standard errors by person.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import log_softmax

import pcmcnet as pn
from benchmarks.harness import RUNS, Row, Section, Table, run
from pcmcnet.arrays import Floats
from pcmcnet.data.history import choice_numbers
from pcmcnet.datasets import packaged

HOUSEHOLDS, PURCHASES, BRANDS = 300, 15, ("a", "b", "c", "d")
PRICE, DISPLAY, LAST_CHOICE, TASTE_SD = -1.5, 1.0, 1.0, 1.0
MODELS: dict[str, Callable[[], Any]] = {
    "mnl": pn.MNL, "boosted": pn.Boosted, "pcmcnet": pn.PCMCNet, "stacking": pn.Stacking,
}  # fmt: skip
COLUMNS = {
    "model": "", "held out": "", "without": ".4f", "with history": ".4f", "difference": "+.4f", "std error": ".4f",
    "seconds": ".0f",
}  # fmt: skip


def scanner_panel(seed: int) -> tuple[pn.ChoiceData, Floats]:
    """Simulate purchases with state dependence, and return them with the log-probabilities of the choices."""
    rng = np.random.default_rng(seed)
    shape = (HOUSEHOLDS, PURCHASES, len(BRANDS))
    tastes = TASTE_SD * rng.standard_normal((HOUSEHOLDS, len(BRANDS)))
    price, display = rng.uniform(1, 3, shape), (rng.random(shape) < 0.2).astype(float)
    chosen, log_p = np.zeros(shape[:2], np.int64), np.zeros(shape[:2])
    last = np.zeros((HOUSEHOLDS, len(BRANDS)))
    rows = np.arange(HOUSEHOLDS)
    for t in range(PURCHASES):
        utility = tastes + PRICE * price[:, t] + DISPLAY * display[:, t] + LAST_CHOICE * last
        chosen[:, t] = (utility + rng.gumbel(size=utility.shape)).argmax(1)
        log_p[:, t] = log_softmax(utility, axis=1)[rows, chosen[:, t]]
        last = np.eye(len(BRANDS))[chosen[:, t]]
    sets = HOUSEHOLDS * PURCHASES
    table = {
        "purchase": np.repeat(np.arange(sets), len(BRANDS)),
        "household": np.repeat(np.arange(HOUSEHOLDS), PURCHASES * len(BRANDS)),
        "brand": np.tile(BRANDS, sets),
        "price": price.ravel(),
        "display": display.ravel(),
        "bought": np.eye(len(BRANDS))[chosen.ravel()].ravel(),
    }
    roles = {"choice_set": "purchase", "chosen": "bought", "alternative": "brand", "person": "household"}
    return pn.ChoiceData.from_long(table, **roles, features=["price", "display"]), log_p.ravel()


def held_out_parts(data: pn.ChoiceData) -> dict[str, Floats]:
    """Return masks of the held-out sets: 20% of the persons, and the last 20% of each person's choices."""
    persons = data.groups()
    drawn = np.random.default_rng(0).permutation(persons.max() + 1) < 0.2 * (persons.max() + 1)
    numbers = choice_numbers(data, None)
    return {"persons": drawn[persons], "last choices": numbers >= 0.8 * np.bincount(persons)[persons]}


def compare(title: str, data: pn.ChoiceData, floor: Floats | None = None) -> list[Row]:
    """Fit all models to a table with and without the features of the history."""
    tables = {"without": data, "with history": pn.history(data)}
    table = Table(title, COLUMNS)
    for part, held_out in held_out_parts(data).items():
        if floor is not None:
            table.add({"model": "(floor)", "held out": part, "with history": -floor[held_out].mean()})
        for name, model in MODELS.items():
            began, losses = time.perf_counter(), {}
            for kind, sets in tables.items():
                train, test = sets.subset(~held_out), sets.subset(held_out)
                fitted = model().fit(train, seed=0, progress=False)
                losses[kind] = -np.log(fitted.chosen_probabilities(test))
            change = losses["with history"] - losses["without"]
            sums = np.bincount(data.groups()[held_out], change - change.mean())
            figures = {kind: loss.mean() for kind, loss in losses.items()}
            error = np.sqrt((sums**2).sum()) / len(change)
            row = {"model": name, "held out": part, **figures, "difference": change.mean(), "std error": error}
            table.add({**row, "seconds": time.perf_counter() - began})
    return table.rows


def simulated() -> list[Row]:
    """Compare on a simulated scanner panel with state dependence."""
    data, log_p = scanner_panel(seed=0)
    return compare(f"simulated scanner panel: {len(data):,} purchases of {HOUSEHOLDS} households", data, log_p)


def swissmetro() -> list[Row]:
    """Compare on stated choices of the same persons."""
    data = pn.ChoiceData.from_schema(*packaged.long_form("swissmetro"))
    return compare(f"swissmetro: {len(data):,} stated choices", data)


SECTIONS: dict[str, Section] = {"simulated": simulated, "swissmetro": swissmetro}

if __name__ == "__main__":
    run("benchmarks.history", SECTIONS, description=__doc__ or "", json_file=RUNS / "history.json", device="cpu")
