"""Maxima of latent class and mixed logits that the default starts reach, with different seeds and more starts.

    python -m benchmarks.starts [--seeds 10] [--many 100] [--draws 200] [latent-class | mixed]

``latent-class`` compares the log-likelihood with seeds 0 to 9 with the best of 100 starts. The simulated panel has the
shape of a study of route choice: 388 persons with 9 choices between two routes that differ in travel time, cost,
headway and number of changes; two classes value them differently, and membership depends on commuting and on having a
car. ``mixed`` compares 1, 5 and 10 starts of mixed logits, also with two classes and with masses at 0. It shows the
simulation error of the default: the largest change of an estimate with other draws, in standard errors.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from benchmarks.harness import Row, Table
from pcmcnet import ChoiceData, LatentClassMNL, MixedMNL
from pcmcnet.datasets import packaged

ALTERNATIVES = {"TRAIN": 1, "SM": 2, "CAR": 3}
UTILITY = "time/100 + cost/100"


def swissmetro() -> ChoiceData:
    """Return the 6,768 choices of 752 persons; with an annual pass, train and Swissmetro cost nothing."""
    table = packaged.load("swissmetro")
    columns: dict[str, Any] = {name: table[name].to_numpy() for name in table.column_names}
    for name in ("TRAIN_CO", "SM_CO"):
        columns[name] = columns[name] * (columns["GA"] == 0)
    return ChoiceData.from_wide(
        columns,
        chosen="CHOICE",
        alternatives=ALTERNATIVES,
        features={"time": "{alternative}_TT", "cost": "{alternative}_CO"},
        available="{alternative}_AV",
        individual=["GA", "FIRST"],
        person="ID",
    )


def electricity() -> ChoiceData:
    """Return the 4,308 choices of 361 customers."""
    return ChoiceData.from_schema(*packaged.long_form("electricity"))


def routes(seed: int = 1, persons: int = 388, sets: int = 9) -> ChoiceData:
    """Simulate choices between two routes by persons of two classes."""
    rng = np.random.default_rng(seed)
    n = persons * sets
    # 1. Persons, and the coefficients of their class.
    commutes, has_car = rng.random(persons) < 0.3, rng.random(persons) < 0.6
    second = rng.random(persons) < 1 / (1 + np.exp(0.3 - 0.6 * commutes + 0.6 * has_car))
    b = np.where(second[:, None], [-0.07, -0.15, -0.02, -0.7], [-0.07, -0.55, -0.045, -2.2]).repeat(sets, axis=0)
    # 2. Two routes each, and the choices.
    minutes = np.maximum(rng.normal(52, 25, n), 8)[:, None] * np.exp(rng.normal(0, 0.15, (n, 2)))
    francs = np.maximum(rng.normal(9, 6, n), 1)[:, None] * np.exp(rng.normal(0, 0.25, (n, 2)))
    headway, changes = rng.choice([15.0, 30.0, 60.0], (n, 2)), rng.choice([0.0, 1.0, 2.0], (n, 2))
    x = np.stack([minutes, francs, headway, changes], axis=-1)
    took = ((x * b[:, None]).sum(2) + rng.gumbel(size=(n, 2))).argmax(1)
    table: dict[str, Any] = dict(zip(("tt", "tc", "hw", "ch"), x.reshape(-1, 4).T, strict=True))
    table |= {"id": np.repeat(np.arange(n), 2), "route": np.tile(["1", "2"], n)}
    table |= {"took": (took[:, None] == np.arange(2)).ravel(), "person": np.repeat(np.arange(persons), 2 * sets)}
    table |= {"commute": np.repeat(commutes, 2 * sets), "car": np.repeat(has_car, 2 * sets)}
    return ChoiceData.from_long(
        table,
        choice_set="id",
        chosen="took",
        alternative="route",
        features=["tt", "tc", "hw", "ch"],
        individual=["commute", "car"],
        person="person",
    )


def latent_class(seeds: int, many: int) -> list[Row]:
    """Compare the default starts, with several seeds, with many starts."""
    of_swissmetro = {"formula": UTILITY, "membership": "GA + FIRST"}
    cases: dict[str, tuple[ChoiceData, dict[str, Any]]] = {
        "swissmetro, 3": (swissmetro(), {"classes": 3, **of_swissmetro}),
        "electricity, 3": (electricity(), {"classes": 3}),
        "electricity, 4": (electricity(), {"classes": 4}),
        "routes, 2": (routes(), {"classes": 2, "formula": "tt + tc + hw + ch", "reference": "1"}),
        "swissmetro, auto": (swissmetro(), of_swissmetro),
        "electricity, auto": (electricity(), {}),
    }
    table = Table(
        f"\nlatent class logits: {seeds} seeds against {many} starts",
        {
            "table, classes": "",
            f"best of {many}": ".3f",
            "lowest": ".3f",
            "highest": ".3f",
            "starts": "",
            "at maximum": "",
            "CPU s": ".2f",
        },
        first=18,
    )
    for label, (data, options) in cases.items():
        best = LatentClassMNL(**options, starts=many).fit(data, seed=0).estimates_.log_likelihood
        began = time.process_time()
        models = [LatentClassMNL(**options).fit(data, seed=seed) for seed in range(seeds)]
        cpu = (time.process_time() - began) / seeds
        values = [model.estimates_.log_likelihood for model in models]
        records = [model.record_.starts for model in models]
        table.add(
            {
                "table, classes": label,
                f"best of {many}": best,
                "lowest": min(values),
                "highest": max(values),
                "starts": f"{min(r.starts for r in records)}-{max(r.starts for r in records)}",
                "at maximum": f"{min(r.at_maximum for r in records)}-{max(r.at_maximum for r in records)}",
                "CPU s": cpu,
            }
        )
    return table.rows


def mixed(seeds: int, draws: int) -> list[Row]:
    """Compare 1, 5 and 10 starts, and the default."""
    normal = dict.fromkeys(("time/100", "cost/100", "constant[CAR]", "constant[TRAIN]"), "normal")
    both = dict.fromkeys(("time/100", "cost/100"), "normal")
    in_wtp_space = {"time/100": "normal", "cost/100": "-lognormal"}
    data = swissmetro()
    cases: dict[str, dict[str, Any]] = {
        "four correlated": {"random": normal, "correlated": True},
        "WTP space": {"random": in_wtp_space, "wtp_space": "cost/100"},
        "two classes": {"random": both, "classes": 2, "membership": "FIRST"},
        "zero inflated": {"random": dict.fromkeys(both, "zero-inflated-normal")},
    }
    columns = {"1 start": 1, "5 starts": 5, "10 starts": 10, "default": "auto"}
    table = Table(
        f"\nmixed logits of swissmetro, {draws:,} draws: log-likelihood; simulation error and CPU seconds of default",
        {"model, seed": "", **dict.fromkeys(columns, ".3f"), "error": ".2f", "CPU s": ".1f"},
        first=20,
    )
    for label, options in cases.items():
        for seed in range(seeds):
            row: Row = {"model, seed": f"{label}, {seed}"}
            for column, starts in columns.items():
                began = time.process_time()
                model = MixedMNL(formula=UTILITY, draws=draws, **options, starts=starts).fit(data, seed=seed)
                row |= {column: model.estimates_.log_likelihood, "CPU s": time.process_time() - began}
                row["error"] = model.record_.simulation.largest_shift
            table.add(row)
    return table.rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("section", nargs="?", choices=["latent-class", "mixed", "all"], default="all")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--many", type=int, default=100)
    parser.add_argument("--draws", type=int, default=200)
    arguments = parser.parse_args()
    if arguments.section != "mixed":
        latent_class(arguments.seeds, arguments.many)
    if arguments.section != "latent-class":
        mixed(min(arguments.seeds, 3), arguments.draws)
