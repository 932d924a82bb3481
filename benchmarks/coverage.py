"""Coverage of confidence intervals on simulated panels, and the time of a bootstrap.

    python -m benchmarks.coverage [--json FILE] [logits] [networks] [further] [searches] [starts]
        [canada]

A panel has 100 persons with 5 choices each among three alternatives. The person's coefficient of time is normal, so the
choices of a person are dependent. The columns are the same in all panels, and tastes and choices are drawn again.

    logits      300 panels: delta method and bootstrap of a multinomial logit. The logit ignores that tastes vary. So
                the truth is the maximum of its expected log-likelihood, which is computed exactly.
    networks    60 panels: bootstrap of a small PCMC-Net. The truth is the share under the simulated probabilities.
    further     40 further panels of this kind
    searches    60 panels: the same with replicates that repeat the search for the weight decay
    starts      the first 20 of these panels: replicates that start from the fitted network
    canada      the bootstrap of a scenario with 100 replicates of a default PCMC-Net on mode-canada
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import pcmcnet as pn
from benchmarks.harness import RUNS, Row, Section, Table, run, seconds
from pcmcnet.arrays import Floats
from pcmcnet.data.resampling import fit_seed, resample
from pcmcnet.datasets import packaged
from pcmcnet.evaluation.predictions import predicted_log_p

PERSONS, CHOICES, LABELS = 100, 5, ("a", "b", "c")
SETS, J = PERSONS * CHOICES, len(LABELS)
LOGIT_PANELS, NETWORK_PANELS, FURTHER_PANELS, START_PANELS = 300, 60, 40, 20
REPLICATES, SEARCH_REPLICATES = 100, 50
NETWORK: dict[str, Any] = {"hidden": (8,), "members": 1}
COLUMNS = {
    "statistic": "", "truth": ".4f", "mean": ".4f", "sd": ".4f", "mean error": ".4f", "percentile": ".3f",
    "basic": ".3f", "normal": ".3f", "panels": ",",
}  # fmt: skip


# -- Panels ------------------------------------------------------------------------------------------------------------


class PanelDesign:
    """The columns of all panels, and the true probabilities."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.cost, self.time = rng.uniform(0, 2, (2, SETS, J))

    def utilities(self, tastes: Floats, cost: Floats) -> Floats:  # (..., S), (S, J) -> (..., S, J)
        """Return the utilities of persons with these coefficients of time."""
        return np.array([0.3, 0.0, -0.2]) - cost + tastes[..., None] * self.time

    def probabilities(self, cost: Floats) -> Floats:  # (S, J) -> (S, J)
        """Return the true probabilities, averaged over tastes at quantiles of their distribution."""
        from scipy.special import ndtri, softmax

        quantiles = -1 + 0.8 * ndtri((np.arange(1_000) + 0.5) / 1_000)
        total = np.zeros((SETS, J))
        for taste in quantiles:
            total += softmax(self.utilities(np.full(SETS, taste), cost), axis=1)
        return total / len(quantiles)

    def table(self, chosen: Floats, **columns: Any) -> pn.ChoiceData:
        """Return the choice sets with the choices (S,)."""
        rows: dict[str, Any] = {
            "trip": np.repeat(np.arange(SETS), J),
            "who": np.repeat(np.arange(SETS) // CHOICES, J),
            "mode": np.tile(LABELS, SETS),
            "cost": self.cost.ravel(),
            "time": self.time.ravel(),
            "took": (chosen[:, None] == np.arange(J)).ravel(),
        }
        roles = {"choice_set": "trip", "chosen": "took", "alternative": "mode", "features": ["cost", "time"]}
        return pn.ChoiceData.from_long({**rows, **columns}, **roles, person="who")

    def panel(self, seed: int) -> pn.ChoiceData:
        """Draw the tastes and choices of a panel."""
        rng = np.random.default_rng([1, seed])
        tastes = np.repeat(-1 + 0.8 * rng.standard_normal(PERSONS), CHOICES)
        return self.table((self.utilities(tastes, self.cost) + rng.gumbel(size=(SETS, J))).argmax(1))

    def raised_cost(self) -> tuple[Floats, pn.ChoiceData]:
        """Return the costs (S, J) with alternative a 20% more expensive, and a table with these costs."""
        cost = self.cost * np.array([1.2, 1.0, 1.0])
        return cost, self.table(np.zeros(SETS), cost=cost.ravel())

    def expected_logit(self) -> pn.MNL:
        """Return the logit at the maximum of its expected log-likelihood: each choice has its probability as weight."""
        p = self.probabilities(self.cost)
        tables = [self.table(np.full(SETS, j)) for j in range(J)]
        weighted = [replace(table, weights=p[:, j]) for j, table in enumerate(tables)]
        joined = weighted[0].concat(weighted[1]).concat(weighted[2])
        return pn.MNL(errors="robust").fit(joined, progress=False)


def share_of_first(model: Any, data: pn.ChoiceData) -> float:
    """Return the predicted share of alternative a."""
    return float(np.exp(predicted_log_p(model, data)).reshape(SETS, J)[:, 0].mean())


def covered(ends: tuple[float, float], truth: float) -> bool:
    """Return True if an interval contains the truth."""
    return ends[0] <= truth <= ends[1]


class Coverage:
    """Estimates, standard errors and hits of intervals, by statistic."""

    def __init__(self, truth: dict[str, float]) -> None:
        self.truth = truth
        self.values: dict[str, list[float]] = {name: [] for name in truth}
        self.errors: dict[str, list[float]] = {name: [] for name in truth}
        self.hits: dict[tuple[str, str], list[bool]] = {}

    def add(self, name: str, value: float, error: float, **intervals: tuple[float, float]) -> None:
        """Add an estimate with its standard error and intervals by kind."""
        self.values[name].append(value)
        self.errors[name].append(error)
        for kind, ends in intervals.items():
            self.hits.setdefault((name, kind), []).append(covered(ends, self.truth[name]))

    def add_bootstrap(self, result: pn.BootstrapResult) -> None:
        """Add all statistics of a bootstrap with their three kinds of intervals."""
        kinds = {kind: result.intervals_of(kind) for kind in ("percentile", "basic", "normal")}
        for name, value in zip(result.labels, result.values.tolist(), strict=True):
            self.add(name, value, result.standard_errors[name], **{kind: ends[name] for kind, ends in kinds.items()})

    def print(self, title: str) -> list[Row]:
        """Print a row per statistic, and return the rows."""
        table = Table(title, COLUMNS, first=26)
        for name, truth in self.truth.items():
            shares = {kind: np.mean(hits) for (of, kind), hits in self.hits.items() if of == name}
            values, errors = np.array(self.values[name]), np.array(self.errors[name])
            figures = {"mean": values.mean(), "sd": values.std(ddof=1), "mean error": errors.mean()}
            table.add({"statistic": name, "truth": truth, **figures, **shares, "panels": len(values)})
        return table.rows


# -- Sections ----------------------------------------------------------------------------------------------------------


def logits() -> list[Row]:
    """Measure the coverage of 95% intervals of a logit: the delta method, and the bootstrap by person."""
    design = PanelDesign()
    expected, (_, raised) = design.expected_logit(), design.raised_cost()
    b = expected.coefficients

    def statistic(model: Any) -> dict[str, float]:
        return {"time": model.coefficients["time"], "share": share_of_first(model, raised)}

    coverage = Coverage({"ratio (delta method)": b["time"] / b["cost"], **statistic(expected)})
    for seed in range(LOGIT_PANELS):
        data = design.panel(seed)
        model = pn.MNL().fit(data, progress=False)
        ratio = pn.delta(model, "time / cost", errors="clustered")
        coverage.add("ratio (delta method)", ratio.value, ratio.std_error, normal=ratio.interval)
        coverage.add_bootstrap(bootstrapped(model, data, statistic, seed))
    return coverage.print("coverage of 95% intervals of a multinomial logit")


def networks(*, first: int = 0, panels: int = NETWORK_PANELS, repeat_search: bool = False) -> list[Row]:
    """Measure the coverage of 95% intervals of a scenario's share, for the bootstrap of a small PCMC-Net."""
    design = PanelDesign()
    cost, raised = design.raised_cost()
    before, after = (design.probabilities(c)[:, 0].mean() for c in (design.cost, cost))
    coverage = Coverage({"share": after, "change": after - before})
    for seed in range(first, first + panels):
        data = design.panel(seed)
        model = pn.PCMCNet(**NETWORK).fit(data, seed=seed, progress=False)
        statistic = shares_in(data, raised)
        coverage.add_bootstrap(bootstrapped(model, data, statistic, seed, repeat_search=repeat_search))
    words = ", with a search in each replicate" if repeat_search else ""
    return coverage.print(f"coverage of 95% intervals of a small PCMC-Net{words}")


def further() -> list[Row]:
    """Measure the same coverage on further panels."""
    return networks(first=NETWORK_PANELS, panels=FURTHER_PANELS)


def searches() -> list[Row]:
    """Measure the same coverage if each replicate repeats the search for the weight decay and the epochs."""
    return networks(repeat_search=True)


def starts() -> list[Row]:
    """Compare the standard errors of replicates from new weights and from the weights of the fitted network."""
    design = PanelDesign()
    _, raised = design.raised_cost()
    errors: dict[str, list[Floats]] = {"new weights": [], "fitted weights": []}
    values = []
    for seed in range(START_PANELS):
        data = design.panel(seed)
        model = pn.PCMCNet(**NETWORK).fit(data, seed=seed, progress=False)
        statistic = shares_in(data, raised)
        values.append(list(statistic(model).values()))
        errors["new weights"].append(bootstrapped(model, data, statistic, seed).draws.std(axis=0, ddof=1))
        warm = []
        for source in np.random.SeedSequence(seed).spawn(REPLICATES):
            fixed = {"weight_decay": model.record_.weight_decay, "epochs": model.record_.epochs}
            part = resample(data, source)
            near = pn.PCMCNet(**NETWORK, **fixed).fit(part, seed=fit_seed(source), init=model, progress=False)
            warm.append(list(statistic(near).values()))
        errors["fitted weights"].append(np.std(warm, axis=0, ddof=1))
    table = Table("standard errors of a bootstrap", {"start": "", "share": ".4f", "change": ".4f"}, first=26)
    for name, each in {**errors, "sd of estimates over panels": [np.std(values, axis=0, ddof=1)]}.items():
        share, change = np.mean(each, axis=0).tolist()
        table.add({"start": name, "share": share, "change": change})
    return table.rows


def canada() -> list[Row]:
    """Measure the time of a bootstrap of a scenario with 100 replicates of a default PCMC-Net on mode-canada."""
    rows, schema = packaged.long_form("mode-canada")
    data = pn.ChoiceData.from_schema(rows, schema)
    model = pn.PCMCNet().fit(data, seed=0, progress=False)
    results = []

    def change(fitted: Any) -> float:
        return float(pn.scenario(fitted, data, "cost *= 1.1 where alt == 'air'").shares["air"].change)

    def measured() -> None:
        results.append(pn.bootstrap(model, data, change, replicates=100, workers=os.cpu_count(), progress=False))

    columns = {"table": "", "replicates": ",", "cores": ",", "networks": ",", "seconds": ".0f", "CPU seconds": ".0f"}
    table = Table("bootstrap of a scenario", columns)
    before = os.times()
    took = seconds(measured)
    after = os.times()
    spent = after.user + after.system - before.user - before.system
    sizes = {"replicates": len(results[0].draws), "cores": os.cpu_count(), "networks": model.spec_.members}
    table.add({"table": "mode-canada", **sizes, "seconds": took, "CPU seconds": spent})
    print(results[0])
    return table.rows


def shares_in(data: pn.ChoiceData, raised: pn.ChoiceData) -> Callable[[Any], dict[str, float]]:
    """Return a statistic: the share of alternative a if it is 20% more expensive, and the change in its share."""

    def statistic(model: Any) -> dict[str, float]:
        share = share_of_first(model, raised)
        return {"share": share, "change": share - share_of_first(model, data)}

    return statistic


def bootstrapped(
    model: Any, data: pn.ChoiceData, statistic: Callable[[Any], Any], seed: int, *, repeat_search: bool = False
) -> pn.BootstrapResult:
    """Return the bootstrap of a statistic by person."""
    replicates = SEARCH_REPLICATES if repeat_search else REPLICATES
    options: dict[str, Any] = {"replicates": replicates, "seed": seed, "repeat_search": repeat_search}
    return pn.bootstrap(model, data, statistic, **options, workers=1, progress=False)


SECTIONS: dict[str, Section] = {
    "logits": logits,
    "networks": networks,
    "further": further,
    "searches": searches,
    "starts": starts,
    "canada": canada,
}

if __name__ == "__main__":
    run("benchmarks.coverage", SECTIONS, description=__doc__ or "", json_file=RUNS / "coverage.json", device="cpu")
