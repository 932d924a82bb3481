"""Stacking on simulated tables, and its cost.

    python -m benchmarks.stacking [logits] [chains] [labels] [cost]

logits: the stack against the multinomial logit, on choices that follow a logit. chains: the stack against PCMC-Net, on
choices with context effects. Differences are in the mean NLL of new choice sets. labels: choices between labelled items
that follow a CDM, which no Markov chain with constant rates reproduces. cost: the time of a stack, and of one fit of
each of its members, in one run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from benchmarks.harness import Row, Table
from pcmcnet import MODELS, ChoiceData, Stacking, stationary_distribution
from pcmcnet.arrays import Bools, Floats
from pcmcnet.datasets import airline, markov, mlba

ROLES: dict[str, Any] = {"choice_set": "choice_set", "chosen": "chosen"}
TEST_SETS = 4_000
LOGITS = 20  # simulated tables of 200 to 800 choice sets
COLUMNS = {"table": "", "sets": ",", "rival": ".4f", "stack": ".4f", "difference": "+.4f", "seconds": ".1f"}


def logit_table(sets: int, seed: int) -> ChoiceData:
    """Draw choices of a multinomial logit from sets of 2 to 6 alternatives with 3 to 8 features."""
    rng = np.random.default_rng(seed)
    n_features = int(rng.integers(3, 9))
    sizes = rng.integers(2, 7, sets)
    of_set = np.repeat(np.arange(sets), sizes)
    x = rng.normal(size=(len(of_set), n_features))
    utility = x @ rng.normal(0, 0.7, n_features) + rng.gumbel(size=len(of_set))
    top = np.full(sets, -np.inf)
    np.maximum.at(top, of_set, utility)
    columns = {f"x{k}": x[:, k] for k in range(n_features)}
    table = {"choice_set": of_set, "chosen": utility == top[of_set], **columns}
    return ChoiceData.from_long(table, **ROLES, features=list(columns))


def logits() -> Iterator[tuple[str, ChoiceData, ChoiceData]]:
    """Yield simulated logits with 200 to 800 choice sets, and new sets to predict."""
    for seed in range(LOGITS):
        sets = 200 + 600 * seed // (LOGITS - 1)
        data = logit_table(sets + TEST_SETS, seed)
        yield f"logit {seed}", data[:sets], data[sets:]


def chains() -> Iterator[tuple[str, ChoiceData, ChoiceData]]:
    """Yield simulated tables with context effects, and new sets to predict."""
    items: dict[str, Any] = {**ROLES, "alternative": "alternative", "features": ["alternative"]}
    simulators: dict[str, tuple[Any, dict[str, Any]]] = {
        "mlba": (mlba.simulate, {**ROLES, "features": ["attr1", "attr2"]}),
        "airline": (airline.simulate, airline.ROLES),
        "rock-paper-scissors": (markov.simulate_rock_paper_scissors, items),
    }
    for name, (simulate, roles) in simulators.items():
        is_large = name == "airline"  # up to 50 alternatives
        for seed, sets in enumerate((500,) if is_large else (500, 1_000, 2_000)):
            test = TEST_SETS // 4 if is_large else TEST_SETS
            data = ChoiceData.from_long(simulate(sets + test, seed=seed), **roles)
            yield f"{name} {sets}", data[:sets], data[sets:]


def compared(title: str, tables: Iterator[tuple[str, ChoiceData, ChoiceData]], rival: str) -> list[Row]:
    """Print the NLL of a rival and of the stack on each table, and the mean difference."""
    table = Table(title, COLUMNS, first=26)
    for name, train, test in tables:
        alone = -MODELS[rival]().fit(train, progress=False).score(test)
        began = time.perf_counter()
        stack = -Stacking().fit(train, progress=False).score(test)
        seconds = time.perf_counter() - began
        row = {"table": name, "sets": len(train), "rival": alone, "stack": stack, "difference": stack - alone}
        table.add({**row, "seconds": seconds})
    mean = {key: float(np.mean([row[key] for row in table.rows])) for key in ("rival", "stack", "difference")}
    table.add({"table": "mean", **mean})
    return table.rows


@dataclass(frozen=True)
class ItemChoices:
    """Choices between items that follow a CDM: every other item j of the set adds effects[i, j] to the utility of i."""

    is_offered: Bools  # (S, items)
    p: Floats  # (S, items) true probabilities
    data: ChoiceData

    @classmethod
    def simulate(cls, items: int, sets: int, seed: int) -> ItemChoices:
        """Draw effects with standard deviation 0.5, sets of 2 to 8 items, and choices."""
        rng = np.random.default_rng(seed)
        effects = rng.normal(0, 0.5, (items, items)) * (1 - np.eye(items))
        sizes = rng.integers(2, min(items, 8) + 1, sets)
        is_offered = rng.random((sets, items)).argsort(1).argsort(1) < sizes[:, None]
        utility = np.where(is_offered, is_offered @ effects.T, -np.inf)
        p = np.exp(utility - utility.max(1, keepdims=True))
        chosen = (utility + rng.gumbel(size=utility.shape)).argmax(1)
        of_set, item = np.nonzero(is_offered)
        table = {"choice_set": of_set, "item": np.char.add("item ", item.astype(str)), "chosen": item == chosen[of_set]}
        data = ChoiceData.from_long(table, **ROLES, alternative="item", features=["item"])
        return cls(is_offered, p / p.sum(1, keepdims=True), data)

    def expected_nll(self, p: Floats, first: int) -> float:  # (S', items)
        """Return the expected NLL of predicted probabilities, on the sets from number ``first`` on."""
        offered = self.is_offered[first:]
        return -float(np.sum(self.p[first:][offered] * np.log(p[offered]))) / len(offered)

    def best_chain(self, first: int) -> Floats:
        """Return the probabilities of the chain with the lowest expected NLL on the sets from number ``first`` on."""
        mask, truth = (torch.from_numpy(a[first:]) for a in (self.is_offered, self.p))
        log_rates = torch.zeros(2 * (truth.shape[1],), dtype=torch.float64, requires_grad=True)
        optimiser = torch.optim.LBFGS([log_rates], max_iter=300, line_search_fn="strong_wolfe")

        def loss() -> torch.Tensor:
            optimiser.zero_grad()
            p = stationary_distribution(log_rates.exp().expand(len(mask), -1, -1), mask)
            value = -(truth[mask] * p[mask].log()).sum() / len(mask)
            value.backward()
            return value

        optimiser.step(loss)
        return stationary_distribution(log_rates.detach().exp().expand(len(mask), -1, -1), mask).numpy()


def labels() -> list[Row]:
    """Print the expected NLL of models of labels, and of the truth, if choices follow a CDM."""
    models = ("pcmcnet", "pcmc", "cdm", "stacking")
    columns = {"items": "", "sets": ",", "truth": ".4f", "best chain": ".4f", **dict.fromkeys(models, ".4f")}
    table = Table("expected NLL of new choices between items, which follow a CDM", columns, first=12)
    for items, sets in ((6, 3_000), (15, 5_000)):
        choices = ItemChoices.simulate(items, sets + TEST_SETS, seed=0)
        row = {"items": items, "sets": sets, "truth": choices.expected_nll(choices.p[sets:], sets)}
        row["best chain"] = choices.expected_nll(choices.best_chain(sets), sets)
        for name in models:
            p = np.zeros((TEST_SETS, items))
            model = MODELS[name]().fit(choices.data[:sets], progress=False)
            p[choices.is_offered[sets:]] = model.predict_proba(choices.data[sets:])
            row[name] = choices.expected_nll(p, sets)
        table.add(row)
    return table.rows


def cost() -> list[Row]:
    """Time a stack, and one fit of each of its members, on 5,000 sets of 4 alternatives."""
    columns = {"sets": ",", "members": ".1f", "stack": ".1f", "ratio": ".2f"}
    table = Table("seconds of one fit of each member, one after another, and of the stack", columns, first=12)
    for sets in (1_000, 5_000):
        data = ChoiceData.from_long(four_modes(sets), **ROLES, features=["price", "time", "comfort", "changes"])
        began = time.perf_counter()
        for name in ("pcmcnet", "boosted", "lc-mnl", "mnl"):
            MODELS[name]().fit(data, progress=False)
        members = time.perf_counter() - began
        began = time.perf_counter()
        Stacking().fit(data, progress=False)
        stack = time.perf_counter() - began
        table.add({"sets": sets, "members": members, "stack": stack, "ratio": stack / members})
    return table.rows


def four_modes(sets: int) -> dict[str, Any]:
    """Draw choices from sets of 4 alternatives with a threshold in the price and an interaction."""
    rng = np.random.default_rng(0)
    x = rng.gamma(2.0, 1.0, (sets, 4, 4))
    utility = -1.5 * np.maximum(x[..., 0] - 2, 0) - 0.5 * x[..., 1] + (x[..., 2] > 2) * x[..., 3]
    utility += rng.gumbel(size=(sets, 4))
    columns = {name: x[..., k].ravel() for k, name in enumerate(("price", "time", "comfort", "changes"))}
    chosen = utility == utility.max(1, keepdims=True)
    return {"choice_set": np.repeat(np.arange(sets), 4), "chosen": chosen.ravel(), **columns}


if __name__ == "__main__":
    for section in sys.argv[1:] or ["logits", "chains", "labels", "cost"]:
        if section == "cost":
            cost()
        elif section == "labels":
            labels()
        elif section == "chains":
            compared("NLL of PCMC-Net alone and of the stack, on simulated context effects", chains(), "pcmcnet")
        else:
            compared("NLL of the multinomial logit and of the stack, on simulated logits", logits(), "mnl")
