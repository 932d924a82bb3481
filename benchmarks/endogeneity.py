"""Endogenous prices and choice-based samples: estimates, standard errors and coverage on simulated tables.

python -m benchmarks.endogeneity [--json FILE] [control] [models] [berry] [wesml]

control    100 simulated markets (pcmcnet.datasets.market) with 1,500 purchases: the price coefficient of a logit
           without and with a control function, and the coverage of 95% intervals (normal) with the bootstrap over
           households, which estimates both stages in each of 100 replicates. The first 30 are also shown alone.
models     one market with 6,000 purchases: the elasticity of the share of product a, for an increase in its price
           by 10%, of several models without and with the residual as a feature
berry      200 simulated tables of 150 markets of 100,000 customers, who buy one of three products or none: the price
           coefficient by least squares and by two-stage least squares (pcmcnet.berry_inversion), and the coverage of
           95% intervals
wesml      200 choice-based samples with as many choices of each of three modes: constants and slopes of a logit
           without and with weights, and the coverage of 95% intervals with robust errors
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import pcmcnet as pn
from benchmarks.harness import RUNS, Row, Section, Table, run
from pcmcnet.arrays import Floats
from pcmcnet.datasets import market

MARKETS, FIRST_MARKETS, PURCHASES, REPLICATES = 100, 30, 1_500, 100
MODEL_PURCHASES = 6_000
SAMPLES, PER_MODE = 200, 400
FORMULA = "price + advertising"
MODELS: dict[str, Callable[[], Any]] = {
    "mnl": pn.MNL,
    "mixed-mnl": lambda: pn.MixedMNL(random={"price": "normal"}),
    "boosted": pn.Boosted,
    "pcmcnet": pn.PCMCNet,
}


def purchases(sets: int, seed: int) -> pn.ChoiceData:
    """Read a simulated market."""
    return pn.ChoiceData.from_long(market.simulate(sets, seed=seed), **market.ROLES)


def control() -> list[Row]:
    """Measure bias and coverage of the price coefficient without and with a control function."""
    naive, corrected, errors = [], [], []
    for seed in range(MARKETS):
        data = purchases(PURCHASES, seed)
        stage = pn.control_function(data, "price", instruments=["cost"])
        naive.append(price_of(pn.MNL(formula=FORMULA).fit(data, progress=False)))
        model = pn.MNL(formula=f"{FORMULA} + {stage.residual}").fit(stage.data, progress=False)
        options: dict[str, Any] = {"first_stage": stage, "replicates": REPLICATES, "workers": 1, "progress": False}
        result = pn.bootstrap(model, stage.data, price_of, **options)
        corrected.append(price_of(model))
        errors.append(result.standard_errors["value"])
    columns = {"price coefficient": "", "markets": ",", "truth": ".3f", "mean": ".3f", "off by": "+.1%", "sd": ".3f"}
    table = Table("logits of simulated markets", {**columns, "mean error": ".3f", "coverage": ".3f"}, first=20)
    for n in (FIRST_MARKETS, MARKETS):
        for name, values, spread in (("naive", naive, None), ("control function", corrected, errors)):
            b = np.array(values[:n])
            row: Row = {"price coefficient": name, "markets": n, "truth": market.PRICE, "mean": b.mean()}
            row |= {"off by": b.mean() / market.PRICE - 1, "sd": b.std(ddof=1)}
            if spread is not None:
                s = np.array(spread[:n])
                row |= {"mean error": s.mean(), "coverage": (abs(b - market.PRICE) <= 1.96 * s).mean()}
            table.add(row)
    return table.rows


def price_of(model: Any) -> float:
    """Return the price coefficient of a logit."""
    return float(model.coefficients["price"])


def models() -> list[Row]:
    """Compare the price elasticity of several models without and with the residual."""
    data = purchases(MODEL_PURCHASES, seed=0)
    stage = pn.control_function(data, "price", instruments=["cost"])
    # The naive table has no instrument either: the models differ by the residual alone.
    tables = {"naive": without_residual(stage), "with residual": stage.data}
    columns = {"model": "", "truth": ".3f", "naive": ".3f", "with residual": ".3f"}
    table = Table("elasticity of the share of product a, price + 10%", columns)
    for name, model in MODELS.items():
        row: Row = {"model": name, "truth": true_elasticity()}
        for kind, sets in tables.items():
            fitted = model().fit(sets, seed=0, progress=False)
            share = pn.scenario(fitted, sets, "price *= 1.1 where product == 'a'").shares["a"]
            row[kind] = (share.after / share.before - 1) / 0.1
        table.add(row)
    return table.rows


def without_residual(stage: pn.ControlFunction) -> pn.ChoiceData:
    """Return the choice sets of the second stage without the residual."""
    frame = stage.data.to_frame().drop(columns=stage.residual)
    return pn.ChoiceData.from_long(frame, **{**market.ROLES, "features": ["price", "advertising"]})


def true_elasticity() -> float:
    """Return the elasticity under the true probabilities."""
    table = market.simulate(MODEL_PURCHASES, seed=0)
    rows = {name: table[name].to_numpy() for name in ("price", "advertising", "quality")}
    shape = (MODEL_PURCHASES, len(market.CONSTANTS))
    quality = market.ADVERTISING * rows["advertising"] + rows["quality"]
    rest = np.array(list(market.CONSTANTS.values())) + quality.reshape(shape)

    def share(factor: float) -> float:
        price = rows["price"].reshape(shape) * np.array([factor, 1.0, 1.0])
        p = np.exp(rest + market.PRICE * price)
        return float((p[:, 0] / p.sum(axis=1)).mean())

    return (share(1.1) / share(1.0) - 1) / 0.1


# -- Market shares -----------------------------------------------------------------------------------------------------

TABLES, MARKETS_OF_TABLE, CUSTOMERS = 200, 150, 100_000  # with 10,000 customers, some products are never bought


def berry() -> list[Row]:
    """Measure bias and coverage of the price coefficient by a Berry inversion of market shares."""
    roles: dict[str, Any] = {"choice_set": "market", "counts": "sales", "alternative": "product"}
    values: dict[str, list[float]] = {"least squares": [], "two-stage least squares": []}
    errors = []
    for seed in range(TABLES):
        sales = market.simulate_shares(MARKETS_OF_TABLE, customers=CUSTOMERS, seed=seed)
        data = pn.ChoiceData.from_long(sales, **roles, features=["price", "advertising", "cost"])
        result = pn.berry_inversion(data, instruments=["cost"])
        values["least squares"].append(float(result.least_squares[-1]))
        values["two-stage least squares"].append(result.coefficients["price"])
        errors.append(result.standard_errors["price"])
    columns = {"price coefficient": "", "truth": ".3f", "mean": ".3f", "off by": "+.1%", "sd": ".3f"}
    table = Table("Berry inversions", {**columns, "mean error": ".3f", "coverage": ".3f"}, first=24)
    for name, estimates in values.items():
        b, s = np.array(estimates), np.array(errors)
        row: Row = {"price coefficient": name, "truth": market.PRICE, "mean": b.mean()}
        row |= {"off by": b.mean() / market.PRICE - 1, "sd": b.std(ddof=1)}
        if name != "least squares":
            row |= {"mean error": s.mean(), "coverage": (abs(b - market.PRICE) <= 1.96 * s).mean()}
        table.add(row)
    return table.rows


# -- Choice-based samples ----------------------------------------------------------------------------------------------

MODES, CONSTANTS, TIME = ("car", "bus", "bike"), np.array([0.0, -2.0, -2.5]), -1.0


def wesml() -> list[Row]:
    """Measure bias and coverage of logits fitted to choice-based samples, without and with WESML weights."""
    truth = {"time": TIME, "constant[bus]": CONSTANTS[1], "constant[bike]": CONSTANTS[2]}
    shares = dict(zip(MODES, population(1_000_000, np.random.default_rng(10**6))[2].tolist(), strict=True))
    results: dict[str, list[tuple[Floats, Floats]]] = {"naive": [], "wesml": []}
    for seed in range(SAMPLES):
        data = choice_based_sample(seed)
        for kind, sets in (("naive", data), ("wesml", pn.wesml(data, shares))):
            model = pn.MNL(reference="car").fit(sets, progress=False)
            b, s = model.coefficients, model.standard_errors()
            results[kind].append((np.array([b[k] for k in truth]), np.array([s[k] for k in truth])))
    columns = {"coefficient": "", "sample": "", "truth": ".3f", "mean": ".3f", "sd": ".3f", "mean error": ".3f"}
    table = Table("logits of choice-based samples", {**columns, "coverage": ".3f"}, first=20)
    for k, (name, value) in enumerate(truth.items()):
        for kind, pairs in results.items():
            b, s = (np.array([pair[j][k] for pair in pairs]) for j in (0, 1))
            row = {"coefficient": name, "sample": kind, "truth": value, "mean": b.mean(), "sd": b.std(ddof=1)}
            table.add({**row, "mean error": s.mean(), "coverage": (abs(b - value) <= 1.96 * s).mean()})
    return table.rows


def population(n: int, rng: np.random.Generator) -> tuple[Floats, Floats, Floats]:
    """Draw travel times (n, 3) and choices (n,), and return them with the shares of the choices."""
    times = rng.uniform(0, 2, (n, len(MODES)))
    chosen = (CONSTANTS + TIME * times + rng.gumbel(size=times.shape)).argmax(axis=1)
    return times, chosen, np.bincount(chosen, minlength=len(MODES)) / n


def choice_based_sample(seed: int) -> pn.ChoiceData:
    """Draw as many choices of each mode from a population."""
    times, chosen, _ = population(40_000, np.random.default_rng(seed))
    drawn = np.concatenate([np.flatnonzero(chosen == k)[:PER_MODE] for k in range(len(MODES))])
    table = {
        "trip": np.repeat(np.arange(len(drawn)), len(MODES)),
        "mode": np.tile(MODES, len(drawn)),
        "took": (chosen[drawn][:, None] == np.arange(len(MODES))).ravel(),
        "time": times[drawn].ravel(),
    }
    return pn.ChoiceData.from_long(table, choice_set="trip", chosen="took", alternative="mode", features=["time"])


SECTIONS: dict[str, Section] = {"control": control, "models": models, "berry": berry, "wesml": wesml}

if __name__ == "__main__":
    run(
        "benchmarks.endogeneity", SECTIONS, description=__doc__ or "", json_file=RUNS / "endogeneity.json", device="cpu"
    )
